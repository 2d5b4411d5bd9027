"""The meaning of a failed Slurm command. Without an answer nothing is known: a job may still exist. Pure."""

from __future__ import annotations

import re
from typing import Literal

from trainmon.lib import clean, scrub

Kind = Literal["silent", "gone", "denied", "absent", "refused"]
"""silent: no answer from the controller. gone: no such job. denied: no permission. absent: no such command on the host.
refused: any other failure."""

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
EXPIRED = re.compile(
    r"job \d+ has expired|invalid job id|job is pending|already completing or completed|step \S+ .*cancelled",
    re.I,
)
NOT_ALLOCATED = re.compile(r"Unable to (?:confirm allocation|create step) for job \d+: (?P<why>.+)")
"""The controller has not given srun a step."""
NOT_LAUNCHED = re.compile(r"Task launch for \S+ failed on node (?P<node>\S+?): (?P<why>.+)")
"""The slurmd of a node has not started its part of the step."""
DOUBT = re.compile(r"Check SLURM_JOB_ID environment variable")
"""srun adds that the job may be invalid, whatever was wrong: "Expired or invalid job 7"."""
COMPLAINED = re.compile(r"(?:error|fatal): ")
NO_ACCOUNTING = re.compile(r"accounting storage is disabled|accounting storage plugin|accounting_storage/none", re.I)

NO_CONFIGURATION = re.compile(r"configuration (?:source|file)|ClusterName needs to be specified", re.I)
COMPLAINT = re.compile(r"^squeue: (?:error|fatal): ", re.MULTILINE)
NOT_FOUND = 127
"""The exit status of env and of every shell when there is no such command."""

PREFIX = re.compile(r"^(?:[\w.\-]+: )*(?:\w+ )?(?:error|fatal): ")


def kind(status: int, stderr: str) -> Kind:
    """The class of a failure, from the exit status and stderr."""
    if status == NOT_FOUND and "error:" not in stderr:  # scancel's own status may be 127
        return "absent"
    kinds: dict[Kind, re.Pattern[str]] = {"silent": SILENT, "gone": GONE, "denied": DENIED}
    return next((kind for kind, pattern in kinds.items() if pattern.search(stderr)), "refused")


def has_complained(stderr: str) -> bool:
    """Whether a command with exit status 0 failed in part. squeue leaves out a user whom it cannot look up, for example
    while the user directory is down. The jobs of that user are not gone."""
    return COMPLAINT.search(stderr) is not None


def is_without_configuration(stderr: str) -> bool:
    """Whether its configuration was not found: there is no Slurm, or only a login's environment has its path."""
    return NO_CONFIGURATION.search(stderr) is not None


def is_without_accounting(stderr: str) -> bool:
    """Whether this cluster has no accounting, which is not an error."""
    return NO_ACCOUNTING.search(stderr) is not None


def is_expired(stderr: str) -> bool:
    """Whether srun could not start a step, or lost it, because the job has ended or waits again."""
    return EXPIRED.search(stderr) is not None


def step_message(job: int, stderr: str) -> str:
    """Why srun could not run a step, in a sentence; empty if it says nothing."""
    if is_expired(stderr):
        is_waiting = "job is pending" in stderr.lower()
        return f"job {job} is pending again" if is_waiting else f"job {job} has ended, or its step was cancelled"
    if (found := NOT_ALLOCATED.search(stderr)) is not None:
        why = message(found["why"])
        verb = "denies a" if kind(1, why) == "denied" else "starts no"
        return f"Slurm {verb} step of job {job}: {why}"
    if (found := NOT_LAUNCHED.search(stderr)) is not None:
        return f"the step of job {job} does not start on {clean(found['node'], 80)}: {message(found['why'])}"
    lines = [line for line in stderr.splitlines() if COMPLAINED.search(line)]
    why = message("\n".join(lines[:1]) or stderr)
    return f"no step of job {job}: {why}" if why else ""


def has_no_step(stderr: str) -> bool:
    """Whether srun got no step, whatever the reason: its command has not run."""
    return is_expired(stderr) or NOT_ALLOCATED.search(stderr) is not None


def would_fail_alone(stderr: str) -> bool:
    """Whether a step of fewer nodes would fail as well: it is about the job, the user or the controller."""
    found = NOT_ALLOCATED.search(stderr)
    return is_expired(stderr) or (
        found is not None and (kind(1, found["why"]) in ("silent", "denied") or "step limit" in found["why"].lower())
    )


def message(stderr: str) -> str:
    """The last line of stderr that is not empty, without the program's name."""
    lines = [line for line in (clean(line.strip(), 300) for line in stderr.splitlines()) if line]
    return scrub(PREFIX.sub("", lines[-1])) if lines else ""
