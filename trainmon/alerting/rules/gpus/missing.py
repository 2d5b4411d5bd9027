"""The rule about nodes that list fewer GPUs than they should, or none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, is_answering, why_silent
from trainmon.alerting.rules.gpus.faults import MISMATCH, NEW, gpus_expected
from trainmon.alerting.rules.hardware import EXCLUDE, GpuRule, RunsByNode, answering_nodes, why_node_unknown
from trainmon.alerting.rules.runs import LIVING
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Finding, Node, SchedulerNode, Severity, State

NVML = "NVML: "
"""The start of the note of a node whose NVML does not start."""

MISSING_LIBRARY = "NVIDIA GPUs, but no"
"""In the note of a node whose PCI bus shows GPUs, and that has no NVML."""

HIDDEN = "a cgroup hides"
"""In the note of a node that is read by a step of a job, and whose step sees no GPU."""

PERMISSION = "Insufficient Permissions"
NO_GPUS = ("Driver Not Loaded", PERMISSION)
"""A node with only this note may be a login node that has the libraries of all others."""

LISTED = re.compile(r"of its (\d+) GPUs")
"""Reads the summary of an open alert."""


class GpuMissing(GpuRule, frozen=True, kw_only=True):
    """A node has fewer GPUs than it should have, or none: according to its PCI bus, what it listed before, or Slurm."""

    name = "gpu-missing"
    origin = "the PCI bus, the most ever listed, and Slurm's `gres/gpu count reported lower than configured`"

    for_: Duration = 45.0
    """How long the condition must hold before the alert fires: a driver that is being reloaded lists its GPUs one after
    another."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        runs = RunsByNode(state)
        by_slurm = {name: slurm for name, slurm in state.scheduler_nodes.items() if slurm.lost_gpus is not None}
        for node in answering_nodes(state):
            listed, expected = len(node.gpus), gpus_expected(node, state)
            if (summary := none_listed(node, state)) is not None:
                severity = none_listed_severity(node, state, runs)
            elif 0 < listed < expected:
                summary = f"{node.name} lists {listed} of its {expected} GPUs: {expected - listed} missing"
                severity = runs.fault_severity(node.name)
            else:
                continue
            yield self._finding(summary, severity, node, by_slurm.pop(node.name, None), runs)
        for name, slurm in by_slurm.items():
            known = state.nodes.get(name)
            count = slurm.lost_gpus or 1
            failed = 0 if known is None else sum(gpu.state != "ok" for gpu in known.gpus)
            is_ours = known is not None or runs.affected(name) is not None
            if is_ours and failed < count:  # otherwise each failed GPU has an alert of its own
                summary = f"{counted(count, 'GPU')} of {name} missing, according to Slurm"
                yield self._finding(summary, runs.fault_severity(name), known, slurm, runs)

    def _finding(
        self, summary: str, severity: Severity, node: Node | None, slurm: SchedulerNode | None, runs: RunsByNode
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
            run=runs.affected(one.name),
            node=one.name,
            sources=(f"node:{one.name}" if slurm is None else f"slurm:{one.cluster}",),
            since=None if slurm is None else slurm.reason_at,
        )

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        slurm = state.scheduler_nodes.get(alert.node or "")
        if alert.node is None or f"node:{alert.node}" in alert.sources:
            if (why := why_node_unknown(state, alert)) is not None:
                return why
            node, found = state.nodes[alert.node or ""], LISTED.search(alert.summary)
            if found is not None:  # more may have been expected before a restart
                is_less = len(node.gpus) < int(found[1])
                return f"{node.name} lists {counted(len(node.gpus), 'GPU')}, and had {found[1]}" if is_less else None
            is_known = slurm is not None and is_answering(state.sources.get(f"slurm:{slurm.cluster}"))
            return None if node.gpus or is_known else f"{node.name} still lists no GPU"
        if slurm is None:
            return f"Slurm no longer lists {alert.node}"
        if slurm.lost_gpus is not None:
            return f"Slurm still finds fewer GPUs in {alert.node} than configured"
        return why_silent(state, alert.sources)


def none_listed(node: Node, state: State) -> str | None:
    """Why a node should list GPUs although none can be read; None if some can, or if none is expected."""
    if node.probe == "prometheus":  # series that have ended say nothing about the driver
        return None
    is_read = node.greeted_at is None or (node.gpus_at or 0.0) >= node.greeted_at
    is_listed = (
        node.probe == "nvml" and node.gpus_expected is not None and any(gpu.state != "lost" for gpu in node.gpus)
    )
    if (node.gpus and is_read) or is_listed or not _has_looked(node):
        return None
    evidence, note = _evidence(node, state), node.note or ""
    if evidence:
        return f"no GPU of {node.name} can be read: {', '.join((*evidence, _why(node)))}"
    has_driver = MISSING_LIBRARY in note or (note.startswith(NVML) and not any(text in note for text in NO_GPUS))
    return f"no GPU of {node.name} can be read: {note}" if has_driver else None


def _has_looked(node: Node) -> bool:
    """Whether the probe has looked for GPUs since its first line, or has said why it cannot. A driver that must first
    be loaded needs seconds for its list, and nvidia-smi may need a minute."""
    if node.probe == "nvidia-smi":
        return "gpu" in node.troubles
    return node.probe != "nvml" or node.gpus_expected is not None or bool(node.note)


def none_listed_severity(node: Node, state: State, runs: RunsByNode) -> Severity:
    """Critical, because what starts there fails at once; a warning if Slurm starts nothing there, if jobs may have
    permissions that we lack, or if running programs go on."""
    slurm, run, note = state.scheduler_nodes.get(node.name), runs.runs.get(node.name), node.note or ""
    goes_on = (run is not None and run.verdict in LIVING) or not _evidence(node, state)
    is_closed = slurm is not None and not slurm.is_usable and not runs.is_used(node.name)
    return "warning" if is_closed or PERMISSION in note or (MISMATCH in note and goes_on) else "critical"


def _evidence(node: Node, state: State) -> tuple[str, ...]:
    """All that says that a node should list GPUs. A job without GPUs sees none in its cgroup."""
    if HIDDEN in (node.note or ""):
        return ()
    slurm = state.scheduler_nodes.get(node.name)
    before = max(len(node.gpus), state.node_histories.get(node.name, NEW).gpus_most)
    are_visible = not node.confined or any(
        job.gpus and node.name in job.nodes and job.stage == "running" for job in state.jobs.values()
    )
    by_slurm = slurm.gpus if slurm is not None and are_visible else 0
    return (
        *([f"Slurm says gpu:{by_slurm}"] if by_slurm else []),
        *([f"its PCI bus shows {node.gpus_expected}"] if node.gpus_expected else []),
        *([f"it listed {before} before"] if before and not node.confined else []),
    )


def _why(node: Node) -> str:
    """Why no GPU of a node can be read."""
    note, error = node.note or "", node.troubles.get("gpu")
    if note.startswith(NVML):
        return f"NVML lists none: {note.removeprefix(NVML)}"
    if node.probe == "nvml":
        return "NVML lists none"
    if node.probe == "nvidia-smi":
        return f"nvidia-smi lists none: {error}" if error else "nvidia-smi lists none"
    return "and there is neither NVML nor nvidia-smi: is the driver installed?"
