"""`x`: everything that can be done to a row, and why the rest cannot."""

from __future__ import annotations

from msgspec.structs import replace

from tests.tui.apps import ActionApp
from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, settled, text_of
from tests.tui.states import plans
from tests.tui.states.states import NOW
from trainmon.actions.verbs import VERB
from trainmon.model import SchedulerNode, Source, State
from tui.modals.menu import Menu, entries, why_not
from tui.modals.plan import PlanScreen

RUN, OTHER = ("run", "llm-70b"), ("run", "sft-1b")
HELD, RUNNING = ("job", "prod/418500"), ("job", "prod/418190")


def state(**facts: object) -> State:
    """Runs with switches, and a Slurm that answers."""
    made = plans.with_jobs()
    spec = replace(made.runs["llm-70b"].spec, kill_switch="/fsx/kill", save_switch="/fsx/save")
    slurm = Source(name="slurm:prod", kind="slurm", cluster="prod", health="ok", answered_at=NOW - 4.0)
    return replace(
        made, runs={**made.runs, "llm-70b": replace(made.runs["llm-70b"], spec=spec)},
        sources={**made.sources, slurm.name: slurm}, **facts,
    )  # fmt: skip


def offered(*subjects: tuple[str, str], of: State | None = None) -> dict[str, str]:
    """Each verb with its refusal; empty where it can be done."""
    return {entry.verb: why_not(entry) for entry in entries(subjects, of or state(), NOW)}  # type: ignore[arg-type]


def test_what_can_be_done_comes_first_and_the_rest_says_why_not() -> None:
    found = offered(RUN)
    possible = [verb for verb, refusal in found.items() if not refusal]

    assert {"save", "kill"} <= set(possible)
    assert list(found)[: len(possible)] == possible
    assert "no switch is armed" in found["unkill"]
    assert "no script is configured for llm-70b" in found["queue"]


def test_a_node_can_be_excluded_and_nothing_else() -> None:
    node = SchedulerNode(name="gpu-001", cluster="prod", state="IDLE")

    assert set(offered(("node", "gpu-001"), of=state(scheduler_nodes={node.name: node}))) == {"exclude"}


def test_read_only_refuses_everything_in_words() -> None:
    found = offered(RUN, of=replace(state(), read_only=True))

    assert found
    assert all("read-only" in refusal for refusal in found.values())


def test_over_several_rows_a_verb_is_refused_only_when_all_refuse_it() -> None:
    found = {entry.verb: entry for entry in entries((RUN, OTHER), state(), NOW)}  # type: ignore[arg-type]

    assert found["kill"].title == "Kill: 1 of 2 rows"
    assert not found["kill"].refusal
    assert found["queue"].refusal


def test_hold_and_release_share_a_key_and_only_the_one_that_fits_is_shown() -> None:
    jobs = {key: replace(job, priority=0, reason="JobHeldUser") if job.stage == "waiting" else job
            for key, job in state().jobs.items()}  # fmt: skip

    assert "hold" in offered(HELD)
    assert "release" not in offered(HELD)
    held = offered(HELD, of=state(jobs=jobs))
    assert "release" in held
    assert "hold" not in held
    assert VERB["release"].key == VERB["hold"].key == "H"


async def test_enter_and_capitals_open_plans_and_what_is_refused_only_explains() -> None:
    backend = FakeBackend(state())
    app = ActionApp(backend)
    async with running(app, size=(80, 24)) as pilot:
        app.actions.menu((RUN,))
        text = await settled(pilot)
        assert "Actions on llm-70b" in text
        assert "› S     Save a checkpoint now" in text
        assert "refused: no switch is armed" in text

        await pilot.press("U", "G", *"kkkk", "enter")
        text = await settled(pilot)
        assert isinstance(app.screen, Menu), "what is refused opens nothing"
        assert max(map(len, text.splitlines())) <= 80

        await pilot.press("K")
        await at_rest(pilot)
        assert isinstance(app.screen, PlanScreen)
        assert backend.requests == [("prepare", "kill", ("llm-70b",))]
        assert backend.acted == []


async def test_escape_closes_the_menu_and_a_row_about_nothing_is_shown() -> None:
    app = ActionApp(FakeBackend(state()))
    async with running(app, size=(80, 24)) as pilot:
        app.actions.menu((RUN,))
        await at_rest(pilot)
        await pilot.press("escape")
        await at_rest(pilot)
        assert not isinstance(app.screen, Menu)

        app.actions.menu(())
        assert app.toasts == [("Actions", "put the cursor on a run, a job or a node", "warning")]
        assert "Actions" not in text_of(app)
