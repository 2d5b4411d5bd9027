"""A backend without an engine: a test says what is published, and reads what was asked."""

from __future__ import annotations

from collections.abc import Callable

from trainmon.clock import Seconds
from trainmon.model import Series, State


class FakeBackend:
    """Keeps what the dashboard asked for, in words."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state
        self.asked: list[tuple[object, ...]] = []
        self._sinks: list[Callable[[State], None]] = []

    def publish(self, state: State) -> None:
        self.state = state
        for sink in list(self._sinks):
            sink(state)

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        self._sinks.append(sink)
        if self.state is not None:
            sink(self.state)
        return lambda: self._sinks.remove(sink)

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        offsets = tuple(float(at) for at in range(-int(span), 1, 60))
        return Series(offsets, tuple(60.0 + (-at // 60) % 5 for at in offsets))

    def refresh(self) -> None:
        self.asked.append(("refresh",))

    def login(self, source: str) -> None:
        self.asked.append(("login", source))

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        self.asked.append(("answer", prompt, answers))
