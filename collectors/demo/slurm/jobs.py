"""The demo's job queue: submits, starts, requeues and cancels jobs. Pure: time is an argument."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec

from collectors.demo.model.inventory import ME, Trainer
from collectors.demo.training.loop import TrainingLoop
from trainmon.lib import Instant, Seconds, ranges

REQUEUE_DELAY: Seconds = 12.0
"""The delay of a requeued job. A real Slurm delays it by two minutes: too long for a demo."""
NEXT_START_AFTER: Seconds = 8.0
MIN_JOB_AGE: Seconds = 300.0
"""MinJobAge: squeue lists a job this long after its end."""
RESUBMIT_AFTER: Seconds = 45.0
"""The delay before an owner submits a run again after its last job ended, so that the demo goes on."""
RESUBMIT_CANCELLED_AFTER: Seconds = 300.0
"""The same delay after a person cancelled the job."""
TIME_LIMIT: Seconds = 7 * 86_400.0
KEPT = 200


@dataclass
class SlurmJob:
    """A job, one task of an array, or all pending tasks of an array (`tasks`)."""

    number: int
    name: str
    user: str
    node_count: int
    submitted_at: Instant
    script: str
    workdir: str
    array: int | None = None
    task: int | None = None
    tasks: tuple[int, ...] = ()
    state: str = "PENDING"
    reason: str = "Priority"
    restarts: int = 0
    started_at: Instant | None = None
    begins_at: Instant | None = None
    ends_at: Instant | None = None
    after: int | None = None
    """The job or array that must end before it starts."""
    is_held: bool = False
    nodes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    exit_code: str = "0:0"
    cancelled_by: str | None = None

    @property
    def id(self) -> str:
        if self.tasks:
            return f"{self.array}_[{fold_tasks(self.tasks)}%1]"
        return str(self.number) if self.array is None else f"{self.array}_{self.task}"

    @property
    def task_ids(self) -> str:
        """Its array tasks, as squeue shows them."""
        return "N/A" if self.array is None else self.id.partition("_")[2].strip("[]")

    @property
    def dependency(self) -> str:
        is_waiting = self.reason == "Dependency" and self.after is not None
        return f"afterany:{self.after}(unfulfilled)" if is_waiting else "(null)"

    @property
    def is_pending(self) -> bool:
        return self.state == "PENDING"

    @property
    def is_over(self) -> bool:
        return self.state not in ("PENDING", "RUNNING")


def fold_tasks(tasks: tuple[int, ...]) -> str:
    """2, 3, 4, 7 → `2-4,7`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges(tasks))


@dataclass
class DrainedNode:
    """Why and by whom a node is drained."""

    reason: str
    by: str
    at: Instant


@dataclass
class JobQueue:
    """All jobs and all drained nodes."""

    loops: dict[str, TrainingLoop]
    now: Instant
    jobs: list[SlurmJob] = field(default_factory=list)
    drains: dict[str, DrainedNode] = field(default_factory=dict)
    spares: tuple[str, ...] = ()
    blocked: frozenset[str] = frozenset()
    """Runs whose kill switch exists: they are not submitted again."""
    _number: int = 418_400

    def of(self, run: str) -> list[SlurmJob]:
        return [job for job in self.jobs if job.name == run]

    def running(self, run: str) -> SlurmJob | None:
        return next((job for job in self.of(run) if job.state == "RUNNING"), None)

    def pending(self, run: str) -> list[SlurmJob]:
        return [job for job in self.of(run) if job.is_pending]

    def find(self, text: str) -> list[SlurmJob]:
        """The jobs with this id: of a job, an array, one of its tasks, or `88_[2-4]`.

        One pending task of an array becomes a job of its own, as in a real Slurm.
        """
        text = re.sub(r"%\d+", "", text)
        if text.isdigit():
            array = [job for job in self.jobs if job.array == int(text)]
            return array or [job for job in self.jobs if job.number == int(text)]
        named = [job for job in self.jobs if job.id.replace("%1", "") == text]
        array_id, _, task = text.partition("_")
        if named or not task.isdigit():
            return named
        return [
            self._detach(job, int(task))
            for job in list(self.jobs)
            if str(job.array) == array_id and int(task) in job.tasks
        ]

    def _detach(self, job: SlurmJob, task: int) -> SlurmJob:
        job.tasks = tuple(other for other in job.tasks if other != task)
        if not job.tasks:
            job.task = task
            return job
        self.jobs.append(replace(job, number=self._next_number(), task=task, tasks=()))
        return self.jobs[-1]

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # ---- commands ---------------------------------------------------------------------------------------------------

    def submit(self, run: str, count: int, after: int | None) -> SlurmJob:
        """Submit an array for a run. Its tasks run one after another."""
        number = self._next_number()
        job = job_of(self.loops[run].trainer, number, self.now, array=number, tasks=tuple(range(1, 1 + count)))
        job.after = after
        self.jobs.append(job)
        return job

    def requeue(self, job: SlurmJob) -> None:
        """Requeue a running job. A job that has ended stays as it is: `Incomplete` means that."""
        if job.state != "RUNNING":
            return
        self._kill(job, "DUE TO JOB REQUEUE", REQUEUE_DELAY)
        job.state, job.reason, job.restarts = "PENDING", "BeginTime", job.restarts + 1
        job.submitted_at, job.begins_at = self.now, self.now + REQUEUE_DELAY
        job.started_at, job.ends_at, job.nodes = None, None, ()

    def cancel(self, job: SlurmJob) -> None:
        if job.is_over:
            return
        if job.state == "RUNNING":
            self._kill(job, f"CANCELLED AT {iso_time(self.now)}", NEXT_START_AFTER)
        self._finish(job, "CANCELLED", "0:15" if job.started_at else "0:0")
        job.cancelled_by = ME

    def _kill(self, job: SlurmJob, why: str, wait: Seconds) -> None:
        loop = self.loops.get(job.name)
        if loop is not None and job.nodes:
            loop.kill(f"slurmstepd: error: *** JOB {job.number} ON {job.nodes[0]} {why} ***\n", wait)

    # ---- scheduling -------------------------------------------------------------------------------------------------

    def ended(self, run: str, exit_code: int) -> None:
        """Complete or fail the job of a run whose processes ended by themselves."""
        job = self.running(run)
        if job is not None:
            self._finish(job, "FAILED" if exit_code else "COMPLETED", f"{exit_code}:0")

    def start(self, run: str, at: Instant) -> tuple[int, int] | None:
        """Start the next job of a run, if one can start. Returns its number and its restart count."""
        for pending in sorted(self.pending(run), key=lambda job: (not job.restarts, job.number)):
            if pending.is_held or (pending.begins_at or 0.0) > at or self._has_dependency(pending):
                continue
            nodes = self._allocate(pending)
            if nodes is not None:
                job = self._detach(pending, pending.tasks[0]) if pending.tasks else pending
                job.state, job.reason, job.nodes = "RUNNING", "None", nodes
                job.started_at, job.begins_at, job.ends_at = at, None, at + TIME_LIMIT
                return job.number, job.restarts
        return None

    def _allocate(self, job: SlurmJob) -> tuple[str, ...] | None:
        """Allocate the run's nodes, with spares in place of excluded ones. None: a node is drained; the job waits."""
        loop = self.loops[job.name]
        unusable = {*self.drains, *job.excluded}
        free = [node for node in self.spares if node not in unusable]
        before = loop.trainer.run.nodes
        nodes = tuple(free.pop(0) if node in job.excluded and free else node for node in before)
        if not unusable.isdisjoint(nodes):
            return None
        self.spares = tuple(sorted({*self.spares, *before} - set(nodes)))
        run = msgspec.structs.replace(loop.trainer.run, nodes=nodes)
        loop.trainer = msgspec.structs.replace(loop.trainer, run=run)
        return nodes

    def _has_dependency(self, job: SlurmJob) -> bool:
        return job.after is not None and any(
            other is not job and job.after in (other.number, other.array) and not other.is_over for other in self.jobs
        )

    def advance(self, now: Instant) -> None:
        """Let time pass: update reasons, remove old jobs, submit ended runs again."""
        self.now = now
        for job in self.jobs:
            if job.is_pending and job.name in self.loops:
                job.reason = self._reason(job)
        for run, loop in self.loops.items():
            is_idle = not self.pending(run) and self.running(run) is None
            if loop.phase == "finished":
                for job in self.pending(run):
                    self._finish(job, "CANCELLED", "0:0")
            elif loop.phase == "down" and is_idle and run not in self.blocked:
                last = max(self.of(run), key=lambda job: job.ends_at or 0.0, default=None)
                wait = RESUBMIT_CANCELLED_AFTER if last is not None and last.cancelled_by else RESUBMIT_AFTER
                if last is None or now - (last.ends_at or 0.0) >= wait:
                    self.submit(run, 4, None)
        for job in [job for job in self.jobs if job.is_over][:-KEPT]:
            self.jobs.remove(job)

    def _reason(self, job: SlurmJob) -> str:
        if job.is_held:
            return "JobHeldUser"
        if job.begins_at is not None and job.begins_at > self.now:
            return "BeginTime"
        if self._has_dependency(job):
            return "Dependency"
        if self.running(job.name) is not None:
            return "JobArrayTaskLimit"
        bad = [node for node in self.loops[job.name].trainer.run.nodes if node in self.drains]
        if bad and not set(bad) <= set(job.excluded):
            return f"ReqNodeNotAvail, UnavailableNodes:{','.join(bad)}"
        return "Resources"

    def listed(self) -> list[SlurmJob]:
        """The jobs that squeue lists: pending, running and recently ended."""
        return [job for job in self.jobs if not job.is_over or self.now - (job.ends_at or 0.0) < MIN_JOB_AGE]

    def _finish(self, job: SlurmJob, state: str, exit_code: str) -> None:
        job.state, job.exit_code, job.ends_at = state, exit_code, self.now
        job.reason = "NonZeroExitCode" if state == "FAILED" else "None"


def job_of(trainer: Trainer, number: int, at: Instant, **more: object) -> SlurmJob:
    """A job of a run, submitted by its owner."""
    script = trainer.run.script or ""
    return SlurmJob(
        number, trainer.run.name, trainer.user, len(trainer.run.nodes), at, script, script.rpartition("/")[0],
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def iso_time(at: Instant | None) -> str:
    """As Slurm writes a time: 2026-11-21T12:03:00."""
    return "Unknown" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
