"""Polls the daemon on another machine: its alerts become events, and a person's requests are sent to it.

Its own thread polls `trainmon-tui status --json` over a Shell. While the daemon answers and watches, it alone sends
notifications. After a long silence, or when no daemon runs there, `on_silent` is called: then this machine may notify.
When the daemon is back, `on_active` is called before anything else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from collectors.connections import Connections
from collectors.polling_thread import PollingThread
from trainmon.config import ConnectSettings
from trainmon.engine.snapshot import Status, read_status
from trainmon.lib import (
    Clock,
    CommandFailed,
    HostUnreachable,
    Instant,
    LoginRefused,
    Seconds,
    TrainmonError,
    clean,
    clock_difference,
)
from trainmon.model import (
    AlertRequest,
    AlertRequested,
    AlertsReported,
    Event,
    Leadership,
    LeadershipChanged,
    Source,
)
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LOGIN_SHELL, AskUser, Completed, Shell

# ---- the connection to the daemon's machine --------------------------------------------------------------------------


class DaemonConnection:
    """Connects to the daemon's machine once.

    `watched` returns the live connection of a watched host, or None if the host is not watched. It raises
    HostUnreachable while a watched host has no connection.
    """

    def __init__(
        self, host: str, watched: Callable[[str], Shell | None], ask: AskUser | None, ssh_config: Path | None
    ) -> None:
        self._host = host
        self._watched = watched
        self._loop = EventLoop()
        self._connections = Connections(self._loop, ConnectSettings(), ask, ssh_config)

    def shell(self) -> Shell:
        """The shared connection, or a new one.

        Raises:
            HostUnreachable: when there is none.
        """
        live = self._watched(self._host)
        if live is not None:
            return SharedShell(live)
        self._loop.start()
        return self._connections.dial(self._host)

    def close(self) -> None:
        self._connections.close()
        self._loop.stop()


class SharedShell:
    """A connection that belongs to another collector: close() does not end it."""

    prompted = False
    """Its owner redials it."""

    def __init__(self, shell: Shell) -> None:
        self.host, self.run, self.stream = shell.host, shell.run, shell.stream

    def close(self) -> None:
        """Its owner closes it."""


# ---- requests to it as arguments, and its answers in our clock's time ------------------------------------------------

TIMES = frozenset(
    {"since", "found_at", "fired_at", "clear_since", "resolved_at", "acknowledged_at", "muted_until", "notified_at",
     "first_notified_at", "at", "until", "made_at", "ended_at", "sent_at", "oldest_at", "started_at", "last_tick_at"}
)  # fmt: skip
"""The fields of its answers that hold a time."""

T = TypeVar("T")


def request_argv(request: AlertRequest) -> tuple[str, ...] | None:
    """`ack --by=ana --why=… -- 3f2a91bc`: the command line for a request. None for requests to this machine alone."""
    common = (f"--by={request.by}", *((f"--why={request.why}",) if request.why else ()))
    match request.verb:
        case "ack" | "unack" if request.alert:
            undo = ("--undo",) if request.verb == "unack" else ()
            return ("ack", "--json", *undo, *common, "--", request.alert)
        case "unmute" if request.alert:
            return ("unmute", "--json", f"--by={request.by}", "--", request.alert)
        case "mute" if request.silence is not None:
            silence = request.silence
            parts = (("rule", silence.rule), ("run", silence.run), ("node", silence.node))
            options = tuple(f"--{name}={value}" for name, value in parts if value)
            seconds = max(60, round(silence.until - request.at))
            subject = ("--", silence.subject) if silence.subject else ()
            return ("mute", "--json", f"--for={seconds}s", *options, *common, *subject)
    return None


def shift_times(value: T, seconds: Seconds) -> T:
    """An answer with all times moved by these seconds, to our clock."""
    if isinstance(value, tuple):
        return type(value)(shift_times(one, seconds) for one in value)
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    moved = {
        name: had + seconds if name in TIMES and had is not None else shift_times(had, seconds)
        for name, had in fields.items()
    }
    return replace(value, **moved)


# ---- polls the daemon on another machine -----------------------------------------------------------------------------

log = logging.getLogger(__name__)

TIMEOUT: Seconds = 20.0
"""The timeout of one answer: a busy bastion needs seconds to start Python, not a minute."""

RETRY_EVERY: Seconds = 5.0
"""The longest pause between two polls while it does not answer, and after a request."""

SILENT_PERIODS = 3
"""The number of periods without a watcher there before this machine notifies: a restart takes seconds."""

MIN_SILENCE: Seconds = 10.0
"""The shortest silence before this machine notifies."""

UNREACHED_PERIODS = 6
"""The number of periods without an answer before this machine notifies: the daemon may still run and notify."""

NOT_FOUND = 127
"""The exit status of a shell for an unknown command."""
SKEWED: Seconds = 2.0
VERSION = 1
"""The version of the output of `status --json`."""


class DaemonCollector(PollingThread):
    """Polls the daemon of one host. `dial` may block. `on_active` and `on_silent` run on our own thread."""

    most_requests = 256
    """A person may acknowledge many alerts at once."""

    def __init__(
        self,
        host: str,
        command: Sequence[str],
        every: Seconds,
        dial: Callable[[], Shell],
        submit: Callable[[Event], None],
        clock: Clock,
        *,
        on_active: Callable[[Status], None],
        on_silent: Callable[[str], None],
    ) -> None:
        super().__init__(f"daemon {host}", every, submit, clock)
        self.host = host
        self._command = tuple(command)
        self._dial = dial
        self._on_active, self._on_silent = on_active, on_silent
        self._source = Source(name=f"daemon:{host}", kind="daemon", cluster="", period=every)
        self._shell: Shell | None = None
        self._prefix: tuple[str, ...] = ()
        """LOGIN_SHELL if only a login shell finds the command."""
        self._waiting: list[threading.Event] = []
        """For the end of the next poll."""
        self._polling: list[threading.Event] = []
        """For the end of the current one."""
        self._next: Seconds = clock.monotonic()
        self._last_active: Seconds = clock.monotonic()
        """When the daemon last notified; at first, when the polls began."""
        self._why, self._silence_limit = "it is unreachable", max(MIN_SILENCE, UNREACHED_PERIODS * every)
        """Why the daemon does not notify, and how long that may last before this machine does."""
        self._is_shown = True
        """Whether its alerts are expected, and shown in place of our own."""
        self._is_held = False
        self.is_active: bool | None = None
        """Whether the daemon notifies; None: not known yet."""

    # ---- from any thread ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._report(phase="connecting")
        self._submit(
            LeadershipChanged(Leadership(holder="daemon", where=self.host, problem=f"no data from {self.host} yet"))
        )
        super().start()

    def stop(self) -> None:
        """Stop. A command that hangs ends by its own timeout."""
        self._stopping.set()
        self._drop()
        for polled in (*self._waiting, *self._polling):
            polled.set()
        super().stop()

    def send(self, request: AlertRequest) -> None:
        """Send a person's request to the daemon; State.leadership shows the result."""
        self._request(partial(self._send_request, request))

    def refresh(self) -> None:
        """Poll now: a person requested it. A key that was refused may be fixed."""
        self._is_held = self._is_held and self._source.can_log_in
        self._next = self._clock.monotonic()
        self._wake.set()

    def login(self) -> None:
        """Connect again, with prompts: a person requested it."""
        self._is_held = False
        self.refresh()

    def answers(self, timeout: Seconds) -> bool:
        """Poll now, wait for the answer, and return whether the daemon notifies: the last check before we notify."""
        if self._is_held:
            return False
        polled = threading.Event()
        self._waiting.append(polled)
        self._next = self._clock.monotonic()
        self._wake.set()
        polled.wait(0.0 if self._stopping.is_set() else timeout)
        return self.is_active is True

    # ---- its own thread ----------------------------------------------------------------------------------------------

    def step(self) -> Seconds:
        """Do what is due. Returns the seconds until the next call."""
        self._do_requests()
        now = self._clock.monotonic()
        if now < self._next or self._is_held:
            self._check_silence()
            return max(0.1, min(RETRY_EVERY, self._next - now)) if not self._is_held else self._every
        self._next = now + self._every
        while self._waiting:
            self._polling.append(self._waiting.pop())
        asked_at = self._clock.now()
        try:
            is_watched, status = self.poll()
        except TrainmonError as error:
            can_log_in = isinstance(error, HostUnreachable) and error.can_log_in
            waits = isinstance(error, HostUnreachable) and error.waits_for_person
            self._is_held = (can_log_in or isinstance(error, LoginRefused)) and not waits
            self._report(
                phase="held" if self._is_held else "retrying",
                error=error.message,
                hint=error.hint or None,
                can_log_in=can_log_in,
            )
            self._silent(error.message.removeprefix(f"{self.host}: "), UNREACHED_PERIODS)
        else:
            if is_watched:
                self._active(status, asked_at)
            else:
                self._unwatched(status)
        finally:
            self._poll_done()
        return max(0.1, self._next - self._clock.monotonic())

    def _poll_done(self) -> None:
        while self._polling:
            self._polling.pop().set()

    def poll(self) -> tuple[bool, Status]:
        """Poll now. Returns whether a daemon watches there, and the status.

        Raises:
            TrainmonError: when there is no usable answer.
        """
        done = self._execute((*self._command, "status", "--json"))
        try:
            status = read_status(done.stdout)
        except msgspec.DecodeError as error:
            if done.status not in (0, 1, 3) or not done.stdout.strip():
                raise CommandFailed(f"{self.host}: {self._command[0]} status: {_error_of(done)}") from error
            raise CommandFailed(f"{self.host}: its status cannot be decoded: {error}") from error
        if status.version != VERSION:
            raise CommandFailed(
                f"{self.host}: its status has version {status.version}, not {VERSION}",
                hint="install the same version on both machines",
            )
        return done.status != 3, status

    def _execute(self, argv: Sequence[str]) -> Completed:
        """Run a command there. If it is not found, use a login shell from then on."""
        if self._shell is None:
            self._report(phase="connecting")
            self._shell = self._dial()
        shell = self._shell
        try:
            done = shell.run((*self._prefix, *argv), timeout=TIMEOUT)
            if done.status == NOT_FOUND and not self._prefix:
                self._prefix = LOGIN_SHELL
                done = shell.run((*self._prefix, *argv), timeout=TIMEOUT)
        except HostUnreachable:
            self._drop()
            raise
        if done.status == NOT_FOUND:
            self._prefix = ()
            raise CommandFailed(
                f"{self.host}: command not found: {argv[0]}",
                hint=f'set its path: [daemon] command = ["/path/on/{self.host}/trainmon-tui"]',
            )
        return done

    def _drop(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()

    # ---- its answers ------------------------------------------------------------------------------------------------

    def _active(self, status: Status, asked_at: Instant) -> None:
        """The daemon watches and notifies."""
        now = self._clock.now()
        ahead = clock_difference(status.at, asked_at, now)
        if abs(ahead) > SKEWED:
            status = shift_times(status, -ahead)
        self._is_shown, self._last_active = True, self._clock.monotonic()
        if self.is_active is not True:
            self.is_active = True
            self._poll_done()  # a caller that waits in answers() must not notify any more
            self._on_active(status)
        self._report(phase="up", answered_at=now, error=None, hint=None)
        leader = status.leader
        at = status.at if leader.last_tick_at is None else leader.last_tick_at
        self._report_leader(at, leader.problem, leader.started_at)
        self._submit(AlertsReported((*status.alerts, *status.ended), status.silences, status.channels, at))

    def _unwatched(self, status: Status) -> None:
        """The host answers, but no daemon watches there, or it hangs."""
        problem = status.leader.problem or "no daemon runs there"
        if status.leader.holder != "nobody" and status.leader.last_tick_at is not None:
            self._last_active = min(
                self._last_active, self._clock.monotonic() - (status.at - status.leader.last_tick_at)
            )
        self._report(phase="up", error=f"{self.host}: {problem}",
                   hint="start it there: trainmon-tui service systemd")  # fmt: skip
        self._silent(problem, SILENT_PERIODS)

    def _silent(self, why: str, periods: int) -> None:
        """The daemon does not notify: wait, then let this machine notify."""
        self._next = min(self._next, self._clock.monotonic() + RETRY_EVERY)
        self._why, self._silence_limit = why, max(MIN_SILENCE, periods * self._every)
        if self.is_active is True:
            self._report_leader(self._last_active_at(), why)
        self._check_silence()

    def _check_silence(self) -> None:
        """Wait one period for a first answer; then show our own alerts, and notify after the full silence."""
        silent = self._clock.monotonic() - self._last_active
        if self.is_active is None and self._is_shown and silent >= self._every:
            self._is_shown = False
            self._submit(
                LeadershipChanged(Leadership(where=self.host, problem=clean(f"{self.host}: {self._why}", 300)))
            )
        if self.is_active is not False and silent >= self._silence_limit:
            self.is_active = False
            self._on_silent(self._why)

    def _report_leader(self, at: Instant, problem: str | None, since: Instant | None = None) -> None:
        problem = clean(problem, 300) if problem is not None else None
        self._submit(
            LeadershipChanged(Leadership(holder="daemon", where=self.host, at=at, problem=problem, since=since))
        )

    # ---- requests to it ------------------------------------------------------------------------------------------

    def _send_request(self, request: AlertRequest) -> None:
        argv = request_argv(request)
        if argv is None:
            return
        try:
            done = self._execute((*self._command, *argv))
            if done.status != 0:
                raise CommandFailed(_error_of(done))
        except TrainmonError as error:
            log.warning("%s on %s: %s", argv[0], self.host, error)
            if self.is_active is True:
                why = error.message.removeprefix(f"{self.host}: ")
                self._report_leader(self._last_active_at(), f"{argv[0]} did not reach {self.host}: {why}")
                self._next = self._clock.monotonic() + RETRY_EVERY  # long enough to read it
            else:
                self._submit(AlertRequested(request))
        else:
            self._next = self._clock.monotonic()

    def _last_active_at(self) -> Instant:
        return self._clock.now() - (self._clock.monotonic() - self._last_active)

    def _report(self, **facts: object) -> None:
        self._source = replace(self._source, **facts)
        self._submit_source(self._source)


def _error_of(done: Completed) -> str:
    """Its error message, or its exit status."""
    message = clean(done.stderr.decode("utf-8", "replace").strip(), 300)
    message = message.removeprefix("Error: ").removeprefix("trainmon-tui: ")  # of an older program, and of ours
    return message or f"exit status {done.status}"
