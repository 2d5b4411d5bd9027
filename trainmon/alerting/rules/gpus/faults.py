"""GPUs with a fault: memory errors, rows to be remapped, and those that are lost or were never listed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmon.alerting.rules.base import Duration, Rule, ago
from trainmon.alerting.rules.gpus.unlisted import MISMATCH, how_bad, none_listed, still_none
from trainmon.alerting.rules.visibility import (
    EXCLUDE,
    Whose,
    gpu_unseen,
    gpus_seen,
    has_slurm,
    node_unseen,
    nodes_seen,
    not_ok,
)
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Counter, Finding, Gpu, Node, NodeHistory, SchedulerNode, Severity, State, gpus_missing

NEW = NodeHistory()
LISTED = re.compile(r"of its (\d+) GPUs")
"""In our own summary."""

NEW_ONES = "of them new"
"""The same, of memory errors."""


def _of_gpu(rule: Rule, node: Node, gpu: Gpu, whose: Whose) -> dict[str, object]:
    return {
        "rule": rule.name,
        "subject": f"gpu:{node.name}/{gpu.index}",
        "cluster": node.cluster,
        "run": whose.name(node.name),
        "node": node.name,
        "sources": (f"node:{node.name}",),
    }


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
        """When new ones came before this program began, by the alert that it told of them."""
        key = (self.name, f"gpu:{node.name}/{gpu.index}")
        known = (alert for alert in state.alerts.values() if alert.is_open and alert.key == key)
        return next((one.since for one in known if NEW_ONES in one.summary and now - one.since <= self.recent), None)

    def _found(
        self, node: Node, gpu: Gpu, counter: Counter | None, told: Instant | None, whose: Whose, now: Instant
    ) -> Finding:
        grown_lately = counter.grown[-5:] if counter is not None else ()
        grown = grown_lately[-1] if grown_lately else None
        is_new = told is not None or (grown is not None and now - grown.last <= self.recent)
        words = f"GPU {gpu.index} of {node.name} has {counted(gpu.ecc_uncorrected or 0, 'uncorrected ECC error')}"
        if grown is not None and counter is not None:
            words += f", {counter.since(now - self.recent):,} {NEW_ONES}, the last {ago(now - grown.last)} ago"
        elif told is not None:
            words += f", some {NEW_ONES}, which came {ago(now - told)} ago"
        else:
            words += " since its driver was loaded; none has come while it was watched"
        return Finding(
            **_of_gpu(self, node, gpu, whose),  # type: ignore[arg-type]
            severity=whose.worst(node.name) if is_new else "warning",
            summary=words,
            evidence=tuple(f"{growth.by} more, {ago(now - growth.last)} ago" for growth in grown_lately),
            advice=f"drain the node and reset the GPU; {EXCLUDE}; if errors come again, have it replaced",
            since=grown.last if grown is not None else None,
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        return gpu_unseen(state, alert, now, _tells_no_ecc)


def _tells_no_ecc(gpu: Gpu) -> str | None:
    if gpu.state == "ok" and gpu.ecc_uncorrected is None:
        return f"GPU {gpu.index} does not tell its ECC errors"
    return not_ok(gpu)


class RowRemap(Rule, frozen=True, kw_only=True):
    """A GPU has remapped bad rows of its memory and needs a reset (pending), or could not remap them (failed)."""

    name = "row-remap"
    family = "gpus"
    origin = "failed: NVIDIA's criterion to replace a GPU; pending: reset at the next opportunity"

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        whose = Whose(state)
        for node in gpus_seen(state, now):
            for gpu in node.gpus:
                if gpu.remap_failed or gpu.remap_pending:
                    yield self._found(node, gpu, whose)

    def _found(self, node: Node, gpu: Gpu, whose: Whose) -> Finding:
        common = _of_gpu(self, node, gpu, whose)
        if gpu.remap_failed:
            return Finding(
                **common,  # type: ignore[arg-type]
                severity=whose.worst(node.name),
                summary=f"GPU {gpu.index} of {node.name} could not remap bad rows of its memory: no spare is left",
                evidence=("row remap: failed",),
                advice=f"have it replaced: NVIDIA takes it back for this; {EXCLUDE}",
            )
        return Finding(
            **common,  # type: ignore[arg-type]
            severity="warning",
            summary=f"GPU {gpu.index} of {node.name} has bad rows of memory that wait for a reset to be remapped",
            evidence=("row remap: pending",),
            advice="let the job go on; reset the GPU or reboot the node before the next one",
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        return gpu_unseen(state, alert, now, _tells_no_rows)


def _tells_no_rows(gpu: Gpu) -> str | None:
    if gpu.state == "ok" and gpu.remap_pending is None and gpu.remap_failed is None:
        return f"GPU {gpu.index} does not tell its remapped rows"
    return not_ok(gpu)


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
                    yield self._found(state, node, gpu, whose, now)

    def _found(self, state: State, node: Node, gpu: Gpu, whose: Whose, now: Instant) -> Finding:
        error = gpu.error or gpu.state
        others = sum(other.state == "ok" for other in node.gpus)
        words = "is lost" if gpu.state == "lost" else "does not answer"
        is_mild = MISMATCH in error and gpu.state != "lost"
        return Finding(
            **_of_gpu(self, node, gpu, whose),  # type: ignore[arg-type]
            severity="warning" if is_mild else whose.worst(node.name),
            summary=f"GPU {gpu.index} of {node.name} {words}: {error}; {others} of {len(node.gpus)} GPUs answer",
            evidence=_trace(gpu, now),
            advice=(
                "what runs may go on; the node must be rebooted before anything new starts there"
                if is_mild
                else f"the job on it will hang or die: {EXCLUDE}; the node must be drained and rebooted"
            ),
            fires_at_once=gpu.state == "lost",
        )

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        why = gpu_unseen(state, alert, now, lambda gpu: None)
        if why is not None or alert.node is None:
            return why
        node = state.nodes[alert.node]
        known = _expected(node, state)
        return f"{node.name} lists {len(node.gpus)} of its {known} GPUs" if len(node.gpus) < known else None


def _trace(gpu: Gpu, now: Instant) -> tuple[str, ...]:
    said = (gpu.error,) if gpu.error else ()
    if gpu.last_xid is None or gpu.last_xid_at is None:
        return said
    return (f"Xid {gpu.last_xid}, {ago(now - gpu.last_xid_at)} ago", *said)


def _expected(node: Node, state: State) -> int:
    """How many GPUs a node should list. In a cluster with a scheduler a job may be shown its own alone: what was
    listed once is then no measure."""
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
        told = _by_slurm(state)
        for node in nodes_seen(state):
            none = none_listed(node, state)
            words = none or _missing(node, state)
            if words is not None:
                severity = whose.worst(node.name) if none is None else how_bad(node, state, whose)
                said = told.pop(node.name, None)
                yield self._found(node.name, node.cluster, words, severity, node, said, whose)
        for name, said in told.items():
            if _tells_it_itself(state.nodes.get(name), said):
                continue
            if name in state.nodes or whose.name(name) is not None:
                words = f"{counted(said.lost_gpus or 1, 'GPU')} of {name} missing, as Slurm found"
                yield self._found(name, said.cluster, words, whose.worst(name), state.nodes.get(name), said, whose)

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
            advice=f"a reboot may bring them back; else the hardware is at fault: tell its administrators; {EXCLUDE}",
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
                return f"Slurm no longer tells of {alert.node}"
            if told.lost_gpus is not None:
                return f"Slurm still finds fewer GPUs in {alert.node} than it should have"
            return super().blind(state, alert, now)
        return node_unseen(state, alert) or _still_missing(state, alert)


def _still_missing(state: State, alert: Alert) -> str | None:
    """Why it is not over that a node lists what it should: that counted more before a reboot, or a restart of ours."""
    node, found = state.nodes[alert.node or ""], LISTED.search(alert.summary)
    if found is None:
        return still_none(node, state)
    if len(node.gpus) >= int(found[1]):
        return None
    return f"{node.name} lists {len(node.gpus)} GPUs, and had {found[1]}"


def _by_slurm(state: State) -> dict[str, SchedulerNode]:
    """The nodes that Slurm found with fewer GPUs than are configured."""
    return {
        name: told
        for name, told in state.scheduler_nodes.items()
        if told.reason is not None and gpus_missing(told.reason) is not None
    }


def _tells_it_itself(node: Node | None, told: SchedulerNode) -> bool:
    """Whether its own rows show the GPUs that Slurm misses, each with an alert of its own."""
    if node is None:
        return False
    return sum(gpu.state != "ok" for gpu in node.gpus) >= (told.lost_gpus or 1)


def _missing(node: Node, state: State) -> str | None:
    """In words how many GPUs a node lacks that lists some; None where it has all."""
    known = _expected(node, state)
    if not node.gpus or len(node.gpus) >= known:
        return None
    return f"{node.name} lists {len(node.gpus)} of its {known} GPUs: {known - len(node.gpus)} missing"
