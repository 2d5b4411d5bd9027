"""The lower part of the queue: nodes by state, spares, and the nodes that jobs cannot use. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from trainmon.analysis.nodes import Spares
from trainmon.analysis.nodes.spares import spares
from trainmon.lib import Instant, cell_width, clean, natural_key, shorten
from trainmon.model import Job, SchedulerNode, State
from tui.style import CRIT, DEAD, OK, WARN, Span, calm_age, pad
from tui.views.jobs.node_status import node_look, node_state
from tui.widgets import HEADING, Row

NODE, CLUSTER = "node:", f"{HEADING}cluster:"
"""The prefixes of the keys of these rows. A job's key contains a slash, a node's name does not."""

SIGNS = {"crit": Span(DEAD + " ", "crit"), "warn": Span(WARN + " ", "warn"), "": Span(OK + " ", "ok")}

COUNTED = ("idle", "mixed", "allocated", "completing", "planned", "draining", "drained", "down")


def node_rows(state: State, width: int, wanted: str, *, every: bool) -> list[Row]:
    """One line per cluster with counts and spares, then its nodes: all, or only unusable ones."""
    found: list[Row] = []
    counts = {spare.cluster: spare for spare in spares(state)}
    names = clusters(state)
    several = len(names) > 1
    for cluster in names:
        nodes = [node for node in state.scheduler_nodes.values() if node.cluster == cluster]
        stale = is_stale(state, cluster)
        title = f"nodes of {cluster}" if several else "nodes"
        found.append(Row(CLUSTER + cluster, summary(title, nodes, counts.get(cluster), width, stale=stale)))
        shown = [node for node in nodes if (every or not node.is_usable) and matches(node, wanted)]
        shown.sort(key=lambda node: (node.is_usable, node_look(node) != "crit", natural_key(node.name)))
        longest = max((cell_width(clean(node.name)) for node in shown), default=0)
        jobs = on_nodes(state.jobs.values()) if every else {}
        found += [
            Row(NODE + node.name, line(node, jobs.get(node.name, ()), longest + 2, width, state.at, stale=stale))
            for node in shown
        ]
    return found


def clusters(state: State) -> list[str]:
    """The clusters with a scheduler, whether it has answered or not."""
    named = [source.cluster for source in state.sources.values() if source.kind == "slurm" and source.health != "off"]
    return list(dict.fromkeys([*named, *(node.cluster for node in state.scheduler_nodes.values())]))


def is_stale(state: State, cluster: str) -> bool:
    """Whether the scheduler does not answer, so that the data is old."""
    source = state.sources.get(f"slurm:{cluster}")
    return source is not None and source.health != "ok"


def matches(node: SchedulerNode, wanted: str) -> bool:
    text = f"{node.name} {node.cluster} {node_state(node)} {node.reason or ''}".lower()
    return all(word in text for word in wanted.lower().split())


def summary(
    title: str, nodes: Sequence[SchedulerNode], spare: Spares | None, width: int, *, stale: bool
) -> tuple[Span, ...]:
    """`── nodes  12 idle  48 allocated  2 drained   spares 1 of 2 wanted!`"""
    name = clean(f"── {title}")
    if not nodes:
        return (Span(shorten(f"{name}  not read yet", width), "dim"),)
    tally = Counter(node_state(node).partition(",")[0] for node in nodes)
    order = [*(word for word in COUNTED if tally[word]), *sorted(word for word in tally if word not in COUNTED)]
    counts = "  ".join(f"{tally[word]} {word}" for word in order)
    end = spares_words(spare)
    room = width - (cell_width(end.text) + 2 if end.text else 0)
    spans = [
        Span(shorten(name, room), "dim"),
        Span(shorten(f"  {counts}", room - cell_width(name)), "dim" if stale else ""),
    ]
    if end.text:
        spans.append(Span(f"  {end.text}", "dim" if stale else end.style))
    return tuple(spans)


def spares_words(spare: Spares | None) -> Span:
    """The number of healthy idle nodes and of wanted ones; empty if none are wanted."""
    if spare is None or spare.idle_healthy is None:
        return Span("")
    mark = "!" if spare.are_missing else ""
    return Span(f"spares {spare.idle_healthy} of {spare.wanted} wanted{mark}", "warn" if mark else "ok")


STATE_WIDTH = 12


def line(
    node: SchedulerNode, jobs: Sequence[Job], name_width: int, width: int, now: Instant, *, stale: bool
) -> tuple[Span, ...]:
    """One node: name, state, reason; or its jobs."""
    look = node_look(node)
    sign = Span(CRIT + " ", "crit") if node.lost_gpus else SIGNS[look]
    name = pad(shorten(clean(node.name), name_width - 2), name_width)
    state = pad(clean(node_state(node)), STATE_WIDTH)
    words = reason(node, now) or clean("  ".join(f"{job.id} {job.name}" for job in jobs))
    state = shorten(state, width - 2 - name_width)
    rest = shorten("  " + words, width - 2 - name_width - cell_width(state)) if words else ""
    return (
        sign, Span(name, "dim" if stale else "bold" if look == "crit" else ""),
        Span(state, "dim" if stale else look), Span(rest, "dim" if stale else look if look == "crit" else ""),
    )  # fmt: skip


def reason(node: SchedulerNode, now: Instant) -> str:
    """`1 GPU lost: gres/gpu count reported lower than configured (7 < 8) (slurm 2h ago)`"""
    if not node.reason:
        return ""
    lost = "" if node.lost_gpus is None else f"{node.lost_gpus} GPU{'s' if node.lost_gpus > 1 else ''} lost: "
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
