"""Temporary directories of our own: what `kill -9` leaves is removed at the next start, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trainmon.lib import ScratchDirectory, remove_abandoned

PROGRAM = """
import sys
from pathlib import Path
from trainmon.lib import ScratchDirectory
made = ScratchDirectory("mail")
Path(made.name, "loss.png").write_bytes(b"x")
print(made.name, flush=True)
sys.stdin.read()
"""


def test_a_mail_folder_of_a_program_that_was_killed_is_removed_and_that_of_one_that_runs_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "trainmon-mail-file").write_text("")
    (tmp_path / "trainmon-mail-link").symlink_to("/")
    (tmp_path / "trainmon-other-1").mkdir()
    strange = {"trainmon-mail-file", "trainmon-mail-link", "trainmon-other-1"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env={"TMPDIR": str(tmp_path)}, cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as running:  # fmt: skip
        assert running.stdout is not None
        folder = Path(running.stdout.readline().strip())
        remove_abandoned("mail")
        assert (folder / "loss.png").exists(), "its program runs"
        running.kill()
    assert folder.exists()
    remove_abandoned("mail")
    assert {path.name for path in tmp_path.iterdir()} == strange


def test_its_own_end_removes_it() -> None:
    with ScratchDirectory("mail") as folder:
        remove_abandoned("mail")
        assert Path(folder).is_dir()
    assert not Path(folder).exists()
