"""The status file of a simulated training loop, as trainmon_hooks writes it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
from msgspec.structs import replace

from collectors.demo.model.effects import AttemptEnded, Effect, LogStarted, SaveFinished, WasAsked
from collectors.demo.training.loop import Phase, TrainingLoop
from trainmon.analysis.runs.trainer import Moment, Status
from trainmon.lib import Instant
from trainmon.model import Asked

PHASES: dict[Phase, str] = {"training": "training", "saving": "saving", "starting": "starting"}
"""A loop that hangs or was killed writes nothing."""

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
        phase = "ended" if ended is not None else PHASES.get(loop.phase)
        if phase is None:
            return
        step = ended.step if ended is not None else None if phase == "starting" else loop.step
        status = replace(self._now, phase=phase, step=step)
        if status != self._written:
            self._written = status
            self._path.write_bytes(msgspec.json.encode(replace(status, at=now)))  # its reader runs in the same thread
            os.utime(self._path, (now, now))
