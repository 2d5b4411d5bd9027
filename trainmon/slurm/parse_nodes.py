"""Parses sinfo's nodes: their states in both spellings, and the reasons for drains. Pure."""

from __future__ import annotations

import re

from trainmon.lib import Instant
from trainmon.model import SchedulerNode
from trainmon.slurm.commands import NODES
from trainmon.slurm.fields import instant, printable, rows

SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
    "+": "COMPLETING",
}
"""sinfo(1), NODE STATE CODES; `allocated+` is still cleaning up after a job."""

SHORT = {
    "ALLOC": "ALLOCATED",
    "COMP": "COMPLETING",
    "DRNG": "DRAINING",
    "FAILG": "FAILING",
    "INVAL": "INVALID_REG",
    "IDL": "IDLE",
    "MIX": "MIXED",
    "NPC": "PERFCTRS",
    "PLND": "PLANNED",
    "POW_DN": "POWERING_DOWN",
    "POW_UP": "POWERING_UP",
    "RESV": "RESERVED",
    "UNK": "UNKNOWN",
    "DRAIN": "DRAINED",
    "REBOOT": "REBOOT_REQUESTED",
    "MAINT": "MAINTENANCE",
}
"""Compact state names, and scontrol's own ones."""

BOTH = {
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "FAIL": ("IDLE", "FAIL"),
    "INVALID_REG": ("UNKNOWN", "DRAIN", "INVALID_REG"),
    "POWERED_DOWN": ("IDLE", "POWERED_DOWN"),
    "POWERING_DOWN": ("IDLE", "POWERING_DOWN"),
    "POWER_DOWN": ("IDLE", "POWER_DOWN"),
    "POWERING_UP": ("IDLE", "POWERING_UP"),
    "POWER_UP": ("IDLE", "POWERING_UP"),
    "MAINTENANCE": ("IDLE", "MAINTENANCE"),
    "REBOOT_REQUESTED": ("IDLE", "REBOOT_REQUESTED"),
    "REBOOT_ISSUED": ("IDLE", "REBOOT_ISSUED"),
    "RESERVED": ("IDLE", "RESERVED"),
    "BLOCKED": ("IDLE", "BLOCKED"),
    "PERFCTRS": ("IDLE", "PERFCTRS"),
    "PLANNED": ("IDLE", "PLANNED"),
}
"""sinfo's one word for a state with flags. `drained` may also be a node that is down. `inval` stands for
`IDLE+DRAIN+INVALID_REG`."""

REASON_BY = re.compile(r"\s*\[(?P<who>[^\[\]@]*)@(?P<when>[^\[\]@]*)\]$")


def read_state(text: str) -> tuple[str, tuple[str, ...]]:
    """`drained*` → IDLE with DRAIN and NOT_RESPONDING; `DOWN*+DRAIN` → DOWN with the same. Unknown names stay."""
    first, *others = text.strip().upper().split("+") if not text.endswith("+") else [text.strip().upper()]
    name, suffixes = _split_suffixes(first)
    name = SHORT.get(name, name)
    base, *flags = BOTH.get(name, (name,))
    flags += [SUFFIXES[suffix] for suffix in suffixes]
    for other in others:
        flag, suffixes = _split_suffixes(other)
        flags += [FLAGS.get(flag, flag), *(SUFFIXES[suffix] for suffix in suffixes)]
    return base, tuple(dict.fromkeys(flag for flag in flags if flag))


FLAGS = {"MAINT": "MAINTENANCE", "DRAINED": "DRAIN", "DRAINING": "DRAIN", "POWER": "POWERED_DOWN", "RES": "RESERVED"}
"""Flags in scontrol's older spelling."""


def _split_suffixes(name: str) -> tuple[str, str]:
    bare = name.rstrip("".join(SUFFIXES))
    return bare, name[len(bare) :]


def read_nodes(text: str, cluster: str) -> tuple[SchedulerNode, ...]:
    """The nodes, each once: sinfo repeats a node for each of its partitions."""
    found: dict[str, SchedulerNode] = {}
    for row in rows(text, len(NODES)):
        field = dict(zip(NODES, row, strict=True))
        name = printable(field["N"], 200)
        if name is None:
            continue
        before = found[name].partitions if name in found else ()
        partition = printable(field["R"].rstrip("*"), 200)
        state, flags = read_state(field["T"])
        reason, by, at = read_reason(field["E"])
        found[name] = SchedulerNode(
            name=name,
            cluster=cluster,
            state=state,
            flags=flags,
            reason=reason,
            reason_by=by or printable(field["u"], 200),
            reason_at=at or instant(field["H"]),
            gres=printable(field["G"], 300),
            partitions=(*before, partition) if partition else before,
        )
    return tuple(found.values())


def read_reason(text: str) -> tuple[str | None, str | None, Instant | None]:
    """`Not responding [slurm@2026-11-21T12:03:00]` → the reason, its user and its time."""
    found = REASON_BY.search(text)
    if found is None:
        return printable(text, 500), None, None
    return printable(text[: found.start()], 500), printable(found["who"], 200), instant(found["when"])
