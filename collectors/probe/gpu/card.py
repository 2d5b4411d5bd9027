"""One GPU in NVML: its numbers, the functions that it does not support, whether it is lost, and the processes on it.

Of a process: its user, its command, and the signals that it catches; of our own ones, where they write.
Reading them can hang: a name service may be down, or a process may hold its own lock.
"""

import os

from collectors.probe.host import total, user_name
from collectors.probe.paths import read
from collectors.probe.stdlib import Any, Iterable, Line

# ---- one GPU in NVML -------------------------------------------------------------------------------------------------

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

RUNNING = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3")

HOTTEST = 200
"""°C. A higher temperature is unknown: no GPU survives it."""

LINKS = (
    ("pcie_gen", "nvmlDeviceGetCurrPcieLinkGeneration"), ("pcie_gen_max", "nvmlDeviceGetMaxPcieLinkGeneration"),
    ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth"), ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth"),
    ("pcie_replays", "nvmlDeviceGetPcieReplayCounter"),
)  # fmt: skip
NVLINK = (91, 38, 45, 52, 59)
"""NVML's field values: the number of NVLinks; of all of them, the errors of CRC in flits and data, the replays and the
recoveries."""


def error_rows(indices: "Iterable[int]", error: "str | None") -> "list[Line]":
    """A line with the same error for some GPUs; none without GPUs."""
    rows = [[index, error, False] for index in indices]
    return [{"k": "gpu", "g": rows}] if rows else []


def known(value: "Any", limit: int = BLANK) -> "int | None":
    """The number; None for a value that means unknown."""
    return None if value is None or value == 0xFFFFFFFF or not -limit < value < limit else int(value)


class Card:
    """A GPU under the index of its first appearance."""

    pci = uuid = name = error = mig = handle = None  # type: Any
    lost = closed = broken = False
    running = instances = ()  # type: Any

    def __init__(self, nvml: "Any", position: int) -> None:
        self.nvml = nvml
        self.index = position
        self.memory_version = nvml.nvmlMemory_v2
        self.unsupported = set()  # type: set[str]
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
        card.index, card.pci, card.uuid, card.facts = index, pci, uuid, {"index": index, "uuid": uuid}
        card.error, card.lost = "GPU has vanished: NVML no longer lists it", True
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
        """Used and total MiB. The second version of the function does not count the driver's own memory. With MIG,
        reading the whole GPU may need privileges: then it is the sum of the instances."""
        info = self.query("nvmlDeviceGetMemoryInfo", self.memory_version)
        if self.memory_version and "nvmlDeviceGetMemoryInfo" in self.unsupported:
            self.memory_version = None  # a driver before 510
            self.unsupported.discard("nvmlDeviceGetMemoryInfo")
            info = self.query("nvmlDeviceGetMemoryInfo", None)
        if info is None:
            used, whole = ([one[field] for one in self.instances] for field in ("memory_used_mib", "memory_total_mib"))
            return total(used), total(whole)
        bytes_used, bytes_total = known(info.used), known(info.total)
        return (
            None if bytes_used is None else bytes_used // MIB,
            None if bytes_total is None else bytes_total // MIB,
        )

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
        self.running = []
        self.instances = self.mig_instances() if mig else []
        placed = {pid for pid, _, _ in self.running}
        processes = (process for kind in RUNNING for process in self.query(kind) or ())
        self.running += [(one.pid, one.usedGpuMemory, None) for one in processes if one.pid not in placed]
        remapped = self.query("nvmlDeviceGetRemappedRows")
        self.facts = {
            "index": self.index,
            "uuid": self.uuid,
            "name": self.name,
            "memory_total_mib": self.memory()[1],
            "power_limit_w": self.power("nvmlDeviceGetEnforcedPowerLimit"),
            "temperature_margin_c": known(self.query("nvmlDeviceGetMarginTemperature"), HOTTEST),
            "mig": mig,
            "instances": self.instances,
            "ecc_uncorrected": known(self.query("nvmlDeviceGetTotalEccErrors", 1, 0)),
            "ecc_corrected": known(self.query("nvmlDeviceGetTotalEccErrors", 0, 0)),
            "remap_pending": None if remapped is None else bool(remapped[2]),
            "remap_failed": None if remapped is None else bool(remapped[3]),
            "links": self.links(),
        }

    def links(self) -> "Line | None":
        """Its PCIe link and its NVLinks (model.GpuLinks); None if the driver does not know them."""
        found = {name: known(self.query(function)) for name, function in LINKS}  # type: Line
        if found["pcie_gen_max"] is None:
            return None
        values = self.query("nvmlDeviceGetFieldValues", list(NVLINK)) or ()
        count, *errors = [None if one.nvmlReturn else known(one.value.ullVal) for one in values] or [None]
        states = [self.query("nvmlDeviceGetNvLinkState", link) for link in range(min(count or 0, 36))]
        return dict(found, nvlinks=count, nvlinks_up=total(states), nvlink_errors=total(errors))

    def mig_instances(self) -> "list[Line]":
        """The instances of the GPU (model.GpuInstance). Their processes are added to those of the GPU."""
        rows = []  # type: list[Line]
        for position in range(known(self.query("nvmlDeviceGetMaxMigDeviceCount")) or 0):
            try:
                handle = self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, position)
            except self.nvml.NVMLError:
                continue  # there are fewer than there could be
            card = Card.__new__(Card)  # NVML reads an instance as a GPU, but not all of it
            card.__dict__.update(self.__dict__, handle=handle, unsupported=set(), instances=[])
            card.memory_version = self.nvml.nvmlMemory_v2
            ids = card.query("nvmlDeviceGetGpuInstanceId"), card.query("nvmlDeviceGetComputeInstanceId")
            name = "%s/%s" % ids if ids[1] else str(ids[0])
            profile = (card.query("nvmlDeviceGetName") or "").rpartition("MIG ")[2] or None
            used, whole = card.memory()
            row = {"id": name, "profile": profile, "memory_used_mib": used, "memory_total_mib": whole}
            rows.append(dict(row, uuid=card.query("nvmlDeviceGetUUID")))
            self.running += [(one.pid, one.usedGpuMemory, name) for one in card.query(RUNNING[0]) or ()]
        return rows


# ---- the processes on the GPUs ---------------------------------------------------------------------------------------

LONGEST_COMMAND = 200
LONGEST_OWN_COMMAND = 1000
MOST_PROCESSES = 64
MOST_PARENTS = 16

ENVIRONMENT = (
    "TRAINMON_DATA_MANIFEST", "TRAINMON_CONTAINER", "SLURM_JOB_ID", "SLURM_TASK_PID", "SLURM_CONTAINER",
    "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "TRAINMON_STATUS", "TRAINMON_KILL",
)  # fmt: skip
"""All that is ever read of the environment of a process: it may hold secrets."""
LONGEST_VALUE = 500


def linked(path: str) -> "str | None":
    """What a link of /proc names, if it is a path of a file or a directory. The file itself is not touched."""
    try:
        target = os.readlink(os.fsencode(path)).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return target if target.startswith("/") and not target.startswith("/dev/") and " (deleted)" not in target else None


class Processes:
    """The GPU processes. A separate operation looks up their names, which are kept."""

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self.memory = {}  # type: dict[int, dict[tuple[int, str | None], int | None]]
        """By GPU: by pid and instance of the GPU."""
        self.names = {}  # type: dict[int, tuple[str | None, str | None]]
        self.caught = {}  # type: dict[int, int | None]
        self.environments = {}  # type: dict[int, dict[str, str]]
        self.own = {}  # type: dict[int, tuple[str, dict[str, Any]]]
        """By pid: our own processes, each with the time of its start. They stay until they end."""

    def update(self, card: Card) -> None:
        """Store NVML's list. It lists a process with compute and graphics contexts twice."""
        found = {}  # type: dict[tuple[int, str | None], int | None]
        for pid, used, instance in card.running[: 2 * MOST_PROCESSES]:
            mib = None if used is None or used >= 1 << 62 else used // MIB
            before = found.get((pid, instance))
            found[pid, instance] = mib if before is None else max(before, mib or 0)
        self.memory[card.index] = found

    def look_up(self, cards: "Iterable[Card]", own: bool = False) -> None:
        """Look up all names, and describe our own processes if that is requested. A process outside this PID namespace
        has no name."""
        pids = {pid for card in cards for pid, _ in self.memory.get(card.index, ())}
        self.names = {pid: self.names.get(pid) or self.name(pid) for pid in pids}
        self.caught = {pid: self.caught_signals(pid) for pid in pids}
        known = self.environments
        self.environments = {pid: known[pid] if pid in known else self.environment(pid) for pid in pids}
        described = {pid: self.described(pid) for pid in sorted(pids | set(self.own))[:MOST_PROCESSES] if own}
        self.own = {
            pid: found
            for pid, found in described.items()
            if found is not None and (pid in pids or found[0] == self.own[pid][0])
        }

    def described(self, pid: int) -> "tuple[str, dict[str, Any]] | None":
        """One of our own processes: when it started, and its row on the wire. None if it has ended, or is not ours."""
        folder = os.path.join(self.root, "proc", str(pid))
        try:
            if os.stat(folder).st_uid != os.getuid():
                return None
        except OSError:
            return None
        command = read(os.path.join(folder, "cmdline")).rstrip("\0").replace("\0", " ")[:LONGEST_OWN_COMMAND]
        fields = self.fields(pid)
        if not command or not fields:
            return None
        started, parents, parent = fields[19], [], int(fields[1])  # type: str, list[int], int
        while parent > 1 and len(parents) < MOST_PARENTS:
            parents.append(parent)
            parent = int((self.fields(parent) or "00")[1])
        paths = {"workdir": linked(os.path.join(folder, "cwd")), "stdout": linked(os.path.join(folder, "fd", "1"))}
        started_s = int(started) / os.sysconf("SC_CLK_TCK")
        return started, dict(paths, pid=pid, command=command, started_s=started_s, parents=parents)

    def fields(self, pid: int) -> "list[str]":
        """The third field of its stat, and those after it; none if it has ended."""
        return read(os.path.join(self.root, "proc", str(pid), "stat")).rpartition(")")[2].split()

    def caught_signals(self, pid: int) -> "int | None":
        """The mask of the signals that it catches now. A trainer installs its handlers some time after its start."""
        lines = read(os.path.join(self.root, "proc", str(pid), "status")).splitlines()
        masks = [line[7:].strip() for line in lines if line.startswith("SigCgt:")]
        return int(masks[0], 16) if masks else None

    def environment(self, pid: int) -> "dict[str, str]":
        """The permitted variables of its environment, if we may read it."""
        pairs = read(os.path.join(self.root, "proc", str(pid), "environ"), MIB).split("\0")
        parts = (pair.partition("=") for pair in pairs)
        return {name: value[:LONGEST_VALUE] for name, _, value in parts if name in ENVIRONMENT and value}

    def name(self, pid: int) -> "tuple[str | None, str | None]":
        folder = os.path.join(self.root, "proc", str(pid))
        try:
            uid = os.stat(folder).st_uid
            with open(os.path.join(folder, "cmdline"), "rb") as file:
                command = file.read(4 * LONGEST_COMMAND).rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            return None, None
        return user_name(uid), command[:LONGEST_COMMAND] or None

    def of(self, card: Card) -> "list[dict[str, Any]]":
        """The wire's list for one GPU; the largest memory first."""
        rows = []  # type: list[dict[str, Any]]
        for (pid, instance), mib in self.memory.get(card.index, {}).items():
            user, command = self.names.get(pid, (None, None))
            row = {"pid": pid, "user": user, "memory_mib": mib, "command": command, "instance": instance}
            row["caught"] = self.caught.get(pid)
            rows.append(dict(row, environment=self.environments[pid]) if self.environments.get(pid) else row)
        return sorted(rows, key=lambda row: -(row["memory_mib"] or 0))[:MOST_PROCESSES]
