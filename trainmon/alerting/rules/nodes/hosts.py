"""Rules about hosts, and the nodes of a scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from trainmon.alerting.rules.base import (
    SETTLES,
    Duration,
    ago,
    is_answering,
    is_logging_in,
    is_unread,
    lasted,
    why_silent,
)
from trainmon.alerting.rules.hardware import (
    EXCLUDE,
    NodeRule,
    RunsByNode,
    answering_nodes,
    node_finding,
    why_node_unknown,
)
from trainmon.analysis.nodes import spares
from trainmon.lib import Instant, Seconds, clean, counted
from trainmon.model import Alert, Finding, NodeHistory, Run, SchedulerNode, Severity, Source, State

# ---- rules about hosts -----------------------------------------------------------------------------------------------

PLANNED = frozenset({"MAINTENANCE", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "REBOOT_REQUESTED",
                     "REBOOT_ISSUED"})  # fmt: skip
"""Slurm's flags of planned work of an administrator or a power saver."""


LATE_LOG: Seconds = 30.0
"""A step this long after a node's last answer shows that the run went on, on whichever host its log is read."""


class NodeUnreachable(NodeRule, frozen=True, kw_only=True):
    """A node is unreachable, or its data is late. A node that accepts logins only during a job is not a fault while it
    has none. A node that accepts connections and has not finished its first login is a warning for 2 minutes."""

    name = "node-unreachable"
    origin = "our choice: a lost connection is opened again within seconds, so a minute is long"
    may_flap = False

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires. The time since its last data counts."""
    silent: Duration = 120.0
    """How late the data of a node with an open connection may be."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for source in state.sources.values():
            if source.health in ("ok", "off") or source.kind != "node" or is_unread(source, state):
                continue
            quiet = None if source.answered_at is None else lasted(source.answered_at, state, now)
            node = source.name.removeprefix("node:")
            began, limit = (source.login_since, SETTLES) if source.login_since else (source.answered_at, self.silent)
            is_late = source.health != "late" or (began is not None and lasted(began, state, now) > limit)
            if is_late and (runs.is_used(node) or not is_planned(state.scheduler_nodes.get(node))):
                yield self._finding(node, source, quiet, state, runs, now)

    def _finding(
        self, node: str, source: Source, quiet: Seconds | None, state: State, runs: RunsByNode, now: Instant
    ) -> Finding:
        is_held, run = source.phase == "held", runs.runs.get(node)
        held = "needs an interactive login (2FA)" if source.can_log_in else "cannot be logged in to"
        is_slow = is_logging_in(source, state, now)
        problem = held if is_held else "is late" if source.health == "late" and not is_slow else "is unreachable"
        error = source.problem or (
            "its first login is not finished"
            if is_slow
            else "its connection is open"
            if source.via is None
            else "no new sample"
        )
        since = "no data yet" if source.answered_at is None else f"last data {ago(now - source.answered_at)} ago"
        steps = _still_trains(run, source.answered_at or state.started_at, now)
        return Finding(
            rule=self.name,
            subject=f"node:{node}",
            severity="critical" if runs.is_used(node) and not (is_held or steps or is_slow) else "warning",
            summary=f"{node} {problem}: {error}; {since}{steps}",
            evidence=(*_by_slurm(state.scheduler_nodes.get(node)), *filter(None, [clean(source.stderr or "")])),
            advice=source.hint or f"try: ssh {node}; the run may still train there: see its log; {EXCLUDE}",
            cluster=source.cluster,
            run=None if run is None else run.name,
            node=node,
            since=source.answered_at,
            fires_at_once=quiet is not None and quiet >= self.for_,
            by_age=True,
        )

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        """It is over when the node answers, or is not wanted now."""
        source = state.sources.get(f"node:{alert.node}")
        if source is None:
            return f"{alert.node} is no longer watched"
        is_over = source.health in ("ok", "off") or is_planned(state.scheduler_nodes.get(alert.node or ""))
        return None if is_over else f"no data from {alert.node} yet"

    def summary_at_end(self, state: State, alert: Alert) -> str:
        past = state.node_histories.get(alert.node or "", NodeHistory())
        has_rebooted = past.rebooted_at is not None and past.rebooted_at >= alert.since
        return f"{alert.summary}; it has rebooted since" if has_rebooted else alert.summary


def _still_trains(run: Run | None, silent_since: Instant, now: Instant) -> str:
    """A text if the run of a silent node still makes steps: then only the connection is broken. A log on a shared disk
    may be late by half a minute."""
    at = None if run is None else run.progress.at
    if run is None or at is None or at - silent_since < LATE_LOG:
        return ""
    is_recent = now - at <= max(60.0, 3 * (run.progress.cadence_s or 0.0))
    return f"; {run.name} still trains, its last step was {ago(now - at)} ago" if is_recent else ""


def is_planned(slurm: SchedulerNode | None) -> bool:
    """Whether Slurm has switched a node off, has it in maintenance, or boots it."""
    return slurm is not None and bool(PLANNED & set(slurm.flags))


def _by_slurm(slurm: SchedulerNode | None) -> tuple[str, ...]:
    """The state of a node according to Slurm, as evidence."""
    reason = f", {slurm.reason}" if slurm is not None and slurm.reason else ""
    return () if slurm is None else (f"Slurm: {'+'.join((slurm.state, *slurm.flags))}{reason}",)


class NodeRebooted(NodeRule, frozen=True, kw_only=True):
    """A node has rebooted while it was watched."""

    name = "node-rebooted"
    origin = "our choice: the boot time is compared by two clocks, so a clock that is set is not taken for a reboot"

    news: Duration = 1_800.0
    """How long the reboot is reported."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for name, past in state.node_histories.items():
            if past.rebooted_at is None or now - past.rebooted_at > self.news or name not in state.nodes:
                continue
            slurm = state.scheduler_nodes.get(name)
            job = "; the job on it is lost: see whether the next one runs" if runs.affected(name) is not None else ""
            planned = is_planned(slurm)
            yield node_finding(
                self, state.nodes[name], runs,
                severity="info" if planned else "critical" if runs.is_used(name) else "warning",
                summary=f"{name} rebooted {ago(now - past.rebooted_at)} ago{', as planned' if planned else ''}",
                evidence=_by_slurm(slurm),
                advice=f"to see why, run on it: journalctl -b -1 -p err{job}",
                since=past.rebooted_at,
                event=True,
            )  # fmt: skip

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        return None


class ClockSkew(NodeRule, frozen=True, kw_only=True):
    """The clock of a node differs from the clock of this machine. If most nodes differ by the same amount, the clock of
    this machine is wrong."""

    name = "clock-skew"
    origin = "our choice: over SSH, node_exporter's limit of 0.05s cannot be distinguished from a slow packet"

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires."""
    most: Duration = 2.0
    """The largest difference that is tolerated."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        skews = {node.name: node.clock_skew_s for node in answering_nodes(state) if node.clock_skew_s is not None}
        off = {name: skew for name, skew in skews.items() if abs(skew) > self.most}
        if not off:
            return
        ours, known = -median(off.values()), len(skews)
        alike = [name for name, skew in off.items() if abs(skew + ours) <= self.most]
        if (len(alike) >= 3 and 2 * len(alike) > known) or (len(alike) == known and known > 1):
            off = {name: skew for name, skew in off.items() if name not in alike}
            yield Finding(
                rule=self.name,
                subject="self",
                severity="warning",
                summary=f"the clock of this machine is {abs(ours):.1f}s {'ahead' if ours > 0 else 'behind'}:"
                f" {len(alike)} of {known} nodes agree on it",
                evidence=(f"clock of this machine minus clock of the nodes: {ours:+.1f}s",),
                advice="correct the clock (chronyc tracking, timedatectl): all ages and times depend on it",
            )
        runs = RunsByNode(state)
        for name, skew in off.items():
            yield node_finding(
                self, state.nodes[name], runs,
                severity="warning",
                summary=f"the clock of {name} is {abs(skew):.1f}s {'ahead of' if skew > 0 else 'behind'}"
                    " the clock of this machine",
                evidence=(f"clock of the node minus clock of this machine: {skew:+.1f}s",),
                advice="run chronyc tracking there: rendezvous, logs and Slurm depend on the clock",
            )  # fmt: skip

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        if alert.subject != "self":
            return why_node_unknown(state, alert)
        return None if any(answering_nodes(state)) else "no node is reachable, so clocks cannot be compared"


# ---- rules about what Slurm says of nodes ----------------------------------------------------------------------------

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
