"""Delivers notifications: one thread decides, and each message is sent on a thread of its own.

Each turn: note the answers of the receivers; take what the journal has written; give to other channels what one cannot
deliver; choose what is sent next. A message leaves when its try is written, and this program still leads.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.notify.delivery.due import NEAR, NOT_PASSED_ON, Budget, MessageBatch, SendQueue, stand_ins
from trainmon.alerting.notify.delivery.journal import Journal
from trainmon.alerting.notify.message import Attachment, Broken, Message, Retry, Sender, Sent, printable, summary
from trainmon.ledger.outbox import OutboxState
from trainmon.lib import Clock, Instant, Seconds, ago, drop_oldest, group_by
from trainmon.model import SEVERITIES, Alert, Channel, Delivered, Delivery, Notice, Notification, Route

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

    def release(self) -> None:
        """Choose the next message again, unless it is being sent."""
        if self.batch is not None and not self.is_sending:
            self.queue.release(self.batch)
            self.batch = None

    def health(self, now: Instant, mono: Seconds) -> Channel:
        waiting, own = self.queue, self.sender.health
        health = replace(
            self.known,
            waiting=len(waiting),
            oldest_at=waiting.oldest_at(now, mono),
            overdue=waiting.overdue_count,
            sent_in_day=waiting.budget.used(mono),
        )
        hung = mono - self.batch.since if self.batch is not None else 0.0
        if hung > STRANGE_AFTER:
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
        self._homeless: dict[tuple[str, str], Notification] = {}
        """What waited for channels that were removed. A later config may have them again, or others."""
        self._channels = self._states(senders)

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
        self.add(self._journal.turn())
        if self._journal.is_lost:
            return
        for state in self._channels.values():
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
        expired = state.queue.expired(self._clock.now())
        self._write(state.name, expired, "stopped", "it expired before it could be sent")
        found = state.queue.pick(mono, is_last=state.is_last)
        if isinstance(found, MessageBatch):
            state.batch = state.queue.lease(found, mono)
            state.number = self._write(state.name, state.batch.notifications, "leased", None)
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
            longer = min(2 * timeout, max(self._timeout, LONGEST_TIMEOUT))
            state.timeout = longer if is_slow else self._timeout
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
        mono = self._clock.monotonic()
        match answer:
            case NotLeader():
                log.info("channel %s: another program leads and sends %d notifications", state.name, len(batch.queued))
                state.queue.drop(batch)
            case Retry():
                given_up = state.queue.failed(batch, mono, answer.after)
                pause = min(queued.due for queued in batch.queued) - mono
                self._fails(state, "retrying", answer.message)
                self._write(state.name, batch.notifications, "waiting", answer.message, pause)
                self._give_to_others(state.name, given_up, f"{state.name} could not deliver it")
                self._write(state.name, given_up, "dead", f"not delivered in a day: {answer.message}")
            case Broken():
                given_up = state.queue.refused(batch, mono)
                self._fails(state, "broken", answer.message)
                self._give_to_others(state.name, given_up, f"{state.name} could not deliver it")
                self._write(state.name, batch.notifications, "dead", answer.message)
            case Sent():
                if outcome.refused is not None:
                    state.queue.split(batch, mono)
                    self._write(state.name, batch.notifications[1:], "waiting", outcome.refused)
                    batch = batch._replace(queued=batch.queued[:1], notifications=batch.notifications[:1])
                self._sent(state, batch, answer, mono)
        if self._channels.get(state.name) is not state:  # the config has changed meanwhile
            self.add(state.queue.clear())

    def _sent(self, state: ChannelState, batch: MessageBatch, sent: Sent, mono: Seconds) -> None:
        name, notifications = state.name, batch.notifications
        state.queue.sent(batch)
        state.queue.budget.spend(batch.queued, sent.messages, mono)
        state.known = replace(
            state.known, state="ok", problem=None, since=None, sent_at=self._clock.now(), sent=state.known.sent + 1
        )
        first, *others = notifications
        self._write(name, [first], "sent", sent.answer or None)
        self._write(name, others, "merged", f"in one message of {len(notifications)}")

    def _fails(self, state: ChannelState, how: str, reason: str) -> None:
        known = state.known
        state.known = replace(
            known, state=how, problem=reason, since=known.since or self._clock.now(), failed=known.failed + 1
        )

    def _write(
        self, name: str, notifications: Sequence[Notification], state: OutboxState, answer: str | None,
        pause: Seconds = 0.0,
    ) -> int:  # fmt: skip
        """Record the state of notifications in the ledger, and report it to the engine. Return the number of the
        transaction. A channel that has sent or stopped one is done with it."""
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
        return self._journal.mark(
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
                self._journal.owe(notification.for_another(other, because) for other in others)
                state.queue.passed_on(notification.notice.key)

    def _give_to_others(self, name: str, notifications: Sequence[Notification], because: str) -> None:
        """Have others deliver what this channel cannot."""
        self._journal.owe(
            notification.for_another(other, because)
            for notification in notifications
            if notification.notice.kind not in NOT_PASSED_ON and not notification.delivered_by
            for other in self._stand_ins(name, notification)
        )

    def _stand_ins(self, name: str, notification: Notification) -> list[str]:
        queues = {one: state.queue for one, state in self._channels.items() if one != name}
        return stand_ins(notification.notice, queues, self._routes, self._clock.monotonic())

    # ---- what waits, over restarts, reloads and changes of the leader ------------------------------------------------

    def add(self, notifications: Iterable[Notification]) -> None:
        """Queue notifications; those of a channel that was removed go to others."""
        now, mono = self._clock.now(), self._clock.monotonic()
        for notification in notifications:
            name, key = notification.channel, notification.notice.key
            if self._done.get(key, {}).get(name):  # it was sent, and its mark was lost with the lease
                self._write(name, [notification], "sent", None)
                continue
            state = self._channels.get(name)
            if state is not None:
                state.queue.add(notification, mono, now - notification.made_at)
                superseded = state.queue.supersede(key, mono)
                self._write(name, superseded, "stopped", "a later notification reports the same alerts")
                continue
            reason = f"the channel {name} is no longer in the config"
            self._give_to_others(name, [notification], reason)
            self._journal.mark([replace(notification, state="dead", next_at=now, answer=reason)])
            self._homeless[notification.address] = notification
        drop_oldest(self._homeless, DONE_AT_MOST)

    def add_unknown(self, notifications: Iterable[Notification]) -> None:
        """Queue those that are not queued, and were not."""
        unknown = [one for one in notifications if not self._knows(one)]
        if unknown:
            log.info("%d notifications wait in the ledger and in no queue: they are sent now", len(unknown))
        self.add(unknown)

    def _knows(self, notification: Notification) -> bool:
        name, key = notification.channel, notification.notice.key
        return name in self._done.get(key, {}) or (name in self._channels and key in self._channels[name].queue)

    def clear(self) -> None:
        """Drop what waits: another program leads."""
        for state in self._channels.values():
            state.release()
            state.queue.clear()
        self._homeless.clear()

    def retry_now(self) -> None:
        """Retry everything now."""
        for state in self._channels.values():
            state.queue.retry_now(self._clock.monotonic())

    def write_all(self) -> None:
        """Write what waits once more: the ledger is a new one."""
        now = self._clock.now()
        for state in self._channels.values():
            self._journal.mark(replace(one, next_at=now) for one in state.queue.notifications)

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
            state.release()
            self.add(state.queue.clear())
        homeless, self._homeless = self._homeless, {}
        self.add(one for one in homeless.values() if not any(self._done.get(one.notice.key, {}).values()))

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
