"""Rules about what Slurm says of nodes: drained, down, failing; and too few spare nodes."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, ago, is_answering, why_silent
from trainmon.alerting.rules.hardware import NodeRule, RunsByNode
from trainmon.alerting.rules.nodes.hosts import PLANNED
from trainmon.analysis.nodes import spares
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Finding, SchedulerNode, Severity, State

DOWN = frozenset({"DOWN", "FAIL", "FAILING", "ERROR"})
DOWN_FLAGS = frozenset({"DOWN", "FAIL", "NOT_RESPONDING"})

UNANSWERED = "gets no answer from {}"

DRAINED = "its job continues, and no new job starts there: if its GPUs are at fault, save (S) and queue another job (N)"


class NodeDrained(NodeRule, frozen=True, kw_only=True):
    """Slurm drains a watched node, marks it down or failing, or gets no answer from it. A down node with a run is
    critical. On a node without a run, a state older than `old` is only info."""

    name = "node-drained"
    origin = "Slurm's own states; SlurmdTimeout is 5m; after a day, a repair is no longer news"
    needs_for = True

    for_: Duration = 300.0
    """How long Slurm must get no answer from a node: one missed ping means nothing. All other states fire at once."""
    old: Duration = 86_400.0
    """After this time, the alert is only info if the node has no run."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for name, slurm in state.scheduler_nodes.items():
            if not slurm.flags and slurm.state not in DOWN:
                continue
            text, is_ours = _text(slurm), name in state.nodes or runs.affected(name) is not None
            if text is not None and is_ours and is_answering(state.sources.get(f"slurm:{slurm.cluster}")):
                yield self._finding(slurm, text, state, runs, now)

    def _finding(self, slurm: SchedulerNode, text: str, state: State, runs: RunsByNode, now: Instant) -> Finding:
        is_down = slurm.state in DOWN or bool(DOWN_FLAGS & set(slurm.flags))
        is_used, at = runs.is_used(slurm.name), slurm.reason_at
        severity: Severity = "critical" if is_down and is_used else "warning"
        if not is_used and at is not None and now - at > self.old:
            severity = "info"
        by = f" (by {slurm.reason_by})" if slurm.reason_by else ""
        since = f" (for {ago(now - at)})" if at is not None else ""
        cluster = state.clusters.get(slurm.cluster)
        is_mine = cluster is not None and cluster.me is not None and cluster.me == slurm.reason_by
        return Finding(
            rule=self.name,
            subject=f"node:{slurm.name}",
            severity=severity,
            summary=f"Slurm {text.format(slurm.name)}{since}: {slurm.reason or 'no reason is given'}{by}",
            evidence=(f"{'+'.join((slurm.state, *slurm.flags))} {slurm.reason or ''}".strip(),),
            advice=DRAINED
            if is_used and slurm.is_drained
            else "sinfo -R shows the reason; ask the administrators of the cluster",
            cluster=slurm.cluster,
            run=runs.affected(slurm.name),
            node=slurm.name,
            sources=(f"slurm:{slurm.cluster}",),
            since=at,
            fires_at_once=text != UNANSWERED,
            person=is_mine and slurm.is_drained and not is_down,
        )

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        is_listed = alert.node is None or alert.node in state.scheduler_nodes
        return why_silent(state, alert.sources) if is_listed else f"Slurm no longer lists {alert.node}"


def _text(slurm: SchedulerNode) -> str | None:
    """What Slurm does with a node; None if that is normal or planned."""
    flags = set(slurm.flags)
    if slurm.state in DOWN or "DOWN" in flags:
        return "has marked {} down" if not PLANNED & flags else None
    if "FAIL" in flags:
        return "has marked {} failing"
    if PLANNED & flags:
        return None
    return UNANSWERED if "NOT_RESPONDING" in flags else "drains {}" if "DRAIN" in flags else None


class SparesFew(NodeRule, frozen=True, kw_only=True):
    """A cluster has fewer healthy idle nodes than wanted (`spares`): a failed node could not be replaced."""

    name = "spares-few"
    origin = "the cluster's `spares`; duration: jobs end and begin"
    needs_for = True

    for_: Duration = 600.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for found in spares(state) if any(cluster.spares for cluster in state.clusters.values()) else ():
            if found.are_missing and is_answering(state.sources.get(f"slurm:{found.cluster}")):
                nodes = (node for node in state.scheduler_nodes.values() if node.cluster == found.cluster)
                yield Finding(
                    rule=self.name,
                    subject=f"cluster:{found.cluster}",
                    severity="warning",
                    summary=f"{found.cluster} has {counted(found.idle_healthy or 0, 'healthy spare node')},"
                    f" but {found.wanted} are wanted; {found.drained or 0} drained",
                    evidence=tuple(f"{node.name}: {node.reason or 'drained'}" for node in nodes if node.is_drained)[:8],
                    advice="have drained nodes repaired (sinfo -R), or free nodes with a smaller job",
                    cluster=found.cluster,
                    sources=(f"slurm:{found.cluster}",),
                )

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        if (why := why_silent(state, alert.sources)) is not None:
            return why
        is_known = any(one.cluster == alert.cluster and one.idle_healthy is not None for one in spares(state))
        return None if is_known else f"Slurm does not report the idle nodes of {alert.cluster}"
