"""Rules about the memory of hosts: nearly full, leaking, exhausted."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Rule, Share, ago
from trainmon.alerting.rules.visibility import Whose, is_fresh, node_finding, node_unseen, nodes_seen
from trainmon.analysis.nodes import BUCKETS, leak
from trainmon.lib import Instant, counted
from trainmon.model import FAULT_GAP, Alert, Finding, NodeHistory, State

NEW = NodeHistory()


class MemoryFull(Rule, frozen=True, kw_only=True):
    """The memory of a host is nearly full: the kernel will kill the largest process, which is the trainer."""

    name = "memory-full"
    family = "nodes"
    origin = (
        "what is not available to a new process; node_exporter warns at 90 %, which pinned memory reaches by design"
    )

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires."""
    full: Share = 0.95
    """The share from which on it is a warning."""
    critical: Share = 0.98
    """The share from which on it is critical."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        least = min(self.full, self.critical)
        for node in nodes_seen(state):
            used, total = node.memory_used_mib, node.memory_total_mib
            if used is None or not total or used < least * total or not is_fresh(node.host_at, state, node.name, now):
                continue
            commands = dict.fromkeys(p.command for gpu in node.gpus for p in gpu.processes if p.command)
            yield node_finding(
                self, node, whose,
                severity="critical" if used >= self.critical * total else "warning",
                summary=f"{node.name} has {_gib(total - used)} of {_gib(total)} memory left,"
                f" {100 * used / total:.1f} % is used",
                evidence=tuple(f"on its GPUs: {command}" for command in list(commands)[:3]),
                advice="use fewer dataloader workers or less pinned memory; see: ps aux --sort=-rss | head",
            )  # fmt: skip

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        return _memory_unseen(state, alert, now)


class MemoryLeak(Rule, frozen=True, kw_only=True):
    """The memory in use on a host grows steadily and will run out. The rule uses the minimum of every ten minutes over
    up to three hours, so memory that comes and goes is not a leak."""

    name = "memory-leak"
    family = "nodes"
    origin = "our choice: a rising minimum over an hour, at a rate that does not slow down"

    keep_firing_for: Duration = 1_800.0
    """How long the condition must be gone before the alert resolves: three of the ten-minute windows."""
    within: Duration = 43_200.0
    """It fires if the memory would run out within this time."""
    critical: Duration = 7_200.0
    """The same for critical."""
    used: Share = 0.5
    """A host with less than this share in use is ignored."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for node in nodes_seen(state):
            used, total = node.memory_used_mib, node.memory_total_mib
            if (
                used is None
                or not total
                or used < self.used * total
                or not is_fresh(node.host_at, state, node.name, now)
            ):
                continue
            floors = state.node_histories.get(node.name, NEW).floors
            found = leak(floors, total, now)
            if found is None or found.full_at - now > self.within:
                continue
            left = found.full_at - now
            yield node_finding(
                self, node, whose,
                severity="critical" if left <= self.critical else "warning",
                summary=f"the memory of {node.name} grows by {_gib(round(found.mib_per_hour))} an hour for"
                f" {ago(now - found.since)}: nothing is left in {ago(left)} ({_gib(used)} of {_gib(total)} in use)",
                evidence=tuple(f"{ago(now - at)} ago: {_gib(floor)}" for at, floor in floors[-7:]),
                advice="save (S) and restart before it is full; then see what the dataloader or the logger keeps",
                since=found.since,
            )  # fmt: skip

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        why = _memory_unseen(state, alert, now)
        if why is not None or alert.node is None:
            return why
        node = state.nodes[alert.node]
        if (node.memory_used_mib or 0) < self.used * (node.memory_total_mib or 0):
            return None
        is_known = len(state.node_histories.get(alert.node, NEW).floors) > BUCKETS
        return None if is_known else f"the memory of {alert.node} has been watched for too short a time"


def _memory_unseen(state: State, alert: Alert, now: Instant) -> str | None:
    why = node_unseen(state, alert)
    if why is not None or alert.node is None:
        return why
    node = state.nodes[alert.node]
    if node.memory_used_mib is None or not is_fresh(node.host_at, state, alert.node, now):
        return f"{alert.node} does not report its memory"
    return None


def _gib(mib: int) -> str:
    return f"{mib / 1024:,.0f} GiB" if mib >= 10_240 else f"{mib / 1024:.1f} GiB"


class OomKill(Rule, frozen=True, kw_only=True):
    """The kernel killed processes because memory ran out, on the whole host or in the share of a job."""

    name = "oom-kill"
    family = "nodes"
    origin = "any growth of oom_kill in /proc/vmstat; awesome-prometheus-alerts also looks back half an hour"

    news: Duration = 1_800.0
    """How long the last kill is reported."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for name, past in state.node_histories.items():
            counter = past.counters.get("oom_kills")
            if counter is None or not counter.grown or now - counter.grown[-1].last > self.news:
                continue
            if name not in state.nodes:
                continue
            burst = [counter.grown[-1]]
            for growth in reversed(counter.grown[:-1]):
                if burst[0].first - growth.last > FAULT_GAP:
                    break
                burst.insert(0, growth)
            count = sum(growth.by for growth in burst)
            yield node_finding(
                self, state.nodes[name], whose,
                severity="critical" if whose.holds(name) else "warning",
                summary=f"the kernel killed {count} process{'' if count == 1 else 'es'} on {name} because memory ran"
                f" out, the last {ago(now - burst[-1].last)} ago",
                evidence=tuple(f"{counted(growth.by, 'kill')} {ago(now - growth.last)} ago" for growth in burst[-6:]),
                advice="journalctl -k | grep -i oom names them; a dead dataloader worker hangs its rank: watch the run",
                since=burst[0].first,
                event=True,
            )  # fmt: skip

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        return None
