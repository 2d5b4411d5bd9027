"""Rules about disks."""

from __future__ import annotations

from trainmon.rules.base import Rule

DISKS: tuple[type[Rule], ...] = ()
