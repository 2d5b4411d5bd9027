"""The captured failure logs: what an expert names as the cause, and what else is right."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from trainmon.analysis.causes.classify import classify
from trainmon.model import CauseFacts, CauseName, Classification, LogExcerpt

FOLDER = Path(__file__).parents[3] / "captured" / "failures"


class CapturedLog(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    cause: CauseName
    also_right: tuple[CauseName, ...] = ()
    framework: str
    source: str
    log: str
    exit_code: int | None = None


@functools.cache
def captured() -> tuple[CapturedLog, ...]:
    lines = [line for path in sorted(FOLDER.glob("*.jsonl")) for line in path.read_text().splitlines()]
    return tuple(msgspec.json.decode(line, type=CapturedLog) for line in lines)


def of(text: str, **facts: object) -> Classification:
    """What is made of a log and of other facts."""
    known = {"log": (LogExcerpt(text=text),), **facts}
    return classify(msgspec.convert(known, CauseFacts))
