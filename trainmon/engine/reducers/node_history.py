"""Reducers of probe readings: the NodeHistory, with growth, faults, reboots and trends. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from trainmon.analysis.gpus import EMPTY_MIB, is_nonfatal
from trainmon.engine.reducers.batch import EventBatch
from trainmon.engine.reducers.nodes import cleaned
from trainmon.lib import Instant
from trainmon.model import (
    FAULT_GAP,
    FAULTS,
    FLOORS,
    GROWTHS,
    MARGINS,
    THROTTLE,
    Counter,
    Fault,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Growth,
    Hello,
    HostSample,
    Node,
    NodeHistory,
    NodeReading,
    Xid,
)
from trainmon.model.node import FLOOR_EVERY, SAME_GROWTH, WARM

SLOW = ("hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake")
SLOWING = {bit: name for bit, name in THROTTLE.items() if name in SLOW}
SLOWING_MASK = sum(SLOWING)
"""Throttle reasons that are neither chosen by the owner nor the normal power limit."""

REBOOT_MARGIN = 60.0
"""A boot time that is later by at least this many seconds is a reboot. A clock that drifts moves the boot time by
less."""

SILENCE = 900.0
"""After this many seconds without data of a GPU, it is unknown whether a condition lasted."""

LINKS_AT_MOST = 64
SWITCH = "NVSwitch"
"""The beginning of the text of an SXid."""


def read(batch: EventBatch, event: NodeReading, before: Node | None, node: Node) -> None:
    """Update the history of a node with one reading. `node` has the numbers of the reading already."""
    old: NodeHistory = batch.current("node_histories").get(event.node) or NodeHistory()
    new = old
    reading = event.reading
    at = min(event.received_at, reading.t - (node.clock_skew_s or 0.0))
    match reading:
        case GpuSamples():
            if old.slowed and before is not None and before.gpus_at is not None and at - before.gpus_at > SILENCE:
                new = replace(old, slowed={})  # it is unknown whether it lasted
            new = _returned(_emptied(_slowed(new, reading.g, at), before, reading.g, at), before, reading.g, at)
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
    if new != old:
        batch.writable("node_histories")[event.node] = new


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def _slowed(history: NodeHistory, samples: tuple[GpuSample, ...], at: Instant) -> NodeHistory:
    """The GPUs that are slowed down, each with the start and the reason."""
    is_any = any(sample.throttle_mask and sample.throttle_mask & SLOWING_MASK for sample in samples)
    if not is_any and not history.slowed:
        return history
    listed = {sample.index for sample in samples}
    slowed = {key: since for key, since in history.slowed.items() if key[0] not in listed} | {
        (sample.index, name): history.slowed.get((sample.index, name), at)
        for sample in samples
        for bit, name in SLOWING.items()
        if (sample.throttle_mask or 0) & bit
    }
    return replace(history, slowed=slowed)


def _emptied(history: NodeHistory, before: Node | None, samples: tuple[GpuSample, ...], at: Instant) -> NodeHistory:
    """Which GPUs were in use before this sample, and are empty now."""
    if before is None:
        return history
    is_used = {one.index: one.memory_used_mib >= EMPTY_MIB for one in samples if one.memory_used_mib is not None}
    was_used = [gpu.index for gpu in before.gpus if (gpu.memory_used_mib or 0) >= EMPTY_MIB]
    emptied = {index: since for index, since in history.emptied.items() if not is_used.get(index)}
    emptied |= {index: at for index in was_used if is_used.get(index) is False}
    return history if emptied == history.emptied else replace(history, emptied=emptied)


def _returned(history: NodeHistory, before: Node | None, samples: tuple[GpuSample, ...], at: Instant) -> NodeHistory:
    """Which GPUs were lost before this sample, and answer now."""
    lost = () if before is None else {gpu.index for gpu in before.gpus if gpu.state == "lost"}
    returned = {one.index: at for one in samples if one.index in lost and one.error is None and not one.lost}
    return replace(history, returned={**history.returned, **returned}) if returned else history


def _facts(history: NodeHistory, facts: tuple[GpuFacts, ...], at: Instant) -> NodeHistory:
    counters = _counted(history.counters, ((f"ecc {fact.index}", fact.ecc_uncorrected) for fact in facts), at)
    margins = dict(history.margins)
    for fact in facts:
        before = margins.pop(fact.index, ())
        if fact.temperature_margin_c is not None and fact.temperature_margin_c <= WARM:
            unbroken = before if before and at - before[-1][0] <= SILENCE else ()
            margins[fact.index] = (*unbroken, (at, fact.temperature_margin_c))[-MARGINS:]
    return replace(history, counters=counters, margins=margins, gpus_most=max(history.gpus_most, len(facts)))


# ---- the host --------------------------------------------------------------------------------------------------------


def _booted(history: NodeHistory, boot_time: float | None, node: Node) -> NodeHistory:
    """A reboot is later by the node's clock and by ours. Setting a clock moves only one of them."""
    if boot_time is None or boot_time == history.boot_time:
        return history
    booted = boot_time - (node.clock_skew_s or 0.0)
    if history.booted_at is None or history.boot_time is None:
        return replace(history, booted_at=booted, boot_time=boot_time)
    if booted <= history.booted_at + REBOOT_MARGIN or boot_time <= history.boot_time + REBOOT_MARGIN:
        return replace(history, boot_time=boot_time)
    return replace(
        history, booted_at=booted, boot_time=boot_time, rebooted_at=booted, floors=(), margins={}, slowed={}, emptied={}
    )


def _host(history: NodeHistory, host: HostSample, at: Instant) -> NodeHistory:
    ports = [(port, name) for port in host.infiniband[:LINKS_AT_MOST] for name in ("link_downed", "errors")]
    values = (("oom_kills", host.oom_kills), *((f"{name} {port.port}", getattr(port, name)) for port, name in ports))
    counters = _counted(history.counters, values, at)
    active = [port.port for port in host.infiniband if port.state == "ACTIVE" and port.port not in history.links]
    links = (*history.links, *active)[:LINKS_AT_MOST] if active else history.links
    floors = history.floors if host.memory_used_mib is None else _floors(history.floors, host.memory_used_mib, at)
    return replace(history, counters=counters, links=links, floors=floors)


def _counted(
    known: Mapping[str, Counter], values: Iterable[tuple[str, int | None]], at: Instant
) -> Mapping[str, Counter]:
    """The counters with their new values. A counter that fell starts again and keeps its growth."""
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


def _floors(known: tuple[tuple[Instant, int], ...], used: int, at: Instant) -> tuple[tuple[Instant, int], ...]:
    begun = at - at % FLOOR_EVERY
    if not known or begun > known[-1][0]:
        return (*known, (begun, used))[-FLOORS:]
    return (*known[:-1], (known[-1][0], used)) if used < known[-1][1] else known


# ---- faults ----------------------------------------------------------------------------------------------------------


def _faults(known: tuple[Fault, ...], xid: Xid, at: Instant) -> tuple[Fault, ...]:
    """Add a fault. A new connection repeats the faults of the last minutes; these are ignored, but for a text that was
    not known. A fault that the driver calls nonfatal is none of the burst of a fatal one; a report without a text, by
    NVML or Prometheus, may be of either."""
    text = cleaned(xid.text)[:500] if xid.text else None
    is_switch = xid.index is None and (text or "").startswith(SWITCH)
    key = (xid.code, xid.index, is_switch)
    same = (one for one in reversed(known) if (one.code, one.index, one.is_switch) == key)
    last = next((one for one in same if not (text and one.text) or is_nonfatal(text) == is_nonfatal(one.text)), None)
    if last is None or at - last.last_at > FAULT_GAP:
        return (*known, Fault(xid.code, xid.index, at, at, 1, text, is_switch, xid.source))[-FAULTS:]
    if (is_repeat := at <= last.last_at + 1.0) and (last.text or not text):
        return known
    others, count = (one for one in known if one is not last), last.count + (not is_repeat)
    now = replace(last, last_at=max(at, last.last_at), count=count, text=text or last.text, source=xid.source)
    return (*others, now)
