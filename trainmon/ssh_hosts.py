"""The names in ~/.ssh/config, for choosing hosts: Include is followed, patterns are left out."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Iterator
from pathlib import Path

DEEPEST = 16
"""As OpenSSH: an Include that includes itself ends here."""

FILES_AT_MOST = 200
BYTES_AT_MOST = 1_048_576


def known_hosts_by_name(config: Path) -> tuple[str, ...]:
    """Every plain Host name, in the order of the files, each once. Files that cannot be read are passed over."""
    names: dict[str, None] = {}
    for words in _lines(config, config.parent, 0, [FILES_AT_MOST]):
        if words[0].lower() == "host":
            names.update(dict.fromkeys(word for word in words[1:] if not set(word) & set("*?!")))
    return tuple(names)


def _lines(file: Path, home: Path, depth: int, budget: list[int]) -> Iterator[list[str]]:
    budget[0] -= 1
    if depth > DEEPEST or budget[0] < 0:
        return
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            text = opened.read(BYTES_AT_MOST)
    except OSError:
        # A config that is not there has no hosts; ssh itself passes over such an Include as well.
        return
    for line in text.splitlines():
        words = _words(line)
        if len(words) > 1 and words[0].lower() == "include":
            for pattern in words[1:]:
                path = Path(pattern).expanduser() if pattern.startswith("~") else home / pattern
                for found in sorted(glob.glob(str(path))):  # noqa: PTH207 - the pattern may be absolute
                    yield from _lines(Path(found), home, depth + 1, budget)
        elif len(words) > 1:
            yield words


def _words(line: str) -> list[str]:
    """`Host a b`, `Host=a`, `Host "a"`, with or without a comment."""
    key, _, rest = line.strip().replace("=", " ", 1).partition(" ")
    if not key or key.startswith("#"):
        return []
    try:
        return [key, *shlex.split(rest, comments=True)]
    except ValueError:
        return [key, *rest.split()]
