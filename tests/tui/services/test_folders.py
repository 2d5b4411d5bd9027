"""Where fetched samples go."""

from __future__ import annotations

from pathlib import Path

import pytest

from tui.services.terminal import for_samples, meant


def test_samples_go_among_the_downloads_where_there_are_such(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    assert for_samples("video-2b", environ) == tmp_path / "state" / "trainmon-tui" / "samples" / "video-2b"

    (tmp_path / "Downloads").mkdir()
    assert for_samples("video-2b", environ) == tmp_path / "Downloads" / "trainmon-tui" / "video-2b"


@pytest.mark.parametrize("name", ["../../etc", "a/b c", "..", "", "-rf", "日本"])
def test_whatever_a_run_is_called_its_folder_is_one_below(tmp_path: Path, name: str) -> None:
    (tmp_path / "Downloads").mkdir()

    folder = for_samples(name, {"HOME": str(tmp_path)})

    assert folder.parent == tmp_path / "Downloads" / "trainmon-tui"
    assert folder.name not in ("", ".", "..")


def test_a_folder_is_meant_as_it_would_be_in_a_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert meant("~/x") == tmp_path / "x"
    assert meant("y") == tmp_path / "y"
    assert meant("/z") == Path("/z")
    assert meant("~nobody-of-that-name/x") == tmp_path / "~nobody-of-that-name" / "x"
