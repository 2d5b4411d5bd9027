"""All channels: each letter to its desk, and what one cannot deliver to the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from trainmon.alerting.notify.base import Sender
from trainmon.alerting.notify.delivery.held import NOT_PASSED_ON
from trainmon.alerting.notify.delivery.journal import Journal
from trainmon.alerting.notify.delivery.worker import ChannelWorker, Ticket
from trainmon.ledger.outbox import Extra, Mark
from trainmon.model import SEVERITIES, Alert, Channel, Delivered, Notification, Route

TOLD_AT_MOST = 20_000

MakeDesk = Callable[[Sender, "Dispatcher"], ChannelWorker]


class Dispatcher:
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
        alerts: Callable[[], Mapping[str, Alert] | None],
        is_leader: Callable[[], bool],
    ) -> None:
        self._make = make
        self._alerts = alerts
        self._now = now
        self._wake = wake
        self._lock = threading.Lock()
        self._routes = routes
        self._desks = {sender.health.name: make(sender, self) for sender in senders}
        self._leaving: list[ChannelWorker] = []
        self._told: dict[str, None] = {}
        self.submit = submit
        self.is_leader = is_leader
        self.books: Journal
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

    def are_done(self, names: Sequence[str]) -> bool:
        return all(desk.is_done for name, desk in self._desks.items() if name in names)

    def deliver(self, letters: Iterable[Notification]) -> None:
        """Give letters to their desks; those of a channel that is no longer there to the others."""
        by_channel: dict[str, list[Notification]] = {}
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

    def knows(self, letter: Notification) -> bool:
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

    def pass_on(self, *, is_last: bool = False) -> None:
        """Have others deliver what a channel has failed to deliver for too long; `is_last`: by the end of this program,
        and those that end with it get nothing more."""
        for name, desk in self._desks.items():
            desk.withdraw(self._is_needless)
            for letter in desk.overdue(is_last=is_last):
                others = [other for other in self._stand_ins(name, letter) if not self._desks[other].is_last]
                if others:
                    desk.passed_on(letter.notice.key)
                    because = f"{name} could not deliver it: {desk.health.words or 'it does not answer'}"
                    self.books.add(Extra(letter.notice, other, because) for other in others)

    def _is_needless(self, letter: Notification) -> bool:
        """Whether all that it was meant for have delivered it after all; or another, where its stand-in fails, too."""
        meant = [self._desks.get(name) for name in letter.notice.channels]
        return bool(letter.told_by) or all(desk is not None and desk.has_told(letter.notice.key) for desk in meant)

    def finish(self, names: Sequence[str]) -> None:
        """What can go goes now."""
        for name, desk in self._desks.items():
            if name in names:
                desk.finish()

    def stop(self) -> None:
        for desk in self._desks.values():
            desk.stop()

    # ---- for a desk, on its thread

    def mark(self, marks: Iterable[Mark]) -> Ticket:
        return self.books.mark(marks)

    @property
    def alerts(self) -> Mapping[str, Alert] | None:
        return self._alerts()

    def told(self, channel: str, letters: Sequence[Notification]) -> None:
        keys = [letter.notice.key for letter in letters]
        with self._lock:
            self._told |= dict.fromkeys(keys)
            while len(self._told) > TOLD_AT_MOST:
                del self._told[next(iter(self._told))]
        in_place = [letter.notice.key for letter in letters if letter.is_stand_in]
        for name, desk in self._desks.items():
            if name != channel:
                desk.told_by(channel, in_place)
            desk.forget(keys)

    def given_up(self, channel: str, letters: Sequence[Notification], because: str) -> None:
        """Have others told what this one could not deliver, if they were not told it already."""
        self.books.add(
            Extra(letter.notice, other, because)
            for letter in letters
            if letter.notice.kind not in NOT_PASSED_ON and not letter.told_by
            for other in self._stand_ins(channel, letter)
        )
        with self._lock:
            told = [letter.notice.key for letter in letters if letter.notice.key in self._told]
        if channel in self._desks:
            self._desks[channel].forget(told)

    def _stand_ins(self, channel: str, letter: Notification) -> list[str]:
        """Who delivers what this channel could not: the fallbacks that work, else all fallbacks. Where none works, and
        no other channel that it was meant for, also all that are told of what is so bad."""
        routes = {name: Route(channel=name, severity="info") for name in self._desks if name != channel}
        routes |= {route.channel: route for route in self._routes if route.channel in routes}
        if letter.notice.kind == "resolve":
            routes = {name: route for name, route in routes.items() if route.resolved}
        meant = letter.notice.channels
        working = {name for name in routes if not self._desks[name].is_failing}
        fallbacks = {name for name, route in routes.items() if route.fallback}
        stand_ins = working & fallbacks or fallbacks
        if not working & (fallbacks | set(meant)):
            rank = SEVERITIES.index(letter.notice.severity)
            stand_ins |= {name for name, route in routes.items() if rank <= SEVERITIES.index(route.severity)}
        return sorted(stand_ins.difference(meant))

    def changed(self) -> None:
        self._wake()

    def returned(self, letters: Sequence[Notification]) -> None:
        self.deliver(letters)
