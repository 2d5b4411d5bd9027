"""Delivers notifications: one thread decides, and each message is sent on a thread of its own.

Each turn: note the answers of the receivers; see what the journal has written; give to other channels what one cannot
deliver; choose what is sent next. A message leaves when its try is written, and this program still leads.

The journal writes alerts, notices and the states of notifications to the ledger, one transaction at a time. The ledger
may hang, be full, locked or damaged. Everything is then kept here and written when it works again. New notifications
wait for it for a few seconds, and are then sent without it.
"""

from __future__ import annotations

import logging
import math
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from sqlite3 import Connection
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.notify.delivery.due import NEAR, NOT_PASSED_ON, Budget, MessageBatch, SendQueue, stand_ins
from trainmon.alerting.notify.message import Attachment, Broken, Message, Retry, Sender, Sent, printable, summary
from trainmon.ledger.alerts import Address, OutboxState, Transaction
from trainmon.ledger.lease import LeaderNote
from trainmon.ledger.ledger import Answer, Ledger
from trainmon.lib import Clock, Instant, Seconds, ago, drop_oldest, group_by
from trainmon.model import SEVERITIES, Alert, AlertChanges, Channel, Delivered, Delivery, Notice, Notification, Route

log = logging.getLogger(__name__)

SEND_TIMEOUT: Seconds = 30.0
LONGEST_TIMEOUT: Seconds = 110.0
"""A receiver that answers late may have accepted the message. Each retry sends a copy, so the next try waits longer."""
STRANGE_AFTER: Seconds = 120.0
"""A sender that takes longer hangs, though it should not: the health of its channel shows it."""
DONE_AT_MOST = 100_000
"""Of more notifications than that, those that wait elsewhere might count as new again: more than any message has."""

Render = Callable[[Sequence[Notice], Instant], Message]
Attach = Callable[[tuple[Notice, ...]], tuple[Attachment, ...]]


# ---- the journal -----------------------------------------------------------------------------------------------------


class Writing(NamedTuple):
    """A transaction that is being written."""

    transaction: Transaction
    answer: Answer
    since: Seconds
    """Since when the first of it waits to be written."""


class Journal:
    """Belongs to the thread of the notification service."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        wake: Callable[[], None],
        *,
        patience: Seconds,
        holder: str | None,
        is_leader: Callable[[], bool],
    ) -> None:
        """`patience`: how long a notification waits for the ledger, and when a failed transaction is retried. `holder`:
        the program that the lease row must name for anything to be written. `is_leader` is called within the
        transaction: a program that takes over writes after it."""
        self._ledger = ledger
        self._clock = clock
        self._wake = wake
        self._patience = patience
        self._holder = holder
        self._is_leader = is_leader
        self._next = Transaction()
        self._waits_since: Seconds = math.inf
        """Since when the first notification of the next transaction waits to be written."""
        self._writing: Writing | None = None
        self._term = 0
        """How often this program has ceased or begun to lead. Nothing of an earlier term is written."""
        self._begun = 0
        """How many transactions were begun. One that failed is part of the next."""
        self._turned_at = clock.monotonic()
        self._retry_at: Seconds = 0.0
        self.written = 0
        """The number of the last transaction that was written."""
        self.trouble: str | None = None
        """Why nothing can be written now."""
        self.trouble_since = self._turned_at
        self.held: str | None = None
        """Why nothing may be written now: the lease row is not ours yet."""
        self.is_lost = False
        """Whether another program took the lease: what is not written yet is not ours to write."""
        self.sent_unwritten = 0
        """How many notifications were sent since the trouble began that the ledger does not have yet."""

    def add_changes(self, changes: AlertChanges) -> None:
        """Write what one evaluation changed, but for its notices."""
        self._next.add_changes(changes)

    def put(self, rows: Iterable[Notification]) -> None:
        """Write what is owed, or how far it is."""
        self._next.put(rows)
        if self._next.rows:
            self._waits_since = min(self._waits_since, self._clock.monotonic())

    @property
    def number(self) -> int:
        """Of the transaction with the last thing to write."""
        return self._begun + bool(self._next)

    def write_note(self, note: LeaderNote) -> None:
        self._next.note = note

    def is_past(self, number: int) -> bool:
        """Whether this transaction is written, or nobody should wait for that."""
        return not self.is_lost and (number <= self.written or self.trouble is not None)

    @property
    def waits_for(self) -> float:
        """What belongs to a later transaction than this one waits to be written."""
        return self.written if self.trouble is None else math.inf

    def discard(self) -> None:
        """Another program leads: what waits is not ours to send, and what is being written not ours to write."""
        self._next, self._writing, self.held, self.is_lost = Transaction(), None, None, False
        self._waits_since = math.inf
        self._term += 1

    def works(self) -> None:
        """The ledger answers."""
        if self.trouble is not None:  # what waited meanwhile was not held up by it
            self._waits_since = max(self._waits_since, self._clock.monotonic())
        self._retry_at, self.trouble, self.sent_unwritten = 0.0, None, 0

    @property
    def is_settled(self) -> bool:
        """Whether everything is written that can be."""
        return self.trouble is not None or not (self._next or self._writing)

    def turn(self) -> frozenset[Address]:
        """Finish the transaction that is being written. Return what the ledger has as done, though it is owed here: an
        earlier program has sent it."""
        mono, writing, done = self._clock.monotonic(), self._writing, frozenset[Address]()
        gap, self._turned_at = mono - self._turned_at, mono
        if writing is not None and writing.answer.done.is_set():
            self._writing = None
            if writing.answer.error is None:
                self.works()
                self.written, self.is_lost = self._begun, writing.answer.found is None
                done = writing.answer.found or done
            else:
                writing.transaction.absorb(self._next)
                self._next, self._retry_at = writing.transaction, mono + self._patience
                self._is_stuck(writing.answer.error)
        elif writing is not None and gap > self._patience + 2.0:
            self._writing = writing._replace(since=mono)  # this program was stopped, and so was the ledger's thread
            self._waits_since = max(self._waits_since, mono)
        elif writing is not None and self.trouble is None and mono - self._oldest(writing) >= self._patience:
            self._is_stuck(f"the ledger {self._ledger.file} did not answer in {self._patience:g}s")
        if self.held is not None:
            self._is_stuck(self.held)
        return done

    def _oldest(self, writing: Writing) -> Seconds:
        """Since when something waits to be written: in this transaction, or in the next."""
        return min(writing.since, self._waits_since)

    @property
    def due_in(self) -> Seconds | None:
        """Seconds until the next turn if nobody wakes the service before."""
        mono, writing = self._clock.monotonic(), self._writing
        if writing is not None:
            return None if self.trouble is not None else max(0.0, self._oldest(writing) + self._patience - mono)
        return max(0.0, self._retry_at - mono) if self._next and self.held is None else None

    def begin(self) -> None:
        """Begin to write what waits."""
        mono = self._clock.monotonic()
        if self._writing or not self._next or self.is_lost or self.held or mono < self._retry_at:
            return
        transaction, self._next = self._next, Transaction()
        self._begun += 1
        now, term = self._clock.now(), self._term

        def write(connection: Connection) -> frozenset[Address] | None:
            is_ours = self._term == term and self._is_leader()
            return transaction.write(connection, now, self._holder) if is_ours else None

        since, self._waits_since = min(mono, self._waits_since), math.inf
        self._writing = Writing(transaction, self._ledger.transact(write, self._wake), since)

    def _is_stuck(self, trouble: str) -> None:
        if self.trouble is None:
            log.warning("ledger stuck: %s", trouble)
            self.trouble_since = self._clock.monotonic()
        self.trouble = trouble


# ---- one channel -----------------------------------------------------------------------------------------------------


class NotLeader(Exception):
    """Another program leads now and sends what waits."""


@dataclass(slots=True, eq=False)
class ChannelState:
    """What waits for one channel, and how the channel does. Belongs to the thread of the notification service."""

    sender: Sender
    queue: SendQueue
    known: Channel
    """Its health by its messages."""
    timeout: Seconds
    """Of the next message. Only the thread that sends changes it."""
    batch: MessageBatch | None = None
    """The next message, if it is chosen."""
    number: int = 0
    """Of the transaction that writes it. The message leaves after that, and so after the last one is marked as sent: a
    crash sends one copy at most."""
    is_sending: bool = False
    next_at: Seconds | None = None
    """When something may be sent, if nothing else happens before."""
    is_last: bool = False
    """Whether it sends what it can at once, because the program ends."""
    is_done: bool = False

    @property
    def name(self) -> str:
        return self.known.name

    def clear(self) -> list[Notification]:
        """Remove and return all but what is being sent: a message that is only chosen is chosen again."""
        self.batch = self.batch if self.is_sending else None
        return self.queue.clear(self.batch)

    def hung(self, mono: Seconds) -> Seconds:
        """How long the next message has taken so far."""
        return mono - self.batch.since if self.batch is not None else 0.0

    def health(self, now: Instant, mono: Seconds) -> Channel:
        waiting, own = self.queue, self.sender.health
        health = replace(
            self.known,
            waiting=len(waiting),
            oldest_at=waiting.oldest_at(now, mono),
            overdue=waiting.overdue_count,
            sent_in_day=waiting.budget.used(mono),
        )
        if (hung := self.hung(mono)) > STRANGE_AFTER:
            problem = f"sending a message has taken {ago(hung)} so far"
            return replace(health, state="retrying", problem=problem, since=health.since or now - hung)
        # The sender itself may find a failure between two messages, and that it works again.
        is_worse = own.state in ("retrying", "broken") and health.state in ("ok", "unknown")
        is_better = own.state == "ok" and health.state in ("retrying", "unknown") and not health.waiting
        if is_worse or is_better:
            return replace(health, state=own.state, problem=own.problem, since=own.since)
        return health


class Outcome(NamedTuple):
    """What the receiver of a message answered."""

    state: ChannelState
    batch: MessageBatch
    answer: Sent | NotLeader | Retry | Broken
    refused: str | None = None
    """Why it refused all of the batch together, if it accepted the first of it alone."""


class Deliverer:
    """Belongs to the thread of the notification service."""

    def __init__(
        self,
        senders: Iterable[Sender],
        routes: tuple[Route, ...],
        journal: Journal,
        clock: Clock,
        submit: Callable[[Delivered], None],
        wake: Callable[[], None],
        *,
        is_leader: Callable[[], bool],
        alerts: Callable[[], Mapping[str, Alert] | None],
        timeout: Seconds = SEND_TIMEOUT,
        render: Render,
        attach: Attach | None = None,
        rng: Random | None = None,
    ) -> None:
        """`is_leader`: whether this program may send now. `alerts`: all alerts as they are now; None while that is not
        known. The threads that send call both."""
        self._routes = routes
        self._journal = journal
        self._clock = clock
        self._submit = submit
        self._wake = wake
        self._is_leader = is_leader
        self._alerts = alerts
        self._timeout = timeout
        self._render = render
        self._attach = attach
        self._rng = rng or Random()
        self._outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._done: dict[str, dict[str, bool]] = {}
        """Of the newest notices: the channels that are done with it, and whether they sent it. The ledger may know that
        later."""
        self._removed: dict[str, SendQueue] = {}
        """What waits for channels that were removed. A later config may have them again, or others."""
        self._channels = self._states(senders)
        self._replaced: list[ChannelState] = []
        """Channels as they were before a reload, which still send a message. It waits for no channel meanwhile."""

    def _states(self, senders: Iterable[Sender]) -> dict[str, ChannelState]:
        return {
            one.health.name: ChannelState(
                one, SendQueue(Random(self._rng.random()), Budget(one.health.per_day)), one.health, self._timeout
            )
            for one in senders
        }

    # ---- each turn ---------------------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Do what can be done now."""
        while not self._outcomes.empty():
            self._note_or_retry(self._outcomes.get())
        for key, name in self._journal.turn():
            self._queue_of(name).forget(key)
        if self._journal.is_lost:
            return
        self._give_up_removed()
        for state in (*self._channels.values(), *self._replaced):
            try:
                self._choose(state)
                self._pass_on(state, is_last=False)
            except Exception:  # one channel must not keep the others from sending
                log.exception("the channel %s crashed", state.name)
        self._journal.begin()
        for state in self._channels.values():
            batch = state.batch
            if batch is not None and not state.is_sending and self._journal.is_past(state.number):
                state.is_sending = True
                name = f"channel {state.name}"
                try:
                    threading.Thread(target=self._send, args=(state, batch), name=name, daemon=True).start()
                except RuntimeError as error:  # the machine has no process or no memory left: it may have some later
                    self._outcomes.put(Outcome(state, batch, Retry(f"it cannot be sent here: {error}")))
                    self._wake()

    @property
    def due_in(self) -> Seconds | None:
        """Seconds until the next turn if nobody wakes the service before."""
        times = [state.next_at for state in self._channels.values() if state.next_at is not None]
        return max(0.0, min(times) - self._clock.monotonic()) if times else None

    def _choose(self, state: ChannelState) -> None:
        """Choose the next message of a channel, and write that it is being sent."""
        mono = self._clock.monotonic()
        state.next_at, state.is_done = None, False
        self._write(state.name, state.queue.compare(self._done), "stopped", "another channel has delivered it")
        if state.batch is not None:
            return
        expired = state.queue.expired(self._clock.now(), mono)
        self._write(state.name, expired, "stopped", "it expired before it could be sent")
        found = state.queue.pick(mono, is_last=state.is_last, written=self._journal.waits_for)
        if isinstance(found, MessageBatch):
            self._journal.sent_unwritten += sum(one.number > self._journal.written for one in found.queued)
            state.batch = state.queue.lease(found, mono, self._journal.written)
            self._write(state.name, state.batch.notifications, "leased", None)
            state.number = self._journal.number
        elif state.is_last:
            state.is_done = self._journal.is_settled
        elif found is not None:
            state.next_at = mono + found

    # ---- on the thread of one message --------------------------------------------------------------------------------

    def _send(self, state: ChannelState, batch: MessageBatch) -> None:
        try:
            outcome = self._sent_or_refused(state, batch)
        except (NotLeader, Retry, Broken) as error:
            outcome = Outcome(state, batch, error)
        except Exception as error:
            log.exception("the channel %s crashed", state.name)
            outcome = Outcome(state, batch, Retry(f"it crashed here: {type(error).__name__}"))
        self._outcomes.put(outcome)
        self._wake()

    def _sent_or_refused(self, state: ChannelState, batch: MessageBatch) -> Outcome:
        try:
            return Outcome(state, batch, self._transmit(state, batch))
        except Broken as error:
            if len(batch.notifications) == 1:
                raise
            # Only the batch as a whole may be refused: one of it is tried alone.
            alone = self._transmit(state, batch._replace(notifications=batch.notifications[:1]))
            return Outcome(state, batch, alone, error.message)

    def _transmit(self, state: ChannelState, batch: MessageBatch) -> Sent:
        """Send one message and return the answer of the receiver.

        Raises:
            Retry, Broken: as the sender does.
            NotLeader: another program leads now.
        """
        message = self._message(state.name, batch)
        if not self._is_leader():  # last: this program may have been stopped at any point before
            raise NotLeader
        began, timeout = self._clock.monotonic(), state.timeout
        try:
            sent = state.sender.send(message, timeout)
        except (Retry, Broken):
            is_slow = self._clock.monotonic() - began >= 0.9 * timeout
            state.timeout = min(2 * timeout, max(self._timeout, LONGEST_TIMEOUT)) if is_slow else self._timeout
            raise
        state.timeout = self._timeout
        return sent

    def _message(self, name: str, batch: MessageBatch) -> Message:
        now, notices = self._clock.now(), tuple(one.told for one in batch.notifications)
        try:
            if batch.is_summary:
                message = summary(name, batch.notifications, self._alerts(), now)
            else:
                message = self._render(notices, now)
        except Exception:
            log.exception("a message could not be rendered: only the summaries are sent")
            message = in_short(notices, now)
        message = replace(message, is_brief=batch.is_brief)
        if self._attach is None or batch.is_summary or batch.is_brief:
            return message
        try:
            return replace(message, attachments=(*message.attachments, *self._attach(message.notices)))
        except Exception:  # a message without a picture is better than none
            log.exception("nothing could be attached")
            return message

    # ---- the answer of a receiver ------------------------------------------------------------------------------------

    def _note_or_retry(self, outcome: Outcome) -> None:
        """Take in an answer. If that is not possible, the message is tried again, ever more rarely."""
        try:
            self._note(outcome)
        except Exception:
            log.exception("the answer for the channel %s", outcome.state.name)
            if not isinstance(outcome.answer, Retry):
                failed = Retry("an error in trainmon-tui: see its log")
                self._note_or_retry(outcome._replace(answer=failed, refused=None))

    def _note(self, outcome: Outcome) -> None:
        state, batch, answer = outcome.state, outcome.batch, outcome.answer
        state.batch, state.is_sending = None, False
        self._replaced = [one for one in self._replaced if one is not state]
        mono = self._clock.monotonic()
        match answer:
            case NotLeader():
                log.info("channel %s: another program leads and sends %d notifications", state.name, len(batch.queued))
                state.queue.drop(batch)
            case Retry():
                state.queue.failed(batch, mono, answer.after)
                self._fails(state, "retrying", answer.message)
                pause = min(queued.due for queued in batch.queued) - mono
                self._write(state.name, batch.notifications, "waiting", answer.message, pause)
            case Broken():
                given_up = state.queue.refused(batch, mono)
                self._fails(state, "broken", str(answer))
                self._give_to_others(state.name, given_up, f"{state.name} could not deliver it")
                self._write(state.name, batch.notifications, "dead", str(answer))
            case Sent():
                if outcome.refused is not None:
                    state.queue.split(batch, mono)
                    self._write(state.name, batch.notifications[1:], "waiting", outcome.refused)
                    batch = batch._replace(queued=batch.queued[:1], notifications=batch.notifications[:1])
                self._sent(state, batch, answer, mono)
        if self._channels.get(state.name) is not state:  # the config has changed meanwhile
            self.add(state.clear())

    def _sent(self, state: ChannelState, batch: MessageBatch, sent: Sent, mono: Seconds) -> None:
        name, notifications = state.name, batch.notifications
        state.queue.sent(batch)
        state.queue.budget.spend(batch.queued, sent.messages, mono)
        state.known = replace(
            state.known, state="ok", problem=None, since=None, sent_at=self._clock.now(), sent=state.known.sent + 1
        )
        self._write(name, notifications[:1], "sent", sent.answer or None)
        self._write(name, notifications[1:], "merged", f"in one message of {len(notifications)}")

    def _fails(self, state: ChannelState, how: str, reason: str) -> None:
        known = state.known
        state.known = replace(
            known, state=how, problem=reason, since=known.since or self._clock.now(), failed=known.failed + 1
        )

    def _write(
        self, name: str, notifications: Sequence[Notification], state: OutboxState, answer: str | None,
        pause: Seconds = 0.0,
    ) -> None:  # fmt: skip
        """Record the state of notifications in the ledger, and report it to the engine. A channel that has sent or
        stopped one is done with it."""
        now = self._clock.now()
        if state in ("sent", "merged", "stopped"):
            for one in notifications:
                self._done.setdefault(one.notice.key, {})[name] = state != "stopped"
            drop_oldest(self._done, DONE_AT_MOST)
        shown = "retrying" if state == "waiting" else "sending" if state == "leased" else state
        for kind, mine in group_by((one.notice for one in notifications), lambda notice: notice.kind).items():
            if ids := {alert.id for notice in mine for alert in notice.alerts}:
                delivery = Delivery(channel=name, kind=kind, state=shown, at=now, answer=answer)
                self._submit(Delivered(tuple(sorted(ids)), delivery))
        sent_at = now if state in ("sent", "merged") else None
        self._journal.put(
            replace(one, state=state, next_at=now + pause, sent_at=sent_at, answer=answer) for one in notifications
        )

    # ---- what one channel cannot deliver -----------------------------------------------------------------------------

    def pass_on_last(self) -> None:
        """This program ends: give to other channels what one could not send by now. Channels that end with it get
        nothing more."""
        for state in self._channels.values():
            self._pass_on(state, is_last=state.is_last)

    def _pass_on(self, state: ChannelState, *, is_last: bool) -> None:
        """Give what a channel should have delivered by now to others."""
        now, mono = self._clock.now(), self._clock.monotonic()
        overdue = state.queue.overdue(mono, is_last=is_last)
        if not overdue:
            return
        health = state.health(now, mono)
        is_spent = health.state == "ok" and 0 < health.per_day <= health.sent_in_day / NEAR
        problem = "its daily budget is nearly used up" if is_spent else health.problem
        because = f"{state.name} could not deliver it: {problem or 'it does not answer'}"
        for notification in overdue:
            others = [one for one in self._stand_ins(state.name, notification) if not self._channels[one].is_last]
            if others:
                self.owe(notification.for_another(other, because) for other in others)
                state.queue.passed_on(notification.notice.key)

    def _give_to_others(self, name: str, notifications: Sequence[Notification], because: str) -> None:
        """Have others deliver what this channel cannot."""
        self.owe(
            notification.for_another(other, because)
            for notification in notifications
            if notification.notice.kind not in NOT_PASSED_ON and not notification.delivered_by
            for other in self._stand_ins(name, notification)
        )

    def _stand_ins(self, name: str, notification: Notification) -> list[str]:
        queues = {one: state.queue for one, state in self._channels.items() if one != name}
        return stand_ins(notification.notice, queues, self._routes, self._clock.monotonic())

    # ---- what waits, over restarts, reloads and changes of the leader ------------------------------------------------

    def add_changes(self, changes: AlertChanges) -> None:
        """Write what one evaluation changed; each channel of a notice is owed it from now on."""
        self._journal.add_changes(changes)
        for notice in changes.notices:
            self.owe(Notification(channel=one, notice=notice, made_at=changes.at) for one in notice.channels)

    def owe(self, owed: Iterable[Notification]) -> None:
        """Write and queue new notifications."""
        new = [one for one in owed if not self._is_queued(one)]
        self._journal.put(new)
        self.add(new)

    def add(self, notifications: Iterable[Notification]) -> None:
        """Queue those that are not queued, and were not."""
        now, mono = self._clock.now(), self._clock.monotonic()
        for notification in notifications:
            name, key = notification.channel, notification.notice.key
            was_sent, queue = self._done.get(key, {}).get(name), self._queue_of(name)
            if was_sent is not None:  # its mark was lost with the lease
                self._write(name, [notification], "sent" if was_sent else "stopped", None)
            elif not self._is_queued(notification):
                queue.add(notification, mono, now - notification.made_at, self._journal.number)
                superseded = queue.supersede(key, mono)
                self._write(name, superseded, "stopped", "a later notification reports the same alerts")

    def _is_queued(self, one: Notification) -> bool:
        """Whether it waits for its channel, or is being sent, also by a channel that was replaced, unless that hangs:
        a copy is better than a loss."""
        key, mono = one.notice.key, self._clock.monotonic()
        return key in self._queue_of(one.channel) or any(
            state.name == one.channel and key in state.queue and state.hung(mono) <= STRANGE_AFTER
            for state in self._replaced
        )

    def _queue_of(self, channel: str) -> SendQueue:
        state = self._channels.get(channel)
        return state.queue if state is not None else self._removed.setdefault(channel, SendQueue())

    def _give_up_removed(self) -> None:
        """Give to others what waits for channels that are no longer in the config."""
        now, mono = self._clock.now(), self._clock.monotonic()
        for name, removed in list(self._removed.items()):
            given_up = removed.give_up(self._journal.waits_for, mono)
            reason = f"the channel {name} is no longer in the config"
            self._give_to_others(name, given_up, reason)
            self._journal.put(replace(one, next_at=now, answer=reason) for one in given_up)

    def clear(self) -> None:
        """Drop what waits: another program leads."""
        for state in self._channels.values():
            state.clear()
        self._removed.clear()

    def retry_now(self) -> None:
        """Retry everything now."""
        for state in self._channels.values():
            state.queue.retry_now(self._clock.monotonic())

    def write_all(self) -> None:
        """Write what waits once more: the ledger is a new one."""
        now, states = self._clock.now(), (*self._channels.values(), *self._replaced)
        for waiting in (*(state.queue for state in states), *self._removed.values()):
            self._journal.put(replace(one, next_at=now) for one in waiting.notifications)

    def restore(self, channels: Iterable[Channel], sent: Mapping[str, Sequence[Instant]]) -> None:
        """Take over the health of channels that the previous program wrote, and count what it sent in the last day, by
        its marks and by its own count: files may count, too."""
        counted = {channel.name: channel.sent_in_day for channel in channels}
        self._restore_health(channels)
        offset = self._clock.monotonic() - self._clock.now()
        for name, times in sent.items():
            if name in self._channels and times:
                files = [times[-1]] * max(0, counted.get(name, 0) - len(times))
                self._channels[name].queue.budget.restore(at + offset for at in (*times, *files))

    def _restore_health(self, channels: Iterable[Channel]) -> None:
        names = ("state", "problem", "sent_at", "since", "sent", "failed")
        for channel in channels:
            state = self._channels.get(channel.name)
            if state is not None and state.known.type == channel.type:
                state.known = replace(state.known, **{name: getattr(channel, name) for name in names})

    def reload(self, senders: Iterable[Sender], routes: tuple[Route, ...]) -> None:
        """Replace the channels. A message that is being sent is sent to its end; what waits goes on where it can: a
        message that is only chosen is chosen again."""
        old, known = self._channels, self.health
        self._routes, self._channels = routes, self._states(senders)
        self._restore_health(known)
        for name, state in old.items():
            if name in self._channels:
                self._channels[name].queue.budget.take_over(state.queue.budget)
            self._replaced += [state] if state.is_sending else []
            self.add(state.clear())
        removed, self._removed = self._removed, {}
        for one in [one for each in removed.values() for one in each.clear()]:
            if any(self._done.get(one.notice.key, {}).values()):
                self._write(one.channel, [one], "stopped", "another channel has delivered it")
            else:
                self.add([one])

    # ---- what others ask ---------------------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._channels)

    @property
    def everyday(self) -> tuple[str, ...]:
        """All channels but the fallbacks; all channels if every one is a fallback."""
        fallbacks = {route.channel for route in self._routes if route.fallback}
        return tuple(name for name in self._channels if name not in fallbacks) or self.names

    @property
    def health(self) -> tuple[Channel, ...]:
        now, mono = self._clock.now(), self._clock.monotonic()
        return tuple(state.health(now, mono) for state in self._channels.values())

    def finish(self, names: Collection[str]) -> None:
        """Have these channels send what they can, and nothing later."""
        for name, state in self._channels.items():
            state.is_last = state.is_last or name in names

    def are_done(self, names: Collection[str]) -> bool:
        """Whether they have sent what they can. From any thread."""
        return all(state.is_done for name, state in self._channels.items() if name in names)


def in_short(notices: Sequence[Notice], now: Instant) -> Message:
    """A message of the summaries alone, which cannot fail."""
    lines = [printable(alert.summary) for notice in notices for alert in notice.alerts]
    lines += [printable(notice.title) for notice in notices if notice.title]
    severity = min((notice.severity for notice in notices), key=SEVERITIES.index)
    return Message(
        key=notices[0].key,
        severity=severity,
        title=f"{severity}: {lines[0] if len(lines) == 1 else f'{len(lines)} alerts'}",
        body="\n".join(lines)[:4_000],
        notices=tuple(notices),
        at=now,
    )
