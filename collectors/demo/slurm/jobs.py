"""The demo's job queue: submits, starts, requeues and cancels jobs. Pure: time is an argument."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime

from collectors.demo.model.inventory import ME
from collectors.demo.training.loop import AttemptStart, TrainingLoop
from trainmon.lib import Instant, Seconds

REQUEUE_DELAY: Seconds = 12.0
"""A real Slurm holds a requeued job back for two minutes: too long for a demo."""
NEXT_START_AFTER: Seconds = 8.0
MIN_JOB_AGE: Seconds = 300.0
"""MinJobAge: how long squeue lists a job that has ended."""
RESUBMIT_AFTER: Seconds = 45.0
"""When the last job of a run has ended, its owner submits the run again, so that the demo never runs dry."""
RESUBMIT_CANCELLED_AFTER: Seconds = 300.0
"""The same after a person cancelled the job."""
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
    def is_over(self) -> bool:
        return self.state not in ("PENDING", "RUNNING")


def fold_tasks(tasks: tuple[int, ...]) -> str:
    """2, 3, 4, 7 → `2-4,7`."""
    runs: list[list[int]] = []
    for task in tasks:
        if runs and task == runs[-1][1] + 1:
            runs[-1][1] = task
        else:
            runs.append([task, task])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


@dataclass
class Drain:
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
    drains: dict[str, Drain] = field(default_factory=dict)
    moves: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    """Runs that started on other nodes than before, for the world to read."""
    spares: tuple[str, ...] = ()
    blocked: frozenset[str] = frozenset()
    """Runs whose kill switch exists: nobody submits them."""
    _number: int = 418_400

    def of(self, run: str) -> list[SlurmJob]:
        return [job for job in self.jobs if job.name == run]

    def running(self, run: str) -> SlurmJob | None:
        return next((job for job in self.of(run) if job.state == "RUNNING"), None)

    def pending(self, run: str) -> list[SlurmJob]:
        return [job for job in self.of(run) if job.state == "PENDING"]

    def find(self, text: str) -> list[SlurmJob]:
        """The jobs that an id names: a job, an array, one of its tasks, or `88_[2-4]`.

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
        one = SlurmJob(**{**vars(job), "number": self._next_number(), "task": task, "tasks": ()})
        self.jobs.append(one)
        return one

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # ---- commands ---------------------------------------------------------------------------------------------------

    def submit(self, run: str, count: int, after: int | None) -> SlurmJob:
        """Submit an array for a run. Its tasks run one after another."""
        trainer, number = self.loops[run].trainer, self._next_number()
        job = SlurmJob(
            number=number, name=run, user=trainer.user, node_count=len(trainer.run.nodes), submitted_at=self.now,
            script=trainer.run.script or "", workdir=(trainer.run.script or "").rpartition("/")[0],
            array=number, tasks=tuple(range(1, 1 + count)), after=after,
        )  # fmt: skip
        self.jobs.append(job)
        return job

    def requeue(self, job: SlurmJob) -> str | None:
        """Requeue a running job. Returns why not. A job that has ended stays as it is: `Incomplete` means that."""
        if job.state == "PENDING":
            return "Job is pending execution"
        if job.state != "RUNNING":
            return None
        self._kill(job, "DUE TO JOB REQUEUE", REQUEUE_DELAY)
        job.state, job.reason, job.restarts = "PENDING", "BeginTime", job.restarts + 1
        job.submitted_at, job.begins_at = self.now, self.now + REQUEUE_DELAY
        job.started_at = job.ends_at = None
        job.nodes = ()
        return None

    def cancel(self, job: SlurmJob) -> None:
        if not job.is_over:
            if job.state == "RUNNING":
                self._kill(job, f"CANCELLED AT {stamp(self.now)}", NEXT_START_AFTER)
            self._finish(job, "CANCELLED", "0:15" if job.started_at else "0:0")
            job.cancelled_by = ME

    def _kill(self, job: SlurmJob, why: str, wait: Seconds) -> None:
        loop = self.loops.get(job.name)
        if loop is not None and job.nodes:
            loop.kill(f"slurmstepd: error: *** JOB {job.number} ON {job.nodes[0]} {why} ***\n", wait)

    # ---- scheduling -------------------------------------------------------------------------------------------------

    def ended(self, run: str, exit_code: int) -> None:
        """A run's processes ended by themselves: its job completes or fails."""
        job = self.running(run)
        if job is not None:
            self._finish(job, "FAILED" if exit_code else "COMPLETED", f"{exit_code}:0")

    def start(self, run: str, at: Instant) -> AttemptStart | None:
        """Start the next job of a run, if one can start."""
        for job in sorted(self.pending(run), key=lambda job: (not job.restarts, job.number)):
            if job.is_held or (job.begins_at or 0.0) > at or self._has_dependency(job):
                continue
            nodes = self._nodes_for(job)
            if nodes is None:
                continue
            one = self._detach(job, job.tasks[0]) if job.tasks else job
            one.state, one.reason, one.nodes = "RUNNING", "None", nodes
            one.started_at, one.begins_at, one.ends_at = at, None, at + TIME_LIMIT
            return AttemptStart(one.number, one.restarts)
        return None

    def _nodes_for(self, job: SlurmJob) -> tuple[str, ...] | None:
        """The run's nodes, with spares in place of excluded ones. None: a node is drained, so the job waits."""
        wanted = self.loops[job.name].trainer.run.nodes
        nodes = list(wanted)
        free = [node for node in self.spares if node not in self.drains and node not in job.excluded]
        for place, node in enumerate(nodes):
            if node in job.excluded and free:
                nodes[place] = free.pop(0)
        if any(node in self.drains or node in job.excluded for node in nodes):
            return None
        if tuple(nodes) != wanted:
            self.moves.append((job.name, tuple(nodes)))
        return tuple(nodes)

    def _has_dependency(self, job: SlurmJob) -> bool:
        return job.after is not None and any(
            other is not job and job.after in (other.number, other.array) and not other.is_over for other in self.jobs
        )

    def advance(self, now: Instant) -> None:
        """Let time pass: update reasons, forget old jobs, submit ended runs again."""
        self.now = now
        for job in self.jobs:
            if job.state == "PENDING" and job.name in self.loops:
                job.reason = self._reason(job)
        for run, loop in self.loops.items():
            if loop.phase == "finished":
                for job in self.pending(run):
                    self._finish(job, "CANCELLED", "0:0")
            elif (
                loop.phase == "down" and not self.pending(run) and self.running(run) is None and run not in self.blocked
            ):
                last = max(self.of(run), key=lambda job: job.ends_at or 0.0, default=None)
                wait = RESUBMIT_CANCELLED_AFTER if last is not None and last.cancelled_by else RESUBMIT_AFTER
                if last is None or now - (last.ends_at or 0.0) >= wait:
                    self.submit(run, 4, None)
        over = [job for job in self.jobs if job.is_over]
        for job in over[:-KEPT]:
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
        """What squeue lists: pending and running jobs, and those that ended a short time ago."""
        return [job for job in self.jobs if not job.is_over or self.now - (job.ends_at or 0.0) < MIN_JOB_AGE]

    def _finish(self, job: SlurmJob, state: str, exit_code: str) -> None:
        job.state, job.exit_code, job.ends_at = state, exit_code, self.now
        job.reason = "NonZeroExitCode" if state == "FAILED" else "None"


def stamp(at: Instant | None) -> str:
    """As Slurm writes a time: 2026-11-21T12:03:00."""
    return "Unknown" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
