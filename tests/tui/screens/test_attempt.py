"""The attempts of a run, and the page that explains one."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from tests.tui.backend import FakeBackend
from tests.tui.pilot import running, thing_shown
from tests.tui.screen_text import at_rest, dashboard, settled, text_of
from tests.tui.states.plans import attempted
from tests.tui.states.states import NOW, queued
from trainmon.analysis.explanation import AttemptRecords, GpuHour, explain, report
from trainmon.lib import cell_width
from trainmon.model import Attempt, AttemptEnd, Log, Run, RunSpec, Source, State
from tui.charts.render import gpu_hour_lines
from tui.screens.details import NodeScreen, RunScreen
from tui.style import Line, Link, Linked, Span
from tui.views.job_detail import ATTEMPTS_SHOWN, attempt_lines, explanation_lines, report_lines

RUN = "llm-70b"


def attempts(count: int = 2) -> tuple[Attempt, ...]:
    return tuple(attempted(count).attempts.values())


def texts(lines: Iterable[Line | Linked]) -> list[str]:
    return ["".join(span.text for span in (line.spans if isinstance(line, Linked) else line)) for line in lines]


def test_a_run_lists_its_attempts_the_newest_first() -> None:
    shown = texts(attempt_lines(attempted().runs[RUN], attempted(), 70))
    assert shown[0] == "attempts"
    assert shown[1].startswith("11-15 01:13 → 418190.3  running  ")
    assert shown[2:] == [
        "11-15 00:13 → 418190.2  cuda-oom  30m  step 80  20 lost",
        "11-14 23:13 → 418190.1  cuda-oom  30m  step 80  20 lost",
        "report      → where its GPU hours went",
    ]


def test_attempts_of_one_name_and_one_minute_are_told_apart_by_their_seconds() -> None:
    state = attempted()
    minute = NOW // 60 * 60
    by_receipt = [
        replace(attempts()[0], attempt_id=f"{RUN}/receipt/{at}", job_id=None, restart=None, started_at=minute + at)
        for at in (5, 41)
    ]
    alike = replace(state, attempts={one.attempt_id: one for one in by_receipt})
    shown = texts(attempt_lines(state.runs[RUN], alike, 70))
    assert [line.partition(" →")[0] for line in shown[1:-1]] == ["09-21 14:13:41", "09-21 14:13:05"]
    assert max(map(len, shown)) <= 70
    other = replace(state, attempts={**alike.attempts, by_receipt[0].attempt_id: replace(by_receipt[0], pid=7)})
    assert "09-21 14:13 →" in texts(attempt_lines(state.runs[RUN], other, 70))[1], "their names tell them apart"


def test_an_attempt_whose_end_is_awaited_is_ending() -> None:
    state = attempted()
    newest = max(state.attempts.values(), key=lambda one: one.started_at or 0.0)
    reported = AttemptEnd(at=NOW - 5, source="queue", noticed_at=NOW - 4, scheduler_state="FAILED")
    ending = replace(newest, reported_end=reported)
    state = replace(state, attempts={**state.attempts, newest.attempt_id: ending})
    assert texts(attempt_lines(state.runs[RUN], state, 70))[1].startswith("11-15 01:13 → 418190.3  ending  ")


def test_many_attempts_do_not_hide_the_rest_of_the_run() -> None:
    shown = texts(attempt_lines(attempted(20).runs[RUN], attempted(20), 70))
    assert len(shown) == ATTEMPTS_SHOWN + 3
    assert shown[-2].strip() == "and 13 more: trainmon-tui attempts lists them"


def test_a_run_says_why_its_attempts_are_not_recorded() -> None:
    state = replace(attempted(), ledger="disk full")
    assert texts(attempt_lines(state.runs[RUN], state, 70))[:3:2] == [
        "attempts", texts(attempt_lines(attempted().runs[RUN], attempted(), 70))[1],
    ]  # fmt: skip
    assert (
        texts(attempt_lines(state.runs[RUN], state, 70))[1] == "not recorded  the ledger cannot be written: disk full"
    )


def test_a_run_whose_scheduler_does_not_answer_says_that_its_attempts_are_not_recorded() -> None:
    source = Source(
        name="slurm:prod", kind="slurm", cluster="prod", phase="retrying", error="no controller", health="down"
    )
    run = Run(spec=RunSpec(name="llm", cluster="prod"), log=Log(host="login1", path="/fsx/llm.log", began_at=NOW - 50))
    state = State(at=NOW, started_at=NOW - 600, runs={"llm": run}, sources={source.name: source})
    lines = [line.strip() for line in texts(attempt_lines(run, state, 70))]
    assert lines[0] == "attempts"
    assert " ".join(lines[1:]) == (
        "not recorded  no data from Slurm of prod yet (no controller): its attempts are recorded when it responds"
    )


def test_a_run_without_attempts_has_no_empty_heading() -> None:
    assert texts(attempt_lines(queued().runs[RUN], queued(), 70)) == []


@pytest.mark.parametrize("width", [30, 78, 118])
def test_no_line_of_the_page_is_wider_than_the_screen(width: int) -> None:
    one = explain(attempts()[1], AttemptRecords(attempts=attempts()))
    assert max(map(cell_width, texts(explanation_lines(one, width)))) <= width


async def test_enter_on_a_run_and_on_one_of_its_attempts_explains_it() -> None:
    backend = FakeBackend(attempted())
    app = dashboard(backend)
    async with running(app, size=(100, 60)) as pilot:
        await at_rest(pilot)
        for key in ("j", "enter"):
            await pilot.press(key)
            await at_rest(pilot)
        assert isinstance(app.screen, RunScreen)
        assert app.screen.pane.lines.move_to(f">attempt:{attempts()[1].attempt_id}")
        await pilot.press("enter")
        text = await settled(pilot)
        assert thing_shown(app) == "attempt"
        assert "Attempt 418190.2 of llm-70b ended at 2023-11-15 00:43:20 UTC, after 30m: cuda-oom, certain." in text
        for title in ("Timeline (UTC)", "Evidence", "Placement", "Config and data", "Checkpoints", "Retries"):
            assert title in text
        assert app.screen.pane.lines.move_to(">node:gpu-001")
        await pilot.press("enter")
        await at_rest(pilot)
        assert isinstance(app.screen, NodeScreen)


async def test_an_attempt_that_only_the_ledger_has_is_shown_when_the_ledger_has_answered() -> None:
    backend = FakeBackend(queued())
    first = attempts()[0]
    backend.stored[first.attempt_id] = first, AttemptRecords(attempts=attempts())
    app = dashboard(backend)
    async with running(app, size=(100, 40)) as pilot:
        await at_rest(pilot)
        app.open(Link("attempt", first.attempt_id))
        assert "Attempt 418190.1 of llm-70b ended at 2023-11-14 23:43:20 UTC" in await settled(pilot)
        app.open(Link("attempt", "prod/1@2"))
        assert "This attempt is not in the ledger." in await settled(pilot)
        assert ("read attempt", "prod/1@2") in backend.requests
        assert text_of(app)


HOUR = GpuHour(
    node="gpu-001",
    ended_at=NOW,
    metrics={"temperature": ((60.0,) * 59 + (91.0,), (50.0,) * 60), "memory": ((None,) * 60, (72_000.0,) * 60)},
)


@pytest.mark.parametrize("width", [30, 78, 198])
def test_the_gpus_of_its_nodes_are_plotted_for_the_hour_before_the_end(width: int) -> None:
    shown = texts(gpu_hour_lines(HOUR, width))
    assert shown[0] == "gpu-001, last hour"
    assert shown[1].startswith("hottest °C 91")
    assert "end" in shown[-1]
    assert max(map(cell_width, shown)) <= width
    one = explain(attempts()[1], AttemptRecords(attempts=attempts(), gpu_hours=(HOUR,)))
    page = texts(explanation_lines(one, 78, [(Span("plot"),)]))
    assert "  hottest  60 °C to 91 °C, at the end 91 °C" in page
    assert page.index("plot") > page.index("GPUs in the last hour")
    without = explain(attempts()[1], AttemptRecords(attempts=attempts()))
    assert "GPUs in the last hour" not in texts(explanation_lines(without, 78)), "nothing is stored"


async def test_the_report_of_a_run_opens_from_its_attempts_and_that_of_all_from_the_palette() -> None:
    backend = FakeBackend(attempted())
    app = dashboard(backend)
    async with running(app, size=(80, 24)) as pilot:
        await at_rest(pilot)
        app.open(Link("run", RUN))
        await at_rest(pilot)
        assert isinstance(app.screen, RunScreen)
        assert app.screen.pane.lines.move_to(f">report:{RUN}")
        await pilot.press("enter")
        text = await settled(pilot)
        assert f"Report {RUN}, the last 30 days" in text
        assert f"{RUN}: 3 attempts" in text
        for words in ("GPU hours", "lost steps", "not known", "of which", "held GPUs, as sacct counts", "ETTR"):
            assert words in text
        await pilot.press("q", ":", *"goodput", "enter")
        assert "Report all runs, the last 30 days" in await settled(pilot)
        assert [request for request in backend.requests if request[0] == "read report"] == [
            ("read report", RUN), ("read report", None),
        ]  # fmt: skip


@pytest.mark.parametrize("width", [30, 78, 118])
def test_no_line_of_a_report_is_wider_than_the_screen(width: int) -> None:
    found = report(attempts(), 0.0, NOW, {"prod": 2.5}, group="node")
    assert max(map(cell_width, texts(report_lines(found, width)))) <= width
