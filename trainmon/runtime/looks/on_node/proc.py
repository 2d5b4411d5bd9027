"""What the processes of ranks do, from /proc: read several times within some seconds, and not touched.

The memory of a process is not read: that waits for ever where the process waits for a page of a file server.
"""

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def look(asked: "Any") -> "Any":
    """`asked`: the seconds before each sample; of each rank its number, pid, and start in seconds after the boot. The
    answer: each number, and the samples, null where it was not there."""
    pauses, ranks = asked
    found = [(rank, []) for rank, *_ in ranks]  # type: list[tuple[int, list[Any]]]
    for pause in pauses:
        time.sleep(pause)
        for (_, samples), (_, pid, started) in zip(found, ranks):  # noqa: B905  Python 3.10 has strict=
            samples.append(sample(pid, started))
    return found


def sample(pid: int, started: float) -> "dict[str, Any] | None":
    """What it does now; the times are CPU time so far. None: it has ended, or is hidden."""
    at, main = time.monotonic(), stat(pid, "task/%d/stat" % pid)
    ran = read(pid, "schedstat").split()
    counts = dict(line.partition(":")[::2] for line in read(pid, "status").splitlines())
    call, wchan = (read(pid, "syscall").split() or [""])[0], read(pid, "wchan")
    whole = stat(pid, "stat")  # last: between it and the first, nothing else can have come to its pid
    if not whole or not main or int(whole[19]) != round(started * TICKS) or whole[0] in "ZX":
        return None
    return {
        "at": at,
        "state": main[0],
        "ran": int(ran[0]) / 1e9 if ran else seconds(main),
        "process": seconds(whole),
        "switches": int(counts.get("voluntary_ctxt_switches") or 0),
        "cpus": counts.get("Cpus_allowed_list", "").strip(),
        "wchan": wchan if wchan != "0" else "",
        "call": call if call != "running" else "",
        "kernel": " ".join(os.uname()[2::2]),
    }


def read(pid: int, name: str) -> str:
    """A file of a process; empty if it cannot be read."""
    try:
        with open("/proc/%d/%s" % (pid, name), "rb", 0) as file:
            return file.read(65536).decode("utf-8", "replace")
    except (OSError, ValueError):
        return ""


def stat(pid: int, name: str) -> "list[str]":
    """The fields of its status from the state on; none if it has ended."""
    return read(pid, name).rpartition(")")[2].split()


def seconds(fields: "list[str]") -> float:
    """The CPU time in user space and in the kernel."""
    return (int(fields[11]) + int(fields[12])) / TICKS
