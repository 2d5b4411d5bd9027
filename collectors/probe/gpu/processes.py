"""The processes on the GPUs: their users, their commands, and the signals that they catch; where our own ones write.

Reading them can hang: a name service may be down, or a process may hold its own lock.
"""

import os

from collectors.probe.gpu.card import Card
from collectors.probe.host import user_name
from collectors.probe.paths import read
from collectors.probe.stdlib import Any, Iterable

LONGEST_COMMAND = 200
LONGEST_OWN_COMMAND = 1000
MOST_PROCESSES = 64
MOST_PARENTS = 16
MIB = 1 << 20

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
        self.memory = {}  # type: dict[int, dict[int, int | None]]
        self.names = {}  # type: dict[int, tuple[str | None, str | None]]
        self.caught = {}  # type: dict[int, int | None]
        self.environments = {}  # type: dict[int, dict[str, str]]
        self.own = {}  # type: dict[int, tuple[str, dict[str, Any]]]
        """By pid: our own processes, each with the time of its start. They stay until they end."""

    def update(self, card: "Card") -> None:
        """Store NVML's list. It lists a process with compute and graphics contexts twice."""
        found = {}  # type: dict[int, int | None]
        for process in card.running[: 2 * MOST_PROCESSES]:
            used = process.usedGpuMemory
            mib = None if used is None or used >= 1 << 62 else used // MIB
            before = found.get(process.pid)
            found[process.pid] = mib if before is None else max(before, mib or 0)
        self.memory[card.index] = found

    def look_up(self, cards: "Iterable[Card]", own: bool = False) -> None:
        """Look up all names, and describe our own processes if that is requested. A process outside this PID namespace
        has no name."""
        pids = {pid for card in cards for pid in self.memory.get(card.index, ())}
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
        try:
            with open(os.path.join(self.root, "proc", str(pid), "environ"), "rb") as file:
                pairs = file.read(MIB).decode("utf-8", "replace").split("\0")
        except OSError:
            return {}
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

    def of(self, card: "Card") -> "list[dict[str, Any]]":
        """The wire's list for one GPU; the largest memory first."""
        rows = []  # type: list[dict[str, Any]]
        for pid, mib in self.memory.get(card.index, {}).items():
            user, command = self.names.get(pid, (None, None))
            row = {"pid": pid, "user": user, "memory_mib": mib, "command": command, "caught": self.caught.get(pid)}
            rows.append(dict(row, environment=self.environments[pid]) if self.environments.get(pid) else row)
        return sorted(rows, key=lambda row: -(row["memory_mib"] or 0))[:MOST_PROCESSES]
