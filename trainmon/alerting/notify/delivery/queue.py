"""The letters that wait for one channel: which go next, which go together, and how long after a failure. Pure.

Times here are those of the monotonic clock: a machine's clock that jumps makes nothing late, and nothing old.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from trainmon.alerting.notify.delivery.held import NOT_PASSED_ON, MessageBatch, Outage, QueuedNotification
from trainmon.lib import Instant, Seconds
from trainmon.model import Notification

FIRST_PAUSE: Seconds = 1.0
LONGEST_PAUSE: Seconds = 300.0
"""Between two tries: drawn from zero to twice as long as after the try before, so that many never come at once."""

ASKED_AT_MOST: Seconds = 3_600.0
"""A receiver may ask to be left alone for a day (a daily quota); whether it still wants that is asked every hour."""
CRITICAL_ASKED_AT_MOST: Seconds = 900.0
"""With what is critical it is asked sooner; and at once with each new critical message."""

GIVEN_UP_AFTER: Seconds = 86_400.0
SUMMED_UP_WITHIN: Seconds = 7 * 86_400.0
"""What another channel delivered is told in a summary when this one works again; of an older outage nothing."""
TRIES_AT_LEAST = 100
"""A day of tries is some 500: what is a day old by a clock that jumped, or in a program that slept, is not given up."""
REFUSED_PAUSE: Seconds = 3_600.0
"""What was given up, and reached nobody by any channel either, is still tried now and then: somebody may have mended
the channel at the other end."""

LATE: Seconds = 180.0
"""What waited longer (an outage is over) is told in one message."""
TOGETHER: int = 10
"""When more than these wait, they are told in one message."""

ROOM = 10
REFILL: Seconds = 5.0
"""Messages at once, and then one every so often: what ntfy.sh allows its visitors, less a part of its room."""


@dataclass(slots=True)
class SendQueue:
    """The waiting letters of one channel. It belongs to whoever has its desk's lock."""

    rng: Random = field(default_factory=Random)
    _held: dict[str, QueuedNotification] = field(default_factory=dict)
    _failures: int = 0
    _paused_until: Seconds = 0.0
    _asked_at: Seconds = 0.0
    _asked_for: Seconds = 0.0
    """What the receiver said when it asked to be left alone, and when that was."""
    _outage: Outage = field(default_factory=Outage)
    _failed_together: bool = False
    """The last message of several failed: one of them is tried alone, for it may be one that spoils the others."""
    _tokens: float = ROOM
    _refilled: Seconds | None = None

    def __len__(self) -> int:
        return sum(self._is_waiting(held) for held in self._held.values())

    def _is_waiting(self, held: QueuedNotification) -> bool:
        return not (held.is_given_up or held.letter.told_by)

    def __contains__(self, key: str) -> bool:
        return key in self._held

    @property
    def oldest_at(self) -> Instant | None:
        return min((held.letter.made_at for held in self._held.values() if self._is_waiting(held)), default=None)

    def add(self, letter: Notification, mono: Seconds, waited: Seconds = 0.0) -> None:
        """Take one in, that has waited for so long already; the same notice is never twice here."""
        since = mono - max(0.0, waited)
        tried = since if letter.attempts else None
        self._held.setdefault(
            letter.notice.key, QueuedNotification(letter, mono, since, added=mono, failing_since=tried)
        )

    def forget(self, key: str) -> None:
        """Somebody was told by another channel what was given up here."""
        if key in self._held and self._held[key].is_given_up:
            del self._held[key]

    def clear(self) -> list[Notification]:
        """Take out all but what is being sent."""
        letters = [held.letter for held in self._held.values() if held.letter.state != "leased"]
        for letter in letters:
            del self._held[letter.notice.key]
        return letters

    def hurry(self, mono: Seconds) -> None:
        """Things may have changed (a laptop woke up): what waits to be tried again is tried now."""
        self._paused_until, self._asked_for = mono, 0.0
        for held in self._held.values():
            held.due = min(held.due, mono)

    def expired(self, now: Instant) -> list[Notification]:
        """Take out what is no longer worth being told."""
        gone = [
            held.letter
            for held in self._held.values()
            if held.letter.notice.expires_at is not None and held.letter.notice.expires_at <= now
        ]
        for letter in gone:
            del self._held[letter.notice.key]
        return gone

    def pick(self, mono: Seconds, *, is_last: bool = False) -> MessageBatch | Seconds | None:
        """What is told now, or in how many seconds there may be something; None: nothing waits. `is_last`: the program
        ends, and what can go goes at once."""
        due = sorted((held for held in self._held.values() if held.due <= mono), key=lambda held: held.rank)
        if not due:
            return max(0.0, min(held.due for held in self._held.values()) - mono) if self._held else None
        wait = self._must_wait(due[0], mono)
        if wait > 0 and not (is_last and mono >= self._asked_until(due[0])):
            return wait
        self._tokens -= 1
        self._outage.trying_since = mono
        return MessageBatch(tuple(self._together(due, mono, is_last)))

    def _must_wait(self, first: QueuedNotification, mono: Seconds) -> Seconds:
        is_new_and_critical = first.is_critical and first.letter.attempts == 0
        until = 0.0 if is_new_and_critical else max(self._asked_until(first), self._paused_until)
        if until > mono:
            return until - mono
        self._refill(mono)
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) * REFILL

    def _asked_until(self, held: QueuedNotification) -> Seconds:
        longest = CRITICAL_ASKED_AT_MOST if held.is_critical else ASKED_AT_MOST
        return self._asked_at + min(self._asked_for, longest)

    def _refill(self, mono: Seconds) -> None:
        if self._refilled is not None:
            self._tokens = min(ROOM, self._tokens + (mono - self._refilled) / REFILL)
        self._refilled = mono

    def _together(self, due: list[QueuedNotification], mono: Seconds, is_last: bool) -> list[QueuedNotification]:
        first, summary = due[0], self._summary()
        if first.letter.notice.key in summary:
            return list(summary.values())
        mixable = [held for held in due if not held.is_alone and held.letter.notice.key not in summary]
        late = [held for held in mixable if mono - held.since > LATE]
        if self._failed_together or first.is_alone:
            chosen = [first]
        elif is_last or len(mixable) > TOGETHER:
            chosen = mixable
        elif len(late) > 1 and first in late:
            chosen = late
        else:
            chosen = [first]
        return [*chosen, *self._of_the_same(chosen)]

    def _summary(self) -> dict[str, QueuedNotification]:
        """What another channel has delivered, and what else there is to tell of the same alerts: one message."""
        about = frozenset[str]().union(*(held.alerts for held in self._held.values() if held.letter.told_by))
        return {
            key: held
            for key, held in self._held.items()
            if not held.is_alone and (held.letter.told_by or not about.isdisjoint(held.alerts))
        }

    def _of_the_same(self, chosen: list[QueuedNotification]) -> list[QueuedNotification]:
        """That something is over is told with the news that it began, if that was not told yet; never before it."""
        about = frozenset[str]().union(*(held.alerts for held in chosen))
        inside = {held.letter.notice.key for held in chosen}
        return [held for key, held in self._held.items() if key not in inside and not about.isdisjoint(held.alerts)]

    def drop(self, pack: MessageBatch) -> None:
        """They are another's to send."""
        self._outage.trying_since = None
        for held in pack.held:
            self._held.pop(held.letter.notice.key, None)

    def lease(self, pack: MessageBatch) -> None:
        """They are being sent: a try more of each."""
        for held in pack.held:
            held.letter = replace(held.letter, state="leased", attempts=held.letter.attempts + 1)

    def sent(self, pack: MessageBatch) -> None:
        """The channel took it: it works."""
        self._failures, self._paused_until, self._asked_for = 0, 0.0, 0.0
        self._outage = Outage()
        self._failed_together = False
        for held in pack.held:
            self._held.pop(held.letter.notice.key, None)
        for held in self._held.values():
            held.due = held.added if held.letter.told_by else held.due

    def failed(self, pack: MessageBatch, mono: Seconds, after: Seconds | None) -> list[Notification]:
        """It did not work now: later. Which letters are given up by it, too old."""
        self._failures += 1
        self._failed_together = len(pack.held) > 1 and not pack.is_summary
        self._paused_until = mono + self._pause(self._failures)
        if after is not None:
            self._asked_at, self._asked_for = mono, after
        self._outage.note_failure(pack, mono)
        given_up = []
        for held in pack.held:
            held.letter = replace(held.letter, state="waiting")
            held.due = max(mono + self._pause(held.letter.attempts), self._asked_until(held))
            limit = SUMMED_UP_WITHIN if held.letter.told_by else GIVEN_UP_AFTER
            is_old = mono - held.since > limit and held.letter.attempts >= TRIES_AT_LEAST
            if is_old and not held.is_given_up:
                held.is_given_up = True
                given_up.append(held.letter)
        return given_up

    def refused(self, pack: MessageBatch, mono: Seconds) -> list[Notification]:
        """The channel does not work this way at all. Which letters are given up by it."""
        self._failures = 0
        self._outage.note_failure(pack, mono)
        given_up = [held.letter for held in pack.held if not held.is_given_up]
        for held in pack.held:
            held.letter = replace(held.letter, state="dead")
            held.is_given_up = True
            held.due = mono + REFUSED_PAUSE
        return given_up

    def part(self, pack: MessageBatch, mono: Seconds) -> None:
        """They were refused together, and one of them was taken alone: each of them goes alone."""
        self._outage.trying_since = None
        for held in pack.held:
            held.letter = replace(held.letter, state="waiting")
            held.is_alone, held.due = True, mono

    # ---- what others are to deliver ----------------------------------------------------------------------------------

    def is_failing(self, mono: Seconds) -> bool:
        return self._outage.is_on(mono)

    def overdue(self, mono: Seconds, *, is_last: bool = False) -> list[Notification]:
        """What the channel should have delivered by now, and no other was given yet; also what else there is to tell of
        the same alerts."""
        passed_on = (held.alerts for held in self._held.values() if held.is_passed_on or held.letter.told_by)
        about = frozenset[str]().union(*passed_on)
        found = []
        for held in self._held.values():
            if held.is_passed_on or not self._is_waiting(held) or held.letter.notice.kind in NOT_PASSED_ON:
                continue
            follows = self.is_failing(mono) and not about.isdisjoint(held.alerts)
            if is_last or follows or self._outage.is_late(held, mono, self._asked_until(held)):
                held.is_overdue = True
                found.append(held.letter)
        return found

    def passed_on(self, key: str) -> None:
        if key in self._held:
            self._held[key].is_passed_on = True

    @property
    def overdue_count(self) -> int:
        """Messages that the channel should have delivered by now, whether or not others have."""
        return sum(held.is_overdue for held in self._held.values())

    def told_by(self, key: str, channel: str) -> None:
        """Another channel has delivered it in place of this one, which was down. Where there were several stand-ins,
        each of those that work delivers it."""
        held = self._held.get(key)
        if held is None or held.is_given_up:
            return
        if held.is_passed_on or (held.failing_since is not None and not held.letter.is_stand_in):
            held.letter = replace(held.letter, told_by=tuple(dict.fromkeys((*held.letter.told_by, channel))))

    def withdraw(self, is_needless: Callable[[Notification], bool]) -> list[Notification]:
        """Take out what waits here in place of another channel, and need not be delivered any more."""
        waiting = [held.letter for held in self._held.values() if held.letter.is_stand_in]
        gone = [letter for letter in waiting if letter.state != "leased" and is_needless(letter)]
        for letter in gone:
            del self._held[letter.notice.key]
        return gone

    def _pause(self, tries: int) -> Seconds:
        return self.rng.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 16)))
