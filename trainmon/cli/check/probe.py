"""One short round of the probe on one host: start it, read until everything asked for has been told, end it."""

from __future__ import annotations

import threading
import time

import msgspec

from collectors.probe import bundle
from trainmon.lib import Seconds, TrainmonError, clean, scrub
from trainmon.model import (
    DECODER,
    DiskSample,
    DiskSamples,
    GpuFactsAll,
    GpuSamples,
    Hello,
    HostSample,
    LogChunk,
    Spec,
    SwitchSample,
    SwitchSamples,
    Trouble,
)
from trainmon.transport.shell import Shell

LONGEST_LINE = 1 << 20

WITHOUT_GPUS = ("none", "sh")
"""Probes that never say anything of GPUs; without Python there are no logs and switches either."""


class Round:
    """The Sink of one probe, and what it has said so far."""

    def __init__(self, spec: Spec) -> None:
        self.hello: Hello | None = None
        self.host: HostSample | None = None
        self.facts: GpuFactsAll | None = None
        self.gpus: GpuSamples | None = None
        self.disks: dict[str, DiskSample] = {}
        self.logs: dict[str, LogChunk] = {}
        self.switches: dict[str, SwitchSample] = {}
        self.troubles: dict[str, str] = {}
        self.stderr = ""
        self.end: str | None = None
        self.greeting = b""
        self.greeted = threading.Event()
        self.over = threading.Event()
        self._spec = spec
        self._rest = b""

    def received(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[:LONGEST_LINE]
        for line in lines:
            self._read(line)
        if self._is_complete():
            self.over.set()

    def stderr_received(self, data: bytes) -> None:
        lines = data.decode("utf-8", "replace").strip().splitlines()
        if lines:
            self.stderr = scrub(clean(lines[-1], 300))

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        self.end = str(error) if error else f"it ended with status {status}"
        self.over.set()
        self.greeted.set()

    def _read(self, line: bytes) -> None:
        if not self.greeting and line.startswith(bundle.GREETING):
            self.greeting = line
            self.greeted.set()
            return
        try:
            reading = DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            # A login script may print a greeting before the probe speaks.
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
            case Trouble(text=str(text)):
                self.troubles[reading.part] = clean(text)

    def _is_complete(self) -> bool:
        hello, spec = self.hello, self._spec
        return (
            hello is not None
            and self.host is not None
            and (hello.probe in WITHOUT_GPUS or (self.facts is not None and self.gpus is not None))
            and self.disks.keys() >= set(spec.disks)
            and (hello.python is None or self.logs.keys() >= {log.id for log in spec.logs})
            and (hello.python is None or self.switches.keys() >= set(spec.switches))
        )


def one_round(shell: Shell, spec: Spec, python: str, timeout: Seconds) -> Round:
    """Run the probe until it has told everything in the spec, or ended, or the time is over.

    Where the interpreter ends without a word, the shell's fallback stands in, as it does in the dashboard.
    """
    heard = _round(shell, spec, python, timeout)
    if heard.hello is None and heard.end is not None and python != bundle.NO_PYTHON:
        instead = _round(shell, spec, bundle.NO_PYTHON, timeout)
        return instead if instead.hello is not None else heard
    return heard


def _round(shell: Shell, spec: Spec, python: str, timeout: Seconds) -> Round:
    heard = Round(spec)
    stream = shell.stream(bundle.command(python), heard)
    until = time.monotonic() + timeout
    if heard.greeted.wait(timeout) and not heard.over.is_set():
        stream.write(bundle.payload(heard.greeting) + bundle.spec_line(spec))
        heard.over.wait(max(0.0, until - time.monotonic()))
    stream.close()
    return heard
