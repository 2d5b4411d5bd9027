"""Reducers of probe readings: the numbers of a Node, and its NodeHistory (growth, faults, reboots, trends). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from trainmon.analysis.gpus import EMPTY_MIB, SLOWED, is_nonfatal
from trainmon.analysis.runs import peers, throughput
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Instant, clean, clock_difference, scrub
from trainmon.model import (
    COMPLETE_PROBES,
    FABRIC_EVERY,
    FAULT_GAP,
    FAULTS,
    FLOOR_EVERY,
    FLOORS,
    GROWTHS,
    MARGINS,
    OVER,
    SAME_GROWTH,
    WARM,
    Counter,
    Fault,
    Gpu,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Growth,
    Hello,
    HostSample,
    LinkSpeed,
    Node,
    NodeHistory,
    NodeReading,
    RankProcesses,
    Trouble,
    Xid,
    throttle_names,
)

# ---- the numbers of a Node -------------------------------------------------------------------------------------------

HOST_NUMBERS = tuple(name for name in HostSample.__struct_fields__ if name in Node.__struct_fields__)

DRIFT = 0.01
"""How many seconds the skew may decrease per sample, unless the clock was set back for sure."""


def read(node: Node | None, event: NodeReading) -> Node:
    """The node after one reading. Fields that the reading lacks stay as they were."""
    reading = event.reading
    node = node or Node(name=event.node, cluster=event.cluster)
    skew = node.clock_skew_s or 0.0
    if not isinstance(reading, Xid):  # it has the time of its event, which may be minutes ago
        skew = clock_difference(reading.t, event.received_at - event.under_way, event.received_at, skew - DRIFT)
    at = min(event.received_at, reading.t - skew)
    changes: dict[str, Any] = {"clock_skew_s": skew}
    match reading:
        case GpuSamples():
            gpus = _samples(node, reading.g)
            changes |= {"gpus": gpus, "gpus_at": at, "paces": throughput.gpus(node.paces, gpus, at)}
        case HostSample():
            changes |= {name: getattr(reading, name) for name in HOST_NUMBERS} | {"host_at": at}
            if reading.infiniband is None:
                del changes["infiniband"]  # it is read more rarely
        case GpuFactsAll():
            changes |= {"gpus": _facts(node, reading.g), "gpus_expected": reading.expected}
        case Hello():
            changes |= {
                "greeted_at": at,
                "probe": reading.probe,
                "driver": reading.driver,
                "boot_time": reading.boot_time if reading.boot_time is not None else node.boot_time,
                "cpu_count": reading.cpu_count or node.cpu_count,
                "memory_total_mib": reading.memory_total_mib or node.memory_total_mib,
                "note": None if reading.note is None else clean(reading.note),
                "confined": reading.confined,
                "gpus_expected": None,
                "troubles": {},
            }
        case RankProcesses():
            rows = tuple(replace(one, launch=one.launch and cleaned(one.launch)) for one in reading.r)
            changes["ranks"] = replace(reading, r=rows, user=clean(reading.user))
        case Xid():
            changes |= _xid(node, reading, at)
        case Trouble():
            changes["troubles"] = _troubles(node, reading.part, reading.text)
    return replace(node, **changes)


def _samples(node: Node, samples: tuple[GpuSample, ...]) -> tuple[Gpu, ...]:
    """The GPUs of the node after a reading. The NVML probe reports lost GPUs itself; nvidia-smi and
    exporters just stop listing them."""
    known = {gpu.index: gpu for gpu in node.gpus}
    gpus = [_sampled(known.pop(one.index) if one.index in known else Gpu(index=one.index), one) for one in samples]
    is_complete = node.probe in COMPLETE_PROBES
    why = "its series have ended" if node.probe == "prometheus" else "the driver no longer lists it"
    gpus += [gpu if is_complete else _lost(gpu, why) for gpu in known.values()]
    return tuple(sorted(gpus, key=attrgetter("index")))


def _sampled(gpu: Gpu, sample: GpuSample) -> Gpu:
    if sample.lost:
        return _lost(gpu, clean(sample.error or "lost"))
    return replace(  # by name, as a dict of fields takes four times as long, for each GPU and second
        gpu,
        state="ok" if sample.error is None else "error",
        error=None if sample.error is None else clean(sample.error),
        temperature_c=sample.temperature_c,
        memory_temperature_c=sample.memory_temperature_c,
        memory_used_mib=sample.memory_used_mib,
        utilization_pct=sample.utilization_pct,
        power_w=sample.power_w,
        sm_clock_mhz=sample.sm_clock_mhz,
        throttle=throttle_names(sample.throttle_mask),
        edge_temperature_c=sample.edge_temperature_c,
    )


def _lost(gpu: Gpu, why: str) -> Gpu:
    """The GPU as lost: it keeps its name and its last Xid, but its numbers are unknown."""
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        state="lost",
        error=why,
        memory_total_mib=gpu.memory_total_mib,
        power_limit_w=gpu.power_limit_w,
        last_xid=gpu.last_xid,
        last_xid_at=gpu.last_xid_at,
    )


def _facts(node: Node, facts: tuple[GpuFacts, ...]) -> tuple[Gpu, ...]:
    """NVML's list is complete. A GPU that it lacks is from before a reboot, or belongs to the share of another job."""
    known = {gpu.index: gpu for gpu in node.gpus}
    if node.probe in COMPLETE_PROBES:
        listed = {fact.index for fact in facts}
        known = {index: gpu for index, gpu in known.items() if index in listed or gpu.state == "lost"}
    for fact in facts:
        known[fact.index] = _with_facts(known.get(fact.index) or Gpu(index=fact.index), fact)
    return tuple(known[index] for index in sorted(known))


def _with_facts(gpu: Gpu, fact: GpuFacts) -> Gpu:
    processes = tuple(
        replace(
            process,
            user=process.user and clean(process.user),
            command=process.command and cleaned(process.command),
            environment={name: cleaned(value) for name, value in process.environment.items()},
        )
        for process in fact.processes
    )
    return replace(
        gpu,
        uuid=clean(fact.uuid) if fact.uuid else gpu.uuid,
        name=clean(fact.name) if fact.name else gpu.name,
        memory_total_mib=fact.memory_total_mib if fact.memory_total_mib is not None else gpu.memory_total_mib,
        power_limit_w=fact.power_limit_w if fact.power_limit_w is not None else gpu.power_limit_w,
        temperature_margin_c=fact.temperature_margin_c,
        mig=fact.mig,
        ecc_uncorrected=fact.ecc_uncorrected,
        ecc_corrected=fact.ecc_corrected,
        remap_pending=fact.remap_pending,
        remap_failed=fact.remap_failed,
        processes=processes,
        links=fact.links,
        instances=tuple(
            replace(
                one,
                id=clean(one.id),
                profile=one.profile and clean(one.profile),
                uuid=one.uuid and clean(one.uuid),
                utilization=clean(one.utilization),
            )
            for one in fact.instances
        ),
    )


def cleaned(text: str) -> str:
    """Text from a node without control characters and secrets."""
    return scrub(clean(text))


def _xid(node: Node, xid: Xid, at: Instant) -> dict[str, Any]:
    if not any(gpu.index == xid.index for gpu in node.gpus):
        return {"troubles": _troubles(node, "xid", f"Xid {xid.code}: {cleaned(xid.text or 'no text')}")}
    return {
        # A new connection repeats the Xids of the last minutes.
        "gpus": tuple(
            replace(gpu, last_xid=xid.code, last_xid_at=at)
            if gpu.index == xid.index and at > (gpu.last_xid_at or -inf)
            else gpu
            for gpu in node.gpus
        )
    }


def _troubles(node: Node, part: str, text: str | None) -> dict[str, str]:
    others = {key: value for key, value in node.troubles.items() if key != part}
    return others if text is None else others | {part: cleaned(text)}


# ---- what is remembered of a node ------------------------------------------------------------------------------------

REBOOT_MARGIN = 60.0
"""A boot time that is later by at least this many seconds is a reboot. A clock that drifts moves the boot time by
less."""

SILENCE = 900.0
"""After this many seconds without data of a GPU, it is unknown whether a condition lasted."""

LINKS_AT_MOST = 64
SWITCH = "NVSwitch"
"""The beginning of the text of an SXid."""


def remember(batch: EventBatch, event: NodeReading, before: Node | None, node: Node) -> None:
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
            new = _errors_counted(old, node, reading.g, at)
        case HostSample():
            runs = (run for run in batch.current("runs").values() if event.node in run.spec.nodes)
            step = next((run.progress.step for run in runs if run.verdict not in OVER), None)
            new = _host(_booted(old, reading.boot_time, node), reading, at, step)
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
    names = ((one.index, name) for one in samples if one.throttle_mask for name in throttle_names(one.throttle_mask))
    slowed = {key: history.slowed.get(key, at) for key in names if key[1] in SLOWED}
    if not slowed and not history.slowed:
        return history
    listed = {sample.index for sample in samples}
    unlisted = {key: since for key, since in history.slowed.items() if key[0] not in listed}
    return replace(history, slowed=unlisted | slowed)


def _emptied(history: NodeHistory, before: Node | None, samples: tuple[GpuSample, ...], at: Instant) -> NodeHistory:
    """Which GPUs were in use before this sample, and are empty now."""
    is_used = {one.index: one.memory_used_mib >= EMPTY_MIB for one in samples if one.memory_used_mib is not None}
    if before is None or (not history.emptied and all(is_used.values())):
        return history
    was_used = [gpu.index for gpu in before.gpus if (gpu.memory_used_mib or 0) >= EMPTY_MIB]
    emptied = {index: since for index, since in history.emptied.items() if not is_used.get(index)}
    emptied |= {index: at for index in was_used if is_used.get(index) is False}
    return history if emptied == history.emptied else replace(history, emptied=emptied)


def _returned(history: NodeHistory, before: Node | None, samples: tuple[GpuSample, ...], at: Instant) -> NodeHistory:
    """Which GPUs were lost before this sample, and answer now."""
    lost = [] if before is None else [gpu.index for gpu in before.gpus if gpu.state == "lost"]
    returned = {one.index: at for one in samples if one.index in lost and one.error is None and not one.lost}
    return replace(history, returned={**history.returned, **returned}) if returned else history


def _errors_counted(history: NodeHistory, node: Node, facts: tuple[GpuFacts, ...], at: Instant) -> NodeHistory:
    counters = _counted(history.counters, ((f"ecc {fact.index}", fact.ecc_uncorrected) for fact in facts), at)
    margins = dict(history.margins)
    for fact in facts:
        before = margins.pop(fact.index, ())
        if fact.temperature_margin_c is not None and fact.temperature_margin_c <= WARM:
            unbroken = before if before and at - before[-1][0] <= SILENCE else ()
            margins[fact.index] = (*unbroken, (at, fact.temperature_margin_c))[-MARGINS:]
    busy = {pace.index for pace in node.paces if (pace.utilization_pct or 0.0) >= peers.LOADED}
    links = {
        f"{peers.GPU}{gpu.index}": (
            f"{gpu.name} {'busy' if gpu.index in busy else 'idle'}",
            {name: getattr(gpu.links, name, None) for name in peers.LOSS},
        )
        for gpu in node.gpus
        if gpu.links is not None
    }
    history = replace(history, counters=counters, margins=margins, gpus_most=max(history.gpus_most, len(facts)))
    return _followed(history, links, at, gpu_speeds=peers.gpu_speeds(node.gpus))


def _followed(
    history: NodeHistory,
    links: Mapping[str, tuple[str, Mapping[str, int | None]]],
    at: Instant,
    **speeds: tuple[LinkSpeed, ...],
) -> NodeHistory:
    """The history with one more reading of all ports, or of all GPUs: of each its kind and its counters. Equal speeds
    stay the same object: what follows from them is not computed again."""
    are_gpus = "gpu_speeds" in speeds
    fabric = {name: past for name, past in history.fabric.items() if name.startswith(peers.GPU) != are_gpus}
    for name, (kind, values) in links.items():
        known = {key: value for key, value in values.items() if value is not None}
        if known:
            fabric[name] = peers.followed(history.fabric.get(name), known, kind, at)
    slot = int(at // FABRIC_EVERY)
    before = history.fabric if slot > history.slot else history.fabric_before
    new = {field: own for field, own in speeds.items() if own != getattr(history, field)}
    return replace(history, fabric=fabric, slot=slot, fabric_before=before, **new)


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


def _host(history: NodeHistory, host: HostSample, at: Instant, step: int | None) -> NodeHistory:
    """The history with one more reading of a host. `step`: that of the run on it."""
    read = (host.infiniband or ())[:LINKS_AT_MOST]
    ports = [(port, name) for port in read for name in ("link_downed", "errors")]
    values = (("oom_kills", host.oom_kills), *((f"{name} {port.port}", getattr(port, name)) for port, name in ports))
    counters = _counted(history.counters, values, at)
    active = [port.port for port in read if port.state == "ACTIVE" and port.port not in history.links]
    links = (*history.links, *active)[:LINKS_AT_MOST] if active else history.links
    floors = history.floors if host.memory_used_mib is None else _floors(history.floors, host.memory_used_mib, at)
    history = replace(history, counters=counters, links=links, floors=floors)
    if host.infiniband is None:
        return history
    of_ports = {
        port.port: (
            f"{port.link_layer} {port.rate}",
            {key: port.counters.get(key) for key in peers.LOSS} | {"bytes": port.bytes, "steps": step},
        )
        for port in read
        if port.counters or port.bytes is not None
    }
    return _followed(history, of_ports, at, speeds=peers.port_speeds(read))


def _counted(
    known: Mapping[str, Counter], values: Iterable[tuple[str, int | None]], at: Instant
) -> Mapping[str, Counter]:
    """The counters with their new values. A counter that fell starts again and keeps its growth."""
    changed: dict[str, Counter] = {}
    for name, value in values:
        old = known.get(name) or Counter(value or 0)
        if value is not None and (value != old.value or name not in known):
            grown = _grown(old.grown, value - old.value, at) if value > old.value else old.grown
            changed[name] = Counter(value, grown)
    return {**known, **changed} if changed else known


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
