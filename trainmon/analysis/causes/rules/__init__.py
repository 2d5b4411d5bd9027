"""The table of causes: one row for each. Pure."""

from __future__ import annotations

from trainmon.analysis.causes.rules.code import CODE
from trainmon.analysis.causes.rules.data import DATA
from trainmon.analysis.causes.rules.gpus import GPUS
from trainmon.analysis.causes.rules.network import NETWORK
from trainmon.analysis.causes.rules.results import RESULTS
from trainmon.analysis.causes.rules.scheduler import SCHEDULER
from trainmon.analysis.causes.rules.storage import STORAGE
from trainmon.analysis.causes.sieve import Rule
from trainmon.model import CauseName

RULES: tuple[Rule, ...] = (*SCHEDULER, *GPUS, *STORAGE, *NETWORK, *DATA, *RESULTS, *CODE)
"""Special messages stand before general ones: the first row whose sign is in a line decides about the line."""

RULE: dict[CauseName, Rule] = {rule.cause: rule for rule in RULES}

__all__ = ["RULE", "RULES"]
