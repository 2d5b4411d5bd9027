"""Rules about what the steps teach: a loss that is no number, a spike, skipped steps, a loss scale at its floor."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar

from trainmon.clock import Instant
from trainmon.fold_pace import loss_scale
from trainmon.model import Run, State
from trainmon.model_alerts import Finding
from trainmon.model_wandb import LossTrouble
from trainmon.rules.base import Duration, ago
from trainmon.rules.runs import advice
from trainmon.rules.runs.base import BETWEEN, LIVING, RunRule, log_source, tail, wandb_source
from trainmon.text import counted


class NumberRule(RunRule, frozen=True, kw_only=True):
    """About a number that comes with the steps: while none comes, nothing is said."""

    unseen_while: ClassVar[frozenset[str]] = BETWEEN

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*log_source(state, run), *_told_by_wandb(state, run))))


class LossNan(NumberRule, frozen=True, kw_only=True):
    """Its loss is NaN or infinite."""

    name: ClassVar[str] = "loss-nan"
    origin: ClassVar[str] = "KempnerForge ends a run after several bad steps in a row; a scaler skips single ones"

    steps: int = 3
    """So many steps in a row; fewer are enough where they last for a minute."""
    hold: Duration = 0.0

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        trouble = _trouble(run, "nan")
        if trouble is None or run.verdict not in LIVING:
            return
        count = max(1, (run.progress.step or 0) - int(trouble.step) + 1)
        if count < self.steps and now - trouble.at < 60.0:
            return
        steps = f", {counted(count, 'step')} and" if count > 1 else ","
        value = "NaN" if math.isnan(trouble.value) else "infinite"
        yield self.found(
            state,
            run,
            "critical",
            f"the {trouble.key} of {run.name} is {value} since step {trouble.step:,.0f}"
            f"{steps} {ago(now - trouble.at)} ago",
            evidence=tail(run),
            advice=f"before it saves that, {advice.ends(run)}; then go back to a checkpoint from before step "
            f"{trouble.step:,.0f}",
            since=trouble.at,
        )


class LossSpike(NumberRule, frozen=True, kw_only=True):
    """Its loss has jumped out of its usual band, and has not come back."""

    name: ClassVar[str] = "loss-spike"
    origin: ClassVar[str] = "OLMo-core: 6 standard deviations above the last 128 losses; here by their median"

    hold: Duration = 120.0
    """How long it must be so: single steps jump, and come back."""
    keep: Duration = 600.0

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        trouble = _trouble(run, "spike")
        if trouble is None or trouble.after or run.verdict not in LIVING:
            return
        usual = "" if trouble.low is None else f" (usually {trouble.low:.3g} to {trouble.high:.3g})"
        is_now = "" if run.progress.loss is None else f", and is {run.progress.loss:.3g} at step {run.progress.step:,}"
        yield self.found(
            state,
            run,
            "warning",
            f"the {trouble.key} of {run.name} rose to {trouble.value:.3g} at step {trouble.step:,.0f}{usual} "
            f"{ago(now - trouble.at)} ago{is_now if run.progress.step is not None else ''}",
            evidence=tail(run),
            advice="look at its curve (key 6); if it does not come back, go back to a checkpoint from before, "
            "skip that data, or lower the learning rate",
            since=trouble.at,
        )


class SkippedSteps(NumberRule, frozen=True, kw_only=True):
    """Every one of its last iterations was skipped: it steps, and learns nothing."""

    name: ClassVar[str] = "skipped-steps"
    origin: ClassVar[str] = "Megatron's loss scale begins at 2^32 and skips some 16 iterations until it fits"

    steps: int = 20
    """So many in a row."""

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        progress = run.progress
        skipped = max(progress.skipped_in_row, run.memory.skipped_in_row)
        if skipped < self.steps or run.verdict not in LIVING:
            return
        scale = loss_scale(run)
        words = "" if scale is None else f"; the loss scale is {scale:g}"
        yield self.found(
            state,
            run,
            "warning",
            f"{run.name} has skipped {skipped:,} iterations in a row, until step {progress.step or 0:,}{words}",
            evidence=tail(run),
            advice="its gradients overflow: look at its loss and gradient norm (key 6); go back to a checkpoint from "
            "before, or train in bf16",
            since=progress.skipping_since,
        )


class LossScaleFloor(NumberRule, frozen=True, kw_only=True):
    """Its loss scale has sunk to its floor: the next overflow ends it, or it learns nothing any more."""

    name: ClassVar[str] = "loss-scale-floor"
    origin: ClassVar[str] = "Megatron's and DeepSpeed's least loss scale is 1; a constant 1, as of bf16, is none"

    floor: float = 1.0
    """The least loss scale of its trainer."""
    keep: Duration = 600.0

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        memory, scale = run.memory, loss_scale(run)
        peak = memory.scale_peak
        words: str | None = None
        since: Instant | None = None
        if memory.floor_at is not None and now - memory.floor_at <= self.keep:
            words, since = f"its log said {ago(now - memory.floor_at)} ago that it cannot sink further", memory.floor_at
        elif run.verdict in LIVING and scale is not None and peak is not None and scale <= self.floor < peak:
            words = f"it is {scale:g} at step {run.progress.step or 0:,}, and was {peak:g}"
        if words is None:
            return
        yield self.found(
            state,
            run,
            "critical",
            f"the loss scale of {run.name} is at its floor: {words}",
            evidence=(memory.floor, *tail(run, 4)) if since is not None else tail(run),
            advice=f"every gradient overflows: {advice.ends(run)}; go back to a checkpoint from before, lower the "
            "learning rate, or train in bf16",
            since=since,
        )


def _trouble(run: Run, kind: str) -> LossTrouble | None:
    """What is odd about its loss, by its log; where that tells none, by W&B."""
    by_log, wandb = run.memory.trouble, run.wandb
    if by_log is not None and by_log.state == kind:
        return by_log
    by_wandb = None if wandb is None or wandb.phase not in ("active", "several") else wandb.trouble
    if by_wandb is None or by_wandb.state != kind:
        return None
    return by_wandb if kind == "nan" or not run.memory.losses else None


def _told_by_wandb(state: State, run: Run) -> tuple[str, ...]:
    return wandb_source(state, run) if "loss" in run.progress.borrowed else ()
