"""The stream of one running probe: bytes to lines to readings."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from collectors.probe import bundle
from trainmon.lib import Clock, HostUnreachable, Seconds, TrainmonError, clean, duration, last_line, size
from trainmon.model import DECODER, AnyReading, Bye
from trainmon.transport.shell import Stream, Transit

LONGEST_PREAMBLE = 4_096
"""Bytes of an unfinished line that are kept before the greeting."""
LONGEST_LINE = 1 << 20
"""Bytes of one line; 56 MIG devices have made lines of more than 64 KiB."""
MOST_WITHOUT_READING = 2 * LONGEST_LINE
"""Bytes without a reading, such as those of a login script that prints without an end: decoding such lines as fast as
they came took half a core."""

START_TIMEOUT: Seconds = 600.0
"""Seconds without a first reading after which a probe is restarted. From a busy network file system, Python may need
minutes for its start. A restart sooner would begin these minutes again, each time."""
SLOW_START: Seconds = 15.0
"""Seconds after which a probe that has not started is reported: a cold Python has taken 8 s, and NVML as long."""


class ProbeStream:
    """The Sink of one running probe. Callbacks run on the event loop's thread. Undecodable lines are counted."""

    def __init__(
        self,
        host: str,
        clock: Clock,
        on_greeting: Callable[[ProbeStream], None],
        on_reading: Callable[[ProbeStream, AnyReading], None],
        on_end: Callable[[ProbeStream, TrainmonError, bool], None],
        start_hint: str = "",
    ) -> None:
        """`on_end` gets the error, and whether the probe failed without any output. `start_hint`: what to do when it
        does not start."""
        self.command: Stream | None = None
        self.received_at = self.started_at = clock.monotonic()
        self.greeting: bytes | None = None
        self.preamble = ""
        """The first line that a login script printed before the greeting."""
        self.is_served = False
        """Whether its code and its first spec were sent."""
        self.bad_lines = 0
        self.stderr: str | None = None
        self.reported: tuple[int, str | None] = (0, None)
        self._host, self._clock = host, clock
        self.waiting_hint = self._start_hint = start_hint
        self._starting = "connected, but its probe"
        self._on_greeting, self._on_reading, self._on_end = on_greeting, on_reading, on_end
        self._rest = b""
        self._skipping = False
        self._exit_reason: str | None = None
        self._has_output = False
        self._unread = 0
        """Bytes since the last reading, or before the first one."""

    @property
    def output(self) -> str:
        """What it has printed that is no reading: why it ends, or the reason of a start that failed. Empty: nothing."""
        printed = "" if self.greeting else self.preamble or last_line(self._rest)
        return self._exit_reason or self.stderr or printed

    @property
    def transit(self) -> Transit:
        return Transit() if self.command is None else self.command.transit

    def write(self, data: bytes) -> None:
        if self.command is not None:
            self.command.write(data)

    def received(self, data: bytes) -> None:
        self.received_at = self._clock.monotonic()
        *lines, rest = (self._rest + data).split(b"\n")
        if self.greeting is None:
            lines = self._after_greeting(lines)
            rest = rest if self.greeting else rest[-LONGEST_PREAMBLE:]
        if len(rest) > LONGEST_LINE:
            rest, self._skipping = b"", True
            self.bad_lines += 1
        self._rest = rest
        for line in lines:
            if self._skipping:
                self._skipping = False
            elif line:
                self._decode(line)
        self._limit(data)

    def _limit(self, data: bytes) -> None:
        """Give up a host that prints much and no reading: each byte costs, and the pause before the next try grows."""
        self._unread += len(data)
        if self._unread > MOST_WITHOUT_READING:
            words = self.preamble or self.stderr or last_line(data)
            message = f"{size(self._unread)} of other output instead of readings: {words}"
            hint = f"{self._host} must not print endlessly when a login has no terminal; see ~/.bashrc there"
            self._on_end(self, HostUnreachable(self._host, message, hint=hint), False)

    def not_started(self, now: Seconds) -> str | None:
        """For how long it has not started, in a sentence that changes once a minute; None if that is usual."""
        if self.transit.unsent:
            self.started_at = now
        waited = now - self.started_at
        shown = SLOW_START if waited < 60.0 else min(waited // 60.0 * 60.0, START_TIMEOUT)
        return f"{self._starting} has not started for {duration(shown)}" if waited > SLOW_START else None

    def awaits_step(self, job: int) -> None:
        """srun starts it in a step of a job: that may wait for the job."""
        self._starting = f"the step of job {job}"
        self.waiting_hint = f"no step starts in a suspended job; try: squeue --jobs={job}"

    def _after_greeting(self, lines: list[bytes]) -> list[bytes]:
        """The lines after the greeting. A login script may print before it, also without a line feed at the end."""
        for number, line in enumerate(lines):
            before, greeting, interpreter = line.partition(bundle.GREETING)
            self.preamble = self.preamble or last_line(before)
            if greeting:
                self.greeting = greeting + interpreter
                self._on_greeting(self)
                return lines[number + 1 :]
        return []

    def _decode(self, line: bytes) -> None:
        try:
            reading = DECODER.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.bad_lines += 1
            return
        self._has_output, self._unread = True, 0
        if isinstance(reading, Bye):
            self._exit_reason = clean(reading.why)
        self._on_reading(self, reading)

    def stderr_received(self, data: bytes) -> None:
        self.stderr = last_line(data) or self.stderr
        self._limit(data)

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        # Above 127 a signal ended it: the interpreter may be fine.
        was_silent = error is None and status is not None and 0 < status < 128 and not self._has_output
        if error is None:
            detail = f": {self.output}" if self.output else ""
            hint = "" if self.greeting else self._start_hint
            error = HostUnreachable(self._host, f"its probe ended with status {status}{detail}", hint=hint)
        self._on_end(self, error, was_silent)
