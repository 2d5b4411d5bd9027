"""Rules about InfiniBand ports: down, going down and up again, or with many errors."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Rule, ago
from trainmon.alerting.rules.visibility import EXCLUDE, Whose, node_finding, node_unseen, nodes_seen
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Finding, NodeHistory, Severity, State

NEW = NodeHistory()
UP = "ACTIVE"
PEERS = 3
"""A port that was never up counts as down only if it is up on this many nodes, and on nine of ten nodes of the cluster:
a port without a cable is not a fault."""


class InfinibandDown(Rule, frozen=True, kw_only=True):
    """An InfiniBand port is not ACTIVE, although it was before or is on nearly all other nodes of the cluster."""

    name = "infiniband-down"
    family = "nodes"
    origin = "NVIDIA's resiliency extension: a port that was never up is not a fault; duration: a link may retrain"

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        common: dict[str, set[str]] = {}
        for node in nodes_seen(state):
            links = state.node_histories.get(node.name, NEW).links
            if all(port.state == UP for port in node.infiniband) and (
                not node.infiniband or len(links) <= len(node.infiniband)
            ):
                continue
            if node.cluster not in common:
                common[node.cluster] = _common(state, node.cluster)
            states = {port.port: port.state for port in node.infiniband}
            for port in dict.fromkeys((*states, *links)):
                word = states.get(port, "gone")
                if word not in (UP, None) and (port in links or port in common[node.cluster]):
                    up = sum(other.state == UP for other in node.infiniband)
                    total = len(node.infiniband)
                    yield node_finding(
                        self, node, whose,
                        subject=f"node:{node.name} {port}",
                        severity="critical" if whose.holds(node.name) else "warning",
                        summary=f"InfiniBand port {port} of {node.name} is {word}; {up} of {total} ports are {UP}",
                        evidence=tuple(f"{other.port}: {other.state or 'unknown'}" for other in node.infiniband[:9]),
                        advice=f"its cable, switch port or adapter is at fault: tell the administrators; {EXCLUDE}",
                    )  # fmt: skip

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        why = node_unseen(state, alert)
        if why is not None or alert.node is None:
            return why
        port = alert.subject.partition(" ")[2]
        known = {other.port: other.state for other in state.nodes[alert.node].infiniband}
        state_now = known.get(port)
        if state_now is None:
            return f"{alert.node} does not report its port {port}"
        return None if state_now == UP else f"{port} is {state_now}; this program has never seen it {UP}"


def _common(state: State, cluster: str) -> set[str]:
    """The ports that are up on nearly all nodes of a cluster."""
    up: Count[str] = Count()
    nodes = 0
    for node in nodes_seen(state):
        if node.cluster == cluster and node.infiniband:
            nodes += 1
            up.update(port.port for port in node.infiniband if port.state == UP)
    return {port for port, count in up.items() if count >= PEERS and count >= 0.9 * nodes}


class InfinibandFlapping(Rule, frozen=True, kw_only=True):
    """An InfiniBand port went down and came back, or its errors accumulate. The alert stays for a while after the last
    event, because a link that failed once fails again."""

    name = "infiniband-flapping"
    family = "nodes"
    origin = "twice in five minutes: ByteRobust; ten minutes after: leptonai gpud"

    keep_firing_for: Duration = 60.0
    """How long the condition must be gone before the alert resolves, after `sticky`."""
    sticky: Duration = 600.0
    """How long after the last event the port counts as healthy again."""
    falls: int = 2
    """This many times down within `within` are critical for a run. Once is a warning."""
    within: Duration = 300.0
    """The window for `falls`."""
    errors: int = 1000
    """This many errors (symbols, receive errors, recoveries, integrity) within `sticky` are a warning."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for name, past in state.node_histories.items():
            for key, counter in past.counters.items():
                if not counter.grown or now - counter.grown[-1].last > self.sticky:
                    continue
                kind, _, port = key.partition(" ")
                node = state.nodes.get(name)
                if node is None or kind not in ("link_downed", "errors"):
                    continue
                if kind == "errors" and counter.since(now - self.sticky) < self.errors:
                    continue
                port_name = f"InfiniBand port {port} of {node.name}"
                errors = counter.since(now - self.sticky)
                severity: Severity = "warning"
                summary = f"{port_name} had {errors:,} errors in {ago(self.sticky)}"
                if kind == "link_downed":
                    last = ago(now - counter.grown[-1].last)
                    summary = (
                        f"{port_name} went down {counted(errors, 'time')} in {ago(self.sticky)}, the last {last} ago"
                    )
                    if whose.holds(node.name) and counter.since(now - self.within) >= self.falls:
                        severity = "critical"
                elif _fell_lately(past, port, now - self.sticky):
                    continue
                yield node_finding(
                    self, node, whose, severity, summary,
                    subject=f"node:{node.name} {port}",
                    evidence=tuple(f"{one.by:,} more, {ago(now - one.last)} ago" for one in counter.grown[-6:]),
                    advice=f"its cable or switch port fails: tell the administrators; {EXCLUDE} if the run slows down",
                )  # fmt: skip

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        why = node_unseen(state, alert)
        if why is not None or alert.node is None:
            return why
        port = alert.subject.partition(" ")[2]
        if not any(other.port == port for other in state.nodes[alert.node].infiniband):
            return f"{alert.node} does not report its port {port}"
        was_before = alert.found_at < state.started_at and now - alert.found_at <= self.sticky
        return "it went down before this program started" if was_before else None


def _fell_lately(past: NodeHistory, port: str, since: Instant) -> bool:
    counter = past.counters.get(f"link_downed {port}")
    return counter is not None and counter.since(since) > 0
