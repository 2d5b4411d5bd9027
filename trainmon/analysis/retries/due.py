"""Which runs are to be requeued automatically now. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import msgspec

from trainmon.analysis.attempts import OUTLIVES, began_at
from trainmon.analysis.retries.budget import OUT_OF_MEMORY, TRANSIENT, by_run
from trainmon.analysis.retries.decision import RetryDecision, config_to_read, decide
from trainmon.analysis.runs import writers
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, Job, Record, Run, RunSpec, State

ACTOR = "auto_requeue"
"""Who requests automatic actions, in the ledger."""

WAIT: Seconds = 125.0
"""How long a job must have ended. Slurm itself keeps a requeued job back for 121 s, until its old credential has
expired, and may requeue it by itself in that time."""

LOG_WAIT: Seconds = 300.0
"""How long the end of a log that could not be read in time is waited for. A busy host may need a minute for it."""

TOO_LATE: Seconds = 3_600.0
"""How long after the end a retry is no longer automatic: a person has had the time to look."""


STEPS = 3
"""How many of its usual intervals between two steps a run must have been silent. Two steps show that it goes on."""

DueVerb = Literal["requeue", "queue", "exclude", "evaluate"]


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """An automatic action that is to be done now."""

    verb: DueVerb
    run: str
    attempt: Attempt
    decision: RetryDecision


def is_automatic(decision: RetryDecision, run: RunSpec) -> bool:
    """Whether the daemon may do what was decided: retry after a certain fault of the infrastructure, without nodes that
    are known, or after a change; or start only the evaluator again. Any other retry is up to a person, unless the
    config sets how often that cause is retried."""
    if decision.choice == "evaluator":
        return bool(run.eval_commands)
    knows_node = decision.choice == "after-node-swap" and bool(decision.exclude)
    is_meant = decision.cause in TRANSIENT | OUT_OF_MEMORY or decision.cause in run.retry.limits
    return decision.is_certain and (knows_node or (is_meant and decision.choice == "now"))


def due(state: State, now: Instant) -> Iterator[Due]:
    """The runs with `auto_requeue = "on"` whose last attempt has failed, and may be retried as it is; also those whose
    config must have changed first, if the plan can find that out."""
    if state.read_only:
        return
    watched = [run for run in state.runs.values() if run.spec.retry.auto_requeue == "on"]
    attempts = by_run(state.attempts.values()) if watched else {}
    for run in watched:
        last = attempts[run.name][-1] if run.name in attempts else None
        if last is None or last.end is None or not WAIT <= now - last.end.at <= TOO_LATE:
            continue
        may_change = last.end.awaits_log and now - last.end.noticed_at < LOG_WAIT  # its cause
        if may_change or _may_go_on(run, last, state, now):
            continue
        decision = decide(last, state.attempts.values(), run.spec.retry)
        is_armed = run.kill is not None and run.kill.exists
        if decision is None or not (is_automatic(decision, run.spec) or awaits_config(last, decision, run.spec, state)):
            continue
        verb = None if is_armed or obstacle(run, last, decision, state) else _verb(run, last, decision, state)
        if verb is not None:
            yield Due(verb=verb, run=run.name, attempt=last, decision=decision)


def _may_go_on(run: Run, last: Attempt, state: State, now: Instant) -> bool:
    """Whether its trainer may have outlived its job: it has written something since, also without a known step, its
    next step is not yet due, or its log has not been read since this program started."""
    end, log = last.end, run.log
    assert end is not None
    newest = None if run.checkpoints is None else run.checkpoints.committed
    writes = (last.outlived_at, None if log is None else log.modified_at, None if newest is None else newest.at)
    written_at = max((at for at in writes if at is not None), default=0.0)
    is_late = written_at > max((began_at(end.at, run, state) or end.at) + OUTLIVES, last.outlived_gone_at or 0.0)
    goes_on = is_late and now - written_at < run.spec.stall_after
    is_unread = run.spec.log is not None and (log is None or log.checked_at is None)
    may_be_read = is_unread and now - state.started_at < LOG_WAIT
    return goes_on or may_be_read or now - end.at < OUTLIVES + STEPS * (run.progress.cadence_s or 0.0)


def awaits_config(last: Attempt, decision: RetryDecision, run: RunSpec, state: State) -> bool:
    """Whether the daemon will retry once the config has changed. Only a plan reads the present config."""
    may_change = decision.left and config_to_read(last, run.retry) is not None
    changed = decide(last, state.attempts.values(), run.retry, config="another") if may_change else None
    return changed is not None and is_automatic(changed, run)


def _verb(run: Run, last: Attempt, decision: RetryDecision, state: State) -> DueVerb | None:
    jobs = [state.jobs[key] for key in run.jobs if key in state.jobs]
    waiting = [job for job in jobs if job.gone_at is None and job.stage != "ended"]
    if waiting:  # Slurm or a person has started it again, or this program has
        is_ours = automatic(state, last) is not None
        lacks = [job for job in waiting if job.detail_at and not {*decision.exclude} <= {*job.excluded}]
        return "exclude" if is_ours and lacks and all(job.stage == "waiting" for job in waiting) else None
    if last.end is not None and any((job.submitted_at or 0.0) > last.end.at for job in jobs):
        return None  # a person has started another one since, and cancelled it
    if decision.choice == "evaluator":
        return None if _is_evaluated_again(state, last) else "evaluate"
    if _requeueable(last, state) is not None:
        return "requeue"
    return None if run.spec.script is None or last.job_id is None else "queue"


def obstacle(run: Run, last: Attempt, decision: RetryDecision, state: State) -> str | None:
    """Why nothing can be started, whatever was decided; None also while Slurm has not answered yet."""
    if (writer := next(writers(run, state, run.jobs), None)) is not None:
        return writer[1]
    cluster, job = state.clusters.get(last.cluster), state.jobs.get(f"{last.cluster}/{last.job_id}")
    user = run.spec.user if job is None else job.user
    if user and cluster is not None and user != cluster.me and not run.spec.retry.is_own:
        return f"its job is {user}'s, and its [[run]] does not set auto_requeue"
    source = state.sources.get(f"slurm:{last.cluster}")
    if decision.choice == "evaluator" or source is None or source.answered_at is None:
        return None
    if last.job_id is None:
        return "it has no Slurm job"
    if run.spec.script is not None or _requeueable(last, state) is not None:
        return None
    is_there = job is not None and job.gone_at is None
    why = "was submitted with --no-requeue" if is_there else "is no longer known to Slurm"
    return f"job {last.job_id} {why}, and its [[run]] has no script"


def _requeueable(last: Attempt, state: State) -> Job | None:
    """The job of an attempt, if Slurm knows it and may start it again."""
    job = state.jobs.get(f"{last.cluster}/{last.job_id}")
    return None if job is None or job.gone_at is not None or job.requeue is False else job


def _is_evaluated_again(state: State, attempt: Attempt) -> bool:
    """Whether anybody has started the evaluator since the attempt ended."""
    return any(
        one.action.verb == "evaluate"
        and one.action.run == attempt.run_id
        and one.status not in ("failed", "refused")
        and one.action.requested_at >= (attempt.ended_at or math.inf)
        for one in state.actions.values()
    )


def automatic(state: State, attempt: Attempt) -> Record | None:
    """The automatic start that followed an attempt. Of a job that Slurm had forgotten, only the time shows that."""
    own = (one for one in state.actions.values() if one.action.who == ACTOR and one.action.run == attempt.run_id)
    for one in own:
        action, submitted_at = one.action, one.action.expected.submitted_at
        is_later = action.requested_at >= (attempt.ended_at or math.inf)
        is_its_job = action.verb == "requeue" and submitted_at == attempt.submitted_at
        if is_its_job if submitted_at is not None else action.verb in ("queue", "evaluate") and is_later:
            return one
    return None
