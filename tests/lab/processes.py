"""Processes of this machine, by their number."""

from __future__ import annotations

import contextlib
from pathlib import Path

THREADS = 17
"""The number of threads in /proc/PID/stat, behind the name."""


def gone(pid: int) -> bool:
    """Whether a process has ended. A zombie has, but not while another of its threads begins a program (exec); of one
    that ends while it is read, the file is empty."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return not state or (state[0] in "ZX" and int(state[THREADS]) < 2)


def proc_files(name: str) -> list[Path]:
    """/proc/PID/NAME of every process. One may have ended already. (Path.glob looks at each, and fails then.)"""
    return [folder / name for folder in Path("/proc").iterdir() if folder.name.isdecimal()]


def descendants(pid: int) -> list[int]:
    """Its children, theirs, and so on."""
    found: list[int] = []
    for task in proc_files("stat"):
        with contextlib.suppress(OSError):
            # The command in brackets may hold anything: the parent is the second field after its end.
            if int(task.read_text().rpartition(")")[2].split()[1]) == pid:
                found += [int(task.parent.name), *descendants(int(task.parent.name))]
    return found
