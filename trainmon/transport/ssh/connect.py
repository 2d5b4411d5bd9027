"""Connecting to an sshd: TCP, tunnel or ProxyCommand, then key exchange and the host key check."""

from __future__ import annotations

import shlex
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
from paramiko.ssh_exception import ChannelException, IncompatiblePeer, SSHException

from trainmon.lib import HostKeyRefused, HostUnreachable, Seconds, clean
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.ssh.auth.keys import key_type, public_key
from trainmon.transport.ssh.config import HostSettings
from trainmon.transport.ssh.known_hosts import HostKeyResult, KnownHosts, certificate_problem, fingerprint
from trainmon.transport.ssh.socket import PlainSocket, ProxyCommandSocket, Socket, TunnelSocket
from trainmon.transport.ssh.transport import Connection, ForeignProtocol

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
            return PlainSocket(attempt, loop)
    raise problem


def open_tunnel(settings: HostSettings, jump: Connection, timeout: Seconds, loop: EventLoop) -> Socket:
    """A tunnel to this host through its jump host's connection."""
    channel = jump.open_channel("direct-tcpip", (settings.hostname, settings.port), ("127.0.0.1", 0), timeout=timeout)
    return TunnelSocket(channel, jump.on_window, loop)


def handshake(sock: Socket, settings: HostSettings, timeout: Seconds, command: str) -> Connection:
    """Exchange keys and check the host key. `command` is how OpenSSH reaches this host, for the hint.

    Raises:
        HostKeyRefused: when known_hosts does not confirm the host key.
    """
    known = KnownHosts(settings.known_hosts, settings.hostname, settings.port, settings.host_key_alias)
    connection = Connection(sock, known.key_types(), certified=bool(known.authorities()))
    connection.handshake(timeout)
    _check_host_key(connection, settings.name, known, command)
    return connection


def _check_host_key(connection: Connection, host: str, known: KnownHosts, command: str) -> None:
    key = connection.host_key
    assert key is not None
    certificate = key.public_blob.key_blob if key.public_blob is not None else None
    # A certificate contains the key, which may be listed or revoked by itself.
    blob = key.asbytes() if certificate is None else public_key(certificate)
    result = known.verdict(key_type(blob), blob)
    if certificate is not None and result.answer in ("unknown", "changed"):
        problem = certificate_problem(certificate, known.host, known.authorities(), time.time())
        if problem is None:
            return
        result = msgspec.structs.replace(result, note=f"its host certificate is not valid: {clean(problem, 200)}")
    if result.answer != "ok":
        raise refusal(host, result, key_type(blob), blob, command)


def refusal(host: str, result: HostKeyResult, of_type: str, blob: bytes, command: str) -> HostKeyRefused:
    """Why this host key is not accepted, with the fingerprint and the command that fixes it."""
    kind = of_type.removeprefix("ssh-").removeprefix("ecdsa-sha2-").upper()
    print_ = fingerprint(blob)
    notes = f"; {result.note}" if result.note else ""
    where = f"{result.where.file}:{result.where.line}" if result.where else ""
    if result.answer == "revoked":
        hint = "do not connect; ask its administrator"
        return HostKeyRefused(host, f"{host}: its {kind} host key {print_} is REVOKED in {where}", hint=hint)
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
        hint=f"compare the fingerprint with its administrator's, then accept it with: {command}",
    )


def accept_command(settings: HostSettings, via: tuple[HostSettings, ...], config_file: Path | None) -> str:
    """The OpenSSH command that reaches this host the same way, and asks before it adds the key."""
    argv = ["ssh", *(["-F", str(config_file)] if config_file else []), "-o", "StrictHostKeyChecking=ask"]
    if via and not settings.proxy_jump:
        argv += ["-J", ",".join(f"{hop.user}@{hop.hostname}:{hop.port}" for hop in via)]
    if settings.port != 22:
        argv += ["-p", str(settings.port)]
    return shlex.join([*argv, settings.name, "true"])


def connect_error(
    error: Exception, settings: HostSettings, timeout: Seconds, via: str, sock: Socket | None
) -> HostUnreachable:
    """A failure to connect, as an error that a person can read."""
    host = settings.name
    address = f"port {settings.port}" if settings.hostname == host else f"{settings.hostname}:{settings.port}"
    through = f" through {via}" if via else ""
    hint = f"try: ssh {host}"
    if isinstance(error, socket.gaierror):
        hint = "check its HostName in ~/.ssh/config, and DNS"
        name = "its name" if settings.hostname == host else settings.hostname
        sentence = f"{name} cannot be resolved: {clean(error.strerror or str(error), 100)}"
    elif isinstance(error, TimeoutError):
        sentence = f"no answer from {address} in {timeout:g}s"
    elif isinstance(error, ConnectionRefusedError):
        sentence, hint = f"{address} refuses connections", "check that sshd runs there and uses this port"
    elif isinstance(error, IncompatiblePeer):
        sentence = f"no algorithm in common with {address}: {clean(str(error), 200)}"
    elif isinstance(error, ChannelException):
        sentence, hint = f"the jump host cannot reach {address}: {clean(error.text, 100)}", f"try: ssh {via}"
    elif isinstance(sock, ProxyCommandSocket) and isinstance(error, EOFError | SSHException | OSError):
        output = sock.last_error
        sentence, hint = "its ProxyCommand ended" + (f": {output}" if output else ""), f"try: {settings.proxy_command}"
    elif isinstance(error, ForeignProtocol) and error.line.upper().startswith(("HTTP/", "<!DOCTYPE HTML", "<HTML")):
        sentence = f"{address} speaks HTTP, not SSH (“{error.line}”)"
        hint = "check its HostName and Port in ~/.ssh/config"
    elif isinstance(error, ForeignProtocol):
        sentence = f"{address} closed the connection before the login: “{error.line}”"
        hint = "possible reasons: its sshd limits logins (MaxStartups), a firewall, or it is not an SSH server"
    elif isinstance(error, EOFError | ConnectionResetError) or "banner" in str(error):
        sentence = f"{address} closed the connection before the login"
        hint = "possible reasons: its sshd limits logins (MaxStartups), a firewall, or it is not an SSH server"
    else:
        sentence = f"{address}: {clean(str(error) or type(error).__name__, 200)}"
    return HostUnreachable(host, f"{host}{through}: {sentence}", hint=hint)
