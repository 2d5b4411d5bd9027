"""What of a State the dashboard keeps for its next start. Pure."""

from __future__ import annotations

from trainmon.analysis.disks import is_shared
from trainmon.lib import Seconds
from trainmon.model import Disk, LastSeen, Run, SeenDisk, SeenRun, State

SETTLES_WITHIN: Seconds = 60.0
"""After a start, every source has answered or failed by then, and attempts that ended before it are closed."""


def seen(state: State, before: LastSeen | None) -> LastSeen:
    """What this State shows. What is not known now stays as it was seen before."""
    earlier = before or LastSeen(at=0.0)
    runs = {name: seen_run(run, state) for name, run in state.runs.items() if run.verdict != "unknown"}
    disks = {
        disk_key(disk): SeenDisk(state=disk.state, free_bytes=disk.free_bytes, total_bytes=disk.total_bytes)
        for disk in state.disks.values()
    }
    kept = {name: run for name, run in earlier.runs.items() if name in state.runs}
    return LastSeen(at=state.at, runs=kept | runs, disks={**earlier.disks, **disks})


def seen_run(run: Run, state: State) -> SeenRun:
    """What is kept of one run."""
    job, current = state.jobs.get(run.job or ""), None if run.wandb is None else run.wandb.current
    return SeenRun(
        verdict=run.verdict,
        step=run.progress.step,
        job=run.job,
        restarts=0 if job is None else job.restarts or 0,
        attempt=None if current is None else current.path,
    )


def disk_key(disk: Disk) -> str:
    """One key for a disk that many hosts share: each start may read it on another host."""
    return f"{disk.cluster}:{disk.path}" if is_shared(disk) else disk.key


def is_settled(state: State) -> bool:
    """Whether every source has answered or failed since the start, every log was read, and the attempts that have ended
    are closed, so that what is missing is really gone and lost steps are known. A host answers before its files are
    read."""
    if state.at - state.started_at >= SETTLES_WITHIN:
        return True
    if any(run.spec.log is not None and run.log is None for run in state.runs.values()) or any(
        attempt.stage == "ending" for attempt in state.attempts.values()
    ):
        return False
    sources = [source for source in state.sources.values() if source.health != "off"]
    known = (one.answered_at is not None or one.error is not None or one.phase == "held" for one in sources)
    return bool(sources) and state.evaluated_at is not None and all(known)
