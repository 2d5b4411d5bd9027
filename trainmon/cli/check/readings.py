"""What the probe of a host has reported, and the rows about it: GPUs, disks, logs, switches and other files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from collectors.assignment import rivals
from trainmon.analysis.checkpoints import is_eval_log, read_results
from trainmon.analysis.log_formats import EXAMPLE, Format, LogReport, config_block, report, suggested, summary
from trainmon.analysis.nodes import has_read_gpus
from trainmon.analysis.runs import other_switches, read_status, status_file
from trainmon.analysis.wandb import client_file
from trainmon.cli.check.output import Row
from trainmon.engine.reducers.nodes import read
from trainmon.lib import Seconds, clean, counted, size
from trainmon.model import (
    ON_NODE,
    DiskSample,
    DiskSamples,
    FileContent,
    Hello,
    LogChunk,
    Node,
    NodeReading,
    Receipts,
    RunSpec,
    Spec,
    SwitchSample,
    SwitchSamples,
    WandbDirectory,
    WandbRows,
    Xid,
    says,
)

SKEW: Seconds = 5.0


class ProbeOutput:
    """What one probe has reported. `node`: its host, of which nothing was read yet."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.python: str | None = None
        """The version of its interpreter; None for the shell probe, which reads disks only."""
        self.disks: dict[str, DiskSample] = {}
        self.logs: dict[str, LogChunk] = {}
        self.switches: dict[str, SwitchSample] = {}
        self.receipts: dict[str, Receipts] = {}
        self.files: dict[str, FileContent] = {}
        self.wandb: dict[str, WandbRows] = {}
        self.end: str | None = None
        """Why it has ended too soon."""
        self.printed = ""
        """What it printed that is no reading, such as the reason of its end."""

    def read(self, event: NodeReading) -> None:
        """Keep the newest reading of each part, and the first of receipts: the next ones have only what is new. A
        fault that the driver repeats from the last minutes is no problem of now."""
        reading = event.reading
        if not isinstance(reading, Xid):
            self.node = read(self.node, event)
        match reading:
            case Hello():
                self.python = reading.python
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

    def is_complete(self, spec: Spec) -> bool:
        """Whether everything in the spec was reported."""
        node = self.node
        if node.greeted_at is None or node.host_at is None or not has_read_gpus(node):
            return False
        return self.disks.keys() >= set(spec.disks) and (
            self.python is None
            or (
                self.logs.keys() >= {log.id for log in spec.logs}
                and self.switches.keys() >= set(spec.switches)
                and self.receipts.keys() >= set(spec.receipts)
                and self.files.keys() >= {file.id for file in spec.files}
                and self.wandb.keys() >= {one.id for one in spec.wandb}
            )
        )


# ---- its rows --------------------------------------------------------------------------------------------------------


def probe_rows(host: str, spec: Spec, output: ProbeOutput, runs: Sequence[RunSpec], logs: LogChecks) -> Iterator[Row]:
    """The rows of a host whose probe works. `runs`: those of its cluster."""
    node, skew = output.node, output.node.clock_skew_s or 0.0
    found = "no GPU driver" if node.probe == "none" else node.probe
    versions = (found, output.python and f"Python {output.python}", node.driver and f"driver {node.driver}")
    yield Row("ok", host, "probe", ", ".join(part for part in versions if part))
    if node.note:
        yield Row("note", host, "probe", node.note)
    if abs(skew) > SKEW:
        text = f"{abs(skew):.0f}s {'ahead of' if skew > 0 else 'behind'} the local clock; all ages use the local clock"
        yield Row("note", host, "clock", text)
    yield from _gpus(node)
    yield from _disks(host, spec, output)
    if output.python is not None:
        yield from file_rows(host, spec, output, runs, logs)
    else:
        paths = (log.pattern for log in spec.logs if not log.local)
        for path in (*paths, *spec.switches, *(one.directory for one in spec.wandb)):
            yield Row("bad", host, path, "needs python3", "install it there, or set `python` of the [[cluster]]")


def _gpus(node: Node) -> Iterator[Row]:
    host, count, expected = node.name, len(node.gpus), node.gpus_expected
    for gpu in node.gpus:
        if gpu.error:
            yield Row("bad", host, f"GPU {gpu.index}", gpu.error, "run nvidia-smi -q there for details")
    name = next((gpu.name for gpu in node.gpus if gpu.name), "unknown model")
    if not count and not expected:
        yield Row("note", host, "GPUs", "none")
    elif expected is not None and expected > count:
        fix = "dmesg there may show an Xid; reset the GPU or reboot the node"
        yield Row("bad", host, "GPUs", f"{count} of {expected} × {name}", fix)
    else:
        yield Row("ok", host, "GPUs", f"{count} × {name}")


def file_rows(host: str, spec: Spec, output: ProbeOutput, runs: Sequence[RunSpec], logs: LogChecks) -> Iterator[Row]:
    """Logs, switches and other files of the runs."""
    yield from _logs(host, spec, output, runs, logs)
    for path in spec.switches:
        switch = output.switches.get(path)
        if switch is None or switch.error or switch.exists is None:
            why = (switch.error if switch else None) or "cannot be read"
            fix = "its directory must exist, and you need x permission on it"
            yield Row("bad", host, path, why, "remove the link" if says(why, "dangling") else fix)
        else:
            yield Row("ok", host, path, "armed" if switch.exists else "not armed")
    yield from _trainers(host, output, runs)
    yield from _receipts(host, spec, output)
    for one in spec.wandb:
        yield client_file_row(host, one, output.wandb.get(one.id))


def _logs(host: str, spec: Spec, output: ProbeOutput, runs: Sequence[RunSpec], checks: LogChecks) -> Iterator[Row]:
    """The logs of the runs and of their evaluations."""
    shared = rivals(runs)
    for log in spec.logs:
        if (owners := shared.get(log.id)) and not log.local:
            yield Row(
                "note",
                host,
                log.pattern,
                f"may also match logs of {', '.join(one.name for one in owners)}, which are not read for {log.id}",
                f"correct the `log` of {log.id}, so that it matches its own only",
            )
        chunk = output.logs.get(log.id)
        if log.optional and chunk is not None and chunk.path is None and chunk.error is None:
            continue
        if chunk is None or chunk.path is None or chunk.error:
            why = (chunk.error if chunk else None) or "no such file"
            if is_eval_log(log.id):
                fix = "the first evaluation creates it; else fix `results` of [[eval]]"
                yield Row("note", host, log.pattern, why, fix)
            else:
                checks.missing.setdefault(
                    log.id,
                    Row("bad", host, log.pattern, why, f"start the run {log.id}, or fix its `log` in the config"),
                )
        elif is_eval_log(log.id):
            results, invalid = read_results(chunk.lines)
            text = f"{counted(len(results), 'result')} in its last {counted(len(chunk.lines), 'line')}"
            fix = "docs/evals.md has the format of its lines" if invalid else ""
            yield Row("bad" if invalid else "ok", host, log.pattern, text, fix)
        else:
            same = [one for one, other in output.logs.items() if one != log.id and other.path == chunk.path]
            yield Row(
                "note" if same else "ok",
                host,
                log.pattern,
                f"followed: {chunk.path}"
                + f", also for {', '.join(one.removeprefix(ON_NODE) for one in same)}" * bool(same),
                "give each run a `log` of its own" * bool(same),
            )
            yield checks.check(host, log.id.removeprefix(ON_NODE), chunk)


def _disks(host: str, spec: Spec, output: ProbeOutput) -> Iterator[Row]:
    for path in spec.disks:
        disk = output.disks.get(path)
        if disk is None or disk.state == "hung":
            yield Row(
                "bad",
                host,
                path,
                "does not answer",
                f"its file server may be down; if so, `df {path}` on {host} hangs as well",
            )
        elif disk.state == "error":
            yield Row("bad", host, path, disk.error or "cannot be read", "fix the path in the config")
        else:
            yield Row("ok", host, path, f"{disk.filesystem or 'a disk'} at {disk.mount or path}")


def _trainers(host: str, output: ProbeOutput, runs: Sequence[RunSpec]) -> Iterator[Row]:
    """Whether the trainers look at the switches of the config, as their status files say. A missing file is no fault:
    few trainers have trainmon_hooks."""
    for run in runs:
        file = status_file(run)
        content = None if file is None else output.files.get(file.id)
        if file is None or content is None:
            continue
        trainer = read_status(content, host, 0.0)
        if trainer is None:
            if content.error is None:
                yield Row(
                    "bad", host, file.pattern, "is no status file of trainmon_hooks", "fix `status` in the config"
                )
            continue
        others = other_switches(run, trainer)
        for kind, ours, theirs in others:
            text = f"the trainer of {run.name} does not look at it, but at {theirs or 'no ' + kind + ' switch'}"
            fix = (
                f"set {kind}_switch in the config, or TRAINMON_{kind.upper()} of the trainer, so that both are the same"
            )
            yield Row("bad", host, ours, clean(text), fix)
        if not others:
            yield Row("ok", host, file.pattern, f"the trainer of {run.name} looks at the same switches")


def _receipts(host: str, spec: Spec, output: ProbeOutput) -> Iterator[Row]:
    """The directories of receipts. Without a setting, there may be none."""
    for path in spec.receipts:
        found = output.receipts.get(path)
        why = "does not answer" if found is None else found.error
        is_missing = says(why, "missing")
        if is_missing and path:
            yield Row("note", host, path, why or "", "trainmon-run creates it when it first runs with --receipts")
        elif why is not None and not is_missing:
            subject = path or "receipts of trainmon-run"
            yield Row("bad", host, subject, f"cannot be read: {why}", "ask for r and x permission")
        elif path:
            yield Row("ok", host, path, "receipts can be read")


def client_file_row(host: str, wanted: WandbDirectory, found: WandbRows | None) -> Row:
    """What was found in the directory of a W&B client. Before the first run it may not exist."""
    where, what = wanted.directory, f"W&B files of {wanted.id}"
    if found is None:
        return Row("bad", host, what, f"{where} does not answer", "its file server may be down")
    if found.error is not None or found.path is None:
        why = clean(found.error or f"{where}: no file")
        fix = f"start the run {wanted.id}, or fix its `wandb_dir` in the config: the directory `wandb` of its client"
        return Row("bad" if found.path else "note", host, what, why, fix)
    rows = f"{counted(found.rows, 'row')} in the first {size(found.offset)} of {size(found.size)}"
    damaged = f", {counted(found.damaged, 'damaged part')} skipped" if found.damaged else ""
    is_old = found.mtime is not None and found.t - found.mtime >= client_file.QUIET
    cut = ", ends in an incomplete record" if found.tail and is_old else ""
    curves = f", {counted(len(client_file.points_of(found)), 'curve')}"
    return Row("ok", host, what, clean(f"{found.path}: {rows}{curves}{damaged}{cut}"))


# ---- what is read in the logs of all hosts ---------------------------------------------------------------------------


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
