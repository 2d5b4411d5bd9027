"""The attempts before a process that was found on the GPUs of a machine: by their receipts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.observe.jobs import with_names
from trainmon.analysis.attempts.observe.run import attempt_of, with_run
from trainmon.analysis.attempts.observe.sources import is_restored
from trainmon.analysis.attempts.observe.without_scheduler import OLD
from trainmon.model import Attempt, AttemptEnd, Receipt, Run, State


def of_earlier_starts(run: Run, own: Attempt, state: State, known: Mapping[str, Attempt]) -> Iterator[Attempt]:
    """The attempts of a run that were over before its process was found. `own`: the attempt of that process."""
    if not state.receipts or not is_restored(state):
        return
    groups = receipts.of_run(run, state)
    mine = [own, *(one for one in known.values() if one.run_id == run.name and one.pid is not None)]
    for index, group in enumerate(groups):
        following = groups[index + 1][0].started_at if index + 1 < len(groups) else own.started_at
        end = receipts.end_of(group, run, state, following)
        if end is None or state.at - end.at > OLD or any(_is_of(group, end, one, state) for one in mine):
            continue
        before = known.get(f"{run.name}/receipt/{group[0].name}")
        if before is None or before.end is None or not receipts.is_as_good(before.end, end):
            yield _attempt(run, group, end, state)


def _is_of(group: Sequence[Receipt], end: AttemptEnd, attempt: Attempt, state: State) -> bool:
    """Whether these receipts, which are over, are those of the attempt of a process: its own, or it began while they
    ran. A process that still runs is none of theirs."""
    if not {one.name for one in group}.isdisjoint(one.name for one in receipts.of_attempt(attempt, state)):
        return True
    is_over = attempt.end is not None or attempt.reported_end is not None
    return is_over and attempt.receipt is None and group[0].started_at - receipts.SURELY_NEAR <= attempt.start <= end.at


def _attempt(run: Run, group: Sequence[Receipt], end: AttemptEnd, state: State) -> Attempt:
    began = group[0].started_at
    attempt = attempt_of(run, f"receipt/{group[0].name}", end.at)
    attempt = replace(attempt, started_at=began, start_was_watched=began >= state.started_at, end=end)
    attempt = with_run(with_names(attempt, run, group[-1].command), run, state, began, is_newest=False)
    return receipts.applied(attempt, group)
