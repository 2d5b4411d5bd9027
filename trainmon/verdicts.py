"""What a run is really doing, and why in a sentence: from its log, its switches and the GPUs of its nodes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainmon.clock import Instant, Seconds
from trainmon.model import Gpu, Node, Progress, Run, Source, Verdict
from trainmon.text import duration

PATIENCE = 10.0
"""A run is late when no step came for this many times its own usual interval, and for at least `stall_after`."""

BUSY_PCT = 90.0
IDLE_PCT = 10.0
LOW_POWER = 0.5
"""GPUs that spin in a collective show 100 % at less than half of their power limit; training does not."""


class Judgement(NamedTuple):
    verdict: Verdict
    why: str


def judge(run: Run, nodes: Mapping[str, Node], sources: Mapping[str, Source], now: Instant) -> Judgement:
    """Weigh the witnesses. What cannot be seen is `unknown`, never `dead`."""
    blind = _blind(run, sources, now)
    if blind is not None:
        return blind
    progress, log = run.progress, run.log
    assert log is not None
    target = run.spec.target_step or progress.target_step
    if target and progress.step is not None and progress.step >= target:
        return Judgement("finished", f"reached step {progress.step:,} of {target:,}")
    armed = run.kill is not None and run.kill.exists
    silent = None if progress.at is None else now - progress.at
    patience = max(run.spec.stall_after, PATIENCE * (progress.cadence_s or 0.0))
    if silent is None:
        return _without_a_step(run, now)
    if silent > patience and not _is_busy(progress, patience, now):
        if armed:
            return Judgement("stopped", f"the kill switch is armed{_since(run, now)}; last {_where(progress)}")
        return _silent(run, _gpus(run, nodes), silent)
    if progress.loss is not None and not math.isfinite(progress.loss):
        return Judgement("diverged", f"the loss is {_number(progress.loss)} at {_where(progress)}")
    tail = f"; kill switch armed{_since(run, now)}" if armed else ""
    if progress.doing != "train" and progress.doing_at is not None:
        doing: Verdict = "evaluating" if progress.doing == "eval" else "saving"
        return Judgement(doing, f"{doing} for {duration(now - progress.doing_at)} after {_where(progress)}{tail}")
    usual = f", usually every {duration(progress.cadence_s)}" if progress.cadence_s else ""
    return Judgement("healthy", f"{_where(progress)} {duration(silent)} ago{usual}{tail}")


def _blind(run: Run, sources: Mapping[str, Source], now: Instant) -> Judgement | None:
    """Unknown, when the log cannot be read now."""
    log = run.log
    if run.spec.log is None:
        return Judgement("unknown", "no log is configured for it")
    if log is None:
        return Judgement("unknown", "its log has not been read yet")
    source = sources.get(f"node:{log.host}")
    if source is not None and source.health in ("late", "down"):
        seen = "" if source.seen_at is None else f" for {duration(now - source.seen_at)}"
        return Judgement("unknown", f"{log.host}, where its log is read, has not answered{seen}")
    if log.error is not None:
        return Judgement("unknown", log.error)
    return None


def _without_a_step(run: Run, now: Instant) -> Judgement:
    log = run.log
    assert log is not None
    if log.at is None:
        return Judgement("idle", "its log is empty")
    quiet = now - log.at
    if quiet > run.spec.stall_after:
        return Judgement("idle", f"its log shows no step, and has not grown for {duration(quiet)}")
    return Judgement("starting", "its log grows, and shows no step yet")


def _silent(run: Run, gpus: Sequence[Gpu], silent: Seconds) -> Judgement:
    progress = run.progress
    usual = f" (usually every {duration(progress.cadence_s)})" if progress.cadence_s else ""
    what = f"no step for {duration(silent)}{usual}, the last was {_where(progress)}"
    utilization = [gpu.utilization_pct for gpu in gpus if gpu.utilization_pct is not None]
    if not utilization:
        return Judgement("stalled", what)
    mean = sum(utilization) / len(utilization)
    if mean <= IDLE_PCT:
        return Judgement("data-stall", f"{what}; its GPUs are idle ({mean:.0f} %)")
    shares = [gpu.power_w / gpu.power_limit_w for gpu in gpus if gpu.power_w is not None and gpu.power_limit_w]
    if mean >= BUSY_PCT and shares and sum(shares) / len(shares) < LOW_POWER:
        power = 100 * sum(shares) / len(shares)
        return Judgement("hung", f"{what}; its GPUs spin at {mean:.0f} % with {power:.0f} % of their power")
    return Judgement("stalled", f"{what}; its GPUs are at {mean:.0f} %")


def _gpus(run: Run, nodes: Mapping[str, Node]) -> list[Gpu]:
    return [gpu for name in run.spec.nodes if name in nodes for gpu in nodes[name].gpus]


def _since(run: Run, now: Instant) -> str:
    if run.kill is None or run.kill.armed_at is None:
        return ""
    by = f" by {run.kill.by}" if run.kill.by else ""
    return f" since {duration(max(0.0, now - run.kill.armed_at))}{by}"


def _is_busy(progress: Progress, patience: Seconds, now: Instant) -> bool:
    """Whether its log said within patience that it evaluates or saves, which takes the time of many steps."""
    return progress.doing != "train" and progress.doing_at is not None and now - progress.doing_at <= patience


def _where(progress: Progress) -> str:
    """How far it is; some trainers print no step, but an epoch that grows."""
    return f"step {progress.step:,}" if progress.step is not None else f"epoch {progress.epoch or 0:.2f}"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite"
