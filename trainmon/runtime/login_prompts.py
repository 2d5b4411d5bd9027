"""Login prompts, one after the other: a connecting thread waits here for the answers of a person."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

from trainmon.lib import Seconds
from trainmon.model import Prompt, PromptsChanged

PATIENCE = 180.0
"""How many seconds a prompt waits for its answer; sshd's own LoginGraceTime is 120."""


class Prompts:
    """The open prompts. `ask` blocks its caller; answers are passed on and never kept."""

    def __init__(self, submit: Callable[[PromptsChanged], None], *, patience: Seconds = PATIENCE) -> None:
        self._submit = submit
        self._patience = patience
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        self._open: dict[int, tuple[Prompt, SimpleQueue[tuple[str, ...] | None]]] = {}
        self._closed = False

    def ask(
        self, host: str, title: str, instructions: str, fields: tuple[tuple[str, bool], ...]
    ) -> tuple[str, ...] | None:
        """Show a prompt and wait for its answers. None when it was declined, or nobody answered in time."""
        with self._turn:
            number, replies = next(self._numbers), SimpleQueue[tuple[str, ...] | None]()
            prompt = Prompt(id=number, host=host, title=title, instructions=instructions, fields=fields)
            with self._lock:
                if self._closed:
                    return None
                self._open[number] = (prompt, replies)
            self._publish()
            try:
                return replies.get(timeout=self._patience)
            except Empty:
                return None
            finally:
                with self._lock:
                    del self._open[number]
                self._publish()

    def answer(self, number: int, answers: tuple[str, ...] | None) -> None:
        """Answer one prompt; None declines it. A prompt that has timed out ignores it."""
        with self._lock:
            if number in self._open:
                self._open[number][1].put(answers)

    def close(self) -> None:
        """Decline the open prompts and all that follow."""
        with self._lock:
            self._closed = True
            for _, replies in self._open.values():
                replies.put(None)

    def _publish(self) -> None:
        with self._lock:
            prompts = tuple(prompt for prompt, _ in self._open.values())
        self._submit(PromptsChanged(prompts))
