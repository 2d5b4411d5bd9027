"""The W&B data of a run as lines: phase, facts, attempts, samples, config. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainmon.analysis.wandb import label
from trainmon.lib import Instant, cell_width, clean, counted, scrub, shorten, shorten_start, size
from trainmon.model import GroupPhase, Run, Sample, State, Wandb, WandbRun
from tui.charts.values import PHASES, file_notes, heartbeat, newest_row, number, trouble
from tui.style import Span, calm_age, count, since
from tui.views.table import FROM_LOG, LABEL, fact, facts, linked_fact, more_fact, optional_fact, safe
from tui.widgets import Line, Link, Linked

FEW, MANY = 3, 20
"""Attempts and samples that are shown in a narrow pane, and on the run's own screen."""

SETTINGS_AT_MOST = 300

PHASE_TEXTS: Mapping[GroupPhase, str] = {
    "active": "one active W&B run",
    "several": "SEVERAL active W&B runs",
    "waiting": "no active W&B run",
    "overdue": "OVERDUE: no active W&B run",
    "ended": "ended",
    "none": "no W&B run found",
}


def wandb_lines(run: Run, state: State, width: int, *, few: bool) -> Iterator[Line | Linked]:
    """The W&B part of a run's details; nothing without a W&B project. `few`: the main lines only."""
    spec, found, now = run.spec.wandb, run.wandb, state.at
    yield from file_lines(run, now, width)
    if spec is None:
        return
    yield ()
    mark = Span(FROM_LOG if "wandb" in run.spec.from_log else "", "dim")
    yield linked_fact("W&B", Link("wandb", run.name), spec.description, width, mark)
    problem = trouble(state.sources.get(f"wandb:{run.name}"))
    if problem is not None:
        yield from optional_fact("error", problem[0], width, "crit")
        yield from optional_fact("", problem[1], width)
    if found is None or found.polled_at is None:
        yield fact("last data", "none yet", width, "dim")
        return
    yield from phase_lines(found, now, width, stale=problem is not None)
    yield fact("last data", f"{calm_age(max(0.0, now - found.polled_at))} ago", width, "dim")
    if found.current is not None:
        yield from run_lines(found.current, found, now, width)
    yield from attempt_lines(found, now, width, FEW if few else MANY)
    yield from sample_lines(found.samples, width, few=few)


def file_lines(run: Run, now: Instant, width: int) -> Iterator[Line | Linked]:
    """The files of its W&B client; nothing without a directory."""
    file = run.wandb_file
    if run.spec.wandb_dir is None:
        return
    yield ()
    mark = Span(FROM_LOG if "wandb_dir" in run.spec.from_log else "", "dim")
    yield linked_fact("W&B files", Link("wandb", run.name), run.spec.wandb_dir, width, mark)
    if file is None:
        yield fact("curves", "not read yet", width, "dim")
        return
    yield from optional_fact("file", file.path, width)
    yield fact("newest row", f"{newest_row(file, now)}, {counted(file.rows, 'row')}", width)
    newest = file.runs[0] if file.runs else None
    texts = {
        "run": None if newest is None else safe(newest.name),
        "project": safe(file.project) if file.project else None,
        "step": None if newest is None or newest.step is None else count(newest.step),
        "exit code": None if file.exit_code is None else str(file.exit_code),
    }
    yield from facts(texts, width, {"run": "bold"})
    for text, style in file_notes(run, file, None, now):
        yield from optional_fact("", text, width, style)


def phase_lines(found: Wandb, now: Instant, width: int, *, stale: bool) -> Iterator[Line]:
    """Whether an attempt is active, since when, and why that matters. `stale`: W&B does not answer now."""
    symbol, style = PHASES[found.phase]
    style = "dim" if stale else style
    since_when = "" if found.since is None else f", for {calm_age(max(0.0, now - found.since))}"
    yield fact("phase", f"{symbol} {PHASE_TEXTS[found.phase]}{since_when}", width, style)
    yield from optional_fact("", found.why, width, "" if style in ("ok", "dim") else style)
    yield from optional_fact("loss", found.loss_why, width, "crit" if found.loss_state == "nan" else "warn")


def run_lines(one: WandbRun, found: Wandb, now: Instant, width: int) -> Iterator[Line]:
    """The active attempt, or else the newest."""
    beat = heartbeat(found, one, now)
    texts = {
        "run": safe(label(one)),
        "state": f"{clean(one.state)}, {beat.text}",
        "W&B step": count(one.step) + ("" if one.lines is None else f", {counted(one.lines, 'row')} of history"),
        "on": safe(one.host) if one.host else None,
        "user": safe(one.user) if one.user else None,
        "commit": safe(one.commit) if one.commit else None,
        "tags": safe(", ".join(one.tags)) if one.tags else None,
    }
    yield from facts(texts, width, {"run": "bold", "state": beat.style if one.id in found.active else ""})
    yield from optional_fact("page", one.url, width, "accent")


def attempt_lines(found: Wandb, now: Instant, width: int, at_most: int) -> Iterator[Line]:
    """The attempts of its group, the latest first."""
    order = {name: index for index, name in reversed(list(enumerate(found.attempts)))}
    runs = sorted(found.runs, key=lambda one: order.get(one.id, len(order)))
    for index, one in enumerate(runs[:at_most]):
        text = f"{safe(label(one))}  {attempt_text(one, now)}"
        yield fact("" if index else "attempts", text, width, "ok" if one.id in found.active else "")
    yield from more_fact(len(runs) - at_most, width)


def attempt_text(one: WandbRun, now: Instant) -> str:
    """`crashed at step 9,200, 5h to 3h ago`; `running at step 12,880, for 3h`."""
    step = "" if one.step is None else f" at step {count(one.step)}"
    begun = since(one.created_at, now)
    last = "" if one.heartbeat_at is None else calm_age(max(0.0, now - one.heartbeat_at))
    when = f"for {begun}" if one.state == "running" or not last else f"{begun} to {last} ago"
    return f"{clean(one.state)}{step}, {when}"


# ---- samples -------------------------------------------------------------------------------------------------------


def sample_lines(samples: tuple[Sample, ...], width: int, *, few: bool) -> Iterator[Line]:
    """The newest sample of each metric, `val/generated  step 12,000  512×288  180K`; and of many also caption, note and
    file."""
    if samples:
        hint = "" if few else "  (press d to fetch them into a folder)"
        yield from ((), (Span(shorten(f"samples, the newest of each metric{hint}", width), "head"),))
    elif not few:
        yield fact("samples", "none logged", width, "dim")
    at_most = FEW if few else MANY
    for one in samples[:at_most]:
        parts = (
            safe(one.key),
            "" if one.step is None else f"step {count(one.step)}",
            "" if one.width is None or one.height is None else f"{one.width}×{one.height}",
            "" if one.bytes is None else size(one.bytes),
        )
        yield fact(shorten(safe(one.kind), LABEL - 1), "  ".join(part for part in parts if part), width)
        if few:
            continue
        yield from optional_fact("", f"“{one.caption}”" if one.caption else None, width)
        yield from optional_fact("", one.note, width, "dim")
        before, path = ("saved to ", one.kept) if one.kept else ("not fetched: ", one.file)
        path = shorten_start(clean(path), width - LABEL - len(before))
        yield fact("", before + path, width, "ok" if one.kept else "dim")
    yield from more_fact(len(samples) - at_most, width)


# ---- summary and settings ------------------------------------------------------------------------------------------


def settings_lines(one: WandbRun, width: int) -> Iterator[Line]:
    """Its summary, and its config."""
    own = {key: value for key, value in one.summary.items() if not key.startswith("_")}  # the others are W&B's own
    numbers = {key: value if isinstance(value, str) else number(value) for key, value in own.items()}
    yield from table("summary: the latest value of each metric", numbers, width)
    yield from table("config", one.config, width)


def table(title: str, values: Mapping[str, str], width: int) -> Iterator[Line]:
    """Names and values in two columns, by name."""
    if not values:
        return
    yield ()
    yield (Span(shorten(f"{title} ({len(values)})", width), "head"),)
    names = sorted(values)[:SETTINGS_AT_MOST]
    column = min(max(cell_width(name) for name in names) + 2, max(LABEL, width // 2))
    for name in names:
        shown = shorten_start(clean(name), column - 1)
        value = shorten(value_of(name, values[name]), width - column)
        yield (Span(shown + " " * (column - cell_width(shown)), "dim"), Span(value, "crit" if value == "nan" else ""))
    if len(values) > len(names):
        yield (Span(f"and {len(values) - len(names)} more", "dim"),)


def value_of(name: str, value: str) -> str:
    """A value without secrets. A name such as `api_key` makes its value a secret."""
    named = f"{clean(name)}="
    return scrub(named + clean(value)).removeprefix(named)
