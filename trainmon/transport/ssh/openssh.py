"""Shells over OpenSSH's own `ssh`, for hosts where our client cannot log in: one process for each command.

It logs in with Kerberos and with the keys of tokens, and it uses a master connection that a person has opened. It never
opens one, never asks anybody, and obeys nothing in the ssh config that does more than run a command.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import socket
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from trainmon.lib import (
    CommandFailed,
    HostKeyRefused,
    HostUnreachable,
    LoginNeeded,
    LoginRefused,
    Seconds,
    TrainmonError,
    last_line,
)
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell, LocalStream, Sink
from trainmon.transport.ssh.config import (
    HostSettings,
    Route,
    accept_command,
    has_option,
    hosts_of_control_path,
    openssh_settings,
    route_to,
)

# ---- the command line ------------------------------------------------------------------------------------------------

OPTIONS = (
    "BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "VerifyHostKeyDNS=no",
    "NoHostAuthenticationForLocalhost=no", "ControlMaster=no", "ClearAllForwardings=yes",
    "ForwardAgent=no", "ForwardX11=no", "GSSAPIDelegateCredentials=no", "AddKeysToAgent=no",
    "PermitLocalCommand=no", "RemoteCommand=none", "LogLevel=INFO", "ServerAliveInterval=4", "ServerAliveCountMax=2",
)  # fmt: skip
"""Given on the command line, they win over the ssh config. A dead connection is noticed within 15 s. With INFO, `ssh`
shows the messages of PAM, which are banners."""

SINCE_8_7 = ("StdinNull=no", "ForkAfterAuthentication=no", "SessionType=default")
"""OpenSSH before 8.7 has no such settings, and refuses them."""

PROMPTS = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_ASKPASS")
"""In BatchMode, a key that must be touched would still open a window."""

STARTED = b"trainmon-tui: the command starts\n"

START = f'echo "{STARTED.decode().strip()}" >&2; exec "$@"'
"""What comes before STARTED on standard error is not of the command, but of `ssh`, a banner or a login script."""


def ssh_words(route: Route, master: HostSettings | None, config_file: Path | None, timeout: Seconds) -> list[str]:
    """The command that runs another one on the last host of the route. `master`: where to begin, if not at this
    machine: over its master connection, and in no other way."""
    inner: list[str] = []
    for stop in route if master is None else route[route.index(master) :]:
        options = [*OPTIONS, *(option for option in SINCE_8_7 if has_option(option.partition("=")[0]))]
        options.append(f"ConnectTimeout={math.ceil(stop.connect_timeout or timeout)}")
        if stop is master:
            path = re.sub(r'(["\\])', r"\\\1", str(stop.control_path)).replace("%", "%%")
            options += [f'ControlPath="{path}"', "ProxyCommand=false"]  # false: no other connection in its place
        else:
            options.append("ControlPath=none")
        if inner:
            target = ["-W", f"[{stop.hostname}]:{stop.port}", *inner[-2:]]
            options.append("ProxyCommand=" + shlex.join([*inner[:-2], *target]).replace("%", "%%"))
        command = ["ssh", "-T", *(["-F", str(config_file)] if config_file else [])]
        command += [word for option in options for word in ("-o", option)]
        if stop is not route[-1]:
            command += ["-l", stop.user, "-p", str(stop.port)]
        inner = [*command, "--", stop.name]
    return inner


def open_master(stop: HostSettings) -> tuple[int, int] | None:
    """What identifies the open master connection of a host; None if none of ours is open. As by `ssh -O check`, but
    without a process."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
        if stop.control_path and (found := Path(stop.control_path).stat()).st_uid == os.getuid():
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):  # it hangs, and its queue is full
                client.connect(stop.control_path)
            return found.st_ino, found.st_ctime_ns
    return None


OWN_PATH = "set ControlPath ~/.ssh/%n-%C"
"""In OpenSSH 9.2, %C is the same for two hosts with one HostName behind different jump hosts."""

_stops: dict[tuple[Path | None, str], HostSettings] = {}
"""By ssh config and name: the hosts that may have a master connection. Those of all clusters: their sockets are on one
machine."""

_shells: weakref.WeakSet[OpensshShell] = weakref.WeakSet()
"""Those over master connections."""


def sharer(stop: HostSettings, config_file: Path | None) -> str | None:
    """Who else has the ControlPath of a host: over its master connection, commands may run on another machine. None if
    nobody has. Shells that are over it already are ended."""
    if stop.control_path is None:
        return None
    _stops[config_file, stop.name] = stop
    found = hosts_of_control_path(stop, config_file)
    for (file, name), other in () if found else tuple(_stops.items()):
        if file == config_file and is_shared(stop, other):
            with contextlib.suppress(HostUnreachable):
                _stops[file, name] = openssh_settings(name, file)  # it may have a path of its own now
                found = name if is_shared(stop, _stops[file, name]) else found
    for shell in tuple(_shells) if found else ():
        if shell.master is not None and shell.master.control_path == stop.control_path:
            shell.abandon(str(found) if shell.master.name == stop.name else stop.name)
    return found


def is_shared(one: HostSettings, other: HostSettings) -> bool:
    """Whether two machines have the same ControlPath."""
    machine, another = ((at.hostname, at.port, at.user, at.proxy_jump, at.proxy_command) for at in (one, other))
    return one.control_path == other.control_path and machine != another


def has_ticket() -> bool:
    """Whether Kerberos has a valid ticket."""
    try:
        return subprocess.run(["klist", "-s"], stdin=subprocess.DEVNULL, timeout=2, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):  # without klist, a cache is as good as a ticket
        kind, _, where = os.environ.get("KRB5CCNAME", "").rpartition(":")
        return bool(where) and (kind not in ("", "FILE") or Path(where).exists())


def may_use_kerberos(route: Route, refusal: str = "gssapi") -> bool:
    """Whether Kerberos may log in, given the methods that a refusal names."""
    return "gssapi" in refusal and any(stop.gssapi for stop in route) and has_ticket()


def login_advice(route: Route, config_file: Path | None) -> str:
    """How a person opens a master connection to the last host of the route that may have one; empty if none may."""
    stop = next((stop for stop in reversed(route) if stop.control_path), None)
    if stop is None:
        return ""
    if other := sharer(stop, config_file):
        return f"its ControlPath is that of {other}, too: {OWN_PATH}"
    return f"open a master connection: {login_command(stop, config_file)}"


def login_command(stop: HostSettings, config_file: Path | None) -> str:
    """How a person opens a master connection to a host."""
    options = [*([] if stop.opens_master else ["-M"]), *(["-F", str(config_file)] if config_file else [])]
    return shlex.join(["ssh", *options, stop.name])


# ---- why it has failed -----------------------------------------------------------------------------------------------

SSH_FAILED = 255
"""The exit status of `ssh` for its own errors. A command may have it, too."""

HOST_KEY = re.compile(r"Host key verification failed|REVOKED HOST KEY|HOST IDENTIFICATION HAS CHANGED", re.IGNORECASE)
REFUSED = re.compile(r"Permission denied \(|Too many authentication failures|No more authentication methods")
LOST = re.compile(
    r"^(?:Connection (?:to|reset|closed)\b|Timeout, server|client_loop:|Read from remote host|packet_write_|"
    r"ssh_dispatch_run_fatal|ssh_packet_|Received disconnect|Disconnected from|Bad packet|Corrupted MAC)"
)
"""The sentences with which `ssh` ends after its command has started."""

FOLLOWS = re.compile(r"^[@\s]*$|^Host key verification failed|^Connection closed|^kex_exchange_identification")
"""Lines that come after one that says more."""


def refuser(route: Route, lines: Sequence[str]) -> str:
    """Who has refused a login: the last host of the route, or a jump host, which ends the connection to it."""
    jumps = route[:-1] if "UNKNOWN" in lines[-1] else ()
    prefixes = {f"{stop.user}@{stop.hostname}: ": stop.name for stop in jumps}
    named = [name for prefix, name in prefixes.items() if any(line.startswith(prefix) for line in lines)]
    return (named or [stop.name for stop in jumps] or [route[-1].name])[-1]


class Watched(Sink):
    """Tells what `ssh` says from what its command says, and its failure from a status of the command."""

    def __init__(self, sink: Sink, failure: Callable[[Watched], TrainmonError | None]) -> None:
        self.stream: LocalStream | None = None
        self.said = b""
        """The last of its standard error: before the start of the command, or since then."""
        self.has_started = False
        self._sink, self._failure = sink, failure
        self._lock = threading.Lock()
        self._is_known = threading.Event()
        self._is_returned = self.is_late = False
        self.status = 0
        """That of `ssh`; minus the signal that ended it."""
        self.opened: tuple[int, int] | None = None
        """The master connection that it began over."""
        self._error: TrainmonError | None = None

    def wait(self, timeout: Seconds) -> None:
        """Wait until it has logged in, at most so long.

        Raises:
            TrainmonError: it has failed; its sink is not told.
        """
        self._is_known.wait(timeout)
        with self._lock:
            self._is_returned = True
            if self._error is not None:
                raise self._error

    def give_up(self) -> None:
        """End it, if nothing has come from the host."""
        if not self._is_known.is_set():
            self.abandon()

    def abandon(self) -> None:
        """End it; its sink is told why."""
        if self.stream is not None:
            self.is_late = True
            self.stream.kill()

    def received(self, data: bytes) -> None:
        self._is_known.set()
        self._sink.received(data)

    def stderr_received(self, data: bytes) -> None:
        if not self.has_started:
            self.said, started, data = (self.said + data).partition(STARTED)
            if not started:
                self.said = self.said[-KEPT:]
                return
            self.said, self.has_started = b"", True
            self._is_known.set()
        self.said = (self.said + data)[-KEPT:]
        if data:
            self._sink.stderr_received(data)

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        is_closed = self.stream is not None and self.stream.is_closed and not self.is_late
        self.status = status or 0
        if not is_closed and (self.status == SSH_FAILED or self.status < 0):
            error = self._failure(self)
        with self._lock:
            self._error = None if self._is_returned else error
        if self._error is None:
            self._sink.ended(None if is_closed or error else status, error)
        self._is_known.set()

    @property
    def lines(self) -> list[str]:
        """What was said, safe to show."""
        return [last_line(line) for line in self.said.splitlines() if line.strip()]

    @property
    def reason(self) -> str:
        """The last line, and the one that it follows from."""
        lines = self.lines or ["ssh has failed"]
        cause = next((line for line in reversed(lines) if not FOLLOWS.match(line)), lines[-1])
        return cause if "UNKNOWN" in lines[-1] else "; ".join(dict.fromkeys((cause, lines[-1])))


KEPT = 8_192
"""Bytes of standard error that are kept for the reason."""

START_TIMEOUT: Seconds = 60.0
"""Seconds for the login and its scripts. A master connection whose network is gone answers nothing."""


# ---- shells ----------------------------------------------------------------------------------------------------------


class OpensshShell(LocalShell):
    """Commands on one host, each by an `ssh` of its own."""

    def __init__(self, host: str, route: Route, master: HostSettings | None, dialer: OpensshDialer) -> None:
        kept = {name: value for name, value in os.environ.items() if name not in PROMPTS}
        super().__init__(dialer.loop, host=host, env=kept | {"SSH_ASKPASS_REQUIRE": "never"})
        self.route, self.master = route, master
        self._dialer = dialer
        self._words = ssh_words(route, master, dialer.config_file, dialer.timeout)
        self._sharer: str | None = None
        self._running: weakref.WeakSet[Watched] = weakref.WeakSet()
        if master is not None:
            _shells.add(self)

    @property
    def way(self) -> str:
        """How it logs in, in words."""
        if self.master is None:
            return "by the ssh command, without a prompt"
        of = "" if self.master is self.route[-1] else f" of {self.master.name}"
        return f"by the ssh command, over the open master connection{of}"

    def stream(self, argv: Sequence[str], sink: Sink) -> LocalStream:
        """Start a command; see Shell.stream.

        Raises:
            HostUnreachable: when there is no connection; HostKeyRefused, LoginRefused and LoginNeeded are kinds of it.
            CommandFailed: when the host or its master connection opens no session.
        """
        watched = Watched(sink, self._failure)
        watched.opened = None if self.master is None else open_master(self.master)
        command = shlex.join(["sh", "-c", START, "sh", *argv])
        with self._turn() as passed:
            stream = watched.stream = super().stream([*self._words, command], watched)
            self._running.add(watched)
            late = weakref.WeakMethod(watched.give_up)
            self._loop.call_later(START_TIMEOUT, lambda: (late() or void)())
            watched.wait(self._dialer.timeout)
            if watched.has_started:
                passed()
        return stream

    def abandon(self, sharer: str) -> None:
        """End its commands: another host has the same ControlPath."""
        self._sharer = sharer
        for watched in tuple(self._running):
            watched.abandon()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[Callable[[], None]]:
        """As OpensshDialer.turn, also for a command that needs no login."""
        if self.master is None:
            with self._dialer.turn(self.host, self.route) as passed:
                yield passed
            return
        if other := sharer(self.master, self._dialer.config_file):
            raise self._shared(other)
        with contextlib.nullcontext() if self.master is self.route[-1] else self._dialer.slots:
            yield void

    def _shared(self, other: str) -> HostUnreachable:
        name = "its" if self.master is self.route[-1] or self.master is None else f"the {self.master.name}'s"
        return HostUnreachable(self.host, f"{self.host}: {name} ControlPath is that of {other}, too", hint=OWN_PATH)

    def _failure(self, watched: Watched) -> TrainmonError | None:
        """Why `ssh` has failed; None if its command has this status. On the event loop's thread."""
        host, lines, reason = self.host, watched.lines, watched.reason
        if self._sharer is not None:
            return self._shared(self._sharer)
        if self.master is not None and (opened := open_master(self.master)) != watched.opened:
            again = HostUnreachable(host, f"{host}: the master connection of {self.master.name} was opened again")
            return again if opened else self._dialer.lost(self.master)
        if watched.has_started and watched.status < 0:  # the command may go on
            return HostUnreachable(host, f"{host}: ssh was ended by signal {-watched.status}")
        if watched.has_started:
            is_lost = self.master is not self.route[-1] and lines and LOST.match(lines[-1])
            return HostUnreachable(host, f"{host}: {lines[-1]}") if is_lost else None
        if watched.is_late:  # it may start yet
            return CommandFailed(f"{host}: its shell has not started in {START_TIMEOUT:g}s")
        if self.master is self.route[-1]:
            sentence = f"{host}: its master connection opens no session: {lines[0] if lines else reason}"
            return CommandFailed(sentence, hint="its sshd limits the sessions of one connection (MaxSessions)")
        if any(map(HOST_KEY.search, lines)):
            hint = "ask its administrator"
            if "is known for" in reason:
                accept = accept_command(self.route[-1], self.route[:-1], self._dialer.config_file)
                hint = f"ask its administrator for the fingerprint; if it is the same, accept it with: {accept}"
            return HostKeyRefused(host, f"{host}: its host key is refused by ssh: {reason}", hint=hint)
        if any(map(REFUSED.search, lines)):
            at = refuser(self.route, lines)
            refusal = LoginRefused(at, f"{at} refuses the login by ssh: {reason}", hint=f"try: ssh {host}")
            return self._dialer.refused(self.route, refusal, may_use_master=True)
        if self.master is not None and re.search("UNKNOWN port .* timed out", reason):
            file = ["-F", str(self._dialer.config_file)] if self._dialer.config_file else []
            hint = f"if it hangs: {shlex.join(['ssh', '-O', 'exit', *file, self.master.name])}"
            return HostUnreachable(
                host, f"{host}: no answer over the master connection of {self.master.name}", hint=hint
            )
        return HostUnreachable(host, f"{host}: {reason}", hint=f"try: ssh {host}")


def void() -> None:
    """Do nothing."""


class OpensshDialer:
    """Reaches hosts by OpenSSH's `ssh`."""

    def __init__(
        self, loop: EventLoop, *, at_once: int = 8, timeout: Seconds = 10.0, config_file: Path | None = None
    ) -> None:
        self.loop, self.timeout, self.config_file = loop, timeout, config_file
        self.slots = threading.Semaphore(at_once)
        self._awaited: dict[str, Awaited] = {}
        """By name: the hosts, and the jump hosts, that wait for a person."""
        self._routes: dict[str, Route] = {}
        """By host: the newest."""
        self._turns: dict[str, threading.Lock] = {}
        self._passed: set[str] = set()
        """The last jump hosts, and the hosts without one, that a login has passed."""

    def dial(self, host: str, route: Route = ()) -> OpensshShell:
        """The shell of a host. Without a master connection, each command logs in.

        Raises:
            HostUnreachable: when there is no `ssh`, or the host waits for a master connection.
        """
        route = route or route_to(host, self.config_file)
        if route[-1].note is not None:
            raise HostUnreachable(host, f"{host}: there is no ssh command here", hint="install the OpenSSH client")
        return OpensshShell(host, route, self.master_of(host, route), self)

    def master_of(self, host: str, route: Route) -> HostSettings | None:
        """The last host of the route whose master connection is open.

        Raises:
            HostUnreachable: the host waits for one, or for a ticket, and there is none.
        """
        self._routes[host] = route
        has_sharer = partial(sharer, config_file=self.config_file)
        master = next((stop for stop in reversed(route) if open_master(stop) and not has_sharer(stop)), None)
        over = () if master is None else route[: route.index(master) + 1]
        for stop in route:
            reason, is_refused, since = self._awaited.get(stop.name, NOTHING)
            is_refused = is_refused and (reason.waits_for_person or time.monotonic() < since + REFUSED_FOR)
            if stop in over or (is_refused and may_use_kerberos(route, str(reason))):
                self.forget(stop.name)
            elif is_refused:
                raise copied(reason)
        return master

    @contextlib.contextmanager
    def turn(self, host: str, route: Route) -> Iterator[Callable[[], None]]:
        """Until one login has passed a host, others wait for its end: many refusals could lock an account. Yields what
        says that it has passed.

        Raises:
            HostUnreachable: it was refused meanwhile.
        """
        gate = route[-2:][0].name
        turn = self._turns.setdefault(gate, threading.Lock())
        is_first = gate not in self._passed and turn.acquire(timeout=self.timeout)
        try:
            self.master_of(host, route)
            with self.slots:
                yield partial(self._passed.add, gate)
        finally:
            if is_first:
                turn.release()

    def is_awaiting(self, route: Route) -> bool:
        """Whether a master connection is lost, or a login is refused without one."""
        return any(stop.name in self._awaited for stop in route)

    def forget(self, name: str) -> None:
        """Try logins there again: a person wants it, or our job runs there now. Also on its jump hosts, but not if they
        have just refused one: many hosts behind them may want it at once."""
        self._awaited.pop(name, None)
        for stop in self._routes.get(name, ())[:-1]:
            if time.monotonic() - self._awaited.get(stop.name, NOTHING).since > FORGET_AFTER:
                self._awaited.pop(stop.name, None)

    def lost(self, master: HostSettings) -> HostUnreachable:
        """The error of a host whose master connection has ended. One login without it is tried."""
        again = f"log in again with {login_command(master, self.config_file)}"
        error = LoginNeeded(master.name, f"{master.name}: the master connection is closed", hint=again)
        error.waits_for_person = True
        self._passed.clear()
        return copied(self._awaited.setdefault(master.name, Awaited(error, False, time.monotonic())).reason)

    def refused(self, route: Route, error: HostUnreachable, *, may_use_master: bool) -> HostUnreachable:
        """The error of a host, or of its jump host, that refuses a login and has no master connection. If a person can
        help, it waits. What a jump host refuses is refused for all hosts behind it."""
        host = error.host
        advice = login_advice(route, self.config_file) if may_use_master else ""
        ways = [advice] if advice else []
        if "gssapi" in error.message and any(stop.gssapi for stop in route) and not has_ticket():
            ways.append("get a Kerberos ticket: kinit")
        if not ways and host == route[-1].name:
            return error
        reason = copied(self._awaited[host].reason if host in self._awaited else error)
        if host not in self._awaited and ways:
            reason.hint = " or ".join(ways)
        reason.waits_for_person = bool(ways)
        self._awaited[host] = Awaited(reason, True, time.monotonic())
        return copied(reason)


class Awaited(NamedTuple):
    """Why a host waits for a person."""

    reason: HostUnreachable
    is_refused: bool
    """Whether a login was refused: then none is tried any more."""
    since: Seconds
    """When; monotonic."""


NOTHING = Awaited(HostUnreachable("", ""), False, 0.0)

FORGET_AFTER: Seconds = 5.0

REFUSED_FOR: Seconds = 60.0
"""How long a refusal of a jump host counts for others, if nobody is waited for."""


def copied(reason: HostUnreachable) -> HostUnreachable:
    """Raised for one more host."""
    error = type(reason)(reason.host, reason.message, hint=reason.hint)
    error.waits_for_person = reason.waits_for_person
    return error
