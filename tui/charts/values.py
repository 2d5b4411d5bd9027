"""The texts around the charts: latest values and their changes, the state of the W&B run, problems. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from trainmon.analysis.wandb import active_run, client_file
from trainmon.lib import Instant, Seconds, cell_width, clean, counted, shorten, shorten_start, size
from trainmon.model import GroupPhase, Run, Source, Wandb, WandbFile, WandbRun
from tui.charts.axes import UNITS
from tui.charts.curves import Copy
from tui.style import (
    CRIT,
    DEAD,
    DONE,
    DOT,
    OK,
    WAITING,
    WARN,
    Row,
    Span,
    calm_age,
    count,
    pad,
    sentence,
    short,
    width_of,
)

# ---- what the files of metrics are shown to say -----------------------------------------------------------------

INCOMPLETE = "the file ends in an incomplete record: its client has not written the rest"
WRITER = {
    "W&B": "The W&B client writes rows in blocks of 32 KiB.",
    "TensorBoard": "TensorBoard's writer may keep rows for two minutes.",
}

UNREAD = 256 * 1024
"""Bytes that are still to be read, above which the progress is shown."""


def newest_row(file: WandbFile, now: Instant) -> str:
    """`6s old`."""
    return "none yet" if file.logged_at is None else f"{calm_age(max(0.0, now - file.logged_at))} old"


def source_of(file: WandbFile) -> str:
    """What its curves come from."""
    return "the file" if file.format == "W&B" else clean(file.format)


def file_spans(file: WandbFile, now: Instant) -> tuple[Span, ...]:
    """The line over the charts: `∙ from the file, newest row 6s old  step 12,880  exit code 0  on gpu-001`; of other
    formats than W&B's `from TensorBoard`."""
    run = file.runs[0] if file.runs else None
    parts = (
        f"from {source_of(file)}, newest row {newest_row(file, now)}",
        "" if run is None or run.step is None else f"step {count(run.step)}",
        "" if file.exit_code is None else f"exit code {file.exit_code}",
        f"on {run.host}" if run is not None and run.host else "",
        clean(file.project),
    )
    return (Span(f"{DOT} ", "dim"), Span("  ".join(part for part in parts if part)))


def file_notes(run: Run, file: WandbFile, served: Wandb | None, now: Instant) -> Iterator[tuple[str, str]]:
    """The notes, each with its style: where the curves come from beside W&B's state, and what is amiss."""
    if served is not None and served.current is not None:
        yield f"{DOT} curves from {source_of(file)}, newest row {newest_row(file, now)}", "dim"
    if file.error:
        yield f"{CRIT} {clean(file.error)}", "crit"
    if file.is_behind and file.size - file.offset > UNREAD:
        yield f"{DOT} reading the file: {100 * file.offset // file.size}% of {size(file.size)}", "dim"
    if client_file.ends_incomplete(file, run.verdict):
        yield f"{DOT} {INCOMPLETE}", "dim"
    if file.damaged:
        yield f"{WARN} {counted(file.damaged, 'damaged part')} of the file skipped", "warn"
    if file.damaged_before:
        yield f"{DOT} {counted(file.damaged_before, 'damaged part')} of earlier files skipped", "dim"


def why_no_rows(run: Run) -> list[tuple[str, str]]:
    """The sentences that replace the charts of a run whose curves come only from a file."""
    name, file = clean(run.name), run.wandb_file
    if file is None or file.checked_at is None:
        return [(f"{name}: its metric files have not been read yet: {clean(run.spec.wandb_dir or '')}.", "dim")]
    if file.error:
        return [(f"{name}: {clean(file.error)}", "crit")]
    is_over = client_file.ends_incomplete(file, run.verdict)
    row = f"row to chart{'' if is_over else ' yet'}: {clean(file.path or '')}."
    return [
        (f"{name}: its newest {clean(file.format)} file has no {row}", "dim"),
        (f"{INCOMPLETE[0].upper()}{INCOMPLETE[1:]}." if is_over else WRITER.get(file.format, ""), "dim"),
    ]


# ---- the texts around the charts -------------------------------------------------------------------------------------

CHANGE_STEPS = 100

SILENT_AFTER: Seconds = 600.0
"""After about this time without a heartbeat, W&B calls a run crashed."""


# ---- values --------------------------------------------------------------------------------------------------------


class Change(NamedTuple):
    """The change from the value so many steps ago to the last one."""

    by: float
    steps: int


def change(copy: Copy) -> Change | None:
    """The change over 100 steps: over fewer if there are not as many, over more if the metric is logged less often."""
    if len(copy) < 2:
        return None
    last = copy.steps[-1]
    before = copy.index_of(last - CHANGE_STEPS)
    steps, by = int(last - copy.steps[before]), copy.values[-1] - copy.values[before]
    return Change(by, steps) if math.isfinite(by) and steps > 0 else None


def number(value: float) -> str:
    """At most eight cells, with about four digits: 2.113, 412.4k, 3.00e-04, nan."""
    if not math.isfinite(value):
        return short(value)
    value = float(f"{value:.4g}")  # before its unit is chosen: 999,999 is 1M
    size = abs(value)
    if value == 0:
        return "0"
    if size >= 1e15 or size < 1e-3:
        return f"{value:.2e}"
    for least, unit, name in UNITS:
        if size >= least:
            return f"{value / unit:.4g}{name}"
    return f"{value:.0f}" if size >= 1000 else f"{value:.4g}"


def signed(found: Change | None) -> str:
    """`+0.012`, `-3.4k`; `=` for no change, `-` if there is no earlier value."""
    if found is None:
        return "-"
    return "=" if found.by == 0 else ("+" if found.by > 0 else "") + number(found.by)


def value_style(value: float | None) -> str:
    return "" if value is None or math.isfinite(value) else "crit"


def title(
    name: str,
    value: float | None,
    found: Change | None,
    note: str,
    width: int,
    values: Sequence[Span] = (),
    style: str = "accent",
) -> tuple[Span, ...]:
    """The line over a chart, exactly `width` cells: metric, latest value and change, or the values under the cursor.
    `style`: the colour of its curve."""
    if values:
        spans = [Span(shorten_start(name, max(8, width - 12)), "bold")]
        for span in values:
            if width_of(spans) + cell_width(span.text) + 2 <= width:
                spans += (Span("  "), span)
        return (*spans, Span(" " * (width - width_of(spans))))
    latest = "" if value is None else number(value)
    moved = "" if found is None or found.by == 0 else f"  {signed(found)} in {counted(found.steps, 'step')}"
    name = shorten_start(name, max(8, width - cell_width(latest) - cell_width(note) - (5 if note else 3)))
    left = max(0, width - cell_width(name) - 2 - cell_width(latest))
    rest = f"  {note}" if note else moved
    return (
        Span(name, "bold"),
        Span("  "),
        Span(latest, value_style(value) or style),
        Span(pad(rest if cell_width(rest) <= left else "", left), "warn" if note else "dim"),
    )


VALUE, CHANGED = 9, 10


def head(width: int) -> tuple[Span, ...]:
    name = max(4, width - VALUE - CHANGED)
    return (Span(f"{'METRIC':<{name}}{'LAST':>{VALUE}}{'CHANGE':>{CHANGED}}", "head"),)


def rows(charted: Sequence[tuple[str, Copy]], summary: Mapping[str, float | str], width: int) -> list[Row]:
    """The charted metrics in their order, then the other latest values of W&B."""
    latest = {key: value for key, value in summary.items() if not (key.startswith("_") or isinstance(value, str))}
    names = labels([*dict(charted), *latest], max(4, width - VALUE - CHANGED) - 1)
    made = []
    for key, copy in charted:
        value = latest.pop(key, None)
        changed = signed(change(copy))
        made.append(value_row(key, names[key], copy.values[-1] if len(copy) else value, changed, style=""))
    return made + [value_row(key, names[key], value, "", style="dim") for key, value in sorted(latest.items())]


def value_row(key: str, name: str, value: float | None, changed: str, *, style: str) -> Row:
    shown = "?" if value is None else number(value)
    value_span = Span(f"{shown:>{VALUE}}", value_style(value) or style)
    return Row(key, (Span(name, style), value_span, Span(f"{changed:>{CHANGED}}", "dim")))


def labels(names: Sequence[str], width: int) -> dict[str, str]:
    """Names in so many cells and a space. Those whose ends are alike show where they differ."""
    cut = {name: shorten_start(clean(name), width) for name in names}
    taken = Counter(cut.values())
    alike = sorted(name for name in cut if taken[cut[name]] > 1)
    for before, name, after in zip(["", *alike], alike, [*alike[1:], ""], strict=False):
        differs = max(_first_difference(name, other) for other in (before, after))
        cut[name] = shorten(f"…{clean(name)[max(0, differs - width // 2) :]}", width)
    return {name: pad(text, width + 1) for name, text in cut.items()}


def _first_difference(name: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), len(other))


def setting_rows(run: WandbRun, width: int) -> Iterator[Row]:
    """All settings of a run, then all its latest values."""
    room = max(12, width // 2)
    for what, values in (("settings", run.config), ("latest values", run.summary)):
        shown = sorted((key, value) for key, value in values.items() if not key.startswith("_"))
        yield Row(what, (Span(f"{what.upper()} ({len(shown) or 'none are known'})", "head"),))
        names = labels([key for key, _ in shown], room - 1)
        for key, value in shown:
            text = clean(value) if isinstance(value, str) else number(value)
            yield Row(f"{what}/{key}", (Span(names[key]), Span(shorten(text, width - room), "accent")))


# ---- the state of the run ------------------------------------------------------------------------------------------

PHASES: Mapping[GroupPhase, tuple[str, str]] = {
    "active": (OK, "ok"),
    "several": (WARN, "warn"),
    "waiting": (WAITING, "warn"),
    "overdue": (CRIT, "crit"),
    "ended": (DONE, "dim"),
    "none": (DOT, "dim"),
}


def source_spans(run: Run, shown: Wandb, now: Instant, width: int, *, is_failing: bool) -> tuple[Span, ...]:
    """The state of the W&B run; without one, how old the file is that the curves come from."""
    file = client_file.file_of(run, shown)
    if file is not None and (run.wandb is None or run.wandb.current is None):
        return tuple(Span(shorten(span.text, width - 2), span.style) for span in file_spans(file, now))
    return state_spans(run.wandb or shown, now, width, stale=is_failing)


def state_spans(wandb: Wandb, now: Instant, width: int, *, stale: bool = False) -> tuple[Span, ...]:
    """`● running  heartbeat 12s ago  step 12,880  on gpu-001  https://…`, as much as fits."""
    symbol, style = PHASES[wandb.phase]
    style = "dim" if stale else style
    spans = [Span(f"{symbol} ", style)]
    left = width - 2
    run = wandb.current
    parts = (
        ()
        if run is None
        else (
            Span(run.state, style),
            heartbeat(wandb, run, now),
            Span("" if run.step is None else f"step {count(run.step)}"),
            Span(f"on {run.host}" if run.host else "", "dim"),
            Span(f"by {run.user}" if run.user else "", "dim"),
            Span(run.url or "", "dim"),
        )
    )
    for span in (span for span in parts if span.text):
        text = f"{'  ' if len(spans) > 1 else ''}{clean(span.text)}"
        if len(spans) > 1 and left < min(16, cell_width(text)):
            break
        spans.append(Span(shorten(text, left), span.style))
        left -= cell_width(spans[-1].text)
    return tuple(spans)


def heartbeat(wandb: Wandb, run: WandbRun, now: Instant) -> Span:
    quiet = active_run.silent_for(wandb, run, now)
    if quiet is None:
        return Span("no heartbeat yet", "dim")
    return Span(f"heartbeat {calm_age(quiet)} ago", "warn" if run.state == "running" and quiet > SILENT_AFTER else "")


def trouble(source: Source | None) -> tuple[str, str] | None:
    """The error of the source, and its hint."""
    if source is None or source.error is None:
        return None
    return clean(source.error), clean(source.hint or "")


WARNING_PHASES = frozenset[GroupPhase]({"several", "waiting", "overdue"})
"""The phases that are shown as a warning."""

NOTE_LINES = 3


def notes(
    wandb: Wandb,
    problem: tuple[str, str] | None,
    now: Instant,
    width: int,
    more: Iterable[tuple[str, str]] = (),
) -> list[tuple[Span, ...]]:
    """The lines over the charts: problems of the source, of the group and of the loss, then `more`, with styles."""
    problems: list[tuple[str, str]] = []
    if problem is not None:
        problems.append((f"{DEAD} {problem[0]}{f' ({problem[1]})' if problem[1] else ''}", "crit"))
    if wandb.phase in WARNING_PHASES and wandb.why:
        symbol, style = PHASES[wandb.phase]
        since = "" if wandb.since is None else f"; {calm_age(max(0.0, now - wandb.since))} so far"
        problems.append((f"{symbol} {clean(wandb.why)}{since}", style))
    if wandb.loss_why:
        symbol, style = (CRIT, "crit") if wandb.loss_state == "nan" else (WARN, "warn")
        problems.append((f"{symbol} {clean(wandb.loss_why)}", style))
    return [line for text, style in (*problems, *more) for line in beginning(text, width, style)]


def beginning(text: str, width: int, style: str) -> Iterator[tuple[Span, ...]]:
    """The first lines of a text, with `…` if there are more: the run's screen shows all."""
    lines = list(sentence(text, width, style))
    yield from lines[: NOTE_LINES - 1]
    for line in lines[NOTE_LINES - 1 : NOTE_LINES]:
        more = "…" if len(lines) > NOTE_LINES else ""
        yield (Span(shorten("".join(span.text for span in line) + more, max(8, width)), style),)


def why_nothing(run: Run | None, wanted: str | None, problem: tuple[str, str] | None) -> list[tuple[str, str]]:
    """The sentences that replace the charts; empty if there are charts."""
    if wanted is None:
        return [("No run is selected.", "dim")]
    if run is None:
        return [(f"{clean(wanted)} is no longer watched.", "dim")]
    if any(file is not None and file.points and file.keys for file in (run.wandb_file, run.log_metrics)):
        return []
    if run.spec.wandb is None and run.spec.wandb_dir is not None:
        return why_no_rows(run)
    if run.spec.wandb is None and run.spec.found:
        return [
            (f"{clean(run.name)}: its log names no W&B run, or there is no key for the server.", ""),
            ("Log in with `wandb login`, or set `wandb` in a [[run]] table of that name.", "dim"),
        ]
    if run.spec.wandb is None:
        no_steps = [(f"{clean(run.name)}: its log shows no step with numbers yet.", "")] if run.spec.log else []
        return [
            *no_steps,
            (f"{clean(run.name)} has no W&B project: set `wandb` in its [[run]] table.", ""),
            ('Example: wandb = "team/project" and group = "final"; or run, display, tags.', "dim"),
            ("Or set `metrics_dir`: TensorBoard, CSV, JSON lines, Hugging Face.", "dim"),
        ]
    if run.wandb is not None and run.wandb.points and run.wandb.keys:
        return []
    if problem is not None:
        return [(problem[0], "crit"), *([(problem[1], "")] if problem[1] else [])]
    looked_for = clean(run.spec.wandb.description)
    if run.wandb is None or run.wandb.polled_at is None:
        return [(f"No data from W&B yet: {looked_for}.", "dim")]
    if not run.wandb.runs:
        return [(f"W&B has no such run: {looked_for}.", "warn")]
    return [("It has logged nothing to chart yet.", "dim")]
