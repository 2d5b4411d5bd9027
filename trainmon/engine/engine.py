"""The one thread that owns State: events in by `submit`, States out to subscribers, numbers into history, attempts and
actions into the ledger."""

from __future__ import annotations

import gc
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from trainmon.alerting.manager import AlertManager
from trainmon.analysis.attempts.recomputed import with_recomputed
from trainmon.analysis.disks import RATE_SPAN, with_trend
from trainmon.analysis.explanation import Read, gpu_hour
from trainmon.analysis.log_formats import Format
from trainmon.engine.history import WEEK, Curves, History
from trainmon.engine.reducers.reduce import reduce
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Clock, Instant, Seconds, SystemClock
from trainmon.lib.threads import Background
from trainmon.model import (
    Attempt,
    Curve,
    CurvesGrew,
    Disk,
    DiskHistoryRead,
    DiskSamples,
    EvalResult,
    Event,
    GpuHistoryRead,
    GpuSamples,
    LedgerReplaced,
    NodeReading,
    Series,
    SourceRemoved,
    State,
    WandbRows,
)

log = logging.getLogger(__name__)

# ---- which attempts the ledger must hold, and when it is told --------------------------------------------------------

WRITE_EVERY: Seconds = 30.0
"""Between two writes of an attempt that goes on. A program that is killed has lost at most this much."""

NEWS = (
    "end", "reported_end", "first_step", "retry_decision", "budget_spent", "files", "outlook", "outlived_by",
    "outlived_gone_at", "looks",
)  # fmt: skip
"""What is written at once when it changes. A file that was read may have changed a moment later."""


GPU_HOURS_AT_ONCE = 2
"""Nodes whose last hour is read in one step of the engine: of 8 GPUs, each takes about 10 ms."""


class AttemptRecorder:
    """Gives new, ended and grown attempts to the ledger. Of several programs with one ledger, the leader does, and a
    dashboard on another machine than its daemon. A command that has no part in the election never does."""

    def __init__(self, ledger: Ledger, read: Read) -> None:
        self._ledger = ledger
        self._read = read
        self._nodes: deque[tuple[Attempt, str]] = deque()
        """The nodes of attempts that have ended, whose last hour is to be kept."""
        self._written: dict[str, tuple[Attempt, Instant]] = {}
        self._evals: dict[str, tuple[EvalResult, ...]] = {}

    def record(self, state: State, now: Instant, *, is_new_ledger: bool = False) -> None:
        """Queue what has changed. A new ledger gets everything with the next State."""
        if state.leadership.holder not in ("us", "daemon"):
            return
        for name, attempt in state.attempts.items():
            before, at = self._written.get(name, (None, 0.0))
            if attempt is before:
                continue
            is_news = before is None or any(getattr(attempt, one) != getattr(before, one) for one in NEWS)
            if before is not None and before.is_open and attempt.end is not None and attempt.end.was_watched:
                self._nodes += ((attempt, node) for node in attempt.nodes)
            if is_news or not 0.0 <= now - at < WRITE_EVERY:
                self._written[name] = (attempt, now)
                self._ledger.keep(attempt)
        for name, run in state.runs.items():
            results, kept = run.evals.results, self._evals.get(name, ())
            if results is not kept and (new := [one for one in results if one not in kept]):
                self._ledger.keep_evals(name, new, run.spec.cluster)
        self._evals = {name: run.evals.results for name, run in state.runs.items()}
        for _ in range(min(len(self._nodes), GPU_HOURS_AT_ONCE)):
            self._keep_gpu_hour(*self._nodes.popleft(), state, now)
        if len(self._written) > 2 * len(state.attempts) + 100:
            self._written = {name: one for name, one in self._written.items() if name in state.attempts}
        if is_new_ledger:
            self._written, self._evals = {}, {}

    def _keep_gpu_hour(self, attempt: Attempt, node: str, state: State, now: Instant) -> None:
        found = state.nodes.get(node)
        if found is not None and attempt.end is not None:
            hour = gpu_hour(node, [gpu.index for gpu in found.gpus], attempt.end.at, now, self._read)
            if any(hour.metrics.values()):
                self._ledger.keep_gpu_hour(attempt, hour)


# ---- the events that wait for the engine's thread --------------------------------------------------------------------


class Inbox:
    """A queue that wakes its reader seldom. Hundreds of readings come each second, and most of them wait for the next
    State anyway: waking the engine for each cost more than taking it."""

    def __init__(self) -> None:
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._readings_wake = True

    def put(self, event: Event | None) -> None:
        """Queue an event, or None: what came before it is not to wait. From any thread. Never blocks."""
        self._events.put(event)
        if self._readings_wake or not isinstance(event, NodeReading):
            self._wake.set()

    def take(self, timeout: Seconds, *, readings: bool) -> list[Event | None]:
        """What has come, up to the first None. Waits if that is nothing: for any event if `readings`, else for one that
        is no reading. May return nothing before the timeout."""
        self._readings_wake = readings
        self._wake.clear()  # before looking: what comes after this look sets it again
        if self._events.empty() and timeout > 0:
            self._wake.wait(timeout)
        found: list[Event | None] = []
        while not self._events.empty() and (not found or found[-1] is not None):
            found.append(self._events.get_nowait())
        return found


# ---- the one thread that owns State ----------------------------------------------------------------------------------

TICK = 1.0
"""Seconds between two States while samples arrive: a screen over SSH repaints no faster."""

PROMPT = 0.15
"""The same for all other events, and during WARM_UP, when a person waits for the first data."""

WARM_UP = 10.0

TOGETHER = 0.02
"""A State waits this long for the events that come with its first one, such as the readings of a new host."""

FAILED_AGAIN = 60.0
"""Seconds between two log lines about a failed alert evaluation, which is retried every second."""

TREND_EVERY, RATE_EVERY = 60.0, 15.0
"""Seconds between two forecasts for one disk; with less history than a forecast needs, or while it is falling, between
two rates."""


class Engine(Background):
    """Owns the State. `step` is the engine without its thread."""

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        demo: bool = False,
        read_only: bool = False,
        formats: tuple[Format, ...] = (),
        ledger: Ledger | None = None,
        alerting: AlertManager | None = None,
        is_dashboard: bool = False,
    ) -> None:
        self.clock = clock or SystemClock()
        now = self.clock.now()
        self.state = State(at=now, started_at=now, demo=demo, read_only=read_only, is_dashboard=is_dashboard)
        self.rings = History()
        self.curves = Curves()
        self.formats = formats
        self._ledger = ledger
        self._attempts = None if ledger is None else AttemptRecorder(ledger, self.history)
        self._alerting = alerting
        self._failed_at: Instant = 0.0
        self._inbox = Inbox()
        self._sinks: list[Callable[[State], None]] = []
        self.takers: list[Callable[[Sequence[Event], State, State, tuple[Format, ...]], None]] = []
        """They get each step: its events, the State that they made, what rules and forecasts made of it, and the log
        formats."""
        self._lock = threading.Lock()
        super().__init__("engine")
        self._trended: dict[str, Instant] = {}

    def _interrupt(self) -> None:
        self._inbox.put(None)

    def submit(self, event: Event) -> None:
        """Queue an event, from any thread. Never blocks."""
        self._inbox.put(event)

    def evaluate_now(self) -> None:
        """Evaluate the rules with the next State, which is made at once. From any thread."""
        if self._alerting is not None:
            self._alerting.evaluate_now()
        self._inbox.put(None)

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        """Call `sink` with the current State, then with every new one on the engine's thread.

        Returns: a function that unsubscribes.
        """
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
        """Reduce a batch of events, record its numbers, and evaluate the rules."""
        is_new_ledger = LedgerReplaced() in events
        before = {} if is_new_ledger else self.state.actions
        formats, grown = self.formats, list[CurvesGrew]()
        state = reduce(self.state, events, now, formats, grown)
        with self._lock:
            self._record(state, (*events, *grown))
            self.state = with_recomputed(self._with_trends(state, events, now), (*events, *grown), self.curves.read)
        if self._ledger is not None and self.state.actions is not before:
            for name, record in self.state.actions.items():
                if record is not before.get(name):
                    self._ledger.keep(record)
        if self._attempts is not None:
            self._attempts.record(self.state, now, is_new_ledger=is_new_ledger)
        if self._alerting is not None:
            try:
                self.state = self._alerting.evaluate(self.state, events, now)
            except Exception:  # it must not stop the dashboard; the dead-man's switch reports it
                if now - self._failed_at >= FAILED_AGAIN:
                    self._failed_at = now
                    log.exception("the alerts could not be evaluated")
        for take in self.takers:
            take(events, state, self.state, formats)
        return self.state

    def _run(self) -> None:
        gc.set_threshold(50_000)  # a State of 300 nodes makes as much in a second, without a cycle; 700 took a seventh
        started = published = self.clock.monotonic()
        while not self._stopping.is_set():
            state = self._take(self._wait(started, published))
            published = self.clock.monotonic()
            with self._lock:
                sinks = list(self._sinks)
            for sink in sinks:
                try:
                    sink(state)
                except Exception:
                    log.exception("a subscriber failed")

    def _take(self, batch: Sequence[Event]) -> State:
        """Step. If a batch fails, retry its events one by one, so that only the bad event is lost."""
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
        deadline = published + (PROMPT if self.clock.monotonic() - started < WARM_UP else TICK)
        batch: list[Event] = []
        due = None if self._alerting is None else self._alerting.due_in
        latest = self.clock.monotonic() + (TICK if due is None else min(TICK, max(PROMPT, due)))
        while not self._stopping.is_set():
            timeout = (deadline if batch else latest) - self.clock.monotonic()
            found = self._inbox.take(timeout, readings=not batch)
            if not found and timeout <= 0:
                break
            new = [event for event in found if event is not None]
            if not all(isinstance(event, NodeReading) for event in new):
                deadline = min(deadline, published + PROMPT)
            if new and not batch:
                deadline = max(deadline, self.clock.monotonic() + TOGETHER)
            batch += new
            if len(new) < len(found):
                break
        return batch

    def _record(self, state: State, events: Sequence[Event]) -> None:
        for event in events:
            match event:
                case NodeReading(node=name, reading=GpuSamples()) if name in state.nodes:
                    period = state.sources[f"node:{name}"].period
                    self.rings.record_gpus(name, event.received_at, state.nodes[name].gpus, period)
                case GpuHistoryRead(node=name) if name in state.nodes and event.columns:
                    source = state.sources.get(f"node:{name}")
                    self.rings.restore_gpus(event, event.step if source is None else source.period)
                case DiskHistoryRead(node=name) if f"node:{name}" in state.sources:
                    self.rings.restore_disks(event)
                    for path in event.columns:
                        self._trended.pop(f"{name}:{path}", None)
                case NodeReading(reading=DiskSamples(d=samples)):
                    for sample in samples:
                        disk = state.disks.get(f"{event.node}:{sample.path}")
                        if disk is not None and disk.state == "ok":
                            self.rings.record_disk(disk)
                case CurvesGrew():
                    self.curves.grow(event.path, event.points, fresh=event.fresh, is_older=event.is_older)
                case NodeReading(reading=WandbRows() as rows) if rows.id in state.runs:
                    self.curves.follow_file(rows)
                case SourceRemoved(name=name):
                    self.rings.forget(name.removeprefix("node:"))

    def _with_trends(self, state: State, events: Sequence[Event], now: Instant) -> State:
        samples = (event.reading if isinstance(event, NodeReading) else event for event in events)
        if not any(isinstance(one, DiskSamples | DiskHistoryRead) for one in samples):
            return state
        due = [disk for key, disk in state.disks.items() if now - self._trended.get(key, 0.0) >= trend_every(disk)]
        self._trended |= dict.fromkeys((disk.key for disk in due), now)
        trends = {
            disk.key: with_trend(
                disk,
                partial(self.rings.series, disk.key, span=WEEK, now=now),
                now,
                self.rings.series(disk.key, "free_bytes", RATE_SPAN, now),
            )
            for disk in due
        }
        return replace(state, disks={**state.disks, **trends}) if trends else state


def trend_every(disk: Disk) -> Seconds:
    """How often the trend of a disk is computed."""
    return RATE_EVERY if disk.forecast is None or disk.falling_full_at is not None else TREND_EVERY
