"""Tables with a heading, and boxes with a row for each value: YOLO, fastai, spaCy, CSV, stable-baselines3. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainmon.analysis.log_formats.learned import names
from trainmon.analysis.log_formats.learned.names import words

LONGEST_HEADING = 600
BORDERS = ("|", "│", "┃")
BORDER = re.compile(r"[|│┃]")
GAP = re.compile(r"\s{2,}|\t")
RULE = re.compile(r"^[\s\-=+*_|─━┄┈═╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┡┩╇╈╋╂:#]{3,}$")
"""A line that draws only."""
BOX_ROW = re.compile(
    r"^\s*[|│┃]\s*(?P<name>[^|│┃]{1,60}?)\s*(?:[|│┃]|\s{2,})\s*(?P<value>[^|│┃\s][^|│┃]{0,60}?)?\s*[|│┃]\s*$"
)
CELL = re.compile(r"#|[A-Za-z_][\w .@/()%-]{0,40}")
VALUE = re.compile(r"(?<![A-Za-z@])\d|\b(?:nan|inf)\b")
YOLO = ("box", "GIoU", "total")
"""Losses of YOLOv3 and YOLOv5, where the next column is the memory of the GPU."""
WHOLE = re.compile(r"\.0{3,9}$")
"""A table of floats only prints epoch 3 as 3.000000."""


def heading(line: str) -> tuple[str, ...]:
    """The columns of a table whose heading this line is; empty for any other line."""
    lowered = line.lower()
    if len(line) > LONGEST_HEADING or not any(word in lowered for word in ("loss", "rmse", "gpu_mem", "reward")):
        return ()
    bare = re.sub(r"^\s{0,8}\d{1,9}\t", "line\t", line.removeprefix("# "))  # behind `cat -n`
    for split in _splits(bare) if VALUE.search(bare) is None else ():  # a row of the table has values
        cells = [f"{cell} loss" if cell in YOLO and "gpu_mem" in lowered else cell for cell in split]
        if len(cells) < 2 or any(CELL.fullmatch(cell) is None for cell in cells):
            continue
        if len(cells) == 2 and not GAP.search(line.strip()) and not BORDER.search(line) and "," not in line:
            continue  # two words
        columns = [words(cell) for cell in cells]
        if any(_is_counter(name) for name in columns) and any(
            names.loss(name) is not None or ("reward" in name and (BORDER.search(line) or GAP.search(line.strip())))
            for name in columns
        ):
            return tuple("epoch" if cell == "E" else cell for cell in cells)
    return ()


def row(columns: Sequence[str], line: str) -> str | None:
    """The row as `name: value` pairs with what follows it, a progress bar for example; None for what is no row."""
    return next((pairs for cells in _splits(line) if (pairs := _pairs(columns, cells, line)) is not None), None)


def _pairs(columns: Sequence[str], cells: Sequence[str], line: str) -> str | None:
    if len(cells) < min(len(columns), 5) or not cells[0]:  # Chainer leaves the last ones empty
        return None
    values = [WHOLE.sub("", cell.rstrip(":]").lstrip("[").partition(",")[0]) for cell in cells[: len(columns)]]
    for column, value in zip(columns, values, strict=False):
        name = words(column)
        if _is_counter(name) and not re.fullmatch(r"\d{1,12}(?:/\d{1,12}|\.0)?", value):
            return None
        if names.loss(name) is not None and not re.match(r"[-+]?[\d.]|nan|inf", value):
            return None
    rest = line[line.rfind(values[-1]) + len(values[-1]) :] if values[-1] else ""
    return ", ".join(f"{column}: {value}" for column, value in zip(columns, values, strict=False)) + f", {rest}"


def box_row(line: str) -> str | None:
    """A box's row as a `name: value` pair; None for what is none."""
    found = BOX_ROW.match(line)
    return None if found is None else f"{found['name']}: {found['value'] or ''}, "


def _is_counter(name: tuple[str, ...]) -> bool:
    return names.counter(name) is not None or names.is_epoch(name) or name == ("e",)


def _splits(line: str) -> Iterator[list[str]]:
    """The cells of a line: between borders, commas, wide gaps, blanks."""
    if BORDER.search(line):
        yield [cell.strip() for cell in BORDER.split(line.strip().strip("|│┃"))]
    else:
        if line.count(",") >= 2 or re.fullmatch(r"[\w.+-]+,[\w.+-]+", line.strip()):
            yield [cell.strip() for cell in line.split(",")]
        yield GAP.split(line.strip())
    yield line.split()
