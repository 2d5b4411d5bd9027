"""What one look costs: all rules on 256 nodes × 8 GPUs, calm and in trouble, and the alerts that come of it.

Run: python -m tests.bench.rules
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from tests.trainmon.stories.story import FakeClock, Kept
from tests.tui import worlds
from trainmon.alerting import Alerting
from trainmon.clock import Instant
from trainmon.model import State
from trainmon.model_alerts import AlertsRecalled, Duty, DutyChanged, Recalled, Route
from trainmon.routing import Routing
from trainmon.rules import RULES
from trainmon.rules.base import Rule
from trainmon.rules.evaluating import evaluate

NODES, GPUS, ROUNDS = 256, 8, 30
REACH_MS = 50.0


def troubled(state: State, share: int = 16) -> State:
    """Every sixteenth node has hot, throttled and lost GPUs, and another sixteenth is silent."""
    nodes, sources = dict(state.nodes), dict(state.sources)
    for number, (name, node) in enumerate(state.nodes.items()):
        if number % share == 0:
            gpus = [replace(gpu, temperature_c=95, throttle=("hw_thermal",), ecc_uncorrected=3) for gpu in node.gpus]
            nodes[name] = replace(node, gpus=(*gpus[:-1], replace(gpus[-1], state="lost", error="fell off the bus")))
        if number % share == 1 and f"node:{name}" in sources:
            source = sources[f"node:{name}"]
            sources[f"node:{name}"] = replace(source, health="down", error="no route to host", seen_at=state.at - 600)
    return replace(state, nodes=nodes, sources=sources)


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
    found = Counter(finding.rule for finding in evaluate(rules, state, state.at))
    clock = FakeClock(state.at)
    alerting = Alerting(rules, Routing(routes=(Route(channel="phone"),)), Kept(), clock=clock)
    looked = alerting.look(state, [DutyChanged(Duty(holder="us")), AlertsRecalled(Recalled())], clock.wall)

    def look() -> None:
        nonlocal looked
        clock.wall += 1.0
        clock.steady += 1.0
        looked = alerting.look(looked, (), clock.wall)

    looks = timed(look)
    median = statistics.median(taken)
    print(f"{title}: {len(rules)} rules, {sum(found.values())} findings")
    print(f"  rules alone: median {median:.1f} ms, most {max(taken):.1f} ms (reach {REACH_MS:.0f} ms)")
    print(f"  a whole look: median {statistics.median(looks):.1f} ms, most {max(looks):.1f} ms")
    print("  dearest: " + ", ".join(f"{name} {cost:.1f}" for cost, name in by_rule(rules, state, state.at)[:6]))
    print("  found: " + ", ".join(f"{count} {name}" for name, count in found.most_common(8)))
    return median


def main() -> int:
    calm = worlds.calm(NODES, GPUS)
    worst = max(measure("calm", calm), measure("in trouble", troubled(calm)))
    return 0 if worst <= REACH_MS else 1


if __name__ == "__main__":
    sys.exit(main())
