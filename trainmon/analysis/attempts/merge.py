"""Two observations of one attempt → what both together show; and whether they are of one start. Pure.

The order and the number of observations do not matter: merging is commutative, associative and idempotent. So an
attempt is the same whether it was watched, read from the ledger, or found again in accounting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts.provenance import resolved
from trainmon.analysis.attempts.receipts import RECEIPT
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, AttemptEnd, AttemptFile, Settings, State
from trainmon.model.attempts.attempt import EndSource

RANKS: dict[str, int] = {name: rank for rank, name in enumerate(get_args(EndSource))}
EARLIEST = frozenset({"submitted_at"})
STARTED = ("started_at", "start_is_estimated")
FIRST = ("first_step_at", "first_step", "first_step_is_dated")
RESUMED = ("resumed_from", "resumed_words")
DECIDED = ("retry_decision", "budget_spent")
COMMITTED = ("last_committed_step", "last_committed_at")
SETTLED = ("last_step", *COMMITTED, "unrecognised_at", "has_checkpoints", "settled")
LOG = ("log_host", "log_path", "log_offset")
NO_LOG = (None, None, None)
OUTLOOK = ("outlook", "outlook_at")
NEWEST = frozenset({
    "run_id", "model_family", "labels", "target_step", "wandb_id", "evaluators", "settings", "counts_steps", "receipt",
})  # fmt: skip
"""Fields whose newer value counts: what is known of the attempt was corrected. Of the other fields, the greater value
counts, as it knows more and does not depend on when it was seen: the last step, a flag, the longer list of nodes and
GPUs (a job that ends gives them back one after the other). Of a group that is chosen by its first field, that is the
newest checkpoint, and the first step; of several checkpoints that it says to resume from, the lowest."""
TOGETHER = (*STARTED, *FIRST, *RESUMED, *DECIDED, *COMMITTED, *LOG, *OUTLOOK)
"""Fields that go together: each group is taken from one of the two. What was settled when an attempt ended counts more
than what was seen while it was not known that the next one had begun."""

APART = frozenset({*TOGETHER, *NEWEST, "end", "reported_end", "named", "files", "older"})
OTHERS = tuple(name for name in Attempt.__struct_fields__ if name not in APART)

SAME_START: Seconds = 2.0

NAMES = ("attempt_id", "run_id", "cluster", "model_family", "labels", "target_step")
"""What a config calls an attempt, and says of its run."""


def merged(one: Attempt, other: Attempt) -> Attempt:
    """What two observations of the same attempt show together. The more reliable end counts, then the first. Of several
    values that were named, the one that counts follows from all of them; of two by the same origin, the newer one."""
    if one == other:
        return one
    found: dict[str, Any] = {name: _field(name, getattr(one, name), getattr(other, name)) for name in OTHERS}
    found |= _earlier(one, other, FIRST) | _earlier(one, other, RESUMED) | _earlier(one, other, DECIDED)
    found |= _greater(one, other, COMMITTED)
    if one.settled is not None or other.settled is not None:
        first = max(one, other, key=_settled_order)
        found |= {name: getattr(first, name) for name in SETTLED}
    found |= _started(one, other)
    older: dict[str, Instant] = {}
    found |= {name: _newer(one, other, name, older, getattr(one, name), getattr(other, name)) for name in NEWEST}
    logs = [tuple(getattr(each, name) for name in LOG) for each in (one, other)]
    log = _newer(one, other, LOG[1], older, *((() if each == NO_LOG else each) for each in logs), order=_log_order)
    found |= dict(zip(LOG, log or NO_LOG, strict=True))
    end = _end(one.end, other.end)
    reported = None if end is not None else _end(one.reported_end, other.reported_end)
    named = {name: _together(one, other, name, older) for name in {**one.named, **other.named}}
    files = {name: _first(one.files.get(name), other.files.get(name)) for name in {**one.files, **other.files}}
    newest = max(one, other, key=lambda each: (each.outlook_at, msgspec.json.encode(each.outlook)))
    if end is None:  # else it has a cause
        found |= {name: getattr(newest, name) for name in OUTLOOK}
    return resolved(Attempt(**found, named=named, files=files, end=end, reported_end=reported, older=older))


def _together(one: Attempt, other: Attempt, field: str, older: dict[str, Instant]) -> Mapping[str, str]:
    """What each origin names."""
    first, second = one.named.get(field, {}), other.named.get(field, {})
    return {
        origin: _newer(one, other, f"{field} {origin}", older, first.get(origin), second.get(origin))
        for origin in {**first, **second}
    }


def _newer(
    one: Attempt,
    other: Attempt,
    key: str,
    older: dict[str, Instant],
    first: Any,
    second: Any,
    *,
    order: Callable[[Instant, Any], Any] = lambda at, value: (at, _order(value)),
) -> Any:
    """The value that was seen later; of two that were seen at the same time, the greater one. A value that the later
    observation lacks is kept, with its time."""
    if first == second and not one.older and not other.older:  # most often: this is done once a second
        return first
    seen = [
        (each.older.get(key, each.seen_at), value)
        for each, value in ((one, first), (other, second))
        if not _is_unknown(value)
    ]
    if not seen:
        return first
    at, value = max(seen, key=lambda each: order(*each))
    if at < max(one.seen_at, other.seen_at):
        older[key] = at
    return value


def _settled_order(attempt: Attempt) -> tuple[Any, ...]:
    """That whose log was read comes first, then that which was settled first."""
    has_log, at = attempt.settled or (False, inf)
    return attempt.settled is not None, has_log, -at, [_known(getattr(attempt, name)) for name in SETTLED[:-1]]


def settled(seen: Attempt, before: Attempt | None, latest: Instant, at: Instant) -> Attempt:
    """An attempt that has ended, with the last step and the checkpoints that are its own, which are not newer than
    `latest`: those of an earlier look if its log had been read then, or still is not."""
    assert seen.end is not None
    has_log = not seen.end.awaits_log
    was_read = before is not None and before.end is not None and not before.end.awaits_log
    if before is not None and (was_read or (before.settled is not None and not has_log)):
        return replace(seen, **{name: getattr(before, name) for name in SETTLED})
    if seen.last_step is None and not seen.has_checkpoints:
        return seen
    if before is not None and seen.last_step is None:
        seen = replace(seen, last_step=before.last_step)
    if before is not None and seen.last_committed_step is None and (before.last_committed_at or 0.0) <= latest:
        found = {name: getattr(before, name) for name in COMMITTED}  # it may have been deleted since
        found |= {name: _field(name, getattr(seen, name), getattr(before, name)) for name in SETTLED[3:-1]}
        seen = replace(seen, **found)
    return replace(seen, settled=(has_log, at))


def _log_order(at: Instant, log: Any) -> Any:
    """A log that a host reads counts more than that which the job names."""
    return log[0] is not None, at, [(each is not None, each) for each in log]


def _first(one: AttemptFile | None, other: AttemptFile | None) -> AttemptFile:
    """The first time that the file was read. It may have changed since."""
    found = [each for each in (one, other) if each is not None]
    return min(found, key=lambda each: (each.error is not None, each.read_at, msgspec.json.encode(each)))


def _field(name: str, one: Any, other: Any) -> Any:
    if one == other or _is_unknown(other):
        return one
    if _is_unknown(one):
        return other
    return min(one, other, key=_order) if name in EARLIEST else max(one, other, key=_order)


def _is_unknown(value: Any) -> bool:
    return value is None or value in ((), {}, "")


def _order(value: Any) -> Any:
    """A total order of the values of one field: of two lists the longer one knows more."""
    if isinstance(value, Settings):
        return len(value.values), sorted(value.values.items()), value.left_out
    if isinstance(value, Mapping):
        return len(value), sorted(value.items())
    return (len(value), value) if isinstance(value, tuple) else value


def _started(one: Attempt, other: Attempt) -> dict[str, Any]:
    """The earlier start; one that is known rather than an estimate."""
    known = [each for each in (one, other) if each.started_at is not None]
    first = min(known or [one], key=lambda each: (each.start_is_estimated, each.started_at))
    return {name: getattr(first, name) for name in STARTED}


def _earlier(one: Attempt, other: Attempt, names: tuple[str, ...]) -> dict[str, Any]:
    pairs = [tuple(getattr(each, name) for name in names) for each in (one, other)]
    known = [pair for pair in pairs if None not in pair]
    return dict(zip(names, min(known, default=min(pairs, key=repr)), strict=True))


def _greater(one: Attempt, other: Attempt, names: tuple[str, ...]) -> dict[str, Any]:
    """The checkpoint that was committed later: after a rewind, that is not the one with more steps."""
    pairs = [tuple(getattr(each, name) for name in names) for each in (one, other)]
    newer = max(pairs, key=lambda pair: [(each is not None, each) for each in reversed(pair)])
    return dict(zip(names, newer, strict=True))


def _end(one: AttemptEnd | None, other: AttemptEnd | None) -> AttemptEnd | None:
    """The one whose log was read; of two alike, the more reliable one, then the one whose cause was chosen with the
    receipt or the exit code, then the one that was noticed first. The fuller
    end of the log counts, and the greater code: sacct prints exit code 137 as 9, and no signal of a job that was
    cancelled. What was watched once stays so."""
    if one is None or other is None:
        return one or other
    found = {name: max((getattr(end, name) for end in (one, other)), key=_known) for name in SUPPLEMENTS}
    exact = max(one, other, key=lambda end: (end.receipts, *(_known(getattr(end, name)) for name in EXACT)))
    if exact.receipts:
        found |= {name: getattr(exact, name) for name in EXACT}
    tail = max(one, other, key=_fullness)
    found |= {"log_tail": tail.log_tail, "has_own_tail": tail.has_own_tail}
    return replace(min(one, other, key=_reliability), receipts=exact.receipts, **found)


SUPPLEMENTS = ("exit_code", "signal", "was_watched", "cut_receipt")
EXACT = ("receipt", "exit_code", "signal")
"""What a receipt tells exactly. Of two, the one that was chosen from more of them counts."""


def with_codes(end: AttemptEnd, known: AttemptEnd | None) -> AttemptEnd:
    """The end with the exit code and the signal that are known of it; sacct prints 137 as 9. A receipt is exact."""
    if known is None or end.receipts or known.receipts:
        return end
    found = {name: max(getattr(end, name), getattr(known, name), key=_known) for name in ("exit_code", "signal")}
    return replace(end, **found)


STATUS = ("exit status", "signal ")
"""How the evidence of a cause begins that was chosen with the exit code: that may come after the attempt was closed."""


def _known(value: Any) -> Any:
    if isinstance(value, str):
        return len(value), value
    return (-1 if value is None else value, "")


def _reliability(end: AttemptEnd) -> tuple[Any, ...]:
    own = replace(end, log_tail=None, was_watched=False, has_own_tail=False, cut_receipt=None)
    own = replace(own, exit_code=None, signal=None, receipt=None, receipts=0)
    facts = () if end.cause is None else [one.text for one in end.cause.evidence if one.line is None]
    knows = [any(text.startswith(how) for text in facts) for how in (RECEIPT, STATUS)]
    return end.awaits_log, -RANKS[end.source], *(not one for one in knows), end.noticed_at, msgspec.json.encode(own)


def _fullness(end: AttemptEnd) -> tuple[Any, ...]:
    """Lines that are certainly its own count first, then those that were read after its end."""
    return end.has_own_tail, end.has_own_tail or not end.awaits_log, _known(end.log_tail)


def is_same_start(one: Attempt, other: Attempt) -> bool:
    """Whether two attempts are one start. Slurm's own database tells starts apart by job and submit time; the nodes
    tell the jobs of two Slurms apart. Without a job: the process, the receipt or the W&B run. A log says too little."""
    if one.started_at is None or other.started_at is None or abs(one.started_at - other.started_at) > SAME_START:
        return False
    if one.job_id is None:
        names = {each.attempt_id.removeprefix(f"{each.run_id}/") for each in (one, other)}
        return len(names) == 1 and not names.pop().startswith("log/")
    is_elsewhere = bool(one.nodes and other.nodes) and {*one.nodes}.isdisjoint(other.nodes)
    is_alike = (one.job_id, one.submitted_at) == (other.job_id, other.submitted_at) and not is_elsewhere
    return is_alike and (one.cluster, one.restart) != (other.cluster, other.restart)


def named_as(attempt: Attempt, known: Attempt) -> Attempt:
    """The attempt with the names of the same start that is known."""
    return replace(attempt, **{name: getattr(known, name) for name in NAMES})


def adopted(known: dict[str, Attempt], seen: Attempt, state: State) -> dict[str, Attempt]:
    """The known attempts, of which that one has the names that it has here, if another config has opened it: its
    cluster is none of this config's."""
    others = (one for one in known.values() if one.cluster not in state.clusters and is_same_start(one, seen))
    if seen.attempt_id in known or (other := next(others, None)) is None:
        return known
    own = replace(named_as(other, seen), target_step=other.target_step)
    return {**{name: one for name, one in known.items() if one is not other}, own.attempt_id: own}
