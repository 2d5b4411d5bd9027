"""Why an attempt ended: from its log, its exit status, the scheduler and its nodes to one cause. Pure."""

from __future__ import annotations

from trainmon.analysis.causes.classify import NO_RESTART, classify, fatal_end, says_it_ended, stated
from trainmon.analysis.causes.rule import Rule
from trainmon.analysis.causes.rules import RULE, RULES
from trainmon.analysis.causes.rules.gpus import HARDWARE_XIDS

__all__ = ["HARDWARE_XIDS", "NO_RESTART", "RULE", "RULES", "Rule", "classify", "fatal_end", "says_it_ended", "stated"]
