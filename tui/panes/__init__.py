"""The panes of the main screen, one per number key, and its header lines."""

from tui.panes.alerts import AlertsPane
from tui.panes.base import Pane
from tui.panes.details import AlertPane, AttemptPane, ChangesPane, JobPane, OneDiskPane, ReportPane, RunPane
from tui.panes.disk import DiskPane
from tui.panes.gpus import FactsPane, GpusPane, GpuTable, PlotPane
from tui.panes.header import ChangesLine, HeaderLine, StoryLine, Strip
from tui.panes.log import LogPane
from tui.panes.queue import QueuePane, watched
from tui.panes.runs import RunsPane
from tui.panes.wandb import WandbPane

__all__ = [
    "AlertPane",
    "AlertsPane",
    "AttemptPane",
    "ChangesLine",
    "ChangesPane",
    "DiskPane",
    "FactsPane",
    "GpuTable",
    "GpusPane",
    "HeaderLine",
    "JobPane",
    "LogPane",
    "OneDiskPane",
    "Pane",
    "PlotPane",
    "QueuePane",
    "ReportPane",
    "RunPane",
    "RunsPane",
    "StoryLine",
    "Strip",
    "WandbPane",
    "watched",
]
