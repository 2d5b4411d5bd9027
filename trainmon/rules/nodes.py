"""Rules about nodes."""

from __future__ import annotations

from trainmon.rules.base import Rule

NODES: tuple[type[Rule], ...] = ()
