"""The stream of one running probe: bytes to lines to readings."""

from __future__ import annotations

from typing import Protocol

import msgspec

from collectors.probe import bundle
from trainmon.lib import HostUnreachable, Seconds, TrainmonError, clean, scrub
from trainmon.model import DECODER, AnyReading, Bye
from trainmon.transport.shell import Stream

LONGEST_LINE = 1 << 20
"""Bytes of one line; 56 MIG devices have made lines of more than 64 KiB."""


class ProbeListener(Protocol):
    """Receives a probe's output, on the event loop's thread. NodeCollector implements it."""

    name: str

    def monotonic(self) -> Seconds: ...

    def on_greeting(self, stream: ProbeStream) -> None: ...

    def on_reading(self, stream: ProbeStream, reading: AnyReading) -> None: ...

    def on_end(self, stream: ProbeStream, error: TrainmonError, *, was_silent: bool) -> None: ...


class ProbeStream:
    """The Sink of one running probe: bytes to lines to readings. A line that cannot be decoded is counted."""

    def __init__(self, listener: ProbeListener) -> None:
        self.command: Stream | None = None
        self.received_at = listener.monotonic()
        self.greeting: bytes | None = None
        self.is_served = False
        """Whether its code and its first spec were sent."""
        self.bad_lines = 0
        self.stderr: str | None = None
        self.reported: tuple[int, str | None] = (0, None)
        self._listener = listener
        self._rest = b""
        self._skipping = False
        self._exit_reason: str | None = None
        self._has_output = False

    def write(self, data: bytes) -> None:
        if self.command is not None:
            self.command.write(data)

    def received(self, data: bytes) -> None:
        self.received_at = self._listener.monotonic()
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > LONGEST_LINE:
            rest, self._skipping = b"", True
            self.bad_lines += 1
        self._rest = rest
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif line:
                self._read(line)

    def _read(self, line: bytes) -> None:
        if self.greeting is None and line.startswith(bundle.GREETING):
            self.greeting = line
            self._listener.on_greeting(self)
            return
        try:
            reading = DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.bad_lines += 1
            return
        self._has_output = True
        if isinstance(reading, Bye):
            self._exit_reason = clean(reading.why)
        self._listener.on_reading(self, reading)

    def stderr_received(self, data: bytes) -> None:
        lines = data.decode("utf-8", "replace").strip().splitlines()
        if lines:
            self.stderr = scrub(clean(lines[-1], 300))

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        # Above 127 a signal ended it: the interpreter may be fine.
        was_silent = error is None and status is not None and 0 < status < 128 and not self._has_output
        self._listener.on_end(self, error or self._failure(status), was_silent=was_silent)

    def _failure(self, status: int | None) -> TrainmonError:
        reason = self._exit_reason or self.stderr
        detail = f": {reason}" if reason else ""
        return HostUnreachable(self._listener.name, f"its probe ended with status {status}{detail}")
