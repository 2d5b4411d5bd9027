"""All channels: each letter to its desk, and what one cannot deliver to the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from trainmon.ledger.outbox import Extra, Mark
from trainmon.model_alerts import SEVERITIES, Channel, Delivered, Letter, NoticeKind, Route
from trainmon.notify.base import Sender
from trainmon.notify.books import Books
from trainmon.notify.clerk import Ticket
from trainmon.notify.desk import Desk

NOT_PASSED_ON: tuple[NoticeKind, ...] = ("heartbeat", "test", "start", "goodbye")
"""Every channel has its own of these."""
TOLD_AT_MOST = 20_000

MakeDesk = Callable[[Sender, "Desks"], Desk]


class Desks:
    """What a desk needs of the office (Clerk), for all of them."""

    def __init__(
        self,
        senders: Iterable[Sender],
        routes: tuple[Route, ...],
        *,
        make: MakeDesk,
        submit: Callable[[Delivered], None],
        wake: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._make = make
        self._now = now
        self._wake = wake
        self._lock = threading.Lock()
        self._routes = routes
        self._desks = {sender.health.name: make(sender, self) for sender in senders}
        self._leaving: list[Desk] = []
        self._told: dict[str, None] = {}
        self.submit = submit
        self.books: Books
        """Where marks and further letters are written down; set once, before the start."""

    def start(self) -> None:
        for desk in self._desks.values():
            desk.start()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._desks)

    @property
    def everyday(self) -> tuple[str, ...]:
        """The channels that are told more than what others could not deliver."""
        spare = {route.channel for route in self._routes if route.fallback}
        return tuple(name for name in self._desks if name not in spare) or self.names

    @property
    def health(self) -> tuple[Channel, ...]:
        return tuple(desk.health for desk in self._desks.values())

    @property
    def is_done(self) -> bool:
        return all(desk.is_done for desk in self._desks.values())

    def deliver(self, letters: Iterable[Letter]) -> None:
        """Give letters to their desks; those of a channel that is no longer there to the others."""
        by_channel: dict[str, list[Letter]] = {}
        for letter in letters:
            by_channel.setdefault(letter.channel, []).append(letter)
        for name, waiting in by_channel.items():
            desk = self._desks.get(name)
            if desk is not None:
                desk.add(waiting)
                continue
            now, words = self._now(), f"there is no channel {name} in the config any more"
            self.given_up(name, waiting, words)
            self.books.mark(
                Mark(letter.notice.key, name, "dead", now, letter.attempts, now, None, words) for letter in waiting
            )

    def knows(self, letter: Letter) -> bool:
        """Whether a letter was given to its desk before."""
        desk = self._desks.get(letter.channel)
        return desk is not None and desk.knows(letter.notice.key)

    def recall(self, channels: Iterable[Channel]) -> None:
        for channel in channels:
            desk = self._desks.get(channel.name)
            if desk is not None and desk.health.type == channel.type:
                desk.recall(channel)

    def hurry(self) -> None:
        for desk in self._desks.values():
            desk.hurry()

    def clear(self) -> None:
        """The duty is another's now."""
        for desk in self._desks.values():
            desk.clear()

    def renew(self, senders: Iterable[Sender], routes: tuple[Route, ...]) -> None:
        """Other channels from now on. What is being sent is sent to its end; what waits goes on where it can."""
        old, known = self._desks, self.health
        self._routes = routes
        self._desks = {sender.health.name: self._make(sender, self) for sender in senders}
        self.recall(known)
        self.start()
        for desk in old.values():
            desk.stop()
            self.deliver(desk.clear())

    def finish(self) -> None:
        """What can go goes now."""
        for desk in self._desks.values():
            desk.finish()

    def stop(self) -> None:
        for desk in self._desks.values():
            desk.stop()

    # ---- for a desk, on its thread

    def mark(self, marks: Iterable[Mark]) -> Ticket:
        return self.books.mark(marks)

    def told(self, keys: Iterable[str]) -> None:
        keys = tuple(keys)
        with self._lock:
            self._told |= dict.fromkeys(keys)
            while len(self._told) > TOLD_AT_MOST:
                del self._told[next(iter(self._told))]
        for desk in self._desks.values():
            desk.forget(keys)

    def given_up(self, channel: str, letters: Sequence[Letter], because: str) -> None:
        """Have others told what this one could not deliver, if they were not told it already."""
        self.books.add(
            Extra(letter.notice, other, because)
            for letter in letters
            if letter.notice.kind not in NOT_PASSED_ON
            for other in self._others(channel, letter)
        )
        with self._lock:
            told = [letter.notice.key for letter in letters if letter.notice.key in self._told]
        if channel in self._desks:
            self._desks[channel].forget(told)

    def _others(self, channel: str, letter: Letter) -> list[str]:
        others = [name for name in self._desks if name != channel]
        spare = [route.channel for route in self._routes if route.fallback and route.channel in others]
        if spare:
            return spare
        least = {route.channel: route.severity for route in self._routes}
        rank = SEVERITIES.index(letter.notice.severity)
        return [name for name in others if rank <= SEVERITIES.index(least.get(name, "info"))]

    def changed(self) -> None:
        self._wake()

    def returned(self, letters: Sequence[Letter]) -> None:
        self.deliver(letters)
