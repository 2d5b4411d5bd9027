"""One job in full, as lines: state and reason, links, times, and every field. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from trainmon.analysis.runs import needed_to_save
from trainmon.lib import Instant, cell_width, clean, duration, shorten
from trainmon.model import Job, Run, State
from trainmon.slurm import reasons
from tui.style import NOT_APPLICABLE, UNKNOWN, VERDICTS, Span, calm_age, count, since, whole
from tui.views.facts import LABEL, fact, link_label, safe, wrapped_fact
from tui.views.jobs.node_status import folded, node_state
from tui.views.jobs.rows import runs_by_job
from tui.views.jobs.status import code, elapsed, is_missing, left, sign, why
from tui.widgets import Line, Link, Linked, sentence

NODES_SHOWN = 64
"""The most nodes with a line each. A job on a thousand nodes must not hide its fields."""


def job_lines(key: str, state: State, width: int) -> Iterator[Line | Linked]:
    """Everything known of one job."""
    job, now = state.jobs.get(key), state.at
    if job is None:
        yield (Span(f"Job {clean(key.partition('/')[2])} is no longer known.", "dim"),)
        return
    found = sign(job)
    word = "no longer in the queue" if is_missing(job) else job.state.lower().replace("_", " ")
    yield (Span(f"{found.text} {clean(word)}", f"{found.style} bold"),)
    yield from silence(job, state, width)
    yield from sentence(why(job, now).text or "runs", width)
    yield ()
    yield from leads(job, state, width)
    yield ()
    yield from times(job, state, width)
    yield ()
    yield from fields(job, now, width)


def silence(job: Job, state: State, width: int) -> Iterator[Line]:
    """A warning that its scheduler does not answer, so that the data is old."""
    source = state.sources.get(f"slurm:{job.cluster}")
    if source is not None and source.health in ("late", "down"):
        words = f"Slurm has not answered for {since(source.seen_at, state.at)}; this is old data: {source.error or ''}"
        yield from sentence(safe(words).rstrip(": "), width, "warn")


def leads(job: Job, state: State, width: int) -> Iterator[Line | Linked]:
    """Links to its run, nodes and log."""
    run = runs_by_job(state.runs.values()).get(job.key)
    if run is not None:
        symbol, look = VERDICTS[run.verdict]
        words = f"  {symbol} {run.verdict}"
        name = shorten(clean(run.name), width - LABEL - cell_width(words))
        yield Linked(Link("run", run.name), (*link_label("run"), Span(name, "accent"), Span(words, look)))
    yield from node_links("nodes", job.nodes, state, width)
    if not job.nodes:
        yield fact("nodes", f"{UNKNOWN if job.node_count is None else job.node_count} requested", width, "dim")
    log = clean(job.stdout or "")
    if run is not None and run.log is not None and run.log.path is not None and run.log.path == job.stdout:
        yield Linked(Link("log", run.name), (*link_label("log"), Span(shorten(log, width - LABEL), "accent")))
    elif log:
        yield from wrapped_fact("log", log, width)


def node_links(name: str, names: tuple[str, ...], state: State, width: int) -> Iterator[Line | Linked]:
    """A link per node, with the state of its GPUs and of its scheduler."""
    for place, node in enumerate(names[:NODES_SHOWN]):
        words = node_words(node, state)
        room = width - LABEL - sum(cell_width(span.text) for span in words)
        yield Linked(
            Link("node", node), (*link_label("" if place else name), Span(shorten(clean(node), room), "accent"), *words)
        )
    if len(names) > NODES_SHOWN:
        yield fact("", f"and {len(names) - NODES_SHOWN} more", width, "dim")


def node_words(name: str, state: State) -> Line:
    """`  8 GPUs  max 64°C  1 lost or in error!`, or the age of its last answer."""
    source, node = state.sources.get(f"node:{name}"), state.nodes.get(name)
    if source is None and node is None:
        return (Span("  not watched", "dim"),)
    if source is None or node is None or source.health != "ok":
        seen = source.seen_at if source is not None else None
        off = source is not None and source.health == "off"
        heard = "off" if off else f"last answer {since(seen, state.at)} ago" if seen is not None else "never answered"
        return (Span(f"  {heard}", "dim" if off else "warn"),)
    hot = max((gpu.temperature_c for gpu in node.gpus if gpu.temperature_c is not None), default=None)
    lost = sum(gpu.state != "ok" for gpu in node.gpus)
    told = state.scheduler_nodes.get(name)
    return (
        Span(f"  {len(node.gpus)} GPUs" + (f"  max {hot}°C" if hot is not None else ""), "dim"),
        Span(f"  {lost} lost or in error!" if lost else "", "crit"),
        Span("" if told is None or told.is_usable else f"  {node_state(told).partition(',')[0]}!", "warn"),
    )


def times(job: Job, state: State, width: int) -> Iterator[Line]:
    """Submit, start and end times, and whether the time left suffices to save."""
    now = state.at
    yield fact("submitted", moment(job.submitted_at, now), width)
    if job.stage != "waiting" or job.started_at is not None:
        yield fact("last start" if job.stage == "waiting" else "started", moment(job.started_at, now), width)
    if job.stage == "waiting":
        yield fact("starts", moment(job.starts_at, now), width)
    if job.stage == "ended":
        yield fact("ended", moment(job.ends_at, now), width)
    if job.stage in ("running", "ended"):
        yield fact("ran" if job.stage == "ended" else "runs for", whole(elapsed(job, now)), width)
    limit = "none, or not known" if job.time_limit_s is None else duration(job.time_limit_s)
    yield fact("time limit", limit, width)
    yield from time_left(job, runs_by_job(state.runs.values()).get(job.key), now, width)


def time_left(job: Job, run: Run | None, now: Instant, width: int) -> Iterator[Line]:
    """The time left of a running job, compared with the time of two steps and two saves."""
    seconds = left(job, now)
    if seconds is None:
        return
    needed = None if run is None else needed_to_save(run)
    if needed is None:
        yield fact("time left", duration(seconds), width)
    elif seconds < needed:
        yield fact("time left", f"{duration(seconds)}: saving needs {duration(needed)}!", width, "crit")
    else:
        yield fact("time left", f"{duration(seconds)}; saving needs {duration(needed)}", width)


def moment(at: Instant | None, now: Instant) -> str:
    """`2026-09-21 11:13 UTC, 3h ago`."""
    if at is None:
        return UNKNOWN
    day = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{day}, {calm_age(now - at)} ago" if at <= now else f"{day}, in {duration(at - now)}"


def fields(job: Job, now: Instant, width: int) -> Iterator[Line]:
    """The other fields of Slurm; `?` is not requested yet."""
    yield fact("job", clean(f"{job.id} ({code(job)}) on {job.cluster}, record {job.number}"), width)
    if job.is_waiting_array:
        yield fact("elements", f"{job.elements} wait", width)
    yield fact("name", clean(job.name), width)
    yield fact("user", clean(f"{job.user}, account {job.account or NOT_APPLICABLE}"), width)
    where = f"{job.partition or UNKNOWN}, QOS {job.qos or NOT_APPLICABLE}, priority {count(job.priority)}"
    yield fact("partition", clean(where), width)
    yield fact("restarts", count(job.restarts), width, "" if job.restarts is None else "bold" if job.restarts else "")
    may = {None: UNKNOWN, True: "yes", False: "no: set by the job or by the cluster"}[job.requeue]
    yield fact("may requeue", may, width)
    if job.reason:
        yield fact("reason", clean(job.reason), width)
    if job.dependency:
        words = reasons.dependency_text(job.dependency)
        yield from wrapped_fact("dependency", clean(f"{job.dependency}" + (f": {words}" if words else "")), width)
    if job.excluded:
        yield from wrapped_fact("excluded", clean(folded(job.excluded)), width)
    if job.exit_code is not None and job.stage == "ended":
        yield fact("exit code", clean(job.exit_code), width)
    for name, text in (("workdir", job.workdir), ("command", job.command), ("stderr", job.stderr),
                       ("comment", job.comment)):  # fmt: skip
        if text and not (name == "stderr" and text == job.stdout):
            yield from wrapped_fact(name, safe(text), width)
    asked = "not requested yet" if job.detail_at is None else f"requested {calm_age(now - job.detail_at)} ago"
    yield fact("details", asked, width, "dim")
