"""State + events → State. Pure: the same events give the same State, and time is an argument."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from trainmon.analysis.log_formats import Format
from trainmon.analysis.runs import RunContext, judge
from trainmon.engine.reducers import actions as fold_actions
from trainmon.engine.reducers import disks as fold_disks
from trainmon.engine.reducers import files as fold_files
from trainmon.engine.reducers import jobs as fold_jobs
from trainmon.engine.reducers import node_history as fold_past
from trainmon.engine.reducers import nodes as fold_nodes
from trainmon.engine.reducers import throughput as fold_pace
from trainmon.engine.reducers import wandb as fold_wandb
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    LATE_AFTER,
    ActionChanged,
    ClustersChanged,
    ConsoleRead,
    CurvesGrew,
    DisksChanged,
    Event,
    Health,
    JobChanged,
    JobsListed,
    LedgerTrouble,
    NodeReading,
    PromptsChanged,
    QuotaRead,
    Run,
    RunsChanged,
    RunSpec,
    SampleFetched,
    SchedulerNodesListed,
    Source,
    SourceChanged,
    SourceRemoved,
    StandInEnded,
    State,
    WandbPolled,
)

AHEAD: Seconds = 10.0
"""Seconds by which a word may be dated ahead of us, between two reads of the same clock."""


def reduce(state: State, events: Iterable[Event], now: Instant, formats: tuple[Format, ...] = ()) -> State:
    """Apply the events in order, then let time pass to `now`: ages turn into health, health into verdicts."""
    folding = EventBatch(state, formats)
    prompts, ledger = state.prompts, state.ledger
    for event in events:
        match event:
            case NodeReading():
                _reading(folding, event)
            case StandInEnded():
                fold_disks.handed_back(folding, event, now)
            case SourceChanged(source):
                _source(folding, source)
            case SourceRemoved(name):
                _gone(folding, name)
            case PromptsChanged(waiting):
                prompts = waiting
            case RunsChanged(specs):
                _runs(folding, specs)
            case DisksChanged():
                folding.maps["usable"], folding.maps["lags"] = dict(event.usable), dict(event.lags)
            case QuotaRead():
                fold_disks.quota_seen(folding, event)
            case ClustersChanged(clusters):
                folding.writable("clusters").update({cluster.name: cluster for cluster in clusters})
            case JobsListed():
                fold_jobs.jobs_seen(folding, event)
            case JobChanged():
                fold_jobs.job_changed(folding, event)
            case SchedulerNodesListed():
                fold_jobs.nodes_seen(folding, event)
            case ActionChanged():
                fold_actions.fold(folding, event)
            case WandbPolled():
                fold_wandb.seen(folding, event)
            case CurvesGrew():
                fold_wandb.grew(folding, event)
            case SampleFetched():
                fold_wandb.kept(folding, event)
            case ConsoleRead():
                fold_wandb.console(folding, event)
            case LedgerTrouble(words):
                ledger = words
    _age(folding, now)
    if "jobs" in folding.maps or "runs" in folding.maps:
        fold_jobs.join(folding)
    fold_files.look_again(folding, now)
    fold_wandb.look_again(folding, now)
    _judge(folding, now)
    fold_pace.follow(folding, now)
    fold_actions.advance(folding, now)
    return replace(state, at=now, prompts=prompts, ledger=ledger, **folding.maps)


def _reading(folding: EventBatch, event: NodeReading) -> None:
    sources = folding.writable("sources")
    name = f"node:{event.node}"
    source = sources.get(name) or Source(name=name, kind="node", cluster=event.cluster)
    sources[name] = replace(source, seen_at=event.received_at, phase="up", error=None, hint=None, retry_at=None)
    nodes = folding.writable("nodes")
    old = nodes.get(event.node)
    node = fold_pace.sampled(fold_nodes.read(old, event), event)
    if old is None:
        node = fold_jobs.with_scheduler(node, folding.current("scheduler_nodes").get(event.node))
    nodes[event.node] = node
    fold_past.read(folding, event, old, node)
    fold_files.read(folding, event)


def _source(folding: EventBatch, source: Source) -> None:
    """A collector knows the phase and the error; when it was last heard is ours."""
    sources = folding.writable("sources")
    old = sources.get(source.name)
    if old is not None and source.seen_at is None:
        source = replace(source, seen_at=old.seen_at)
    sources[source.name] = source


def _gone(folding: EventBatch, name: str) -> None:
    folding.writable("sources").pop(name, None)
    node = name.removeprefix("node:")
    folding.writable("nodes").pop(node, None)
    folding.writable("node_histories").pop(node, None)
    for name in ("disks", "handed_back"):
        known = folding.writable(name)
        for key in [key for key in known if key.startswith(f"{node}:")]:
            del known[key]


def _runs(folding: EventBatch, specs: tuple[RunSpec, ...]) -> None:
    old = folding.current("runs")
    folding.maps["runs"] = {
        spec.name: _respecified(old[spec.name], spec) if spec.name in old else Run(spec=spec) for spec in specs
    }


def _respecified(run: Run, spec: RunSpec) -> Run:
    """The run as it is watched now; what W&B said of others than it has now is not of this one."""
    return replace(run, spec=spec, wandb=run.wandb if spec.wandb == run.spec.wandb else None)


def _age(folding: EventBatch, now: Instant) -> None:
    for name, source in folding.current("sources").items():
        health = _health(source, now)
        if health != source.health:
            folding.writable("sources")[name] = replace(source, health=health)


def _health(source: Source, now: Instant) -> Health:
    if source.phase == "off":
        return "off"
    if source.phase == "held" or source.error is not None:
        return "down"
    if source.seen_at is None or source.phase != "up":
        return "late"
    if source.seen_at > now + AHEAD:
        return "late"  # the clock was set back: that word is as old as nobody knows
    return "ok" if now - source.seen_at <= LATE_AFTER * source.period else "late"


def _judge(folding: EventBatch, now: Instant) -> None:
    scene = RunContext(*(folding.current(name) for name in ("nodes", "sources", "jobs", "actions")))
    for name, run in folding.current("runs").items():
        judged = judge(run, scene, now)
        eta = _eta(run, now)
        if (judged.verdict, judged.why, eta) != (run.verdict, run.why, run.eta_at):
            folding.writable("runs")[name] = replace(run, verdict=judged.verdict, why=judged.why, eta_at=eta)


def _eta(run: Run, now: Instant) -> Instant | None:
    progress = run.progress
    target = run.spec.target_step or progress.target_step
    if target is None or progress.step is None or not progress.step_time_s or progress.at is None:
        return None
    return progress.at + (target - progress.step) * progress.step_time_s if target > progress.step else None
