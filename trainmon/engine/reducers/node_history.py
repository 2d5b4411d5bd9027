"""What a node's readings tell one after another → what is remembered of it: growth, faults, restarts, trends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from trainmon.analysis.gpus import EMPTY_MIB
from trainmon.engine.reducers.nodes import cleaned
from trainmon.lib import Instant
from trainmon.model import (
    FAULT_GAP,
    FAULTS,
    FLOOR_EVERY,
    FLOORS,
    GROWTHS,
    MARGINS,
    SAME_GROWTH,
    THROTTLE,
    WARM,
    Counter,
    Fault,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Growth,
    Hello,
    HostSample,
    InfinibandPort,
    Node,
    NodeHistory,
    NodeReading,
    Xid,
)

if TYPE_CHECKING:
    from trainmon.engine.reducers.batch import EventBatch

SLOW = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
SLOWING = {bit: name for bit, name in THROTTLE.items() if name in SLOW}
SLOWING_MASK = sum(SLOWING)
"""What slows a GPU down that is no choice of its owner's and no normal power limit."""

BOOTED_ANEW = 60.0
"""Seconds by which a boot must be later than the last that was known: a clock that drifts moves it a little."""

SILENCE = 900.0
"""Seconds without a word of a GPU after which it is not known whether something went on meanwhile."""

LINKS_AT_MOST = 64
SWITCH = "NVSwitch"
"""What the text of an SXid begins with."""

NEW = NodeHistory()


def read(batch: EventBatch, event: NodeReading, before: Node | None, node: Node) -> None:
    """Remember what one reading tells beside the numbers that `node` now has."""
    old: NodeHistory = batch.current("node_histories").get(event.node) or NEW
    reading = event.reading
    at = min(event.received_at, reading.t - (node.clock_skew_s or 0.0))
    match reading:
        case GpuSamples():
            new = _emptied(_slowed(_unbroken(old, before, at), reading.g, at), before, reading.g, at)
        case GpuFactsAll():
            new = _facts(old, reading.g, at)
        case HostSample():
            new = _host(_booted(old, reading.boot_time, node), reading, at)
        case Hello():
            new = _booted(old, reading.boot_time, node)
        case Xid():
            new = replace(old, faults=_faults(old.faults, reading, at))
        case _:
            return
    if new is not old:
        batch.writable("node_histories")[event.node] = new


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def _unbroken(past: NodeHistory, before: Node | None, at: Instant) -> NodeHistory:
    """What began before a long silence did not last through it, as far as anybody knows."""
    if not past.slowed or before is None or before.gpus_at is None or at - before.gpus_at <= SILENCE:
        return past
    return replace(past, slowed={})


def _slowed(past: NodeHistory, samples: tuple[GpuSample, ...], at: Instant) -> NodeHistory:
    """Since when which GPU is slowed down, and why."""
    is_any = any(sample.throttle_mask and sample.throttle_mask & SLOWING_MASK for sample in samples)
    if not is_any and not past.slowed:
        return past
    listed = {sample.index for sample in samples}
    slowed = {key: since for key, since in past.slowed.items() if key[0] not in listed}
    for sample in samples:
        for bit, name in SLOWING.items():
            if (sample.throttle_mask or 0) & bit:
                slowed[sample.index, name] = past.slowed.get((sample.index, name), at)
    return past if slowed == past.slowed else replace(past, slowed=slowed)


def _emptied(past: NodeHistory, before: Node | None, samples: tuple[GpuSample, ...], at: Instant) -> NodeHistory:
    """Which GPUs were in use and are no more."""
    if before is None:
        return past
    used = None
    for sample in samples:
        if sample.memory_used_mib is None:
            continue
        if sample.memory_used_mib >= EMPTY_MIB:
            if sample.index in past.emptied:
                past = replace(past, emptied={key: value for key, value in past.emptied.items() if key != sample.index})
            continue
        if used is None:
            used = {gpu.index for gpu in before.gpus if (gpu.memory_used_mib or 0) >= EMPTY_MIB}
        if sample.index in used:
            past = replace(past, emptied={**past.emptied, sample.index: at})
    return past


def _facts(past: NodeHistory, facts: tuple[GpuFacts, ...], at: Instant) -> NodeHistory:
    counted = _counted(past.counters, ((f"ecc {fact.index}", fact.ecc_uncorrected) for fact in facts), at)
    margins = past.margins
    if margins or any(fact.temperature_margin_c is not None and fact.temperature_margin_c <= WARM for fact in facts):
        margins = _margins(margins, facts, at)
    most = max(past.gpus_most, len(facts))
    if counted is past.counters and margins is past.margins and most == past.gpus_most:
        return past
    return replace(past, counters=counted, margins=margins, gpus_most=most)


def _margins(
    known: Mapping[int, tuple[tuple[Instant, int], ...]], facts: tuple[GpuFacts, ...], at: Instant
) -> Mapping[int, tuple[tuple[Instant, int], ...]]:
    margins = dict(known)
    for fact in facts:
        margin = fact.temperature_margin_c
        if margin is None or margin > WARM:
            margins.pop(fact.index, None)
        else:
            before = margins.get(fact.index, ())
            unbroken = before if before and at - before[-1][0] <= SILENCE else ()
            margins[fact.index] = (*unbroken, (at, margin))[-MARGINS:]
    return margins


# ---- the host --------------------------------------------------------------------------------------------------------


def _booted(past: NodeHistory, boot_time: float | None, node: Node) -> NodeHistory:
    """A boot that is later by the node's clock and by ours; a clock that is set anew moves but one of the two."""
    if boot_time is None or boot_time == past.boot_time:
        return past
    booted = boot_time - (node.clock_skew_s or 0.0)
    if past.booted_at is None or past.boot_time is None:
        return replace(past, booted_at=booted, boot_time=boot_time)
    is_new = booted > past.booted_at + BOOTED_ANEW and boot_time > past.boot_time + BOOTED_ANEW
    if not is_new:
        return replace(past, boot_time=boot_time)
    return replace(
        past, booted_at=booted, boot_time=boot_time, rebooted_at=booted, floors=(), margins={}, slowed={}, emptied={}
    )


def _host(past: NodeHistory, host: HostSample, at: Instant) -> NodeHistory:
    counters = _counted(past.counters, _counters(host), at)
    links = _links(past.links, host.infiniband)
    floors = past.floors if host.memory_used_mib is None else _floors(past.floors, host.memory_used_mib, at)
    if counters is past.counters and links is past.links and floors is past.floors:
        return past
    return replace(past, counters=counters, links=links, floors=floors)


def _counters(host: HostSample) -> Iterable[tuple[str, int | None]]:
    yield "oom_kills", host.oom_kills
    for port in host.infiniband[:LINKS_AT_MOST]:
        yield f"link_downed {port.port}", port.link_downed
        yield f"errors {port.port}", port.errors


def _counted(
    known: Mapping[str, Counter], values: Iterable[tuple[str, int | None]], at: Instant
) -> Mapping[str, Counter]:
    """The counters with their new values. One that fell is counted anew, and its growth before stays."""
    counters: dict[str, Counter] | None = None
    for name, value in values:
        old = known.get(name)
        if value is None or (old is not None and old.value == value):
            continue
        if counters is None:
            counters = dict(known)
        grown = () if old is None else old.grown
        if old is not None and value > old.value:
            grown = _grown(grown, value - old.value, at)
        counters[name] = Counter(value, grown)
    return known if counters is None else counters


def _grown(known: tuple[Growth, ...], by: int, at: Instant) -> tuple[Growth, ...]:
    last = known[-1] if known else None
    if last is not None and at - last.first < SAME_GROWTH:
        return (*known[:-1], Growth(last.first, max(at, last.last), last.by + by))
    return (*known, Growth(at, at, by))[-GROWTHS:]


def _links(known: tuple[str, ...], ports: tuple[InfinibandPort, ...]) -> tuple[str, ...]:
    new = [port.port for port in ports if port.state == "ACTIVE" and port.port not in known]
    return (*known, *new)[:LINKS_AT_MOST] if new else known


def _floors(known: tuple[tuple[Instant, int], ...], used: int, at: Instant) -> tuple[tuple[Instant, int], ...]:
    begun = at - at % FLOOR_EVERY
    if not known or begun > known[-1][0]:
        return (*known, (begun, used))[-FLOORS:]
    return (*known[:-1], (known[-1][0], used)) if used < known[-1][1] else known


# ---- faults ----------------------------------------------------------------------------------------------------------


def _faults(known: tuple[Fault, ...], xid: Xid, at: Instant) -> tuple[Fault, ...]:
    """The faults and one more. A new connection tells those of the last minutes again: these are known."""
    text = cleaned(xid.text)[:500] if xid.text else None
    is_switch = xid.index is None and (text or "").startswith(SWITCH)
    place = next(
        (place for place in reversed(range(len(known))) if _is_same(known[place], xid, is_switch=is_switch)), None
    )
    last = None if place is None else known[place]
    if last is None or place is None or at - last.last_at > FAULT_GAP:
        return (*known, Fault(xid.code, xid.index, at, at, 1, text, is_switch))[-FAULTS:]
    if at <= last.last_at + 1.0:
        return known
    rest = (*known[:place], *known[place + 1 :])
    return (*rest, replace(last, last_at=at, count=last.count + 1, text=text or last.text))


def _is_same(fault: Fault, xid: Xid, *, is_switch: bool) -> bool:
    return fault.code == xid.code and fault.index == xid.index and fault.is_switch == is_switch
