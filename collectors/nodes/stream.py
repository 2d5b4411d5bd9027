"""The stream of one running probe: bytes to lines to readings."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from collectors.probe import bundle
from trainmon.lib import Clock, HostUnreachable, TrainmonError, clean, last_line
from trainmon.model import DECODER, AnyReading, Bye
from trainmon.transport.shell import Stream

LONGEST_LINE = 1 << 20
"""Bytes of one line; 56 MIG devices have made lines of more than 64 KiB."""


class ProbeStream:
    """The Sink of one running probe. Callbacks run on the event loop's thread. Undecodable lines are counted."""

    def __init__(
        self,
        host: str,
        clock: Clock,
        on_greeting: Callable[[ProbeStream], None],
        on_reading: Callable[[ProbeStream, AnyReading], None],
        on_end: Callable[[ProbeStream, TrainmonError, bool], None],
    ) -> None:
        """`on_end` gets the error, and whether the probe failed without any output."""
        self.command: Stream | None = None
        self.received_at = clock.monotonic()
        self.greeting: bytes | None = None
        self.is_served = False
        """Whether its code and its first spec were sent."""
        self.bad_lines = 0
        self.stderr: str | None = None
        self.reported: tuple[int, str | None] = (0, None)
        self._host, self._clock = host, clock
        self._on_greeting, self._on_reading, self._on_end = on_greeting, on_reading, on_end
        self._rest = b""
        self._skipping = False
        self._exit_reason: str | None = None
        self._has_output = False

    def write(self, data: bytes) -> None:
        if self.command is not None:
            self.command.write(data)

    def received(self, data: bytes) -> None:
        self.received_at = self._clock.monotonic()
        *lines, rest = (self._rest + data).split(b"\n")
        if len(rest) > LONGEST_LINE:
            rest, self._skipping = b"", True
            self.bad_lines += 1
        self._rest = rest
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif self.greeting is None and line.startswith(bundle.GREETING):
                self.greeting = line
                self._on_greeting(self)
            elif line:
                self._decode(line)

    def _decode(self, line: bytes) -> None:
        try:
            reading = DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.bad_lines += 1
            return
        self._has_output = True
        if isinstance(reading, Bye):
            self._exit_reason = clean(reading.why)
        self._on_reading(self, reading)

    def stderr_received(self, data: bytes) -> None:
        self.stderr = last_line(data) or self.stderr

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        # Above 127 a signal ended it: the interpreter may be fine.
        was_silent = error is None and status is not None and 0 < status < 128 and not self._has_output
        if error is None:
            reason = self._exit_reason or self.stderr
            detail = f": {reason}" if reason else ""
            error = HostUnreachable(self._host, f"its probe ended with status {status}{detail}")
        self._on_end(self, error, was_silent)
