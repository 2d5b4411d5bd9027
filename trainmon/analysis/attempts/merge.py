"""Two observations of one attempt → what both together show. Pure.

The order and the number of observations do not matter: merging is commutative, associative and idempotent. So an
attempt is the same whether it was watched, read from the ledger, or found again in accounting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts.provenance import resolved
from trainmon.analysis.attempts.receipts import RECEIPT
from trainmon.model import Attempt, AttemptEnd, AttemptFile, Settings
from trainmon.model.attempts.attempt import EndSource

RANKS: dict[str, int] = {name: rank for rank, name in enumerate(get_args(EndSource))}
EARLIEST = frozenset({"submitted_at"})
STARTED = ("started_at", "start_is_estimated")
FIRST = ("first_step_at", "first_step")
RESUMED = ("resumed_from", "resumed_words")
DECIDED = ("retry_decision", "budget_spent")
COMMITTED = ("last_committed_step", "last_committed_at")
LOG = ("log_host", "log_path", "log_offset")
OUTLOOK = ("outlook", "outlook_at")
TOGETHER = (*STARTED, *FIRST, *RESUMED, *DECIDED, *COMMITTED, *LOG, *OUTLOOK)
"""Fields that go together: each group is taken from one of the two."""

APART = frozenset({*TOGETHER, "end", "reported_end", "named", "files"})
OTHERS = tuple(name for name in Attempt.__struct_fields__ if name not in APART)


def merged(one: Attempt, other: Attempt) -> Attempt:
    """What two observations of the same attempt show together. The more reliable end counts, then the first. Of several
    values that were named, the one that counts follows from all of them."""
    if one == other:
        return one
    found: dict[str, Any] = {name: _field(name, getattr(one, name), getattr(other, name)) for name in OTHERS}
    found |= _earlier(one, other, FIRST) | _earlier(one, other, RESUMED) | _earlier(one, other, DECIDED)
    found |= _greater(one, other, COMMITTED) | _greater(one, other, LOG)
    found |= _started(one, other)
    end = _end(one.end, other.end)
    reported = None if end is not None else _end(one.reported_end, other.reported_end)
    named = {name: _together(one.named.get(name), other.named.get(name)) for name in {**one.named, **other.named}}
    files = {name: _first(one.files.get(name), other.files.get(name)) for name in {**one.files, **other.files}}
    newest = max(one, other, key=lambda each: (each.outlook_at, msgspec.json.encode(each.outlook)))
    if end is None:  # else it has a cause
        found |= {name: getattr(newest, name) for name in OUTLOOK}
    return resolved(Attempt(**found, named=named, files=files, end=end, reported_end=reported))


def _together(one: Mapping[str, str] | None, other: Mapping[str, str] | None) -> Mapping[str, str]:
    """What each origin names."""
    both = [dict(each or {}) for each in (one, other)]
    return {name: max(each[name] for each in both if name in each) for name in both[0] | both[1]}


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


def _earlier(one: Attempt, other: Attempt, names: tuple[str, str]) -> dict[str, Any]:
    pairs = [tuple(getattr(each, name) for name in names) for each in (one, other)]
    known = [pair for pair in pairs if None not in pair]
    return dict(zip(names, min(known, default=min(pairs, key=repr)), strict=True))


def _greater(one: Attempt, other: Attempt, names: tuple[str, ...]) -> dict[str, Any]:
    """The newer checkpoint; the log that a host reads, rather than that which the job names."""
    pairs = [tuple(getattr(each, name) for name in names) for each in (one, other)]
    return dict(zip(names, max(pairs, key=lambda pair: [(each is not None, each) for each in pair]), strict=True))


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
