"""trainmon-tui --alerts-only: the same watch with no terminal, for months. It ends when it is told to, never else."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType

from trainmon import __version__
from trainmon.config import Settings
from trainmon.lib import ConfigError, Seconds
from trainmon.model import State
from trainmon.runtime.alert_service import Program, caveats
from trainmon.runtime.event_log import changes, log_to_stderr, say
from trainmon.runtime.monitor import Monitor
from trainmon.runtime.systemd import Watchdog

log = logging.getLogger(__name__)

FLUSH: Seconds = 10.0
"""For what waits to be sent, at the end: systemd is told to wait twice as long (TimeoutStopSec)."""

WAKE: Seconds = 1.0

READ_AGAIN = signal.SIGHUP
FOLLOWED = signal.SIGUSR1
"""The next job of a chain takes over: nobody needs to be told that this one ends."""

Choose = Callable[[], tuple[Settings, Path | None]]


def watch(choose: Choose, ssh_config: Path | None) -> int:
    """Watch until a signal ends it. Raises ConfigError where there is no config to begin with."""
    settings, file = choose()
    log_to_stderr()
    forget_agent()
    return Daemon(settings, file, choose, ssh_config).run()


def forget_agent() -> None:
    """The agent of a login session ends with the session: a watch that counted on it would be blind the next day. One
    that ssh's own config names (IdentityAgent) is meant, and stays."""
    if os.environ.pop("SSH_AUTH_SOCK", ""):
        words = "SSH_AUTH_SOCK is not used: the agent ends with its login session"
        say("agent", logging.WARNING, words=words, try_="trainmon-tui check --headless")


def status_line(state: State) -> str:
    """How it goes, for `systemctl status`."""
    health = [source.health for source in state.sources.values()]
    firing = [alert.severity for alert in state.alerts.values() if alert.is_firing]
    waiting = sum(channel.waiting for channel in state.channels.values())
    told = [f"{health.count('ok')} of {len(health)} sources answer"]
    told.append(f"{len(firing)} alerts, {firing.count('critical')} critical" if firing else "no alerts")
    if waiting:
        told.append(f"{waiting} messages queued")
    if state.duty.holder in ("other", "daemon"):
        told.append(f"standby: {state.duty.where or 'another program'} sends the notifications")
    return "; ".join(told)


def has_looked(before: State, after: State) -> bool:
    """Whether the loop has gone round: all rules were gone through. Who stands by only listens, to every State."""
    if after.duty.holder in ("other", "daemon"):
        return True
    return after.looked_at is not None and after.looked_at != before.looked_at


class Daemon:
    """The parts, the signals, and what is said of both."""

    def __init__(self, settings: Settings, file: Path | None, choose: Choose, ssh_config: Path | None) -> None:
        self._settings = settings
        self._file = file
        self._choose = choose
        self._ssh_config = ssh_config
        self._dog = Watchdog()
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before = State()
        self._is_ready = False
        self._refused: str | None = None
        """Why the config on the disk is not the one that runs."""
        self._parts = self._made(settings)

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, READ_AGAIN, FOLLOWED):
            signal.signal(number, self._hear)
        self._tell_start()
        self._begin()
        while (told := self._told()) == READ_AGAIN:
            self._read_again()
        return self._leave(told)

    def _told(self) -> int:
        """The next signal. The kernel may give one to any thread: then nothing wakes this one, which is to hear it."""
        while True:
            with contextlib.suppress(queue.Empty):
                return self._signals.get(timeout=WAKE)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self._signals.put(number)

    # ---- the parts ---------------------------------------------------------------------------------------------------

    def _made(self, settings: Settings) -> Monitor:
        program: Program = "alerts-only"
        return Monitor(settings, program=program, ssh_config=self._ssh_config)

    def _begin(self) -> None:
        self._before = self._parts.engine.state
        self._parts.start()
        self._parts.subscribe(self._seen)

    def _tell_start(self) -> None:
        settings = self._settings
        names = ",".join(entry.label for entry in settings.notify)
        where = str(self._file.absolute()) if self._file is not None else "none"
        say("start", version=__version__, pid=os.getpid(), config=where, runs=len(settings.runs), channels=names)
        for words in caveats(settings):
            say("caveat", logging.WARNING, words=words)

    def _seen(self, state: State) -> None:
        """Each new State, on the engine's thread: what of it is worth a line, and a sign of life."""
        before, self._before = self._before, state
        for told in changes(before, state):
            say(told.happening, told.level, **told.fields)
        if not has_looked(before, state):
            return
        words = self._words(state)
        if not self._is_ready:
            self._is_ready = True
            self._dog.ready(words)
        self._dog.say(words)
        self._dog.feed(time.monotonic())

    # ---- what it is told ---------------------------------------------------------------------------------------------

    def _read_again(self) -> None:
        """Take up the config as it is now. A bad one is refused, and the old one goes on."""
        self._dog.reloading(time.monotonic())
        try:
            settings, file = self._choose()
            fresh = None if self._parts.renew(settings) else self._made(settings)
        except ConfigError as error:
            self._refuse(error.problems)
        except Exception as error:  # such as a working directory that is gone: the watch goes on
            log.exception("the config could not be read again")
            self._refuse([f"it could not be read: {error}"])
        else:
            self._settings, self._file = settings, file
            self._take_up(fresh)
        self._dog.ready(self._words(self._parts.engine.state))

    def _refuse(self, problems: Sequence[str]) -> None:
        self._refused = f"config refused: {problems[0]}"
        for problem in problems:
            say("config", logging.ERROR, words=problem, result="refused; the old one stays in use")
        self._parts.trouble(self._refused)

    def _take_up(self, fresh: Monitor | None) -> None:
        """Go on with other parts, where the new config needs them."""
        self._refused = None
        self._parts.trouble(None)
        if fresh is not None:
            self._parts.leave(None, FLUSH)
            self._parts = fresh
            self._begin()
        say("config", result="loaded", sources="reconnected" if fresh is not None else "as before")
        for words in caveats(self._settings):
            say("caveat", logging.WARNING, words=words)

    def _words(self, state: State) -> str:
        return f"{self._refused}; {status_line(state)}" if self._refused else status_line(state)

    def _leave(self, number: int) -> int:
        """Send what waits, say goodbye, and end. A second Ctrl-C ends it at once; SIGTERM comes twice, to the job and
        from its script, when Slurm cancels one."""
        why = None if number == FOLLOWED else f"received {signal.Signals(number).name}"
        say("stop", why=why or "the next job takes over")
        self._dog.stopping("sending queued notifications, then exiting")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._parts.leave(why, FLUSH)
        say("stopped")
        logging.shutdown()
        return 0
