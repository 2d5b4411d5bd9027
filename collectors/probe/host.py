"""The host itself: load, memory, users, error counters, and the GPUs that it should have, from /proc and /sys.

`root` is / except in tests. Reading InfiniBand counters queries the adapter's firmware, so it is a separate operation.
"""

import os
import pwd
import sys

from collectors.probe.paths import listed, read
from collectors.probe.stdlib import Any, Mapping, Operation

# ---- the host itself -------------------------------------------------------------------------------------------------

IB_ERRORS = ("symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors")
IB_COUNTERS = (
    "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err",
    "roce_adp_retrans", "rx_icrc_encapsulated", "np_cnp_sent", "rp_cnp_handled", "retrans_pkts", "to_retransmits",
)  # fmt: skip
"""In hw_counters of mlx5; the last two are those of EFA and bnxt_re."""


def number(text: str) -> "int | None":
    text = text.strip()
    return int(text) if text.isdecimal() and len(text) < 21 else None


def total(values: "list[int | None]") -> "int | None":
    """The sum of the known values; None when none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


USERS = {}  # type: dict[int, str]


def user_name(uid: int) -> str:
    """The user's name, or the number if the name is unknown. Kept: a directory server may answer it."""
    if uid not in USERS:
        try:
            USERS[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            USERS[uid] = str(uid)
    return USERS[uid]


def field(text: str, name: str) -> "int | None":
    """The number after a name, as in /proc/meminfo, /proc/stat, /proc/vmstat."""
    name += " "
    start = 0 if text.startswith(name) else text.find("\n" + name) + 1
    if not text.startswith(name, start):
        return None
    values = text[start + len(name) :].split(None, 1)
    return number(values[0]) if values else None


class Host:
    """The numbers of this machine, from /proc and /sys."""

    def __init__(self, spec: "Mapping[str, Any]", root: str = "/") -> None:
        self.root = root
        self.files = {}  # type: dict[str, int]
        self.slow_part = {}  # type: dict[str, Any]
        self.boot_time = field(self.text("proc/stat"), "btime")

    def configure(self, spec: "Mapping[str, Any]") -> None:
        """Nothing here depends on the spec."""

    def operations(self, slow: bool) -> "list[Operation]":
        rare = ("network", self.network), ("infiniband", self.infiniband), ("host", self.with_ports)
        return [*rare] if slow else [("host", self.sample)]

    def text(self, path: str) -> str:
        """A file of /proc, kept open: reading it again costs one call."""
        file = self.files.get(path)
        try:
            if file is None:
                file = self.files[path] = os.open(os.path.join(self.root, path), os.O_RDONLY)
            return os.pread(file, 65536, 0).decode("ascii", "replace")
        except OSError:
            return ""

    def sample(self) -> "list[dict[str, Any]]":
        line = {"k": "host", "boot_time": self.boot_time}  # type: dict[str, Any]
        load = self.text("proc/loadavg").split(None, 1)
        if load:
            line["load1"] = float(load[0])
        line["memory_total_mib"], line["memory_used_mib"] = self.memory()
        return [dict(line, **self.slow_part)]

    def with_ports(self) -> "list[dict[str, Any]]":
        """The same, with the InfiniBand ports that were just read: none if that hangs."""
        return [dict(self.sample()[0], infiniband=self.__dict__.pop("ports", ()))]

    def memory(self) -> "tuple[int | None, int | None]":
        """Total, and total minus what is available to a new process, in MiB."""
        meminfo = self.text("proc/meminfo")[:256]
        installed, available = field(meminfo, "MemTotal:"), field(meminfo, "MemAvailable:")
        if installed is None:
            return None, None
        return installed >> 10, None if available is None else (installed - available) >> 10

    def network(self) -> None:
        """Errors of the physical interfaces: those that have a device."""
        folder = os.path.join(self.root, "sys/class/net")
        self.slow_part["network_errors"] = total(
            [
                number(read(os.path.join(folder, name, "statistics", counter)))
                for name in listed(folder)
                if os.path.exists(os.path.join(folder, name, "device"))
                for counter in ("rx_errors", "tx_errors")
            ]
        )
        self.slow_part["oom_kills"] = field(self.text("proc/vmstat"), "oom_kill")

    def infiniband(self) -> None:
        folder = os.path.join(self.root, "sys/class/infiniband")
        self.ports = [
            self.port(os.path.join(folder, adapter, "ports", port), adapter + "/" + port)
            for adapter in listed(folder)
            for port in listed(os.path.join(folder, adapter, "ports"))
        ]

    def port(self, folder: str, name: str) -> "dict[str, Any]":
        def text(which: str) -> str:
            return read(os.path.join(folder, which)).strip()[:64]

        def counter(which: str) -> "int | None":
            return number(text("counters/" + which))

        words = total([counter("port_xmit_data"), counter("port_rcv_data")])
        hardware = {which: number(text("hw_counters/" + which)) for which in IB_COUNTERS}
        return {
            "port": name,
            "state": text("state").partition(": ")[2] or None,
            "link_downed": counter("link_downed"),
            "errors": total([counter(which) for which in IB_ERRORS]),
            "rate": text("rate") or None,
            "link_layer": text("link_layer") or None,
            "bytes": words and 4 * words,
            "counters": {which: value for which, value in hardware.items() if value is not None},
        }


def hello(root: str = "/") -> "dict[str, Any]":
    """The part of the first line that does not concern GPUs."""
    host = Host({}, root)
    return {
        "k": "hello",
        "host": os.uname()[1],
        "python": "%d.%d.%d" % sys.version_info[:3],
        "boot_time": host.boot_time,
        "cpu_count": os.cpu_count(),
        "memory_total_mib": host.memory()[0],
    }


# ---- the number of GPUs that this node should have, from /proc and /sys, without the driver --------------------------

GPU_CLASSES = ("0x0300", "0x0302")
"""VGA and 3D controllers. NVSwitches of the same vendor are bridges."""

AMD_CLASSES = ("0x1200", "0x0380")
"""Instinct cards, the newer ones first. A Radeon has the class of any display, and may be there for one."""

CONTAINERS = ("slurm", "docker", "kubepods", "containerd", "podman", "lxc")
"""In a cgroup of these, a process may see only some of the node's GPUs; that is no fault."""

STEP = "TRAINMON_STEP"
"""The variable that is set in a step of a job that runs only probes. It may see fewer GPUs than the job."""

HIDDEN = "a cgroup hides"
"""In the note of the greeting when NVML shows no GPU, though the node has some."""

PASSTHROUGH = ("vfio", "pci-stub", "pciback")
"""Parts of the names of drivers that reserve a device for a virtual machine."""


def on_the_bus(root: str = "/") -> int:
    """The NVIDIA GPUs that Linux lists, or that the driver found when it was loaded, whichever is more."""
    return max(listed_by_linux(root), len(listed(os.path.join(root, "proc/driver/nvidia/gpus"))))


def listed_by_linux(root: str, vendor: str = "0x10de", classes: "tuple[str, ...]" = GPU_CLASSES) -> int:
    """The GPUs of a vendor on the PCI bus."""
    devices = os.path.join(root, "sys/bus/pci/devices")
    folders = [os.path.join(devices, name) for name in listed(devices)]
    gpus = [
        folder
        for folder in folders
        if read(os.path.join(folder, "vendor")).strip() == vendor
        and is_own(folder)
        and read(os.path.join(folder, "class")).startswith(classes)
    ]
    return len(gpus)


def is_own(folder: str) -> bool:
    """Whether a device is the host's: not a virtual machine's, and not a virtual function of another device."""
    try:
        driver = os.path.basename(os.readlink(os.path.join(folder, "driver")))
    except OSError:
        driver = ""
    return not any(name in driver for name in PASSTHROUGH) and not os.path.lexists(os.path.join(folder, "physfn"))


def has_all(root: str = "/") -> bool:
    """Whether this process sees all GPUs of the node: it is not in a container or a job's cgroup."""
    return not any(name in read(os.path.join(root, "proc/self/cgroup")) for name in CONTAINERS)


def driver_version(root: str = "/") -> "str | None":
    """The loaded kernel module's version, which is known even if NVML does not answer."""
    first_line = read(os.path.join(root, "proc/driver/nvidia/version")).partition("\n")[0]
    amd = read(os.path.join(root, "sys/module/amdgpu/version")).strip() or None
    return next((part for part in first_line.split() if part[:1].isdigit() and "." in part), amd)


def has_amdgpu(root: str = "/") -> bool:
    """Whether the driver of AMD's GPUs is loaded."""
    return os.path.isdir(os.path.join(root, "sys/module/amdgpu"))
