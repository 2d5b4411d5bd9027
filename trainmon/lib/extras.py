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

    Our environment may have no pip (`venv --without-pip`, pipx, uv), and in a shell where it is active, `python3` is
    its own: so it is the pip of the Python that it was made from.
    """
    if find_spec(LIBRARIES[extra]) is not None:
        return None
    base = shlex.quote(f"{sys.base_prefix}/bin/python3")
    return f"{base} -m pip --python {shlex.quote(sys.executable)} install 'trainmon-tui[{extra}]'"
