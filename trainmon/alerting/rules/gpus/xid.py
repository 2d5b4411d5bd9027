"""The rule about Xids and SXids, the fault codes of GPUs and NVSwitches."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Rule, ago
from trainmon.alerting.rules.visibility import EXCLUDE, Whose
from trainmon.analysis.gpus import RECOVERY, XidMeaning, meaning, switch_meaning
from trainmon.lib import Instant
from trainmon.model import Alert, Fault, Finding, NodeHistory, Severity, State

NEWS = 600.0
"""How long a fault that is notified once is reported; nvidia_gpu_exporter looks back as far."""


class XidSeen(Rule, frozen=True, kw_only=True):
    """The driver reported a fault (Xid), or an NVSwitch did (SXid). A hardware fault is critical until the node
    reboots. A fault of a program is reported once, as evidence of why it died. An Xid that is never a cause by itself
    is not reported."""

    name = "xid"
    family = "gpus"
    origin = "NVIDIA's Xid catalogue, and what Meta gcm, Azure and nvidia_gpu_exporter page for"

    remember: Duration = 21_600.0
    """How long a hardware fault keeps firing if no reboot is observed."""
    critical: tuple[int, ...] = ()
    """Xids that are critical here, whatever their class."""
    ignore: tuple[int, ...] = ()
    """Xids that are not reported here."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for name, past in state.node_histories.items():
            if not past.faults:
                continue
            cluster = state.nodes[name].cluster if name in state.nodes else ""
            for fault, means in self._standing(past, now):
                yield self._found(name, cluster, fault, means, whose, now)

    def _standing(self, past: NodeHistory, now: Instant) -> Iterator[tuple[Fault, XidMeaning]]:
        """The newest fault of each GPU and code that still matters."""
        seen = set()
        for fault in reversed(past.faults):
            key = (fault.code, fault.index, fault.is_switch)
            if key in seen:
                continue
            seen.add(key)
            means = self._meaning(fault)
            lasts = self.remember if means.kind == "hardware" else NEWS
            if means.kind == "ignored" or now - fault.last_at > lasts:
                continue
            if means.kind == "hardware" and _is_over(fault, past):
                continue
            yield fault, means

    def _meaning(self, fault: Fault) -> XidMeaning:
        if fault.is_switch:
            return switch_meaning(fault.code, fault.text)
        means = meaning(fault.code, fault.text)
        if fault.code in self.ignore:
            return means._replace(kind="ignored")
        return means._replace(kind="hardware") if fault.code in self.critical else means

    def _found(self, name: str, cluster: str, fault: Fault, means: XidMeaning, whose: Whose, now: Instant) -> Finding:
        word = "SXid" if fault.is_switch else "Xid"
        where = f"node:{name}" if fault.index is None else f"gpu:{name}/{fault.index}"
        who = name if fault.index is None else f"GPU {fault.index} of {name}"
        times = f", {fault.count} times in {ago(fault.last_at - fault.first_at)}" if fault.count > 1 else ""
        said = f"{word} {fault.code}: {fault.text}" if fault.text else f"{word} {fault.code}, reported by NVML"
        return Finding(
            rule=self.name,
            subject=f"{where} {word.lower()} {fault.code}",
            severity=_severity(means, name, whose),
            summary=f"{word} {fault.code} on {who}: {means.name}{times}, {ago(now - fault.last_at)} ago",
            evidence=(said,),
            advice=f"{means.advice}; {EXCLUDE}" if means.kind == "hardware" else means.advice,
            cluster=cluster,
            run=whose.name(name),
            node=name,
            sources=(f"node:{name}",),
            since=fault.first_at,
            event=means.kind != "hardware",
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """A fault stays open while its node does not answer, and over a restart of this program."""
        past = state.node_histories.get(alert.node or "")
        if past is None:
            return f"{alert.node} is no longer watched"
        was_before = alert.since < state.started_at and now - alert.since <= self.remember
        if was_before and (past.booted_at is None or past.booted_at <= alert.since):
            return "it was reported before this program started, and the node has not rebooted since"
        return super().blind(state, alert, now)


def _severity(means: XidMeaning, node: str, whose: Whose) -> Severity:
    if means.kind == "hardware":
        return whose.worst(node)
    if means.kind == "application" and whose.name(node) is None:
        return "info"  # a program of another user
    return "warning"


def _is_over(fault: Fault, past: NodeHistory) -> bool:
    """Whether the node rebooted after a fault, or the driver reports that no action is needed any more."""
    if past.booted_at is not None and past.booted_at > fault.last_at:
        return True
    return any(
        other.code == RECOVERY
        and other.index == fault.index
        and other.last_at > fault.last_at
        and meaning(other.code, other.text).kind == "ignored"
        for other in past.faults
    )
