"""The files of one run in a local directory: logs, checkpoints and switches."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from collectors.demo.model.effects import (
    WANDB_EFFECTS,
    CheckpointRemoved,
    Effect,
    LogStarted,
    LogWritten,
    SaveFinished,
    SaveStarted,
    SaveSwitchRemoved,
)
from collectors.demo.model.inventory import Trainer
from collectors.demo.training.checkpoints import CheckpointDirectory
from collectors.demo.training.loop import SwitchFiles, TrainingLoop
from collectors.demo.training.status_file import StatusFile
from trainmon.lib import Instant, Seconds

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
            if isinstance(effect, LogWritten):
                text += effect.text
                continue
            if isinstance(effect, WANDB_EFFECTS):
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
