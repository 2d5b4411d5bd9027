"""What each channel is sent next: what goes together, when after a failure, and what others deliver in its place. Pure.

All times are those of the monotonic clock: a clock jump makes nothing late or old.

ntfy.sh accepts 250 messages a day (docs.ntfy.sh/publish/#limitations), then refuses each for the rest of the day.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple

from msgspec.structs import replace

from trainmon.lib import DAY, Instant, Seconds, drop_oldest
from trainmon.model import SEVERITIES, Alert, Notice, NoticeKind, Notification, Route, Severity

# ---- A notification in a send queue, and when it is overdue because its channel fails or hangs -----------------------

CRITICAL_OVERDUE: Seconds = 45.0
"""A critical notification is overdue this long after it was first due, if its channel fails or hangs. With the time to
store and send it, another channel delivers it within a minute."""
OVERDUE: Seconds = 240.0
"""The same for all others: another channel delivers them within five minutes."""
FIRST_TRY: Seconds = 10.0
"""A failing channel gets this long for a new notification before it is overdue. A try that takes longer hangs."""

NOT_PASSED_ON: tuple[NoticeKind, ...] = ("heartbeat", "test", "start", "goodbye")
"""Every channel gets these anyway, so no other channel stands in for it."""

REPORTS: frozenset[NoticeKind] = frozenset(
    {"fire", "worse", "resolve", "repeat", "escalate", "flapping", "event", "digest"}
)
"""The kinds that report that alerts fire or are resolved, and can be merged with others."""
Reported = tuple[str, str, Severity, bool]
"""(rule, subject, severity, whether the alert is over)"""


@dataclass(slots=True)
class QueuedNotification:
    """A notification in the send queue of its channel."""

    notification: Notification
    due: Seconds
    since: Seconds
    """When it was first due, by the ledger: no restart changes it."""
    number: int = 0
    """Of the transaction that writes that it is owed. It is not sent before, unless the ledger is stuck."""
    was_tried: bool = False
    """Whether an earlier program tried it."""
    has_failed: bool = False
    """Whether this program has tried it and failed."""
    held_until: Seconds = -math.inf
    """Until when the daily budget held it back. That is no failure of its channel."""
    is_overdue: bool = False
    is_passed_on: bool = False
    """Whether it was also given to other channels."""
    is_given_up: bool = False
    """Whether the receiver refuses it for good."""
    is_alone: bool = False
    """Not sent together with others any more: the receiver refused the batch and accepted another of them alone."""

    @property
    def key(self) -> str:
        return self.notification.notice.key

    @property
    def is_waiting(self) -> bool:
        """Whether no channel has delivered it, and this one has not given it up."""
        return not (self.is_given_up or self.notification.delivered_by)

    @property
    def rank(self) -> tuple[int, Seconds]:
        """The most severe first; the summary of what another channel has delivered comes last."""
        one = self.notification
        return len(SEVERITIES) if one.delivered_by else SEVERITIES.index(one.notice.severity), self.since

    @property
    def is_critical(self) -> bool:
        return self.notification.notice.severity == "critical"

    @property
    def is_urgent(self) -> bool:
        """Whether it reports a critical alert, and not that one ended or what another channel has delivered."""
        is_new = self.notification.notice.kind not in ("resolve", "acknowledged", "cause")
        return self.is_critical and is_new and not self.notification.delivered_by

    @property
    def is_untouched(self) -> bool:
        """Whether no channel has tried it, and none is to stand in for this one."""
        one = self.notification
        return not (one.attempts or one.delivered_by or one.is_stand_in or self.is_passed_on or self.is_given_up)

    def reported(self) -> dict[Reported, Alert]:
        """Its alerts, by what a later notification about the same would also report."""
        notice = self.notification.notice
        is_end = notice.kind == "resolve"
        return {(*one.key, one.severity, is_end): one for one in notice.alerts if notice.kind in REPORTS}

    @property
    def critical_subjects(self) -> frozenset[str]:
        return frozenset(alert.subject for alert in self.notification.notice.alerts if alert.severity == "critical")

    @property
    def alerts(self) -> frozenset[str]:
        return frozenset(alert.id for alert in self.notification.notice.alerts)


class MessageBatch(NamedTuple):
    """The notifications that are sent as one message."""

    queued: tuple[QueuedNotification, ...]
    is_brief: bool = False
    """Whether it is sent without plots: its channel has few messages left."""
    notifications: tuple[Notification, ...] = ()
    """What is sent: as they were when the batch was leased."""
    since: Seconds = 0.0
    """When that was."""

    @property
    def is_summary(self) -> bool:
        """Whether another channel has delivered some of them while this one was down."""
        return any(one.delivered_by for one in self.notifications)


# ---- the daily budget of one channel ---------------------------------------------------------------------------------

NEAR = 0.7
"""From this share of the budget on, what is not urgent is sent as a summary now and then."""
RESERVED = 0.9
"""The last tenth is for critical alerts. So the fifth between the two must last for a day of summaries."""
NEWS_PAUSE: Seconds = 60.0
"""Near the limit, the pause between two messages with new critical subjects: a storm of them must not use it up."""
RESERVED_NEWS_PAUSE: Seconds = 300.0
"""The same in the last tenth."""
CRITICAL_PAUSE: Seconds = 300.0
"""Near the limit, the pause before critical alerts of subjects of which people know."""
SPENT_PAUSE: Seconds = 3_600.0
"""Beyond the budget, critical alerts are still sent, together and once an hour: at most 24 more a day."""
SUBJECTS_AT_MOST = 10_000


class Budget:
    """The messages of one channel in the last 24 hours."""

    def __init__(self, per_day: int = 0) -> None:
        """`per_day`: how many messages; 0 for any number."""
        self.per_day = per_day
        self._sent: deque[Seconds] = deque(maxlen=2 * per_day)
        self._news: Seconds = -math.inf
        """When a critical alert of a new subject was last sent."""
        self._subjects: dict[str, Seconds] = {}
        """When a critical alert of each subject was last sent."""

    def restore(self, times: Iterable[Seconds]) -> None:
        """Count messages that earlier programs sent."""
        self._sent = deque(sorted([*self._sent, *times]), maxlen=self._sent.maxlen)

    def take_over(self, other: Budget) -> None:
        """Count what the same channel sent before its settings changed."""
        self._news, self._subjects = other._news, other._subjects
        self.restore(other._sent)

    def used(self, mono: Seconds) -> int:
        """How many messages were sent in the last 24 hours."""
        while self._sent and mono - self._sent[0] >= DAY:
            self._sent.popleft()
        return len(self._sent)

    def is_near(self, mono: Seconds) -> bool:
        """Whether few messages are left, so that all that waits goes in one."""
        return self.per_day > 0 and self.used(mono) >= NEAR * self.per_day

    def free_at(self, queued: QueuedNotification, mono: Seconds) -> Seconds:
        """From when on the channel may send it; -inf if the budget does not hold it back."""
        if not self.is_near(mono):
            return -math.inf
        used, last = len(self._sent), self._sent[-1]
        summary_at = last + DAY / ((RESERVED - NEAR) * self.per_day)
        if not queued.is_urgent:
            over = used - int(RESERVED * self.per_day)
            return summary_at if over < 0 else max(summary_at, self._sent[over] + DAY)
        if used >= self.per_day:
            return last + SPENT_PAUSE
        is_reserve = used >= RESERVED * self.per_day
        if self.is_news(queued, mono):
            return self._news + (RESERVED_NEWS_PAUSE if is_reserve else NEWS_PAUSE)
        return summary_at if is_reserve else last + CRITICAL_PAUSE

    def is_news(self, queued: QueuedNotification, mono: Seconds) -> bool:
        """Whether it has a critical alert of a subject of which nothing critical was sent in the last 24 hours."""
        return queued.is_urgent and any(mono - self._subjects.get(one, -DAY) >= DAY for one in queued.critical_subjects)

    def spend(self, batch: Iterable[QueuedNotification], messages: int, mono: Seconds) -> None:
        """Count a batch that was sent as so many messages."""
        if not self.per_day:
            return
        for queued in batch:
            if self.is_news(queued, mono):
                self._news = mono
            if queued.is_urgent:
                self._subjects |= dict.fromkeys(queued.critical_subjects, mono)
        drop_oldest(self._subjects, SUBJECTS_AT_MOST)
        self._sent.extend([mono] * messages)


# ---- the send queue of one channel -----------------------------------------------------------------------------------

FIRST_PAUSE: Seconds = 1.0
LONGEST_PAUSE: Seconds = 300.0
"""Between two tries: exponential backoff with full jitter, so that many never retry at once."""

RETRY_AFTER_AT_MOST: Seconds = 3_600.0
"""A Retry-After may be a day (a daily quota): the receiver is tried each hour all the same."""
CRITICAL_RETRY_AFTER_AT_MOST: Seconds = 900.0
"""Critical notifications are tried sooner, and each new one at once."""

SUMMARY_WITHIN: Seconds = 7 * DAY
"""A channel that works again gets a summary of what others delivered; of an older outage it gets nothing."""
TRIES_AT_LEAST = 100
"""A week has thousands of tries. After fewer, the clock jumped, or the program slept: the summary is still sent."""
REFUSED_PAUSE: Seconds = 3_600.0
"""A notification that no channel delivered is retried this often: somebody may have repaired the receiver."""

LATE: Seconds = 180.0
"""All that waited longer is sent as one message, after an outage."""
TOGETHER: int = 10
"""When more wait, they are sent as one message."""

BURST = 10
REFILL: Seconds = 5.0
"""A token bucket: this many messages at once, then one each REFILL. ntfy.sh allows its visitors 60 requests at once,
then one each 5 s (docs.ntfy.sh/publish/#limitations)."""
CRITICAL_TOKENS = 3
"""So many of them are kept for what is new and critical: it does not wait behind others."""


@dataclass(slots=True)
class SendQueue:
    """The waiting notifications of one channel."""

    rng: Random = field(default_factory=Random)
    budget: Budget = field(default_factory=Budget)
    _queued: dict[str, QueuedNotification] = field(default_factory=dict)
    _failures: int = 0
    _paused_until: Seconds = 0.0
    _retry_after: tuple[Seconds, Seconds] = (0.0, 0.0)
    """When the receiver last asked for a pause, and how long."""
    _trying_since: Seconds | None = None
    _failing_since: Seconds = math.inf
    """When the first failed try after the last success began."""
    _failed_together: bool = False
    """The last batch failed: the next try sends one alone, because one may spoil the others."""
    _tokens: tuple[float, Seconds] = (BURST, 0.0)
    """How many there were after the last message was chosen, and when that was."""

    def __len__(self) -> int:
        return sum(queued.is_waiting for queued in self._queued.values())

    def __contains__(self, key: str) -> bool:
        return key in self._queued

    @property
    def notifications(self) -> list[Notification]:
        return [queued.notification for queued in self._queued.values()]

    def oldest_at(self, now: Instant, mono: Seconds) -> Instant | None:
        """Since when the oldest waits. The time in which the budget holds it back does not count."""
        offset = now - mono
        waiting = (queued for queued in self._queued.values() if queued.is_waiting)
        times = ((one.notification.made_at, self.budget.free_at(one, mono)) for one in waiting)
        return min((max(made, free + offset) for made, free in times if free <= mono), default=None)

    def add(self, notification: Notification, mono: Seconds, waited: Seconds = 0.0, number: int = 0) -> None:
        """Add one that has waited this long already, and that this transaction writes, unless its notice is queued."""
        queued = QueuedNotification(
            replace(notification, state="waiting"),
            mono,
            mono - max(0.0, waited),
            number=number,
            was_tried=notification.attempts > 0,
        )
        self._queued.setdefault(queued.key, queued)

    def forget(self, key: str) -> None:
        """An earlier program has sent it, unless it is being sent again."""
        if key in self._queued and self._queued[key].notification.state != "leased":
            del self._queued[key]

    def supersede(self, key: str, mono: Seconds) -> list[Notification]:
        """Near the limit of the budget, keep what waits per subject, not per episode: older notifications lose the
        alerts whose next episode this one reports. Remove and return those that have none left."""
        newest = self._queued.get(key)
        if newest is None or not self.budget.is_near(mono):
            return []
        known = newest.reported()
        for queued in self._queued.values():
            if queued is not newest and queued.is_untouched and not known.keys().isdisjoint(queued.reported()):
                left = tuple(one for what, one in queued.reported().items() if what not in known)
                queued.notification = replace(
                    queued.notification, notice=replace(queued.notification.notice, alerts=left)
                )
                newest.since = min(newest.since, queued.since)
        return self._remove(
            lambda queued: queued.is_untouched and queued.notification.notice.kind in REPORTS and not queued.alerts
        )

    def clear(self, sending: MessageBatch | None = None) -> list[Notification]:
        """Remove and return all but what is being sent."""
        kept = {queued.key for queued in sending.queued} if sending is not None else set[str]()
        self._trying_since = self._trying_since if kept else None
        return self._remove(lambda queued: queued.key not in kept)

    def _remove(self, is_gone: Callable[[QueuedNotification], object]) -> list[Notification]:
        gone = [queued for queued in self._queued.values() if is_gone(queued)]
        for queued in gone:
            del self._queued[queued.key]
        return [queued.notification for queued in gone]

    def retry_now(self, mono: Seconds) -> None:
        """Retry everything now: the machine slept, or the network is back."""
        self._paused_until, self._retry_after = mono, (0.0, 0.0)
        for queued in self._queued.values():
            queued.due = min(queued.due, mono)

    def expired(self, now: Instant, mono: Seconds) -> list[Notification]:
        """Remove and return those past their expiry."""

        def is_over(queued: QueuedNotification) -> bool:
            one = queued.notification
            was_tried = bool(one.delivered_by) and one.attempts >= TRIES_AT_LEAST
            return (was_tried and mono - queued.since > SUMMARY_WITHIN) or (one.notice.expires_at or math.inf) <= now

        return self._remove(is_over)

    def pick(self, mono: Seconds, *, is_last: bool = False, written: float = math.inf) -> MessageBatch | Seconds | None:
        """The batch to send now, or the seconds until there may be one. None: nothing waits. `is_last`: the program
        ends, so all that can be sent is sent at once. `written`: the number of the last transaction that was written.
        Nothing changes before `lease`."""
        waiting = [queued for queued in self._queued.values() if queued.number <= written]
        times = {queued.key: max(queued.due, self.budget.free_at(queued, mono)) for queued in waiting}
        ready = [queued for queued in waiting if times[queued.key] <= mono]
        if not ready:
            return max(0.0, min(times.values()) - mono) if times else None
        first = min(ready, key=lambda queued: (self._wait_time(queued, mono, is_last=is_last), queued.rank))
        if (wait := self._wait_time(first, mono, is_last=is_last)) > 0:
            return wait
        if is_near := self.budget.is_near(mono):  # what may not go alone goes along
            ready = [queued for queued in waiting if queued.due <= mono]
        batch = self._choose_batch(first, ready, waiting, mono, is_one=is_last or is_near)
        return MessageBatch(tuple(batch), is_brief=is_near)

    def _wait_time(self, queued: QueuedNotification, mono: Seconds, *, is_last: bool) -> Seconds:
        """How long it must wait. What is new and critical waits for no pause of others."""
        is_news = queued.is_critical and not queued.notification.attempts
        until = mono if is_news else self._retry_after_until(queued)
        if not is_last:
            missing = (1 if is_news else 1 + CRITICAL_TOKENS) - self._tokens_at(mono)
            until = max(until, mono if is_news else self._paused_until, mono + missing * REFILL)
        return max(0.0, until - mono)

    def _tokens_at(self, mono: Seconds) -> float:
        tokens, at = self._tokens
        return min(BURST, tokens + (mono - at) / REFILL)

    def _retry_after_until(self, queued: QueuedNotification) -> Seconds:
        at, pause = self._retry_after
        return at + min(pause, CRITICAL_RETRY_AFTER_AT_MOST if queued.is_critical else RETRY_AFTER_AT_MOST)

    def _choose_batch(
        self, first: QueuedNotification, ready: list[QueuedNotification], waiting: list[QueuedNotification],
        mono: Seconds, *, is_one: bool,
    ) -> list[QueuedNotification]:  # fmt: skip
        summary = _summary(waiting)
        if first.key in summary:
            return list(summary.values())
        mixable = [one for one in ready if not one.is_alone and one.key not in summary]
        is_many = is_one or len(mixable) > TOGETHER
        together = mixable if is_many else [one for one in mixable if mono - one.since > LATE]
        is_alone = self._failed_together or first not in together
        chosen = [first] if is_alone else sorted(together, key=lambda queued: (queued is not first, queued.rank))
        # A resolution is never sent before the news of its alert: both go together.
        about, inside = alerts_of(chosen), {one.key for one in chosen}
        return [*chosen, *(one for one in waiting if one.key not in inside and not about.isdisjoint(one.alerts))]

    def lease(self, batch: MessageBatch, mono: Seconds, written: float = math.inf) -> MessageBatch:
        """Mark a batch as being sent: one more try of each. Return it as it is sent. `written`: as for `pick`."""
        self._tokens, self._trying_since = (self._tokens_at(mono) - 1, mono), mono
        for queued in batch.queued:
            one = queued.notification
            is_unwritten = queued.number > written
            queued.notification = replace(
                one, state="leased", attempts=one.attempts + 1, is_unwritten=is_unwritten or one.is_unwritten
            )
        return batch._replace(notifications=tuple(queued.notification for queued in batch.queued), since=mono)

    def drop(self, batch: MessageBatch) -> None:
        """Remove a batch that was sent, or that another program sends."""
        self._trying_since = None
        for queued in batch.queued:
            self._queued.pop(queued.key, None)

    def sent(self, batch: MessageBatch) -> None:
        """The channel accepted the batch, so it works."""
        self._failures, self._paused_until, self._retry_after = 0, 0.0, (0.0, 0.0)
        self._failing_since, self._failed_together = math.inf, False
        self.drop(batch)
        for queued in self._queued.values():
            queued.due = queued.since if queued.notification.delivered_by else queued.due

    def failed(self, batch: MessageBatch, mono: Seconds, after: Seconds | None) -> None:
        """Schedule the next try."""
        self._failures += 1
        self._failed_together = len(batch.queued) > 1 and not batch.is_summary
        self._paused_until = mono + self._pause(self._failures)
        self._retry_after = self._retry_after if after is None else (mono, after)
        self._note_failure(batch, mono, "waiting")
        for queued in batch.queued:
            queued.due = max(mono + self._pause(queued.notification.attempts), self._retry_after_until(queued))

    def refused(self, batch: MessageBatch, mono: Seconds) -> list[Notification]:
        """The receiver refuses the batch for good; return what was not given up before."""
        self._failures = 0
        self._note_failure(batch, mono, "dead")
        new = [queued.notification for queued in batch.queued if not queued.is_given_up]
        for queued in batch.queued:
            queued.due, queued.is_given_up = mono + REFUSED_PAUSE, True
        return new

    def give_up(self, written: float, mono: Seconds) -> list[Notification]:
        """The channel left the config; return what is given up of what is written."""
        rows = (one for one in self._queued.values() if one.number <= written and not one.is_given_up)
        return self.refused(MessageBatch(tuple(rows)), mono)

    def split(self, batch: MessageBatch, mono: Seconds) -> None:
        """The receiver refused the batch but accepted one of it alone: send each alone."""
        self._return(batch, "waiting")
        for queued in batch.queued:
            queued.is_alone, queued.due = True, mono

    def _note_failure(self, batch: MessageBatch, mono: Seconds, state: Literal["waiting", "dead"]) -> None:
        self._failing_since = min(self._failing_since, mono if self._trying_since is None else self._trying_since)
        self._return(batch, state)
        for queued in batch.queued:
            queued.has_failed = True

    def _return(self, batch: MessageBatch, state: Literal["waiting", "dead"]) -> None:
        self._trying_since = None
        for queued in batch.queued:
            queued.notification = replace(queued.notification, state=state)

    # ---- for other channels to deliver ------------------------------------------------------------------------------

    def is_failing(self, mono: Seconds) -> bool:
        """Whether the channel fails, or hangs."""
        hung = 0.0 if self._trying_since is None else mono - self._trying_since
        return self._failing_since < math.inf or hung >= CRITICAL_OVERDUE

    def overdue(self, mono: Seconds, *, is_last: bool = False) -> list[Notification]:
        """What the channel should have delivered by now and no other has; also all else about the same alerts."""
        waiting = self._queued.values()
        passed_on = (one for one in waiting if one.is_passed_on or one.notification.delivered_by)
        about = alerts_of(passed_on) if self.is_failing(mono) else frozenset[str]()
        earlier = (one.since for one in waiting if one.was_tried and not one.has_failed)
        failing_since, found = min(self._failing_since, *earlier, math.inf), []
        for queued in waiting:
            if queued.is_passed_on or not queued.is_waiting or queued.notification.notice.kind in NOT_PASSED_ON:
                continue
            if self.budget.free_at(queued, mono) > mono:
                queued.held_until = mono
            is_late = (
                is_last or not about.isdisjoint(queued.alerts)
                or self._is_late(queued, mono, failing_since)
            )  # fmt: skip
            queued.is_overdue = queued.is_overdue or is_late
            if is_late or self._is_held(queued, mono):
                found.append(queued.notification)
        return found

    def _is_late(self, queued: QueuedNotification, mono: Seconds, failing_since: Seconds) -> bool:
        """Whether other channels should deliver it. A receiver's Retry-After counts as failing until it ends.
        `failing_since`: since when the channel has failed, also an earlier program."""
        is_tried = queued.has_failed or mono - queued.since >= FIRST_TRY
        hangs = self._trying_since is not None and mono - self._trying_since >= FIRST_TRY
        is_down = hangs or queued.has_failed or failing_since < math.inf
        began = min(max(queued.since, queued.held_until), failing_since)
        has_waited = max(mono, self._retry_after_until(queued)) - began
        return is_tried and is_down and has_waited >= (CRITICAL_OVERDUE if queued.is_critical else OVERDUE)

    def _is_held(self, queued: QueuedNotification, mono: Seconds) -> bool:
        """Whether the budget has held back a critical alert of a new subject for too long."""
        has_waited = queued.is_critical and mono - queued.since >= CRITICAL_OVERDUE
        return has_waited and queued.held_until == mono and self.budget.is_news(queued, mono)

    def passed_on(self, key: str) -> None:
        if key in self._queued:
            self._queued[key].is_passed_on = True

    @property
    def overdue_count(self) -> int:
        """How many the channel should have delivered by now, whether or not others have."""
        return sum(queued.is_overdue for queued in self._queued.values())

    def compare(self, done: Mapping[str, Mapping[str, bool]]) -> list[Notification]:
        """Compare what waits with what the channels have done: by the key of a notice, those that are done with it, and
        whether they sent it. Note which other channels delivered what this one could not; drop what was given up here
        and came by another one. Remove and return those that stood in for a channel and are no longer needed."""
        needless = []
        for queued in [queued for key, queued in self._queued.items() if key in done]:
            one, meant = queued.notification, queued.notification.notice.channels
            sent = [name for name, is_sent in done[queued.key].items() if is_sent]
            has_failed = queued.is_passed_on or ((queued.has_failed or queued.was_tried) and not one.is_stand_in)
            if has_failed and not queued.is_given_up:
                others = [name for name in sent if name not in (*meant, one.channel, *one.delivered_by)]
                queued.notification = one = replace(one, delivered_by=(*one.delivered_by, *others))
            is_needless = one.is_stand_in and (one.delivered_by or all(name in done[queued.key] for name in meant))
            if one.state != "leased" and (is_needless or (queued.is_given_up and sent)):
                del self._queued[queued.key]
                needless += [one] if is_needless else []
        return needless

    def _pause(self, tries: int) -> Seconds:
        return self.rng.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 16)))


def alerts_of(waiting: Iterable[QueuedNotification]) -> frozenset[str]:
    return frozenset[str]().union(*(queued.alerts for queued in waiting))


def _summary(waiting: Sequence[QueuedNotification]) -> dict[str, QueuedNotification]:
    """What another channel has delivered, and all else about the same alerts: one message."""
    about = alerts_of(queued for queued in waiting if queued.notification.delivered_by)
    return {
        queued.key: queued
        for queued in waiting
        if not queued.is_alone and (queued.notification.delivered_by or not about.isdisjoint(queued.alerts))
    }


def stand_ins(notice: Notice, queues: Mapping[str, SendQueue], routes: Iterable[Route], mono: Seconds) -> list[str]:
    """The channels, of those with these queues, that deliver what another one could not: the working fallbacks, else
    all fallbacks. If no fallback and no other channel that it was meant for works, also all channels of that
    severity."""
    by_channel = {name: Route(channel=name, severity="info") for name in queues}
    by_channel |= {route.channel: route for route in routes if route.channel in queues}
    if notice.kind == "resolve":
        by_channel = {name: route for name, route in by_channel.items() if route.resolved}
    working = {name for name in by_channel if not queues[name].is_failing(mono)}
    fallbacks = {name for name, route in by_channel.items() if route.fallback}
    found = working & fallbacks or fallbacks
    if not working & (fallbacks | set(notice.channels)):
        rank = SEVERITIES.index(notice.severity)
        found |= {name for name, route in by_channel.items() if rank <= SEVERITIES.index(route.severity)}
    return sorted(found.difference(notice.channels))
