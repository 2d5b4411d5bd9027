"""A folder in which commands run."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "script").write_text("echo a script; exit 4\n")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "data").write_text("text\n")
    return tmp_path
