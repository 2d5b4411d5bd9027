"""trainmon-tui log-format: shows which values are read from the lines of a log, and the config for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from collectors.probe.files.lines import lines_of
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
from trainmon.cli.terminal import print_lines
from trainmon.config import Settings, load_settings, log_formats
from trainmon.lib import ConfigError, TrainmonError
from trainmon.model import Run
from trainmon.runtime.logs import log_to_file

TAIL = 1 << 20
"""Bytes at the end of a file that are read."""

COUNTS = ("step", "target_step")
FIELDS = (*COUNTS, "loss", "learning_rate", "grad_norm", "step_time_s", "tokens_per_s", "samples_per_s")


def show_log_format(
    log: str, config: Path | None, ssh_config: Path | None, count: int, as_json: bool, wait: float
) -> int:
    """Print what is read in the last lines of a log; the exit status."""
    settings, _ = load_settings(config, ())
    path = Path(log).expanduser()
    is_file = path.is_file()
    formats = log_formats(settings)
    if is_file:
        name, read = path.stem, report(_tail(path), formats)
    else:
        name, run = log, _run(settings, log, ssh_config, wait)
        assert run.log is not None
        read = report(run.log.lines, formats, partial=run.log.partial, progress=run.progress, shape=run.memory.shape)
    if as_json:
        click.echo(msgspec.json.encode(_as_json(name, read)).decode())  # NaN and infinity are null
    else:
        print_lines(*_as_text(name, read, count))
    return 0 if read.steps else 1


def _tail(path: Path) -> list[str]:
    """The last lines of a file, without the first one if it is cut."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - TAIL))
        return lines_of(file.read(TAIL), is_cut=size > TAIL)


def _run(settings: Settings, name: str, ssh_config: Path | None, wait: float) -> Run:
    """A run whose log was read on its host.

    Raises:
        ConfigError: there is no such run.
        TrainmonError: its log could not be read.
    """
    from trainmon.cli.snapshot import first_full_state
    from trainmon.runtime.monitor import Monitor

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


def _as_text(name: str, read: LogReport, count: int) -> list[str]:

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
    values = {field: getattr(found, field) for field in FIELDS}
    step = "" if found.step is None else f"step {found.step:,}"
    step += "" if found.target_step is None else f"/{found.target_step:,}"
    others = (f"{field} {value:.6g}" for field, value in values.items() if value is not None and field not in COUNTS)
    return "  ".join(filter(None, (step, *others))) or found.kind


def _as_json(name: str, read: LogReport) -> dict[str, Any]:
    return {
        "name": name,
        "format": read.progress.format,
        "is_learned": read.progress.format == LEARNED,
        "template": read.template,
        "steps": read.steps,
        "progress": {field: msgspec.to_builtins(getattr(read.progress, field)) for field in FIELDS},
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
