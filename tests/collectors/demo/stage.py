"""A stage for the demo: a clock that the test advances, and every event with its time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from collectors.demo.collector import Demo
from trainmon.model import Event, GpuSample, GpuSamples, LogChunk, NodeReading, Reading, Source, SourceChanged

STARTED = 1_760_000_000.0
TICK = 0.2

R = TypeVar("R", bound=Reading)


class HandClock:
    """Time passes when the test says so."""

    def __init__(self) -> None:
        self.passed = 0.0
        self.set_back = 0.0

    def now(self) -> float:
        return STARTED + self.passed - self.set_back

    def monotonic(self) -> float:
        return 1_000.0 + self.passed


class Stage:
    """A demo that is played step by step, without its thread."""

    def __init__(self, directory: Path, *, seed: int = 7, story: str | None = None, speed: float = 1.0) -> None:
        self.clock = HandClock()
        self.events: list[tuple[float, Event]] = []
        """Seconds since the start, and the event."""
        self.demo = Demo(self._receive, clock=self.clock, seed=seed, directory=directory, story=story, speed=speed)
        self.directory = directory

    def _receive(self, event: Event) -> None:
        self.events.append((self.clock.passed, event))

    def play(self, until: float) -> Stage:
        """Let the demo go on until so many seconds after its start."""
        while self.clock.passed < until:
            wait = self.demo.step()
            self.clock.passed += wait
        return self

    def sources(self, node: str) -> list[tuple[float, Source]]:
        return [
            (at, event.source)
            for at, event in self.events
            if isinstance(event, SourceChanged) and event.source.name == f"node:{node}"
        ]

    def readings(self, kind: type[R], node: str | None = None) -> Iterator[tuple[float, R]]:
        for at, event in self.events:
            if isinstance(event, NodeReading) and node in (None, event.node) and isinstance(event.reading, kind):
                yield at, event.reading

    def gpu(self, node: str, index: int, begin: float, end: float) -> list[GpuSample]:
        """The samples of one GPU between two times."""
        found = self.readings(GpuSamples, node)
        return [reading.g[index] for at, reading in found if begin <= at < end]

    def lines(self, run: str, begin: float = 0.0, end: float = float("inf")) -> list[str]:
        """The finished lines of a run's log that were read between two times."""
        chunks = ((at, chunk) for at, chunk in self.readings(LogChunk) if chunk.id == run)
        return [line for at, chunk in chunks if begin <= at < end for line in (*chunk.kept, *chunk.lines)]

    def home(self, run: str) -> Path:
        return self.directory / "fsx" / run
