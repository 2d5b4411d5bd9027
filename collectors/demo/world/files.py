"""The files of one run of the demo, in a directory of this machine: its logs, checkpoints and switches."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from collectors.demo.model.effects import TO_WANDB, Effect, NewLog, Pruned, SaveBegan, SaveDone, SwitchTaken, Wrote
from collectors.demo.model.inventory import Trainer
from collectors.demo.training.checkpoints import Shelf
from collectors.demo.training.loop import Armed, Loop
from trainmon.lib import Instant

KEEP_LOGS = 3
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={trainer.run.name} --nodes={nodes} --gpus-per-node=8 --time=7-00:00:00
#SBATCH --output=logs/%j_%x.out --signal=USR1@600
srun --kill-on-bad-exit=1 {trainer.command}
"""
ROTATE_AT = 4_000_000
"""Bytes of a log after which it is moved away, as logrotate does: a demo may run for weeks."""


class Files:
    """What a training loop does, done to real files. Times on them are the demo's, not the disk's."""

    def __init__(self, trainer: Trainer) -> None:
        run = trainer.run
        self.trainer = trainer
        self._logs = Path(run.log or "").parent
        self._log = self._logs / "none.out"
        self._kill = Path(run.kill_switch or "")
        self._save = Path(run.save_switch or "")
        self.shelf = Shelf(Path(run.checkpoints or ""), trainer.format)
        self._logs.mkdir(parents=True, exist_ok=True)

    def begin(self, loop: Loop, now: Instant, backlog: int) -> None:
        """Everything that was there before the demo began."""
        Path(self.trainer.run.script or "").write_text(
            SCRIPT.format(trainer=self.trainer, nodes=len(self.trainer.run.nodes))
        )
        for step in loop.saved:
            at = now - (loop.step - step) * self.trainer.step_time
            self.shelf.begin(step, at - self.trainer.save_time)
            self.shelf.commit(step, at)
        self.apply(loop.backlog(now, backlog), loop, now)

    def armed(self) -> Armed:
        return Armed(kill=self._kill.exists(), save=self._save.exists())

    def apply(self, effects: Iterable[Effect], loop: Loop, now: Instant) -> None:
        texts = []
        for effect in effects:
            if isinstance(effect, Wrote):
                texts.append(effect.text)
                continue
            if isinstance(effect, TO_WANDB):
                continue
            self._append("".join(texts), now)
            texts.clear()
            self._do(effect, loop, now)
        self._append("".join(texts), now)

    def _do(self, effect: Effect, loop: Loop, now: Instant) -> None:
        match effect:
            case NewLog(job):
                self._open(job)
                self.shelf.sweep(loop.saved)
            case SaveBegan(step):
                self.shelf.begin(step, now)
            case SaveDone(step):
                self.shelf.commit(step, now)
            case Pruned(step):
                self.shelf.prune(step)
            case SwitchTaken():
                self._save.unlink(missing_ok=True)

    def _open(self, job: int) -> None:
        """A new log; the oldest ones go. A requeued job begins its own anew, as a real Slurm does."""
        self._log = self._logs / f"{job}_{self.trainer.run.name}.out"
        self._log.write_bytes(b"")
        for old in sorted(self._logs.glob("*.out*"))[:-KEEP_LOGS]:
            old.unlink(missing_ok=True)

    def _append(self, text: str, now: Instant) -> None:
        if not text:
            return
        with self._log.open("a", encoding="utf-8", newline="") as log:
            log.write(text)
            full = log.tell() > ROTATE_AT
        os.utime(self._log, (now, now))
        if full:
            self._log.replace(self._log.with_suffix(".out.1"))
            self._log.touch()
