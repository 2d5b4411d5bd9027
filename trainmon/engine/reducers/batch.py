"""The State while one batch of events changes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from trainmon.analysis.log_formats import Format
from trainmon.lib import Instant
from trainmon.model import CurvesGrew, State


class EventBatch:
    """A State being changed by one batch of events: each map is copied once, at its first change."""

    def __init__(self, state: State, formats: tuple[Format, ...]) -> None:
        self.state = state
        self.formats = formats
        self.maps: dict[str, Any] = {}
        """The fields of the State that differ."""
        self.grown: list[CurvesGrew] = []
        """The points that logs have shown."""

    def writable(self, name: str) -> dict[str, Any]:
        """The copy of one of the State's maps that this batch may change."""
        if name not in self.maps:
            self.maps[name] = dict(getattr(self.state, name))
        found: dict[str, Any] = self.maps[name]
        return found

    def current(self, name: str) -> Mapping[str, Any]:
        """The current map, changed or not."""
        found: Mapping[str, Any] = self.maps.get(name, getattr(self.state, name))
        return found

    def so_far(self, now: Instant) -> State:
        """The State after the events of this batch so far."""
        return replace(self.state, at=now, **self.maps)
