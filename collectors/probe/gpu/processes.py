"""Whose processes hold memory on the GPUs, what they are, and which signals they catch.

Looking them up can hang: a name service that is down, or a process that holds its own lock.
"""

import os
import pwd

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from collectors.probe.gpu.card import Card

LONGEST_COMMAND = 200
LONGEST_STATUS = 65536
MOST_PROCESSES = 64
MIB = 1 << 20


class Processes:
    """The GPU processes, with names that are looked up in an operation of their own and kept."""

    def __init__(self, root: str = "/") -> None:
        self.root = root
        self.memory = {}  # type: dict[int, dict[int, int | None]]
        self.names = {}  # type: dict[int, tuple[str | None, str | None]]
        self.users = {}  # type: dict[int, str]
        self.catching = {}  # type: dict[int, int | None]

    def see(self, card: "Card") -> None:
        """Take what NVML listed: a process with compute and graphics contexts is listed twice, and is one."""
        found = {}  # type: dict[int, int | None]
        for process in card.running[: 2 * MOST_PROCESSES]:
            used = process.usedGpuMemory
            mib = None if used is None or used >= 1 << 62 else used // MIB
            before = found.get(process.pid)
            found[process.pid] = mib if before is None else max(before, mib or 0)
        self.memory[card.index] = found

    def look_up(self, cards: "Iterable[Card]") -> None:
        """Names for all; a process that this namespace does not show stays without."""
        pids = {pid for card in cards for pid in self.memory.get(card.index, ())}
        self.names = {pid: self.names.get(pid) or self.described(pid) for pid in pids}
        self.catching = {pid: self.caught(pid) for pid in pids}

    def caught(self, pid: int) -> "int | None":
        """The mask of the signals that it catches now: a trainer installs its handlers some time after its start."""
        try:
            with open(os.path.join(self.root, "proc", str(pid), "status"), "rb") as file:
                lines = file.read(LONGEST_STATUS).splitlines()
        except OSError:
            return None
        masks = [line[7:].strip() for line in lines if line.startswith(b"SigCgt:")]
        return int(masks[0], 16) if masks else None

    def described(self, pid: int) -> "tuple[str | None, str | None]":
        folder = os.path.join(self.root, "proc", str(pid))
        try:
            uid = os.stat(folder).st_uid
            with open(os.path.join(folder, "cmdline"), "rb") as file:
                command = file.read(4 * LONGEST_COMMAND).rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            return None, None
        if uid not in self.users:
            try:
                self.users[uid] = pwd.getpwuid(uid).pw_name
            except KeyError:
                self.users[uid] = str(uid)
        return self.users[uid], command[:LONGEST_COMMAND] or None

    def of(self, card: "Card") -> "list[dict[str, Any]]":
        """The wire's list for one GPU, those with most memory first."""
        rows = []  # type: list[dict[str, Any]]
        for pid, mib in self.memory.get(card.index, {}).items():
            user, command = self.names.get(pid, (None, None))
            caught = self.catching.get(pid)
            rows.append({"pid": pid, "user": user, "memory_mib": mib, "command": command, "caught": caught})
        return sorted(rows, key=lambda row: -(row["memory_mib"] or 0))[:MOST_PROCESSES]
