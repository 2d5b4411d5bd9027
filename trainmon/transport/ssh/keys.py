"""Keys: a user's for the login, in OpenSSH's order, and those of hosts, checked with known_hosts and RevokedHostKeys.

A user's keys are those of an agent and of files, with certificates. Unreadable lines of known_hosts are skipped.
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import hmac
import io
import os
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_IMODE
from typing import Any, Literal, NamedTuple

import msgspec
from paramiko import ECDSAKey, Ed25519Key, PKey, RSAKey, SSHException
from paramiko.agent import AgentKey, AgentSSH
from paramiko.message import Message

from trainmon.lib import Instant, Seconds, clean
from trainmon.transport.ssh.config import HostSettings
from trainmon.transport.ssh.transport import CERTIFICATE, Connection

# ---- keys for the login ----------------------------------------------------------------------------------------------

MAGIC = b"openssh-key-v1\0"
AGENT_TIMEOUT = 30.0
"""Seconds for an agent to answer: it may ask the user to confirm, or to touch a token."""

CLASSES: dict[str, type[PKey]] = {"ssh-rsa": RSAKey, "ssh-ed25519": Ed25519Key}


@dataclass(frozen=True, slots=True)
class KeyFile:
    """A private key file, as far as it can be read without its passphrase."""

    path: str
    text: str = field(repr=False)
    encrypted: bool
    public: bytes | None
    """Its public key, if the file (or FILE.pub) contains it."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Something to offer: a public key or a certificate, and who signs for it."""

    label: str
    blob: bytes | None
    """None until the file is unlocked."""
    agent_key: AgentKey | None = None
    file: KeyFile | None = None


@contextlib.contextmanager
def agent_keys(settings: HostSettings) -> Iterator[tuple[AgentKey, ...]]:
    """The keys of the host's agent; empty without an agent, or when it does not answer."""
    agent = AgentSSH()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        if settings.identity_agent is not None:
            with contextlib.suppress(OSError, SSHException):
                connection.settimeout(AGENT_TIMEOUT)
                connection.connect(settings.identity_agent)
                agent._connect(connection)  # type: ignore[attr-defined]  # paramiko's own uses only $SSH_AUTH_SOCK
        yield agent.get_keys()


def strings(blob: bytes) -> Iterator[bytes]:
    """The length-prefixed strings at the start of an SSH blob."""
    while len(blob) >= 4:
        (size,) = struct.unpack(">I", blob[:4])
        yield blob[4 : 4 + size]
        blob = blob[4 + size :]


def key_type(blob: bytes) -> str:
    return next(strings(blob), b"").decode("ascii", "replace")


def public_key(blob: bytes) -> bytes:
    """The public key inside a certificate; a plain key is itself."""
    kind = key_type(blob)
    if not kind.endswith(CERTIFICATE):
        return blob
    # Ed25519: the point; ECDSA: curve and point; RSA: e and n; and the application, where a token holds the key.
    numbers = (1 if "ed25519" in kind else 2) + kind.startswith("sk-")
    return blob_of([kind.removesuffix(CERTIFICATE).encode(), *list(strings(blob))[2 : 2 + numbers]])


def blob_of(parts: Iterable[bytes]) -> bytes:
    """The SSH blob of these strings."""
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def words(line: str) -> list[str]:
    """The fields of a line with a public key. In OpenSSH, spaces and tabs separate them, and a NUL ends the line."""
    return [word for word in line.partition("\0")[0].rstrip("\r").replace("\t", " ").split(" ") if word]


def listed_key(fields: Sequence[str]) -> bytes | None:
    """The public key or the certificate of a line; None unless it begins with a type and the whole key of this type."""
    try:
        kind, text = fields[:2]
        blob = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    key = public_key(blob)
    return blob if key_type(blob) == kind and blob_of(strings(key)) == key else None


def rsa_bits(blob: bytes) -> int | None:
    """The size of an RSA key; None for other keys."""
    kind, *numbers = strings(public_key(blob))
    return int.from_bytes(numbers[1]).bit_length() if kind == b"ssh-rsa" and len(numbers) > 1 else None


def read_public(path: str) -> bytes | None:
    """The blob of a one-line public key or certificate file."""
    with contextlib.suppress(OSError):
        return listed_key(Path(path).read_text("utf-8", "replace").split(None, 2))
    return None


def too_open(path: str) -> str:
    """Why OpenSSH does not use a private key file: others may read it. Empty if it does, or without such a file."""
    try:
        found = Path(path).stat()
    except OSError:
        return ""
    if found.st_uid != os.getuid() or not found.st_mode & 0o077:
        return ""
    return f"its mode is {S_IMODE(found.st_mode):04o}, so others may use it"


def read_key_file(path: str) -> KeyFile | None:
    """A private key file, without unlocking it. None when it is missing or no key."""
    try:
        text = Path(path).read_text("utf-8")
        public = read_public(path + ".pub")
        if "BEGIN OPENSSH PRIVATE KEY" not in text:
            return KeyFile(path, text, "ENCRYPTED" in text, public) if "PRIVATE KEY-----" in text else None
        data = base64.b64decode("".join(line for line in text.splitlines() if not line.startswith("-----")))
    except (OSError, ValueError):
        return None
    if not data.startswith(MAGIC):
        return None
    message = Message(data[len(MAGIC) :])
    cipher, _kdf, _kdf_options = (message.get_string() for _ in range(3))
    message.get_int()  # the number of keys, which is always 1
    return KeyFile(path, text, cipher != b"none", message.get_string() or public)


def unlock(file: KeyFile, passphrase: str | None) -> PKey:
    """The private key.

    Raises:
        SSHException: when the passphrase is wrong or the format unknown.
    """
    public = file.public
    problem: Exception = SSHException("unknown key format")
    for kind in (CLASSES.get(key_type(public), ECDSAKey),) if public else (RSAKey, ECDSAKey, Ed25519Key):
        try:
            return kind.from_private_key(io.StringIO(file.text), password=passphrase)
        except (SSHException, ValueError, TypeError, struct.error, IndexError) as error:
            problem = error
    raise SSHException(str(problem)) from problem


def identities(settings: HostSettings, agent: tuple[AgentKey, ...]) -> list[Identity]:
    """What to offer, in OpenSSH's order: certificates, agent keys that are configured, other agent keys, files."""
    paths = [path for path in settings.identity_files if not too_open(path)]
    files = [file for path in paths if (file := read_key_file(path)) is not None]
    configured = [blob for path in settings.identity_files if (blob := read_public(path + ".pub")) is not None]
    configured += [file.public for file in files if file.public is not None]
    by_blob = {bytes(key.blob): key for key in agent}
    found = [*_certificates(settings, files, by_blob)]
    wanted = [key for blob in configured if (key := by_blob.get(blob)) is not None]
    others = [] if settings.identities_only else [key for key in agent if key not in wanted]
    found += [
        Identity(f"agent key {key.comment or key.get_name()}", bytes(key.blob), agent_key=key)
        for key in (*wanted, *others)
    ]
    held = {bytes(key.blob) for key in wanted}
    found += [Identity(file.path, file.public, file=file) for file in files if file.public not in held]
    return list({(identity.label, identity.blob): identity for identity in found}.values())


def _certificates(settings: HostSettings, files: list[KeyFile], agent: dict[bytes, AgentKey]) -> Iterator[Identity]:
    for path in (*settings.certificate_files, *(f"{path}-cert.pub" for path in settings.identity_files)):
        blob = read_public(path)
        if blob is not None and key_type(blob).endswith(CERTIFICATE):
            label, owner = f"certificate {path}", public_key(blob)
            if owner in agent:
                yield Identity(label, blob, agent_key=agent[owner])
            else:
                yield from (Identity(label, blob, file=file) for file in files if file.public == owner)


class KeyRing:
    """Unlocked keys, in memory only: 64 hosts with one key file need one passphrase prompt.

    Its dictionaries need no lock: each use is one atomic operation.
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[str, int], PKey] = {}
        self._path_locks: dict[str, threading.Lock] = {}
        self._declined_at: dict[str, Seconds] = {}

    def ready(self, file: KeyFile) -> PKey | None:
        """The key, if it needs no passphrase or was unlocked before."""
        cache_key = _cache_key(file.path)
        if cache_key not in self._keys and not file.encrypted:
            self._keys[cache_key] = unlock(file, None)
        return self._keys.get(cache_key)

    def unlock(self, file: KeyFile, ask: Callable[[bool], str | None], dial_started_at: Seconds) -> PKey | None:
        """Unlock it with ask(again), at most three times. All current dials share the answer: one declined prompt is
        not repeated for 63 other hosts.
        """
        with self._path_locks.setdefault(file.path, threading.Lock()):
            if (key := self.ready(file)) is not None:
                return key
            if self._declined_at.get(file.path, 0.0) < dial_started_at:
                for attempt in range(3):
                    passphrase = ask(attempt > 0)
                    if passphrase is None:
                        break
                    with contextlib.suppress(SSHException):
                        key = self._keys[_cache_key(file.path)] = unlock(file, passphrase)
                        return key
                self._declined_at[file.path] = time.monotonic()
        return None


def _cache_key(path: str) -> tuple[str, int]:
    try:
        return path, Path(path).stat().st_mtime_ns
    except OSError:
        return path, 0


# ---- host keys and host certificates, checked with known_hosts and RevokedHostKeys -----------------------------------

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


def read(files: Iterable[str], name: str) -> list[Entry]:
    """The readable lines about a host, of the files that exist."""
    entries: list[Entry | None] = []
    for file in files:
        with contextlib.suppress(OSError):
            lines = Path(file).read_bytes().decode("utf-8", "replace").split("\n")
            entries += [_entry(file, number, line, name) for number, line in enumerate(lines, 1)]
    return [entry for entry in entries if entry is not None]


def _entry(file: str, number: int, line: str, name: str) -> Entry | None:
    """A line, if it lists this name. The keys of other hosts are not decoded: there may be thousands of them."""
    fields = words(line)
    if not fields or fields[0].startswith("#"):
        return None
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    if not fields or not _is_listed(fields[0], name):
        return None
    blob = listed_key(fields[1:])
    if blob is None or marker not in ("", "@revoked", "@cert-authority"):
        return None
    return Entry(file, number, marker, fields[0], fields[1], blob)


def _is_listed(hosts: str, name: str) -> bool:
    if hosts.startswith("|"):
        return _is_hash_of(hosts, name)
    if not set("*?!") & set(hosts):
        return name in hosts.lower().split(",")
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
        self._lines = read(files, self.name)
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
