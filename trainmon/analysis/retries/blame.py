"""Whether one node is to blame for the failures of attempts: an exact test, corrected for the nodes tried. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from math import comb

import msgspec

from trainmon.analysis.retries.budget import OF_NODE
from trainmon.lib import counted
from trainmon.model import Attempt

SIGNIFICANCE = Fraction(1, 20)


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    """A node whose attempts fail more often than chance explains."""

    node: str
    p: float
    """The chance of so many failures on a healthy node: Fisher's exact test, one-sided."""
    corrected: float
    """The same times the number of nodes tried (Bonferroni)."""
    why: str


def fisher(failed: int, fine: int, other_failed: int, other_fine: int) -> Fraction:
    """Fisher's exact test, one-sided: the chance that at least `failed` of all failures are among the `failed` + `fine`
    attempts of a node, if the node makes no difference. The arithmetic is exact."""
    own, failures, total = failed + fine, failed + other_failed, failed + fine + other_failed + other_fine
    at_least = range(failed, min(own, failures) + 1)
    ways = sum(comb(own, k) * comb(total - own, failures - k) for k in at_least)
    return Fraction(ways, comb(total, failures))


def blamed(attempts: Iterable[Attempt], cluster: str) -> tuple[Blame, ...]:
    """The nodes of a cluster that the test blames for failures that a single node may cause, the surest first."""
    fails: Counter[str] = Counter()
    uses: Counter[str] = Counter()
    failures = total = 0
    for one in attempts:
        if one.cause is None or one.cluster != cluster or not one.nodes:
            continue
        is_failure = one.cause.cause in OF_NODE
        total, failures = total + 1, failures + is_failure
        uses.update(one.nodes)
        fails.update(one.nodes if is_failure else ())
    found = []
    for node, failed in fails.items():
        fine = uses[node] - failed
        p = fisher(failed, fine, failures - failed, total - failures - fine)
        corrected = min(Fraction(1), p * len(uses))
        if corrected < SIGNIFICANCE:
            why = (
                f"{node} was in {failed} of {counted(failures, 'attempt')} that failed by hardware or network, and in "
                f"{fine} of {total - failures:,} others (Fisher's exact test: p = {float(p):.2g}; "
                f"{float(corrected):.2g} after the correction for {counted(len(uses), 'node')})"
            )
            found.append(Blame(node=node, p=float(p), corrected=float(corrected), why=why))
    return tuple(sorted(found, key=lambda one: (one.corrected, one.node)))
