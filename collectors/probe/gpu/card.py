"""One GPU as NVML sees it: its numbers, what it refuses, and whether it is lost."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FAULTS = {
    1: "Uninitialized",
    9: "Driver Not Loaded",
    15: "GPU is lost",
    16: "GPU requires reset",
    18: "Driver/library version mismatch: the driver was updated, and the node has not been restarted since",
    999: "Unknown Error",
}
"""nvmlReturn_t → the words of nvidia-smi, where those of pynvml are older or fewer."""

ABSENT = frozenset((2, 3, 4, 6, 13, 22, 25, 26))
"""Invalid argument, not supported, no permission, not found, no such function, no ECC, version, deprecated.

These are not asked again."""
CLOSED = frozenset((1, 9))
LOST, RESET, TIMEOUT = 15, 16, 10

MIB = 1 << 20
BLANK = 1 << 62
"""NVML's ways to say nothing: 2^63-ish in 64 bits, 2^32 - 1 in 32."""

WATTS = 0.001
HOTTEST = 200
"""No GPU is hotter and lives: such a temperature is a blank."""


def plain(value: "Any", most: int = BLANK) -> "int | None":
    """A number that means something, else null."""
    return None if value is None or value == 0xFFFFFFFF or not -most < value < most else int(value)


class Card:
    """A GPU under the index that it was first seen with."""

    def __init__(self, nvml: "Any", position: int) -> None:
        self.nvml = nvml
        self.index = position
        self.pci = self.uuid = self.name = None  # type: str | None
        self.error = None  # type: str | None
        self.lost = self.closed = self.broken = False
        self.memory_version = nvml.nvmlMemory_v2
        self.mig = None  # type: bool | None
        self.refused = set()  # type: set[str]
        self.running = []  # type: list[Any]
        self.handle = None  # type: Any
        try:
            self.handle = nvml.nvmlDeviceGetHandleByIndex(position)
        except nvml.NVMLError as error:
            self.fail(error)
        if self.handle is not None:
            info = self.ask("nvmlDeviceGetPciInfo")
            self.pci = "%04x:%02x:%02x" % (info.domain & 0xFFFF, info.bus, info.device) if info is not None else None
            self.uuid, self.name = self.ask("nvmlDeviceGetUUID"), self.ask("nvmlDeviceGetName")
        self.facts = {"index": position, "uuid": self.uuid, "name": self.name}  # type: dict[str, Any]

    @classmethod
    def vanished(cls, index: int, pci: "str | None", uuid: "str | None") -> "Card":
        """One that was there, and that NVML no longer lists."""
        card = cls.__new__(cls)
        card.index, card.pci, card.uuid = index, pci, uuid
        card.error, card.lost, card.closed, card.handle = "GPU has vanished: NVML no longer lists it", True, False, None
        card.running, card.facts = [], {"index": index, "uuid": uuid}
        return card

    def ask(self, function: str, *arguments: object) -> "Any":
        """An NVML answer, or None: the GPU's state says why."""
        if function in self.refused:
            return None
        try:
            return getattr(self.nvml, function)(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            if error.value in ABSENT:
                self.refused.add(function)
            else:
                self.fail(error)
        return None

    def either(self, function: str, other: str, *arguments: object) -> "Any":
        """The answer of a function, or of the one that takes its place in other driver versions."""
        answer = self.ask(function, *arguments)
        return self.ask(other, *arguments) if function in self.refused else answer

    def fail(self, error: "Any") -> None:
        self.error = FAULTS.get(error.value, str(error))
        self.lost = error.value == LOST
        self.closed = error.value in CLOSED
        self.broken = error.value in (LOST, RESET, TIMEOUT) or self.closed

    def fast(self) -> "list[Any]":
        """The wire's row of numbers that change from second to second (readings.GpuSample)."""
        if self.handle is None:
            return [self.index, self.error, self.lost]
        self.error, self.lost, self.closed, self.broken = None, False, False, False
        temperature = plain(self.either("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV", 0), HOTTEST)
        if self.broken:
            return [self.index, self.error, self.lost]
        used = self.memory()[0]
        row = [temperature, self.memory_temperature(), used, self.utilization(), self.power("nvmlDeviceGetPowerUsage")]
        row.append(plain(self.ask("nvmlDeviceGetClockInfo", 1)))
        row.append(
            plain(self.either("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"))
        )
        return [self.index, self.error, self.lost, *row]

    def memory(self) -> "tuple[int | None, int | None]":
        """Used and total MiB. The second version of the call does not count what the driver keeps for itself."""
        info = self.ask("nvmlDeviceGetMemoryInfo", self.memory_version)
        if self.memory_version and "nvmlDeviceGetMemoryInfo" in self.refused:
            self.memory_version = None  # a driver before 510
            self.refused.discard("nvmlDeviceGetMemoryInfo")
            info = self.ask("nvmlDeviceGetMemoryInfo", None)
        if info is None:
            return None, None
        used, total = plain(info.used), plain(info.total)
        return (None if used is None else used // MIB), (None if total is None else total // MIB)

    def memory_temperature(self) -> "int | None":
        values = self.ask("nvmlDeviceGetFieldValues", [self.nvml.NVML_FI_DEV_MEMORY_TEMP])
        if values is None:
            return None
        if values[0].nvmlReturn in ABSENT:
            self.refused.add("nvmlDeviceGetFieldValues")
        if values[0].nvmlReturn:
            return None
        return plain(values[0].value.uiVal, HOTTEST) or None  # a memory at 0 °C is a driver with nothing to say

    def utilization(self) -> "int | None":
        rates = None if self.mig else self.ask("nvmlDeviceGetUtilizationRates")
        return None if rates is None else plain(rates.gpu, 101)

    def power(self, function: str) -> "float | None":
        milliwatts = plain(self.ask(function))
        return None if milliwatts is None else round(milliwatts * WATTS, 1)

    def slow(self) -> None:
        """What changes slowly (readings.GpuFacts), and the processes' numbers."""
        mode = self.ask("nvmlDeviceGetMigMode")
        mig = None if mode is None else bool(mode[0])
        if mig != self.mig:
            self.refused.clear()  # other things are supported now
        self.mig = mig
        remapped = self.ask("nvmlDeviceGetRemappedRows")
        self.facts = {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.name,
            "memory_total_mib": self.memory()[1],
            "power_limit_w": self.power("nvmlDeviceGetEnforcedPowerLimit"),
            "temperature_margin_c": plain(self.ask("nvmlDeviceGetMarginTemperature"), HOTTEST),
            "mig": mig,
            "ecc_uncorrected": plain(self.ask("nvmlDeviceGetTotalEccErrors", 1, 0)),
            "ecc_corrected": plain(self.ask("nvmlDeviceGetTotalEccErrors", 0, 0)),
            "remap_pending": None if remapped is None else bool(remapped[2]),
            "remap_failed": None if remapped is None else bool(remapped[3]),
        }
        self.running = []
        for kind in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"):
            self.running += self.ask(kind) or []
