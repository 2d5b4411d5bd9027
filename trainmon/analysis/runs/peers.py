"""Which link differs from those of its peers: by its speed, or by how its errors grow. Pure.

Fixed limits mislead: adaptive routing delivers packets out of order on every port, counters live as long as the driver,
and the stages of a pipeline differ in their traffic. So growth is compared, in relation to the traffic, among peers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import NamedTuple

from trainmon.lib import Instant, Seconds, by_key
from trainmon.model import Gpu, InfinibandPort, LinkPast

# ---- the growth of the counters of one link --------------------------------------------------------------------------

LOSS: Mapping[str, str] = {
    "out_of_sequence": "packets arrived out of order",
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

OF_GPU = ("pcie_replays", "nvlink_errors")
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
    before = past.values
    grown = {name: (one - before[name]) / elapsed for name, one in values.items() if one > before.get(name, one)}
    periods = (*past.periods, grown)[-WINDOWS:]
    names = {name for period in periods for name in period} if len(periods) >= ENOUGH else ()
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
    """A link, and what it shows: errors or packets per second, Gb/s, lanes. `usual`: the median of its peers; of
    growth, for as much traffic as it has itself."""

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

    @property
    def traffic(self) -> float:
        """Bytes per second."""
        return max(QUIET, self.rates.get("bytes", 0.0))

    def per_byte(self, what: str) -> float:
        """Errors per byte of traffic."""
        return self.rates.get(what, 0.0) / self.traffic

    def is_peer(self, other: Followed) -> bool:
        """Whether another link may be compared: it has about as much traffic."""
        is_same = other is not self and other.kind == self.kind
        return is_same and self.traffic / ALIKE <= other.traffic <= self.traffic * ALIKE


def losing(links: Mapping[str, Mapping[str, LinkPast]], least: float, times: float, peers: int) -> Iterator[Outlier]:
    """The links of a run, by node, of which a counter of loss grows by at least `least` per second and `times` as fast
    as at its peers: the ports of the same name, or any if these are few, of the same kind and with a similar traffic.
    Many that are alike are the shape of a training, and no outliers."""
    every = [
        Followed(node, name, past.kind, past.rates)
        for node, own in links.items()
        for name, past in own.items()
        if past.rates is not None
    ]
    for what in LOSS:
        growing = sorted(
            (one for one in every if one.rates.get(what, 0.0) >= least), key=lambda one: -one.per_byte(what)
        )
        found = []
        for own in growing[:CANDIDATES]:
            alike = [one for one in every if own.is_peer(one)]
            same = [one for one in alike if one.name == own.name]
            is_any = len(same) < peers and (len(links) > 1 or own.name.startswith(GPU))
            others = [one.per_byte(what) for one in (alike if is_any else same)]
            if len(others) < peers:
                continue
            middle = median(others)
            spread = 1.4826 * median(abs(one - middle) for one in others)
            rate, usual = own.rates[what], middle * own.traffic
            if rate >= max(least + usual, times * usual, (middle + SPREADS * spread) * own.traffic):
                found.append(Outlier(own.node, own.name, what, rate, usual, len(others)))
        if len({one.node for one in found}) <= max(1, len(links) // 4):
            yield from found


# ---- links that are slower than those of the peers -------------------------------------------------------------------

Speeds = tuple[tuple[str, str, float], ...]
"""Of each link of a node: its name, what it has, and how much: Gb/s of a port; lanes, generation, NVLinks of a GPU."""

MOST = 0.75
"""The share of the peers that must be faster."""

LOADED = 50
"""% of utilization from which a GPU does not save power on its PCIe link."""

LIMITS = (("pcie_width", "pcie_width_max"), ("nvlinks_up", "nvlinks"), ("pcie_gen", "pcie_gen_max"))
"""The fields of GpuLinks: what there is, and what there could be."""


def port_speeds(ports: Iterable[InfinibandPort]) -> Speeds:
    """The Gb/s of the ports that are up, by link layer."""
    up = (port for port in ports if port.state == "ACTIVE" and port.gbps is not None)
    return tuple((port.port, port.link_layer or "", port.gbps or 0.0) for port in up)


def gpu_speeds(gpus: Iterable[Gpu]) -> Speeds:
    """What the links of GPUs have. Of an idle one, which lowers its PCIe generation, that which it can have."""
    return tuple(
        (f"{GPU}{gpu.index}", field, value)
        for gpu in gpus
        for field, limit in LIMITS
        if (value := getattr(gpu.links, limit if _is_idle(gpu, field) else field, None)) is not None
    )


def _is_idle(gpu: Gpu, field: str) -> bool:
    return field == "pcie_gen" and (gpu.utilization_pct or 0) < LOADED


def slower(nodes: Mapping[str, Speeds], peers: int) -> Iterator[Outlier]:
    """The links that have less than most others of this hardware: GPUs beside all GPUs, ports beside the same ports of
    other nodes. Adapters may have other names after a boot, so a node must also have fewer fast ports than the others.
    Several nodes that are alike and have no fast port have other adapters."""
    kinds = list(nodes.values())
    pools = by_key((_pool(link, what), value) for own in kinds for link, what, value in own)
    uneven = {key: sorted(values) for key, values in pools.items() if min(values) < max(values)}
    for node, own in nodes.items() if uneven else ():
        for link, what, value in own:
            pool = uneven.get(_pool(link, what), [value])
            if value == pool[-1]:
                continue
            if len(pool) <= peers:
                pool = sorted([*pool, *(one[2] for one in own if one[0] != link and one[1] == what)])
            usual, others = median(pool), len(pool) - 1
            fast = sum(one[2] >= usual for one in own if one[1] == what)
            is_few = fast < median(sum(two[2] >= usual for two in one if two[1] == what) for one in kinds)
            is_odd = link.startswith(GPU) or (is_few and (fast > 0 or kinds.count(own) == 1))
            if is_odd and others >= peers and len(pool) - bisect_right(pool, value) >= MOST * others:
                yield Outlier(node, link, what, value, usual, others)


def _pool(link: str, what: str) -> str:
    """What a link is compared with."""
    return what if link.startswith(GPU) else f"{what} {link}"
