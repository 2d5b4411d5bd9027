"""What one look costs: all rules on 256 nodes × 8 GPUs, calm and in trouble, and the alerts that come of it.

Run: python -m tests.bench.rules
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tests.bench.program import run_program
from tests.trainmon.alerting.stories.story import BEGIN, FakeClock, Kept
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES, Rule
from trainmon.alerting.rules.base import evaluate
from trainmon.engine.engine import Engine
from trainmon.lib import Instant
from trainmon.model import (
    AlertsRestored,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    HostSample,
    InfinibandPort,
    Leadership,
    LeadershipChanged,
    NodeReading,
    Process,
    Route,
    RunsChanged,
    RunSpec,
    State,
    StoredAlerts,
)

NODES, GPUS, ROUNDS = 256, 8, 30
REACH_MS = 50.0


def samples(name: str, at: Instant, is_ill: bool) -> Iterator[NodeReading]:
    """What the probe of a node says: everything is ok, or hot, slowed down, with memory errors and one GPU lost."""
    margin, mask, hot = (0, 0x40, 95) if is_ill else (30, 0x4, 60)
    gpus = tuple(
        GpuSample(i, "GPU is lost", True)
        if is_ill and i == 7
        else GpuSample(i, None, False, hot, 70, 60_000, 97, 600.0, 1_700, mask)
        for i in range(GPUS)
    )
    facts = tuple(
        GpuFacts(
            i, uuid=f"GPU-{name}-{i}", memory_total_mib=81_559, power_limit_w=700.0, temperature_margin_c=margin,
            ecc_uncorrected=3 if is_ill and at > BEGIN + 10 else 0, remap_pending=False, remap_failed=False,
            processes=(Process(100 + i, "ann", 60_000, "python train.py"),),
        )
        for i in range(GPUS)
    )  # fmt: skip
    ports = tuple(InfinibandPort(f"mlx5_{i}/1", "ACTIVE", 0, 0) for i in range(GPUS))
    host = HostSample(1, at, load1=8.0, memory_used_mib=200_000, memory_total_mib=2_000_000, infiniband=ports)
    for text in (GpuFactsAll(1, at, facts, expected=GPUS), GpuSamples(1, at, gpus), host):
        yield NodeReading(name, "prod", at, text)


def folded(ill: int, silent: int) -> State:
    """The State after two minutes of samples: every 16th node may be ill, and another 16th falls silent."""
    names = [f"gpu-{number:03}" for number in range(NODES)]
    clock = FakeClock(BEGIN)
    engine = Engine(clock)
    specs = [RunSpec(name=f"run-{i}", cluster="prod", nodes=tuple(names[i::4])) for i in range(4)]
    engine.step([RunsChanged(tuple(specs))], BEGIN)
    for second in range(0, 120, 2):
        clock.wall = BEGIN + second
        events: list[NodeReading] = []
        for number, name in enumerate(names):
            if not (silent and number % 16 == 1 and second > 20):
                events += samples(name, clock.wall, bool(ill) and number % 16 == 0 and second > 4)
        engine.step(events, clock.wall)
    return engine.state


def timed(work: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Milliseconds of CPU, of each round."""
    taken = []
    for _ in range(rounds):
        begin = time.thread_time()
        work()
        taken.append(1000 * (time.thread_time() - begin))
    return taken


def by_rule(rules: Iterable[Rule], state: State, now: Instant) -> list[tuple[float, str]]:
    """What each rule costs alone, the dearest first."""
    costs = [(statistics.median(timed(lambda one=rule: evaluate((one,), state, now), 5)), rule.name) for rule in rules]  # type: ignore[misc]
    return sorted(costs, reverse=True)


def measure(title: str, state: State) -> float:
    rules = tuple(rule() for rule in RULES)
    taken = timed(lambda: evaluate(rules, state, state.at))
    found = Counter(finding.rule for finding in evaluate(rules, state, state.at).findings)
    clock = FakeClock(state.at)
    alerting = AlertManager(rules, Routing(routes=(Route(channel="phone"),)), Kept(), clock=clock)
    looked = alerting.evaluate(
        state, [LeadershipChanged(Leadership(holder="us")), AlertsRestored(StoredAlerts())], clock.wall
    )

    def look() -> None:
        nonlocal looked
        clock.wall += 1.0
        clock.steady += 1.0
        looked = alerting.evaluate(looked, (), clock.wall)

    looks = timed(look)
    median = statistics.median(taken)
    print(f"{title}: {len(rules)} rules, {sum(found.values())} findings")
    print(f"  rules alone: median {median:.1f} ms, most {max(taken):.1f} ms (goal: {REACH_MS:.0f} ms)")
    print(f"  a whole look: median {statistics.median(looks):.1f} ms, most {max(looks):.1f} ms")
    print("  dearest: " + ", ".join(f"{name} {cost:.1f}" for cost, name in by_rule(rules, state, state.at)[:6]))
    print("  found: " + ", ".join(f"{count} {name}" for name, count in found.most_common(8)))
    return median


def main() -> int:
    worst = max(measure("calm", folded(0, 0)), measure("in trouble", folded(1, 1)))
    return 0 if worst <= REACH_MS else 1


if __name__ == "__main__":
    run_program(main)
