"""The one thread that owns State: events in by `submit`, States out to subscribers, numbers into history."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from trainmon.alerting.manager import AlertManager
from trainmon.analysis.disks import with_trend
from trainmon.analysis.log_formats import Format
from trainmon.engine.history import WEEK, Curves, History
from trainmon.engine.reducers import reduce
from trainmon.lib import Clock, Instant, Seconds, SystemClock
from trainmon.model import (
    Curve,
    CurvesGrew,
    Disk,
    DiskSamples,
    Event,
    GpuSamples,
    NodeReading,
    Record,
    Series,
    SourceRemoved,
    State,
)

log = logging.getLogger(__name__)

TICK = 1.0
"""Seconds between two States while samples stream in: a screen over SSH repaints no faster."""

PROMPT = 0.15
"""The same for all other events and during the first seconds, where a person waits for something to appear."""

WARM_UP = 10.0

FELL_AGAIN = 60.0
"""Seconds between two lines of the log about alerts that cannot be judged, which is tried each second."""

TREND_EVERY = 60.0
"""Seconds between two looks at the trend of one disk."""


class ActionJournal(Protocol):
    """What the engine needs of the ledger."""

    def keep(self, record: Record) -> None:
        """Have a record written down; never blocks."""


class Engine:
    """Owns the State. `step` is the whole engine without its thread."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        demo: bool = False,
        read_only: bool = False,
        formats: tuple[Format, ...] = (),
        ledger: ActionJournal | None = None,
        alerting: AlertManager | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        now = self.clock.now()
        self.state = State(at=now, started_at=now, demo=demo, read_only=read_only)
        self.rings = History()
        self.curves = Curves()
        self._formats = formats
        self._ledger = ledger
        self._alerting = alerting
        self._fell_at: Instant = 0.0
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._sinks: list[Callable[[State], None]] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._trended: dict[str, Instant] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits for the State being made now, at most a second."""
        self._stopping.set()
        self._events.put(None)
        if self._thread.is_alive():
            self._thread.join(1.0)

    def submit(self, event: Event) -> None:
        """The one door in, from any thread; never blocks."""
        self._events.put(event)

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        """Hand every new State to sink on the engine's thread, the present one now. Returns the cancel."""
        with self._lock:
            self._sinks.append(sink)
        sink(self.state)

        def cancel() -> None:
            with self._lock:
                if sink in self._sinks:
                    self._sinks.remove(sink)

        return cancel

    def history(self, subject: str, metric: str, span: Seconds) -> Series:
        """A piece of history, from any thread."""
        with self._lock:
            return self.rings.series(subject, metric, span, self.clock.now())

    def curve(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        """One W&B metric of one attempt from a point on, from any thread."""
        with self._lock:
            return self.curves.read(path, key, epoch, start)

    def step(self, events: Sequence[Event], now: Instant) -> State:
        """Fold a batch, record its numbers, and look at what follows from them."""
        before = self.state.actions
        state = reduce(self.state, events, now, self._formats)
        with self._lock:
            self._record(state, events)
            self.state = self._with_trends(state, events, now)
        self._write_down(before)
        if self._alerting is not None:
            self.state = self._looked_at(self._alerting, events, now)
        return self.state

    def _looked_at(self, alerting: AlertManager, events: Sequence[Event], now: Instant) -> State:
        """The State with its alerts. A fault there stops no dashboard; the dead-man's switch sees that nobody looks."""
        try:
            return alerting.evaluate(self.state, events, now)
        except Exception:
            if now - self._fell_at >= FELL_AGAIN:
                self._fell_at = now
                log.exception("the alerts could not be judged")
            return self.state

    def _write_down(self, before: Mapping[str, Record]) -> None:
        """Have the ledger keep what became of the actions in this step."""
        if self._ledger is None or self.state.actions is before:
            return
        for name, record in self.state.actions.items():
            if record is not before.get(name):
                self._ledger.keep(record)

    def _run(self) -> None:
        started = published = self.clock.monotonic()
        while not self._stopping.is_set():
            state = self._take(self._wait(started, published))
            published = self.clock.monotonic()
            self._publish(state)

    def _take(self, batch: Sequence[Event]) -> State:
        """Step. Where a batch fails, its events go one by one: a bad one costs itself, not the word of all hosts."""
        now = self.clock.now()
        try:
            return self.step(batch, now)
        except Exception as error:
            log.warning("a batch of %d events failed (%s): one by one", len(batch), error)
        for event in batch:
            try:
                self.step([event], now)
            except Exception:
                log.exception("a %s was dropped", type(event).__name__)
        return self.state

    def _wait(self, started: Seconds, published: Seconds) -> list[Event]:
        """Collect events until it is time for the next State; at the latest after a tick, so that ages move on."""
        deadline = published + TICK
        if self.clock.monotonic() - started < WARM_UP:
            deadline = published + PROMPT
        batch: list[Event] = []
        latest = self.clock.monotonic() + self._patience()
        while not self._stopping.is_set():
            until = deadline if batch else latest
            try:
                event = self._events.get(timeout=max(0.0, until - self.clock.monotonic()))
            except queue.Empty:
                break
            if event is None:
                break
            batch.append(event)
            if not isinstance(event, NodeReading):
                deadline = min(deadline, published + PROMPT)
        return batch

    def _patience(self) -> Seconds:
        """How long the next State may wait when nothing happens: less where something is to be told by then."""
        due = None if self._alerting is None else self._alerting.due_in
        return TICK if due is None else min(TICK, max(PROMPT, due))

    def _publish(self, state: State) -> None:
        with self._lock:
            sinks = list(self._sinks)
        for sink in sinks:
            try:
                sink(state)
            except Exception:
                log.exception("a subscriber failed")

    def _record(self, state: State, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case NodeReading(node=name, reading=GpuSamples()) if name in state.nodes:
                    source = state.sources[f"node:{name}"]
                    self.rings.record_gpus(name, event.received_at, state.nodes[name].gpus, source.period)
                case NodeReading(reading=DiskSamples(d=samples)):
                    for sample in samples:
                        disk = state.disks.get(f"{event.node}:{sample.path}")
                        if disk is not None and disk.state == "ok":
                            self.rings.record_disk(disk)
                case CurvesGrew():
                    self.curves.grow(event.path, event.points, fresh=event.fresh)
                case SourceRemoved(name=name):
                    self.rings.forget(name.removeprefix("node:"))

    def _with_trends(self, state: State, events: Sequence[Event], now: Instant) -> State:
        if not any(isinstance(event, NodeReading) and isinstance(event.reading, DiskSamples) for event in events):
            return state
        due = [disk for key, disk in state.disks.items() if now - self._trended.get(key, 0.0) >= TREND_EVERY]
        if not due:
            return state
        disks = dict(state.disks)
        for disk in due:
            self._trended[disk.key] = now
            disks[disk.key] = self._trend(disk, now)
        return replace(state, disks=disks)

    def _trend(self, disk: Disk, now: Instant) -> Disk:
        return with_trend(disk, lambda metric: self.rings.series(disk.key, metric, WEEK, now), now)
