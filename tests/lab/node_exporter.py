"""A stand-in for the node_exporters of N nodes: what trainmon reads of them, as one target, by the label Hostname."""

from __future__ import annotations

from collections.abc import Iterator

from tests.lab.dcgm_exporter import DcgmExporter

METRICS = {
    "node_load1": 42.0,
    "node_memory_MemTotal_bytes": 2.1e12,
    "node_memory_MemAvailable_bytes": 1.4e12,
    "node_boot_time_seconds": 1.7e9,
    "node_vmstat_oom_kill": 0.0,
}
"""A busy node with 2 TB of memory."""

FILESYSTEMS = {
    "size_bytes": 7.6e12, "avail_bytes": 3.1e12, "files": 4e8, "files_free": 3.9e8, "readonly": 0.0,
    "device_error": 0.0,
}  # fmt: skip
MOUNTS = ("/", "/scratch", "/boot/efi", "/fsx")
INTERFACES, PORTS = ("eth0", "eth1"), tuple(f"mlx5_{number}" for number in range(8))


class HostExporter(DcgmExporter):
    """An HTTP server on loopback, as DcgmExporter."""

    def lines(self) -> Iterator[str]:
        for node in self.names:
            own = f'Hostname="{node}"'
            for metric, value in METRICS.items():
                yield f"{metric}{{{own}}} {value:g}"
            for mount in MOUNTS:
                where = f'{own},device="/dev/{mount}",fstype="xfs",mountpoint="{mount}"'
                for name, value in FILESYSTEMS.items():
                    yield f"node_filesystem_{name}{{{where}}} {value:g}"
            for interface in INTERFACES:
                for way in ("receive", "transmit"):
                    yield f'node_network_{way}_errs_total{{{own},device="{interface}"}} 0'
            for port in PORTS:
                yield f'node_infiniband_state_id{{{own},device="{port}",port="1"}} 4'
                yield f'node_infiniband_link_downed_total{{{own},device="{port}",port="1"}} 0'
