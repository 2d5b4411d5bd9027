"""One job in full, as lines: state and reason, links, times, and every field. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from trainmon.analysis.runs import needed_to_save
from trainmon.lib import Instant, clean, duration
from trainmon.model import Job, Run, State
from trainmon.slurm import reasons
from tui.style import NOT_APPLICABLE, UNKNOWN, VERDICTS, Span, calm_age, count, since, whole
from tui.views.facts import fact, facts, linked_fact, more_fact, optional_fact, safe, wrapped_fact
from tui.views.jobs.nodes import folded, node_state
from tui.views.jobs.rows import runs_by_job
from tui.views.jobs.status import elapsed, is_missing, job_sign, seconds_left, state_code, status_text
from tui.widgets import Line, Link, Linked, sentence

NODES_SHOWN = 64
"""The most nodes with a line each. A job on a thousand nodes must not hide its fields."""


def job_lines(key: str, state: State, width: int) -> Iterator[Line | Linked]:
    """Everything known of one job."""
    job, now = state.jobs.get(key), state.at
    if job is None:
        yield (Span(f"Job {clean(key.partition('/')[2])} is no longer known.", "dim"),)
        return
    symbol, style = job_sign(job)
    word = "no longer in the queue" if is_missing(job) else job.state.lower().replace("_", " ")
    yield (Span(f"{symbol} {clean(word)}", f"{style} bold"),)
    source = state.sources.get(f"slurm:{job.cluster}")
    if source is not None and source.health in ("late", "down"):
        text = f"Slurm has not answered for {since(source.answered_at, now)}; this is old data: {source.error or ''}"
        yield from sentence(safe(text).rstrip(": "), width, "warn")
    yield from sentence(status_text(job, now).text or "runs", width)
    yield ()
    run = runs_by_job(state.runs.values()).get(job.key)
    yield from job_links(job, run, state, width)
    yield ()
    yield from times(job, run, now, width)
    yield ()
    yield from fields(job, now, width)


def job_links(job: Job, run: Run | None, state: State, width: int) -> Iterator[Line | Linked]:
    """Links to its run, nodes and log."""
    if run is not None:
        symbol, style = VERDICTS[run.verdict]
        yield linked_fact("run", Link("run", run.name), run.name, width, Span(f"  {symbol} {run.verdict}", style))
    yield from node_links(job.nodes, state, width)
    if not job.nodes:
        yield fact("nodes", f"{count(job.node_count)} requested", width, "dim")
    if run is not None and run.log is not None and run.log.path is not None and run.log.path == job.stdout:
        yield linked_fact("log", Link("log", run.name), job.stdout, width)
    else:
        yield from wrapped_fact("log", clean(job.stdout or ""), width)


def node_links(names: tuple[str, ...], state: State, width: int) -> Iterator[Line | Linked]:
    """A link per node, with the state of its GPUs and of its scheduler."""
    for index, node in enumerate(names[:NODES_SHOWN]):
        yield linked_fact("" if index else "nodes", Link("node", node), node, width, *node_health(node, state))
    yield from more_fact(len(names) - NODES_SHOWN, width)


def node_health(name: str, state: State) -> Line:
    """`  8 GPUs  max 64°C  1 lost or in error!`, or the age of its last answer."""
    source, node = state.sources.get(f"node:{name}"), state.nodes.get(name)
    if source is None:
        return (Span("  not watched", "dim") if node is None else Span("  never answered", "warn"),)
    if source.health == "off":
        return (Span("  off", "dim"),)
    if node is None or source.health != "ok":
        answered = (
            "never answered" if source.answered_at is None else f"last answer {since(source.answered_at, state.at)} ago"
        )
        return (Span(f"  {answered}", "warn"),)
    hot = max((gpu.temperature_c for gpu in node.gpus if gpu.temperature_c is not None), default=None)
    lost = sum(gpu.state != "ok" for gpu in node.gpus)
    listed = state.scheduler_nodes.get(name)
    return (
        Span(f"  {len(node.gpus)} GPUs" + (f"  max {hot}°C" if hot is not None else ""), "dim"),
        Span(f"  {lost} lost or in error!" if lost else "", "crit"),
        Span("" if listed is None or listed.is_usable else f"  {node_state(listed).partition(',')[0]}!", "warn"),
    )


def times(job: Job, run: Run | None, now: Instant, width: int) -> Iterator[Line]:
    """Submit, start and end times, and whether the time left suffices to save."""
    is_waiting, has_ended, has_started = job.stage == "waiting", job.stage == "ended", job.started_at is not None
    texts = {
        "submitted": time_and_age(job.submitted_at, now),
        "started": None if is_waiting else time_and_age(job.started_at, now),
        "last start": time_and_age(job.started_at, now) if is_waiting and has_started else None,
        "starts": time_and_age(job.starts_at, now) if is_waiting else None,
        "ended": time_and_age(job.ends_at, now) if has_ended else None,
        "ran for": whole(elapsed(job, now)) if has_ended else None,
        "running for": whole(elapsed(job, now)) if job.stage == "running" else None,
        "time limit": "none, or not known" if job.time_limit_s is None else duration(job.time_limit_s),
    }
    yield from facts(texts, width)
    yield from time_left(job, run, now, width)


def time_left(job: Job, run: Run | None, now: Instant, width: int) -> Iterator[Line]:
    """The time left of a running job, compared with the time of two steps and two saves."""
    seconds, needed = seconds_left(job, now), None if run is None else needed_to_save(run)
    if seconds is None:
        return
    is_short = needed is not None and seconds < needed
    before, after = (":", "!") if is_short else (";", "")
    saving = "" if needed is None else f"{before} saving needs {duration(needed)}{after}"
    yield fact("time left", duration(seconds) + saving, width, "crit" if is_short else "")


def time_and_age(at: Instant | None, now: Instant) -> str:
    """`2026-09-21 11:13 UTC, 3h ago`."""
    if at is None:
        return UNKNOWN
    day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{day}, {calm_age(now - at)} ago" if at <= now else f"{day}, in {duration(at - now)}"


def fields(job: Job, now: Instant, width: int) -> Iterator[Line]:
    """The other fields of Slurm; `?` is not requested yet."""
    where = f"{job.partition or UNKNOWN}, QOS {job.qos or NOT_APPLICABLE}, priority {count(job.priority)}"
    texts = {
        "job": clean(f"{job.id} ({state_code(job)}) on {job.cluster}, JobId={job.number}"),
        "array tasks": f"{job.elements} waiting" if job.is_waiting_array else None,
        "name": clean(job.name),
        "user": clean(f"{job.user}, account {job.account or NOT_APPLICABLE}"),
        "partition": clean(where),
        "restarts": count(job.restarts),
        "may requeue": {None: UNKNOWN, True: "yes", False: "no: disabled by the job or by the cluster"}[job.requeue],
        "reason": clean(job.reason) if job.reason else None,
    }
    yield from facts(texts, width, {"restarts": "bold" if job.restarts else ""})
    dependency = job.dependency or ""
    meaning = reasons.dependency_text(dependency) if dependency else ""
    yield from wrapped_fact("dependency", clean(dependency + (f": {meaning}" if meaning else "")), width)
    yield from wrapped_fact("excluded", clean(folded(job.excluded)), width)
    if job.exit_code is not None and job.stage == "ended":
        yield fact("exit code", clean(job.exit_code), width)
    stderr = None if job.stderr == job.stdout else job.stderr
    for name, text in (("workdir", job.workdir), ("command", job.command), ("stderr", stderr),
                       ("comment", job.comment)):  # fmt: skip
        yield from optional_fact(name, text, width)
    requested = "not requested yet" if job.detail_at is None else f"requested {calm_age(now - job.detail_at)} ago"
    yield fact("details", requested, width, "dim")
