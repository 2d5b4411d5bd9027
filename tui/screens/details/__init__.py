"""Screens about one run, job, node or alert."""

from __future__ import annotations

from tui.screens.details.alert import AlertScreen
from tui.screens.details.job import JobScreen
from tui.screens.details.node import NodeScreen
from tui.screens.details.run import RunScreen

__all__ = ["AlertScreen", "JobScreen", "NodeScreen", "RunScreen"]
