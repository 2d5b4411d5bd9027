"""The text of a heartbeat: runs, disks, GPUs and alerts. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from trainmon.alerting.rules import ago, is_seen
from trainmon.lib import Instant, clean, counted
from trainmon.model import SEVERITIES, Alert, Disk, Node, Run, State, Verdict

ALIVE: frozenset[Verdict] = frozenset({"healthy", "starting", "evaluating", "saving"})
DISKS = 3
"""The disks that a heartbeat names: those that are full first."""
ALERTS = 5
DAY = 86_400.0
RUNS = 20


def compose(state: State, now: Instant, alerts: Sequence[Alert]) -> tuple[str, tuple[str, ...]]:
    """The title and the lines of a heartbeat."""
    firing = [alert for alert in alerts if alert.is_firing]
    firing.sort(key=lambda alert: (SEVERITIES.index(alert.severity), alert.since))
    runs = sorted(state.runs.values(), key=lambda run: run.verdict not in ALIVE)
    lines = [line for run in runs[:RUNS] for line in _run(run, now)]
    if runs[RUNS:]:
        lines.append(f"and {counted(len(runs) - RUNS, 'run')} more")
    lines += [*_disks(state, now), *_gpus(state), *_alerts(firing, now), *_unseen(state, now)]
    return _title(runs, state, firing), tuple(lines)


def _title(runs: Sequence[Run], state: State, firing: Sequence[Alert]) -> str:
    if len(runs) == 1:
        (run,) = runs
        said = "alive" if run.verdict in ALIVE else run.verdict
        title = f"{clean(run.name, 60)} {said}" + ("".join(f": {step}" for step in [_step(run)] if step))
    elif runs:
        alive = sum(run.verdict in ALIVE for run in runs)
        title = f"{alive} of {counted(len(runs), 'run')} alive"
    else:
        title = f"{counted(len(state.nodes), 'node')} watched, no run"
    return f"{title} · {counted(len(firing), 'alert')} open" if firing else title


def _run(run: Run, now: Instant) -> Iterator[str]:
    said = "alive" if run.verdict == "healthy" else run.verdict
    why = f" ({clean(run.why, 120)})" if run.verdict != "healthy" and run.why else ""
    yield f"{clean(run.name, 60)}: {said}{why}"
    facts = [fact for fact in (_step(run), _loss(run), _rate(run), _eta(run, now)) if fact]
    if facts:
        yield f"  {', '.join(facts)}"
    if run.progress.at is not None and run.verdict in ALIVE:
        yield f"  last step {ago(now - run.progress.at)} ago"
    checkpoint = _checkpoint(run, now)
    if checkpoint:
        yield f"  {checkpoint}"


def _step(run: Run) -> str:
    progress = run.progress
    if progress.step is None:
        return ""
    target = progress.target_step or run.spec.target_step
    share = f" of {target:,} ({progress.step / target:.0%})" if target else ""
    return f"step {progress.step:,}{share}"


def _loss(run: Run) -> str:
    loss = run.progress.loss
    if loss is None:
        return ""
    return f"loss {loss:.4g}" if math.isfinite(loss) else "loss is no number"


def _rate(run: Run) -> str:
    progress = run.progress
    if progress.tokens_per_s is not None:
        return f"{progress.tokens_per_s:,.0f} tokens/s"
    if progress.samples_per_s is not None:
        return f"{progress.samples_per_s:,.4g} samples/s"
    seconds = progress.step_time_s if progress.step_time_s is not None else progress.cadence_s
    return f"{seconds:.3g} s a step" if seconds is not None else ""


def _eta(run: Run, now: Instant) -> str:
    return f"done in {ago(run.eta_at - now)}" if run.eta_at is not None and run.eta_at > now else ""


def _checkpoint(run: Run, now: Instant) -> str:
    checkpoints = run.checkpoints
    if checkpoints is None:
        return ""
    if checkpoints.error is not None:
        return f"checkpoints cannot be seen: {clean(checkpoints.error, 120)}"
    last = checkpoints.committed
    if last is None:
        return "no checkpoint yet"
    step = f" step {last.step:,}" if last.step is not None else ""
    age = f", {ago(now - last.at)} ago" if last.at is not None else ""
    risk = checkpoints.at_risk(run.progress.step)
    return f"last checkpoint{step}{age}" + (f", {counted(risk, 'step')} since" if risk else "")


def _disks(state: State, now: Instant) -> Iterator[str]:
    """The disks that are full first, by forecast and then by free share."""
    ordered = sorted(state.disks.values(), key=lambda disk: (_full_at(disk) or math.inf, _share(disk)))
    paths = Counter(disk.path for disk in ordered)
    for disk in ordered[:DISKS]:
        left = disk.left_bytes
        is_one = paths[disk.path] == 1 and disk.state == "ok"
        name = clean(disk.path, 80) + ("" if is_one else f" on {clean(disk.host, 60)}")
        if disk.state != "ok" or left is None:
            yield f"disk {name}: {clean(disk.error or disk.state, 80)}"
            continue
        at = _full_at(disk)
        days = f"{max(0.0, (at - now) / DAY):,.1f} days left" if at is not None else "not filling"
        yield f"disk {name}: {days}, {size(left)} free ({_share(disk):.0%})"
    if ordered[DISKS:]:
        yield f"and {counted(len(ordered) - DISKS, 'disk')} with more room"


def _full_at(disk: Disk) -> Instant | None:
    return min((at for at in (disk.full_at, disk.inodes_full_at) if at is not None), default=None)


def _share(disk: Disk) -> float:
    left = disk.left_bytes
    return left / disk.total_bytes if left is not None and disk.total_bytes else 1.0


def _gpus(state: State) -> Iterator[str]:
    nodes = state.nodes.values()
    expected = sum(_expected(node) for node in nodes)
    if not expected:
        return
    seen = [node for node in nodes if is_seen(state.sources.get(f"node:{node.name}"))]
    healthy = sum(gpu.state == "ok" for node in seen for gpu in node.gpus)
    silent = len(state.nodes) - len(seen)
    unseen = f", {counted(silent, 'node')} not seen" if silent else ""
    yield f"GPUs: {healthy:,} of {expected:,} healthy on {counted(len(state.nodes), 'node')}{unseen}"


def _expected(node: Node) -> int:
    return node.gpus_expected if node.gpus_expected is not None else len(node.gpus)


def _alerts(firing: Sequence[Alert], now: Instant) -> Iterator[str]:
    yield f"{counted(len(firing), 'alert')} open" if firing else "no alert is open"
    for alert in firing[:ALERTS]:
        whose = f", acknowledged by {clean(alert.acknowledged_by, 40)}" if alert.acknowledged_by else ""
        yield f"  {alert.severity}: {clean(alert.summary, 200)} (since {ago(now - alert.since)}{whose})"
    if firing[ALERTS:]:
        yield f"  and {len(firing) - ALERTS:,} more"


def _unseen(state: State, now: Instant) -> Iterator[str]:
    """The sources that do not answer: their data is old."""
    unseen = [source for source in state.sources.values() if source.health in ("late", "down")]
    for source in unseen[:ALERTS]:
        age = f" for {ago(now - source.seen_at)}" if source.seen_at is not None else ""
        yield f"not seen{age}: {clean(source.name, 80)}" + (f" ({clean(source.error, 120)})" if source.error else "")
    if unseen[ALERTS:]:
        yield f"and {counted(len(unseen) - ALERTS, 'source')} more"


def size(number: float) -> str:
    """Bytes as disks are sold: `2.3 TB`."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(number) < 1_000:
            return f"{number:.3g} {unit}"
        number /= 1_000
    return f"{number:,.3g} PB"
