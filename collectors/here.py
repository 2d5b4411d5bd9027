"""What this machine is called as a node."""

from __future__ import annotations

import socket


def here() -> str:
    return socket.gethostname().partition(".")[0] or "localhost"
