"""The scheduler's state of a node in words, and folded lists of nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainmon.model import SchedulerNode

_NUMBERED = re.compile(r"(.*?)(\d+)$", re.DOTALL)


def folded(names: Iterable[str]) -> str:
    """`gpu-[001-003,007],login`: as Slurm writes lists of nodes."""
    groups: dict[tuple[str, int], list[int]] = {}
    plain: dict[str, None] = {}
    for name in names:
        found = _NUMBERED.match(name)
        if found is None:
            plain[name] = None
        else:
            groups.setdefault((found[1], len(found[2])), []).append(int(found[2]))
    return ",".join([*(_group(*key, sorted(set(numbers))) for key, numbers in groups.items()), *plain])


def _group(prefix: str, digits: int, numbers: list[int]) -> str:
    """One prefix with its numbers. A single number needs no brackets."""
    if len(numbers) == 1:
        return f"{prefix}{numbers[0]:0{digits}}"
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    parts = (f"{a:0{digits}}" + (f"-{b:0{digits}}" if b > a else "") for a, b in ranges)
    return f"{prefix}[{','.join(parts)}]"


FLAGS = {
    "DRAIN": "drained", "NOT_RESPONDING": "does not respond", "MAINTENANCE": "in maintenance", "RESERVED": "reserved",
    "FAIL": "failing", "INVALID_REG": "registered with too little", "POWERED_DOWN": "powered down",
    "POWERING_DOWN": "powers down", "POWER_DOWN": "powers down", "POWERING_UP": "powers up",
    "REBOOT_ISSUED": "reboots", "REBOOT_REQUESTED": "reboots when free", "BLOCKED": "blocked", "PLANNED": "planned",
    "COMPLETING": "completing", "CLOUD": "", "DYNAMIC_NORM": "", "DOWN": "down",
}  # fmt: skip


def node_state(node: SchedulerNode) -> str:
    """`drained`, `draining` while jobs still run there, `down, does not respond`."""
    words = [FLAGS.get(flag, flag.lower().replace("_", " ")) for flag in node.flags if flag != "DRAIN"]
    if node.is_drained:
        words.insert(0, "draining" if node.state in {"ALLOCATED", "MIXED", "COMPLETING"} else "drained")
    if not node.is_drained or node.state == "DOWN":
        words.insert(0, node.state.lower())
    return ", ".join(dict.fromkeys(word for word in words if word))


def node_look(node: SchedulerNode) -> str:
    """The style of a node's line. Nodes that are down and lost GPUs are critical."""
    if node.lost_gpus or node.state in {"DOWN", "ERROR"} or "NOT_RESPONDING" in node.flags:
        return "crit"
    return "" if node.is_usable else "warn"
