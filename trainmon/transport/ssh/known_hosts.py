"""known_hosts, read line by line: an unreadable line is skipped."""

from __future__ import annotations

import base64
import binascii
import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

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
    entries: list[Entry] = []
    for file in files:
        try:
            text = Path(file).read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            entry = _entry(file, number, line)
            if entry is not None:
                entries.append(entry)
    return entries


def _entry(file: str, number: int, line: str) -> Entry | None:
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return None
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    if len(fields) < 3 or marker not in ("", "@revoked", "@cert-authority"):
        return None
    try:
        blob = base64.b64decode(fields[2], validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(blob) < 4 or blob[4 : 4 + int.from_bytes(blob[:4], "big")] != fields[1].encode():
        return None
    return Entry(file, number, marker, tuple(fields[0].split(",")), fields[1], blob)


def _listed(entry: Entry, name: str) -> bool:
    found = False
    for pattern in entry.patterns:
        if pattern.startswith("|1|"):
            found = found or _hash_matches(pattern, name)
        elif pattern.startswith("!"):
            if _matches(pattern[1:], name):
                return False
        else:
            found = found or _matches(pattern, name)
    return found


def _matches(pattern: str, name: str) -> bool:
    # fnmatch knows [sets], OpenSSH does not: `[host]:2222` is literal there.
    pattern = re.sub(r"[\[\]]", lambda found: "[[]" if found[0] == "[" else "[]]", pattern.lower())
    return fnmatch.fnmatchcase(name, pattern)


def _hash_matches(pattern: str, name: str) -> bool:
    parts = pattern.split("|")
    if len(parts) != 4:
        return False
    try:
        salt, wanted = base64.b64decode(parts[2]), base64.b64decode(parts[3])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.new(salt, name.encode(), "sha1").digest(), wanted)


class KnownHosts:
    """What the known_hosts files of one host say about it."""

    def __init__(self, files: Iterable[str], hostname: str, port: int, alias: str | None = None) -> None:
        self.files = tuple(files)
        hostname = hostname.lower()
        self.host = alias.lower() if alias else hostname
        """The name that a certificate must be for."""
        self.name = alias.lower() if alias else hostname if port == 22 else f"[{hostname}]:{port}"
        entries = read(self.files)
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
        return HostKeyResult("unknown", self.name, plain[0] if plain else None, next(self._notes(), None))

    def _notes(self) -> Iterator[str]:
        for entry in (*self._lines, *self._portless):
            if entry.marker == "@cert-authority":
                yield f"{entry.file}:{entry.line} trusts an authority, but the host has no certificate of it"
