"""What people add to their jobs: trainmon-run, a wrapper, and trainmon_hooks, for the training loop.

Files of the standard library alone, for old Pythons too."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

FOLDER = Path(__file__).parent
CALLBACKS = "# ---- callbacks of frameworks"


def run_script() -> str:
    """trainmon-run as one file."""
    alone = (FOLDER / "trainmon_run.py").read_text("utf-8")
    extras = (FOLDER / "run_extras.py").read_text("utf-8")
    assert "'''" not in extras
    return alone.replace("EXTRAS = None  # type: str | None\n", f"EXTRAS = r'''{extras}'''  # type: str | None\n")


def hooks_module() -> str:
    """trainmon_hooks as one file: the hooks, then the callbacks."""
    callbacks = (FOLDER / "hooks_callbacks.py").read_text("utf-8")
    return f"{(FOLDER / 'trainmon_hooks.py').read_text('utf-8')}\n\n{callbacks[callbacks.index(CALLBACKS) :]}"


def main() -> NoReturn:
    """The entry point `trainmon-run`: become the script, in an interpreter that starts quickly."""
    os.execv(sys.executable, [sys.executable, "-I", "-S", str(FOLDER / "trainmon_run.py"), *sys.argv[1:]])
