"""What Prometheus gets of a State: each number that is known, nothing for what is not, and no person's name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from tests.screenshots import Played
from tests.trainmon.alerting.notify.samples import alert
from tests.trainmon.engine.metrics.scraped import NOW, promtool, series, text, values
from trainmon.model import (
    CAUSES,
    Channel,
    Checkpoint,
    Checkpoints,
    Disk,
    Progress,
    Run,
    RunSpec,
    Source,
    State,
    Verdict,
)

TOTALS = {
    "notifications": {"sent phone": 3.0, "dead on call": 1.0},
    "attempts": {"cuda-oom": 2.0},
    "gpu_seconds": {"cuda-oom": 7_200.5},
}
EVERY = {
    "trainmon_build_info", "trainmon_evaluation_timestamp_seconds", "trainmon_run_step", "trainmon_run_target_step",
    "trainmon_run_last_step_timestamp_seconds", "trainmon_run_loss", "trainmon_run_steps_at_risk",
    "trainmon_run_checkpoint_step", "trainmon_run_checkpoint_timestamp_seconds", "trainmon_run_verdict",
    "trainmon_source_up", "trainmon_source_age_seconds", "trainmon_disk_full_timestamp_seconds", "trainmon_alerts",
    "trainmon_notifications_total", "trainmon_attempts_total", "trainmon_attempt_gpu_seconds_total",
}  # fmt: skip


def run(name: str = "video-2b", **facts: object) -> Run:
    return replace(Run(spec=RunSpec(name=name, cluster="prod")), **facts)


def having(*runs: Run, **facts: object) -> State:
    return replace(State(runs={one.name: one for one in runs}), **facts)


def source(name: str, **facts: object) -> Source:
    return replace(Source(name=name, kind="node", cluster="prod", health="ok", answered_at=NOW - 5), **facts)


def test_the_demo_has_every_series_and_promtool_accepts_all(tmp_path: Path) -> None:
    played = Played(tmp_path / "demo", 40.0)
    played.stop()
    state = played.engine.state
    full = {key: replace(disk, full_at=NOW + 60, inodes_full_at=NOW + 90) for key, disk in state.disks.items()}
    page = text(replace(state, disks=full), TOTALS, played.clock.now())
    assert {name for name, _ in series(page)} == EVERY
    assert not any("gpu" in name for name, _ in series(page) if "gpu_seconds" not in name)
    checked = promtool("check", "metrics", page=page)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_of_a_program_that_has_just_started_promtool_accepts_what_there_is() -> None:
    page = text(State())
    assert {name for name, _ in series(page)} == {"trainmon_build_info"}
    checked = promtool("check", "metrics", page=page)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_the_numbers_of_a_run_are_those_of_its_row() -> None:
    saved = Checkpoint(step=900, state="committed", path="/fsx/900", layout="dcp", at=NOW - 300)
    page = text(
        having(
            run(
                progress=Progress(step=1_000, target_step=5_000, loss=2.5, at=NOW - 3),
                checkpoints=Checkpoints(path="/fsx", host="n1", listed_at=NOW, list=(saved,)),
            )
        )
    )
    found = {name: value for (name, labels), value in series(page).items() if labels == {("run", "video-2b")}}
    assert found == {
        "trainmon_run_step": 1_000,
        "trainmon_run_target_step": 5_000,
        "trainmon_run_last_step_timestamp_seconds": NOW - 3,
        "trainmon_run_loss": 2.5,
        "trainmon_run_steps_at_risk": 100,
        "trainmon_run_checkpoint_step": 900,
        "trainmon_run_checkpoint_timestamp_seconds": NOW - 300,
    }


def test_what_is_not_known_of_a_run_is_absent_and_not_zero() -> None:
    names = {name for name, labels in series(text(having(run()))) if ("run", "video-2b") in labels}
    assert names == {"trainmon_run_verdict"}


def test_a_run_has_every_verdict_and_one_of_them_is_1() -> None:
    page = text(having(run(verdict="hung"), run("llm-7b", verdict="healthy")))
    found = values(page, "trainmon_run_verdict", "run", "verdict")
    assert {verdict for _, verdict in found} == set(get_args(Verdict))
    assert sorted(labels for labels, value in found.items() if value) == [("llm-7b", "healthy"), ("video-2b", "hung")]


def test_a_loss_that_is_nan_is_nan() -> None:
    found = values(text(having(run(progress=Progress(loss=math.nan)))), "trainmon_run_loss", "run")
    assert list(found) == [("video-2b",)]
    assert math.isnan(found["video-2b",])


def test_a_source_that_was_never_read_is_down_without_an_age_and_one_that_is_not_wanted_is_absent() -> None:
    sources = (
        source("node:n1"), source("node:n2", health="down"), source("node:n3", health="late", answered_at=None),
        source("node:n4", health="off"),
    )  # fmt: skip
    page = text(State(sources={one.name: one for one in sources}))
    up = values(page, "trainmon_source_up", "source")
    assert up == {("node:n1",): 1, ("node:n2",): 0, ("node:n3",): 0}
    assert values(page, "trainmon_source_age_seconds", "source") == {("node:n1",): 5, ("node:n2",): 5}


def test_no_user_is_named_and_two_users_of_one_host_are_one_series_which_is_down_if_one_is() -> None:
    sources = (source("node:ana@n1"), source("node:bob@n1", health="down"))
    disk = Disk(path="/fsx", host="ana@login1", cluster="prod", at=NOW, full_at=NOW + 60)
    page = text(State(sources={one.name: one for one in sources}, disks={disk.key: disk}))
    assert "ana" not in page
    assert "bob" not in page
    assert values(page, "trainmon_source_up", "source") == {("node:n1",): 0}
    assert values(page, "trainmon_disk_full_timestamp_seconds", "host", "path", "resource") == {
        ("login1", "/fsx", "bytes"): NOW + 60
    }


def test_open_alerts_are_counted_by_severity_and_phase_once_the_rules_were_evaluated() -> None:
    alerts = (
        alert(id="a"), alert(id="b", subject="run:llm"), alert(id="c", severity="warning", phase="pending"),
        alert(id="d", phase="resolved"),
    )  # fmt: skip
    state = State(alerts={one.id: one for one in alerts})
    assert values(text(state), "trainmon_alerts", "severity", "phase") == {}
    found = values(text(replace(state, evaluated_at=NOW)), "trainmon_alerts", "severity", "phase")
    assert {labels: value for labels, value in found.items() if value} == {
        ("critical", "firing"): 2, ("warning", "pending"): 1,
    }  # fmt: skip
    assert len(found) == 9


def test_the_totals_of_the_ledger_are_counters_and_begin_at_zero() -> None:
    page = text(State(channels={"phone": Channel(name="phone", type="ntfy")}), TOTALS)
    sent = values(page, "trainmon_notifications_total", "channel", "result")
    assert sent == {
        ("phone", "sent"): 3, ("phone", "merged"): 0, ("phone", "dead"): 0, ("phone", "stopped"): 0,
        ("on call", "dead"): 1,
    }  # fmt: skip
    attempts = values(page, "trainmon_attempts_total", "reason")
    assert {reason for (reason,) in attempts} == set(CAUSES)
    assert (attempts["cuda-oom",], attempts["segfault",]) == (2, 0)
    assert values(page, "trainmon_attempt_gpu_seconds_total", "reason")["cuda-oom",] == 7_200.5


@pytest.mark.parametrize("name", ['a"b\\c\nd', "caf\u00e9 \udce9", "a\x1b[31mred"], ids=["quotes", "bytes", "colours"])
def test_a_name_with_any_characters_breaks_no_line(name: str) -> None:
    page = text(having(run(name, progress=Progress(step=1))))
    assert list(values(page, "trainmon_run_step", "run").values()) == [1]
    assert "\x1b" not in page
    assert promtool("check", "metrics", page=page).returncode == 0
