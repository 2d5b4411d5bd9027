"""What the scheduler says of nodes: drained, down, failing; and too few that could replace one."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Rule, ago, is_seen
from trainmon.alerting.rules.nodes.hosts import PLANNED
from trainmon.alerting.rules.visibility import Whose
from trainmon.analysis.nodes import Spares
from trainmon.analysis.nodes.spares import spares
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Finding, SchedulerNode, Severity, State

DOWN = frozenset({"DOWN", "FAIL", "FAILING", "ERROR"})
DOWN_FLAGS = frozenset({"DOWN", "FAIL", "NOT_RESPONDING"})

UNANSWERED = "gets no answer from {}"

DRAINED = "the job there goes on, and no other starts: if its GPUs are at fault, save (S) and queue another (N)"


class NodeDrained(Rule, frozen=True, kw_only=True):
    """Slurm drains a watched node, or marks it down or failing. A down node under a run is critical. A state that is
    old is an info."""

    name = "node-drained"
    family = "nodes"
    origin = "Slurm's own states; SlurmdTimeout is 5m; an old repair is no news after a day"
    needs_for = True

    for_: Duration = 300.0
    """How long Slurm must get no answer from a node, because it takes back a single missed ping. Everything else fires
    at once."""
    old: Duration = 86_400.0
    """After this time, a node without a run is only an info."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose: Whose | None = None
        for name, told in state.scheduler_nodes.items():
            if not told.flags and told.state not in DOWN:
                continue
            words = _words(told)
            if words is None or not is_seen(state.sources.get(f"slurm:{told.cluster}")):
                continue
            whose = whose or Whose(state)
            run = whose.name(name)
            if run is not None or name in state.nodes:
                yield self._found(told, words, run, state, now, holds=whose.holds(name))

    def _found(
        self, told: SchedulerNode, words: str, run: str | None, state: State, now: Instant, *, holds: bool
    ) -> Finding:
        by = f" (by {told.reason_by})" if told.reason_by else ""
        cluster = state.clusters.get(told.cluster)
        is_ours = told.is_drained and cluster is not None and cluster.me is not None and cluster.me == told.reason_by
        since = f", since {ago(now - told.reason_at)}" if told.reason_at is not None else ""
        return Finding(
            rule=self.name,
            subject=f"node:{told.name}",
            severity=self._severity(told, now, holds=holds),
            summary=f"Slurm {words.format(told.name)}{since}: {told.reason or 'no reason is given'}{by}",
            evidence=(f"{'+'.join((told.state, *told.flags))} {told.reason or ''}".strip(),),
            advice=DRAINED if holds and told.is_drained else "its administrators know why: sinfo -R",
            cluster=told.cluster,
            run=run,
            node=told.name,
            sources=(f"slurm:{told.cluster}",),
            since=told.reason_at,
            fires_at_once=words != UNANSWERED,
            person=is_ours and not _is_down(told),
        )

    def _severity(self, told: SchedulerNode, now: Instant, *, holds: bool) -> Severity:
        if holds:
            return "critical" if _is_down(told) else "warning"
        is_old = told.reason_at is not None and now - told.reason_at > self.old
        return "info" if is_old else "warning"

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        if alert.node is not None and alert.node not in state.scheduler_nodes:
            return f"Slurm no longer tells of {alert.node}"
        return super().blind(state, alert, now)


def _is_down(told: SchedulerNode) -> bool:
    return told.state in DOWN or bool(DOWN_FLAGS & set(told.flags))


def _words(told: SchedulerNode) -> str | None:
    """What Slurm does with it, in words; None where all is well or planned."""
    flags = set(told.flags)
    if told.state in DOWN or "DOWN" in flags:
        return "has {} down" if not PLANNED & flags else None
    if "FAIL" in flags:
        return "has {} failing"
    if PLANNED & flags:
        return None
    if "NOT_RESPONDING" in flags:
        return UNANSWERED
    return "drains {}" if "DRAIN" in flags else None


class SparesFew(Rule, frozen=True, kw_only=True):
    """A cluster has fewer healthy idle nodes than wanted (`spares`): a failed node could not be replaced."""

    name = "spares-few"
    family = "nodes"
    origin = "the cluster's `spares`; duration: jobs end and begin"
    needs_for = True

    for_: Duration = 600.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for found in spares(state) if any(cluster.spares for cluster in state.clusters.values()) else ():
            if found.are_missing and is_seen(state.sources.get(f"slurm:{found.cluster}")):
                yield self._found(found, state)

    def _found(self, found: Spares, state: State) -> Finding:
        out = [node for node in state.scheduler_nodes.values() if node.cluster == found.cluster and node.is_drained]
        return Finding(
            rule=self.name,
            subject=f"cluster:{found.cluster}",
            severity="warning",
            summary=f"{found.cluster} has {counted(found.idle_healthy or 0, 'healthy spare node')}, {found.wanted} are"
            f" wanted; {found.drained or 0} drained",
            evidence=tuple(f"{node.name}: {node.reason or 'drained'}" for node in out[:8]),
            advice="have drained nodes repaired (sinfo -R), or let a smaller job make room",
            cluster=found.cluster,
            sources=(f"slurm:{found.cluster}",),
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        why = super().blind(state, alert, now)
        known = [found for found in spares(state) if found.cluster == alert.cluster and found.idle_healthy is not None]
        return why or (None if known else f"Slurm does not tell of idle nodes of {alert.cluster}")
