"""The attempts so far, and a State, jobs from accounting or a log → the attempts now: opened, updated, closed. Pure."""

from __future__ import annotations

import glob
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.ending import (
    ACCOUNTING_LAGS,
    closed,
    end_of,
    is_over,
    is_settled,
    tail_of,
    with_outlook,
)
from trainmon.analysis.attempts.fold import RANKS, SAME_START, WATCHED, adds_nothing, adopted, end_by, merged
from trainmon.analysis.attempts.observed import (
    LOOK_BACK,
    before_next,
    is_begun,
    is_restored,
    job_attempt,
    job_attempt_id,
    observed,
    with_log,
    with_own_lines,
    with_run,
)
from trainmon.analysis.attempts.provenance import files_to_read
from trainmon.analysis.attempts.steps import AFTER, NUMBERS, has_newer, is_read_to_end, run_of
from trainmon.analysis.runs import jobs_of, last_attempts, named_files
from trainmon.lib import Instant, Seconds, group_by
from trainmon.model import HUNG, SILENT, Attempt, AttemptEnd, AttemptFile, FileSpec, Job, LogSpec, Run, State

# ---- a State: attempts that it shows, and those it no longer shows ---------------------------------------------------

PREEMPTED_NEAR: Seconds = 10.0
"""Slurm may date the preemption this long after it has requeued the job."""

STAY: Seconds = 7 * 86_400.0
"""How long an attempt that has ended stays in the State."""

AT_MOST = 10_000
"""More than a sweep starts in a week. An attempt whose job is still listed must stay, or it would be opened again."""


def track(state: State) -> Mapping[str, Attempt]:
    """The attempts after this State; the same mapping if nothing has changed. An attempt is closed once: what comes
    later only adds to its end."""
    known = state.attempts
    ended = ((one, one.end) for one in known.values() if one.end is not None)
    late = (each for each in ended if each[1].awaits_log or state.receipts)
    found = {**known, **{one.attempt_id: _with_late(one, end, state) for one, end in late}}
    for seen in (*observed(state), *_left(state)):
        seen = receipts.applied(seen, receipts.of_attempt(seen, state))
        found = adopted(found, seen, state)
        before, run = found.get(seen.attempt_id), run_of(seen, state)
        if seen.end is not None:
            is_newest = not has_newer(seen, found.values())
            closing = _ended(seen, seen.end, before, run, state, is_newest=is_newest)
            found[seen.attempt_id] = watched(closing, before, run, state)
            continue
        if before is not None:  # it runs on; nothing else shows how long it was watched
            before = before if before.reported_end is None else replace(before, reported_end=None)
            seen = replace(seen, **{name: getattr(before, name) for name in WATCHED})
        found[seen.attempt_id] = watched(merged(before, with_outlook(seen, before, run, state)), before, run, state)
    return found if any(found[name] is not known.get(name) for name in found) else known


def _ended(
    seen: Attempt, end: AttemptEnd, before: Attempt | None, run: Run, state: State, *, is_newest: bool
) -> Attempt:
    """The attempt with what is reported of its end; it is closed once its log and its last checkpoint were read."""
    reported = None if before is None else before.reported_end
    path = seen.log_path if before is None or before.log_host is None else before.log_path
    lines = before_next(seen, path, run, state, is_newest=is_newest)
    has_log = seen.job_id is not None or names_log(seen, end)
    is_unseen = has_log and not lines and (reported is None or reported.log_tail is None)
    end = replace(end, awaits_log=not is_read_to_end(seen, end, run, state) if is_newest else is_unseen)
    if reported is not None:
        at = min(end.at, reported.at) if end.source == reported.source != "lost" else end.at
        end = replace(
            end,
            at=at,
            noticed_at=reported.noticed_at,
            log_tail=reported.log_tail,
            has_own_tail=reported.has_own_tail,
        )
    seen = replace(seen, end=end)
    if (before is not None and not before.is_open) or is_settled(seen, end, run, state):
        return closed(seen, lines, before=before, state=state)
    is_known = end.has_own_tail or (end.log_tail or "").endswith(tail_of(lines[-1:]))  # it needs 8 ms for a long log
    if lines and not is_known:
        end = replace(end, log_tail=tail_of(lines))
    whole = replace(merged(before, seen), end=None, reported_end=end)
    return before if before is not None and before == whole else whole


def _with_late(one: Attempt, end: AttemptEnd, state: State) -> Attempt:
    """A closed attempt, with what was read since of the end of its log, its last checkpoint or its receipts."""
    run = run_of(one, state)
    if end.awaits_log and is_read_to_end(one, end, run, state):
        seen, is_newest = replace(one, end=replace(end, awaits_log=False)), not has_newer(one, state.attempts.values())
        if end.was_watched:
            found, lines = with_log(seen, run, state) if is_newest else (seen, ())
        else:
            found, lines = with_own_lines(seen, run, state, state.attempts, is_newest=is_newest)
        if is_newest or lines:
            one = closed(found, lines, before=one, state=state)
        elif not is_wanted(one, state):
            one = merged(one, seen)  # the log may be that of the newer one
    has_job = one.job_id is not None and f"{one.cluster}/{one.job_id}" in state.receipts
    if has_job or one.pid is not None:
        seen = receipts.applied(one, receipts.of_attempt(one, state))
        if seen.end is not None and one.end is not None and not adds_nothing(seen.end, one.end):
            return closed(seen, (), before=one, state=state)
    return one


def with_stored(known: Mapping[str, Attempt], stored: Iterable[Attempt]) -> Mapping[str, Attempt]:
    """The attempts with those that the ledger holds."""
    found = dict(known)
    for one in stored:
        found[one.attempt_id] = merged(found.get(one.attempt_id), one)
    return found


def unwatched_since(state: State) -> Instant | None:
    """Since when attempts may have been missed: the last time that the ledger knows. Without any, a day is looked up.
    None while the ledger may not have been read yet."""
    if not is_restored(state):
        return None
    seen = (one.seen_at for one in state.attempts.values() if one.seen_at < state.started_at)
    return max(seen, default=state.started_at - LOOK_BACK) - MARGIN


MARGIN: Seconds = 3_600.0
"""An attempt that was seen last may have ended before others that were not seen at all."""


def pruned(known: Mapping[str, Attempt], state: State) -> Mapping[str, Attempt]:
    """Without those that ended long ago, and at most AT_MOST."""
    kept = {name: one for name, one in known.items() if one.end is None or state.at - one.end.at < STAY}
    if len(kept) > AT_MOST:
        ordered = sorted(kept.values(), key=lambda one: (one.end is None, one.ended_at or one.seen_at))
        kept = {one.attempt_id: one for one in ordered[-AT_MOST:]}
    return known if len(kept) == len(known) else kept


def _left(state: State) -> Iterator[Attempt]:
    """The ends of open attempts that are over although nothing reports their end now: the job was requeued, or the
    scheduler no longer knows it; the next attempt of the run has another log, process or W&B run. What was reported
    before counts."""
    of_runs = group_by(state.attempts.values(), lambda one: one.run_id)
    for one in state.attempts.values():
        if one.is_open and (end := _end_of_left(one, of_runs[one.run_id], state)) is not None:
            run, reported = run_of(one, state), one.reported_end
            written_at = None if run.log is None or run.log.path != one.log_path else run.log.at
            if end.source == "lost" and written_at is not None and not has_newer(one, state.attempts.values()):
                end = replace(end, at=max(end.at, written_at))
            is_better = reported is not None and RANKS[reported.source] >= max(1, RANKS[end.source])
            ended = replace(one, end=reported if is_better else end, reported_end=None)
            yield ended if one.job_id is None else with_run(ended, run, state, is_newest=False)


def _end_of_left(one: Attempt, of_run: Iterable[Attempt], state: State) -> AttemptEnd | None:
    if one.pid is not None:
        return _end_of_process(one, of_run, state)
    if one.job_id is None:
        return _followed(one, of_run, state)
    job = state.jobs.get(f"{one.cluster}/{one.job_id}")
    if job is None:
        is_told = one.reported_end is not None and one.reported_end.source != "lost"
        if is_told or not _is_forgotten(one, state):
            return one.reported_end
        run, own = state.runs.get(one.run_id), receipts.of_attempt(one, state)
        by_receipts = None if run is None else receipts.end_of(own, run, state, None)
        return by_receipts or end_by("lost", one.seen_at, state)
    if job.submitted_at is None or one.submitted_at is None:
        return one.reported_end if one.submitted_at is None else None
    if (job.submitted_at, job.restarts or 0) <= (one.submitted_at, one.restart or 0):
        return None
    at = (job.submitted_at if job.submitted_at != one.submitted_at else job.started_at) or state.at
    times = (when for when in (one.preempted_at, job.preempted_at) if when is not None)
    is_preempted = any((one.started_at or 0.0) <= when <= at + PREEMPTED_NEAR for when in times)
    return replace(end_by("queue", at, state), scheduler_state="PREEMPTED" if is_preempted else "REQUEUED")


def _end_of_process(one: Attempt, of_run: Iterable[Attempt], state: State) -> AttemptEnd | None:
    """The end of a process that no run shows any more: it ended while this program did not run."""
    if any(run.spec.process is not None and run.spec.process.pid == one.pid for run in state.runs.values()):
        return _followed(one, of_run, state)
    node = state.nodes.get(one.nodes[0]) if one.nodes else None
    if node is None or not node.gpus or state.at - state.started_at < AFTER:
        return None
    if one.cluster not in state.clusters or any(one.pid in [each.pid for each in gpu.processes] for gpu in node.gpus):
        return None
    by_receipt = receipts.end_of(receipts.of_attempt(one, state), run_of(one, state), state, None)
    return by_receipt or end_by("lost", one.seen_at, state)


def _is_forgotten(attempt: Attempt, state: State) -> bool:
    """Whether the scheduler answers and does not list the job, and accounting has had its time."""
    cluster, source = state.clusters.get(attempt.cluster), state.sources.get(f"slurm:{attempt.cluster}")
    if cluster is None or not cluster.is_polled or source is None or source.health != "ok":
        return False
    return cluster.accounting is False or state.at - max(state.started_at, attempt.seen_at) > ACCOUNTING_LAGS


def _followed(attempt: Attempt, of_run: Iterable[Attempt], state: State) -> AttemptEnd | None:
    """The end of an attempt without a job whose run has a newer one of its kind."""
    kind = attempt.attempt_id.removeprefix(f"{attempt.run_id}/").partition("/")[0]
    newer = [
        one
        for one in of_run
        if (
            (one.attempt_id.startswith(f"{attempt.run_id}/{kind}/") and kind in ("log", "pid", "wandb-file"))
            or (one.receipt is not None and attempt.receipt is None and kind in ("log", "wandb", "wandb-file"))
        )
        and one.attempt_id != attempt.attempt_id
        and one.seen_at > attempt.seen_at
        and (None in (one.started_at, attempt.started_at) or (one.started_at or 0.0) > (attempt.started_at or 0.0))
    ]
    return end_by("lost", attempt.seen_at, state) if newer else None


# ---- jobs from accounting --------------------------------------------------------------------------------------------


def with_accounted(state: State) -> tuple[Mapping[str, Attempt], tuple[Job, ...]]:
    """The attempts with the ends of the jobs from accounting, the earlier attempts of requeued ones included, and the
    jobs whose log and checkpoints are still to be read. Attempts that this program has not watched are opened and
    closed at once."""
    found, waiting = dict(state.attempts), []
    for run in state.runs.values():
        jobs = jobs_of(run.spec, state.accounted)
        over = ((job_attempt(job, run), end_of(job, state, by_accounting=True)) for job in jobs if job.ends_at)
        peers = {one.attempt_id: replace(one, end=end) for one, end in over}
        for job in jobs:
            found = adopted(found, job_attempt(job, run), state)
            before = _attempt_of(job, found)
            is_known = before is not None and before.end is not None and before.end.source == "accounting"
            if is_known or not is_begun(job) or not is_over(job) or job.ends_at is None:
                continue
            seen = replace(peers[job_attempt_id(job)], seen_at=job.ends_at)
            seen = receipts.applied(seen, receipts.of_attempt(seen, state))
            assert seen.end is not None
            end = seen.end
            if before is not None:
                seen = replace(seen, attempt_id=before.attempt_id, restart=before.restart)
            is_newest = not has_newer(seen, found.values())
            if is_newest and (before is None or before.is_open) and not is_settled(seen, end, run, state):
                waiting.append(job)
                continue
            awaits = not is_newest or not is_read_to_end(seen, end, run, state)
            seen = replace(seen, end=replace(end, awaits_log=awaits))
            seen, lines = with_own_lines(seen, run, state, {**peers, **found}, is_newest=is_newest)
            found[seen.attempt_id] = watched(closed(seen, lines, before=before, state=state), before, run, state)
    return found, tuple(waiting)


def _attempt_of(job: Job, known: Mapping[str, Attempt]) -> Attempt | None:
    """The attempt of a job in accounting, which does not count restarts: the one that was queued and started then."""
    of_job = [one for one in known.values() if (one.cluster, one.job_id) == (job.cluster, job.id)]
    queued, began = (one for one in of_job if one.submitted_at == job.submitted_at), job.started_at or 0.0
    found = next((one for one in queued if abs((one.started_at or 0.0) - began) <= SAME_START), None)
    # Its receipts, which may be all that has shown it, do not say when it was queued.
    others = ((one, one.started_at) for one in of_job if one.submitted_at is None and one.started_at is not None)
    by_receipts = (one for one, at in others if began - receipts.NEAR <= at <= (job.ends_at or at))
    return found or known.get(job_attempt_id(job)) or next(by_receipts, None)


# ---- the logs of attempts that ended unseen, before the newest one of their run --------------------------------------

PREFIX = "log of "
"""Of the name of such a log, as the probe sends it back."""


LOGS_AT_ONCE = 20
"""Logs that are requested at a time on one cluster. The probe reads the last 64 KiB of each."""


LOGS_AT_MOST = 100
"""Logs of one cluster. A sweep that ended unseen may have thousands."""


GIVE_UP: Seconds = 600.0
"""How long a log that cannot be read is tried."""


def is_wanted(attempt: Attempt, state: State) -> bool:
    """Whether the log of an earlier attempt of a run is still to be read."""
    end = attempt.end
    if end is None or not end.awaits_log or end.log_tail is not None or "log_path" in attempt.files:
        return False
    is_recent = state.at - max(end.noticed_at, state.started_at) < GIVE_UP
    return is_recent and (attempt.job_id is not None or (names_log(attempt, end) and _is_last_writer(attempt, state)))


def names_log(attempt: Attempt, end: AttemptEnd) -> bool:
    """Whether the log of an attempt without a job shows its end, and nothing else does."""
    return end.source == "lost" and attempt.receipt is None and (attempt.log_path or "").startswith("/")


def _is_last_writer(attempt: Attempt, state: State) -> bool:
    """Whether no later attempt of its run writes the same log."""
    file = (attempt.run_id, attempt.log_path)
    others = (one for one in state.attempts.values() if (one.run_id, one.log_path) == file)
    return max(others, key=attrgetter("order"), default=attempt).attempt_id == attempt.attempt_id


def logs_to_read(state: State) -> Mapping[str, tuple[LogSpec, ...]]:
    """By cluster: the logs of attempts that ended, the newest first. The log that a run follows is not one of them."""
    last = last_attempts(state.attempts.values())
    earlier = (one for one in state.attempts.values() if one.run_id in state.runs and one is not last[one.run_id])
    found = group_by(
        (one for one in earlier if "log_path" in one.files or is_wanted(one, state)), lambda one: one.cluster
    )
    specs = ((cluster, tuple(_specs(attempts, state))[:LOGS_AT_ONCE]) for cluster, attempts in found.items())
    return {cluster: wanted for cluster, wanted in specs if wanted}


def read_once(state: State) -> Mapping[str, tuple[FileSpec | LogSpec, ...]]:
    """By cluster: the files and logs of attempts that are still to be read, and status files that processes name."""
    parts: tuple[Mapping[str, tuple[FileSpec | LogSpec, ...]], ...]
    parts = files_to_read(state), logs_to_read(state), named_files(state)
    clusters = dict.fromkeys(cluster for part in parts for cluster in part)
    return {cluster: tuple(one for part in parts for one in part.get(cluster, ())) for cluster in clusters}


def _specs(attempts: Iterable[Attempt], state: State) -> Iterator[LogSpec]:
    for one in sorted(attempts, key=lambda one: one.ended_at or 0.0, reverse=True)[:LOGS_AT_MOST]:
        log, path = state.runs[one.run_id].log, _log_path(one, state)
        if is_wanted(one, state) and path is not None and (log is None or path != log.path):
            yield LogSpec(id=f"{PREFIX}{one.attempt_id}", pattern=glob.escape(path))


def _log_path(attempt: Attempt, state: State) -> str | None:
    """Where its log is. Accounting does not say that: of two jobs of a run, the names of the files differ only by their
    numbers."""
    if attempt.log_path is not None or attempt.job_id is None:
        return attempt.log_path if (attempt.log_path or "").startswith("/") else None
    for one in reversed([*state.attempts.values()]):
        folder, name = posixpath.split(one.log_path or "")
        if one.run_id == attempt.run_id and one.job_id is not None and one.job_id in NUMBERS.findall(name):
            number = re.compile(rf"(?<!\d){re.escape(one.job_id)}(?!\d)")
            return posixpath.join(folder, number.sub(attempt.job_id, name))
    return None


def attempt_of_log(name: str, attempts: Mapping[str, Attempt]) -> Attempt | None:
    """The attempt that ended whose log has this name, if it is one."""
    return attempts.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


def with_unseen_log(attempt: Attempt, run: Run, state: State) -> Attempt:
    """The attempt after its log was read, as if that were the log of this run: its steps, its last lines and its cause.
    The log of a job that was written after its end has the end of another attempt."""
    log = run.log
    if attempt.end is None or not is_wanted(attempt, state) or log is None or log.path is None or log.error is not None:
        return attempt
    end = replace(attempt.end, awaits_log=False)
    if attempt.job_id is None:  # it wrote on after it was seen last
        end = replace(end, at=max(end.at, log.at or 0.0))
    seen = replace(attempt, log_path=log.path, end=end)
    seen, lines = with_own_lines(seen, run, state, state.attempts, is_newest=True)
    error = None if lines else "it was not written while this attempt ran"
    file = AttemptFile(path=log.path, read_at=state.at, size=log.size, modified_at=log.at, error=error)
    if not lines:
        return merged(attempt, replace(attempt, files={**attempt.files, "log_path": file}))
    if seen.started_at is None and log.first_at is not None:
        others = (one for one in state.attempts.values() if (one.run_id, one is attempt) == (seen.run_id, False))
        before = (one.ended_at or one.seen_at for one in others if one.seen_at < seen.seen_at)
        seen = replace(seen, started_at=min(max(log.first_at, *before, 0.0), end.at), start_is_estimated=True)
    return closed(replace(seen, files={**attempt.files, "log_path": file}), lines, before=attempt, state=state)


# ---- how long an attempt was watched while it made steps, and how much of that it hung or saved ----------------------

PAUSE: Seconds = 600.0
"""After a pause of at most this, the log shows what happened meanwhile. In a longer one, nobody watched."""


def watched(one: Attempt, before: Attempt | None, run: Run, state: State) -> Attempt:
    """The attempt with the time that has passed since it was seen before. While the verdict on its run is not known,
    nobody watches it. Of several jobs of a run, the verdict is about the first one. Right after this machine slept, or
    its clock was set forward, its log was not read for long: that is no silence of its own."""
    if before is None or not before.is_open or one.last_step is None:
        return one
    is_first = one.job_id is None or run.job == f"{one.cluster}/{one.job_id}"
    if not is_first and (one.told_end is None or before.watched_until is None):
        return one
    began = before.seen_at if one.first_step_at is None else one.first_step_at
    until = began if one.watched_until is None else one.watched_until
    read_at = state.at if run.log is None or run.log.checked_at is None else run.log.checked_at
    is_unread = state.at - read_at > PAUSE and one.hung_since is None and one.told_end is None
    facts = {} if is_unread else _hung(one, began, until, run)
    if run.verdict != "unknown" and one.seen_at > until:
        facts |= {"watched_until": one.seen_at, "watched_s": one.watched_s + _known(until, one.seen_at, until)}
    facts |= _saving(one, began, until, run, state, is_hung=facts.get("hung_since", one.hung_since) is not None)
    return replace(one, **facts) if facts else one


def _known(since: Instant, at: Instant, until: Instant) -> Seconds:
    """The time between two instants; if nobody watched before the second one, only that until somebody did."""
    return max(0.0, (at if at - until <= PAUSE else until) - since)


def _hung(one: Attempt, began: Instant, until: Instant, run: Run) -> dict[str, Any]:
    """A silence begins with the last step, or the end of a save or an evaluation after it, and ends with the next one.
    What the cause of the end proves counts, too. A step after the end is that of the next attempt."""
    at, since, end = max(began, run.progress.at or began), one.hung_since, one.told_end
    is_silent = run.verdict in SILENT if end is None else end.cause is not None and end.cause.cause in HUNG
    if end is not None and at >= end.at:
        return {}
    if since is None:
        busy_until = run.progress.doing_at if run.progress.doing == "train" else None
        return {"hung_since": max(at, busy_until or at)} if is_silent else {}
    is_over = at > since and not is_silent
    return {"hung_s": one.hung_s + _known(since, at, until), "hung_since": None} if is_over else {}


def _saving(one: Attempt, began: Instant, until: Instant, run: Run, state: State, *, is_hung: bool) -> dict[str, Any]:
    """The time of a save that hangs is hung. While the verdict is not known, it may go on."""
    since, told = one.saving_since, one.told_end
    is_saving = run.verdict == "saving" and told is None and not is_hung
    if since is None:
        at = max(began, run.progress.busy_since or state.at)
        return {"saving_since": at, "saves": one.saves + 1} if is_saving else {}
    if is_saving or (run.verdict == "unknown" and told is None):
        return {}
    blocked = 0.0 if is_hung else _known(since, state.at if told is None else told.at, until)
    return {"saving_s": one.saving_s + blocked, "saving_since": None, "saves": one.saves - is_hung}
