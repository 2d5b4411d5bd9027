"""The letters that wait for one channel: which go next, which go together, and how long after a failure. Pure.

Times here are those of the monotonic clock: a machine's clock that jumps makes nothing late, and nothing old.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.clock import Instant, Seconds
from trainmon.model_alerts import SEVERITIES, Letter

FIRST_PAUSE: Seconds = 1.0
LONGEST_PAUSE: Seconds = 300.0
"""Between two tries: drawn from zero to twice as long as after the try before, so that many never come at once."""

ASKED_AT_MOST: Seconds = 3_600.0
"""A receiver may ask to be left alone for a day (a daily quota); whether it still wants that is asked every hour."""

GIVEN_UP_AFTER: Seconds = 86_400.0
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
class Held:
    """A letter that waits."""

    letter: Letter
    due: Seconds
    since: Seconds
    """When it began to wait; before this program's start for one that was found in the ledger."""
    is_given_up: bool = False
    is_alone: bool = False
    """Not told with others any more: the receiver refused them together, and took another one alone."""

    @property
    def rank(self) -> tuple[int, Seconds]:
        return SEVERITIES.index(self.letter.notice.severity), self.since


class Pack(NamedTuple):
    """What is told in one message."""

    held: tuple[Held, ...]

    @property
    def letters(self) -> tuple[Letter, ...]:
        return tuple(held.letter for held in self.held)


@dataclass(slots=True)
class Tray:
    """The waiting letters of one channel. It belongs to whoever has its desk's lock."""

    rng: Random = field(default_factory=Random)
    _held: dict[str, Held] = field(default_factory=dict)
    _failures: int = 0
    _paused_until: Seconds = 0.0
    _asked_until: Seconds = 0.0
    _failed_together: bool = False
    """The last message of several failed: one of them is tried alone, for it may be one that spoils the others."""
    _tokens: float = ROOM
    _refilled: Seconds | None = None

    def __len__(self) -> int:
        return sum(not held.is_given_up for held in self._held.values())

    def __contains__(self, key: str) -> bool:
        return key in self._held

    @property
    def oldest_at(self) -> Instant | None:
        return min((held.letter.made_at for held in self._held.values() if not held.is_given_up), default=None)

    def add(self, letter: Letter, mono: Seconds, waited: Seconds = 0.0) -> None:
        """Take one in, that has waited for so long already; the same notice is never twice here."""
        self._held.setdefault(letter.notice.key, Held(letter, mono, mono - max(0.0, waited)))

    def forget(self, key: str) -> None:
        """Somebody was told by another channel what was given up here."""
        if key in self._held and self._held[key].is_given_up:
            del self._held[key]

    def clear(self) -> list[Letter]:
        """Take out all but what is being sent."""
        letters = [held.letter for held in self._held.values() if held.letter.state != "leased"]
        for letter in letters:
            del self._held[letter.notice.key]
        return letters

    def hurry(self, mono: Seconds) -> None:
        """Things may have changed (a laptop woke up): what waits to be tried again is tried now."""
        self._paused_until = self._asked_until = mono
        for held in self._held.values():
            held.due = min(held.due, mono)

    def expired(self, now: Instant) -> list[Letter]:
        """Take out what is no longer worth being told."""
        gone = [
            held.letter
            for held in self._held.values()
            if held.letter.notice.expires_at is not None and held.letter.notice.expires_at <= now
        ]
        for letter in gone:
            del self._held[letter.notice.key]
        return gone

    def pick(self, mono: Seconds, *, is_last: bool = False) -> Pack | Seconds | None:
        """What is told now, or in how many seconds there may be something; None: nothing waits. `is_last`: the program
        ends, and what can go goes at once."""
        due = sorted((held for held in self._held.values() if held.due <= mono), key=lambda held: held.rank)
        if not due:
            return max(0.0, min(held.due for held in self._held.values()) - mono) if self._held else None
        wait = self._must_wait(due[0], mono)
        if wait > 0 and not (is_last and mono >= self._asked_until):
            return wait
        self._tokens -= 1
        return Pack(tuple(self._together(due, mono, is_last)))

    def _must_wait(self, first: Held, mono: Seconds) -> Seconds:
        is_new_and_critical = first.letter.attempts == 0 and first.letter.notice.severity == "critical"
        until = self._asked_until if is_new_and_critical else max(self._asked_until, self._paused_until)
        if until > mono:
            return until - mono
        self._refill(mono)
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) * REFILL

    def _refill(self, mono: Seconds) -> None:
        if self._refilled is not None:
            self._tokens = min(ROOM, self._tokens + (mono - self._refilled) / REFILL)
        self._refilled = mono

    def _together(self, due: list[Held], mono: Seconds, is_last: bool) -> list[Held]:
        first, mixable = due[0], [held for held in due if not held.is_alone]
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

    def _of_the_same(self, chosen: list[Held]) -> list[Held]:
        """That something is over is told with the news that it began, if that was not told yet; never before it."""
        about = {alert.id for held in chosen for alert in held.letter.notice.alerts}
        inside = {held.letter.notice.key for held in chosen}
        return [
            held
            for key, held in self._held.items()
            if key not in inside and any(alert.id in about for alert in held.letter.notice.alerts)
        ]

    def drop(self, pack: Pack) -> None:
        """They are another's to send."""
        for held in pack.held:
            self._held.pop(held.letter.notice.key, None)

    def lease(self, pack: Pack) -> None:
        """They are being sent: a try more of each."""
        for held in pack.held:
            held.letter = replace(held.letter, state="leased", attempts=held.letter.attempts + 1)

    def sent(self, pack: Pack) -> None:
        """The channel took it: it works."""
        self._failures, self._paused_until, self._asked_until = 0, 0.0, 0.0
        self._failed_together = False
        for held in pack.held:
            self._held.pop(held.letter.notice.key, None)

    def failed(self, pack: Pack, mono: Seconds, after: Seconds | None) -> list[Letter]:
        """It did not work now: later. Which letters are given up by it, too old."""
        self._failures += 1
        self._failed_together = len(pack.held) > 1
        self._paused_until = mono + self._pause(self._failures)
        if after is not None:
            self._asked_until = mono + min(after, ASKED_AT_MOST)
        given_up = []
        for held in pack.held:
            held.letter = replace(held.letter, state="waiting")
            held.due = max(mono + self._pause(held.letter.attempts), self._asked_until)
            is_old = mono - held.since > GIVEN_UP_AFTER and held.letter.attempts >= TRIES_AT_LEAST
            if is_old and not held.is_given_up:
                held.is_given_up = True
                given_up.append(held.letter)
        return given_up

    def refused(self, pack: Pack, mono: Seconds) -> list[Letter]:
        """The channel does not work this way at all. Which letters are given up by it."""
        self._failures = 0
        given_up = [held.letter for held in pack.held if not held.is_given_up]
        for held in pack.held:
            held.letter = replace(held.letter, state="dead")
            held.is_given_up = True
            held.due = mono + REFUSED_PAUSE
        return given_up

    def part(self, pack: Pack, mono: Seconds) -> None:
        """They were refused together, and one of them was taken alone: each of them goes alone."""
        for held in pack.held:
            held.letter = replace(held.letter, state="waiting")
            held.is_alone, held.due = True, mono

    def _pause(self, tries: int) -> Seconds:
        return self.rng.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 16)))
