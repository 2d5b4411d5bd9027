"""A State as a few plain tables: what `snapshot` prints for people."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator

from trainmon.analysis.nodes import failing_server, spares
from trainmon.analysis.wandb import active_run, client_file
from trainmon.cli.terminal import table
from trainmon.engine.snapshot import verdict, worst_first
from trainmon.lib import Instant, clean, counted, short_size
from trainmon.model import (
    LATE_AFTER,
    Alert,
    Checkpoints,
    Disk,
    Job,
    Node,
    Run,
    Source,
    State,
    Wandb,
    WandbFile,
    verdict_text,
)
from trainmon.slurm import reasons
from tui.style import age, bytes_used, count, duration, inodes_used, mib, percent, real, remarks, since

Row = tuple[str, ...]

ALERTS = ("SEVERITY", "PHASE", "AGE", "RULE", "SUMMARY", "DETAILS, DELIVERY")
ALERTS_AT_MOST = 50
RUNS = ("RUN", "VERDICT", "JOB", "STEP", "LOSS", "STEP TIME", "LAST STEP", "CHECKPOINT", "WHY")
WANDB = ("RUN", "W&B RUN", "STATE", "HEARTBEAT", "STEP", "GROUP", "NOTE")
HOSTS = (
    "NODE", "HEALTH", "PROBE", "GPUS", "MAX TEMP", "GPU UTIL", "GPU MEMORY", "LOAD 1M", "MEMORY", "DATA AGE", "PROBLEM",
)  # fmt: skip
SCHEDULERS = ("SLURM", "HEALTH", "DATA AGE", "PROBLEM")
JOBS = ("JOB", "NAME", "USER", "STATE", "NODES", "TIME LEFT", "RESTARTS", "REASON")
JOB_ORDER = ("running", "unknown", "waiting", "ended")
SCHEDULER_NODES = ("SLURM NODE", "STATE", "REASON", "SET BY", "AGE")
DISKS = (
    "DISK",
    "FREE",
    "SIZE",
    "USED",
    "INODES USED",
    "GROWTH PER DAY",
    "FULL IN",
    "QUOTA LEFT",
    "DATA AGE",
    "PROBLEM",
)

HEADLINES = {"well": "ok", "warning": "warning", "critical": "critical", "blind": "no data"}
"""The verdict in words."""


def lines(state: State, requested: Container[str] | None = None) -> Iterator[str]:
    """All tables that have rows, the alerts first. `requested`: the sources that the verdict is about."""
    now = state.at
    yield f"{time.strftime('%Y-%m-%d %H:%M:%S %Z', time.localtime(now))}  {HEADLINES[verdict(state, requested)]}"
    alerts = worst_first(one for one in state.alerts.values() if one.is_open)
    yield from _section(ALERTS, [_alert(one, state) for one in alerts[:ALERTS_AT_MOST]])
    if len(alerts) > ALERTS_AT_MOST:
        yield f"and {counted(len(alerts) - ALERTS_AT_MOST, 'more alert')}"
    yield from _section(RUNS, [_run(run, state) for run in state.runs.values()])
    yield from _section(WANDB, [_wandb(run, state) for run in state.runs.values() if run.spec.has_charts])
    hosts = [source for source in state.sources.values() if source.kind == "node"]
    yield from _section(HOSTS, [_host(state, source) for source in hosts])
    schedulers = [source for source in state.sources.values() if source.kind == "slurm"]
    yield from _section(SCHEDULERS, [_scheduler(source, now) for source in schedulers])
    jobs = [job for job in state.jobs.values() if job.gone_at is None]
    jobs.sort(key=lambda job: (JOB_ORDER.index(job.stage), job.number))
    yield from _section(JOBS, [_job(job, now) for job in jobs])
    nodes = [node for node in state.scheduler_nodes.values() if not node.is_usable or node.reason]
    yield from _section(
        SCHEDULER_NODES,
        [
            (node.name, node.full_state, node.reason or "", node.reason_by or "", since(node.reason_at, now))
            for node in nodes
        ],
    )
    for found in spares(state):
        if found.wanted:
            have = "?" if found.idle_healthy is None else str(found.idle_healthy)
            yield f"{found.cluster}: healthy idle nodes: {have} ({found.wanted} wanted), {found.drained or 0} drained"
    yield from _section(DISKS, [_disk(disk, now) for disk in state.disks.values()])


def _section(head: Row, rows: list[Row]) -> Iterator[str]:
    if rows:
        yield ""
        yield from table(head, rows)


def _alert(alert: Alert, state: State) -> Row:
    """`critical  firing  6m  run-dead  …`"""
    known = [span.text for span in remarks(alert, state) if span.text != "pending"]
    deliveries = [f"{one.channel} {one.state}" for one in alert.delivery]
    return (alert.severity, alert.phase, age(state.at - alert.since), alert.rule, clean(alert.summary),
            clean("; ".join((*known, *deliveries))))  # fmt: skip


def _run(run: Run, state: State) -> Row:
    progress, job = run.progress, state.jobs.get(run.job or "")
    target = run.spec.target_step or progress.target_step
    behind = f" +{run.queued_behind}" if run.queued_behind else ""
    process = "-" if run.spec.process is None else f"pid {run.spec.process.pid}"
    return (
        run.name,
        verdict_text(run.verdict),
        process if job is None else job.id + behind,
        count(run.step) + (f" / {count(target)}" if target else ""),
        real(run.loss),
        duration(progress.step_time_s),
        since(progress.at, state.at),
        _checkpoint(run.checkpoints, state.at),
        run.why,
    )


def _checkpoint(found: Checkpoints | None, now: Instant) -> str:
    """`12,800 5m ago`: the last committed checkpoint, or what is wrong."""
    if found is None:
        return "-"
    committed, unrecognised = found.committed, found.unrecognised
    if unrecognised is not None and not found.error and not found.problem:
        return f"{unrecognised.title}: {unrecognised.why}"
    if found.error or found.problem or committed is None or committed.at is None:
        return found.error or found.problem or "?"
    return f"{count(committed.step)} {age(now - committed.at)} ago"


def _wandb(run: Run, state: State) -> Row:
    if run.spec.wandb is None:
        return _wandb_file(run, state)
    source, known = state.sources.get(f"wandb:{run.name}"), run.wandb or Wandb()
    notes = [source.error, source.hint] if source is not None and source.error is not None else []
    notes += [known.why if run.wandb is not None else "no data from W&B yet", known.loss_why]
    current = known.current
    return (
        run.name,
        "?" if current is None else current.name,
        "?" if current is None else current.state,
        "?" if current is None else age(active_run.silent_for(known, current, state.at)),
        "?" if current is None else count(current.step),
        known.phase if run.wandb is not None else "?",
        "; ".join(text for text in notes if text),
    )


def _wandb_file(run: Run, state: State) -> Row:
    """The row of a run whose curves come only from the files of its W&B client: they show no state and no heartbeat."""
    file = run.wandb_file or WandbFile()
    newest = file.runs[0] if file.runs else None
    read = "not read yet" if file.checked_at is None else "no row yet"
    newest_row = f"newest row {age(state.at - file.logged_at)} old" if file.logged_at is not None else read
    code = None if file.exit_code is None else f"exit code {file.exit_code}"
    part = f"only the first {100 * file.offset // file.size}% of it is read" if file.is_behind and file.size else ""
    damaged = f"{counted(file.damaged, 'damaged part')} skipped" if file.damaged else ""
    cut = "it ends in an incomplete record" if client_file.ends_incomplete(file, run.verdict) else ""
    notes = (f"from the file, {newest_row}", part, damaged, cut, code, file.loss_why, file.error)
    name, step = ("?", "?") if newest is None else (newest.name, count(newest.step))
    return (run.name, name, "-", "-", step, "-", "; ".join(text for text in notes if text))


def _host(state: State, source: Source) -> Row:
    name = source.name.removeprefix("node:")
    node = state.nodes.get(name) or Node(name=name, cluster=source.cluster)
    # `?` is not known, `-` does not apply: a host without GPUs has no hottest one.
    has_none = node.host_at is not None and not node.gpus and node.probe != "prometheus"  # its exporter may be silent
    gpus, unknown = node.gpus, "-" if has_none else "?"
    heats = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
    busy = [gpu.utilization_pct for gpu in gpus if gpu.utilization_pct is not None]
    used = [gpu.memory_used_mib for gpu in gpus if gpu.memory_used_mib is not None]
    total = [gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib is not None]
    bad = [gpu for gpu in gpus if gpu.state != "ok"]
    wanted = f" of {node.gpus_expected}" if node.gpus_expected not in (None, len(gpus)) else ""
    seen = f"{len(gpus)}{wanted}" + (f", {len(bad)} bad" if bad else "")
    troubles = [source.problem, source.hint] if source.error else [_silence(source)]
    if (server := failing_server(source, state.sources)) is not None:
        troubles = [f"Prometheus: {server.problem}", server.hint]
    troubles += [f"{part}: {text}" for part, text in node.troubles.items()]
    if gpus and node.gpus_at is not None and state.at - node.gpus_at > LATE_AFTER * source.period:
        troubles.append(f"its GPUs were read {since(node.gpus_at, state.at)} ago")
    troubles += [f"GPU {gpu.index}: {gpu.error or gpu.state}" for gpu in bad]
    return (
        name,
        source.health,
        node.probe,
        unknown if node.gpus_at is None and not gpus and not wanted else seen,
        f"{max(heats)} C" if heats else unknown,
        f"{sum(busy) / len(busy):.0f}%" if busy else unknown,
        f"{mib(sum(used))} / {mib(sum(total))}" if used and total else unknown,
        "?" if node.load1 is None else f"{node.load1:.1f}",
        percent(node.memory_used_mib, node.memory_total_mib),
        since(source.answered_at, state.at),
        "; ".join(text for text in troubles if text) or (node.note or ""),
    )


def _scheduler(source: Source, now: Instant) -> Row:
    trouble = "; ".join(text for text in (source.error or _silence(source), source.hint) if text)
    return source.name.removeprefix("slurm:"), source.health, since(source.answered_at, now), trouble


def _silence(source: Source) -> str:
    return "no data yet" if source.answered_at is None and source.phase in ("waiting", "connecting") else ""


def _job(job: Job, now: Instant) -> Row:
    left = "-" if job.stage != "running" or job.ends_at is None else duration(max(0.0, job.ends_at - now))
    why = reasons.waiting_reason(job, now) if job.stage == "waiting" else ""
    if job.stage == "ended":
        why = reasons.end_reason(job)
    restarts = "?" if job.restarts is None else str(job.restarts)
    return job.id, job.name, job.user, job.state, str(job.node_count or "?"), left, restarts, why


def _disk(disk: Disk, now: Instant) -> Row:
    grown = disk.bytes_per_day if disk.recent_per_day is None else disk.recent_per_day
    full_at = disk.falling_full_at or disk.full_at
    return (
        disk.key,
        short_size(disk.usable_free_bytes),
        short_size(disk.total_bytes),
        percent(bytes_used(disk), 1.0),
        "-" if disk.total_inodes is None and disk.state == "ok" else percent(inodes_used(disk), 1.0),
        "?" if grown is None else f"{'+' if grown >= 0 else ''}{short_size(grown)}",
        "?" if grown is None else "-" if full_at is None else age(full_at - now),
        "-" if disk.quota is None else short_size(disk.quota.left_bytes),
        since(disk.at, now),
        disk.error or ("" if disk.state == "ok" else disk.state),
    )
