"""What the dashboard needs of its terminal and machine: repaints under toasts, hang-ups, a browser, folders.

Textual compares two layouts to find the regions that a widget has left. If a pane asks for its own width after the
toast has gone and before the next layout, the old layout no longer contains the toast. Textual then repaints nothing.
Our panes paint only changed cells, so the toast would stay on the terminal, with holes, until a resize.
"""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.color import ColorSystem
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from textual._compositor import ChopsUpdate
from textual.app import App
from textual.geometry import Region
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from trainmon.lib import Seconds, clean, state_dir, write_whole

# ---- writes only what changed ----------------------------------------------------------------------------------------


class NarrowUpdate(ChopsUpdate):
    """Writes the changed cells of a frame, those of one style together. Textual writes each line from the left edge of
    its widget, and a style again for each piece: four times as many bytes."""

    def render_segments(self, console: Console) -> str:
        pieces: dict[Style, list[str]] = {}
        for y, x1, x2 in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                at, stop = max(x, x1), min(end, x2)
                for segment in strip.crop(at - x, stop - x) if strip is not None and at < stop else ():
                    written = pieces.setdefault(segment.style or Style(), [])
                    written.append(f"\x1b[{y + 1};{at + 1}H{segment.text}")  # a Control would take ten times as long
                    at += segment.cell_length
        colors = console._color_system or ColorSystem.TRUECOLOR
        return "".join(Strip.render_style(style, "".join(texts), colors) for style, texts in pieces.items())


# ---- repaints the screen under a toast when the toast goes -----------------------------------------------------------

POLL_EVERY: Seconds = 0.5

LINES = 6
"""The most lines shown of a channel's notification: the Alerts pane shows all."""

LEVELS: dict[str, SeverityLevel] = {"critical": "error", "warning": "warning"}


class ChannelNotification(Message):
    """A notification from the desktop channel, or about the config, on another thread."""

    def __init__(self, title: str, text: str, severity: str, new: tuple[str, ...] | None) -> None:
        super().__init__()
        self.title = clean(title, 120)
        self.text = "\n".join(clean(line, 200) for line in text.split("\n")[:LINES])
        self.level: SeverityLevel = LEVELS.get(severity, "information")
        self.new = new
        """The alerts that it only reports as critical now. None: it is not about alerts."""


class Toasts:
    """Polls the regions of toasts, and repaints those that they have left."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._screen: Screen[Any] | None = None
        self._there: dict[Widget, Region] = {}
        self._left: list[Region] = []

    def poll(self) -> None:
        """Repaint the regions that were left since the last poll; again at the next one, after the new layout."""
        is_closing = not self._app.screen_stack
        if is_closing or not (self._app._notifications or self._there or self._left):  # looking for them takes 1 ms
            return
        screen = self._app.screen
        there = {toast: toast.region for toast in screen.query("Toast")}
        if screen is not self._screen:
            self._screen, self._there, self._left = screen, {}, []
        left = [region for toast, region in self._there.items() if region and there.get(toast) != region]
        if left or self._left:
            screen.refresh(*left, *self._left)
        self._there, self._left = there, left


# ---- A terminal that hangs up ----------------------------------------------------------------------------------------


def on_hang_up(leave: Callable[[], object]) -> None:
    """Call `leave` on SIGHUP.

    The kernel sends SIGCONT right after SIGHUP. On SIGCONT, Textual's driver restarts the terminal. Its writer thread
    then dies of the first write, and the exit waits for ever on that thread's full queue (1 in 10 lost connections).
    So this is a signal handler of Python, which runs before that of SIGCONT, and not one of the event loop.
    """

    def hung_up(*_: object) -> None:
        if gone := [stream for stream in (0, 1, 2) if _is_gone(stream)]:
            # What is written there from now on is lost, and no write fails.
            null = os.open(os.devnull, os.O_RDWR)
            for stream in gone:
                os.dup2(null, stream)
            os.close(null)
        leave()

    signal.signal(signal.SIGHUP, hung_up)


def _is_gone(stream: int) -> bool:
    """Whether the terminal has hung up. After a SIGHUP alone, the terminal is still there and must be restored."""
    try:
        termios.tcgetattr(stream)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False


# ---- gives the terminal to the shell, or to ssh ----------------------------------------------------------------------

NOT_STOPPED: Seconds = 0.05
"""Nobody types `fg` so soon: the kernel stops no process that no shell could continue."""

SSH_FAILED = 255
"""OpenSSH's exit status for its own errors; any other one is that of the remote shell."""


@contextmanager
def handling(number: int, handler: Callable[[int, object], object] | signal.Handlers) -> Iterator[None]:
    """Handle a signal so inside of `with`."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def suspend(app: App[Any], sentence: str) -> bool:
    """Stop this process, with all that a wrapper started with it, until `fg`. The terminal is as it was before the
    start. False: no shell controls this process, and it was not stopped.

    Textual's own action stops this process alone, also where nobody could continue it: `ssh -t HOST trainmon-tui`.
    """
    with app.suspend(), handling(signal.SIGTSTP, signal.SIG_DFL):
        print(sentence, flush=True)
        began = time.monotonic()
        os.kill(0, signal.SIGTSTP)
        return time.monotonic() - began > NOT_STOPPED


def run_on_terminal(app: App[Any], command: Sequence[str]) -> None:
    """Run a command on this terminal, and come back when it ends. Ctrl-C is for the command only: it gets the default
    handler. The message of an ssh that fails stays until Enter."""
    with app.suspend(), handling(signal.SIGINT, lambda *_: None):
        if subprocess.run(command, check=False).returncode == SSH_FAILED:
            with suppress(EOFError):
                input("ssh has failed. Enter returns to the dashboard. ")


# ---- opens a web page in the browser of this machine -----------------------------------------------------------------

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


# ---- the target folders of downloads ---------------------------------------------------------------------------------

_ODD = re.compile(r"[^\w.+-]+")
NAME_BYTES = 200
"""Of a folder; file systems take 143 (eCryptfs) to 255."""


def for_samples(run: str, environ: Mapping[str, str]) -> Path:
    """The default folder for a run's samples: in ~/Downloads if that exists, else in our state directory."""
    name = _ODD.sub("_", run).strip("._").encode()[:NAME_BYTES].decode(errors="ignore") or "run"
    downloads = Path(environ.get("HOME") or "/nonexistent") / "Downloads"
    if downloads.is_dir():
        return downloads / state_dir.NAME / name
    return state_dir.find_state_directory(environ).path / "samples" / name


def new_file(name: str, start: str, ending: str, environ: Mapping[str, str]) -> Path:
    """A file that is not there yet, named by the time, in the folder of a name."""
    stem = for_samples(name, environ) / f"{start}{time.strftime('%Y%m%d-%H%M%S')}"
    return next(file for more in ("", *range(-2, -100, -1)) if not (file := Path(f"{stem}{more}{ending}")).exists())


def save_new(name: str, ending: str, text: str, environ: Mapping[str, str]) -> Path:
    """Write a text to a new file in the folder of a name; its path.

    Raises:
        OSError: the file cannot be written.
    """
    file = new_file(name, "", ending, environ)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode())
    return file


def svg_of(widget: Widget, title: str) -> str:
    """The picture of a widget, as it is on the screen."""
    left, top, width, height = widget.region
    console = Console(
        width=width, height=height, file=io.StringIO(), force_terminal=True, color_system="truecolor", record=True,
        legacy_windows=False, safe_box=False,
    )  # fmt: skip
    for strip in widget.screen._compositor.render_strips()[top : top + height]:
        console.print(Segments([*strip.crop(left, left + width), Segment.line()]), end="")
    return console.export_svg(title=title)


def meant(text: str) -> Path:
    """The absolute path of a typed folder, with `~` expanded."""
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError:  # there is no such user: the folder itself has this name
        return Path(text).absolute()
