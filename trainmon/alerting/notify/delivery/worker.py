"""The worker of one channel: a thread that takes batches from the send queue, sends them and records the result."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from random import Random

from msgspec.structs import replace

from trainmon.alerting.notify.base import Broken, Retry, Sender, Sent
from trainmon.alerting.notify.delivery.batch import Budget, MessageBatch
from trainmon.alerting.notify.delivery.journal import Receipt
from trainmon.alerting.notify.delivery.queue import SendQueue
from trainmon.alerting.notify.delivery.transmitter import NotLeader, Transmitter, WorkerContext
from trainmon.alerting.rules import ago
from trainmon.ledger.outbox import Mark, OutboxState
from trainmon.lib import Instant, Seconds, drop_oldest
from trainmon.model import Channel, Delivered, Delivery, Notification

log = logging.getLogger(__name__)

STRANGE_AFTER: Seconds = 120.0
"""A sender that takes longer hangs, though it should not: the health of its channel shows it."""
DONE_AT_MOST = 500


class ChannelWorker:
    """Sends the notifications of one channel."""

    def __init__(
        self,
        sender: Sender,
        context: WorkerContext,
        *,
        delivered: Callable[[str, Sequence[Notification]], None],
        given_up: Callable[[str, Sequence[Notification], str], None],
        returned: Callable[[Sequence[Notification]], None],
    ) -> None:
        """The callbacks run on the thread of the worker. `delivered`: this channel has sent them. `given_up`: it cannot
        deliver them, and why. `returned`: the worker ends, and they were not sent."""
        self.name = sender.health.name
        self._sender = sender
        self._context = context
        self._clock = context.clock
        self._delivered = delivered
        self._given_up = given_up
        self._returned = returned
        self._transmitter = Transmitter(sender, context)
        self._changed = threading.Condition()
        self._queue = SendQueue(Random(context.rng.random()), Budget(sender.health.per_day))
        self._health = sender.health
        self._sending_since: Seconds | None = None
        self._done: dict[str, None] = {}
        """The newest that were sent: the ledger may not have their marks yet."""
        self.is_last = False
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=f"channel {self.name}", daemon=True)

    # ---- from any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def add(self, notifications: Iterable[Notification]) -> None:
        """Queue notifications to be sent."""
        now, mono = self._clock.now(), self._clock.monotonic()
        with self._changed:
            for notification in notifications:
                self._queue.add(notification, mono, now - notification.made_at)
                superseded = self._queue.supersede(notification.notice.key, mono)
                self._stop(superseded, "a later notification reports the same alerts")
            self._changed.notify()

    def knows(self, key: str) -> bool:
        """Whether a notification is queued here, or was and is done."""
        with self._changed:
            return key in self._queue or key in self._done

    def forget(self, keys: Iterable[str]) -> None:
        """Drop what was given up here: another channel has delivered it."""
        with self._changed:
            for key in keys:
                self._queue.forget(key)

    def overdue(self, *, is_last: bool) -> list[Notification]:
        """What this channel should have delivered by now, and no other channel has."""
        with self._changed:
            return self._queue.overdue(self._clock.monotonic(), is_last=is_last and self.is_last)

    def passed_on(self, key: str) -> None:
        with self._changed:
            self._queue.passed_on(key)

    def delivered_by(self, channel: str, keys: Iterable[str]) -> None:
        """Another channel has delivered these, because this one was down."""
        with self._changed:
            for key in keys:
                self._queue.delivered_by(key, channel)

    def withdraw(self, is_needless: Callable[[Notification], bool]) -> None:
        """Drop what the channels for which this one stands in have delivered after all."""
        with self._changed:
            self._stop(self._queue.withdraw(is_needless), "another channel has delivered it")

    @property
    def is_failing(self) -> bool:
        with self._changed:
            return self._queue.is_failing(self._clock.monotonic())

    def has_delivered(self, key: str) -> bool:
        return key in self._done

    def clear(self) -> list[Notification]:
        """Remove and return all notifications that are not being sent."""
        with self._changed:
            return self._queue.clear()

    def retry_now(self) -> None:
        """Retry now."""
        with self._changed:
            self._queue.retry_now(self._clock.monotonic())
            self._changed.notify()

    def write_all(self) -> None:
        """Write what waits here once more: the ledger is a new one."""
        with self._changed:  # so that the result of a try is written later
            now = self._clock.now()
            self._context.journal.mark(
                Mark(one.notice.key, self.name, one.state, now, one.attempts, now, notice=one.notice)
                for one in self._queue.notifications
            )

    def take_budget(self, other: ChannelWorker) -> None:
        """Count what another worker of this channel sent."""
        with self._changed:
            self._queue.budget.take_over(other._queue.budget)

    def restore_budget(self, times: Sequence[Instant], known: int) -> None:
        """Count what the previous program sent at these times, and by its own count: files may count, too."""
        offset = self._clock.monotonic() - self._clock.now()
        with self._changed:
            files = [times[-1]] * max(0, known - len(times)) if times else []
            self._queue.budget.restore(at + offset for at in (*times, *files))

    def restore_health(self, known: Channel) -> None:
        """Take over the health that the previous program wrote."""
        with self._changed:
            names = ("state", "problem", "sent_at", "since", "sent", "failed")
            self._health = replace(self._health, **{name: getattr(known, name) for name in names})

    @property
    def health(self) -> Channel:
        now, mono = self._clock.now(), self._clock.monotonic()
        with self._changed:
            queue, began = self._queue, self._sending_since
            health = replace(
                self._health,
                waiting=len(queue),
                oldest_at=queue.oldest_at(now, mono),
                overdue=queue.overdue_count,
                sent_in_day=queue.budget.used(mono),
            )
        hung = self._clock.monotonic() - began if began is not None else 0.0
        if hung <= STRANGE_AFTER:
            return _completed(health, self._sender.health)
        since = health.since or self._clock.now() - hung
        return replace(health, state="retrying", problem=f"sending a message has taken {ago(hung)} so far", since=since)

    def finish(self) -> None:
        """Send what can be sent, and end."""
        with self._changed:
            self.is_last = True
            self._changed.notify()

    def stop(self) -> None:
        """End after the message that is being sent."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    # ---- its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                self._deliver(batch)
            except Exception:
                log.exception("the channel %s crashed", self.name)
                self._retry_later(batch, "an error in trainmon-tui; see its log", None)
        self._returned(self.clear())

    def _next(self) -> MessageBatch | None:
        """Wait for a batch to send; None at the end."""
        with self._changed:
            while not self._is_over:
                self._stop(self._queue.expired(self._clock.now()), "it expired before it could be sent")
                found = self._queue.pick(self._clock.monotonic(), is_last=self.is_last)
                if isinstance(found, MessageBatch):
                    self._queue.lease(found)
                    self._sending_since = self._clock.monotonic()
                    return found
                if self.is_last:
                    return None
                self._changed.wait(found)
            return None

    def _deliver(self, batch: MessageBatch) -> None:
        """Write that it is being sent, send it, and record the result."""
        if not self._write(batch.notifications, "leased", None).may_send(self._context.patience):
            self._drop(batch)
            return
        try:
            try:
                response = self._transmitter.send(batch)
            except Broken as error:
                if len(batch.queued) == 1:
                    raise
                # Only the batch as a whole may be refused: one of it is tried alone.
                alone = MessageBatch(batch.queued[:1])
                response = self._transmitter.send(alone)
                with self._changed:
                    self._queue.split(batch, self._clock.monotonic())
                self._write(batch.notifications[1:], "waiting", error.message)
                batch = alone
        except NotLeader:
            self._drop(batch)
        except Retry as error:
            self._retry_later(batch, error.message, error.after)
        except Broken as error:
            with self._changed:
                given_up = self._queue.refused(batch, self._clock.monotonic())
                self._fails("broken", error.message)
            self._give_up(given_up, error.message)
            self._context.wake()
        else:
            self._sent(batch, response)

    def _drop(self, batch: MessageBatch) -> None:
        log.info("channel %s: another program leads and sends %d notifications", self.name, len(batch.queued))
        with self._changed:
            self._queue.drop(batch)
            self._sending_since = None

    def _sent(self, batch: MessageBatch, sent: Sent) -> None:
        now = self._clock.now()
        with self._changed:
            self._queue.sent(batch)
            self._queue.budget.spend(batch.queued, sent.messages, self._clock.monotonic())
            self._remember(batch.notifications)
            self._sending_since = None
            self._health = replace(
                self._health, state="ok", problem=None, since=None, sent_at=now, sent=self._health.sent + 1
            )
        first, *others = batch.notifications
        written = self._write([first], "sent", sent.answer or None)
        if others:
            written = self._write(others, "merged", f"in one message of {len(batch.queued)}")
        self._delivered(self.name, batch.notifications)
        self._context.wake()
        written.wait(self._context.patience)

    def _retry_later(self, batch: MessageBatch, reason: str, after: Seconds | None) -> None:
        with self._changed:
            mono = self._clock.monotonic()
            given_up = self._queue.failed(batch, mono, after)
            pause = min(queued.due for queued in batch.queued) - mono
            self._fails("retrying", reason)
        gone = {notification.notice.key for notification in given_up}
        self._write([one for one in batch.notifications if one.notice.key not in gone], "waiting", reason, pause)
        if given_up:
            self._give_up(given_up, f"not delivered in a day: {reason}")
        self._context.wake()

    def _fails(self, state: str, reason: str) -> None:
        self._health = replace(
            self._health,
            state=state,
            problem=reason,
            since=self._health.since or self._clock.now(),
            failed=self._health.failed + 1,
        )
        self._sending_since = None

    def _give_up(self, notifications: Sequence[Notification], reason: str) -> None:
        self._given_up(self.name, notifications, f"{self.name} could not deliver it")
        self._write(notifications, "dead", reason)  # after: a crash between the two must not keep it from the others

    def _stop(self, notifications: Sequence[Notification], reason: str) -> None:
        if notifications:
            self._remember(notifications)
            self._write(notifications, "stopped", reason)

    def _remember(self, notifications: Sequence[Notification]) -> None:
        self._done |= dict.fromkeys(notification.notice.key for notification in notifications)
        drop_oldest(self._done, DONE_AT_MOST)

    def _write(
        self, notifications: Sequence[Notification], state: OutboxState, answer: str | None, pause: Seconds = 0.0
    ) -> Receipt:
        """Record the state of notifications in the ledger, and report it to the engine."""
        now = self._clock.now()
        alerts: dict[str, set[str]] = {}
        for notification in notifications:
            alerts.setdefault(notification.notice.kind, set()).update(one.id for one in notification.notice.alerts)
        shown = "retrying" if state == "waiting" else "sending" if state == "leased" else state
        for kind, ids in alerts.items():
            if ids:
                delivery = Delivery(channel=self.name, kind=kind, state=shown, at=now, answer=answer)
                self._context.submit(Delivered(tuple(sorted(ids)), delivery))
        return self._context.journal.mark(
            Mark(
                notification.notice.key,
                self.name,
                state,
                now,
                notification.attempts,
                now + pause,
                now if state in ("sent", "merged") else None,
                answer,
                notification.notice if notification.notice.kind != "direct" else None,
            )
            for notification in notifications
        )


def _completed(health: Channel, own: Channel) -> Channel:
    """The health by the messages, completed with what the sender itself finds: it may fail between two messages, and
    work again."""
    is_worse = own.state in ("retrying", "broken") and health.state in ("ok", "unknown")
    is_better = own.state == "ok" and health.state in ("retrying", "unknown") and not health.waiting
    if not (is_worse or is_better):
        return health
    return replace(health, state=own.state, problem=own.problem, since=own.since)
