"""Slurm's reasons and states in plain English: why a job is pending, and how it ended. Pure."""

from __future__ import annotations

import re

from trainmon.lib import Instant, duration
from trainmon.model import Job

REASONS: dict[str, str] = {
    "AccountNotAllowed": "its partition does not accept its account",
    "AccountingPolicy": "an accounting limit prevents its start",
    "BadConstraints": "no node can ever meet its constraints",
    "BeginTime": "its begin time has not come",
    "BurstBufferOperation": "held: its burst buffer failed",
    "BurstBufferResources": "no space in the burst buffer",
    "BurstBufferStageIn": "its burst buffer is being filled",
    "Cleaning": "its previous attempt is still being cleaned up",
    "Constraints": "no free node meets its constraints now",
    "DeadLine": "it cannot end before its deadline",
    "Dependency": "depends on another job",
    "DependencyNeverSatisfied": "its dependency can no longer be met: it will never start",
    "FedJobLock": "the clusters of its federation are not in sync",
    "FrontEndDown": "the front end that it needs is down",
    "InvalidAccount": "its account is invalid",
    "InvalidQOS": "its QOS is invalid",
    "JobArrayTaskLimit": "array task limit reached",
    "JobHeldAdmin": "held by an administrator; only an administrator can release it",
    "JobHeldUser": "held",
    "JobHoldMaxRequeue": "held: it was requeued too often",
    "JobLaunchFailure": "it could not be launched",
    "Licenses": "no license is free",
    "MaxMemPerLimit": "it requests more memory than its partition allows",
    "MaxPoweredUpNodes": "limit of powered-up nodes reached",
    "NodeDown": "a node that it needs is down",
    "PartitionConfig": "it requests something that its partition does not offer",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "it requests more nodes than its partition allows",
    "PartitionTimeLimit": "its time limit exceeds the limit of its partition: it will not start",
    "PowerNotAvail": "the cluster's power limit is reached",
    "PowerReserved": "the power is reserved for other jobs",
    "Priority": "behind jobs of higher priority",
    "Prolog": "its prolog is still running",
    "QOSNotAllowed": "its partition or account does not accept its QOS",
    "QOSUsageThreshold": "the fair share of its account is below what its QOS requires",
    "ReqNodeNotAvail": "nodes that it needs are not available",
    "Reservation": "its reservation has not begun",
    "ReservationDeleted": "its reservation was deleted",
    "ReservationInvalid": "its reservation is invalid",
    "Resources": "no free nodes",
    "SchedDefer": "just submitted: not yet considered by the scheduler",
    "SystemFailure": "Slurm or a file system failed",
    "WaitingForScheduling": "not yet considered by the scheduler",
    "job requeued in held state": "held: it was requeued in held state",
    "launch failed requeued held": "held: it failed to launch",
    "launch failure limit exceeded requeued held": "held: it failed to launch too often",
    "user env retrieval failed requeued held": "held: its user's environment could not be read",
}
"""Slurm's reasons (squeue(1), JOB REASON CODES; job_state_reason.c). Limits: see LIMIT. Unknown ones are unchanged."""

PERMANENT = frozenset({
    "AccountNotAllowed", "BadConstraints", "BurstBufferOperation", "DeadLine", "DependencyNeverSatisfied",
    "InvalidAccount", "InvalidQOS", "JobHeldAdmin", "JobHeldUser", "JobHoldMaxRequeue", "MaxMemPerLimit",
    "PartitionTimeLimit", "QOSNotAllowed", "ReservationDeleted", "ReservationInvalid",
    "job requeued in held state", "launch failed requeued held", "launch failure limit exceeded requeued held",
    "user env retrieval failed requeued held",
})  # fmt: skip
"""Reasons that waiting does not resolve; see is_permanent."""

LIMIT = re.compile(r"(?P<owner>Assoc|QOS|Max\w+PerAccount)")
"""The start of a limit's reason. There are about 150 (AssocGrpGRES, QOSMaxJobsPerUserLimit, MaxGRESPerAccount)."""

BEYOND = re.compile(r"(?:Assoc|QOS)Max\w*Per(?:Job|Node)(?:Limit)?|QOSMin\w+")
"""Limits that this job alone exceeds."""


def is_permanent(reason: str | None) -> bool:
    """Whether waiting does not help: a person must act."""
    return reason is not None and (reason in PERMANENT or BEYOND.fullmatch(reason) is not None)


DEPENDENCY = re.compile(r"(?P<kind>after\w*|singleton)(?::(?P<jobs>[^(,?]*))?(?:\((?P<state>\w+)\))?")

KINDS = {
    "after": "start of",
    "afterany": "end of",
    "afterok": "success of",
    "afternotok": "failure of",
    "aftercorr": "success, task by task, of",
    "afterburstbuffer": "stage-out of",
}


def waiting_reason(job: Job, now: Instant) -> str:
    """Why a job is pending: `starts in 2m`, `after the end of 88`."""
    reason = job.reason or ""
    if reason == "BeginTime" and job.starts_at is not None:
        begins = job.starts_at - now
        return f"starts in {duration(begins)}" if begins > 0 else "may start at any moment"
    if reason == "Dependency" and job.dependency:
        return dependency_text(job.dependency) or REASONS[reason]
    text = REASONS.get(reason)
    if text is None:
        name, *rest = re.split(r", *(?:UnavailableNodes:)?", reason, maxsplit=1)  # which may name none
        text = ": ".join(filter(None, (REASONS[name], *rest))) if name in REASONS else _limit(reason)
    if job.starts_at is not None and job.starts_at > now and reason in {"Priority", "Resources"}:
        text += f"; expected in {duration(job.starts_at - now)}"
    return text


def _limit(reason: str) -> str:
    """A limit in plain English: it is reached, which may pass, or this job alone exceeds it."""
    if not reason:
        return "no reason yet"
    found = LIMIT.match(reason)
    if found is None:
        return reason
    owner = "QOS" if found["owner"] == "QOS" else "account"
    if reason.startswith("QOSMin"):
        return f"it requests less than its {owner} requires ({reason})"
    if BEYOND.fullmatch(reason):
        return f"it requests more than its {owner} allows one job ({reason})"
    return f"a limit of its {owner} is reached ({reason})"


def dependency_text(dependency: str) -> str:
    """`afterany:88(unfulfilled),afterok:90` → `after the end of 88, the success of 90`."""
    parts = []
    for found in DEPENDENCY.finditer(dependency):
        kind, jobs = found["kind"], (found["jobs"] or "").replace("_*", "").replace(":", " and ")
        if kind == "singleton":
            parts.append("the end of its user's jobs with the same name")
        elif found["state"] == "failed":
            parts.append(f"the {KINDS.get(kind, kind)} {jobs}, which can no longer happen")
        else:
            parts.append(f"the {KINDS.get(kind, kind)} {jobs}")
    return "after " + (" or " if "?" in dependency else ", ").join(parts) if parts else ""


ENDS: dict[str, str] = {
    "BOOT_FAIL": "its nodes did not boot",
    "COMPLETED": "exited with code 0",
    "DEADLINE": "it reached its deadline",
    "FAILED": "failed",
    "LAUNCH_FAILED": "it could not be launched",
    "NODE_FAIL": "one of its nodes failed",
    "OUT_OF_MEMORY": "out of memory: the kernel killed it",
    "PREEMPTED": "preempted by another job",
    "TIMEOUT": "it reached its time limit",
}


def end_reason(job: Job, cause: str | None = None) -> str:
    """How a job ended: `exited with code 1`, `cancelled by ana`. A failure has a cause, if that is known:
    `nccl-timeout (exit 1)`."""
    if job.state == "CANCELLED":
        return f"cancelled by {job.cancelled_by}" if job.cancelled_by else "cancelled"
    code, _, number = (job.exit_code or "").partition(":")
    if job.state == "FAILED" and number not in ("", "0"):
        return f"{cause} (signal {number})" if cause else f"ended by signal {number}"
    if job.state == "FAILED" and code not in ("", "0"):
        return f"{cause} (exit {code})" if cause else f"exited with code {code}"
    return cause if cause and job.state == "FAILED" else ENDS.get(job.state, job.state)
