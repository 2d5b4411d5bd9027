"""Runs an operation of the probe and passes what it says through JSON and the real decoder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

from trainmon.model import probe_wire as readings


class Sense(Protocol):
    def operations(self, slow: bool) -> Iterable[tuple[str, Any]]: ...


def readings_of(sense: Sense, slow: bool = False) -> list[Any]:
    """What all operations of a sense have to say now, as decoded readings."""
    lines = [line for _, operation in sense.operations(slow) for line in operation() or ()]
    return [decoded(line) for line in lines]


def decoded(line: dict[str, Any]) -> Any:
    return readings.DECODER.decode(json.dumps({"v": 1, "t": 1.0, **line}))


class ManualClock:
    """A monotonic clock that a test advances."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at
