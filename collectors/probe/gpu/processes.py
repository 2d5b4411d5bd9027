"""The processes on the GPUs: their users, their commands, and the signals that they catch.

Reading them can hang: a name service may be down, or a process may hold its own lock.
"""

import os

from collectors.probe.annotations import Any, Iterable
from collectors.probe.gpu.card import Card
from collectors.probe.host import user_name

LONGEST_COMMAND = 200
MOST_PROCESSES = 64
MIB = 1 << 20


class Processes:
    """The GPU processes. A separate operation looks up their names, which are kept."""

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self.memory = {}  # type: dict[int, dict[int, int | None]]
        self.names = {}  # type: dict[int, tuple[str | None, str | None]]
        self.caught = {}  # type: dict[int, int | None]

    def update(self, card: "Card") -> None:
        """Store NVML's list. It lists a process with compute and graphics contexts twice."""
        found = {}  # type: dict[int, int | None]
        for process in card.running[: 2 * MOST_PROCESSES]:
            used = process.usedGpuMemory
            mib = None if used is None or used >= 1 << 62 else used // MIB
            before = found.get(process.pid)
            found[process.pid] = mib if before is None else max(before, mib or 0)
        self.memory[card.index] = found

    def look_up(self, cards: "Iterable[Card]") -> None:
        """Look up all names. A process outside this PID namespace has none."""
        pids = {pid for card in cards for pid in self.memory.get(card.index, ())}
        self.names = {pid: self.names.get(pid) or self.name(pid) for pid in pids}
        self.caught = {pid: self.caught_signals(pid) for pid in pids}

    def caught_signals(self, pid: int) -> "int | None":
        """The mask of the signals that it catches now. A trainer installs its handlers some time after its start."""
        try:
            with open(os.path.join(self.root, "proc", str(pid), "status"), "rb") as file:
                lines = file.read(65536).splitlines()
        except OSError:
            return None
        masks = [line[7:].strip() for line in lines if line.startswith(b"SigCgt:")]
        return int(masks[0], 16) if masks else None

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
            rows.append(
                {"pid": pid, "user": user, "memory_mib": mib, "command": command, "caught": self.caught.get(pid)}
            )
        return sorted(rows, key=lambda row: -(row["memory_mib"] or 0))[:MOST_PROCESSES]
