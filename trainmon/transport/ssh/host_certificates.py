"""Host certificates: signed by an authority that known_hosts trusts, for this host, and valid now."""

from __future__ import annotations

import fnmatch
import struct
from collections.abc import Iterable

from paramiko import PKey, SSHException
from paramiko.message import Message

from trainmon.lib import Instant
from trainmon.transport.ssh.auth.keys import key_type, public_key

HOST = 2
FOREVER = 2**64 - 1


def problem(blob: bytes, host: str, authorities: Iterable[bytes], now: Instant) -> str | None:
    """Why a host certificate is not valid for this host; None if it is valid."""
    try:
        return _problem(blob, host, set(authorities), now)
    except (struct.error, IndexError, ValueError, SSHException, UnicodeDecodeError):
        return "it cannot be read"


def _problem(blob: bytes, host: str, authorities: set[bytes], now: Instant) -> str | None:
    message = Message(blob)
    for _ in range(2 + _numbers(blob)):  # type, nonce, and the public key itself
        message.get_string()
    message.get_int64()  # serial number
    kind = message.get_int()
    message.get_string()  # key id
    names = _strings(message.get_string())
    valid_from, valid_until = message.get_int64(), message.get_int64()
    critical = message.get_string()
    message.get_string()  # extensions: none is defined for hosts
    message.get_string()  # reserved
    authority, signature = message.get_string(), message.get_string()
    if message.get_remainder():
        return "something follows its end"
    if kind != HOST:
        return "it is a user's certificate, not a host's"
    if authority not in authorities:
        return "its authority is not one that known_hosts trusts"
    signed = blob[: -4 - len(signature)]
    if not PKey.from_type_string(key_type(authority), authority).verify_ssh_sig(signed, Message(signature)):
        return "its signature is wrong"
    if critical:
        return "it has conditions that are not known here"
    if now < valid_from:
        return "it is not valid yet"
    if valid_until != FOREVER and now >= valid_until:
        return "it has expired"
    if not any(fnmatch.fnmatchcase(host.lower(), name.lower().replace("[", "[[]")) for name in names):
        return f"it is for {', '.join(names) or 'no host'}"
    return None


def _numbers(blob: bytes) -> int:
    """How many strings the public key takes in a certificate."""
    return len(_strings(public_key(blob))) - 1


def _strings(data: bytes) -> list[str]:
    message, found = Message(data), []
    while message.get_remainder():
        found.append(message.get_string().decode("latin-1"))
    return found
