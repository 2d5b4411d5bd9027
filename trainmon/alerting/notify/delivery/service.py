"""Where notices are written down and sent from: one transaction before anything is sent, then a thread a channel."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from random import Random

from trainmon.alerting.notify.base import Sender
from trainmon.alerting.notify.delivery.dispatcher import Dispatcher
from trainmon.alerting.notify.delivery.election import Election
from trainmon.alerting.notify.delivery.journal import Journal
from trainmon.alerting.notify.delivery.leader import LeaderState
from trainmon.alerting.notify.delivery.leader_watch import LEASE
from trainmon.alerting.notify.delivery.worker import SEND_TIMEOUT, Attach, ChannelWorker, Render
from trainmon.alerting.notify.message import render as in_words
from trainmon.ledger.alerts import add_order
from trainmon.ledger.lease import is_row, release_row
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Clock, Seconds, SystemClock
from trainmon.model import (
    AlertChanges,
    AlertRequest,
    AlertRequested,
    Channel,
    ChannelsChanged,
    Event,
    Notice,
    Route,
    State,
)

log = logging.getLogger(__name__)

PATIENCE: Seconds = 5.0
"""How long a notice waits to be written down before it is sent all the same."""
FLUSH: Seconds = 10.0
"""At the end, how long what waits may still be sent."""
FALLBACK_AFTER = 0.6
"""Of that time the part after which the fallback sends what other channels still have."""
NOTE_EVERY: Seconds = 10.0
"""So often the program on duty writes down how it is."""
NEWS_EVERY: Seconds = 2.0
"""So often at most where something changed."""
CHANNELS_EVERY: Seconds = 1.0
JUMP: Seconds = 30.0
"""The machine slept, or its clock was set: what waits to be tried again is tried at once."""
STUCK_QUIETLY: Seconds = 60.0
"""A ledger that is stuck while nothing is to be told is told of only then."""
STUCK_AGAIN: Seconds = 3_600.0

NETWORK = "its ledger is on a network file system: which program tells people is agreed on slowly, and by clocks"


class NotificationService:
    """Implements Post. It takes the duty of telling people, if no other program with this ledger has it."""

    def __init__(
        self,
        ledger: Ledger,
        senders: Sequence[Sender],
        submit: Callable[[Event], None],
        clock: Clock | None = None,
        *,
        routes: tuple[Route, ...] = (),
        attach: Attach | None = None,
        patience: Seconds = PATIENCE,
        timeout: Seconds = SEND_TIMEOUT,
        program: str = "",
        render: Render = in_words,
        rng: Random | None = None,
        lease: Seconds = LEASE,
    ) -> None:
        self._ledger = ledger
        self._submit = submit
        self._clock = clock or SystemClock()
        self._changed = threading.Condition()
        self._is_woken = False
        self._is_over = False
        self._renewal: tuple[Sequence[Sender], tuple[Route, ...]] | None = None
        self._next_note: Seconds = 0.0
        self._next_news: Seconds = 0.0
        self._next_channels: Seconds = 0.0
        self._channels: dict[str, Channel] = {}
        self._offset = self._clock.now() - self._clock.monotonic()
        self._stuck_since: Seconds | None = None
        self._stuck_told: Seconds | None = None
        chance = rng or Random()

        def desk(sender: Sender, desks: Dispatcher) -> ChannelWorker:
            own = Random(chance.random())
            waits: dict[str, Seconds] = {"patience": patience, "timeout": timeout}
            return ChannelWorker(sender, desks, self._clock, render=render, attach=attach, rng=own, **waits)

        self._desks = Dispatcher(
            senders,
            routes,
            make=desk,
            submit=submit,
            wake=self._wake,
            now=self._clock.now,
            alerts=lambda: self._shift.state.alerts if self._shift.state is not None else None,
            is_leader=self.is_leader,
        )
        network = NETWORK if ledger.is_network else None
        self._shift = LeaderState(self._clock, submit, self._desks, program=program, network=network)
        self._by_row = is_row(is_network=ledger.is_network)
        fence = self._shift.name if self._by_row else None
        self._books = Journal(
            ledger, self._clock, self._shift.deliver, self._wake,
            patience=patience, holder=fence, is_leader=self.is_leader,
        )  # fmt: skip
        self._desks.books = self._shift.books = self._books
        self._roster = Election(
            ledger, self._clock, self._shift, self._wake,
            note=self._shift.note, looked=lambda: self._shift.state, patience=patience, lease=lease,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run, name="office", daemon=True)

    # ---- from any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for the duty; the answer comes as DutyChanged, what was known before it as AlertsRecalled."""
        self._desks.start()
        self._thread.start()

    def stop(self, flush: Seconds = FLUSH) -> None:
        """Send what waits, for at most so long; then let the duty go. What other channels have failed to deliver by
        then is the fallback's: the next program may begin in five minutes, or never."""
        began = time.monotonic()
        deadline = began + flush
        was_on_duty = self._shift.is_on_duty
        if was_on_duty:
            everyday, all_names = self._desks.everyday, self._desks.names
            _wait(lambda: self._books.is_settled, deadline)
            self._desks.finish(everyday)
            _wait(lambda: self._desks.are_done(everyday), began + FALLBACK_AFTER * flush)
            self._desks.pass_on(is_last=True)
            _wait(lambda: self._books.is_settled, deadline)
            self._desks.finish(all_names)
            _wait(lambda: self._desks.are_done(all_names), deadline)
            _wait(lambda: self._books.is_settled, deadline)
        self._desks.stop()
        with self._changed:
            self._is_over = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(1.0)
        if was_on_duty and self._by_row:
            self._ledger.transact(lambda connection: release_row(connection, self._shift.name), self._wake)
        self._roster.release()

    def hand_over(self, changes: AlertChanges) -> None:
        """Have it written down, and its notices sent; never blocks. Without the duty it is another's."""
        if self._shift.is_on_duty:
            self._books.enter(changes)

    def tick(self, state: State) -> None:
        """All rules were gone through: others may read so in the ledger. Never blocks."""
        self._shift.state = state

    def is_leader(self) -> bool:
        """Whether this program may notify now, by the lease itself: true of one that was stopped only until another one
        took over."""
        return self._roster.is_leader

    def order(self, order: AlertRequest) -> None:
        """Have what a person says carried out by whoever has the duty; never blocks."""
        if self._shift.is_on_duty:
            self._submit(AlertRequested(order))
        else:
            self._ledger.transact(lambda connection: add_order(connection, order), self._wake)

    def renew(self, senders: Sequence[Sender], routes: tuple[Route, ...]) -> None:
        """From now on these channels; what waits for one that is gone goes to the others. From any thread."""
        self._renewal = (senders, routes)
        self._wake()

    def say(self, trouble: str | None) -> None:
        """What is wrong with this program itself, for all who ask how it is; None when nothing is. From any thread."""
        self._shift.trouble = trouble
        self._next_note = 0.0
        self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._is_woken = True
            self._changed.notify()

    # ---- its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_woken or self._is_over, self._pause())
                self._is_woken = False
                if self._is_over:
                    return
            try:
                self._turn()
            except Exception:
                log.exception("the office fell over; it goes on")
                time.sleep(1.0)

    def _pause(self) -> Seconds:
        mono = self._clock.monotonic()
        times = [self._roster.due_in]
        if (due := self._books.due_in) is not None:
            times.append(due)
        if self._shift.is_on_duty:
            times += [self._next_note - mono, self._next_channels - mono]
        return max(0.0, min(times))

    def _turn(self) -> None:
        try:
            self._roster.turn()
        finally:
            self._books.turn()  # whatever becomes of the duty: what is to be told waits for nothing
            self._desks.pass_on()
        if self._books.is_lost:
            self._shift.lose()
            self._roster.ask_again()
        if self._renewal is not None:
            (senders, routes), self._renewal = self._renewal, None
            self._desks.renew(senders, routes)
        self._see_jumps()
        mono = self._clock.monotonic()
        if self._shift.is_on_duty:
            self._tell_stuck(mono)
            self._tell_channels(mono)
            is_news = mono >= self._next_news and self._shift.is_news
            if mono >= self._next_note or self._shift.has_begun or is_news:
                self._next_note, self._next_news = mono + NOTE_EVERY, mono + NEWS_EVERY
                self._shift.go_round()

    def _see_jumps(self) -> None:
        offset = self._clock.now() - self._clock.monotonic()
        if abs(offset - self._offset) > JUMP:
            self._desks.hurry()
        self._offset = offset

    def _tell_channels(self, mono: Seconds) -> None:
        if mono >= self._next_channels:
            self._next_channels = mono + CHANNELS_EVERY
            changed = tuple(health for health in self._desks.health if self._channels.get(health.name) != health)
            if changed:
                self._channels |= {health.name: health for health in changed}
                self._submit(ChannelsChanged(changed))

    def _tell_stuck(self, mono: Seconds) -> None:
        """That alerts are told from memory is told with the first of them."""
        trouble = self._books.trouble
        if trouble is None:
            self._stuck_since = None
            return
        if self._stuck_since is None:
            self._stuck_since = mono
        is_time = self._books.told_directly > 0 or mono - self._stuck_since > STUCK_QUIETLY
        if is_time and (self._stuck_told is None or mono - self._stuck_told > STUCK_AGAIN):
            self._stuck_told = mono
            self.hand_over(AlertChanges(at=self._clock.now(), notices=(self._stuck(trouble),)))

    def _stuck(self, trouble: str) -> Notice:
        now = self._clock.now()
        return Notice(
            key=f"ledger-stuck/{self._shift.name}/{now:.0f}",
            kind="direct",
            reason="ledger stuck",
            severity="warning",
            at=now,
            channels=self._desks.everyday,
            title="Ledger stuck: alerts are told directly",
            lines=(
                trouble,
                "Alerts are watched and told as before, but nothing is written down: a program that starts now knows "
                "nothing of them, and may tell them again.",
            ),
        )


def _wait(fact: Callable[[], bool], deadline: Seconds) -> None:
    while not fact() and time.monotonic() < deadline:
        time.sleep(0.02)
