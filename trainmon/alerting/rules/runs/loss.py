"""Rules about training health: a loss that is NaN, a loss spike, skipped steps, a loss scale at its floor."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import ClassVar

from trainmon.alerting.rules.base import Duration, Unknown, Unseen, ago
from trainmon.alerting.rules.runs import advice
from trainmon.alerting.rules.runs.base import (
    BETWEEN,
    LIVING,
    RunRule,
    file_source,
    log_source,
    present_in,
    tail,
    wandb_source,
)
from trainmon.analysis.runs import AT_LEAST, SIGMAS, loss_scale, trouble_of
from trainmon.lib import Instant, counted
from trainmon.model import Alert, Finding, Run, State

SPIKE = re.compile(r"^(the .* rose to .* \(usually (\S+) to (\S+)\)) ")
"""Reads our own summary: what happened, and between which values nine of ten were before."""

SIGMAS_BETWEEN = 3.29
"""The standard deviations between these two values, if the numbers are normally distributed."""


class MetricRule(RunRule, frozen=True, kw_only=True):
    """A rule about a number that comes with the steps. Without new steps, its alerts stay as they are."""

    unknown_while: ClassVar[frozenset[str]] = BETWEEN

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        by_wandb = wandb_source(state, run) if "loss" in run.progress.borrowed else ()
        return tuple(dict.fromkeys((*log_source(state, run), *by_wandb, *file_source(state, run))))

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """After a restart, this program knows only the new numbers: that alone does not end an alert."""
        unseen, run = super().unseen(state, alert, now), state.runs.get(alert.run or "")
        if unseen is not None or run is None or alert.found_at >= state.started_at or run.verdict not in LIVING:
            return unseen
        return self.after_restart(state, run, alert)

    def after_restart(self, state: State, run: Run, alert: Alert) -> Unknown | None:
        """Why an alert from before this program's start is not over, although it is not found."""
        return None


class LossNan(MetricRule, frozen=True, kw_only=True):
    """The loss is NaN or infinite."""

    name: ClassVar[str] = "loss-nan"
    origin: ClassVar[str] = "KempnerForge ends a run after several bad steps in a row; a loss scaler skips single ones"

    steps: int = 3
    """The alert fires after this many bad steps in a row, or if fewer last for a minute."""
    for_: Duration = 0.0

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        trouble = trouble_of(run, "nan")
        if trouble is None or run.verdict not in LIVING:
            return
        count = max(1, (run.progress.step or 0) - int(trouble.step) + 1)
        if count < self.steps and now - trouble.at < 60.0:
            yield self.unknown(run, "its loss has just become NaN again")
            return
        steps = f"{counted(count, 'step')}, " if count > 1 else ""
        value = "NaN" if math.isnan(trouble.value) else "infinite"
        since = f"{value} since step {trouble.step:,.0f} ({steps}{ago(now - trouble.at)} ago)"
        progress = run.progress
        if (
            trouble is not run.memory.trouble
            and "loss" in progress.printed
            and "loss" not in progress.borrowed
            and progress.loss is not None
            and math.isfinite(progress.loss)
            and (progress.at or 0.0) > trouble.at
        ):  # the log itself shows a number since W&B has shown none: it may be another metric, or that of one rank
            yield self.finding(
                state,
                run,
                "warning",
                f"the {trouble.key} of {run.name} has been {since} in W&B, but its log says {progress.loss:.4g} at "
                f"step {progress.step or 0:,}",
                evidence=tail(run),
                advice="compare its curve (key 6) with its log (key 4): W&B may show a single rank's value",
                since=trouble.at,
            )
            return
        yield self.finding(
            state,
            run,
            "critical",
            f"the {trouble.key} of {run.name} has been {since}",
            evidence=tail(run),
            advice=f"end it before its next save ({advice.ends(run)}); then resume from a checkpoint from before step "
            f"{trouble.step:,.0f}",
            since=trouble.at,
            by_age=count < self.steps,
        )


class LossSpike(MetricRule, frozen=True, kw_only=True):
    """The loss has jumped out of its usual band and has not come back."""

    name: ClassVar[str] = "loss-spike"
    origin: ClassVar[str] = (
        "OLMo-core: 6 standard deviations above the mean of the last 128 losses; here above their median"
    )
    needs_for: ClassVar[bool] = True

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a single step may jump and come back."""
    keep_firing_for: Duration = 600.0
    settled: Duration = 43_200.0
    """After this long, the higher loss counts as usual."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.verdict not in LIVING:
            return
        trouble, rise = trouble_of(run, "spike"), self._reported(state, run, now)
        is_single = trouble is not None and run.progress.at is not None and run.progress.at <= trouble.at
        if rise is None and trouble is not None and not trouble.after:
            usual = "" if trouble.low is None else f" (usually {trouble.low:.3g} to {trouble.high:.3g})"
            what = f"the {trouble.key} of {run.name} rose to {trouble.value:.3g} at step {trouble.step:,.0f}{usual}"
            rise = what, trouble.at
        if rise is None:
            return
        loss, step = run.progress.loss, run.progress.step
        is_now = "" if loss is None or step is None else f", and is {loss:.3g} at step {step:,}"
        yield self.finding(
            state,
            run,
            "warning",
            f"{rise[0]} {ago(now - rise[1])} ago{is_now}",
            evidence=tail(run),
            advice="look at its curve (key 6); if it does not come back, resume from an earlier checkpoint, "
            "skip that data, or lower the learning rate",
            since=rise[1],
            is_unconfirmed=is_single,
        )

    def _reported(self, state: State, run: Run, now: Instant) -> tuple[str, Instant] | None:
        """The spike of the open alert and its time, while the loss has not come back: soon the band of the last steps
        is that of the spike itself."""
        loss = run.progress.loss
        for alert in state.alerts.values():
            if not alert.is_open or (alert.rule, alert.run) != (self.name, run.name):
                continue
            found = SPIKE.search(alert.summary)
            if found is None or loss is None or now - alert.since > self.settled:
                return None
            low, high = float(found[2]), float(found[3])
            middle = (low + high) / 2
            if loss > middle + max(SIGMAS * (high - low) / SIGMAS_BETWEEN, AT_LEAST * abs(middle)):
                return found[1], alert.since
        return None


class SkippedSteps(MetricRule, frozen=True, kw_only=True):
    """Every recent iteration was skipped: the run makes steps but does not learn."""

    name: ClassVar[str] = "skipped-steps"
    origin: ClassVar[str] = "Megatron's loss scale starts at 2^32 and skips about 16 iterations until it fits"

    steps: int = 20
    """The alert fires after this many skipped iterations in a row."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        progress = run.progress
        skipped = max(progress.skipped_in_row, run.memory.skipped_in_row)
        if skipped < self.steps or run.verdict not in LIVING:
            return
        scale = "" if (value := loss_scale(run)) is None else f"; the loss scale is {value:g}"
        yield self.finding(
            state,
            run,
            "warning",
            f"{run.name} has skipped {skipped:,} iterations in a row, until step {progress.step or 0:,}{scale}",
            evidence=tail(run),
            advice="its gradients overflow: look at its loss and gradient norm (key 6); resume from an earlier "
            "checkpoint, or train in bf16",
            since=progress.skipping_since,
        )

    def after_restart(self, state: State, run: Run, alert: Alert) -> Unknown | None:
        skipped = max(run.progress.skipped_in_row, run.memory.skipped_in_row)
        return Unknown(f"{counted(skipped, 'skipped iteration')} since this program started") if skipped else None


class LossScaleFloor(MetricRule, frozen=True, kw_only=True):
    """The loss scale has fallen to its minimum: the next overflow ends the run, or it no longer learns."""

    name: ClassVar[str] = "loss-scale-floor"
    origin: ClassVar[str] = "the minimum of Megatron and DeepSpeed is 1; a constant 1, as with bf16, does not count"

    floor: float = 1.0
    """The minimum loss scale of the trainer."""
    keep_firing_for: Duration = 600.0

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        memory, scale = run.memory, loss_scale(run)
        peak = memory.scale_peak
        since: Instant | None = None
        if memory.floor_at is not None and now - memory.floor_at <= self.keep_firing_for:
            since = memory.floor_at
            text = f"{ago(now - since)} ago its log said that it cannot be reduced further"
        elif run.verdict in LIVING and scale is not None and peak is not None and scale <= self.floor < peak:
            text = f"it is {scale:g} at step {run.progress.step or 0:,}, and was {peak:g}"
        else:
            return
        yield self.finding(
            state,
            run,
            "critical",
            f"the loss scale of {run.name} is at its floor: {text}",
            evidence=(memory.floor, *tail(run, 4)) if since is not None else tail(run),
            advice=f"every gradient overflows: {advice.ends(run)}; resume from an earlier checkpoint, lower the "
            "learning rate, or train in bf16",
            since=since,
        )

    def after_restart(self, state: State, run: Run, alert: Alert) -> Unknown | None:
        scale, job = loss_scale(run), present_in(state, run)
        if scale is None or scale > self.floor or (job is not None and (job.started_at or 0.0) > alert.found_at):
            return None
        return Unknown(f"it is still {scale:g}; its value before this program started is not known")
