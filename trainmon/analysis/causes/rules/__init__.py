"""The table of causes: one row for each. Pure."""

from __future__ import annotations

from trainmon.analysis.causes.rules.fabric import FABRIC
from trainmon.analysis.causes.rules.gpus import GPUS
from trainmon.analysis.causes.rules.program import PROGRAM
from trainmon.analysis.causes.rules.scheduler import SCHEDULER
from trainmon.analysis.causes.sieve import Rule
from trainmon.model import CauseName

RULES: tuple[Rule, ...] = (*SCHEDULER, *GPUS, *FABRIC, *PROGRAM)
"""Special messages stand before general ones: the first row whose sign is in a line decides about the line."""

RULE: dict[CauseName, Rule] = {rule.cause: rule for rule in RULES}

__all__ = ["RULE", "RULES"]
