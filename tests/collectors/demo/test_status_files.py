"""The trainers of the demo report as trainmon_hooks does; one has no such file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectors.demo.stage import Stage
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import Run, State
from tui.views.runs import trainer_lines


def runs(stage: Stage) -> dict[str, Run]:
    """The runs, after all that was seen so far."""
    now = stage.clock.now()
    return dict(reduce(State(at=now - stage.clock.passed), [event for _, event in stage.events], now).runs)


def shown(stage: Stage, run: str) -> str:
    return "\n".join(
        "".join(span.text for span in line) for line in trainer_lines(runs(stage)[run], stage.clock.now(), 118)
    )


@pytest.fixture
def calm(tmp_path: Path) -> Stage:
    """The demo, of which no run has trouble soon."""
    return Stage(tmp_path / "demo").play(5.0)


def test_the_runs_show_what_their_trainers_report_but_one_has_no_status_file(calm: Stage) -> None:
    assert {name for name, run in runs(calm).items() if run.trainer is None} == {"moe-1b"}
    assert "training, step " in shown(calm, "video-2b")
    assert "saved step " in shown(calm, "video-2b")


def test_a_trainer_reports_the_switch_that_it_obeys(calm: Stage) -> None:
    (calm.home("sft-chat") / "save-switch").touch()
    calm.play(25.0)
    assert "asked to save by the save switch, " in shown(calm, "sft-chat")
    (calm.home("sft-chat") / "kill-switch").touch()
    calm.play(60.0)
    assert "ended, step " in shown(calm, "sft-chat")
    assert "asked to stop by the kill switch, " in shown(calm, "sft-chat")
