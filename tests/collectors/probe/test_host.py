"""The host, from a /proc and /sys that a test has written, and from this machine's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collectors.probe import host
from collectors.probe.host import Host, field, hello, total
from tests.collectors.probe.wire import decoded, readings_of
from trainmon.model import HostSample, InfinibandPort

MEMINFO = "MemTotal:       2113512340 kB\nMemFree:        104857600 kB\nMemAvailable:   1048576000 kB\nBuffers: 12 kB\n"


def write(root: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return str(root)


def sample(root: str) -> Any:
    return readings_of(Host({}, root), slow=True)[0]


def test_load_memory_and_boot(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "proc/loadavg": "104.12 99.10 80.00 5/1234 99\n",
            "proc/meminfo": MEMINFO,
            "proc/stat": "cpu 1 2 3\nbtime 1790000000\nprocesses 5\n",
            "proc/vmstat": "nr_free_pages 1\noom_kill_x 3\noom_kill 7\n",
        },
    )
    line = sample(root)
    assert isinstance(line, HostSample)
    assert (line.load1, line.boot_time, line.oom_kills) == (104.12, 1790000000, 7)
    assert (line.memory_total_mib, line.memory_used_mib) == (2113512340 >> 10, (2113512340 - 1048576000) >> 10)


def test_what_a_kernel_does_not_say_is_null(tmp_path: Path) -> None:
    line = sample(write(tmp_path, {"proc/meminfo": "MemTotal: 1024 kB\n", "proc/vmstat": "nr_free_pages 1\n"}))
    assert (line.load1, line.boot_time, line.oom_kills, line.network_errors) == (None, None, None, None)
    assert (line.memory_total_mib, line.memory_used_mib, line.infiniband) == (1, None, ())


def test_network_errors_are_those_of_the_physical_interfaces(tmp_path: Path) -> None:
    files = {
        f"sys/class/net/{name}/statistics/{side}_errors": f"{count}\n"
        for name, count in (("eth0", 3), ("ib0", 4), ("docker0", 1000), ("lo", 1000))
        for side in ("rx", "tx")
    }
    root = write(tmp_path, files)
    for name in ("eth0", "ib0"):
        (tmp_path / "sys/class/net" / name / "device").mkdir()
    assert sample(root).network_errors == 14


def test_infiniband_ports_with_state_and_errors(tmp_path: Path) -> None:
    port = "sys/class/infiniband/mlx5_0/ports/1"
    counters = {"symbol_error": 1, "port_rcv_errors": 2, "link_error_recovery": 3, "local_link_integrity_errors": 4}
    files = {f"{port}/counters/{name}": f"{value}\n" for name, value in counters.items()}
    files |= {f"{port}/state": "4: ACTIVE", f"{port}/counters/link_downed": "5"}
    files |= {"sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n"}
    assert sample(write(tmp_path, files)).infiniband == (
        InfinibandPort("mlx5_0/1", "ACTIVE", 5, 10),
        InfinibandPort("mlx5_1/1", "DOWN", None, None),
    )


def test_ports_that_hang_are_not_known_any_more(tmp_path: Path) -> None:
    probe = Host({}, write(tmp_path, {"sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n"}))
    assert len(readings_of(probe, slow=True)[0].infiniband) == 1
    without = dict(probe.operations(True))
    assert decoded(without["host"]()[0]).infiniband == (), "the operation that reads them was left out"
    assert readings_of(probe)[0].infiniband is None, "it is not their time"


def test_this_machine_has_all_of_it() -> None:
    line = sample("/")
    assert line.load1 is not None
    assert line.memory_total_mib > line.memory_used_mib > 0
    assert line.boot_time > 1_600_000_000
    assert line.oom_kills is not None
    assert hello()["cpu_count"] >= 1


def test_a_field_is_found_by_its_whole_name() -> None:
    assert field("a 1\nab 2\n", "ab") == 2
    assert field("ab 2\n", "ab") == 2
    assert field("xab 2\n", "ab") is None
    assert field("ab x\n", "ab") is None
    assert total([None, None]) is None
    assert total([None, 2]) == 2


def test_gpus_on_the_bus_are_counted_without_the_switches(tmp_path: Path) -> None:
    files = {}
    for number, (vendor, kind) in enumerate(
        [("0x10de", "0x030200")] * 7 + [("0x10de", "0x068000")] * 4 + [("0x8086", "0x030000"), ("0x10de", "0x030000")]
    ):
        files[f"sys/bus/pci/devices/0000:{number:02x}:00.0/vendor"] = vendor + "\n"
        files[f"sys/bus/pci/devices/0000:{number:02x}:00.0/class"] = kind + "\n"
    root = write(tmp_path, files)
    assert host.on_the_bus(root) == 8
    for number in range(9):
        (tmp_path / f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0").mkdir(parents=True)
    assert host.on_the_bus(root) == 9
    assert host.on_the_bus(str(tmp_path / "nowhere")) == 0


def test_what_is_no_gpu_of_this_host_is_not_counted(tmp_path: Path) -> None:
    """The sound of a card, the bridges of NVSwitches, a GPU of a virtual machine, a virtual part of one."""
    devices = tmp_path / "sys/bus/pci/devices"
    for name, kind, driver in (
        ("0000:01:00.0", "0x030200", "nvidia"),
        ("0000:01:00.1", "0x040300", "snd_hda_intel"),
        ("0000:02:00.0", "0x068000", "nvidia-nvswitch"),
        ("0000:03:00.0", "0x030200", "vfio-pci"),
        ("0000:04:00.0", "0x030200", "nvgrace_gpu_vfio_pci"),
        ("0000:05:00.0", "0x030200", "xen-pciback"),
        ("0000:06:00.4", "0x030200", "nvidia"),
        ("0000:07:00.0", "0x030000", None),
    ):
        write(tmp_path, {f"sys/bus/pci/devices/{name}/vendor": "0x10de\n", f"sys/bus/pci/devices/{name}/class": kind})
        if driver is not None:
            (devices / name / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    (devices / "0000:06:00.4" / "physfn").symlink_to("../0000:06:00.0")
    assert host.on_the_bus(str(tmp_path)) == 2


def test_in_a_jobs_cgroup_fewer_gpus_are_no_fault(tmp_path: Path) -> None:
    assert host.has_all(write(tmp_path, {"proc/self/cgroup": "0::/user.slice/user-1000.slice/session-1.scope\n"}))
    assert not host.has_all(write(tmp_path, {"proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_12/step_0\n"}))


def test_the_drivers_version_is_known_without_nvml(tmp_path: Path) -> None:
    version = (
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build\nGCC version: gcc 12.3.0\n"
    )
    assert host.driver_version(write(tmp_path, {"proc/driver/nvidia/version": version})) == "580.126.09"
    assert host.driver_version(str(tmp_path / "nowhere")) is None
