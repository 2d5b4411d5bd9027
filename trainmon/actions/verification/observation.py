"""An action with the State that is checked for its effect; shared by all verbs. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from trainmon.analysis.gpus import is_empty
from trainmon.lib import Instant, Seconds, duration
from trainmon.model import Action, Checkpoint, Job, Milestone, Record, Run, State, Switch

CLOCK_TOLERANCE: Seconds = 5.0
"""How far two clocks may differ after their skew was corrected."""

COMMIT_SAVES, COMMIT_AT_LEAST = 2.0, 900.0
"""A save is overdue after twice its usual time, and after 15 minutes at least."""

EXIT_LISTED: Seconds = 120.0
"""A checkpoint may still be found this long after an exit: a shared filesystem may show it late."""

SAVED_ANYWAY: Seconds = 30.0
"""A checkpoint of the regular interval counts as the requested one if no other follows within this time, and within two
steps."""

COMMITTED, UNLISTED = "a new checkpoint is committed", "no checkpoint directory of the run can be read"


@dataclass(frozen=True, slots=True)
class Observation:
    """One action and the present State."""

    record: Record
    state: State
    now: Instant

    @property
    def action(self) -> Action:
        return self.record.action

    @property
    def since(self) -> Instant:
        """When it was done, or about when if that was not observed."""
        return self.record.done_at or self.record.written_at or self.action.requested_at

    @property
    def run(self) -> Run | None:
        return None if self.action.run is None else self.state.runs.get(self.action.run)

    @property
    def save_s(self) -> Seconds | None:
        """The usual duration of a save of its run."""
        return None if self.run is None or self.run.checkpoints is None else self.run.checkpoints.save_s

    @property
    def job(self) -> Job | None:
        """The job of the action. An array task that waits again is part of the one row of all waiting tasks."""
        job = None if self.action.job is None else self.state.jobs.get(self.action.job)
        if job is None or job.gone_at is None or job.array is None or not (job.tasks or "").isdigit():
            return job
        row = self.state.jobs.get(f"{job.cluster}/{job.array}_[]")
        if row is None or row.gone_at is not None or not has_task(row.tasks or "", int(job.tasks or "")):
            return job
        return replace(job, state=row.state, reason=row.reason, priority=row.priority, started_at=None, gone_at=None)

    @property
    def switch(self) -> Switch | None:
        if self.run is None:
            return None
        return self.run.kill if self.action.verb in ("kill", "unkill") else self.run.save

    def is_past(self, limit: Seconds) -> bool:
        return self.now - self.since > limit

    def was_read(self) -> bool:
        """Whether the host that reads the files has reported at least two periods after the action."""
        reader = self.action.host if self.run is None or self.run.log is None else self.run.log.host
        source = self.state.sources.get(f"node:{reader}")
        return (
            source is not None
            and source.answered_at is not None
            and source.answered_at > self.since + 2 * source.period
        )

    def polls(self) -> float:
        """The minimum number of polls of the queue since the action."""
        source = self.state.sources.get(f"slurm:{self.action.cluster}")
        if source is None or source.answered_at is None or source.answered_at <= self.since:
            return 0
        return 1 + (source.answered_at - self.since) // source.period

    def milestone(self, name: str, at: Instant | None, missed: str | None = None) -> Milestone:
        """The milestone as it is now. An observed one does not change; a missed one keeps its text."""
        old = next((mark for mark in self.record.marks if mark.name == name), Milestone(name))
        if old.at is not None:
            return old
        return Milestone(name, at) if at is not None else Milestone(name, None, old.missed or missed)


def has_task(tasks: str, number: int) -> bool:
    """Whether an expression such as `1,4-10:2%1` names a task."""
    for part in tasks.partition("%")[0].split(","):
        first, dash, rest = part.partition("-")
        last, _, step = rest.partition(":") if dash else (first, "", "")
        if first.isdigit() and last.isdigit() and number in range(int(first), int(last) + 1, int(step or 1)):
            return True
    return False


Progress = tuple[tuple[Milestone, ...], bool]
"""The milestones as they are now, and whether no more are expected."""


def committed(observed: Observation, name: str, begins: Instant | None, taken_at: Instant | None = None) -> Milestone:
    """The requested checkpoint, expected since `begins`: before that, no checkpoint is the requested one."""
    if begins is None:
        return observed.milestone(name, None)
    limit = max(COMMIT_SAVES * (observed.save_s or 0.0), COMMIT_AT_LEAST)
    missed = None
    if has_no_checkpoints(observed):
        missed = UNLISTED
    elif observed.now - begins > limit:
        missed = f"no new checkpoint within {duration(limit)} of the request"
    return observed.milestone(name, new_checkpoint(observed, taken_at), missed)


def new_checkpoint(observed: Observation, taken_at: Instant | None = None, *, is_over: bool = False) -> Instant | None:
    """When the requested checkpoint was committed, by time and step.

    `taken_at`: when the trainer was observed to consume the request. `is_over`: whether no other checkpoint can follow.
    A checkpoint of the regular interval may have come by itself, so one that does not fit the interval goes first.
    """
    run = observed.run
    known = run.checkpoints.list if run is not None and run.checkpoints is not None else ()
    found = [one for one in reversed(known) if _may_answer(one, observed, taken_at)]
    sure = [one for one in found if not _is_regular(one, known) or (taken_at is not None and _begun(one) >= taken_at)]
    chosen = next((one for one in sure or found if one.is_whole), None)
    if chosen is None or run is None:
        return None
    wait = 0.0 if sure or is_over else max(SAVED_ANYWAY, 2 * (run.progress.cadence_s or 0.0))
    at = chosen.at or observed.now
    return max(at, observed.since) if observed.now - at >= wait else None


def _may_answer(one: Checkpoint, observed: Observation, taken_at: Instant | None) -> bool:
    """Whether a checkpoint was begun after the action, and was not complete long before the request was consumed."""
    step, committed, action = one.step, observed.action.checkpoint, observed.action
    if one.state == "torn" or (step is not None and committed is not None and step <= committed):
        return False
    if one.began_at is None and step is not None and _counts_alike(observed) and step < (action.step or 0):
        return False  # a single file does not show when it was begun, but its step was over before the action
    if one.is_whole and taken_at is not None and (one.at or taken_at) < taken_at - CLOCK_TOLERANCE:
        return False
    return _begun(one) >= observed.since - CLOCK_TOLERANCE


def _begun(one: Checkpoint) -> Instant:
    return one.began_at if one.began_at is not None else one.at or 0.0


def _counts_alike(observed: Observation) -> bool:
    """Whether the log and the names of the checkpoints seem to count the same steps."""
    action, run = observed.action, observed.run
    every = run.checkpoints.every_steps if run is not None and run.checkpoints is not None else None
    if every is None or action.step is None or action.checkpoint is None:
        return False
    return 0 <= action.step - action.checkpoint <= 2 * every


def _is_regular(one: Checkpoint, known: Sequence[Checkpoint]) -> bool:
    """Whether its step continues the interval between two earlier checkpoints, or between the start and one."""
    step = one.step
    if step is None:
        return False
    earlier = {0, *(other.step for other in known if other.step is not None and other.step < step)}
    return any(2 * other - step in earlier for other in earlier)


def has_no_checkpoints(observed: Observation) -> bool:
    """Whether none of its checkpoints can be listed. The first listing comes some time after our own start."""
    run = observed.run
    if run is not None and run.checkpoints is not None:
        return run.checkpoints.error is not None
    if run is None or run.spec.checkpoints is None:
        return True
    return observed.now - max(observed.since, observed.state.started_at) > EXIT_LISTED


def exited_at(observed: Observation) -> Instant | None:
    """When the job that was meant ended, by its scheduler; without one, when its GPUs were left."""
    job = observed.job
    if observed.action.job is None:
        return observed.now if _gpus_are_free(observed) else None
    if job is not None and (job.stage == "ended" or job.gone_at is not None):
        return max((job.ends_at if job.stage == "ended" else job.gone_at) or observed.now, observed.since)
    return observed.now if observed.polls() and (job is None or job.stage == "waiting") else None


def _gpus_are_free(observed: Observation) -> bool:
    """Whether no process holds memory on any GPU of the run. GPUs are read every 30 s. Prometheus has no processes:
    there, the memory must be free."""
    run = observed.run
    nodes = [observed.state.nodes.get(name) for name in run.spec.nodes] if run is not None else []
    if not nodes or not observed.is_past(60.0):
        return False
    return all(
        node is not None and bool(node.gpus) and node.gpus_at is not None and node.gpus_at > observed.since + 60.0
        and all(is_empty(gpu) if node.probe == "prometheus" else not gpu.processes for gpu in node.gpus)
        for node in nodes
    )  # fmt: skip
