"""What is reported of the attempts of a run: an automatic retry, a storm, a resume from the wrong checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.runs.states import (
    NOW,
    SPEC,
    alert,
    checkpoint,
    checkpoints,
    ended,
    found,
    job,
    state,
)
from tests.trainmon.analysis.retries import attempts
from trainmon.alerting.rules.runs.attempts import AutoRequeued, Restarted, RetryStorm, WrongResume
from trainmon.analysis.retries import ACTOR
from trainmon.model import (
    Action,
    Attempt,
    CauseName,
    Execute,
    Expected,
    Record,
    RequeueMode,
    RetryPolicy,
    State,
    Status,
    Switch,
)

HOUR = 3_600.0


def attempt(number: int, cause: CauseName, *facts: str, **more: Any) -> Attempt:
    """Number 0 ended five minutes ago, number -1 an hour before."""
    began = NOW - 2_100 + number * HOUR
    one = attempts.ended(number, cause, *facts, started_at=began, **more)
    assert one.end is not None
    return replace(one, attempt_id=f"prod/88@{number}", end=replace(one.end, at=began + 1_800))


def running(**more: Any) -> Attempt:
    return replace(attempts.ended(1, "unknown", **more), attempt_id="prod/88@1", end=None, started_at=NOW - 60)


def seen(*known: Attempt, mode: RequeueMode = "off", **more: Any) -> State:
    spec = replace(SPEC, retry=RetryPolicy(auto_requeue=mode))
    usual: dict[str, Any] = {"verdict": "dead", "spec": spec, "checkpoints": checkpoints(checkpoint(500, 4_000))}
    actions = more.pop("actions", {})
    shown = state(more.pop("of", ended()), **usual | more)
    return replace(shown, attempts={one.attempt_id: one for one in known}, actions=actions)


def act(status: Status, outcome: str = "") -> dict[str, Record]:
    action = Action(
        id="a", verb="requeue", subject="llm", cluster="prod", host="login", operation=Execute(("scontrol",)),
        title="Requeue job 88", run="llm", who=ACTOR, why="nccl-timeout is often transient",
        requested_at=NOW - 30, expected=Expected(submitted_at=7.0),
    )  # fmt: skip
    return {"a": Record(action=action, status=status, done_at=NOW - 20, outcome=outcome)}


# ---- auto-requeue ---------------------------------------------------------------------------------------------------


def test_an_automatic_requeue_is_reported_with_its_evidence() -> None:
    last = attempt(0, "nccl-timeout", "rank 3: watchdog caught a collective timeout", submitted_at=7.0)
    finding = found(AutoRequeued(), seen(last, mode="on", actions=act("done")))
    assert finding is not None
    assert finding.summary == "llm was requeued automatically: nccl-timeout is often transient"
    assert finding.severity == "warning"
    assert finding.evidence == (
        "rank 3: watchdog caught a collective timeout", "retries used after nccl-timeout: 0 of 3",
    )  # fmt: skip
    assert found(AutoRequeued(), seen(last, running(), mode="on", actions=act("done"))) is not None
    again = attempt(0, "nccl-timeout", submitted_at=8.0)
    assert found(AutoRequeued(), seen(again, mode="on", actions=act("done"))) is None, "that was for the attempt before"
    refused = found(AutoRequeued(), seen(last, mode="on", actions=act("refused", "job 88 has become 89")))
    assert refused is not None
    assert refused.summary.startswith("llm could not be requeued automatically (job 88 has become 89): nccl-timeout")
    later = act("refused", "a fault was seen: n1 (Xids)") | {"b": act("done")["a"]}
    requeued = found(AutoRequeued(), seen(last, mode="on", actions=later))
    assert requeued is not None
    assert requeued.summary == finding.summary


@pytest.mark.parametrize(
    ("mode", "cause", "said"),
    [
        ("suggest", "nccl-timeout", "llm may be retried: nccl-timeout is often transient"),
        ("suggest", "data-error", "llm ended early: data-error: the next attempt would end in the same way"),
        ("on", "quota", "llm is not requeued automatically: quota: a retry needs room in the quota first"),
        ("on", "nccl-timeout", None),  # it is about to be requeued
        ("on", "cancelled-by-user", None),
        ("suggest", "completed", None),
        ("suggest", "requeued", None),
        ("on", "requeued", None),
        ("off", "nccl-timeout", None),
    ],
)  # fmt: skip
def test_a_suggestion_and_a_refusal_are_reported(mode: RequeueMode, cause: CauseName, said: str | None) -> None:
    finding = found(AutoRequeued(), seen(attempt(0, cause), mode=mode))
    assert (None if finding is None else finding.summary) == said


def test_a_retry_that_waits_for_another_config_is_not_refused() -> None:
    oom = attempts.with_config(attempt(0, "cuda-oom"), "abc")
    why = "cuda-oom: a retry needs a change of the batch size, activation checkpointing or the placement first"
    finding = found(AutoRequeued(), seen(oom, mode="on"))
    assert finding is not None
    assert finding.summary == f"llm is requeued automatically if its config changes within 1h of the end: {why}"
    unread = found(AutoRequeued(), seen(attempt(0, "cuda-oom"), mode="on"))
    assert unread is not None
    assert unread.summary == f"llm is not requeued automatically: {why}"
    spent = seen(attempts.with_config(attempt(-1, "cuda-oom"), "abc"), oom, mode="on")
    assert "is not requeued automatically: " in found(AutoRequeued(), spent).summary  # type: ignore[union-attr]


def test_two_ends_within_seconds_are_two_events() -> None:
    first, second = attempt(0, "data-error"), replace(attempt(0, "quota"), started_at=NOW - 310)
    earlier = found(AutoRequeued(), seen(first, mode="on"))
    assert earlier is not None
    known = replace(alert(earlier), since=NOW - 320)
    shown = replace(seen(first, replace(second, attempt_id="prod/88@1"), mode="on"), alerts={known.id: known})
    later = found(AutoRequeued(), shown)
    assert later is not None
    assert later.since == NOW - 300


@pytest.mark.parametrize(
    ("mode", "command", "said", "advised"),
    [
        ("suggest", True, "may be retried", "R starts it: trainmon-tui requeue llm"),
        ("suggest", False, "ended early", "start the evaluator again; with command in its [[eval]], R does that"),
        ("on", False, "is not requeued automatically", "start the evaluator again; with command in its [[eval]], "),
        ("on", True, None, ""),
    ],
)
def test_of_a_crashed_evaluator_the_alert_says_what_starts_it(
    mode: RequeueMode, command: bool, said: str | None, advised: str
) -> None:
    spec = replace(SPEC, retry=RetryPolicy(auto_requeue=mode), eval_commands=(("sbatch",),) if command else ())
    finding = found(AutoRequeued(), seen(attempt(0, "evaluator", "evaluate.py: ZeroDivisionError"), spec=spec))
    assert (finding is None) == (said is None)
    if finding is not None:
        assert finding.summary == f"llm {said}: the training is saved: only the evaluator must run again"
        assert finding.advice is not None
        assert finding.advice.startswith(advised)


def test_an_evaluator_that_was_started_automatically_is_reported() -> None:
    (record,) = act("done").values()
    of_run = replace(record.action, verb="evaluate", expected=Expected(), why="the training is saved", title="Evaluate")
    seen_by = seen(attempt(0, "evaluator"), mode="on", actions={"a": replace(record, action=of_run)})
    finding = found(AutoRequeued(), seen_by)
    assert finding is not None
    assert finding.summary == "llm was evaluated again automatically: the training is saved"


def test_a_job_that_already_waits_needs_no_retry() -> None:
    waiting = replace(job(), state="PENDING", started_at=None)
    for mode in ("suggest", "on"):
        assert found(AutoRequeued(), seen(attempt(0, "preempted"), mode=mode, of=waiting)) is None


def test_an_armed_kill_switch_is_the_reason_and_old_ends_are_no_news() -> None:
    armed = seen(attempt(0, "nccl-timeout"), mode="on", kill=Switch(path="/fsx/kill", exists=True))
    finding = found(AutoRequeued(), armed)
    assert finding is not None
    assert finding.summary == "llm is not requeued automatically: its kill switch is armed"
    assert found(AutoRequeued(), seen(attempt(-1, "nccl-timeout"), mode="suggest")) is None


# ---- retry-storm ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"requeue": False}, "job 88 was submitted with --no-requeue, and its [[run]] has no script"),
        ({"requeue": True, "gone_at": NOW - 10}, "job 88 is no longer known to Slurm, and its [[run]] has no script"),
        ({"requeue": True}, None),
    ],
)
def test_what_cannot_be_started_again_is_the_reason_that_nothing_is_done(facts: Any, said: str | None) -> None:
    spec = replace(SPEC, script=None, retry=RetryPolicy(auto_requeue="on"))
    shown = seen(attempt(0, "nccl-timeout", job_id="88"), spec=spec, of=replace(ended(), **facts))
    finding = found(AutoRequeued(), shown)
    assert (None if finding is None else finding.summary) == (said and f"llm is not requeued automatically: {said}")


def test_the_same_steps_again_and_again_are_a_storm() -> None:
    steps: dict[str, Any] = {"first_step": 59_999, "last_step": 69_999, "resumed_from": 59_999}
    before = attempt(-3, "quota", last_step=69_999)
    vain = [attempt(n, "storage-io" if n % 2 else "nccl-timeout", restart=n + 3, **steps) for n in (-2, -1, 0)]
    assert found(RetryStorm(), seen(before, *vain[:2])) is None
    finding = found(RetryStorm(), seen(before, *vain))
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.summary == (
        "llm repeats the same steps: 3 attempts in 2h30m made no new step and no new checkpoint, "
        "none beyond step 69,999"
    )
    assert finding.evidence[1:] == (
        "restart 2: steps 59999 to 69999, storage-io", "restart 3: steps 59999 to 69999, nccl-timeout",
        "12 GPU hours were spent on them",
    )  # fmt: skip
    assert found(RetryStorm(), seen(before, *vain, running(last_step=69_999))) is not None
    assert found(RetryStorm(), seen(before, *vain, running(last_step=70_000))) is None, "it trains on"


def test_an_attempt_that_began_at_step_0_shows_it() -> None:
    vain = [attempt(n, "segfault", restart=n + 3, first_step=0, last_step=10) for n in (-3, -2, -1, 0)]
    finding = found(RetryStorm(), seen(*vain))
    assert finding is not None
    assert "restart 3: steps 0 to 10, segfault" in finding.evidence


def test_a_storm_that_is_long_over_is_no_news() -> None:
    vain = [attempt(n, "segfault", last_step=10) for n in (-53, -52, -51, -50)]
    assert found(RetryStorm(), seen(*vain)) is None
    assert found(RetryStorm(), seen(*vain, running(last_step=10))) is None


def test_what_a_person_ended_again_and_again_is_no_storm() -> None:
    assert found(RetryStorm(), seen(*(attempt(n, "cancelled-by-user") for n in range(-5, 1)))) is None


# ---- wrong-resume ---------------------------------------------------------------------------------------------------


def resumed(cause: CauseName = "preempted", committed: int | None = 500, **more: Any) -> State:
    before = attempt(0, cause, last_step=520, has_checkpoints=True, last_committed_step=committed)
    return seen(before, running(**{"has_checkpoints": True, "last_committed_step": committed} | more), of=job())


def test_an_older_checkpoint_than_the_last_is_the_wrong_one() -> None:
    finding = found(WrongResume(), resumed(resumed_from=400, resumed_words="loading checkpoint at iteration 400"))
    assert finding is not None
    assert (finding.severity, finding.summary) == (
        "warning",
        "llm began at step 400, not at its last committed checkpoint of step 500: 100 steps are trained again",
    )
    assert finding.evidence == ("loading checkpoint at iteration 400", "/fsx/ckpt")


def test_a_start_from_scratch_is_critical() -> None:
    finding = found(WrongResume(), resumed(first_step=1))
    assert finding is not None
    assert finding.severity == "critical"


def test_a_finished_training_that_goes_on_to_a_later_target_must_resume() -> None:
    assert found(WrongResume(), resumed("completed", first_step=1, target_step=1_000)) is not None


def test_a_checkpoint_that_is_not_committed_is_the_wrong_one() -> None:
    finding = found(WrongResume(), resumed(resumed_from=510))
    assert finding is not None
    assert "resumed from step 510, which is not a committed checkpoint" in finding.summary


@pytest.mark.parametrize(
    "right",
    [
        resumed(resumed_from=500),
        resumed(first_step=501),
        resumed(resumed_from=510, last_committed_step=510),  # it was committed after the last listing
        resumed("diverged", resumed_from=400),
        resumed(committed=None, resumed_from=0),
        resumed(committed=None, resumed_from=100_000),  # another model, from which the run began
        resumed(resumed_from=100, counts_steps=False),
        resumed(),
        resumed("completed", first_step=1),  # another training under the same name
        seen(running(first_step=1)),
    ],
)
def test_the_right_checkpoint_is_not_reported(right: State) -> None:
    assert found(WrongResume(), right) is None


# ---- restarted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cause", "severity"),
    [("data-error", "warning"), ("cuda-oom", "warning"), ("nccl-timeout", "info"), ("cancelled-by-user", "info")],
)
def test_a_restart_that_a_retry_does_not_help_is_a_warning(cause: CauseName, severity: str) -> None:
    before = attempt(0, cause, retry_decision="now")
    again = job(restarts=1, started_at=NOW - 60)
    finding = found(Restarted(), seen(before, of=again, verdict="starting"))
    assert finding is not None
    assert finding.severity == severity
    assert any(line.startswith("the attempt before: ") for line in finding.evidence) is (severity == "warning")
