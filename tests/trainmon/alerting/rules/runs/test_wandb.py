"""What W&B shows of a run."""

from __future__ import annotations

from tests.trainmon.alerting.rules.asked import why_unknown
from tests.trainmon.alerting.rules.runs.states import (
    NOW,
    WANDB,
    WITH_WANDB,
    alert,
    blind,
    changed,
    found,
    state,
    wandb,
    without,
)
from trainmon.alerting.rules.runs.jobs import WandbHeartbeatLost, WandbSeveralActive
from trainmon.model import WandbRun

RUNS = tuple(
    WandbRun(
        entity="e", project="p", id=f"a{number}", name=f"llm-{number}", state="running", url=f"https://w/a{number}"
    )
    for number in (2, 1)
)
BOTH = wandb("several", runs=RUNS, active=("a2", "a1"), why="2 runs are active where one is expected: llm-2, llm-1")
SEVERAL = state(spec=WITH_WANDB, wandb=BOTH)
LOST = state(spec=WITH_WANDB, wandb=wandb("waiting", active=(), why="llm-1 (a1) crashed"))


def test_several_active_runs_are_named_with_their_pages() -> None:
    finding = found(WandbSeveralActive(), SEVERAL)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == "W&B of llm: 2 runs are active where one is expected: llm-2, llm-1"
    assert finding.evidence == ("llm-2 (a2): https://w/a2", "llm-1 (a1): https://w/a1")
    assert (finding.since, finding.sources) == (NOW - 60, (WANDB,))


def test_one_active_run_and_a_run_without_w_and_b_are_fine() -> None:
    for seen in (state(spec=WITH_WANDB, wandb=wandb()), state()):
        assert found(WandbSeveralActive(), seen) is None
        assert found(WandbHeartbeatLost(), seen) is None


def test_a_w_and_b_that_does_not_answer_resolves_nothing() -> None:
    after = without(changed(SEVERAL, wandb=wandb()), WANDB)
    assert blind(WandbSeveralActive(), SEVERAL, after) == f"{WANDB}: no answer in 10s"
    assert blind(WandbSeveralActive(), SEVERAL, changed(SEVERAL, wandb=None)) == "no data from W&B yet"
    assert blind(WandbHeartbeatLost(), LOST, without(changed(LOST, wandb=wandb()), WANDB)) is not None
    assert blind(WandbHeartbeatLost(), LOST, changed(LOST, wandb=wandb())) is None


def test_a_lost_heartbeat_of_a_run_that_goes_on_is_a_warning_and_no_end() -> None:
    finding = found(WandbHeartbeatLost(), LOST)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary.endswith("llm-1 (a1) crashed; its log shows that training continues")


def test_a_restart_that_w_and_b_waits_for_is_expected_until_it_is_overdue() -> None:
    starting = changed(LOST, verdict="starting", why="job 89 has been up for 2m")
    assert found(WandbHeartbeatLost(), starting) is None
    overdue = changed(starting, wandb=wandb("overdue", active=(), why="none has followed in 15m"))
    assert found(WandbHeartbeatLost(), overdue) is not None
    dead = changed(overdue, verdict="dead", why="W&B reports that llm-1 crashed")
    assert found(WandbHeartbeatLost(), dead) is None, "it has ended: that is told louder"


def test_a_lost_heartbeat_is_not_over_while_the_run_starts_again() -> None:
    starting = changed(LOST, verdict="starting")
    assert blind(WandbHeartbeatLost(), LOST, starting) == "W&B receives no heartbeat, and llm is starting"
    finding = found(WandbHeartbeatLost(), LOST)
    assert finding is not None
    assert why_unknown(WandbHeartbeatLost(), changed(LOST, verdict="dead"), alert(finding), NOW) is None
