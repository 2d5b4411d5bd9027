"""Fixtures that the tests of this folder share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

ForeignLink = Callable[[Path], None]
NOBODY = 65534
FOREIGN = "a symbolic link of another user, not of the owner of the file: it is not read"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "train.out"


@pytest.fixture
def foreign_link(monkeypatch: pytest.MonkeyPatch) -> ForeignLink:
    """Makes a symbolic link of somebody else to a file of root."""

    def made(path: Path) -> None:
        path.symlink_to("/etc/passwd")
        if os.getuid() == 0:
            os.lchown(path, NOBODY, NOBODY)
        else:  # only root can give a link away: then we are somebody else
            monkeypatch.setattr(os, "geteuid", lambda: NOBODY)

    return made
