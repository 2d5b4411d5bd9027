"""How often a cause may be retried. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainmon.lib import group_by
from trainmon.model import CAUSES, Attempt, CauseName, RetryChange, RetryLimit, RetryPolicy

# ---- how often each cause is retried, and how much of that is spent --------------------------------------------------

TRANSIENT: frozenset[CauseName] = frozenset({
    "preempted", "time-limit", "node-fail", "gpu-hardware", "nccl-timeout", "nccl-network", "rendezvous",
    "network-or-auth", "storage-io",
})  # fmt: skip
"""Faults of the infrastructure that pass, or stay with one node."""

ENDED_ON_PURPOSE: Mapping[CauseName, str] = {
    "completed": "it completed",
    "cancelled-by-user": "a person ended it",
    "kill-switch": "its kill switch ended it",
    "no-restart": "its launcher has decided that it must not be restarted",
    "requeued": "it was requeued: its job is pending or runs again",
}
"""These ends have no budget, and nobody can give them one: nothing failed."""

STOP: frozenset[CauseName] = frozenset({"data-error", "checkpoint-mismatch"})
"""The same data, or a checkpoint of another model, fail again in the same way."""

OUT_OF_MEMORY: frozenset[CauseName] = frozenset({"cuda-oom", "host-oom"})
MEMORY_CHANGES: tuple[RetryChange, ...] = ("batch", "checkpointing", "placement")


DEFAULTS: Mapping[CauseName, RetryLimit] = {
    cause: RetryLimit(
        times=3 if cause in TRANSIENT else 0 if cause in STOP else 1,
        after_change=MEMORY_CHANGES if cause in OUT_OF_MEMORY else (),
    )
    for cause in CAUSES
    if cause not in ENDED_ON_PURPOSE
}
"""The limit of each cause: 3 retries after a fault of the infrastructure, none after a data or schema error, and one
after any other cause: for most it only confirms that the failure repeats (NVRx: general 3, bounded 1, confirmation
1)."""

STORM = 3
"""This many retries in a row without net progress, whatever their causes, are a retry storm (NVRx:
max_no_progress_cycles)."""

OF_CHECKPOINT: frozenset[CauseName] = frozenset({"checkpoint-corrupt", "checkpoint-mismatch"})
OF_DATA: frozenset[CauseName] = frozenset({"data-error", "dataloader-worker"})
OF_NODE: frozenset[CauseName] = frozenset({
    "gpu-hardware", "node-fail", "driver-mismatch", "nccl-network", "nccl-timeout", "hang",
})  # fmt: skip
"""Causes that a single node may have."""


def limit_of(cause: CauseName, policy: RetryPolicy) -> RetryLimit:
    """The limit of a cause that was not an end on purpose."""
    return policy.limits.get(cause) or DEFAULTS[cause]


def suspects(attempt: Attempt) -> tuple[str, ...]:
    """The nodes of an attempt that the evidence of its cause names: a fact about them, not a line of the log."""
    evidence = () if attempt.cause is None or attempt.cause.cause not in OF_NODE else attempt.cause.evidence
    # What follows may name others: Slurm's reason is free text.
    named = {one.text.partition(":")[0] for one in evidence if one.line is None}
    return tuple(node for node in attempt.nodes if node in named)


Key = tuple[str, str, str]
"""A cause, its fingerprint, and what it is about: a checkpoint, a position in the data, or nodes."""


def key_of(attempt: Attempt) -> Key | None:
    """What the budget of an attempt that ended is counted by; None while its cause is not known."""
    if (cause := attempt.cause) is None:
        return None
    entity = ""
    if cause.cause in OF_CHECKPOINT:
        entity = f"checkpoint {attempt.resumed_from}: {attempt.resumed_words}"
    elif cause.cause == "evaluator":
        entity = f"checkpoint {attempt.last_committed_step}"
    elif cause.cause in OF_DATA:
        entity = f"{attempt.data_manifest} at step {attempt.last_step}"
    elif cause.cause in OF_NODE:
        entity = ",".join(suspects(attempt))
    return cause.cause, cause.fingerprint, entity


def history_of(attempt: Attempt, attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """The attempts of its run up to this one, in their order; this one is the last."""
    key, me = order_of(attempt), attempt.attempt_id
    earlier = (one for one in attempts if one.run_id == attempt.run_id and one.attempt_id != me and order_of(one) < key)
    return (*sorted(earlier, key=order_of), attempt)


def by_run(attempts: Iterable[Attempt]) -> Mapping[str, Sequence[Attempt]]:
    """The attempts of each run, in their order."""
    return {run: sorted(own, key=order_of) for run, own in group_by(attempts, lambda one: one.run_id).items()}


def order_of(attempt: Attempt) -> tuple[float, str]:
    """The sort key of the attempts of a run: by their start."""
    return attempt.start, attempt.attempt_id


def progressing(history: Iterable[Attempt]) -> Iterator[bool]:
    """Whether each attempt made a step that none before it had reached, or committed a newer checkpoint."""
    reached, committed = 0, None
    for one in history:
        last, newest = one.last_step, one.last_committed_step or 0
        is_further = last is not None and last > max(reached, one.resumed_from or 0)
        yield is_further or (committed is not None and newest > committed)
        reached = max(reached, last or 0)
        if one.has_checkpoints:
            committed = max(committed or 0, newest)


def since_progress(history: Sequence[Attempt]) -> Sequence[Attempt]:
    """The last attempts, from the newest with net progress on. All but the first were retries in vain."""
    first = max((index for index, is_further in enumerate(progressing(history)) if is_further), default=0)
    return history[first:]


def in_vain(history: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """The retries since the last net progress that ended without any, except those that were ended on purpose. A job
    that was requeued counts: it may requeue itself."""
    causes = ((one, one.cause.cause) for one in since_progress(history)[1:] if one.cause is not None)
    return tuple(one for one, cause in causes if cause == "requeued" or cause not in ENDED_ON_PURPOSE)


def spent(attempt: Attempt, history: Sequence[Attempt], limit: RetryLimit) -> int:
    """How many retries without net progress have ended like this attempt."""
    key, ended = key_of(attempt), attempt.ended_at or 0.0
    alike = [one for one in since_progress(history) if key_of(one) == key]
    if limit.within is not None:
        alike = [one for one in alike if ended - (one.ended_at or 0.0) <= limit.within]
    return max(0, len(alike) - 1)
