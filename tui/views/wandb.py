"""The W&B data of a run as lines: phase, facts, attempts, samples, config. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainmon.analysis.wandb import label
from trainmon.lib import Instant, cell_width, clean, scrub, shorten, shorten_start
from trainmon.model import GroupPhase, Run, Sample, State, Wandb, WandbRun
from tui.charts import PHASES, heartbeat, number, trouble
from tui.style import Span, calm_age, count, since, size
from tui.views.facts import LABEL, fact, link_label, safe, wrapped_fact
from tui.widgets import Line, Link, Linked

FEW, MANY = 3, 20
"""Attempts and samples that are shown in a narrow pane, and on the run's own screen."""

SETTINGS_AT_MOST = 300

PHASE_WORDS: Mapping[GroupPhase, str] = {
    "active": "one is active",
    "several": "SEVERAL are active",
    "waiting": "none is active",
    "overdue": "OVERDUE: none is active",
    "ended": "ended",
    "none": "none was seen",
}


def wandb_lines(run: Run, state: State, width: int, *, few: bool) -> Iterator[Line | Linked]:
    """The W&B part of a run's details; nothing without a W&B project. `few`: the main lines only."""
    spec, found, now = run.spec.wandb, run.wandb, state.at
    if spec is None:
        return
    yield ()
    yield Linked(
        Link("wandb", run.name), (*link_label("W&B"), Span(shorten(safe(spec.description), width - LABEL), "accent"))
    )
    problem = trouble(state.sources.get(f"wandb:{run.name}"))
    if problem is not None:
        yield from wrapped_fact("error", safe(problem[0]), width, "crit")
        yield from wrapped_fact("", safe(problem[1]), width)
    if found is None or found.looked_at is None:
        yield fact("answered", "not yet", width, "dim")
        return
    yield from phase_lines(found, now, width, stale=problem is not None)
    if found.current is not None:
        yield from run_lines(found.current, found, now, width)
    yield from attempt_lines(found, now, width, FEW if few else MANY)
    yield from sample_lines(found.samples, width, FEW if few else MANY, few=few)


def phase_lines(found: Wandb, now: Instant, width: int, *, stale: bool) -> Iterator[Line]:
    """Whether an attempt is active, since when, and why that matters. `stale`: W&B does not answer now."""
    symbol, look = PHASES[found.phase]
    look = "dim" if stale else look
    known = "" if found.since is None else f", for {calm_age(max(0.0, now - found.since))}"
    yield fact("phase", f"{symbol} {PHASE_WORDS[found.phase]}{known}", width, look)
    if found.why:
        yield from wrapped_fact("", safe(found.why), width, "" if look in ("ok", "dim") else look)
    if found.loss_why:
        yield from wrapped_fact("loss", safe(found.loss_why), width, "crit" if found.loss_state == "nan" else "warn")
    if found.looked_at is not None:
        yield fact("answered", f"{calm_age(max(0.0, now - found.looked_at))} ago", width, "dim")


def run_lines(one: WandbRun, found: Wandb, now: Instant, width: int) -> Iterator[Line]:
    """The active attempt, or else the newest."""
    beat = heartbeat(found, one, now)
    yield fact("run", safe(label(one)), width, "bold")
    yield fact("state", f"{clean(one.state)}, {beat.text}", width, beat.style if one.id in found.active else "")
    rows = "" if one.lines is None else f", {count(one.lines)} rows of history"
    yield fact("W&B's step", count(one.step) + rows, width)
    facts = (("on", one.host), ("user", one.user), ("commit", one.commit), ("tags", ", ".join(one.tags)))
    for name, text in facts:
        if text:
            yield fact(name, safe(text), width)
    if one.url:
        yield from wrapped_fact("page", safe(one.url), width, "accent")


def attempt_lines(found: Wandb, now: Instant, width: int, at_most: int) -> Iterator[Line]:
    """The attempts of its group, the latest first."""
    order = {name: place for place, name in reversed(list(enumerate(found.attempts)))}
    runs = sorted(found.runs, key=lambda one: order.get(one.id, len(order)))
    for place, one in enumerate(runs[:at_most]):
        is_active = one.id in found.active
        words = f"{safe(label(one))}  {attempt_words(one, now)}"
        yield fact("" if place else "attempts", words, width, "ok" if is_active else "")
    if len(runs) > at_most:
        yield fact("", f"and {len(runs) - at_most} more", width, "dim")


def attempt_words(one: WandbRun, now: Instant) -> str:
    """`crashed at step 9,200, 5h to 3h ago`; `running at step 12,880, since 3h`."""
    step = "" if one.step is None else f" at step {count(one.step)}"
    begun = since(one.created_at, now)
    last = "" if one.heartbeat_at is None else calm_age(max(0.0, now - one.heartbeat_at))
    when = f"since {begun}" if one.state == "running" or not last else f"{begun} to {last} ago"
    return f"{clean(one.state)}{step}, {when}"


# ---- samples -------------------------------------------------------------------------------------------------------


def sample_lines(samples: tuple[Sample, ...], width: int, at_most: int, *, few: bool) -> Iterator[Line]:
    """The newest sample of each metric, and its file if it was fetched."""
    if not samples:
        if not few:
            yield fact("samples", "none was logged", width, "dim")
        return
    yield ()
    hint = "" if few else "  d fetches them to a folder"
    yield (Span(shorten(f"samples, the newest of each metric{hint}", width), "head"),)
    for one in samples[:at_most]:
        yield fact(shorten(safe(one.kind), LABEL - 1), sample_words(one), width)
        if not few:
            yield from more_of(one, width)
    if len(samples) > at_most:
        yield fact("", f"and {len(samples) - at_most} more", width, "dim")


def sample_words(one: Sample) -> str:
    """`val/generated  step 12,000  512×288  180K`."""
    parts = [safe(one.key)]
    parts += [] if one.step is None else [f"step {count(one.step)}"]
    parts += [] if one.width is None or one.height is None else [f"{one.width}×{one.height}"]
    parts += [] if one.bytes is None else [size(one.bytes)]
    return "  ".join(parts)


def more_of(one: Sample, width: int) -> Iterator[Line]:
    """The caption, the note and the file of a sample."""
    if one.caption:
        yield from wrapped_fact("", f"“{safe(one.caption)}”", width)
    if one.note:
        yield from wrapped_fact("", safe(one.note), width, "dim")
    if one.kept:
        yield fact("", f"at {shorten_start(clean(one.kept), width - LABEL - 3)}", width, "ok")
    else:
        yield fact("", f"not fetched: {shorten_start(clean(one.file), width - LABEL - 13)}", width, "dim")


# ---- summary and settings ------------------------------------------------------------------------------------------


def settings_lines(one: WandbRun, width: int) -> Iterator[Line]:
    """Its summary, and its config."""
    own = {key: value for key, value in one.summary.items() if not key.startswith("_")}  # the others are W&B's own
    numbers = {key: value if isinstance(value, str) else number(value) for key, value in own.items()}
    yield from table("summary: the latest of each metric", numbers, width)
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
