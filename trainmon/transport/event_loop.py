"""The one thread that waits for every node: a selector over pipes and sockets, what asks to be looked at, and timers.

SSH channels cost no descriptor here: paramiko tells a channel's feed that it has bytes, the feed asks to be looked at
(`soon`), and one pipe wakes the loop for all of them. An idle loop sleeps until its next timer.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial

from trainmon.lib import Seconds

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Task = Callable[[], None]

FAREWELL: Seconds = 0.2
"""At the end, children that are ending anyway have this long; then their sessions are killed."""

_log = logging.getLogger("trainmon.transport.event_loop")
_log.addHandler(logging.NullHandler())


class Timer:
    """A task for later; cancel() takes it back."""

    __slots__ = ("task", "when")

    def __init__(self, when: Seconds, task: Task) -> None:
        self.when = when
        self.task: Task | None = task

    def cancel(self) -> None:
        self.task = None


class EventLoop:
    """One thread for all streams. Every method may be called from any thread and returns at once."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, READ, None)
        self._lock = threading.Lock()
        self._soon: dict[Task, None] = {}
        self._woken = False
        self._timers: list[tuple[Seconds, int, Timer]] = []
        self._numbers = itertools.count()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopping: Seconds = 0.0
        self._thread = threading.Thread(target=self._loop, name="reader", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits at most a second for the callback it is in."""
        with self._lock:
            self._stopping = time.monotonic()
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def soon(self, task: Task) -> None:
        """Run a task on the reader's thread; asked twice before it ran, it runs once."""
        with self._lock:
            self._soon[task] = None
            if self._woken:
                return
            self._woken = True
        self._wake()

    def later(self, delay: Seconds, task: Task) -> Timer:
        """Run a task on the reader's thread after a delay."""
        timer = Timer(time.monotonic() + delay, task)
        with self._lock:
            heapq.heappush(self._timers, (timer.when, next(self._numbers), timer))
            first = self._timers[0][2] is timer
        if first:
            self._wake()
        return timer

    def watch(self, fd: int, ready: Callable[[int], None], events: int = READ) -> None:
        """Call ready(events) on the reader's thread whenever fd is readable (or writable), until it is forgotten.

        The caller forgets a descriptor before closing it.
        """
        with self._lock:
            if fd in self._selector.get_map():
                self._selector.modify(fd, events, ready)
            else:
                self._selector.register(fd, events, ready)

    def forget(self, fd: int) -> None:
        with self._lock, contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    def adopt(self, child: subprocess.Popen[bytes]) -> None:
        """Reap a child that is ending, in a session of its own; none outlives the reader."""
        with self._lock:
            self._children.add(child)
        self.later(0.01, lambda: self._reap(child, 0.02))

    def _reap(self, child: subprocess.Popen[bytes], wait: Seconds) -> None:
        if child.poll() is None:
            self.later(wait, lambda: self._reap(child, min(2 * wait, 5.0)))
        else:
            with self._lock:
                self._children.discard(child)

    def _wake(self) -> None:
        # A full pipe (BlockingIOError) wakes just as well; a closed one means that the loop has ended.
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"!")

    def _loop(self) -> None:
        while True:
            for key, events in self._selector.select(self._patience()):
                if key.data is None:
                    self._drain()
                else:
                    self._call(partial(key.data, events))
            with self._lock:
                if self._stopping and (not self._children or time.monotonic() > self._stopping + FAREWELL):
                    break
                tasks, self._soon, self._woken = self._soon, {}, False
            for task in tasks:
                self._call(task)
            self._ring()
        self._part()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)

    def _patience(self) -> Seconds | None:
        with self._lock:
            if self._soon or (self._stopping and not self._children):
                return 0.0
            first = self._timers[0][0] if self._timers else None
            if self._stopping:
                first = min(first or self._stopping + FAREWELL, self._stopping + FAREWELL)
            return max(0.0, first - time.monotonic()) if first is not None else None

    def _ring(self) -> None:
        while True:
            with self._lock:
                if not self._timers or self._timers[0][0] > time.monotonic():
                    return
                timer = heapq.heappop(self._timers)[2]
            if timer.task is not None:
                self._call(timer.task)

    def _part(self) -> None:
        for child in self._children:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(FAREWELL)

    def _call(self, task: Task) -> None:
        try:
            task()
        except Exception:
            # One broken stream stays one broken stream: the loop serves all the others.
            _log.exception("a task of the reader failed")


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one (macOS starts at 256); returns what holds now."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        wanted = hard if hard != resource.RLIM_INFINITY else 65_536
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(wanted, soft), hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
