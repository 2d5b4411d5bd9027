"""Whether one node is to blame for the failures of attempts: an exact test, corrected for the nodes tried. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import comb
from typing import NamedTuple

from trainmon.analysis.retries.budget import OF_NODE
from trainmon.lib import counted
from trainmon.model import Attempt

SIGNIFICANCE = Fraction(1, 20)


class Blame(NamedTuple):
    """A node whose attempts fail more often than chance explains."""

    node: str
    why: str


def fisher(failed: int, fine: int, other_failed: int, other_fine: int) -> Fraction:
    """Fisher's exact test, one-sided: the chance that at least `failed` of all failures are among the `failed` + `fine`
    attempts of a node, if the node makes no difference. The arithmetic is exact."""
    own, failures, total = failed + fine, failed + other_failed, failed + fine + other_failed + other_fine
    at_least = range(failed, min(own, failures) + 1)
    ways = sum(comb(own, k) * comb(total - own, failures - k) for k in at_least)
    return Fraction(ways, comb(total, failures))


class Counts(NamedTuple):
    """The attempts of one cluster whose nodes and cause are known, and how many of them each node was in."""

    total: int
    failures: int
    """Those that failed by what a single node may cause."""
    uses: Mapping[str, int]
    fails: Mapping[str, int]

    def chance(self, node: str, failed: int) -> Fraction:
        """The chance that at least `failed` of the failures are on this node, if the node makes no difference."""
        fine = self.uses[node] - failed
        return fisher(failed, fine, self.failures - failed, self.total - self.failures - fine)

    def is_significant(self, p: Fraction) -> bool:
        """Whether a chance is small enough after the correction for the number of nodes tried (Bonferroni)."""
        return p * len(self.uses) < SIGNIFICANCE


def counts(attempts: Iterable[Attempt], cluster: str) -> Counts:
    """Count the attempts of a cluster by their nodes."""
    causes = [(one, one.cause.cause) for one in attempts if one.cause and one.cluster == cluster and one.nodes]
    failed = [one for one, cause in causes if cause in OF_NODE]
    uses = Counter(node for one, _ in causes for node in one.nodes)
    return Counts(len(causes), len(failed), uses, Counter(node for one in failed for node in one.nodes))


def blamed(attempts: Iterable[Attempt], cluster: str) -> tuple[Blame, ...]:
    """The nodes of a cluster that the test blames for failures that a single node may cause, the surest first."""
    known = counts(attempts, cluster)
    chances = sorted((known.chance(node, failed), node) for node, failed in known.fails.items())
    return tuple(Blame(node, _why(known, node, p)) for p, node in chances if known.is_significant(p))


def _why(known: Counts, node: str, p: Fraction) -> str:
    failed, nodes = known.fails[node], len(known.uses)
    return (
        f"{node} was in {failed} of {counted(known.failures, 'attempt')} that failed by hardware or network, and in "
        f"{known.uses[node] - failed} of {known.total - known.failures:,} others (Fisher's exact test: p = "
        f"{float(p):.2g}; {float(p * nodes):.2g} after the correction for {counted(nodes, 'node')})"
    )


def lacks_data(attempts: Iterable[Attempt], attempt: Attempt) -> bool:
    """Whether several attempts have failed, and the test could blame no node of this one even with all failures on it:
    the others ran on the same nodes, or are too few."""
    known = counts(attempts, attempt.cluster)
    least = (known.chance(node, min(known.uses[node], known.failures)) for node in attempt.nodes)
    return known.failures > 1 and bool(attempt.nodes) and not any(map(known.is_significant, least))
