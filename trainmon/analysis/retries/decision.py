"""What to do after an attempt has ended, and why; which runs are to be requeued automatically now. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts import OUTLIVES, began_at, config_in_file, has_same_settings
from trainmon.analysis.causes.classify import NO_RESTART
from trainmon.analysis.retries.history import (
    DEFAULTS,
    ENDED_ON_PURPOSE,
    FEW,
    OF_NODE,
    OUT_OF_MEMORY,
    STORM,
    TRANSIENT,
    by_run,
    history_of,
    in_vain,
    key_of,
    limit_of,
    record_text,
    since_progress,
    spent,
    suspects,
)
from trainmon.analysis.runs import writers
from trainmon.lib import Instant, Seconds, counted, group_by
from trainmon.model import (
    Attempt,
    AttemptEnd,
    CauseName,
    Classification,
    Job,
    NodeRecord,
    Record,
    RetryChange,
    RetryChoice,
    RetryLimit,
    RetryPolicy,
    Run,
    RunSpec,
    State,
)

CHANGES: Mapping[RetryChange, str] = {
    "batch": "the batch size",
    "checkpointing": "activation checkpointing",
    "placement": "the placement",
}

IN_CONFIG: frozenset[RetryChange] = frozenset({"batch", "checkpointing"})
"""Changes that show in the config."""

NEEDS: Mapping[CauseName, str] = {
    "disk-full": "free space on the disk",
    "quota": "room in the quota",
    "inodes-full": "free inodes",
    "diverged": "an earlier checkpoint, or other data or settings",
    "checkpoint-corrupt": "an earlier checkpoint",
}
"""What a person must provide before a retry after these causes can help."""

SWAPPED: frozenset[CauseName] = frozenset({"gpu-hardware", "driver-mismatch"})
"""Causes that stay with a node: the same nodes would fail again."""

BY_SLURM = frozenset({"NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "TIMEOUT"})
"""Slurm states these ends itself: they are certain."""

ABOVE_LOG = BY_SLURM - {"TIMEOUT"}
"""No log changes these. A run that reached its time limit may have hung before, which its log shows."""


ON_PURPOSE = frozenset({"COMPLETED", "CANCELLED"})
"""States of jobs that are never started again automatically, whatever their logs show."""


class RetryDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What to do after an attempt."""

    choice: RetryChoice
    cause: CauseName
    why: str
    """One sentence."""
    spent: int = 0
    """Retries after this cause that ended in the same way, without net progress."""
    budget: int = 0
    exclude: tuple[str, ...] = ()
    """The nodes that the next attempt must avoid."""
    is_certain: bool = False
    """Whether the cause is certain enough to act on without a person."""

    @property
    def left(self) -> int:
        return max(0, self.budget - self.spent)

    @property
    def budget_text(self) -> str:
        """`retries used after nccl-timeout: 1 of 3`, or nothing for an end without a budget."""
        used = f"retries used after {self.cause}: {self.spent} of {self.budget}"
        return "" if self.cause in ENDED_ON_PURPOSE else used


def decide(
    attempt: Attempt,
    attempts: Iterable[Attempt],
    policy: RetryPolicy,
    nodes: Mapping[str, NodeRecord] = {},
    *,
    config: str | None = None,
) -> RetryDecision | None:
    """The decision about an attempt that ended; `attempts` are all that are known of its run. None while its cause is
    unknown. `nodes`: what is known of the nodes; `config`: the hash that its config file has now, if that was read."""
    found = attempt.cause
    if found is None:
        return None
    cause = found.cause
    if cause == "completed" and attempt.is_unfinished:
        early = (
            f"it ended without an error at step {attempt.last_step:,} of {attempt.target_step:,}: if it is complete, "
            "correct target_step in its [[run]], else see why"
        )
        return RetryDecision(choice="after-change", cause=cause, why=early)
    if cause == "cancelled-by-user" and found.confidence == "low":
        told = "it was told to stop, and nothing shows that a person did that: find out who or what did"
        return RetryDecision(choice="after-change", cause=cause, why=told)
    if cause in ENDED_ON_PURPOSE:
        choice: RetryChoice = "none" if cause in ("completed", "requeued") else "stop"
        return RetryDecision(choice=choice, cause=cause, why=ENDED_ON_PURPOSE[cause])
    history, limit = history_of(attempt, attempts), limit_of(cause, policy)
    used, change = spent(attempt, history, limit), config_change(attempt, limit, config)
    exclude: tuple[str, ...] = ()
    is_changed = change is not None and change.is_new
    if (why := _why_stop(attempt, cause, history, limit, used, is_changed=is_changed)) is not None:
        choice = "stop"
    elif cause == "evaluator":
        choice, why = "evaluator", "the training is saved: only the evaluator must run again"
    elif change is not None:
        choice, why = ("now" if change.is_new else "after-change"), change.text(cause)
    elif limit.after_change:
        choice, why = "after-change", _needs_change(attempt, cause, history, limit)
    elif cause in NEEDS:
        choice, why = "after-change", f"{cause}: a retry needs {NEEDS[cause]} first"
    else:
        choice, why, exclude = _retry(attempt, nodes, cause, limit)
    return RetryDecision(
        choice=choice,
        cause=cause,
        why=why,
        spent=used,
        budget=limit.times,
        exclude=exclude,
        is_certain=_is_certain(attempt, found),
    )


def _is_certain(attempt: Attempt, found: Classification) -> bool:
    """Whether its cause is certain. A preemption needs a fact of the scheduler or the cloud: a trainer may call
    each SIGTERM a preemption, and a person may have sent it."""
    is_told = attempt.preempted_at is not None or any(one.line is None for one in found.evidence)
    is_proven = found.cause != "unknown" and (found.cause != "preempted" or is_told)
    return _slurm_state(attempt.end) in BY_SLURM or (found.confidence == "high" and is_proven)


def _slurm_state(end: AttemptEnd | None) -> str:
    return "" if end is None else (end.scheduler_state or "").partition(" ")[0]


def with_decisions(
    before: Mapping[str, Attempt],
    after: Mapping[str, Attempt],
    runs: Mapping[str, Run],
    nodes: Mapping[str, NodeRecord],
) -> Mapping[str, Attempt]:
    """The attempts after a change, with what is decided about those that ended. A decision is made again only if what
    was known of the attempt, or of those before it, has changed: the order of the reports does not matter."""
    changed = group_by((one for name, one in after.items() if one is not before.get(name)), lambda one: one.run_id)
    first = {run: min(one.order for one in attempts) for run, attempts in changed.items()}
    decided = dict(after)
    for one in after.values():
        is_of_ledger = one.retry_decision is not None and one.attempt_id not in before  # it was decided when it ended
        if is_of_ledger or one.is_open or one.run_id not in first or one.order < first[one.run_id]:
            continue
        policy = runs[one.run_id].spec.retry if one.run_id in runs else RetryPolicy()
        if (decision := decide(one, after.values(), policy, nodes)) is not None:
            decided[one.attempt_id] = replace(one, retry_decision=decision.choice, budget_spent=decision.spent)
    return decided


class ConfigChange(NamedTuple):
    """The hash of a config file when an attempt began, and now."""

    before: str
    now: str

    @property
    def is_new(self) -> bool:
        return self.before != self.now

    def text(self, cause: CauseName) -> str:
        if self.is_new:
            return f"the config has changed since the attempt ({self.before} → {self.now}): a retry may help"
        return f"nothing has changed since the attempt (config {self.now}): the same {cause} would come again"


def config_change(attempt: Attempt, limit: RetryLimit, config: str | None) -> ConfigChange | None:
    """Whether the config is another one than that of the attempt; None if that is not known, or does not count."""
    known = config_in_file(attempt)
    return ConfigChange(known[1], config) if _is_of_config(limit) and known is not None and config is not None else None


def config_to_read(attempt: Attempt, policy: RetryPolicy) -> str | None:
    """The path of the config file on which the decision about an attempt depends; None if it depends on none."""
    known = config_in_file(attempt)
    return known[0] if known is not None and needs_config_change(attempt, policy) else None


def needs_config_change(attempt: Attempt, policy: RetryPolicy) -> bool:
    """Whether a change of the config is what makes a retry of this attempt possible."""
    cause = None if attempt.cause is None else attempt.cause.cause
    return cause is not None and cause not in ENDED_ON_PURPOSE and _is_of_config(limit_of(cause, policy))


def _is_of_config(limit: RetryLimit) -> bool:
    return not IN_CONFIG.isdisjoint(limit.after_change)


def _why_stop(
    attempt: Attempt,
    cause: CauseName,
    history: Sequence[Attempt],
    limit: RetryLimit,
    used: int,
    *,
    is_changed: bool,
) -> str | None:
    """Why an attempt is not retried, if it is not. `is_changed`: whether its config has changed since."""
    if attempt.end is not None and attempt.end.exit_code == NO_RESTART:
        return f"exit status {NO_RESTART}: {ENDED_ON_PURPOSE['no-restart']}"
    step = next((one.last_step for one in reversed(history) if one.last_step is not None), 0)
    goal = next((one.target_step for one in reversed(history) if one.target_step is not None), math.inf)
    known = (one for one in reversed(history) if one.has_checkpoints and one.counts_steps is not False)
    saved = next((one.last_committed_step or 0 for one in known if not one.may_have_later), step)
    if min(step, saved) >= goal and cause not in ("evaluator", "diverged"):
        return f"it reached its target, step {step:,} of {goal:,}: nothing is left to train"
    *before, last = since_progress(history)
    alike = [one for one in before if key_of(one) == key_of(attempt)]
    if limit.times == 0:
        return f"{cause}: the next attempt would end in the same way"
    if limit.after_change and not is_changed and alike and has_changed(alike[-1], last, limit.after_change) is False:
        config = f"config {last.config_hash}, " if last.config_hash is not None else ""
        return f"{cause} came again, and nothing had changed ({config}{_placement(last)})"
    unknown = [has_changed(one, after, limit.after_change) is None for one, after in pairwise((*alike, last))]
    if limit.after_change and not is_changed and unknown[-2:] == [True, True]:
        return f"{cause} came again after a retry of which it is not known whether anything had changed"
    if used >= limit.times:
        times = "once" if used == 1 else f"{used} times"
        doubt = (
            f", and it is not known whether {_changes(limit)} had changed"
            if limit.after_change and unknown[-1:] == [True]
            else ""
        )
        return f"{cause} came again {times} without a new step or checkpoint{doubt}: its budget is spent"
    if len(vain := in_vain(history)) >= STORM:
        return f"the last {len(vain)} retries made no new step and no new checkpoint"
    return None


def has_changed(before: Attempt, after: Attempt, changes: Collection[RetryChange]) -> bool | None:
    """Whether one of these has changed; None if that is not known. A change of the batch or of activation checkpointing
    shows in the hash of the config, by W&B or by its file, or on the command line; else it is not known."""
    is_same = {_is_same(change, before, after) for change in changes}
    return True if False in is_same else None if None in is_same else False


def _is_same(change: RetryChange, before: Attempt, after: Attempt) -> bool | None:
    if change != "placement":
        return has_same_settings(before, after)
    places = [(len(one.nodes), one.gpus) for one in (before, after)]
    return None if (0, None) in places else places[0] == places[1]


def _needs_change(attempt: Attempt, cause: CauseName, history: Sequence[Attempt], limit: RetryLimit) -> str:
    """What must change before a retry, or that a person must confirm that it has."""
    changes = _changes(limit)
    alike = [one for one in since_progress(history) if key_of(one) == key_of(attempt)]
    if len(alike) > 1 and has_changed(alike[-2], alike[-1], limit.after_change) is None:
        return f"{cause} came again, and it is not known whether {changes} has changed: confirm that before one retry"
    return f"{cause}: a retry needs a change of {changes} first"


def _changes(limit: RetryLimit) -> str:
    *first, last = (CHANGES[one] for one in limit.after_change)
    return f"{', '.join(first)} or {last}" if first else last


def _placement(attempt: Attempt) -> str:
    return counted(len(attempt.nodes), "node") + ("" if attempt.gpus is None else f", {counted(attempt.gpus, 'GPU')}")


def _retry(
    attempt: Attempt, nodes: Mapping[str, NodeRecord], cause: CauseName, limit: RetryLimit
) -> tuple[RetryChoice, str, tuple[str, ...]]:
    doubt = ""
    if cause in OF_NODE:
        if named := suspects(attempt):
            return "after-node-swap", f"{cause} on {', '.join(named)}: the next attempt must avoid it", named
        own = [nodes[key] for name in attempt.nodes if (key := f"{attempt.cluster}/{name}") in nodes]
        if bad := [one for one in own if one.is_bad]:
            why = "; ".join(f"{one.node}: {record_text(one)}" for one in bad)
            return "after-node-swap", f"{cause}; {why}", tuple(one.node for one in bad)
        few = max((one.failures for one in own), default=0)
        doubt = f"; {few} failures are too few to say which node is bad" if 1 < few < FEW else ""
    if cause in SWAPPED:
        return "after-node-swap", f"{cause} stays with its node, and the node is not known{doubt}", ()
    if cause in ("preempted", "time-limit"):
        return "now", f"{cause}: {_resumes(attempt)}", ()
    if cause in TRANSIENT:
        return "now", f"{cause} is often transient{doubt}", ()
    if attempt.cause is not None and attempt.cause.retry == "after-change" and limit is DEFAULTS[cause]:
        return "after-change", f"{cause}: {attempt.cause.advice.rstrip('.')}", ()
    return "now", f"{cause}: one retry shows whether it repeats{doubt}", ()


def _resumes(attempt: Attempt) -> str:
    if attempt.may_have_later:
        return "where the next attempt resumes is not known, because the format of its checkpoints is not recognised"
    if attempt.last_committed_step is not None:
        return (
            f"the next attempt should resume from the last committed checkpoint, step {attempt.last_committed_step:,}"
        )
    missing = "no checkpoint is committed" if attempt.has_checkpoints else "its checkpoints are not known"
    return f"the next attempt may begin anew, because {missing}"


# ---- automatic requeues that are due ---------------------------------------------------------------------------------

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
        may_change = last.end.awaits_log and _slurm_state(last.end) not in ABOVE_LOG  # its cause
        if (may_change and now - last.end.noticed_at < LOG_WAIT) or _may_go_on(run, last, last.end, state, now):
            continue
        decision = decide(last, state.attempts.values(), run.spec.retry, state.node_records)
        is_armed = run.kill is not None and run.kill.exists
        if decision is None or not (is_automatic(decision, run.spec) or awaits_config(last, decision, run.spec, state)):
            continue
        verb = None if is_armed or obstacle(run, last, decision, state) else _verb(run, last, decision, state)
        if verb is not None:
            yield Due(verb=verb, run=run.name, attempt=last, decision=decision)


def _may_go_on(run: Run, last: Attempt, end: AttemptEnd, state: State, now: Instant) -> bool:
    """Whether its trainer may have outlived its job: it has written something since, also without a known step, its
    next step is not yet due, or its log has not been read since this program started."""
    log = run.log
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
    changed = (
        decide(last, state.attempts.values(), run.retry, state.node_records, config="another") if may_change else None
    )
    return changed is not None and is_automatic(changed, run)


def _verb(run: Run, last: Attempt, decision: RetryDecision, state: State) -> DueVerb | None:
    jobs = [state.jobs[key] for key in run.jobs if key in state.jobs]
    waiting = [job for job in jobs if job.gone_at is None and job.stage != "ended"]
    if waiting:  # Slurm or a person has started it again, or this program has
        is_ours = (record := automatic(state, last)) is not None and record.status != "refused"
        lacks = [job for job in waiting if job.detail_at and not {*decision.exclude} <= {*job.excluded}]
        return "exclude" if is_ours and lacks and all(job.stage == "waiting" for job in waiting) else None
    if last.end is not None and any((job.submitted_at or 0.0) > last.end.at for job in jobs):
        return None  # a person has started another one since, and cancelled it
    if decision.choice == "evaluator":
        return None if _is_evaluated_again(state, last) else "evaluate"
    if may_requeue(state.jobs.get(f"{last.cluster}/{last.job_id}")):
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
    if decision.choice == "evaluator":
        return None
    if last.end is not None and _slurm_state(last.end) in ON_PURPOSE:
        return f"job {last.job_id} has ended on purpose: {last.end.scheduler_state}"
    source = state.sources.get(f"slurm:{last.cluster}")
    if source is None or source.answered_at is None:
        return None
    if last.job_id is None:
        return "it has no Slurm job"
    if run.spec.script is not None or may_requeue(job):
        return None
    if job is None or job.gone_at is not None:
        why = "is no longer known to Slurm"
    else:
        why = "is not a batch job" if job.batch is False else "was submitted with --no-requeue"
    return f"job {last.job_id} {why}, and its [[run]] has no script"


def may_requeue(job: Job | None) -> bool:
    """Whether Slurm knows a job and may start it again."""
    return job is not None and job.gone_at is None and job.requeue is not False and job.batch is not False


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
    for one in reversed(list(own)):  # the gate may have refused it before it was done
        action, submitted_at = one.action, one.action.expected.submitted_at
        is_later = action.requested_at >= (attempt.ended_at or math.inf)
        is_its_job = action.verb == "requeue" and submitted_at == attempt.submitted_at
        if is_its_job if submitted_at is not None else action.verb in ("queue", "evaluate") and is_later:
            return one
    return None
