"""Time series become the readings of nodes, as a probe sends them. Pure.

node_exporter exports mount points, and does not say on which of them a path lies: it is the longest one above the path.
Only `/` itself is taken to lie on `/`. Any other path may be a link, or a mount that is not exported, such as /dev/shm.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from posixpath import dirname, normpath

import msgspec

from collectors.prometheus.query import Exporter, Series, label_of, short_name
from trainmon.lib import Instant, Seconds, natural_key
from trainmon.model import DiskSample, GpuFacts, GpuInstance, GpuSample, HostSample, InfinibandPort

# ---- time series become the readings of nodes, as a probe sends them -------------------------------------------------

# ---- filesystems of node_exporter become the watched disks of a node, as a probe samples them ------------------------

FAILED = "node_exporter gets no answer, or an error"

NEEDED = {"total_bytes", "device_error"}
"""Without one of them, nothing can be said: a server may keep only some metrics."""

Filesystem = tuple[str, str, str]
"""Its mount point, type and device."""


def mount_points(paths: Iterable[str]) -> list[str]:
    """The directories at which the filesystems of these paths may be mounted."""
    return sorted({point for path in paths for point in _above(path)})


def number_of(text: str) -> float | None:
    """A number of bytes or inodes. It may be of any size: some filesystems have more than 2^53 bytes."""
    found = float(text)
    return found if math.isfinite(found) else None


def _above(path: str) -> Iterator[str]:
    """The path and its parents, without `/`."""
    path = "/" + normpath(path).lstrip("/")
    yield path
    while (path := dirname(path)) != "/":
        yield path


def _sample(path: str, mount: str, filesystem: str, fields: Mapping[str, float]) -> DiskSample:
    if fields.get("device_error"):
        return DiskSample(path, "error", FAILED, mount, filesystem)
    total, free = fields.get("total_bytes") or None, fields.get("free_bytes")
    files, free_files = fields.get("total_inodes") or None, fields.get("free_inodes")
    if total is not None and free is not None and free > total:
        free = 0.0  # a negative count: the reserve or the quota is exceeded
    if files is not None and free_files is not None and free_files > files:
        files = free_files = None  # CephFS says -1: their number is not fixed
    return DiskSample(
        path,
        mount=mount,
        filesystem=filesystem,
        read_only=bool(fields["read_only"]) if "read_only" in fields else None,
        total_bytes=_bytes(total),
        free_bytes=None if total is None else _bytes(free),
        total_inodes=_bytes(files),
        free_inodes=None if files is None else _bytes(free_files),
    )


def _bytes(number: float | None) -> int | None:
    return None if number is None else round(number)


# ---- time series of one answer become the readings of nodes, as a probe sends them -----------------------------------

LARGEST = 2.0**53
"""A number above it stands for "no value": DCGM has several such numbers of 32 and 64 bits."""

BLANK_32 = frozenset(range(2147483632, 2147483648))
"""DCGM's numbers for "no value" in 32 bits (DCGM_INT32_BLANK and after it, in dcgm_structs.h)."""

INDEX_AT_MOST = 1024

PORT_STATES = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACT_DEFER"}
"""States of an InfiniBand port by number, as in /sys/class/infiniband/*/ports/*/state."""

MEMORY = ("memory_used_mib", "memory_free_mib", "memory_reserved_mib", "memory_total_mib")
"""Fields of which each MIG instance has its share; the others are of the whole GPU."""

DEGREES = ("temperature_c", "edge_temperature_c")
UNKNOWN_OF_AMD = (0xFFFF, 0xFFFFFFFF)
"""AMD's device-metrics-exporter passes on these numbers for what a GPU does not have, or makes them 0
(normalizeUint64 and updateGPUInfoToMetrics of its gpuagent.go); amd_smi_exporter gives -1."""

SUMS = ("network_errors", "errors")
"""Fields that are the sum of several metrics, or of several interfaces."""

Sample = tuple[Instant, float]


class GpuNumbers(msgspec.Struct):
    """The newest numbers of one GPU: by field, its sample; and what its labels say."""

    fields: dict[str, Sample] = {}
    xids: list[Sample] = []
    """The samples of its last Xid, oldest first, or each Xid with its own time."""
    instances: dict[str, dict[str, Sample]] = {}
    """By MIG instance: its share of the memory."""
    profiles: dict[str, str] = {}
    """By MIG instance: such as `1g.10gb`."""
    uuid: str | None = None
    name: str | None = None


class NodeNumbers(msgspec.Struct):
    """The newest numbers of one node, by the clock of the server."""

    at: Instant = 0.0
    """The time of its newest sample."""
    gpus: dict[int, GpuNumbers] = {}
    host: dict[str, Sample] = {}
    ports: dict[str, dict[str, Sample]] = {}
    """Of its InfiniBand ports."""
    filesystems: dict[Filesystem, dict[str, Sample]] = {}
    driver: str | None = None

    def fields(self) -> set[str]:
        """The fields that some series of it has."""
        shares = {field for gpu in self.gpus.values() for share in gpu.instances.values() for field in share}
        found = {*self.host} | {field for gpu in self.gpus.values() for field in gpu.fields} | shares
        return found | ({"xid"} if any(gpu.xids for gpu in self.gpus.values()) else set())


def read(exporter: Exporter, label: str, series: Sequence[Series], nodes: Mapping[str, str]) -> dict[str, NodeNumbers]:
    """The numbers in an answer, by node. `nodes`: by short name, our names of the nodes."""
    found: dict[str, NodeNumbers] = {}
    for name, index, metric, one in _placed(exporter, label, series, nodes):
        node = found.setdefault(name, NodeNumbers())
        if exporter.is_host:
            _host(node, one, metric)
        elif index is not None:
            _gpu(node, node.gpus.setdefault(index, GpuNumbers()), one, metric, exporter)
    return {name: node for name, node in found.items() if node.at}


def _placed(
    exporter: Exporter, label: str, series: Sequence[Series], nodes: Mapping[str, str]
) -> Iterator[tuple[str, int | None, tuple[str, float], Series]]:
    """Each series with our name of its node, the index of its GPU, its field and its factor."""
    indexes = _indexes(exporter, label, series)
    for one in series:
        metric = exporter.metrics.get(one.metric.get("__name__", ""))
        short = short_name(one.metric.get(label, ""))
        if metric is None or short not in nodes or not one.values:
            continue
        index = _index(label_of(one.metric, exporter.index_labels))
        if index is None and indexes:
            index = indexes.get((short, label_of(one.metric, exporter.uuid_labels) or ""))
        yield nodes[short], index, metric, one


def _indexes(exporter: Exporter, label: str, series: Iterable[Series]) -> dict[tuple[str, str], int]:
    """By node and UUID: the index of a GPU, where only one of its series names it."""
    found: dict[tuple[str, str], int] = {}
    if "info" not in exporter.fields:
        return found
    for one in series:
        field, _ = exporter.metrics.get(one.metric.get("__name__", ""), ("", 1.0))
        if field in ("info", "index") and one.values:
            text = label_of(one.metric, exporter.index_labels) if field == "info" else one.values[-1][1]
            index, uuid = _index(text), label_of(one.metric, exporter.uuid_labels)
            if index is not None and uuid is not None:
                found[short_name(one.metric.get(label, "")), uuid] = index
    return found


def _index(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and int(text) < INDEX_AT_MOST else None


def number(text: str) -> float | None:
    """A value of Prometheus; None for NaN, infinity, and DCGM's numbers for "no value"."""
    value = float(text)
    return value if math.isfinite(value) and abs(value) < LARGEST and value not in BLANK_32 else None


def _newest(series: Series, scale: float) -> Sample | None:
    at, text = series.values[-1]
    value = number(text)
    return None if value is None else (at, value * scale)


def _keep(fields: dict[str, Sample], field: str, sample: Sample | None) -> None:
    """Keep the newer sample: a label that changes makes a second series."""
    if sample is not None and (field not in fields or sample[0] > fields[field][0]):
        fields[field] = sample


def _gpu(node: NodeNumbers, gpu: GpuNumbers, one: Series, metric: tuple[str, float], exporter: Exporter) -> None:
    field, scale = metric
    node.at = max(node.at, one.values[-1][0])
    gpu.uuid = label_of(one.metric, exporter.uuid_labels) or gpu.uuid
    gpu.name = label_of(one.metric, exporter.model_labels) or gpu.name
    node.driver = one.metric.get(exporter.driver_label) or node.driver
    if field == "xid":
        gpu.xids = sorted((*gpu.xids, *((at, value) for at, text in one.values if (value := number(text)) is not None)))
    elif field == "xid_at":
        code, at = one.metric.get("xid", ""), number(one.values[-1][1])
        if code.isdecimal() and at:
            gpu.xids = sorted((*gpu.xids, (at, float(code))))
    elif instance := one.metric.get(exporter.instance_label):
        _keep(gpu.fields, "mig", (one.values[-1][0], 1.0))
        gpu.profiles[instance] = one.metric.get(exporter.profile_label, "")
        if field in MEMORY:
            _keep(gpu.instances.setdefault(instance, {}), field, _newest(one, scale))
        elif field != "utilization_pct":
            _keep(gpu.fields, field, _newest(one, scale))
    elif field not in ("info", "index"):
        sample = _newest(one, scale)
        if sample is None or (sample[1] < 0 and field != "temperature_margin_c"):
            return
        is_unknown = sample[1] in UNKNOWN_OF_AMD or (field in (*DEGREES, "power_w") and not sample[1])
        if exporter.slows_at_c is not None and is_unknown:
            return
        _keep(gpu.fields, field, sample)
        if exporter.slows_at_c is not None and field in DEGREES:
            hottest = max(gpu.fields[one][1] for one in DEGREES if one in gpu.fields)
            gpu.fields["temperature_margin_c"] = (gpu.fields[field][0], exporter.slows_at_c - hottest)


def _host(node: NodeNumbers, one: Series, metric: tuple[str, float]) -> None:
    field, scale = metric
    at, text = one.values[-1]
    name, device = one.metric["__name__"], one.metric.get("device", "")
    node.at = max(node.at, at)
    if name.startswith("node_filesystem"):
        mounted = one.metric.get("mountpoint", ""), one.metric.get("fstype", ""), device
        if (value := number_of(text)) is not None:
            _keep(node.filesystems.setdefault(mounted, {}), field, (at, value))
        return
    sample = _newest(one, scale)
    if sample is None:
        return
    port = f"{device}/{one.metric.get('port', '1')}"
    fields = node.ports.setdefault(port, {}) if name.startswith("node_infiniband") else node.host
    if field in SUMS and field in fields:
        sample = max(sample[0], fields[field][0]), sample[1] + fields[field][1]
        fields[field] = sample
    else:
        _keep(fields, field, sample)


def interval(series: Iterable[Series]) -> Seconds | None:
    """The seconds between two samples of the server: its scrape interval; None if no series has two."""
    gaps = (one.values[-1][0] - one.values[-2][0] for one in series if len(one.values) > 1)
    return min((gap for gap in gaps if gap > 0), default=None)


# ---- readings --------------------------------------------------------------------------------------------------------


def gpu_samples(node: NodeNumbers, tolerance: Seconds) -> tuple[GpuSample, ...]:
    """The GPUs with a sample that is at most `tolerance` older than the newest of the node. A GPU without one is left
    out: its series have ended. The same holds for a number."""
    current = ((index, _whole_gpu(gpu, node.at - tolerance)) for index, gpu in sorted(node.gpus.items()))
    return tuple(
        GpuSample(
            index=index,
            temperature_c=_whole(fields, "temperature_c" if "temperature_c" in fields else "edge_temperature_c"),
            memory_temperature_c=_whole(fields, "memory_temperature_c") or None,  # 0 of a GPU without that sensor
            memory_used_mib=_whole(fields, "memory_used_mib"),
            utilization_pct=_whole(fields, "utilization_pct"),
            power_w=fields.get("power_w"),
            sm_clock_mhz=_whole(fields, "sm_clock_mhz"),
            throttle_mask=_whole(fields, "throttle_mask"),
            edge_temperature_c=_whole(fields, "edge_temperature_c"),
        )
        for index, fields in current
        if fields
    )


def gpu_facts(node: NodeNumbers, tolerance: Seconds) -> tuple[GpuFacts, ...]:
    """What changes slowly about the GPUs of a node."""
    return tuple(
        GpuFacts(
            index=index,
            uuid=gpu.uuid,
            name=gpu.name,
            memory_total_mib=_total(fields),
            power_limit_w=fields.get("power_limit_w"),
            temperature_margin_c=_whole(fields, "temperature_margin_c"),
            mig=_flag(fields, "mig"),
            ecc_uncorrected=_whole(fields, "ecc_uncorrected"),
            ecc_corrected=_whole(fields, "ecc_corrected"),
            remap_pending=_flag(fields, "remap_pending"),
            remap_failed=_flag(fields, "remap_failed"),
            instances=_instances(gpu, node.at - tolerance),
        )
        for index, gpu in sorted(node.gpus.items())
        if (fields := _whole_gpu(gpu, node.at - tolerance))
    )


def host_sample(node: NodeNumbers, t: Instant, tolerance: Seconds) -> HostSample:
    """The host, at the time `t` of our clock."""
    fields = _current(node.host, node.at - tolerance)
    total, available = _whole(fields, "memory_total_mib"), _whole(fields, "memory_available_mib")
    ports = ((name, _current(port, node.at - tolerance)) for name, port in sorted(node.ports.items()))
    return HostSample(
        v=1,
        t=t,
        load1=fields.get("load1"),
        memory_used_mib=None if total is None or available is None else total - available,
        memory_total_mib=total,
        boot_time=fields.get("boot_time"),
        oom_kills=_whole(fields, "oom_kills"),
        network_errors=_whole(fields, "network_errors"),
        infiniband=tuple(
            InfinibandPort(
                port=name,
                state=PORT_STATES.get(_whole(port, "state") or 0),
                link_downed=_whole(port, "link_downed"),
                errors=_whole(port, "errors"),
                rate=f"{port['gbps']:g} Gb/sec" if "gbps" in port else None,
            )
            for name, port in ports
            if port
        ),
    )


def disk_samples(node: NodeNumbers, paths: Sequence[str], tolerance: Seconds) -> tuple[DiskSample, ...]:
    """The disks of these paths that node_exporter exports now."""
    current = ((key, _current(fields, node.at - tolerance)) for key, fields in node.filesystems.items())
    mounted = {point: (kind, fields) for (point, kind, _), fields in current if fields.keys() & NEEDED}
    points = ((path, next((point for point in _above(path) if point in mounted), None)) for path in paths)
    return tuple(_sample(path, point, *mounted[point]) for path, point in points if point is not None)


class XidChanges:
    """Finds new Xids. What an exporter shows first may be of any time, so it is no event. With `has_times`, the
    exporter names the time of each Xid; otherwise an Xid is a change of the last code."""

    def __init__(self, *, has_times: bool) -> None:
        self._has_times = has_times
        self._seen: dict[tuple[str, int], Sample] = {}
        """By node and GPU: the newest sample, as (time, code)."""

    def of(self, node: str, numbers: NodeNumbers) -> Iterator[tuple[int, Instant, int]]:
        """The new Xids of a node: GPU, time, code."""
        for index, gpu in numbers.gpus.items():
            first = gpu.xids[-1] if gpu.xids else (numbers.at, 0.0)
            known = self._seen.setdefault((node, index), first)
            for at, code in gpu.xids:
                if at > known[0]:
                    if code and (self._has_times or code != known[1]):
                        yield index, at, int(code)
                    known = (at, code)
            self._seen[node, index] = known


def _current(fields: Mapping[str, Sample], since: Instant) -> dict[str, float]:
    return {field: value for field, (at, value) in fields.items() if at >= since}


def _whole_gpu(gpu: GpuNumbers, since: Instant) -> dict[str, float]:
    """The current numbers of a GPU. Its memory is that of its MIG instances together if it has no series for it."""
    fields = _current(gpu.fields, since)
    for share in gpu.instances.values() if not fields.keys() & {*MEMORY} else ():
        for field, value in _current(share, since).items():
            fields[field] = fields.get(field, 0.0) + value
    return fields


def _instances(gpu: GpuNumbers, since: Instant) -> tuple[GpuInstance, ...]:
    shares = ((name, _current(gpu.instances[name], since)) for name in sorted(gpu.instances, key=natural_key))
    return tuple(
        GpuInstance(name, gpu.profiles[name] or None, None, _whole(share, "memory_used_mib"), _total(share))
        for name, share in shares
        if share
    )


def _total(fields: Mapping[str, float]) -> int | None:
    """The memory of a GPU: as the exporter says it, or the sum of its parts."""
    if "memory_total_mib" in fields:
        return _whole(fields, "memory_total_mib")
    parts = [fields.get(name) for name in ("memory_used_mib", "memory_free_mib")]
    known = [part for part in parts if part is not None]
    return round(sum(known) + fields.get("memory_reserved_mib", 0.0)) if len(known) == len(parts) else None


def _whole(fields: Mapping[str, float], field: str) -> int | None:
    return round(fields[field]) if field in fields else None


def _flag(fields: Mapping[str, float], field: str) -> bool | None:
    return bool(fields[field]) if field in fields else None


# ---- the past of GPUs and disks --------------------------------------------------------------------------------------

Key = tuple[int, str]
"""A GPU and a field."""

Row = Callable[[Instant], int]
"""The row of a time of the server."""


def columns(
    exporter: Exporter, answers: Mapping[str, Sequence[Series]], names: Mapping[str, str], row: Row, length: int
) -> Mapping[Key, array[float]]:
    """By GPU and field: a value for each step, or nan. `answers`: by label of the node, the series. A GPU that has only
    MIG instances is one GPU: its memory is the sum of theirs, its temperature and power are those of each of them, and
    its utilization is not known."""
    found: dict[tuple[int, str, str], array[float]] = {}
    placed = (_placed(exporter, label, series, names) for label, series in answers.items())
    for _, index, (field, scale), one in chain.from_iterable(placed):
        instance = one.metric.get(exporter.instance_label, "")
        if index is None or field in ("info", "index") or (instance and field == "utilization_pct"):
            continue
        column = found.setdefault((index, field, instance), array("d", [math.nan]) * length)
        _fill(column, ((row(at), number(text)) for at, text in one.values), scale)
    parts = groupby(sorted(found), key=itemgetter(0, 1))
    return {(index, field): _of_gpu(field, {key[2]: found[key] for key in keys}) for (index, field), keys in parts}


Mounted = tuple[str, str]
"""A node, and a mount point there."""


def disk_columns(
    exporter: Exporter, label: str, series: Sequence[Series], names: Mapping[str, str], row: Row, length: int
) -> Mapping[Mounted, Mapping[str, array[float]]]:
    """By node and mount point: of each field, a value for each step, or nan. As in a sample, more than the size is
    none: it is a negative count."""
    found: dict[Mounted, dict[str, array[float]]] = {}
    for node, _, (field, _), one in _placed(exporter, label, series, names):
        fields = found.setdefault((node, one.metric.get("mountpoint", "")), {})
        column = fields.setdefault(field, array("d", [math.nan]) * length)
        _fill(column, ((row(at), number_of(text)) for at, text in one.values))
    for fields in found.values():
        if {"free_bytes", "total_bytes"} <= fields.keys():
            pairs = zip(fields["free_bytes"], fields["total_bytes"], strict=True)
            fields["free_bytes"] = array("d", (0.0 if free > total else free for free, total in pairs))
    return found


def _fill(column: array[float], values: Iterable[tuple[int, float | None]], scale: float = 1.0) -> None:
    """Put these values into their rows."""
    for row, value in values:
        if 0 <= row < len(column) and value is not None:
            column[row] = value * scale


def _of_gpu(field: str, parts: Mapping[str, array[float]]) -> array[float]:
    """The column of a GPU. `parts`: by MIG instance; empty for the GPU itself, whose values come first."""
    if parts.keys() == {""}:
        return parts[""]
    column = array("d")
    own = parts.get("", [math.nan] * len(next(iter(parts.values()))))
    instances = zip(*(values for name, values in parts.items() if name), strict=True)
    for value, shares in zip(own, instances, strict=True):
        known = [share for share in shares if not math.isnan(share)]
        if known and math.isnan(value):
            value = sum(known) if field in MEMORY else known[-1]
        column.append(value)
    return column
