"""The commands that read a log: classify says why an attempt ended, log-format what is read in its lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec
from msgspec.structs import replace

from collectors.probe.files.lines import after_cut, decoded, lines_of
from trainmon.analysis.causes.classify import classify
from trainmon.analysis.causes.rules import RULE
from trainmon.analysis.log_formats import (
    EXAMPLE,
    LEARNED,
    LogReport,
    StepLine,
    config_block,
    report,
    suggested,
    summary,
)
from trainmon.cli.snapshot import first_full_state
from trainmon.cli.terminal import plain, print_lines
from trainmon.config import Settings, load_settings, log_formats
from trainmon.lib import ConfigError, TrainmonError
from trainmon.model import CauseFacts, Classification, LogExcerpt, Run
from trainmon.runtime.logfile import log_to_file
from trainmon.runtime.monitor import Monitor

# ---- trainmon-tui classify -------------------------------------------------------------------------------------------

HEAD = 64 << 10
TAIL = 256 << 10
"""Bytes at the start and at the end of a log that are read."""
COUNTED = 32 << 20
"""The largest file whose lines are counted; the last lines of a larger one are numbered from its end."""
CHUNK = 1 << 20

UNKNOWN = 1
UNREADABLE = 3
STDIN = "-"
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
        click.echo(_cause_json(name, found) if as_json else plain("\n".join(_cause_text(name, found))))
        return UNKNOWN if found.cause == "unknown" else 0

    code = 0
    logs: list[LogExcerpt] = []
    for name in files:
        try:
            log = _read(name)
        except OSError as error:
            click.echo(f"trainmon-tui: {name}: {error.strerror or error}", err=True)
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
    if name == STDIN:
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


def _cause_json(name: str, found: Classification) -> str:

    return msgspec.json.encode({"file": name, **msgspec.to_builtins(found)}).decode()


def _cause_text(name: str, found: Classification) -> Iterator[str]:

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


# ---- trainmon-tui log-format -----------------------------------------------------------------------------------------

END = 1 << 20
"""Bytes at the end of a file that are read."""

NO_STEP = 1
COUNTS = ("step", "target_step")
FORMAT_FIELDS = (*COUNTS, "loss", "learning_rate", "grad_norm", "step_time_s", "tokens_per_s", "samples_per_s")


def show_log_format(
    log: str, config: Path | None, ssh_config: Path | None, count: int, as_json: bool, wait: float
) -> int:
    """Print what is read in the last lines of a log; the exit status."""
    settings, _ = load_settings(config, ())
    path = Path(log).expanduser()
    is_file = path.is_file()
    formats = log_formats(settings)
    if is_file:
        name, read = path.stem, report(_end_of(path), formats)
    else:
        name, run = log, _read_run(settings, log, ssh_config, wait)
        assert run.log is not None
        read = report(run.log.lines, formats, partial=run.log.partial, progress=run.progress, shape=run.memory.shape)
    if as_json:
        click.echo(msgspec.json.encode(_format_object(name, read)).decode())  # NaN and infinity are null
    else:
        print_lines(*_format_text(name, read, count))
    return 0 if read.steps else NO_STEP


def _end_of(path: Path) -> list[str]:
    """The last lines of a file, without the first one if it is cut."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - END))
        return lines_of(file.read(END), is_cut=size > END)


def _read_run(settings: Settings, name: str, ssh_config: Path | None, wait: float) -> Run:
    """A run whose log was read on its host.

    Raises:
        ConfigError: there is no such run.
        TrainmonError: its log could not be read.
    """
    known = [run.name for run in settings.runs]
    if name not in known:
        if Path(name).expanduser().is_dir():
            raise ConfigError([f"{name} is a directory, not a log file"])
        listed = f"runs of the config: {', '.join(known)}" if known else "the config has no [[run]]"
        raise ConfigError([f"{name}: no such file, and no such run ({listed})"])
    log_to_file()
    with Monitor(settings, keeps=False, ssh_config=ssh_config) as monitor:
        run = first_full_state(monitor, wait).runs[name]
    log = run.log
    if log is None or (log.error is not None and not log.lines):
        raise TrainmonError(f"the log of {name} was not read: {'no data' if log is None else log.error}")
    return run


def _format_text(name: str, read: LogReport, count: int) -> list[str]:

    shown = read.lines[-count:]
    marks = [_values(one.found) for one in shown]
    width = min(60, max((len(mark) for mark in marks), default=0))
    rows = [f"{mark:{width}}  {one.text}" for mark, one in zip(marks, shown, strict=True)]
    rows += ["", f"format  {summary(read.progress, read.shape, len(read.lines))}"]
    if read.template is not None:
        return [*rows, "", "The same format, for the config:", "", config_block(name, read.template)]
    if read.steps:
        return rows
    if (guess := suggested(one.text for one in read.lines)) is not None:
        return [*rows, "", "No step was read. If the growing number is the step, copy this into the config:", "",
                config_block(name, guess)]  # fmt: skip
    return [*rows, "", "No step was read. Copy a step line into the config and replace its numbers with names:", "",
            config_block(name, EXAMPLE)]  # fmt: skip


def _values(found: StepLine | None) -> str:
    if found is None:
        return "-"
    if found.kind == "epoch":
        return f"epoch {found.epoch} begins"
    values = {field: getattr(found, field) for field in FORMAT_FIELDS}
    step = "" if found.step is None else f"step {found.step:,}"
    step += "" if found.target_step is None else f"/{found.target_step:,}"
    others = (f"{field} {value:.6g}" for field, value in values.items() if value is not None and field not in COUNTS)
    return "  ".join(filter(None, (step, *others))) or found.kind


def _format_object(name: str, read: LogReport) -> dict[str, Any]:
    return {
        "name": name,
        "format": read.progress.format,
        "is_learned": read.progress.format == LEARNED,
        "template": read.template,
        "steps": read.steps,
        "progress": {field: msgspec.to_builtins(getattr(read.progress, field)) for field in FORMAT_FIELDS},
        "lines": [
            {
                "text": one.text,
                "format": one.format,
                "found": None if one.found is None else {
                    key: value for key, value in msgspec.to_builtins(one.found).items() if value is not None
                },
            }
            for one in read.lines
        ],
    }  # fmt: skip
