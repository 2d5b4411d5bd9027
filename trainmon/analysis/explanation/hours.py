"""Attempts → where their time went: each second of a run is in one category, also where attempts overlap. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple

from trainmon.analysis.retries import ENDED_ON_PURPOSE
from trainmon.lib import HOUR, Instant, Seconds, group_by
from trainmon.model import Attempt

Category = Literal["queued", "starting", "productive", "lost", "hung", "saving", "down", "unknown"]

UNWATCHED_AT_MOST: Seconds = 90.0
"""A shorter time is no gap: it passes between two polls of a queue."""

UNSEEN_FOR: Seconds = 600.0
"""An attempt without an end that was last seen so long ago may have ended, and a silence may have."""

FIRST_AT_MOST = 100
"""A log that begins with a later step, and does not say from which one it resumed, may have been cut or rotated."""

FINAL = {*ENDED_ON_PURPOSE} - {"completed", "requeued"}
"""Causes after which nothing more was to run."""


def gpu_hours_text(hours: float) -> str:
    """`0.09`, `32.0`, `1,024`."""
    return f"{hours:.2f}" if hours < 9.995 else f"{hours:.1f}" if hours < 999.95 else f"{hours:,.0f}"


class Spent(NamedTuple):
    """Where the time of one attempt went, in seconds within the period of a report. Times its GPUs: GPU seconds."""

    attempt: Attempt
    seconds: Mapping[Category, Seconds]
    first_queue: Seconds = 0.0
    """The part of `queued` before the first start of its run that the ledger has."""
    gap: Seconds = 0.0
    """The part of `unknown` after its last sign and before the next attempt: whether it held GPUs is not known."""
    share: float = 1.0
    """The part of its GPU hours that counts, such as that of one of its nodes."""

    @property
    def held(self) -> Seconds:
        """How long it held its GPUs."""
        seconds = self.seconds
        return sum(seconds.values()) - seconds.get("queued", 0.0) - seconds.get("down", 0.0) - self.gap

    @property
    def gpu_hour(self) -> float:
        """The GPU hours of a second; 0 if its GPUs are not known."""
        return self.share * (self.attempt.gpus or 0) / HOUR


def account(attempts: Iterable[Attempt], since: Instant, until: Instant) -> list[Spent]:
    """Where the time of all attempts went in a period. An attempt without any known start has no time.

    Queued is the time from the submission to the start, and down that from the end to the next submission, in which no
    attempt of the run runs. A run that has completed, or that a person has ended, is not down."""
    of_runs = group_by(attempts, lambda one: (one.cluster, one.run_id)).values()
    return [spent for of_run in of_runs for spent in _of_run(of_run, since, until)]


def began(one: Attempt) -> Instant | None:
    """When it started, as far as that is known."""
    return one.first_step_at if one.started_at is None else one.started_at


def _of_run(attempts: Sequence[Attempt], since: Instant, until: Instant) -> list[Spent]:
    """The attempts of one run, those without a start first, the others in their order."""

    def within(first: Instant, last: Instant) -> Seconds:
        return max(0.0, min(last, until) - max(first, since))

    found = [Spent(one, {}) for one in attempts if began(one) is None]
    last: int | None = None
    reached, lasted = 0.0, _lasted(attempts)
    counts_steps = any(one.last_step is not None for one in attempts)
    for start, ended, one in lasted:
        seconds = _running(one, start, ended, within, counts_steps=counts_steps)
        gap_from = one.submitted_at or start if last is None else reached
        queued_from = min(start, max(gap_from, one.submitted_at or start))
        seconds["queued"] = within(queued_from, start)
        if last is not None and queued_from > gap_from and not is_over(found[last].attempt):
            passed = within(gap_from, queued_from)
            found[last] = _with_gap(found[last], passed, is_known=not _is_unseen(found[last].attempt, one))
        found.append(Spent(one, seconds, seconds["queued"] if last is None else 0.0))
        if one.told_end is None and one.seen_at >= lasted[-1][0] and until - one.seen_at > UNSEEN_FOR:
            found[-1] = _with_gap(found[-1], within(one.seen_at, until), is_known=False)
        if last is None or ended >= reached:
            last, reached = len(found) - 1, ended
    return found


def _lasted(attempts: Iterable[Attempt]) -> list[tuple[Instant, Instant, Attempt]]:
    """When each started, and ended or was last seen, in their order. Two that have the same job, or neither a job and
    the same nodes, are one after the other, whatever the clocks say."""
    found, following = [], dict[object, Instant]()
    known = ((at, one) for one in attempts if (at := began(one)) is not None)
    for start, one in sorted(known, key=itemgetter(0), reverse=True):
        holder = one.nodes if one.job_id is None else one.job_id
        ended = one.seen_at if one.told_end is None else one.told_end.at
        found.append((start, max(start, min(ended, following.get(holder, ended))), one))
        following[holder] = start
    return found[::-1]


def _running(
    one: Attempt, start: Instant, ended: Instant, within: Callable[[Instant, Instant], Seconds], *, counts_steps: bool
) -> dict[Category, Seconds]:
    """The time between its start and its end. It starts, trains, makes the steps that are lost, is silent to its end if
    it is, and perhaps nobody watches that. If it is partly in the period, only what lies among its steps is spread."""
    first = start if one.first_step_at is None else min(ended, max(start, one.first_step_at))
    if one.last_step is None:
        is_starting = _never_trained(one, ended - start, counts_steps=counts_steps)
        return {"starting" if is_starting else "unknown": within(start, ended)}
    silent_from = one.saving_since if one.hung_since is None else one.hung_since
    silent = ended if silent_from is None else min(ended, max(first, silent_from))
    is_watched = one.watched_until is None or ended - one.watched_until <= UNSEEN_FOR
    seen = ended if is_watched else max(silent, one.watched_until or 0.0)
    hung = min(silent - first, one.hung_s)
    saving = min(silent - first - hung, one.saving_s)
    trained = silent - first - hung - saving
    unwatched, at_most = seen - first - one.watched_s, max(UNWATCHED_AT_MOST, 0.01 * (seen - first))
    unknown = min(trained, unwatched) if unwatched > (at_most if has_first_step(one) else 0.0) else 0.0
    share = 0.0 if one.end is None else one.lost_share
    if share is None:
        unknown, share = trained, 0.0
    last = silent - share * (trained - unknown)
    part = within(first, last) / (last - first) if last > first else 0.0
    productive = (1.0 - share) * (trained - unknown)
    parts: dict[Category, Seconds] = {"productive": productive, "hung": hung, "saving": saving, "unknown": unknown}
    seconds: dict[Category, Seconds] = {name: part * value for name, value in parts.items()}
    seconds["lost"] = within(last, silent)
    seconds["saving" if one.hung_since is None else "hung"] += within(silent, seen)
    seconds["starting"] = within(start, first) if has_first_step(one) else 0.0
    seconds["unknown"] += within(start, first) - seconds["starting"] + within(seen, ended)
    return seconds


def has_first_step(one: Attempt) -> bool:
    """Whether it is known when its first step was, and not only when that was read, or where its log was cut."""
    is_shown = one.first_step_is_dated and (one.first_step or 0) - (one.resumed_from or 0) <= FIRST_AT_MOST
    return one.first_step_at is not None and (is_shown or one.start_was_watched)


def _never_trained(one: Attempt, lasted: Seconds, *, counts_steps: bool) -> bool:
    """Whether an attempt without any known step was only starting: its log was read, and nothing shows a training that
    its log does not. `counts_steps`: whether steps in other logs of its run were recognised."""
    is_read = one.log_host is not None or (one.end is not None and one.end.log_tail is not None)
    cause = None if one.cause is None else one.cause.cause
    is_sure = lasted <= HOUR or (counts_steps and cause not in (None, "unknown"))
    return is_read and is_sure and cause != "completed" and not one.has_committed and not one.may_have_gone_on


def is_over(one: Attempt) -> bool:
    """Whether nothing more was to run after its end: it has completed, or was ended on purpose."""
    return one.has_completed or (one.cause is not None and one.cause.cause in FINAL)


def _is_unseen(before: Attempt, after: Attempt) -> bool:
    """Whether something may have run between two attempts that the ledger does not have."""
    is_told = before.end is not None and before.end.source != "lost"
    restarts = (after.restart or 0) - (before.restart or 0) if before.job_id == after.job_id else 0
    is_ahead = (after.resumed_from or 0) > (before.last_step or after.resumed_from or 0)
    return not is_told or restarts > 1 or is_ahead


def _with_gap(spent: Spent, passed: Seconds, *, is_known: bool) -> Spent:
    """With the time until the next attempt was submitted."""
    name: Category = "down" if is_known else "unknown"
    seconds = {**spent.seconds, name: spent.seconds.get(name, 0.0) + passed}
    return spent._replace(seconds=seconds, gap=spent.gap + (0.0 if is_known else passed))
