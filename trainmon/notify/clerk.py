"""What a desk needs of the office, and how it has things put into words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from trainmon.clock import Instant
from trainmon.ledger.outbox import Mark
from trainmon.model_alerts import Delivered, Letter, Notice
from trainmon.notify.base import Attachment, Message

Render = Callable[[Sequence[Notice], Instant], Message]
Attach = Callable[[tuple[Notice, ...]], tuple[Attachment, ...]]


class Clerk(Protocol):
    """All of it is called on the threads of desks."""

    def mark(self, marks: Iterable[Mark]) -> threading.Event:
        """Write down what became of letters; the event is set when it is written, or when it must not be waited for."""

    def submit(self, event: Delivered) -> None:
        """Tell the engine."""

    def given_up(self, channel: str, letters: Sequence[Letter], because: str) -> None:
        """Have others told what this channel could not deliver."""

    def told(self, keys: Iterable[str]) -> None:
        """Somebody was told of these."""

    def changed(self) -> None:
        """How this channel is doing is different now."""

    def returned(self, letters: Sequence[Letter]) -> None:
        """This desk ends, and these were not told."""
