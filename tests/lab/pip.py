"""pip, which our environment lacks: that of the Python it was made of, which installed everything in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BASE = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
TIMEOUT = 300.0


def run(*argv: str | Path, timeout: float = TIMEOUT) -> None:
    """A command that must succeed; what it said is in the error."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, argv))}\n{done.stdout}{done.stderr}")


def pip(*argv: str | Path, timeout: float = TIMEOUT) -> None:
    run(BASE, "-m", "pip", "-q", *argv, timeout=timeout)


def environment(folder: Path) -> Path:
    """A fresh one; its Python."""
    run(BASE, "-m", "venv", "--without-pip", folder)
    return folder / "bin" / "python"


def add(folder: Path, library: str = "", *, without: tuple[str, ...] = ()) -> None:
    """Put a library of ours into an environment, or all but some, as pip would."""
    (packages,) = folder.glob("lib/python*/site-packages")
    (ours,) = Path(sys.prefix).glob("lib/python*/site-packages")
    for entry in ours.iterdir():
        if (
            entry.name.startswith(library)
            and not entry.name.startswith(without)
            and not (packages / entry.name).exists()
        ):
            (packages / entry.name).symlink_to(entry)


def plain(folder: Path, *without: str) -> str:
    """The program in an environment that has all of ours but these libraries, as after a plain install."""
    python = environment(folder)
    add(folder, without=without)
    program = folder / "bin" / "trainmon-tui"
    program.write_text(f'#!/bin/sh\nexec "{python}" -P -m trainmon "$@"\n')
    program.chmod(0o755)
    return str(program)
