"""Reads the config file of a run as it is now: a retry after an out-of-memory error needs another one."""

from __future__ import annotations

from trainmon.analysis.attempts import config_digest
from trainmon.lib import CommandFailed, clean
from trainmon.transport.shell import Completed

MAX_TEXT = 32 << 10
"""As much as the probe reads when an attempt begins. Of a longer file only the SHA-256 is compared."""

READ = f'[ -f "$1" ] || {{ echo "no such file" >&2; exit 1; }}; sha256sum <"$1" && head -c {MAX_TEXT + 1} <"$1"'


def read(path: str) -> tuple[str, ...]:
    """argv that reads it; `digest` reads the answer."""
    return ("sh", "-c", READ, "trainmon-tui", path)


def digest(path: str, host: str, answer: Completed) -> str:
    """The hash of the config, as attempts have it.

    Raises:
        CommandFailed: when the file could not be read.
    """
    if answer.status != 0:
        said = answer.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise CommandFailed(f"{path} on {host}: {clean(said, 200) or 'it cannot be read'}")
    line, _, content = answer.stdout.partition(b"\n")
    text = content.decode("utf-8", "replace")
    is_whole = len(content) <= MAX_TEXT and "\ufffd" not in text
    return config_digest(path, line.split()[0].decode(), text if is_whole else None)
