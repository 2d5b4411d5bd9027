"""Login prompts: one at a time, hidden input, never answered by accident."""

from __future__ import annotations

import re

import msgspec

from tests.tui.dashboard import publish, showing
from tests.tui.screen_text import arrive, at_rest, text_of
from tests.tui.states.states import asking, calm, source, troubled
from trainmon.model import Prompt
from tui.modals import LoginPrompt
from tui.screens.main import MainScreen


async def test_a_question_names_its_host_hides_what_is_typed_and_gives_the_answer() -> None:
    async with showing(asking()) as (app, pilot, backend):
        assert isinstance(app.screen, LoginPrompt)
        await pilot.press(*"123456")
        await at_rest(pilot)
        text = text_of(app)
        assert "Log in to gpu-001: Duo two-factor" in text
        assert "Passcode or option (1-2):" in text
        assert "123456" not in text

        await pilot.press("enter")
        await at_rest(pilot)
        assert backend.requests == [("answer", 7, ("123456",))]


async def test_fields_that_are_filled_in_at_once_get_what_is_theirs() -> None:
    three = tuple((name, echo) for name, echo in (("Login name: ", True), ("Password: ", False), ("Code: ", False)))
    async with showing(asking(Prompt(id=1, host="a", fields=three, title="Login"))) as (app, pilot, backend):
        assert "Enter: next field" in text_of(app)
        arrive(app, *"ana", "enter", *"pw")
        await at_rest(pilot)
        assert re.search(r"Login name:.*\n *│ ana .*\n.*\n.*Password:.*\n *│ •• ", text_of(app))
        arrive(app, "enter", *"123", "enter")
        await at_rest(pilot)
        assert backend.requests == [("answer", 1, ("ana", "pw", "123"))]


async def test_questions_come_one_at_a_time_and_escape_declines() -> None:
    two = asking(
        Prompt(id=1, host="a", title="Password", fields=(("Password: ", False),)), Prompt(id=2, host="b", title="Code")
    )
    async with showing(two) as (app, pilot, backend):
        assert "Log in to a: Password" in text_of(app)

        await pilot.press("escape")
        await at_rest(pilot)
        assert "Log in to b: Code" in text_of(app)

        await pilot.press("enter")
        await at_rest(pilot)
        assert backend.requests == [("answer", 1, None), ("answer", 2, ())]
        assert isinstance(app.screen, MainScreen)


async def test_what_a_host_says_leaves_room_for_the_question_and_its_answer() -> None:
    rules = "\n".join(f"Rule {number} of this site, which no dialog has the width for" for number in range(40))
    prompt = Prompt(id=1, host="a", title="Rules", instructions=rules, fields=(("Password: ", False),))
    async with showing(asking(prompt), size=(80, 24)) as (app, pilot, _):
        await pilot.press("x")
        await at_rest(pilot)
        assert "Rule 1 of this site" in text_of(app)
        assert re.search(r"Password:.*\n.*•.*\n.*\n.*Enter logs in  Esc cancels the login", text_of(app))


async def test_a_login_prompt_that_is_no_longer_needed_closes_by_itself() -> None:
    async with showing(asking()) as (app, pilot, backend):
        await publish(app, pilot, backend, calm())

        assert isinstance(app.screen, MainScreen)
        assert "gpu-001 no longer waits for an answer" in text_of(app)


async def test_a_question_waits_until_nobody_types_so_that_no_key_answers_it() -> None:
    async with showing(calm()) as (app, pilot, backend):
        await pilot.press("slash", *"llm")
        backend.publish(asking())
        await at_rest(pilot)
        await pilot.press(*"-7", "enter")
        await at_rest(pilot)
        assert isinstance(app.screen, MainScreen)
        assert (app.main.runs.filter, backend.requests) == ("llm-7", [])

        await publish(app, pilot, backend, asking())
        assert isinstance(app.screen, LoginPrompt)


async def test_a_question_that_times_out_under_the_fingers_keeps_the_rest_of_the_password() -> None:
    async with showing(asking()) as (app, pilot, backend):
        await pilot.press(*"hun")
        await publish(app, pilot, backend, calm())
        assert "The login has ended: nothing is sent" in text_of(app)
        await pilot.press(*"terKSq", "enter")
        await at_rest(pilot)

        assert isinstance(app.screen, MainScreen)
        assert backend.requests == [("answer", 7, None)]


async def test_login_goes_to_the_one_held_host_and_asks_which_when_there_are_several() -> None:
    async with showing(troubled()) as (app, pilot, backend):
        await pilot.press("L")
        await at_rest(pilot)
        assert backend.requests == [("login", "node:gpu-006")]

        why = "refused: a long reason, with more words than this dialog has the width for"
        held = {**troubled().sources, "node:gpu-007": source(7, health="down", phase="held", error=why)}
        await publish(app, pilot, backend, msgspec.structs.replace(troubled(), sources=held))
        await pilot.press("L")
        await at_rest(pilot)
        assert re.search(r"› gpu-006  a person must log in +│", text_of(app))
        assert re.search(r"  gpu-007  refused: a long reason,[^│]*… │", text_of(app))
        await pilot.press("j", "enter")
        await at_rest(pilot)
        assert backend.requests[-1] == ("login", "node:gpu-007")


async def test_login_is_offered_where_a_prompt_helps_and_elsewhere_says_that_it_does_not() -> None:
    async with showing(troubled()) as (app, pilot, backend):
        refused = source(7, health="down", phase="held", error="refuses the login of ana", can_log_in=False)
        sources = {**troubled().sources, "node:gpu-007": refused}
        await publish(app, pilot, backend, msgspec.structs.replace(troubled(), sources=sources))
        await pilot.press("L")
        await at_rest(pilot)
        assert backend.requests == [("login", "node:gpu-006")]

        del sources["node:gpu-006"]
        await publish(app, pilot, backend, msgspec.structs.replace(troubled(), sources=sources))
        await pilot.press("L")
        await at_rest(pilot)
        assert backend.requests[-1] == ("login", "node:gpu-007")
        assert "gpu-007 needs no password or code; reconnecting" in text_of(app)
