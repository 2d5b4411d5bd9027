"""An action and what is seen of it now: what the ways to follow it share. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from trainmon.lib import Instant, Seconds, duration
from trainmon.model import Action, Job, Milestone, Record, Run, State, Switch

CLOCKS: Seconds = 5.0
"""By how much two clocks may differ after their skew was taken out."""

COMMIT_SAVES, COMMIT_AT_LEAST = 2.0, 900.0
"""The same for a save: twice its usual time, or a quarter of an hour."""

EXIT_LISTED: Seconds = 120.0
"""How long after an exit a checkpoint may still be found: directories are listed every half minute."""

COMMITTED = "a new checkpoint is committed"


@dataclass(frozen=True, slots=True)
class Followed:
    """One action with what is seen now."""

    record: Record
    state: State
    now: Instant

    @property
    def action(self) -> Action:
        return self.record.action

    @property
    def since(self) -> Instant:
        """When it was done; nearly so, where that was not seen."""
        return self.record.done_at or self.record.written_at or self.action.asked_at

    @property
    def run(self) -> Run | None:
        return None if self.action.run is None else self.state.runs.get(self.action.run)

    @property
    def job(self) -> Job | None:
        """The job that was meant. An element of an array that waits again is in the one row of all that wait."""
        job = None if self.action.job is None else self.state.jobs.get(self.action.job)
        if job is None or job.gone_at is None or job.array is None or not (job.tasks or "").isdigit():
            return job
        row = self.state.jobs.get(f"{job.cluster}/{job.array}_[]")
        if row is None or row.gone_at is not None or not has_task(row.tasks or "", int(job.tasks or "")):
            return job
        return replace(job, state=row.state, reason=row.reason, priority=row.priority, started_at=None, gone_at=None)

    @property
    def switch(self) -> Switch | None:
        run = self.run
        if run is None:
            return None
        return run.kill if self.action.verb in ("kill", "unkill") else run.save

    def is_past(self, limit: Seconds) -> bool:
        return self.now - self.since > limit

    def has_looked(self) -> bool:
        """Whether the host that reads the files was heard well after the act."""
        run = self.run
        reader = self.action.host if run is None or run.log is None else run.log.host
        source = self.state.sources.get(f"node:{reader}")
        return source is not None and source.seen_at is not None and source.seen_at > self.since + 2 * source.period

    def polls(self) -> float:
        """How many looks at the queue there were since, at least."""
        source = self.state.sources.get(f"slurm:{self.action.cluster}")
        if source is None or source.seen_at is None or source.seen_at <= self.since:
            return 0
        return 1 + (source.seen_at - self.since) // source.period

    def mark(self, name: str, at: Instant | None, missed: str | None = None) -> Milestone:
        """What was seen once stays seen; a miss keeps its words, and ends when what it missed is seen."""
        old = next((mark for mark in self.record.marks if mark.name == name), Milestone(name))
        if old.at is not None:
            return old
        return Milestone(name, at) if at is not None else Milestone(name, None, old.missed or missed)


def has_task(tasks: str, number: int) -> bool:
    """Whether an expression such as `1,4-10:2%1` names an element."""
    for part in tasks.partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if first.isdigit() and last.isdigit():
            if number in range(int(first), int(last) + 1, int(step or 1)):
                return True
        elif first.isdigit() and number == int(first):
            return True
    return False


Told = tuple[tuple[Milestone, ...], bool]
"""The marks as they are now, and whether nothing more is to be expected."""


def committed(one: Followed, name: str, begins: Instant | None) -> Milestone:
    """A new checkpoint, expected since `begins`."""
    run = one.run
    assert run is not None
    limit = max(COMMIT_SAVES * (save_s(run) or 0.0), COMMIT_AT_LEAST)
    missed = None
    if begins is not None and is_blind(one):
        missed = "no checkpoint directory of it can be seen"
    elif begins is not None and one.now - begins > limit:
        missed = f"no new checkpoint within {duration(limit)}: it was asked for, and is not there"
    return one.mark(name, new_checkpoint(one), missed)


def new_checkpoint(one: Followed) -> Instant | None:
    """When a checkpoint was committed that was begun after the act: one that was being written already is not its."""
    run = one.run
    found = None if run is None or run.checkpoints is None else run.checkpoints
    for checkpoint in found.list if found is not None else ():
        known = one.action.checkpoint
        is_newer = known is None or checkpoint.step is None or checkpoint.step > known
        begun = checkpoint.began_at if checkpoint.began_at is not None else checkpoint.at
        if checkpoint.is_whole and is_newer and begun is not None and begun >= one.since - CLOCKS:
            return max(checkpoint.at or one.now, one.since)
    return None


def save_s(run: Run) -> Seconds | None:
    return None if run.checkpoints is None else run.checkpoints.save_s


def is_blind(one: Followed) -> bool:
    """Whether no checkpoint of it can be seen. The first list of a directory comes some time after our own start."""
    run = one.run
    if run is not None and run.checkpoints is not None:
        return run.checkpoints.error is not None
    if run is None or run.spec.checkpoints is None:
        return True
    return one.now - max(one.since, one.state.started_at) > EXIT_LISTED


def exited_at(one: Followed) -> Instant | None:
    """When the job that was meant ended, by its scheduler; without one, when its GPUs were left."""
    if one.action.job is None:
        return one.now if _gpus_are_left(one) else None
    job = one.job
    if job is None:
        return one.now if one.polls() else None
    if job.stage == "ended":
        return max(job.ends_at or one.now, one.since)
    if job.gone_at is not None:
        return max(job.gone_at, one.since)
    return one.now if job.stage == "waiting" and one.polls() else None


def _gpus_are_left(one: Followed) -> bool:
    """Whether no process holds memory on any GPU of the run any more: they are read every half minute."""
    run = one.run
    nodes = [one.state.nodes.get(name) for name in run.spec.nodes] if run is not None else []
    if not nodes or not one.is_past(60.0):
        return False
    return all(
        node is not None and bool(node.gpus) and node.gpus_at is not None and node.gpus_at > one.since + 60.0
        and not any(gpu.processes for gpu in node.gpus)
        for node in nodes
    )  # fmt: skip
