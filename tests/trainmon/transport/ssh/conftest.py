"""Fixtures that the tests of this folder share."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home in the user database. $HOME is `elsewhere`, beside it. Both have a directory .ssh."""
    made = tmp_path / "home"
    for folder in (made, tmp_path / "elsewhere"):
        (folder / ".ssh").mkdir(parents=True)
    entry = pwd.struct_passwd(("me", "x", os.getuid(), os.getgid(), "", str(made), "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entry)
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))
    return made
