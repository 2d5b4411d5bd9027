"""The dialog that shows what is read in the last lines of a log, and makes a log format from a corrected line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice

from trainmon.analysis.log_formats import (
    Cell,
    LogReport,
    cells_by,
    cells_read,
    config_block,
    named,
    steps_by,
    suggested,
    summary,
    template_by,
)
from trainmon.lib import ConfigError, cell_width, clean, counted, shorten
from tui.keys import bindings
from tui.modals.dialog import Dialog, Pick, ask, text
from tui.style import Line, Row, Span
from tui.views.actions import pieces
from tui.views.table import fact, wrapped_fact
from tui.widgets import KeyedLines, SpanLines

LOW = 16
"""Lines of a screen that has no room for the keys."""
ROWS = {36: (4, 2, 3), 20: (3, 2, 2), LOW: (2, 1, 1), 0: (1, 1, 1)}
"""By the height of the screen, the most rows of the selected line, its fields and the template."""
NO_FIELD = "-"
HINT = "← → number  s step  l loss  t step time  Enter other fields  x no field  y copies the config block  Esc closes"
STEP_FIRST = "no step: go to its number with ← → and press s"
SPANS_LINES = "several lines make one step here, and a template reads one line: no format is needed"
FIELDS = {
    "step": "the step",
    "target_step": "the last step of the training",
    "loss": "the training loss",
    "step_time_ms": "the time of a step in milliseconds",
    "step_time_s": "the time of a step in seconds",
    "tokens_per_s": "tokens per second",
    "samples_per_s": "samples per second",
    "learning_rate": "the learning rate",
    "grad_norm": "the gradient norm",
    "loss_scale": "the loss scale",
    "epoch": "the epoch",
    "epochs": "the last epoch",
    "batch": "the batch of the epoch",
    "batches": "the batches of an epoch",
    "skipped": "skipped iterations",
    "nan_iterations": "iterations with a NaN",
}
"""What a number may be: all NAMES, the most frequent ones first."""


class LogLines(KeyedLines):
    """The lines of the log. Left and right do not scroll them."""

    BINDINGS = bindings("cells")

    def on_resize(self) -> None:
        """Keep the selected line in sight."""
        self.call_after_refresh(self.show_cursor)


class LogFormat(Dialog[None]):
    """Up and down choose a line, left and right a number of it; a letter or Enter says which field the number is."""

    def __init__(self, run: str, read: LogReport) -> None:
        super().__init__()
        self.run = run
        self.read = read
        self.texts = [one.text for one in read.lines]
        steps = (one for one in reversed(read.lines) if one.found is not None and one.found.step is not None)
        self.template = next(filter(None, (template_by(one.text, cells_read(one)) for one in islice(steps, 9))), None)
        self.label = "template" if self.template else "suggested"
        self.template = None if read.spans_lines else self.template or suggested(self.texts)
        self.missing = SPANS_LINES if read.spans_lines else STEP_FIRST
        """What is said where there is no template."""
        self.steps: list[int | None] = []
        self.error = ""
        self.number = len(self.texts) - 1
        """The selected line."""
        self.cells: tuple[Cell, ...] = ()
        self.at = 0
        """The selected cell."""
        self.rows = ROWS[0]
        self.lines = LogLines()
        self.lines.cursor_key = str(self.number)
        self.details = SpanLines()
        self.hint = text(HINT, "hint")
        now = summary(read.progress, read.shape, len(self.texts)).partition(":")[0]
        self.parts = (text(f"Log format of {clean(run)}: {now}", "question"), self.lines, self.details, self.hint)

    def on_mount(self) -> None:
        self._read()
        self._select(self.number)
        self.lines.focus()

    def fit(self) -> None:
        self.rows = next(rows for height, rows in ROWS.items() if self.app.size.height >= height)
        self.hint.display = self.app.size.height >= LOW
        self.details.styles.height = sum(self.rows) + 2
        self._draw()
        self.call_after_refresh(self.lines.show_cursor)  # once there is a height to scroll in

    # ---- the state ----

    def _read(self) -> None:
        """Read all lines with the template."""
        self.steps, self.error = [None] * len(self.texts), "" if self.template else self.missing
        try:
            self.steps = steps_by(self.template, self.texts) if self.template else self.steps
        except ConfigError as error:
            self.error = error.problems[0]

    def _select(self, number: int) -> None:
        self.number = number
        matched = cells_by(self.template, self.texts[number]) if self.template and not self.error else None
        before, self.cells = self.cells, cells_read(self.read.lines[number]) if matched is None else matched
        if len(before) != len(self.cells):  # otherwise it is the same number of a similar line
            self.at = next((at for at, cell in enumerate(self.cells) if cell.field), 0)

    def on_keyed_lines_moved(self, event: KeyedLines.Moved) -> None:
        if event.key is not None and event.key == self.lines.cursor_key != str(self.number):
            self._select(int(event.key))
            self._draw()

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        if self.cells:
            cell = self.cells[self.at]
            choices = [*((name, f"{name:<14} {words}") for name, words in FIELDS.items()), (NO_FIELD, "no field")]
            question = f"What is {self.texts[self.number][cell.start : cell.end]}?"
            picked = Pick(question, choices, cell.field or NO_FIELD)
            ask(self.app, picked, lambda field: self.action_name("" if field == NO_FIELD else field))

    def action_cell(self, step: int) -> None:
        self.at = min(max(self.at + step, 0), max(0, len(self.cells) - 1))
        self._draw()

    def action_name(self, field: str) -> None:
        """Give the selected number this field."""
        if not self.cells:
            return
        line = self.texts[self.number]
        if field == "step_time":
            field += "_ms" if line[self.cells[self.at].end :].lstrip().startswith("ms") else "_s"
        self.cells = named(self.cells, self.at, field)
        self.template, self.label = template_by(line, self.cells), "template"
        self._read()
        self._draw()

    def action_copy(self) -> None:
        if self.template is None or self.error:
            self.app.notify(self.error, severity="warning", timeout=6, markup=False)
            return
        block = config_block(self.run, self.template)
        self.app.copy_to_clipboard(block)
        has_one = self.read.progress.format == self.run
        where = "replace the block of that name with it in" if has_one else "paste it at the end of"
        message = f"{block}{where} trainmon.toml and restart trainmon-tui"
        self.app.notify(message, title="copied", timeout=20, markup=False)

    # ---- drawing ----

    def _draw(self) -> None:
        width = self.lines.row_width
        steps = ["" if step is None else f"{step:,}" for step in self.steps]
        pairs = enumerate(zip(steps, self.texts, strict=True))
        self.lines.set_rows(
            [Row(str(at), (Span(f"{step:>11}  ", "ok"), Span(shorten(line, width - 13)))) for at, (step, line) in pairs]
        )
        line = self.texts[self.number]
        fields = "  ".join(f"{cell.field}={line[cell.start : cell.end]}" for cell in self.cells if cell.field)
        reads = [step for step in self.steps if step is not None]
        result = f"{len(reads):,} of {counted(len(self.texts), 'line')}"
        result += f", steps {min(reads):,}–{max(reads):,}" if reads else ""
        self.details.set_lines(
            [
                *line_rows(line, self.cells, self.at, width, self.rows[0]),
                *cut(wrapped_fact("fields", fields or "none", width), self.rows[1]),
                *cut(wrapped_fact(self.label, self.template or "none", width), self.rows[2]),
                fact("reads", self.error or result, width, "ok" if reads and not self.error else "warn"),
            ]
        )


def cut(lines: Iterable[Line], most: int) -> list[Line]:
    """The first lines; a mark where some are left out."""
    shown = list(lines)
    return shown if len(shown) <= most else [*shown[: most - 1], (*shown[most - 1], Span(" …", "dim"))]


def line_rows(line: str, cells: Sequence[Cell], selected: int, width: int, most: int) -> Iterator[Line]:
    """The part of a line around the selected number, the named numbers in colour, and marks below the selected one."""
    ends = list(accumulate(map(len, pieces([line], width))))
    at = cells[selected].start if cells else 0
    chosen = next((row for row, end in enumerate(ends) if at < end), 0)
    first = max(0, chosen - most + 1)
    for row, end in list(enumerate(ends))[first : first + most]:
        start, spans = ends[row - 1] if row else 0, []
        for cell in (*cells, Cell(end, end)):
            before, until = max(start, min(cell.start, end)), max(start, min(cell.end, end))
            spans += [Span(line[start:before]), Span(line[before:until], "accent bold" if cell.field else "")]
            start = until
        yield tuple(spans)
        if row == chosen and cells:
            column = cell_width(line[ends[row - 1] if row else 0 : at])
            marks, field = "^" * (cells[selected].end - at), cells[selected].field or "no field"
            fits = column + len(marks) + 1 + len(field) <= width
            text = " " * column + f"{marks} {field}" if fits else f"{field} {marks}".rjust(column + len(marks))
            yield (Span(text, "accent"),)
