"""A full, read-only or broken filesystem without root: an LD_PRELOAD library whose calls under a folder fail."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Literal

SOURCE = Path(__file__).with_suffix(".c")


def build(scratch: Path) -> Path:
    """The library; a missing compiler fails the run."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed for the failing filesystem: apt-get install gcc libc6-dev")
    library = scratch / "failing_files.so"
    argv = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(argv, check=True, timeout=60)
    return library


def prefix(library: Path, folder: Path, call: Literal["create", "write", "link", "unlink"], number: int) -> list[str]:
    """What to put before a command, for which this call under the folder fails with this errno."""
    mine = {"LD_PRELOAD": library, "FAIL_PREFIX": folder, "FAIL_CALL": call, "FAIL_ERRNO": number}
    return ["env", *(f"{name}={value}" for name, value in mine.items())]
