"""Delivers notices while this program leads: the journal writes them, and the deliverer sends them.

One thread does both; the election decides whether this program does.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from trainmon.alerting.notify.delivery.deliverer import SEND_TIMEOUT, Attach, Deliverer, Journal, Render
from trainmon.alerting.notify.delivery.election import LEASE, Election
from trainmon.alerting.notify.message import Sender
from trainmon.alerting.notify.message import render as render_message
from trainmon.ledger.alerts import add_request
from trainmon.ledger.lease import this_program
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Clock, Seconds, SystemClock
from trainmon.lib.threads import Background
from trainmon.model import (
    Alert,
    AlertChanges,
    AlertRequest,
    AlertRequested,
    Channel,
    ChannelsChanged,
    Event,
    LedgerReplaced,
    Notice,
    Route,
    Severity,
    State,
)

log = logging.getLogger(__name__)

PATIENCE: Seconds = 5.0
"""How long a notification waits to be written before it is sent without the ledger."""
FLUSH: Seconds = 10.0
"""How long the program may still send at its end."""
FALLBACK_AFTER = 0.6
"""After this part of FLUSH, the fallback sends what other channels could not."""
CHANNELS_EVERY: Seconds = 1.0
JUMP: Seconds = 30.0
"""A larger jump of the clock retries everything at once: the machine slept, or its clock was set."""
STUCK_QUIETLY: Seconds = 60.0
"""A stuck ledger is reported only after this long, if no notification waits for it."""
STUCK_AGAIN: Seconds = 3_600.0


class NotificationService(Background):
    """Implements Outbox. It sends while it leads: one program at a time does for each ledger. LeadershipChanged reports
    the result of the election; AlertsRestored, what the ledger holds."""

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
        render: Render = render_message,
        lease: Seconds = LEASE,
    ) -> None:
        self._ledger, self._submit = ledger, submit
        self._clock = clock = clock or SystemClock()
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        """What other threads ask of its own, which waits for it."""
        self._next_channels: Seconds = 0.0
        self._channels: dict[str, Channel] = {}
        self._offset = clock.now() - clock.monotonic()
        self._stuck_reported: Seconds | None = None

        us, wake = this_program(), self._wake
        by_row = ledger.is_network or sys.platform != "linux"  # the lease is a row of the ledger, and not a lock
        self._journal = Journal(
            ledger, clock, wake, patience=patience, holder=us.name if by_row else None, is_leader=self.is_leader
        )
        self._deliverer = Deliverer(
            senders, routes, self._journal, clock, submit, wake, is_leader=self.is_leader, alerts=self._alerts,
            timeout=timeout, render=render, attach=attach,
        )  # fmt: skip
        self._election = Election(
            ledger, clock, submit, self._deliverer, self._journal, wake,
            holder=us, by_row=by_row, program=program, patience=patience, lease=lease,
        )  # fmt: skip
        super().__init__("notifications")

    # ---- from any thread --------------------------------------------------------------------------------------------

    def stop(self, flush: Seconds = FLUSH) -> None:
        """Send what waits, for at most this long, and stop leading. The fallback gets what other channels failed to
        deliver by then: the next program may start in five minutes, or never."""
        began = time.monotonic()
        deadline = began + flush
        if self._election.is_leading:
            everyday, all_names = self._deliverer.everyday, self._deliverer.names
            self._ask(partial(self._deliverer.finish, everyday))
            _wait(lambda: self._deliverer.are_done(everyday), began + FALLBACK_AFTER * flush)
            self._ask(self._deliverer.pass_on_last)
            self._ask(partial(self._deliverer.finish, all_names))
            _wait(lambda: self._deliverer.are_done(all_names), deadline)
            _wait(lambda: self._journal.is_settled, deadline)
        super().stop()
        self._election.release()

    def enqueue(self, changes: AlertChanges) -> None:
        """Write changes and send their notices; never blocks. A standby leaves that to the leader."""
        if self._election.is_leading:
            self._ask(partial(self._add_changes, changes))

    def tick(self, state: State) -> None:
        """The rules were evaluated, so the lease is renewed. Never blocks."""
        self._election.state = state

    def is_leader(self) -> bool:
        """Whether this program may notify now, by the lease itself. Of a program that was stopped, this is true until
        another one takes over."""
        return self._election.is_leader

    def request(self, request: AlertRequest) -> None:
        """Have the leader carry out the request of a person; never blocks."""
        if self._election.is_leading:
            self._submit(AlertRequested(request))
        else:
            self._ledger.transact(lambda connection: add_request(connection, request), self._wake)

    def reload(self, senders: Sequence[Sender], routes: tuple[Route, ...]) -> None:
        """Replace the channels; what waits for a removed one goes to the others. From any thread."""
        self._ask(partial(self._deliverer.reload, senders, routes))

    def report_trouble(self, trouble: str | None) -> None:
        """Publish what is wrong with this program itself; None when nothing is. From any thread."""
        self._election.trouble = trouble
        self._election.next_note = 0.0
        self._wake()

    def _ask(self, work: Callable[[], None]) -> None:
        """Do this on the thread of this service, and then a turn."""
        self._work.put(work)

    def _wake(self) -> None:
        """Take a turn now."""
        self._work.put(lambda: None)

    def _interrupt(self) -> None:
        self._wake()

    def _alerts(self) -> Mapping[str, Alert] | None:
        state = self._election.state
        return None if state is None else state.alerts

    # ---- its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause: Seconds = 0.0
        while True:
            try:
                with contextlib.suppress(queue.Empty):
                    self._work.get(timeout=pause)()
                if self._stopping.is_set():
                    return
                self._turn()
                pause = self._pause()
            except Exception:
                log.exception("the notification service crashed; it goes on")
                pause = 1.0

    def _pause(self) -> Seconds:
        mono = self._clock.monotonic()
        dues = (self._election.due_in, self._journal.due_in, self._deliverer.due_in)
        times = [due for due in dues if due is not None]
        if self._election.is_leading:
            times += [self._election.next_note - mono, self._next_channels - mono]
        return max(0.0, min(times))

    def _turn(self) -> None:
        while not self._work.empty():
            self._work.get()()
        offset = self._clock.now() - self._clock.monotonic()
        if abs(offset - self._offset) > JUMP:
            self._deliverer.retry_now()
        self._offset = offset
        try:
            self._election.turn()
        finally:
            self._deliverer.turn()  # whatever the election does: what is to be sent waits for nothing
        if self._journal.is_lost:
            self._election.lose()
        if self._ledger.set_aside is not None and self._election.role in ("leader", "standby"):
            self._report_damaged_ledger(self._ledger.set_aside)
        mono = self._clock.monotonic()
        if self._election.is_leading:
            self._report_stuck_ledger(mono)
            if self._ledger.is_replaced:
                self._ledger.is_replaced = False
                self._deliverer.write_all()
                self._submit(LedgerReplaced())
            if mono >= self._next_channels:
                self._next_channels = mono + CHANNELS_EVERY
                if changed := tuple(one for one in self._deliverer.health if self._channels.get(one.name) != one):
                    self._channels |= {health.name: health for health in changed}
                    self._submit(ChannelsChanged(changed))
            self._election.write_note_in_time()

    def _add_changes(self, changes: AlertChanges) -> None:
        if self._election.is_leading:  # it may have been lost meanwhile
            self._deliverer.add_changes(changes)

    def _report_stuck_ledger(self, mono: Seconds) -> None:
        """Send the notice with the first notification that goes out without the ledger."""
        trouble = self._journal.trouble
        if trouble is None:
            return
        is_time = self._journal.sent_unwritten > 0 or mono - self._journal.trouble_since > STUCK_QUIETLY
        if not is_time or (self._stuck_reported is not None and mono - self._stuck_reported <= STUCK_AGAIN):
            return
        self._stuck_reported = mono
        self._notify(
            "ledger stuck", "warning", "Ledger stuck: alerts are sent directly", trouble,
            "Alerts are evaluated and sent as before, but nothing is written to the ledger: a program that starts "
            "now knows nothing of them and may send them again.",
        )  # fmt: skip

    def _report_damaged_ledger(self, kept: Path) -> None:
        """Send the notice that a new ledger has replaced a damaged one; a standby leaves that to the leader."""
        self._ledger.set_aside = None
        self._notify(
            "ledger damaged", "critical", "Ledger damaged: a new one is in use",
            f"The ledger {self._ledger.file} was damaged. A new one holds all rows that could be read; the damaged "
            f"file is now {kept}. Alerts are evaluated and sent as before.",
            f"What to do: check the disk (dmesg, smartctl). `sqlite3 {kept} .recover` may find more rows. "
            "Then delete that file.",
        )  # fmt: skip

    def _notify(self, reason: str, severity: Severity, title: str, *lines: str) -> None:
        """Send a notice about this program itself."""
        now = self._clock.now()
        notice = Notice(
            key=f"{reason.replace(' ', '-')}/{self._election.holder.name}/{now:.0f}", kind="direct", reason=reason,
            severity=severity, at=now, channels=self._deliverer.everyday, title=title, lines=lines,
        )  # fmt: skip
        self.enqueue(AlertChanges(at=now, notices=(notice,)))


def _wait(condition: Callable[[], bool], deadline: Seconds) -> None:
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
