"""Rules about GPU faults: memory errors, row remapping, lost and missing GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Rule, ago
from trainmon.alerting.rules.gpus.unlisted import MISMATCH, how_bad, none_listed, still_none
from trainmon.alerting.rules.visibility import (
    EXCLUDE,
    Whose,
    gpu_finding,
    gpu_unseen,
    gpus_seen,
    has_slurm,
    node_unseen,
    nodes_seen,
)
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Counter, Finding, Gpu, Node, NodeHistory, SchedulerNode, Severity, State

NEW = NodeHistory()
LISTED = re.compile(r"of its (\d+) GPUs")
"""Reads the summary of an open alert."""

NEW_ONES = "of them new"
"""Part of the summary of an alert about new memory errors."""


class EccUncorrected(Rule, frozen=True, kw_only=True):
    """The memory of a GPU has had uncorrectable errors since its driver was loaded: critical while they are new, then a
    warning."""

    name = "ecc-uncorrected"
    family = "gpus"
    origin = "any above 0: nvidia_gpu_exporter, Meta gcm"

    recent: Duration = 86_400.0
    """How long an observed error counts as new."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for node in gpus_seen(state, now):
            for gpu in node.gpus:
                if gpu.ecc_uncorrected:
                    counter = state.node_histories.get(node.name, NEW).counters.get(f"ecc {gpu.index}")
                    yield self._found(node, gpu, counter, self._told(node, gpu, state, now), whose, now)

    def _told(self, node: Node, gpu: Gpu, state: State, now: Instant) -> Instant | None:
        """When new errors came before this program started, by the open alert of them."""
        key = (self.name, f"gpu:{node.name}/{gpu.index}")
        known = (alert for alert in state.alerts.values() if alert.is_open and alert.key == key)
        return next((one.since for one in known if NEW_ONES in one.summary and now - one.since <= self.recent), None)

    def _found(
        self, node: Node, gpu: Gpu, counter: Counter | None, told: Instant | None, whose: Whose, now: Instant
    ) -> Finding:
        grown_lately = counter.grown[-5:] if counter is not None else ()
        grown = grown_lately[-1] if grown_lately else None
        is_new = told is not None or (grown is not None and now - grown.last <= self.recent)
        words = f"has {counted(gpu.ecc_uncorrected or 0, 'uncorrected ECC error')}"
        if grown is not None and counter is not None:
            words += f", {counter.since(now - self.recent):,} {NEW_ONES}, the last {ago(now - grown.last)} ago"
        elif told is not None:
            words += f", some {NEW_ONES}, the first {ago(now - told)} ago"
        else:
            words += " since its driver was loaded; none is new"
        return gpu_finding(
            self, node, gpu, whose,
            severity=whose.worst(node.name) if is_new else "warning",
            summary=words,
            evidence=tuple(f"{growth.by} more, {ago(now - growth.last)} ago" for growth in grown_lately),
            advice=f"drain the node and reset the GPU; {EXCLUDE}; if errors come again, replace the GPU",
            since=grown.last if grown is not None else None,
        )  # fmt: skip

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        return gpu_unseen(state, alert, now, "ECC errors", "ecc_uncorrected")


class RowRemap(Rule, frozen=True, kw_only=True):
    """A GPU has remapped bad rows of its memory and needs a reset (pending), or could not remap them (failed)."""

    name = "row-remap"
    family = "gpus"
    origin = "failed: NVIDIA's criterion to replace a GPU; pending: reset at the next opportunity"

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for node in gpus_seen(state, now):
            for gpu in node.gpus:
                if gpu.remap_failed:
                    yield gpu_finding(
                        self, node, gpu, whose,
                        severity=whose.worst(node.name),
                        summary="could not remap bad rows of its memory: no spare row is left",
                        evidence=("row remap: failed",),
                        advice=f"replace the GPU: NVIDIA accepts this as a reason; {EXCLUDE}",
                    )  # fmt: skip
                elif gpu.remap_pending:
                    yield gpu_finding(
                        self, node, gpu, whose,
                        severity="warning",
                        summary="has bad rows of memory that a reset will remap",
                        evidence=("row remap: pending",),
                        advice="let the job go on; reset the GPU or reboot the node before the next one",
                    )  # fmt: skip

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        return gpu_unseen(state, alert, now, "remapped rows", "remap_pending", "remap_failed")


class GpuLost(Rule, frozen=True, kw_only=True):
    """A GPU fell off the bus, vanished, or answers only with an error."""

    name = "gpu-lost"
    family = "gpus"
    origin = "a lost GPU at once; an error after 30 s, because a driver that is being reloaded also fails"
    may_flap = False

    for_: Duration = 30.0
    """How long an error must last. A lost GPU fires at once."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for node in gpus_seen(state, now):
            for gpu in node.gpus:
                if gpu.state != "ok":
                    yield self._found(node, gpu, whose, now)

    def _found(self, node: Node, gpu: Gpu, whose: Whose, now: Instant) -> Finding:
        error = gpu.error or gpu.state
        others = sum(other.state == "ok" for other in node.gpus)
        is_mild = MISMATCH in error and gpu.state != "lost"
        evidence = (gpu.error,) if gpu.error else ()
        if gpu.last_xid is not None and gpu.last_xid_at is not None:
            evidence = (f"Xid {gpu.last_xid}, {ago(now - gpu.last_xid_at)} ago", *evidence)
        return gpu_finding(
            self, node, gpu, whose,
            severity="warning" if is_mild else whose.worst(node.name),
            summary=f"{'is lost' if gpu.state == 'lost' else 'does not answer'}: {error}; "
            f"{others} of {len(node.gpus)} GPUs answer",
            evidence=evidence,
            advice="running programs may go on; reboot the node before anything new starts there"
            if is_mild
            else f"the job on it will hang or die: {EXCLUDE}; drain and reboot the node",
            fires_at_once=gpu.state == "lost",
        )  # fmt: skip

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        why = gpu_unseen(state, alert, now, may_fail=True)
        if why is not None or alert.node is None:
            return why
        node = state.nodes[alert.node]
        known = _expected(node, state)
        return f"{node.name} lists {len(node.gpus)} of its {known} GPUs" if len(node.gpus) < known else None


def _expected(node: Node, state: State) -> int:
    """How many GPUs a node should list. With Slurm, a job may see only its own GPUs, so what was listed before does not
    count."""
    known = node.gpus_expected or 0
    return known if has_slurm(state, node.cluster) else max(known, state.node_histories.get(node.name, NEW).gpus_most)


class GpuMissing(Rule, frozen=True, kw_only=True):
    """A node has fewer GPUs than it should have, or none: according to its PCI bus, what it listed before, or Slurm."""

    name = "gpu-missing"
    family = "gpus"
    origin = "the PCI bus, the most ever listed, and Slurm's `gres/gpu count reported lower than configured`"

    for_: Duration = 45.0
    """How long the condition must hold before the alert fires: a driver that is being reloaded lists its GPUs one after
    another."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        told = {name: slurm for name, slurm in state.scheduler_nodes.items() if slurm.lost_gpus is not None}
        for seen in nodes_seen(state):
            none = none_listed(seen, state)
            words = none or _missing(seen, state)
            if words is not None:
                severity = whose.worst(seen.name) if none is None else how_bad(seen, state, whose)
                said = told.pop(seen.name, None)
                yield self._found(seen.name, seen.cluster, words, severity, seen, said, whose)
        for name, said in told.items():
            node = state.nodes.get(name)
            failed = 0 if node is None else sum(gpu.state != "ok" for gpu in node.gpus)
            if node is not None and failed >= (said.lost_gpus or 1):
                continue  # each failed GPU has an alert of its own
            if node is not None or whose.name(name) is not None:
                words = f"{counted(said.lost_gpus or 1, 'GPU')} of {name} missing, according to Slurm"
                yield self._found(name, said.cluster, words, whose.worst(name), node, said, whose)

    def _found(
        self,
        name: str,
        cluster: str,
        words: str,
        severity: Severity,
        node: Node | None,
        told: SchedulerNode | None,
        whose: Whose,
    ) -> Finding:
        sources = [] if node is None else [f"node:{name}"]
        evidence = [] if node is None or not node.note else [node.note]
        if told is not None:
            sources = [f"slurm:{cluster}"]
            evidence.append(f"Slurm: {told.reason}")
        return Finding(
            rule=self.name,
            subject=f"node:{name}",
            severity=severity,
            summary=words,
            evidence=tuple(evidence),
            advice=f"reboot the node; if that does not help, tell its administrators; {EXCLUDE}",
            cluster=cluster,
            run=whose.name(name),
            node=name,
            sources=tuple(sources),
            since=None if told is None else told.reason_at,
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        if alert.node is not None and f"node:{alert.node}" not in alert.sources:
            told = state.scheduler_nodes.get(alert.node)
            if told is None:
                return f"Slurm no longer lists {alert.node}"
            if told.lost_gpus is not None:
                return f"Slurm still finds fewer GPUs in {alert.node} than configured"
            return super().blind(state, alert, now)
        return node_unseen(state, alert) or _still_missing(state, alert)


def _still_missing(state: State, alert: Alert) -> str | None:
    """Why GPUs are still missing although the node lists as many as expected: more were expected before a restart."""
    node, found = state.nodes[alert.node or ""], LISTED.search(alert.summary)
    if found is None:
        return still_none(node, state)
    if len(node.gpus) >= int(found[1]):
        return None
    return f"{node.name} lists {len(node.gpus)} GPUs, and had {found[1]}"


def _missing(node: Node, state: State) -> str | None:
    """How many GPUs a node lacks that lists some, in words; None if it has all."""
    known = _expected(node, state)
    if not node.gpus or len(node.gpus) >= known:
        return None
    return f"{node.name} lists {len(node.gpus)} of its {known} GPUs: {known - len(node.gpus)} missing"
