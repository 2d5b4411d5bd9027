"""One node on the full screen: its GPUs in a table, their last hour as plots, its processes and its host."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult

from trainmon.model import State
from tui.charts import LEAST_HEIGHT
from tui.panes import Pane
from tui.panes.details import FactsPane, GpuTable, PlotPane
from tui.screens.navigation import LinkedScreen
from tui.views.nodes import missing
from tui.widgets import Link

FRAME = 3
"""Lines of the table's frame and heads."""


class NodeScreen(LinkedScreen):
    """The table, the plots if there is room, and facts with links to the node's jobs; Esc goes back."""

    PLACE = "node"

    def __init__(self, node: str) -> None:
        self.table = GpuTable(node, id="node-gpus")
        super().__init__(Link("node", node), self.table)
        self.gpus = 0
        self.facts = FactsPane(node, id="node-facts")

    def compose(self) -> ComposeResult:
        self.plots = PlotPane(self.about.name, self.watching.backend, id="node-plots")
        yield self.header
        yield self.table
        yield self.plots
        yield self.facts
        yield self.foot

    def on_mount(self) -> None:
        self.fit()

    def on_resize(self, event: events.Resize) -> None:
        self.fit()

    def show(self, state: State) -> None:
        node = state.nodes.get(self.about.name)
        self.gpus = 0 if node is None else len(node.gpus) + missing(node)
        self.fit()
        self.header.show(state)
        for pane in (self.table, self.plots, self.facts):
            pane.show(state)

    def fit(self) -> None:
        """Give the table a line per GPU. The plots are shown only where enough is left for the facts as well."""
        table, plots = heights(self.app.size.height, self.gpus)
        for pane, height in ((self.table, table), (self.plots, plots)):
            if pane.styles.height is None or pane.styles.height.value != max(1, height):
                pane.styles.height = max(1, height)
            if pane.display != (height > 0):
                pane.display = height > 0

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        self.pane = next((pane for pane in (self.table, self.facts) if pane in event.widget.ancestors), self.pane)

    def on_pane_selected(self, event: Pane.Selected) -> None:
        gpu = self.table.selected_gpu()
        if event.pane is self.table and gpu is not None:
            self.plots.follow_gpu(gpu.index)


def heights(screen: int, gpus: int) -> tuple[int, int]:
    """Lines of the table and of the plots on a screen this high."""
    table = min(max(gpus, 1) + FRAME, max(6, (screen - 2) // 2))
    left = screen - 2 - table
    plots = min(16, left // 2) if gpus else 0
    return table, plots if plots >= LEAST_HEIGHT + 2 else 0
