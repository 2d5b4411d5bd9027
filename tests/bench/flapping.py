"""A day of flapping, simulated: CPU and memory of the last hour against the second, and the messages of each channel

Eight nodes of eight GPUs, whose faults come and go: GPUs that are lost or hot, ports that go down, nodes that cannot
be reached. The config lets each rule fire and resolve at once where a single evaluation suffices. The engine, the
rules, the alert service, the ledger and the channels are the real ones; an ntfy server and a webhook on loopback count
what arrives. Only the clock is simulated: after each step, the threads that send get time to finish.

The period of each fault divides an hour, so that every hour has the same faults. CPU is that of the process, by
`time.process_time`. On a machine that others use, the same work takes up to a third more CPU for minutes. So each
window of five simulated minutes also measures the same fixed piece of work, and its CPU is given in units of that. An
hour counts as the median of its twelve windows. The first hour has no history yet, so the last hour is compared with
the second. It may be cheaper: from the third hour on, the daily budgets leave fewer messages to send.

Run: python -m tests.bench.flapping
"""

from __future__ import annotations

import math
import os
import queue
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.bench.program import run_program
from tests.bench.table import show
from tests.lab.ntfy_server import NtfyServer
from tests.lab.receiver import Receiver
from tests.trainmon.alerting.stories.story import FakeClock
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.config.load import load
from trainmon.engine.engine import Engine
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Seconds
from trainmon.model import (
    Curve,
    Event,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    HostSample,
    InfinibandPort,
    NodeReading,
    RunsChanged,
    RunSpec,
)
from trainmon.runtime.alert_service import AlertService, Sources
from trainmon.runtime.monitor import Monitor

HOURS = 24
NODES, GPUS = 8, 8
"""Few nodes with many faults. The history of GPU numbers grows for a day, by 90 KiB a node, however calm it is."""
TICK: Seconds = 4.0
"""Twice the sampling period of the probe, so that a day takes minutes."""
WINDOW: Seconds = 300.0
REFERENCE_STEPS = 10
REACH = 1.05
PER_DAY = {"ntfy": 200, "webhook": 1_000}
"""The default budget of each channel."""
BEYOND = 24
"""The messages beyond the budget: critical alerts of the last hour, together."""
PERIODS = (10, 12, 16, 20, 24, 30, 36, 40, 48, 60, 72, 90, 80, 120, 144, 180, 240, 300, 400, 600)
"""In seconds. A fault lasts for half of its period."""


LOADED = (Monitor,)
"""Imports what the daemon imports: its memory is the base of the comparison."""


class Window(NamedTuple):
    """What five simulated minutes cost."""

    cpu: Seconds
    reference: Seconds
    """What the fixed piece of work took then."""
    rss_mib: float


class Hour(NamedTuple):
    """What one simulated hour cost, and what came of it."""

    cpu: Seconds
    work: float
    """CPU in units of the fixed piece of work."""
    rss_mib: float
    sent: dict[str, int]
    """The messages of each channel."""
    fired: int
    """How many episodes of alerts began."""
    alerts: int
    """How many the State has."""


class SimulatedWork:
    """The work of a service, which waits for it until the simulated clock has passed its timeout."""

    def __init__(self, clock: FakeClock) -> None:
        self.is_idle = False
        self._clock = clock
        self._items: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._until: Seconds = math.inf

    def put(self, item: Callable[[], None]) -> None:
        with self._changed:
            self._items.append(item)
            self._go_on()

    def empty(self) -> bool:
        return not self._items

    def get(self, timeout: Seconds = math.inf) -> Callable[[], None]:
        with self._changed:
            if not self._items:
                self._until, self.is_idle = self._clock.steady + timeout, True
                self._changed.wait_for(lambda: not self.is_idle)
            if not self._items:
                raise queue.Empty
            return self._items.popleft()

    def wake(self) -> None:
        """End the wait if it is over by the simulated clock."""
        with self._changed:
            if self._until <= self._clock.steady:
                self._go_on()

    def _go_on(self) -> None:
        self.is_idle = False
        self._changed.notify()


class Day:
    """One program that watches faults which come and go, on a clock of its own."""

    def __init__(self, directory: Path, phone: NtfyServer, chat: Receiver, *, tick: Seconds, nodes: int) -> None:
        self._tick, self._nodes, self._phone, self._chat = tick, nodes, phone, chat
        self._clock = FakeClock()
        self._events: list[Event] = [
            RunsChanged(tuple(RunSpec(name=f"run-{i}", cluster="prod", nodes=(f"gpu-{i:03}",)) for i in range(4)))
        ]
        config = directory / "trainmon.toml"
        config.write_text(config_text(phone.url, chat.url))
        self._ledger = Ledger(directory, lambda trouble: None, self._clock)
        self._ledger.start()
        self._service = AlertService(
            load(config), self._ledger, self._events.append, self._clock, "alerts-only",
            Sources(lambda source: None, lambda path, key: Curve()),
        )  # fmt: skip
        notifications = self._service.notifications
        self._work = SimulatedWork(self._clock)
        notifications._work = self._work
        self._service.start()
        self.engine = Engine(self._clock, ledger=self._ledger, alerting=self._service.alerting)
        self._known: frozenset[str] = frozenset()
        self.fired = 0
        self.sent: dict[str, list[str]] = {"ntfy": [], "webhook": []}
        """The title or the status of each message."""

    def stop(self) -> None:
        self._service.stop(0.0)
        self._ledger.stop()

    def hour(self) -> Hour:
        """Let an hour pass."""
        before, fired = {name: len(sent) for name, sent in self.sent.items()}, self.fired
        windows = [self._window() for _ in range(int(3_600 / WINDOW))]
        return Hour(
            statistics.median(window.cpu for window in windows) * len(windows),
            statistics.median(window.cpu / window.reference for window in windows) * len(windows),
            statistics.median(window.rss_mib for window in windows),
            {name: len(sent) - before[name] for name, sent in self.sent.items()},
            self.fired - fired,
            len(self.engine.state.alerts),
        )

    def _window(self) -> Window:
        before = self._reference()
        began, until = time.process_time(), self._clock.steady + WINDOW
        while self._clock.steady < until:
            self.step()
        cpu = time.process_time() - began
        return Window(cpu, (before + self._reference()) / 2, rss_mib())

    def _reference(self) -> Seconds:
        """The CPU of a fixed piece of work: another engine and its rules take the same readings each time."""
        clock = FakeClock()
        alerting = AlertManager(tuple(rule() for rule in RULES), Routing(), None, clock=clock)
        engine = Engine(clock, alerting=alerting)
        began = time.thread_time()
        for _ in range(REFERENCE_STEPS):
            clock.wall += TICK
            clock.steady += TICK
            engine.step([*self._readings(clock)], clock.wall)
        return time.thread_time() - began

    def step(self) -> None:
        """Let one sampling period pass."""
        self._clock.wall += self._tick
        self._clock.steady += self._tick
        events = [*self._events, *self._readings(self._clock)]
        del self._events[: len(events)]
        state = self.engine.step(events, self._clock.wall)
        self._service.observe(state)
        firing = frozenset(name for name, alert in state.alerts.items() if alert.fired_at is not None)
        self.fired += len(firing - self._known)
        self._known = firing
        self._settle()
        with self._phone.lock, self._chat.lock:
            self.sent["ntfy"] += [message.title for message in self._phone.messages]
            self.sent["webhook"] += [request.json["status"] for request in self._chat.taken]
            for kept in (self._phone.messages, self._phone.taken, self._phone.requests):
                kept.clear()
            self._chat.taken.clear()
            self._chat.requests.clear()

    def _settle(self) -> None:
        """Wake the service if its wait is over by the simulated clock, and let it finish what it does."""
        self._work.wake()
        while not self._work.is_idle or self._is_ledger_busy():
            time.sleep(0.0002)

    def _is_ledger_busy(self) -> bool:
        """Whether the ledger had work that another thread still has to hear of."""
        done = threading.Event()
        self._ledger.read(lambda connection: None, done.set)
        done.wait()
        service = self._service.notifications
        is_sending = any(thread.name.startswith("channel ") for thread in threading.enumerate())
        return is_sending or not (service._journal.is_settled and self._work.is_idle)

    def _readings(self, clock: FakeClock) -> Iterator[NodeReading]:
        at, second = clock.wall, clock.steady
        for number in range(self._nodes):
            name = f"gpu-{number:03}"
            if number % 4 == 3 and is_on(number, second, 2):
                continue  # this node cannot be reached
            lost = tuple(index for index in (6, 7) if is_on(number + 5 * index, second))
            gpus, facts = gpus_of(name, lost, number % 2 == 1 and is_on(number + 13, second))
            ports = ports_of(tuple(is_on(number + 3 * port, second) for port in range(4)))
            host = HostSample(1, at, load1=8.0, memory_used_mib=200_000, memory_total_mib=2_000_000, infiniband=ports)
            for reading in (GpuFactsAll(1, at, facts, expected=GPUS), GpuSamples(1, at, gpus), host):
                yield NodeReading(name, "prod", at, reading)


@contextmanager
def day(directory: Path, *, tick: Seconds = TICK, nodes: int = NODES) -> Iterator[Day]:
    """A simulated day, with the servers that its channels send to."""
    with NtfyServer.start() as phone, Receiver.start() as chat:
        made = Day(directory, phone, chat, tick=tick, nodes=nodes)
        try:
            yield made
        finally:
            made.stop()


def config_text(phone: str, chat: str) -> str:
    """The config: every rule at its fastest, and two channels."""
    rules = (
        f'[[rule]]\ntype = "{rule.name}"\nkeep_firing_for = "0s"\n' + ("" if rule.needs_for else 'for = "0s"\n')
        for rule in RULES
        if rule.family in ("gpus", "nodes")
    )
    channels = (
        f'[[notify]]\ntype = "ntfy"\nserver = "{phone}"\ntopic = "a1b2c3d4e5f6a1b2c3d4"\nacknowledge = false\n',
        f'[[notify]]\ntype = "webhook"\nurl = "{chat}/hook"\n',
    )
    return "\n".join((*channels, *rules))


def is_on(number: int, second: Seconds, slower: int = 1) -> bool:
    """Whether the fault of this number is there now."""
    period = slower * PERIODS[number % len(PERIODS)]
    return (second + number) % period < period / 2


@cache
def gpus_of(name: str, lost: tuple[int, ...], is_hot: bool) -> tuple[tuple[GpuSample, ...], tuple[GpuFacts, ...]]:
    """The GPUs of a node: some are lost, and all others may be too hot and slowed down."""
    gpus = tuple(
        GpuSample(i, "GPU is lost", True)
        if i in lost
        else GpuSample(i, None, False, 95 if is_hot else 60, 70, 60_000, 97, 600.0, 1_700, 0x40 if is_hot else 0x4)
        for i in range(GPUS)
    )
    facts = tuple(
        GpuFacts(
            i, uuid=f"GPU-{name}-{i}", memory_total_mib=81_559, power_limit_w=700.0,
            temperature_margin_c=0 if is_hot else 30,
        )
        for i in range(GPUS)
    )  # fmt: skip
    return gpus, facts


@cache
def ports_of(down: tuple[bool, ...]) -> tuple[InfinibandPort, ...]:
    states = ("DOWN" if is_down else "ACTIVE" for is_down in down)
    return tuple(InfinibandPort(f"mlx5_{i}/1", state, 0, 0) for i, state in enumerate(states))


def rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    hours: list[Hour] = []
    with tempfile.TemporaryDirectory() as folder, day(Path(folder)) as simulated:
        hours.extend(simulated.hour() for _ in range(HOURS))
    titles = (
        "hour",
        "CPU s",
        "CPU in units",
        "RSS MiB",
        "alerts that fired",
        "alerts in the State",
        "to ntfy",
        "to the webhook",
    )
    rows = [
        (
            str(number),
            f"{hour.cpu:.1f}",
            f"{hour.work:.1f}",
            f"{hour.rss_mib:.1f}",
            str(hour.fired),
            str(hour.alerts),
            str(hour.sent["ntfy"]),
            str(hour.sent["webhook"]),
        )
        for number, hour in enumerate(hours, 1)
        if number in (1, 2, 3, 6, 12, 18, HOURS)
    ]
    show(f"{HOURS} simulated hours of {NODES} flapping nodes", titles, rows)
    print("1 unit of CPU: a fixed piece of work, measured in the same window of five minutes")
    second, last = hours[1], hours[-1]
    cpu, rss = last.work / second.work, last.rss_mib / second.rss_mib
    print(f"the last hour against the second: CPU {cpu:.1%}, RSS {rss:.1%} (goal: 105%)")
    sent = {name: sum(hour.sent[name] for hour in hours) for name in PER_DAY}
    for name, messages in sent.items():
        resolved = sum(title.lower().startswith("resolved") for title in simulated.sent[name])
        print(f"{name}: {messages} messages (goal: {PER_DAY[name] + BEYOND}), {resolved} only of resolved alerts")
    is_flat = cpu <= REACH and rss <= REACH
    return 0 if is_flat and all(sent[name] <= PER_DAY[name] + BEYOND for name in sent) else 1


if __name__ == "__main__":
    run_program(main)
