"""The log pane: what it keeps in sight, what it leaves out on request, and what it saves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tui.dashboard import publish, showing
from tests.tui.screen_text import at_rest, text_of
from tests.tui.states.states import troubled


async def test_wrapping_keeps_following() -> None:
    async with showing(troubled(), (80, 24)) as (app, pilot, _):
        await pilot.press("4", "w")
        await at_rest(pilot)
        assert "follow  wrap" in text_of(app)
        await pilot.press("w")
        await at_rest(pilot)
        assert "follow" in text_of(app)


async def test_only_the_lines_with_a_text_are_shown_until_escape() -> None:
    async with showing(troubled(), (100, 40)) as (app, pilot, backend):
        await pilot.press("4")
        await at_rest(pilot)
        view = app.main.log_pane.view
        every = view.text.lines
        wanted = every[-1].split()[0]
        await pilot.press("ampersand", *wanted, "enter")
        await at_rest(pilot)
        assert view.text.lines == tuple(line for line in every if wanted.lower() in line.lower())
        assert f"&{wanted}" in text_of(app)
        await publish(app, pilot, backend, troubled())
        assert f"&{wanted}" in text_of(app)

        await pilot.press("escape")
        await at_rest(pilot)
        assert view.text.lines == every

        await pilot.press("ampersand", *"nowhere", "enter")
        await at_rest(pilot)
        assert "no line has “nowhere”" in text_of(app)


async def test_what_is_shown_is_saved_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Downloads").mkdir()
    async with showing(troubled(), (100, 40)) as (app, pilot, _):
        await pilot.press("4", "s")
        await at_rest(pilot)
        (file,) = tmp_path.glob("Downloads/*/*/log-*.txt")
        lines = app.main.log_pane.view.text.lines
        assert file.read_text(encoding="utf-8").splitlines() == list(lines)
        assert [toast.message for toast in app._notifications] == [f"{len(lines):,} lines in {file}"]


async def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "Downloads").mkdir()
    (tmp_path / "Downloads" / "trainmon-tui").write_text("no folder")
    async with showing(troubled(), (100, 40)) as (app, pilot, _):
        await pilot.press("4", "s")
        await at_rest(pilot)
        (toast,) = app._notifications
        assert toast.message.startswith("not saved: ")
