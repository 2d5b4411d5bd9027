"""Shells over SSH: the Dialer connects and logs in, an SshShell runs commands on one connection."""

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
from trainmon.transport.shell import AskUser, Completed, Sink, collect
from trainmon.transport.ssh.auth.keys import KeyRing
from trainmon.transport.ssh.auth.login import Login, PromptBusy, Prompter
from trainmon.transport.ssh.config import HostSettings, openssh_settings
from trainmon.transport.ssh.connect import (
    accept_command,
    connect_error,
    connect_tcp,
    handshake,
    open_tunnel,
)
from trainmon.transport.ssh.socket import ProxyCommandSocket, Socket
from trainmon.transport.ssh.transport import Keepalive, Lease, SshStream

MAX_HOPS = 8
JUMP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:]+)(?::(?P<port>\d+))?/?")
Route = tuple[HostSettings, ...]


class SshShell:
    """Commands on one host, over one connection."""

    def __init__(self, host: str, lease: Lease, dialer: Dialer, loop: EventLoop, timeout: Seconds) -> None:
        self.host = host
        self._lease = lease
        self._dialer = dialer
        self._loop = loop
        self._timeout = timeout
        self._streams: set[SshStream] = set()
        self._closed = False

    @property
    def prompted(self) -> bool:
        """Whether a person had to answer a question that every login asks (a passphrase is asked once)."""
        return self._lease.prompted

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Run a command to its end; see Shell.run."""
        return collect(self, argv, stdin, timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> SshStream:
        """Start a command; see Shell.stream.

        Raises:
            CommandFailed: when the host opens no session.
            HostUnreachable: when the connection is lost.
        """
        connection = self._lease.connection
        try:
            channel = connection.open_session(timeout=self._timeout)
        except ChannelException as error:
            hint = "its sshd limits the sessions of one connection (MaxSessions)"
            raise CommandFailed(f"{self.host} refused a session: {clean(error.text, 100)}", hint=hint) from error
        except (SSHException, OSError, EOFError) as error:
            if connection.is_active():
                raise CommandFailed(f"{self.host} did not open a session in {self._timeout:g}s") from error
            raise self._failure() from error
        stream = SshStream(connection, channel, sink, self._loop, self._streams.discard, self._failure)
        self._streams.add(stream)
        stream.start()
        connection.execute(channel, shlex.join(argv))
        return stream

    def _failure(self) -> TrainmonError:
        return HostUnreachable(self.host, f"{self.host}: closed") if self._closed else self._lease.failure()

    def close(self) -> None:
        """Drop the connection and everything on it; never blocks."""
        if self._closed:
            return
        self._closed = True
        for stream in tuple(self._streams):
            stream.kill()
        self._dialer.drop(self._lease)


class Dialer:
    """Connects to hosts as OpenSSH would. `ask` puts login questions to a person; None: nobody can be asked."""

    def __init__(
        self,
        loop: EventLoop,
        *,
        ask: AskUser | None = None,
        at_once: int = 8,
        timeout: Seconds = 10.0,
        config_file: Path | None = None,
    ) -> None:
        self._loop = loop
        self._prompter = Prompter(ask)
        self._slots = threading.Semaphore(at_once)
        self._timeout = timeout
        self._config_file = config_file
        self._key_ring = KeyRing()
        self._keepalive = Keepalive(loop)
        self._lock = threading.Lock()
        self._jumps: dict[Route, Future[Lease]] = {}
        self._leases: set[Lease] = set()
        self._opening: set[Socket] = set()
        self._closed = False

    def dial(self, host: str) -> SshShell:
        """Connect and log in; blocks.

        Raises:
            HostUnreachable: when there is no connection; HostKeyRefused, LoginRefused and LoginNeeded are kinds of it.
        """
        since = time.monotonic()
        return SshShell(host, self._open(self._route(host), since), self, self._loop, self._timeout)

    def close(self) -> None:
        """Close every connection, also those that are being opened; never blocks."""
        with self._lock:
            self._closed = True
            leases, opening = tuple(self._leases), tuple(self._opening)
        for sock in opening:
            sock.close()
        for lease in leases:
            self.drop(lease)

    def drop(self, lease: Lease) -> None:
        """Close a connection, and release its jump host."""
        with self._lock:
            if lease not in self._leases:
                return
            self._leases.discard(lease)
        self._keepalive.forget(lease)
        lease.close()
        if lease.via is not None:
            self._release(lease.via)

    # ---- routes -----------------------------------------------------------------------------------------------

    def _route(self, host: str) -> Route:
        route: list[HostSettings] = [openssh_settings(host, self._config_file)]
        hops = route[0].proxy_jump
        while hops:
            found = JUMP.fullmatch(hops[-1])
            if found is None or len(route) > MAX_HOPS:
                raise HostUnreachable(host, f"{host}: its ProxyJump {','.join(hops)!r} is not valid")
            port = int(found["port"]) if found["port"] else None
            route.insert(
                0, openssh_settings(found["host"].strip("[]"), self._config_file, user=found["user"], port=port)
            )
            hops = hops[:-1] or route[0].proxy_jump
        if len({(stop.hostname, stop.port, stop.user) for stop in route}) < len(route):
            raise HostUnreachable(host, f"{host}: its ProxyJump forms a loop", hint="see ProxyJump in ~/.ssh/config")
        return tuple(route)

    def _open(self, route: Route, since: Seconds) -> Lease:
        if self._closed:
            raise HostUnreachable(route[-1].name, f"{route[-1].name}: closed")
        # The jump host first: a handshake slot is never held while waiting for it.
        via = self._lease_jump(route[:-1], since) if len(route) > 1 else None
        try:
            lease = self._connect_in_turn(route, via, since)
        except BaseException as error:
            if via is not None:
                self._release(via)
                if isinstance(error, HostUnreachable):
                    error.prompted = error.prompted or via.prompted
            raise
        with self._lock:
            self._leases.add(lease)
            closed = self._closed
        if closed:
            self.drop(lease)
            raise HostUnreachable(route[-1].name, f"{route[-1].name}: closed")
        self._keepalive.watch(lease)
        return lease

    def _connect_in_turn(self, route: Route, via: Lease | None, since: Seconds) -> Lease:
        """Connect. When a prompt for another host is open, wait for it and connect again."""
        with contextlib.ExitStack() as turn:
            while not self._closed:
                try:
                    with self._slots:
                        return self._connect(route, via, since)
                except PromptBusy as busy:
                    turn.enter_context(self._prompter.lock)
                    if busy.is_shared:
                        turn.close()
        raise HostUnreachable(route[-1].name, f"{route[-1].name}: closed")

    def _connect(self, route: Route, via: Lease | None, since: Seconds) -> Lease:
        settings = route[-1]
        sock: Socket | None = None
        login: Login | None = None
        timeout = settings.connect_timeout or self._timeout
        try:
            if via is not None:
                sock = open_tunnel(settings, via.connection, timeout, self._loop)
            elif settings.proxy_command is not None:
                sock = ProxyCommandSocket(settings.proxy_command, self._loop)
            else:
                sock = connect_tcp(settings, timeout, self._loop)
            with self._lock:
                self._opening.add(sock)
            connection = handshake(sock, settings, timeout, accept_command(settings, route[:-1], self._config_file))
            login = Login(connection, settings, self._key_ring, self._prompter, self._slots, since, timeout)
            login.run()
            return Lease(settings, connection, via, login.prompted)
        except BaseException as error:
            if sock is not None:
                sock.close()
            accepted = sock is not None and not isinstance(sock, ProxyCommandSocket)
            if isinstance(error, HostUnreachable):
                error.prompted, error.accepted = login is not None and login.prompted, accepted
            if isinstance(error, TrainmonError | PromptBusy) or not isinstance(error, Exception):
                raise
            failure = connect_error(error, settings, timeout, via.settings.name if via else "", sock)
            failure.accepted = accepted
            raise failure from error
        finally:
            with self._lock:
                self._opening -= {sock}

    # ---- jump hosts, shared ------------------------------------------------------------------------------------------

    def _lease_jump(self, route: Route, since: Seconds) -> Lease:
        """The connection to a jump host. All hosts behind it share the connection, and the failure to open it."""
        while True:
            with self._lock:
                future = self._jumps.get(route)
                mine = future is None
                if future is None:
                    future = self._jumps[route] = Future()
            if mine:
                try:
                    future.set_result(self._open(route, since))
                except BaseException as error:
                    with self._lock:
                        del self._jumps[route]
                    future.set_exception(error)
            try:
                lease = future.result()
            except HostUnreachable as error:
                shared = type(error)(error.host, error.message, hint=error.hint)
                shared.prompted, shared.accepted = error.prompted, error.accepted
                raise shared from error
            with self._lock:
                if not lease.closed and lease.connection.is_active():
                    lease.users += 1
                    return lease
                if self._jumps.get(route) is future:
                    del self._jumps[route]

    def _release(self, lease: Lease) -> None:
        def is_of_lease(future: Future[Lease]) -> bool:
            return future.done() and future.exception() is None and future.result() is lease

        with self._lock:
            lease.users -= 1
            unused = lease.users <= 0
            if unused:
                lease.closed = True
                self._jumps = {route: future for route, future in self._jumps.items() if not is_of_lease(future)}
        if unused:
            self.drop(lease)
