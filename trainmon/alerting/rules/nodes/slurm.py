"""Rules about what Slurm says of nodes: drained, down, failing; and too few spare nodes."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Rule, ago, is_seen
from trainmon.alerting.rules.nodes.hosts import PLANNED
from trainmon.alerting.rules.visibility import Whose
from trainmon.analysis.nodes.spares import spares
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Finding, SchedulerNode, Severity, State

DOWN = frozenset({"DOWN", "FAIL", "FAILING", "ERROR"})
DOWN_FLAGS = frozenset({"DOWN", "FAIL", "NOT_RESPONDING"})

UNANSWERED = "gets no answer from {}"

DRAINED = "its job goes on, and no other job starts: if its GPUs are at fault, save (S) and queue another job (N)"


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
        whose = Whose(state)
        for name, slurm in state.scheduler_nodes.items():
            if not slurm.flags and slurm.state not in DOWN:
                continue
            words = _words(slurm)
            if words is None or not is_seen(state.sources.get(f"slurm:{slurm.cluster}")):
                continue
            run = whose.name(name)
            if run is not None or name in state.nodes:
                yield self._found(slurm, words, run, state, now, holds=whose.holds(name))

    def _found(
        self, slurm: SchedulerNode, words: str, run: str | None, state: State, now: Instant, *, holds: bool
    ) -> Finding:
        by = f" (by {slurm.reason_by})" if slurm.reason_by else ""
        cluster = state.clusters.get(slurm.cluster)
        is_ours = slurm.is_drained and cluster is not None and cluster.me is not None and cluster.me == slurm.reason_by
        since = f", since {ago(now - slurm.reason_at)}" if slurm.reason_at is not None else ""
        return Finding(
            rule=self.name,
            subject=f"node:{slurm.name}",
            severity=self._severity(slurm, now, holds=holds),
            summary=f"Slurm {words.format(slurm.name)}{since}: {slurm.reason or 'no reason is given'}{by}",
            evidence=(f"{'+'.join((slurm.state, *slurm.flags))} {slurm.reason or ''}".strip(),),
            advice=DRAINED if holds and slurm.is_drained else "its administrators know why: sinfo -R",
            cluster=slurm.cluster,
            run=run,
            node=slurm.name,
            sources=(f"slurm:{slurm.cluster}",),
            since=slurm.reason_at,
            fires_at_once=words != UNANSWERED,
            person=is_ours and not _is_down(slurm),
        )

    def _severity(self, slurm: SchedulerNode, now: Instant, *, holds: bool) -> Severity:
        if holds:
            return "critical" if _is_down(slurm) else "warning"
        is_old = slurm.reason_at is not None and now - slurm.reason_at > self.old
        return "info" if is_old else "warning"

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        if alert.node is not None and alert.node not in state.scheduler_nodes:
            return f"Slurm no longer lists {alert.node}"
        return super().blind(state, alert, now)


def _is_down(slurm: SchedulerNode) -> bool:
    return slurm.state in DOWN or bool(DOWN_FLAGS & set(slurm.flags))


def _words(slurm: SchedulerNode) -> str | None:
    """What Slurm does with a node, in words; None if that is normal or planned."""
    flags = set(slurm.flags)
    if slurm.state in DOWN or "DOWN" in flags:
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
                nodes = (node for node in state.scheduler_nodes.values() if node.cluster == found.cluster)
                drained = [f"{node.name}: {node.reason or 'drained'}" for node in nodes if node.is_drained]
                yield Finding(
                    rule=self.name,
                    subject=f"cluster:{found.cluster}",
                    severity="warning",
                    summary=f"{found.cluster} has {counted(found.idle_healthy or 0, 'healthy spare node')},"
                    f" {found.wanted} are wanted; {found.drained or 0} drained",
                    evidence=tuple(drained[:8]),
                    advice="have drained nodes repaired (sinfo -R), or let a smaller job make room",
                    cluster=found.cluster,
                    sources=(f"slurm:{found.cluster}",),
                )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        why = super().blind(state, alert, now)
        known = [found for found in spares(state) if found.cluster == alert.cluster and found.idle_healthy is not None]
        return why or (None if known else f"Slurm does not report the idle nodes of {alert.cluster}")
