"""Rules about runs."""

from __future__ import annotations

from trainmon.rules.base import Rule

RUNS: tuple[type[Rule], ...] = ()
