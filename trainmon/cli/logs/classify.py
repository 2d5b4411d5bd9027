"""trainmon-tui classify: says why the attempts ended that wrote these logs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import msgspec
from msgspec.structs import replace

from collectors.probe.files.lines import after_cut, decoded
from trainmon.analysis.causes.classify import classify
from trainmon.analysis.causes.rules import RULE
from trainmon.cli.terminal import plain, print_error
from trainmon.model import CauseFacts, Classification, LogExcerpt

HEAD = 64 << 10
TAIL = 256 << 10
"""Bytes at the start and at the end of a log that are read."""
COUNTED = 32 << 20
"""The largest file whose lines are counted; the last lines of a larger one are numbered from its end."""
CHUNK = 1 << 20

UNKNOWN = 1
UNREADABLE = 3
RETRIES = {
    "now": "a retry as it is can help",
    "after-node-swap": "a retry on another node can help",
    "after-change": "a retry helps only after a change",
    "never": "no retry",
    "unknown": "unknown whether a retry helps",
}


def classify_logs(
    files: tuple[str, ...], exit_code: int | None, scheduler_state: str | None, together: bool, as_json: bool
) -> int:
    """Print why the attempts ended that wrote these logs; the exit status."""

    def answer(name: str, log: tuple[LogExcerpt, ...]) -> int:
        found = classify(CauseFacts(log=log, exit_code=exit_code, scheduler_state=scheduler_state))
        click.echo(_as_json(name, found) if as_json else plain("\n".join(_as_text(name, found))))
        return UNKNOWN if found.cause == "unknown" else 0

    code = 0
    logs: list[LogExcerpt] = []
    for name in files:
        try:
            log = _read(name)
        except OSError as error:
            print_error(f"{name}: {error.strerror or error}")
            code = UNREADABLE
            continue
        if together:
            logs += (replace(one, file=name) for one in log)
        else:
            code = max(code, answer(name, log))
    return max(code, answer(" ".join(files), tuple(logs))) if logs else code


def _read(name: str) -> tuple[LogExcerpt, ...]:
    """The start and the end of a log.

    Raises:
        OSError: it could not be read.
    """
    if name == "-":
        return _read_stream(sys.stdin.buffer)
    with Path(name).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if not file.seekable():
            return _read_stream(file)
        head = file.read(HEAD + TAIL if size <= HEAD + TAIL else HEAD)
        skipped = None
        if 0 < size - len(head) - TAIL <= COUNTED:
            pieces = range(len(head), size - TAIL, CHUNK)
            skipped = sum(file.read(min(CHUNK, size - TAIL - start)).count(b"\n") for start in pieces)
        file.seek(max(len(head), size - TAIL))
        return _excerpts(head, file.read(TAIL), size > HEAD + TAIL, skipped)


def _read_stream(stream: BinaryIO) -> tuple[LogExcerpt, ...]:
    """The same of what cannot be read twice; at most the start, the end and one piece are in memory."""
    head, tail, skipped, is_cut = stream.read(HEAD), b"", 0, False
    while piece := stream.read(CHUNK):
        tail += piece
        if len(tail) > TAIL:
            skipped, is_cut = skipped + tail[:-TAIL].count(b"\n"), True
            tail = tail[-TAIL:]
    return _excerpts(head, tail, is_cut, skipped)


def _excerpts(head: bytes, tail: bytes, is_cut: bool, skipped: int | None) -> tuple[LogExcerpt, ...]:

    if not is_cut:
        return (LogExcerpt(text=decoded(head + tail)),)
    whole = after_cut(tail)[1] or tail  # the first line is cut, unless it is the only one
    first = whole.count(b"\n") + (not tail.endswith(b"\n"))
    before = tail.count(b"\n") - whole.count(b"\n")
    number = -first if skipped is None else head.count(b"\n") + skipped + before + 1
    return LogExcerpt(text=decoded(head)), LogExcerpt(text=decoded(whole), first_line=number)


def _as_json(name: str, found: Classification) -> str:

    return msgspec.json.encode({"file": name, **msgspec.to_builtins(found)}).decode()


def _as_text(name: str, found: Classification) -> Iterator[str]:

    sure = "" if found.confidence == "high" else ", not certain"
    exception = f" ({found.exception})" if found.exception and found.exception not in RULE[found.cause].meaning else ""
    yield f"{name}: {found.cause}{exception}{sure}"
    yield f"  {RULE[found.cause].meaning}"
    for one in found.evidence:
        place = [one.file] if one.file else []
        place += [] if one.line is None else [f"line {one.line}"]
        yield f"  {', '.join(place)}{': ' if place else ''}{one.text.strip()}"
    yield f"  {found.advice}"
    yield f"  Retry: {RETRIES[found.retry]}."
