"""The scheduler's nodes: their state in words, and as rows below the jobs with counts and spares. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from trainmon.analysis.nodes import Spares, spares
from trainmon.lib import Instant, cell_width, clean, counted, natural_key, ranges, shorten
from trainmon.model import Job, SchedulerNode, State
from tui.style import CRIT, DEAD, OK, WARN, Span, calm_age, pad
from tui.views.table import filtered
from tui.widgets import HEADING, Row

_NUMBERED = re.compile(r"(.*?)(\d+)$", re.DOTALL)


def folded(names: Iterable[str]) -> str:
    """`gpu-[001-003,007],login`: as Slurm writes lists of nodes."""
    groups: dict[tuple[str, int], set[int]] = {}
    plain: dict[str, None] = {}
    for name in names:
        match = _NUMBERED.match(name)
        if match is None:
            plain[name] = None
        else:
            groups.setdefault((match[1], len(match[2])), set()).add(int(match[2]))
    return ",".join([*(_folded_group(*key, sorted(numbers)) for key, numbers in groups.items()), *plain])


def _folded_group(prefix: str, digits: int, numbers: list[int]) -> str:
    """One prefix with its numbers. A single number needs no brackets."""
    parts = ",".join(f"{a:0{digits}}" + (f"-{b:0{digits}}" if b > a else "") for a, b in ranges(numbers))
    return f"{prefix}[{parts}]" if len(numbers) > 1 else prefix + parts


FLAGS = {
    "DRAIN": "drained", "NOT_RESPONDING": "does not respond", "MAINTENANCE": "in maintenance", "RESERVED": "reserved",
    "FAIL": "failing", "INVALID_REG": "registered with fewer resources than configured",
    "POWERED_DOWN": "powered down", "POWERING_DOWN": "powering down", "POWER_DOWN": "powering down",
    "POWERING_UP": "powering up", "REBOOT_ISSUED": "rebooting", "REBOOT_REQUESTED": "will reboot when idle",
    "BLOCKED": "blocked", "PLANNED": "planned", "COMPLETING": "completing", "CLOUD": "", "DYNAMIC_NORM": "",
    "DOWN": "down",
}  # fmt: skip


def node_state(node: SchedulerNode) -> str:
    """`drained`, `draining` while jobs still run there, `down, does not respond`."""
    parts = [FLAGS.get(flag, flag.lower().replace("_", " ")) for flag in node.flags if flag != "DRAIN"]
    if node.is_drained:
        parts.insert(0, "draining" if node.state in {"ALLOCATED", "MIXED", "COMPLETING"} else "drained")
    if not node.is_drained or node.state == "DOWN":
        parts.insert(0, node.state.lower())
    return ", ".join(dict.fromkeys(word for word in parts if word))


def node_style(node: SchedulerNode) -> str:
    """The style of a node's line. Nodes that are down and lost GPUs are critical."""
    if node.lost_gpus or node.state in {"DOWN", "ERROR"} or "NOT_RESPONDING" in node.flags:
        return "crit"
    return "" if node.is_usable else "warn"


# ---- rows ------------------------------------------------------------------------------------------------------------

NODE, CLUSTER = "node:", f"{HEADING}cluster:"
"""The prefixes of the keys of these rows. A job's key contains a slash, a node's name does not."""

SIGNS = {"crit": Span(DEAD + " ", "crit"), "warn": Span(WARN + " ", "warn"), "": Span(OK + " ", "ok")}

STATES = ("idle", "mixed", "allocated", "completing", "planned", "draining", "drained", "down")
"""The order of the counts. Other states come after them."""


def node_rows(state: State, width: int, query: str, *, every: bool) -> list[Row]:
    """One line per cluster with counts and spares, then its nodes: all, or only unusable ones."""
    found: list[Row] = []
    counts = {spare.cluster: spare for spare in spares(state)}
    names = clusters(state)
    jobs = on_nodes(state.jobs.values()) if every else {}
    for cluster in names:
        nodes = [node for node in state.scheduler_nodes.values() if node.cluster == cluster]
        source = state.sources.get(f"slurm:{cluster}")
        stale = source is not None and source.health != "ok"
        title = f"nodes of {cluster}" if len(names) > 1 else "nodes"
        found.append(Row(CLUSTER + cluster, node_counts(title, nodes, counts.get(cluster), width, stale=stale)))
        shown = filtered((node for node in nodes if every or not node.is_usable), query, searched)
        shown.sort(key=lambda node: (node.is_usable, node_style(node) != "crit", natural_key(node.name)))
        longest = max((cell_width(clean(node.name)) for node in shown), default=0)
        found += [
            Row(NODE + node.name, node_line(node, jobs.get(node.name, ()), longest + 2, width, state.at, stale=stale))
            for node in shown
        ]
    return found


def clusters(state: State) -> list[str]:
    """The clusters with a scheduler, whether it has answered or not."""
    named = [source.cluster for source in state.sources.values() if source.kind == "slurm" and source.health != "off"]
    return list(dict.fromkeys([*named, *(node.cluster for node in state.scheduler_nodes.values())]))


def searched(node: SchedulerNode) -> str:
    """The text that the filter searches."""
    return f"{node.name} {node.cluster} {node_state(node)} {node.reason or ''}"


def node_counts(
    title: str, nodes: Sequence[SchedulerNode], spare: Spares | None, width: int, *, stale: bool
) -> tuple[Span, ...]:
    """`── nodes  12 idle  48 allocated  2 drained   spares 1! (2 wanted)`"""
    name = clean(f"── {title}")
    if not nodes:
        return (Span(shorten(f"{name}  not read yet", width), "dim"),)
    tally = Counter(node_state(node).partition(",")[0] for node in nodes)
    order = [*(word for word in STATES if tally[word]), *sorted(word for word in tally if word not in STATES)]
    counts = "".join(f"  {tally[word]} {word}" for word in order)
    end = spare_count(spare)
    space = width - cell_width(end.text)
    return (
        Span(shorten(name, space), "dim"),
        Span(shorten(counts, space - cell_width(name)), "dim" if stale else ""),
        *([Span(end.text, "dim" if stale else end.style)] if end.text else []),
    )


def spare_count(spare: Spares | None) -> Span:
    """The number of healthy idle nodes and of wanted ones; empty if none are wanted."""
    if spare is None or spare.idle_healthy is None:
        return Span("")
    mark = "!" if spare.are_missing else ""
    return Span(f"  spares {spare.idle_healthy}{mark} ({spare.wanted} wanted)", "warn" if mark else "ok")


STATE_WIDTH = 12


def node_line(
    node: SchedulerNode, jobs: Sequence[Job], name_width: int, width: int, now: Instant, *, stale: bool
) -> tuple[Span, ...]:
    """One node: name, state, reason; or its jobs."""
    style = node_style(node)
    space = width - 2 - name_width
    state = shorten(pad(clean(node_state(node)), STATE_WIDTH), space)
    text = node_reason(node, now) or clean("  ".join(f"{job.id} {job.name}" for job in jobs))
    return (
        Span(CRIT + " ", "crit") if node.lost_gpus else SIGNS[style],
        Span(pad(shorten(clean(node.name), name_width - 2), name_width),
             "dim" if stale else "bold" if style == "crit" else ""),
        Span(state, "dim" if stale else style),
        Span(shorten("  " + text, space - cell_width(state)) if text else "",
             "dim" if stale else style if style == "crit" else ""),
    )  # fmt: skip


def node_reason(node: SchedulerNode, now: Instant) -> str:
    """`1 GPU lost: gres/gpu count reported lower than configured (7 < 8) (slurm 2h ago)`"""
    if not node.reason:
        return ""
    lost = "" if node.lost_gpus is None else f"{counted(node.lost_gpus, 'GPU')} lost: "
    when = "" if node.reason_at is None else f"{calm_age(now - node.reason_at)} ago"
    by = " ".join(part for part in (node.reason_by, when) if part)
    return clean(f"{lost}{node.reason}" + (f" ({by})" if by else ""), 400)


def on_nodes(jobs: Iterable[Job]) -> Mapping[str, list[Job]]:
    """The running jobs of each node."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        if job.stage == "running" and job.gone_at is None:
            for name in job.nodes:
                found.setdefault(name, []).append(job)
    return found
