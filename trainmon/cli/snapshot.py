"""trainmon-tui snapshot, users and ranks: print the state, who holds GPUs, or what the ranks of a run do, once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from queue import SimpleQueue

import click
from msgspec.structs import replace

from trainmon.analysis.attempts import LOOK_NAMES, place_of
from trainmon.analysis.gpus import Holder, by_user, gaps, holders, unread_nodes
from trainmon.analysis.nodes import failing_server, has_read_gpus, spares
from trainmon.analysis.runs import last_attempts
from trainmon.analysis.wandb import active_run, client_file
from trainmon.cli.terminal import print_json, print_lines, table
from trainmon.config import ClusterSettings, Settings, load_settings, watched_nodes
from trainmon.engine.snapshot import VERSION, encode, exit_status, plain, unanswered, verdict, worst_first
from trainmon.lib import ConfigError, Instant, Seconds, by_key, clean, counted, listed, ranges, short_size, spans_text
from trainmon.model import (
    LATE_AFTER,
    Alert,
    Checkpoints,
    Disk,
    Job,
    LookReply,
    Node,
    RankLook,
    RankMap,
    Run,
    Source,
    State,
    Wandb,
    WandbFile,
    verdict_text,
)
from trainmon.runtime.backend import DashboardBackend
from trainmon.runtime.logs import log_to_file
from trainmon.runtime.monitor import Monitor
from trainmon.slurm import reasons
from tui.charts.values import newest_row, source_of
from tui.style import age, bytes_used, count, duration, inodes_used, mib, percent, real, remarks, since

# ---- a State as a few plain tables -----------------------------------------------------------------------------------

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
    yield from _section(WANDB, [_wandb(run, state) for run in state.runs.values() if run.has_metrics])
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
    behind = f" +{run.queued_behind}" if run.queued_behind else ""
    process = "-" if run.spec.process is None else f"pid {run.spec.process.pid}"
    return (
        run.name,
        verdict_text(run.verdict),
        process if job is None else job.id + behind,
        count(run.step) + (f" / {count(run.target_step)}" if run.target_step else ""),
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
    read = "not read yet" if file.checked_at is None else f"newest row {newest_row(file, state.at)}"
    code = None if file.exit_code is None else f"exit code {file.exit_code}"
    part = f"only the first {100 * file.offset // file.size}% of it is read" if file.is_behind and file.size else ""
    damaged = f"{counted(file.damaged, 'damaged part')} skipped" if file.damaged else ""
    cut = "it ends in an incomplete record" if client_file.ends_incomplete(file, run.verdict) else ""
    notes = (
        f"from {source_of(file)}, {read}",
        part,
        damaged,
        cut,
        code,
        file.loss_why,
        file.error,
    )
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
        f"{sum(busy) / len(busy):.0f}%" if busy else "-" if gpus and all(gpu.mig for gpu in gpus) else unknown,
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


# ---- trainmon-tui snapshot -------------------------------------------------------------------------------------------

SETTLE = 1.0
"""Seconds after the last source has answered: the answer of a queue or a run may name more nodes and files."""

EVALUATION_TIMEOUT = 5.0
"""The longest wait for the next evaluation of the rules, which happens every second."""


def print_snapshot(
    hosts: tuple[str, ...], config: Path | None, ssh_config: Path | None, as_json: bool, wait: float
) -> int:
    """Read everything once, and print it; the exit status."""
    settings, _ = load_settings(config, hosts)
    log_to_file()
    with Monitor(settings, keeps=False, ssh_config=ssh_config) as monitor:
        first_full_state(monitor, wait)
        state = next_evaluation(monitor)
    requested = requested_sources(settings, hosts)
    if as_json:
        click.echo(encode(state, state.at, requested))
    else:
        print_lines(*lines(state, requested))
    return exit_status(state, requested)


HOLDERS = ("USER", "JOBS", "GPUS", "BUSY", "IDLE", "MEMORY", "NODES")


def print_users(
    hosts: tuple[str, ...], config: Path | None, ssh_config: Path | None, as_json: bool, wait: float
) -> int:
    """Read everything once, and print the users and the jobs that hold GPUs; the exit status."""
    settings, _ = load_settings(config, hosts)
    log_to_file()
    with Monitor(settings, keeps=False, ssh_config=ssh_config) as monitor:
        state = first_full_state(monitor, wait)
    found = holders(state)
    users, jobs = by_user(found), [one for one in found if one.jobs]
    if as_json:
        print_json({
            "version": VERSION, "at": state.at, "users": [_holder(one) for one in users],
            "jobs": [_holder(one) | {"job": one.jobs[0].id, "name": one.jobs[0].name} for one in jobs],
            "nodes_missing": unread_nodes(found, state), "missing": gaps(found, state) or None,
        })  # fmt: skip
    else:
        print_lines(
            *(table(HOLDERS, [(one.user, str(len(one.jobs) or "-"), *_held(one)) for one in users])
              if users else ["no user is known to hold a GPU"]),
            *_section(("JOB", "NAME", "USER", *HOLDERS[2:]),
                      [(one.jobs[0].id, one.jobs[0].name, one.user, *_held(one)) for one in jobs]),
            *(("", f"missing: {text}") if (text := gaps(found, state)) else ()),
        )  # fmt: skip
    return unanswered(state)


def _held(one: Holder) -> Row:
    counts = ("-" if count is None else str(count) for count in (one.held, one.busy, one.idle))
    return *counts, "-" if one.memory_mib is None else mib(one.memory_mib), listed(one.nodes, 4)


def _holder(one: Holder) -> dict[str, object]:
    return {
        "user": one.user, "cluster": one.cluster, "by": "slurm" if one.jobs else "processes",
        "jobs": [job.id for job in one.jobs], "gpus_held": one.held, "gpus_measured": one.measured,
        "gpus_busy": one.busy, "gpus_idle": one.idle, "memory_mib": one.memory_mib, "nodes": one.nodes,
    }  # fmt: skip


def requested_sources(settings: Settings, hosts: Sequence[str] = ()) -> frozenset[str] | None:
    """The sources that the verdict is about; None: all of them.

    With hosts on the command line, these are the hosts: their login host and Slurm are watched too, but must not hide
    that no host answers. With a config that names W&B runs only, these are the W&B runs: this machine is watched too.
    """
    if hosts:
        return frozenset(f"node:{node}" for cluster in settings.clusters for node in watched_nodes(cluster))
    if settings.clusters != (ClusterSettings(),) or settings.disks or not settings.runs:
        return None
    is_all = all(
        run.wandb
        and run.log in (None, "wandb")
        and not any((run.nodes, run.checkpoints, run.kill_switch, run.save_switch))
        for run in settings.runs
    )
    return frozenset(f"wandb:{run.name}" for run in settings.runs) if is_all else None


class StateWatcher:
    """Holds the newest State, and waits for a condition on it."""

    def __init__(self, subscribe: Callable[[Callable[[State], None]], Callable[[], None]]) -> None:
        self._changed = threading.Condition()
        self.state = State()
        self.close = subscribe(self._take)

    def _take(self, state: State) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[State], bool], timeout: Seconds) -> bool:
        """Wait for a condition; false when it does not come true in time."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self.state), timeout)


def next_evaluation(monitor: Monitor) -> State:
    """The next State in which the rules were evaluated, so that it has the alerts of all that was read."""
    since = monitor.engine.clock.now()
    with closing(StateWatcher(monitor.subscribe)) as watcher:
        monitor.engine.evaluate_now()
        watcher.wait_for(lambda state: (state.evaluated_at or 0.0) > since, EVALUATION_TIMEOUT)
    return monitor.engine.state


def first_full_state(monitor: Monitor, wait: Seconds) -> State:
    """The first State in which every source has answered or failed, and every file was read; a moment later if more may
    come."""

    def is_full(state: State) -> bool:
        have_answered = bool(state.sources) and all(has_answered(state, source) for source in state.sources.values())
        return have_answered and are_read(state, monitor.supervisor.named_disks())

    with closing(StateWatcher(monitor.subscribe)) as watcher:
        wait_until_full(watcher, is_full, wait)
    return monitor.engine.state


def wait_until_full(watcher: StateWatcher, is_full: Callable[[State], bool], wait: Seconds) -> None:
    """Wait until this is true, and still is true a moment later if more may come."""
    until = time.monotonic() + wait
    while watcher.wait_for(is_full, until - time.monotonic()):
        if may_find_more(watcher.state):
            time.sleep(max(0.0, min(SETTLE, until - time.monotonic())))
        if is_full(watcher.state):
            break


def may_find_more(state: State) -> bool:
    """Whether runs, queues or the shell probe are read, which report in several lines, or a process may be a run."""
    others = any(source.kind != "node" for source in state.sources.values())
    nodes = state.nodes.values()
    have_processes = any(gpu.processes for node in nodes for gpu in node.gpus)
    return bool(state.runs) or others or have_processes or any(node.probe == "sh" for node in nodes)


def has_answered(state: State, source: Source) -> bool:
    """Whether a source has reported its first data, or will not."""
    if source.health in ("down", "off") or source.phase in ("retrying", "held", "off"):
        return True
    if source.kind in ("slurm", "wandb", "files", "prometheus"):
        cluster = state.clusters.get(source.cluster) if source.kind == "slurm" else None
        login = state.sources.get(f"node:{cluster.login}") if cluster is not None else None
        is_polled = source.answered_at is not None and (cluster is None or cluster.is_polled)
        return is_polled or (login is not None and login.health == "down")
    node = state.nodes.get(source.name.removeprefix("node:"))
    if source.via is not None:
        server = state.sources.get(source.via)
        is_read = node is not None and (node.gpus_at is not None or node.host_at is not None)
        return is_read or (server is not None and server.health == "down")
    return node is not None and node.host_at is not None and has_read_gpus(node)


def are_read(state: State, disks: Collection[tuple[str, str]]) -> bool:
    """Whether the hosts that answer have reported their disks, ranks, logs and W&B files to their ends. A mount that
    hangs is reported after some seconds."""
    readers = {
        name: node.cluster
        for name, node in state.nodes.items()
        if node.probe != "sh" and (source := state.sources.get(f"node:{name}")) is not None and source.health == "ok"
    }
    logs = [run for run in state.runs.values() if run.log is None and (run.spec.log or "").startswith("/")]
    files = [
        run
        for run in state.runs.values()
        if (run.spec.wandb_dir or run.spec.metrics_found) and (run.wandb_file is None or run.wandb_file.is_behind)
    ]
    nodes = [state.nodes[name] for run in state.runs.values() for name in run.spec.nodes if name in readers]
    return (
        all(f"{host}:{path}" in state.disks for host, path in disks if host in readers)
        and not any(run.spec.cluster in readers.values() for run in (*logs, *files))
        and all(node.ranks is not None or node.probe == "prometheus" for node in nodes)
    )


# ---- trainmon-tui ranks: where the ranks of a run are, and which of them holds it up ---------------------------------


def print_ranks(run: str, config: Path | None, ssh_config: Path | None, as_json: bool, wait: float) -> int:
    """Read everything once, look at the ranks of one run, and print both; the exit status."""
    settings, _ = load_settings(config, ())
    log_to_file()
    with Monitor(settings, keeps=False, ssh_config=ssh_config) as monitor:
        state = first_full_state(monitor, wait)
        if run not in state.runs:
            hint = f"one of: {listed(sorted(state.runs), 8)}" if state.runs else "trainmon-tui check"
            raise ConfigError([f"{clean(run)} is not a run that is watched"], hint=hint)
        return print_looks(monitor, run, as_json=as_json)


def print_looks(monitor: DashboardBackend, run: str, *, as_json: bool) -> int:
    """Look at the ranks of a run, and print where they are and what was seen; the exit status."""
    looks, state = made(monitor, run), monitor.engine.state
    attempt = last_attempts(state.attempts.values()).get(run)
    known = None if attempt is None else attempt.ranks
    if as_json:
        found = [as_object(one, known) for one in looks]
        print_json({"version": VERSION, "at": state.at, "run": run, "ranks": known and plain(known), "looks": found})
    else:
        shown = by_key((replace(look, source="proc", at=0.0), LOOK_NAMES[look.source]) for look in looks)
        print_lines(*map_lines(known), *(line for look, names in shown.items() for line in look_lines(look, names)))
    return 1 if any(one.ranks for one in looks) else 0 if any(one.is_answer for one in looks) else 3


def made(monitor: DashboardBackend, run: str) -> list[RankLook]:
    """What each source shows. Progress goes to the standard error."""
    replies = SimpleQueue[LookReply]()
    monitor.look(run, replies.put)
    looks = list[RankLook]()
    while not (reply := replies.get()).is_done:
        if reply.look is not None:
            looks.append(reply.look)
        else:
            click.echo(reply.text, err=True)
    return looks


def map_lines(known: RankMap | None) -> list[str]:
    """The map of the ranks."""
    if known is None:
        return ["where its ranks run is not known"]
    rows = [
        (name or "several", *(spans_text(ranges(sorted(each))) for each in (own, {*chain(*own.values())})))
        for name, own in sorted(known.nodes.items(), key=lambda item: min(item[1]))
    ]
    return [f"{counted(known.ranks, 'rank')}, numbered by {known.launcher}", *table(("NODE", "RANKS", "GPUS"), rows)]


def look_lines(look: RankLook, names: Sequence[str]) -> list[str]:
    """What these sources show, what to do, and the evidence."""
    head = f"{', '.join(names)}: {'' if look.is_answer else 'could not look: '}{clean(look.summary, 2_000)}"
    return ["", head, *([f"  → {look.advice}"] if look.advice else []), *(f"  {clean(one, 400)}" for one in look.lines)]


def as_object(look: RankLook, known: RankMap | None) -> dict[str, object]:
    """A look for JSON, with where the ranks are that it names."""
    named = [
        {"rank": rank, "node": place and place.node, "gpu": int(place.gpu) if place and place.gpu else None}
        for rank, place in ((rank, place_of(rank, known)) for rank in look.ranks)
    ]
    return {**plain(look), "named": named}
