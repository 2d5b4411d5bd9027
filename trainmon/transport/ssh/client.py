"""Shells over SSH: the Dialer connects and logs in, an SshShell runs commands on one connection.

To connect is TCP, a tunnel or a ProxyCommand, then the key exchange and the check of the host key.
"""

from __future__ import annotations

import contextlib
import ipaddress
import shlex
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
from paramiko.ssh_exception import ChannelException, IncompatiblePeer, SSHException

from trainmon.lib import CommandFailed, HostKeyRefused, HostUnreachable, Seconds, TrainmonError, clean
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser, Shell, Sink
from trainmon.transport.ssh.config import HostSettings, Route, accept_command, route_to
from trainmon.transport.ssh.keys import (
    UNREADABLE,
    Entry,
    HostKeyResult,
    KeyRing,
    KnownHosts,
    certificate,
    fingerprint,
    is_revoked,
    key_type,
    public_key,
    rsa_bits,
)
from trainmon.transport.ssh.login import Login, PromptBusy, Prompter
from trainmon.transport.ssh.socket import PlainSocket, ProxyCommandSocket, Socket, TunnelSocket
from trainmon.transport.ssh.transport import (
    CERTIFICATE,
    Connection,
    ForeignProtocol,
    Keepalive,
    Lease,
    Offers,
    SshStream,
)

# ---- connecting to an sshd -------------------------------------------------------------------------------------------

FAMILIES = {"any": socket.AF_UNSPEC, "inet": socket.AF_INET, "inet6": socket.AF_INET6}


def addresses(settings: HostSettings) -> list[Any]:
    """The addresses of the host, as `socket.getaddrinfo` gives them.

    Raises:
        OSError: its name cannot be resolved, or can be no name: a part is empty or longer than 63 characters.
    """
    family = FAMILIES.get(settings.address_family, socket.AF_UNSPEC)
    try:
        return socket.getaddrinfo(settings.hostname, settings.port, family, socket.SOCK_STREAM)
    except UnicodeError as error:
        raise socket.gaierror(socket.EAI_NONAME, "a part of it is empty or longer than 63 characters") from error


def connect_tcp(settings: HostSettings, timeout: Seconds, loop: EventLoop) -> Socket:
    """Connect; every address of the name is tried until the timeout.

    Raises:
        OSError: the error of the last address.
    """
    deadline = time.monotonic() + timeout
    problem: OSError = OSError("no address")
    for kind, _, protocol, _, address in addresses(settings):
        attempt = socket.socket(kind, socket.SOCK_STREAM, protocol)
        try:
            attempt.settimeout(max(0.05, deadline - time.monotonic()))
            attempt.connect(address)
        except OSError as error:
            attempt.close()
            problem = error
        else:
            made = PlainSocket(attempt, loop)
            made.address = address[0]
            return made
    raise problem


def handshake(sock: Socket, settings: HostSettings, timeout: Seconds, command: str) -> Connection:
    """Exchange keys and check the host key. `command` is how OpenSSH reaches this host, for the hint.

    Raises:
        HostKeyRefused: when known_hosts does not confirm the host key.
    """
    known = KnownHosts(settings.known_hosts, settings.hostname, settings.port, settings.host_key_alias)
    connection = Connection(sock, _offers(settings, known))
    connection.handshake(timeout)
    key = connection.host_key
    assert key is not None
    offered = key.asbytes() if key.public_blob is None else key.public_blob.key_blob
    if key_type(offered).endswith(CERTIFICATE) != str(connection.host_key_type).endswith(CERTIFICATE):
        raise SSHException("the server sent another kind of host key than agreed")
    _check_restrictions(settings, offered)
    result = known.verdict(offered, time.time(), settings.trust.authorities)
    if result.answer == "ok" and (result.where is None or not result.where.marker):
        is_without_port = result.name != known.name
        result = result_of_address(settings, sock.address, offered, is_without_port=is_without_port) or result
    if result.answer != "ok":
        raise refusal(settings.name, result, public_key(offered), command)
    return connection


def _offers(settings: HostSettings, known: KnownHosts) -> Offers:
    """Of the algorithms that we know, those that the ssh config allows, in its order."""
    host, trust = settings.name, settings.trust
    if trust.command:
        hint = "write the lines that it prints to a file, and name the file with UserKnownHostsFile"
        raise HostKeyRefused(host, f"{host}: its ssh config sets KnownHostsCommand, which is not supported", hint=hint)
    allowed = {"HostKeyAlgorithms": trust.host_keys, "Ciphers": trust.ciphers, "MACs": trust.macs}
    allowed["KexAlgorithms"] = trust.key_exchanges
    found = []
    for (setting, names), ours in zip(allowed.items(), Connection.algorithms(), strict=True):
        found.append(ours if names is None else tuple(name for name in names if name in ours))
        if not found[-1]:
            sentence = f"{host}: none of the {setting} in its ssh config is supported: {','.join(names or ())}"
            raise HostUnreachable(host, clean(sentence, 300), hint=f"add one of these: {', '.join(ours)}")
    offers = Offers(*found)
    return offers._replace(host_keys=known.ordered(offers.host_keys)) if trust.known_first else offers


def _check_restrictions(settings: HostSettings, offered: bytes) -> None:
    """Refuse a host key that RequiredRSASize or RevokedHostKeys forbids, whatever known_hosts says."""
    host, trust, blob = settings.name, settings.trust, public_key(offered)
    if (bits := rsa_bits(blob)) is not None and bits < trust.rsa_bits:
        sentence = (
            f"{host}: its RSA host key has {bits} bits, and RequiredRSASize in the ssh config is {trust.rsa_bits}"
        )
        raise HostKeyRefused(host, sentence, hint="ask its administrator for an Ed25519 host key")
    if trust.revoked is None:
        return
    try:
        found = is_revoked(trust.revoked, offered, None if offered == blob else certificate(offered).authority)
    except UNREADABLE as error:
        why = clean(str(error), 300)
        sentence = f"{host}: its host key is refused: RevokedHostKeys {trust.revoked} cannot be read: {why}"
        raise HostKeyRefused(host, sentence, hint="repair the file, or remove RevokedHostKeys") from error
    if found:
        entry = Entry(trust.revoked, 0, "@revoked", "", key_type(blob), blob)
        raise refusal(host, HostKeyResult("revoked", settings.hostname, entry), blob, "")


def result_of_address(
    settings: HostSettings, address: str, offered: bytes, *, is_without_port: bool
) -> HostKeyResult | None:
    """With CheckHostIP: the refusal, if known_hosts lists another key for the address of the host. If it lists the host
    only without its port, OpenSSH also looks for the address without the port."""
    is_checked = settings.trust.checks_address and address not in ("", settings.hostname)
    if not is_checked or ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        return None
    for port in (settings.port, 22) if is_without_port else (settings.port,):
        result = KnownHosts(settings.known_hosts, address, port).verdict(public_key(offered), time.time())
        if result.answer in ("changed", "unknown") and result.where is not None:
            return msgspec.structs.replace(result, answer="changed")
    return None


def refusal(host: str, result: HostKeyResult, blob: bytes, command: str) -> HostKeyRefused:
    """Why this host key is not accepted, with the fingerprint and the command that fixes it."""
    kind, print_ = key_type(blob).removeprefix("ssh-").removeprefix("ecdsa-sha2-").upper(), fingerprint(blob)
    notes = f"; {result.note}" if result.note else ""
    where = f"{result.where.file}:{result.where.line}".removesuffix(":0") if result.where else ""
    if result.answer == "revoked":
        hint = "do not connect; ask its administrator"
        return HostKeyRefused(host, f"{host}: its {kind} host key is REVOKED in {where}: {print_}", hint=hint)
    if result.answer == "changed":
        assert result.where is not None
        drop = f"ssh-keygen -R {shlex.quote(result.name)} -f {shlex.quote(result.where.file)}"
        return HostKeyRefused(
            host,
            f"{host}: its {kind} host key HAS CHANGED: {print_} is not the one in {where}{notes}."
            " The host was reinstalled, or someone intercepts the connection",
            hint=f"only if its administrator confirms the new fingerprint: {drop} && {command}",
        )
    others = f"; a key of another type is known ({where})" if where else ""
    return HostKeyRefused(
        host,
        f"{host}: its {kind} host key is not known: {print_}, as {result.name}{others}{notes}",
        hint=f"ask its administrator for the fingerprint; if it is the same, accept it with: {command}",
    )


def connect_error(
    error: Exception, settings: HostSettings, timeout: Seconds, via: str, sock: Socket | None
) -> HostUnreachable:
    """A failure to connect, as an error that a person can read."""
    host = settings.name
    address = f"port {settings.port}" if settings.hostname == host else f"{settings.hostname}:{settings.port}"
    through = f" through {via}" if via else ""
    where = "check its HostName and Port in ~/.ssh/config"
    limits = "possible reasons: its sshd limits logins (MaxStartups), a firewall, or it is not an SSH server"
    sentence, hint = f"{address}: {clean(str(error) or type(error).__name__, 200)}", f"try: ssh {host}"
    match error:
        case socket.gaierror():
            name = "its name" if settings.hostname == host else settings.hostname
            sentence = f"{name} cannot be resolved: {clean(error.strerror or str(error), 100)}"
            hint = "check its HostName in ~/.ssh/config, and DNS"
        case TimeoutError():
            sentence = f"no answer from {address} in {timeout:g}s"
        case ConnectionRefusedError():
            sentence, hint = f"{address} refuses connections", "check that sshd runs there and uses this port"
        case IncompatiblePeer():
            sentence = f"no algorithm in common with {address}: {clean(str(error), 200)}"
        case ChannelException():
            sentence, hint = f"the jump host cannot reach {address}: {clean(error.text, 100)}", f"try: ssh {via}"
        case EOFError() | SSHException() | OSError() if isinstance(sock, ProxyCommandSocket):
            output = f": {sock.last_error}" if sock.last_error else ""
            sentence, hint = f"its ProxyCommand ended{output}", f"try: {settings.proxy_command}"
        case ForeignProtocol() if error.line.upper().startswith(("HTTP/", "<!DOCTYPE HTML", "<HTML")):
            sentence, hint = f"{address} speaks HTTP, not SSH (“{error.line}”)", where
        case ForeignProtocol() if error.is_endless:
            sentence = f"{address} does not speak SSH: it sends “{error.line}” and more without an end"
            hint = where
        case ForeignProtocol():
            sentence, hint = f"{address} closed the connection before the login: “{error.line}”", limits
        case _ if isinstance(error, EOFError | ConnectionResetError) or "banner" in str(error):
            sentence, hint = f"{address} closed the connection before the login", limits
    return HostUnreachable(host, f"{host}{through}: {sentence}", hint=hint)


# ---- shells over SSH -------------------------------------------------------------------------------------------------


class SshShell(Shell):
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

    def dial(self, host: str, route: Route = ()) -> SshShell:
        """Connect and log in; blocks. `route`: the settings to use instead of those of the ssh config.

        Raises:
            HostUnreachable: when there is no connection; HostKeyRefused, LoginRefused and LoginNeeded are kinds of it.
        """
        since = time.monotonic()
        lease = self._open(route or route_to(host, self._config_file), since)
        return SshShell(host, lease, self, self._loop, self._timeout)

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
                jump, target = via.connection, (settings.hostname, settings.port)
                channel = jump.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=timeout)
                sock = TunnelSocket(channel, jump.on_window, self._loop)
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
