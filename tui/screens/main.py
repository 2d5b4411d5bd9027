"""The main screen: the panes in the shape that the terminal's size allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.geometry import NULL_OFFSET, NULL_SPACING, Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.message import Message
from textual.widget import Widget

from trainmon.model import Arrangement, State
from tui.backend import Backend
from tui.keys import NAMES, bindings, cap
from tui.modals import Jump, ask
from tui.panes import (
    AlertsPane,
    ChangesLine,
    DiskPane,
    GpusPane,
    LogPane,
    Pane,
    QueuePane,
    RunPane,
    RunsPane,
    StoryLine,
    Strip,
    WandbPane,
    watched,
)
from tui.screens.base import PaneScreen, StateScreen
from tui.style import Link
from tui.widgets import KeyedLines

# ---- the layout of the main screen -----------------------------------------------------------------------------------

TINY_COLUMNS = 60
TWO_COLUMNS = 120
THREE_COLUMNS = 180
SHORT_ROWS = 16
TALL_ROWS = 50
THREE_ROWS = 30
"""The height from which GPUs, disks and alerts fit below each other."""
WIDE_LOG_ROWS = 40
"""The height from which the log fits below two of three columns. A step line has about 130 cells, a column has 78."""


class Shape(NamedTuple):
    """The visible panes, column by column, and the numbers of the panes that do not fit."""

    columns: tuple[tuple[str, ...], ...]
    hidden: tuple[str, ...] = ()
    across: str = ""
    """The pane below the first two columns, as wide as both."""


class Chosen(NamedTuple):
    """The last choices: the focused pane, and the visible one of each group of panes that share a position."""

    current: str = "1"
    lower: str = "4"
    """Of all but 1: the pane in the lower half of a single column."""
    beside: str = "4"
    """Of 4 and 7: the pane under the runs if there are several columns."""
    right: str = "3"
    """Of 3 and 5: the pane under the GPUs if both do not fit."""
    charts: bool = False
    """Whether 6 is under the runs instead, if it has no column of its own."""

    def go_to(self, number: str) -> Chosen:
        lower = self.lower if number == "1" else number
        right = number if number in ("3", "5") else self.right
        if number in ("4", "7"):
            return Chosen(number, lower, number, right)
        return Chosen(number, lower, self.beside, right, self.charts or number == "6")


def shape(
    width: int, height: int, chosen: Chosen, *, zoomed: bool = False, queue: bool = False, charts: bool = False
) -> Shape:
    """The panes for this size. `queue`, `charts`: whether there are any; if so, they get a position if they fit."""
    if zoomed or is_tiny(width, height):
        return Shape(((chosen.current,),), others(chosen.current))
    if width < TWO_COLUMNS:
        return Shape((("1", chosen.lower),), others("1", chosen.lower))
    right = ("2", "3", "5") if height >= THREE_ROWS else ("2", chosen.right)
    if width < THREE_COLUMNS:
        left = left_column(height, "6" if chosen.charts else chosen.beside, chosen.beside, queue=queue)
        return Shape((left, right), others(*left, *right))
    left = left_column(height, chosen.beside, chosen.beside, queue=queue)
    third = ("6", "run") if charts or chosen.current == "6" else ("run",)
    columns, shown = (left, right, third), (*left, *right, *third)
    if height < WIDE_LOG_ROWS or "4" not in left:
        return Shape(columns, others(*shown))
    left = tuple(pane for pane in left if pane != "4")
    if left == ("1",):  # the runs alone would leave most of their column empty
        left, right = ("1", "5"), ("2", "3")
    return Shape((left, right, third), others(*shown), "4")


def left_column(height: int, under: str, beside: str, *, queue: bool) -> tuple[str, ...]:
    """The runs and the pane under them; the queue too, if it fits."""
    if height >= TALL_ROWS and (queue or beside == "7"):
        return ("1", "7", "4" if under == "7" else under)
    return ("1", under)


def others(*shown: str) -> tuple[str, ...]:
    return tuple(number for number in NAMES if number not in shown)


def is_tiny(width: int, height: int) -> bool:
    return width < TINY_COLUMNS or height < SHORT_ROWS


def names_of(numbers: tuple[str, ...]) -> str:
    """Panes with their keys."""
    return "  ".join(f"{number} {NAMES[number]}" for number in numbers)


def what_is_hidden(hidden: tuple[str, ...], width: int) -> str:
    """The text that names the hidden panes; shorter on a narrow screen."""
    names = names_of(hidden)
    sentences = (f"one pane fits here; also: {names}", f"also {names}", f"also {' '.join(hidden)}")
    return next((sentence for sentence in sentences if len(sentence) < width), sentences[-1])


# ---- how a person arranged the panes -------------------------------------------------------------------------------

POSITIONS = ("1", "7", "4", "2", "3", "5", "6", "run")
"""The positions of the shapes, by the panes that usually have them."""

PRESETS: Mapping[str, Arrangement] = {
    "all panes": Arrangement(),
    "runs and log": Arrangement(hidden=frozenset("23567") | {"run"}),
    "cluster": Arrangement(order=("2", "4", "7", "1", "3", "5", "6", "run"), hidden=frozenset("146") | {"run"}),
    "one run": Arrangement(order=("6", "7", "4", "run", "3", "5", "1", "2"), hidden=frozenset("12357")),
}


def panes_by_position(arrangement: Arrangement) -> dict[str, str]:
    """The pane at each position. An order that does not have each pane once is not used."""
    is_complete = sorted(arrangement.order) == sorted(POSITIONS)
    return dict(zip(POSITIONS, arrangement.order if is_complete else POSITIONS, strict=True))


def arranged(shape: Shape, arrangement: Arrangement, current: str) -> Shape:
    """The shape with the panes in their order, without those that are hidden, and with the focused one."""
    at = {place: pane for place, pane in panes_by_position(arrangement).items() if pane not in arrangement.hidden}
    columns = [tuple(at[place] for place in column if place in at) for column in shape.columns]
    across = at.get(shape.across, "")
    columns = [column for column in columns if column] or [(across,)]
    across = "" if columns == [(across,)] else across
    if not any(current in column for column in (*columns, (across,))):
        columns[-1] = (*columns[-1][:-1], current)
    return Shape(tuple(columns), others(*(pane for column in columns for pane in column), across), across)


MOVED_FOR, LEAST_LOG = 6, 12
"""The rows that a move must gain: the panes do not move back and forth with each alert. The rows that a pane needs that
can use any height."""


def balanced(shape: Shape, height: int, needed: Mapping[str, float], before: Shape) -> Shape:
    """The shape, with the last pane of one of the first two columns below the other one if that shows more rows: sixty
    runs beside few nodes. Below the runs and their log nothing is put. `before`: the shape that is on the screen."""
    if len(shape.columns) < 2:
        return shape
    left, right, *others = shape.columns
    options = [shape.columns]
    options += [(left[:-1], (*right, left[-1]), *others)] if len(left) > 1 else []
    options += [((*left, right[-1]), right[:-1], *others)] if len(right) > 1 and shape.across else []
    room = cuts(height, ABOVE_AND_ACROSS)[0][1] if shape.across else height
    stays = before.columns if before.columns in options else shape.columns

    def lacking(columns: tuple[tuple[str, ...], ...]) -> float:
        rows = (sum(LEAST_LOG if needed[pane] == inf else needed[pane] for pane in column) for column in columns[:2])
        return sum(max(0, all_rows - room) for all_rows in rows) - MOVED_FOR * (columns == stays)

    return shape._replace(columns=min(options, key=lacking))


# ---- where each pane stands ----------------------------------------------------------------------------------------


WIDTHS: Mapping[int, Sequence[int]] = {1: (1,), 2: (57, 43), 3: (44, 36, 32)}
"""The width shares of the columns, by their number."""

ABOVE_AND_ACROSS = (4, 1)
"""The height shares of the first two columns, at most, and of the pane below both."""

SHARES: Mapping[str, int] = {"1": 3, "2": 4, "3": 2, "4": 2, "5": 3, "6": 3, "7": 2, "run": 2}
"""How the panes of a column share its height if it is too little for all of their rows."""


STEP_OF_HEIGHT, STEP_OF_WIDTH = 1.5, 1.2
"""The height of a pane and the width of its column grow by this each time it is enlarged."""


def pane_regions(
    shape: Shape,
    width: int,
    height: int,
    needed: Mapping[str, float] = MappingProxyType({}),
    larger: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Region]:
    """The position of every pane: columns side by side, the panes of a column below each other. `needed`: the lines
    that show all rows of a pane; one without uses any height. `larger`: how many times each was enlarged."""
    found: dict[str, Region] = {}
    steps = [sum(larger.get(pane, 0) for pane in column) for column in shape.columns]
    usual = WIDTHS[len(shape.columns)]
    sides = cuts(width, [round(100 * share * STEP_OF_WIDTH**step) for share, step in zip(usual, steps, strict=True)])
    needed = {pane: rows * STEP_OF_HEIGHT ** larger.get(pane, 0) for pane, rows in needed.items()}
    shares = {pane: round(100 * share * STEP_OF_HEIGHT ** larger.get(pane, 0)) for pane, share in SHARES.items()}
    above = height
    if shape.across:
        most = cuts(height, ABOVE_AND_ACROSS)[0][1]
        above = int(min(most, max(sum(needed.get(pane, inf) for pane in column) for column in shape.columns[:2])))
    for number, (column, (left, right)) in enumerate(zip(shape.columns, sides, strict=True)):
        top = 0
        for pane, rows in zip(column, heights(column, above if number < 2 else height, needed, shares), strict=True):
            found[pane] = Region(left, top, right - left, rows)
            top += rows
    if shape.across:
        found[shape.across] = Region(0, above, sides[:2][-1][1], height - above)
    return found


def heights(
    column: tuple[str, ...], cells: int, needed: Mapping[str, float], shares: Mapping[str, int] = SHARES
) -> list[int]:
    """The height of each pane of a column: that of its rows. If these are too many, the panes that need more than their
    share divide what the others leave; if too few, the last pane has the rest."""
    found: dict[str, int] = {}
    large = list(column)
    while small := [
        pane for pane in large if needed.get(pane, inf) * sum(map(shares.__getitem__, large)) <= cells * shares[pane]
    ]:
        found |= {pane: int(needed[pane]) for pane in small}
        large = [pane for pane in large if pane not in small]
        cells -= sum(found[pane] for pane in small)
    parts = cuts(cells, [shares[pane] for pane in large]) if large else []
    found |= {pane: end - start for pane, (start, end) in zip(large, parts, strict=True)}
    if not large:
        found[column[-1]] += cells
    return [found[pane] for pane in column]


def cuts(cells: int, shares: Sequence[int]) -> list[tuple[int, int]]:
    """The start and end of each share, without gaps."""
    return list(pairwise([cells * part // sum(shares) for part in accumulate(shares, initial=0)]))


# ---- the main screen -------------------------------------------------------------------------------------------------


class PaneLayout(Layout):
    """Panes in columns. A pane may be in one column at one width and in another at the next: a column is no widget."""

    name = "columns"

    def __init__(self, panes: dict[str, Pane]) -> None:
        self.shape = Shape(())
        self.panes = panes
        self.needed: dict[str, float] = {}
        self.larger: Mapping[str, int] = {}

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        parent.pre_layout(self)
        return [
            WidgetPlacement(region, NULL_OFFSET, NULL_SPACING, self.panes[number])
            for number, region in pane_regions(self.shape, *size, self.needed, self.larger).items()
            if self.panes[number] in children
        ]


class PaneBody(Widget):
    """Holds all the panes and shows those of a shape."""

    def __init__(self, panes: dict[str, Pane]) -> None:
        super().__init__(*panes.values(), id="body")
        self._layout_of_panes = PaneLayout(panes)

    @property
    def layout(self) -> Layout:
        return self._layout_of_panes

    def give_rows(self) -> None:
        """Arrange the panes again if they need other heights for their rows."""
        layout, size = self._layout_of_panes, self.size
        needed = {number: pane.needed for number, pane in layout.panes.items() if pane.needed}
        shown = (pane_regions(layout.shape, *size, rows, layout.larger) for rows in (layout.needed, needed))
        layout.needed = needed
        if layout.shape.columns and len({tuple(regions.items()) for regions in shown}) > 1:
            self._place_again()

    def show_shape(self, shape: Shape, larger: Mapping[str, int]) -> None:
        """Show the panes of this shape and no others."""
        self._layout_of_panes.shape, self._layout_of_panes.larger = shape, larger
        for number, pane in self._layout_of_panes.panes.items():
            pane.display = number == shape.across or any(number in column for column in shape.columns)
        self._place_again()

    def _place_again(self) -> None:
        self._clear_arrangement_cache()  # Textual clears it only if a child asks for a layout
        self.refresh(layout=True)


RESIZED_AT_MOST = 4


class MainScreen(PaneScreen):
    """Runs, GPUs, disks, alerts, the queue, and of the selected run its log and its charts."""

    class Left(Message):
        """`q`, which bubbles behind what the keys before it sent."""

    BINDINGS = bindings("main")

    def __init__(self, backend: Backend, arrangement: Arrangement) -> None:
        super().__init__()
        self.strip = Strip()
        self.changes_line = ChangesLine(id="since")
        self.story_line = StoryLine(id="story")
        self.runs = RunsPane(id="runs")
        self.gpus = GpusPane(backend.history, id="gpus")
        self.disk = DiskPane(id="disk")
        self.alerts = AlertsPane(id="alerts")
        self.log_pane = LogPane(backend, id="log")
        self.queue = QueuePane(backend.poll_job, id="queue")
        self.wandb = WandbPane(backend, id="wandb")
        self.wandb.marked = self.runs.lines.marks
        self.run_pane = RunPane("", backend, id="run", follow=False)
        self.panes: dict[str, Pane] = {
            "1": self.runs, "7": self.queue, "4": self.log_pane, "2": self.gpus, "3": self.disk,
            "5": self.alerts, "6": self.wandb, "run": self.run_pane,
        }  # fmt: skip
        """In the order in which Tab goes through them."""
        self.body = PaneBody(self.panes)
        self.pane: Pane = self.runs
        self.chosen, self.zoomed = Chosen(), False
        self._has_begun = self._has_queue = self._has_charts = False
        self.shape = Shape(())
        self.arrangement = Arrangement() if arrangement.hidden >= NAMES.keys() else arrangement
        self.own: Arrangement | None = None
        self.columns = dict(arrangement.columns)
        for pane in self.panes.values():
            sort = arrangement.sorts.get(pane.NUMBER, pane.sort)
            pane.chosen = self.columns
            pane.sort = sort if sort.removeprefix("-") in pane.orders else pane.ORDER

    def compose(self) -> ComposeResult:
        yield from (self.header, self.strip, self.changes_line, self.story_line, self.body, self.find, self.foot)

    def show(self, state: State) -> None:
        self.header.show(state)
        self.strip.listed = self.strip.places(state) <= self.alerts.listed(state)
        self.strip.show(state)
        self.changes_line.show(*self.dashboard.changes.line(state))
        self.story_line.show(state, self.current)
        has_optional = bool(state.jobs or watched(state)), any(run.has_charts for run in state.runs.values())
        if has_optional != (self._has_queue, self._has_charts):
            self._has_queue, self._has_charts = has_optional
            self.fit()
        for pane in self.panes.values():
            if self.dashboard.is_awaited or not pane.can_wait(state):
                pane.show(state)
        if self.wandb.run is None and state.runs and not self.runs.in_sight:  # zoomed before the runs were known
            self.on_pane_selected(Pane.Selected(self.runs, next(iter(state.runs))))
        if not self._has_begun and state.sources:
            self._has_begun = True
            if not state.runs and self.current == "1":
                self.action_pane("2")

    def listed(self, state: State) -> frozenset[str]:
        """The alerts of a State that it shows as texts: in their pane, or in the strip."""
        return self.alerts.listed(state) | self.strip.places(state)

    # ---- shape ----

    @property
    def current(self) -> str:
        """The number of the pane with the focus."""
        return panes_by_position(self.arrangement)[self.chosen.current]

    def on_mount(self) -> None:
        self.rearrange(self.arrangement)

    def on_resize(self) -> None:
        self.fit()

    def fit(self) -> None:
        """Arrange the panes for this size, focus and zoom, if that changed."""
        width, height = self.app.size
        new = shape(width, height, self.chosen, zoomed=self.zoomed, queue=self._has_queue, charts=self._has_charts)
        new = arranged(new, self.arrangement, self.current)
        if not self.arrangement.order:
            needed = {number: pane.needed for number, pane in self.panes.items()}
            new = balanced(new, self.body.size.height, needed, self.shape)
        hidden = what_is_hidden(new.hidden, width) if is_tiny(width, height) else ""
        self.foot.at(self.context, f"zoomed; {cap('view.zoom')} restores" if self.zoomed else hidden)
        self.runs.hint = "" if self.zoomed or hidden else names_of(new.hidden)
        if new != self.shape:
            self.shape = new
            with self.app.batch_update():
                self.body.show_shape(new, self.arrangement.larger)
                self.strip.listed = self.alerts.display
                self.strip.on_resize()

    def arranged(self) -> Arrangement:
        """How a person arranged the panes and sorted their rows; from any thread."""
        sorts = {pane.NUMBER: pane.sort for pane in self.panes.values() if pane.sort != pane.ORDER}
        columns = {table: chosen for table, chosen in self.columns.items() if chosen}
        return replace(self.arrangement, sorts=sorts, columns=columns)

    def rearrange(self, arrangement: Arrangement) -> None:
        """Arrange the panes so; the focus leaves a pane that is hidden."""
        current = self.current
        self.arrangement, self.shape, self.zoomed = arrangement, Shape(()), False
        visible = [pane for pane in panes_by_position(arrangement).values() if pane not in arrangement.hidden]
        self.go_to(current if current in visible else next(pane for pane in visible if pane in NAMES))

    def go_to(self, number: str) -> None:
        """Focus a pane, whatever its position."""
        self.choose(number)
        self.fit()
        self.pane.focus_body()

    def choose(self, number: str) -> None:
        """Keys apply to this pane, and its position is shown."""
        positions = {pane: place for place, pane in panes_by_position(self.arrangement).items()}
        self.chosen, self.pane = self.chosen.go_to(positions[number]), self.panes[number]

    def action_preset(self) -> None:
        """The next preset; behind the last one, an arrangement of one's own."""
        now = (panes_by_position(self.arrangement), self.arrangement.hidden)
        known = [(panes_by_position(one), one.hidden) for one in PRESETS.values()]
        if now not in known or self.arrangement.larger:
            self.own = self.arrangement
        presets = dict(PRESETS) if self.own is None else {**PRESETS, "your own": self.own}
        at = known.index(now) if now in known and self.arrangement is not self.own else -1
        name = [*presets][(at + 1) % len(presets)]
        self.chosen = Chosen(self.chosen.current)
        self.rearrange(presets[name])
        self.pane.say(f"panes: {name}")

    def action_hide(self) -> None:
        hidden = self.arrangement.hidden | {self.current}
        if hidden >= NAMES.keys():
            self.pane.say("this is the only pane")
        else:
            if self.chosen.current in ("4", "6", "7"):  # they share a position, which another of them takes
                self.chosen = Chosen(self.chosen.current)
            self.rearrange(replace(self.arrangement, hidden=hidden))

    def action_resize(self, step: int) -> None:
        larger = dict(self.arrangement.larger)
        larger[self.current] = min(max(larger.get(self.current, 0) + step, -RESIZED_AT_MOST), RESIZED_AT_MOST)
        self.rearrange(replace(self.arrangement, larger=larger))

    def action_swap(self, step: int) -> None:
        """Swap the focused pane with the one at the next position that is shown."""
        order, current = [*panes_by_position(self.arrangement).values()], self.current
        shown = [pane for pane in order if pane not in self.shape.hidden and self.panes[pane].display]
        other = shown[(shown.index(current) + step) % len(shown)]
        swapped = {current: other, other: current}
        self.rearrange(replace(self.arrangement, order=tuple(swapped.get(pane, pane) for pane in order)))

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        for number, pane in self.panes.items():
            if number in NAMES and pane in event.widget.ancestors_with_self:
                self.choose(number)
                if pane in (self.log_pane, self.wandb):
                    self.runs.lines.choose_cursor()  # nobody wants to read the log of another run suddenly
                self.fit()

    @property
    def context(self) -> str:
        """The name of the focused pane in the key table."""
        if self.current == "7":
            # among the nodes of the queue other keys act
            subject = None if self.queue.selected is None else self.queue.subject_of(self.queue.selected)
            if self.queue.view == "nodes" if subject is None else subject[0] == "node":
                return "queue-nodes"
        return str(self.panes[self.current].id)

    def action_pane(self, number: str) -> None:
        """Go to a pane; again: zoom it."""
        if self.current == number:
            self.action_zoom()
        else:
            self.arrangement = replace(self.arrangement, hidden=self.arrangement.hidden - {number})
            self.go_to(number)

    def hide_changes(self) -> None:
        """A person has read what changed."""
        self.dashboard.changes.read()
        self.changes_line.display = False

    def action_zoom(self) -> None:
        self.zoomed = not self.zoomed
        self.fit()

    def action_back(self) -> None:
        """Esc: close messages and the line of changes, then clear the filter or else end the zoom."""
        self.app.clear_notifications()
        self.hide_changes()
        if not self.pane.clear_filter() and self.zoomed:
            self.action_zoom()

    # ---- following the selection, and opening it ----

    def on_pane_resized(self) -> None:
        self.fit()
        self.body.give_rows()

    def on_pane_selected(self, event: Pane.Selected) -> None:
        if event.pane is self.runs:
            for pane in (self.log_pane, self.run_pane, self.wandb):
                pane.follow_run(event.key)
        elif event.pane is self.queue:
            self.fit()

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        if self.app.screen is not self:
            return  # a second Enter, or a plan, was faster
        pane = next((pane for pane in (self.runs, self.gpus, self.queue) if event.lines is pane.lines), None)
        subject = None if pane is None else pane.subject_of(event.key)
        if subject is not None:
            self.dashboard.open(Link(*subject))
        elif event.lines is self.disk.lines and self.disk.selected is not None:
            self.dashboard.open(Link("disk", self.disk.selected))
        elif event.lines is self.alerts.lines and self.alerts.silence() is not None:
            self.action_mute()
        elif event.lines is self.alerts.lines and self.alerts.selected is not None:
            self.dashboard.open(Link("alert", self.alerts.selected))

    def action_leave(self) -> None:
        """Quit, or go back from the screen that the key before it opens."""
        (self.focused or self).post_message(self.Left())

    def on_main_screen_left(self) -> None:
        if self.app.screen is self:
            self.dashboard.actions.quit()
        elif isinstance(self.app.screen, StateScreen):
            self.app.screen.action_back()

    def page(self) -> str | None:
        """The page of the selected run."""
        return self.run_pane.page

    def action_full_log(self) -> None:
        if self.runs.selected is not None:
            self.runs.lines.choose_cursor()
            self.dashboard.open(Link("log", self.runs.selected))
        else:
            self.runs.say("no run is selected")

    # ---- jump ----

    def action_jump(self) -> None:
        shown = [(number, pane) for number, pane in self.panes.items() if number in NAMES and pane.display]
        targets = [(number, pane.region.offset + Offset(2, 0)) for number, pane in sorted(shown)]
        ask(self.app, Jump(targets), self.jump_to)

    def jump_to(self, number: str) -> None:
        """Go to the pane of a jump label."""
        if number != self.current:
            self.action_pane(number)
