"""Reducers of probe readings: the numbers of a Node. Pure."""

from __future__ import annotations

from math import inf
from typing import Any

from msgspec.structs import replace

from trainmon.lib import Instant, clean, clock_difference, scrub
from trainmon.model import (
    Gpu,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Hello,
    HostSample,
    Node,
    NodeReading,
    Trouble,
    Xid,
    throttle_names,
)

HOST_NUMBERS = tuple(name for name in HostSample.__struct_fields__ if name in Node.__struct_fields__)

DRIFT = 0.01
"""How many seconds the skew may decrease per sample, unless the clock was set back for sure."""


def read(node: Node | None, event: NodeReading) -> Node:
    """The node after one reading. Fields that the reading lacks stay as they were."""
    reading = event.reading
    node = node or Node(name=event.node, cluster=event.cluster)
    skew = node.clock_skew_s or 0.0
    if not isinstance(reading, Xid):  # it has the time of its event, which may be minutes ago
        read_after = event.received_at - event.under_way
        skew = clock_difference(reading.t, read_after, event.received_at, skew - DRIFT)
    at = min(event.received_at, reading.t - skew)
    changes: dict[str, Any] = {"clock_skew_s": skew}
    match reading:
        case GpuSamples():
            changes |= {"gpus": _samples(node, reading.g), "gpus_at": at}
        case HostSample():
            changes |= {name: getattr(reading, name) for name in HOST_NUMBERS} | {"host_at": at}
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
        case Xid():
            changes |= _xid(node, reading, at)
        case Trouble():
            changes["troubles"] = _troubles(node, reading.part, reading.text)
    return replace(node, **changes)


def _samples(node: Node, samples: tuple[GpuSample, ...]) -> tuple[Gpu, ...]:
    """The GPUs of the node after a reading. The NVML probe reports lost GPUs itself; nvidia-smi and
    exporters just stop listing them."""
    known = {gpu.index: gpu for gpu in node.gpus}
    gpus = [_sampled(known.pop(sample.index, Gpu(index=sample.index)), sample) for sample in samples]
    is_complete = node.probe == "nvml"
    why = "its series have ended" if node.probe == "prometheus" else "the driver no longer lists it"
    gpus += [gpu if is_complete else _lost(gpu, why) for gpu in known.values()]
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def _sampled(gpu: Gpu, sample: GpuSample) -> Gpu:
    if sample.lost:
        return _lost(gpu, clean(sample.error or "lost"))
    return replace(
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
    if node.probe == "nvml":
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
        uuid=fact.uuid or gpu.uuid,
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
