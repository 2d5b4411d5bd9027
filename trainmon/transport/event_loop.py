"""The thread that does the I/O of all commands: a selector over pipes and sockets, callbacks, and timers.

SSH channels use no descriptor of their own. paramiko tells a channel's stream that it has bytes, the stream calls
`call_soon`, and one pipe wakes the loop for all of them. An idle loop sleeps until its next timer.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import IO

from trainmon.lib import Seconds
from trainmon.lib.threads import kill_session

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE

Callback = Callable[[], None]

GRACE_PERIOD: Seconds = 0.2
"""When the loop stops, children that are ending have this long; then their sessions are killed."""

_log = logging.getLogger("trainmon.transport.event_loop")
_log.addHandler(logging.NullHandler())


class EventLoop:
    """One thread for all streams. Every method may be called from any thread and returns at once."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._selector.register(self._wake_read, READ, lambda _events: os.read(self._wake_read, 4096))
        self._lock = threading.Lock()
        self._ready: dict[Callback, None] = {}
        self._gathered: dict[Callback, None] = {}
        self._woken = False
        self._timers: list[tuple[Seconds, int, Callback]] = []
        self._numbers = itertools.count()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopping: Seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="event loop", daemon=True)

    def start(self) -> None:
        """Start the thread, unless it was started before. The same thread calls it each time."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """End the thread; waits at most a second for the callback that is running."""
        with self._lock:
            self._stopping = time.monotonic()
        self._wake()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def call_soon(self, callback: Callback) -> None:
        """Run a callback on the loop's thread. A callback that is already queued runs once."""
        with self._lock:
            self._ready[callback] = None
            if self._woken:
                return
            self._woken = True
        self._wake()

    def call_later(self, delay: Seconds, callback: Callback) -> None:
        """Run a callback on the loop's thread after a delay."""
        when = time.monotonic() + delay
        with self._lock:
            is_first = not self._timers or when < self._timers[0][0]
            heapq.heappush(self._timers, (when, next(self._numbers), callback))
        if is_first:
            self._wake()

    def call_gathered(self, delay: Seconds, callback: Callback) -> None:
        """Run a callback on the loop's thread after this delay at most, together with all others that come until then:
        one wake-up serves many streams. A callback that is already queued runs once."""
        with self._lock:
            is_first = not self._gathered
            self._gathered[callback] = None
        if is_first:
            self.call_later(delay, self._run_gathered)

    def register(self, fd: int, ready: Callable[[int], None], events: int = READ) -> None:
        """Call ready(events) on the loop's thread whenever fd is readable (or writable), until it is unregistered.

        The caller unregisters a descriptor before closing it.
        """
        with self._lock:
            if fd in self._selector.get_map():
                self._selector.modify(fd, events, ready)
            else:
                self._selector.register(fd, events, ready)

    def unregister(self, fd: int) -> None:
        with self._lock, contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(fd)

    def reap(self, child: subprocess.Popen[bytes]) -> None:
        """Wait for a child that is ending, in a session of its own, and for its pipes, which its stream closes. If the
        loop stops first, it kills the child and closes them."""
        with self._lock:
            self._children.add(child)
        self.call_later(0.01, lambda: self._poll(child, 0.02))

    def _poll(self, child: subprocess.Popen[bytes], wait: Seconds) -> None:
        if child.poll() is None or any(not pipe.closed for pipe in pipes_of(child)):
            self.call_later(wait, lambda: self._poll(child, min(2 * wait, 5.0)))
        else:
            with self._lock:
                self._children.discard(child)

    def _wake(self) -> None:
        # A full pipe (BlockingIOError) wakes just as well; a closed one means that the loop has ended.
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"!")

    def _run(self) -> None:
        while True:
            for key, events in self._selector.select(self._timeout()):
                self._call(partial(key.data, events))
            with self._lock:
                if self._stopping and (not self._children or time.monotonic() > self._stopping + GRACE_PERIOD):
                    break
                callbacks, self._ready, self._woken = self._ready, {}, False
            for callback in callbacks:
                self._call(callback)
            self._run_timers()
        for child in self._children:
            if child.returncode is None:
                kill_session(child)
            for pipe in pipes_of(child):
                pipe.close()
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _timeout(self) -> Seconds | None:
        with self._lock:
            if self._ready or (self._stopping and not self._children):
                return 0.0
            deadlines = [self._timers[0][0]] if self._timers else []
            if self._stopping:
                deadlines.append(self._stopping + GRACE_PERIOD)
            return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _run_timers(self) -> None:
        while True:
            with self._lock:
                if not self._timers or self._timers[0][0] > time.monotonic():
                    return
                callback = heapq.heappop(self._timers)[2]
            self._call(callback)

    def _run_gathered(self) -> None:
        with self._lock:
            callbacks, self._gathered = self._gathered, {}
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callback) -> None:
        try:
            callback()
        except Exception:
            # One broken stream stays one broken stream: the loop serves all the others.
            _log.exception("a callback of the event loop failed")


def pipes_of(child: subprocess.Popen[bytes]) -> list[IO[bytes]]:
    """The pipes between a child and this program, its input first."""
    return [pipe for pipe in (child.stdin, child.stdout, child.stderr) if pipe is not None]


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one (macOS starts at 256). Returns the limit that holds now."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            target = max(soft, 65_536 if hard == resource.RLIM_INFINITY else hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
