"""A benchmark as a program: what it has started ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from tests.lab.processes import descendants

ENDINGS = (signal.SIGTERM, signal.SIGINT)


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Exit with what `main` returns. On SIGTERM and Ctrl+C, what it has started is killed, and `main` sees SystemExit.

    Each line is printed at once: whoever ends it has what was measured until then.
    """
    exit_on_signals(kill_descendants)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main())


def exit_on_signals(first: Callable[[], object] = lambda: None) -> None:
    """On the first SIGTERM or Ctrl+C, do this and raise SystemExit. `timeout` sends two: others are ignored."""

    def end(number: int, _frame: object) -> NoReturn:
        for one in ENDINGS:
            signal.signal(one, signal.SIG_IGN)
        first()
        raise SystemExit(128 + number)

    for number in ENDINGS:
        signal.signal(number, end)


def kill_descendants() -> None:
    for pid in descendants(os.getpid()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
