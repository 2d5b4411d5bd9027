"""Hosts over SSH, behind Shell: the Dialer connects and logs in, an SshShell runs commands on one connection."""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from paramiko.ssh_exception import ChannelException, SSHException

from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError, clean
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, Sink, collect
from trainmon.transport.ssh.auth.keys import KeyRing
from trainmon.transport.ssh.auth.login import Ask, Asker, Login, OutOfTurn, Slot
from trainmon.transport.ssh.channel import SshStream
from trainmon.transport.ssh.config import HostSettings, effective
from trainmon.transport.ssh.connect import (
    accept_command,
    handshake,
    in_words,
    wire_by_command,
    wire_by_tcp,
    wire_by_tunnel,
)
from trainmon.transport.ssh.keepalive import Keepalive
from trainmon.transport.ssh.proxy_command import Proxy
from trainmon.transport.ssh.socket import Socket
from trainmon.transport.ssh.transport import Connection

HOPS = 8
JUMP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:]+)(?::(?P<port>\d+))?/?")
Route = tuple[HostSettings, ...]


class Lease:
    """A logged-in connection: its way there, who uses it, and why it ended."""

    def __init__(
        self, settings: HostSettings, connection: Connection, via: Lease | None, proxy: Proxy | None, prompted: bool
    ) -> None:
        self.settings = settings
        self.connection = connection
        self.via = via
        self.prompted: bool = prompted or (via is not None and via.prompted)
        self.users = 0
        self.closed = False
        self._proxy = proxy
        self._lost: HostUnreachable | None = None

    def lose(self, silence: Seconds | None) -> None:
        """The other side is gone: silently (a half-open connection), or it hung up."""
        host = self.settings.name
        if self._lost is None and silence is not None:
            hint = "its network or the machine itself is gone, or hangs"
            self._lost = HostUnreachable(host, f"{host}: nothing heard for {silence:.0f} s", hint=hint)
        self.connection.close()

    def why(self) -> HostUnreachable:
        """Why it ended, as far as is known."""
        host = self.settings.name
        if self._lost is not None:
            return self._lost
        if self.via is not None and not self.via.connection.is_active():
            return HostUnreachable(host, f"{host}: {self.via.why().message}", hint="its jump host")
        said = clean(self.connection.goodbye, 200)
        words = f": {said}" if said else ""
        return HostUnreachable(host, f"{host}: the connection was closed by the other side{words}")

    def hang_up(self) -> None:
        self.closed = True
        self.connection.close()
        if self._proxy is not None:
            self._proxy.close()


class SshShell:
    """Commands on one host, over one connection."""

    def __init__(self, host: str, line: Lease, dialer: Dialer, reader: EventLoop, timeout: Seconds) -> None:
        self.host = host
        self._line = line
        self._dialer = dialer
        self._reader = reader
        self._timeout = timeout
        self._streams: set[SshStream] = set()
        self._closed = False

    @property
    def prompted(self) -> bool:
        """Whether somebody had to answer what must be answered at every login (a kept passphrase need not)."""
        return self._line.prompted

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Run a command to its end; see Shell.run."""
        return collect(self, argv, stdin, timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> SshStream:
        """Start a command; see Shell.stream."""
        connection = self._line.connection
        try:
            channel = connection.open_session(timeout=self._timeout)
        except ChannelException as error:
            hint = "its sshd allows no more sessions on one connection (MaxSessions)"
            raise CommandFailed(f"{self.host}: no session: {clean(error.text, 100)}", hint=hint) from error
        except (SSHException, OSError, EOFError) as error:
            if connection.is_active():
                raise CommandFailed(f"{self.host}: no session in {self._timeout:g} s") from error
            raise self._why() from error
        stream = SshStream(connection, channel, sink, self._reader, self._streams.discard, self._why)
        self._streams.add(stream)
        stream.start()
        connection.execute(channel, shlex.join(argv))
        return stream

    def _why(self) -> TrainmonError:
        return HostUnreachable(self.host, f"{self.host}: closed") if self._closed else self._line.why()

    def close(self) -> None:
        """Drop the connection and everything on it; never blocks."""
        if self._closed:
            return
        self._closed = True
        for stream in tuple(self._streams):
            stream.kill()
        self._dialer.drop(self._line)


class Dialer:
    """Connects to hosts as OpenSSH would. `ask` is called for what a person must answer; None: nobody is there."""

    def __init__(
        self,
        reader: EventLoop,
        *,
        ask: Ask | None = None,
        at_once: int = 8,
        timeout: Seconds = 10.0,
        config_file: Path | None = None,
    ) -> None:
        self._reader = reader
        self._asker = Asker(ask)
        self._places = threading.Semaphore(at_once)
        self._timeout = timeout
        self._config_file = config_file
        self._ring = KeyRing()
        self._pulse = Keepalive(reader)
        self._lock = threading.Lock()
        self._jumps: dict[Route, Future[Lease]] = {}
        self._lines: set[Lease] = set()
        self._opening: set[Socket] = set()
        self._closed = False

    def dial(self, host: str) -> SshShell:
        """Connect and log in. Blocks; raises HostUnreachable, HostKeyRefused, LoginRefused or LoginNeeded."""
        since = time.monotonic()
        return SshShell(host, self._open(self._route(host), since), self, self._reader, self._timeout)

    def close(self) -> None:
        """Drop every connection, also those under way; never blocks."""
        with self._lock:
            self._closed = True
            lines, opening = tuple(self._lines), tuple(self._opening)
        for wire in opening:
            wire.close()
        for line in lines:
            self.drop(line)

    def drop(self, line: Lease) -> None:
        """Close a connection, and give back its share of the jump host's."""
        with self._lock:
            if line not in self._lines:
                return
            self._lines.discard(line)
        self._pulse.forget(line.connection)
        line.hang_up()
        if line.via is not None:
            self._release(line.via)

    # ---- the way there -----------------------------------------------------------------------------------------------

    def _route(self, host: str) -> Route:
        route: list[HostSettings] = [effective(host, self._config_file)]
        hops = route[0].proxy_jump
        while hops:
            found = JUMP.fullmatch(hops[-1])
            if found is None or len(route) > HOPS:
                raise HostUnreachable(host, f"{host}: its ProxyJump {','.join(hops)!r} leads nowhere")
            port = int(found["port"]) if found["port"] else None
            route.insert(0, effective(found["host"].strip("[]"), self._config_file, user=found["user"], port=port))
            hops = hops[:-1] or route[0].proxy_jump
        if len({(stop.hostname, stop.port, stop.user) for stop in route}) < len(route):
            raise HostUnreachable(
                host, f"{host}: its ProxyJump goes in a circle", hint="see ProxyJump in ~/.ssh/config"
            )
        return tuple(route)

    def _open(self, route: Route, since: Seconds) -> Lease:
        if self._closed:
            raise HostUnreachable(route[-1].name, f"{route[-1].name}: closed")
        # The way there first: a place among the handshakes is never held while waiting for a jump host.
        via = self._lease(route[:-1], since) if len(route) > 1 else None
        try:
            line = self._connect_in_turn(route, via, since)
        except BaseException as error:
            if via is not None:
                self._release(via)
                if isinstance(error, HostUnreachable):
                    error.prompted = error.prompted or via.prompted
            raise
        with self._lock:
            self._lines.add(line)
            closed = self._closed
        if closed:
            self.drop(line)
            raise HostUnreachable(route[-1].name, f"{route[-1].name}: closed")
        self._pulse.watch(line.connection, route[-1], line.lose)
        return line

    def _connect_in_turn(self, route: Route, via: Lease | None, since: Seconds) -> Lease:
        """Connect; where a person must be asked while another host is asked, again when it is this host's turn."""
        with contextlib.ExitStack() as turn:
            while not self._closed:
                try:
                    with Slot(self._places, since) as slot:
                        return self._connect(route, via, slot)
                except OutOfTurn as later:
                    turn.enter_context(self._asker.waited_turn())
                    if later.is_shared:
                        turn.close()
        raise HostUnreachable(route[-1].name, f"{route[-1].name}: closed")

    def _connect(self, route: Route, via: Lease | None, slot: Slot) -> Lease:
        settings = route[-1]
        proxy: Proxy | None = None
        wire: Socket | None = None
        login: Login | None = None
        timeout = settings.connect_timeout or self._timeout
        try:
            if via is not None:
                wire = wire_by_tunnel(settings, via.connection, timeout, self._reader)
            elif settings.proxy_command is not None:
                wire, proxy = wire_by_command(settings, self._reader)
            else:
                wire = wire_by_tcp(settings, timeout, self._reader)
            with self._lock:
                self._opening.add(wire)
            connection = handshake(wire, settings, timeout, accept_command(settings, route[:-1], self._config_file))
            login = Login(connection, settings, self._ring, self._asker, slot, timeout)
            login.run()
            return Lease(settings, connection, via, proxy, login.prompted)
        except BaseException as error:
            if wire is not None:
                wire.close()
            if proxy is not None:
                proxy.close()
            if isinstance(error, HostUnreachable):
                error.prompted = login is not None and login.prompted
            if isinstance(error, TrainmonError | OutOfTurn) or not isinstance(error, Exception):
                raise
            raise in_words(error, settings, timeout, via.settings.name if via else "", proxy) from error
        finally:
            with self._lock:
                self._opening -= {wire}

    # ---- jump hosts, shared ------------------------------------------------------------------------------------------

    def _lease(self, route: Route, since: Seconds) -> Lease:
        """The connection to a jump host: one for all behind it; who waits for it shares its failure, too."""
        while True:
            with self._lock:
                future = self._jumps.get(route)
                mine = future is None
                if future is None:
                    future = self._jumps[route] = Future()
            if mine:
                self._dial_jump(route, since, future)
            try:
                line = future.result()
            except HostUnreachable as error:
                mine_too = type(error)(error.host, error.message, hint=error.hint)
                mine_too.prompted = error.prompted
                raise mine_too from error
            with self._lock:
                if not line.closed and line.connection.is_active():
                    line.users += 1
                    return line
                if self._jumps.get(route) is future:
                    del self._jumps[route]

    def _dial_jump(self, route: Route, since: Seconds, future: Future[Lease]) -> None:
        try:
            future.set_result(self._open(route, since))
        except BaseException as error:
            with self._lock:
                del self._jumps[route]
            future.set_exception(error)

    def _release(self, line: Lease) -> None:
        with self._lock:
            line.users -= 1
            unused = line.users <= 0
            if unused:
                line.closed = True
                self._jumps = {route: future for route, future in self._jumps.items() if not _leads_to(future, line)}
        if unused:
            self.drop(line)


def _leads_to(future: Future[Lease], line: Lease) -> bool:
    return future.done() and future.exception() is None and future.result() is line
