"""Parses what nvidia-smi prints and what the driver writes to the kernel log. Loaded only for these: re takes 1 MiB."""

import re

from collectors.probe.stdlib import Any, Line

# ---- parses the kernel log's lines about GPUs ------------------------------------------------------------------------

LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\).*?: (\d+),? ?(.*)")
SWITCH_LINE = re.compile(r"(SXid) \((?:PCI:)?[0-9a-fA-F:.]+\): (\d+),? ?(.*)")
OFF_THE_BUS = re.compile(r"NVRM: (?:The NVIDIA )?GPU (?:at PCI:)?([0-9a-fA-F:.]+):? .*fallen off the bus")


def address(text: str) -> str:
    """A PCI address in one spelling: `00000000:05:00.0` and `0000:05:00` give `0000:05:00`."""
    parts = text.lower().partition(".")[0].split(":")
    return ":".join([parts[0][-4:].rjust(4, "0"), *parts[1:]])


def parsed(text: str) -> "tuple[str | None, int, str] | None":
    """PCI address, Xid and text of a kernel message about a GPU; None for any other message."""
    found = LINE.search(text)
    if found:
        return address(found.group(1)), int(found.group(2)), found.group(3).strip()
    found = SWITCH_LINE.search(text)
    if found:
        return None, int(found.group(2)), ("NVSwitch: " + found.group(3)).strip()
    found = OFF_THE_BUS.search(text)
    return (address(found.group(1)), 79, "GPU has fallen off the bus.") if found else None


# ---- parses nvidia-smi's output --------------------------------------------------------------------------------------

FIELDS = (
    "index", "uuid", "name", "pci.bus_id", "mig.mode.current", "utilization.gpu", "memory.total", "memory.used",
    "temperature.gpu", "temperature.gpu.tlimit", "temperature.memory", "power.draw", "enforced.power.limit",
    "clocks.current.sm", "clocks_throttle_reasons.active", "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.corrected.volatile.total", "remapped_rows.pending", "remapped_rows.failure",
)  # fmt: skip
"""The throttle reasons have their old name: drivers of 2026 still know it, and drivers before 535 know no other."""

APPS = ("gpu_uuid", "pid", "process_name", "used_gpu_memory")

ABSENT = frozenset((
    "[N/A]", "N/A", "[Not Supported]", "[Requested functionality has been deprecated]", "[Insufficient Permissions]",
    "[Not Found]",
))  # fmt: skip
FAULTS = {
    "[Unknown Error]": "Unknown Error",
    "[GPU is lost]": "GPU is lost",
    "[GPU requires reset]": "GPU requires reset",
    "ERR!": "ERR!",
    "[ERR!]": "ERR!",
    "": "nvidia-smi prints nothing for it",
}
OFFERED = re.compile(r'"([a-z][a-z0-9_.]+)"')
FAILED = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu)\s?([0-9A-Fa-f:.]+): (.+?)\.?\s*$", re.MULTILINE
)
SENTENCE = re.compile(r"NVIDIA-SMI has failed .*|Failed to initialize NVML: .*|No devices were found.*|.* not found.*")


class Row:
    """One GPU's cells, by field."""

    def __init__(self, cells: "dict[str, str]") -> None:
        self.cells = cells
        self.index = int(cells["index"])
        self.error = next((FAULTS[cell] for cell in cells.values() if cell in FAULTS), None)  # type: str | None
        self.lost = self.error == "GPU is lost"
        self.uuid, self.name = self.text("uuid"), self.text("name")
        bus = self.text("pci.bus_id")
        self.pci = address(bus) if bus else None

    @classmethod
    def broken(cls, index: int, error: str, before: "Row | None") -> "Row":
        """A GPU without a row. Its name and addresses are kept."""
        cells = {"index": str(index)}
        if before is not None:
            cells.update((field, before.cells.get(field, "N/A")) for field in ("uuid", "name", "pci.bus_id"))
        row = cls(cells)
        row.error, row.lost = error, "is lost" in error
        return row

    def text(self, field: str) -> "str | None":
        cell = self.cells.get(field, "N/A")
        return None if cell in ABSENT or cell in FAULTS else cell

    def decimal(self, field: str) -> "float | None":
        try:
            return float(self.text(field) or "")
        except ValueError:
            return None

    def number(self, field: str) -> "int | None":
        value = self.decimal(field)
        return None if value is None else int(value)

    def flag(self, field: str, yes: str) -> "bool | None":
        text = self.text(field)
        return None if text is None else text == yes

    def sample(self) -> "list[Any]":
        """The wire's row (model.GpuSample)."""
        try:
            throttling = int(self.text("clocks_throttle_reasons.active") or "", 16)  # type: int | None
        except ValueError:
            throttling = None
        return [
            self.index,
            self.error,
            self.lost,
            self.number("temperature.gpu"),
            self.number("temperature.memory"),
            self.number("memory.used"),
            None if self.flag("mig.mode.current", "Enabled") else self.number("utilization.gpu"),
            self.decimal("power.draw"),
            self.number("clocks.current.sm"),
            throttling,
        ]

    def described(self) -> "Line":
        """The wire's slow facts (model.GpuFacts)."""
        return {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.name,
            "memory_total_mib": self.number("memory.total"),
            "power_limit_w": self.decimal("enforced.power.limit"),
            "temperature_margin_c": self.number("temperature.gpu.tlimit"),
            "mig": self.flag("mig.mode.current", "Enabled"),
            "ecc_uncorrected": self.number("ecc.errors.uncorrected.volatile.total"),
            "ecc_corrected": self.number("ecc.errors.corrected.volatile.total"),
            "remap_pending": self.flag("remapped_rows.pending", "Yes"),
            "remap_failed": self.flag("remapped_rows.failure", "Yes"),
        }


def offered(text: str) -> "set[str]":
    """The fields in `--help-query-gpu`. One unknown field makes the whole query fail."""
    return set(OFFERED.findall(text))


def rows(text: str, fields: "list[str]") -> "dict[int, Row]":
    """The complete rows of CSV output. Cut lines and warnings are left out."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields) and cells[0].isdigit():
            found[int(cells[0])] = Row(dict(zip(fields, cells)))  # noqa: B905 strict= needs Python 3.10
    return found


def failed(text: str) -> "dict[str, str]":
    """The errors of GPUs that make the whole call fail, by PCI address."""
    return {address(pci): error for pci, error in FAILED.findall(text)}


def sentence(text: str) -> "str | None":
    """nvidia-smi's own error message."""
    found = SENTENCE.search(text)
    return found.group(0).strip() if found else text.strip().partition("\n")[0][:200] or None


def apps(text: str) -> "dict[str, list[Line]]":
    """The processes, by GPU UUID. In another PID namespace, name and PID are text in brackets."""
    found = {}  # type: dict[str, list[Line]]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(", ")]
        if len(cells) < len(APPS) or not cells[1].isdigit():
            continue
        command = ", ".join(cells[2:-1])
        used = int(cells[-1]) if cells[-1].isdigit() else None
        name = None if command in ABSENT else command[:200]
        found.setdefault(cells[0], []).append({"pid": int(cells[1]), "memory_mib": used, "command": name})
    return found
