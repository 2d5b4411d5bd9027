"""What a failed command of Slurm means. Silence of the controller is not knowing, never "the job is gone". Pure."""

from __future__ import annotations

import re
from typing import Literal

from trainmon.lib import clean, scrub

Kind = Literal["silent", "gone", "denied", "absent", "refused"]
"""silent: no answer from the controller, nothing is known. gone: it knows no such job. denied: not ours to do.
absent: no such command there. refused: any other no."""

SILENT = re.compile(
    r"unable to contact slurm|timed? ?out|zero bytes were transmitted|standby mode|authentication"
    r"|munge|incompatible versions|temporarily un|rate limit exceeded|connection refused|connect failure"
    r"|communication (?:connection|shutdown)|configuration (?:source|file)|controller not responding"
    r"|problem talking to the database|unable to connect to|receive failure|send failure|unexpected message"
    r"|insane message|no route to host|connection reset|resource temporarily unavailable",
    re.IGNORECASE,
)
GONE = re.compile(r"invalid job id", re.IGNORECASE)
DENIED = re.compile(
    r"permission denied|access denied|unauthorized|invalid user id|must be .*(?:root|operator|admin)", re.IGNORECASE
)
NO_ACCOUNTING = re.compile(r"accounting storage is disabled|accounting storage plugin|accounting_storage/none", re.I)

NO_CONFIGURATION = re.compile(r"configuration (?:source|file)|ClusterName needs to be specified", re.I)
COMPLAINT = re.compile(r"^squeue: (?:error|fatal): ", re.MULTILINE)
NOT_FOUND = 127
"""How env and every shell end when there is no such command."""

PREFIX = re.compile(r"^(?:[\w.\-]+: )*(?:\w+ )?(?:error|fatal): ")


def kind(status: int, stderr: str) -> Kind:
    """The class of a failure, from the exit status and what was complained."""
    if status == NOT_FOUND and "error:" not in stderr:  # scancel's own status may be 127
        return "absent"
    if SILENT.search(stderr):
        return "silent"
    if GONE.search(stderr):
        return "gone"
    return "denied" if DENIED.search(stderr) else "refused"


def has_complained(stderr: str) -> bool:
    """Whether a command that ended well has yet failed in part: squeue leaves out a user whom nobody knows, as it
    does while the directory of users is down, and ends with status 0. His jobs are not gone."""
    return COMPLAINT.search(stderr) is not None


def is_without_configuration(stderr: str) -> bool:
    """Whether its configuration was not found: there is no Slurm, or a login's environment says where it is."""
    return NO_CONFIGURATION.search(stderr) is not None


def is_without_accounting(stderr: str) -> bool:
    """Whether sacct says that this cluster keeps no accounts: a fact, and no error."""
    return NO_ACCOUNTING.search(stderr) is not None


def words(stderr: str) -> str:
    """What it complained, as one line: the last one that says something, without the program's own name."""
    lines = [clean(line.strip(), 300) for line in stderr.splitlines()]
    said = [line for line in lines if line]
    return scrub(PREFIX.sub("", said[-1])) if said else ""
