"""The numbers of a line as cells: a person names some, and a template comes out."""

from __future__ import annotations

import itertools

import pytest

from tests.trainmon.analysis.log_formats.test_template import last_lines
from trainmon.analysis.log_formats import (
    Cell,
    cells,
    cells_by,
    cells_read,
    named,
    report,
    steps_by,
    suggested,
    template_by,
)

LINE = "[2026-01-02 03:04:05] [rank0] iter 100: loss 3.2145, time 312.45ms, mfu 38.12%"


def shown(line: str, found: tuple[Cell, ...] | None) -> list[tuple[str, str]]:
    return [(line[cell.start : cell.end], cell.field) for cell in found or ()]


def test_every_number_is_a_cell_and_no_date_time_or_path_is() -> None:
    assert shown(LINE, cells(LINE)) == [("0", ""), ("100", ""), ("3.2145", ""), ("312.45", ""), ("38.12", "")]
    line = "ep003 nll=-2.5e-3 NaN (.92) 1,200/5,000 info /scratch/7/run 10.0.0.1 vit-P4-D256-L4"
    assert [text for text, _ in shown(line, cells(line))] == ["003", "-2.5e-3", "NaN", ".92", "1,200", "5,000"]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (LINE, {"100": "step", "3.2145": "loss", "312.45": "step_time_ms"}),
        ("[rank 0] INFO     [step 10] loss=2.3400 | lr=3.00e-04", {"0": "", "10": "step", "2.3400": "loss"}),
        (" iteration  1200/ 5000 | consumed samples: 9 | lm loss: 3.25E+00 |", {"1200": "step", "5000": "target_step"}),
    ],
)
def test_the_fields_that_were_read_are_at_their_numbers(line: str, fields: dict[str, str]) -> None:
    last = report([line, line]).lines[-1]
    assert fields.items() <= dict(shown(line, cells_read(last))).items()


def test_a_line_that_was_not_read_has_no_fields() -> None:
    assert {cell.field for cell in cells_read(report(["loading 3 shards of 7"]).lines[0])} == {""}


def test_naming_numbers_makes_a_template_and_a_field_moves() -> None:
    line = "ep003 [12] nll -2.5e-3 of 7"
    marked = named(named(cells(line), 0, "step"), 2, "loss")
    assert template_by(line, marked) == "ep{step} [{}] nll {loss}"
    moved = named(marked, 1, "step")
    assert shown(line, moved) == [("003", ""), ("12", "step"), ("-2.5e-3", "loss"), ("7", "")]
    assert template_by(line, moved) == "[{step}] nll {loss}"
    assert template_by(line, named(moved, 1, "")) is None


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_a_template_reads_the_named_numbers_of_its_own_line(every: int) -> None:
    for line in last_lines()[::every]:
        found = cells(line)
        for step, loss in itertools.permutations(range(min(3, len(found))), 2):
            marked = named(named(found, step, "step"), loss, "loss")
            template = template_by(line, marked)
            assert template is not None, line
            read = cells_by(template, line) or ()
            starts = [{cell.field: cell.start for cell in one if cell.field} for one in (read, marked)]
            assert starts[0] == starts[1], template


def test_a_template_marks_the_numbers_that_it_reads_in_other_lines() -> None:
    template, other = "iter {step}: loss {loss},", "iter 7:  loss 3.5, time 9ms"
    assert shown(other, cells_by(template, other)) == [("7", "step"), ("3.5", "loss"), ("9", "")]
    assert cells_by(template, "saved") is None
    assert steps_by(template, ["saved", other, LINE]) == [None, 7, 100]


def test_a_number_that_grows_in_similar_lines_may_be_the_step() -> None:
    lines = [f"17322780{n} rank 3 >> {n}0 done, nll 2.{99 - n} 0.2s" for n in range(10, 20)]
    assert suggested(["starting", *lines, "saved"]) == "rank {} >> {step} done, nll {loss}"
    assert suggested([f"10:00:{n} [rank0] {n}0 : 2.{99 - n}" for n in range(10, 20)]) == "[{}] {step}"
    assert suggested(lines[:2]) is None
    assert suggested([f"{n} 3.{n}" for n in range(10)]) is None  # it would match every line with a number
    assert suggested(["loading 3 shards"] * 9) is None
