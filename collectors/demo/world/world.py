"""The demo's world: nodes, runs, shared disks and what goes wrong with them. Its only files are those of `Files`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random

from msgspec.structs import replace

from collectors.demo.model import history as past
from collectors.demo.model.effects import Effect, Ended
from collectors.demo.model.inventory import GPUS, NODES, TB, TRAINERS, Trainer, rooted
from collectors.demo.model.metrics import Course
from collectors.demo.slurm import initial_queue as lineup
from collectors.demo.slurm.jobs import Drain
from collectors.demo.stories import Act, Script
from collectors.demo.training.loop import Loop, Phase, Trouble
from collectors.demo.wandb import Server
from collectors.demo.world.files import Files
from collectors.demo.world.gpu import Job, Work
from collectors.demo.world.node import Node
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

TROUBLES: tuple[Trouble, ...] = ("hang", "nan", "burst", "spike", "restart")
"""Stories that hinder the run itself."""

BACKLOG = 60
"""Steps that are in the logs at the start: a screen full."""

FSX_TOTAL, FSX_OTHERS = 400 * TB, 231 * TB
FSX_A_DAY = 30 * TB
"""What other people write in a day; every night somebody clears it up."""
FSX_OURS, FSX_ALLOWED = 38 * TB, 80 * TB
"""What we use of it besides checkpoints, and may use."""
FILES_OURS, FILES_ALLOWED = 14_380_211, 40_000_000
HOME_TOTAL, HOME_USED = 50 * TB, 31 * TB
FSX_INODES, HOME_INODES = 1_200_000_000, 400_000_000
FILLED = 0.996
"""How full a disk becomes in its story. Not quite: on the last bytes everybody's job would die."""
FILLS_IN: Seconds = 80.0
DAY: Seconds = 86_400.0
LOST = f"gres/gpu count reported lower than configured ({GPUS - 1} < {GPUS})"
CLOCKS = (437.0, -95.0)
"""How far the clock of a node is off, in turn."""


class World:
    """Everything of the demo, at a moment. `advance` lets time pass."""

    def __init__(self, directory: Path, started: Instant, seed: int, script: Script) -> None:
        self.directory = directory
        self.elapsed: Seconds = 0.0
        self.script = script
        self.acts: tuple[Act, ...] = ()
        trainers = tuple(_placed(trainer, directory) for trainer in TRAINERS)
        courses = {trainer.run.name: Course(trainer, seed, past.bumps(trainer)) for trainer in trainers}
        self.loops = {trainer.run.name: Loop(trainer, seed, courses[trainer.run.name]) for trainer in trainers}
        self._files = {trainer.run.name: Files(trainer) for trainer in trainers}
        self._by_node = {node: trainer.run.name for trainer in trainers for node in trainer.run.nodes}
        self.nodes = {name: Node(name, started, [self._job(name)] * GPUS, seed) for name in NODES}
        self._random = Random(f"{seed} disks")
        self.book = lineup.book(self.loops, started)
        for name, loop in self.loops.items():
            loop.gate = partial(self.book.start, name)
            loop.restarts = next(entry.restarts for entry in self.book.of(name))
            self._files[name].begin(loop, started, BACKLOG)
        self.wandb = Server(self.loops, started)

    @property
    def runs(self) -> tuple[RunSpec, ...]:
        return tuple(loop.trainer.run for loop in self.loops.values())

    def advance(self, dt: Seconds, now: Instant) -> tuple[Act, ...]:
        """Let dt seconds pass, which end at `now`. Returns the acts that begin with it."""
        self.elapsed += dt
        before, self.acts = self.acts, self.script.acts(self.elapsed)
        begun = tuple(act for act in self.acts if act not in before)
        ended = tuple(act for act in before if act not in self.acts)
        for act in ended:
            self._apply(act, now, ends=True)
        for act in begun:
            self._apply(act, now, ends=False)
        for name, loop in self.loops.items():
            files = self._files[name]
            effects = loop.advance(dt, now, files.armed(), self._trouble(name))
            files.apply(self._told(name, effects), loop, now)
        self.book.barred = frozenset(name for name, files in self._files.items() if files.armed().kill)
        self.book.advance(now)
        while self.book.moves:
            self._move(*self.book.moves.pop())
        for group in self.wandb.groups.values():
            group.advance(now)
        return begun

    def _told(self, run: str, effects: Iterable[Effect]) -> Iterator[Effect]:
        """The scheduler sees an attempt end, and W&B what it is told."""
        for effect in effects:
            self.wandb.groups[run].told(effect)
            if isinstance(effect, Ended):
                self.book.ended(run, effect.exit_code)
            yield effect

    def _move(self, run: str, nodes: tuple[str, ...]) -> None:
        """A run has started on other nodes; what it left is a spare."""
        loop = self.loops[run]
        left = set(loop.trainer.run.nodes) - set(nodes)
        loop.trainer = replace(loop.trainer, run=replace(loop.trainer.run, nodes=nodes))
        self._by_node = {node: name for name, other in self.loops.items() for node in other.trainer.run.nodes}
        self.book.spares = tuple(sorted((set(self.book.spares) | left) - set(nodes)))

    def look(self, name: str) -> Node:
        """A node as it is now."""
        node = self.nodes[name]
        job = self._job(name)
        for gpu in node.gpus:
            gpu.job = job
        node.advance(self.elapsed)
        return node

    def happens(self, story: str, node: str) -> bool:
        return any(act.story == story and act.node == node for act in self.acts)

    def shared_disks(self) -> tuple[DiskSample, DiskSample]:
        """/fsx, which the checkpoints fill and their removal frees, and /home."""
        checkpoints = self._saved()
        today = self.elapsed % DAY / DAY
        fsx = self._filled("/fsx", (FSX_OTHERS + checkpoints + today * FSX_A_DAY) / FSX_TOTAL)
        home = self._filled("/home", HOME_USED / HOME_TOTAL + 1e-5 * self._random.random())
        fsx_inodes = self._filled("/fsx", 0.61 + 0.03 * today)
        home_inodes = self._filled("/home", 0.34)
        return (
            _disk("/fsx", "lustre", FSX_TOTAL, fsx, FSX_INODES, fsx_inodes),
            _disk("/home", "nfs4", HOME_TOTAL, home, HOME_INODES, home_inodes),
        )

    def _saved(self) -> int:
        """Bytes of all checkpoints that are there."""
        return sum(
            (len(loop.saved) + (loop.phase == "saving")) * loop.trainer.checkpoint_bytes for loop in self.loops.values()
        )

    def quota(self) -> str:
        """What lfs prints of ours on /fsx, in KiB."""
        used, allowed = (FSX_OURS + self._saved()) // 1024, FSX_ALLOWED // 1024
        return f"/fsx {used} 0 {allowed} - {FILES_OURS} 0 {FILES_ALLOWED} -\n"

    def _filled(self, path: str, used: float) -> float:
        for act in self.acts:
            if act.story == "disk" and act.victim == path:
                used += (FILLED - used) * min(1.0, (self.elapsed - act.begins) / FILLS_IN)
        return used

    def _trouble(self, run: str) -> Trouble | None:
        """What hinders a run now; a dead GPU under it goes before all else."""
        found: Trouble | None = None
        for act in self.acts:
            if act.story in ("lost", "reboot") and self._by_node.get(act.node or "") == run:
                return "lost"
            if act.victim == run:
                found = next((trouble for trouble in TROUBLES if trouble == act.story), found)
        return found

    def _apply(self, act: Act, now: Instant, *, ends: bool) -> None:
        """The part of a story that changes a node itself, or W&B."""
        if act.node is None:
            self._apply_to_wandb(act, now, ends=ends)
            return
        node = self.nodes[act.node]
        match act.story:
            case "hot" if act.gpu is not None:
                node.gpus[act.gpu].is_hot = not ends
            case "lost" if act.gpu is not None and not ends:
                node.gpus[act.gpu].is_lost = True
                self.book.drains.setdefault(act.node, Drain(LOST, "slurm", now))
            case "reboot" if ends:
                node.reboot(now)
                for gpu in node.gpus:
                    gpu.is_lost = False
                drain = self.book.drains.get(act.node)
                if drain is not None and drain.by == "slurm":
                    del self.book.drains[act.node]
            case "clock":
                node.skew = 0.0 if ends else CLOCKS[int(act.begins // 600) % len(CLOCKS)]

    def _apply_to_wandb(self, act: Act, now: Instant, *, ends: bool) -> None:
        match act.story:
            case "wandb-down":
                self.wandb.is_down = not ends
            case "two-active" if ends:
                self.wandb.groups[act.victim].dismiss()
            case "two-active":
                self.wandb.groups[act.victim].invite(now)

    def _job(self, node: str) -> Job:
        run = self._by_node.get(node)
        if run is None:
            return Job()
        loop = self.loops[run]
        work, trainer = WORK[loop.phase], loop.trainer
        if work == "idle":
            return Job()
        return Job(work=work, memory_mib=trainer.memory_mib, user=trainer.user, command=trainer.command)


def _placed(trainer: Trainer, directory: Path) -> Trainer:
    return replace(trainer, run=rooted(trainer.run, directory))


def _disk(path: str, kind: str, total: int, used: float, inodes: int, inodes_used: float) -> DiskSample:
    return DiskSample(
        path=path,
        mount=path,
        filesystem=kind,
        read_only=False,
        total_bytes=total,
        free_bytes=int(total * (1 - used)),
        total_inodes=inodes,
        free_inodes=int(inodes * (1 - inodes_used)),
    )
