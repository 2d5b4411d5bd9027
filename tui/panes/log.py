"""`4 Log`: the log of the run that is selected in `1 Runs`."""

from __future__ import annotations

import os
import time

from textual.app import ComposeResult

from trainmon.lib import Instant, cell_width, clean, counted, shorten_start
from trainmon.model import Log, Run, State
from tui.panes.base import FollowingPane
from tui.services.terminal import for_samples
from tui.style import calm_age
from tui.views import log_named
from tui.widgets import LogView


class LogPane(FollowingPane):
    """A frame around a LogView: the run, the path, the age, the dropped lines."""

    NUMBER = "4"
    NAME = "Log"
    TAKES_ALL = True

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.view = LogView()
        self.lost = ""
        """What its log no longer has."""

    def compose(self) -> ComposeResult:
        yield from (self.top, self.heads, self.view, self.lines, self.bottom)

    @property
    def width(self) -> int:
        return max(self.view.size.width, self.lines.row_width)

    def focus_body(self) -> None:
        self.screen.set_focus(self.view if self.view.display else self.lines)

    def on_mount(self) -> None:
        self.heads.display = False
        self.lines.display = False

    def restart(self) -> None:
        self.view.restart()

    def copy_text(self) -> str | None:
        """The line that the search found, or else the path of the log."""
        view, log = self.view, self._log()
        if view.hit is not None and view.text.first <= view.hit < view.text.end:
            return clean(view.text[view.hit])
        return None if log is None or log.path is None else f"{log.host}:{log.path}"

    def set_filter(self, text: str) -> None:
        self.view.search(text)
        super().set_filter(text)

    def set_only(self, text: str) -> None:
        """Show only the lines with this text; empty: all."""
        self.view.only = text
        self.view.restart()
        self.again()

    def clear_filter(self) -> bool:
        had_filter = super().clear_filter()
        if not had_filter and self.view.only:
            self.set_only("")
            return True
        return had_filter

    def save(self) -> str:
        """Write the lines that are shown (all that are kept, not only those in sight) to a new file; the message.

        Raises:
            OSError: the file cannot be written.
        """
        folder = for_samples(self.run or "", os.environ)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"log-{time.strftime('%Y%m%d-%H%M%S')}.txt"
        file.write_text("".join(f"{clean(line)}\n" for line in self.view.text.lines), encoding="utf-8")
        return f"{counted(len(self.view.text.lines), 'line')} in {file}"

    def _log(self) -> Log | None:
        return None if self.followed is None else self.followed.log

    def draw(self, state: State, width: int) -> None:
        log, problem = self._log(), why_nothing(self.followed, self.run)
        self.view.display, self.lines.display = problem is None, problem is not None
        if log is None or problem is not None:
            self.caption(clean(self.run or ""))
            self.show_message((problem or "", "dim"))
        else:
            unfinished = () if log.partial is None else (log.partial_numbers,)
            self.view.set_lines(log.lines, log.first, log.partial, (*log.numbers, *unfinished))
            self._draw_frame(log, state)

    def _draw_frame(self, log: Log, state: State) -> None:
        status = view_status(self.view, log, state.at)
        self.caption(log_title(self.run or "", log, self.top.size.width - cell_width(status) - 16), status)
        said = "  ·  ".join(part for part in (self.lost, notes(self.view, log)) if part)
        self.foot(said, "warn" if log.error or self.lost else "dim")

    def on_log_view_changed(self, event: LogView.Changed) -> None:
        event.stop()
        log = self._log()
        if log is not None and self.state is not None:
            self._draw_frame(log, self.state)


def why_nothing(run: Run | None, name: str | None) -> str | None:
    """The sentence in place of the lines, or None when there are lines to show."""
    if name is None:
        return "No run is selected."
    if run is None:
        return f"{clean(name)} is no longer watched."
    if run.log is None and run.spec.log is not None:
        return f"{clean(run.name)}'s log, {log_named(run.spec.log)}, has not been read yet."
    if run.log is None:
        return f"{clean(run.name)} has no log: set `log` in its [[run]] table."
    if run.log.lines or run.log.partial:
        return None
    empty = "The log is empty so far." if run.log.checked_at else "The log has not been read yet."
    return clean(run.log.error) if run.log.error else empty


def log_title(run: str, log: Log, width: int) -> str:
    """The run, the host and the path. A long path is cut at its start."""
    start, path = f"{clean(run)}  {clean(log.host)}", clean(log.path or "")
    return f"{start}:{shorten_start(path, max(8, width - cell_width(start) - 1))}" if path else start


def view_status(view: LogView, log: Log, now: Instant) -> str:
    """`follow  12s ago`: the mode of the view, and the age of the last line."""
    age = "" if log.at is None else f"{calm_age(now - log.at)} ago"
    mode = "follow" if view.following else "paused"
    parts = (f"&{clean(view.only)}" if view.only else "", mode, "wrap" if view.wrapping else "", age)
    return "  ".join(part for part in parts if part)


def notes(view: LogView, log: Log) -> str:
    """The bottom of the frame: an error, dropped lines, the search, the position."""
    below = max(0, view.text.end - view.position.line - view.size.height)
    parts = (
        clean(log.error or ""),
        f"+{counted(log.dropped, 'line')} dropped: the log grew too fast" if log.dropped else "",
        f"no line has “{view.only}”; & and Esc show all" if view.only and not view.text.lines else "",
        f"no match for “{view.needle}”" if view.needle and view.hit is None else "",
        f"paused, {counted(below, 'line')} below; f to follow" if not view.following and view.text.lines else "",
    )
    return "  ·  ".join(part for part in parts if part)
