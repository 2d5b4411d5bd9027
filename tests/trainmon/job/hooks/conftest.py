"""Hooks that the tests make and close, and a time that they set."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from trainmon.job import trainmon_hooks
from trainmon.job.trainmon_hooks import Hooks, Votes

Make = Callable[..., Hooks]


class Prompt(Hooks):
    """Hooks that look at files and write them at once instead of on a thread: for what a loop decides."""

    def _started(self, work: Callable[[], Any]) -> Thread:
        if work != self._serve:
            work()
        return Thread()

    def _write(self, is_news: bool = False) -> None:
        super()._write(is_news)
        self._catch_up(self._due)

    def _vote(self, loss: Any) -> Votes:
        if self.rank == 0:
            self._look()
        return super()._vote(loss)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes Hooks with both switches, which looks at them in each step. `kind=Hooks`: on its thread."""
    for name in ("RANK", "SLURM_PROCID", "SLURM_JOB_END_TIME", "SLURM_JOB_ID", "TORCHELASTIC_ERROR_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(trainmon_hooks, "LOOK_EVERY", 0.0)
    made: list[Hooks] = []

    def hooks(**settings: Any) -> Hooks:
        kind = settings.pop("kind", Prompt)
        made.append(kind(**{"kill": str(tmp_path / "kill"), "save": str(tmp_path / "save"), **settings}))
        return made[-1]

    yield hooks
    for one in made:
        one.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A time that the test sets."""
    clock = SimpleNamespace(now=1000.0)
    times = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1e9 + clock.now)
    monkeypatch.setattr(trainmon_hooks, "time", times)
    return clock


def status(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "kill.status").read_text())
