"""The attempts of jobs that the queue no longer shows, where Slurm has no accounting: by their receipts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.logs import has_newer
from trainmon.analysis.attempts.observe.jobs import with_names
from trainmon.analysis.attempts.observe.run import with_log
from trainmon.analysis.attempts.observe.sources import is_restored
from trainmon.analysis.runs import target
from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, Receipt, Run, State

OLD: Seconds = 7 * 86_400.0 - 3_600.0
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
        if run is None or is_listed or answered_at < last_at + receipts.NEAR or state.at - last_at > OLD:
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
