"""The large libraries of side features, which a plain install leaves out: extras of this package."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from typing import Literal

Extra = Literal["apprise", "plots", "postgresql"]

LIBRARIES: dict[Extra, str] = {"apprise": "apprise", "plots": "matplotlib", "postgresql": "psycopg"}


def install_command(extra: Extra) -> str | None:
    """The command that installs the library of an extra for this Python; None if it is installed.

    Our environment may have no pip (`venv --without-pip`, pipx, uv), so it is that of any other Python.
    """
    if find_spec(LIBRARIES[extra]) is not None:
        return None
    return f"python3 -m pip --python {shlex.quote(sys.executable)} install 'trainmon-tui[{extra}]'"
