"""One job in full, and the way from a run to its job, its node and its log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from textual.pilot import Pilot

from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard, text_of
from tests.tui.states.states import NOW, job, queue_jobs, queued, slurm_down
from trainmon.model import State
from tui.app import Dashboard
from tui.screens.details import LinkedScreen, LogScreen, NodeScreen, RunScreen
from tui.screens.main import MainScreen
from tui.style import Link, Linked, Row, Span, first_link, link_of, rows, width_of
from tui.views.job_detail import NODES_SHOWN, job_lines


def texts(key: str, state: State | None = None, width: int = 70) -> list[str]:
    lines = job_lines(key, state or queued(), width)
    return ["".join(span.text for span in (line.spans if isinstance(line, Linked) else line)) for line in lines]


def with_job(**more: object) -> State:
    one = job("5", **more)  # type: ignore[arg-type]
    return msgspec.structs.replace(queued(), jobs={one.key: one})


# ---- lines ---------------------------------------------------------------------------------------------------------


def test_a_running_job_says_where_it_runs_what_is_left_and_what_slurm_knows() -> None:
    text = texts("prod/418190")

    assert text[:2] == ["● running", "on gpu-[001-004]"]
    for line in (
        "run         → llm-70b  ● healthy",
        "nodes       → gpu-001  8 GPUs  max 64°C",
        "log         → /scratch/llm-70b/slurm-418190.out",
        "started       2026-09-21 11:13 UTC, 3h ago",
        "time left     21h; a final save takes 88s",
        "partition     gpu, QOS normal, priority 4,294",
        "restarts      1",
        "may requeue   yes",
        "details       requested 1m ago",
    ):
        assert line in text


def test_a_waiting_job_says_why_in_words_and_as_slurm_writes_it() -> None:
    text = texts("prod/418302")

    assert text[:2] == ["◌ pending", "after the end of 418190"]
    assert "nodes         4 requested" in text
    assert "dependency    afterany:418190(unfulfilled): after the end of 418190" in text
    assert "reason        Dependency" in text
    assert not any(line.startswith("running for") for line in text)


def test_the_waiting_elements_of_an_array_are_counted() -> None:
    assert "array tasks   9 pending" in texts("prod/418191_[]")
    of_none = "/logs/5_4294967294.out"  # Slurm's value for no task
    assert "log           each task has its own" in texts("prod/5", with_job(tasks="1-9", stdout=of_none))


def test_an_ended_job_says_how_and_how_long_it_ran() -> None:
    text = texts("prod/418100")

    assert text[:2] == ["▲ failed", "exited with code 1, 2h ago"]
    assert "ran for       7h" in text
    assert "exit code     1:0" in text


def test_a_job_that_the_queue_lost_is_not_shown_as_ended() -> None:
    assert texts("prod/418097")[:2] == ["? no longer in the queue", "gone from the queue 10m ago; was RUNNING"]


def test_what_was_not_queried_yet_is_a_question_mark() -> None:
    text = texts("prod/5", with_job(restarts=None, requeue=None, detail_at=None, priority=None))

    assert {"restarts      ?", "may requeue   ?", "details       not requested yet"} <= set(text)
    assert "partition     gpu, QOS normal, priority ?" in text


def test_a_scheduler_that_does_not_answer_is_shown_before_the_old_facts() -> None:
    text = texts("prod/418190", slurm_down())

    assert text[1].startswith("No data from Slurm for 3m; this is old data: ")


def test_a_job_that_is_forgotten_says_so() -> None:
    assert texts("prod/1") == ["Job 1 is no longer known."]


def test_a_job_of_a_thousand_nodes_keeps_its_own_fields_in_reach() -> None:
    text = texts("prod/5", with_job(nodes=tuple(f"n{number:04}" for number in range(1_000))))

    assert f"              and {1_000 - NODES_SHOWN} more" in text
    assert len(text) < NODES_SHOWN + 40


@pytest.mark.parametrize("width", [44, 60, 110])
def test_no_line_is_wider_than_the_pane(width: int) -> None:
    for one in queue_jobs():
        for line in job_lines(one.key, queued(), width):
            assert width_of(line.spans if isinstance(line, Linked) else line) <= width


def test_text_from_slurm_cannot_reach_the_terminal() -> None:
    bad = "\x1b[31mred\x07 \x9b2J"
    text = texts(
        "prod/5", with_job(name=bad, user=bad, comment=bad, command=bad, workdir=bad, stdout=bad, nodes=(bad,))
    )

    assert sum("red" in line for line in text) == 8
    assert all(line.isprintable() for line in text)


def test_a_secret_in_a_command_line_is_not_shown() -> None:
    text = "\n".join(texts("prod/5", with_job(command="/x/train.sh --api-key=hunter2")))
    assert "/x/train.sh --api-key=***" in text
    assert "hunter2" not in text


# ---- links ---------------------------------------------------------------------------------------------------------


def test_a_link_keeps_its_key_whatever_is_written_above_it() -> None:
    link = Linked(Link("job", "prod/88_[]"), (Span("88"),))

    few, many = rows([link]), rows([(), (Span("more"),), link])

    assert few[0].key == many[2].key
    assert link_of(few[0].key) == Link("job", "prod/88_[]")


def test_keys_are_unique_also_when_two_lines_lead_to_the_same() -> None:
    link = Linked(Link("node", "a:b"), ())

    found = rows([link, link, ()])

    assert len({row.key for row in found}) == 3
    assert link_of(found[0].key) == Link("node", "a:b")
    assert link_of(found[1].key) is None


def test_plain_lines_lead_nowhere() -> None:
    assert link_of(None) is None
    assert link_of("3") is None
    assert link_of(">other:x") is None
    assert first_link([Row("0", ()), Row(">node:x", ())]) == ">node:x"
    assert first_link([Row("0", ())]) is None


# ---- screens -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def showing(size: tuple[int, int] = (100, 40)) -> AsyncIterator[tuple[Dashboard, Pilot[None], FakeBackend]]:
    backend = FakeBackend(queued())
    app = dashboard(backend)
    async with running(app, size=size) as pilot:
        await at_rest(pilot)
        yield app, pilot, backend


def about(app: Dashboard) -> Link:
    """What the screen is about."""
    assert isinstance(app.screen, LinkedScreen)
    return app.screen.about


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await at_rest(pilot)


async def test_enter_leads_from_the_run_to_its_job_and_a_node_and_escape_goes_back_one_at_a_time() -> None:
    async with showing() as (app, pilot, backend):
        await press(pilot, "j", "enter")
        assert isinstance(app.screen, RunScreen)

        await press(pilot, "enter")
        assert about(app) == Link("job", "prod/418190")
        assert {*backend.requests} == {("look at job", "prod/418190"), ("read job", "prod/418190")}
        assert "Job 418190  llm-70b  of me on prod" in text_of(app)

        await press(pilot, "j", "j", "enter")
        assert isinstance(app.screen, NodeScreen)
        assert app.screen.about.name == "gpu-002"

        await press(pilot, "escape")
        assert about(app) == Link("job", "prod/418190")
        for screen in (RunScreen, MainScreen):
            await press(pilot, "escape")
            assert isinstance(app.screen, screen)


async def test_enter_leads_to_the_log() -> None:
    async with showing() as (app, pilot, _):
        await press(pilot, "j", "enter", "enter")
        app.screen.query_one("#job").lines.move_to(">log:llm-70b")  # type: ignore[attr-defined]
        await press(pilot, "enter")

        assert isinstance(app.screen, LogScreen)
        assert app.screen.about == Link("log", "llm-70b")
        assert app.screen.pane.subjects() == (("run", "llm-70b"),)


async def test_a_link_back_to_where_one_came_from_goes_back_and_piles_nothing_up() -> None:
    async with showing() as (app, pilot, _):
        await press(pilot, "j", "enter", "enter")
        depth = len(app.screen_stack)
        assert about(app) == Link("job", "prod/418190")

        await press(pilot, "enter")

        assert isinstance(app.screen, RunScreen)
        assert len(app.screen_stack) == depth - 1


async def test_enter_in_the_queue_opens_the_job_or_the_node() -> None:
    async with showing((120, 60)) as (app, pilot, _):
        await press(pilot, "7", "enter")
        assert about(app) == Link("job", "prod/418223")

        await press(pilot, "escape", "G", "enter")
        assert isinstance(app.screen, NodeScreen)
        assert app.screen.about.name == "gpu-008"
        assert "scheduler     draining: fan 3 broken (root 25h ago)" in text_of(app)
        assert "jobs        → sweep  418230 of ana, S" in text_of(app)


async def test_a_node_leads_to_the_jobs_that_run_there() -> None:
    async with showing((120, 60)) as (app, pilot, _):
        await press(pilot, "2")
        assert app.main.gpus.lines.move_to("gpu-001")
        await press(pilot, "enter")
        assert isinstance(app.screen, NodeScreen)

        app.screen.facts.focus_body()
        assert app.screen.facts.lines.move_to(">job:prod/418190")
        await press(pilot, "enter")

        assert about(app) == Link("job", "prod/418190")


async def test_the_cursor_stays_on_its_link_when_the_job_changes() -> None:
    async with showing() as (app, pilot, backend):
        await press(pilot, "j", "enter", "enter", "j", "j")
        assert isinstance(app.screen, LinkedScreen)
        lines = app.screen.pane.lines
        assert lines.cursor_key == ">node:gpu-002"

        jobs = dict(queued().jobs)
        jobs["prod/418190"] = job("418190", nodes=("gpu-002", "gpu-003"), restarts=2)
        app.clock.at += 2.0  # type: ignore[attr-defined]
        backend.publish(msgspec.structs.replace(queued(), at=NOW + 2.0, jobs=jobs))
        await at_rest(pilot)

        assert "restarts      2" in text_of(app)
        assert lines.cursor_key == ">node:gpu-002"


async def test_keys_that_act_mean_what_the_screen_is_about() -> None:
    async with showing() as (app, pilot, _):
        await press(pilot, "j", "enter")
        assert isinstance(app.screen, RunScreen)
        assert app.screen.pane.subjects() == (("run", "llm-70b"),)

        await press(pilot, "enter")
        assert isinstance(app.screen, LinkedScreen)
        assert app.screen.pane.subjects() == (("job", "prod/418190"),)


async def test_a_jobs_texts_are_read_once_its_details_are_and_hide_secrets() -> None:
    async with showing((100, 60)) as (app, pilot, backend):
        backend.texts = {
            "priority": ["age 1000 + qos 20"], "stderr /e": ["Traceback", "\x1b[31mOSError: full"], "script": [],
            "other": ["export WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567"],
        }  # fmt: skip
        app.open(Link("job", "prod/418190"))
        await at_rest(pilot)
        text = text_of(app)
        assert backend.requests.count(("read job", "prod/418190")) == 1
        lines = [line.strip("│ ") for line in text.splitlines()]
        at = lines.index("priority")
        assert lines[at : at + 6] == ["priority", "age 1000 + qos 20", "", "stderr /e", "Traceback", "OSError: full"]
        assert "script" not in lines
        assert "0123456789abcdef" not in text

        unread = msgspec.structs.replace(queued(), at=NOW + 2.0, jobs={"prod/5": job("5", detail_at=None)})
        backend.publish(unread)
        app.open(Link("job", "prod/5"))
        await at_rest(pilot)
        assert ("read job", "prod/5") not in backend.requests


def test_a_job_shows_its_resources_as_slurm_counts_them() -> None:
    text = texts("prod/5", with_job(resources="cpu=96,mem=1T,node=1,gres/gpu=8"))
    assert "resources     cpu=96, mem=1T, node=1, gres/gpu=8" in text
