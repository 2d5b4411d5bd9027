"""InfiniBand: ports that are down, that fall and come back, or whose errors pile up."""

from __future__ import annotations

from collections import Counter as Count
from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Rule, ago
from trainmon.alerting.rules.visibility import EXCLUDE, Whose, node_unseen, nodes_seen
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Counter, Finding, Node, NodeHistory, State

NEW = NodeHistory()
UP = "ACTIVE"
PEERS = 3
"""So many other nodes of the cluster, and nine of ten of all, must have a port up for it to be missed where it never
was: ports that no cable is in are no fault."""


class InfinibandDown(Rule, frozen=True, kw_only=True):
    """An InfiniBand port is not ACTIVE, although it was before or is on nearly all other nodes of the cluster."""

    name = "infiniband-down"
    family = "nodes"
    origin = "NVIDIA's resiliency extension: a port that was never up is not a fault; duration: a link may retrain"

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose: Whose | None = None
        common: dict[str, set[str]] = {}
        for node in nodes_seen(state):
            links = state.node_histories.get(node.name, NEW).links
            if all(port.state == UP for port in node.infiniband) and (
                not node.infiniband or len(links) <= len(node.infiniband)
            ):
                continue
            if node.cluster not in common:
                common[node.cluster] = _common(state, node.cluster)
            whose = whose or Whose(state)
            states = {port.port: port.state for port in node.infiniband}
            for port in dict.fromkeys((*states, *links)):
                word = states.get(port, "gone")
                if word not in (UP, None) and (port in links or port in common[node.cluster]):
                    yield self._found(node, port, word or "gone", whose)

    def _found(self, node: Node, port: str, word: str, whose: Whose) -> Finding:
        up = sum(other.state == UP for other in node.infiniband)
        return Finding(
            rule=self.name,
            subject=f"node:{node.name} {port}",
            severity="critical" if whose.holds(node.name) else "warning",
            summary=f"InfiniBand port {port} of {node.name} is {word}; {up} of {len(node.infiniband)} ports are {UP}",
            evidence=tuple(f"{other.port}: {other.state or 'unknown'}" for other in node.infiniband[:9]),
            advice=f"its cable, its switch port or its adapter is at fault: tell the administrators; {EXCLUDE}",
            cluster=node.cluster,
            run=whose.name(node.name),
            node=node.name,
            sources=(f"node:{node.name}",),
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        why = node_unseen(state, alert)
        if why is not None or alert.node is None:
            return why
        port = alert.subject.partition(" ")[2]
        known = {other.port: other.state for other in state.nodes[alert.node].infiniband}
        state_now = known.get(port)
        if state_now is None:
            return f"{alert.node} does not tell of its port {port}"
        return None if state_now == UP else f"{port} is {state_now}; this program has not seen it {UP}"


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
        whose: Whose | None = None
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
                whose = whose or Whose(state)
                if kind == "link_downed":
                    yield self._fell(node, port, counter, whose, now)
                elif not _fell_lately(past, port, now - self.sticky):
                    yield self._erred(node, port, counter, whose, now)

    def _fell(self, node: Node, port: str, counter: Counter, whose: Whose, now: Instant) -> Finding:
        falls = counter.since(now - self.within)
        lately = counter.since(now - self.sticky)
        words = f"InfiniBand port {port} of {node.name} fell {counted(lately, 'time')} in {ago(self.sticky)}"
        return self._finding(
            node, port, counter, now,
            severity="critical" if whose.holds(node.name) and falls >= self.falls else "warning",
            summary=f"{words}, the last {ago(now - counter.grown[-1].last)} ago", run=whose.name(node.name),
        )  # fmt: skip

    def _erred(self, node: Node, port: str, counter: Counter, whose: Whose, now: Instant) -> Finding:
        errors = counter.since(now - self.sticky)
        return self._finding(
            node, port, counter, now, severity="warning", run=whose.name(node.name),
            summary=f"InfiniBand port {port} of {node.name} had {errors:,} errors in {ago(self.sticky)}",
        )  # fmt: skip

    def _finding(self, node: Node, port: str, counter: Counter, now: Instant, **more: object) -> Finding:
        return Finding(
            rule=self.name,
            subject=f"node:{node.name} {port}",
            evidence=tuple(f"{growth.by:,} more, {ago(now - growth.last)} ago" for growth in counter.grown[-6:]),
            advice=f"its cable or switch port wears out: tell the administrators; {EXCLUDE} if the run slows down",
            cluster=node.cluster,
            node=node.name,
            sources=(f"node:{node.name}",),
            **more,  # type: ignore[arg-type]
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        why = node_unseen(state, alert)
        if why is not None or alert.node is None:
            return why
        port = alert.subject.partition(" ")[2]
        if not any(other.port == port for other in state.nodes[alert.node].infiniband):
            return f"{alert.node} does not tell of its port {port}"
        was_before = alert.found_at < state.started_at and now - alert.found_at <= self.sticky
        return "it fell before this program began to watch" if was_before else None


def _fell_lately(past: NodeHistory, port: str, since: Instant) -> bool:
    counter = past.counters.get(f"link_downed {port}")
    return counter is not None and counter.since(since) > 0
