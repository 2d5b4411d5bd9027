"""Host keys and host certificates, checked with known_hosts. Its unreadable lines are skipped."""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import hmac
import struct
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Literal

import msgspec
from paramiko import PKey, SSHException
from paramiko.message import Message

from trainmon.lib import Instant, clean
from trainmon.transport.ssh.auth.keys import key_type, public_key, words
from trainmon.transport.ssh.transport import CERTIFICATE

Answer = Literal["ok", "unknown", "changed", "revoked"]


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
            lines = Path(file).read_bytes().decode("utf-8", "replace").split("\n")
            entries += [_entry(file, number, line) for number, line in enumerate(lines, 1)]
    return [entry for entry in entries if entry is not None]


def _entry(file: str, number: int, line: str) -> Entry | None:
    fields = words(line)
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
    """What the known_hosts files of one host say about it, as OpenSSH reads them (check_host_key in sshconnect.c)."""

    def __init__(self, files: Iterable[str], hostname: str, port: int, alias: str | None = None) -> None:
        files, hostname = tuple(files), hostname.lower()
        self.host = alias or hostname
        """The name that a certificate must be for, in these letters."""
        self.name = alias.lower() if alias else hostname if port == 22 else f"[{hostname}]:{port}"
        self._lines = [entry for entry in read(files) if _listed(entry, self.name)]
        # OpenSSH takes a host that is listed without its port as known, but never as changed.
        self._portless = None if alias or port == 22 else KnownHosts(files, hostname, 22)

    def _marked(self, marker: str) -> list[Entry]:
        return [entry for entry in self._lines if entry.marker == marker]

    def ordered(self, algorithms: tuple[str, ...]) -> tuple[str, ...]:
        """The same algorithms, first those for which known_hosts has a key: order_hostkeyalgs in sshconnect2.c."""
        known, has_authority = {entry.key_type for entry in self._marked("")}, bool(self._marked("@cert-authority"))

        def is_known(name: str) -> bool:
            plain = name.removesuffix(CERTIFICATE)
            return ("ssh-rsa" if plain.startswith("rsa-") else plain) in known

        if not algorithms or is_known(algorithms[0]):
            return algorithms
        return tuple(
            sorted(algorithms, key=lambda name: not (is_known(name) or (has_authority and name.endswith(CERTIFICATE))))
        )

    def verdict(self, offered: bytes, now: Instant, signatures: Collection[str] | None = None) -> HostKeyResult:
        """Compare a key, or a certificate with it, with known_hosts. `signatures`: CASignatureAlgorithms."""
        blob, note = public_key(offered), None
        if offered != blob:
            result = self._of_certificate(offered, now, signatures)
            if result.answer != "unknown":
                return result
            note = result.note
        result = self._of_key(blob, now)
        return msgspec.structs.replace(result, note=note or result.note)

    def _of_certificate(self, offered: bytes, now: Instant, signatures: Collection[str] | None) -> HostKeyResult:
        """The result for a certificate alone: `unknown` unless an authority or its revocation decides."""
        signer = authority(offered)
        for entry in self._marked("@revoked"):
            if entry.blob in (signer, public_key(offered)):
                return HostKeyResult("revoked", self.name, entry)
        trusted = [entry for entry in self._marked("@cert-authority") if entry.blob == signer]
        if not trusted and self._portless is not None:
            result = self._portless.verdict(offered, now, signatures)
            if result.answer == "ok":
                return result
        problem = certificate_problem(offered, self.host, [entry.blob for entry in trusted], now, signatures)
        if problem is None:
            return HostKeyResult("ok", self.name, trusted[0])
        return HostKeyResult("unknown", self.name, None, f"its host certificate is not valid: {clean(problem, 200)}")

    def _of_key(self, blob: bytes, now: Instant) -> HostKeyResult:
        plain = self._marked("")
        for entry in (*self._marked("@revoked"), *plain):
            if entry.blob == blob:
                return HostKeyResult("revoked" if entry.marker else "ok", self.name, entry)
        for entry in plain:
            if entry.key_type == key_type(blob):
                return HostKeyResult("changed", self.name, entry)
        if not plain and self._portless is not None:
            result = self._portless.verdict(blob, now)
            if result.answer in ("ok", "revoked"):
                return result
        text = "trusts an authority, but the host has no certificate of it"
        note = next((f"{entry.file}:{entry.line} {text}" for entry in self._marked("@cert-authority")), None)
        return HostKeyResult("unknown", self.name, plain[0] if plain else None, note)


# ---- host certificates: signed by an authority that known_hosts trusts, for this host, and valid now -----------------

HOST = 2
"""The type of a certificate for hosts."""

FOREVER = 2**64 - 1


def certificate_problem(
    blob: bytes, host: str, authorities: Collection[bytes], now: Instant, signatures: Collection[str] | None = None
) -> str | None:
    """Why a host certificate is not valid for this host; None if it is valid. `signatures`: the algorithms with which
    an authority may sign; None allows all."""
    try:
        return _problem(blob, host, authorities, now, signatures)
    except UNREADABLE:
        return "it cannot be read"


def authority(blob: bytes) -> bytes | None:
    """The key that signed a certificate; None if it cannot be read."""
    try:
        *_, signer, _ = _read(blob)
    except UNREADABLE:
        return None
    return signer


UNREADABLE = (struct.error, IndexError, ValueError, SSHException)


def _read(blob: bytes) -> tuple[int, list[str], int, int, bytes, bytes, bytes]:
    """The kind, the names, the first and last second, the conditions, the authority and its signature."""
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
    signer, signature = message.get_string(), message.get_string()
    if message.get_remainder():
        raise ValueError("something follows its end")
    return kind, names, valid_from, valid_until, critical, signer, signature


def _problem(
    blob: bytes, host: str, authorities: Collection[bytes], now: Instant, signatures: Collection[str] | None
) -> str | None:
    kind, names, valid_from, valid_until, critical, signer, signature = _read(blob)
    if kind != HOST:
        return "it is a user's certificate, not a host's"
    if signer not in authorities:
        return "its authority is not one that known_hosts trusts"
    algorithm = key_type(signature)
    if signatures is not None and algorithm not in signatures:
        return f"it is signed with {algorithm}, which CASignatureAlgorithms does not allow"
    signed = blob[: -4 - len(signature)]
    if not PKey.from_type_string(key_type(signer), signer).verify_ssh_sig(signed, Message(signature)):
        return "its signature is wrong"
    if critical:
        return "it has conditions that are not known here"
    if now < valid_from:
        return "it is not valid yet"
    if valid_until != FOREVER and now >= valid_until:
        return "it has expired"
    if not any(fnmatch.fnmatchcase(host, name.replace("[", "[[]")) for name in names):
        return f"it is for {', '.join(names) or 'no host'}"
    return None


def _strings(data: bytes) -> list[str]:
    message, found = Message(data), []
    while message.get_remainder():
        found.append(message.get_string().decode("latin-1"))
    return found
