"""AMD GPUs through rocm-smi, where the command is there and /sys does not show them. It may hang, as nvidia-smi may."""

from collectors.probe.gpu.amd import NOWHERE, AmdCard
from collectors.probe.gpu.smi import Smi
from collectors.probe.stdlib import Line, from_json

ARGUMENTS = [
    "--showbus", "--showproductname", "--showuniqueid", "--showuse", "--showtemp", "--showpower", "--showmaxpower",
    "--showmeminfo", "vram", "--showclocks", "--json",
]  # fmt: skip

CELLS = {
    "temp1_input": (("Temperature (Sensor edge) (C)", 1000),),
    "temp2_input": (("Temperature (Sensor junction) (C)", 1000),),
    "temp3_input": (("Temperature (Sensor memory) (C)", 1000),),
    "gpu_busy_percent": (("GPU use (%)", 1),),
    "mem_info_vram_used": (("VRAM Total Used Memory (B)", 1),),
    "mem_info_vram_total": (("VRAM Total Memory (B)", 1),),
    "power1_average": (
        ("Average Graphics Package Power (W)", 1000000),
        ("Current Socket Graphics Package Power (W)", 1000000),
    ),
    "power1_cap": (("Max Graphics Package Power (W)", 1000000),),
    "freq1_input": (("sclk clock speed:", 1000000),),
    "product_name": (("Card Series", 0), ("Card series", 0)),
    "unique_id": (("Unique ID", 0),),
}
"""By the name in sysfs: the names of the cells, which depend on the release, and the factor to its unit; 0: a text."""


class RocmCard(AmdCard):
    """A GPU in rocm-smi's JSON, as if its cells were files of sysfs."""

    sample = AmdCard.fast

    def __init__(self, index: int, cells: "dict[str, str]") -> None:
        self.cells = cells
        slot = cells.get("PCI Bus", "").lower()
        super().__init__("/", index, slot if slot.count(":") == 2 else "0:0:0.0", NOWHERE)
        self.facts = self.names()
        self.pci, self.uuid = self.slot.partition(".")[0], self.facts["uuid"]

    def text(self, name: str) -> str:
        found = ((self.cells[cell], unit) for cell, unit in CELLS.get(name, ()) if self.cells.get(cell, "N/A") != "N/A")
        text, unit = next(found, ("", 0))
        figures = text.strip("(Mhz)") if unit else ""
        if figures.replace(".", "", 1).isdigit():
            return str(int(float(figures) * unit))
        return text[2:] if text[:2] == "0x" else text

    def described(self) -> "Line":
        self.slow()
        return self.facts


class RocmSmi(Smi):
    """The same rows as from sysfs, by one call for all GPUs."""

    command = "rocm-smi"

    def plan(self, slow: bool) -> None:
        self.queue = [("query", ARGUMENTS)]

    def add_rows(self, text: str, status: int) -> "str | None":
        try:
            found = dict(from_json(text[text.find("{") :]))  # type: ignore[call-overload]
        except (ValueError, TypeError):
            return "%s ended with status %d: %s" % (self.command, status, text.strip()[:200])
        cards = ((int(name[4:]), cells) for name, cells in found.items() if name[4:].isdigit())  # not `system`
        self.rows.update(
            (index, RocmCard(index, {cell: str(value) for cell, value in cells.items()}))
            for index, cells in cards
            if isinstance(cells, dict)
        )
        return None
