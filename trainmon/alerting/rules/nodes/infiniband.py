"""Rules about InfiniBand ports: down, going down and up again, or with many errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.hardware import EXCLUDE, NodeRule, RunsByNode, answering_nodes, node_finding
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Finding, Node, NodeHistory, State

NEW = NodeHistory()
UP = "ACTIVE"
PEERS = 3
"""A port that was never up counts as down only if it is up on this many nodes, and on nine of ten nodes of the cluster:
a port without a cable is not a fault."""


class InfinibandDown(NodeRule, frozen=True, kw_only=True):
    """An InfiniBand port is not ACTIVE, although it was before or is on nearly all other nodes of the cluster."""

    name = "infiniband-down"
    origin = "NVIDIA's resiliency extension: a port that was never up is not a fault; duration: a link may retrain"

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        common: dict[str, set[str]] = {}
        for node in answering_nodes(state):
            links = state.node_histories.get(node.name, NEW).links
            count = len(node.infiniband)
            if all(port.state == UP for port in node.infiniband) and (not count or len(links) <= count):
                continue
            states = {port.port: port.state for port in node.infiniband}
            if node.cluster not in common:
                common[node.cluster] = _common(state, node.cluster)
            for port in dict.fromkeys((*states, *links)):
                port_state = states.get(port, "gone")
                if port_state not in (UP, None) and (port in links or port in common[node.cluster]):
                    up = list(states.values()).count(UP)
                    yield node_finding(
                        self, node, runs,
                        subject=f"node:{node.name} {port}",
                        severity="critical" if runs.is_used(node.name) else "warning",
                        summary=f"InfiniBand port {port} of {node.name} is {port_state}; "
                        f"{up} of {count} ports are {UP}",
                        evidence=tuple(f"{other.port}: {other.state or 'unknown'}" for other in node.infiniband[:9]),
                        advice=f"its cable, switch port or adapter is at fault: tell the administrators; {EXCLUDE}",
                    )  # fmt: skip

    def unclear(self, state: State, node: Node, alert: Alert, now: Instant) -> str | None:
        port = alert.subject.partition(" ")[2]
        port_state = next((other.state for other in node.infiniband if other.port == port), None)
        if port_state is None:
            return f"{node.name} does not report its port {port}"
        return (
            None if port_state == UP else f"{port} is {port_state}; it has never been {UP} since this program started"
        )


def _common(state: State, cluster: str) -> set[str]:
    """The ports that are up on nearly all nodes of a cluster."""
    nodes = [node.infiniband for node in answering_nodes(state) if node.cluster == cluster and node.infiniband]
    up = Counter(port.port for ports in nodes for port in ports if port.state == UP)
    return {port for port, count in up.items() if count >= max(PEERS, 0.9 * len(nodes))}


class InfinibandFlapping(NodeRule, frozen=True, kw_only=True):
    """An InfiniBand port went down and came back, or its errors accumulate. The alert stays for a while after the last
    event, because a link that failed once fails again."""

    name = "infiniband-flapping"
    origin = "twice in five minutes: ByteRobust; ten minutes after: leptonai gpud"

    keep_firing_for: Duration = 60.0
    """How long the condition must be gone before the alert resolves, after `sticky`."""
    sticky: Duration = 600.0
    """How long after the last event the port counts as healthy again."""
    falls: int = 2
    """Critical if the port of a node with a run went down this many times within `within`; else a warning."""
    within: Duration = 300.0
    """The window for `falls`."""
    errors: int = 1000
    """Warning at this many errors (symbol, receive, link recovery, integrity) within `sticky`."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs, begin = RunsByNode(state), now - self.sticky
        for name, past in state.node_histories.items():
            for key, counter in past.counters.items():
                if not counter.grown or counter.grown[-1].last < begin:
                    continue
                kind, _, port = key.partition(" ")
                node = state.nodes.get(name)
                if node is None or kind not in ("link_downed", "errors"):
                    continue
                count, is_down = counter.since(begin), kind == "link_downed"
                if not is_down and (count < self.errors or _went_down(past, port, begin)):
                    continue
                last = f", the last {ago(now - counter.grown[-1].last)} ago" if is_down else ""
                what = f"went down {counted(count, 'time')}" if is_down else f"had {counted(count, 'error')}"
                falls = is_down and counter.since(now - self.within) >= self.falls
                yield node_finding(
                    self, node, runs,
                    severity="critical" if falls and runs.is_used(node.name) else "warning",
                    summary=f"InfiniBand port {port} of {node.name} {what} in {ago(self.sticky)}{last}",
                    subject=f"node:{node.name} {port}",
                    evidence=tuple(f"{one.by:,} more, {ago(now - one.last)} ago" for one in counter.grown[-6:]),
                    advice=f"its cable or switch port is failing: tell the administrators; "
                    f"if the run slows down, {EXCLUDE}",
                )  # fmt: skip

    def unclear(self, state: State, node: Node, alert: Alert, now: Instant) -> str | None:
        port = alert.subject.partition(" ")[2]
        if all(other.port != port for other in node.infiniband):
            return f"{node.name} does not report its port {port}"
        was_before = alert.found_at < state.started_at and now - alert.found_at <= self.sticky
        return "it went down before this program started" if was_before else None


def _went_down(past: NodeHistory, port: str, since: Instant) -> bool:
    counter = past.counters.get(f"link_downed {port}")
    return counter is not None and counter.since(since) > 0
