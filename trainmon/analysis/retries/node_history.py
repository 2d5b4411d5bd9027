"""Which nodes fail several times as often as the others of their cluster, by its attempts of 90 days. Pure.

Failures that a node may cause come at random, at one rate per node-day, with the prior Gamma(0.5, 77 node-days): a
mean of 6.5 failures per 1,000 node-days, that of RSC-1 in Kokolis et al., arXiv 2410.21680 (HPCA 2025). A few nodes are
bad: their rate is 5 to 300 times as high. A failure is that of the node which its cause names. Else it may be that of
any node of its attempt, or of its run: a program may fail by itself, and often, wherever it runs. The sets of bad nodes
are compared by how well all attempts fit to each, times its prior. So two nodes that always run together share a doubt,
and no node is bad by one failed attempt.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from sys import intern
from typing import NamedTuple

from trainmon.analysis.retries.budget import OF_NODE, suspects
from trainmon.lib import DAY, Seconds, by_key, counted, group_by, listed
from trainmon.model import Attempt, NodeEvent, NodeRecord, NodeUse

KEPT: Seconds = 90 * DAY
"""How long an attempt counts."""
USES_AT_MOST = 3_000
"""The newest attempts of all clusters count: with 32 nodes each, they take 2 MiB."""

FAILURES_AT_MOST = 300
"""Of more, the newest count, and the attempts since then: to judge so many takes half a second at most."""

FEW = 5
"""Fewer failures say little of a cluster: no node is bad by them."""
SURE = 0.95
"""The probability from which a node is called bad. As the prior expects at most one bad node in a cluster, whatever its
size, equal nodes are accused in at most one of 20 clusters (Markov's inequality), and in fewer than one of 100 in
simulations (tests/bench/nodes.py)."""

EVENTS, NODE_DAYS = 0.5, 77.0
"""The prior of the rate of failures."""
BAD = 40 / 3_000
"""The prior of a bad node: those that Kokolis et al. found among the nodes of two clusters. In large clusters it is one
node."""
TIMES = (5.0, 12.0, 30.0, 300.0)
"""How many times as often as others a bad node fails: each is as likely as the others."""
ITSELF = 0.2
"""Our prior of a run that fails by itself."""
ITS_RATES = (0.1, 0.5, 2.5, 12.0, 60.0)
"""How often it does, per day: each is as likely as the others."""

BEST = 6
"""So many of the best sets are extended by another bad node."""
NAMES = 16
"""By so many of the likeliest nodes."""
SETS = 24
"""The most bad nodes of a cluster."""
WORSE = 5.0
"""Larger sets are left out when the best of them is by this factor (its logarithm) worse than the best of all."""


def use_of(one: Attempt) -> NodeUse:
    """What an attempt says of its nodes."""
    until = one.ended_at or one.seen_at
    return NodeUse(
        attempt_id=one.attempt_id,
        cluster=one.cluster,
        run=one.run_id,
        nodes=tuple(map(intern, one.nodes)),
        began=min(one.started_at or one.first_step_at or until, until),
        until=until,
        is_open=one.is_open,
        failure=one.cause.cause if one.cause is not None and one.cause.cause in OF_NODE else None,
        first=suspects(one),
    )


def kept(uses: Iterable[NodeUse]) -> dict[str, NodeUse]:
    """Those that count, by the id of the attempt, the newest first. Of one attempt, the last one counts."""
    newest = nlargest(USES_AT_MOST, {one.attempt_id: one for one in uses}.values(), key=lambda one: one.until)
    failed = [one.until for one in newest if one.failure is not None]
    since = max([*failed[FAILURES_AT_MOST:], *(one.until - KEPT for one in newest)], default=0.0)
    return {one.attempt_id: one for one in newest if one.until > since}


def judged(uses: Iterable[NodeUse]) -> dict[str, NodeRecord]:
    """By name: what these attempts say of each node that they ran on. `is_bad` is the verdict, which a retry, a gate
    and a person may act on; `probability` is that of a bad node, given all attempts of its cluster."""
    known = group_by((one for one in kept(uses).values() if one.nodes), lambda one: one.cluster)
    return {name: one for cluster, own in known.items() for name, one in _judged(cluster, own).items()}


def _judged(cluster: str, uses: Sequence[NodeUse]) -> dict[str, NodeRecord]:
    days, of_run = defaultdict[str, float](float), defaultdict[str, float](float)
    for one in uses:
        ran = (one.until - one.began) / DAY
        of_run[one.run] += ran
        for name in one.nodes:
            days[name] += ran
    failed = [one for one in uses if one.failure is not None]
    ends = Counter(name for one in uses if not one.is_open for name in one.nodes)
    first = Counter(name for one in failed for name in one.first)
    unnamed = Counter(name for one in failed if not one.first for name in one.nodes)
    expected = sum(bool(one.first) for one in failed) / (math.fsum(days.values()) or 1.0)
    found = probabilities(days, of_run, failed) if len(failed) >= FEW else {}
    return {
        name: NodeRecord(
            cluster=cluster,
            ends=ends[name],
            first_errors=first[name],
            expected=expected * days[name],
            unnamed=unnamed[name],
            failures=len(failed),
            probability=found.get(name, 0.0),
            is_bad=found.get(name, 0.0) >= SURE,
        )
        for name in days
    }


class BadNodes(NamedTuple):
    """A set of bad nodes."""

    log_weight: float
    """The logarithm of how well it explains the attempts, times its prior. That of no bad node is 0."""
    names: frozenset[str]
    rates: Sequence[float]
    """Of each failure: the sum of the rates of the nodes that it may be of, in that of a usual node."""
    days: float
    """The sum of node-days and those of the prior, each times its rate."""


def probabilities(
    days: Mapping[str, float], of_run: Mapping[str, float], failed: Sequence[NodeUse]
) -> dict[str, float]:
    """The probability that each node is bad, by its node-days and the failed attempts; `of_run`: how long each run ran,
    in days. The rate of a usual node is integrated out, and so is whether a run fails by itself."""
    shape, usual_days = EVENTS + len(failed), NODE_DAYS + math.fsum(days.values())
    prior = math.log(min(BAD, 1 / len(days)) / len(TIMES))
    may_be_of = [frozenset(one.first or one.nodes) for one in failed]
    groups = by_key(((one.run, one.attempt_id if one.first else ""), index) for index, one in enumerate(failed))
    own = by_key(
        (name, key) for key, group in groups.items() for name in frozenset().union(*(may_be_of[one] for one in group))
    )

    def fit(rates: Sequence[float], key: tuple[str, str]) -> float:
        """How well these rates explain the failures of a run whose node is not known, or one whose node is."""
        explained = [math.log(1 - ITSELF) + math.fsum(math.log(rates[one]) for one in groups[key])]
        for rate in ITS_RATES if not key[1] else ():
            itself = math.log(ITSELF / len(ITS_RATES)) - rate * of_run[key[0]]
            explained.append(itself + math.fsum(math.log(rates[at] + rate * usual_days / shape) for at in groups[key]))
        return _log_sum(explained)

    def extended(one: BadNodes, name: str) -> BadNodes:
        """The set with another bad node: as often as fits best, with the weight of all."""
        before, found = math.fsum(fit(one.rates, key) for key in own[name]), list[BadNodes]()
        is_own = [name in names for names in may_be_of]
        for times in TIMES:
            rates = [rate + (times - 1) * is_of for rate, is_of in zip(one.rates, is_own, strict=True)]
            total = one.days + (times - 1) * days[name]
            gain = math.fsum(fit(rates, key) for key in own[name]) - before - shape * math.log(total / one.days)
            found.append(BadNodes(one.log_weight + prior + gain, one.names | {name}, rates, total))
        return max(found, key=lambda one: one.log_weight)._replace(
            log_weight=_log_sum([one.log_weight for one in found])
        )

    best = [BadNodes(0.0, frozenset(), [float(len(names)) for names in may_be_of], usual_days)]
    weights, candidates = {best[0].names: 0.0}, sorted(own)
    for _ in range(SETS):
        found = [extended(base, name) for base in best for name in candidates if name not in base.names]
        ordered = sorted({one.names: one for one in found}.values(), key=lambda one: -one.log_weight)
        most = max(weights.values())
        if not ordered or ordered[0].log_weight < most - WORSE:
            break
        weights |= {one.names: one.log_weight for one in ordered if one.log_weight > most - 2 * WORSE}
        best, candidates = (
            ordered[:BEST],
            candidates if best[0].names else [*chain(*(one.names for one in ordered))][:NAMES],
        )
    total = _log_sum(weights.values())
    sums = by_key((name, math.exp(weight - total)) for names, weight in weights.items() for name in names)
    return {name: math.fsum(shares) for name, shares in sums.items()}


def _log_sum(logs: Collection[float]) -> float:
    """The logarithm of the sum of the numbers with these logarithms."""
    most = max(logs)
    return most + math.log(math.fsum(math.exp(one - most) for one in logs))


# ---- what is shown of a node -----------------------------------------------------------------------------------------

SEEN: Mapping[str, str] = {
    "xid": "Xid", "ecc-uncorrected": "ECC event", "row-remap": "ECC event", "gpu-lost": "lost GPU",
    "gpu-missing": "lost GPU", "infiniband-down": "flap", "infiniband-flapping": "flap", "slow-link": "slow link",
    "straggler": "straggler verdict", "node-drained": "drain", "node-rebooted": "reboot",
}  # fmt: skip
"""By rule: what its alerts are called in the history of a node."""


def first_errors(uses: Iterable[NodeUse]) -> Iterator[NodeEvent]:
    """Where the first errors of these attempts were."""
    for one in uses:
        for node in one.first:
            yield NodeEvent(at=one.until, node=node, what="first-error", text=f"{one.failure} ended {one.attempt_id}")


def record_text(one: NodeRecord, events: Iterable[NodeEvent] = ()) -> str:
    """`first error in 3 of the last 5 ends, 2 Xids, 1 flap; 0.2 expected`."""
    parts = [f"first error in {one.first_errors or 'none'} of the last {counted(one.ends, 'end')}"]
    parts += [f"in {counted(one.unnamed, 'failure')} of which no node is known"] if one.unnamed else []
    seen = (SEEN[event.what] for event in events if event.what in SEEN)
    parts += [counted(number, name) for name, number in Counter(seen).items()]
    bad = f"; bad: {min(0.999, one.probability):.1%} sure" if one.is_bad else ""
    return f"{', '.join(parts)}; {one.expected:.1f} expected{bad}"


def verdict(cluster: str, records: Mapping[str, NodeRecord]) -> str:
    """`prod: 20 failures on 64 nodes in 90 days; no node is bad beyond chance`."""
    own = {name: one for name, one in records.items() if one.cluster == cluster}
    failures = max((one.failures for one in own.values()), default=0)
    bad = listed([name for name, one in own.items() if one.is_bad])
    says = "too few to say" if failures < FEW else f"bad: {bad}" if bad else "no node is bad beyond chance"
    return f"{cluster}: {counted(failures, 'failure')} on {counted(len(own), 'node')} in 90 days; {says}"
