"""The attempts of a run, and the explanation of one, as lines. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from trainmon.analysis.attempts import silence, unrecorded
from trainmon.analysis.explanation import Explanation, PageRow, page, short_id, start_format
from trainmon.analysis.retries import order_of
from trainmon.lib import cell_width, clean, duration, shorten
from trainmon.model import Attempt, Run, State
from tui.style import UNKNOWN, Span, count
from tui.views.facts import LABEL, link_label, more_fact, wrapped_fact
from tui.widgets import Line, Link, Linked, sentence, width_of

ATTEMPTS_SHOWN = 8
STYLES = {"log": ""}


def attempts_of(run: Run, state: State) -> list[Attempt]:
    """The attempts of a run, the newest first."""
    own = (one for one in state.attempts.values() if one.run_id == run.name)
    return sorted(own, key=order_of, reverse=True)


def attempt_lines(run: Run, state: State, width: int) -> Iterator[Line | Linked]:
    """A link per attempt: when it started, its cause, how long it ran, its last step, and the steps lost."""
    own, troubles = attempts_of(run, state), [*_not_recorded(run, state)]
    if own or troubles:
        yield (Span("attempts", "head"),)
    for trouble in troubles:
        yield from wrapped_fact("not recorded", trouble, width, "warn")
    shown = own[:ATTEMPTS_SHOWN]
    starts = [None if one.started_at is None else datetime.fromtimestamp(one.started_at, UTC) for one in shown]
    shape = start_format((short_id(one), at) for one, at in zip(shown, starts, strict=True) if at is not None)
    for one, began in zip(shown, starts, strict=True):
        runs = "runs" if one.stage == "running" else one.stage
        what = runs if one.end is None else "cause not known" if one.cause is None else one.cause.cause
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


def _not_recorded(run: Run, state: State) -> Iterator[str]:
    """Why attempts of a run are not recorded now."""
    if state.ledger is not None:
        yield f"the ledger cannot be written: {clean(state.ledger)}"
    for name, runs in unrecorded(state).items():
        if run.name in runs:
            source = state.sources[name]
            why = clean(silence(name, source.answered_at, source.error, state.at))
            yield f"{why}: its attempts are recorded when it answers"


def explanation_lines(one: Explanation, width: int, charts: Iterable[Line] = ()) -> Iterator[Line | Linked]:
    """The page of an attempt. The charts follow the numbers of the GPUs."""
    yield from sentence(clean(one.sentence), width, "bold")
    yield ()
    yield _link_line(PageRow("", f"run {one.attempt.run_id}", "", ("run", one.attempt.run_id)), 0, width)
    for section in page(one):
        yield from ((), (Span(section.title, "head"),))
        label = min(LABEL, 2 + max((cell_width(row.label) for row in section.rows), default=0))
        for row in section.rows:
            yield from _row_lines(row, label, width)
        if section.title == "GPUs in the last hour" and (drawn := list(charts)):
            yield from ((), *drawn)


def _row_lines(row: PageRow, label: int, width: int) -> Iterator[Line | Linked]:
    if row.link is not None:
        yield _link_line(row, label, width)
        return
    style = "warn" if row.label.startswith(">") else STYLES.get(row.style, row.style)
    head, is_short = f"{row.label:<{label}}", row.style == "log" and not row.label.startswith(">")
    room = max(8, width - label)
    texts = [(Span(shorten(row.text, room), "dim"),)] if is_short else list(sentence(row.text, room, style)) or [()]
    for index, spans in enumerate(texts):
        yield (Span(" " * label if index else head, "dim"), *spans)


def _link_line(row: PageRow, label: int, width: int) -> Linked:
    assert row.link is not None
    kind, name = row.link
    text = shorten(row.text, max(4, width - label - 2))
    link = Link("node" if kind == "node" else "run" if kind == "run" else "attempt", name)
    style = row.style if row.style in ("warn", "crit", "dim") else "accent"
    return Linked(link, (Span(f"{row.label:<{label}}", "dim"), Span("→ ", "accent"), Span(text, style)))
