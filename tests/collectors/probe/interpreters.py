"""The Pythons of this machine that a node may have: 3.6 and later, on the PATH or under pyenv."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path


def found() -> dict[str, str]:
    """Version → interpreter, one for each minor version."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    interpreters = {}
    for python in sorted(pyenv.glob("3.*/bin/python")):
        version = re.match(r"3\.\d+", python.parts[-3])
        if version and os.access(python, os.X_OK):
            interpreters[version.group()] = str(python)
    for minor in range(6, 15):
        on_path = shutil.which(f"python3.{minor}")
        if on_path and "/.pyenv/shims/" not in on_path:
            interpreters.setdefault(f"3.{minor}", on_path)
    return {version: interpreters[version] for version in sorted(interpreters, key=lambda v: int(v[2:])) if v6(version)}


def v6(version: str) -> bool:
    return int(version.split(".")[1]) >= 6
