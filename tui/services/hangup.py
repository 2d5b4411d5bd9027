"""A terminal that goes away: leave at once, whatever is still written to it."""

from __future__ import annotations

import errno
import os
import signal
import termios
from collections.abc import Callable

STREAMS = (0, 1, 2)


def on_hang_up(leave: Callable[[], object]) -> None:
    """Call `leave` on SIGHUP.

    The kernel sends SIGCONT right after it, upon which Textual's driver starts the terminal anew: its thread that
    writes then dies of the first write, and the exit waits for ever for room in that thread's queue (1 in 10 lost
    connections). So this is a handler of Python's own, which runs before that of SIGCONT, not one of the loop's.
    """

    def hung_up(*_: object) -> None:
        _swallow([stream for stream in STREAMS if _is_gone(stream)])
        leave()

    signal.signal(signal.SIGHUP, hung_up)


def _is_gone(stream: int) -> bool:
    """Whether it is a terminal that was hung up; one that is only told to leave is still to be restored."""
    try:
        termios.tcgetattr(stream)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False


def _swallow(streams: list[int]) -> None:
    """Whatever is written there from now on is lost, and no write fails."""
    if streams:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in streams:
            os.dup2(nothing, stream)
        os.close(nothing)
