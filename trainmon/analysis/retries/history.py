"""What earlier attempts say of the next one: what is left of the budget of its cause, and which nodes fail. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from heapq import nlargest
from itertools import chain
from operator import attrgetter
from sys import intern
from typing import NamedTuple

from trainmon.lib import DAY, Seconds, by_key, counted, group_by, listed
from trainmon.model import (
    CAUSES,
    Attempt,
    CauseName,
    NodeEvent,
    NodeRecord,
    NodeUse,
    RetryLimit,
    RetryPolicy,
)

# ---- how often each cause is retried, and how much of that is spent --------------------------------------------------

TRANSIENT: frozenset[CauseName] = frozenset({
    "preempted", "time-limit", "node-fail", "gpu-hardware", "nccl-timeout", "nccl-network", "rendezvous",
    "network-or-auth", "storage-io",
})  # fmt: skip
"""Faults of the infrastructure that pass, or stay with one node."""

ENDED_ON_PURPOSE: Mapping[CauseName, str] = {
    "completed": "it completed",
    "cancelled-by-user": "a person ended it",
    "kill-switch": "its kill switch ended it",
    "no-restart": "its launcher has decided that it must not be restarted",
    "requeued": "it was requeued: its job is pending or runs again",
}
"""These ends have no budget, and nobody can give them one: nothing failed."""

STOP: frozenset[CauseName] = frozenset({"data-error", "checkpoint-mismatch"})
"""The same data, or a checkpoint of another model, fail again in the same way."""

OUT_OF_MEMORY: frozenset[CauseName] = frozenset({"cuda-oom", "host-oom"})


DEFAULTS: Mapping[CauseName, RetryLimit] = {
    cause: RetryLimit(
        times=3 if cause in TRANSIENT else 0 if cause in STOP else 1,
        after_change=("batch", "checkpointing", "placement") if cause in OUT_OF_MEMORY else (),
    )
    for cause in CAUSES
    if cause not in ENDED_ON_PURPOSE
}
"""The limit of each cause: 3 retries after a fault of the infrastructure, none after a data or schema error, and one
after any other cause: for most it only confirms that the failure repeats (NVRx: general 3, bounded 1, confirmation
1)."""

STORM = 3
"""This many retries in a row without net progress, whatever their causes, are a retry storm (NVRx:
max_no_progress_cycles)."""

OF_NODE: frozenset[CauseName] = frozenset({
    "gpu-hardware", "node-fail", "driver-mismatch", "nccl-network", "nccl-timeout", "hang",
})  # fmt: skip
"""Causes that a single node may have."""


def limit_of(cause: CauseName, policy: RetryPolicy) -> RetryLimit:
    """The limit of a cause that was not an end on purpose."""
    return policy.limits.get(cause) or DEFAULTS[cause]


def suspects(attempt: Attempt) -> tuple[str, ...]:
    """The nodes of an attempt that the evidence of its cause names: a fact about them, not a line of the log."""
    evidence = () if attempt.cause is None or attempt.cause.cause not in OF_NODE else attempt.cause.evidence
    # What follows may name others: Slurm's reason is free text.
    named = {one.text.partition(":")[0] for one in evidence if one.line is None}
    return tuple(node for node in attempt.nodes if node in named)


Key = tuple[str, str, str]
"""A cause, its fingerprint, and what it is about: a checkpoint, a position in the data, or nodes."""


def key_of(attempt: Attempt) -> Key | None:
    """What the budget of an attempt that ended is counted by; None while its cause is not known."""
    if (cause := attempt.cause) is None:
        return None
    entity = ""
    if cause.cause in ("checkpoint-corrupt", "checkpoint-mismatch"):
        entity = f"checkpoint {attempt.resumed_from}: {attempt.resumed_words}"
    elif cause.cause == "evaluator":
        entity = f"checkpoint {attempt.last_committed_step}"
    elif cause.cause in ("data-error", "dataloader-worker"):
        entity = f"{attempt.data_manifest} at step {attempt.last_step}"
    elif cause.cause in OF_NODE:
        entity = ",".join(suspects(attempt))
    return cause.cause, cause.fingerprint, entity


def history_of(attempt: Attempt, attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    """The attempts of its run up to this one, in their order; this one is the last."""
    others = (one for one in attempts if one.run_id == attempt.run_id and one.attempt_id != attempt.attempt_id)
    earlier = (one for one in others if one.order < attempt.order)
    return (*sorted(earlier, key=attrgetter("order")), attempt)


def by_run(attempts: Iterable[Attempt]) -> Mapping[str, Sequence[Attempt]]:
    """The attempts of each run, in their order."""
    return {
        run: sorted(own, key=attrgetter("order")) for run, own in group_by(attempts, lambda one: one.run_id).items()
    }


def progressing(history: Iterable[Attempt]) -> Iterator[bool]:
    """Whether each attempt made a step that none before it had reached, or committed a newer checkpoint."""
    reached, committed = 0, None
    for one in history:
        last, newest = one.last_step, one.last_committed_step or 0
        is_further = last is not None and last > max(reached, one.resumed_from or 0)
        yield is_further or (committed is not None and newest > committed)
        reached = max(reached, last or 0)
        if one.has_checkpoints:
            committed = max(committed or 0, newest)


def since_progress(history: Sequence[Attempt]) -> Sequence[Attempt]:
    """The last attempts, from the newest with net progress on. All but the first were retries in vain."""
    first = max((index for index, is_further in enumerate(progressing(history)) if is_further), default=0)
    return history[first:]


def in_vain(history: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """The retries since the last net progress that ended without any, except those that were ended on purpose. A job
    that was requeued counts: it may requeue itself."""
    causes = ((one, one.cause.cause) for one in since_progress(history)[1:] if one.cause is not None)
    return tuple(one for one, cause in causes if cause == "requeued" or cause not in ENDED_ON_PURPOSE)


def spent(attempt: Attempt, history: Sequence[Attempt], limit: RetryLimit) -> int:
    """How many retries without net progress have ended like this attempt."""
    key, ended = key_of(attempt), attempt.ended_at or 0.0
    alike = [one for one in since_progress(history) if key_of(one) == key]
    if limit.within is not None:
        alike = [one for one in alike if ended - (one.ended_at or 0.0) <= limit.within]
    return max(0, len(alike) - 1)


# ---- which nodes fail several times as often as the others of their cluster ------------------------------------------
#
# By the attempts of 90 days. Failures that a node may cause come at random, at one rate per node-day, with the prior
# Gamma(0.5, 77 node-days): a mean of 6.5 failures per 1,000 node-days, that of RSC-1 in Kokolis et al., arXiv
# 2410.21680 (HPCA 2025). A few nodes are bad: their rate is 5 to 300 times as high. A failure is that of the node which
# its cause names. Else it may be that of any node of its attempt, or of its run: a program may fail by itself, and
# often, wherever it runs. The sets of bad nodes are compared by how well all attempts fit to each, times its prior. So
# two nodes that always run together share a doubt, and no node is bad by one failed attempt.

KEPT: Seconds = 90 * DAY
"""How long an attempt counts."""
USES_AT_MOST = 3_000
"""The newest attempts of all clusters count: with 32 nodes each, they take 2 MiB."""

FAILURES_AT_MOST = 200
"""Of more, the newest count, and the attempts since then: to judge so many takes about 50 ms with 64 nodes, and 130 ms
with 1,024. The engine waits for that, once per attempt that ends."""

FEW = 5
"""Fewer failures say little of a cluster: no node is bad by them."""
SURE = 0.95
"""The probability from which a node is called bad. As the prior expects at most one bad node in a cluster, whatever its
size, equal nodes are accused in at most one of 20 clusters (Markov's inequality), and in fewer than one of 100 in
simulations (tests/bench/nodes.py)."""

LEAST = 0.25
"""A failed attempt counts for so many days at least: it may fail as it starts, and its start may not be known."""
EVENTS, NODE_DAYS = 0.5, 77.0
"""The prior of the rate of failures."""
BAD = 40 / 3_000
"""The prior of a bad node: those that Kokolis et al. found among the nodes of two clusters. In large clusters it is one
node."""
TIMES = (5.0, 12.0, 30.0, 100.0, 500.0, 3_000.0)
"""How many times as often as others a bad node fails: each is as likely as the others."""
ITSELF = 0.2
"""Our prior of a run that fails by itself."""
ITS_RATES = (0.1, 0.5, 2.5, 12.0, 60.0)
"""How often it does, per day: each is as likely as the others."""
OF_PROGRAM: frozenset[CauseName] = frozenset({"nccl-network", "nccl-timeout", "hang"})
"""Causes that a program may have as well."""
NAMED = 0.2
"""Of the failures by a node, at least so many have a cause that names it: of a node with dozens of failures and no Xid,
lost GPU or reboot, it is rather the work."""
WORK = 0.2
"""Our prior of a node whose work fails by itself, at one rate: a partition for tests, or that of a user whose programs
have a bug. So such failures accuse a node only by facts about it, or if the same runs fail less without it."""

BEST = 4
"""So many of the best sets are extended by another bad node."""
NAMES = 12
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
    """By `cluster/node`: what these attempts say of each node that they ran on. `is_bad` is the verdict, which a retry,
    a gate and a person may act on; `probability` is that of a bad node, given all attempts of its cluster."""
    known = group_by((one for one in kept(uses).values() if one.nodes), lambda one: one.cluster)
    return {f"{cluster}/{name}": one for cluster, own in known.items() for name, one in _judged(cluster, own)}


def _judged(cluster: str, uses: Sequence[NodeUse]) -> Iterator[tuple[str, NodeRecord]]:
    days = node_days((one, _days(one)) for one in uses)
    failed = [one for one in uses if one.failure is not None]
    ends = Counter(name for one in uses if not one.is_open for name in one.nodes)
    first = Counter(name for one in failed for name in one.first)
    unnamed = Counter(name for one in failed if not one.first for name in one.nodes)
    expected = sum(bool(one.first) for one in failed) / (math.fsum(days.values()) or 1.0)
    found = probabilities(uses) if len(failed) >= FEW else {}
    for name in days:
        yield (
            name,
            NodeRecord(
                cluster=cluster,
                node=name,
                ends=ends[name],
                first_errors=first[name],
                expected=expected * days[name],
                unnamed=unnamed[name],
                failures=len(failed),
                probability=found.get(name, 0.0),
                is_bad=found.get(name, 0.0) >= SURE,
            ),
        )


Reason = str | frozenset[str]
"""Why failures come more often than usual: a bad node, or the work on a node, which is all runs that it ever had."""


class Part(NamedTuple):
    """The failures of a run, or one whose node is known, of which some may be for a reason."""

    all: tuple[int, ...]
    own: tuple[int, ...]
    ran: float | None
    """How many days the run ran; None if the node is known."""
    share: float
    """Of the failures for this reason: how many are such."""


class Reasons(NamedTuple):
    """A set of bad nodes and failing work."""

    log_weight: float
    """The logarithm of how well it explains the attempts, times its prior. That of the empty set is 0."""
    all: frozenset[Reason]
    rates: Sequence[float]
    """Of each failure: the sum of the rates of what it may be of, in that of a usual node."""
    days: float
    """The sum of node-days and those of the prior, each times its rate."""


def probabilities(uses: Sequence[NodeUse]) -> dict[str, float]:
    """The probability that each node is bad, by the attempts of its cluster. The rate of a usual node is integrated
    out, and so is whether a run fails by itself."""
    ran = [(one, max(_days(one), 0.0 if one.failure is None else LEAST)) for one in uses]
    days, of_run = (
        node_days(ran),
        {run: math.fsum(own) for run, own in by_key((one.run, at) for one, at in ran).items()},
    )
    failed = [one for one in uses if one.failure is not None]
    unnamed = 1 - max(NAMED, sum(bool(one.first) for one in failed) / (len(failed) + 1))
    parts = _parts(uses, failed, of_run, unnamed)
    shape, usual_days = EVENTS + len(failed), NODE_DAYS + math.fsum(days.values())
    its_rates = [(rate, rate * usual_days / shape) for rate in ITS_RATES]

    @cache
    def fit(rates: tuple[float, ...], ran: float | None) -> float:
        """How well these rates explain the failures of a run that ran so many days, or one whose node is known."""
        explained = [math.log(1 - ITSELF) + sum(map(math.log, rates))]
        for rate, more in its_rates if ran is not None else ():
            itself = math.log(ITSELF / len(ITS_RATES)) - rate * (ran or 0.0)
            explained.append(itself + sum([math.log(one + more) for one in rates]))
        return _log_sum(explained)

    def extended(base: Reasons, reasons: Iterable[Reason]) -> Iterator[Reasons]:
        """The set with each of these: as often as fits best, with the weight of all."""

        @cache
        def gains(part: Part) -> list[float]:
            before, own = fit(tuple([base.rates[at] for at in part.all]), part.ran), part.share
            after = ([base.rates[at] + own * (times - 1) * (at in part.own) for at in part.all] for times in TIMES)
            return [fit(tuple(rates), part.ran) - before for rates in after]

        for reason in reasons:
            if isinstance(reason, str):
                ran, prior = days[reason], min(BAD, 1 / len(days))
            else:
                ran, prior = math.fsum(of_run[run] for run in reason), WORK
            totals = [base.days + (times - 1) * ran for times in TIMES]
            logs = [
                base.log_weight + math.log(prior / len(TIMES)) + math.fsum(gained) - shape * math.log(total / base.days)
                for total, gained in zip(totals, zip(*map(gains, parts[reason]), strict=True), strict=True)
            ]
            best, rates = logs.index(max(logs)), [*base.rates]
            for at, share in ((at, part.share) for part in parts[reason] for at in part.own):
                rates[at] += share * (TIMES[best] - 1)
            yield Reasons(_log_sum(logs), base.all | {reason}, rates, totals[best])

    rates = [float(len(one.first)) or unnamed * len(one.nodes) for one in failed]
    weights = _weights(Reasons(0.0, frozenset(), rates, usual_days), parts, extended)
    total = _log_sum(weights.values())
    sums = by_key((one, math.exp(weight - total)) for reasons, weight in weights.items() for one in reasons)
    return {one: math.fsum(shares) for one, shares in sums.items() if isinstance(one, str)}


def _parts(
    uses: Iterable[NodeUse], failed: Sequence[NodeUse], of_run: Mapping[str, float], unnamed: float
) -> Mapping[Reason, Sequence[Part]]:
    """By reason: which failures it may explain."""
    runs = by_key((name, one.run) for one in uses for name in one.nodes)
    works = by_key((run, own) for own in dict.fromkeys(map(frozenset, runs.values())) for run in own)
    groups = by_key(((one.run, one.attempt_id if one.first else ""), at) for at, one in enumerate(failed))
    reasons: Sequence[Sequence[Reason]] = [
        one.first or (*one.nodes, *(works[one.run] if one.failure in OF_PROGRAM else ())) for one in failed
    ]
    return by_key(
        (reason, Part(tuple(group), tuple(own), None, 1.0) if named else
         Part(tuple(group), tuple(own), of_run[run], unnamed if isinstance(reason, str) else 1.0))
        for (run, named), group in groups.items()
        for reason, own in by_key((reason, at) for at in group for reason in reasons[at]).items()
    )  # fmt: skip


def _weights(
    nothing: Reasons,
    reasons: Iterable[Reason],
    extended: Callable[[Reasons, Iterable[Reason]], Iterator[Reasons]],
) -> Mapping[frozenset[Reason], float]:
    """The logarithm of the weight of each set that explains the failures about as well as the best one."""
    best, weights, candidates = [nothing], {nothing.all: 0.0}, [*reasons]
    for _ in range(SETS):
        found = [one for base in best for one in extended(base, [it for it in candidates if it not in base.all])]
        ordered = sorted({one.all: one for one in found}.values(), key=lambda one: -one.log_weight)
        most = max(weights.values())
        if not ordered or ordered[0].log_weight < most - WORSE:
            break
        weights |= {one.all: one.log_weight for one in ordered if one.log_weight > most - 2 * WORSE}
        candidates = candidates if best[0].all else [*chain(*(one.all for one in ordered))][:NAMES]
        best = ordered[:BEST]
    return weights


def _days(one: NodeUse) -> float:
    return (one.until - one.began) / DAY


def node_days(ran: Iterable[tuple[NodeUse, float]]) -> dict[str, float]:
    """How long each node was used, in days, by how long each attempt ran."""
    known = by_key((name, days) for one, days in ran for name in one.nodes)
    return {name: math.fsum(own) for name, own in known.items()}


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
            text = f"{one.failure} ended {one.attempt_id}"
            yield NodeEvent(at=one.until, cluster=one.cluster, node=node, what="first-error", text=text)


def record_text(one: NodeRecord, events: Iterable[NodeEvent] = ()) -> str:
    """`first error in 3 of the last 5 attempts (0.2 expected), 2 Xids, 1 flap`."""
    parts = ["no attempt has ended on it"] if not one.ends else [
        f"first error in {one.first_errors} of the last {counted(one.ends, 'attempt')} ({one.expected:.1f} expected)"
    ]  # fmt: skip
    parts += [f"took part in {counted(one.unnamed, 'failure')} without a known node"] if one.unnamed else []
    seen = Counter(SEEN[event.what] for event in events if event.what in SEEN)
    parts += [counted(number, name) for name, number in seen.items()]
    return ", ".join(parts) + (f"; bad: {min(0.999, one.probability):.1%} sure" if one.is_bad else "")


def verdict(cluster: str, records: Mapping[str, NodeRecord]) -> str:
    """`prod: 20 failures on 64 nodes in 90 days; no node is bad beyond chance`."""
    own = [one for one in records.values() if one.cluster == cluster]
    failures = max((one.failures for one in own), default=0)
    bad = listed([one.node for one in own if one.is_bad])
    says = "too few to say" if failures < FEW else f"bad: {bad}" if bad else "no node is bad beyond chance"
    return f"{cluster}: {counted(failures, 'failure')} on {counted(len(own), 'node')} in 90 days; {says}"
