"""Slurm's nodes, reasons and states: why a job is pending, how it ended, why a node is drained. Pure."""

from __future__ import annotations

import re

from trainmon.lib import Instant, duration
from trainmon.model import Job, SchedulerNode
from trainmon.slurm.commands import NODES
from trainmon.slurm.fields import instant, printable, rows

# ---- Slurm's reasons and states in plain English ---------------------------------------------------------------------

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
        name, _, rest = reason.partition(",")
        text = f"{REASONS[name]}:{rest}" if name in REASONS and rest else _limit(reason)
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
    "COMPLETED": "its script ended with status 0",
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


# ---- parses sinfo's nodes --------------------------------------------------------------------------------------------

SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
    "+": "COMPLETING",
}
"""sinfo(1), NODE STATE CODES; `allocated+` is still cleaning up after a job."""

SHORT = {
    "ALLOC": "ALLOCATED",
    "COMP": "COMPLETING",
    "DRNG": "DRAINING",
    "FAILG": "FAILING",
    "INVAL": "INVALID_REG",
    "IDL": "IDLE",
    "MIX": "MIXED",
    "NPC": "PERFCTRS",
    "PLND": "PLANNED",
    "POW_DN": "POWERING_DOWN",
    "POW_UP": "POWERING_UP",
    "RESV": "RESERVED",
    "UNK": "UNKNOWN",
    "DRAIN": "DRAINED",
    "REBOOT": "REBOOT_REQUESTED",
    "MAINT": "MAINTENANCE",
}
"""Compact state names, and scontrol's own ones."""

BOTH = {
    "DRAINED": ("IDLE", "DRAIN"),
    "DRAINING": ("ALLOCATED", "DRAIN"),
    "FAILING": ("ALLOCATED", "FAIL"),
    "FAIL": ("IDLE", "FAIL"),
    "INVALID_REG": ("UNKNOWN", "DRAIN", "INVALID_REG"),
    "POWERED_DOWN": ("IDLE", "POWERED_DOWN"),
    "POWERING_DOWN": ("IDLE", "POWERING_DOWN"),
    "POWER_DOWN": ("IDLE", "POWER_DOWN"),
    "POWERING_UP": ("IDLE", "POWERING_UP"),
    "POWER_UP": ("IDLE", "POWERING_UP"),
    "MAINTENANCE": ("IDLE", "MAINTENANCE"),
    "REBOOT_REQUESTED": ("IDLE", "REBOOT_REQUESTED"),
    "REBOOT_ISSUED": ("IDLE", "REBOOT_ISSUED"),
    "RESERVED": ("IDLE", "RESERVED"),
    "BLOCKED": ("IDLE", "BLOCKED"),
    "PERFCTRS": ("IDLE", "PERFCTRS"),
    "PLANNED": ("IDLE", "PLANNED"),
}
"""sinfo's one word for a state with flags. `drained` may also be a node that is down. `inval` stands for
`IDLE+DRAIN+INVALID_REG`."""

REASON_BY = re.compile(r"\s*\[(?P<who>[^\[\]@]*)@(?P<when>[^\[\]@]*)\]$")


def read_state(text: str) -> tuple[str, tuple[str, ...]]:
    """`drained*` → IDLE with DRAIN and NOT_RESPONDING; `DOWN*+DRAIN` → DOWN with the same. Unknown names stay."""
    first, *others = text.strip().upper().split("+") if not text.endswith("+") else [text.strip().upper()]
    name, suffixes = _split_suffixes(first)
    name = SHORT.get(name, name)
    base, *flags = BOTH.get(name, (name,))
    flags += [SUFFIXES[suffix] for suffix in suffixes]
    for other in others:
        flag, suffixes = _split_suffixes(other)
        flags += [FLAGS.get(flag, flag), *(SUFFIXES[suffix] for suffix in suffixes)]
    return base, tuple(dict.fromkeys(flag for flag in flags if flag))


FLAGS = {"MAINT": "MAINTENANCE", "DRAINED": "DRAIN", "DRAINING": "DRAIN", "POWER": "POWERED_DOWN", "RES": "RESERVED"}
"""Flags in scontrol's older spelling."""


def _split_suffixes(name: str) -> tuple[str, str]:
    bare = name.rstrip("".join(SUFFIXES))
    return bare, name[len(bare) :]


def read_nodes(text: str, cluster: str) -> tuple[SchedulerNode, ...]:
    """The nodes, each once: sinfo repeats a node for each of its partitions."""
    found: dict[str, SchedulerNode] = {}
    for row in rows(text, len(NODES)):
        field = dict(zip(NODES, row, strict=True))
        name = printable(field["N"], 200)
        if name is None:
            continue
        before = found[name].partitions if name in found else ()
        partition = printable(field["R"].rstrip("*"), 200)
        state, flags = read_state(field["T"])
        reason, by, at = read_reason(field["E"])
        found[name] = SchedulerNode(
            name=name,
            cluster=cluster,
            state=state,
            flags=flags,
            reason=reason,
            reason_by=by or printable(field["u"], 200),
            reason_at=at or instant(field["H"]),
            gres=printable(field["G"], 300),
            partitions=(*before, partition) if partition else before,
        )
    return tuple(found.values())


def read_reason(text: str) -> tuple[str | None, str | None, Instant | None]:
    """`Not responding [slurm@2026-11-21T12:03:00]` → the reason, its user and its time."""
    found = REASON_BY.search(text)
    if found is None:
        return printable(text, 500), None, None
    return printable(text[: found.start()], 500), printable(found["who"], 200), instant(found["when"])
