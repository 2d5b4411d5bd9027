"""What the sources of looks have answered → which ranks hold a run up. Pure.

A look names a rank only with proof. What differs for a moment in a run that goes on names nobody.
"""

from trainmon.analysis.attempts.looks.activity import FACTS, Activity, Sample, activities, judged
from trainmon.analysis.attempts.looks.leading import LABELS, NAMES, leading, told
from trainmon.analysis.attempts.looks.nccl_ras import Answer, Communicator, Process, UnreadableError, read
from trainmon.analysis.attempts.looks.roll_call import Circumstances, call, placed
from trainmon.analysis.attempts.looks.stacks import Frame, standing

__all__ = [
    "FACTS",
    "LABELS",
    "NAMES",
    "Activity",
    "Answer",
    "Circumstances",
    "Communicator",
    "Frame",
    "Process",
    "Sample",
    "UnreadableError",
    "activities",
    "call",
    "judged",
    "leading",
    "placed",
    "read",
    "standing",
    "told",
]
