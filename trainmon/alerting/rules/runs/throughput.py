"""Rules about how fast a run is: against itself, and each of its GPUs against its peers."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import ClassVar, NamedTuple

from trainmon.alerting.rules.base import Duration, Share, unseen
from trainmon.alerting.rules.runs.base import BETWEEN, LIVING, RunRule, log_source
from trainmon.analysis.gpus import is_empty, is_read
from trainmon.analysis.runs import ENOUGH, MINUTE
from trainmon.lib import Instant, counted
from trainmon.model import SLOW_AT_MOST, Alert, Finding, Gpu, GpuAverage, Run, State

STEPS = frozenset({"healthy", "diverged"})
"""Verdicts of a run whose GPUs all do the same: a save or an evaluation is often the work of some."""


class SlowThroughput(RunRule, frozen=True, kw_only=True):
    """The run is clearly slower than over the last day on the same number of nodes."""

    name: ClassVar[str] = "slow-throughput"
    origin: ClassVar[str] = "our choice; the baseline is its own: a new speed becomes usual after half a day"
    needs_for: ClassVar[bool] = True
    unseen_while: ClassVar[frozenset[str]] = BETWEEN

    drop: Share = 0.2
    """How much slower than usual."""
    minutes: int = 5
    """The median of this many minutes is compared, at most 10."""
    for_: Duration = 600.0
    keep_firing_for: Duration = 300.0

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return log_source(state, run)

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        pace = run.memory.throughput
        recent = pace.recent[-self.minutes :]
        if run.verdict not in LIVING or pace.usual_rate is None or len(recent) < self.minutes:
            return
        rate = median(recent)
        if rate >= (1 - self.drop) * pace.usual_rate or not self._is_fresh(run, now):
            return
        less = 100 * (1 - rate / pace.usual_rate)
        yield self.found(
            state,
            run,
            "warning",
            f"{run.name} makes {_rate(rate)} {pace.measure} over its last {counted(self.minutes, 'minute')}, "
            f"{less:.0f} % less than its usual {_rate(pace.usual_rate)}",
            evidence=(f"its last minutes: {', '.join(map(_rate, pace.recent))} {pace.measure}",),
            advice="look for a slow GPU (key 2, v for the clocks), a full disk or a slow one (key 3), and what else "
            "runs on its nodes; X keeps jobs off a node",
        )

    def unclear(self, state: State, run: Run, now: Instant) -> str | None:
        return None if self._is_fresh(run, now) else "no minute of it was measured lately"

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """After a start of this program the slow pace is all that is known: what was usual before is in the alert."""
        run = state.runs.get(alert.run or "")
        told = TOLD.search(alert.summary)
        is_before = alert.found_at < state.started_at and now - state.started_at < SLOW_AT_MOST * MINUTE
        if run is None or told is None or not is_before or run.memory.throughput.measure != told["measure"]:
            return super().blind(state, alert, now)
        recent, usual = (
            run.memory.throughput.recent[-self.minutes :],
            float(told["usual"]) * SIZES.get(told["unit"], 1.0),
        )
        if run.verdict in LIVING and len(recent) == self.minutes and median(recent) < (1 - self.drop) * usual:
            return (
                f"it makes {_rate(median(recent))} {told['measure']}, and made {_rate(usual)} before this program began"
            )
        return super().blind(state, alert, now)

    def _is_fresh(self, run: Run, now: Instant) -> bool:
        pace = run.memory.throughput
        limit = max(600.0, 5 * (run.progress.cadence_s or 0.0))
        is_measured = pace.closed_at is not None and now - pace.closed_at <= limit
        return is_measured and len(pace.usual) >= ENOUGH and len(pace.recent) >= self.minutes


class _Read(NamedTuple):
    """One GPU of a run that is followed for long enough."""

    node: str
    pace: GpuAverage


class _Peers(NamedTuple):
    """What the GPUs of one kind of a run do, in the middle."""

    others: int
    utilization: float
    clock: float | None
    power: float | None
    temperature: float | None


class Straggler(RunRule, frozen=True, kw_only=True):
    """A GPU of a run is slower or colder than its peers, and all others wait for it."""

    name: ClassVar[str] = "straggler"
    origin: ClassVar[str] = "our choice: only the clock shows a GPU at 86 MHz among peers at 1,980 MHz"
    needs_for: ClassVar[bool] = True

    slower: Share = 0.15
    """How far the clock of a busy GPU is below the median of its peers."""
    colder: Share = 0.4
    """How far its power is below the median of its peers, with less utilization or less heat."""
    peers: int = 3
    """The minimum number of other GPUs of the same kind."""
    followed: Duration = 120.0
    """How long a GPU must have been observed: its numbers are means over minutes."""
    for_: Duration = 300.0
    keep_firing_for: Duration = 300.0

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.verdict not in STEPS:
            return
        slow: dict[str, list[str]] = defaultdict(list)
        kinds = self._read(state, run, now)
        for gpus in kinds.values():
            peers = self._peers(gpus)
            if peers is not None:
                for one in gpus:
                    behind = self._behind(one.pace, peers)
                    if behind:
                        slow[one.node].append(f"GPU {one.pace.index} {behind}")
        nodes = {one.node for gpus in kinds.values() for one in gpus}
        if len(slow) > max(1, len(nodes) // 4):
            return  # so many are no stragglers: stages of a pipeline differ
        for node, words in slow.items():
            yield self._found(state, run, node, words)

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        run = state.runs.get(alert.run or "")
        if run is None or alert.node not in run.spec.nodes:
            return None  # it trains elsewhere now
        words = unseen(state, alert)
        if words is not None:
            return words
        if run.verdict not in STEPS:
            return f"{run.name} is {run.verdict}: its GPUs cannot be compared"
        known = [one for gpus in self._read(state, run, now).values() if self._peers(gpus) for one in gpus]
        return None if any(one.node == alert.node for one in known) else f"the GPUs of {alert.node} are not busy"

    def _found(self, state: State, run: Run, node: str, gpus: list[str]) -> Finding:
        more = f", and {len(gpus) - 1} more of its GPUs are behind" if len(gpus) > 1 else ""
        return self.found(
            state,
            run,
            "warning",
            f"{node} holds {run.name} up: {gpus[0]}{more}",
            subject=f"node:{node}",
            node=node,
            sources=(f"node:{node}",),
            evidence=tuple(gpus[:10]),
            advice=f"see what slows it (key 2, Enter on {node}); X keeps jobs off it: trainmon-tui exclude {node}",
        )

    def _read(self, state: State, run: Run, now: Instant) -> dict[str, list[_Read]]:
        """Its GPUs that can be compared, by kind."""
        kinds: dict[str, list[_Read]] = defaultdict(list)
        job = state.jobs.get(run.job or "")
        user = None if job is None else job.user
        for name in run.spec.nodes:
            if not is_read(name, state.nodes, state.sources, now):
                continue
            node = state.nodes[name]
            known = {gpu.index: gpu for gpu in node.gpus}
            for pace in node.paces:
                gpu = known.get(pace.index)
                if gpu is not None and _is_of_it(gpu, user) and pace.at - pace.since >= self.followed:
                    kinds[gpu.name or ""].append(_Read(name, pace))
        return kinds

    def _peers(self, gpus: list[_Read]) -> _Peers | None:
        """The middle of these; None where they are too few, or not at work."""
        if len(gpus) <= self.peers:
            return None
        use = _middle([one.pace.utilization_pct for one in gpus])
        if use is None or use < 50.0:
            return None
        return _Peers(
            len(gpus) - 1,
            use,
            _middle([one.pace.sm_clock_mhz for one in gpus]),
            _middle([one.pace.power_w for one in gpus]),
            _middle([one.pace.temperature_c for one in gpus]),
        )

    def _behind(self, gpu: GpuAverage, peers: _Peers) -> str:
        """In what it is behind."""
        clock, power = gpu.sm_clock_mhz, gpu.power_w
        use = peers.utilization if gpu.utilization_pct is None else gpu.utilization_pct
        others = f"where its {peers.others} peers are at"
        if clock is not None and peers.clock and use >= 50.0 and clock < (1 - self.slower) * peers.clock:
            return f"runs at {clock:,.0f} MHz, {others} {peers.clock:,.0f} MHz"
        if power is None or not peers.power or power >= (1 - self.colder) * peers.power:
            return ""
        heat = "" if gpu.temperature_c is None else f" and {gpu.temperature_c:.0f} °C"
        colder = 0.0 if gpu.temperature_c is None else (peers.temperature or 0.0) - gpu.temperature_c
        if use > peers.utilization - 20.0 and colder < 10.0:
            return ""
        return f"draws {power:.0f} W at {use:.0f} %{heat}, {others} {peers.power:.0f} W"


def _is_of_it(gpu: Gpu, user: str | None) -> bool:
    """Whether the run uses this GPU: of a node that is shared, others are idle, or somebody else's."""
    users = {process.user for process in gpu.processes}
    is_others = bool(users) and bool(user) and None not in users and user not in users
    return gpu.state == "ok" and not gpu.mig and not is_empty(gpu) and not is_others


def _middle(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


SIZES = {"G": 1e9, "M": 1e6, "k": 1e3}
TOLD = re.compile(r" (?P<measure>\S+) over its last .* its usual (?P<usual>[\d.]+)(?P<unit>[GMk]?)$")
"""In our own summary."""


def _rate(value: float) -> str:
    """`1.62M`, `48.1k`, `0.24`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{value:.3g}"
