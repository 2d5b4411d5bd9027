"""Opens a web page in the browser of this machine. Nothing is printed on our terminal."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

from trainmon.lib import Seconds

OPENS_WITHIN: Seconds = 10.0
"""The opener of a first window runs as long as that window: if it still runs after this time, the page is open."""

_OPEN = "import sys, webbrowser; sys.exit(not webbrowser.open(sys.argv[1]))"


def is_page(url: str) -> bool:
    """Whether it is an http(s) address. It came from a server; file: and other schemes open more than pages."""
    return url.startswith(("https://", "http://")) and url.isprintable() and " " not in url


def can_open(environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether the person would see a browser: not over SSH, and on Linux only with a display."""
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return False
    return platform != "linux" or any(environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def open_page(url: str, done: Callable[[bool], object]) -> None:
    """Start to open it; `done` gets the success later, on another thread.

    The opener has its own session and no output: webbrowser may fall back to w3m, which would take our terminal.
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
