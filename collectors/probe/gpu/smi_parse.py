"""What nvidia-smi prints, as values. Its words for a missing number are many; five of them are faults."""

import re

from collectors.probe.gpu.kernel_log import address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FIELDS = (
    "index", "uuid", "name", "pci.bus_id", "mig.mode.current", "utilization.gpu", "memory.total", "memory.used",
    "temperature.gpu", "temperature.gpu.tlimit", "temperature.memory", "power.draw", "enforced.power.limit",
    "clocks.current.sm", "clocks_throttle_reasons.active", "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.corrected.volatile.total", "remapped_rows.pending", "remapped_rows.failure",
)  # fmt: skip
"""The old name of the throttle reasons: drivers of 2026 still know it, those before 535 know no other."""

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
        faults = [FAULTS[cell] for cell in cells.values() if cell in FAULTS]
        self.error = faults[0] if faults else None  # type: str | None
        self.lost = self.error == "GPU is lost"
        self.uuid, self.name = self.text("uuid"), self.text("name")
        bus = self.text("pci.bus_id")
        self.pci = address(bus) if bus else None

    @classmethod
    def broken(cls, index: int, error: str, before: "Row | None") -> "Row":
        """A GPU that gives no row; what it is is still known."""
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

    def mask(self) -> "int | None":
        try:
            return int(self.text("clocks_throttle_reasons.active") or "", 16)
        except ValueError:
            return None

    def sample(self) -> "list[Any]":
        """The wire's row (readings.GpuSample)."""
        number = self.number
        utilization = None if self.flag("mig.mode.current", "Enabled") else number("utilization.gpu")
        numbers = [number("temperature.gpu"), number("temperature.memory"), number("memory.used"), utilization]
        return [
            self.index,
            self.error,
            self.lost,
            *numbers,
            self.decimal("power.draw"),
            number("clocks.current.sm"),
            self.mask(),
        ]

    def facts(self) -> "dict[str, Any]":
        """The wire's slow facts (readings.GpuFacts)."""
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
    """The fields of `--help-query-gpu`: one unknown field fails the whole query."""
    return set(OFFERED.findall(text))


def rows(text: str, fields: "list[str]") -> "dict[int, Row]":
    """The whole lines of a CSV answer. A cut line, or a warning between them, is none."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(fields) and cells[0].isdigit():
            found[int(cells[0])] = Row(dict(zip(fields, cells)))  # noqa: B905 strict= needs Python 3.10
    return found


def failed(text: str) -> "dict[str, str]":
    """PCI address → error, of GPUs that fail the whole call."""
    return {address(pci): error for pci, error in FAILED.findall(text)}


def sentence(text: str) -> "str | None":
    """Why there is no answer, in nvidia-smi's own words."""
    found = SENTENCE.search(text)
    return found.group(0).strip() if found else text.strip().partition("\n")[0][:200] or None


def apps(text: str) -> "dict[str, list[dict[str, Any]]]":
    """GPU uuid → its processes. In another process namespace name and pid are words in brackets."""
    found = {}  # type: dict[str, list[dict[str, Any]]]
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(", ")]
        if len(cells) < len(APPS) or not cells[1].isdigit():
            continue
        command = ", ".join(cells[2:-1])
        used = int(cells[-1]) if cells[-1].isdigit() else None
        process = {"pid": int(cells[1]), "memory_mib": used, "command": None if command in ABSENT else command[:200]}
        found.setdefault(cells[0], []).append(process)
    return found
