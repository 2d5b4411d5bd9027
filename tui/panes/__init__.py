"""The panes of the main screen, one per number key, and its header lines."""

from __future__ import annotations

from tui.panes.alert_strip import Strip
from tui.panes.alerts import AlertsPane
from tui.panes.base import Pane
from tui.panes.disk import DiskPane
from tui.panes.gpus import GpusPane
from tui.panes.header import HeaderLine
from tui.panes.log import LogPane
from tui.panes.queue import QueuePane, watched
from tui.panes.runs import RunsPane
from tui.panes.wandb import WandbPane

__all__ = [
    "AlertsPane",
    "DiskPane",
    "GpusPane",
    "HeaderLine",
    "LogPane",
    "Pane",
    "QueuePane",
    "RunsPane",
    "Strip",
    "WandbPane",
    "watched",
]
