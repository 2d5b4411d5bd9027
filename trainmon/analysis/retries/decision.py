"""What to do after an attempt has ended, and why. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts import config_in_file, has_same_settings
from trainmon.analysis.causes.classify import NO_RESTART
from trainmon.analysis.retries.budget import (
    DEFAULTS,
    ENDED_ON_PURPOSE,
    OF_NODE,
    STORM,
    TRANSIENT,
    blamed,
    history_of,
    in_vain,
    key_of,
    lacks_data,
    limit_of,
    order_of,
    since_progress,
    spent,
    suspects,
)
from trainmon.lib import counted
from trainmon.model import Attempt, CauseName, Classification, RetryChange, RetryLimit, RetryPolicy, Run
from trainmon.model.attempts.cause import RetryChoice

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

NO_DATA = "not enough data to blame a node: too few attempts on others to compare with"
"""No verdict of the test, which clears no node."""

BY_SLURM = frozenset({"NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "TIMEOUT"})
"""Slurm states these ends itself: they are certain."""


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
    attempt: Attempt, attempts: Collection[Attempt], policy: RetryPolicy, *, config: str | None = None
) -> RetryDecision | None:
    """The decision about an attempt that ended; `attempts` are all that are known. None while its cause is unknown.
    `config`: the hash that its config file has now, if that was read."""
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
    if cause in ENDED_ON_PURPOSE:
        choice: RetryChoice = "none" if cause in ("completed", "requeued") else "stop"
        return RetryDecision(choice=choice, cause=cause, why=ENDED_ON_PURPOSE[cause])
    history, limit = history_of(attempt, attempts), limit_of(cause, policy)
    used, change = spent(attempt, history, limit), config_change(attempt, limit, config)
    exclude: tuple[str, ...] = ()
    if (why := _why_stop(attempt, history, limit, used, is_changed=change is not None and change.is_new)) is not None:
        choice = "stop"
    elif cause == "evaluator":
        choice, why = "evaluator", "the training is saved: only the evaluator must run again"
    elif change is not None:
        choice, why = ("now" if change.is_new else "after-change"), change.text(cause)
    elif limit.after_change:
        choice, why = "after-change", _needs_change(attempt, history, limit)
    elif cause in NEEDS:
        choice, why = "after-change", f"{cause}: a retry needs {NEEDS[cause]} first"
    else:
        choice, why, exclude = _retry(attempt, attempts, cause, limit)
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
    state = (attempt.end.scheduler_state or "").partition(" ")[0] if attempt.end is not None else ""
    is_told = attempt.preempted_at is not None or any(one.line is None for one in found.evidence)
    is_proven = found.cause != "unknown" and (found.cause != "preempted" or is_told)
    return state in BY_SLURM or (found.confidence == "high" and is_proven)


def with_decisions(
    before: Mapping[str, Attempt], after: Mapping[str, Attempt], runs: Mapping[str, Run]
) -> Mapping[str, Attempt]:
    """The attempts after a change, with what is decided about those that ended. A decision is made again only if what
    was known of the attempt, or of those before it, has changed: the order of the reports does not matter."""
    first: dict[str, tuple[float, str]] = {}
    for name, one in after.items():
        if one is not before.get(name):
            first[one.run_id] = min(order_of(one), first.get(one.run_id, order_of(one)))
    decided = dict(after)
    for one in after.values():
        if one.is_open or one.run_id not in first or order_of(one) < first[one.run_id]:
            continue
        if one.retry_decision is not None and one.attempt_id not in before:
            continue  # the ledger has it: it was decided when it ended
        policy = runs[one.run_id].spec.retry if one.run_id in runs else RetryPolicy()
        if (decision := decide(one, after.values(), policy)) is not None:
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
    attempt: Attempt, history: Sequence[Attempt], limit: RetryLimit, used: int, *, is_changed: bool
) -> str | None:
    """Why an attempt is not retried, if it is not. `is_changed`: whether its config has changed since."""
    cause = key_of(attempt)
    assert cause is not None
    if attempt.end is not None and attempt.end.exit_code == NO_RESTART:
        return f"exit status {NO_RESTART}: {ENDED_ON_PURPOSE['no-restart']}"
    step = next((one.last_step for one in reversed(history) if one.last_step is not None), 0)
    goal = next((one.target_step for one in reversed(history) if one.target_step is not None), math.inf)
    if step >= goal and cause[0] != "evaluator":
        return f"it reached its target, step {step:,} of {goal:,}: nothing is left to train"
    *before, last = since_progress(history)
    alike = [one for one in before if key_of(one) == cause]
    if limit.times == 0:
        return f"{cause[0]}: the next attempt would end in the same way"
    if limit.after_change and not is_changed and alike and has_changed(alike[-1], last, limit.after_change) is False:
        config = f"config {last.config_hash}, " if last.config_hash is not None else ""
        return f"{cause[0]} came again, and nothing had changed ({config}{_placement(last)})"
    unknown = [has_changed(one, after, limit.after_change) is None for one, after in pairwise((*alike, last))]
    if limit.after_change and not is_changed and unknown[-2:] == [True, True]:
        return f"{cause[0]} came again after a retry of which it is not known whether anything had changed"
    if used >= limit.times:
        times = "once" if used == 1 else f"{used} times"
        doubt = (
            f", and it is not known whether {_changes(limit)} had changed"
            if limit.after_change and unknown[-1:] == [True]
            else ""
        )
        return f"{cause[0]} came again {times} without a new step or checkpoint{doubt}: its budget is spent"
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


def _needs_change(attempt: Attempt, history: Sequence[Attempt], limit: RetryLimit) -> str:
    """What must change before a retry, or that a person must confirm that it has."""
    key, changes = key_of(attempt), _changes(limit)
    assert key is not None
    alike = [one for one in since_progress(history) if key_of(one) == key]
    if len(alike) > 1 and has_changed(alike[-2], alike[-1], limit.after_change) is None:
        return f"{key[0]} came again, and it is not known whether {changes} has changed: confirm that before one retry"
    return f"{key[0]}: a retry needs a change of {changes} first"


def _changes(limit: RetryLimit) -> str:
    *first, last = (CHANGES[one] for one in limit.after_change)
    return f"{', '.join(first)} or {last}" if first else last


def _placement(attempt: Attempt) -> str:
    return counted(len(attempt.nodes), "node") + ("" if attempt.gpus is None else f", {counted(attempt.gpus, 'GPU')}")


def _retry(
    attempt: Attempt, attempts: Collection[Attempt], cause: CauseName, limit: RetryLimit
) -> tuple[RetryChoice, str, tuple[str, ...]]:
    doubt = ""
    if cause in OF_NODE:
        if nodes := suspects(attempt):
            return "after-node-swap", f"{cause} on {', '.join(nodes)}: the next attempt must avoid it", nodes
        ended = [one for one in attempts if (one.ended_at or math.inf) <= (attempt.ended_at or 0.0)]
        for blame in blamed(ended, attempt.cluster):
            if blame.node in attempt.nodes:
                return "after-node-swap", f"{cause}: {blame.why}", (blame.node,)
        doubt = f"; {NO_DATA}" if lacks_data(ended, attempt) else ""
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
        return f"the next attempt resumes from the last committed checkpoint, step {attempt.last_committed_step:,}"
    missing = "no checkpoint is committed" if attempt.has_checkpoints else "its checkpoints are not known"
    return f"the next attempt may begin anew, because {missing}"
