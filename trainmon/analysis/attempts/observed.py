"""The State → what it shows of the attempts of its runs, those of jobs that nobody watched too. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.by_source import (
    OLD,
    attempt_of,
    is_begun,
    is_requeued,
    is_restored,
    may_have_jobs,
    may_have_others,
    of_job,
    of_log,
    of_other_logs,
    of_process,
    of_receipts,
    of_wandb,
    with_log,
    with_names,
    with_run,
)
from trainmon.analysis.attempts.fold import adds_nothing
from trainmon.analysis.attempts.steps import (
    AFTER,
    BEFORE,
    SECOND,
    before_next_start,
    began_at,
    has_newer,
    latest_of,
    lines_of,
    with_steps_of,
)
from trainmon.analysis.log_formats import report, written
from trainmon.analysis.runs import last_attempts, target
from trainmon.analysis.wandb import client_file
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, AttemptEnd, Receipt, Run, State

# ---- the part of a log that one attempt has written, where several append to one file and nobody watched -------------


def with_own_lines(
    seen: Attempt, run: Run, state: State, known: Mapping[str, Attempt], *, is_newest: bool
) -> tuple[Attempt, tuple[str, ...]]:
    """An attempt that was not watched to its end, with what its run shows of it, and its own lines of the log that was
    last written while it ran, or that its run follows."""
    seen, lines = with_log(seen, run, state) if is_newest else (seen, ())
    return own_part(seen, lines, run, state, known) if lines else _part_of_followed(seen, run, state, known)


def own_part(
    attempt: Attempt, lines: Sequence[str], run: Run, state: State, known: Mapping[str, Attempt]
) -> tuple[Attempt, tuple[str, ...]]:
    """The attempt with the steps in its own lines, and these; all as they were if the lines are not dated, or all its
    own."""
    log, began = run.log, began_at(attempt.started_at, run, state)
    if log is None or log.at is None or began is None or attempt.end is None:
        return attempt, tuple(lines)
    times = written(lines, log.at)
    if all(at is None for at in times) or not _goes_on(times):
        return attempt, tuple(lines)
    others = [one for one in known.values() if one.run_id == run.name and one.start < attempt.start]
    ends = (min(began, one.ended_at) + SECOND for one in others if one.ended_at is not None)
    own = _between(lines, times, max((began - BEFORE, *ends)), latest_of(attempt, run, state, known))
    if len(own) == len(lines) or report(lines, ()).progress.step is None:
        return attempt, own
    plain = replace(attempt, first_step=None, first_step_at=None, last_step=None, resumed_from=None, resumed_words=None)
    return with_steps_of(plain, own, (), is_whole=True), own


def before_next(attempt: Attempt, path: str | None, run: Run, state: State, *, is_newest: bool) -> tuple[str, ...]:
    """The lines that an attempt which has ended has written to this file, without those of the next one: by their
    times, or up to where its trainer shows that it has started again."""
    log, latest = run.log, latest_of(attempt, run, state)
    lines = lines_of(log, path, is_newest=is_newest)
    if log is None or log.at is None or log.at <= latest or log.path != path or (lines and not is_newest):
        return lines
    whole = lines_of(log, log.path, is_newest=True)
    if own := _between(whole, written(whole, log.at), 0.0, latest):
        return own
    following = run.memory.spans[len(before_next_start(run.memory.spans, attempt.ended_at or latest)) :]
    begins = len(log.lines) - len(whole)
    return log.lines[begins : max(begins, following[0].first_line - log.first)] if following else lines


def _part_of_followed(
    attempt: Attempt, run: Run, state: State, known: Mapping[str, Attempt]
) -> tuple[Attempt, tuple[str, ...]]:
    """An earlier attempt, with its lines of the log that its run follows; without any if it wrote another file, or none
    of them is known to be its own."""
    log = run.log
    if log is None or log.path is None or (attempt.log_path or run.spec.log) != log.path:
        return attempt, ()
    lines = lines_of(log, log.path, is_newest=True)
    found, own = own_part(attempt, lines, run, state, known)
    is_part = 0 < len(own) < len(lines)
    return (replace(found, log_path=log.path, log_host=log.host), own) if is_part else (attempt, ())


def _goes_on(times: Sequence[Instant | None]) -> bool:
    """Whether the times tell starts apart: not if there is a single one."""
    dated = [at for at in times if at is not None]
    return any(after > before for before, after in pairwise(dated))


def _between(lines: Sequence[str], times: Sequence[Instant | None], began: Instant, until: Instant) -> tuple[str, ...]:
    """The lines of this time. One without a time belongs to the one above."""
    at, own = next((one for one in times if one is not None), None), []
    for line, found in zip(lines, times, strict=True):
        at = at if found is None else found
        if at is not None and began <= at < until:
            own.append(line)
    return tuple(own)


# ---- the attempts of jobs that the queue no longer shows, where Slurm has no accounting ------------------------------

OLD_JOB: Seconds = 7 * 86_400.0 - 3_600.0
"""Receipts of attempts that ended so long ago are not looked at: those attempts are no longer in the State."""


def of_unwatched_jobs(state: State, known: Mapping[str, Attempt]) -> Iterator[Attempt]:
    """The attempts, the newest first. A job that the queue lists is not one of them, nor an attempt that was seen."""
    answered = _answered(state)
    if not state.receipts or not answered or not is_restored(state):
        return
    by_job: dict[str, list[Attempt]] = {}
    for one in known.values():
        if one.job_id is not None and f"{one.cluster}/{one.job_id}" in state.receipts:
            by_job.setdefault(f"{one.cluster}/{one.job_id}", []).append(one)
    found: list[Attempt] = []
    for key, own in state.receipts.items():
        if own[-1].job_id is not None and own[-1].cluster in answered:
            found += _of_job(key, own, state, by_job.get(key, ()), known, answered[own[-1].cluster])
    yield from sorted(found, key=lambda one: one.started_at or 0.0, reverse=True)


def _answered(state: State) -> Mapping[str, Instant]:
    """By cluster without accounting: when its queue was last read."""
    found = {}
    for name, cluster in state.clusters.items():
        source = state.sources.get(f"slurm:{name}")
        if cluster.accounting is False and cluster.is_polled and source is not None and source.answered_at is not None:
            found[name] = source.answered_at
    return found


def _of_job(
    key: str,
    own: Sequence[Receipt],
    state: State,
    seen: Sequence[Attempt],
    known: Mapping[str, Attempt],
    answered_at: Instant,
) -> Iterator[Attempt]:
    """The attempts of one job, one for each restart."""
    run, job = _run_of(own[-1], state), state.jobs.get(key)
    groups: dict[int, list[Receipt]] = {}
    for one in own:
        groups.setdefault(one.restart or 0, []).append(one)
    for restart, group in groups.items():
        is_listed = job is not None and (job.restarts is None or job.restarts <= restart)
        last_at = max(one.ended_at or one.started_at for one in group)
        if run is None or is_listed or answered_at < last_at + receipts.NEAR or state.at - last_at > OLD_JOB:
            continue
        if any(group[-1] in receipts.of_attempt(one, state) for one in seen):
            continue
        later = [one.started_at for other, each in groups.items() if other > restart for one in each]
        if job is not None and job.started_at is not None and job.started_at > last_at:
            later.append(job.started_at)
        name = _name_of(f"{key}.{restart}", run, group[-1], known)
        yield _attempt(name, run, group, state, known, min(later, default=None))


def _run_of(receipt: Receipt, state: State) -> Run | None:
    """The run that trainmon-run was told, else that of the job's name."""
    if receipt.run is not None:
        run = state.runs.get(receipt.run)
        return run if run is not None and run.spec.cluster == receipt.cluster else None
    for run in state.runs.values():
        spec = run.spec
        if (spec.cluster, spec.job or spec.name) == (receipt.cluster, receipt.job_name) and (
            receipt.job_id == spec.only if spec.only is not None else receipt.job_id not in spec.without
        ):
            return run
    return None


def _name_of(name: str, run: Run, receipt: Receipt, known: Mapping[str, Attempt]) -> str:
    """The name of the attempt: an open one that its log has shown before its receipt was read keeps its own."""
    path = receipt.log_path
    for one in known.values() if path is not None else ():
        is_plain = one.run_id == run.name and one.job_id is None and one.receipt is None and one.is_open
        if is_plain and one.log_path == path and one.start <= (receipt.ended_at or one.seen_at):
            return one.attempt_id
    return name


def _attempt(
    name: str,
    run: Run,
    own: Sequence[Receipt],
    state: State,
    known: Mapping[str, Attempt],
    following: Instant | None,
) -> Attempt:
    newest, end = own[-1], receipts.end_of(own, run, state, following, is_gone=True)
    assert end is not None
    end = end if following is None else replace(end, scheduler_state="REQUEUED")
    array, _, task = (newest.job_id or "").partition("_")
    hosts = (one.host.partition(".")[0] for one in own if one.host is not None)
    attempt = Attempt(
        attempt_id=name,
        run_id=run.name,
        cluster=newest.cluster,
        model_family=run.spec.model_family,
        labels=run.spec.labels,
        job_id=newest.job_id,
        array_id=int(array) if task and array.isdecimal() else None,
        restart=newest.restart or 0,
        nodes=newest.nodes or tuple(dict.fromkeys(hosts)),
        started_at=own[0].started_at,
        start_was_watched=own[0].started_at >= state.started_at,
        seen_at=end.at,
        target_step=target(run),
        end=end,
    )
    attempt = receipts.applied(with_names(attempt, run, newest.command), own)
    return attempt if has_newer(attempt, known.values()) else with_log(attempt, run, state)[0]


# ---- the attempts before a process that was found on the GPUs of a machine -------------------------------------------


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
        if before is not None and before.end is not None and adds_nothing(end, before.end):
            continue
        began = group[0].started_at
        attempt = replace(
            attempt_of(run, f"receipt/{group[0].name}", end.at),
            started_at=began,
            start_was_watched=began >= state.started_at,
            end=end,
            receipt=group[-1].name,
        )
        yield with_run(with_names(attempt, run, group[-1].command), run, state, began, is_newest=False)


def _is_of(group: Sequence[Receipt], end: AttemptEnd, attempt: Attempt, state: State) -> bool:
    """Whether these receipts, which are over, are those of the attempt of a process: its own, or it began while they
    ran. A process that still runs is none of theirs."""
    if not {one.name for one in group}.isdisjoint(one.name for one in receipts.of_attempt(attempt, state)):
        return True
    is_over = attempt.end is not None or attempt.reported_end is not None
    return is_over and attempt.receipt is None and group[0].started_at - receipts.SURELY_NEAR <= attempt.start <= end.at


# ---- the State → what it shows of the attempts of its runs -----------------------------------------------------------


def observed(state: State, known: Mapping[str, Attempt]) -> Iterator[Attempt]:
    """What is seen now of every attempt that is not closed for good. A run that has a scheduler has its jobs' attempts
    only; else its process and the receipts of earlier ones tell them apart, else its receipts, else W&B, else its
    log."""
    unwatched = [*of_unwatched_jobs(state, known)]
    yield from unwatched
    newest = last_attempts(one for one in (*known.values(), *unwatched) if one.job_id is not None)
    for run in map(_with_client_file, state.runs.values()):
        jobs = [state.jobs[key] for key in run.jobs if key in state.jobs]
        begun = [job for job in jobs if is_begun(job) and not is_requeued(job, state.at)]
        if begun := sorted(begun, key=lambda job: job.started_at or 0.0):
            for job in begun:
                if (found := of_job(job, run, state, known, is_newest=job is begun[-1])) is not None:
                    yield found
        elif run.spec.process is not None:
            for own in of_process(run, state):
                yield own
                yield from of_earlier_starts(run, own, state, known)
        elif jobs:
            continue
        elif groups := receipts.of_run(run, state):
            yield from of_receipts(run, groups, state, known)
        elif may_have_jobs(run, state) or _is_of_job(run, newest):
            continue
        elif run.wandb is not None:
            yield from (one for each in run.wandb.runs if (one := of_wandb(run, each, state, known)) is not None)
        elif run.log is not None and run.log.path is not None and not may_have_others(run, state):
            yield of_log(run, run.log.path, state, known)
            yield from of_other_logs(run, state, known)


def _with_client_file(run: Run) -> Run:
    """The run with the files of its W&B client in place of W&B's server, if it has neither that nor a log."""
    return run if run.spec.wandb or run.spec.log else replace(run, wandb=client_file.of_file(run.wandb_file))


def _is_of_job(run: Run, newest: Mapping[str, Attempt]) -> bool:
    """Whether the log, or the file of the W&B client, of a run without a job in the queue is that of its last job."""
    one, log, file = newest.get(run.name), run.log, run.wandb_file
    at = log.at if log is not None else file.written_at if file is not None else None
    if one is None or at is None:
        return False
    end = one.end or one.reported_end
    return one.start - BEFORE <= at <= (one.seen_at if end is None else end.at) + AFTER
