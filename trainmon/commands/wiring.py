"""The parts of one start, joined: engine, senses and questions. Both are the Backend of the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from collectors.supervisor import Supervisor
from trainmon.clock import Clock, Seconds, SystemClock
from trainmon.config import Settings, formats
from trainmon.engine import Engine
from trainmon.model import Series, State
from trainmon.model_actions import Action, Ask, Plan, Refusal
from trainmon.prompts import Prompts


class Joined:
    """What the dashboard and the other commands hold: an engine, and what feeds it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def start(self) -> None:
        self.engine.start()

    def stop(self) -> None:
        self.engine.stop()

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        return self.engine.subscribe(sink)

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        return self.engine.history(subject, metric, span)

    def refresh(self) -> None:
        """Nothing waits to be looked at again."""

    def login(self, source: str) -> None:
        """Nothing asks for a login."""

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        """Nothing was asked."""

    def prepare(self, ask: Ask, reply: Callable[[Plan], None]) -> None:
        """Nobody acts yet."""
        reply(Plan(ask=ask, refusals=tuple(Refusal(subject=name, why="not built yet") for name in ask.subjects)))

    def act(self, actions: Sequence[Action]) -> None:
        """Nobody acts yet."""

    def look_at_job(self, key: str) -> None:
        """No scheduler is asked."""


class Watching(Joined):
    """The hosts of the settings. With `prompts`, a person is there to answer what a login asks."""

    def __init__(
        self,
        settings: Settings,
        *,
        read_only: bool = False,
        prompts: bool = False,
        clock: Clock | None = None,
        ssh_config: Path | None = None,
    ) -> None:
        read_only = read_only or settings.read_only
        super().__init__(Engine(clock or SystemClock(), read_only=read_only, formats=formats(settings)))
        self._prompts = Prompts(self.engine.submit)
        ask = self._prompts.ask if prompts else None
        self._supervisor = Supervisor(settings, self.engine.submit, ask=ask, ssh_config=ssh_config)

    def start(self) -> None:
        super().start()
        self._supervisor.start()

    def stop(self) -> None:
        """Let go of everything; under a second, whatever hangs."""
        self._prompts.close()
        self._supervisor.stop()
        super().stop()

    def refresh(self) -> None:
        self._supervisor.refresh()

    def login(self, source: str) -> None:
        self._supervisor.login(source)

    def answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        self._prompts.answer(prompt, answers)


class Demonstration(Joined):
    """A simulated cluster, through the same engine; a story may be put first."""

    def __init__(self, story: str | None = None, *, read_only: bool = False) -> None:
        from collectors.demo import Demo

        super().__init__(Engine(SystemClock(), demo=True, read_only=read_only))
        self._demo = Demo(self.engine.submit, story=story)

    def start(self) -> None:
        super().start()
        self._demo.start()

    def stop(self) -> None:
        self._demo.stop()
        super().stop()

    def refresh(self) -> None:
        self._demo.refresh()

    def login(self, source: str) -> None:
        self._demo.login(source)
