"""Login prompts, one after the other: a connecting thread waits here for the answers of a person."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from trainmon.lib import Seconds
from trainmon.model import Prompt, PromptsChanged

PATIENCE = 180.0
"""Seconds a question waits for its answer; sshd's own LoginGraceTime is 120."""


class Prompts:
    """The queue of open questions. `ask` blocks its caller; answers are handed over and never kept."""

    def __init__(self, submit: Callable[[PromptsChanged], None], *, patience: Seconds = PATIENCE) -> None:
        self._submit = submit
        self._patience = patience
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._open: dict[int, Prompt] = {}
        self._waiting: dict[int, tuple[threading.Event, list[tuple[str, ...] | None]]] = {}
        self._closed = False

    def ask(
        self, host: str, title: str, instructions: str, fields: tuple[tuple[str, bool], ...]
    ) -> tuple[str, ...] | None:
        """Put a question to the person and wait. None when it was declined, or nobody answered in time."""
        with self._turn:
            number = next(self._numbers)
            answered, box = threading.Event(), [None]  # type: tuple[threading.Event, list[tuple[str, ...] | None]]
            with self._lock:
                if self._closed:
                    return None
                self._open[number] = Prompt(id=number, host=host, title=title, instructions=instructions, fields=fields)
                self._waiting[number] = (answered, box)
            self._tell()
            answered.wait(self._patience)
            with self._lock:
                self._open.pop(number, None)
                self._waiting.pop(number, None)
            self._tell()
            return box[0]

    def answer(self, number: int, answers: tuple[str, ...] | None) -> None:
        """Hand over the answers to one question; None declines it. Unknown numbers are ignored: it has timed out."""
        with self._lock:
            waiting = self._waiting.get(number)
        if waiting is not None:
            answered, box = waiting
            box[0] = answers
            answered.set()

    def close(self) -> None:
        """Decline what is open and all that follows."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting.values())
        for answered, _ in waiting:
            answered.set()

    def _tell(self) -> None:
        with self._lock:
            prompts = tuple(self._open.values())
        self._submit(PromptsChanged(prompts))
