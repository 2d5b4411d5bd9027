"""The plan dialog: what it shows, what it takes to act, and that no slip does."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from tests.tui.apps import ActionApp
from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, text_of
from tests.tui.states import plans
from tests.tui.states.states import NASTY, NOW
from trainmon.actions.verbs import VERB
from trainmon.lib import say
from trainmon.model import Action, ActionRequest, CreateFile, Execute, Expected, Plan, Refusal, RemoveFile, Verb
from tui.modals.plan import PlanScreen
from tui.views.actions import checking_rows, command_line, is_dangerous, plan_rows, plan_summary, visible, wrapped

KILL = ActionRequest(verb="kill", subjects=("llm-7b-a",), requested_at=NOW)


@asynccontextmanager
async def planning(
    ask: ActionRequest = KILL, backend: FakeBackend | None = None, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[ActionApp, Pilot[None], FakeBackend, PlanScreen]]:
    """The plan of an Ask is open."""
    backend = backend or FakeBackend(plans.with_jobs())
    app = ActionApp(backend)
    async with running(app, size=size) as pilot:
        app.actions.open(ask)
        await at_rest(pilot)
        assert isinstance(app.screen, PlanScreen)
        yield app, pilot, backend, app.screen


def is_closed(app: ActionApp) -> bool:
    return not isinstance(app.screen, PlanScreen)


def answering(maker: object) -> FakeBackend:
    backend = FakeBackend(plans.with_jobs())
    backend.plan = maker  # type: ignore[assignment]
    return backend


# ---- before the plan is there ----


async def test_it_opens_at_once_names_the_queried_host_and_has_nothing_to_press_but_close() -> None:
    async with planning() as (app, _, backend, screen):
        text = text_of(app)

        assert "Kill: llm-7b-a" in text
        assert "checking llm-7b-a on login1 … 0s" in text
        assert screen.act_button.disabled
        assert screen.close_button.has_focus
        assert backend.requests == [("prepare", "kill", ("llm-7b-a",))]


def test_the_plan_of_a_restart_may_also_wait_for_a_node() -> None:
    (line,) = checking_rows("llm", "login1", 12.0, 200, asks_nodes=True)
    assert line.spans[0].text.startswith("login1, or a node, has not answered for 12s.")


async def test_a_host_that_does_not_answer_is_named_after_ten_seconds_and_escape_still_closes() -> None:
    async with planning() as (app, pilot, backend, screen):
        app.clock.at += 12.0
        screen.tick()
        await at_rest(pilot)
        assert "login1 has not answered for 12s" in text_of(app)

        await pilot.press("escape")
        await at_rest(pilot)
        assert is_closed(app)
        assert backend.acted == []


async def test_the_plan_comes_from_another_thread() -> None:
    async with planning() as (app, pilot, backend, _):
        ask, reply = backend.replies[0]
        thread = threading.Thread(target=reply, args=(plans.kills(ask),))
        thread.start()
        thread.join(60.0)
        await at_rest(pilot)

        assert "Create the kill switch of llm-7b-a" in text_of(app)


async def test_a_plan_that_comes_after_escape_is_not_shown() -> None:
    async with planning() as (app, pilot, backend, _):
        await pilot.press("escape")
        ask, reply = backend.replies[0]
        reply(plans.kills(ask))
        await at_rest(pilot)

        assert is_closed(app)


async def test_the_reason_is_kept_in_the_switch_file_only_if_the_plan_creates_one() -> None:
    async with planning() as (app, _, _, screen):
        assert "recorded in the ledger" in text_of(app)
        assert "in the switch" not in text_of(app), "no plan is there yet"
        screen.on_plan_screen_answered(PlanScreen.Answered(plans.kills(KILL), 1))
        assert screen.why.placeholder == "(optional, recorded in the ledger and in the switch)"
        sends = replace(plans.kills(KILL).actions[0], operation=Execute(("scancel", "--signal=USR1", "418223")))
        screen.on_plan_screen_answered(PlanScreen.Answered(Plan(request=KILL, actions=(sends,)), 1))
        assert screen.why.placeholder == "(optional, recorded in the ledger)"


async def test_a_plan_that_is_looked_at_for_long_says_how_old_it_is() -> None:
    async with planning(backend=answering(plans.kills)) as (app, pilot, _, screen):
        app.clock.at += 300.0
        screen.tick()
        await pilot.pause()

        assert "Kill: llm-7b-a      read 5m ago" in text_of(app)


# ---- what it takes to act ----


async def test_the_same_capital_again_enter_and_escape_do_not_act() -> None:
    async with planning(backend=answering(plans.kills)) as (app, pilot, backend, _):
        await pilot.press("K", "K", "y", "space", "enter")
        await at_rest(pilot)

        assert is_closed(app)
        assert backend.acted == []


@pytest.mark.parametrize("way", ["tab", "right"])
async def test_the_button_that_acts_is_reached_by_tab_or_an_arrow(way: str) -> None:
    async with planning(backend=answering(plans.kills)) as (app, pilot, backend, screen):
        await pilot.press(way)
        await at_rest(pilot)
        assert screen.act_button.has_focus
        assert "›[ ▲ Kill ]" in text_of(app)

        await pilot.press("enter")
        await at_rest(pilot)
        assert [action.subject for action in backend.acted] == ["llm-7b-a"]
        assert app.toasts == [("requested", "Create the kill switch of llm-7b-a", "information")]


async def test_after_a_crash_of_the_evaluator_the_plan_of_requeue_says_that_it_evaluates() -> None:
    def evaluates(request: ActionRequest) -> Plan:
        action = Action(
            id="a", verb="evaluate", subject="llm-7b-a", cluster="prod", host="login1",
            operation=Execute(("sbatch", "eval.sbatch", "/fsx/ckpt/40")), title="Evaluate the checkpoint of step 40",
        )  # fmt: skip
        return Plan(request=request, actions=(action,))

    request = ActionRequest(verb="requeue", subjects=("llm-7b-a",), requested_at=NOW)
    async with planning(request, answering(evaluates)) as (app, _, _backend, _screen):
        text = text_of(app)
        assert "Evaluate: llm-7b-a" in text
        assert "[ Evaluate ]" in text


async def test_the_mouse_presses_the_buttons() -> None:
    async with planning(backend=answering(plans.kills)) as (_, pilot, backend, _screen):
        await pilot.click("#act")
        await at_rest(pilot)

        assert len(backend.acted) == 1


async def test_a_refused_job_has_the_name_that_the_title_gives_it() -> None:
    ask = replace(KILL, subjects=("prod/418500",))
    async with planning(ask, backend=answering(plans.refuses)) as (app, _, _, _):
        assert "Kill: job 418500" in text_of(app)
        assert "✗ refused: job 418500" in text_of(app)


async def test_what_is_refused_can_only_be_closed_and_says_the_way_out() -> None:
    async with planning(backend=answering(plans.refuses)) as (app, pilot, backend, screen):
        text = text_of(app)
        assert "✗ refused: llm-7b-a" in text
        assert "the kill switch has been armed for 4m by ana" in text
        assert "remove it first: U" in text
        assert not screen.act_button.display

        await pilot.press("right", "tab", "enter")
        await at_rest(pilot)
        assert backend.acted == []


async def test_a_job_of_several_nodes_opens_its_button_only_when_its_id_is_typed() -> None:
    async with planning(backend=answering(plans.cancels)) as (app, pilot, backend, screen):
        assert "job 418223 holds 2 nodes: type 418223 to confirm" in text_of(app)
        assert screen.act_button.disabled

        await pilot.click("#typed")
        await pilot.press(*"41822", "enter")
        assert screen.typed.has_focus
        assert screen.act_button.disabled

        await pilot.press("3", "enter")
        await at_rest(pilot)
        assert screen.act_button.has_focus
        assert backend.acted == []

        await pilot.press("enter")
        await at_rest(pilot)
        assert len(backend.acted) == 1


# ---- what a person adds ----


async def test_a_required_reason_is_entered_before_the_plan_can_be_run() -> None:
    async with planning(backend=answering(plans.kills)) as (app, pilot, backend, screen):
        await pilot.click("#why")
        await pilot.press(*"ev")
        backend.plan = None
        await pilot.press("enter")
        await at_rest(pilot)
        assert screen.close_button.has_focus
        assert screen.act_button.disabled, "what it would write is not on the screen yet"

        ask, reply = backend.replies[-1]
        assert ask.why == "ev"
        reply(plans.kills(ask))
        await at_rest(pilot)
        assert "trainmon-tui kill by me: ev" in text_of(app)

        await pilot.press("tab", "enter")
        await at_rest(pilot)
        assert [action.why for action in backend.acted] == ["ev"]


async def test_what_an_earlier_look_brings_too_late_is_dropped() -> None:
    async with planning() as (_app, pilot, backend, screen):
        await pilot.click("#why")
        await pilot.press("x", "enter")
        await at_rest(pilot)
        first, second = backend.replies

        second[1](plans.kills(second[0]))
        first[1](plans.kills(first[0]))
        await at_rest(pilot)
        assert screen.plan is not None
        assert screen.plan.request.why == "x"


async def test_queue_asks_how_many_first() -> None:
    ask = ActionRequest(verb="queue", subjects=("llm-7b-a",), requested_at=NOW)
    async with planning(ask, answering(plans.kills)) as (_, pilot, backend, screen):
        assert screen.count.has_focus
        await pilot.press("backspace", *"4x", "enter")
        await at_rest(pilot)

        assert backend.replies[-1][0].count == 4
        assert screen.close_button.has_focus


async def test_of_several_armed_switches_one_is_chosen_and_then_planned() -> None:
    ask = ActionRequest(verb="unkill", subjects=("llm-7b-a",), requested_at=NOW)
    async with planning(ask, answering(plans.switches)) as (app, pilot, backend, _):
        assert "kill switch, armed 4m ago by ana" in text_of(app)
        await pilot.press("j", "enter")
        await at_rest(pilot)
        assert backend.replies[-1][0].switch == "/fsx/save"
        assert "Remove /fsx/save" in text_of(app)

        await pilot.press("tab", "enter")
        await at_rest(pilot)
        assert len(backend.acted) == 1


async def test_a_hung_run_is_offered_the_cancel_of_its_job() -> None:
    async with planning(backend=answering(plans.kills)) as (app, pilot, backend, _):
        await pilot.click("#instead")
        await at_rest(pilot)

        assert isinstance(app.screen, PlanScreen)
        assert app.screen.request.verb == "cancel"
        assert backend.requests[-1] == ("prepare", "cancel", ("llm-7b-a",))


async def test_a_run_that_steps_is_not() -> None:
    ask = ActionRequest(verb="kill", subjects=("llm-70b",), requested_at=NOW)
    async with planning(ask, answering(plans.kills)) as (_app, _pilot, _backend, screen):
        assert not screen.instead_button.display


async def test_several_are_counted_and_everything_can_be_scrolled_to_in_a_small_terminal() -> None:
    def mixed(ask: ActionRequest) -> Plan:
        made = plans.kills(ask)
        return Plan(request=ask, actions=made.actions[1:], refusals=(Refusal(subject="a", why="it is armed already"),))

    ask = ActionRequest(verb="kill", subjects=("a", "b", "c", "last"), requested_at=NOW)
    async with planning(ask, answering(mixed)) as (app, pilot, _, screen):
        text = text_of(app)
        assert "3 actions, 1 refused" in text
        assert "[ ▲ Kill (3 actions) ]" in text
        assert f"{len(screen.body.rows) - screen.body.size.height} more lines below (j)" in text
        assert "End last" not in text

        await pilot.press("G")
        await at_rest(pilot)
        assert "/fsx/last/kill-switch" in text_of(app)
        assert "below" not in text_of(app)
        assert screen.close_button.has_focus


# ---- the lines of a plan ----


def test_what_happens_comes_first_also_for_several_and_what_names_it_last() -> None:
    request = ActionRequest(verb="kill", subjects=("a", "b"), requested_at=NOW)
    made = plans.kills(request)
    warned = replace(made.actions[0], warnings=("Ben uses it.",))
    lines = [row.text.strip() for row in plan_rows(replace(made, actions=(warned, made.actions[1])), 100)]
    ends = "The trainer saves (usually about 95s) and exits at its next iteration (about 4s)."
    stays = "The switch stays until someone removes it (U); until then a requeue (R) is refused."
    assert lines[:9] == [
        "Create the kill switch of a", "◆ Ben uses it.", ends, stays, "",
        "Create the kill switch of b", ends, stays, "",
    ]  # fmt: skip
    assert lines[9] == "Create the kill switch of a"
    assert lines.count(ends) == 2


@pytest.mark.parametrize(
    ("verb", "run"), [("kill", "llm-70b"), ("kill", "llm-7b-a"), ("requeue", "llm-70b"), ("cancel", "llm-70b")]
)
async def test_at_80x24_every_consequence_is_above_the_fold_before_the_identifiers(verb: Verb, run: str) -> None:
    state = plans.acting()
    request = ActionRequest(verb=verb, subjects=(run,), requested_at=NOW)
    async with planning(request, plans.planning(state)) as (app, _, _backend, screen):
        assert screen.plan is not None
        (action,) = screen.plan.actions
        text = " ".join(text_of(app).replace("│", " ").split())
        for sentence in (*action.consequences, *action.warnings):
            assert say(sentence) in text
        labels = [label for label, _ in action.facts]
        names = ["run", "job", "cluster", "owner", "host"]
        assert [label for label in labels if label in names] == labels[-len(names) - 1 : -1]


@pytest.mark.parametrize(
    ("changes", "dangerous"),
    [
        ({"verb": "kill"}, True), ({"verb": "cancel"}, True), ({"verb": "signal"}, True), ({"verb": "requeue"}, True),
        ({"verb": "requeue", "expected": Expected(stages=("running",))}, True),
        ({"verb": "requeue", "expected": Expected(stages=("ended",))}, False),
        ({"verb": "exclude", "expected": Expected(undrained="gpu-001")}, True), ({"verb": "exclude"}, False),
        ({"verb": "save"}, False), ({"verb": "hold"}, False), ({"verb": "queue"}, False), ({"verb": "unkill"}, False),
    ],
)  # fmt: skip
async def test_a_dangerous_button_looks_so_also_without_colours(changes: dict[str, Any], dangerous: bool) -> None:
    def made(request: ActionRequest) -> Plan:
        return Plan(request=request, actions=(plans.action(request, "x", **changes),))

    request = ActionRequest(verb=changes["verb"], subjects=("x",), requested_at=NOW)
    assert is_dangerous(made(request)) == dangerous
    assert is_dangerous(replace(made(request), typed="88"))
    async with planning(request, answering(made)) as (app, _, _backend, screen):
        assert ("[ ▲ " in text_of(app)) == dangerous
        assert (screen.act_button.styles.color != screen.close_button.styles.color) == dangerous


def test_a_command_is_shown_to_its_last_character_however_narrow_it_is() -> None:
    argv = ("sbatch", "--array=1-4%1", "--chdir=" + "/fsx/very/long" * 12, "a b.slurm")
    made = plans.action(KILL, "x", operation=Execute(argv), facts=())
    lines = [row.text for row in plan_rows(Plan(request=KILL, actions=(made,)), 40)]

    assert max(map(len, lines)) <= 40
    joined = "".join(line.strip() for line in lines).replace(" ", "")
    assert command_line(made.operation).replace(" ", "") in joined


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("plain", "plain"),
        ("a b", "'a b'"),
        ("it's", "'it'\"'\"'s'"),
        ("a\nb", "$'a\\x0ab'"),
        ("\x1b[31m'", "$'\\x1b[31m\\x27'"),
        ("a\u202eb", "$'a\\xe2\\x80\\xaeb'"),
        ("-rf", "-rf"),
        ("$(id)", "'$(id)'"),
    ],
)
def test_a_word_of_a_command_is_quoted_and_nothing_in_it_is_unseen(word: str, shown: str) -> None:
    assert visible(word) == shown


def lines_of(made: Action) -> list[str]:
    return [row.text.strip() for row in plan_rows(Plan(request=KILL, actions=(made,)), 80)]


def test_a_file_says_what_becomes_of_it_and_what_is_written_into_it() -> None:
    created = plans.action(KILL, "x", operation=CreateFile("/fsx/kill", "by me"), facts=(("file", "/fsx/kill"),))
    removed = plans.action(KILL, "x", operation=RemoveFile("/fsx/a b", None), facts=())

    assert "creates  /fsx/kill" in lines_of(created)
    assert "content  by me" in lines_of(created)
    assert "removes  '/fsx/a b'" in lines_of(removed)
    assert f"host     {plans.LOGIN}" in lines_of(removed)


def test_strangers_words_in_a_plan_are_plain_text() -> None:
    made = plans.action(KILL, NASTY, title=NASTY, warnings=(NASTY,), facts=((NASTY, NASTY),), consequences=(NASTY,))
    text = "\n".join(row.text for row in plan_rows(Plan(request=KILL, actions=(made,)), 70))

    assert text.replace("\n", "").isprintable()
    assert "[bold red]not markup[/]" in text


def test_wide_characters_wrap_by_their_cells() -> None:
    assert list(wrapped("日本語日本語日本 ab", 8)) == ["日本語日", "本語日本", "ab"]


def test_an_answer_with_nothing_in_it_says_so() -> None:
    assert [row.text for row in plan_rows(Plan(request=KILL), 40)] == ["There is nothing to do."]
    assert plan_summary(Plan(request=KILL)) == "nothing to do"


def test_the_button_for_several_says_of_how_many_what_and_no_bare_number() -> None:
    assert VERB["cancel"].button_text(1) == "Cancel the job"
    assert [VERB[verb].button_text(3) for verb in ("cancel", "requeue", "hold", "save", "exclude", "unkill")] == [
        "Cancel 3 jobs", "Requeue 3 jobs", "Hold 3 jobs", "Save (3 actions)", "Exclude (3 actions)",
        "Remove them (3 actions)",
    ]  # fmt: skip
