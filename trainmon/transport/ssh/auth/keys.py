"""Keys for the login: an agent's, key files, and certificates for both, in OpenSSH's order."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_IMODE

from paramiko import ECDSAKey, Ed25519Key, PKey, RSAKey, SSHException
from paramiko.agent import AgentKey, AgentSSH
from paramiko.message import Message

from trainmon.lib import Seconds
from trainmon.transport.ssh.config import HostSettings
from trainmon.transport.ssh.transport import CERTIFICATE

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
    parts = [kind.removesuffix(CERTIFICATE).encode(), *list(strings(blob))[2 : 2 + numbers]]
    return blob_of(parts)


def blob_of(parts: Iterable[bytes]) -> bytes:
    """The SSH blob of these strings."""
    return b"".join(struct.pack(">I", len(part)) + part for part in parts)


def words(line: str) -> list[str]:
    """The fields of a line with a public key. In OpenSSH, spaces and tabs separate them, and a NUL ends the line."""
    return [word for word in re.split("[ \t]", line.partition("\0")[0].rstrip("\r")) if word]


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
