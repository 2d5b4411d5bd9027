"""A page on the web, in the person's own browser: where there is one to be seen, and never on our screen."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

from trainmon.lib import Seconds

OPENS_WITHIN: Seconds = 10.0
"""A first window keeps the process that opened it: one that still runs after this long has done it."""

_OPEN = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


def is_page(url: str) -> bool:
    """Whether it is an address of the web. It came from a server: file: and others open more than pages."""
    return url.startswith(("https://", "http://")) and url.isprintable() and " " not in url


def can_open(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether a browser would be where the person is: over SSH it is not, and on Linux it needs a display."""
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return False
    return platform != "linux" or any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def open_page(url: str, done: Callable[[bool], object]) -> None:
    """Begin to open it, and say later, on another thread, whether that worked.

    In a session of its own with nothing to print on: webbrowser may end up with w3m, which would take our terminal.
    """
    threading.Thread(target=_open, args=(url, done), name="browser", daemon=True).start()


def _open(url: str, done: Callable[[bool], object]) -> None:
    null = subprocess.DEVNULL
    try:
        opener = subprocess.Popen(
            [sys.executable, "-I", "-c", _OPEN, url], stdin=null, stdout=null, stderr=null, start_new_session=True
        )
    except OSError:
        done(False)
        return
    try:
        done(opener.wait(OPENS_WITHIN) == 0)
    except subprocess.TimeoutExpired:
        opener.kill()  # the browser itself stays: it is a child of that process
        opener.wait(OPENS_WITHIN)
        done(True)
