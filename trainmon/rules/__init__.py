"""The rules: what is looked for in every State. `RULES` is all of them, in the order of docs/alerts-and-rules.md."""

from __future__ import annotations

from trainmon.rules.base import Rule
from trainmon.rules.disks import DISKS
from trainmon.rules.gpus import GPUS
from trainmon.rules.nodes import NODES
from trainmon.rules.ourselves import OURSELVES
from trainmon.rules.runs import RUNS

RULES: tuple[type[Rule], ...] = (*RUNS, *GPUS, *NODES, *DISKS, *OURSELVES)
