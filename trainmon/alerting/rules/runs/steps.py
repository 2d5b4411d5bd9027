"""Rules about the steps of a run: their loss, their pace, and stalls. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from statistics import median
from typing import ClassVar, NamedTuple

from msgspec.structs import replace

from trainmon.alerting.rules.base import Duration, Share, Unknown, Unseen, Well, open_alert, silent
from trainmon.alerting.rules.nodes import is_of_another_user
from trainmon.alerting.rules.runs.base import (
    BETWEEN,
    LIVING,
    STEPS,
    UNKNOWN,
    RunRule,
    file_source,
    how_to_cancel,
    how_to_requeue,
    how_to_see_stacks,
    log_source,
    present_in,
    tail,
    wandb_source,
)
from trainmon.alerting.rules.runs.peers import rank_maps, ranks_on, rate_of
from trainmon.analysis.attempts import leading, place_of, rank_processes, told
from trainmon.analysis.gpus import gpus_of, is_empty, is_read
from trainmon.analysis.runs import (
    AT_LEAST,
    ENOUGH,
    SIGMAS,
    STILL,
    is_late,
    is_new_attempt,
    last_line_at,
    loss_scale,
    rate_source,
    state_of,
    trouble_of,
)
from trainmon.analysis.runs.peers import late
from trainmon.lib import MINUTE, Instant, Seconds, ago, by_key, counted
from trainmon.model import (
    SILENT,
    SLOW_AT_MOST,
    WANDB,
    Alert,
    Finding,
    Gpu,
    GpuAverage,
    Job,
    RankSteps,
    Run,
    Severity,
    State,
    verdict_text,
)

# ---- rules about the loss of a run -----------------------------------------------------------------------------------

SIGMAS_BETWEEN = 3.29
"""The standard deviations between the two values of a band, if the numbers are normally distributed."""


def _in(source: str) -> str:
    """What shows it, if not the log."""
    return f" in {source}" if source else ""


def loss_source(state: State, run: Run) -> tuple[str, ...]:
    """W&B, if the loss comes from there."""
    return wandb_source(state, run) if "loss" in run.progress.borrowed else ()


class MetricRule(RunRule, frozen=True, kw_only=True):
    """A rule about a number that comes with the steps. Without new steps, its alerts stay as they are."""

    unknown_while: ClassVar[frozenset[str]] = BETWEEN
    reads = (log_source, loss_source, file_source)

    def alert_before_start(self, state: State, run: Run) -> Alert | None:
        """The open alert from before this program's start: the new numbers alone do not end it."""
        alert = open_alert(state, self.name, f"run:{run.name}")
        return alert if alert is not None and alert.found_at < state.started_at else None


class LossNan(MetricRule, frozen=True, kw_only=True):
    """The loss is NaN or infinite.

    Defaults: KempnerForge ends a run after several bad steps in a row; a loss scaler skips single ones
    """

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
        since = f"{value} since step {trouble.step:,.0f} ({steps}{ago(now - trouble.at)} ago){_in(trouble.source)}"
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
                f"the {trouble.key} of {run.name} has been {since}, but its log shows {progress.loss:.4g} at "
                f"step {progress.step or 0:,}",
                evidence=tail(run),
                advice=f"compare its curve (key 6) with its log (key 4): {trouble.source} may show one rank",
                since=trouble.at,
            )
            return
        yield self.finding(
            state,
            run,
            "critical",
            f"the {trouble.key} of {run.name} has been {since}",
            evidence=tail(run),
            advice=f"end it without a save (K would save): {how_to_cancel(run)}; then resume from a checkpoint from "
            f"before step {trouble.step:,.0f}",
            since=trouble.at,
            by_age=count < self.steps,
        )


class LossSpike(MetricRule, frozen=True, kw_only=True):
    """The loss has jumped out of its usual band and has not come back.

    Defaults: OLMo-core: 6 standard deviations above the mean of the last 128 losses; here above their median
    """

    needs_for: ClassVar[bool] = True

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: a single step may jump and come back."""
    keep_firing_for: Duration = 600.0
    settled: Duration = 43_200.0
    """After this long, the higher loss counts as usual."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.verdict not in LIVING:
            return
        trouble, reported = trouble_of(run, "spike"), self._reported(state, run, now)
        is_single = trouble is not None and run.progress.at is not None and run.progress.at <= trouble.at
        if reported is not None:
            known, since = reported.known, reported.since
        elif trouble is not None and not trouble.after:
            usual = "" if trouble.low is None else f" (usually {trouble.low:.3g} to {trouble.high:.3g})"
            what = f"the {trouble.key} of {run.name} rose to {trouble.value:.3g} at step {trouble.step:,.0f}{usual}"
            band = {} if trouble.low is None or trouble.high is None else {"low": trouble.low, "high": trouble.high}
            known, since = {"what": what, "step": trouble.step, **band}, trouble.at
        else:
            return
        loss, step = run.progress.loss, run.progress.step
        is_now = "" if loss is None or step in (None, known["step"]) else f", and is {loss:.3g} at step {step:,}"
        yield self.finding(
            state,
            run,
            "warning",
            f"{known['what']} {ago(now - since)} ago{_in('' if trouble is None else trouble.source)}{is_now}",
            evidence=tail(run),
            advice="look at its curve (key 6); if it does not come back, resume from an earlier checkpoint, "
            "skip that data, or lower the learning rate",
            since=since,
            is_unconfirmed=is_single,
            known=known,
        )

    def _reported(self, state: State, run: Run, now: Instant) -> Alert | None:
        """The open alert about a spike, while the loss has not come back: soon the band of the last steps is that of
        the spike itself."""
        alert, loss = open_alert(state, self.name, f"run:{run.name}"), run.progress.loss
        if alert is None or "low" not in alert.known or loss is None or now - alert.since > self.settled:
            return None
        low, high = float(alert.known["low"]), float(alert.known["high"])
        middle = (low + high) / 2
        is_high = loss > middle + max(SIGMAS * (high - low) / SIGMAS_BETWEEN, AT_LEAST * abs(middle))
        return alert if is_high else None


class SkippedSteps(MetricRule, frozen=True, kw_only=True):
    """Every recent iteration was skipped: the run makes steps but does not learn.

    Defaults: Megatron's loss scale starts at 2^32 and skips about 16 iterations until it fits
    """

    steps: int = 20
    """The alert fires after this many skipped iterations in a row."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        progress = run.progress
        skipped = max(progress.skipped_in_row, run.memory.skipped_in_row)
        if skipped < self.steps or run.verdict not in LIVING:
            if skipped and run.verdict in LIVING and self.alert_before_start(state, run) is not None:
                yield self.unknown(run, f"{counted(skipped, 'skipped iteration')} since this program started")
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


class LossScaleFloor(MetricRule, frozen=True, kw_only=True):
    """The loss scale has fallen to its minimum: the next overflow ends the run, or it no longer learns.

    Defaults: the minimum of Megatron and DeepSpeed is 1; a constant 1, as with bf16, does not count
    """

    floor: float = 1.0
    """The minimum loss scale of the trainer."""
    keep_firing_for: Duration = 600.0

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        memory, scale = run.memory, loss_scale(run)
        peak = memory.scale_peak
        since: Instant | None = None
        if memory.floor_at is not None and now - memory.floor_at <= self.keep_firing_for:
            since = memory.floor_at
            text = f"{ago(now - since)} ago its log said that it cannot be reduced further"
        elif run.verdict in LIVING and scale is not None and peak is not None and scale <= self.floor < peak:
            text = f"it is {scale:g} at step {run.progress.step or 0:,}, and was {peak:g}"
        else:
            alert = self.alert_before_start(state, run)
            if alert is not None and run.verdict in LIVING and scale is not None and scale <= self.floor:
                job = present_in(state, run)
                if job is None or (job.started_at or 0.0) <= alert.found_at:
                    why = f"it is still {scale:g}; its value before this program started is not known"
                    yield self.unknown(run, why)
            return
        yield self.finding(
            state,
            run,
            "critical",
            f"the loss scale of {run.name} is at its floor: {text}",
            evidence=(memory.floor, *tail(run, 4)) if since is not None else tail(run),
            advice=f"every gradient overflows: {how_to_cancel(run)}; resume from an earlier checkpoint, lower the "
            "learning rate, or train in bf16",
            since=since,
        )


# ---- rules about how fast a run is -----------------------------------------------------------------------------------


class SlowThroughput(RunRule, frozen=True, kw_only=True):
    """The run is clearly slower than over the last day on the same number of nodes.

    Defaults: our choice; the baseline is its own: a new speed counts as usual after half a day
    """

    needs_for: ClassVar[bool] = True
    unknown_while: ClassVar[frozenset[str]] = BETWEEN
    reads = (log_source,)

    drop: Share = 0.2
    """The alert fires if the run is this much slower than usual."""
    minutes: int = 5
    """The median of this many minutes is compared, at most 10."""
    for_: Duration = 600.0
    keep_firing_for: Duration = 300.0

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        pace = run.memory.throughput
        limit = max(600.0, 5 * (run.progress.cadence_s or 0.0))
        is_recent = pace.closed_at is not None and now - pace.closed_at <= limit
        if not is_recent or len(pace.usual) < ENOUGH or len(pace.recent) < self.minutes:
            yield self.unknown(run, "its throughput was not measured lately")
            return
        usual, rate = pace.usual_rate, median(pace.recent[-self.minutes :])
        if run.verdict not in LIVING or usual is None or rate >= (1 - self.drop) * usual:
            return
        yield self.finding(
            state,
            run,
            "warning",
            f"{run.name} makes {rate_of(rate)} {pace.measure} over its last {counted(self.minutes, 'minute')}, "
            f"{100 * (1 - rate / usual):.0f}% less than its usual {rate_of(usual)}"
            + _in(rate_source(run, pace.measure)),
            evidence=(f"its last minutes: {', '.join(map(rate_of, pace.recent))} {pace.measure}",),
            advice="look for a slow GPU (key 2, v for the clocks), a full disk or a slow one (key 3), and what else "
            "runs on its nodes; X keeps jobs off a node",
            known={"measure": pace.measure, "usual": usual},
        )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """After a restart, this program knows only the slow throughput: the usual one is in the alert."""
        run = state.runs.get(alert.run or "")
        is_before = alert.found_at < state.started_at and now - state.started_at < SLOW_AT_MOST * MINUTE
        if run is not None and is_before and run.verdict in LIVING:
            measure, recent = run.memory.throughput.measure, run.memory.throughput.recent[-self.minutes :]
            if measure == alert.known.get("measure") and len(recent) == self.minutes:
                rate, usual = median(recent), float(alert.known["usual"])
                if rate < (1 - self.drop) * usual:
                    text = f"it makes {rate_of(rate)} {measure}, and made {rate_of(usual)} before this program started"
                    return Unknown(text)
        return super().unseen(state, alert, now)


class _Peers(NamedTuple):
    """The medians of the GPUs of one kind."""

    others: int
    utilization: float
    clock: float | None
    power: float | None
    temperature: float | None


class Straggler(RunRule, frozen=True, kw_only=True):
    """A GPU of a run is slower or colder than its peers, and all others wait for it. Or a rank with
    trainmon_hooks waits longer for its data than the others, or comes last to each vote.

    Defaults: our choice: a GPU at 86 MHz among peers at 1,980 MHz looks healthy except for its clock
    """

    needs_for: ClassVar[bool] = True

    slower: Share = 0.15
    """The alert fires if the clock of a busy GPU is this far below the median of its peers."""
    colder: Share = 0.4
    """Or if its power is this far below the median of its peers, and its utilization or temperature is lower too."""
    peers: int = 3
    """The minimum number of other GPUs of the same kind."""
    followed: Duration = 120.0
    """How long a GPU must have been observed. The rule compares averages over minutes."""
    for_: Duration = 300.0
    keep_firing_for: Duration = 300.0

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.verdict not in STEPS:
            return
        yield from self._late(state, run)
        kinds = self._gpus_by_kind(state, run, now)
        slow = by_key(
            (node, (f"GPU {gpu.index} {behind}", gpu.index))
            for gpus in kinds.values()
            if (peers := self._peers(gpus)) is not None
            for node, gpu in gpus
            if (behind := self._behind(gpu, peers))
        )
        nodes = {node for gpus in kinds.values() for node, _ in gpus}
        if len(slow) > max(1, len(nodes) // 4):
            return  # so many are no stragglers: stages of a pipeline differ
        for node, found in slow.items():
            more = f", and {len(found) - 1} more of its GPUs are behind" if len(found) > 1 else ""
            ranks = [rank for _, index in found[:2] for rank in ranks_on(state, run.name, node, index)]
            yield self.finding(
                state,
                run,
                "warning",
                f"{node} slows {run.name} down: {found[0][0]}{more}",
                subject=f"node:{node}",
                node=node,
                sources=(f"node:{node}",),
                evidence=(*(text for text, _ in found[:8]), *ranks),
                advice=f"see what slows it (key 2, Enter on {node}); X excludes it from pending jobs: "
                f"trainmon-tui exclude {node}",
            )

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        run = state.runs.get(alert.run or "")
        if run is None or alert.node not in run.spec.nodes:
            return None  # it trains elsewhere now
        if (unknown := silent(state, alert.sources)) is not None:
            return unknown
        if run.verdict not in STEPS:
            return Unknown(f"{run.name} is {verdict_text(run.verdict)}: its GPUs cannot be compared")
        if "rank" in alert.known:
            is_told = any(node == alert.node for node, _ in self._told(state, run).values())
            return None if is_told else Unknown(f"the ranks on {alert.node} do not report how long they wait")
        known = (gpus for gpus in self._gpus_by_kind(state, run, now).values() if self._peers(gpus))
        is_compared = any(node == alert.node for gpus in known for node, _ in gpus)
        return None if is_compared else Unknown(f"the GPUs of {alert.node} are not busy")

    def _late(self, state: State, run: Run) -> Iterator[Finding]:
        """The ranks that are late by what trainmon_hooks say."""
        known = self._told(state, run)
        for rank, text in late({rank: steps for rank, (_, steps) in known.items()}, self.peers):
            node, place = known[rank][0], place_of(rank, rank_maps(state).get(run.name))
            yield self.finding(
                state,
                run,
                "warning",
                f"{place or f'rank {rank}'} slows {run.name} down: {text}",
                subject=f"node:{node}",
                node=node,
                sources=(f"node:{node}",),
                advice=f"trainmon-tui stacks {run.name} shows where its code stands; see its disks (key 3), too",
                known={"rank": rank},
            )

    def _told(self, state: State, run: Run) -> dict[int, tuple[str, RankSteps]]:
        """By rank, its node and what its hooks say. Without rank 0, nobody is known to be later than that."""
        told = {
            rank: (node, one.steps)
            for node, own in rank_processes(run, state).items()
            if silent(state, (f"node:{node}",)) is None
            for rank, one in own.items()
            if one.steps is not None
        }
        return told if 0 in told else {}

    def _gpus_by_kind(self, state: State, run: Run, now: Instant) -> dict[str, list[tuple[str, GpuAverage]]]:
        """Its GPUs that can be compared, each with its node."""
        job = state.jobs.get(run.job or "")
        nodes = [state.nodes[name] for name in run.spec.nodes if is_read(name, state.nodes, state.sources, now)]
        return by_key(
            (gpu.name or "", (node.name, pace))
            for node in nodes
            for gpus in ({gpu.index: gpu for gpu in node.gpus},)
            for pace in node.paces
            if pace.at - pace.since >= self.followed
            and (gpu := gpus.get(pace.index)) is not None
            and _is_used(gpu, job)
        )

    def _peers(self, gpus: list[tuple[str, GpuAverage]]) -> _Peers | None:
        """The medians of these GPUs; None if they are too few, or not at work."""
        paces = [pace for _, pace in gpus]
        use = _median(pace.utilization_pct for pace in paces)
        if len(gpus) <= self.peers or use is None or use < 50.0:
            return None
        return _Peers(
            len(gpus) - 1,
            use,
            _median(pace.sm_clock_mhz for pace in paces),
            _median(pace.power_w for pace in paces),
            _median(pace.temperature_c for pace in paces),
        )

    def _behind(self, gpu: GpuAverage, peers: _Peers) -> str:
        """How a GPU is behind its peers; empty if it is not."""
        clock, power, heat = gpu.sm_clock_mhz, gpu.power_w, gpu.temperature_c
        use = peers.utilization if gpu.utilization_pct is None else gpu.utilization_pct
        others = f"while its {peers.others} peers are at"
        if clock is not None and peers.clock and use >= 50.0 and clock < (1 - self.slower) * peers.clock:
            return f"runs at {clock:,.0f} MHz, {others} {peers.clock:,.0f} MHz"
        if power is None or not peers.power or power >= (1 - self.colder) * peers.power:
            return ""
        colder = 0.0 if heat is None else (peers.temperature or 0.0) - heat
        if use > peers.utilization - 20.0 and colder < 10.0:
            return ""
        degrees = "" if heat is None else f" and {heat:.0f} °C"
        return f"draws {power:.0f} W at {use:.0f}%{degrees}, {others} {peers.power:.0f} W"


def _is_used(gpu: Gpu, job: Job | None) -> bool:
    """Whether the run uses this GPU. On a shared node, others are idle or belong to somebody else."""
    return gpu.state == "ok" and not gpu.mig and not is_empty(gpu) and not is_of_another_user(gpu, job)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


# ---- rules about a run that makes no steps ---------------------------------------------------------------------------

TEACH = "if its steps are not recognised, describe them in [[log_format]]"

LOOK_LINES = 6
"""Lines of the evidence of a look that its alert has."""

STALL_RULES = frozenset({"run-hung", "run-stalled", "data-stall"})


class StallRule(RunRule, frozen=True, kw_only=True):
    """One kind of stall. The limit without a step is that of the status of its run."""

    verdict: ClassVar[str]
    text: ClassVar[str]
    by_age: ClassVar[bool] = True
    unknown_while: ClassVar[frozenset[str]] = UNKNOWN | SILENT
    """Another kind of stall does not end this one."""

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires, in addition to the time without a step. The GPUs are
    checked meanwhile."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.verdict != self.verdict or self._is_known(state, run):
            return
        job = present_in(state, run)
        last = last_line_at(run, job)
        began = job.started_at if job is not None and is_new_attempt(run, job) and last is None else None
        found = self.finding(
            state,
            run,
            "critical" if began is None else self.start_severity(now - began),
            f"{run.name} {self.text}: {run.why}",
            evidence=(*(() if job is None else (state_of(job, state.sources, now),)), *tail(run)),
            advice=self.advice(state, run),
            since=began or last or run.progress.at,
        )
        look = leading(run.looks)
        yield (
            found
            if look is None
            else replace(
                found,
                summary=f"{run.name} {self.text}: {told(look)}; {run.why}",
                evidence=(*look.lines[:LOOK_LINES], *found.evidence),
                advice=f"{look.advice}; {found.advice}" if look.advice else found.advice,
            )
        )

    def _is_known(self, state: State, run: Run) -> bool:
        """Whether another rule reports it already: one stall is one alert. A warning may have become worse."""
        return any(
            alert.run == run.name and alert.is_firing and alert.rule in STALL_RULES - {self.name}
            and alert.severity == "critical"
            for alert in state.alerts.values()
        )  # fmt: skip

    def start_severity(self, elapsed: Seconds) -> Severity:
        """The severity if the job has run for this long without its first step."""
        return "critical"

    def advice(self, state: State, run: Run) -> str:
        """What to do."""
        raise NotImplementedError

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """If no step is known, only the log shows that the run goes on: the stall ends when the log grows again. It
        does not end while its log shows that the next step is late again. W&B shows each step late."""
        run = state.runs.get(alert.run or "")
        if run is None or run.log is None or run.log.host == WANDB or run.verdict not in STEPS:
            return None if run is not None and _is_unread(run) else super().unseen(state, alert, now)
        return super().unseen(state, alert, now) or Well(may_end=not is_late(run, now, self.keep_firing_for / 2))


class RunHung(StallRule, frozen=True, kw_only=True):
    """The run has stopped stepping. Its GPUs are 100% busy at low power: probably a stuck collective.

    Defaults: BLOOM: stuck for hours at 100% GPU and RUNNING for Slurm; 18h were lost
    """

    verdict: ClassVar[str] = "hung"
    text: ClassVar[str] = "hangs"

    def advice(self, state: State, run: Run) -> str:
        return (
            f"{how_to_see_stacks(state, run)} shows where its ranks wait; a hung trainer does not look at its "
            f"switches: {f'{how_to_cancel(run)}; or ' if run.jobs else ''}{how_to_requeue(state, run)}"
        )


class QuietRule(StallRule, frozen=True, kw_only=True):
    """A stall that may be the start of a large job: it loads terabytes, and compiles."""

    first_step: Duration = 2_700.0
    """Critical after a job has run this long without its first step. Before that, a warning after `stall_after`."""

    def start_severity(self, elapsed: Seconds) -> Severity:
        return "warning" if elapsed < self.first_step else "critical"


class RunStalled(QuietRule, frozen=True, kw_only=True):
    """The run has not stepped for longer than any of its usual pauses.

    Defaults: ten of its own step intervals, but at least stall_after (15m)
    """

    verdict: ClassVar[str] = "stalled"
    text: ClassVar[str] = "has stalled"

    at_work: Duration = 3_600.0
    """For this long, the alert is only a warning while the GPUs are busy at high power: the run may be in an evaluation
    that its log does not mention."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        for finding in super().check_run(state, run, now):
            job, progress = present_in(state, run), run.progress
            quiet = 0.0 if progress.at is None else now - progress.at
            if job is not None and job.state in STILL:
                last = "" if progress.at is None else f", its last step was {ago(quiet)} ago"
                resume = f"scontrol resume {job.id}" if job.state == "SUSPENDED" else f"scancel --signal=CONT {job.id}"
                yield replace(
                    finding,
                    severity="warning",
                    summary=f"{run.name} is paused: job {job.id} {STILL[job.state]}{last}",
                    advice=f"ask who stopped or preempted it; to resume it, if you are allowed to: {resume}",
                    by_age=False,
                )
            elif quiet <= self.at_work and gpus_of(run, state.nodes, state.sources, now).work:
                summary = (
                    f"{finding.summary}; they draw as much power as in training: it may do something that its log does "
                    "not show"
                )
                yield replace(finding, summary=summary, severity="warning")
            else:
                yield finding
        log, is_alone = run.log, not run.spec.found and not run.jobs and run.wandb is None
        if run.verdict != "idle" or not is_alone or log is None or log.at is None:
            return
        if log.at > state.started_at and now - log.at > run.spec.stall_after:  # it grew while it was watched
            yield self.finding(
                state,
                run,
                "warning",
                f"{run.name} may have ended: {run.why}; it has no job and no W&B run",
                evidence=tail(run),
                advice=f"look at the end of its log (key 4); {TEACH}",
                since=log.at,
            )

    def advice(self, state: State, run: Run) -> str:
        teach = f"; {TEACH}" if run.progress.at is None else ""
        return f"look at the end of its log (key 4) and its GPUs (key 2); {how_to_requeue(state, run)}{teach}"


class DataStall(QuietRule, frozen=True, kw_only=True):
    """The run has stopped stepping and its GPUs are idle: it waits for data, storage or its host.

    Defaults: idle GPUs while a step is due: data, storage or the host
    """

    verdict: ClassVar[str] = "data-stall"
    text: ClassVar[str] = "has stopped stepping, and its GPUs are idle"

    def advice(self, state: State, run: Run) -> str:
        return (
            "look at its disks (key 3) and its data loaders' processes on its nodes; "
            f"to restart it, {how_to_requeue(state, run)}"
        )


class LogUnread(RunRule, frozen=True, kw_only=True):
    """The log of a run grows, but no line is a known step: its progress is unknown.

    Defaults: our choice: an unknown log format is not a fault of the run
    """

    for_: Duration = 10.0
    """How long the condition must hold before the alert fires: W&B may know the steps, and is polled meanwhile."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.log is None or not _is_unread(run):
            return
        job = present_in(state, run)
        began = run.log.began_at if job is None or job.started_at is None else job.started_at
        yield self.finding(
            state,
            run,
            "info",
            f"the progress of {run.name} is unknown: {run.why}",
            evidence=tail(run),
            advice="look at its log (key 4), and describe its lines in [[log_format]]",
            since=self.first_reported(state, run, now if began is None else began, now, 30.0),
            event=True,
        )


def _is_unread(run: Run) -> bool:
    return run.verdict == "unknown" and run.why_code == "unread"
