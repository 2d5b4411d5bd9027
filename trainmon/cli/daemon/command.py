"""trainmon-tui --alerts-only: the same watch without a terminal, for months, until a signal ends it. With --once, for
cron: evaluates everything once, notifies, and ends."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from trainmon import __version__
from trainmon.cli.snapshot.command import first_full_state, next_evaluation, requested_sources
from trainmon.config import Settings
from trainmon.engine.snapshot import exit_status
from trainmon.lib import ConfigError, Instant, Seconds, counted
from trainmon.model import State
from trainmon.runtime.alert_service import caveats
from trainmon.runtime.event_log import changes, log_event, log_to_stderr
from trainmon.runtime.monitor import Monitor
from trainmon.runtime.systemd import Watchdog

log = logging.getLogger(__name__)

FLUSH: Seconds = 10.0
"""For queued notifications, at the end: TimeoutStopSec of the systemd unit is twice as long."""

WAKE_PERIOD: Seconds = 1.0

RELOAD = signal.SIGHUP
HANDOVER = signal.SIGUSR1
"""The next job of a chain takes over: no notification says that this one ends."""

WAIT: Seconds = 60.0
"""The longest wait of `--once` for hosts, queues and W&B to answer; cron starts the next one after five minutes."""

EVALUATION_TIMEOUT: Seconds = 45.0
"""The longest wait of `--once` for the rules and the notifications: a group waits up to half a minute."""

EVALUATIONS = 2
"""A resolved alert is notified by the evaluation after the one that finds it."""

Choose = Callable[[], tuple[Settings, Path | None]]


def watch(choose: Choose, ssh_config: Path | None, *, records: bool) -> int:
    """Run the daemon until a signal ends it.

    Raises:
        ConfigError: when the first config cannot be used.
    """
    settings, file = choose()
    log_to_stderr()
    forget_agent()
    return Daemon(
        settings, file, choose, partial(Monitor, program="alerts-only", records=records, ssh_config=ssh_config)
    ).run()


def forget_agent() -> None:
    """Stop using the agent of a login session: it ends with the session. An agent that ssh's own config names
    (IdentityAgent) stays."""
    if os.environ.pop("SSH_AUTH_SOCK", ""):
        text = "SSH_AUTH_SOCK is not used: the SSH agent ends with its login session"
        log_event("agent", logging.WARNING, words=text, try_="trainmon-tui check --headless")


def status_line(state: State) -> str:
    """The state of the daemon, for `systemctl status`."""
    health = [source.health for source in state.sources.values()]
    firing = [alert.severity for alert in state.alerts.values() if alert.is_firing]
    queued = sum(channel.waiting for channel in state.channels.values())
    is_standby = state.leadership.holder in ("other", "daemon")
    parts = (
        f"{health.count('ok')} of {len(health)} sources responding",
        f"{counted(len(firing), 'alert')}, {firing.count('critical')} critical" if firing else "no alerts",
        f"{counted(queued, 'notification')} queued" if queued else "",
        f"standby: {state.leadership.where or 'another program'} sends the notifications" if is_standby else "",
    )
    return "; ".join(filter(None, parts))


class Daemon:
    """The monitor, the signals, and the log lines about both."""

    def __init__(
        self, settings: Settings, file: Path | None, choose: Choose, monitor: Callable[[Settings], Monitor]
    ) -> None:
        self._settings = settings
        self._file = file
        self._choose = choose
        self._make_monitor = monitor
        self._watchdog = Watchdog()
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before = State()
        self._is_ready = False
        self._refused: str | None = None
        """Why the config on the disk is not the one that runs."""
        self._monitor = monitor(settings)

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, RELOAD, HANDOVER):
            signal.signal(number, lambda number, frame: self._signals.put(number))
        names = ",".join(entry.label for entry in self._settings.notify)
        config, runs = str(self._file.absolute()) if self._file is not None else "none", len(self._settings.runs)
        log_event("start", version=__version__, pid=os.getpid(), config=config, runs=runs, channels=names)
        self._say_caveats()
        self._start()
        while True:
            # The kernel may give a signal to any thread. Only the main thread runs its handler, so it must wake.
            with contextlib.suppress(queue.Empty):
                received = self._signals.get(timeout=WAKE_PERIOD)
                if received != RELOAD:
                    return self._stop(received)
                self._reload()

    def _start(self) -> None:
        self._before = self._monitor.engine.state
        self._monitor.start()
        self._monitor.subscribe(self._received)

    def _say_caveats(self) -> None:
        for caveat in caveats(self._settings):
            log_event("caveat", logging.WARNING, words=caveat)

    def _received(self, state: State) -> None:
        """Log what changed in a new State, and report to systemd. On the engine's thread."""
        before, self._before = self._before, state
        for line in changes(before, state):
            log_event(line.event, line.level, **line.fields)
        is_standby = state.leadership.holder in ("other", "daemon")  # it evaluates no rules
        if not is_standby and state.evaluated_at in (None, before.evaluated_at):
            return
        if not self._is_ready:
            self._is_ready = True
            self._watchdog.ready(self._status(state))
        self._watchdog.status(self._status(state))
        self._watchdog.feed(time.monotonic())

    # ---- signals -----------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        """Load the config again. A bad one is refused, and the old one stays in use."""
        self._watchdog.reloading(time.monotonic())
        try:
            settings, file = self._choose()
            monitor = None if self._monitor.reload(settings) else self._make_monitor(settings)
        except ConfigError as error:
            self._refuse(str(error).splitlines())
        except Exception as error:  # such as a working directory that is gone: the watch goes on
            log.exception("the config could not be read again")
            self._refuse([f"it could not be read: {error}"])
        else:
            self._settings, self._file, self._refused = settings, file, None
            self._monitor.trouble(None)
            if monitor is not None:
                self._monitor.leave(None, FLUSH)
                self._monitor = monitor
                self._start()
            log_event("config", result="loaded", sources="reconnected" if monitor is not None else "as before")
            self._say_caveats()
        self._watchdog.ready(self._status(self._monitor.engine.state))

    def _refuse(self, problems: Sequence[str]) -> None:
        self._refused = f"config refused: {problems[0]}"
        for problem in problems:
            log_event("config", logging.ERROR, words=problem, result="refused; the old one stays in use")
        self._monitor.trouble(self._refused)

    def _status(self, state: State) -> str:
        return f"{self._refused}; {status_line(state)}" if self._refused else status_line(state)

    def _stop(self, number: int) -> int:
        """Send queued notifications and end. A second Ctrl-C ends it at once. SIGTERM comes twice when Slurm cancels a
        job: to the job, and from its script."""
        why = None if number == HANDOVER else f"received {signal.Signals(number).name}"
        log_event("stop", why=why or "the next job takes over")
        self._watchdog.stopping("sending queued notifications, then exiting")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._monitor.leave(why, FLUSH)
        log_event("stopped")
        logging.shutdown()
        return 0


# ---- --once ----------------------------------------------------------------------------------------------------------


def evaluate_once(settings: Settings, hosts: Sequence[str], ssh_config: Path | None, *, records: bool) -> int:
    """Read everything, evaluate the rules with the ledger, notify. The exit status is that of `snapshot`."""
    log_to_stderr(logging.WARNING)
    forget_agent()
    monitor = Monitor(settings, program="once", records=records, ssh_config=ssh_config)
    before = monitor.engine.state
    monitor.start()
    try:
        state = first_full_state(monitor, WAIT)
        if monitor.alert_service is not None:
            # Only now: what has not been read yet resolves no alert, and no hold waits for it.
            monitor.alert_service.start()
            state = evaluated(monitor, EVALUATION_TIMEOUT)
            monitor.alert_service.ping_once(state)
        else:
            state = next_evaluation(monitor)
        for line in changes(before, state):
            log_event(line.event, line.level, **line.fields)
    finally:
        monitor.leave(None, FLUSH)
        logging.shutdown()
    return exit_status(state, requested_sources(settings, hosts))


def evaluated(monitor: Monitor, timeout: Seconds) -> State:
    """The State after all rules were evaluated, when no notification waits any longer."""
    first = monitor.engine.state.evaluated_at
    times: set[Instant | None] = set()
    done = threading.Event()

    def received(state: State) -> None:
        if state.leadership.holder == "nobody":
            return
        times.add(state.evaluated_at)
        # Another program may send the notifications: its first evaluation is enough.
        is_elsewhere = state.leadership.holder != "us" and state.evaluated_at != first
        if is_elsewhere or (len(times) > EVALUATIONS and not monitor.is_about_to_notify(timeout)):
            done.set()

    cancel = monitor.subscribe(received)
    done.wait(timeout)
    cancel()
    return monitor.engine.state
