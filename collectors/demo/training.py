"""A simulated training loop: it steps, logs, saves, reads its switches, crashes and restarts.

Its effects on files, job and W&B run are values. It writes a status file as trainmon_hooks does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Literal

import msgspec
from msgspec.structs import replace

from collectors.demo.stories import Trainer
from collectors.demo.trainers import LAYOUTS, LINES, Message, MetricGenerator, StepMetrics, message, tqdm_bar
from trainmon.analysis.runs.trainer import Moment, Status
from trainmon.lib import Instant, Seconds
from trainmon.model import Asked


class LogStarted(msgspec.Struct, frozen=True):
    """An attempt begins with a new log."""

    job: int


class SaveStarted(msgspec.Struct, frozen=True):
    step: int


class SaveFinished(msgspec.Struct, frozen=True):
    step: int


class CheckpointRemoved(msgspec.Struct, frozen=True):
    step: int


class SaveSwitchRemoved(msgspec.Struct, frozen=True):
    """The trainer removes the save switch before it saves, as IDEFICS does."""


class WasAsked(msgspec.Struct, frozen=True):
    """The training loop obeys: it saves, or saves and stops."""

    what: str
    by: str


class MetricsLogged(msgspec.Struct, frozen=True):
    """The trainer logs the metrics of a step to W&B."""

    metrics: StepMetrics


class Validated(msgspec.Struct, frozen=True):
    """The trainer validated the model and logged samples."""

    metrics: StepMetrics


class AttemptEnded(msgspec.Struct, frozen=True):
    """The attempt's processes have ended."""

    exit_code: int
    silent: bool = False
    """Whether the process could not finish its W&B run, so that only the heartbeat stops."""


Effect = (
    str
    | AttemptEnded
    | LogStarted
    | SaveStarted
    | SaveFinished
    | CheckpointRemoved
    | SaveSwitchRemoved
    | WasAsked
    | MetricsLogged
    | Validated
)
"""A text is appended to the current log."""

Phase = Literal["training", "saving", "hung", "down", "starting", "finished"]

RunFault = Literal["hang", "nan", "lost", "burst", "spike", "restart"]

RESTART_AFTER: Seconds = 8.0
"""The delay before the next attempt starts."""
START_TAKES: Seconds = 14.0
"""The time before the first step of an attempt: imports, NCCL, loading the checkpoint."""
SLOW_START_TAKES: Seconds = 32.0
"""The same for an attempt that recompiles. Its W&B run appears as late."""
KILL_SWITCH_EXIT: Seconds = 20.0
"""An array task that starts while the kill switch exists exits after this time."""
AGAIN_AFTER: Seconds = 90.0
"""The delay before a finished run is submitted again."""
KEEP = 3
"""The number of checkpoints that a run keeps: each new one removes the oldest."""
BURST_LINES = 1_000
"""Lines per second while a library floods the log with warnings."""


class SwitchFiles(msgspec.Struct, frozen=True):
    """Which switch files exist."""

    kill: bool = False
    save: bool = False


class TrainingLoop:
    """The training loop of one run. `advance` lets time pass and yields the effects."""

    def __init__(self, trainer: Trainer, seed: int) -> None:
        self.trainer = trainer
        self.generator = MetricGenerator(trainer, seed)
        self.phase: Phase = "training"
        self.step = trainer.first_step
        self.job = trainer.job
        self.attempt = 0
        """Counts the attempts since the demo began."""
        self.restarts = 0
        self.saved = [(self.step // trainer.save_every - back) * trainer.save_every for back in (2, 1, 0)]
        """The steps of the committed checkpoints, oldest first."""
        self._random = Random(f"{seed} {trainer.run.name}")
        self._remaining = self._random_step_time()
        """Seconds until the current phase or step ends."""
        self._is_exiting = False
        self._save_took = 0.0
        self._burst_lines = 0.0
        self._is_nan = False
        self._spike_age: int | None = None
        """Steps since a spike began."""
        self._is_slow_start = False
        self._signalled = False
        self._kill_request: tuple[str, Seconds] | None = None
        self.next_attempt: Callable[[Instant], tuple[int, int] | None] = lambda at: None
        """Asks the scheduler for the job number and the restart count of the attempt that starts now, if one does."""

    def kill(self, message: str, wait: Seconds) -> None:
        """Kill the attempt's processes with this message in the log. The next attempt starts after `wait`."""
        self._kill_request = (message, wait)

    def signal(self) -> None:
        """SIGUSR1: save a checkpoint after the current step."""
        self._signalled = self.phase in ("training", "saving")

    def backlog(self, now: Instant, steps: int) -> Iterator[Effect]:
        """The log of the last `steps` steps before the demo began. Their number does not change what comes after."""
        yield LogStarted(self.job)
        before = self._random.getstate()
        self.step -= steps
        for ago in reversed(range(steps)):
            self.step += 1
            at = now - ago * self.trainer.step_time
            yield self._line(self.generator.metrics(at, self.step, self._random_step_time()))
        self._random.setstate(before)

    def advance(self, dt: Seconds, now: Instant, switches: SwitchFiles, fault: RunFault | None) -> Iterator[Effect]:
        """Let dt seconds pass, which end at `now`."""
        if self._kill_request is not None:
            (message, wait), self._kill_request = self._kill_request, None
            if self.phase not in ("down", "finished"):
                self._is_exiting = self._signalled = False
                yield message
                yield from self._end("down", wait, 15, silent=True)
        yield from self._faults(dt, fault)
        while dt > 0 and self.phase != "hung":
            passed = min(dt, self._remaining)
            dt -= passed
            self._remaining -= passed
            if self._remaining <= 0:
                for effect in self._next_phase(now - dt, switches, fault):
                    yield effect
                    if isinstance(effect, SaveSwitchRemoved):
                        switches = SwitchFiles(kill=switches.kill)

    def _faults(self, dt: Seconds, fault: RunFault | None) -> Iterator[Effect]:
        """The effects of a fault as it begins, lasts and ends."""
        if fault == "burst":
            self._burst_lines += dt * BURST_LINES
            count, self._burst_lines = int(self._burst_lines), self._burst_lines % 1
            rank = self._random.randrange(self.trainer.gpus)
            text = "UserWarning: the given buffer is not writable, and PyTorch does not support non-writable tensors"
            yield "".join(f"[rank{(rank + n) % self.trainer.gpus}]: {text} ({n})\n" for n in range(count))
        if fault == "lost" and self.phase not in ("down", "finished"):
            yield from self._crash("torch.AcceleratorError: CUDA error: unspecified launch failure", silent=True)
        if fault == "hang" and self.phase == "training":
            self.phase = "hung"
        if fault != "hang" and self.phase == "hung":
            yield from self._crash(
                "[E] ProcessGroupNCCL: Watchdog caught collective operation timeout: ALLREDUCE", silent=True
            )
        if fault != "nan" and self._is_nan and self.phase == "training":
            yield from self._crash("ValueError: the loss is not finite: going back to the last checkpoint")
        if fault == "restart" and not self._is_slow_start and self.phase == "training":
            yield from self._crash("RuntimeError: DataLoader worker (pid 51423) is killed by signal: Killed.")
        self._is_slow_start = fault == "restart" and (self._is_slow_start or self.phase == "down")

    def _next_phase(self, at: Instant, switches: SwitchFiles, fault: RunFault | None) -> Iterator[Effect]:
        """End the current phase or step, and begin the next."""
        match self.phase:
            case "training":
                yield from self._finish_step(at, switches, fault)
            case "saving":
                yield from self._finish_save(at)
            case "starting":
                self._wait("training", self._random_step_time())
            case "finished":
                yield from (CheckpointRemoved(step) for step in self.saved)
                self.step, self.saved = 0, []
                self._wait("down", 0.0)
            case "down":
                yield from self._start(at, switches, held=fault == "lost")

    @property
    def _reached_target(self) -> bool:
        return self.trainer.run.target_step is not None and self.step >= self.trainer.run.target_step

    def _finish_step(self, at: Instant, switches: SwitchFiles, fault: RunFault | None) -> Iterator[Effect]:
        trainer = self.trainer
        self.step += 1
        self._remaining = self._random_step_time()
        self._is_nan = fault == "nan"
        self._spike_age = None if fault != "spike" else 0 if self._spike_age is None else self._spike_age + 1
        metrics = self.generator.metrics(
            at, self.step, self._remaining, attempt=self.attempt, spike_age=self._spike_age
        )
        if self._is_nan:
            metrics = metrics._replace(loss=math.nan, grad_norm=math.nan)
        yield self._line(metrics)
        if self.step % trainer.log_every == 0:
            yield MetricsLogged(metrics)
        if self.step % trainer.validate_every == 0 and not self._is_nan:
            yield Validated(metrics)
        if switches.kill:
            self._is_exiting = True
            yield from self._obey("stop", "the kill switch", "kill_switch", at)
        elif switches.save:
            yield from self._obey("save", "the save switch", "save_switch", at)
            yield SaveSwitchRemoved()
        is_scheduled = self.step % trainer.save_every == 0 and not self._is_nan
        must_save = switches.kill or switches.save or self._signalled or self._reached_target or is_scheduled
        if self._signalled:
            self._signalled = False
            yield from self._obey("save", "SIGUSR1 on rank 0", "signalled", at)
        if must_save:
            self._save_took = trainer.save_time * self._random.uniform(0.85, 1.2)
            self._wait("saving", self._save_took)
            yield message(self.trainer, "saving", at, step=self.step, path=self._checkpoint_path)
            yield SaveStarted(self.step)

    def _finish_save(self, at: Instant) -> Iterator[Effect]:
        yield SaveFinished(self.step)
        yield message(self.trainer, "saved", at, step=self.step, path=self._checkpoint_path, took=self._save_took)
        self.saved = [*(step for step in self.saved if step != self.step), self.step]
        while len(self.saved) > KEEP:
            yield CheckpointRemoved(self.saved.pop(0))
        if self._reached_target:
            yield message(self.trainer, "finished", at, step=self.step)
            yield from self._end("finished", AGAIN_AFTER, 0)
        elif self._is_exiting:
            yield from self._end("down", RESTART_AFTER, 0)
        else:
            self._wait("training", self._random_step_time())

    def _crash(self, message: str, *, silent: bool = False) -> Iterator[Effect]:
        """End the processes without a save."""
        rank, nodes = self._random.randrange(self.trainer.gpus), self.trainer.run.nodes
        yield (
            f"\n[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: {message}\n"
            f"srun: error: {nodes[rank * len(nodes) // self.trainer.gpus]}: task {rank}: Exited with exit code 1\n"
        )
        yield from self._end("down", RESTART_AFTER, 1, silent=silent)

    def _end(self, phase: Phase, wait: Seconds, exit_code: int, *, silent: bool = False) -> Iterator[Effect]:
        """End the attempt's processes. An unfinished checkpoint stays torn."""
        self._is_nan = False
        self._wait(phase, wait)
        yield AttemptEnded(exit_code, silent)

    def _start(self, at: Instant, switches: SwitchFiles, *, held: bool) -> Iterator[Effect]:
        """Start the next attempt, unless its node is broken (`held`). The scheduler ignores the kill switch: with it,
        each attempt starts and exits at once."""
        start = None if held else self.next_attempt(at)
        if start is None:
            self._wait("down", 1.0)
            return
        self.job, self.restarts = start
        self.attempt += 1
        self._is_exiting = False
        yield LogStarted(self.job)
        if switches.kill:
            yield from self._obey("stop", "the kill switch", "kill_switch", at)
            yield from self._end("down", KILL_SWITCH_EXIT, 0)
            return
        self.step = self.saved[-1] if self.saved else 0
        yield message(self.trainer, "started", at, step=self.step, job=self.job, restarts=self.restarts)
        self._wait("starting", SLOW_START_TAKES if self._is_slow_start else START_TAKES)

    def _obey(self, what: str, by: str, kind: Message, at: Instant) -> Iterator[Effect]:
        yield WasAsked(what, by)
        yield message(self.trainer, kind, at, path=self.trainer.run.kill_switch or "")

    def _wait(self, phase: Phase, seconds: Seconds) -> None:
        self.phase, self._remaining = phase, seconds

    def _random_step_time(self) -> Seconds:
        return self.trainer.step_time * self._random.uniform(0.97, 1.05)

    def _line(self, metrics: StepMetrics) -> str:
        if metrics.step % self.trainer.log_every == 0:
            return LINES[self.trainer.format](self.trainer, metrics)
        return tqdm_bar(self.trainer, metrics) if self.trainer.format == "hf" else ""

    @property
    def _checkpoint_path(self) -> str:
        return f"{self.trainer.run.checkpoints}/{LAYOUTS[self.trainer.format].folder.format(self.step)}"


SIGNALS = {"SIGUSR1": "save"}
"""The scripts of the demo have Slurm send it before the time limit. SIGTERM ends these trainers."""


class StatusFile:
    """Follows the effects of a loop, and writes the file when it would say something else."""

    def __init__(self, path: Path, kill: str | None, save: str | None) -> None:
        self._path = path
        self._fresh = self._now = Status(at=0.0, phase="starting", kill=kill, save=save, signals=SIGNALS)
        self._written: Status | None = None

    def apply(self, effect: Effect, loop: TrainingLoop, now: Instant) -> None:
        asked = self._now.asked
        match effect:
            case LogStarted(job):
                self._now = replace(self._fresh, job=str(job))
            case WasAsked(what, by):
                self._now = replace(self._now, asked=Asked(what, by, now, loop.step))
            case SaveFinished(step):
                self._now = replace(self._now, last_save=Moment(at=now, step=step))
            case AttemptEnded(0):
                is_stopped = asked is not None and asked.what == "stop"
                why = f"stop: {asked.by}" if asked is not None and is_stopped else "the training loop has ended"
                self._now = replace(self._now, ended=Moment(at=now, step=loop.step, why=why))

    def write(self, loop: TrainingLoop, now: Instant) -> None:
        """Write it if it has changed: after each step, and when the loop is asked, has saved or ends."""
        ended = self._now.ended
        phase = "ended" if ended is not None else loop.phase
        if phase in ("hung", "down", "finished"):  # a loop that hangs or was killed writes nothing
            return
        step = ended.step if ended is not None else None if phase == "starting" else loop.step
        status = replace(self._now, phase=phase, step=step)
        if status != self._written:
            self._written = status
            self._path.write_bytes(msgspec.json.encode(replace(status, at=now)))  # its reader runs in the same thread
            os.utime(self._path, (now, now))
