"""The host itself: load, memory, users, and error counters, from /proc and /sys.

`root` is / except in tests. Reading InfiniBand counters queries the adapter's firmware, so it is a separate operation.
"""

import os
import pwd
import sys

from collectors.probe.annotations import Any, Mapping, Operation
from collectors.probe.paths import listed, read

IB_ERRORS = ("symbol_error", "port_rcv_errors", "link_error_recovery", "local_link_integrity_errors")


def number(text: str) -> "int | None":
    text = text.strip()
    return int(text) if text.isdigit() else None


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
        return [dict(line, **self.slow_part)]

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
        self.slow_part["infiniband"] = [
            self.port(os.path.join(folder, adapter, "ports", port), adapter + "/" + port)
            for adapter in listed(folder)
            for port in listed(os.path.join(folder, adapter, "ports"))
        ]

    def port(self, folder: str, name: str) -> "dict[str, Any]":
        def counter(which: str) -> "int | None":
            return number(read(os.path.join(folder, "counters", which)))

        state = read(os.path.join(folder, "state")).strip().partition(": ")[2]
        return {
            "port": name,
            "state": state or None,
            "link_downed": counter("link_downed"),
            "errors": total([counter(which) for which in IB_ERRORS]),
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
