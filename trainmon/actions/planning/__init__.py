"""Plans of actions: what would be done, what is refused and why, and the last check before an action. Pure."""

from trainmon.actions.planning.context import (
    LEDGER,
    Actor,
    FileStat,
    PlanContext,
    Readback,
    ReadRequest,
    cluster_of,
    contexts_of,
)
from trainmon.actions.planning.jobs import NUMBERS, is_held, split_location
from trainmon.actions.planning.plans import (
    Offer,
    gate_nodes,
    hold_or_release,
    offered,
    plan,
    reads_before,
    reads_for_plan,
    recheck,
    unchecked,
)
from trainmon.actions.planning.switches import SILENT_VERDICTS

__all__ = [
    "LEDGER",
    "NUMBERS",
    "SILENT_VERDICTS",
    "Actor",
    "FileStat",
    "Offer",
    "PlanContext",
    "ReadRequest",
    "Readback",
    "cluster_of",
    "contexts_of",
    "gate_nodes",
    "hold_or_release",
    "is_held",
    "offered",
    "plan",
    "reads_before",
    "reads_for_plan",
    "recheck",
    "split_location",
    "unchecked",
]
