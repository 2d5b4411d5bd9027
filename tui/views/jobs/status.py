"""One job in a few cells: state code, symbol, reason, times. Pure."""

from __future__ import annotations

import re

from trainmon.lib import Instant, Seconds, clean
from trainmon.model import Job
from trainmon.slurm import reasons
from tui.style import CRIT, DEAD, DONE, OK, PAUSED, UNKNOWN, WAITING, WARN, Span, since, whole
from tui.views.jobs.nodes import folded

CODES = {
    "BOOT_FAIL": "BF", "CANCELLED": "CA", "COMPLETED": "CD", "COMPLETING": "CG", "CONFIGURING": "CF", "DEADLINE": "DL",
    "FAILED": "F", "LAUNCH_FAILED": "LF", "NODE_FAIL": "NF", "OUT_OF_MEMORY": "OOM", "PENDING": "PD",
    "POWER_UP_NODE": "PN", "PREEMPTED": "PR", "RECONFIG_FAIL": "RG", "REQUEUED": "RQ", "REQUEUE_FED": "RF",
    "REQUEUE_HOLD": "RH", "RESIZING": "RS", "RESV_DEL_HOLD": "RD", "REVOKED": "RV", "RUNNING": "R", "SIGNALING": "SI",
    "SPECIAL_EXIT": "SE", "STAGE_OUT": "SO", "STOPPED": "ST", "SUSPENDED": "S", "TIMEOUT": "TO", "UPDATE_DB": "UD",
    "EXPEDITING": "EX",
}  # fmt: skip
"""Slurm's short codes (squeue(1), JOB STATE CODES)."""

FAILED = frozenset({"BOOT_FAIL", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "RECONFIG_FAIL", "TIMEOUT"})
STILL = frozenset({"STOPPED", "SUSPENDED"})
"""States in which a job keeps its nodes and does nothing."""

HOLDS = {"JobHeldUser": "dim", "JobHeldAdmin": "warn"}
"""Reasons of held jobs, with their styles. A hold by the user is no alarm."""


def state_code(job: Job) -> str:
    """`R`, `PD`, `CG`: what squeue shows."""
    return CODES.get(job.state, job.state[:3])


def is_missing(job: Job) -> bool:
    """Whether the queue no longer lists the job and its end is unknown."""
    return job.gone_at is not None and job.stage != "ended"


def job_sign(job: Job) -> Span:
    """A job's symbol, with its style."""
    if is_missing(job) or job.stage == "unknown":
        return Span(UNKNOWN, "warn")
    if job.stage == "waiting":
        return Span(WARN if wait_style(job) == "warn" else WAITING, wait_style(job))
    if job.stage == "running":
        return Span(WARN, "warn") if job.state in STILL else Span(OK if job.state == "RUNNING" else PAUSED, "ok")
    return Span(CRIT, "crit") if job.state in FAILED else Span(DONE if job.state == "COMPLETED" else DEAD, "dim")


def wait_style(job: Job) -> str:
    """The style of a reason to wait."""
    return HOLDS.get(job.reason or "", "warn" if reasons.is_permanent(job.reason) else "dim")


def status_text(job: Job, now: Instant) -> Span:
    """Where a job runs, why it waits, or how it ended."""
    if is_missing(job):
        return Span(f"gone from the queue {since(job.gone_at, now)} ago; was {job.state}", "warn")
    if job.stage == "waiting":
        return Span(clean(reasons.waiting_reason(job, now)), wait_style(job).replace("dim", ""))
    if job.stage == "ended":
        ago = "" if job.ends_at is None else f" {since(job.ends_at, now)} ago"
        return Span(clean(reasons.end_reason(job)) + ago, "crit" if job.state in FAILED else "dim")
    if job.stage == "unknown":
        return Span(clean(f"Slurm reports {job.state}"), "warn")
    state = "" if job.state == "RUNNING" else job.state.lower().replace("_", " ")
    where = f"on {clean(folded(job.nodes))}" if job.nodes else ""
    return Span(", ".join(part for part in (state, where) if part), "warn" if job.state in STILL else "")


def short_wait(job: Job, now: Instant) -> str:
    """Why a job waits, in at most 16 cells."""
    if job.reason == "BeginTime" and job.starts_at is not None:
        return f"starts in {whole(job.starts_at - now)}" if job.starts_at - now >= 1 else "starts now"
    if job.reason in HOLDS:
        return "held"
    if job.reason == "Dependency":
        after = re.findall(r"(?<![\d_])\d+(?:_\d+)?", job.dependency or "")
        return f"after {after[0]}"[:16] if len(after) == 1 else "after other jobs"
    if reasons.is_permanent(job.reason):
        return "will not start!"
    return {
        "Resources": "waits for nodes", "Priority": "low priority", "JobArrayTaskLimit": "array task limit",
    }.get(job.reason or "", "waits")  # fmt: skip


def seconds_left(job: Job, now: Instant) -> Seconds | None:
    """The seconds until the time limit of a running job."""
    if job.stage != "running" or job.gone_at is not None or job.ends_at is None:
        return None
    return max(0.0, job.ends_at - now)


def elapsed(job: Job, now: Instant) -> Seconds | None:
    """The seconds that a job has run."""
    if job.started_at is None or job.stage not in ("running", "ended"):
        return None
    end = job.gone_at or now if job.stage == "running" else job.ends_at or job.gone_at
    return None if end is None else max(0.0, end - job.started_at)
