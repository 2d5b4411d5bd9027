"""Rules about GPUs that slow down: because of heat, their hardware, or a power brake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, ago, lasted
from trainmon.alerting.rules.hardware import EXCLUDE, GpuRule, RunsByNode, gpu_finding, sampled_gpus
from trainmon.lib import Instant
from trainmon.model import Finding, Gpu, Node, NodeHistory, State

COOL_C = 60
"""A GPU that is cooler than this is not near its limit: some H100 drivers sometimes report a margin of 0."""

NEW = NodeHistory()


class GpuHot(GpuRule, frozen=True, kw_only=True):
    """A GPU is at or near its slowdown temperature. The rule uses the margin that the GPU reports (T.Limit), in two
    samples or with a thermal throttle reason. It uses degrees only if the GPU reports no margin."""

    name = "gpu-hot"
    origin = "margins: NVIDIA's T.Limit on Hopper; durations: nvidia_gpu_exporter; degrees: common DCGM rules"
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
        runs = RunsByNode(state)
        for node, gpu in sampled_gpus(state, now):
            margin = gpu.temperature_margin_c
            uses_degrees = margin is None or self.absolute
            if (
                (margin is not None and margin <= self.margin_c and gpu.state == "ok")
                or (uses_degrees and self._has_hot_degrees(gpu))
                or (gpu.throttle and "hw_thermal" in gpu.throttle)
            ):
                yield from self._findings(node, gpu, uses_degrees, state, runs, now)

    def _has_hot_degrees(self, gpu: Gpu) -> bool:
        hot, memory_hot = self.temperature_c, self.memory_temperature_c
        return (gpu.temperature_c or 0) >= hot or (gpu.memory_temperature_c or 0) >= memory_hot

    def _findings(
        self, node: Node, gpu: Gpu, uses_degrees: bool, state: State, runs: RunsByNode, now: Instant
    ) -> Iterator[Finding]:
        past = state.node_histories.get(node.name, NEW)
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
            self, node, gpu, runs,
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
        low: list[Instant] = []
        for at, margin in reversed(past.margins.get(gpu.index, ())):
            if margin > most:
                break
            low.append(at)
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
        f"{gpu.utilization_pct} % busy" if gpu.utilization_pct is not None else "",
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
        runs = RunsByNode(state)
        for node, gpu in sampled_gpus(state, now):
            if self.reason not in gpu.throttle or any(other in gpu.throttle for other in self.explained_by):
                continue
            since = state.node_histories.get(node.name, NEW).slowed.get((gpu.index, self.reason))
            clock = gpu.sm_clock_mhz
            crawls = clock is not None and clock < self.crawl_mhz and "idle" not in gpu.throttle
            lasts = "" if since is None or now - since < 1.0 else f" (for {ago(now - since)})"
            yield gpu_finding(
                self, node, gpu, runs,
                severity="critical" if crawls else "warning",
                summary=f"{self.text}{lasts}: {_values(gpu)}",
                evidence=(_values(gpu),),
                advice=f"the power supply or the board of the node is at fault, not the job: tell the administrators; "
                f"{EXCLUDE}",
                since=since,
                fires_at_once=crawls and since is not None and lasted(since, state, now) >= self.critical_for,
            )  # fmt: skip


class GpuSlowdown(SlowdownRule, frozen=True, kw_only=True):
    """The hardware slows a GPU down, and neither heat nor a power brake is the reason."""

    name = "gpu-slowdown"
    origin = (
        "NVML's throttle bit 0x8; duration: nvidia_gpu_exporter; H100s were seen at "
        "86 MHz under load, and at 345 MHz when idle"
    )
    reason = "hw_slowdown"
    explained_by = ("hw_thermal", "hw_power_brake")
    text = "is slowed down by its hardware, but not because of heat"


class PowerBrake(SlowdownRule, frozen=True, kw_only=True):
    """A power brake slows a GPU down: the power supply of the node requests it. All other numbers look normal."""

    name = "power-brake"
    origin = (
        "NVML's throttle bit 0x80; duration: nvidia_gpu_exporter; H100s were seen at "
        "86 MHz under load, and at 345 MHz when idle"
    )
    reason = "hw_power_brake"
    text = "is slowed down by its power brake"
