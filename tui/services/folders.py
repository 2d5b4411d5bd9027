"""Where fetched files go when nobody says otherwise."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from trainmon.lib import state_dir as state_directory

_ODD = re.compile(r"[^\w.+-]+")


def for_samples(run: str, environ: Mapping[str, str]) -> Path:
    """A folder of this run's: among the person's downloads where there are such, else beside our ledger."""
    name = _ODD.sub("_", run).strip("._") or "run"
    home = environ.get("HOME")
    downloads = None if not home else Path(home) / "Downloads"
    if downloads is not None and downloads.is_dir():
        return downloads / state_directory.NAME / name
    return state_directory.find_state_directory(environ).path / "samples" / name


def meant(text: str) -> Path:
    """The folder that a person wrote: from the root, `~` and all."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:  # nobody of that name: then it is a folder that is called so
        return Path(text).absolute()
