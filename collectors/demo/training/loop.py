"""One training loop: it steps, logs, saves, obeys its switches, fails and starts again. Pure: effects come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Literal

import msgspec

from collectors.demo.model.effects import (
    Effect,
    Ended,
    Logged,
    NewLog,
    Pruned,
    SaveBegan,
    SaveDone,
    SwitchTaken,
    Validated,
    Wrote,
)
from collectors.demo.model.inventory import Trainer
from collectors.demo.model.metrics import Course, Moment
from collectors.demo.training.log_lines import LINES
from trainmon.lib import Instant, Seconds

Phase = Literal["training", "saving", "hung", "down", "starting", "finished"]

Trouble = Literal["hang", "nan", "lost", "burst", "spike", "restart"]

RESTART_AFTER: Seconds = 8.0
"""Until the scheduler has started the next attempt."""
START_TAKES: Seconds = 14.0
"""Until the first step of an attempt: imports, NCCL, loading the checkpoint."""
LATE: Seconds = 32.0
"""The same for one that compiles anew: so late its W&B run appears."""
BURN: Seconds = 20.0
"""An element that starts under a kill switch needs this long to see it and to exit."""
AGAIN_AFTER: Seconds = 90.0
"""Until a finished run is queued anew."""
KEEP = 3
"""Checkpoints that a run keeps; older ones are removed as a new one is committed."""
BURST_LINES = 1_000
"""Lines a second while a library complains."""


class Start(msgspec.Struct, frozen=True):
    """The scheduler starts an attempt."""

    job: int
    restarts: int


class Armed(msgspec.Struct, frozen=True):
    """Which switch files are there."""

    kill: bool = False
    save: bool = False


class Loop:
    """The training loop of one run. `advance` lets time pass and says what it did."""

    def __init__(self, trainer: Trainer, seed: int, course: Course | None = None) -> None:
        self.trainer = trainer
        self.course = course or Course(trainer, seed)
        self.lines = LINES[trainer.format](trainer)
        self.phase: Phase = "training"
        self.step = trainer.first_step
        self.job = trainer.job
        self.attempt = 0
        """Counts the attempts since the demo began."""
        self.restarts = 0
        last = self.step - self.step % trainer.save_every
        self.saved = [last - back * trainer.save_every for back in (2, 1, 0)]
        """The steps of the committed checkpoints, oldest first."""
        self._random = Random(f"{seed} {trainer.run.name}")
        self._left = self._pace()
        self._ending = False
        self._save_took = 0.0
        self._complaints = 0.0
        self._poisoned = False
        self._spiked: int | None = None
        """Steps since a spike began."""
        self._is_late = False
        self._announced_kill = False
        self._signalled = False
        self._order: tuple[str, Seconds] | None = None
        self.gate: Callable[[Instant], Start | None] | None = None
        """Asked for the next attempt, where a scheduler starts them; without one they follow by themselves."""

    def end(self, words: str, wait: Seconds) -> None:
        """The scheduler ends the attempt: its processes are killed, and none starts before `wait` has passed."""
        self._order = (words, wait)

    def signal(self) -> None:
        """SIGUSR1: save a checkpoint after the step that is under way."""
        self._signalled = self.phase in ("training", "saving")

    def backlog(self, now: Instant, steps: int) -> Iterator[Effect]:
        """What was written before the demo began: the last `steps` steps."""
        yield NewLog(self.job)
        self.step -= steps
        text = []
        for ago in range(steps, 0, -1):
            self.step += 1
            at = now - (ago - 1) * self.trainer.step_time
            text.append(self._line(self.course.moment(at, self.step, self._pace())))
        yield Wrote("".join(text))

    def advance(self, dt: Seconds, now: Instant, armed: Armed, trouble: Trouble | None) -> Iterator[Effect]:
        """Let dt seconds pass, which end at `now`."""
        if self._order is not None:
            yield from self._ordered(*self._order)
        if trouble == "burst":
            yield from self._complain(dt)
        if trouble == "lost" and self.phase not in ("down", "finished"):
            yield from self._die(now, "torch.AcceleratorError: CUDA error: unspecified launch failure", silent=True)
        if trouble == "hang" and self.phase == "training":
            self.phase = "hung"
        if trouble != "hang" and self.phase == "hung":
            words = "[E] ProcessGroupNCCL: Watchdog caught collective operation timeout: ALLREDUCE"
            yield from self._die(now, words, silent=True)
        if trouble != "nan" and self._poisoned and self.phase == "training":
            yield from self._die(now, "ValueError: the loss is not finite: going back to the last checkpoint")
        if trouble == "restart" and not self._is_late and self.phase == "training":
            yield from self._die(now, "RuntimeError: DataLoader worker (pid 51423) is killed by signal: Killed.")
        self._is_late = trouble == "restart" and (self._is_late or self.phase == "down")
        while dt > 0 and self.phase != "hung":
            passed = min(dt, self._left)
            dt -= passed
            self._left -= passed
            if self._left <= 0:
                for effect in self._turn(now - dt, armed, trouble):
                    yield effect
                    if isinstance(effect, SwitchTaken):
                        armed = Armed(kill=armed.kill)

    def _turn(self, at: Instant, armed: Armed, trouble: Trouble | None) -> Iterator[Effect]:
        """What was under way is done; go on with what follows."""
        match self.phase:
            case "training":
                yield from self._stepped(at, armed, trouble)
            case "saving":
                yield from self._committed(at)
            case "starting":
                self.phase, self._left = "training", self._pace()
            case "finished":
                yield from (Pruned(step) for step in self.saved)
                self.step, self.saved = 0, []
                self._wait("down", 0.0)
            case "down":
                yield from self._start(at, armed, held=trouble == "lost")
            case "hung":
                self._left = 1.0

    def _stepped(self, at: Instant, armed: Armed, trouble: Trouble | None) -> Iterator[Effect]:
        self.step += 1
        self._left = self._pace()
        self._poisoned = trouble == "nan"
        self._spiked = None if trouble != "spike" else 0 if self._spiked is None else self._spiked + 1
        yield from self._told(self._moment(at))
        done = self.trainer.run.target_step is not None and self.step >= self.trainer.run.target_step
        if armed.kill:
            self._ending = True
            yield Wrote(self.lines.killed(at, self.trainer.run.kill_switch or ""))
            self._announced_kill = True
        elif armed.save:
            yield Wrote(self.lines.taken(at))
            yield SwitchTaken()
        signalled, self._signalled = self._signalled, False
        if signalled:
            yield Wrote(self.lines.signalled(at))
        if armed.kill or armed.save or signalled or done or self._saves_now():
            yield from self._save(at)

    def _told(self, moment: Moment) -> Iterator[Effect]:
        """A step is told: in the log, and in W&B."""
        yield Wrote(self._line(moment))
        if self.step % self.trainer.log_every == 0:
            yield Logged(moment)
        if self.step % self.trainer.validate_every == 0 and not self._poisoned:
            yield Validated(moment)

    def _saves_now(self) -> bool:
        return self.step % self.trainer.save_every == 0 and not self._poisoned

    def _save(self, at: Instant) -> Iterator[Effect]:
        self._save_took = self.trainer.save_time * self._random.uniform(0.85, 1.2)
        self._wait("saving", self._save_took)
        yield Wrote(self.lines.saving(at, self.step, self.path(self.step)))
        yield SaveBegan(self.step)

    def _committed(self, at: Instant) -> Iterator[Effect]:
        yield SaveDone(self.step)
        yield Wrote(self.lines.saved(at, self.step, self.path(self.step), self._save_took))
        self._save_took = 0.0
        self.saved = [step for step in self.saved if step != self.step] + [self.step]
        while len(self.saved) > KEEP:
            yield Pruned(self.saved.pop(0))
        if self.trainer.run.target_step is not None and self.step >= self.trainer.run.target_step:
            yield Wrote(self.lines.finished(at, self.step))
            self._wait("finished", AGAIN_AFTER)
            yield Ended(0)
        elif self._ending:
            self._wait("down", RESTART_AFTER)
            yield Ended(0)
        else:
            self.phase, self._left = "training", self._pace()

    def _die(self, at: Instant, words: str, *, silent: bool = False) -> Iterator[Effect]:
        """The process ends without saving; an unfinished checkpoint stays torn."""
        self._save_took, self._poisoned = 0.0, False
        rank = self._random.randrange(self.trainer.gpus)
        yield Wrote(f"\n[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: {words}\n")
        yield Wrote(f"srun: error: {self.trainer.run.nodes[-1]}: task {rank}: Exited with exit code 1\n")
        self._wait("down", RESTART_AFTER)
        yield Ended(1, silent)

    def _ordered(self, words: str, wait: Seconds) -> Iterator[Effect]:
        """The scheduler's own end: its words are the last in the log, and an unfinished checkpoint stays torn."""
        self._order = None
        if self.phase in ("down", "finished"):
            return
        self._save_took, self._poisoned, self._ending, self._signalled = 0.0, False, False, False
        yield Wrote(words)
        self._wait("down", wait)
        yield Ended(15, silent=True)

    def _start(self, at: Instant, armed: Armed, *, held: bool) -> Iterator[Effect]:
        """The next attempt begins, unless its node is broken or a kill switch stands in its way."""
        start = self._next(at, armed, held=held)
        if start is None:
            self._wait("down", 1.0)
            return
        self.job, self.restarts, self.attempt = start.job, start.restarts, self.attempt + 1
        self._ending = False
        yield NewLog(self.job)
        if armed.kill:
            self._announced_kill = True
            yield Wrote(self.lines.killed(at, self.trainer.run.kill_switch or ""))
            self._wait("down", RESTART_AFTER if self.gate is None else BURN)
            yield Ended(0)
            return
        self._announced_kill = False
        self.step = self.saved[-1] if self.saved else 0
        yield Wrote(self.lines.started(at, self.step, self.job, self.restarts))
        self._wait("starting", LATE if self._is_late else START_TAKES)

    def _next(self, at: Instant, armed: Armed, *, held: bool) -> Start | None:
        """The attempt that begins now. A scheduler starts one after another, switch or not: they burn."""
        if held:
            return None
        if self.gate is not None:
            return self.gate(at)
        return None if armed.kill and self._announced_kill else Start(self.job + 1, self.restarts + 1)

    def _complain(self, dt: Seconds) -> Iterator[Effect]:
        self._complaints += dt * BURST_LINES
        count, self._complaints = int(self._complaints), self._complaints % 1
        rank = self._random.randrange(self.trainer.gpus)
        words = "UserWarning: the given buffer is not writable, and PyTorch does not support non-writable tensors"
        yield Wrote("".join(f"[rank{(rank + n) % self.trainer.gpus}]: {words} ({n})\n" for n in range(count)))

    def _wait(self, phase: Phase, left: Seconds) -> None:
        self.phase, self._left = phase, left

    def _pace(self) -> Seconds:
        return self.trainer.step_time * self._random.uniform(0.97, 1.05)

    def _line(self, moment: Moment) -> str:
        logged = moment.step % self.trainer.log_every == 0
        return self.lines.step(moment) if logged else self.lines.between(moment)

    def _moment(self, at: Instant) -> Moment:
        moment = self.course.moment(at, self.step, self._left, attempt=self.attempt, spiked=self._spiked)
        return moment._replace(loss=None) if self._poisoned else moment

    def path(self, step: int) -> str:
        """Where the checkpoint of a step lies."""
        folder = self.trainer.run.checkpoints
        match self.trainer.format:
            case "megatron":
                return f"{folder}/iter_{step:07d}"
            case "torchtitan":
                return f"{folder}/step-{step}"
            case "hf":
                return f"{folder}/checkpoint-{step}"
            case "nanotron":
                return f"{folder}/{step}"
            case "kempnerforge":
                return f"{folder}/step_{step}"
