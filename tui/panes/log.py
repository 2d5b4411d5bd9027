"""`4 Log`: the log of the run that is selected in `1 Runs`."""

from __future__ import annotations

from textual.app import ComposeResult

from trainmon.lib import cell_width, clean, shorten_start
from trainmon.model import Log, Run, State
from tui.panes.base import Pane
from tui.style import calm_age
from tui.views import log_named
from tui.views.alerts import about
from tui.widgets import LogView


class LogPane(Pane):
    """A frame around a LogView: the run, the path, the age, the dropped lines."""

    NUMBER = "4"
    NAME = "Log"

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.view = LogView()
        self.run: str | None = None

    def compose(self) -> ComposeResult:
        yield self.top
        yield self.heads
        yield self.view
        yield self.lines
        yield self.bottom

    @property
    def width(self) -> int:
        return max(self.view.size.width, self.lines.row_width)

    def focus_body(self) -> None:
        self.screen.set_focus(self.view if self.view.display else self.lines)

    def on_mount(self) -> None:
        self.heads.display = False
        self.lines.display = False

    def alerts(self) -> tuple[str, ...]:
        return () if self.run is None or self.state is None else about(self.state, runs=(self.run,))

    def follow_run(self, name: str | None) -> None:
        """Show the log of this run from now on."""
        if name != self.run:
            self.run = name
            self.view.restart()
            self.again()

    def copy_text(self) -> str | None:
        """The line that the search found, or else the path of the log."""
        view = self.view
        if view.hit is not None and view.text.first <= view.hit < view.text.end:
            return clean(view.text[view.hit])
        run = self._run_now()
        return None if run is None or run.log is None or run.log.path is None else f"{run.log.host}:{run.log.path}"

    def set_filter(self, text: str) -> None:
        self.filter = text
        self.view.search(text)
        self.again()

    def _run_now(self) -> Run | None:
        return None if self.state is None or self.run is None else self.state.runs.get(self.run)

    def draw(self, state: State, width: int) -> None:
        run = self._run_now()
        problem = why_nothing(run, self.run)
        self.view.display = problem is None
        self.lines.display = problem is not None
        if run is None or run.log is None or problem is not None:
            self.caption(clean(self.run or ""))
            self.say((problem or "", "dim"))
            return
        self.view.set_lines(run.log.lines, run.log.first, run.log.partial)
        self._words(run, run.log, state)

    def _words(self, run: Run, log: Log, state: State) -> None:
        words = status(self.view, log, state.at)
        self.caption(title(run, log, self.top.size.width - cell_width(words) - 16), words)
        self.foot(notes(self.view, log), "warn" if log.error else "dim")

    def on_log_view_changed(self, event: LogView.Changed) -> None:
        event.stop()
        run = self._run_now()
        if run is not None and run.log is not None and self.state is not None:
            self._words(run, run.log, self.state)


def why_nothing(run: Run | None, wanted: str | None) -> str | None:
    """The sentence in place of the lines, or None when there are lines to show."""
    if wanted is None:
        return "No run is selected."
    if run is None:
        return f"{clean(wanted)} is no longer watched."
    if run.log is None and run.spec.log is not None:
        return f"{clean(run.name)}'s log, {log_named(run.spec.log)}, has not been read yet."
    if run.log is None:
        return f"{clean(run.name)} has no log: set `log` in its [[run]] table."
    if run.log.lines or run.log.partial:
        return None
    if run.log.error:
        return clean(run.log.error)
    return "The log is empty so far." if run.log.checked_at else "The log has not been read yet."


def title(run: Run, log: Log, width: int) -> str:
    """The run, the host and the path. A long path is cut at its start."""
    name, host, path = clean(run.name), clean(log.host), clean(log.path or "")
    if not path:
        return f"{name}  {host}"
    return f"{name}  {host}:{shorten_start(path, max(8, width - cell_width(f'{name}  {host}:')))}"


def status(view: LogView, log: Log, now: float) -> str:
    """`follow  12s ago`: the mode of the view, and the age of the last line."""
    words = ["follow" if view.following else "held"]
    if view.wrapping:
        words.append("wrap")
    if log.at is not None:
        words.append(f"{calm_age(now - log.at)} ago")
    return "  ".join(words)


def notes(view: LogView, log: Log) -> str:
    """The bottom of the frame: an error, dropped lines, the search, the position."""
    words = []
    if log.error:
        words.append(clean(log.error))
    if log.dropped:
        words.append(f"+{log.dropped:,} lines dropped: the log grew too fast")
    if view.needle and view.hit is None:
        words.append(f"no line has “{view.needle}”")
    if not view.following and view.text.lines:
        below = view.text.end - view.place.line - view.size.height
        words.append(f"{max(0, below):,} lines below  f follows")
    return "  ·  ".join(words)
