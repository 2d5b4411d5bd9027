"""`trainmon-tui check`: files, their permissions, logs and the probe."""

from __future__ import annotations

import shlex
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from collectors.nodes.steps.step import SHARES_GPUS
from collectors.nodes.stream import ProbeStream
from collectors.probe import bundle
from trainmon.analysis.log_formats import EXAMPLE, Format, LogReport, config_block, report, suggested, summary
from trainmon.cli.check.output import Row
from trainmon.config import AlertmanagerSettings, MetricsSettings, Settings
from trainmon.lib import Seconds, SystemClock, TrainmonError, clean, counted
from trainmon.model import (
    PROBES_WITHOUT_GPUS,
    AnyReading,
    DiskSample,
    DiskSamples,
    FileContent,
    GpuFactsAll,
    GpuSamples,
    Hello,
    HostSample,
    LogChunk,
    Receipts,
    Spec,
    SwitchSample,
    SwitchSamples,
    Trouble,
    WandbRows,
)
from trainmon.transport.shell import Shell

# ---- runs the probe once on one host ---------------------------------------------------------------------------------


class ProbeOutput:
    """What one probe has reported."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.host: HostSample | None = None
        self.facts: GpuFactsAll | None = None
        self.gpus: GpuSamples | None = None
        self.disks: dict[str, DiskSample] = {}
        self.logs: dict[str, LogChunk] = {}
        self.switches: dict[str, SwitchSample] = {}
        self.receipts: dict[str, Receipts] = {}
        self.files: dict[str, FileContent] = {}
        self.wandb: dict[str, WandbRows] = {}
        self.troubles: dict[str, str] = {}
        self.end: str | None = None
        """Why it has ended too soon."""
        self.printed = ""
        """What it printed that is no reading, such as the reason of its end."""

    def read(self, reading: AnyReading) -> None:
        """Keep the newest reading of each part, and the first of receipts: the next ones have only what is new."""
        match reading:
            case Hello():
                self.hello = reading
            case HostSample():
                self.host = reading
            case GpuFactsAll():
                self.facts = reading
            case GpuSamples():
                self.gpus = reading
            case DiskSamples():
                self.disks |= {sample.path: sample for sample in reading.d}
            case LogChunk():
                self.logs[reading.id] = reading
            case SwitchSamples():
                self.switches |= {sample.path: sample for sample in reading.s}
            case FileContent():
                self.files[reading.id] = reading
            case WandbRows():
                self.wandb[reading.id] = reading
            case Receipts():
                self.receipts.setdefault(reading.directory, reading)
            case Trouble(text=str(text)):
                self.troubles[reading.part] = clean(text)

    def is_complete(self, spec: Spec) -> bool:
        """Whether everything in the spec was reported. The shell probe reads disks only."""
        hello = self.hello
        if hello is None or self.host is None or not self._has_gpus(hello) or not self.disks.keys() >= set(spec.disks):
            return False
        return hello.python is None or (
            self.logs.keys() >= {log.id for log in spec.logs}
            and self.switches.keys() >= set(spec.switches)
            and self.receipts.keys() >= set(spec.receipts)
            and self.files.keys() >= {file.id for file in spec.files}
            and self.wandb.keys() >= {one.id for one in spec.wandb}
        )

    def _has_gpus(self, hello: Hello) -> bool:
        """Whether the GPUs have reported, or there are none. NVML's list is complete."""
        facts = self.facts
        is_empty = hello.probe == "nvml" and facts is not None and not facts.g
        return hello.probe in PROBES_WITHOUT_GPUS or is_empty or (facts is not None and self.gpus is not None)


def run_probe(shell: Shell, spec: Spec, python: str, timeout: Seconds) -> ProbeOutput:
    """Run the probe until it has reported everything in the spec, has ended, or the timeout is over.

    When Python ends without output, the shell probe replaces it, as in the dashboard.
    """
    output = _run_once(shell, spec, python, timeout)
    if output.end is not None and SHARES_GPUS in output.end:
        output = _run_once(shell, spec, python, timeout)
    if output.hello is None and output.end is not None and python != bundle.NO_PYTHON:
        instead = _run_once(shell, spec, bundle.NO_PYTHON, timeout)
        return instead if instead.hello is not None else output
    return output


def _run_once(shell: Shell, spec: Spec, python: str, timeout: Seconds) -> ProbeOutput:
    output, until = ProbeOutput(), time.monotonic() + timeout
    has_started, has_ended = threading.Event(), threading.Event()

    def received(_: ProbeStream, reading: AnyReading) -> None:
        output.read(reading)
        if output.is_complete(spec):
            has_ended.set()

    def ended(stream: ProbeStream, error: TrainmonError, _: bool) -> None:
        if not has_ended.is_set():  # else we have closed it
            output.end = str(error) if stream.status is None else f"it ended with status {stream.status}"
        has_ended.set()
        has_started.set()

    probe = ProbeStream(shell.host, SystemClock(), lambda _: has_started.set(), received, ended)
    command = shell.stream(bundle.command(python), probe)
    if has_started.wait(timeout) and not has_ended.is_set():
        command.write(bundle.payload(probe.greeting or b"") + bundle.spec_line(spec))
        has_ended.wait(max(0.0, until - time.monotonic()))
    has_ended.set()
    output.printed = probe.output
    command.close()
    return output


# ---- checks who else can read the secrets of the config --------------------------------------------------------------

SECRETS = frozenset({"topic", "reply_topic", "token", "reply_token", "password", "url", "headers", "ping", "copy_to"})
"""The settings of [[notify]], [heartbeat], [ledger] and `metrics` that are secrets."""


def permission_rows(settings: Settings, file: Path | None) -> Iterator[Row]:
    """A note for each file with secrets that other users can read."""
    secrets = [*_secrets(settings)]
    if file is not None and any(not text.startswith(("env:", "file:")) for text in secrets):
        yield from _row("config", file, stat.S_IRGRP | stat.S_IROTH, "it contains secrets")
    named = (text.removeprefix("file:") for text in secrets if text.startswith("file:"))
    for name in dict.fromkeys(named):
        yield from _row("secret", Path(name).expanduser(), stat.S_IRWXG | stat.S_IRWXO, "it is a secret")


def _secrets(value: object, name: str = "") -> Iterator[str]:
    """The secrets of a setting and of all below it, as they are written."""
    match value:
        case AlertmanagerSettings(url=url) | MetricsSettings(url=url) if "@" not in url:  # the address is no secret
            yield from _secrets(msgspec.structs.asdict(value) | {"url": None})
        case msgspec.Struct():
            yield from _secrets(msgspec.structs.asdict(value))
        case dict():
            for key, inner in value.items():
                yield from _secrets(inner, name or key)
        case tuple():
            for inner in value:
                yield from _secrets(inner)
        case str() if name in SECRETS:
            yield value


def _row(what: str, file: Path, refused: int, why: str) -> Iterator[Row]:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return  # another row says that it cannot be read
    if mode & refused:
        text = f"other users can read {file} (mode {mode:o}), and {why}"
        yield Row("note", what, "", text, f"chmod go-rwx {shlex.quote(str(file))}")


# ---- checks what is read in the logs ---------------------------------------------------------------------------------


class LogChecks(NamedTuple):
    """The log formats of the config, and what was read in the log of each run. The checks of all hosts share it."""

    formats: Sequence[Format]
    runs: int
    """How many runs of the config have a log."""
    logs: dict[str, LogReport]
    missing: dict[str, Row | None]
    """The row of each log that the first host misses; None where a host follows it, such as a node of the run."""

    def check(self, host: str, run: str, chunk: LogChunk) -> Row:
        """The format of a log with its last step, or a format to start from."""
        what, read = f"log of {run}", report((*chunk.kept, *chunk.lines), self.formats, partial=chunk.partial)
        count, progress = len(read.lines), read.progress
        self.missing[run] = None
        if not count:
            return Row("note", host, what, "empty so far: its format is not known yet")
        self.logs[run] = read
        if progress.step is None and progress.epoch is None:
            template = _template(read)
            how = "" if template else ", with a step line of the log as its template"
            fix = f"if training has begun, add this to the config{how}; `trainmon-tui log-format {run}` shows the lines"
            text = f"no step in its last {counted(count, 'line')}"
            return Row("bad", host, what, text, f"{fix}\n{config_block(run, template or EXAMPLE)}")
        step = f"epoch {progress.epoch:g}" if progress.step is None else f"step {progress.step:,}"
        target = "" if progress.step is None or progress.target_step is None else f" of {progress.target_step:,}"
        return Row("ok", host, what, f"{step}{target}, format {summary(progress, read.shape, count)}")

    def check_formats(self) -> Iterator[Row]:
        """Whether each format of the config matches a line of some log."""
        for one in self.formats:
            matched = [run for run, log in self.logs.items() if any(one.parse(line.text) for line in log.lines)]
            if matched:
                yield Row("ok", "log_format", one.name, f"matches lines of {', '.join(matched)}")
            elif not self.logs:
                yield Row("note", "log_format", one.name, "not tested: no log has lines to read")
            else:
                run, log = min(self.logs.items(), key=lambda pair: pair[1].steps > 0)
                block = config_block(one.name, _template(log) or EXAMPLE)
                unread = self.runs - len(self.logs)
                others = f"; not read or empty: {counted(unread, 'log')}" if unread > 0 else ""
                text = f"matches no line of {counted(len(self.logs), 'log')}{others}"
                fix = f"remove it or correct it; for the log of {run}:\n{block}"
                yield Row("note" if others else "bad", "log_format", one.name, text, fix)


def _template(read: LogReport) -> str | None:
    """The format of a log, or what it may be."""
    return read.template or suggested(one.text for one in read.lines)
