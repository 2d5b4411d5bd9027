"""Rules about gpus."""

from __future__ import annotations

from trainmon.rules.base import Rule

GPUS: tuple[type[Rule], ...] = ()
