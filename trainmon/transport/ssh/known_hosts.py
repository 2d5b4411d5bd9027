"""Host keys and host certificates, checked with known_hosts. Its unreadable lines are skipped."""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import hmac
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec
from paramiko import PKey, SSHException
from paramiko.message import Message

from trainmon.lib import Instant
from trainmon.transport.ssh.auth.keys import key_type, public_key

Answer = Literal["ok", "unknown", "changed", "revoked"]

KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
"""Host key types that we can check, best first."""


class Entry(msgspec.Struct, frozen=True):
    """One line of a known_hosts file."""

    file: str
    line: int
    marker: str
    """Empty, @revoked or @cert-authority."""
    patterns: tuple[str, ...]
    key_type: str
    blob: bytes


class HostKeyResult(msgspec.Struct, frozen=True):
    """The result for a key, and the line of known_hosts that decided it."""

    answer: Answer
    name: str
    """The name under which the host is (or would be) listed, such as [host]:2222."""
    where: Entry | None = None
    note: str | None = None


def fingerprint(blob: bytes) -> str:
    """The fingerprint as OpenSSH prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def read(files: Iterable[str]) -> list[Entry]:
    """All readable lines of the files that exist."""
    entries: list[Entry | None] = []
    for file in files:
        with contextlib.suppress(OSError):
            text = Path(file).read_bytes().decode("utf-8", "replace")
            entries += [_entry(file, number, line) for number, line in enumerate(text.splitlines(), 1)]
    return [entry for entry in entries if entry is not None]


def _entry(file: str, number: int, line: str) -> Entry | None:
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return None
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    if len(fields) < 3 or marker not in ("", "@revoked", "@cert-authority"):
        return None
    try:
        blob = base64.b64decode(fields[2], validate=True)
    except ValueError:
        return None
    if len(blob) < 4 or blob[4 : 4 + int.from_bytes(blob[:4], "big")] != fields[1].encode():
        return None
    return Entry(file, number, marker, tuple(fields[0].split(",")), fields[1], blob)


def _listed(entry: Entry, name: str) -> bool:
    if any(pattern.startswith("!") and _matches(pattern[1:], name) for pattern in entry.patterns):
        return False
    return any(_matches(pattern, name) for pattern in entry.patterns)


def _matches(pattern: str, name: str) -> bool:
    if not pattern.startswith("|1|"):
        # fnmatch knows [sets], OpenSSH does not: `[host]:2222` is literal there.
        return fnmatch.fnmatchcase(name, pattern.lower().replace("[", "[[]"))
    try:
        salt, digest = (base64.b64decode(part) for part in pattern.split("|")[2:])
    except ValueError:
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), "sha1").digest(), digest)


class KnownHosts:
    """What the known_hosts files of one host say about it."""

    def __init__(self, files: Iterable[str], hostname: str, port: int, alias: str | None = None) -> None:
        hostname = hostname.lower()
        self.host = alias.lower() if alias else hostname
        """The name that a certificate must be for."""
        self.name = alias.lower() if alias else hostname if port == 22 else f"[{hostname}]:{port}"
        entries = read(files)
        self._lines = [entry for entry in entries if _listed(entry, self.name)]
        # OpenSSH takes a host that is listed without its port as known, but never as changed.
        self._portless = [] if self.name in (hostname, alias) else [e for e in entries if _listed(e, hostname)]

    def key_types(self) -> tuple[str, ...]:
        """Key types that known_hosts has for this host, best first: they are requested first."""
        known = {entry.key_type for entry in (*self._lines, *self._portless) if not entry.marker}
        return tuple(kind for kind in KEY_TYPES if kind in known)

    def authorities(self) -> tuple[bytes, ...]:
        """Keys that may sign this host's certificate; revoked ones are left out."""
        lines = (*self._lines, *self._portless)
        revoked = {entry.blob for entry in lines if entry.marker == "@revoked"}
        return tuple(e.blob for e in lines if e.marker == "@cert-authority" and e.blob not in revoked)

    def verdict(self, key_type: str, blob: bytes) -> HostKeyResult:
        """Compare a key with known_hosts."""
        for entry in (*self._lines, *self._portless):
            if entry.marker == "@revoked" and entry.blob == blob:
                return HostKeyResult("revoked", self.name, entry)
        plain = [entry for entry in self._lines if not entry.marker]
        for entry in (*plain, *(entry for entry in self._portless if not entry.marker)):
            if entry.blob == blob:
                return HostKeyResult("ok", self.name, entry)
        for entry in plain:
            if entry.key_type == key_type:
                return HostKeyResult("changed", self.name, entry)
        authorities = (e for e in (*self._lines, *self._portless) if e.marker == "@cert-authority")
        text = "trusts an authority, but the host has no certificate of it"
        note = next((f"{entry.file}:{entry.line} {text}" for entry in authorities), None)
        return HostKeyResult("unknown", self.name, plain[0] if plain else None, note)


# ---- host certificates: signed by an authority that known_hosts trusts, for this host, and valid now -----------------

HOST = 2
"""The type of a certificate for hosts."""

FOREVER = 2**64 - 1


def certificate_problem(blob: bytes, host: str, authorities: Iterable[bytes], now: Instant) -> str | None:
    """Why a host certificate is not valid for this host; None if it is valid."""
    try:
        return _problem(blob, host, set(authorities), now)
    except (struct.error, IndexError, ValueError, SSHException, UnicodeDecodeError):
        return "it cannot be read"


def _problem(blob: bytes, host: str, authorities: set[bytes], now: Instant) -> str | None:
    message = Message(blob)
    for _ in range(1 + len(_strings(public_key(blob)))):  # type, nonce, and the public key's strings without its type
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
    if not any(_matches(name, host.lower()) for name in names):
        return f"it is for {', '.join(names) or 'no host'}"
    return None


def _strings(data: bytes) -> list[str]:
    message, found = Message(data), []
    while message.get_remainder():
        found.append(message.get_string().decode("latin-1"))
    return found
