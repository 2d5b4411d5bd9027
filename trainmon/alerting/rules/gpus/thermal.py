"""Rules about the load of GPUs: heat, slowdowns, use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, Share, Unknown, Unseen, is_answering, lasted
from trainmon.alerting.rules.nodes import (
    AWAY,
    EXCLUDE,
    GpuRule,
    gpu_finding,
    has_slurm,
    impaired_gpus,
    is_fresh,
    is_of_another_user,
    makes_steps,
    node_and_gpu,
    node_finding,
    nodes_with_gpu_samples,
    past_of,
    runs_by_node,
    sampled_gpus,
)
from trainmon.alerting.rules.runs.base import STEPS
from trainmon.analysis.gpus import EMPTY_MIB, IDLE_GPU_PCT, has_all_gpus
from trainmon.analysis.runs import holds_nodes, is_running
from trainmon.lib import Instant, ago, counted, mib_size
from trainmon.model import SILENT, Alert, Finding, Gpu, Node, NodeHistory, Run, State, verdict_text

# ---- rules about GPUs that slow down ---------------------------------------------------------------------------------

COOL_C = 60
"""A GPU that is cooler than this is not near its limit: some H100 drivers sometimes report a margin of 0."""


class GpuHot(GpuRule, frozen=True, kw_only=True):
    """A GPU is at or near its slowdown temperature. The rule uses the margin that the GPU reports (T.Limit; of AMD, the
    limits of its sensors), in two samples or with a thermal throttle
    reason. Without a margin, it uses degrees, but not for GPUs of AMD, whose junctions may be hotter.

    Defaults: margins: NVIDIA's T.Limit on Hopper; durations: nvidia_gpu_exporter; degrees: common DCGM rules
    """

    needs = ("temperature", "temperature_margin_c", "temperature_c")
    needs_for = True

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires."""
    margin_c: int = 5
    """The alert fires at this many degrees before slowdown, or fewer."""
    critical_margin_c: int = 0
    """The same for critical: the GPU is at its slowdown temperature."""
    critical_for: Duration = 60.0
    """How long the margin must be critical before a critical alert fires, or `for` if that is shorter."""
    temperature_c: int = 85
    """For a GPU without a margin: it is hot at this temperature or above."""
    critical_temperature_c: int = 90
    """The same for critical."""
    memory_temperature_c: int = 95
    """For a GPU without a margin: it is hot at this memory temperature or above."""
    absolute: bool = False
    """Use degrees even if the GPU reports a margin."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for node, gpu in sampled_gpus(state, now):
            margin = gpu.temperature_margin_c
            uses_degrees = self.absolute or (margin is None and not gpu.is_amd)
            if (
                (margin is not None and margin <= self.margin_c and gpu.state == "ok")
                or (uses_degrees and self._has_hot_degrees(gpu))
                or (gpu.throttle and "hw_thermal" in gpu.throttle)
            ):
                yield from self._findings(node, gpu, uses_degrees, state, now)

    def _has_hot_degrees(self, gpu: Gpu) -> bool:
        hot, memory_hot = self.temperature_c, self.memory_temperature_c
        return (gpu.temperature_c or 0) >= hot or (gpu.memory_temperature_c or 0) >= memory_hot

    def _findings(self, node: Node, gpu: Gpu, uses_degrees: bool, state: State, now: Instant) -> Iterator[Finding]:
        past = past_of(state, node.name)
        slowed_at = past.slowed.get((gpu.index, "hw_thermal"))
        since = self._low_since(gpu, past, self.margin_c)
        critical_since = self._low_since(gpu, past, self.critical_margin_c)
        is_critical = critical_since is not None
        if since is None and uses_degrees and self._has_hot_degrees(gpu):
            is_critical = is_critical or (gpu.temperature_c or 0) >= self.critical_temperature_c
        elif since is None and slowed_at is None:
            return
        values = [] if gpu.temperature_c is None else [f"{gpu.temperature_c} °C"]
        if (left := gpu.temperature_margin_c) is not None:
            values.append(f"{left} °C below its limit" if left > 0 else "at its limit")
        elif gpu.memory_temperature_c is not None:
            values.append(f"memory {gpu.memory_temperature_c} °C")
        slowed = "" if slowed_at is None else f", for {ago(now - slowed_at)}"
        margins = [f"margin {margin} °C {ago(now - at)} ago" for at, margin in past.margins.get(gpu.index, ())[-4:]]
        yield gpu_finding(
            self, node, gpu, state,
            severity="critical" if is_critical else "warning",
            summary=f"is {'hot' if slowed_at is None else 'throttling'}: "
            f"{', '.join(values) or 'its temperature is not known'}{slowed}",
            evidence=(*margins, _values(gpu)),
            advice=f"check its fans, its airflow and the temperature of its neighbours; {EXCLUDE}",
            since=min((at for at in (since, slowed_at) if at is not None), default=None),
            fires_at_once=critical_since is not None and lasted(critical_since, state, now) >= self.critical_for,
        )  # fmt: skip

    def _low_since(self, gpu: Gpu, past: NodeHistory, most: int) -> Instant | None:
        """Since when its margin is at most `most`; None if it is larger, or in only one reading of a cool GPU."""
        if gpu.temperature_margin_c is None or gpu.temperature_margin_c > most:
            return None
        margins = reversed(past.margins.get(gpu.index, ()))
        low = [at for at, _ in takewhile(lambda reading: reading[1] <= most, margins)]
        if "hw_thermal" in gpu.throttle or "sw_thermal" in gpu.throttle:
            slowed = (past.slowed.get((gpu.index, reason)) for reason in ("hw_thermal", "sw_thermal"))
            return min([*low, *(at for at in slowed if at is not None)], default=None)
        is_cool = gpu.temperature_c is not None and gpu.temperature_c < COOL_C
        return low[-1] if len(low) > 1 and not is_cool else None


def _values(gpu: Gpu) -> str:
    """The numbers that distinguish a sick GPU from a well one, on one line."""
    parts = [
        f"{gpu.temperature_c} °C" if gpu.temperature_c is not None else "",
        f"{gpu.sm_clock_mhz} MHz" if gpu.sm_clock_mhz is not None else "",
        f"{gpu.power_w:.0f} W" + (f" of {gpu.power_limit_w:.0f} W" if gpu.power_limit_w else "")
        if gpu.power_w is not None
        else "",
        f"{gpu.utilization_pct}% busy" if gpu.utilization_pct is not None else "",
        f"throttle: {', '.join(gpu.throttle)}" if gpu.throttle else "",
        f"{gpu.ecc_uncorrected} uncorrected ECC errors" if gpu.ecc_uncorrected is not None else "",
    ]
    return ", ".join(part for part in parts if part)


class SlowdownRule(GpuRule, frozen=True, kw_only=True):
    """A slowdown that is not about heat."""

    needs_for = True

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires."""
    crawl_mhz: int = 600
    """A busy GPU with a clock below this is critical: it holds up the whole training."""
    critical_for: Duration = 60.0
    """How long the clock must be that low before a critical alert fires, or `for` if that is shorter."""

    reason: ClassVar[str]
    """NVML's throttle reason."""
    explained_by: ClassVar[tuple[str, ...]] = ()
    """Throttle reasons with alerts of their own: then this rule finds nothing."""
    text: ClassVar[str]

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for node, gpu in impaired_gpus(state, now):
            if self.reason not in gpu.throttle or any(other in gpu.throttle for other in self.explained_by):
                continue
            since = past_of(state, node.name).slowed.get((gpu.index, self.reason))
            clock = gpu.sm_clock_mhz
            crawls = clock is not None and clock < self.crawl_mhz and "idle" not in gpu.throttle
            lasts = "" if since is None or now - since < 1.0 else f" (for {ago(now - since)})"
            yield gpu_finding(
                self, node, gpu, state,
                severity="critical" if crawls else "warning",
                summary=f"{self.text}{lasts}: {_values(gpu)}",
                evidence=(_values(gpu),),
                advice=f"the power supply or the board of the node is at fault, not the job: tell the administrators; "
                f"{EXCLUDE}",
                since=since,
                fires_at_once=crawls and since is not None and lasted(since, state, now) >= self.critical_for,
            )  # fmt: skip


class GpuSlowdown(SlowdownRule, frozen=True, kw_only=True):
    """The hardware slows a GPU down, and neither heat nor a power brake is the reason.

    Defaults: NVML's throttle bit 0x8; duration: nvidia_gpu_exporter; H100s were seen at 86 MHz under load, and at 345
    MHz when idle
    """

    reason = "hw_slowdown"
    explained_by = ("hw_thermal", "hw_power_brake")
    text = "is slowed down by its hardware, but not because of heat"


class PowerBrake(SlowdownRule, frozen=True, kw_only=True):
    """A power brake slows a GPU down: the power supply of the node requests it. All other numbers look normal.

    Defaults: NVML's throttle bit 0x80; duration: nvidia_gpu_exporter; H100s were seen at 86 MHz under load, and at 345
    MHz when idle
    """

    reason = "hw_power_brake"
    text = "is slowed down by its power brake"


# ---- rules about the use of GPUs -------------------------------------------------------------------------------------

PAUSES = SILENT | {"starting", "saving", "evaluating", "unknown"}
"""Verdicts of runs whose GPUs may be idle for a reason: an alert stays open meanwhile."""

EVIDENCE = 16
"""Leftover processes that an alert names: two for each GPU of a node."""


class GpuMemoryFull(GpuRule, frozen=True, kw_only=True):
    """The memory of a GPU is nearly full: a larger batch may fail with CUDA out of memory.

    Defaults: our choice: caching allocators stay at 95% for days, so the warning needs less than 400 MiB free of 80 GiB
    """

    needs = ("memory", "memory_used_mib")
    needs_for = True

    for_: Duration = 300.0
    """How long the condition must hold before the alert fires."""
    full: Share = 0.98
    """Info at this share in use, or more."""
    warning: Share = 0.995
    """Warning at this share in use, or more."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        least = min(self.full, self.warning)
        for node, gpu in sampled_gpus(state, now):
            used, total = gpu.memory_used_mib, gpu.memory_total_mib
            if used is not None and total and used >= least * total:
                holders = sorted(gpu.processes, key=lambda process: -(process.memory_mib or 0))
                yield gpu_finding(
                    self, node, gpu, state,
                    severity="warning" if used >= self.warning * total else "info",
                    summary=f"has {mib_size(total - used)} of {mib_size(total)} left",
                    evidence=tuple(f"{p.command or p.pid}: {mib_size(p.memory_mib or 0)}" for p in holders[:4]),
                    advice="use a smaller batch, activation checkpointing or more sharding",
                )  # fmt: skip


class GpuIdle(GpuRule, frozen=True, kw_only=True):
    """A GPU is idle in a running job whose run trains: a dead rank, or work that is not distributed. A GPU that the job
    never used counts only if Slurm allocated all GPUs of the node; otherwise it may belong to another job.

    Defaults: our choice: a healthy training step never leaves a GPU below 5% for ten minutes
    """

    needs = ("utilization", "utilization_pct")
    needs_for = True

    for_: Duration = 600.0
    """How long the condition must hold before the alert fires: longer than a save or an evaluation."""
    busy_pct: int = IDLE_GPU_PCT
    """Utilization in percent above which a GPU is busy."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        sampled = {node.name: node for node in nodes_with_gpu_samples(state, now)}
        for run in state.runs.values():
            trains = run.verdict in STEPS and makes_steps(run, now)
            if not trains or is_running(run, state.jobs, state.sources) is False:
                continue
            job = state.jobs.get(run.job or "")
            began = 0.0 if job is None else job.started_at or 0.0
            has_all = has_all_gpus(job, state)
            for node in (sampled[name] for name in run.spec.nodes if name in sampled):
                emptied = past_of(state, node.name).emptied
                for gpu in node.gpus:
                    if gpu.utilization_pct is None or gpu.utilization_pct > self.busy_pct or gpu.state != "ok":
                        continue
                    was_used = emptied.get(gpu.index, -1.0) >= began
                    is_in_use = was_used or gpu.processes or (gpu.memory_used_mib or 0) >= EMPTY_MIB
                    if (has_all or is_in_use) and not is_of_another_user(gpu, job):
                        yield self._finding(run, node, gpu, state, was_used)

    def _finding(self, run: Run, node: Node, gpu: Gpu, state: State, was_used: bool) -> Finding:
        used = gpu.memory_used_mib or 0
        empty = "has released its memory" if was_used else "is allocated to the job and holds no memory"
        held = f"holds {mib_size(used)}" if used >= EMPTY_MIB else empty
        power = "" if gpu.power_w is None else f", {gpu.power_w:.0f} W"
        return gpu_finding(
            self, node, gpu, state,
            severity="warning",
            summary=f"is idle ({gpu.utilization_pct}%{power}) while {run.name} trains; it {held}",
            evidence=(f"{run.name}: {run.why}", *(f"pid {p.pid}: {p.command}" for p in gpu.processes[:3])),
            advice="check whether its rank died or waits: py-spy dump of its process, or the log of the run (key 4)",
            run=run.name,
        )  # fmt: skip

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        run = state.runs.get(alert.run or "")
        name, index = node_and_gpu(alert.subject)
        if run is None:
            return Unknown(f"the run {alert.run} is no longer watched")
        trains = run.verdict in STEPS
        if trains and name not in run.spec.nodes:
            return None
        if run.verdict in PAUSES or (trains and not makes_steps(run, now)):
            return Unknown(f"{run.name}: {run.why}")
        unseen = super().unseen(state, alert, now)
        if unseen is not None or alert.found_at >= state.started_at or not trains:
            return unseen
        # After a restart of this program, it is not known to which job a GPU without memory belongs.
        gpu = next(gpu for gpu in state.nodes[name].gpus if gpu.index == index)
        is_others = is_of_another_user(gpu, state.jobs.get(run.job or ""))
        is_idle = (gpu.utilization_pct or 0) <= self.busy_pct and not is_others
        text = f"GPU {index} is still idle; it released its memory before this program started"
        return Unknown(text) if is_idle else None


class GpuLeftover(GpuRule, frozen=True, kw_only=True):
    """Memory or processes remain on the GPUs of a node without a job: leftovers of an ended job make the next one fail.
    The rule applies only if Slurm reports the node as idle or, without Slurm, if all runs of the node have ended.

    Defaults: our choice: more than the driver keeps for itself; Meta gcm's check before a job takes 15 MiB
    """

    needs_for = True

    for_: Duration = 600.0
    """How long the condition must hold before the alert fires: longer than an epilog, and than two polls of Slurm's
    nodes."""
    memory_mib: int = EMPTY_MIB
    """The alert fires at this much memory in use (MiB), or more."""
    process_mib: int = 300
    """The same for the memory of one process (MiB). Monitoring processes use less."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for node in nodes_with_gpu_samples(state, now):
            slurm = state.scheduler_nodes.get(node.name)
            if (slurm is not None and slurm.state != "IDLE") or (why := _without_a_job(node, state)) is None:
                continue
            left = [
                gpu
                for gpu in node.gpus
                if (gpu.memory_used_mib or 0) >= self.memory_mib
                or any((process.memory_mib or 0) >= self.process_mib for process in gpu.processes)
            ]
            if left:
                yield self._finding(node, left, why, state)

    def _finding(self, node: Node, left: Sequence[Gpu], why: str, state: State) -> Finding:
        slurm = (f"slurm:{node.cluster}",) if has_slurm(state, node.cluster) else ()
        held = [
            f"GPU {gpu.index}: pid {p.pid} of {p.user or '?'}: {mib_size(p.memory_mib or 0)}, {p.command or '?'}"
            for gpu in left
            for p in gpu.processes
        ]
        pids = {process.pid for gpu in left for process in gpu.processes}
        numbers = ", ".join(str(gpu.index) for gpu in left)
        name = f"GPU {numbers} of {node.name} holds" if len(left) == 1 else f"GPUs {numbers} of {node.name} hold"
        processes = counted(len(pids), "process") if pids else "no visible process"
        return node_finding(
            self, node, state,
            severity="warning",
            summary=f"{name} {mib_size(sum(gpu.memory_used_mib or 0 for gpu in left))}, by {processes}, although {why}",
            evidence=tuple(held[:EVIDENCE]) or ("no visible process holds it",),
            advice="kill the leftover processes, or ask their owner; if none is visible, reset the GPU",
            run=None,
            sources=(f"node:{node.name}", *slurm),
        )  # fmt: skip

    def lacking(self, state: State, node: Node, alert: Alert, now: Instant) -> Unknown | None:
        if not is_fresh(node.gpus_at, state, node.name, now):
            return Unknown(f"the GPUs of {node.name} have not been read lately")
        unread = [gpu.index for gpu in node.gpus if gpu.memory_used_mib is None and gpu.state != "lost"]
        return Unknown(f"GPU {unread[0]} does not report its memory") if unread else None


def _without_a_job(node: Node, state: State) -> str | None:
    """Why no job is on a node; None if there is one, or if it is not known."""
    if not has_slurm(state, node.cluster):
        run = runs_by_node(state).get(node.name)  # a living one, if there is any
        return f"{run.name} is {verdict_text(run.verdict)}" if run is not None and run.verdict in AWAY else None
    slurm = state.scheduler_nodes.get(node.name)
    if slurm is None or slurm.state != "IDLE" or not is_answering(state, f"slurm:{node.cluster}"):
        return None
    is_changing = {"NOT_RESPONDING", "COMPLETING", "POWERING_UP"} & set(slurm.flags)
    is_held = any(node.name in job.nodes and holds_nodes(job) for job in state.jobs.values())
    own = (run for run in state.runs.values() if node.name in run.spec.nodes)
    lives = any(run.verdict in STEPS | PAUSES for run in own)  # started by hand, without the scheduler
    return None if is_changing or is_held or lives else "Slurm has no job there"
