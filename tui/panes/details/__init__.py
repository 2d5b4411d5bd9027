"""Panes about one run, job, node or alert."""

from __future__ import annotations

from tui.panes.details.alert import AlertPane
from tui.panes.details.job import JobPane
from tui.panes.details.node import FactsPane, GpuTable, PlotPane, axes
from tui.panes.details.run import RunPane

__all__ = ["AlertPane", "FactsPane", "GpuTable", "JobPane", "PlotPane", "RunPane", "axes"]
