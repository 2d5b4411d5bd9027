"""Reads the lines of a run's log: by the formats of config and frameworks, else by the shape that was learned. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.analysis.log_formats.frameworks import BARS, FORMATS, HF_TRAINER
from trainmon.analysis.log_formats.learned.learn import is_below_an_epoch, learn, learn_from_bar
from trainmon.analysis.log_formats.learned.line import read
from trainmon.analysis.log_formats.learned.names import MOST_NUMBERS, NO_NUMBER, NUMBER, numbers, whole
from trainmon.analysis.log_formats.line import Format, StepLine
from trainmon.analysis.log_formats.progress import advance, is_quiet
from trainmon.analysis.log_formats.template import (
    FIELD,
    NAMES,
    UNIT,
    VARYING,
    Cell,
    cells_of,
    custom_format,
    expression,
    from_template,
    template,
    template_of,
    values,
)
from trainmon.lib import Instant, group_by, last_state, without_sequences
from trainmon.model import LogShape, Progress

# ---- what is read at all ---------------------------------------------------------------------------------------------

LONGEST = 4_000
"""The examined characters of a line."""


NESTED = "\x1b[A"
"""One line up: the end of a bar that is drawn below another one, as the probe sends it."""
OF_TRAINING = re.compile(
    r"(?:train|epoch|step|iter|batch)[^|]{0,80}%?\||(?<!val_)(?<!eval_)(?<!test_)loss=", re.IGNORECASE
)

SHOWN_LOSS = re.compile(r"loss=|(?i:mse|bce|nll|elbo)=")

GLUED = re.compile(r"(?:it/s|s/it)(?:, [^\]\r]{0,300})?\](?=[^\s{,\]\x1b\r][^\r]{2,400}$)")
"""The end of a nameless bar to which another line is glued: `… 14.2it/s]Train loss: 0.5`."""
LOSS_FOLLOWS = r".{0,40}?(?:\d|nan|inf)"
KEEP_LOSS = (
    rf"loss{LOSS_FOLLOWS}|Loss{LOSS_FOLLOWS}|LOSS|xent: |Cost |rmse|learn: |l_[a-z_]{{1,20}}: |G_GAN|Err_G"
    "| avg, |L1: |Avg L: | Le [0-9]|Score at |global.?step|Cross entropy|Mean Reward: |verage reward|_train: | Speed: "
    r"|At iteration |cost[:=]|[Pp]erplexity |ppl[: ]|train accuracy: | objf| \|\| |[Ee]poch.{1,3}\d|accuracy="
    r"|[Rr]eward[ :=]|Iteration:\d|otal timesteps| g[=[]\d|损失|손실|損失|[Пп]отер"
)
"""Finds most step lines of other trainers. Words only: they cost a node nothing."""


def keep(formats: Sequence[Format]) -> str:
    """One expression that finds any step line of these formats, for the nodes: what a burst must not drop."""
    return "|".join(dict.fromkeys((*(a_format.keep for a_format in formats), KEEP_LOSS)))


KEEP = keep(FORMATS)


def parse_line(
    line: str, formats: Sequence[Format] = FORMATS, prefer: str | None = None
) -> tuple[str, StepLine] | None:
    """The name of the format of a line, and its content. The format `prefer` is tried first."""
    line = plain(line)[:LONGEST]
    preferred = [a_format for a_format in formats if a_format.name == prefer]
    for a_format in (*preferred, *formats):
        found = a_format.parse(line)
        if found is not None:
            return a_format.name, found
    return None


def plain(line: str) -> str:
    """The line without escape sequences, as a terminal shows it after the last carriage return. A dict that overwrites
    a progress bar is put behind the bar, which has the step."""
    if "\x1b" in line or "\x9b" in line:
        line = without_sequences(line)
    if "\r" not in line:
        return line
    last = last_state(line)
    bar = next((state for state in reversed(line.split("\r")) if "%|" in state), "") if last.startswith("{") else ""
    return bar.rstrip() + last


def above_an_evaluation(line: str) -> str | None:
    """What stands above the bar of an evaluation, which is nested in that of the training; None if none is drawn last.
    A nested bar that shows a loss, or names a part of the training, is the training's."""
    above, _, last = line.rpartition("\r")
    return above if NESTED in last and OF_TRAINING.search(last) is None else None


# ---- one line --------------------------------------------------------------------------------------------------------

LEARNED = "learned"
"""The name of the format that was learned."""


def read_line(
    line: str,
    progress: Progress,
    shape: LogShape,
    at: Instant,
    own: Sequence[Format] = (),
    *,
    is_finished: bool = True,
) -> tuple[tuple[str, StepLine] | None, LogShape]:
    """What a line says of the training, with its format's name, and what is known of the log's shape after it.

    The formats of the config (`own`) and the built-in ones come first. The shape is learned only while none of them
    counts the steps. Of an unfinished line, only a progress bar is read: half a line may show half a number.
    """
    if NESTED in line:
        above = above_an_evaluation(line)
        whole = line.replace(NESTED, "") if above is None else above
        found, shape = read_line(whole, progress, shape, at, own, is_finished=is_finished)
        if above is None:  # a bar inside another one, as in each epoch
            return found and (found[0], replace(found[1], target_step=None, is_inner=True)), shape
        name, step = found or (HF_TRAINER.name, StepLine(kind="eval"))
        return (name, replace(step, evaluation="begins")), shape
    found = parse_line(line, (*own, *(FORMATS if is_finished else BARS)), prefer=progress.format)
    if (
        found is not None
        and (found[1].kind != "train" or found[1].step is not None)
        and not _is_of_another(found[1], line, shape)
    ):
        glued = GLUED.search(line) if is_finished and found[1].kind == "bar" and found[1].loss is None else None
        behind, shape = read_line(line[glued.end() :], progress, shape, at, own) if glued else (None, shape)
        return (found if behind is None or behind[1].loss is None else behind), shape
    is_read = progress.format not in (None, LEARNED) and progress.step is not None and progress.loss is not None
    if is_read and not is_quiet(progress, at):
        return found, shape
    shape, learned = (learn if is_finished else learn_from_bar)(shape, plain(line))
    if learned is None or (
        learned.step is None and (found is not None or (learned.kind == "rest" and progress.format is None))
    ):
        return found, shape
    is_known = found is not None and found[1].epoch is not None and shape.counter == "epoch"
    return (found if is_known else (LEARNED, learned)), shape


def _is_of_another(line: StepLine, text: str, shape: LogShape) -> bool:
    """Whether it is a nameless bar with a loss that its format does not know, or that of an epoch whose number stands
    above it: `10/1000 […, train_loss=3.1]`. Or the bar of a loop like Lightning's, which shows its version, too: the
    epochs of others may begin with 1."""
    if line.kind != "bar":
        return line.kind == "rest" and line.target_step is None and "v_num" not in text
    is_shown = (line.loss is None or shape.epoch is not None) and SHOWN_LOSS.search(text) is not None
    return is_shown or is_below_an_epoch(shape)


# ---- all lines, for somebody who wants to know why -------------------------------------------------------------------

EXAMPLE = "iter {step}: loss {loss}, time {step_time_ms}ms"
"""A template to start from."""


class ReadLine(NamedTuple):
    """One line, and what was read in it."""

    text: str
    format: str | None
    found: StepLine | None


class LogReport(NamedTuple):
    """What was read in the lines of a log."""

    lines: tuple[ReadLine, ...]
    progress: Progress
    shape: LogShape

    @property
    def steps(self) -> int:
        """The number of lines with a step."""
        return sum(one.found is not None and one.found.step is not None for one in self.lines)

    @property
    def _last(self) -> ReadLine | None:
        return next((one for one in reversed(self.lines) if one.found is not None and one.found.step is not None), None)

    @property
    def spans_lines(self) -> bool:
        """Whether several lines make one step, as in Keras: `Epoch 2/5`, then `100/1875`. A template reads one line."""
        last = self._last
        if last is None or last.format != LEARNED or self.shape.position is None:
            return False
        return "{step}" in (template(last.text) or "")

    @property
    def template(self) -> str | None:
        """The template of its step lines; None where there is none, or where several lines make one step."""
        if self._last is None or self.spans_lines:
            return None
        return template(self._last.text) or self._template_above()

    def _template_above(self) -> str | None:
        """The template of the last line that shows its step and its loss. A loss below it is printed without a step,
        which a template cannot read."""
        for line in reversed(self.lines):
            if line.format != LEARNED or line.found is None or None in (line.found.step, line.found.loss):
                continue
            made = template(line.text) or ""
            if "{step}" in made and "{loss}" in made:
                again = custom_format("above", template=made).parse(line.text)
                return made if again is not None and again.step == line.found.step else None
        return None


def report(
    lines: Iterable[str],
    own: Sequence[Format] = (),
    *,
    partial: str | None = None,
    progress: Progress | None = None,
    shape: LogShape | None = None,
) -> LogReport:
    """Read the lines of a log as the dashboard does, with the formats of the config (`own`) first.

    `partial` is the unfinished last line, with its states as a probe sends them: only the last one may be torn. With
    the progress and the shape of a run, its log is read on.
    """
    progress, read = progress or Progress(), list[ReadLine]()
    shape = replace(shape or LogShape(), block="", text="", block_lines=0, candidates=())
    *whole, torn = (*lines, *(partial or "").split("\r"))
    for number, line in enumerate((*whole, *filter(None, [torn])), 1):
        found, shape = read_line(line, progress, shape, float(number), own, is_finished=number <= len(whole))
        progress = progress if found is None else advance(progress, *found, float(number))
        read.append(ReadLine(plain(line), *(found or (None, None))))
    return LogReport(tuple(read), progress, shape)


def summary(progress: Progress, shape: LogShape, lines: int) -> str:
    """In one line, which format a log has: `learned: "iter {step}: loss {loss}"`, or the name of a built-in one."""
    if progress.format is None or (progress.step is None and progress.epoch is None):
        return (
            f"not recognised: {lines:,} {'line' if lines == 1 else 'lines'}, no step"
            if lines
            else "not known: no lines yet"
        )
    if progress.format != LEARNED:
        return progress.format
    return f'{LEARNED}: "{template(shape.example) or shape.example}"'


def config_block(name: str, template: str) -> str:
    """A `[[log_format]]` of the config with this template."""
    values = {"name": name, "template": template}
    rows = (f"{key} = {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())
    return "[[log_format]]\n" + "".join(rows)


# ---- the numbers of a line as cells that a person names: from the named cells of one line comes a template -----------

ANY_NUMBER = re.compile(rf"(?:{NO_NUMBER})|(?<![\w.-])(?:[A-Za-z_]{{1,20}}(?=\d))?(?P<number>{NUMBER})(?![\w-])")
"""Also one that is glued to a word (`ep003`), or an average in brackets."""
SIMILAR = 3
"""Lines of one shape from which a format is suggested."""
COMPARED = 40
"""Lines of one shape that are compared at most."""


def cells(line: str, read: Mapping[str, float] | None = None) -> tuple[Cell, ...]:
    """Every number of a line, with the fields of the values that were read in it."""
    known = cells_of(line, read or {})
    taken = {at for cell in known for at in range(cell.start, cell.end)}
    glued = [
        Cell(found.start("number"), found.end("number"))
        for found in ANY_NUMBER.finditer(line)
        if found["number"] and taken.isdisjoint(range(*found.span("number")))
    ]
    return tuple(sorted([*known, *glued])[:MOST_NUMBERS])


def cells_read(one: ReadLine) -> tuple[Cell, ...]:
    """The numbers of a line, with the fields that were read."""
    if one.found is None:
        return cells(one.text)
    if one.format == LEARNED and (line := read(one.text)) is not None:
        return cells(one.text, values(line))
    names = NAMES if "nan" in one.text.lower() else [name for name in NAMES if name != "nan_iterations"]  # 0, unsaid
    return cells(one.text, {name: value for name in names if (value := getattr(one.found, name, None)) is not None})


def cells_by(template: str, line: str) -> tuple[Cell, ...] | None:
    """The numbers of a line, with the fields that a template reads; None for a line that it does not match."""
    found = re.search(expression(template), line)
    if found is None:
        return None
    read = {
        name: (found.start(name), found.start(name) + len(text.rstrip(",._")))
        for name, text in found.groupdict().items()
    }
    others = [
        cell for cell in cells(line) if all(cell.end <= start or cell.start >= end for start, end in read.values())
    ]
    return tuple(sorted([*others, *(Cell(*span, name) for name, span in read.items())]))


def named(cells: Sequence[Cell], number: int, field: str) -> tuple[Cell, ...]:
    """The cells after one of them got this field. A field is of one cell only; an empty field removes the name."""
    return tuple(
        cell._replace(field=field) if at == number else cell._replace(field="" if cell.field == field else cell.field)
        for at, cell in enumerate(cells)
    )


def template_by(line: str, cells: Iterable[Cell]) -> str | None:
    """The template that reads the named cells of a line. None where none of them is the step."""
    known = {one.start for one in numbers(line)}
    return template_of(line, [cell for cell in cells if cell.field or cell.start in known])


def steps_by(template: str, lines: Iterable[str]) -> list[int | None]:
    """The step that a template reads in each line.

    Raises:
        ConfigError: it can be no format; the sentence says why.
    """
    parse = from_template("template", template).parse
    return [None if (found := parse(plain(line))) is None else found.step for line in lines]


def suggested(lines: Iterable[str]) -> str | None:
    """A template of similar lines in which a number grows, for a log without a known step. It may be wrong."""
    shapes = group_by(map(plain, lines), lambda line: VARYING.sub("{}", line))
    groups = sorted(
        (group for group in shapes.values() if len(group) >= SIMILAR),
        key=lambda group: ("loss" in _learned(group[-1]), len(group)),
    )
    for group in reversed(groups):
        last, start = group[-1], _growing(group[-COMPARED:])
        read = cells(last, {field: value for field, value in _learned(last).items() if field != "step"})
        at = next((at for at, cell in enumerate(read) if cell.start == start), None)
        template = None if at is None else template_by(last, named(read, at, "step"))
        if template is not None and FIELD.sub("", template).strip():  # `{step}` alone matches every number
            return template
    return None


def _growing(lines: Sequence[str]) -> int | None:
    """Where in the last line a count is that grows in all of them. A timestamp grows, too, and is larger."""
    last, rows = lines[-1], [cells(line) for line in lines]
    growing = []
    for at, cell in enumerate(rows[-1]):
        texts = [line[row[at].start : row[at].end] for row, line in zip(rows, lines, strict=True) if at < len(row)]
        counts = [count for count in map(whole, texts) if count is not None]
        if len(counts) == len(lines) and sorted(counts) == counts and not UNIT.match(last, cell.end):
            growing.append((-len(set(counts)), counts[-1], cell.start))
    fastest = min(growing, default=(-1, 0, 0))
    return fastest[2] if fastest[0] < -1 else None


def _learned(line: str) -> dict[str, float]:
    found = read(line)
    return {} if found is None else values(found)
