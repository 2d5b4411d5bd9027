"""Host keys and host certificates, checked with known_hosts and RevokedHostKeys. Their unreadable lines are skipped."""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import hmac
import subprocess
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from paramiko import PKey
from paramiko.message import Message

from trainmon.lib import Instant, Seconds, clean
from trainmon.transport.ssh.auth.keys import key_type, listed_key, public_key, strings, words
from trainmon.transport.ssh.transport import CERTIFICATE, Connection

# ---- revokedHostKeys -------------------------------------------------------------------------------------------------

KRL = b"SSHKRL\n\0"
"""The first bytes of a key revocation list; other files list public keys as text (PROTOCOL.krl of OpenSSH)."""

TIMEOUT: Seconds = 10.0


UNREADABLE = (OSError, ValueError, subprocess.TimeoutExpired)
"""The errors of a file that cannot be used. OpenSSH then accepts no host key."""


def is_revoked(file: str, offered: bytes, authority: bytes | None) -> bool:
    """Whether a file revokes a host key, a host certificate, or the key of its authority.

    Raises:
        UNREADABLE: says why the file cannot be used.
    """
    data = Path(file).read_bytes()
    return _in_list(file, offered) if data.startswith(KRL) else _in_text(data, {public_key(offered), authority})


def _in_list(file: str, offered: bytes) -> bool:
    line = f"{key_type(offered)} {base64.b64encode(offered).decode()}\n".encode()
    command = ["ssh-keygen", "-Q", "-f", file, "/dev/stdin"]
    done = subprocess.run(command, input=line, capture_output=True, timeout=TIMEOUT, check=False)
    if done.returncode != 0 and b"REVOKED" not in done.stdout:
        raise ValueError(done.stderr.decode(errors="replace").strip() or "ssh-keygen -Q failed")
    return done.returncode != 0


def _in_text(data: bytes, keys: set[bytes | None]) -> bool:
    found = False
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        text = line.partition("\0")[0].strip(" \t")
        if text and not text.startswith("#"):
            blob = listed_key(words(text))
            if blob is None:
                raise ValueError(f"line {number} is not a public key")
            found = found or public_key(blob) in keys
    return found


# ---- host keys and host certificates, checked with known_hosts -------------------------------------------------------

Answer = Literal["ok", "unknown", "changed", "revoked"]


class Entry(msgspec.Struct, frozen=True):
    """One line of a known_hosts file."""

    file: str
    line: int
    marker: str
    """Empty, @revoked or @cert-authority."""
    hosts: str
    """Patterns with commas between them, or the hash of one name."""
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
    blob = listed_key(fields[1:])
    if blob is None or marker not in ("", "@revoked", "@cert-authority"):
        return None
    return Entry(file, number, marker, fields[0], fields[1], blob)


def _is_listed(hosts: str, name: str) -> bool:
    if hosts.startswith("|"):
        return _is_hash_of(hosts, name)
    # fnmatch knows [sets], OpenSSH does not: `[host]:2222` is literal there.
    patterns = hosts.lower().replace("[", "[[]").split(",")
    if any(pattern.startswith("!") and fnmatch.fnmatchcase(name, pattern[1:]) for pattern in patterns):
        return False
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _is_hash_of(hashed: str, name: str) -> bool:
    try:
        salt, digest = (base64.b64decode(part, validate=True) for part in hashed.removeprefix("|1|").split("|"))
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
        self._lines = [entry for entry in read(files) if _is_listed(entry.hosts, self.name)]
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
        found = certificate(offered)
        for entry in self._marked("@revoked"):
            if entry.blob in (found.authority, public_key(offered)):
                return HostKeyResult("revoked", self.name, entry)
        trusted = [entry for entry in self._marked("@cert-authority") if entry.blob == found.authority]
        if not trusted and self._portless is not None:
            result = self._portless.verdict(offered, now, signatures)
            if result.answer == "ok":
                return result
        problem = UNTRUSTED if not trusted else certificate_problem(found, self.host, now, signatures)
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

LAYOUT = "qissqqsssss"
"""What follows the public key: the serial number, the type, an id, the names, the first and the last second,
conditions, extensions, a reserved string, the authority, its signature. q: 64 bits, i: 32 bits, s: a string (OpenSSH's
PROTOCOL.certkeys)."""

UNTRUSTED = "its authority is not one that known_hosts trusts"


class Certificate(NamedTuple):
    """A certificate, as far as it counts here."""

    kind: int
    names: tuple[str, ...]
    valid_from: int
    valid_until: int
    conditions: bytes
    authority: bytes
    """The key that signed it."""
    signed: bytes
    signature: bytes


def certificate(blob: bytes) -> Certificate:
    """What a certificate says. Of one that is cut, the last fields are zeros or empty."""
    message = Message(blob)
    read: dict[str, Callable[[], Any]] = {"s": message.get_string, "q": message.get_int64, "i": message.get_int}
    of_key = "s" * (1 + len([*strings(public_key(blob))]))  # its type, a nonce, and the rest of the key
    fields = [read[one]() for one in of_key + LAYOUT][len(of_key) :]
    _, kind, _, names, valid_from, valid_until, conditions, _, _, authority, signature = fields
    listed, signed = tuple(name.decode("latin-1") for name in strings(names)), blob[: -4 - len(signature)]
    return Certificate(kind, listed, valid_from, valid_until, conditions, authority, signed, signature)


def certificate_problem(
    found: Certificate, host: str, now: Instant, signatures: Collection[str] | None = None
) -> str | None:
    """Why a host certificate of a trusted authority is not valid for this host; None if it is valid. `signatures`: the
    algorithms with which an authority may sign; None allows all."""
    algorithm = key_type(found.signature)
    is_for_host = any(fnmatch.fnmatchcase(host, name.replace("[", "[[]")) for name in found.names)
    checks = (
        (found.kind == HOST, "it is a user's certificate, not a host's"),
        (
            signatures is None or algorithm in signatures,
            f"it is signed with {algorithm}, which CASignatureAlgorithms does not allow",
        ),
        (
            algorithm in Connection.algorithms().host_keys,
            f"it is signed with {algorithm}, which cannot be checked here",
        ),
        (_is_signed(found), "its signature is wrong"),
        (not found.conditions, "it has conditions that are not known here"),
        (now >= found.valid_from, "it is not valid yet"),
        (found.valid_until == FOREVER or now < found.valid_until, "it has expired"),
        (is_for_host, f"it is for {', '.join(found.names) or 'no host'}"),
    )
    return next((problem for is_fine, problem in checks if not is_fine), None)


def _is_signed(found: Certificate) -> bool:
    try:
        key = PKey.from_type_string(key_type(found.authority), found.authority)
        return bool(key.verify_ssh_sig(found.signed, Message(found.signature)))
    except Exception:  # paramiko raises whatever its parser stumbled on
        return False
