"""Tables and charts as files: what a spreadsheet reads, and a picture."""

from __future__ import annotations

import csv
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard, settled, text_of
from tests.tui.states.plans import STATES, planning
from tui.app import Dashboard
from tui.panes.base import several_text
from tui.services.terminal import save_new
from tui.views.table import csv_text


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Downloads").mkdir()
    return tmp_path


async def exported(home: Path, name: str, keys: str, kind: str) -> str:
    """The file that the palette writes after these keys."""
    app = dashboard(planning(STATES[name]()))
    async with running(app, size=(120, 40), notifications=True) as pilot:
        await at_rest(pilot)
        for key in (*keys.split(), "colon", *kind, "enter"):
            await pilot.press(key)
            await at_rest(pilot)
        assert [toast.title for toast in app._notifications] == ["saved"]
        (file,) = (home / "Downloads").rglob(f"*.{kind}")
        assert str(file) in [toast.message for toast in app._notifications]
        return file.read_text()


async def rows(home: Path, name: str, keys: str) -> list[dict[str, str]]:
    return [*csv.DictReader((await exported(home, name, keys, "csv")).splitlines())]


async def test_a_table_has_its_fields_and_values_as_the_filter_and_the_order_show_it(home: Path) -> None:
    found = await rows(home, "troubled", "slash s t a t u s : h e a l t h y enter")
    assert [row["name"] for row in found] == ["llm-70b", "sft-1b"]
    assert {row["step"] for row in found} == {"12880"}


@pytest.mark.parametrize(
    ("name", "keys", "field", "value"),
    [
        ("troubled", "2", "node", "gpu-003"), ("troubled", "3", "path", "/scratch"), ("queued", "7", "id", "418223"),
        ("alarmed", "5", "rule", "run-hung"),
    ],
)  # fmt: skip
async def test_every_table_is_exported(home: Path, name: str, keys: str, field: str, value: str) -> None:
    assert value in {row[field] for row in await rows(home, name, keys)}


async def test_a_cell_with_several_values_has_the_greatest_first_and_no_long_fractions(home: Path) -> None:
    (node,) = [row for row in await rows(home, "troubled", "2") if row["node"] == "gpu-003"]
    assert node["temp"] == "94 71 71 71 71 71 94 71 71"
    assert several_text([72.513671875, None, "x", 12_880_123.0]) == "72.51 ? x 12880123"


async def test_a_chart_has_its_points(home: Path) -> None:
    found = await rows(home, "wandb", "6 6")
    assert list(found[0])[:2] == ["step", "time"]
    assert len(found) > 10
    assert all(float(row["step"]) >= 0 for row in found)


def test_a_cell_is_never_a_formula_and_a_number_stays_one() -> None:
    cells: list[str | float | None] = [
        "=1+1",
        "+1",
        "-x",
        "@SUM(A1)",
        "\tx",
        "a=b",
        "a,b",
        'say "x"',
        -5.0,
        12_880,
        None,
        "\x1b[31mred",
    ]
    (line,) = csv.reader(csv_text([cells]).splitlines())
    assert line[:5] == ["'=1+1", "'+1", "'-x", "'@SUM(A1)", "x"]
    assert line[5:11] == ["a=b", "a,b", 'say "x"', "-5", "12880", ""]
    assert "\x1b" not in line[11]


async def test_a_picture_is_that_of_the_pane_and_of_nothing_else(home: Path) -> None:
    text = await exported(home, "troubled", "2", "svg")
    words = "".join(ET.fromstring(text).itertext()).replace("\xa0", " ")
    assert "gpu-003" in words
    assert "llm-7b-a" not in words


async def test_the_menu_of_a_row_describes_it_and_exports(home: Path) -> None:
    app = dashboard(planning(STATES["troubled"]()))
    async with running(app, size=(120, 40)) as pilot:
        await at_rest(pilot)
        await pilot.press("x")
        assert "Export the table or chart as CSV" in await settled(pilot)
        await pilot.press("G", "k", "enter")
        await at_rest(pilot)
        assert len([*(home / "Downloads").rglob("*.csv")]) == 1
        await pilot.press("x", "G", "k", "k", "enter")
        await at_rest(pilot)
        assert "Run llm-7b-a" in text_of(app)


def test_two_exports_in_one_second_are_two_files(home: Path) -> None:
    folder = home / "Downloads" / "trainmon-tui" / "runs"
    for _ in range(3):
        save_new("runs", ".csv", "a,b", os.environ)
    assert len([*folder.iterdir()]) == 3


def test_a_run_may_have_any_name(home: Path) -> None:
    for name in ("r" * 300, "ü" * 255, "../x"):
        file = save_new(name, ".csv", name, os.environ)
        assert file.read_text() == name
        assert file.parent.parent == home / "Downloads" / "trainmon-tui"


async def test_a_folder_that_cannot_be_written_is_named(home: Path) -> None:
    (home / "Downloads" / "trainmon-tui").write_text("a file")
    app: Dashboard = dashboard(planning(STATES["troubled"]()))
    async with running(app, size=(120, 40), notifications=True) as pilot:
        await at_rest(pilot)
        await pilot.press("colon", *"csv", "enter")
        await at_rest(pilot)
        assert any(toast.message.startswith("not saved: ") for toast in app._notifications)
