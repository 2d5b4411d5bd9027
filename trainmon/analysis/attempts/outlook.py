"""What endangers an attempt that still runs, and what its cause would be if it ended now. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from trainmon.analysis.attempts.ending import broken, lost_gpus, progressed_until
from trainmon.analysis.attempts.logs import lines_of
from trainmon.analysis.causes import classify, stated
from trainmon.analysis.disks.capacity import is_on, lies_on, size_of
from trainmon.analysis.runs.loss import describe, wandb_trouble
from trainmon.lib import Instant, Seconds, duration, size
from trainmon.model import Attempt, CauseFacts, Classification, Disk, LogExcerpt, Outlook, Run, State

LOOK_EVERY: Seconds = 10.0
"""Nodes and disks are searched this often: a run may have a thousand of each."""

SOON: Seconds = 3_600.0
"""A disk that is full within this time endangers the next checkpoint."""

LIVING = frozenset({
    "healthy", "starting", "evaluating", "saving", "stalled", "hung", "data-stall", "diverged",
})  # fmt: skip
"""Verdicts of a run whose present state is known."""

STUCK = frozenset({"stalled", "hung", "data-stall"})


def with_outlook(seen: Attempt, before: Attempt | None, run: Run | None, state: State) -> Attempt:
    """The running attempt as it is seen now, with its outlook."""
    if run is None or run.verdict not in LIVING:
        return seen if before is None or before.outlook is None else replace(seen, outlook_at=state.at)
    is_recent = before is not None and state.at // LOOK_EVERY == before.outlook_at // LOOK_EVERY
    if before is not None and is_recent:
        return replace(seen, outlook=before.outlook, outlook_at=before.outlook_at)
    return replace(seen, outlook=outlook(seen, run, state), outlook_at=state.at)


def outlook(attempt: Attempt, run: Run, state: State) -> Outlook:
    """The first danger: a broken node, then what the run itself shows, then its disks."""
    return next(_dangers(attempt, run, state), Outlook())


def _dangers(attempt: Attempt, run: Run, state: State) -> Iterator[Outlook]:
    if run.kill is not None and run.kill.exists:
        yield Outlook(what="its kill switch is armed", cause=stated("kill-switch", "its kill switch is armed"))
    job = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}")
    if job is not None and job.preempted_at is not None:
        yield Outlook(what="is being preempted", cause=stated("preempted", f"Slurm is preempting job {job.id}"))
    for name in attempt.nodes:
        if what := _broken(name, max(attempt.started_at or 0.0, progressed_until(attempt, run, state.at)), state):
            yield Outlook(what=what, cause=stated("gpu-hardware", what))
        node = state.scheduler_nodes.get(name)
        if node is not None and node.state == "DOWN":
            yield Outlook(what=f"{name} is down", cause=stated("node-fail", f"{name}: Slurm says it is DOWN"))
    if run.verdict in STUCK:
        yield Outlook(what="hangs", since=run.progress.at, cause=_of_silence(run))
    elif run.verdict == "diverged":
        yield Outlook(what="its loss has diverged", cause=stated("diverged", run.why))
    elif (trouble := wandb_trouble(run)) is not None and trouble.state == "spike":
        yield Outlook(what="its loss has jumped", cause=stated("diverged", describe(trouble)))
    yield from _full_disks(run, state)
    if run.queued_behind:
        return  # the next job of its chain goes on
    if job is not None and job.ends_at is not None and run.eta_at is not None and job.ends_at < run.eta_at:
        early = f"job {job.id} ends {duration(run.eta_at - job.ends_at)} before the target step is reached at this pace"
        yield Outlook(what="its job ends before its target step", cause=stated("time-limit", early))


def _broken(name: str, since: Instant, state: State) -> str:
    """What is wrong with a GPU of a node, with its node."""
    history, node = state.node_histories.get(name), state.nodes.get(name)
    faults = () if history is None else history.faults
    xids = {one.code for one in broken(faults) if one.last_at >= since}
    if xids:
        return f"{name} reports Xid {', '.join(map(str, sorted(xids)))}"
    lost = lost_gpus(node, since)
    return f"{name} has lost {lost} {'GPU' if lost == 1 else 'GPUs'}" if lost else ""


def _of_silence(run: Run) -> Classification:
    """The cause that the log of a silent run states, if it states one."""
    text = "\n".join(lines_of(run.log, None if run.log is None else run.log.path, is_newest=True))
    found = classify(CauseFacts(log=(LogExcerpt(text=text, first_line=-(text.count("\n") + 1)),)))
    is_error = found.confidence == "high" and found.family not in ("none", "unknown")
    return found if is_error else stated("hang", run.why)


def _full_disks(run: Run, state: State) -> Iterator[Outlook]:
    """The disk of its checkpoints, if the next one that is saved there may not fit."""
    saved, soon = run.checkpoints, state.at + SOON
    if saved is None:
        return
    places = [one.checkpoints for one in state.runs.values() if one.checkpoints is not None]
    needed: dict[str, int] = {}
    for disk in state.disks.values():
        where = disk.mount or disk.path
        if not lies_on(saved.path, where) and not lies_on(saved.path, disk.path):
            continue
        if where not in needed:
            needed[where] = max((size_of(one) or 1 for one in places if lies_on(one.path, where)), default=1)
        is_full = (disk.left_bytes is not None and disk.left_bytes < needed[where]) or (disk.full_at or soon) < soon
        has_no_inodes = disk.left_inodes == 0 or (disk.inodes_full_at or soon) < soon
        if (is_full or has_no_inodes) and is_on(disk, saved.path, saved.host, state.disks):
            what = f"{where} is almost full" if is_full else f"{where} has hardly any inodes left"
            yield Outlook(what=what, cause=stated("disk-full" if is_full else "inodes-full", _left(disk)))


def _left(disk: Disk) -> str:
    inodes = "" if disk.left_inodes is None else f" and {disk.left_inodes:,} inodes"
    return f"{disk.mount or disk.path}: {size(disk.left_bytes or 0)}{inodes} left"
