"""One short text for the same failure, whatever its numbers, addresses, paths, hosts and times are. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

VARIES = re.compile(
    r"\b[\w.+-]*://\S+"  # addresses of the web
    r"|(?<!\w)(?:[A-Za-z]:)?[~.]?/[^\s'\",;:)\]]+"  # paths
    r"|\b0x[0-9a-fA-F]+\b|\b[0-9a-f]{8,}(?:-[0-9a-f]{4,}){0,4}\b"
    r"|\b(?:[\w-]+\.){1,8}[\w-]+\b"  # hosts, IP addresses, decimal numbers, names of layers
    r"|\b[\w-]*\d[\w-]*\b"  # numbers, and node names with one
)
LENGTH = 12


def fingerprint(cause: str, exception: str | None, text: str, hosts: Iterable[str] = ()) -> str:
    """A fingerprint of a failure. `text` is what the deciding line says."""
    for host in hosts:
        text = text.replace(host, "#")
    words = " ".join(VARIES.sub("#", text).casefold().split())[:200]
    return hashlib.sha256(f"{cause}|{exception or ''}|{words}".encode()).hexdigest()[:LENGTH]
