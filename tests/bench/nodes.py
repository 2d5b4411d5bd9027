"""Which nodes are bad: precision and recall on simulated fleets, by the number of failures.
Run: python -m tests.bench.nodes [SEED]

Each fleet has runs that end and start again until so many attempts have failed. The cause names the node of 40 % of the
failures. Its goals: a precision of at least 0.95 where 20 nodes or more were called bad, and at most one of 100 fleets
of equal nodes with an accusation. Two kinds have no goal: nodes whose rates differ, with a standard deviation of half
their mean, and equal nodes with programs that have a bug, which ends one of ten runs 0.5 to 5 times a day.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import NamedTuple

from tests.bench.program import run_program
from tests.bench.table import show
from trainmon.analysis.retries import judged
from trainmon.model import NodeUse

DAY = 86_400.0
RATE = 0.0065
"""Failures per node-day (Kokolis et al., arXiv 2410.21680)."""
NAMED = 0.4
FAILURES = (5, 10, 20, 50, 100)
TRIALS = 50
PRECISION, EQUAL_FLEETS = 0.95, 0.01
FEWEST = 20
"""Of fewer accusations, the precision says little."""


class Fleet(NamedTuple):
    """What a fleet is like."""

    nodes: int = 64
    bad: int = 0
    sizes: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Nodes of a job."""
    spread: float = 0.0
    """The standard deviation of the rates of its usual nodes, in their mean."""
    bugs: float = 0.0
    """How many runs fail by themselves."""
    favourites: int = 0
    """So many nodes are in use ten times as much as the others."""
    tests: int = 0
    """So many nodes have only small jobs of programs with a bug, which are one of seven."""


FLEETS: Mapping[str, Fleet] = {
    "64 equal nodes": Fleet(),
    "64 equal nodes, jobs on one": Fleet(sizes=(1,)),
    "256 equal nodes, jobs on 1 to 64": Fleet(nodes=256, sizes=(1, 4, 16, 64)),
    "64 equal nodes, 8 used most": Fleet(sizes=(1, 2, 4, 8), favourites=8),
    "1 bad of 64, 5 to 30 times": Fleet(bad=1),
    "3 bad of 64": Fleet(bad=3),
    "3 bad of 64, jobs on one": Fleet(bad=3, sizes=(1,)),
    "3 bad of 64, 8 used most": Fleet(bad=3, sizes=(1, 2, 4, 8), favourites=8),
    "3 bad of 64, jobs on 16 or 32": Fleet(bad=3, sizes=(16, 32)),
    "4 bad of 256, jobs on 1 to 64": Fleet(nodes=256, bad=4, sizes=(1, 4, 16, 64)),
    "4 of 64 equal nodes for tests": Fleet(tests=4),
    "1 of 64 equal nodes for tests": Fleet(tests=1),
    "3 bad of 64, and 4 for tests": Fleet(bad=3, tests=4),
    "64 unequal nodes": Fleet(spread=0.5),
    "64 equal nodes, programs with bugs": Fleet(bugs=0.1),
    "3 bad of 64, programs with bugs": Fleet(bad=3, bugs=0.1),
}


def simulated(fleet: Fleet, failures: int, chance: random.Random) -> tuple[list[NodeUse], set[str]]:
    """The attempts of a fleet until so many have failed, and its bad nodes."""
    names = [f"n{number}" for number in range(fleet.nodes)]
    bad = set(chance.sample(names[: fleet.nodes - fleet.tests], fleet.bad))
    shape = 0.0 if not fleet.spread else fleet.spread**-2
    rates = {name: RATE * (chance.gammavariate(shape, 1 / shape) if shape else 1.0) for name in names}
    rates |= {name: RATE * chance.uniform(5.0, 30.0) for name in sorted(bad)}
    uses = list[NodeUse]()

    def placed() -> list[str]:
        """The nodes of a job."""
        if fleet.tests:
            return chance.sample(names[-fleet.tests :] if is_test else names[: -fleet.tests], size)
        used = fleet.favourites * 10 / (fleet.favourites * 9 + fleet.nodes)
        among = names[: fleet.favourites] if fleet.favourites >= size and chance.random() < used else names
        return chance.sample(among, size)

    run = now = failed = size = is_test = 0
    while failed < failures:
        run, now = run + 1, now + 3_600
        is_test = fleet.tests > 0 and chance.random() < 1 / 7
        bug = chance.uniform(0.5, 5.0) if is_test or chance.random() < fleet.bugs else 0.0
        size, left, at = chance.choice(fleet.sizes), chance.expovariate(1 / 6.0), float(now)
        size = min(size, fleet.tests) if is_test else size
        place = placed()
        while left > 0.0 and failed < failures:
            own = [rates[name] for name in place]
            fails_after = chance.expovariate(sum(own) + bug)
            ran = min(fails_after, left, 4.0)
            has_failed = ran == fails_after
            (at_fault,) = chance.choices([*place, None], [*own, bug])
            is_named = has_failed and at_fault is not None and chance.random() < NAMED
            uses.append(
                NodeUse(
                    attempt_id=f"{len(uses)}", cluster="c", run=f"r{run}", nodes=tuple(place), began=at,
                    until=at + ran * DAY, is_open=False, failure="nccl-timeout" if has_failed else None,
                    first=(at_fault,) if is_named and at_fault is not None else (),
                )
            )  # fmt: skip
            failed, left, at = failed + has_failed, left - ran, at + ran * DAY
            place = place if chance.random() < 0.5 else placed()
    return uses, bad


class Score(NamedTuple):
    """What was said of all fleets of a kind."""

    right: int
    wrong: int
    missed: int
    accused: int
    """Fleets in which an innocent node was called bad."""

    @property
    def said(self) -> int:
        return self.right + self.wrong

    @property
    def precision(self) -> float:
        return self.right / max(1, self.said)

    @property
    def recall(self) -> float:
        return self.right / max(1, self.right + self.missed)


def score(fleet: Fleet, failures: int, seed: int) -> Score:
    sums = [0, 0, 0, 0]
    for trial in range(TRIALS):
        uses, bad = simulated(fleet, failures, random.Random(f"{seed} {fleet} {failures} {trial}"))
        said = {one.node for one in judged(uses).values() if one.is_bad}
        each = (len(said & bad), len(said - bad), len(bad - said), bool(said - bad))
        sums = [total + one for total, one in zip(sums, each, strict=True)]
    return Score(*sums)


def main() -> int:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    rows, equal, misses = list[list[str]](), list[Score](), 0
    for name, fleet in FLEETS.items():
        scores = [score(fleet, failures, seed) for failures in FAILURES]
        if not fleet.bad:
            cells = [f"{one.accused} accused" for one in scores]
            equal += scores if not fleet.spread and not fleet.bugs else []
        else:
            cells = [f"{one.precision:.2f} {one.recall:.2f}" if one.said else "-    0.00" for one in scores]
            misses += sum(one.said >= FEWEST and one.precision < PRECISION for one in scores)
        rows.append([name, *cells])
    accused, fleets = sum(one.accused for one in equal), TRIALS * len(equal)
    show(
        f"precision and recall by the number of failures; of {TRIALS} fleets, those with an innocent node accused",
        ["fleet", *map(str, FAILURES)],
        rows,
    )
    print(f"\n{accused} of {fleets} fleets of equal nodes accused (at most {EQUAL_FLEETS:.0%}); seed {seed}")
    return int(misses > 0 or accused > EQUAL_FLEETS * fleets)


if __name__ == "__main__":
    run_program(main)
