"""The log reader of the probe, one poll at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from collectors.probe.files.logs import Logs
from tests.collectors.probe.wire import ManualClock, readings_of


class Log:
    """A followed pattern, a clock, and what it said."""

    def __init__(
        self, pattern: Path | str, keep: str = "step", watch: ManualClock | None = None, **more: object
    ) -> None:
        self.watch = watch or ManualClock()
        self.sense = Logs({"logs": [{"id": "run", "pattern": str(pattern), **more}], "keep": keep}, self.watch)

    def chunks(self, slow: bool = False, after: float = 2.0) -> list[Any]:
        self.watch.at += after
        return readings_of(self.sense, slow)

    def chunk(self, slow: bool = False, after: float = 2.0) -> Any:
        [chunk] = self.chunks(slow, after)
        return chunk
