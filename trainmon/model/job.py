"""The nouns of the scheduler: jobs, its word on nodes, and what is known of a cluster as a whole."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds

Stage = Literal["waiting", "running", "ended", "unknown"]
"""Where a job is in its life. A word that no version of Slurm documents is `unknown`, never `ended`."""

STAGES: dict[str, Stage] = {
    **dict.fromkeys((
        "PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT",
    ), "waiting"),
    **dict.fromkeys((
        "RUNNING", "COMPLETING", "CONFIGURING", "EXPEDITING", "POWER_UP_NODE", "RESIZING", "SIGNALING", "STAGE_OUT",
        "STOPPED", "SUSPENDED", "UPDATE_DB",
    ), "running"),
    **dict.fromkeys((
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT",
    ), "ended"),
}  # fmt: skip
"""Slurm's words, 20.02 to 25 (squeue(1), JOB STATE CODES)."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One Slurm job, one array task, or all array tasks that still wait (one record)."""

    cluster: str
    id: str
    """As squeue writes it: `88`, `88_3`, or `88_[4-10%1]` for the elements that still wait."""
    number: int
    """Slurm's own number of this record (%A); that of `88_3` is another than 88."""
    array: int | None = None
    """The number that the whole array goes by."""
    tasks: str | None = None
    """Of an array: `3`, or `4-10%1`."""
    components: tuple[int, ...] = ()
    """Of a heterogeneous job: the numbers of its components (88+0, 88+1 …), which Slurm also takes for job ids."""
    name: str = ""
    user: str = ""
    state: str = "UNKNOWN"
    """Slurm's word, such as RUNNING; of CANCELLED without who did it, which is `cancelled_by`."""
    reason: str | None = None
    """Slurm's word on why it waits or why it ended; null for None."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: tuple[str, ...] = ()
    node_count: int | None = None
    priority: int | None = None
    """0 is a held job."""
    submitted_at: Instant | None = None
    started_at: Instant | None = None
    starts_at: Instant | None = None
    """Of a waiting job: when it may start at the earliest, or is expected to."""
    ends_at: Instant | None = None
    """Of a running job, when its time limit ends it; of one that has ended, when that was."""
    time_limit_s: Seconds | None = None
    """Null also for UNLIMITED."""
    dependency: str | None = None
    """As squeue writes it: `afterany:88(unfulfilled)`."""
    workdir: str | None = None

    # What only `scontrol show job` and accounting say; null until they were asked.
    detail_at: Instant | None = None
    restarts: int | None = None
    requeue: bool | None = None
    """Whether it may be requeued at all."""
    batch: bool | None = None
    command: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    comment: str | None = None
    excluded: tuple[str, ...] = ()
    """The nodes that it keeps off."""
    excluded_in_part: tuple[str, ...] = ()
    """Of a heterogeneous job: nodes that only some of its components keep off."""
    gpus: int | None = None
    """How many it holds, on all its nodes together; null also where Slurm does not count GPUs."""
    exit_code: str | None = None
    """`code:signal`, as Slurm writes it."""
    cancelled_by: str | None = None

    gone_at: Instant | None = None
    """Since when squeue no longer lists it; what is said here is then the last that was known."""

    @property
    def key(self) -> str:
        """Its name in State.jobs; stays the same while the waiting elements of its array become fewer."""
        return f"{self.cluster}/{self.array}_[]" if self.is_waiting_array else f"{self.cluster}/{self.id}"

    @property
    def is_waiting_array(self) -> bool:
        return "[" in self.id

    @property
    def target(self) -> str:
        """What a command of Slurm takes for exactly this record: `88_[4-10]`, without the limit."""
        return self.id.partition("%")[0] + "]" if "%" in self.id else self.id

    def has_number(self, number: str) -> bool:
        """Whether Slurm counts it, or one of its components, under this number."""
        return number in map(str, (self.number, *self.components))

    @property
    def step_target(self) -> str:
        """What squeue takes for the steps of the whole job: each component has its own."""
        return ",".join(map(str, self.components)) or self.target

    @property
    def stage(self) -> Stage:
        return STAGES.get(self.state, "unknown")

    @property
    def elements(self) -> int:
        """How many jobs this record stands for: 7 for `88_[4-10%1]`."""
        return count_tasks(self.tasks) if self.is_waiting_array and self.tasks else 1


def count_tasks(tasks: str) -> int:
    """How many elements an expression such as `2-10:2,15%1` names; at least 1, as Slurm cuts long ones with `...`."""
    total = 0
    for part in tasks.partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if first.isdigit() and last.isdigit():
            total += max(0, (int(last) - int(first)) // max(1, int(step or 1)) + 1)
        else:
            total += first.isdigit()
    return max(1, total)


class SchedulerNode(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler says of a node."""

    name: str
    cluster: str
    state: str
    """The base word in upper case, without flags: IDLE, MIXED, ALLOCATED, DOWN …"""
    flags: tuple[str, ...] = ()
    """DRAIN, NOT_RESPONDING, MAINT …, from the suffixes or the words after `+`."""
    reason: str | None = None
    reason_by: str | None = None
    reason_at: Instant | None = None
    gres: str | None = None
    partitions: tuple[str, ...] = ()

    @property
    def full_state(self) -> str:
        """`IDLE+DRAIN`, as scontrol writes it."""
        return "+".join((self.state, *self.flags))

    @property
    def is_usable(self) -> bool:
        """Whether jobs may be put there now or after those that run: not drained, down, failing or in maintenance."""
        return self.state in {"IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED"} and not UNUSABLE & set(self.flags)

    @property
    def is_drained(self) -> bool:
        return "DRAIN" in self.flags

    @property
    def gpus(self) -> int:
        """How many GPUs its Gres names: 8 of `gpu:a100:8(S:0-1),nvme:1`. A kind without a number is one."""
        kinds = [part.strip().split(":") for part in re.sub(r"\([^)]*\)", "", self.gres or "").split(",")]
        return sum(int(kind[-1]) if kind[-1].isdigit() else 1 for kind in kinds if kind[0] == "gpu")

    @property
    def lost_gpus(self) -> int | None:
        """How many GPUs it lacks, if Slurm drained it for that: 1 of `gres/gpu count reported lower than configured (7
        < 8)`."""
        found = GPUS_LOST.search(self.reason or "")
        if found is None:
            return None
        return int(found[2]) - int(found[1]) if found[1] else 1


GPUS_LOST = re.compile(r"gres/gpu count.*lower than configured(?:.*\(\s*(\d+)\s*<\s*(\d+)\s*\))?", re.DOTALL)

UNUSABLE = frozenset({
    "DRAIN", "DOWN", "FAIL", "INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "POWERED_DOWN", "POWERING_DOWN",
    "POWER_DOWN", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "BLOCKED",
})  # fmt: skip


ME = "me"
"""In a list of users: the one that Slurm's commands run as on the login host, whatever the name here is."""


def by_name(users: Iterable[str], me: str | None) -> tuple[str, ...]:
    """Users as Slurm takes them, once we know who we are there."""
    return tuple(me if user == ME and me else user for user in users)


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a cluster as a whole."""

    name: str
    login: str
    """The host where its commands run and its shared files are read."""
    spares: int = 0
    """Healthy idle nodes wanted."""
    users: tuple[str, ...] = ()
    """Whose jobs are watched; empty: one's own."""
    me: str | None = None
    """Who we are there."""
    may_operate: bool | None = None
    """Whether we are an operator or administrator of its Slurm, who may drain nodes and touch others' jobs."""
    accounting: bool | None = None
    """Whether sacct answers; false is a fact, not an error."""
    slurm: str | None = None
    """Its version, such as 22.05.8."""

    @property
    def queue_users(self) -> tuple[str, ...]:
        """`users` as squeue takes them."""
        return by_name(self.users, self.me)
