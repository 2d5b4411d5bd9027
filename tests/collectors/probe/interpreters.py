"""The Pythons of this machine that a node may have: 3.6 and later, on the PATH or under pyenv."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MINORS = range(6, 16)


def found() -> dict[str, str]:
    """Version → interpreter, one for each minor version."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    interpreters = {}
    for minor in MINORS:
        built = sorted(pyenv.glob(f"3.{minor}.*/bin/python"))
        on_path = shutil.which(f"python3.{minor}")
        if built:
            interpreters[f"3.{minor}"] = str(built[-1])
        elif on_path and "shims" not in Path(on_path).parts:
            interpreters[f"3.{minor}"] = on_path
    return interpreters
