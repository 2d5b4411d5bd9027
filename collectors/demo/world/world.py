"""The demo's world: nodes, runs, shared disks and the incidents that hit them. Only `Files` touches the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from msgspec.structs import replace

from collectors.demo.model.effects import AttemptEnded, Effect
from collectors.demo.model.inventory import GPUS, NODES, TB, TRAINERS, relocated
from collectors.demo.model.metrics import MetricGenerator, loss_jumps
from collectors.demo.slurm.initial_queue import initial_queue
from collectors.demo.slurm.jobs import DrainedNode
from collectors.demo.stories import Incident, Schedule
from collectors.demo.training.loop import Phase, RunFault, TrainingLoop
from collectors.demo.wandb import WandbServer
from collectors.demo.world.files import Files
from collectors.demo.world.node import Node, Work, Workload
from trainmon.lib import Instant, Seconds
from trainmon.model import DiskSample, RunSpec

WORK: dict[Phase, Work] = {
    "training": "training",
    "saving": "saving",
    "hung": "hung",
    "starting": "starting",
    "down": "idle",
    "finished": "idle",
}

RUN_FAULTS: tuple[RunFault, ...] = ("hang", "nan", "burst", "spike", "restart")
"""Stories that make the run itself fail or behave badly."""

BACKLOG = 100
"""The number of steps in the logs at the start: a full screen, and enough for the usual band of the loss."""

FSX_TOTAL, FSX_OTHERS = 400 * TB, 231 * TB
FSX_A_DAY = 30 * TB
"""The bytes that other users write in a day. They delete them every night."""
FSX_OURS, FSX_ALLOWED = 38 * TB, 80 * TB
"""Our usage besides checkpoints, and our quota."""
FILES_OURS, FILES_ALLOWED = 14_380_211, 40_000_000
HOME_TOTAL, HOME_USED = 50 * TB, 31 * TB
FSX_INODES, HOME_INODES = 1_200_000_000, 400_000_000
FILLED = 0.996
"""The fill level of a disk at the end of its story. Not 1: on a full disk every job would fail."""
FILLS_IN: Seconds = 80.0
DAY: Seconds = 86_400.0
LOST = f"gres/gpu count reported lower than configured ({GPUS - 1} < {GPUS})"
CLOCKS = (437.0, -95.0)
"""The clock offsets of the stories in seconds, in turn."""


class World:
    """The state of the whole demo. `advance` lets time pass."""

    def __init__(self, directory: Path, started: Instant, seed: int, schedule: Schedule) -> None:
        self.directory = directory
        self.elapsed: Seconds = 0.0
        self.schedule = schedule
        self.incidents: tuple[Incident, ...] = ()
        trainers = tuple(replace(trainer, run=relocated(trainer.run, directory)) for trainer in TRAINERS)
        generators = (MetricGenerator(trainer, seed, loss_jumps(trainer)) for trainer in trainers)
        loops = (TrainingLoop(generator.trainer, seed, generator) for generator in generators)
        self.loops = {loop.trainer.run.name: loop for loop in loops}
        self._files = {trainer.run.name: Files(trainer) for trainer in trainers}
        self.nodes = {name: Node(name, started, [self._workload(name)] * GPUS, seed) for name in NODES}
        self._random = Random(f"{seed} disks")
        self.queue = initial_queue(self.loops, started)
        for name, loop in self.loops.items():
            loop.next_attempt = partial(self.queue.start, name)
            loop.restarts = next(job.restarts for job in self.queue.of(name))
            self._files[name].begin(loop, started, BACKLOG)
        self.wandb = WandbServer(self.loops, started)

    @property
    def runs(self) -> tuple[RunSpec, ...]:
        return tuple(loop.trainer.run for loop in self.loops.values())

    def advance(self, dt: Seconds, now: Instant) -> tuple[Incident, ...]:
        """Let dt seconds pass, which end at `now`. Returns the incidents that begin."""
        self.elapsed += dt
        before, self.incidents = self.incidents, self.schedule.incidents(self.elapsed)
        started = tuple(incident for incident in self.incidents if incident not in before)
        for incident in before:
            if incident not in self.incidents:
                self._apply(incident, now, ends=True)
        for incident in started:
            self._apply(incident, now, ends=False)
        for name, loop in self.loops.items():
            files = self._files[name]
            effects = loop.advance(dt, now, files.switches(), self._fault(loop))
            files.apply(self._observed(name, effects), loop, now)
        self.queue.blocked = frozenset(name for name, files in self._files.items() if files.switches().kill)
        self.queue.advance(now)
        for group in self.wandb.groups.values():
            group.advance(now)
        return started

    def _observed(self, run: str, effects: Iterable[Effect]) -> Iterator[Effect]:
        """Pass the effects on: W&B logs them, and the scheduler sees the attempt end."""
        for effect in effects:
            self.wandb.groups[run].apply(effect)
            if isinstance(effect, AttemptEnded):
                self.queue.ended(run, effect.exit_code)
            yield effect

    def node(self, name: str) -> Node:
        """A node, advanced to now."""
        self.nodes[name].advance(self.elapsed, self._workload(name))
        return self.nodes[name]

    def is_active(self, story: str, node: str) -> bool:
        return any(incident.story == story and incident.node == node for incident in self.incidents)

    def shared_disks(self) -> tuple[DiskSample, DiskSample]:
        """/fsx, which the checkpoints fill and their removal frees, and /home."""
        today = self.elapsed % DAY / DAY
        fsx = (FSX_OTHERS + self._checkpoint_bytes() + today * FSX_A_DAY) / FSX_TOTAL
        home = HOME_USED / HOME_TOTAL + 1e-5 * self._random.random()
        return (
            self._disk("/fsx", "lustre", FSX_TOTAL, fsx, FSX_INODES, 0.61 + 0.03 * today),
            self._disk("/home", "nfs4", HOME_TOTAL, home, HOME_INODES, 0.34),
        )

    def _disk(self, path: str, kind: str, total: int, used: float, inodes: int, inodes_used: float) -> DiskSample:
        for incident in self.incidents:
            if incident.story == "disk" and incident.victim == path:
                filled = min(1.0, (self.elapsed - incident.begins) / FILLS_IN)
                used += (FILLED - used) * filled
                inodes_used += (FILLED - inodes_used) * filled
        return DiskSample(
            path=path,
            mount=f"{self.directory}{path}",
            filesystem=kind,
            read_only=False,
            total_bytes=total,
            free_bytes=int(total * (1 - used)),
            total_inodes=inodes,
            free_inodes=int(inodes * (1 - inodes_used)),
        )

    def _checkpoint_bytes(self) -> int:
        return sum(
            (len(loop.saved) + (loop.phase == "saving")) * loop.trainer.checkpoint_bytes for loop in self.loops.values()
        )

    def quota(self) -> str:
        """The output of `lfs quota` for our user on /fsx, in KiB."""
        used, allowed = (FSX_OURS + self._checkpoint_bytes()) // 1024, FSX_ALLOWED // 1024
        return f"/fsx {used} 0 {allowed} - {FILES_OURS} 0 {FILES_ALLOWED} -\n"

    def _fault(self, loop: TrainingLoop) -> RunFault | None:
        """The fault of a run now. A lost GPU goes before all others."""
        run = loop.trainer.run
        if any(incident.story in ("lost", "reboot") and incident.node in run.nodes for incident in self.incidents):
            return "lost"
        stories = [incident.story for incident in self.incidents if incident.victim == run.name]
        return next((fault for fault in RUN_FAULTS if fault in stories), None)

    def _apply(self, incident: Incident, now: Instant, *, ends: bool) -> None:
        """Change the node or the W&B group that an incident hits."""
        if incident.node is None:
            match incident.story:
                case "wandb-down":
                    self.wandb.is_down = not ends
                case "two-active" if ends:
                    self.wandb.groups[incident.victim].finish_guest()
                case "two-active":
                    self.wandb.groups[incident.victim].start_guest(now)
            return
        node = self.nodes[incident.node]
        match incident.story:
            case "hot" if incident.gpu is not None:
                node.gpus[incident.gpu].is_hot = not ends
            case "lost" if incident.gpu is not None and not ends:
                node.gpus[incident.gpu].is_lost = True
                self.queue.drains.setdefault(incident.node, DrainedNode(LOST, "slurm", now))
            case "reboot" if ends:
                node.boot_time = now
                for gpu in node.gpus:
                    gpu.is_lost = False
                if incident.node in self.queue.drains and self.queue.drains[incident.node].by == "slurm":
                    del self.queue.drains[incident.node]
            case "clock":
                node.skew = 0.0 if ends else CLOCKS[int(incident.begins // 600) % len(CLOCKS)]

    def _workload(self, node: str) -> Workload:
        loop = next((loop for loop in self.loops.values() if node in loop.trainer.run.nodes), None)
        work = WORK[loop.phase] if loop is not None else "idle"
        if loop is None or work == "idle":
            return Workload()
        trainer = loop.trainer
        return Workload(work=work, memory_mib=trainer.memory_mib, user=trainer.user, command=trainer.command)
