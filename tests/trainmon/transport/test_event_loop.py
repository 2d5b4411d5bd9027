"""The event loop: many descriptors, timers, broken callbacks, and its children at the end."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import threading
import time
from functools import partial

from tests.end_to_end.product import QUICK
from tests.lab.sshd import until
from trainmon.transport.event_loop import WRITE, EventLoop, raise_descriptor_limit


def wait_for(gate: threading.Event) -> None:
    gate.wait(10)


def test_more_than_1024_descriptors_are_read(loop: EventLoop) -> None:
    raise_descriptor_limit()
    received: set[int] = set()

    def hear(number: int, fd: int, _events: int) -> None:
        os.read(fd, 1)
        received.add(number)

    pipes = [os.pipe() for _ in range(1_100)]
    try:
        assert max(write for _, write in pipes) > 2_000
        for number, (read, _) in enumerate(pipes):
            loop.register(read, partial(hear, number, read))
        for _, write in pipes:
            os.write(write, b"!")
        until(lambda: len(received) == len(pipes), "every pipe is heard")
    finally:
        for ends in pipes:
            loop.unregister(ends[0])
            for end in ends:
                os.close(end)


def test_the_descriptor_limit_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        assert raise_descriptor_limit() == before[1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_task_requested_many_times_runs_once(loop: EventLoop) -> None:
    ran: list[int] = []
    gate = threading.Event()
    loop.call_soon(partial(wait_for, gate))

    def task() -> None:
        ran.append(1)

    for _ in range(100):
        loop.call_soon(task)
    gate.set()
    until(lambda: ran, "it runs")
    done = threading.Event()
    loop.call_soon(done.set)
    assert done.wait(40)
    assert ran == [1]


def test_gathered_tasks_run_together_and_each_once(loop: EventLoop) -> None:
    ran: list[str] = []
    done = threading.Event()

    def broken() -> None:
        raise ValueError

    def first() -> None:
        ran.append("first")

    for task in (first, broken, first, lambda: ran.append("second"), done.set):
        loop.call_gathered(0.05, task)
    assert done.wait(60)
    assert ran == ["first", "second"]
    again = threading.Event()
    loop.call_gathered(0.05, again.set)
    assert again.wait(60)


def test_timers_run_in_order(loop: EventLoop) -> None:
    ran: list[str] = []
    loop.call_later(0.06, lambda: ran.append("late"))
    loop.call_later(0.02, lambda: ran.append("soon"))
    until(lambda: "late" in ran, "the last one runs")
    assert ran == ["soon", "late"]


def test_a_broken_callback_does_not_stop_the_others(loop: EventLoop) -> None:
    done = threading.Event()

    def broken() -> None:
        raise ValueError

    loop.call_soon(broken)
    loop.call_soon(done.set)
    assert done.wait(40)


def test_a_full_pipe_is_signalled_when_it_has_room(loop: EventLoop) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(write, bytes(65_536))
    room = threading.Event()

    def ready(_events: int) -> None:
        loop.unregister(write)
        room.set()

    loop.register(write, ready, WRITE)
    os.read(read, 1 << 20)
    assert room.wait(40)
    os.close(read)
    os.close(write)


def test_no_child_to_reap_outlives_the_loop() -> None:
    running = EventLoop()
    running.start()
    child = subprocess.Popen(["sleep", "60"], start_new_session=True)
    running.reap(child)
    before = time.monotonic()
    running.stop()
    assert child.returncode is not None
    assert time.monotonic() - before < QUICK


def test_the_pipes_of_a_child_are_closed_when_the_loop_stops_before_their_end_is_read() -> None:
    running = EventLoop()
    running.start()
    pipe = subprocess.PIPE
    # The child ends at once; its own child, in another session, holds the pipes.
    argv = ["setsid", "-f", "sleep", "5"]
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True) as child:
        child.wait()
        running.reap(child)
        running.stop()
        assert [end.closed for end in (child.stdin, child.stdout, child.stderr) if end is not None] == [True] * 3


def test_an_idle_loop_does_nothing(loop: EventLoop) -> None:
    rang = threading.Event()
    loop.call_later(0.3, rang.set)
    before = time.process_time()
    assert rang.wait(40)
    assert time.process_time() - before < 0.05
