"""A host whose connection and time a test controls."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Sequence

from collectors.nodes.collector import NodeCollector
from collectors.probe import bundle
from trainmon.lib import Seconds, TrainmonError
from trainmon.model import Event, Source, SourceChanged, Spec
from trainmon.transport.shell import Completed, Sink, Transit

GREETING = b"#probe \n"
HELLO = b'{"k":"hello","v":1,"t":1.0,"host":"n1"}\n'


class FakeClock:
    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class FakeShell:
    """A connection whose other end is the test."""

    def __init__(self, *, prompted: bool = False) -> None:
        self.host = "n1"
        self.prompted = prompted
        self.sink: Sink | None = None
        self.written = b""
        self.closed = False
        self.transit = Transit()
        self.argv: Sequence[str] = ()

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        return Completed(0, b"", b"")

    def stream(self, argv: Sequence[str], sink: Sink) -> FakeShell:
        self.sink, self.argv = sink, argv
        return self

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True


class Host:
    """A Watch on a host that answers a dial as the test says."""

    def __init__(self, *answers: FakeShell | TrainmonError) -> None:
        self.answers = list(answers)
        self.dials = 0
        self.clock = FakeClock()
        self.events: queue.Queue[Event] = queue.Queue()
        self.watch = NodeCollector("n1", "prod", self.dial, self.events.put, self.clock, python="python3")
        self.watch.watch(Spec(disks=("/",)), frozenset())

    def dial(self) -> FakeShell:
        self.dials += 1
        answer = self.answers.pop(0)
        if isinstance(answer, TrainmonError):
            raise answer
        return answer

    def source(self, phase: str) -> Source:
        """The next telling of its source in a phase."""
        while True:
            event = self.events.get(timeout=120)
            if isinstance(event, SourceChanged) and event.source.phase == phase:
                return event.source

    def connected(self, shell: FakeShell) -> Sink:
        self.watch.tick()
        until(lambda: shell.sink is not None and self.idle())
        assert shell.sink is not None
        assert shell.written == b""
        shell.sink.received(GREETING)
        assert shell.written == bundle.payload(GREETING) + bundle.spec_line(Spec(disks=("/",)))
        return shell.sink

    def ticked(self, seconds: float) -> None:
        self.clock.at += seconds
        until(self.idle)
        self.watch.tick()

    def idle(self) -> bool:
        return not self.watch._dialling


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within 120s"
        time.sleep(0.002)
