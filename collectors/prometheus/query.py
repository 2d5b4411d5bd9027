"""The exporters, and queries in PromQL for them. Pure.

Sources of the names: etc/default-counters.csv of dcgm-exporter, docs/METRICS.md of nvidia_gpu_exporter,
src/api/metrics/ of all-smi, pkg/amdgpu/gpuagent/ of AMD's device-metrics-exporter, src/cpu_data.go of amd_smi_exporter
(its units are in goamdsmi_shim/ of amdsmi), and the collectors loadavg, meminfo, stat, vmstat, netdev, infiniband and
filesystem of node_exporter.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

import msgspec

from trainmon.lib import Seconds

# ---- the exporters ---------------------------------------------------------------------------------------------------

MIB = 1 / 2**20
"""Bytes in MiB."""


class Exporter(NamedTuple):
    """What an exporter offers. `metrics`: by name, the field and the factor to its unit."""

    program: str
    node_labels: tuple[str, ...]
    """Labels with the name of the node; a node is looked for by the first, then by the next."""
    metrics: Mapping[str, tuple[str, float]]
    is_host: bool = False
    index_labels: tuple[str, ...] = ()
    """Labels with the index of a GPU; the first that a series has counts."""
    uuid_labels: tuple[str, ...] = ()
    model_labels: tuple[str, ...] = ()
    driver_label: str = ""
    cpus: str = ""
    """The metric with a series for each CPU and mode: it is counted by the server, and seldom."""
    instance_label: str = ""
    """The label that only the series of MIG instances have."""
    profile_label: str = ""
    slows_at_c: int | None = None
    """The temperature at which its GPUs slow themselves down, where no metric has it."""
    matchers: str = ""
    """Matchers that leave out series which are no GPU or host of ours."""
    never: tuple[str, ...] = ()
    """What the exporter does not offer, whatever its settings are."""

    @property
    def presence(self) -> str:
        """The metric that every node with this exporter has."""
        return next(iter(self.metrics))

    @property
    def fields(self) -> set[str]:
        """What it may offer."""
        return {field for field, _ in self.metrics.values()}


DCGM = Exporter(
    program="dcgm-exporter",
    node_labels=("Hostname", "hostname"),  # the second after dcgm-exporter 4.8.2
    index_labels=("gpu",),
    uuid_labels=("UUID", "uuid"),
    model_labels=("modelName",),
    driver_label="DCGM_FI_DRIVER_VERSION",
    instance_label="GPU_I_ID",
    profile_label="GPU_I_PROFILE",
    never=("processes", "temperature margin"),
    metrics={
        "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1.0),
        "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temperature_c", 1.0),
        "DCGM_FI_DEV_FB_USED": ("memory_used_mib", 1.0),
        "DCGM_FI_DEV_FB_FREE": ("memory_free_mib", 1.0),
        "DCGM_FI_DEV_FB_RESERVED": ("memory_reserved_mib", 1.0),
        "DCGM_FI_DEV_FB_TOTAL": ("memory_total_mib", 1.0),
        "DCGM_FI_DEV_GPU_UTIL": ("utilization_pct", 1.0),
        "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
        "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power_limit_w", 1.0),
        "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1.0),
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": ("throttle_mask", 1.0),
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": ("throttle_mask", 1.0),  # its name before DCGM 3.3
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("ecc_uncorrected", 1.0),
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("ecc_corrected", 1.0),
        "DCGM_FI_DEV_ROW_REMAP_PENDING": ("remap_pending", 1.0),
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("remap_failed", 1.0),
        "DCGM_FI_DEV_XID_ERRORS": ("xid", 1.0),
    },
)

NVIDIA_GPU = Exporter(
    program="nvidia_gpu_exporter",
    node_labels=("instance",),
    index_labels=("index",),
    uuid_labels=("uuid",),
    model_labels=("name",),
    driver_label="driver_version",
    never=("processes",),
    metrics={
        "nvidia_smi_temperature_gpu": ("temperature_c", 1.0),
        "nvidia_smi_gpu_info": ("info", 1.0),  # its labels have the index and the name; other series have the UUID only
        "nvidia_smi_index": ("index", 1.0),
        "nvidia_smi_temperature_memory": ("memory_temperature_c", 1.0),
        "nvidia_smi_temperature_gpu_tlimit": ("temperature_margin_c", 1.0),
        "nvidia_smi_memory_used_bytes": ("memory_used_mib", MIB),
        "nvidia_smi_memory_total_bytes": ("memory_total_mib", MIB),
        "nvidia_smi_utilization_gpu_ratio": ("utilization_pct", 100.0),
        "nvidia_smi_power_draw_watts": ("power_w", 1.0),
        "nvidia_smi_enforced_power_limit_watts": ("power_limit_w", 1.0),
        "nvidia_smi_clocks_current_sm_clock_hz": ("sm_clock_mhz", 1e-6),
        "nvidia_smi_clocks_event_reasons_active": ("throttle_mask", 1.0),
        "nvidia_smi_clocks_throttle_reasons_active": ("throttle_mask", 1.0),  # its name in older drivers
        "nvidia_smi_ecc_errors_uncorrected_volatile_total": ("ecc_uncorrected", 1.0),
        "nvidia_smi_ecc_errors_corrected_volatile_total": ("ecc_corrected", 1.0),
        "nvidia_smi_remapped_rows_pending": ("remap_pending", 1.0),
        "nvidia_smi_remapped_rows_failure": ("remap_failed", 1.0),
        "nvidia_smi_mig_mode_current": ("mig", 1.0),
        "nvidia_smi_xid_last_timestamp_seconds": ("xid_at", 1.0),  # the label `xid` has the code
    },
)

ALL_SMI = Exporter(
    program="all-smi",
    node_labels=("instance",),
    index_labels=("gpu_index", "index"),
    uuid_labels=("gpu_uuid", "uuid"),
    model_labels=("gpu",),
    driver_label="driver_version",
    never=("processes", "throttle reasons", "Xids", "memory temperature", "ECC errors", "temperature margin"),
    metrics={
        "all_smi_gpu_utilization": ("utilization_pct", 1.0),
        "all_smi_gpu_info": ("info", 1.0),
        "all_smi_gpu_temperature_celsius": ("temperature_c", 1.0),
        "all_smi_gpu_memory_used_bytes": ("memory_used_mib", MIB),
        "all_smi_gpu_memory_total_bytes": ("memory_total_mib", MIB),
        "all_smi_gpu_power_consumption_watts": ("power_w", 1.0),
        "all_smi_gpu_power_limit_current_watts": ("power_limit_w", 1.0),
        "all_smi_gpu_frequency_mhz": ("sm_clock_mhz", 1.0),
        "all_smi_gpu_mig_mode": ("mig", 1.0),
    },
)

SLOWS_AT_C = 100
"""Of the junction of an MI300X, and of the edge of an MI200: SLOWDOWN_HOTSPOT_TEMPERATURE and SLOWDOWN_EDGE_TEMPERATURE
of `amd-smi static --limit`, as in amdsmi_cli/README.md and CHANGELOG.md of ROCm/amdsmi."""

AMD = Exporter(
    program="device-metrics-exporter",
    node_labels=("hostname",),
    index_labels=("gpu_id",),
    uuid_labels=("gpu_uuid", "serial_number"),
    model_labels=("card_series", "card_model"),
    slows_at_c=SLOWS_AT_C,
    matchers='clock_type=~"|system"',
    never=("processes", "throttle reasons", "power limit", "PCIe", "XGMI"),
    metrics={
        "gpu_used_vram": ("memory_used_mib", 1.0),
        "gpu_total_vram": ("memory_total_mib", 1.0),
        "gpu_junction_temperature": ("temperature_c", 1.0),  # of MI300 and later
        "gpu_edge_temperature": ("edge_temperature_c", 1.0),  # of MI200
        "gpu_memory_temperature": ("memory_temperature_c", 1.0),
        "gpu_gfx_activity": ("utilization_pct", 1.0),
        "gpu_power_usage": ("power_w", 1.0),
        "gpu_package_power": ("power_w", 1.0),
        "gpu_average_package_power": ("power_w", 1.0),
        "gpu_clock": ("sm_clock_mhz", 1.0),
        "gpu_ecc_uncorrect_total": ("ecc_uncorrected", 1.0),
        "gpu_ecc_correct_total": ("ecc_corrected", 1.0),
    },
)

AMD_SMI = Exporter(
    program="amd_smi_exporter",
    node_labels=("instance",),
    index_labels=("gpu_current_temperature", "gpu_power", "gpu_power_cap", "gpu_SCLK", "gpu_use_percent"),
    model_labels=("productname",),
    slows_at_c=SLOWS_AT_C,
    never=("processes", "throttle reasons", "memory", "memory temperature", "ECC errors", "PCIe", "XGMI"),
    metrics={
        "amd_gpu_current_temperature": ("temperature_c", 1e-3),  # of the edge, or of the junction without that sensor
        "amd_gpu_power": ("power_w", 1e-6),
        "amd_gpu_power_cap": ("power_limit_w", 1e-6),
        "amd_gpu_SCLK": ("sm_clock_mhz", 1e-6),
        "amd_gpu_use_percent": ("utilization_pct", 1.0),
    },
)

NODE = Exporter(
    program="node_exporter",
    node_labels=("instance",),
    is_host=True,
    # Bridges and the interfaces of containers are left out, as the probe leaves out what has no device.
    # A mount over rootfs or autofs is the one that is used, as in the dashboards of node_exporter.
    matchers='device!~"lo|veth.*|docker.*|cali.*|cilium.*|br-.*|virbr.*|tun.*|tap.*|dummy.*|bond.*|vlan.*",'
    'fstype!~"rootfs|autofs"',
    cpus="node_cpu_seconds_total",
    metrics={
        "node_load1": ("load1", 1.0),
        "node_memory_MemTotal_bytes": ("memory_total_mib", MIB),
        "node_memory_MemAvailable_bytes": ("memory_available_mib", MIB),
        "node_boot_time_seconds": ("boot_time", 1.0),
        "node_vmstat_oom_kill": ("oom_kills", 1.0),
        "node_network_receive_errs_total": ("network_errors", 1.0),
        "node_network_transmit_errs_total": ("network_errors", 1.0),
        "node_infiniband_state_id": ("state", 1.0),
        "node_infiniband_rate_bytes_per_second": ("gbps", 8e-9),
        "node_infiniband_link_downed_total": ("link_downed", 1.0),
        "node_infiniband_symbol_error_total": ("errors", 1.0),
        "node_infiniband_port_errors_received_total": ("errors", 1.0),
        "node_infiniband_link_error_recovery_total": ("errors", 1.0),
        "node_infiniband_local_link_integrity_errors_total": ("errors", 1.0),
        "node_filesystem_size_bytes": ("total_bytes", 1.0),
        "node_filesystem_avail_bytes": ("free_bytes", 1.0),
        "node_filesystem_files": ("total_inodes", 1.0),
        "node_filesystem_files_free": ("free_inodes", 1.0),
        "node_filesystem_readonly": ("read_only", 1.0),
        "node_filesystem_device_error": ("device_error", 1.0),
    },
)

EXPORTERS: Mapping[str, Exporter] = {
    "dcgm": DCGM, "nvidia_gpu": NVIDIA_GPU, "all-smi": ALL_SMI, "amd": AMD, "amd_smi": AMD_SMI, "node": NODE,
}  # fmt: skip

NAMES: Mapping[str, str] = {
    "temperature_c": "temperature",
    "memory_temperature_c": "memory temperature",
    "memory_used_mib": "memory",
    "utilization_pct": "utilization",
    "power_w": "power",
    "power_limit_w": "power limit",
    "sm_clock_mhz": "SM clock",
    "throttle_mask": "throttle reasons",
    "ecc_uncorrected": "ECC errors",
    "remap_pending": "pending row remaps",
    "remap_failed": "failed row remaps",
    "temperature_margin_c": "temperature margin",
    "xid": "Xids",
    "load1": "load",
    "memory_available_mib": "memory",
    "boot_time": "boot time",
    "oom_kills": "OOM kills",
    "network_errors": "network errors",
}
"""What a person reads for a field that no series has."""


def lacking(exporter: Exporter, fields: set[str]) -> tuple[str, ...]:
    """What the series do not have: the fields that the exporter could offer, and those that it never does."""
    missing = exporter.fields - fields
    absent = [name for field, name in NAMES.items() if field in missing]
    return tuple(dict.fromkeys((*absent, *exporter.never)))


# ---- queries in PromQL, and the answers of the HTTP API --------------------------------------------------------------

NODES_AT_ONCE = 64
"""Nodes of one query: its answer about 8 GPUs each has about 1 MB."""

PORT = re.compile(r":\d+$")


class Series(msgspec.Struct, frozen=True, gc=False):
    """One time series: its labels, `__name__` among them, and its samples, the newest last."""

    metric: Mapping[str, str]
    values: tuple[tuple[float, str], ...] = ()
    value: tuple[float, str] | None = None
    """The only sample of an instant vector."""


class Data(msgspec.Struct, frozen=True, gc=False):
    """The result of a query: a matrix, or a vector."""

    result: tuple[Series, ...]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The answer of the HTTP API."""

    status: str
    data: Data | None = None
    error: str = ""
    error_type: str = msgspec.field(default="", name="errorType")
    """Such as `timeout`, `canceled` or `unavailable`."""
    warnings: tuple[str, ...] = ()
    """Thanos: which stores did not answer. Prometheus: also remarks about the query, which begin with `PromQL `."""
    partial: bool = msgspec.field(default=False, name="isPartial")
    """VictoriaMetrics in a cluster: whether a storage node did not answer."""

    @property
    def gap(self) -> str:
        """Why series may be missing; empty if none are. See "Partial Response" of thanos.io/tip/components/query.md."""
        told = next((text for text in self.warnings if not text.startswith("PromQL ")), "")
        return told or ("a storage node did not answer" if self.partial else "")


DECODER = msgspec.json.Decoder(Answer)


@lru_cache(maxsize=8_192)
def short_name(node: str) -> str:
    """The name by which a node and the value of a label are compared: without user, domain and port."""
    name = node.rpartition("@")[2]
    name = PORT.sub("", name) if name.count(":") == 1 or name.startswith("[") else name
    name = name.strip("[]")
    try:
        return str(ip_address(name))
    except ValueError:
        return name.partition(".")[0].lower()


def chunks(nodes: Sequence[str]) -> Iterator[Sequence[str]]:
    yield from (nodes[start : start + NODES_AT_ONCE] for start in range(0, len(nodes), NODES_AT_ONCE))


def selector(exporter: Exporter, names: Iterable[str], match: str, *more: str) -> str:
    """A selector of these metrics of the cluster."""
    listed = "|".join(names)
    return "{" + ",".join(filter(None, (f'__name__=~"{listed}"', match, exporter.matchers, *more))) + "}"


def of_nodes(label: str, nodes: Iterable[str]) -> str:
    """A matcher of these nodes, with or without a domain and a port."""
    listed = "|".join(_escaped(short_name(node)) for node in nodes)
    return f'{label}=~"(?i)\\\\[?(?:{listed})\\\\]?(?:\\\\..*)?(?::[0-9]+)?"'


def at_mount_points(points: Iterable[str]) -> str:
    """A matcher of the filesystems that are mounted there. Metrics of other things have no mount point."""
    return f'mountpoint=~"|{"|".join(map(_escaped, points))}"'


def _escaped(name: str) -> str:
    """A name as a regular expression inside a string of PromQL."""
    return re.sub(r"([^\w/-])", r"\\\1", name).replace("\\", "\\\\").replace('"', '\\"')


def newest(exporter: Exporter, label: str, nodes: Sequence[str], match: str, window: Seconds, *more: str) -> str:
    """The samples of the last `window` seconds of all metrics of these nodes, each with its own time."""
    return f"{selector(exporter, exporter.metrics, match, of_nodes(label, nodes), *more)}[{round(window)}s]"


def cpu_counts(exporter: Exporter, label: str, nodes: Sequence[str], match: str) -> str:
    """The number of CPUs of these nodes."""
    series = selector(exporter, [exporter.cpus], match, of_nodes(label, nodes), 'mode="idle"')
    return f"count by ({label}) ({series})"


def past(exporter: Exporter, label: str, nodes: Iterable[str], match: str, fields: Collection[str], *more: str) -> str:
    """The metrics of these nodes that have these fields."""
    names = [name for name, (field, _) in exporter.metrics.items() if field in fields]
    return selector(exporter, names, match, of_nodes(label, nodes), *more)


def label_values(exporter: Exporter, labels: Iterable[str], match: str) -> str:
    """One series for each value of the labels of nodes, whatever the nodes are."""
    return f"count by ({', '.join(labels)}) ({selector(exporter, [exporter.presence], match)})"


def label_of(labels: Mapping[str, str], names: Iterable[str]) -> str | None:
    """The first of these labels that a series has."""
    return next((labels[name] for name in names if labels.get(name)), None)
