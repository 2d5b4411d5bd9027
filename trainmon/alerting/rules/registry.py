"""Every rule, in the order of help and documents. A new rule is added to the tuple of its folder. Pure."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule
from trainmon.alerting.rules.disks import DISKS
from trainmon.alerting.rules.gpus import GPUS
from trainmon.alerting.rules.monitoring import MONITORING
from trainmon.alerting.rules.nodes import NODES
from trainmon.alerting.rules.runs import RUNS

RULES: tuple[type[Rule], ...] = (*RUNS, *GPUS, *NODES, *DISKS, *MONITORING)
