"""One GPU in NVML: its numbers, the functions that it does not support, and whether it is lost."""

from collectors.probe.stdlib import Any, Iterable, Line

FAULTS = {
    1: "Uninitialized",
    9: "Driver Not Loaded",
    15: "GPU is lost",
    16: "GPU requires reset",
    18: "Driver/library version mismatch: the driver was updated, and the node has not been restarted since",
    999: "Unknown Error",
}
"""By nvmlReturn_t: nvidia-smi's text, where pynvml's is older or shorter."""

ABSENT = frozenset((2, 3, 4, 6, 13, 22, 25, 26))
"""Invalid argument, not supported, no permission, not found, no such function, no ECC, version, deprecated.

Such a function is not called again."""
CLOSED = frozenset((1, 9))
LOST, RESET, TIMEOUT = 15, 16, 10

MIB = 1 << 20
BLANK = 1 << 62
"""NVML's values for what is unknown: about 2^63 in 64 bits, 2^32 - 1 in 32."""

HOTTEST = 200
"""°C. A higher temperature is unknown: no GPU survives it."""


def error_rows(indices: "Iterable[int]", error: "str | None") -> "list[Line]":
    """A line with the same error for some GPUs; none without GPUs."""
    rows = [[index, error, False] for index in indices]
    return [{"k": "gpu", "g": rows}] if rows else []


def known(value: "Any", limit: int = BLANK) -> "int | None":
    """The number; None for a value that means unknown."""
    return None if value is None or value == 0xFFFFFFFF or not -limit < value < limit else int(value)


class Card:
    """A GPU under the index of its first appearance."""

    def __init__(self, nvml: "Any", position: int) -> None:
        self.nvml = nvml
        self.index = position
        self.pci = self.uuid = self.name = None  # type: str | None
        self.error = None  # type: str | None
        self.lost = self.closed = self.broken = False
        self.memory_version = nvml.nvmlMemory_v2
        self.mig = None  # type: bool | None
        self.unsupported = set()  # type: set[str]
        self.running = []  # type: list[Any]
        self.handle = None  # type: Any
        try:
            self.handle = nvml.nvmlDeviceGetHandleByIndex(position)
        except nvml.NVMLError as error:
            self.set_error(error)
        else:
            info = self.query("nvmlDeviceGetPciInfo")
            self.pci = "%04x:%02x:%02x" % (info.domain & 0xFFFF, info.bus, info.device) if info is not None else None
            self.uuid, self.name = self.query("nvmlDeviceGetUUID"), self.query("nvmlDeviceGetName")
        self.facts = {"index": position, "uuid": self.uuid, "name": self.name}  # type: Line

    @classmethod
    def vanished(cls, index: int, pci: "str | None", uuid: "str | None") -> "Card":
        """A GPU that NVML listed before, and no longer lists."""
        card = cls.__new__(cls)
        card.index, card.pci, card.uuid = index, pci, uuid
        card.error, card.lost, card.closed, card.handle = "GPU has vanished: NVML no longer lists it", True, False, None
        card.running, card.facts = [], {"index": index, "uuid": uuid}
        return card

    def query(self, function: str, *arguments: object) -> "Any":
        """The result of an NVML function; None on failure, with the reason in the GPU's state."""
        if function in self.unsupported:
            return None
        try:
            return getattr(self.nvml, function)(self.handle, *arguments)
        except self.nvml.NVMLError as error:
            if error.value in ABSENT:
                self.unsupported.add(function)
            else:
                self.set_error(error)
        return None

    def query_either(self, function: str, other: str, *arguments: object) -> "Any":
        """The result of a function, or of its equivalent in other driver versions."""
        result = self.query(function, *arguments)
        return self.query(other, *arguments) if function in self.unsupported else result

    def set_error(self, error: "Any") -> None:
        self.error = FAULTS.get(error.value, str(error))
        self.lost = error.value == LOST
        self.closed = error.value in CLOSED
        self.broken = error.value in (LOST, RESET, TIMEOUT) or self.closed

    def fast(self) -> "list[Any]":
        """The wire's row of fast numbers (model.GpuSample)."""
        if self.handle is None:
            return [self.index, self.error, self.lost]
        self.error, self.lost, self.closed, self.broken = None, False, False, False
        temperature = known(self.query_either("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV", 0), HOTTEST)
        if self.broken:
            return [self.index, self.error, self.lost]
        used = self.memory()[0]
        rates = None if self.mig else self.query("nvmlDeviceGetUtilizationRates")
        throttling = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        numbers = [
            temperature,
            self.memory_temperature(),
            used,
            None if rates is None else known(rates.gpu, 101),
            self.power("nvmlDeviceGetPowerUsage"),
            known(self.query("nvmlDeviceGetClockInfo", 1)),
            known(self.query_either(*throttling)),
        ]
        return [self.index, self.error, self.lost, *numbers]

    def memory(self) -> "tuple[int | None, int | None]":
        """Used and total MiB. The second version of the function does not count the driver's own memory."""
        info = self.query("nvmlDeviceGetMemoryInfo", self.memory_version)
        if self.memory_version and "nvmlDeviceGetMemoryInfo" in self.unsupported:
            self.memory_version = None  # a driver before 510
            self.unsupported.discard("nvmlDeviceGetMemoryInfo")
            info = self.query("nvmlDeviceGetMemoryInfo", None)
        if info is None:
            return None, None
        used, total = known(info.used), known(info.total)
        return (None if used is None else used // MIB), (None if total is None else total // MIB)

    def memory_temperature(self) -> "int | None":
        values = self.query("nvmlDeviceGetFieldValues", [self.nvml.NVML_FI_DEV_MEMORY_TEMP])
        if values is None:
            return None
        if values[0].nvmlReturn in ABSENT:
            self.unsupported.add("nvmlDeviceGetFieldValues")
        # 0 °C: the driver does not know it
        return None if values[0].nvmlReturn else known(values[0].value.uiVal, HOTTEST) or None

    def power(self, function: str) -> "float | None":
        milliwatts = known(self.query(function))
        return None if milliwatts is None else round(milliwatts / 1000, 1)

    def slow(self) -> None:
        """Read the slow facts (model.GpuFacts) and the processes."""
        mode = self.query("nvmlDeviceGetMigMode")
        mig = None if mode is None else bool(mode[0])
        if mig != self.mig:
            self.unsupported.clear()  # other things are supported now
        self.mig = mig
        remapped = self.query("nvmlDeviceGetRemappedRows")
        self.facts = {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.name,
            "memory_total_mib": self.memory()[1],
            "power_limit_w": self.power("nvmlDeviceGetEnforcedPowerLimit"),
            "temperature_margin_c": known(self.query("nvmlDeviceGetMarginTemperature"), HOTTEST),
            "mig": mig,
            "ecc_uncorrected": known(self.query("nvmlDeviceGetTotalEccErrors", 1, 0)),
            "ecc_corrected": known(self.query("nvmlDeviceGetTotalEccErrors", 0, 0)),
            "remap_pending": None if remapped is None else bool(remapped[2]),
            "remap_failed": None if remapped is None else bool(remapped[3]),
        }
        self.running = []
        for kind in ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3"):
            self.running += self.query(kind) or []
