"""What wandb-core's own log says of a request: while it waits to try again, as a server may ask, the SDK is silent.

The log lies in our private directory and has a line for each failed request, none for one that went well.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from collectors.wandb.child.convert import instant
from trainmon.lib import Instant

TAIL = 16_384
LOG_AT_MOST = 1 << 20


class _Line(msgspec.Struct):
    time: str = ""
    status: int | None = None


def last_status(directory: Path, since: Instant) -> int | None:
    """The HTTP status of the last answer after which it means to try again; None where there was none since then."""
    found: tuple[Instant, int] | None = None
    for log in _logs(directory):
        for text in _tail(log).splitlines():
            try:
                line = msgspec.json.decode(text, type=_Line)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # cut off at the start, or another format: it tells nothing
            at = instant(line.time[:26] + "Z" if line.time.endswith("Z") else line.time)
            if line.status and at is not None and at >= since and (found is None or at >= found[0]):
                found = (at, line.status)
    return found[1] if found else None


def keep_small(directory: Path) -> None:
    """Empty a log that a server of bad health has filled over weeks: wandb-core itself never does."""
    for log in _logs(directory):
        if log.stat().st_size > LOG_AT_MOST:
            os.truncate(log, 0)


def _logs(directory: Path) -> list[Path]:
    return sorted((directory / "wandb" / "logs").glob("core-debug*.log"))


def _tail(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL))
        return file.read(TAIL)
