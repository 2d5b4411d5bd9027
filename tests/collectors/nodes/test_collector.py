"""One watched host: dialled, fed, lost, held, dialled again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from collectors.assignment import by_mount
from collectors.nodes.stream import LONGEST_LINE, SLOW_START, ProbeStream
from collectors.probe import bundle
from tests.collectors.nodes.hosts import GREETING, HELLO, FakeClock, FakeShell, Host, until
from trainmon.engine.reducers.reduce import reduce
from trainmon.lib import HostUnreachable, LoginNeeded, LoginRefused
from trainmon.model import (
    DiskSample,
    DiskSamples,
    DisksReleased,
    GpuSamples,
    Hello,
    NodeReading,
    Spec,
    State,
)
from trainmon.transport.shell import Sink, Transit


def test_a_host_that_answers_is_up_and_its_lines_are_events() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    sink.received(HELLO[:10])
    sink.received(HELLO[10:] + b'{"k":"gpu","v":1,"t":1.0,"g":[]}\n')
    host.source("up")
    kinds = []
    while not host.events.empty():
        event = host.events.get()
        if isinstance(event, NodeReading):
            kinds.append(type(event.reading))
    assert kinds == [Hello, GpuSamples]


def test_the_wait_for_the_lines_of_other_nodes_is_neither_skew_nor_age() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    state = State()
    for number in range(60):
        host.clock.at = 1000.0 + 2 * number
        waited = 0.0 if number < 5 else 0.1  # a stream that has run for long
        shell.transit = Transit(arrived=waited, left=waited)
        sent = host.clock.at - waited
        sink.received(b'{"k":"gpu","v":1,"t":%f,"g":[]}\n' % sent)
        state = reduce(state, [host.events.get() for _ in range(host.events.qsize())], host.clock.at)
        assert state.nodes["n1"].gpus_at == pytest.approx(sent)
    assert state.nodes["n1"].clock_skew_s == pytest.approx(0.0)


def test_the_way_of_a_reading_over_a_slow_link_is_no_skew() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    shell.transit = Transit(left=25.0)
    sink.received(b'{"k":"gpu","v":1,"t":980.0,"g":[]}\n')
    state = reduce(State(), [host.events.get() for _ in range(host.events.qsize())], 1000.0)
    assert state.nodes["n1"].clock_skew_s == pytest.approx(0.0, abs=0.1)
    assert state.nodes["n1"].gpus_at == pytest.approx(980.0, abs=0.1)


def test_a_node_whose_code_is_still_being_sent_is_not_slow_to_start() -> None:
    shell = FakeShell()
    host = Host(shell)
    host.connected(shell)
    shell.transit = Transit(unsent=9_000)
    for _ in range(10):
        host.clock.at += 10.0
        host.watch.tick()
    shell.transit = Transit()
    host.clock.at += SLOW_START
    host.watch.tick()
    assert host.watch.problem is None
    host.clock.at += 1.0
    host.watch.tick()
    assert host.watch.problem == "connected, but its probe has not started for 15s"


def test_a_greeting_that_comes_before_the_stream_is_there_is_answered() -> None:
    class Hasty(FakeShell):
        def stream(self, argv: Sequence[str], sink: Sink) -> FakeShell:
            sink.received(b"Welcome!\n" + GREETING)
            return super().stream(argv, sink)

    shell = Hasty()
    host = Host(shell)
    host.watch.tick()
    until(lambda: shell.written == bundle.payload(GREETING) + bundle.spec_line(Spec(disks=("/",))))


def test_another_period_is_reported_at_once_so_that_readings_are_judged_by_it() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    sink.received(HELLO)
    host.source("up")
    host.watch.watch(Spec(period=10.0), frozenset())
    assert host.source("up").period == 10.0


def test_a_node_that_has_not_greeted_is_sent_nothing() -> None:
    shell = FakeShell()
    host = Host(shell)
    host.watch.tick()
    until(lambda: shell.sink is not None and host.idle())
    host.watch.watch(Spec(disks=("/fsx",)), frozenset())
    host.ticked(25.0)
    assert shell.written == b""


def test_what_a_probe_complains_of_is_reported_while_it_runs() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    sink.received(HELLO)
    sink.stderr_received(b"a warning\n")
    host.ticked(1.0)
    assert host.source("up").stderr is None
    assert host.source("up").stderr == "a warning"


def test_a_probe_without_python_is_no_reader_of_shared_files() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    sink.received(b'{"k":"hello","v":1,"t":1.0,"host":"n1","probe":"sh"}\n')
    assert not host.watch.reads_files
    sink.received(b'{"k":"hello","v":1,"t":1.0,"host":"n1","python":"3.9.1"}\n')
    assert host.watch.reads_files


def test_a_silent_probe_is_started_anew() -> None:
    shell = FakeShell()
    host = Host(shell, FakeShell())
    host.connected(shell).received(HELLO)
    host.ticked(46.0)
    assert "no data from its probe" in (host.source("retrying").error or "")
    assert shell.closed


def test_the_lease_is_renewed_every_twenty_seconds() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    before = len(shell.written)
    for _ in range(5):
        host.ticked(10.0)
        sink.received(HELLO)
    assert shell.written[before:] == bundle.LEASE * 2


def test_a_new_spec_is_sent_to_the_running_probe_once() -> None:
    shell = FakeShell()
    host = Host(shell)
    host.connected(shell)
    before = len(shell.written)
    spec = Spec(disks=("/", "/fsx"))
    host.watch.watch(spec, frozenset())
    host.watch.watch(spec, frozenset())
    assert shell.written[before:] == bundle.spec_line(spec)


def test_a_stopped_watch_lets_go_even_of_a_dial_under_way() -> None:
    shell = FakeShell()
    host = Host(shell)
    host.watch.tick()
    host.watch.stop()
    until(lambda: shell.closed or host.dials == 0)
    host.ticked(600.0)
    assert host.dials <= 1


@pytest.mark.parametrize(
    "line",
    [b"Welcome to the cluster!", b'{"k":"gpu","v":2,"t":1.0,"g":[]}', b'{"k":"new","v":1,"t":1.0}', b"\xff\xfe", b"[]"],
)
def test_a_line_that_is_not_understood_is_counted_and_the_next_is_read(line: bytes) -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    sink.received(line + b"\n" + HELLO)
    host.source("up")
    host.ticked(1.0)
    assert host.source("up").bad_lines == 1


def test_a_line_without_an_end_costs_no_memory() -> None:
    feed = ProbeStream("n1", FakeClock(), lambda stream: None, lambda stream, reading: None, lambda *end: None)
    for _ in range(5):
        feed.received(b"x" * (LONGEST_LINE // 2))
    assert len(feed._rest) < LONGEST_LINE // 100, "what comes before the greeting is not kept"
    feed.received(GREETING)
    for _ in range(5):
        feed.received(b"x" * (LONGEST_LINE // 2))
    feed.received(b"x\n" + HELLO)
    assert feed.bad_lines >= 1
    assert len(feed._rest) == 0


def test_disks_under_the_runs_are_called_by_their_mounts() -> None:
    reading = DiskSamples(
        1,
        1.0,
        (
            DiskSample("/fsx/ckpt", mount="/fsx", free_bytes=7),
            DiskSample("/fsx/logs", mount="/fsx", free_bytes=7),
            DiskSample("/home/ann", mount="/home"),
            DiskSample("/gone", "error"),
            DiskSample("/home", mount="/home"),
        ),
    )
    implied = frozenset({"/fsx/ckpt", "/fsx/logs", "/home/ann", "/gone"})
    result = by_mount(reading, implied, Spec(disks=("/fsx/ckpt", "/fsx/logs", "/home/ann", "/gone", "/home")))
    assert [disk.path for disk in result.d] == ["/fsx", "/gone", "/home"]


def test_a_host_is_awaited_until_it_has_answered_or_failed_once() -> None:
    shell, broken = FakeShell(), HostUnreachable("n1", "no route")
    host = Host(shell, broken)
    assert host.watch.is_awaited
    sink = host.connected(shell)
    assert host.watch.is_awaited
    sink.received(HELLO)
    assert not host.watch.is_awaited
    failing = Host(broken, FakeShell())
    failing.watch.tick()
    failing.source("retrying")
    assert not failing.watch.is_awaited
    failing.ticked(60.0)
    failing.source("connecting")
    assert not failing.watch.is_awaited


def test_a_first_login_is_slow_until_it_ends_or_the_host_accepts_no_connection() -> None:
    slow, shell = HostUnreachable("n1", "no answer"), FakeShell()
    slow.accepted = True
    host = Host(slow, slow, HostUnreachable("n1", "no route"), slow, shell, slow)
    began = host.clock.now()
    host.watch.tick()
    assert host.source("connecting").login_since == began
    assert host.source("retrying").login_since == began
    host.ticked(60.0)
    assert host.source("retrying").login_since == began, "the next login is still the first one"
    host.ticked(60.0)
    assert host.source("retrying").login_since is None
    host.ticked(60.0)
    assert host.source("connecting").login_since is None
    assert host.source("retrying").login_since == began + 180.0
    host.clock.at += 60.0
    host.connected(shell).received(HELLO)
    assert host.source("up").login_since is None


def test_what_it_reads_in_the_place_of_another_is_marked_and_released() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    host.watch.watch(Spec(disks=("/", "/fsx/a", "/fsx/b")), frozenset({"/fsx/a"}), Spec(disks=("/fsx/a", "/fsx/b")))
    line = b'{"k":"disk","v":1,"t":1.0,"d":[{"path":"/"},{"path":"/fsx/a","mount":"/fsx"},{"path":"/fsx/b"}]}\n'
    sink.received(HELLO + line)
    host.watch.watch(Spec(disks=("/",)), frozenset())
    sink.received(line)
    result: list[tuple[str, ...] | DisksReleased] = []
    while not host.events.empty():
        event = host.events.get()
        if isinstance(event, NodeReading) and isinstance(event.reading, DiskSamples):
            result.append(("stands in" if event.is_stand_in else "own", *(disk.path for disk in event.reading.d)))
        elif isinstance(event, DisksReleased):
            result.append(event)
    assert result == [
        ("own", "/"),
        ("stands in", "/fsx", "/fsx/b"),
        DisksReleased("n1", ("/fsx", "/fsx/b")),
        ("own", "/"),
    ]


def test_a_directory_that_appears_later_gives_up_the_name_that_it_had_until_its_mount_was_known() -> None:
    shell = FakeShell()
    host = Host(shell)
    sink = host.connected(shell)
    host.watch.watch(Spec(disks=("/", "/fsx/a", "/gone")), frozenset({"/fsx/a"}))
    line = '{"k":"disk","v":1,"t":1.0,"d":[{"path":"/fsx/a"%s},{"path":"/gone"%s}]}\n'
    gone, there = ',"state":"error","error":"does not exist"', ',"mount":"/"'
    for state in (gone, there, there):
        sink.received(HELLO + (line % (state, state)).encode())
    events = [host.events.get() for _ in range(host.events.qsize())]
    assert [event for event in events if isinstance(event, DisksReleased)] == [DisksReleased("n1", ("/fsx/a",))]


@pytest.mark.parametrize(
    "error",
    [
        HostUnreachable("n1", "n1 does not answer"),
        LoginRefused("n1", "n1 refuses the login of ana"),
        LoginNeeded("n1", "n1 needs a password, and nobody can be asked"),
        HostUnreachable("n1", "n1 closed the connection: no active jobs on this node (pam_slurm_adopt)"),
    ],
)
def test_a_host_that_nobody_named_is_tried_once_and_says_what_to_do(error: HostUnreachable) -> None:
    host, silent = Host(FakeShell(prompted=True)), Host(error)
    host.watch.first_dial, host.watch.backoff.has_own_job = silent.dial, lambda: True
    host.watch.tick()
    assert host.source("off").error == error.message
    for again in (host.watch.queue_polled, host.watch.resume, host.watch.refresh):
        again()
        host.ticked(600)
        assert (host.watch.is_off, silent.dials, host.dials) == (True, 1, 0)
    host.watch.login()
    host.ticked(1)
    until(lambda: host.dials == 1)
    assert silent.dials == 1, "a person logs in with prompts"
