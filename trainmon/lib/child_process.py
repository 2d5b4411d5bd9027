"""Runs a child process with a timeout, from input bytes to output bytes, and kills its whole session at the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

import msgspec

from trainmon.lib.clock import Seconds
from trainmon.lib.deadline import DeadlineExceeded, DeadlineRunner

OUTPUT_BYTES = 16_000_000
SETTLE: Seconds = 1.0


class ChildResult(msgspec.Struct, frozen=True):
    """The exit status and the output."""

    status: int
    """Negative: the signal that ended it."""
    output: bytes
    errors: bytes


class ChildRunner:
    """Runs one child at a time. Secrets go into `given`, its standard input, never into its arguments."""

    def __init__(self, name: str) -> None:
        self._box: DeadlineRunner[ChildResult] = DeadlineRunner(f"child-{name}")

    def run(
        self, argv: Sequence[str], given: bytes, within: Seconds, environ: Mapping[str, str] | None = None
    ) -> ChildResult:
        """Raises Overdue, and OSError where it cannot be started."""
        # Even the start of a program on a hanging disk may not return.
        return self._box.call(lambda: _run(argv, given, within, environ), within + SETTLE)


def _run(argv: Sequence[str], given: bytes, within: Seconds, environ: Mapping[str, str] | None) -> ChildResult:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        list(argv), stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True, close_fds=True
    )
    try:
        output, errors = process.communicate(given, timeout=within)
    except subprocess.TimeoutExpired:
        raise DeadlineExceeded from None
    finally:
        end(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
    return ChildResult(process.returncode, output[:OUTPUT_BYTES], errors[:OUTPUT_BYTES])


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and its whole session: a grandchild may still run."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(SETTLE)
