"""RevokedHostKeys: keys that OpenSSH accepts from no host (sshkey_check_revoked in its authfile.c)."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

from trainmon.lib import Seconds
from trainmon.transport.ssh.auth.keys import key_type, listed_key, public_key, words

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
