"""The demo's world: nodes, runs with their files, shared disks and the incidents that hit them.

Time is an argument. A GPU's power follows its work, its temperature follows the power with inertia, and its clock
follows the temperature.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Literal

import msgspec
from msgspec.structs import replace

from collectors.demo.slurm import DrainedNode, initial_queue
from collectors.demo.stories import GPUS, NODES, QUIET, READER, TB, TRAINERS, Incident, Schedule, Trainer, relocated
from collectors.demo.trainers import CheckpointDirectory
from collectors.demo.training import (
    AttemptEnded,
    CheckpointRemoved,
    Effect,
    LogStarted,
    Phase,
    RunFault,
    SaveFinished,
    SaveStarted,
    SaveSwitchRemoved,
    StatusFile,
    SwitchFiles,
    TrainingLoop,
)
from collectors.demo.wandb import WandbServer
from trainmon.lib import DAY, Instant, Seconds
from trainmon.model import (
    DiskSample,
    DiskSamples,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Hello,
    HostSample,
    InfinibandPort,
    Process,
    RankProcess,
    RankProcesses,
    RunSpec,
)

Work = Literal["idle", "training", "saving", "starting", "hung"]

LIMIT_W = 700.0
SLOWDOWN_C = 87
INLET_C = 27.0
DEGREES_PER_WATT = 0.056
INERTIA: Seconds = 22.0
"""The time constant: two thirds of a temperature change happen in this time."""
BLOCKED_FAN = 1.75
"""The factor by which a hot GPU cools worse."""

UTILIZATION: dict[Work, float] = {"idle": 0.0, "training": 98.5, "saving": 12.0, "starting": 20.0, "hung": 100.0}
POWER: dict[Work, float] = {"idle": 72.0, "training": 655.0, "saving": 190.0, "starting": 125.0, "hung": 148.0}
"""A stuck collective shows 100% utilization at low power: this distinguishes a hang from training."""

CAUGHT = 1 << (10 - 1) | 1 << (15 - 1)
"""The signals that a trainer handles: USR1, for an emergency checkpoint, and TERM."""

IDLE, POWER_CAP, HW_SLOWDOWN, HW_THERMAL = 0x1, 0x4, 0x8, 0x40

MEMORY_MIB = 2_063_937
PORTS = tuple(InfinibandPort(f"mlx5_{n}/1", "ACTIVE", 0, 0, "400 Gb/sec (4X NDR)", "InfiniBand") for n in range(8))


class Workload(msgspec.Struct, frozen=True):
    """The work and the process on a GPU."""

    work: Work = "idle"
    memory_mib: int = 0
    user: str = ""
    command: str = ""


class Gpu:
    """A GPU. `advance` lets time pass; `sample` and `facts` are the readings of its driver."""

    def __init__(self, node: int, index: int, workload: Workload, random: Random) -> None:
        self.index = index
        self.workload = workload
        self.is_hot = False
        self.is_lost = False
        self.pid = 20_000 + 137 * node + 3 * index
        self._random = random
        self._offset = random.uniform(-2.5, 2.5)
        self._uuid = f"GPU-{random.getrandbits(32):08x}-{random.getrandbits(16):04x}-{random.getrandbits(48):012x}"
        self._corrected = random.choice((0, 0, 0, 0, 0, 0, 1, 3))
        self._power = POWER[workload.work]
        self._temperature = self._target_temperature()
        self._clock = 1980
        self._mask = 0

    def advance(self, dt: Seconds) -> None:
        throttled = self._temperature >= SLOWDOWN_C - 0.5
        share = 0.8 if throttled and self.workload.work == "training" else 1.0
        self._power = min(LIMIT_W - 2.0, POWER[self.workload.work] * (1.0 + self._random.gauss(0.0, 0.012)) * share)
        difference = self._target_temperature() - self._temperature
        self._temperature = min(96.0, self._temperature + difference * (1.0 - math.exp(-dt / INERTIA)))
        if self.workload.work == "idle":
            self._clock, self._mask = 345, IDLE
        elif throttled:
            self._clock, self._mask = 1095 + 15 * self._random.randrange(8), HW_SLOWDOWN | HW_THERMAL
        elif self._power > 0.95 * LIMIT_W:
            self._clock, self._mask = 1905 + 15 * self._random.randrange(5), POWER_CAP
        else:
            self._clock, self._mask = 1980, 0

    def _target_temperature(self) -> float:
        fan, extra = (BLOCKED_FAN, 30.0) if self.is_hot else (1.0, 0.0)
        return INLET_C + self._offset + extra + self._power * (DEGREES_PER_WATT * fan)

    def sample(self) -> GpuSample:
        if self.is_lost:
            return GpuSample(index=self.index, lost=True, error="GPU is lost")
        mean = UTILIZATION[self.workload.work]
        utilization = mean + self._random.gauss(0.0, 0.0 if mean in (0.0, 100.0) else 1.5)
        memory = self.workload.memory_mib
        if memory and self.workload.work not in ("idle", "hung"):
            memory += self._random.randrange(-48, 49, 2)
        return GpuSample(
            index=self.index,
            temperature_c=round(self._temperature),
            memory_temperature_c=round(self._temperature * 1.04 + 8),
            memory_used_mib=memory or 4,
            utilization_pct=min(100, max(0, round(utilization))),
            power_w=round(self._power, 1),
            sm_clock_mhz=self._clock,
            throttle_mask=self._mask,
        )

    def facts(self) -> GpuFacts:
        process = Process(
            pid=self.pid,
            user=self.workload.user,
            memory_mib=self.workload.memory_mib - 12,
            command=self.workload.command,
            caught=CAUGHT,
            environment={"SLURM_TASK_PID": str(self.pid)},
        )
        return GpuFacts(
            index=self.index,
            uuid=self._uuid,
            name="NVIDIA H100 80GB HBM3",
            memory_total_mib=81_559,
            power_limit_w=LIMIT_W,
            temperature_margin_c=max(0, SLOWDOWN_C - round(self._temperature)),
            mig=False,
            ecc_uncorrected=0,
            ecc_corrected=self._corrected,
            remap_pending=False,
            remap_failed=False,
            processes=(process,) if self.workload.command else (),
        )


class Node:
    """A node. Its GPUs advance only when they are read, so an unread node costs nothing."""

    def __init__(self, name: str, started: Instant, workloads: Iterable[Workload], seed: int, elapsed: Seconds) -> None:
        self.name = name
        self.skew: Seconds = 0.0
        """The node's clock minus ours."""
        self._random = Random(f"{seed} {name}")
        self._drift = self._random.uniform(-0.03, 0.03)
        self.boot_time = started - self._random.uniform(3, 90) * DAY
        number = int(name.rpartition("-")[2])
        self.gpus = tuple(Gpu(number, index, workload, self._random) for index, workload in enumerate(workloads))
        self._advanced = elapsed
        self._errors = self._random.randrange(4)

    def clock(self, now: Instant) -> Instant:
        """The node's own clock."""
        return now + self.skew + self._drift

    def advance(self, elapsed: Seconds, workload: Workload) -> None:
        dt, self._advanced = elapsed - self._advanced, elapsed
        for gpu in self.gpus:
            gpu.workload = workload
            if dt > 0:
                gpu.advance(dt)

    def hello(self, now: Instant) -> Hello:
        return Hello(
            v=1,
            t=self.clock(now),
            host=self.name,
            python="3.10.12",
            probe="nvml",
            driver="570.124.06",
            boot_time=self.boot_time + self.skew,
            cpu_count=112,
            memory_total_mib=MEMORY_MIB,
        )

    def samples(self, now: Instant) -> GpuSamples:
        return GpuSamples(v=1, t=self.clock(now), g=tuple(gpu.sample() for gpu in self.gpus))

    def facts(self, now: Instant) -> GpuFactsAll:
        found = tuple(gpu.facts() for gpu in self.gpus if not gpu.is_lost)
        return GpuFactsAll(v=1, t=self.clock(now), g=found, expected=GPUS)

    def host(self, now: Instant) -> HostSample:
        busy = sum(gpu.workload.work != "idle" for gpu in self.gpus)
        if self._random.random() < 0.002:
            self._errors += 1
        return HostSample(
            v=1,
            t=self.clock(now),
            load1=round(0.3 + busy * self._random.uniform(2.1, 2.6), 2),
            memory_used_mib=21_000 + busy * 61_000 + self._random.randrange(900),
            memory_total_mib=MEMORY_MIB,
            boot_time=self.boot_time + self.skew,
            oom_kills=0,
            network_errors=self._errors,
            infiniband=PORTS,
        )

    def disks(self, now: Instant, shared: Iterable[DiskSample]) -> DiskSamples:
        """Its own /tmp, and on the reader node the shared disks."""
        used = 0.11 + 0.05 * (self.boot_time % 7) / 7
        local = DiskSample(
            path="/tmp",
            mount="/",
            filesystem="ext4",
            read_only=False,
            total_bytes=TB * 7 // 4,
            free_bytes=int(TB * 7 / 4 * (1 - used)),
            total_inodes=109_051_904,
            free_inodes=108_400_217,
        )
        return DiskSamples(v=1, t=self.clock(now), d=(*(shared if self.name == READER else ()), local))


KEEP_LOGS = 3
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={trainer.run.name} --nodes={nodes} --gpus-per-node=8 --time=7-00:00:00
#SBATCH --output=logs/%j_%x.out --signal=USR1@600
srun --kill-on-bad-exit=1 {trainer.command}
"""
WRITTEN_BEFORE: Seconds = 3 * 86_400.0
"""How long before the demo its configs and manifests were written."""
ROTATE_AT = 4_000_000
"""The size in bytes at which a log is rotated: a demo may run for weeks."""


class Files:
    """Applies the effects of a training loop to real files. Their times are the demo's, not the disk's."""

    def __init__(self, trainer: Trainer) -> None:
        run = trainer.run
        self.trainer = trainer
        self._logs = Path(run.log or "").parent
        self._log = self._logs / "none.out"
        self._kill = Path(run.kill_switch or "")
        self._save = Path(run.save_switch or "")
        self.checkpoints = CheckpointDirectory(Path(run.checkpoints or ""), trainer.format, trainer.checkpoint_bytes)
        self._status = StatusFile(Path(run.status), run.kill_switch, run.save_switch) if run.status else None
        self._logs.mkdir(parents=True, exist_ok=True)

    def begin(self, loop: TrainingLoop, now: Instant, backlog: int) -> None:
        """Write the files from before the demo began."""
        script = SCRIPT.format(trainer=self.trainer, nodes=len(self.trainer.run.nodes))
        Path(self.trainer.run.script or "").write_text(script)
        run, manifest = self.trainer.run, Path(self.trainer.run.data_manifest or "")
        Path(run.config or "").write_text(f"steps: {run.target_step}\nbatch: {self.trainer.batch}\n")
        manifest.parent.mkdir(exist_ok=True)
        manifest.write_text("".join(f"shard-{number:05}.tar\n" for number in range(400)))
        for path in (run.config or "", manifest):
            os.utime(path, (now - WRITTEN_BEFORE, now - WRITTEN_BEFORE))
        for step in loop.saved:
            at = now - (loop.step - step) * self.trainer.step_time
            self.checkpoints.begin(step, at - self.trainer.save_time)
            self.checkpoints.commit(step, at)
        self.apply(loop.backlog(now, backlog), loop, now)
        if self._status is not None:
            self._status.apply(SaveFinished(step), loop, at)

    def switches(self) -> SwitchFiles:
        return SwitchFiles(kill=self._kill.exists(), save=self._save.exists())

    def apply(self, effects: Iterable[Effect], loop: TrainingLoop, now: Instant) -> None:
        text = ""
        for effect in effects:
            if isinstance(effect, str):
                text += effect
                continue
            self._append(text, now)
            text = ""
            if self._status is not None:
                self._status.apply(effect, loop, now)
            match effect:
                case LogStarted(job):  # a requeued job truncates its log, as in a real Slurm
                    self._log = self._logs / f"{job}_{self.trainer.run.name}.out"
                    self._log.write_bytes(b"")
                    for old in sorted(self._logs.glob("*.out*"))[:-KEEP_LOGS]:
                        old.unlink(missing_ok=True)
                    self.checkpoints.sweep(loop.saved)
                case SaveStarted(step):
                    self.checkpoints.begin(step, now)
                case SaveFinished(step):
                    self.checkpoints.commit(step, now)
                case CheckpointRemoved(step):
                    self.checkpoints.prune(step)
                case SaveSwitchRemoved():
                    self._save.unlink(missing_ok=True)
        self._append(text, now)
        if self._status is not None:
            self._status.write(loop, now)

    def _append(self, text: str, now: Instant) -> None:
        if not text:
            return
        with self._log.open("a", encoding="utf-8", newline="") as log:
            log.write(text)
        os.utime(self._log, (now, now))
        if self._log.stat().st_size > ROTATE_AT:
            self._log.replace(self._log.with_suffix(".out.1"))
            self._log.touch()


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
LOST = f"gres/gpu count reported lower than configured ({GPUS - 1} < {GPUS})"
CLOCKS = (437.0, -95.0)
"""The clock offsets of the stories in seconds, in turn."""


class World:
    """The state of the whole demo. `advance` lets time pass."""

    def __init__(self, directory: Path, started: Instant, seed: int, schedule: Schedule) -> None:
        self.directory = directory
        self.elapsed: Seconds = -schedule.lead
        self.schedule = schedule
        self.incidents: tuple[Incident, ...] = ()
        trainers = tuple(replace(trainer, run=relocated(trainer.run, directory)) for trainer in TRAINERS)
        self.loops = {trainer.run.name: TrainingLoop(trainer, seed) for trainer in trainers}
        self._files = {trainer.run.name: Files(trainer) for trainer in trainers}
        self.nodes = {name: Node(name, started, [self._workload(name)] * GPUS, seed, self.elapsed) for name in NODES}
        self._random = Random(f"{seed} disks")
        self.queue = initial_queue(self.loops, started)
        for name, loop in self.loops.items():
            loop.next_attempt = partial(self.queue.start, name)
            loop.restarts = next(job.restarts for job in self.queue.of(name))
            self._files[name].begin(loop, started, BACKLOG)
        self.wandb = WandbServer(self.loops, started)

    @property
    def told(self) -> str:
        """What a person is told now: the newest story."""
        return max(self.incidents, key=lambda incident: incident.begins).told if self.incidents else QUIET

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

    def ranks(self, name: str, now: Instant) -> RankProcesses:
        """The ranks on a node: tasks of Slurm, one for each GPU."""
        node = self.nodes[name]
        names = [one.trainer.run.name for one in self.loops.values() if name in one.trainer.run.nodes]
        jobs = [job for run in names if (job := self.queue.running(run)) is not None]
        found = tuple(
            RankProcess(
                pid=gpu.pid,
                started_s=max(0.0, (job.started_at or now) - node.boot_time),
                workers=(),
                launcher="slurm",
                rank=job.nodes.index(name) * GPUS + gpu.index,
                ranks=len(job.nodes) * GPUS,
                local_rank=gpu.index,
                job=job.number,
            )
            for job in jobs
            for gpu in node.gpus
            if gpu.workload.command
        )
        return RankProcesses(1, node.clock(now), found, next((job.user for job in jobs), ""), host_pids=True)

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
