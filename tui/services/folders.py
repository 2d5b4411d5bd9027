"""The target folders of downloads."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from trainmon.lib import state_dir as state_directory

_ODD = re.compile(r"[^\w.+-]+")


def for_samples(run: str, environ: Mapping[str, str]) -> Path:
    """The default folder for a run's samples: in ~/Downloads if that exists, else in our state directory."""
    name = _ODD.sub("_", run).strip("._") or "run"
    downloads = Path(environ.get("HOME") or "/nonexistent") / "Downloads"
    if downloads.is_dir():
        return downloads / state_directory.NAME / name
    return state_directory.find_state_directory(environ).path / "samples" / name


def meant(text: str) -> Path:
    """The absolute path of a typed folder, with `~` expanded."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:  # there is no such user: the folder itself has this name
        return Path(text).absolute()
