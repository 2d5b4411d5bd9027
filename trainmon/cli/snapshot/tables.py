"""A State as a few plain tables: what `snapshot` prints for people."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator

from trainmon.analysis.wandb import active_run
from trainmon.cli.snapshot import jobs as snapshot_jobs
from trainmon.cli.snapshot import tables as snapshot_wandb
from trainmon.cli.table import table
from trainmon.engine.snapshot import verdict, worst_first
from trainmon.lib import Instant, clean
from trainmon.model import Alert, Disk, Node, Run, Source, State, Wandb
from tui.style import age, count, duration, mib, percent, real, since, size
from tui.views.alerts import remarks

ALERTS = ("SEVERITY", "PHASE", "FOR", "RULE", "WHAT", "KNOWN, TOLD")
ALERTS_AT_MOST = 50
RUNS = ("RUN", "VERDICT", "JOB", "STEP", "LOSS", "STEP TIME", "LAST STEP", "CHECKPOINT", "WHY")
NODES = ("NODE", "HEALTH", "PROBE", "GPUS", "HOTTEST", "BUSY", "GPU MEMORY", "LOAD", "MEMORY", "AGE", "TROUBLE")
DISKS = ("DISK", "FREE", "OF", "FREE INODES", "A DAY", "FULL IN", "QUOTA LEFT", "AGE", "TROUBLE")


def lines(state: State, asked: Container[str] | None = None) -> Iterator[str]:
    """All tables that have something to say, the alerts first. `asked`: as for `verdict`."""
    now = state.at
    yield f"{time.strftime('%Y-%m-%d %H:%M:%S %Z', time.localtime(now))}  {verdict(state, asked)}"
    alerts = worst_first(one for one in state.alerts.values() if one.is_open)
    if alerts:
        yield from _section(ALERTS, [_alert(one, state) for one in alerts[:ALERTS_AT_MOST]])
        if len(alerts) > ALERTS_AT_MOST:
            yield f"and {len(alerts) - ALERTS_AT_MOST} more alerts"
    if state.runs:
        yield from _section(RUNS, [_run(run, state) for run in state.runs.values()])
    for head, rows in snapshot_wandb.sections(state):
        yield from _section(head, rows)
    hosts = [source for source in state.sources.values() if source.kind == "node"]
    if hosts:
        yield from _section(NODES, [_node(state, source) for source in hosts])
    for head, rows in snapshot_jobs.sections(state):
        yield from _section(head, rows)
    yield from snapshot_jobs.remarks(state)
    if state.disks:
        yield from _section(DISKS, [_disk(disk, now) for disk in state.disks.values()])


def _section(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield ""
    yield from table(head, rows)


def _alert(alert: Alert, state: State) -> tuple[str, ...]:
    """`critical  firing  6m  run-dead  …`"""
    known = [span.text for span in remarks(alert, state) if span.text != "pending"]
    told = [f"{one.channel} {one.state}" for one in alert.delivery]
    return (alert.severity, alert.phase, age(state.at - alert.since), alert.rule, clean(alert.summary),
            clean("; ".join((*known, *told))))  # fmt: skip


def _run(run: Run, state: State) -> tuple[str, ...]:
    progress, now = run.progress, state.at
    target = run.spec.target_step or progress.target_step
    return (
        run.name,
        run.verdict,
        snapshot_jobs.job_of(run, state),
        count(progress.step) + (f" / {count(target)}" if target else ""),
        real(progress.loss),
        duration(progress.step_time_s),
        since(progress.at, now),
        snapshot_jobs.checkpoint_of(run.checkpoints, now),
        run.why,
    )


def _node(state: State, source: Source) -> tuple[str, ...]:
    name = source.name.removeprefix("node:")
    node = state.nodes.get(name) or Node(name=name, cluster=source.cluster)
    gpus = node.gpus
    heats = [gpu.temperature_c for gpu in gpus if gpu.temperature_c is not None]
    busy = [gpu.utilization_pct for gpu in gpus if gpu.utilization_pct is not None]
    used = [gpu.memory_used_mib for gpu in gpus if gpu.memory_used_mib is not None]
    whole = [gpu.memory_total_mib for gpu in gpus if gpu.memory_total_mib is not None]
    return (
        name,
        source.health,
        node.probe,
        _gpus(node),
        f"{max(heats)} C" if heats else _unknown(node),
        f"{sum(busy) / len(busy):.0f}%" if busy else _unknown(node),
        f"{mib(sum(used))} / {mib(sum(whole))}" if used and whole else _unknown(node),
        "?" if node.load1 is None else f"{node.load1:.1f}",
        percent(node.memory_used_mib, node.memory_total_mib),
        since(source.seen_at, state.at),
        _trouble(node, source),
    )


def _gpus(node: Node) -> str:
    bad = sum(gpu.state != "ok" for gpu in node.gpus)
    if node.gpus_at is None and not node.gpus:
        return _unknown(node)
    wanted = f" of {node.gpus_expected}" if node.gpus_expected not in (None, len(node.gpus)) else ""
    return f"{len(node.gpus)}{wanted}" + (f", {bad} bad" if bad else "")


def _unknown(node: Node) -> str:
    """`?` not known, `-` does not apply: a host without GPUs has no hottest one."""
    return "-" if node.host_at is not None and not node.gpus else "?"


def _trouble(node: Node, source: Source) -> str:
    told = [source.error, source.hint] if source.error else []
    told += [f"{part}: {text}" for part, text in node.troubles.items()]
    told += [f"GPU {gpu.index}: {gpu.error or gpu.state}" for gpu in node.gpus if gpu.state != "ok"]
    return "; ".join(text for text in told if text) or (node.note or "")


def _disk(disk: Disk, now: Instant) -> tuple[str, ...]:
    grown = disk.bytes_per_day
    return (
        disk.key,
        size(disk.usable_free_bytes),
        size(disk.total_bytes),
        "-" if disk.total_inodes is None and disk.state == "ok" else percent(disk.free_inodes, disk.total_inodes),
        "?" if grown is None else f"{'+' if grown >= 0 else ''}{size(grown)}",
        "?" if grown is None else "-" if disk.full_at is None else age(disk.full_at - now),
        "-" if disk.quota is None else size(disk.quota.left_bytes),
        since(disk.at, now),
        disk.error or ("" if disk.state == "ok" else disk.state),
    )


WANDB = ("RUN", "W&B RUN", "STATE", "HEARTBEAT", "STEP", "GROUP", "SAYS")


def sections(state: State) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """The table, where a run is watched in W&B."""
    watched = [run for run in state.runs.values() if run.spec.wandb is not None]
    if watched:
        yield WANDB, [_row(run, state) for run in watched]


def _row(run: Run, state: State) -> tuple[str, ...]:
    source = state.sources.get(f"wandb:{run.name}")
    known, says = run.wandb or Wandb(), []
    if source is not None and source.error is not None:
        says += [source.error, source.hint or ""]
    says += [known.why if run.wandb is not None else "W&B has not answered yet", known.loss_why]
    current = known.current
    return (
        run.name,
        "?" if current is None else current.name,
        "?" if current is None else current.state,
        "?" if current is None else age(active_run.silent_for(known, current, state.at)),
        "?" if current is None else count(current.step),
        known.phase if run.wandb is not None else "?",
        "; ".join(text for text in says if text),
    )
