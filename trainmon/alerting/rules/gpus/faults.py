"""Rules about GPUs that fail or are missing."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from trainmon.alerting.rules.base import Duration, Unknown, Unseen, is_answering, open_alert, silent
from trainmon.alerting.rules.nodes import (
    EXCLUDE,
    GpuRule,
    affected_run,
    answering_nodes,
    fault_severity,
    gpu_finding,
    has_slurm,
    impaired_gpus,
    is_used,
    node_and_gpu,
    past_of,
    runs_by_node,
    unseen_node,
)
from trainmon.alerting.rules.runs.base import LIVING
from trainmon.analysis.gpus import RECOVERY, XidMeaning, meaning, switch_meaning
from trainmon.lib import Instant, ago, counted
from trainmon.model import (
    COMPLETE_PROBES,
    Alert,
    Fault,
    Finding,
    Node,
    NodeHistory,
    SchedulerNode,
    Severity,
    State,
    says,
)

# ---- rules about GPU faults ------------------------------------------------------------------------------------------


REPORTED_FOR = 600.0
"""How long an Xid that is notified once is reported; nvidia_gpu_exporter looks back as far."""


class EccUncorrected(GpuRule, frozen=True, kw_only=True):
    """The memory of a GPU, or of AMD any of its blocks (RAS), has had uncorrectable errors since its driver was loaded:
    critical while they are new, then a warning.

    Defaults: any above 0: nvidia_gpu_exporter, Meta gcm
    """

    needs = ("ECC errors", "ecc_uncorrected")

    recent: Duration = 86_400.0
    """How long an observed error counts as new."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for node, gpu in impaired_gpus(state, now):
            if gpu.ecc_uncorrected:
                counter = past_of(state, node.name).counters.get(f"ecc {gpu.index}")
                growths = counter.grown[-5:] if counter is not None else ()
                last = growths[-1].last if growths else None
                # Errors that were new before this program started are known from the open alert.
                alert = open_alert(state, self.name, f"gpu:{node.name}/{gpu.index}")
                was_new = alert is not None and not alert.known.get("starts", True)
                first = alert.since if alert is not None and was_new and now - alert.since <= self.recent else None
                is_new = first is not None or (last is not None and now - last <= self.recent)
                news = " since its driver was loaded; none is new"
                if last is not None and counter is not None and now - last <= self.recent:
                    news = f", {counter.since(now - self.recent):,} of them new, the last {ago(now - last)} ago"
                elif first is not None:
                    news = f", some of them new, the first {ago(now - first)} ago"
                yield gpu_finding(
                    self, node, gpu, state,
                    severity=fault_severity(state, node.name) if is_new else "warning",
                    summary=f"has {counted(gpu.ecc_uncorrected or 0, 'uncorrected ECC error')}{news}",
                    evidence=tuple(f"{growth.by} more, {ago(now - growth.last)} ago" for growth in growths),
                    advice=f"drain the node and reset the GPU; {EXCLUDE}; if new errors appear, replace the GPU",
                    since=last,
                    known={"starts": not is_new},
                )  # fmt: skip


class RowRemap(GpuRule, frozen=True, kw_only=True):
    """A GPU has remapped bad rows of its memory and needs a reset (pending), or could not remap them (failed).

    Defaults: failed: NVIDIA's criterion to replace a GPU; pending: reset at the next opportunity
    """

    needs = ("remapped rows", "remap_pending", "remap_failed")

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for node, gpu in impaired_gpus(state, now):
            if gpu.remap_failed:
                yield gpu_finding(
                    self, node, gpu, state,
                    severity=fault_severity(state, node.name),
                    summary="could not remap bad rows of its memory: no spare row is left",
                    evidence=("row remap: failed",),
                    advice=f"replace the GPU: NVIDIA accepts a failed remap as a reason; {EXCLUDE}",
                )  # fmt: skip
            elif gpu.remap_pending:
                yield gpu_finding(
                    self, node, gpu, state,
                    severity="warning",
                    summary="has bad rows of memory that a reset will remap",
                    evidence=("row remap: pending",),
                    known={"starts": True},
                    advice="let the job continue; reset the GPU or reboot the node before the next job starts",
                )  # fmt: skip


class GpuLost(GpuRule, frozen=True, kw_only=True):
    """A GPU fell off the bus, vanished, or answers only with an error.

    Defaults: a lost GPU at once; an error after 30s, because a driver that is being reloaded also fails
    """

    may_flap = False

    for_: Duration = 30.0
    """How long an error must last. A lost GPU fires at once."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for node, gpu in impaired_gpus(state, now):
            if gpu.state != "ok":
                error, is_lost = gpu.error or gpu.state, gpu.state == "lost"
                why = "" if error in ("lost", "GPU is lost") else f": {error}"
                is_mild = says(gpu.error, "mismatch") and not is_lost
                evidence = (gpu.error,) if gpu.error else ()
                if gpu.last_xid is not None and gpu.last_xid_at is not None:
                    evidence = (f"Xid {gpu.last_xid}, {ago(now - gpu.last_xid_at)} ago", *evidence)
                yield gpu_finding(
                    self, node, gpu, state,
                    severity="warning" if is_mild else fault_severity(state, node.name),
                    summary=f"{'is lost' if is_lost else 'does not respond'}, "
                    f"{sum(other.state == 'ok' for other in node.gpus)} of {len(node.gpus)} GPUs respond{why}",
                    evidence=evidence,
                    advice="running programs may continue; reboot the node before a new job starts there"
                    if is_mild
                    else f"the job on it will hang or die: {EXCLUDE}; drain and reboot the node",
                    fires_at_once=is_lost,
                )  # fmt: skip

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        listed, expected = len(node.gpus), gpus_expected(node, state)
        fewer = Unknown(f"{node.name} lists {listed} of its {expected} GPUs") if listed < expected else None
        return super().lacking(state, node, alert, now) or fewer


def gpus_expected(node: Node, state: State) -> int:
    """How many GPUs a node should list. With Slurm, a job may see only its own GPUs, so what was listed before does not
    count."""
    most = 0 if has_slurm(state, node.cluster) else past_of(state, node.name).gpus_most
    return max(node.gpus_expected or 0, most)


class XidSeen(GpuRule, frozen=True, kw_only=True):
    """The driver reported a fault (Xid), or an NVSwitch did (SXid). A hardware fault fires until the node reboots or
    the lost GPU returns, but no longer than `remember`. It is critical, or a warning if Slurm has no job on the node.
    What the driver calls nonfatal, an NVLink error that may not be fatal, and a fault of a program are reported once.
    An Xid that is never a cause by itself is not reported.

    Defaults: NVIDIA's Xid catalogue, and what Meta gcm, Azure and nvidia_gpu_exporter page for
    """

    name = "xid"
    may_flap = False

    remember: Duration = 21_600.0
    """How long a hardware fault keeps firing if the node does not reboot."""
    critical: tuple[int, ...] = ()
    """Xids to treat as hardware faults, such as `[31, 43]`."""
    ignore: tuple[int, ...] = ()
    """Xids to ignore."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        faulty = [(name, past) for name, past in state.node_histories.items() if past.faults]
        for name, past in faulty:
            cluster = state.nodes[name].cluster if name in state.nodes else ""
            faults = sorted(past.faults, key=lambda one: self._meaning(one).kind == "hardware")  # the worst, the newest
            newest = {(fault.code, fault.index, fault.is_switch): fault for fault in faults}
            for fault in newest.values():
                means = self._meaning(fault)
                lasts = self.remember if means.kind == "hardware" else REPORTED_FOR
                is_over = means.kind == "hardware" and _is_over(fault, past)
                if means.kind != "ignored" and now - fault.last_at <= lasts and not is_over:
                    yield self._finding(name, cluster, fault, means, state, now)

    def _meaning(self, fault: Fault) -> XidMeaning:
        if fault.is_switch:
            return switch_meaning(fault.code, fault.text)
        means = meaning(fault.code, fault.text)
        if fault.code in self.ignore:
            return means._replace(kind="ignored")
        return means._replace(kind="hardware") if fault.code in self.critical else means

    def _finding(self, name: str, cluster: str, fault: Fault, means: XidMeaning, state: State, now: Instant) -> Finding:
        is_hardware, run, code = means.kind == "hardware", affected_run(state, name), f"Xid {fault.code}"
        code = f"S{code}" if fault.is_switch else code
        subject, who = f"gpu:{name}/{fault.index}", f"GPU {fault.index} of {name}"
        if fault.index is None:
            subject, who = f"node:{name}", name
        times = f", {fault.count} times in {ago(fault.last_at - fault.first_at)}" if fault.count > 1 else ""
        reporter = "Prometheus" if fault.source == "prometheus" else "NVML"
        is_of_others = means.kind == "application" and run is None  # a program of another user
        return Finding(
            rule=self.name,
            subject=f"{subject} {code.lower()}",
            severity=fault_severity(state, name) if is_hardware else "info" if is_of_others else "warning",
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

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """A fault stays open while its node does not answer, and over a restart of this program."""
        past = state.node_histories.get(alert.node or "")
        if past is None:
            return Unknown(f"{alert.node} is no longer watched")
        was_before = alert.since < state.started_at and now - alert.since <= self.remember
        if was_before and _reset_at(past, node_and_gpu(alert.subject)[1]) <= alert.since:
            return Unknown("it was reported before this program started, and the node has not rebooted since")
        return silent(state, alert.sources)


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


# ---- the rule about nodes that list fewer GPUs than they should, or none ---------------------------------------------

NVML = "NVML: "
"""The start of the note of a node whose NVML does not start."""


class GpuMissing(GpuRule, frozen=True, kw_only=True):
    """A node has fewer GPUs than it should have, or none: according to its PCI bus, what it listed before, or Slurm.

    Defaults: the PCI bus, the most ever listed, and Slurm's `gres/gpu count reported lower than configured`
    """

    may_flap = False
    for_: Duration = 45.0
    """How long the condition must hold before the alert fires: a driver that is being reloaded lists its GPUs one after
    another."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        by_slurm = {name: slurm for name, slurm in state.scheduler_nodes.items() if slurm.lost_gpus is not None}
        for node in answering_nodes(state):
            listed, expected = len(node.gpus), gpus_expected(node, state)
            values: dict[str, float] = {}
            if (summary := none_listed(node, state)) is not None:
                severity = none_listed_severity(node, state)
            elif 0 < listed < expected:
                summary = f"{node.name} lists {listed} of its {expected} GPUs: {expected - listed} missing"
                severity, values = fault_severity(state, node.name), {"gpus": expected}
            else:
                continue
            found = self._finding(summary, severity, node, by_slurm.pop(node.name, None), state)
            yield replace(found, known=values)
        for name, slurm in by_slurm.items():
            known = state.nodes.get(name)
            count = slurm.lost_gpus or 1
            failed = 0 if known is None else sum(gpu.state != "ok" for gpu in known.gpus)
            is_ours = known is not None or affected_run(state, name) is not None
            if is_ours and failed < count:  # otherwise each failed GPU has an alert of its own
                summary = f"{counted(count, 'GPU')} of {name} missing, according to Slurm"
                yield self._finding(summary, fault_severity(state, name), known, slurm, state)

    def _finding(
        self, summary: str, severity: Severity, node: Node | None, slurm: SchedulerNode | None, state: State
    ) -> Finding:
        """`node`: if it answers, or did. `slurm`: if Slurm reports missing GPUs of it."""
        one = slurm or node
        assert one is not None
        evidence = [node.note] if node is not None and node.note else []
        return Finding(
            rule=self.name,
            subject=f"node:{one.name}",
            severity=severity,
            summary=summary,
            evidence=tuple(evidence if slurm is None else [*evidence, f"Slurm: {slurm.reason}"]),
            advice=f"reboot the node; if that does not help, tell its administrators; {EXCLUDE}",
            cluster=one.cluster,
            run=affected_run(state, one.name),
            node=one.name,
            sources=(f"node:{one.name}" if slurm is None else f"slurm:{one.cluster}",),
            since=None if slurm is None else slurm.reason_at,
        )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        slurm = state.scheduler_nodes.get(alert.node or "")
        if f"node:{alert.node}" in alert.sources:
            return unseen_node(state, alert) or self._lists_fewer(state.nodes[alert.node or ""], slurm, alert, state)
        if slurm is None:
            return Unknown(f"Slurm no longer lists {alert.node}")
        if slurm.lost_gpus is not None:
            return Unknown(f"Slurm still finds fewer GPUs in {alert.node} than configured")
        return silent(state, alert.sources)

    def _lists_fewer(self, node: Node, slurm: SchedulerNode | None, alert: Alert, state: State) -> Unknown | None:
        """Why it is not known whether a node lists all its GPUs: more may have been expected before a restart."""
        if "gpus" in alert.known:
            listed, had = len(node.gpus), float(alert.known["gpus"])
            return Unknown(f"{node.name} lists {counted(listed, 'GPU')}, and had {had:g}") if listed < had else None
        is_known = slurm is not None and is_answering(state, f"slurm:{slurm.cluster}")
        return None if node.gpus or is_known else Unknown(f"{node.name} still lists no GPU")


def none_listed(node: Node, state: State) -> str | None:
    """Why a node should list GPUs although none can be read; None if some can, or if none is expected."""
    is_read = node.greeted_at is None or (node.gpus_at or 0.0) >= node.greeted_at
    if (node.gpus and is_read) or node.probe == "prometheus":  # series that have ended say nothing about the driver
        return None
    is_listed = (
        node.probe in COMPLETE_PROBES
        and node.gpus_expected is not None
        and any(gpu.state != "lost" for gpu in node.gpus)
    )
    if is_listed or not _has_looked(node):
        return None
    evidence, note = _evidence(node, state), node.note
    if evidence:
        return f"no GPU of {node.name} can be read: {', '.join((*evidence, _why(node)))}"
    # A node whose driver is not loaded or not for us may be a login node that has the libraries of all others.
    may_have_none = says(note, "not-loaded") or says(note, "no-permission")
    has_driver = says(note, "no-library") or (says(note, "nvml-fails") and not may_have_none)
    return f"no GPU of {node.name} can be read: {note}" if has_driver else None


def _has_looked(node: Node) -> bool:
    """Whether the probe has looked for GPUs since its first line, or has said why it cannot. A driver that must first
    be loaded needs seconds for its list, and these commands may need a minute."""
    if node.probe in ("nvidia-smi", "rocm-smi"):
        return "gpu" in node.troubles
    return node.probe != "nvml" or node.gpus_expected is not None or bool(node.note)


def none_listed_severity(node: Node, state: State) -> Severity:
    """Critical, because what starts there fails at once; a warning if Slurm starts nothing there, if jobs may have
    permissions that we lack, or if running programs go on."""
    slurm, run, note = state.scheduler_nodes.get(node.name), runs_by_node(state).get(node.name), node.note
    goes_on = (run is not None and run.verdict in LIVING) or not _evidence(node, state)
    is_closed = slurm is not None and not slurm.is_usable and not is_used(state, node.name)
    return "warning" if is_closed or says(note, "no-permission") or (says(note, "mismatch") and goes_on) else "critical"


def _evidence(node: Node, state: State) -> tuple[str, ...]:
    """All that says that a node should list GPUs. A job without GPUs sees none in its cgroup."""
    if says(node.note, "hidden"):
        return ()
    slurm = state.scheduler_nodes.get(node.name)
    before = max(len(node.gpus), past_of(state, node.name).gpus_most)
    are_visible = not node.confined or any(
        job.gpus and node.name in job.nodes and job.stage == "running" for job in state.jobs.values()
    )
    by_slurm = slurm.gpus if slurm is not None and are_visible else 0
    return (
        *([f"Slurm counts gpu:{by_slurm}"] if by_slurm else []),
        *([f"its PCI bus shows {node.gpus_expected}"] if node.gpus_expected else []),
        *([f"it listed {before} before"] if before and not node.confined else []),
    )


def _why(node: Node) -> str:
    """Why no GPU of a node can be read."""
    note, error = node.note or "", node.troubles.get("gpu")
    if says(note, "no-amdgpu"):
        return f"and there are {note}"
    if says(note, "nvml-fails"):
        return f"NVML lists none: {note.removeprefix(NVML)}"
    if node.probe == "nvml":
        return "NVML lists none"
    if node.probe in ("nvidia-smi", "rocm-smi"):
        return f"{node.probe} lists none: {error}" if error else f"{node.probe} lists none"
    return "and there is neither NVML nor nvidia-smi: is the driver installed?"
