"""Runs the probe once on one host: starts it, reads until everything requested has arrived, and ends it."""

from __future__ import annotations

import threading
import time

import msgspec

from collectors.nodes.steps.step import SHARES_GPUS
from collectors.probe import bundle
from trainmon.lib import Seconds, TrainmonError, clean, last_line, scrub
from trainmon.model import (
    DECODER,
    PROBES_WITHOUT_GPUS,
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

LONGEST_LINE = 1 << 20


class ProbeOutput:
    """Collects the output of one probe."""

    def __init__(self, spec: Spec) -> None:
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
        self.stderr = ""
        self.end: str | None = None
        self.greeting = b""
        self.has_started = threading.Event()
        self.has_ended = threading.Event()
        self._spec = spec
        self._rest = b""

    def received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LONGEST_LINE]
        for line in lines:
            self._read(line)
        hello, spec = self.hello, self._spec
        if (
            hello is not None
            and self.host is not None
            and self._has_gpus(hello)
            and self.disks.keys() >= set(spec.disks)
            and (hello.python is None or self.logs.keys() >= {log.id for log in spec.logs})
            and (hello.python is None or self.switches.keys() >= set(spec.switches))
            and (hello.python is None or self.receipts.keys() >= set(spec.receipts))
            and (hello.python is None or self.files.keys() >= {file.id for file in spec.files})
            and (hello.python is None or self.wandb.keys() >= {one.id for one in spec.wandb})
        ):
            self.has_ended.set()

    def _has_gpus(self, hello: Hello) -> bool:
        """Whether the GPUs have reported, or there are none. NVML's list is complete."""
        facts = self.facts
        is_empty = hello.probe == "nvml" and facts is not None and not facts.g
        return hello.probe in PROBES_WITHOUT_GPUS or is_empty or (facts is not None and self.gpus is not None)

    def stderr_received(self, data: bytes) -> None:
        self.stderr = last_line(data) or self.stderr

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        self.end = str(error) if error else f"it ended with status {status}"
        self.has_ended.set()
        self.has_started.set()

    def _read(self, line: bytes) -> None:
        before, greeting, interpreter = line.partition(bundle.GREETING)
        if not self.greeting and greeting:  # a login script may print before it
            self.greeting, line = greeting + interpreter, before
            self.has_started.set()
        if not line:
            return
        try:
            reading = DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.stderr = self.stderr or scrub(clean(line.decode("utf-8", "replace"), 300))
            return
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
    output = ProbeOutput(spec)
    stream = shell.stream(bundle.command(python), output)
    until = time.monotonic() + timeout
    if output.has_started.wait(timeout) and not output.has_ended.is_set():
        stream.write(bundle.payload(output.greeting) + bundle.spec_line(spec))
        output.has_ended.wait(max(0.0, until - time.monotonic()))
    stream.close()
    return output
