"""What runs behind a screen or a snapshot: the engine and whatever feeds it, as the Backend that the face knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from trainmon.clock import Seconds
from trainmon.engine import Engine
from trainmon.model import Series, State
from trainmon.prompts import Prompts


class Feeder(Protocol):
    """What feeds the engine: the supervisor of real hosts, or the demo."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def refresh(self) -> None: ...

    def login(self, source: str) -> None: ...


class Session:
    """An engine, its feeder and the questions of logins. Starts and stops as one; satisfies tui's Backend."""

    def __init__(self, engine: Engine, feeder: Feeder, prompts: Prompts | None = None) -> None:
        self.engine = engine
        self._feeder = feeder
        self._prompts = prompts

    def __enter__(self) -> Session:
        self.engine.start()
        self._feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._prompts is not None:
            self._prompts.close()
        self._feeder.stop()
        self.engine.stop()

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        return self.engine.subscribe(sink)

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        return self.engine.history(subject, metric, span)

    def refresh(self) -> None:
        self._feeder.refresh()

    def login(self, source: str) -> None:
        self._feeder.login(source)

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        if self._prompts is not None:
            self._prompts.answer(prompt, answers)
