"""Rules about GPU faults: memory errors, row remapping, lost GPUs, and Xids."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, ago, why_silent
from trainmon.alerting.rules.hardware import (
    EXCLUDE,
    GpuRule,
    RunsByNode,
    gpu_finding,
    has_slurm,
    node_and_gpu,
    sampled_gpus,
    why_gpu_unknown,
)
from trainmon.analysis.gpus import RECOVERY, XidMeaning, meaning, switch_meaning
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Fault, Finding, Gpu, Node, NodeHistory, Severity, State

NEW = NodeHistory()

NEW_ERRORS = "of them new"
"""Part of the summary of an alert about new memory errors. The rule reads it back after a restart."""

MISMATCH = "version mismatch"
"""A driver that was updated under running programs: these go on, and new ones do not start."""

REPORTED_FOR = 600.0
"""How long an Xid that is notified once is reported; nvidia_gpu_exporter looks back as far."""


class EccUncorrected(GpuRule, frozen=True, kw_only=True):
    """The memory of a GPU has had uncorrectable errors since its driver was loaded: critical while they are new, then a
    warning."""

    name = "ecc-uncorrected"
    origin = "any above 0: nvidia_gpu_exporter, Meta gcm"
    needs = ("ECC errors", "ecc_uncorrected")

    recent: Duration = 86_400.0
    """How long an observed error counts as new."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for node, gpu in sampled_gpus(state, now):
            if gpu.ecc_uncorrected:
                yield self._finding(node, gpu, state, runs, now)

    def _finding(self, node: Node, gpu: Gpu, state: State, runs: RunsByNode, now: Instant) -> Finding:
        counter = state.node_histories.get(node.name, NEW).counters.get(f"ecc {gpu.index}")
        growths = counter.grown[-5:] if counter is not None else ()
        last = growths[-1].last if growths else None
        # Errors that were new before this program started are known from the open alert.
        key = (self.name, f"gpu:{node.name}/{gpu.index}")
        known = (alert for alert in state.alerts.values() if alert.is_open and alert.key == key)
        notified = (one.since for one in known if NEW_ERRORS in one.summary and now - one.since <= self.recent)
        first = next(notified, None)
        is_new = first is not None or (last is not None and now - last <= self.recent)
        news = " since its driver was loaded; none is new"
        if last is not None and counter is not None:
            news = f", {counter.since(now - self.recent):,} {NEW_ERRORS}, the last {ago(now - last)} ago"
        elif first is not None:
            news = f", some {NEW_ERRORS}, the first {ago(now - first)} ago"
        return gpu_finding(
            self, node, gpu, runs,
            severity=runs.fault_severity(node.name) if is_new else "warning",
            summary=f"has {counted(gpu.ecc_uncorrected or 0, 'uncorrected ECC error')}{news}",
            evidence=tuple(f"{growth.by} more, {ago(now - growth.last)} ago" for growth in growths),
            advice=f"drain the node and reset the GPU; {EXCLUDE}; if new errors appear, replace the GPU",
            since=last,
        )  # fmt: skip


class RowRemap(GpuRule, frozen=True, kw_only=True):
    """A GPU has remapped bad rows of its memory and needs a reset (pending), or could not remap them (failed)."""

    name = "row-remap"
    origin = "failed: NVIDIA's criterion to replace a GPU; pending: reset at the next opportunity"
    needs = ("remapped rows", "remap_pending", "remap_failed")

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for node, gpu in sampled_gpus(state, now):
            if gpu.remap_failed:
                yield gpu_finding(
                    self, node, gpu, runs,
                    severity=runs.fault_severity(node.name),
                    summary="could not remap bad rows of its memory: no spare row is left",
                    evidence=("row remap: failed",),
                    advice=f"replace the GPU: NVIDIA accepts a failed remap as a reason; {EXCLUDE}",
                )  # fmt: skip
            elif gpu.remap_pending:
                yield gpu_finding(
                    self, node, gpu, runs,
                    severity="warning",
                    summary="has bad rows of memory that a reset will remap",
                    evidence=("row remap: pending",),
                    advice="let the job continue; reset the GPU or reboot the node before the next job starts",
                )  # fmt: skip


class GpuLost(GpuRule, frozen=True, kw_only=True):
    """A GPU fell off the bus, vanished, or answers only with an error."""

    name = "gpu-lost"
    origin = "a lost GPU at once; an error after 30s, because a driver that is being reloaded also fails"
    may_flap = False

    for_: Duration = 30.0
    """How long an error must last. A lost GPU fires at once."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for node, gpu in sampled_gpus(state, now):
            if gpu.state != "ok":
                yield self._finding(node, gpu, runs, now)

    def _finding(self, node: Node, gpu: Gpu, runs: RunsByNode, now: Instant) -> Finding:
        error, is_lost = gpu.error or gpu.state, gpu.state == "lost"
        is_mild = MISMATCH in error and not is_lost
        evidence = (gpu.error,) if gpu.error else ()
        if gpu.last_xid is not None and gpu.last_xid_at is not None:
            evidence = (f"Xid {gpu.last_xid}, {ago(now - gpu.last_xid_at)} ago", *evidence)
        return gpu_finding(
            self, node, gpu, runs,
            severity="warning" if is_mild else runs.fault_severity(node.name),
            summary=f"{'is lost' if is_lost else 'does not respond'}, "
            f"{sum(other.state == 'ok' for other in node.gpus)} of {len(node.gpus)} GPUs respond: {error}",
            evidence=evidence,
            advice="running programs may continue; reboot the node before a new job starts there"
            if is_mild
            else f"the job on it will hang or die: {EXCLUDE}; drain and reboot the node",
            fires_at_once=is_lost,
        )  # fmt: skip

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        if (why := why_gpu_unknown(state, alert, now, may_fail=True)) is not None or alert.node is None:
            return why
        node = state.nodes[alert.node]
        expected = gpus_expected(node, state)
        return f"{node.name} lists {len(node.gpus)} of its {expected} GPUs" if len(node.gpus) < expected else None


def gpus_expected(node: Node, state: State) -> int:
    """How many GPUs a node should list. With Slurm, a job may see only its own GPUs, so what was listed before does not
    count."""
    most = 0 if has_slurm(state, node.cluster) else state.node_histories.get(node.name, NEW).gpus_most
    return max(node.gpus_expected or 0, most)


class XidSeen(GpuRule, frozen=True, kw_only=True):
    """The driver reported a fault (Xid), or an NVSwitch did (SXid). A hardware fault fires until the node reboots or
    the lost GPU returns, but no longer than `remember`. It is critical, or a warning if Slurm has no job on the node. A
    fault that the driver calls nonfatal is reported once, and so are an NVLink error of which no text says whether it
    is fatal, and a fault of a program, as evidence of why it died. An Xid that is never a cause by itself is not
    reported."""

    name = "xid"
    origin = "NVIDIA's Xid catalogue, and what Meta gcm, Azure and nvidia_gpu_exporter page for"
    may_flap = False

    remember: Duration = 21_600.0
    """How long a hardware fault keeps firing if the node does not reboot."""
    critical: tuple[int, ...] = ()
    """Xids to treat as hardware faults, such as `[31, 43]`."""
    ignore: tuple[int, ...] = ()
    """Xids to ignore."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        for name, past in state.node_histories.items():
            cluster = state.nodes[name].cluster if name in state.nodes else ""
            faults = sorted(past.faults, key=lambda one: self._meaning(one).kind == "hardware")  # the worst, the newest
            newest = {(fault.code, fault.index, fault.is_switch): fault for fault in faults}
            for fault in newest.values():
                means = self._meaning(fault)
                lasts = self.remember if means.kind == "hardware" else REPORTED_FOR
                is_over = means.kind == "hardware" and _is_over(fault, past)
                if means.kind != "ignored" and now - fault.last_at <= lasts and not is_over:
                    yield self._finding(name, cluster, fault, means, runs, now)

    def _meaning(self, fault: Fault) -> XidMeaning:
        if fault.is_switch:
            return switch_meaning(fault.code, fault.text)
        means = meaning(fault.code, fault.text)
        if fault.code in self.ignore:
            return means._replace(kind="ignored")
        return means._replace(kind="hardware") if fault.code in self.critical else means

    def _finding(
        self, name: str, cluster: str, fault: Fault, means: XidMeaning, runs: RunsByNode, now: Instant
    ) -> Finding:
        is_hardware, run, code = means.kind == "hardware", runs.affected(name), f"Xid {fault.code}"
        code = f"S{code}" if fault.is_switch else code
        subject, who = f"gpu:{name}/{fault.index}", f"GPU {fault.index} of {name}"
        if fault.index is None:
            subject, who = f"node:{name}", name
        times = f", {fault.count} times in {ago(fault.last_at - fault.first_at)}" if fault.count > 1 else ""
        reporter = "Prometheus" if fault.source == "prometheus" else "NVML"
        severity: Severity = "warning"
        if is_hardware:
            severity = runs.fault_severity(name)
        elif means.kind == "application" and run is None:
            severity = "info"  # a program of another user
        return Finding(
            rule=self.name,
            subject=f"{subject} {code.lower()}",
            severity=severity,
            summary=f"{code} on {who}: {means.name}{times}, {ago(now - fault.last_at)} ago",
            evidence=(f"{code}: {fault.text}" if fault.text else f"{code}, reported by {reporter}",),
            advice=f"{means.advice}; {EXCLUDE}" if is_hardware else means.advice,
            cluster=cluster,
            run=run,
            node=name,
            sources=(f"node:{name}",),
            since=fault.first_at,
            event=not is_hardware,
        )

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        """A fault stays open while its node does not answer, and over a restart of this program."""
        past = state.node_histories.get(alert.node or "")
        if past is None:
            return f"{alert.node} is no longer watched"
        was_before = alert.since < state.started_at and now - alert.since <= self.remember
        _, index = node_and_gpu(alert.subject)
        if was_before and _reset_at(past, index) <= alert.since:
            return "it was reported before this program started, and the node has not rebooted since"
        return why_silent(state, alert.sources)


def _reset_at(past: NodeHistory, index: int | None) -> Instant:
    """When the node booted, or when this GPU of it returned after it was lost."""
    returned = None if index is None else past.returned.get(index)
    return max(past.booted_at or 0.0, returned or 0.0)


def _is_over(fault: Fault, past: NodeHistory) -> bool:
    """Whether there was a reset after a fault, or the driver reports that no action is needed any more."""
    return _reset_at(past, fault.index) > fault.last_at or any(
        other.code == RECOVERY
        and other.index == fault.index
        and other.last_at > fault.last_at
        and meaning(other.code, other.text).kind == "ignored"
        for other in past.faults
    )
