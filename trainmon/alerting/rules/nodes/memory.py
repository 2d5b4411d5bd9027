"""Rules about the memory and the InfiniBand ports of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Share, ago
from trainmon.alerting.rules.hardware import EXCLUDE, NodeRule, RunsByNode, answering_nodes, is_fresh, node_finding
from trainmon.analysis.nodes import BUCKETS, leak
from trainmon.lib import Instant, counted, mib_size
from trainmon.model import FAULT_GAP, Alert, Finding, Node, NodeHistory, State

# ---- rules about the memory of hosts ---------------------------------------------------------------------------------

NEW = NodeHistory()


class MemoryRule(NodeRule, frozen=True, kw_only=True):
    """A rule about the memory in use on a host."""

    def nodes(self, state: State, now: Instant, share: float) -> Iterator[tuple[Node, int, int]]:
        """The nodes with at least this share in use now, each with its used and total MiB."""
        for node in answering_nodes(state):
            used, total = node.memory_used_mib, node.memory_total_mib
            if used is not None and total and used >= share * total and is_fresh(node.host_at, state, node.name, now):
                yield node, used, total

    def unclear(self, state: State, node: Node, alert: Alert, now: Instant) -> str | None:
        is_known = node.memory_used_mib is not None and is_fresh(node.host_at, state, node.name, now)
        return None if is_known else f"{node.name} does not report its memory"


class MemoryFull(MemoryRule, frozen=True, kw_only=True):
    """The memory of a host is nearly full. When it is full, the kernel kills a large process, usually the trainer."""

    name = "memory-full"
    origin = "memory in use: all but MemAvailable; node_exporter warns at 90%, which pinned memory reaches by design"

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires."""
    full: Share = 0.95
    """Warning at this share in use, or more."""
    critical: Share = 0.98
    """Critical at this share in use, or more."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for node, used, total in self.nodes(state, now, min(self.full, self.critical)):
            commands = dict.fromkeys(p.command for gpu in node.gpus for p in gpu.processes if p.command)
            yield node_finding(
                self, node, runs,
                severity="critical" if used >= self.critical * total else "warning",
                summary=f"{node.name} has {mib_size(total - used)} of {mib_size(total)} memory left"
                f" ({100 * used / total:.1f}% in use)",
                evidence=tuple(f"on its GPUs: {command}" for command in list(commands)[:3]),
                advice="use fewer dataloader workers or less pinned memory; see: ps aux --sort=-rss | head",
            )  # fmt: skip


class MemoryLeak(MemoryRule, frozen=True, kw_only=True):
    """The memory in use on a host grows steadily and will run out. The rule uses the minimum of every ten minutes over
    up to three hours, so memory that comes and goes is not a leak."""

    name = "memory-leak"
    origin = "our choice: a rising minimum over an hour, at a rate that does not slow down"

    keep_firing_for: Duration = 1_800.0
    """How long the condition must be gone before the alert resolves: three of the ten-minute windows."""
    within: Duration = 43_200.0
    """The alert fires if the memory would run out within this time."""
    critical: Duration = 7_200.0
    """The same for critical."""
    used: Share = 0.5
    """A host with less than this share in use is ignored."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for node, used, total in self.nodes(state, now, self.used):
            floors = state.node_histories.get(node.name, NEW).floors
            found = leak(floors, total, now)
            if found is not None and (left := found.full_at - now) <= self.within:
                yield node_finding(
                    self, node, runs,
                    severity="critical" if left <= self.critical else "warning",
                    summary=f"the memory of {node.name} has grown by {mib_size(found.mib_per_hour)} per hour for"
                    f" {ago(now - found.since)}: it will run out in {ago(left)}"
                    f" ({mib_size(used)} of {mib_size(total)} in use)",
                    evidence=tuple(f"{ago(now - at)} ago: {mib_size(floor)}" for at, floor in floors[-7:]),
                    advice="save (S) and restart before it is full; then see what the "
                    "dataloader or the logger keeps in memory",
                    since=found.since,
                )  # fmt: skip

    def unclear(self, state: State, node: Node, alert: Alert, now: Instant) -> str | None:
        why = super().unclear(state, node, alert, now)
        is_little = (node.memory_used_mib or 0) < self.used * (node.memory_total_mib or 0)
        if why is not None or is_little or len(state.node_histories.get(node.name, NEW).floors) > BUCKETS:
            return why
        return f"the memory of {node.name} has been watched for too short a time"


class OomKill(NodeRule, frozen=True, kw_only=True):
    """The kernel killed processes because memory ran out, on the whole host or in the memory limit of a job."""

    name = "oom-kill"
    origin = "any growth of oom_kill in /proc/vmstat; awesome-prometheus-alerts also looks back half an hour"

    news: Duration = 1_800.0
    """How long the last kill is reported."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for name, past in state.node_histories.items():
            counter = past.counters.get("oom_kills")
            if (
                counter is None
                or not counter.grown
                or name not in state.nodes
                or now - counter.grown[-1].last > self.news
            ):
                continue
            burst = [counter.grown[-1]]
            for growth in reversed(counter.grown[:-1]):
                if burst[0].first - growth.last > FAULT_GAP:
                    break
                burst.insert(0, growth)
            count = sum(growth.by for growth in burst)
            yield node_finding(
                self, state.nodes[name], runs,
                severity="critical" if runs.is_used(name) else "warning",
                summary=f"the kernel killed {count} process{'' if count == 1 else 'es'} on {name} because memory ran"
                f" out, the last {ago(now - burst[-1].last)} ago",
                evidence=tuple(f"{counted(growth.by, 'kill')} {ago(now - growth.last)} ago" for growth in burst[-6:]),
                advice="journalctl -k | grep -i oom names them; a dead dataloader worker hangs its rank: watch the run",
                since=burst[0].first,
                event=True,
            )  # fmt: skip

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        return None


# ---- rules about InfiniBand ports ------------------------------------------------------------------------------------

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
