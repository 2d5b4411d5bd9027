"""Rules about nodes: hosts, Slurm's states, memory, InfiniBand; and what rules about GPUs share with them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, ClassVar

from trainmon.alerting.rules.base import (
    SETTLES,
    Duration,
    Family,
    Rule,
    Share,
    Unknown,
    Unseen,
    Well,
    is_answering,
    is_logging_in,
    is_new,
    is_unread,
    lasted,
    of_last_state,
    silent,
)
from trainmon.analysis.gpus import FRESH
from trainmon.analysis.nodes import BUCKETS, leak, spares
from trainmon.lib import Instant, Seconds, ago, clean, counted, duration, mib_size
from trainmon.model import (
    FAULT_GAP,
    LATE_AFTER,
    Alert,
    Finding,
    Gpu,
    Job,
    Node,
    NodeHistory,
    Run,
    SchedulerNode,
    Severity,
    Source,
    State,
)

# ---- what rules about nodes and GPUs share ---------------------------------------------------------------------------

NEW = NodeHistory()

EXCLUDE = "press X on the node (key 2) to exclude it from the run's pending jobs"
"""The advice for users who are not administrators."""

AWAY = frozenset({"stopped", "finished"})
"""Verdicts of runs that no node can harm."""

PRIORITY = {"dead": 2, "queued": 1, "stopped": 0, "finished": 0}
"""Of several runs on a node, the living one counts. A dead or queued run counts too: the problem may have ended it."""


@of_last_state
def runs_by_node(state: State) -> Mapping[str, Run]:
    """The run that counts on each node."""
    runs = sorted(state.runs.values(), key=lambda run: PRIORITY.get(run.verdict, 3))
    return {node: run for run in runs for node in run.spec.nodes}


def affected_run(state: State, node: str) -> str | None:
    """The name of the run that a problem of a node harms."""
    run = runs_by_node(state).get(node)
    return None if run is None or run.verdict in AWAY else run.name


def is_used(state: State, node: str) -> bool:
    """Whether a run is on a node, or was until it died."""
    run = runs_by_node(state).get(node)
    return run is not None and run.verdict not in AWAY and run.verdict != "queued"


STEPS_AGO = 60.0
CADENCES = 3.0
"""A run trains while its last step is younger than a minute, or than three of its usual intervals."""


def makes_steps(run: Run, now: Instant) -> bool:
    """Whether a run makes steps now. An evaluation that its log does not name makes GPUs idle."""
    at = run.progress.at
    return at is not None and now - at <= max(STEPS_AGO, CADENCES * (run.progress.cadence_s or 0.0))


def is_of_another_user(gpu: Gpu, job: Job | None) -> bool:
    """Whether only other users than that of a job have processes on a GPU."""
    if job is None or not job.user:
        return False
    users = {process.user for process in gpu.processes}
    return bool(users) and users.isdisjoint({job.user, None})


def fault_severity(state: State, node: str) -> Severity:
    """The severity of a broken GPU: a warning if Slurm has no job on the node."""
    slurm = state.scheduler_nodes.get(node)
    is_free = slurm is not None and slurm.state in ("IDLE", "DOWN") and not is_used(state, node)
    return "warning" if slurm is not None and is_free and is_answering(state, f"slurm:{slurm.cluster}") else "critical"


def past_of(state: State, node: str) -> NodeHistory:
    """What was seen of a node so far."""
    return state.node_histories.get(node, NEW)


class NodeRule(Rule, frozen=True, kw_only=True):
    """A rule about nodes. An alert cannot resolve while its node does not answer."""

    family: ClassVar[Family] = "nodes"

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        if alert.event:  # it happened, whether the node answers now or not
            return None
        return unseen_node(state, alert) or self.lacking(state, state.nodes[node_and_gpu(alert.subject)[0]], alert, now)

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        """What an answering node does not tell of the subject of an alert."""
        return None


class GpuRule(NodeRule, frozen=True, kw_only=True):
    """A rule about GPUs. An alert cannot resolve while its GPU does not report the numbers of the rule."""

    family = "gpus"
    needs: ClassVar[tuple[str, ...]] = ()
    """What the numbers are called, then the fields of a GPU that have them. One of the fields is enough."""

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        name, index = node_and_gpu(alert.subject)
        if not is_fresh(node.gpus_at, state, name, now):
            since = "" if node.gpus_at is None else f" for {ago(now - node.gpus_at)}"
            return Unknown(f"the GPUs of {name} have not been read{since}")
        gpu = next((gpu for gpu in node.gpus if gpu.index == index), None)
        if gpu is None:
            return Unknown(f"{name} no longer lists its GPU {index}")
        if gpu.state != "ok":
            return Unknown(f"GPU {index} does not answer: {gpu.error or gpu.state}")
        is_lacking = self.needs and all(getattr(gpu, field) is None for field in self.needs[1:])
        return Unknown(f"GPU {index} does not report its {self.needs[0]}") if is_lacking else None


@of_last_state
def answering_nodes(state: State) -> Sequence[Node]:
    """The nodes that answer now."""
    return [node for name, node in state.nodes.items() if is_answering(state, f"node:{name}")]


@of_last_state
def nodes_with_gpu_samples(state: State, now: Instant) -> Sequence[Node]:
    """The nodes with current GPU samples."""
    return [node for node in answering_nodes(state) if node.gpus and is_fresh(node.gpus_at, state, node.name, now)]


@of_last_state
def sampled_gpus(state: State, now: Instant) -> Sequence[tuple[Node, Gpu]]:
    """The GPUs with current samples, each with its node."""
    return [(node, gpu) for node in nodes_with_gpu_samples(state, now) for gpu in node.gpus]


@of_last_state
def impaired_gpus(state: State, now: Instant) -> Sequence[tuple[Node, Gpu]]:
    """Those of them that do not answer, have errors in their memory or are throttled: few of thousands."""
    return [
        (node, gpu)
        for node, gpu in sampled_gpus(state, now)
        if gpu.state != "ok" or gpu.throttle or gpu.ecc_uncorrected or gpu.remap_failed or gpu.remap_pending
    ]


def is_fresh(at: Instant | None, state: State, node: str, now: Instant) -> bool:
    """Whether numbers of a node are current: younger than a minute, or than three of its periods."""
    if at is None or now - at <= FRESH:
        return at is not None
    source = state.sources.get(f"node:{node}")
    return source is not None and now - at <= LATE_AFTER * source.period


def node_and_gpu(subject: str) -> tuple[str, int | None]:
    """The node and the GPU of `gpu:gpu-001/3` or `gpu:gpu-001/3 xid 79`; of `node:gpu-001 mlx5_0/1` the node alone."""
    kind, _, rest = subject.partition(":")
    name = rest.partition(" ")[0]
    node, _, index = name.rpartition("/")
    return (node, int(index) if index.isdigit() else None) if kind == "gpu" else (name, None)


def unseen_node(state: State, alert: Alert) -> Unknown | None:
    """Why the state of the node is unknown: its source does not answer, or it is not watched."""
    name, _ = node_and_gpu(alert.subject)
    return silent(state, alert.sources) if name in state.nodes else Unknown(f"{name} is no longer watched")


def node_finding(rule: Rule, node: Node, state: State, severity: Severity, summary: str, **more: Any) -> Finding:
    """A finding about a node. `more` has further fields, or others than these."""
    known: dict[str, Any] = {
        "rule": rule.name,
        "subject": f"node:{node.name}",
        "severity": severity,
        "summary": summary,
        "cluster": node.cluster,
        "run": affected_run(state, node.name),
        "node": node.name,
        "sources": (f"node:{node.name}",),
    }
    return Finding(**known | more)


def gpu_finding(
    rule: Rule, node: Node, gpu: Gpu, state: State, severity: Severity, summary: str, **more: Any
) -> Finding:
    """A finding about a GPU; its summary begins with the GPU's name."""
    more["subject"] = f"gpu:{node.name}/{gpu.index}"
    return node_finding(rule, node, state, severity, f"GPU {gpu.index} of {node.name} {summary}", **more)


def has_slurm(state: State, cluster: str) -> bool:
    """Whether Slurm reports the nodes of a cluster."""
    source = state.sources.get(f"slurm:{cluster}")
    return source is not None and source.answered_at is not None


# ---- rules about nodes -----------------------------------------------------------------------------------------------

# ---- rules about hosts -----------------------------------------------------------------------------------------------

PLANNED = frozenset({"MAINTENANCE", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN", "POWERING_UP", "REBOOT_REQUESTED",
                     "REBOOT_ISSUED"})  # fmt: skip
"""Slurm's flags of planned work of an administrator or a power saver."""


LATE_LOG: Seconds = 30.0
"""A step this long after a node's last answer shows that the run went on, on whichever host its log is read."""


class NodeUnreachable(NodeRule, frozen=True, kw_only=True):
    """A node is unreachable, or its data is late. A node that accepts logins only during a job is not a fault while it
    has none. A node that accepts connections and has not finished its first login is a warning for 2 minutes.

    Defaults: our choice: a lost connection is opened again within seconds, so a minute is long
    """

    may_flap = False

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires. The time since its last data counts."""
    silent: Duration = 120.0
    """How late the data of a node with an open connection may be."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for source in state.sources.values():
            is_silent = source.kind == "node" and source.health not in ("ok", "off")
            if not is_silent or is_new(source, state, now) or is_unread(source, state):
                continue
            quiet = None if source.answered_at is None else lasted(source.answered_at, state, now)
            node = source.name.removeprefix("node:")
            began, limit = (source.login_since, SETTLES) if source.login_since else (source.answered_at, self.silent)
            is_late = source.health != "late" or (began is not None and lasted(began, state, now) > limit)
            if is_late and (is_used(state, node) or not is_planned(state.scheduler_nodes.get(node))):
                yield self._finding(node, source, quiet, state, now)

    def _finding(self, node: str, source: Source, quiet: Seconds | None, state: State, now: Instant) -> Finding:
        is_held, run = source.phase == "held", runs_by_node(state).get(node)
        held = "waits for a login" if source.can_log_in else "cannot be logged in to"
        is_slow = is_logging_in(source, state, now)
        problem = held if is_held else "is late" if source.health == "late" and not is_slow else "is unreachable"
        error = source.problem or (
            "its first login is not finished"
            if is_slow
            else "connected, but no new sample"
            if source.via is None
            else "no new sample"
        )
        since = "no data yet" if source.answered_at is None else f"last data {ago(now - source.answered_at)} ago"
        steps = _still_trains(run, source.answered_at or state.started_at, now)
        return Finding(
            rule=self.name,
            subject=f"node:{node}",
            severity="critical" if is_used(state, node) and not (is_held or steps or is_slow) else "warning",
            summary=f"{node} {problem}: {error}; {since}{steps}",
            evidence=(*_by_slurm(state.scheduler_nodes.get(node)), *filter(None, [clean(source.stderr or "")])),
            advice=source.hint or f"try: ssh {node}; the run may still train there: see its log; {EXCLUDE}",
            cluster=source.cluster,
            run=None if run is None else run.name,
            node=node,
            since=source.answered_at,
            fires_at_once=quiet is not None and quiet >= self.for_,
            by_age=True,
        )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """It is over when the node answers, or is not wanted now."""
        source = state.sources.get(f"node:{alert.node}")
        if source is None:
            return Unknown(f"{alert.node} is no longer watched")
        if source.health not in ("ok", "off") and not is_planned(state.scheduler_nodes.get(alert.node or "")):
            return Unknown(f"no data from {alert.node} yet")
        rebooted_at = past_of(state, alert.node or "").rebooted_at
        return Well("; it has rebooted since") if rebooted_at is not None and rebooted_at >= alert.since else None


def _still_trains(run: Run | None, silent_since: Instant, now: Instant) -> str:
    """A text if the run of a silent node still makes steps: then only the connection is broken. A log on a shared disk
    may be late by half a minute."""
    at = None if run is None else run.progress.at
    if run is None or at is None or at - silent_since < LATE_LOG or not makes_steps(run, now):
        return ""
    return f"; {run.name} still trains, its last step was {ago(now - at)} ago"


def is_planned(slurm: SchedulerNode | None) -> bool:
    """Whether Slurm has switched a node off, has it in maintenance, or boots it."""
    return slurm is not None and bool(PLANNED & set(slurm.flags))


def _by_slurm(slurm: SchedulerNode | None) -> tuple[str, ...]:
    """The state of a node according to Slurm, as evidence."""
    reason = f", {slurm.reason}" if slurm is not None and slurm.reason else ""
    return () if slurm is None else (f"Slurm: {'+'.join((slurm.state, *slurm.flags))}{reason}",)


class NodeRebooted(NodeRule, frozen=True, kw_only=True):
    """A node has rebooted while it was watched.

    Defaults: our choice: the boot time is compared by two clocks, so a clock that is set is not taken for a reboot
    """

    news: Duration = 1_800.0
    """How long the reboot is reported."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for name, past in state.node_histories.items():
            if past.rebooted_at is None or now - past.rebooted_at > self.news or name not in state.nodes:
                continue
            slurm = state.scheduler_nodes.get(name)
            job = "; its job is lost: check that the next one runs (key 7)" if affected_run(state, name) else ""
            planned = is_planned(slurm)
            yield node_finding(
                self, state.nodes[name], state,
                severity="info" if planned else "critical" if is_used(state, name) else "warning",
                summary=f"{name} rebooted {ago(now - past.rebooted_at)} ago{', as planned' if planned else ''}",
                evidence=_by_slurm(slurm),
                advice=f"to see why, run there: journalctl -b -1 -p err{job}",
                since=past.rebooted_at,
                event=True,
            )  # fmt: skip


class ClockSkew(NodeRule, frozen=True, kw_only=True):
    """The clock of a node differs from the clock of this machine. If most nodes differ by the same amount, the clock of
    this machine is wrong.

    Defaults: our choice: over SSH, node_exporter's limit of 0.05s cannot be distinguished from a slow packet
    """

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires."""
    most: Duration = 2.0
    """The largest difference that is tolerated."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        skews = {
            node.name: node.clock_skew_s
            for node in answering_nodes(state)
            if node.clock_skew_s is not None and node.probe != "prometheus"
        }
        off = {name: skew for name, skew in skews.items() if abs(skew) > self.most}
        if not off:
            return
        ours, known = -median(off.values()), len(skews)
        alike = [name for name, skew in off.items() if abs(skew + ours) <= self.most]
        if (len(alike) >= 3 and 2 * len(alike) > known) or (len(alike) == known and known > 1):
            off = {name: skew for name, skew in off.items() if name not in alike}
            yield Finding(
                rule=self.name,
                subject="self",
                severity="warning",
                summary=f"the clock of this machine is {duration(abs(ours))} {'ahead' if ours > 0 else 'behind'}:"
                f" {len(alike)} of {known} nodes agree on it",
                advice="correct the clock (chronyc tracking, timedatectl): all ages and times depend on it",
            )
        for name, skew in off.items():
            yield node_finding(
                self, state.nodes[name], state,
                severity="warning",
                summary=f"the clock of {name} is {duration(abs(skew))} {'ahead of' if skew > 0 else 'behind'}"
                    " the clock of this machine",
                advice="run chronyc tracking there: rendezvous, logs and Slurm depend on the clock",
            )  # fmt: skip

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        if alert.subject != "self":
            return super().unseen(state, alert, now)
        return None if answering_nodes(state) else Unknown("no node is reachable, so clocks cannot be compared")

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        return Unknown("only SSH shows its clock, not Prometheus") if node.probe == "prometheus" else None


# ---- rules about what Slurm says of nodes ----------------------------------------------------------------------------

DOWN = frozenset({"DOWN", "FAIL", "FAILING", "ERROR"})
DOWN_FLAGS = frozenset({"DOWN", "FAIL", "NOT_RESPONDING"})

UNANSWERED = "gets no answer from {}"

DRAINED = "its job continues, and no new job starts there: if its GPUs are at fault, save (S) and queue another job (N)"


class NodeDrained(NodeRule, frozen=True, kw_only=True):
    """Slurm drains a watched node, marks it down or failing, or gets no answer from it. A down node with a run is
    critical. On a node without a run, a state older than `old` is only info.

    Defaults: Slurm's own states; SlurmdTimeout is 5m; after a day, a repair is no longer news
    """

    needs_for = True

    for_: Duration = 300.0
    """How long Slurm must get no answer from a node: one missed ping means nothing. All other states fire at once."""
    old: Duration = 86_400.0
    """After this time, the alert is only info if the node has no run."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for name, slurm in state.scheduler_nodes.items():
            if not slurm.flags and slurm.state not in DOWN:
                continue
            text, is_ours = _text(slurm), name in state.nodes or affected_run(state, name) is not None
            if text is not None and is_ours and is_answering(state, f"slurm:{slurm.cluster}"):
                is_down = slurm.state in DOWN or bool(DOWN_FLAGS & set(slurm.flags))
                has_run, at = is_used(state, slurm.name), slurm.reason_at
                is_old = not has_run and at is not None and now - at > self.old
                by = f" (by {slurm.reason_by})" if slurm.reason_by else ""
                since = f" (for {ago(now - at)})" if at is not None else ""
                cluster = state.clusters.get(slurm.cluster)
                is_mine = cluster is not None and cluster.me is not None and cluster.me == slurm.reason_by
                yield Finding(
                    rule=self.name,
                    subject=f"node:{slurm.name}",
                    severity="info" if is_old else "critical" if is_down and has_run else "warning",
                    summary=f"Slurm {text.format(slurm.name)}{since}: {slurm.reason or 'no reason is given'}{by}",
                    evidence=(f"{'+'.join((slurm.state, *slurm.flags))} {slurm.reason or ''}".strip(),),
                    advice=DRAINED
                    if has_run and slurm.is_drained
                    else "sinfo -R shows the reason; ask the administrators of the cluster",
                    cluster=slurm.cluster,
                    run=affected_run(state, slurm.name),
                    node=slurm.name,
                    sources=(f"slurm:{slurm.cluster}",),
                    since=at,
                    fires_at_once=text != UNANSWERED,
                    person=is_mine and slurm.is_drained and not is_down,
                )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        is_listed = alert.node in state.scheduler_nodes
        return silent(state, alert.sources) if is_listed else Unknown(f"Slurm no longer lists {alert.node}")


def _text(slurm: SchedulerNode) -> str | None:
    """What Slurm does with a node; None if that is normal or planned."""
    flags = set(slurm.flags)
    if slurm.state in DOWN or "DOWN" in flags:
        return "has marked {} down" if not PLANNED & flags else None
    if "FAIL" in flags:
        return "has marked {} failing"
    if PLANNED & flags:
        return None
    return UNANSWERED if "NOT_RESPONDING" in flags else "drains {}" if "DRAIN" in flags else None


class SparesFew(NodeRule, frozen=True, kw_only=True):
    """A cluster has fewer healthy idle nodes than wanted (`spares`): a failed node could not be replaced.

    Defaults: the cluster's `spares`; duration: jobs end and begin
    """

    needs_for = True

    for_: Duration = 600.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for found in spares(state) if any(cluster.spares for cluster in state.clusters.values()) else ():
            if found.are_missing and is_answering(state, f"slurm:{found.cluster}"):
                nodes = (node for node in state.scheduler_nodes.values() if node.cluster == found.cluster)
                yield Finding(
                    rule=self.name,
                    subject=f"cluster:{found.cluster}",
                    severity="warning",
                    summary=f"{found.cluster} has {counted(found.idle_healthy or 0, 'healthy spare node')},"
                    f" but {found.wanted} are wanted; {found.drained or 0} drained",
                    evidence=tuple(f"{node.name}: {node.reason or 'drained'}" for node in nodes if node.is_drained)[:8],
                    advice="have drained nodes repaired (sinfo -R), or free nodes with a smaller job",
                    cluster=found.cluster,
                    sources=(f"slurm:{found.cluster}",),
                )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        is_known = any(one.cluster == alert.cluster and one.idle_healthy is not None for one in spares(state))
        unknown = None if is_known else Unknown(f"Slurm does not report the idle nodes of {alert.cluster}")
        return silent(state, alert.sources) or unknown


# ---- rules about the memory of hosts ---------------------------------------------------------------------------------


class MemoryRule(NodeRule, frozen=True, kw_only=True):
    """A rule about the memory in use on a host."""

    def nodes(self, state: State, now: Instant, share: float) -> Iterator[tuple[Node, int, int]]:
        """The nodes with at least this share in use now, each with its used and total MiB."""
        for node in answering_nodes(state):
            used, total = node.memory_used_mib, node.memory_total_mib
            if used is not None and total and used >= share * total and is_fresh(node.host_at, state, node.name, now):
                yield node, used, total

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        is_known = node.memory_used_mib is not None and is_fresh(node.host_at, state, node.name, now)
        return None if is_known else Unknown(f"{node.name} does not report its memory")


class MemoryFull(MemoryRule, frozen=True, kw_only=True):
    """The memory of a host is nearly full. When it is full, the kernel kills a large process, usually the trainer.

    Defaults: memory in use: all but MemAvailable; node_exporter warns at 90%, which pinned memory reaches by design
    """

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires."""
    full: Share = 0.95
    """Warning at this share in use, or more."""
    critical: Share = 0.98
    """Critical at this share in use, or more."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for node, used, total in self.nodes(state, now, min(self.full, self.critical)):
            commands = dict.fromkeys(p.command for gpu in node.gpus for p in gpu.processes if p.command)
            yield node_finding(
                self, node, state,
                severity="critical" if used >= self.critical * total else "warning",
                summary=f"{node.name} has {mib_size(total - used)} of {mib_size(total)} memory left"
                f" ({100 * used / total:.1f}% in use)",
                evidence=tuple(f"on its GPUs: {command}" for command in list(commands)[:3]),
                advice="use fewer dataloader workers or less pinned memory; see: ps aux --sort=-rss | head",
            )  # fmt: skip


class MemoryLeak(MemoryRule, frozen=True, kw_only=True):
    """The memory in use on a host grows steadily and will run out. The rule uses the minimum of every ten minutes over
    up to three hours, so memory that comes and goes is not a leak.

    Defaults: our choice: a rising minimum over an hour, at a rate that does not slow down
    """

    keep_firing_for: Duration = 1_800.0
    """How long the condition must be gone before the alert resolves: three of the ten-minute windows."""
    within: Duration = 43_200.0
    """The alert fires if the memory would run out within this time."""
    critical: Duration = 7_200.0
    """The same for critical."""
    used: Share = 0.5
    """A host with less than this share in use is ignored."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for node, used, total in self.nodes(state, now, self.used):
            floors = past_of(state, node.name).floors
            found = leak(floors, total, now)
            if found is not None and (left := found.full_at - now) <= self.within:
                yield node_finding(
                    self, node, state,
                    severity="critical" if left <= self.critical else "warning",
                    summary=f"the memory of {node.name} has grown by {mib_size(found.mib_per_hour)} per hour for"
                    f" {ago(now - found.since)}: it will run out in {ago(left)}"
                    f" ({mib_size(used)} of {mib_size(total)} in use)",
                    evidence=tuple(f"{ago(now - at)} ago: {mib_size(floor)}" for at, floor in floors[-7:]),
                    advice="save (S) and restart before it is full; then see what the "
                    "dataloader or the logger keeps in memory",
                    since=found.since,
                )  # fmt: skip

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        unknown = super().lacking(state, node, alert, now)
        is_little = (node.memory_used_mib or 0) < self.used * (node.memory_total_mib or 0)
        if unknown is not None or is_little or len(past_of(state, node.name).floors) > BUCKETS:
            return unknown
        return Unknown(f"the memory of {node.name} has been watched for too short a time")


class OomKill(NodeRule, frozen=True, kw_only=True):
    """The kernel killed processes because memory ran out, on the whole host or in the memory limit of a job.

    Defaults: any growth of oom_kill in /proc/vmstat; awesome-prometheus-alerts also looks back half an hour
    """

    news: Duration = 1_800.0
    """How long the last kill is reported."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
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
                self, state.nodes[name], state,
                severity="critical" if is_used(state, name) else "warning",
                summary=f"the kernel killed {count} process{'' if count == 1 else 'es'} on {name} because memory ran"
                f" out, the last {ago(now - burst[-1].last)} ago",
                evidence=tuple(f"{counted(growth.by, 'kill')} {ago(now - growth.last)} ago" for growth in burst[-6:]),
                advice="journalctl -k | grep -i oom names them; a dead dataloader worker hangs its rank: watch the run",
                since=burst[0].first,
                event=True,
            )  # fmt: skip


# ---- rules about InfiniBand ports ------------------------------------------------------------------------------------

UP = "ACTIVE"
PEERS = 3
"""A port that was never up counts as down only if it is up on this many nodes, and on nine of ten nodes of the cluster:
a port without a cable is not a fault."""


class InfinibandDown(NodeRule, frozen=True, kw_only=True):
    """An InfiniBand port is not ACTIVE, although it was before or is on nearly all other nodes of the cluster.

    Defaults: NVIDIA's resiliency extension: a port that was never up is not a fault; duration: a link may retrain
    """

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        common: dict[str, set[str]] = {}
        for node in answering_nodes(state):
            links = past_of(state, node.name).links
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
                        self, node, state,
                        subject=f"node:{node.name} {port}",
                        severity="critical" if is_used(state, node.name) else "warning",
                        summary=f"InfiniBand port {port} of {node.name} is {port_state}; "
                        f"{up} of {count} ports are {UP}",
                        evidence=tuple(f"{other.port}: {other.state or 'unknown'}" for other in node.infiniband[:9]),
                        advice=f"its cable, switch port or adapter is at fault: tell the administrators; {EXCLUDE}",
                    )  # fmt: skip

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        port = alert.subject.partition(" ")[2]
        port_state = next((other.state for other in node.infiniband if other.port == port), None)
        if port_state is None:
            return Unknown(f"{node.name} does not report its port {port}")
        was_never_up = f"{port} is {port_state}; it has never been {UP} since this program started"
        return None if port_state == UP else Unknown(was_never_up)


def _common(state: State, cluster: str) -> set[str]:
    """The ports that are up on nearly all nodes of a cluster."""
    nodes = [node.infiniband for node in answering_nodes(state) if node.cluster == cluster and node.infiniband]
    up = Counter(port.port for ports in nodes for port in ports if port.state == UP)
    return {port for port, count in up.items() if count >= max(PEERS, 0.9 * len(nodes))}


class InfinibandFlapping(NodeRule, frozen=True, kw_only=True):
    """An InfiniBand port went down and came back, or its errors accumulate. The alert stays for a while after the last
    event, because a link that failed once fails again.

    Defaults: twice in five minutes: ByteRobust; ten minutes after: leptonai gpud
    """

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
        begin = now - self.sticky
        for name, past in state.node_histories.items():
            for key, counter in past.counters.items():
                if not counter.grown or counter.grown[-1].last < begin:
                    continue
                kind, _, port = key.partition(" ")
                node = state.nodes.get(name)
                if node is None or kind not in ("link_downed", "errors"):
                    continue
                count, is_down = counter.since(begin), kind == "link_downed"
                fallen = past.counters.get(f"link_downed {port}")
                if not is_down and (count < self.errors or (fallen is not None and fallen.since(begin))):
                    continue
                last = f", the last {ago(now - counter.grown[-1].last)} ago" if is_down else ""
                what = f"went down {counted(count, 'time')}" if is_down else f"had {counted(count, 'error')}"
                falls = is_down and counter.since(now - self.within) >= self.falls
                yield node_finding(
                    self, node, state,
                    severity="critical" if falls and is_used(state, node.name) else "warning",
                    summary=f"InfiniBand port {port} of {node.name} {what} in {ago(self.sticky)}{last}",
                    subject=f"node:{node.name} {port}",
                    evidence=tuple(f"{one.by:,} more, {ago(now - one.last)} ago" for one in counter.grown[-6:]),
                    advice=f"its cable or switch port is failing: tell the administrators; "
                    f"if the run slows down, {EXCLUDE}",
                )  # fmt: skip

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        port = alert.subject.partition(" ")[2]
        if all(other.port != port for other in node.infiniband):
            return Unknown(f"{node.name} does not report its port {port}")
        was_before = alert.found_at < state.started_at and now - alert.found_at <= self.sticky
        return Unknown("it went down before this program started") if was_before else None
