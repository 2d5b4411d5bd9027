"""The State → what it shows of the attempts of its runs: those of jobs, and which sources are still to answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache

from msgspec.structs import replace

from trainmon.analysis.attempts import provenance, receipts
from trainmon.analysis.attempts.ending import end_of, is_over
from trainmon.analysis.attempts.fold import adds_nothing
from trainmon.analysis.attempts.steps import (
    AFTER,
    BEFORE,
    before_next_start,
    began_at,
    latest_of,
    lines_of,
    owns_log,
    stepped,
    with_checkpoints,
)
from trainmon.analysis.runs import has_begun, target
from trainmon.lib import Instant, Seconds, clean, elapsed, scrub
from trainmon.model import Attempt, Job, Run, State

# ---- which sources are still to answer before the attempts of a run are known ----------------------------------------

READ_WITHIN: Seconds = 10.0
"""How long the ledger may need to read its attempts."""


def unrecorded(state: State) -> Mapping[str, tuple[str, ...]]:
    """By source: the runs of which no attempt is recorded while it does not answer. Slurm would say whether they are
    its jobs; W&B, for a minute after the start, which of its runs they are."""
    found: dict[str, tuple[str, ...]] = {}
    for run in state.runs.values():
        if run.jobs or run.spec.process is not None or receipts.of_run(run, state):
            continue
        has_log = run.log is not None and run.log.path is not None
        asks_slurm = may_have_jobs(run, state) and (has_log or run.wandb is not None)
        awaits_wandb = has_log and run.wandb is None and run.spec.wandb is not None and may_have_others(run, state)
        name = f"slurm:{run.spec.cluster}" if asks_slurm else f"wandb:{run.name}" if awaits_wandb else ""
        source = state.sources.get(name)
        if source is not None and source.health in ("late", "down"):
            found[name] = (*found.get(name, ()), run.name)
    return found


def may_have_jobs(run: Run, state: State) -> bool:
    """Whether its scheduler has not answered since its log began. A source that needs long to appear does not exist.
    Where there is no squeue, there are no jobs."""
    cluster, source = state.clusters.get(run.spec.cluster), state.sources.get(f"slurm:{run.spec.cluster}")
    if cluster is not None and cluster.has_slurm is False:
        return False
    if source is None:
        return state.at - state.started_at < AFTER
    if source.health == "off":
        return False
    began = None if run.log is None else run.log.began_at
    return source.answered_at is None or (began is not None and source.answered_at < began + AFTER)


def may_have_others(run: Run, state: State) -> bool:
    """Whether the log may belong to an attempt that the ledger holds, or to a W&B run that has not been read yet."""
    wants_wandb = run.spec.wandb is not None and state.at - state.started_at < AFTER
    return wants_wandb or not is_restored(state)


def is_restored(state: State) -> bool:
    """Whether the ledger's attempts are in the State. A ledger that does not answer is not waited for."""
    return state.has_restored_attempts or state.at - state.started_at >= READ_WITHIN


def silence(name: str, answered_at: Instant | None, error: str | None, now: Instant) -> str:
    """`no data from Slurm of prod for 3m (no controller)`."""
    kind, _, of = name.partition(":")
    who = f"Slurm of {of}" if kind == "slurm" else f"W&B of {of}"
    return f"no data from {who} {elapsed(answered_at, now)}" + ("" if error is None else f" ({error})")


# ---- an attempt with what its run shows of it ------------------------------------------------------------------------


def attempt_of(run: Run, name: str, seen_at: Instant) -> Attempt:
    """An attempt that no scheduler knows, with what the config says of its run."""
    return Attempt(
        attempt_id=f"{run.name}/{name}",
        run_id=run.name,
        cluster=run.spec.cluster,
        model_family=run.spec.model_family,
        labels=run.spec.labels,
        nodes=run.spec.nodes,
        target_step=target(run),
        seen_at=seen_at,
    )


def with_run(attempt: Attempt, run: Run, state: State, began: Instant | None, *, is_newest: bool) -> Attempt:
    """The attempt with what its run shows of it: steps, checkpoints, W&B, log. `began` is by our clock."""
    until = attempt.ended_at or state.at
    latest = latest_of(attempt, run, state)
    is_own = is_newest and owns_log(attempt, run, state)
    if is_own and run.log is not None:
        attempt = replace(attempt, log_path=run.log.path or attempt.log_path, log_host=run.log.host)
    if is_own or not is_newest:
        spans = run.memory.spans if attempt.end is None else before_next_start(run.memory.spans, until)
        attempt = stepped(attempt, spans, began, latest, state.started_at)
    progress = run.progress
    is_own = is_newest and (began or 0.0) <= (progress.at or 0.0) <= latest
    if is_own and all(one.first is None for one in run.memory.spans):  # a progress bar, or W&B's steps
        attempt = replace(attempt, last_step=progress.step)
    wandb = provenance.wandb_during(run, began, until) if is_newest else None
    if wandb is not None:
        attempt = provenance.with_wandb(attempt, wandb)
    return with_checkpoints(attempt, run, latest)


def with_log(seen: Attempt, run: Run, state: State) -> tuple[Attempt, tuple[str, ...]]:
    """The newest attempt of a run, which was not watched to its end, with what its run shows of it, and the lines of
    its log: if the log was last written while it ran."""
    log, at = run.log, None if run.log is None else run.log.at
    began = seen.started_at or 0.0 if seen.job_id is None else began_at(seen.started_at, run, state)
    if at is None or began is None or not began - BEFORE <= at <= (seen.ended_at or state.at) + AFTER:
        return seen, ()
    seen = with_run(seen, run, state, began, is_newest=True)
    return seen, lines_of(log, seen.log_path, is_newest=True)


# ---- the attempts of the jobs of a run -------------------------------------------------------------------------------

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
    if closed is not None and closed.end is not None and (end is None or adds_nothing(end, closed.end)):
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
