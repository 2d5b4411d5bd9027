"""An attempt is a fold of its facts: which value of each field counts, of all that was observed of it. Pure.

FIELDS and END have a line for each field, or for fields that go together. The order and the number of observations do
not matter: merging is commutative, associative and idempotent. So an attempt is the same whether it was watched, read
from the ledger, or found again in accounting. Of several values that were named, ORDER says which counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple, get_args

import msgspec
from msgspec.structs import astuple, replace

from trainmon.analysis.attempts import ranks
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, AttemptEnd, AttemptFile, EndSource, Origin, Settings, State

# ---- which of two observations counts --------------------------------------------------------------------------------


class Fields(NamedTuple):
    """Fields that go together: they are those of one observation."""

    names: tuple[str, ...]
    order: Callable[[Any, tuple[str, ...]], Any]
    """The place of an observation. None: it says nothing of these fields."""
    pick: Callable[..., Any] = max
    """Whether the first or the last of that order counts."""


def greatest(seen: Any, names: tuple[str, ...]) -> Any:
    """A greater value knows more, and does not depend on when it was seen: the last step, a flag, the longer list of
    nodes and GPUs (a job that ends gives them back one after the other)."""
    return [_known(getattr(seen, name)) for name in names]


def least(seen: Any, names: tuple[str, ...]) -> Any:
    """What is known as a whole comes first, then the least value."""
    values = greatest(seen, names)
    return values.count(()), [(not one, one) for one in values]


def newest_outlook(seen: Attempt, _: tuple[str, ...]) -> Any:
    """The one that was determined last."""
    return seen.outlook_at, msgspec.json.encode(seen.outlook)


def first_settled(seen: Attempt, names: tuple[str, ...]) -> Any:
    """That whose log was read counts, then that which was settled first: it counts more than what was seen while it was
    not known that the next one had begun."""
    if seen.settled is None:
        return None
    has_log, at = seen.settled
    return has_log, -at, greatest(seen, names[1:])


def most_reliable(end: AttemptEnd, names: tuple[str, ...]) -> Any:
    """The one whose log was read; of two alike, the more reliable one, then the one whose cause was chosen knowing
    more, then the one that was noticed first."""
    rest = msgspec.json.encode([getattr(end, name) for name in names])
    has_cause = end.cause is not None and end.cause.cause != "unknown"
    return not end.awaits_log, RANKS[end.source], end.judged, -end.noticed_at, -end.at, has_cause, rest


def fullest(end: AttemptEnd, _: tuple[str, ...]) -> Any:
    """Lines that are certainly its own, then those that were read after its end, then the most lines."""
    return end.has_own_tail, end.has_own_tail or not end.awaits_log, len(end.log_tail or ""), end.log_tail or ""


def exact(end: AttemptEnd, names: tuple[str, ...]) -> Any:
    """What a receipt tells exactly: of two, the one that was chosen from more of them."""
    return greatest(end, names) if end.receipts else None


RANKS: dict[str, int] = {name: rank for rank, name in enumerate(get_args(EndSource))}
SETTLED = ("settled", "last_step", "last_committed_at", "last_committed_step", "unrecognised_at", "has_checkpoints")
NEWEST = (
    "run_id", "model_family", "labels", "target_step", "wandb_id", "evaluators", "settings", "counts_steps", "receipt",
)  # fmt: skip
"""Fields whose newer value counts: what is known of the attempt was corrected."""
LOG = ("log_path", "log_host", "log_offset")
"""These go together. The newer ones count; but a log that a host reads counts more than that which the job names."""

WATCHED = ("watched_s", "watched_until", "hung_s", "hung_since", "saving_s", "saving_since", "saves")
"""These go together: those of the program that has watched it for longer count."""

CHECKPOINTS = (
    Fields(("last_committed_at", "last_committed_step"), greatest),  # after a rewind, it has not the most steps
    Fields(("unrecognised_at",), greatest),
    Fields(("has_checkpoints",), greatest),
)
GROUPS = (
    *CHECKPOINTS,
    Fields(("submitted_at",), least, min),
    Fields(("start_is_estimated", "started_at"), least, min),
    Fields(("first_step_at", "first_step", "first_step_is_dated"), least, min),
    Fields(("resumed_from", "resumed_words"), least, min),
    Fields(("retry_decision", "budget_spent"), least, min),
    Fields(("outlook_at", "outlook"), newest_outlook),
    Fields(WATCHED, greatest),
)
APART = {*NEWEST, *LOG, *(name for one in GROUPS for name in one.names)}
APART |= {"settled", "end", "reported_end", "named", "files", "older", "ranks", "looks"}
FIELDS = (
    *(Fields((name,), greatest) for name in Attempt.__struct_fields__ if name not in APART),
    *GROUPS,
    Fields(SETTLED, first_settled),
)
"""Of an attempt. A later line counts more than one before."""

END = (
    Fields(("at", "source", "noticed_at", "scheduler_state", "cause", "judged", "awaits_log"), most_reliable),
    Fields(("log_tail", "has_own_tail"), fullest),
    Fields(("exit_code",), greatest),  # sacct prints 137 as 9
    Fields(("signal",), greatest),  # sacct has none of a job that was cancelled
    Fields(("was_watched",), greatest),
    Fields(("cut_receipt",), greatest),
    Fields(("receipt",), greatest),
    Fields(("receipts", "receipt", "exit_code", "signal"), exact),
)
"""Of the end of an attempt."""


def _known(value: Any) -> Any:
    """A total order of the values of one field, those that say nothing first: of two lists the longer one knows
    more."""
    if _is_unknown(value):
        return ()
    if isinstance(value, Settings):
        return len(value.values), sorted(value.values.items()), value.left_out
    if isinstance(value, Mapping):
        return len(value), sorted(value.items())
    return (len(value), [_known(one) for one in value]) if isinstance(value, tuple) else (value,)


def _is_unknown(value: Any) -> bool:
    return value is None or value in ((), {}, "")


# ---- which of the values that were named counts ----------------------------------------------------------------------

DIGITS = 12
"""Hexadecimal digits that are shown of a SHA-256."""

VALUE = 500
"""Characters kept of a value that is named."""


ORDER: Mapping[str, tuple[Origin, ...]] = {
    "data_manifest": ("config", "environment", "wandb"),
    "container": ("environment", "wandb"),
    "config_path": ("config", "command", "wandb"),
    "config_hash": ("wandb", "file"),
    "git_commit": ("receipt", "wandb"),
    "command": ("scheduler", "receipt"),
}
"""Of several values of a field, the first one counts: what a person wrote for this run, then what its process was
started with, then what it logged. Only of the settings, W&B knows more: those that were changed on the command line. A
receipt was written by the command itself, and W&B may run in another folder."""


def with_named(attempt: Attempt, origin: Origin, values: Mapping[str, str | None]) -> Attempt:
    """The attempt with what one origin names."""
    known = {name: {**attempt.named.get(name, {}), origin: value} for name, value in values.items() if value}
    return resolved(replace(attempt, named={**attempt.named, **known})) if known else attempt


def resolved(attempt: Attempt) -> Attempt:
    """The attempt with the value that counts of each field that something names."""
    found: dict[str, str | None] = {}
    for field in {*attempt.named, "config_hash"} if "config_path" in attempt.files else attempt.named:
        values = values_of(attempt, field)
        if values or field in attempt.named:
            found[field] = next((values[origin] for origin in ORDER[field] if origin in values), None)
    return replace(attempt, **found) if found else attempt


def values_of(attempt: Attempt, field: str) -> Mapping[str, str]:
    """All values of a field, by what names them. A file that was read says more than its path; a manifest that cannot
    be read identifies nothing."""
    named = attempt.named.get(field, {})
    file = attempt.files.get("config_path" if field == "config_hash" else field)
    if file is None:
        return named
    values = dict(named)
    if field == "config_hash":
        return values if file.sha256 is None else values | {"file": file.settings_hash or file.sha256[:DIGITS]}
    if field == "data_manifest":
        values.pop("config", None)
    if file.sha256 is None or "config" not in named:
        return values
    manifest = f"{file.path}: {file.text}" if file.text else f"{file.path} sha256:{file.sha256[:DIGITS]}"
    return values | {"config": manifest if field == "data_manifest" else file.path}


# ---- two observations of one attempt → what both together show ------------------------------------------------------


def merged(one: Attempt | None, other: Attempt) -> Attempt:
    """What two observations of the same attempt show together. An attempt that was closed once stays so. None: there
    is only one."""
    if one is None or one == other:
        return one or other
    found, latest = _fold(FIELDS, one, other), max(one.seen_at, other.seen_at)
    older: dict[str, Instant] = {}
    named: dict[str, dict[str, str]] = {field: {} for field in {**one.named, **other.named}}
    first, second = _dated(one), _dated(other)
    for key in {**first, **second}:
        at, value = _newest([each[key] for each in (first, second) if key in each])
        if at < latest:
            older[key] = at
        field, _, origin = key.partition(" ")
        if origin:
            named[field][origin] = value
        else:
            found |= dict(zip(LOG, value, strict=True)) if field == LOG[0] else {field: value}
    found |= {"end": _both(one.end, other.end), "reported_end": _both(one.reported_end, other.reported_end)}
    if found["end"] is not None:  # and so a cause
        found |= {"reported_end": None, "outlook": None, "outlook_at": 0.0}
    found |= {"ranks": ranks.both(one.ranks, other.ranks), "looks": ranks.last_looks((*one.looks, *other.looks))}
    files = (*one.files.items(), *other.files.items())
    found["files"] = {name: min((file for each, file in files if each == name), key=first_read) for name, _ in files}
    return resolved(replace(one, **found, named=named, older=older))


def end_by(source: EndSource, at: Instant, state: State) -> AttemptEnd:
    """The end that this source reports now."""
    return AttemptEnd(at=at, source=source, noticed_at=state.at, was_watched=at >= state.started_at)


def _both(one: AttemptEnd | None, other: AttemptEnd | None) -> AttemptEnd | None:
    return joined(one, other) if one is not None and other is not None else one or other


def joined(one: AttemptEnd, other: AttemptEnd) -> AttemptEnd:
    """What two reports of the same end show together."""
    return replace(one, **_fold(END, one, other))


def with_codes(end: AttemptEnd, known: AttemptEnd | None) -> AttemptEnd:
    """The end with the exit code and the signal that are known of it; sacct prints 137 as 9. A receipt is exact."""
    if known is None or known.receipts or end.receipts:
        return end
    both = joined(end, known)
    return replace(end, exit_code=both.exit_code, signal=both.signal)


def adds_nothing(found: AttemptEnd, known: AttemptEnd) -> bool:
    """Whether all that this report of an end says is known: END would choose the known source, receipts and codes."""
    if RANKS[found.source] > RANKS[known.source] or has_more_receipts(found, known):
        return False
    codes = ((found.exit_code, known.exit_code), (found.signal, known.signal))
    return known.receipts > 0 or all(new is None or (old is not None and new <= old) for new, old in codes)


def has_more_receipts(found: AttemptEnd, known: AttemptEnd) -> bool:
    return found.receipts > known.receipts or (found.cut_receipt is not None and known.cut_receipt is None)


def judged_with(end: AttemptEnd) -> tuple[int, ...]:
    """AttemptEnd.judged of an end whose cause is determined now."""
    codes = (-1 if one is None else one for one in (end.exit_code, end.signal))
    return (end.receipts, int(end.cut_receipt is not None), int(end.has_own_tail), *codes)


def _fold(table: tuple[Fields, ...], one: Any, other: Any) -> dict[str, Any]:
    """The fields in which the two differ, with the values that count."""
    found: dict[str, Any] = {}
    values = zip(one.__struct_fields__, astuple(one), astuple(other), strict=True)
    differ = {name for name, own, others in values if own != others}
    for names, order, pick in (line for line in table if not differ.isdisjoint(line.names)):
        known = [(place, each) for each in (one, other) if (place := order(each, names)) is not None]
        if known:
            _, best = pick(known, key=itemgetter(0))
            found |= {name: getattr(best, name) for name in names}
    return found


def _dated(attempt: Attempt) -> dict[str, tuple[bool, Instant, Any]]:
    """What is known of the fields whose newer value counts, by field, or by field and origin: whether it counts more
    than newer values of others, when it was last seen, and the value."""
    values = {name: getattr(attempt, name) for name in NEWEST}
    values |= {f"{field} {origin}": value for field, named in attempt.named.items() for origin, value in named.items()}
    log = tuple(getattr(attempt, name) for name in LOG)
    values[LOG[0]] = log if any(one is not None for one in log) else None
    return {
        key: (key == LOG[0] and attempt.log_host is not None, attempt.older.get(key, attempt.seen_at), value)
        for key, value in values.items()
        if not _is_unknown(value)
    }


def _newest(facts: list[tuple[bool, Instant, Any]]) -> tuple[Instant, Any]:
    """The newest of several values; of two that were seen at the same time, the greater one. It takes a while to find
    that of a thousand settings, so only then."""
    newest = max(fact[:2] for fact in facts)
    values = [value for *when, value in facts if tuple(when) == newest]
    return newest[1], values[0] if len(values) == 1 else max(values, key=_known)


def first_read(file: AttemptFile) -> Any:
    """The first time that a file was read counts: it may have changed since."""
    return file.error is not None, file.read_at, msgspec.json.encode(file)


def settled(seen: Attempt, before: Attempt | None, latest: Instant, at: Instant, *, has_log: bool) -> Attempt:
    """An attempt that has ended, with the last step and the checkpoints that are its own, which are not newer than
    `latest`: those of an earlier look if its log had been read then, or still is not."""
    was_read = before is not None and before.end is not None and not before.end.awaits_log
    if before is not None and (was_read or (before.settled is not None and not has_log)):
        return replace(seen, **{name: getattr(before, name) for name in SETTLED})
    if seen.last_step is None and not seen.has_checkpoints:
        return seen
    if before is not None and seen.last_step is None:
        seen = replace(seen, last_step=before.last_step)
    if before is not None and seen.last_committed_step is None and (before.last_committed_at or 0.0) <= latest:
        seen = replace(seen, **_fold(CHECKPOINTS, seen, before))  # it may have been deleted since
    return replace(seen, settled=(has_log, at))


# ---- whether two attempts are one start ------------------------------------------------------------------------------

SAME_START: Seconds = 2.0

NAMES = ("attempt_id", "run_id", "cluster", "model_family", "labels", "target_step")
"""What a config calls an attempt, and says of its run."""


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
