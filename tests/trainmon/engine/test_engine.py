"""The one thread that owns State."""

from __future__ import annotations

import queue

import pytest

from tests.trainmon.ledger.records import DONE, record
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.engine.engine import Engine
from trainmon.model import (
    ActionChanged,
    AnyReading,
    DiskSample,
    DiskSamples,
    DisksChanged,
    GpuSample,
    GpuSamples,
    NodeReading,
    Record,
    RunsChanged,
    RunSpec,
    Series,
    SourceRemoved,
    State,
)


class FakeClock:
    """A clock that a test sets."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def reading_of(reading: AnyReading, at: float) -> NodeReading:
    return NodeReading("n1", "prod", at, reading)


def gpu(temperature: int, at: float) -> NodeReading:
    return reading_of(GpuSamples(1, at, (GpuSample(0, temperature_c=temperature, utilization_pct=99),)), at)


def test_a_step_folds_and_records() -> None:
    clock = FakeClock()
    engine = Engine(clock)
    for i in range(5):
        clock.at = 1000.0 + 2 * i
        state = engine.step([gpu(60 + i, clock.at)], clock.at)
    assert state.nodes["n1"].gpus[0].temperature_c == 64
    assert engine.history("n1/0", "temperature", 60) == Series(
        offsets=(-8.0, -6.0, -4.0, -2.0, 0.0), values=(60.0, 61.0, 62.0, 63.0, 64.0)
    )


def test_a_node_that_is_gone_takes_its_history_along() -> None:
    engine = Engine(FakeClock())
    engine.step([gpu(60, 1000.0)], 1000.0)
    engine.step([SourceRemoved("node:n1")], 1001.0)
    assert engine.history("n1/0", "temperature", 60).values == ()


def test_a_disk_that_fills_says_when_it_is_full() -> None:
    clock = FakeClock()
    engine = Engine(clock)
    engine.step([DisksChanged({"/fsx": 0.8})], clock.at)
    for i in range(90):
        clock.at = 1000.0 + 10 * i
        sample = DiskSample("/fsx", total_bytes=10**13, free_bytes=5 * 10**12 - 10**9 * i, free_inodes=10**6)
        state = engine.step([reading_of(DiskSamples(1, clock.at, (sample,)), clock.at)], clock.at)
    disk = state.disks["n1:/fsx"]
    assert disk.bytes_per_day == pytest.approx(10**8 * 86_400, rel=0.02)
    assert disk.full_at == pytest.approx(clock.at + 2.92e12 / 1e8, rel=0.03)
    assert disk.inodes_full_at is None


def test_a_subscriber_gets_the_present_state_and_then_the_next() -> None:
    engine = Engine()
    states: queue.Queue[State] = queue.Queue()
    cancel = engine.subscribe(states.put)
    assert states.get(timeout=120).runs == {}
    engine.start()
    engine.submit(RunsChanged((RunSpec(name="llm", cluster="prod"),)))
    state = states.get(timeout=120)
    while "llm" not in state.runs:
        state = states.get(timeout=120)
    cancel()
    engine.stop()
    assert state.runs["llm"].why == "no log is configured for it"


def test_one_bad_event_and_one_bad_subscriber_stop_nothing() -> None:
    engine = Engine()
    states: queue.Queue[State] = queue.Queue()

    def broken(_: State) -> None:
        if engine.state.runs:
            raise RuntimeError("a broken pane")

    engine.subscribe(broken)
    engine.subscribe(states.put)
    engine.start()
    engine.submit(RunsChanged((RunSpec(name="llm", cluster="prod"),)))
    engine.submit(RunsChanged(None))  # type: ignore[arg-type]
    found = [states.get(timeout=120) for _ in range(3)]
    engine.stop()
    assert "llm" in found[-1].runs


def test_ages_move_on_with_no_event() -> None:
    engine = Engine()
    states: queue.Queue[State] = queue.Queue()
    engine.subscribe(states.put)
    engine.start()
    first = states.get(timeout=120)
    second = states.get(timeout=120)
    engine.stop()
    assert second.at > first.at


class Notebook:
    """A ledger that a test reads."""

    def __init__(self) -> None:
        self.kept: list[Record] = []

    def keep(self, record: Record) -> None:
        self.kept.append(record)


def test_the_rules_are_evaluated_at_once_on_request() -> None:
    """Without a request, one evaluation a second is enough."""
    clock = FakeClock()
    engine = Engine(clock, alerting=AlertManager((), Routing(), None, clock=clock))
    assert engine.step([], clock.at).evaluated_at == 1000.0
    clock.at += 0.1
    assert engine.step([], clock.at).evaluated_at == 1000.0
    engine.evaluate_now()
    assert engine.step([], clock.at).evaluated_at == 1000.1


def test_what_became_of_an_action_is_written_down_once_a_change() -> None:
    notebook = Notebook()
    engine = Engine(FakeClock(), ledger=notebook)
    engine.step([ActionChanged(record())], 1000.0)
    engine.step([DisksChanged({})], 1001.0)
    engine.step([ActionChanged(record(**DONE))], 1002.0)
    assert [(kept.action.id, kept.status) for kept in notebook.kept] == [("a1", "asked"), ("a1", "done")]


def watched(free: dict[int, float], filesystem: str = "lustre") -> list[tuple[float, State]]:
    """The States of a disk of 200 TB, sampled every 10 s: seconds since the first sample, and the State."""
    engine, found = Engine(FakeClock()), list[tuple[float, State]]()
    for age, left in free.items():
        sample = DiskSample("/fsx", filesystem=filesystem, total_bytes=200 * 10**12, free_bytes=int(left))
        at = 1000.0 + age
        found.append((float(age), engine.step([reading_of(DiskSamples(1, at, (sample,)), at)], at)))
    return found


def test_a_falling_disk_has_a_rate_and_an_end_within_a_minute() -> None:
    """123 TB free became 1.5 TB in 83 s, and the pane showed `?` for the growth per day."""
    states = watched({age: (123 - 1.464 * age) * 1e12 for age in range(0, 90, 10)})
    disk = next(state.disks["n1:/fsx"] for age, state in states if age == 60)
    assert disk.recent_per_day == pytest.approx(1.464e12 * 86_400, rel=0.01)
    assert disk.falling_full_at is not None
    assert 1060 < disk.falling_full_at < 1060 + 60
    assert (disk.bytes_per_day, disk.full_at) == (None, None), "no alert from a minute of history"


def test_the_rate_of_two_minutes_ends_with_enough_history_unless_the_disk_falls() -> None:
    calm = watched({age: 123e12 - 1e6 * age for age in range(0, 900, 10)})
    early = next(state.disks["n1:/fsx"] for age, state in calm if age == 60)
    assert early.recent_per_day == pytest.approx(1e6 * 86_400)
    assert early.falling_full_at is None
    last = calm[-1][1].disks["n1:/fsx"]
    assert (last.recent_per_day, last.falling_full_at) == (None, None)
    assert last.bytes_per_day == pytest.approx(1e6 * 86_400)

    falls = watched({age: 123e12 - max(0, age - 1000) * 1e12 for age in range(0, 1110, 10)})[-1][1].disks["n1:/fsx"]
    assert falls.recent_per_day is not None
    assert falls.falling_full_at is not None
