"""Rules about hosts: unreachable, rebooted, or with a wrong clock."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from trainmon.alerting.rules.base import Duration, Rule, ago
from trainmon.alerting.rules.visibility import EXCLUDE, Whose, node_finding, node_unseen, nodes_seen, silence
from trainmon.lib import Instant, Seconds, clean
from trainmon.model import Alert, Finding, Run, SchedulerNode, Source, State

PLANNED = frozenset({"MAINTENANCE", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "REBOOT_REQUESTED",
                     "REBOOT_ISSUED"})  # fmt: skip
"""Slurm's flags of planned work of an administrator or a power saver."""


LATE_LOG: Seconds = 30.0
"""A step that is seen this long after a node's last answer was made after it, on whichever host its log is read."""


class NodeUnreachable(Rule, frozen=True, kw_only=True):
    """A node does not answer. A node that admits people only while they have a job there is not a fault if they have
    none."""

    name = "node-unreachable"
    family = "nodes"
    origin = "our choice: a lost connection is dialled again within seconds, so a minute is long"
    may_flap = False

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires. The time since its last answer counts."""
    silent: Duration = 120.0
    """How long a node with an open connection may send nothing."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for source in state.sources.values():
            if source.health in ("ok", "off") or source.kind != "node":
                continue
            quiet = silence(source, state, now)
            if source.health == "late" and (quiet is None or quiet <= self.silent):
                continue
            node = source.name.removeprefix("node:")
            if whose.holds(node) or not is_planned(state.scheduler_nodes.get(node)):
                yield self._found(source, quiet, state, whose, now)

    def _found(self, source: Source, quiet: Seconds | None, state: State, whose: Whose, now: Instant) -> Finding:
        node = source.name.removeprefix("node:")
        slurm = state.scheduler_nodes.get(node)
        error = source.error or "it sends nothing, although its connection is open"
        since = "it has never answered" if source.seen_at is None else f"last answer {ago(now - source.seen_at)} ago"
        needs_login = source.phase == "held"
        problem = "needs an interactive login (2FA)" if needs_login else "does not answer"
        steps = _steps_on(whose.run(node), source, now)
        return Finding(
            rule=self.name,
            subject=f"node:{node}",
            severity="critical" if whose.holds(node) and not needs_login and not steps else "warning",
            summary=f"{node} {problem}: {error}; {since}{steps}",
            evidence=tuple(part for part in (_by_slurm(slurm), clean(source.stderr or "")) if part),
            advice=source.hint or f"try: ssh {node}; the run may still train there: see its log; {EXCLUDE}",
            cluster=source.cluster,
            run=whose.last(node),
            node=node,
            since=source.seen_at,
            fires_at_once=quiet is not None and quiet >= self.for_,
            by_age=True,
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """It is over when the node answers, or is not wanted now."""
        source = state.sources.get(f"node:{alert.node}")
        if source is None:
            return f"{alert.node} is no longer watched"
        if source.health in ("ok", "off") or is_planned(state.scheduler_nodes.get(alert.node or "")):
            return None
        return f"{alert.node} has not answered yet"


def _steps_on(run: Run | None, source: Source, now: Instant) -> str:
    """A text if the run of the node still makes steps: then only the connection is broken. A log on a shared disk may
    be late by half a minute."""
    at = None if run is None else run.progress.at
    if run is None or at is None or source.seen_at is None or at - source.seen_at < LATE_LOG:
        return ""
    quiet = now - at
    if quiet > max(60.0, 3 * (run.progress.cadence_s or 0.0)):
        return ""
    return f"; {run.name} still trains, its last step was {ago(quiet)} ago"


def is_planned(slurm: SchedulerNode | None) -> bool:
    """Whether Slurm has switched a node off, has it in maintenance, or boots it."""
    return slurm is not None and bool(PLANNED & set(slurm.flags))


def _by_slurm(slurm: SchedulerNode | None) -> str:
    if slurm is None:
        return ""
    return f"Slurm: {'+'.join((slurm.state, *slurm.flags))}{', ' + slurm.reason if slurm.reason else ''}"


class NodeRebooted(Rule, frozen=True, kw_only=True):
    """A node has rebooted while it was watched."""

    name = "node-rebooted"
    family = "nodes"
    origin = "our choice: the boot time by both clocks, so that setting a clock is not a reboot"

    news: Duration = 1_800.0
    """How long it is reported."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for name, past in state.node_histories.items():
            if past.rebooted_at is None or now - past.rebooted_at > self.news or name not in state.nodes:
                continue
            slurm = state.scheduler_nodes.get(name)
            advice = "see why: journalctl -b -1 -p err on it"
            if whose.name(name) is not None:
                advice += "; its job is lost, see whether the next one runs"
            planned = is_planned(slurm)
            yield node_finding(
                self, state.nodes[name], whose,
                severity="info" if planned else "critical" if whose.holds(name) else "warning",
                summary=f"{name} booted {ago(now - past.rebooted_at)} ago{', as planned' if planned else ''}",
                evidence=tuple(part for part in (_by_slurm(slurm),) if part),
                advice=advice,
                since=past.rebooted_at,
                event=True,
            )  # fmt: skip

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        return None


class ClockSkew(Rule, frozen=True, kw_only=True):
    """The clock of a node differs from ours. If most nodes differ by the same amount, our clock is wrong."""

    name = "clock-skew"
    family = "nodes"
    origin = "our choice: over SSH, node_exporter's limit of 0.05 s cannot be slurm from a slow packet"

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires."""
    most: Duration = 2.0
    """The largest difference that is tolerated."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        off = {}
        known = 0
        for node in nodes_seen(state):
            if node.clock_skew_s is not None:
                known += 1
                if abs(node.clock_skew_s) > self.most:
                    off[node.name] = node.clock_skew_s
        if not off:
            return
        middle = median(off.values())
        alike = [name for name, skew in off.items() if abs(skew - middle) <= self.most]
        if (len(alike) >= 3 and 2 * len(alike) > known) or (len(alike) == known and known > 1):
            yield self._ours(-middle, len(alike), known)
            off = {name: skew for name, skew in off.items() if name not in alike}
        whose = Whose(state)
        for name, skew in off.items():
            yield node_finding(
                self, state.nodes[name], whose,
                severity="warning",
                summary=f"the clock of {name} is {abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} ours",
                evidence=(f"its clock minus ours: {skew:+.1f} s",),
                advice="see chronyc tracking (or timedatectl) there: rendezvous, logs and Slurm depend on clocks",
            )  # fmt: skip

    def _ours(self, skew: Seconds, alike: int, known: int) -> Finding:
        return Finding(
            rule=self.name,
            subject="self",
            severity="warning",
            summary=f"the clock of this machine is {abs(skew):.1f} s {'ahead' if skew > 0 else 'behind'}:"
            f" {alike} of {known} nodes agree on it",
            evidence=(f"our clock minus theirs: {skew:+.1f} s",),
            advice="correct it (chronyc tracking, timedatectl): all ages and times depend on it",
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        if alert.subject != "self":
            return node_unseen(state, alert)
        return None if any(True for _ in nodes_seen(state)) else "no node answers, so clocks cannot be compared"
