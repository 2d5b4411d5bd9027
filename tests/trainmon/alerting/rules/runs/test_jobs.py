"""The jobs of a run: none at all, none behind, or too little time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.asked import why_unknown
from tests.trainmon.alerting.rules.runs.states import (
    NOW,
    PROGRESS,
    SLURM,
    SPEC,
    alert,
    blind,
    changed,
    checkpoint,
    checkpoints,
    ended,
    found,
    job,
    source,
    state,
    summary,
    without,
)
from trainmon.alerting.rules.runs.jobs import NoJobQueued, NotScheduled, TimeLimitNear
from trainmon.model import RunMemory, RunSpec, State, Trainer

GONE = state(ended("COMPLETED"), verdict="unknown", why="no target step is known")


def test_a_run_of_which_slurm_lists_nothing_is_neither_running_nor_scheduled() -> None:
    finding = found(NotScheduled(), GONE)
    assert finding is not None
    assert finding.severity == "critical", "it has trained, and is not at its target"
    assert finding.summary.startswith("llm is not running or pending: no Slurm job named llm; ")
    assert finding.sources == (SLURM,)
    assert "trainmon-tui queue llm" in finding.advice
    never = changed(state(verdict="idle", why="its log is empty"), progress=replace(PROGRESS, step=None, at=None))
    assert found(NotScheduled(), never).severity == "warning"  # type: ignore[union-attr]


def test_a_run_with_a_job_and_one_that_is_over_are_fine() -> None:
    waiting = state(job(89, state="PENDING", started_at=None), ended(), verdict="unknown")
    assert found(NotScheduled(), waiting) is None
    assert found(NotScheduled(), changed(GONE, verdict="finished")) is None
    assert found(NotScheduled(), changed(GONE, verdict="dead")) is None, "another rule tells that, and louder"
    assert found(NotScheduled(), changed(GONE, spec=replace(SPEC, found=True))) is None
    by_hand = state(spec=replace(SPEC, job=None), verdict="idle")
    assert found(NotScheduled(), by_hand) is None, "no job of it was ever known"


def test_a_job_that_will_never_start_is_not_scheduled_unless_a_person_holds_it() -> None:
    never = job(
        89, state="PENDING", reason="DependencyNeverSatisfied", started_at=None, dependency="afterok:88(failed)"
    )
    assert summary(NotScheduled(), state(never, verdict="queued")) == (
        "llm is not scheduled: job 89 will not start by itself: its dependency can no longer be met: "
        "it will never start"
    )
    for reason in ("JobHeldUser", "Resources", "Priority", None):
        assert found(NotScheduled(), state(replace(never, reason=reason), verdict="queued")) is None


def test_a_scheduler_that_does_not_answer_is_no_empty_queue() -> None:
    assert found(NotScheduled(), without(GONE, SLURM)) is None
    late = replace(GONE, sources={**GONE.sources, SLURM: source(SLURM, health="late")})
    assert found(NotScheduled(), late) is None
    assert blind(NotScheduled(), GONE, without(GONE, SLURM)) == f"{SLURM}: no answer in 10s"


LEFT = 6 * 3_600.0
LAST = state(job(ends_at=NOW + LEFT, time_limit_s=72_000.0), queued_behind=0, eta_at=NOW + 90_000)


def test_a_job_that_ends_before_its_run_is_done_with_nothing_behind_it_is_a_warning() -> None:
    finding = found(NoJobQueued(), LAST)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == "no job is pending behind job 88 of llm, which ends in 6h, but the run needs 1d1h more"
    assert "trainmon-tui queue llm" in finding.advice
    two = changed(LAST, queued_behind=1)
    assert summary(NoJobQueued(wanted=2), two).startswith("only 1 job is pending behind job 88 of llm")


def test_what_is_done_in_time_or_is_queued_or_is_far_from_its_end_needs_none() -> None:
    assert found(NoJobQueued(), changed(LAST, queued_behind=1)) is None
    assert found(NoJobQueued(), changed(LAST, eta_at=NOW + 3_600)) is None
    assert found(NoJobQueued(), state(job(ends_at=NOW + 90_000), queued_behind=0)) is None
    assert found(NoJobQueued(), state(job(), queued_behind=0)) is None, "it has no time limit"


@pytest.mark.parametrize("spec", [replace(SPEC, script=None), replace(SPEC, found=True)])
def test_a_single_job_may_be_all_there_is_to_a_run_unless_its_target_is_too_far(spec: RunSpec) -> None:
    alone = changed(LAST, spec=spec, eta_at=None)
    assert found(NoJobQueued(), alone) is None
    assert found(NoJobQueued(), changed(alone, eta_at=NOW + 90_000)) is not None


def test_a_run_that_uses_an_array_or_a_chain_needs_another_job() -> None:
    alone = changed(LAST, spec=replace(SPEC, script=None), eta_at=None)
    array = job(ends_at=NOW + LEFT, array=88)
    assert found(NoJobQueued(), replace(alone, jobs={array.key: array})) is not None

    def after(submitted_at: float) -> State:
        last, now = ended(number=87, ends_at=NOW - 9_000), job(ends_at=NOW + LEFT, submitted_at=submitted_at)
        jobs = {one.key: one for one in (now, last)}
        return replace(changed(alone, jobs=tuple(jobs)), jobs=jobs)

    assert found(NoJobQueued(), after(NOW - 50_000)) is not None, "it waited behind the last one"
    assert found(NoJobQueued(), after(NOW - 8_990)) is None, "a person has started it again"


def test_a_session_needs_no_job_behind_it() -> None:
    assert found(NoJobQueued(), changed(LAST, verdict="idle")) is None, "a session"


def test_a_queue_that_is_not_known_resolves_nothing() -> None:
    assert blind(NoJobQueued(), LAST, changed(without(LAST, SLURM), queued_behind=None)) == f"{SLURM}: no answer in 10s"


SOON = state(
    job(ends_at=NOW + 240),
    checkpoints=checkpoints(checkpoint(12_600, 2_000), save_s=180.0),
    eta_at=NOW + 90_000,
)


def test_a_job_that_ends_before_it_could_save_is_reported_with_what_would_be_lost() -> None:
    finding = found(TimeLimitNear(), SOON)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == (
        "job 88 of llm ends in 4m (saving once more may need 6m), with no sign that it saves before "
        "exiting; 280 steps would be lost"
    )
    assert finding.evidence == ("the last checkpoint of step 12,600 was committed 33m ago",)
    assert "trainmon-tui save llm" in finding.advice


def leaving(seen: State, **memory: object) -> State:
    return changed(seen, memory=RunMemory(**memory))  # type: ignore[arg-type]


def test_a_run_that_exits_by_itself_has_saved_just_now_or_is_done_in_time_is_fine() -> None:
    assert found(TimeLimitNear(), leaving(SOON, exiting_at=NOW - 30)) is None
    saved = checkpoints(checkpoint(12_870, 60), save_s=180.0)
    assert found(TimeLimitNear(), changed(SOON, checkpoints=saved)) is None
    assert found(TimeLimitNear(), changed(SOON, eta_at=NOW + 100)) is None
    early = state(job(ends_at=NOW + 600), checkpoints=checkpoints(checkpoint(12_600, 2_000), save_s=180.0))
    assert found(TimeLimitNear(), early) is None


def test_a_trainer_that_reports_its_deadline_stops_in_time_and_one_that_waits_for_slurm_saves_late() -> None:
    trainer = Trainer(
        path="/fsx/llm/kill.status",
        host="login",
        at=NOW - 1,
        phase="training",
        signals={"SIGTERM": "stop"},
        is_task=True,
    )
    finding = found(TimeLimitNear(), changed(SOON, trainer=trainer))
    assert finding is not None
    assert finding.summary == (
        "job 88 of llm ends in 4m (saving once more may need 6m), and its trainer saves only on the SIGTERM with which "
        "Slurm ends it; 280 steps would be lost"
    )
    limited = replace(trainer, deadline=NOW + 240, grace_s=120.0)
    assert found(TimeLimitNear(), changed(SOON, trainer=limited)) is None
    for other in (replace(limited, at=NOW - 600), replace(limited, deadline=NOW + 9000), replace(limited, signals={})):
        is_deaf = other.deadline == limited.deadline and other.at == limited.at
        assert (found(TimeLimitNear(), changed(SOON, trainer=other)) is None) == is_deaf


def test_an_exit_of_an_earlier_job_is_none_of_this_one() -> None:
    assert found(TimeLimitNear(), leaving(SOON, exiting_at=NOW - 50_000)) is not None


def test_without_a_known_save_five_minutes_are_near() -> None:
    assert found(TimeLimitNear(), state(job(ends_at=NOW + 290), progress=replace(PROGRESS, saves=()))) is not None
    assert found(TimeLimitNear(), state(job(ends_at=NOW + 310), progress=replace(PROGRESS, saves=()))) is None


def test_a_time_limit_is_not_over_because_slurm_is_silent() -> None:
    assert blind(TimeLimitNear(), SOON, without(SOON, SLURM)) == f"{SLURM}: no answer in 10s"
    finding = found(TimeLimitNear(), SOON)
    assert finding is not None
    over = state(ended("TIMEOUT"), verdict="dead", why="it reached its time limit")
    assert why_unknown(TimeLimitNear(), over, alert(finding), NOW) is None
