"""One channel's thread: it leases letters, has them put into words, sends them, and marks what came of it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Protocol

from msgspec.structs import replace

from trainmon.alerting.notify.base import Attachment, Broken, Message, Retry, Sender
from trainmon.alerting.notify.delivery.held import MessageBatch
from trainmon.alerting.notify.delivery.queue import SendQueue
from trainmon.alerting.notify.message import printable
from trainmon.alerting.notify.summary import summary
from trainmon.alerting.rules import ago
from trainmon.ledger.outbox import LetterState, Mark
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import SEVERITIES, Alert, Channel, Delivered, Delivery, Notice, Notification

log = logging.getLogger(__name__)

SEND_TIMEOUT: Seconds = 30.0
LONGEST_TIMEOUT: Seconds = 110.0
"""A receiver that answers late may have taken the message, and each try is another copy: the next waits longer."""
STRANGE_AFTER: Seconds = 120.0
"""A sender that has not returned by then hangs, though it should not: it is told so."""
SHORT = 4_000
DONE_AT_MOST = 10_000


class NotLeader(Exception):
    """Another program leads now: it sends what waits."""


class ChannelWorker:
    """The letters of one channel, and who sends them."""

    def __init__(
        self,
        sender: Sender,
        clerk: WorkerHost,
        clock: Clock,
        *,
        render: Render,
        attach: Attach | None,
        patience: Seconds,
        timeout: Seconds,
        rng: Random,
    ) -> None:
        self._timeout = self._time = timeout
        self.name = sender.health.name
        self._sender = sender
        self._clerk = clerk
        self._clock = clock
        self._render = render
        self._attach = attach
        self._patience = patience
        self._changed = threading.Condition()
        self._tray = SendQueue(rng)
        self._health = sender.health
        self._sending_since: Seconds | None = None
        self._done: dict[str, None] = {}
        """The newest that were told: their marks may not be in the ledger yet."""
        self.is_last = False
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name=f"channel {self.name}", daemon=True)

    # ---- from any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def add(self, letters: Iterable[Notification]) -> None:
        """Take letters in; the desk begins to send."""
        now, mono = self._clock.now(), self._clock.monotonic()
        with self._changed:
            for letter in letters:
                self._tray.add(letter, mono, now - letter.made_at)
            self._changed.notify()

    def knows(self, key: str) -> bool:
        """Whether this desk has a letter, or had it and is done with it."""
        with self._changed:
            return key in self._tray or key in self._done

    def forget(self, keys: Iterable[str]) -> None:
        with self._changed:
            for key in keys:
                self._tray.forget(key)

    def overdue(self, *, is_last: bool) -> list[Notification]:
        """What this channel should have delivered by now, and no other was given yet."""
        with self._changed:
            return self._tray.overdue(self._clock.monotonic(), is_last=is_last and self.is_last)

    def passed_on(self, key: str) -> None:
        with self._changed:
            self._tray.passed_on(key)

    def told_by(self, channel: str, keys: Iterable[str]) -> None:
        """Another channel has delivered these in place of this one."""
        with self._changed:
            for key in keys:
                self._tray.told_by(key, channel)

    def withdraw(self, is_needless: Callable[[Notification], bool]) -> None:
        """Do not deliver any more what others have delivered, for whom this channel stands in."""
        with self._changed:
            self._stop(self._tray.withdraw(is_needless), "another channel has delivered it")

    def _stop(self, letters: Sequence[Notification], why: str) -> None:
        if letters:
            self._remember(letters)
            self._write(letters, "stopped", why)

    @property
    def is_failing(self) -> bool:
        with self._changed:
            return self._tray.is_failing(self._clock.monotonic())

    def has_told(self, key: str) -> bool:
        return key in self._done

    def clear(self) -> list[Notification]:
        """Take the letters out, but for those that are being sent."""
        with self._changed:
            return self._tray.clear()

    def hurry(self) -> None:
        with self._changed:
            self._tray.hurry(self._clock.monotonic())
            self._changed.notify()

    def recall(self, known: Channel) -> None:
        """How the channel was doing when a program last wrote it down."""
        with self._changed:
            names = ("state", "words", "sent_at", "since", "sent", "failed")
            self._health = replace(self._health, **{name: getattr(known, name) for name in names})

    @property
    def health(self) -> Channel:
        with self._changed:
            waiting, oldest, overdue = len(self._tray), self._tray.oldest_at, self._tray.overdue_count
            health = replace(self._health, waiting=waiting, oldest_at=oldest, overdue=overdue)
            began = self._sending_since
        if began is not None and (hung := self._clock.monotonic() - began) > STRANGE_AFTER:
            since = health.since or self._clock.now() - hung
            return replace(health, state="retrying", words=f"a message is on its way for {ago(hung)}", since=since)
        return health

    def finish(self) -> None:
        """Send what can go, and end."""
        with self._changed:
            self.is_last = True
            self._changed.notify()

    def stop(self) -> None:
        """End after what is being sent now."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    @property
    def is_done(self) -> bool:
        return not self._thread.is_alive()

    # ---- its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (pack := self._next()) is not None:
            try:
                self._tell(pack)
            except Exception:
                log.exception("the channel %s fell over", self.name)
                self._later(pack, "it fell over here; see the log", None)
        self._sender.close()
        with self._changed:
            left = self._tray.clear()
        self._clerk.returned(left)

    def _next(self) -> MessageBatch | None:
        """Wait for something to send; None at the end."""
        with self._changed:
            while not self._is_over:
                self._stop(self._tray.expired(self._clock.now()), "too old to be worth telling")
                found = self._tray.pick(self._clock.monotonic(), is_last=self.is_last)
                if isinstance(found, MessageBatch):
                    self._tray.lease(found)
                    self._sending_since = self._clock.monotonic()
                    return found
                if self.is_last:
                    return None
                self._changed.wait(found)
            return None

    def _remember(self, letters: Sequence[Notification]) -> None:
        self._done |= dict.fromkeys(letter.notice.key for letter in letters)
        while len(self._done) > DONE_AT_MOST:
            del self._done[next(iter(self._done))]

    def _tell(self, pack: MessageBatch) -> None:
        if not self._write(pack.letters, "leased", None).may_send(self._patience):
            self._drop(pack)
            return
        try:
            self._try(pack)
        except NotLeader:
            self._drop(pack)

    def _drop(self, pack: MessageBatch) -> None:
        log.info("the channel %s: another program has the duty; %d letters are its own", self.name, len(pack.held))
        with self._changed:
            self._tray.drop(pack)
            self._sending_since = None

    def _try(self, pack: MessageBatch) -> None:
        try:
            words = self._send(pack)
        except Broken as error:
            self._refused(pack, error)
        except Retry as error:
            self._later(pack, error.message, error.after)
        else:
            self._sent(pack, words)

    def _send(self, pack: MessageBatch) -> str:
        """Put it into words and hand it over. Raises Retry, Broken or NotOurs."""
        message = self._worded(pack.letters)
        if self._attach is not None and not pack.is_summary:
            message = replace(message, attachments=(*message.attachments, *self._attached(message.notices)))
        if not self._clerk.is_leader():  # last: this program may have been stopped at any point before
            raise NotLeader
        began = self._clock.monotonic()
        try:
            words = self._sender.send(message, self._time).words
        except (Retry, Broken):
            is_slow = self._clock.monotonic() - began >= 0.9 * self._time
            self._time = min(2 * self._time, max(self._timeout, LONGEST_TIMEOUT)) if is_slow else self._timeout
            raise
        except Exception as error:
            log.exception("the channel %s fell over", self.name)
            raise Retry(f"it fell over here: {type(error).__name__}") from error
        self._time = self._timeout
        return words

    def _worded(self, letters: Sequence[Notification]) -> Message:
        notices = tuple(letter.notice for letter in letters)
        try:
            if any(letter.told_by for letter in letters):
                return summary(self.name, letters, self._clerk.alerts, self._clock.now())
            return self._render(notices, self._clock.now())
        except Exception:
            log.exception("a message could not be worded: it is told in short")
            return in_short(notices, self._clock.now())

    def _attached(self, notices: tuple[Notice, ...]) -> tuple[Attachment, ...]:
        assert self._attach is not None
        try:
            return self._attach(notices)
        except Exception:  # words without a picture are better than none
            log.exception("nothing could be attached")
            return ()

    def _sent(self, pack: MessageBatch, words: str) -> None:
        now = self._clock.now()
        with self._changed:
            self._tray.sent(pack)
            self._remember(pack.letters)
            self._sending_since = None
            sent = self._health.sent + 1
            self._health = replace(self._health, state="ok", words=None, since=None, sent_at=now, sent=sent)
        first, *others = pack.letters
        written = self._write([first], "sent", words or None)
        if others:
            written = self._write(others, "merged", f"in one message of {len(pack.held)}")
        self._clerk.told(self.name, pack.letters)
        self._clerk.changed()
        written.wait(self._patience)

    def _later(self, pack: MessageBatch, words: str, after: Seconds | None) -> None:
        with self._changed:
            mono = self._clock.monotonic()
            given_up = self._tray.failed(pack, mono, after)
            pause = min(held.due for held in pack.held) - mono
            self._fails("retrying", words)
        gone = {letter.notice.key for letter in given_up}
        self._write([letter for letter in pack.letters if letter.notice.key not in gone], "waiting", words, pause)
        if given_up:
            self._give_up(given_up, f"not delivered in a day: {words}")
        self._clerk.changed()

    def _refused(self, pack: MessageBatch, error: Broken) -> None:
        """Where several were refused, one is tried alone: it may be what they are together that is refused."""
        if len(pack.held) > 1:
            alone = MessageBatch(pack.held[:1])
            try:
                words = self._send(alone)
            except Broken as also:
                error = also
            except Retry as also:
                self._later(pack, also.message, also.after)
                return
            else:
                with self._changed:
                    self._tray.part(pack, self._clock.monotonic())
                self._write(pack.letters[1:], "waiting", error.message)
                self._sent(alone, words)
                return
        with self._changed:
            given_up = self._tray.refused(pack, self._clock.monotonic())
            self._fails("broken", error.message)
        self._give_up(given_up, error.message)
        self._clerk.changed()

    def _fails(self, state: str, words: str) -> None:
        since = self._health.since or self._clock.now()
        failed = self._health.failed + 1
        self._health = replace(self._health, state=state, words=words, since=since, failed=failed)
        self._sending_since = None

    def _give_up(self, letters: Sequence[Notification], words: str) -> None:
        self._clerk.given_up(self.name, letters, f"{self.name} could not tell it")
        self._write(letters, "dead", words)  # after: a crash between the two must not keep it from the others

    def _write(
        self, letters: Sequence[Notification], state: LetterState, words: str | None, pause: Seconds = 0.0
    ) -> Ticket:
        """Mark letters in the ledger, and in the State."""
        now = self._clock.now()
        told = now if state in ("sent", "merged") else None
        deliveries: dict[str, set[str]] = {}
        for letter in letters:
            about = deliveries.setdefault(letter.notice.kind, set())
            about.update(alert.id for alert in letter.notice.alerts)
        shown = "retrying" if state == "waiting" else "sending" if state == "leased" else state
        for kind, alerts in deliveries.items():
            if alerts:
                delivery = Delivery(channel=self.name, kind=kind, state=shown, at=now, words=words)
                self._clerk.submit(Delivered(tuple(sorted(alerts)), delivery))
        return self._clerk.mark(
            Mark(
                letter.notice.key,
                self.name,
                state,
                now,
                letter.attempts,
                now + pause,
                told,
                words,
                letter.notice if letter.notice.kind != "direct" else None,
            )
            for letter in letters
        )


def in_short(notices: Sequence[Notice], now: Instant) -> Message:
    """A message that cannot fail: the summaries alone."""
    lines = [printable(alert.summary) for notice in notices for alert in notice.alerts]
    lines += [printable(notice.title) for notice in notices if notice.title]
    severity = min((notice.severity for notice in notices), key=SEVERITIES.index)
    title = f"{severity}: {lines[0] if len(lines) == 1 else f'{len(lines)} alerts'}"
    body = "\n".join(lines)[:SHORT]
    return Message(key=notices[0].key, severity=severity, title=title, body=body, notices=tuple(notices), at=now)


Render = Callable[[Sequence[Notice], Instant], Message]
Attach = Callable[[tuple[Notice, ...]], tuple[Attachment, ...]]


SLICE: Seconds = 0.25


class Ticket(threading.Event):
    """Set when marks are written, or when that must not be waited for."""

    is_ours = True
    """False: another program has the duty now, and sends what is in the ledger."""

    def may_send(self, patience: Seconds) -> bool:
        """Wait for it; whether a message may go. In slices: of the time in which this program itself was stopped, and
        could hear of nothing, no more than one counts."""
        waited = 0.0
        while waited < patience and not self.wait(SLICE):
            waited += SLICE
        return self.is_ours


class WorkerHost(Protocol):
    """All of it is called on the threads of desks."""

    def is_leader(self) -> bool:
        """Whether what is sent now is ours to send; asked just before each message, and answered at once."""

    def mark(self, marks: Iterable[Mark]) -> Ticket:
        """Write down what became of letters."""

    def submit(self, event: Delivered) -> None:
        """Tell the engine."""

    def given_up(self, channel: str, letters: Sequence[Notification], because: str) -> None:
        """Have others told what this channel could not deliver."""

    def told(self, channel: str, letters: Sequence[Notification]) -> None:
        """This channel has delivered these."""

    @property
    def alerts(self) -> Mapping[str, Alert] | None:
        """All alerts as they are now; None while that is not known."""

    def changed(self) -> None:
        """How this channel is doing is different now."""

    def returned(self, letters: Sequence[Notification]) -> None:
        """This desk ends, and these were not told."""
