"""One job in full, and the attempts of a run, as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from trainmon.analysis.attempts import silence, unrecorded
from trainmon.analysis.explanation import (
    Explanation,
    PageRow,
    Report,
    Section,
    page,
    report_page,
    report_sentence,
    short_id,
    start_format,
)
from trainmon.analysis.runs import cause_of, needed_to_save
from trainmon.lib import Instant, cell_width, clean, counted, duration, shorten
from trainmon.model import Job, Run, State, verdict_text
from trainmon.slurm import reasons
from trainmon.slurm.parse import NO_TASK
from tui.style import (
    NOT_APPLICABLE,
    UNKNOWN,
    VERDICTS,
    Line,
    Link,
    Linked,
    Span,
    Times,
    calm_age,
    count,
    in_zone,
    sentence,
    since,
    wall_clock,
    whole,
    width_of,
)
from tui.views.jobs import (
    elapsed,
    folded,
    is_missing,
    job_sign,
    node_state,
    runs_by_job,
    seconds_left,
    state_code,
    status_text,
)
from tui.views.table import (
    LABEL,
    apart,
    fact,
    facts,
    link_label,
    linked_fact,
    more_fact,
    optional_fact,
    safe,
    wrapped_fact,
)

# ---- one job in full, as lines ---------------------------------------------------------------------------------------

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
        text = f"No data from Slurm for {since(source.answered_at, now)}; this is old data: {source.error or ''}"
        yield from sentence(safe(text).rstrip(": "), width, "warn")
    status = sentence(status_text(job, now, cause_of(job, state.attempts.values())).text or "runs", width)
    run = runs_by_job(state.runs.values()).get(job.key)
    yield from apart(status, job_links(job, run, state, width), times(job, run, now, width), fields(job, now, width))


def job_links(job: Job, run: Run | None, state: State, width: int) -> Iterator[Line | Linked]:
    """Links to its run, nodes and log."""
    if run is not None:
        symbol, style = VERDICTS[run.verdict]
        yield linked_fact(
            "run", Link("run", run.name), run.name, width, Span(f"  {symbol} {verdict_text(run.verdict)}", style)
        )
    yield from node_links(job.nodes, state, width)
    if not job.nodes:
        yield fact("nodes", f"{count(job.node_count)} requested", width, "dim")
    if run is not None and run.log is not None and run.log.path is not None and run.log.path == job.stdout:
        yield linked_fact("log", Link("log", run.name), job.stdout, width)
    else:
        yield from wrapped_fact("log", output_text(job, job.stdout), width)


def output_text(job: Job, path: str | None) -> str:
    """The path of an output file. The tasks of an array that are pending have no single one."""
    return "each task has its own" if job.tasks and NO_TASK in (path or "") else clean(path or "")


def node_links(names: tuple[str, ...], state: State, width: int) -> Iterator[Line | Linked]:
    """A link per node, with the state of its GPUs and of its scheduler."""
    for index, node in enumerate(names[:NODES_SHOWN]):
        yield linked_fact("" if index else "nodes", Link("node", node), node, width, *node_health(node, state))
    yield from more_fact(len(names) - NODES_SHOWN, width)


def node_health(name: str, state: State) -> Line:
    """`  8 GPUs  max 64°C  1 lost or in error!`, or the age of its last answer."""
    source, node = state.sources.get(f"node:{name}"), state.nodes.get(name)
    if source is None:
        return (Span("  not watched", "dim") if node is None else Span("  no data yet", "warn"),)
    if source.health == "off":
        return (Span("  not connected", "dim"),)
    if node is None or source.health != "ok":
        answered = "no data yet" if source.answered_at is None else f"no data for {since(source.answered_at, state.at)}"
        return (Span(f"  {answered}", "warn"),)
    hot = max((gpu.temperature_c for gpu in node.gpus if gpu.temperature_c is not None), default=None)
    lost = sum(gpu.state != "ok" for gpu in node.gpus)
    listed = state.scheduler_nodes.get(name)
    return (
        Span(f"  {counted(len(node.gpus), 'GPU')}" + (f"  max {hot}°C" if hot is not None else ""), "dim"),
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
    saving = "" if needed is None else f"{before} a final save takes {duration(needed)}{after}"
    yield fact("time left", duration(seconds) + saving, width, "crit" if is_short else "")


def time_and_age(at: Instant | None, now: Instant) -> str:
    """`2026-09-21 11:13 UTC, 3h ago`."""
    if at is None:
        return UNKNOWN
    day = wall_clock(at).strftime("%Y-%m-%d %H:%M %Z")
    return f"{day}, {calm_age(now - at)} ago" if at <= now else f"{day}, in {duration(at - now)}"


def fields(job: Job, now: Instant, width: int) -> Iterator[Line]:
    """The other fields of Slurm; `?` is not requested yet."""
    where = f"{job.partition or UNKNOWN}, QOS {job.qos or NOT_APPLICABLE}, priority {count(job.priority)}"
    texts = {
        "job": clean(f"{job.id} ({state_code(job)}) on {job.cluster}, JobId={job.number}"),
        "array tasks": f"{job.elements} pending" if job.is_waiting_array else None,
        "name": clean(job.name),
        "user": clean(f"{job.user}, account {job.account or NOT_APPLICABLE}"),
        "partition": clean(where),
        "resources": clean(job.resources.replace(",", ", ")) if job.resources else None,
        "restarts": count(job.restarts),
        "may requeue": {None: UNKNOWN, True: "yes", False: "no: disabled by the job or by the cluster"}[job.requeue],
        "reason": clean(job.reason) if job.reason else None,
    }
    yield from facts(texts, width, {"restarts": "bold" if job.restarts else ""})
    dependency = job.dependency or ""
    meaning = reasons.dependency_text(dependency) if dependency else ""
    yield from wrapped_fact("dependency", clean(dependency + (f": {meaning}" if meaning else "")), width)
    yield from wrapped_fact("excluded", clean(folded(job.excluded)), width)
    yield from wrapped_fact("exit code", clean(job.exit_code or "") if job.stage == "ended" else "", width)
    stderr = "" if job.stderr == job.stdout else output_text(job, job.stderr)
    for name, text in (("workdir", job.workdir), ("command", job.command), ("stderr", stderr),
                       ("comment", job.comment)):  # fmt: skip
        yield from optional_fact(name, text, width)
    yield fact(
        "details",
        "not requested yet" if job.detail_at is None else f"requested {calm_age(now - job.detail_at)} ago",
        width,
        "dim",
    )


def text_lines(texts: Mapping[str, Sequence[str]], width: int) -> Iterator[Line]:
    """The texts of a job, each below its title."""
    for title, lines in texts.items():
        if lines:
            yield from ((), (Span(shorten(safe(title), width), "head"),))
            yield from ((Span(shorten(safe(line), width)),) for line in lines)


# ---- the attempts of a run, and the explanation of one, as lines -----------------------------------------------------

ATTEMPTS_SHOWN = 8


def attempt_lines(run: Run, state: State, width: int) -> Iterator[Line | Linked]:
    """A link per attempt: when it started, its cause, how long it ran, its last step, and the steps lost."""
    all_of_run = (one for one in state.attempts.values() if one.run_id == run.name)
    own, troubles = sorted(all_of_run, key=attrgetter("order"), reverse=True), [*_not_recorded(run, state)]
    if own or troubles:
        yield (Span("attempts", "head"),)
    for trouble in troubles:
        yield from wrapped_fact("not recorded", trouble, width, "warn")
    shown = own[:ATTEMPTS_SHOWN]
    starts = [None if one.started_at is None else wall_clock(one.started_at) for one in shown]
    shape = start_format((short_id(one), at) for one, at in zip(shown, starts, strict=True) if at is not None)
    for one, began in zip(shown, starts, strict=True):
        what = one.stage if one.end is None else "cause not known" if one.cause is None else one.cause.cause
        is_good = one.end is None or one.has_completed
        facts = (
            None if one.duration_s is None else ("~" if one.start_is_estimated else "") + duration(one.duration_s),
            None if one.last_step is None else f"step {count(one.last_step)}",
            None if not one.steps_lost else f"{count(one.steps_lost)} lost",
        )
        after = (Span(f"  {what}", "" if is_good else "warn"), Span("".join(f"  {fact}" for fact in facts if fact)))
        label = link_label(UNKNOWN if began is None else f"{began:{shape}} ")
        name = shorten(clean(short_id(one)), max(4, width - width_of((*label, *after))))
        yield Linked(Link("attempt", one.attempt_id), (*label, Span(name, "accent"), *after))
    yield from more_fact(len(own) - ATTEMPTS_SHOWN, width, hint=": trainmon-tui attempts lists them")
    if own:
        yield Linked(Link("report", run.name), (*link_label("report"), Span("where its GPU hours went", "accent")))


def _not_recorded(run: Run, state: State) -> Iterator[str]:
    """Why attempts of a run are not recorded now."""
    if state.ledger is not None:
        yield f"the ledger cannot be written: {clean(state.ledger)}"
    for name, runs in unrecorded(state).items():
        if run.name in runs:
            source = state.sources[name]
            why = clean(silence(name, source.answered_at, source.error, state.at))
            yield f"{why}: its attempts are recorded when it responds"


def explanation_lines(one: Explanation, width: int, charts: Iterable[Line] = ()) -> Iterator[Line | Linked]:
    """The page of an attempt. The charts follow the numbers of the GPUs."""
    near = one.attempt.ended_at or one.attempt.started_at or 0.0
    yield from sentence(in_zone(clean(one.sentence), near), width, "bold")
    yield ()
    yield _link_line(PageRow("", f"run {one.attempt.run_id}"), Link("run", one.attempt.run_id), 0, width)
    for section in page(one, Times.zone):
        yield from _section_lines(section, near, width)
        if section.title == "GPUs in the last hour" and (drawn := list(charts)):
            yield from ((), *drawn)


def report_lines(one: Report, width: int) -> Iterator[Line | Linked]:
    """The page of a report."""
    yield from sentence(clean(report_sentence(one)), width, "bold")
    if one.run is not None:
        yield from ((), _link_line(PageRow("", f"run {one.run}"), Link("run", one.run), 0, width))
    for section in report_page(one):
        yield from _section_lines(section, one.until, width)


def _section_lines(section: Section, near: Instant, width: int) -> Iterator[Line | Linked]:
    yield from ((), (Span(section.title, "head"),))
    label = min(LABEL, 2 + max((cell_width(row.label) for row in section.rows), default=0))
    for row in section.rows:
        yield from _row_lines(row if row.style == "log" else row._replace(text=in_zone(row.text, near)), label, width)


def _row_lines(row: PageRow, label: int, width: int) -> Iterator[Line | Linked]:
    if row.link is not None:
        kind, name = row.link
        yield _link_line(row, Link("node" if kind == "node" else "attempt", name), label, width)
        return
    style = "warn" if row.label.startswith(">") else "" if row.style == "log" else row.style
    head, is_short = f"{row.label:<{label}}", row.style == "log" and not row.label.startswith(">")
    room = max(8, width - label)
    texts = [(Span(shorten(row.text, room), "dim"),)] if is_short else list(sentence(row.text, room, style)) or [()]
    for index, spans in enumerate(texts):
        yield (Span(" " * label if index else head, "dim"), *spans)


def _link_line(row: PageRow, link: Link, label: int, width: int) -> Linked:
    text = shorten(row.text, max(4, width - label - 2))
    style = row.style if row.style in ("warn", "crit", "dim") else "accent"
    return Linked(link, (Span(f"{row.label:<{label}}", "dim"), Span("→ ", "accent"), Span(text, style)))
