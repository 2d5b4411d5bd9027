"""What the sources say of a run `llm`, one after the other, and the attempts that follow from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from trainmon.engine.reducers.reduce import reduce
from trainmon.lib import Instant
from trainmon.model import (
    Attempt,
    CheckpointEntry,
    CheckpointListing,
    Cluster,
    ClustersChanged,
    Event,
    FileGroup,
    GpuFacts,
    GpuFactsAll,
    Job,
    JobsListed,
    LogChunk,
    NodeReading,
    RunsChanged,
    RunSpec,
    Source,
    SourceChanged,
    State,
    WandbPolled,
    WandbRun,
)

BEGIN: Instant = 1_700_000_000.0
STEP = " [2025-08-01 07:19:37] iteration {:8d}/    5000 | elapsed time per iteration (ms): 4100.0 | lm loss: 2.0E+00 |"
JOB = Job(
    cluster="prod", id="88", number=88, name="llm", user="ana", state="RUNNING", batch=True, gpus=2, restarts=0,
    nodes=("n1",), submitted_at=BEGIN - 60, started_at=BEGIN, stdout="/fsx/88.out", command="/fsx/train.sh --lr 1e-4",
)  # fmt: skip
SPEC = RunSpec(
    name="llm", cluster="prod", job="llm", checkpoints="/fsx/ckpt", model_family="reasoning", labels={"owner": "team-a"}
)


class Story:
    """The State after what was said; times are seconds after the start of job 88."""

    def __init__(self, spec: RunSpec = SPEC, *, watched_from: float = -100.0, slurm: bool = True) -> None:
        start = BEGIN + watched_from
        self.state = State(at=start, started_at=start)
        self.at(watched_from)
        self.say(
            ClustersChanged((Cluster(name="prod", login="login1", accounting=False, is_polled=slurm),)),
            RunsChanged((spec,)),
        )
        if slurm:
            self.queue(watched_from)

    def at(self, seconds: float) -> Story:
        self.now = BEGIN + seconds
        return self

    def say(self, *events: Event) -> Story:
        self.state = reduce(self.state, events, self.now)
        return self

    def queue(self, seconds: float, *jobs: Job) -> Story:
        """Slurm lists these jobs."""
        self.at(seconds)
        detailed = tuple(replace(job, detail_at=self.now) for job in jobs)
        source = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="up", answered_at=self.now, period=30.0)
        return self.say(SourceChanged(source), JobsListed("prod", self.now, detailed))

    def log(self, seconds: float, *lines: str, path: str = "/fsx/88.out", **more: Any) -> Story:
        """A host reads these new lines."""
        self.at(seconds)
        facts = {
            "v": 1,
            "t": self.now,
            "id": "llm",
            "path": path,
            "lines": lines,
            "seen": len(lines),
            "mtime": self.now,
        }
        return self.say(NodeReading("login1", "prod", self.now, LogChunk(**facts | more)))

    def steps(self, seconds: float, *steps: int, **more: Any) -> Story:
        return self.log(seconds, *map(STEP.format, steps), **more)

    def checkpoints(
        self,
        seconds: float,
        *steps: int,
        since: float | None = None,
        latest: int | None = None,
        each: Mapping[int, float] | None = None,
    ) -> Story:
        """Megatron has committed these, at `since`, or 8 seconds ago; if `latest` is named, the others a minute before
        that; or each at its own time. Its pointer names the last one."""
        self.at(seconds)
        at = self.now - 8 if since is None else BEGIN + since
        names = ("__#_#.distcp", ".metadata", "common.pt", "metadata.json")
        times = {step: at if latest in (None, step) else at - 60 for step in steps}
        times = {step: BEGIN + when for step, when in each.items()} if each else times
        groups = {step: tuple(FileGroup(name, 1, 9, when, when) for name in names) for step, when in times.items()}
        pointer = CheckpointEntry(
            "latest_checkpointed_iteration.txt", "file", mtime=at, text=str(latest or max(times, default=0)), bytes=4
        )
        entries = (
            *(CheckpointEntry(f"iter_{step:07d}", "dir", mtime=times[step], groups=groups[step]) for step in times),
            pointer,
        )
        return self.say(
            NodeReading("login1", "prod", self.now, CheckpointListing(1, self.now, "/fsx/ckpt", entries=entries))
        )

    def gpus(self, seconds: float, node: str = "n1", count: int = 2) -> Story:
        self.at(seconds)
        facts = tuple(GpuFacts(index, uuid=f"GPU-{node}-{index}") for index in range(count))
        return self.say(NodeReading(node, "prod", self.now, GpuFactsAll(1, self.now, facts, expected=count)))

    def wandb(self, seconds: float, *runs: WandbRun) -> Story:
        self.at(seconds)
        return self.say(WandbPolled("llm", self.now, runs))

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        return tuple(
            sorted(self.state.attempts.values(), key=lambda one: (one.started_at or one.seen_at, one.attempt_id))
        )

    @property
    def attempt(self) -> Attempt:
        (one,) = self.attempts
        return one


def ended(job: Job, seconds: float, state: str, exit_code: str = "0:0", **more: Any) -> Job:
    return replace(job, state=state, exit_code=exit_code, ends_at=BEGIN + seconds, **more)


def trained() -> Story:
    """Job 88 has trained to step 30, and has a checkpoint of step 20."""
    story = Story().gpus(-50).queue(10, JOB)
    return story.steps(20, 1, 2, 3).steps(22, 20).checkpoints(25, 10, 20).steps(30, 30).queue(40, JOB)


FAILED = ended(JOB, 50, "FAILED", "1:0")
DIED = ("Traceback (most recent call last):", "torch.OutOfMemoryError: CUDA out of memory.")
