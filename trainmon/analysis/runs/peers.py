"""Which link differs from its peers by its speed, by what it carries or by how its errors grow; and which rank, by what
it waits for. Pure.

Fixed limits mislead: adaptive routing delivers packets out of order on every port, counters live as long as the driver,
and the stages of a pipeline differ in their traffic. So growth is compared, in relation to the traffic, among peers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import log
from statistics import fmean, median, median_low
from typing import NamedTuple

from trainmon.lib import Instant, Seconds, by_key, group_by
from trainmon.model import Gpu, InfinibandPort, LinkPast, LinkSpeed, RankSteps

# ---- the growth of the counters of one link --------------------------------------------------------------------------

LOSS: Mapping[str, str] = {
    "out_of_sequence": "packets arrived out of order: some were lost, or took another way (adaptive routing)",
    "packet_seq_err": "the other side missed packets",
    "local_ack_timeout_err": "no acknowledgement came in time",
    "rnr_nak_retry_err": "the other side was not ready",
    "implied_nak_seq_err": "answers were lost",
    "roce_adp_retrans": "packets were sent again",
    "rx_icrc_encapsulated": "packets arrived damaged",
    "retrans_pkts": "packets were sent again",
    "to_retransmits": "packets were sent again",
    "pcie_replays": "packets were sent again over PCIe",
    "nvlink_errors": "NVLink found errors",
}
"""Counters of loss, and what they mean: those of mlx5, EFA and bnxt_re, then those of a GPU. CNPs (np_cnp_sent,
rp_cnp_handled) are signals of congestion, and no loss."""

GPU = "GPU "
"""How the name of a GPU begins, among those of links."""

WINDOWS, ENOUGH = 10, 4
"""How many periods between two readings are kept, and needed."""

SHORTEST: Seconds = 10.0
LONGEST: Seconds = 300.0
"""A period. After a longer one, the link is followed anew."""


def followed(past: LinkPast | None, values: Mapping[str, int], kind: str, at: Instant) -> LinkPast:
    """A link after one more reading of its counters. A counter that fell was reset, and did not grow. Its usual growth
    is that of most periods: a few bursts, such as those of new routes, are no state of a link."""
    elapsed = 0.0 if past is None else at - past.at
    if past is None or not 0.0 <= elapsed <= LONGEST or kind != past.kind:
        return LinkPast(at, kind, values)
    if elapsed < SHORTEST:
        return past
    grown = {
        name: (one - past.values[name]) / elapsed for name, one in values.items() if one > past.values.get(name, one)
    }
    periods = (*past.periods, grown)[-WINDOWS:]
    names = {name for period in periods for name in period}
    rates = {name: median(period.get(name, 0.0) for period in periods) for name in names}
    return LinkPast(at, kind, values, periods, rates if len(periods) >= ENOUGH else None)


# ---- links whose errors grow as those of no peer do ------------------------------------------------------------------

QUIET = 1e6
"""Bytes per second below which a link is idle."""

ALIKE = 3.0
"""Links with up to so many times the traffic, or as little, are compared."""

SPREADS = 8.0
"""How many standard deviations, estimated from the median absolute deviation, an outlier is above its peers."""

CANDIDATES = 16


class Outlier(NamedTuple):
    """A link, and what it shows: errors or packets per second, Gb/s, lanes, GB. `usual`: the median of its peers; of
    errors, for as much traffic as it has itself; of GB, in relation to the other ports of the node."""

    node: str
    link: str
    what: str
    value: float
    usual: float
    peers: int


class Followed(NamedTuple):
    """A link whose rates are known."""

    node: str
    name: str
    kind: str
    rates: Mapping[str, float]
    traffic: float
    """Bytes per second."""

    def per_byte(self, what: str) -> float:
        """Errors per byte of traffic."""
        return self.rates.get(what, 0.0) / self.traffic

    def is_like(self, other: Followed) -> bool:
        """Whether another link has about as much traffic."""
        return other.kind == self.kind and self.traffic / ALIKE <= other.traffic <= self.traffic * ALIKE


Links = Mapping[tuple[str, str], Sequence[Followed]]
"""By kind and name: those of all nodes."""


def losing(links: Mapping[str, Mapping[str, LinkPast]], least: float, times: float, peers: int) -> Iterator[Outlier]:
    """The links of a run, by node, of which a counter of loss grows by at least `least` per second and `times` as fast
    as at its peers. Many nodes that are alike are the shape of a training, and no outliers; most ports of one node are
    its place in the network, such as behind another switch."""
    every = by_key(
        ((past.kind, name), Followed(node, name, past.kind, past.rates, max(QUIET, past.rates.get("bytes", 0.0))))
        for node, own in links.items()
        for name, past in own.items()
        if past.rates is not None
    )
    linked = [one for alike in every.values() for one in alike]
    growing = by_key((what, one) for one in linked for what, rate in one.rates.items() if rate >= least)
    for what in LOSS:
        found = []
        for own in sorted(growing.get(what, ()), key=lambda one: -one.per_byte(what))[:CANDIDATES]:
            others = [one.per_byte(what) for one in _peers(own, every, peers, len(links) > 1)]
            if len(others) < peers:
                continue
            middle = median(others)
            spread = 1.4826 * median(abs(one - middle) for one in others)
            rate, usual = own.rates[what], middle * own.traffic
            if rate >= max(least + usual, times * usual, (middle + SPREADS * spread) * own.traffic):
                mates = sum(one.node == own.node and own.is_like(one) for one in linked)
                found.append((Outlier(own.node, own.name, what, rate, usual, len(others)), mates))
        nodes = Counter(one.node for one, _ in found)
        if len(nodes) <= max(1, len(links) // 4):
            yield from (one for one, mates in found if one.link.startswith(GPU) or nodes[one.node] <= max(1, mates / 2))


def _peers(own: Followed, every: Links, least: int, are_many: bool) -> list[Followed]:
    """The links of the same name on other nodes with a similar traffic. If these are few, also those of other names
    that are used alike on each node: a port for storage is no peer of one for collectives."""
    namesakes = every[own.kind, own.name]
    same = [one for one in namesakes if one is not own and own.is_like(one)]
    if len(same) >= least or not (are_many or own.name.startswith(GPU)):
        return same
    of_nodes = {one.node: one for one in namesakes}
    used_alike = (
        ones for ones in every.values() if all(of_nodes[one.node].is_like(one) for one in ones if one.node in of_nodes)
    )
    return [one for ones in used_alike for one in ones if one is not own and own.is_like(one)]


# ---- ports that carry another share of the traffic than their peers --------------------------------------------------

BUSY = 1e8
"""Bytes per second of the busiest port of a node, from which its ports are compared: with less, none holds a training
up."""

TIMES = 2.0
"""How many times as much, or as little, as its peers an outlier carries."""

WIDE = 4.0
"""And how many standard deviations it is from them, estimated as for SPREADS."""

PER_STEP, PER_SECOND = "GB per step", "GB per second"
"""What a port carries, where steps are counted and where not."""


FEW = 16
"""One of so many may differ, or one of all: more are the shape of a training."""


def uneven(links: Mapping[str, Mapping[str, LinkPast]], peers: int) -> Iterator[Outlier]:
    """The ports of a run, by node, that carry another share of the traffic of their node than the ports of the same
    name do elsewhere. All nodes make the same steps, but the stages of a pipeline differ in their traffic: several
    ports of one node, or one of several nodes, are its ends."""
    ports = {
        (node, name): past
        for node, own in links.items()
        for name, past in own.items()
        if past.rates is not None and "bytes" in past.values
    }
    for alike in group_by(ports, lambda port: ports[port].kind).values():
        traffic = {port: max(QUIET, _moved(ports[port].periods)) for port in alike}
        shares = _shares(traffic)
        found = []
        for own in group_by(shares, lambda port: port[1]).values():
            usual = median(shares[port] for port in own)
            spread = 1.4826 * median(abs(log(shares[port] / usual)) for port in own)
            for port in own if len(own) > peers else ():
                times = shares[port] / usual
                if abs(log(times)) >= max(log(TIMES), WIDE * spread):
                    steps = fmean(period.get("steps", 0.0) for period in ports[port].periods)
                    gb = traffic[port] / (steps or 1.0) / 1e9
                    found.append(Outlier(*port, PER_STEP if steps else PER_SECOND, gb, gb / times, len(own) - 1))
        nodes, names = ({one[part] for one in found} for part in (0, 1))
        if len(found) == len(nodes) == len(names) <= max(1, len({node for node, _ in shares}) // FEW):
            yield from found


def _moved(periods: Sequence[Mapping[str, float]]) -> float:
    """The usual bytes per second while steps are made: an evaluation moves something else. All periods count where few
    have a step: then the log tells them late."""
    stepping = [one for one in periods if "steps" in one]
    return median(one.get("bytes", 0.0) for one in (stepping if len(stepping) > 2 else periods))


def _shares(traffic: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """What each port carries in relation to the others of its node, by node and name. A port that most nodes hardly
    use, such as one for storage, is not compared, nor is a node whose adapters have other names. Which of two ports is
    odd is not known."""
    tops = {node: max(own) for node, own in by_key((node, one) for (node, _), one in traffic.items()).items()}
    parts = by_key((name, one / tops[node]) for (node, name), one in traffic.items() if tops[node] >= BUSY)
    used = {name for name, own in parts.items() if median_low(own) * ALIKE >= 1.0}
    others = {
        node
        for (node, name), one in traffic.items()
        if tops[node] < BUSY or (name not in used and one * ALIKE >= tops[node])
    }
    compared = {port: one for port, one in traffic.items() if port[1] in used and port[0] not in others}
    of_node = by_key((port[0], one) for port, one in compared.items())
    return {port: one / median(of_node[port[0]]) for port, one in compared.items() if len(used) > 2}


# ---- links that are slower than those of the peers -------------------------------------------------------------------

MOST = 0.75
"""The share of the peers that must be faster."""

LOADED = 50
"""% of utilization from which a GPU does not save power on its PCIe link."""

LIMITS = (("pcie_width", "pcie_width_max"), ("nvlinks_up", "nvlinks"), ("pcie_gen", "pcie_gen_max"))
"""The fields of GpuLinks: what there is, and what there could be. The latter is less in a short slot; it is also there
for NVLinks of a card without a bridge, or with MIG, of which none is up."""


def port_speeds(ports: Iterable[InfinibandPort]) -> tuple[LinkSpeed, ...]:
    """The Gb/s of the ports that are up, by link layer."""
    return tuple(
        LinkSpeed(port.port, port.link_layer or "", port.port, float(gbps))
        for port in ports
        if port.state == "ACTIVE" and (gbps := (port.rate or "").partition(" ")[0]).replace(".", "", 1).isdecimal()
    )


def gpu_speeds(gpus: Iterable[Gpu]) -> tuple[LinkSpeed, ...]:
    """What the links of GPUs have; 0, as in a virtual machine, is unknown. An idle GPU lowers its PCIe generation, and
    one of AMD its width."""
    return tuple(
        LinkSpeed(f"{GPU}{gpu.index}", what, gpu.name or "", value, most)
        for gpu in gpus
        for what, limit in LIMITS
        if (value := getattr(gpu.links, what, None))
        and (most := getattr(gpu.links, limit, None))
        and (what != ("pcie_width" if gpu.is_amd else "pcie_gen") or (gpu.utilization_pct or 0) >= LOADED)
    )


def slower(nodes: Mapping[str, Sequence[LinkSpeed]], peers: int) -> Iterator[Outlier]:
    """The links that have less than they could, and than most others of this hardware: GPUs beside all of their model,
    ports beside the same ports of other nodes. Adapters may have other names after a boot, so a node must also have
    fewer fast ports than the others. Several nodes that are alike have other hardware: two if no port is fast."""
    kinds = list(nodes.values())
    pools = by_key(((one.what, one.kind), one.value) for own in kinds for one in own)
    uneven = {key: sorted(values) for key, values in pools.items() if min(values) < max(values)}
    found = []
    for node, own in nodes.items() if uneven else ():
        for one in own:
            pool = uneven.get((one.what, one.kind), [one.value])
            if one.value >= min(one.most, pool[-1]):
                continue
            is_gpu = one.link.startswith(GPU)
            if len(pool) <= peers and not is_gpu:
                pool = sorted([*pool, *(two.value for two in own if two.link != one.link and two.what == one.what)])
            usual, others = median(pool), len(pool) - 1
            fast, *fast_of = (
                sum(two.value >= usual for two in ports if two.what == one.what) for ports in (own, *kinds)
            )
            is_odd = is_gpu or (fast < median(fast_of) and (fast > 0 or kinds.count(own) == 1))
            if is_odd and others >= peers and len(pool) - bisect_right(pool, one.value) >= MOST * others:
                found.append(Outlier(node, one.link, one.what, one.value, usual, others))
    alike = Counter((one.link, one.what, one.value) for one in found)
    yield from (one for one in found if alike[one[1:4]] <= max(2, len(nodes) // 50))


# ---- ranks for which all others wait ---------------------------------------------------------------------------------

LATE: Mapping[str, tuple[float, str]] = {
    "data": (1.0, "it waits {own:,.0f} ms per step for its data, its {peers} peers {usual:,.0f} ms"),
    "vote": (-1.0, "its {peers} peers wait {usual:,.0f} ms in each vote until it comes, it {own:,.0f} ms for them"),
}
"""The fields of RankSteps that are compared: whether more is late, or less, and the words."""

OF_STEP = 0.1
"""The share of the time of a step by which it must be late."""

HARDLY = 0.25
"""The share of the waiting of its peers that it may wait itself: a vote takes some time, more on a busy node."""


def late(ranks: Mapping[int, RankSteps], peers: int) -> Iterator[tuple[int, str]]:
    """The ranks that are late alone, and how. All ranks make their steps together, so only what each waits for shows
    it: for its data, longer than the others; in a vote, never, because they wait there until it comes. One that waits
    there, too, may only queue work late for a GPU that is not. Rank 0, which has work of its own, is not named, nor is
    who is not later than rank 0."""
    for field, (sign, text) in LATE.items() if len(ranks) > peers else ():
        times = {rank: getattr(one, field) / 1e3 for rank, one in ranks.items()}
        usual = median(times.values())
        spread = 1.4826 * median(abs(one - usual) for one in times.values())
        most = max(usual, times.get(0, usual), key=lambda one: sign * one)
        odd = [
            rank
            for rank, own in times.items()
            if sign * (own - most) >= max(OF_STEP * ranks[rank].whole / 1e3, WIDE * spread)
            and (sign > 0.0 or own <= HARDLY * usual)
        ]
        if len(odd) <= max(1, len(times) // FEW):
            yield from ((rank, text.format(own=times[rank], usual=usual, peers=len(times) - 1)) for rank in odd)
