"""What a desk needs of the office, and how it has things put into words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from trainmon.clock import Instant, Seconds
from trainmon.ledger.outbox import Mark
from trainmon.model_alerts import Alert, Delivered, Letter, Notice
from trainmon.notify.base import Attachment, Message

Render = Callable[[Sequence[Notice], Instant], Message]
Attach = Callable[[tuple[Notice, ...]], tuple[Attachment, ...]]


SLICE: Seconds = 0.25


class Ticket(threading.Event):
    """Set when marks are written, or when that must not be waited for."""

    is_ours = True
    """False: another program has the duty now, and sends what is in the ledger."""

    def may_send(self, patience: Seconds) -> bool:
        """Wait for it; whether a message may go. In slices: of the time in which this program itself was stopped, and
        could hear of nothing, no more than one counts."""
        waited = 0.0
        while waited < patience and not self.wait(SLICE):
            waited += SLICE
        return self.is_ours


class Clerk(Protocol):
    """All of it is called on the threads of desks."""

    def is_leader(self) -> bool:
        """Whether what is sent now is ours to send; asked just before each message, and answered at once."""

    def mark(self, marks: Iterable[Mark]) -> Ticket:
        """Write down what became of letters."""

    def submit(self, event: Delivered) -> None:
        """Tell the engine."""

    def given_up(self, channel: str, letters: Sequence[Letter], because: str) -> None:
        """Have others told what this channel could not deliver."""

    def told(self, channel: str, letters: Sequence[Letter]) -> None:
        """This channel has delivered these."""

    @property
    def alerts(self) -> Mapping[str, Alert] | None:
        """All alerts as they are now; None while that is not known."""

    def changed(self) -> None:
        """How this channel is doing is different now."""

    def returned(self, letters: Sequence[Letter]) -> None:
        """This desk ends, and these were not told."""
