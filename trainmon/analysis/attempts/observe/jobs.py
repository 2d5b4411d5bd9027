"""The attempts of the jobs of a run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

from msgspec.structs import replace

from trainmon.analysis.attempts import provenance
from trainmon.analysis.attempts.ending import end_of, is_over
from trainmon.analysis.attempts.logs import began_at
from trainmon.analysis.attempts.merge import RANKS
from trainmon.analysis.attempts.observe.run import with_run
from trainmon.analysis.attempts.steps import AFTER
from trainmon.analysis.runs import has_begun, target
from trainmon.lib import Instant, Seconds, clean, scrub
from trainmon.model import Attempt, AttemptEnd, Job, Run, State

CLOCKS: Seconds = 30.0
"""By how much the clock of Slurm may be ahead. Its shortest time limit is a minute."""


def is_begun(job: Job) -> bool:
    """Whether the job runs or ran."""
    return job.started_at is not None and (job.stage == "running" or is_over(job)) and has_begun(job)


def is_requeued(job: Job, now: Instant) -> bool:
    """Whether Slurm has requeued a job whose processes are still ending. It then counts the next restart, which starts
    always just now and ends after its time limit."""
    return job.state == "COMPLETING" and bool(job.restarts) and (job.ends_at is None or job.ends_at > now + CLOCKS)


def job_attempt(job: Job, run: Run) -> Attempt:
    """What a job itself shows of its attempt."""
    attempt = Attempt(
        attempt_id=job_attempt_id(job),
        run_id=run.name,
        cluster=job.cluster,
        model_family=run.spec.model_family,
        labels=run.spec.labels,
        job_id=job.id,
        array_id=job.array,
        restart=job.restarts,
        submitted_at=job.submitted_at,
        nodes=job.nodes,
        gpus=job.gpus or job.gpus_requested,
        started_at=job.started_at,
        target_step=target(run),
        preempted_at=job.preempted_at,
        log_path=job.stdout,
    )
    command = None if job.command is None else clean(scrub(job.command))
    return with_names(provenance.with_named(attempt, "scheduler", {"command": command}), run, job.command)


def with_names(attempt: Attempt, run: Run, command: str | None) -> Attempt:
    """The attempt with what the config and its command line name."""
    attempt = provenance.with_named(attempt, "command", {"config_path": provenance.config_of(command)})
    return provenance.with_named(
        attempt, "config", {"config_path": run.spec.config, "data_manifest": run.spec.data_manifest}
    )


def job_attempt_id(job: Job) -> str:
    submitted = "" if job.submitted_at is None else f"@{stamp(job.submitted_at)}"
    return f"{job.cluster}/{job.id}.{job.restarts or 0}{submitted}"


@lru_cache(4096)
def stamp(at: Instant) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y%m%dT%H%M%S")


def of_job(job: Job, run: Run, state: State, known: Mapping[str, Attempt], *, is_newest: bool) -> Attempt | None:
    end = end_of(job, state.clusters.get(job.cluster), state)
    closed = known.get(job_attempt_id(job))
    if closed is not None and closed.end is not None and (end is None or _is_as_good(closed.end, end)):
        return None
    if end is None and job.gone_at is not None:
        return None  # whether it still runs is not known
    if job.restarts is None and state.at - (job.gone_at or job.listed_at or job.started_at or 0.0) < AFTER:
        return None  # its details have not been read yet
    source = state.sources.get(f"slurm:{job.cluster}")
    seen_at = min(state.at, (source.answered_at if source is not None else None) or state.at)
    attempt = job_attempt(job, run)
    nodes = [state.nodes.get(name) for name in job.nodes]
    attempt = replace(
        provenance.with_environment(attempt, nodes, job=job.number),
        end=end,
        seen_at=seen_at if end is None else end.at,
        start_was_watched=(job.started_at or 0.0) >= state.started_at,
        gpu_uuids=provenance.gpu_uuids(nodes, attempt.gpus),
    )
    return with_run(attempt, run, state, began_at(job.started_at, run, state), is_newest=is_newest)


def _is_as_good(known: AttemptEnd, found: AttemptEnd) -> bool:
    """Whether the new end adds nothing. Only the queue shows the signal that cancelled a job, and exit codes above 128;
    the exit code of one that has failed may come late."""
    adds_signal = known.signal is None and found.signal is not None
    is_greater = found.exit_code is not None and (known.exit_code is None or found.exit_code > known.exit_code)
    adds_code = is_greater and known.source != "lost" and not known.receipts
    return RANKS[known.source] >= RANKS[found.source] and not (adds_signal or adds_code)
