"""A terminal that hangs up: the program exits at once, whatever it still writes."""

from __future__ import annotations

import errno
import os
import signal
import termios
from collections.abc import Callable

STREAMS = (0, 1, 2)


def on_hang_up(leave: Callable[[], object]) -> None:
    """Call `leave` on SIGHUP.

    The kernel sends SIGCONT right after SIGHUP. On SIGCONT, Textual's driver restarts the terminal. Its writer thread
    then dies of the first write, and the exit waits for ever on that thread's full queue (1 in 10 lost connections).
    So this is a signal handler of Python, which runs before that of SIGCONT, and not one of the event loop.
    """

    def hung_up(*_: object) -> None:
        if gone := [stream for stream in STREAMS if _is_gone(stream)]:
            # What is written there from now on is lost, and no write fails.
            null = os.open(os.devnull, os.O_RDWR)
            for stream in gone:
                os.dup2(null, stream)
            os.close(null)
        leave()

    signal.signal(signal.SIGHUP, hung_up)


def _is_gone(stream: int) -> bool:
    """Whether the terminal has hung up. After a SIGHUP alone, the terminal is still there and must be restored."""
    try:
        termios.tcgetattr(stream)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False
