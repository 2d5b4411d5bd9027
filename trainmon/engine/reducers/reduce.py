"""State + events → State. Pure: the same events give the same State, and time is an argument."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from trainmon.analysis.log_formats import Format
from trainmon.analysis.runs import RunContext, judge, last_attempts
from trainmon.engine.reducers import files, jobs, nodes, runs
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    GOING,
    LATE_AFTER,
    ActionChanged,
    AttemptsRestored,
    ClustersChanged,
    ConfigRefused,
    ConsoleRead,
    CurvesGrew,
    DisksChanged,
    DisksForgotten,
    DisksReleased,
    EndedJobs,
    Event,
    Health,
    JobChanged,
    JobsAccounted,
    JobsListed,
    LedgerTrouble,
    NodeReading,
    NoticeGiven,
    PromptsChanged,
    QuotaRead,
    Run,
    RunLooked,
    RunsChanged,
    RunSpec,
    SampleFetched,
    SchedulerNodesListed,
    Source,
    SourceChanged,
    SourceRemoved,
    State,
    StoryTold,
    WandbPolled,
    WandbRows,
)

AHEAD: Seconds = 10.0
"""Data may be dated this far in the future: two reads of the same clock differ."""


def reduce(
    state: State,
    events: Iterable[Event],
    now: Instant,
    formats: tuple[Format, ...] = (),
    grown: list[CurvesGrew] | None = None,
) -> State:
    """Apply the events in order, then let time pass to `now`. Appends to `grown` the points that logs have shown."""
    batch = EventBatch(state, formats)
    for event in events:
        match event:
            case NodeReading():
                _reading(batch, event)
            case DisksReleased():
                files.released(batch, event, now)
            case SourceChanged(source):
                _source(batch, source)
            case SourceRemoved(name):
                _removed(batch, name)
            case PromptsChanged(waiting):
                batch.maps["prompts"] = waiting
            case RunsChanged(specs):
                _runs(batch, specs)
            case DisksChanged():
                batch.maps["usable"], batch.maps["lags"] = dict(event.usable), dict(event.lags)
            case DisksForgotten(node, kept):
                _forget_disks(batch, node, kept)
            case QuotaRead():
                files.quota_read(batch, event)
            case ClustersChanged(clusters, gone):
                batch.writable("clusters").update({cluster.name: cluster for cluster in clusters})
                _forget_clusters(batch, gone)
            case JobsListed():
                jobs.jobs_listed(batch, event)
            case JobChanged():
                jobs.job_changed(batch, event)
            case JobsAccounted():
                jobs.jobs_accounted(batch, event.jobs, now)
            case EndedJobs(cluster):
                batch.writable("ended")[cluster] = event
            case SchedulerNodesListed():
                jobs.nodes_listed(batch, event)
            case ActionChanged():
                jobs.action_changed(batch, event)
            case WandbPolled():
                runs.wandb_polled(batch, event)
            case CurvesGrew():
                runs.curves_grew(batch, event)
            case SampleFetched():
                runs.sample_fetched(batch, event)
            case ConsoleRead():
                runs.console_read(batch, event)
            case RunLooked():
                runs.looked(batch, event)
                jobs.looked(batch, event)
            case AttemptsRestored():
                jobs.attempts_restored(batch, event)
            case NoticeGiven(text=text):
                batch.maps["notice"] = text
            case StoryTold(text):
                batch.maps["story"] = text
            case LedgerTrouble(message):
                batch.maps["ledger"] = message
            case ConfigRefused(message):
                batch.maps["config"] = message
    _pass_time(batch, now)
    if grown is not None:
        grown += batch.grown
    return batch.so_far(now)


def _reading(batch: EventBatch, event: NodeReading) -> None:
    sources = batch.writable("sources")
    name = f"node:{event.node}"
    source = sources.get(name) or Source(name=name, kind="node", cluster=event.cluster)
    sources[name] = replace(source, answered_at=event.received_at, phase="up", error=None, hint=None, retry_at=None)
    known = batch.writable("nodes")
    old = known.get(event.node)
    known[event.node] = node = nodes.read(old, event)
    nodes.remember(batch, event, old, node)
    if isinstance(event.reading, WandbRows):
        runs.wandb_file_read(batch, event, event.reading)
    else:
        files.read(batch, event)


def _source(batch: EventBatch, source: Source) -> None:
    """The collector reports the phase and the error. The State knows when it last received data."""
    sources = batch.writable("sources")
    old = sources.get(source.name)
    if old is not None and source.answered_at is None:
        source = replace(source, answered_at=old.answered_at)
    sources[source.name] = source


def _removed(batch: EventBatch, name: str) -> None:
    node = name.removeprefix("node:")
    for field, key in (("sources", name), ("nodes", node), ("node_histories", node)):
        batch.writable(field).pop(key, None)
    _forget_disks(batch, node)


def _forget_clusters(batch: EventBatch, gone: tuple[str, ...]) -> None:
    for name in gone:
        batch.writable("clusters").pop(name, None)
        for field in ("jobs", "scheduler_nodes"):
            batch.maps[field] = {key: one for key, one in batch.current(field).items() if one.cluster != name}


def _forget_disks(batch: EventBatch, node: str, kept: frozenset[str] = frozenset()) -> None:
    start = f"{node}:"
    for field in ("disks", "released_disks"):
        batch.maps[field] = {
            key: value
            for key, value in batch.current(field).items()
            if not key.startswith(start) or key.removeprefix(start) in kept
        }


def _runs(batch: EventBatch, specs: tuple[RunSpec, ...]) -> None:
    """Set the watched runs. A run whose W&B settings changed loses the data of the old W&B runs."""
    old = batch.current("runs")
    runs = batch.maps["runs"] = {}
    for spec in specs:
        run: Run = old.get(spec.name) or Run(spec=spec)
        is_same = (spec.wandb_dir, spec.metrics_found) == (run.spec.wandb_dir, run.spec.metrics_found)
        file = run.wandb_file if is_same else None
        served = run.wandb if spec.wandb == run.spec.wandb else None
        runs[spec.name] = replace(run, spec=spec, wandb=served, wandb_file=file)


def _pass_time(batch: EventBatch, now: Instant) -> None:
    """Update the health of the sources from their ages, and the verdicts of the runs from that."""
    for name, source in batch.current("sources").items():
        health = _health(source, now)
        if health != source.health:
            batch.writable("sources")[name] = replace(source, health=health)
    if "jobs" in batch.maps or "runs" in batch.maps:
        jobs.join(batch)
    files.pass_time(batch, now)
    runs.pass_time(batch, now)
    jobs.note_outlived(batch, now)
    context = RunContext(*(batch.current(name) for name in ("nodes", "sources", "jobs", "actions", "clusters")))
    context = context._replace(last_attempts=last_attempts(batch.current("attempts").values()))
    for name, run in batch.current("runs").items():
        judged = judge(run, context, now)
        eta = _eta(run, now) if judged.verdict in GOING else None
        if (*judged, eta) != (run.verdict, run.why, run.why_code, run.stop, run.eta_at):
            batch.writable("runs")[name] = replace(
                run, verdict=judged.verdict, why=judged.why, why_code=judged.code, stop=judged.stop, eta_at=eta
            )
    runs.follow(batch, context, now)
    jobs.advance_attempts(batch, now)
    jobs.advance_actions(batch, now)


def _eta(run: Run, now: Instant) -> Instant | None:
    """When it reaches its target step at its pace; None once that is past: it makes no steps, or is slower now."""
    progress, goal = run.progress, run.target_step
    if goal is None or progress.step is None or not progress.step_time_s or progress.at is None:
        return None
    done_at = progress.at + (goal - progress.step) * progress.step_time_s
    return done_at if goal > progress.step and done_at > now else None


def _health(source: Source, now: Instant) -> Health:
    if source.phase == "off":
        return "off"
    if source.phase == "held" or source.error is not None:
        return "down"
    age = None if source.answered_at is None or source.phase != "up" else now - source.answered_at
    # A negative age: the clock was set back, and the age is unknown.
    return "ok" if age is not None and -AHEAD <= age <= LATE_AFTER * source.period else "late"
