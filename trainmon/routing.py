"""Which channel is told what, and why now. Pure."""

from __future__ import annotations

import msgspec

from trainmon.clock import Seconds
from trainmon.model_alerts import Route, Silence

HOUR: Seconds = 3_600.0


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """How alerts reach people."""

    routes: tuple[Route, ...] = ()
    """A route a channel, in the order of the config."""
    repeat: Seconds = 4 * HOUR
    """A critical alert that nobody has acknowledged is told again so often (Alertmanager's repeat_interval)."""
    group_wait: Seconds = 0.5
    """How long a new alert waits for others of its group before it is told; at most a second."""
    windows: tuple[Silence, ...] = ()
    """The maintenance windows of the config: from `made_at` to `until`."""


class HeartbeatSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What is told when nothing is wrong."""

    every: Seconds | None = 4 * HOUR
    """Between two heartbeats; null: none."""
    test_every: Seconds | None = 7 * 24 * HOUR
    """Between two test messages that ask to be acknowledged; null: none."""
    start: bool = True
    """Whether it is told that this program begins to watch, and that it ends."""
