"""`4 Log`: the log of the run that is selected in `1 Runs`."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from trainmon.analysis.attempts import places_in, ranks_of_log
from trainmon.lib import Instant, cell_width, clean, counted, listed, shorten_start, size
from trainmon.model import LOG_MARK, LOG_PART, Log, LogHits, LogPart, Run, State
from tui.backend import Backend, LogSource
from tui.keys import cap
from tui.panes.base import BodyPane, FollowingPane
from tui.services.terminal import meant
from tui.style import calm_age
from tui.views.table import log_named
from tui.widgets import LogView
from tui.widgets.log_view import LogPosition

PART_LINES = 4_000
"""Lines of the file that are kept."""

RANKS_SHOWN = 2
"""The last ranks named in sight whose nodes are shown."""

KNOWN = 3
"""Lines by which the last lines are found in the file."""


class LogPane(BodyPane, FollowingPane):
    """A frame around a LogView: the run, the path, the age, the dropped lines. It shows the last lines, or on demand a
    part of the file."""

    NUMBER = "4"
    NAME = "Log"
    TAKES_ALL = True

    def __init__(self, backend: Backend, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._backend = backend
        self.body = self.view = LogView()
        self.view.next_hit = self._next_hit
        self.lost = ""
        """What could not be read, or its log no longer has."""
        self.part: LogPart | None = None
        """The part of the file that is shown."""
        self.first = 0
        """The number of its first line."""
        self.hits: LogHits | None = None
        """Where the search has found its text in the file; None while only the shown lines are searched."""
        self._file: LogSource | None = None
        self._path: str | None = None
        """The file that it reads."""
        self._awaited: object = None
        """The read whose reply is awaited."""
        self._end_search: Callable[[], object] = bool
        self._end_saving: Callable[[], object] = bool
        self.saving = ""
        """How much of the file is saved so far; empty: it is not being saved."""

    def focus_body(self) -> None:
        self.screen.set_focus(self.view if self.view.display else self.lines)

    def restart(self) -> None:
        self._stop_search()
        self._file = self.part = self.hits = self._awaited = None
        self.lost = ""
        self.view.restart()

    def copy_text(self) -> str | None:
        """The line that the search found, or else the path of the log."""
        line, log = self.view.hit_line, self._log()
        if line is not None:
            return clean(line)
        return None if log is None or log.path is None else f"{log.host}:{log.path}"

    def set_filter(self, text: str) -> None:
        self._stop_search()
        self.hits = None
        self.view.search(text)
        super().set_filter(text)

    def set_only(self, text: str) -> None:
        """Show only the lines with this text; empty: all."""
        self.view.only = text
        self.view.restart()
        self.view.following = self.part is None
        self.again()

    def clear_filter(self) -> bool:
        """End what goes on, a search first; else show everything again."""
        if self._stop_search():
            return True
        if self._awaited is not None or self.saving:
            if self._awaited is None:
                self._end_saving()
                self.saving = ""
            self._awaited = None
            self._draw_frame()
        elif not super().clear_filter():
            if not self.view.only:
                return False
            self.set_only("")
        return True

    def savable(self) -> tuple[tuple[str, str], ...]:
        """What can be saved: the lines that are shown (all that are kept, not only those in sight), or the file."""
        log = self._log()
        whole = "" if log is None or log.path is None else f"the whole file, {shorten_start(log.path, 40)}"
        shown = ("shown", f"the {counted(len(self.view.text.lines), 'line')} that are shown")
        return (shown, ("file", whole)) if whole else (shown,)

    def save(self, answer: tuple[str, str]) -> None:
        """Save the lines, or request the whole file. A file that exists is kept."""
        what, file = answer[0], meant(answer[1])
        source = self._opened() if what == "file" else None
        if source is not None:
            self._end_saving()
            self._end_saving = source.save(file, partial(self.app.call_later, self._saved))
        elif what == "file":
            self._saved("not saved: its file cannot be read")
        else:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("x", encoding="utf-8") as opened:
                    opened.writelines(f"{clean(line)}\n" for line in self.view.text.lines)
                self._saved(f"{counted(len(self.view.text.lines), 'line')} in {file}")
            except OSError as error:
                self._saved(f"not saved: {error}")

    def _saved(self, sentence: str, is_last: bool = True) -> None:
        """Show how much of the file is saved, or the last sentence about it."""
        self.saving = "" if is_last else f"{sentence}; Esc stops"
        if is_last:
            self.app.notify(sentence, title="log", timeout=10, markup=False)
        self._draw_frame()

    def _log(self) -> Log | None:
        return None if self.followed is None else self.followed.log

    def draw(self, state: State, width: int) -> None:
        log, problem = self._log(), why_nothing(self.followed, self.run)
        if log is None or problem is not None:
            self.caption(clean(self.run or ""))
            self.show_message((problem or "", "dim"))
            return
        self.view.display, self.lines.display = True, False
        if self.part is not None:
            self.view.set_lines(self.part.lines, self.first, None, self.part.numbers)
        else:
            unfinished = () if log.partial is None else (log.partial_numbers,)
            self.view.set_lines(log.lines, log.first, log.partial, (*log.numbers, *unfinished))
        self._draw_frame()

    def _draw_frame(self) -> None:
        log = self._log()
        if log is None:
            return
        status = view_status(self.view, log, self.state.at)
        self.caption(log_title(self.run or "", log, self.top.size.width - cell_width(status) - 16), status)
        begin, line = self._offset(self.view.position.line), self.view.hit_line or self.view.needle
        said = (
            self.saving,
            "reading the file; Esc stops" if self._awaited is not None else "",
            self.lost,
            self._ranks_named(log, self.state),
            "" if self.hits is None else hits_text(self.hits, self.filter, self._offset(self.view.hit)),
            "" if self.view.needle.lower() in line.lower() else "this hit is in a part of its line that is not shown",
            ""
            if begin is None or self.part is None
            else f"at {begin / self.part.size:.1%} of {size(self.part.size)}; G to the end",
            "" if begin != 0 or self.part is None else in_older(self.part.older),
            notes(self.view, log, is_file=self.part is not None, is_searched=self.hits is not None),
        )
        self.foot("  ·  ".join(filter(None, said)), "warn" if log.error or self.lost else "dim")

    def _ranks_named(self, log: Log, state: State) -> str:
        """Where the ranks run that the lines in sight name, without those of steps: `rank 118 (gpu-014 GPU 6)`."""
        text, first, height = self.view.text, self.view.position.line, self.view.size.height
        lines = enumerate(log.lines if self.part is None else (), log.first)
        marks = [text.first - 1, text.first - 1, *(at for at, line in lines if line.startswith(LOG_MARK))]
        last = log.path if self.part is None else self._path
        files = {log.path_before: range(marks[-2] + 1, marks[-1]), last: range(marks[-1] + 1, text.end)}
        named: list[str] = []
        for path, own in files.items() if not self.view.only else ():
            shown = [text[at] for at in range(first, first + height) if at in own and text.said_in(at) is None]
            named += map(str, places_in(shown, ranks_of_log(shown, path, self.run or "", state.attempts.values())))
        return ", ".join(named[-RANKS_SHOWN:])

    def on_log_view_changed(self, event: LogView.Changed) -> None:
        event.stop()
        self._draw_frame()

    # ---- the whole file, read on demand ----

    def _offset(self, line: int | None) -> int | None:
        """Where a line begins in the file; None while the last lines are shown."""
        if self.part is None or line is None or not 0 <= line - self.first < len(self.part.offsets):
            return None
        return self.part.offsets[line - self.first]

    def _opened(self) -> LogSource | None:
        run, log = self.followed, self._log()
        if (
            run is not None
            and log is not None
            and (self._file is None or (log.path != self._path and self.part is None))
        ):
            self._file, self._path = self._backend.open_log(run), log.path
        return self._file

    def _follow(self) -> None:
        """Show the last lines again."""
        self.part = self._awaited = self.view.hit = None
        self.view.following = True
        self.again()

    def _read(
        self, ask: Callable[[LogSource, Callable[[LogPart], object]], None], then: Callable[[LogPart], object]
    ) -> None:
        """Read in the file, if anybody can. The reply of an earlier read is not awaited any more."""
        if (file := self._opened()) is not None:
            self._awaited = object()
            ask(file, partial(self.app.call_later, self._received, self._awaited, then))
            self._draw_frame()

    def _received(self, awaited: object, then: Callable[[LogPart], object], part: LogPart) -> None:
        if awaited is self._awaited:
            self._awaited, self.lost = None, clean(part.error or "")
            if part.is_other:
                self._stop_search()
                self._file = self.hits = None
                self._follow()
            elif part.error is None:
                then(part)
            self.again()

    def on_log_view_edge(self, event: LogView.Edge) -> None:
        """Read on, from where the shown lines end."""
        event.stop()
        part, log = self.part, self._log()
        if event.where == "last" and part is not None:
            self._follow()
        elif event.where == "first" and (part is None or part.start > 0):
            self._read(lambda file, reply: file.read(0, LOG_PART, reply), self._show_part)
        elif self._awaited is not None or self.view.only or log is None:
            self.view.following = self.view.following and part is None
        elif event.where == "up" and part is not None and part.start > 0:
            self._read(
                lambda file, reply: file.read(part.start - LOG_PART, part.start, reply),
                partial(self._show_earlier, part),
            )
        elif event.where == "up" and part is None and not is_whole(log):
            marks = [at for at, line in enumerate(log.lines) if line.startswith(LOG_MARK)]
            at = marks[-1] + 1 if marks else 0
            known, first = log.lines[at : at + KNOWN], log.first + at
            near = (log.size or 0) - sum(len(line) + 1 for line in log.lines[at:])
            self._read(lambda file, reply: file.above(known, near, reply), partial(self._show_above, first))
        elif event.where == "down" and part is not None:
            self.view.following = False
            self._read(lambda file, reply: file.read(part.end, part.end + LOG_PART, reply), self._show_later)
        self._draw_frame()

    def _show_part(self, part: LogPart) -> None:
        """Show another part of the file, at the line that was looked for, or at its begin."""
        self.part, self.first, self.view.following, self.view.hit = part, 0, False, None
        self.view.position = LogPosition(0)
        self.again()
        if part.found is not None:
            self.view.show_line(part.found)

    def _show_above(self, known: int, part: LogPart) -> None:
        if part.start < part.offsets[part.found or 0]:
            self.part, self.first = part, known - (part.found or 0)

    def _show_earlier(self, shown: LogPart, part: LogPart) -> None:
        self.part, self.first = (part + shown)[:PART_LINES], self.first - len(part.lines)

    def _show_later(self, part: LogPart) -> None:
        if self.part is not None and part.lines:
            both = self.part + part
            surplus = max(0, len(both.lines) - PART_LINES)
            self.part, self.first = both[surplus:], self.first + surplus
        else:
            self._follow()

    def open_at(self, at: Instant, step: int | None, evidence: tuple[str, ...]) -> None:
        """Show the lines of a time, however old they are."""
        self._read(lambda file, reply: file.find(at, step, evidence, reply), self._show_part)

    # ---- the search of the whole file ----

    def keep_filter(self) -> None:
        file, log = self._opened() if self.filter else None, self._log()
        if file is not None and log is not None:
            self.hits = LogHits(begin=log.size or 0, size=log.size or 0)
            self._end_search = file.search(self.filter, partial(self.app.call_later, self._found, self.filter))
            self._draw_frame()

    def _stop_search(self) -> bool:
        """End the search of the file, and keep its hits. False: none goes on."""
        if self.hits is None or self.hits.is_done:
            return False
        self._end_search()
        self.hits = replace(self.hits, is_done=True)
        self._draw_frame()
        return True

    def _found(self, text: str, hits: LogHits) -> None:
        """More of the file is searched. Show the last hit, or that which follows the lines of the file in sight."""
        if self.hits is None or self.hits.is_done or text != self.filter:
            return
        top = self._offset(self.view.position.line)
        had_one = bool(self.hits.offsets) and (top is None or self.hits.begin <= top)
        self.hits = replace(self.hits, is_done=True, error=hits.error) if hits.error else hits
        if hits.offsets and not had_one and (top is None or hits.begin <= top or hits.is_done):
            self._show_hit(hits.offsets, len(hits.offsets) - 1 if top is None else bisect_left(hits.offsets, top))
        self._draw_frame()

    def _next_hit(self, step: int) -> bool:
        if self.hits is None or not self.hits.offsets:
            return False
        line, found = self.view.position.line if self.view.hit is None else self.view.hit, self.hits.offsets
        at, end = self._offset(line), self._offset(line + 1)
        if at is None:
            self._show_hit(found, 0 if step > 0 else -1)
        else:
            later = bisect_left(found, at + 1 if end is None else end)
            self._show_hit(found, later if step > 0 else bisect_left(found, at) - 1)
        return True

    def _show_hit(self, found: Sequence[int], index: int) -> None:
        """Show a hit in the file; behind the last one, the first one."""
        offset = found[index % len(found)]
        if self.part is not None and self.part.start <= offset < self.part.end:
            self.view.show_line(self.first + line_at(self.part, offset, self.filter))
        else:
            self._read(
                lambda file, reply: file.read(offset - LOG_PART // 2, offset + LOG_PART // 2, reply),
                lambda part: self._show_part(replace(part, found=line_at(part, offset, self.filter))),
            )


def is_whole(log: Log | None) -> bool:
    """Whether all lines of its file are known."""
    return log is None or (log.size is not None and sum(len(line) + 1 for line in log.lines) >= log.size)


def line_at(part: LogPart, offset: int, text: str) -> int:
    """The index of the line at an offset: of several that a record holds, the first one with the text."""
    last = max(0, bisect_right(part.offsets, offset) - 1)
    first = bisect_left(part.offsets, part.offsets[last])
    return next((at for at in range(first, last) if text.lower() in part.lines[at].lower()), last)


def hits_text(hits: LogHits, text: str, at: int | None) -> str:
    """`hit 3 of 17 in 46 MiB`: what was searched, and what was found."""
    count = len(hits.offsets)
    if hits.error:
        return f"only these lines are searched for “{text}”: {clean(hits.error)}"
    if not hits.is_done:
        return f"searched {size(hits.size - hits.begin)} of {size(hits.size)}, {counted(count, 'hit')}; Esc stops"
    where = f"the last {size(hits.size - hits.begin)}" if hits.begin else f"all {size(hits.size)}"
    where = "; ".join(filter(None, (where, in_older(hits.older))))
    if not count:
        return f"no match for “{text}” in {where}"
    number = "" if at is None else f"hit {bisect_left(hits.offsets, at) + 1:,} of "
    return f"{number}{counted(count, 'hit') if not number else f'{count:,}'} in {where}"


def in_older(names: Sequence[str]) -> str:
    """Where log rotation may have put the older lines."""
    return f"older lines may be in {listed(names, 3)}" if names else ""


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
    parts = (
        f"&{clean(view.only)}" if view.only else "",
        "follow" if view.following else "paused",
        "wrap" if view.wrapping else "",
        "" if log.at is None else f"{calm_age(now - log.at)} ago",
    )
    return "  ".join(filter(None, parts))


def notes(view: LogView, log: Log, *, is_file: bool = False, is_searched: bool = False) -> str:
    """The bottom of the frame: an error, dropped lines, the search, the position. `is_file`: a part of the file is
    shown; `is_searched`: all of it was searched."""
    below = max(0, view.text.end - view.position.line - view.size.height)
    among = "" if is_whole(log) else f" in the last {counted(len(log.lines), 'line')}; Enter searches the whole file"
    read = " among those read; / searches the file" if is_file or not is_whole(log) else ""
    parts = (
        clean(log.error or ""),
        f"+{counted(log.dropped, 'line')} dropped: the log grew too fast" if log.dropped else "",
        f"no line has “{view.only}”{read}; & and Esc show all" if view.only and not view.text.lines else "",
        f"no match for “{view.needle}”{among}" if view.needle and view.hit is None and not is_searched else "",
        f"paused, {counted(below, 'line')} below; {cap('log.follow')} to follow"
        if not (view.following or is_file) and view.text.lines
        else "",
    )
    return "  ·  ".join(part for part in parts if part)
