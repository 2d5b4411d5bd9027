"""Connecting to an sshd: TCP, tunnel or ProxyCommand, then key exchange and the host key check."""

from __future__ import annotations

import ipaddress
import shlex
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
from paramiko.ssh_exception import ChannelException, IncompatiblePeer, SSHException

from trainmon.lib import HostKeyRefused, HostUnreachable, Seconds, clean
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.ssh.auth.keys import key_type, public_key, rsa_bits
from trainmon.transport.ssh.config import HostSettings
from trainmon.transport.ssh.known_hosts import (
    UNREADABLE,
    Entry,
    HostKeyResult,
    KnownHosts,
    certificate,
    fingerprint,
    is_revoked,
)
from trainmon.transport.ssh.socket import PlainSocket, ProxyCommandSocket, Socket, TunnelSocket
from trainmon.transport.ssh.transport import CERTIFICATE, Connection, ForeignProtocol, Offers

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
