"""The details of a run as lines: jobs, checkpoints, switches, actions. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.analysis.gpus import unread
from trainmon.lib import Instant, cell_width, clean, duration, shorten, shorten_start
from trainmon.model import Checkpoint, Checkpoints, Job, Record, Run, State, Switch, Verdict
from tui.style import UNKNOWN, VERDICTS, Span, calm_age, count, since, size
from tui.views.facts import LABEL, fact, link_label, safe, wrapped_fact
from tui.views.jobs import clusters, code, is_missing, time_left, why
from tui.views.news import reached
from tui.widgets import Line, Link, Linked, sentence

JOBS_SHOWN = 6
ACTIONS_SHOWN = 5
TORN_SHOWN = 3

# ---- jobs ----------------------------------------------------------------------------------------------------------


def job_lines(run: Run, state: State, width: int) -> Iterator[Line | Linked]:
    """The job that trains, its time left, the jobs queued behind it, and the last that ended."""
    own = [state.jobs[key] for key in run.jobs if key in state.jobs]
    if not own:
        if run.spec.cluster in clusters(state):
            yield fact("job", "no job of this name in the queue", width, "dim")
        return
    for place, job in enumerate(own[:JOBS_SHOWN]):
        waits = job.stage == "waiting" and not is_missing(job)
        label = "job" if place == 0 else "next job" if waits else "previous job"
        yield Linked(Link("job", job.key), (*link_label(label), *job_words(job, state.at, width - LABEL)))
        if place == 0:
            yield from time_left(job, run, state.at, width)
            if job.restarts:
                yield fact("restarts", str(job.restarts), width, "bold")
    if len(own) > JOBS_SHOWN:
        yield fact("", f"and {len(own) - JOBS_SHOWN} more", width, "dim")
    if run.queued_behind is not None:
        yield fact("queued behind", str(run.queued_behind or "nothing"), width, "" if run.queued_behind else "dim")


def job_words(job: Job, now: Instant, width: int) -> Line:
    """`418190  R  on gpu-[001-004]`."""
    name = shorten(clean(job.id), width)
    found = why(job, now)
    state = f"  {UNKNOWN if is_missing(job) else code(job)}  "
    rest = shorten(found.text or "runs", max(0, width - cell_width(name) - cell_width(state)))
    return (Span(name, "accent"), Span(clean(state)), Span(rest, found.style))


# ---- checkpoints ---------------------------------------------------------------------------------------------------


def overdue(checkpoints: Checkpoints, now: Instant) -> bool:
    """Whether the next checkpoint is late: more than twice the usual time since the last."""
    last, usual = checkpoints.committed, checkpoints.every_s
    return last is not None and last.at is not None and usual is not None and now - last.at > 2 * usual


def checkpoint_lines(run: Run, state: State, width: int) -> Iterator[Line]:
    """The last checkpoint, the steps at risk, problems, and the cost of saving."""
    found, now = run.checkpoints, state.at
    if found is None:
        mute = unread(run.spec.cluster, state.nodes)
        words = (mute or "not read yet") if run.spec.checkpoints else "no directory configured"
        yield from wrapped_fact("checkpoint", words, width, "warn" if mute and run.spec.checkpoints else "dim")
        return
    if found.error is not None:
        yield from wrapped_fact("checkpoint", safe(found.error), width, "warn")
    yield from last_lines(run, found, now, width)
    if found.problem is not None:
        yield from wrapped_fact("problem", safe(found.problem), width, "crit")
    elif found.resumes is not None:
        yield fact("would resume", shorten_start(clean(found.resumes), width - LABEL), width)
    writing = found.writing
    if writing is not None:
        began = "" if writing.began_at is None else f" for {duration(max(0.0, now - writing.began_at))}"
        usual = "" if found.save_s is None else f", usually {duration(found.save_s)}"
        yield fact("writing", f"{name(writing)}{began}{usual}", width, "accent")
    torn = [one for one in found.list if one.state == "torn"]
    for place, one in enumerate(torn[:TORN_SHOWN]):
        words = f"{name(one)}{f': {one.why}' if one.why else ''}"
        more = f" (and {len(torn) - TORN_SHOWN} more)" if len(torn) > TORN_SHOWN == place + 1 else ""
        yield fact("" if place else "torn", safe(words + more), width, "warn")
    yield from cost_lines(found, width)
    if found.note:
        yield from wrapped_fact("left out", safe(found.note), width, "dim")
    yield fact("looked at", f"{calm_age(now - found.looked_at)} ago on {clean(found.host)}", width, "dim")


def last_lines(run: Run, found: Checkpoints, now: Instant, width: int) -> Iterator[Line]:
    """The last committed step, and the steps since then: a crash now would lose them."""
    last = found.committed
    if last is None:
        if found.error is None:
            yield fact("checkpoint", "none is committed", width, "" if found.problem is None else "crit")
        if found.at_risk(run.progress.step):
            yield fact("at risk", f"all {count(run.progress.step)} steps", width, "warn")
        return
    late = overdue(found, now)
    usual = f", usually every {duration(found.every_s)}" if late and found.every_s is not None else ""
    yield fact(
        "checkpoint", f"{name(last)} committed {since(last.at, now)} ago{usual}{'!' if late else ''}", width,
        "warn" if late else "",
    )  # fmt: skip
    if run.progress.step is not None and last.step is not None:
        steps = run.progress.step - last.step
        step_s = run.progress.step_time_s  # not the cadence: a trainer may print every tenth step
        lost = f", about {duration(steps * step_s)} of work" if step_s and steps > 0 else ""
        if steps >= 0:
            yield fact("at risk", f"{count(steps)} steps{lost}", width)
        else:
            yield fact("at risk", f"nothing; {count(-steps)} steps ahead of the log", width, "dim")


def name(one: Checkpoint) -> str:
    """`step 12,500`, or the name of the file."""
    return clean(one.path.rpartition("/")[2]) if one.step is None else f"step {count(one.step)}"


def cost_lines(found: Checkpoints, width: int) -> Iterator[Line]:
    """`takes 40s every 34m = 2.0 % of the time`, and the size of a checkpoint."""
    parts = []
    if found.save_s is not None:
        parts.append(f"takes {duration(found.save_s)}")
    if found.every_s is not None:
        steps = "" if found.every_steps is None else f" ({count(found.every_steps)} steps)"
        parts.append(f"every {duration(found.every_s)}{steps}")
    share = "" if found.share is None else f" = {100 * found.share:.2f} % of the time"
    if parts:
        yield fact("saving", " ".join(parts) + share, width)
    if found.bytes is not None:
        yield fact("size", f"{size(found.bytes)} each", width)


# ---- switches and actions ------------------------------------------------------------------------------------------


def switch(label: str, found: Switch | None, now: Instant, width: int) -> Iterator[Line]:
    """One switch file: armed (when, by whom, why), taken, absent, or unknown."""
    label = f"{label} switch"
    if found is None:
        yield fact(label, "not configured", width, "dim")
    elif found.error is not None or found.exists is None:
        yield from wrapped_fact(label, f"? {safe(found.error or '')}".rstrip(), width, "dim")
    elif found.exists:
        by = f" by {found.by}" if found.by else ""
        because = f": {found.why}" if found.why else ""
        text = safe(f"ARMED {since(found.armed_at, now)} ago{by}{because}")
        yield from wrapped_fact(label, text, width, "crit" if label.startswith("kill") else "warn")
    elif found.taken_at is not None:
        yield fact(label, f"taken {since(found.taken_at, now)} ago", width, "ok")
    else:
        yield fact(label, "not armed", width)


def action_lines(run: Run, state: State, width: int) -> Iterator[Line]:
    """The latest actions on a run, the newest first, and their results."""
    own = [record for record in state.actions.values() if record.action.run == run.name]
    for place, record in enumerate(reversed(own[-ACTIONS_SHOWN:])):
        if place == 0:
            yield ()
            yield (Span("recent actions", "head"),)
        yield from record_lines(record, state.at, width)


LOOKS = {"failed": "crit", "refused": "warn", "unknown": "warn"}


def record_lines(record: Record, now: Instant, width: int) -> Iterator[Line]:
    """`save, 2m ago by ana: done`, then a line for each expected result."""
    action = record.action
    asked = f"{calm_age(now - action.asked_at)} ago by {action.who or UNKNOWN}"
    outcome = f": {record.outcome}" if record.outcome else ""
    status = "running" if record.status == "asked" and record.is_open else record.status
    yield from sentence(safe(f"{action.verb}, {asked}, {status}{outcome}"), width, LOOKS.get(record.status, ""))
    for mark in record.marks:
        if mark.missed is not None:
            yield from indented(f"✗ {mark.name}: {mark.missed}", width, "warn")
        elif mark.at is None:
            yield from indented(f"◌ {mark.name}", width, "dim")
        else:
            yield from indented(f"✓ {reached(mark.name, mark.at, record)}", width, "ok")
    if record.note:
        yield from indented(record.note, width, "warn")


def indented(text: str, width: int, verdict_style: str) -> Iterator[Line]:
    for spans in sentence(safe(text), width - 2, verdict_style):
        yield (Span("  "), *spans)


WORST_FIRST: tuple[Verdict, ...] = (
    "dead", "hung", "diverged", "stalled", "data-stall", "unknown", "starting", "evaluating", "saving", "healthy",
    "queued", "idle", "stopped", "finished",
)  # fmt: skip

GOING = frozenset({"healthy", "evaluating", "saving"})
"""Verdicts of runs that make progress. The other verdicts take the place of the time left."""

RANK: dict[Verdict, int] = {
    verdict: WORST_FIRST.index("healthy" if verdict in GOING else verdict) for verdict in WORST_FIRST
}
"""The sort order. A run that saves ranks like one that steps, so that it does not jump at each save."""


def verdict_style(verdict: Verdict) -> str:
    """The style of a verdict."""
    return VERDICTS[verdict][1]
