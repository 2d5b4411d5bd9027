"""The layout of the main screen's panes: the shape gives the column of each."""

from __future__ import annotations

from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from tui.panes import Pane
from tui.style import places


class Columns(Layout):
    """Panes in columns. A pane may stand in one column at one width and in another at the next, so none is a widget."""

    name = "columns"

    def __init__(self) -> None:
        self.columns: tuple[tuple[str, ...], ...] = ()
        self.panes: dict[str, Pane] = {}

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        parent.pre_layout(self)
        return [
            WidgetPlacement(Region(*place), NULL_OFFSET, NULL_SPACING, self.panes[number])
            for number, place in places(self.columns, size.width, size.height).items()
            if self.panes[number] in children
        ]


class PaneLayout(Widget):
    """Holds all the panes and shows those of a shape."""

    def __init__(self, panes: dict[str, Pane]) -> None:
        super().__init__(*panes.values(), id="body")
        self._columns = Columns()
        self._columns.panes = panes

    @property
    def layout(self) -> Layout:
        return self._columns

    def stand(self, columns: tuple[tuple[str, ...], ...]) -> None:
        """Show the panes of these columns and no others."""
        self._columns.columns = columns
        shown = {number for column in columns for number in column}
        for number, pane in self._columns.panes.items():
            pane.display = number in shown
        self.refresh(layout=True)
