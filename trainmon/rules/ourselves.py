"""Rules about ourselves."""

from __future__ import annotations

from trainmon.rules.base import Rule

OURSELVES: tuple[type[Rule], ...] = ()
