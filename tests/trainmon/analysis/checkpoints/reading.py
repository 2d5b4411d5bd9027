"""A directory of checkpoints → what the real probe lists → what that means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collectors.probe.files.checkpoints import Checkpoints as Probe
from tests.lab.checkpoints import Save, made
from trainmon.analysis.checkpoints import listing as checkpoints
from trainmon.model import DECODER, CheckpointListing, Checkpoints

NOW = 1_700_000_000.0


def listed(folder: Path, now: float = NOW) -> CheckpointListing:
    """What the probe says of a directory."""
    sense = Probe({"checkpoints": [str(folder)]}, wall=lambda: now)
    [line] = [line for _, look in sense.operations(True) for line in look()]
    reading = DECODER.decode(json.dumps({"v": 1, "t": now, **line}))
    assert isinstance(reading, CheckpointListing)
    return reading


def read(folder: Path, now: float = NOW, listing: CheckpointListing | None = None, **given: Any) -> Checkpoints:
    known: dict[str, Any] = {"host": "n1", "at": now, "is_running": True, "now": now, "skew": 0.0, "before": None}
    return checkpoints.read(listing or listed(folder, now), **{**known, **given})


def states(answer: Checkpoints) -> list[tuple[int | None, str]]:
    return [(one.step, one.state) for one in answer.list]


def two(folder: Path, save: Save) -> None:
    """Two whole ones, saved in a minute each, an hour apart; the last an hour ago."""
    made(folder, save, 500, at=NOW - 7200)
    made(folder, save, 1000, at=NOW - 3600)


def commit_of(save: Save) -> int:
    """How many operations it takes to be whole."""
    return next(index + 1 for index, one in enumerate(save(1)) if one.commits)


def problem(folder: Path, **given: Any) -> str | None:
    return read(folder, **given).problem
