"""Gives each notification to the worker of its channel, and what one channel cannot deliver to others."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from trainmon.alerting.notify.base import Sender
from trainmon.alerting.notify.delivery.batch import NEAR, NOT_PASSED_ON
from trainmon.alerting.notify.delivery.transmitter import WorkerContext
from trainmon.alerting.notify.delivery.worker import ChannelWorker
from trainmon.ledger.outbox import Mark, StandIn
from trainmon.lib import Instant, drop_oldest
from trainmon.model import SEVERITIES, Channel, Notification, Route

DELIVERED_AT_MOST = 500


class Dispatcher:
    """The workers of all channels."""

    def __init__(self, senders: Iterable[Sender], routes: tuple[Route, ...], context: WorkerContext) -> None:
        self._context = context
        self._journal = context.journal
        self._lock = threading.Lock()
        self._routes = routes
        self._workers = self._make(senders)
        self._delivered: dict[str, None] = {}
        """The newest notices that some channel has delivered."""

    def _make(self, senders: Iterable[Sender]) -> dict[str, ChannelWorker]:
        return {
            sender.health.name: ChannelWorker(
                sender,
                self._context,
                delivered=self._note_delivered,
                given_up=self._give_to_others,
                returned=self.deliver,
            )
            for sender in senders
        }

    def start(self) -> None:
        for worker in self._workers.values():
            worker.start()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._workers)

    @property
    def everyday(self) -> tuple[str, ...]:
        """All channels but the fallbacks; all channels if every one is a fallback."""
        fallbacks = {route.channel for route in self._routes if route.fallback}
        return tuple(name for name in self._workers if name not in fallbacks) or self.names

    @property
    def health(self) -> tuple[Channel, ...]:
        return tuple(worker.health for worker in self._workers.values())

    def are_done(self, names: Sequence[str]) -> bool:
        return all(worker.is_done for name, worker in self._workers.items() if name in names)

    def deliver(self, notifications: Iterable[Notification]) -> None:
        """Queue notifications; those of a channel that was removed go to others."""
        by_channel: dict[str, list[Notification]] = {}
        for notification in notifications:
            by_channel.setdefault(notification.channel, []).append(notification)
        for name, waiting in by_channel.items():
            worker = self._workers.get(name)
            if worker is not None:
                worker.add(waiting)
                continue
            now, reason = self._context.clock.now(), f"the channel {name} is no longer in the config"
            self._give_to_others(name, waiting, reason)
            self._journal.mark(
                Mark(one.notice.key, name, "dead", now, one.attempts, now, None, reason) for one in waiting
            )

    def knows(self, notification: Notification) -> bool:
        """Whether its worker has it, or had it."""
        worker = self._workers.get(notification.channel)
        return worker is not None and worker.knows(notification.notice.key)

    def restore_health(self, channels: Iterable[Channel]) -> None:
        """Take over the health of channels that the previous program wrote."""
        for channel in channels:
            worker = self._workers.get(channel.name)
            if worker is not None and worker.health.type == channel.type:
                worker.restore_health(channel)

    def restore_budgets(self, sent: Mapping[str, Sequence[Instant]], channels: Iterable[Channel]) -> None:
        """Count what the previous program sent in the last day, by its marks and by its own count."""
        counted = {channel.name: channel.sent_in_day for channel in channels}
        for name, times in sent.items():
            if name in self._workers:
                self._workers[name].restore_budget(times, counted.get(name, 0))

    def write_all(self) -> None:
        """Write what waits once more: the ledger is a new one."""
        for worker in self._workers.values():
            worker.write_all()

    def retry_now(self) -> None:
        """Retry everything now."""
        for worker in self._workers.values():
            worker.retry_now()

    def clear(self) -> None:
        """Drop what waits: another program leads."""
        for worker in self._workers.values():
            worker.clear()

    def reload(self, senders: Iterable[Sender], routes: tuple[Route, ...]) -> None:
        """Replace the channels. A message that is being sent is sent to its end; what waits goes on where it can."""
        old, known = self._workers, self.health
        self._routes = routes
        self._workers = self._make(senders)
        self.restore_health(known)
        for name in self._workers.keys() & old.keys():
            self._workers[name].take_budget(old[name])
        self.start()
        for worker in old.values():
            worker.stop()
            self.deliver(worker.clear())

    def pass_on(self, *, is_last: bool = False) -> None:
        """Give overdue notifications to other channels. `is_last`: the end of this program counts as overdue, and
        channels that end with it get nothing more."""
        for name, worker in self._workers.items():
            worker.withdraw(self._is_needless)
            for notification in worker.overdue(is_last=is_last):
                others = [one for one in self._stand_ins(name, notification) if not self._workers[one].is_last]
                if others:
                    worker.passed_on(notification.notice.key)
                    health = worker.health
                    is_spent = health.state == "ok" and 0 < health.per_day <= health.sent_in_day / NEAR
                    problem = "its daily budget is nearly used up" if is_spent else health.problem
                    because = f"{name} could not deliver it: {problem or 'it does not answer'}"
                    self._journal.add_stand_ins(StandIn(notification.notice, other, because) for other in others)

    def _is_needless(self, notification: Notification) -> bool:
        """Whether all channels that it was meant for have delivered it; or, where its stand-in fails too, another."""
        workers, notice = self._workers, notification.notice
        return bool(notification.delivered_by) or all(
            name in workers and workers[name].has_delivered(notice.key) for name in notice.channels
        )

    def finish(self, names: Sequence[str]) -> None:
        """Have these channels send what they can, and end."""
        for name, worker in self._workers.items():
            if name in names:
                worker.finish()

    def stop(self) -> None:
        for worker in self._workers.values():
            worker.stop()

    # ---- on the thread of a worker

    def _note_delivered(self, channel: str, notifications: Sequence[Notification]) -> None:
        keys = [one.notice.key for one in notifications]
        with self._lock:
            self._delivered |= dict.fromkeys(keys)
            drop_oldest(self._delivered, DELIVERED_AT_MOST)
        for name, worker in self._workers.items():
            if name != channel:
                worker.delivered_by(channel, [one.notice.key for one in notifications if one.is_stand_in])
            worker.forget(keys)

    def _give_to_others(self, channel: str, notifications: Sequence[Notification], because: str) -> None:
        """Have others deliver what this channel cannot, unless some channel has delivered it."""
        self._journal.add_stand_ins(
            StandIn(notification.notice, other, because)
            for notification in notifications
            if notification.notice.kind not in NOT_PASSED_ON and not notification.delivered_by
            for other in self._stand_ins(channel, notification)
        )
        with self._lock:
            delivered = [one.notice.key for one in notifications if one.notice.key in self._delivered]
        if channel in self._workers:
            self._workers[channel].forget(delivered)

    def _stand_ins(self, channel: str, notification: Notification) -> list[str]:
        """The channels that deliver what this one could not: the working fallbacks, else all fallbacks. If no fallback
        and no other channel that it was meant for works, also all channels of that severity."""
        routes = {name: Route(channel=name, severity="info") for name in self._workers if name != channel}
        routes |= {route.channel: route for route in self._routes if route.channel in routes}
        if notification.notice.kind == "resolve":
            routes = {name: route for name, route in routes.items() if route.resolved}
        meant = notification.notice.channels
        working = {name for name in routes if not self._workers[name].is_failing}
        fallbacks = {name for name, route in routes.items() if route.fallback}
        stand_ins = working & fallbacks or fallbacks
        if not working & (fallbacks | set(meant)):
            rank = SEVERITIES.index(notification.notice.severity)
            stand_ins |= {name for name, route in routes.items() if rank <= SEVERITIES.index(route.severity)}
        return sorted(stand_ins.difference(meant))
