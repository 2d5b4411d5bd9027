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
