"""The stream of one running probe: bytes to lines to readings."""

from __future__ import annotations

from typing import Protocol

import msgspec

from collectors.probe import bundle
from trainmon.lib import HostUnreachable, Seconds, TrainmonError, clean, scrub
from trainmon.model import DECODER, AnyReading, Bye
from trainmon.transport.shell import Stream

LONGEST_LINE = 1 << 20
"""Bytes of one line; 56 MIG devices have made lines of more than 64 KiB elsewhere."""


class Listener(Protocol):
    """Who looks after a host: told of what its probe says, on the event loop's thread."""

    name: str

    def monotonic(self) -> Seconds: ...

    def greeted(self, feed: ProbeStream) -> None: ...

    def heard(self, feed: ProbeStream, reading: AnyReading) -> None: ...

    def ended(self, feed: ProbeStream, error: TrainmonError, *, said_nothing: bool) -> None: ...


class ProbeStream:
    """The Sink of one running probe: bytes to lines to readings. A line that is not understood is counted."""

    def __init__(self, watch: Listener) -> None:
        self.stream: Stream | None = None
        self.heard_at = watch.monotonic()
        self.greeting: bytes | None = None
        self.is_served = False
        """Whether its code and its first spec are on their way."""
        self.bad_lines = 0
        self.stderr: str | None = None
        self.told: tuple[int, str | None] = (0, None)
        self._watch = watch
        self._rest = b""
        self._skipping = False
        self._bye: str | None = None
        self._spoke = False

    def write(self, data: bytes) -> None:
        if self.stream is not None:
            self.stream.write(data)

    def received(self, data: bytes) -> None:
        self.heard_at = self._watch.monotonic()
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
            self._watch.greeted(self)
            return
        try:
            reading = DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.bad_lines += 1
            return
        self._spoke = True
        if isinstance(reading, Bye):
            self._bye = clean(reading.why)
        self._watch.heard(self, reading)

    def stderr_received(self, data: bytes) -> None:
        lines = data.decode("utf-8", "replace").strip().splitlines()
        if lines:
            self.stderr = scrub(clean(lines[-1], 300))

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        # Above 127 a signal ended it, which says nothing of the interpreter.
        said_nothing = error is None and status is not None and 0 < status < 128 and not self._spoke
        self._watch.ended(self, error or self._why(status), said_nothing=said_nothing)

    def _why(self, status: int | None) -> TrainmonError:
        said = self._bye or self.stderr
        told = f": {said}" if said else ""
        return HostUnreachable(self._watch.name, f"its probe ended with status {status}{told}")
