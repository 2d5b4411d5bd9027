"""The context of a run: its jobs in order, its nodes and sources, and the clock. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.analysis.runs.job_matching import present, requeued_since
from trainmon.lib import Instant, Seconds, elapsed
from trainmon.model import Attempt, Cluster, Job, Node, Progress, Record, Run, Source, Stop, Verdict, WhyCode

PATIENCE = 10.0
"""A run is late when no step came for this many times its own usual interval, and for at least `stall_after`."""

AFTERGLOW: Seconds = 60.0
"""A step that a log shows within this time after its job's end is still that job's."""

SKEWED: Seconds = 5.0
"""If a cluster's clock differs from ours by more than this, the scheduler's times are corrected."""


class Judgement(NamedTuple):
    verdict: Verdict
    why: str
    code: WhyCode = ""
    stop: Stop | None = None

    def also(self, text: str) -> Judgement:
        """The same verdict, with a text added to its reason."""
        return self._replace(why=self.why + text)


def stopped(stop: Stop, text: str) -> Judgement:
    """The verdict on a run that a person ended."""
    return Judgement("stopped", f"{stop.by}; {text}", stop=stop)


class RunContext(NamedTuple):
    """What is known beside the run itself, by name or key."""

    nodes: Mapping[str, Node] = {}
    sources: Mapping[str, Source] = {}
    jobs: Mapping[str, Job] = {}
    actions: Mapping[str, Record] = {}
    clusters: Mapping[str, Cluster] = {}
    last_attempts: Mapping[str, Attempt] = {}
    """The newest attempt of each run, by the name of the run."""


class Queue(NamedTuple):
    """A run's jobs in order, and the one of them that runs now."""

    jobs: tuple[Job, ...]
    present: Job | None

    @property
    def waiting(self) -> Job | None:
        return next((job for job in self.jobs if job.stage == "waiting" and job.gone_at is None), None)

    @property
    def ended(self) -> Job | None:
        """The last job that ended; None if a job that waits was requeued since: its own start was the last one."""
        last = self._ended[0] if self._ended else None
        return None if requeued_since(self.jobs, last) is not None else last

    @property
    def before(self) -> Job | None:
        """If the last ended job never began: the last job that did begin."""
        if self.ended is None or has_begun(self.ended):
            return None
        return next((job for job in self._ended if has_begun(job)), None)

    @property
    def others(self) -> str:
        """`; job 87 of this run is running, too`: two trainings at once write the same checkpoints."""
        others = (job for job in self.jobs if job.gone_at is None and job != self.present)
        running = [job for job in others if job.stage == "running" and job.state != "COMPLETING"]
        if len(running) > 1:
            return f"; {len(running)} other jobs of this run are running, too"
        return f"; job {running[0].id} of this run is running, too" if running else ""

    @property
    def _ended(self) -> tuple[Job, ...]:
        return tuple(job for job in self.jobs if job.stage == "ended" or job.gone_at is not None)


def has_begun(job: Job) -> bool:
    """Whether the job ever ran. A job that was cancelled while it waited has no nodes."""
    return job.state != "CANCELLED" or bool(job.nodes) or (job.ends_at or 0.0) > (job.started_at or 0.0) > 0.0


def queue_of(run: Run, context: RunContext) -> Queue | None:
    """The run's jobs, where its scheduler answers; None where nothing is known of them: then nothing follows."""
    if not does_answer(run, context):
        return None
    host = context.nodes.get(run.log.host) if run.log is not None else None
    skew = (host.clock_skew_s or 0.0) if host is not None else 0.0
    jobs = tuple(by_our_clock(context.jobs[key], skew) for key in run.jobs if key in context.jobs)
    return Queue(jobs, present(jobs)) if jobs else None


def does_answer(run: Run, context: RunContext) -> bool:
    source = context.sources.get(f"slurm:{run.spec.cluster}")
    return source is not None and source.answered_at is not None and source.health not in ("off", "down")


def by_our_clock(job: Job, skew: Seconds) -> Job:
    """Its times by our clock: a step is no older than its job because the cluster's clock is ahead."""
    times = {
        name: our_time(getattr(job, name), skew) for name in ("submitted_at", "started_at", "starts_at", "ends_at")
    }
    return job if abs(skew) < SKEWED else replace(job, **times)


def our_time(at: Instant | None, skew: Seconds) -> Instant | None:
    """A time of the cluster by our clock."""
    return at if at is None else at - significant(skew)


def significant(skew: Seconds) -> Seconds:
    """How far another clock is ahead; 0 if that is little. The time that a reading travels would make a stored time
    another one at each start of a program."""
    return skew if abs(skew) >= SKEWED else 0.0


def is_trained_elsewhere(run: Run, context: RunContext) -> bool:
    """Whether the run continues although its jobs have ended: by hand, or under another job name."""
    queue = queue_of(run, context)
    return queue is not None and queue.present is None and steps_after(run, queue)


def is_new_attempt(run: Run, job: Job | None) -> bool:
    """Whether the job began after the last known step."""
    return job is not None and job.started_at is not None and (run.progress.at or 0.0) < job.started_at


def target(run: Run) -> int | None:
    return run.spec.target_step or run.progress.target_step


def has_reached_target(run: Run) -> bool:
    """Whether its log shows the target step. Whether and how it has ended then is another question."""
    goal = target(run)
    return bool(goal) and (run.progress.step or 0) >= (goal or 0)


def steps_after(run: Run, queue: Queue) -> bool:
    """Whether steps came after its last job ended: then something else trains it, and the queue is no witness."""
    at = None if queue.ended is None else queue.ended.ends_at or queue.ended.gone_at
    if at is None or run.progress.at is None:
        return False
    return run.progress.at > at + max(AFTERGLOW, 3 * (run.progress.cadence_s or 0.0))


def patience(run: Run) -> Seconds:
    """How long the run may make no step before it counts as silent."""
    return max(run.spec.stall_after, PATIENCE * (run.progress.cadence_s or 0.0))


def position(run: Run, context: RunContext) -> str:
    """Where it stands: as long as nothing of it runs, and nobody knows better how it ended, this stays the same."""
    job = context.jobs.get(run.jobs[0]) if run.jobs else None
    began = None if run.log is None else run.log.began_at
    return f"{run.progress.step} " + (f"log {began}" if job is None else f"{job.key} {job.started_at} {job.state}")


def where(progress: Progress) -> str:
    """How far it is; some trainers print no step, but an epoch that grows."""
    if progress.step is None:
        return "no step yet" if progress.epoch is None else f"epoch {progress.epoch:.2f}"
    return f"step {progress.step:,}"


def no_slurm_answer(run: Run, context: RunContext, now: Instant) -> str:
    """`no data from Slurm for 20m`; nothing while it answers, and nothing without Slurm, or for a process that was
    found on its own."""
    source = context.sources.get(f"slurm:{run.spec.cluster}")
    cluster = context.clusters.get(run.spec.cluster)
    # There may be no squeue, although the config needs it.
    has_slurm = run.spec.process is None and (cluster is None or cluster.has_slurm is not False)
    if source is None or not has_slurm or source.health == "off" or does_answer(run, context):
        return ""
    return f"no data from Slurm {elapsed(source.answered_at, now)}"


def missing_job(run: Run, context: RunContext, now: Instant) -> str:
    """What its scheduler says where it lists no job of it, or says nothing."""
    if silence := no_slurm_answer(run, context, now):
        return f"; {silence}" if run.jobs or run.spec.job else ""
    return "" if run.jobs or not does_answer(run, context) else f"; Slurm lists no job {run.spec.job or run.name}"
