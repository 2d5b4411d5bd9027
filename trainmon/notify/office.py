"""Where notices are written down and sent from: one transaction before anything is sent, then a thread a channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from trainmon.clock import Clock, Seconds, SystemClock
from trainmon.ledger import Ledger
from trainmon.model import Event, State
from trainmon.model_alerts import AlertChanges, Notice, Order, Route
from trainmon.notify.base import Attachment, Sender

PATIENCE: Seconds = 5.0
"""How long a notice waits to be written down before it is sent all the same."""

FLUSH: Seconds = 10.0
"""At the end, how long what waits may still be sent."""

Attach = Callable[[tuple[Notice, ...]], tuple[Attachment, ...]]


class Office:
    """Implements Post. It takes the duty of telling people, if no other program with this ledger has it."""

    def __init__(
        self,
        ledger: Ledger,
        senders: Sequence[Sender],
        submit: Callable[[Event], None],
        clock: Clock | None = None,
        *,
        routes: tuple[Route, ...] = (),
        attach: Attach | None = None,
        patience: Seconds = PATIENCE,
        program: str = "",
    ) -> None:
        self._ledger = ledger
        self._senders = tuple(senders)
        self._submit = submit
        self._clock = clock or SystemClock()
        self._routes = routes
        self._attach = attach
        self._patience = patience
        self._program = program

    def start(self) -> None:
        """Ask for the duty; the answer comes as DutyChanged, what was known before it as AlertsRecalled."""

    def stop(self, flush: Seconds = FLUSH) -> None:
        """Send what waits, for at most so long; then let the duty go."""

    def hand_over(self, changes: AlertChanges) -> None:
        """Have it written down, and its notices sent; never blocks. Without the duty it is no one's."""

    def tick(self, state: State) -> None:
        """All rules were gone through: others may read so in the ledger. Never blocks."""

    def order(self, order: Order) -> None:
        """Have what a person says carried out by whoever has the duty; never blocks."""

    def renew(self, senders: Sequence[Sender], routes: tuple[Route, ...]) -> None:
        """From now on these channels; what waits for one that is gone goes to the others. From any thread."""
