"""The host itself: load, memory, and counters that should not grow, from /proc and /sys.

`root` is / but in tests. Reading InfiniBand counters asks the adapter's firmware, so that is an operation of its own.
"""

import os
import sys

from collectors.probe.paths import listed, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

IB_ERRORS = ("symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors")


def number(text: str) -> "int | None":
    text = text.strip()
    return int(text) if text.isdigit() else None


def added(values: "list[int | None]") -> "int | None":
    """The sum of what is known; null when nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def field(text: str, name: str) -> "int | None":
    """The number after a name, as in /proc/meminfo, /proc/stat, /proc/vmstat."""
    name += " "
    start = 0 if text.startswith(name) else text.find("\n" + name) + 1
    if not text.startswith(name, start):
        return None
    words = text[start + len(name) :].split(None, 1)
    return number(words[0]) if words else None


class Host:
    """What /proc and /sys say about this machine."""

    def __init__(self, spec: "Mapping[str, Any]", root: str = "/") -> None:
        self.root = root
        self.files = {}  # type: dict[str, int]
        self.slow_part = {}  # type: dict[str, Any]
        self.boot_time = field(self.text("proc/stat"), "btime")
        self.configure(spec)

    def configure(self, spec: "Mapping[str, Any]") -> None:
        """Nothing here depends on the spec."""

    def operations(self, slow: bool) -> "list[tuple[str, Callable[[], list[dict[str, Any]] | None]]]":
        fast = ("host", self.sample)
        return [("network", self.network), ("infiniband", self.infiniband), fast] if slow else [fast]

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
        line.update(self.slow_part)
        return [line]

    def memory(self) -> "tuple[int | None, int | None]":
        """Total, and total minus what is available to a new process, in MiB."""
        meminfo = self.text("proc/meminfo")[:256]
        total, available = field(meminfo, "MemTotal:"), field(meminfo, "MemAvailable:")
        if total is None:
            return None, None
        return total >> 10, None if available is None else (total - available) >> 10

    def network(self) -> None:
        """Errors of the physical interfaces: those that have a device."""
        folder = os.path.join(self.root, "sys/class/net")
        counts = []
        for name in listed(folder):
            if os.path.exists(os.path.join(folder, name, "device")):
                statistics = os.path.join(folder, name, "statistics")
                counts += [number(read(os.path.join(statistics, counter))) for counter in ("rx_errors", "tx_errors")]
        self.slow_part["network_errors"] = added(counts)
        self.slow_part["oom_kills"] = field(self.text("proc/vmstat"), "oom_kill")

    def infiniband(self) -> None:
        folder = os.path.join(self.root, "sys/class/infiniband")
        ports = []
        for adapter in listed(folder):
            inside = os.path.join(folder, adapter, "ports")
            ports += [self.port(os.path.join(inside, port), adapter + "/" + port) for port in listed(inside)]
        self.slow_part["infiniband"] = ports

    def port(self, folder: str, name: str) -> "dict[str, Any]":
        def counter(which: str) -> "int | None":
            return number(read(os.path.join(folder, "counters", which)))

        state = read(os.path.join(folder, "state")).strip().partition(": ")[2]
        errors = added([counter(which) for which in IB_ERRORS])
        return {"port": name, "state": state or None, "link_downed": counter("link_downed"), "errors": errors}


def hello(root: str = "/") -> "dict[str, Any]":
    """Who answers: the part of the first line that has nothing to do with GPUs."""
    host = Host({}, root)
    return {
        "k": "hello",
        "host": os.uname()[1],
        "python": "%d.%d.%d" % sys.version_info[:3],
        "boot_time": host.boot_time,
        "cpu_count": os.cpu_count(),
        "memory_total_mib": host.memory()[0],
    }
