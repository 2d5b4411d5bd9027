"""A Backend that stands still: one State, and an hour of waves as its history."""

from __future__ import annotations

import math
from collections.abc import Callable

from trainmon.clock import Seconds
from trainmon.model import Series, State

TOPS = {"temperature": 70.0, "utilization": 90.0, "power": 650.0, "memory": 70_000.0}


class StillBackend:
    """Real values, no engine; it remembers what it was asked."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.asked: list[tuple[str, str]] = []

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        sink(self.state)
        return lambda: None

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        """A wave every ten minutes, with a gap of six minutes half an hour ago."""
        self.asked.append((subject, metric))
        if metric not in TOPS:
            return Series((), ())
        offsets = tuple(float(at) for at in range(-3_000, 1, 10) if not -2_060 < at < -1_700)
        return Series(offsets, tuple(TOPS[metric] * (1 - 0.15 * math.sin(at / 100)) for at in offsets))

    def refresh(self) -> None:
        self.asked.append(("refresh", ""))

    def login(self, source: str) -> None:
        self.asked.append((source, "login"))

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        self.asked.append((str(prompt), "answer"))
