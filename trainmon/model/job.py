"""The scheduler: jobs, nodes and clusters; what a job reports of its training, and what looks at its ranks show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

import msgspec

from trainmon.lib import Instant, Seconds

Stage = Literal["waiting", "running", "ended", "unknown"]
"""The stage of a job. A state that no version of Slurm documents is `unknown`, never `ended`."""

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
"""The states of Slurm 20.02 to 25 (squeue(1), JOB STATE CODES)."""
ORDER: dict[Stage, int] = {"running": 0, "unknown": 0, "waiting": 1, "ended": 2}


class JobPart(NamedTuple):
    """Where srun starts a step: in a job, or in one component of a heterogeneous job."""

    job: int
    component: int | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One Slurm job, one array task, or all array tasks that still wait (one record)."""

    cluster: str
    id: str
    """As squeue writes it: `88`, `88_3`, or `88_[4-10%1]` for the tasks that still wait."""
    number: int
    """Slurm's number of this record (%A). The number of `88_3` is not 88."""
    array: int | None = None
    """The number of the whole array."""
    tasks: str | None = None
    """Of an array: `3`, or `4-10%1`."""
    components: tuple[int, ...] = ()
    """Of a heterogeneous job: the numbers of its components (88+0, 88+1 …), which Slurm also takes for job ids."""
    component_nodes: tuple[tuple[str, ...], ...] = ()
    """Of a heterogeneous job: the nodes of each component."""
    name: str = ""
    user: str = ""
    state: str = "UNKNOWN"
    """Slurm's state, such as RUNNING. For CANCELLED, `cancelled_by` says who did it."""
    reason: str | None = None
    """Slurm's reason why it waits or ended; null for None."""
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    nodes: tuple[str, ...] = ()
    node_count: int | None = None
    priority: int | None = None
    """A held job has 0."""
    submitted_at: Instant | None = None
    started_at: Instant | None = None
    starts_at: Instant | None = None
    """For a waiting job: its earliest or expected start."""
    ends_at: Instant | None = None
    """For a running job: when its time limit ends it. For an ended job: when it ended."""
    time_limit_s: Seconds | None = None
    """Null also for UNLIMITED."""
    dependency: str | None = None
    """As squeue writes it: `afterany:88(unfulfilled)`."""
    workdir: str | None = None

    listed_at: Instant | None = None
    """Since when squeue lists it and its details are not known, by our clock; null once they are."""

    # Only `scontrol show job` and accounting know these; null until they were queried.
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
    """Its excluded nodes."""
    excluded_in_part: tuple[str, ...] = ()
    """For a heterogeneous job: nodes that only some of its components exclude."""
    gpus: int | None = None
    """The GPUs on all its nodes together; null also if Slurm does not count GPUs."""
    gpus_requested: int | None = None
    """The GPUs that its submission names, on all its nodes together."""
    gpu_indices: Mapping[str, tuple[int, ...]] = {}
    """By node: which GPUs it holds, as Slurm counts them; empty if Slurm does not say."""
    resources: str | None = None
    """Its TRES, as Slurm writes them: `cpu=96,mem=1T,node=1,gres/gpu=8`. A waiting job has requested them."""
    exit_code: str | None = None
    """`code:signal`, as Slurm writes it."""
    cancelled_by: str | None = None
    preempted_at: Instant | None = None
    """When Slurm began to preempt it. It runs on for the grace time of its partition or QOS."""

    gone_at: Instant | None = None
    """Since when squeue no longer lists it. The other fields are then the last known values."""

    @property
    def key(self) -> str:
        """Its key in State.jobs. It stays the same while fewer tasks of its array wait."""
        return f"{self.cluster}/{self.array}_[]" if self.is_waiting_array else f"{self.cluster}/{self.id}"

    @property
    def order(self) -> int:
        """Running jobs are before those that wait, and these before those that have ended."""
        return 2 if self.gone_at is not None else ORDER[self.stage]

    @property
    def is_waiting_array(self) -> bool:
        return "[" in self.id

    @property
    def target(self) -> str:
        """The argument of Slurm commands for exactly this record: `88_[4-10]`, without the limit."""
        return self.id.partition("%")[0] + "]" if "%" in self.id else self.id

    def part_on(self, node: str) -> JobPart:
        """What of it is on one of its nodes."""
        found = (at for at, nodes in enumerate(self.component_nodes) if node in nodes)
        return JobPart(self.number, next(found, None))

    def has_number(self, number: str) -> bool:
        """Whether it, or one of its components, has this number."""
        return number in map(str, (self.number, *self.components))

    @property
    def step_target(self) -> str:
        """The argument of squeue for the steps of the whole job: each component has its own steps."""
        return ",".join(map(str, self.components)) or self.target

    @property
    def stage(self) -> Stage:
        return STAGES.get(self.state, "unknown")

    @property
    def gpus_held(self) -> int:
        """How many GPUs it holds while it runs. Slurm counts them only if AccountingStorageTRES names gres/gpu."""
        return sum(map(len, self.gpu_indices.values())) or self.gpus or self.gpus_requested or 0

    @property
    def elements(self) -> int:
        """How many tasks this record stands for: 7 for `88_[4-10%1]`."""
        return count_tasks(self.tasks) if self.is_waiting_array and self.tasks else 1


def task_numbers(tasks: str) -> Iterator[range]:
    """The numbers of the tasks in an expression such as `1,4-10:2%1`. Slurm cuts long ones with `...`."""
    for part in tasks.partition("%")[0].split(","):
        first, dash, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if first.isdigit():
            end = int(last) if dash and last.isdigit() else int(first)
            yield range(int(first), end + 1, max(1, int(step or 1)))


def has_task(tasks: str, number: int) -> bool:
    """Whether an expression names a task."""
    return any(number in numbers for numbers in task_numbers(tasks))


def count_tasks(tasks: str) -> int:
    """The number of tasks in an expression; at least 1."""
    return max(1, sum(map(len, task_numbers(tasks))))


class SchedulerNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node as the scheduler sees it."""

    name: str
    cluster: str
    state: str
    """The base state in upper case, without flags: IDLE, MIXED, ALLOCATED, DOWN …"""
    flags: tuple[str, ...] = ()
    """DRAIN, NOT_RESPONDING, MAINT …, from the suffixes or what follows a `+`."""
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
        """Whether jobs can be scheduled there: it is not drained, down, failing or in maintenance."""
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
"""In a list of users: the user that runs Slurm commands on the login host, whatever the local user name is."""


def by_name(users: Iterable[str], me: str | None) -> tuple[str, ...]:
    """Users by their names in Slurm, once our name there is known."""
    return tuple(me if user == ME and me else user for user in users)


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a cluster as a whole."""

    name: str
    login: str
    """The host where its commands run and its shared files are read."""
    spares: int = 0
    """How many healthy idle nodes are wanted."""
    users: tuple[str, ...] = ()
    """The users whose jobs are watched; empty: one's own."""
    me: str | None = None
    """Our user name there."""
    may_operate: bool | None = None
    """Whether we are an operator or administrator of its Slurm: they may drain nodes and change the jobs of others."""
    accounting: bool | None = None
    """Whether sacct answers; false is a fact, not an error."""
    slurm: str | None = None
    """Its version, such as 22.05.8."""
    has_slurm: bool | None = None
    """Whether it has Slurm; None while that is not known."""
    is_polled: bool = False
    """Whether the first poll has ended, with the details of the jobs and the nodes."""

    @property
    def queue_users(self) -> tuple[str, ...]:
        """`users` as squeue takes them."""
        return by_name(self.users, self.me)


# ---- what a look at the ranks of a run has shown: which of them hold it up -------------------------------------------

LookSource = Literal["nccl-ras", "proc", "stacks", "flight-recorder"]
"""What was asked: NCCL's RAS service, /proc of the nodes, the stacks of the processes, the dumps of PyTorch."""


class RankLook(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look. Ranks are those of the whole training."""

    source: LookSource
    at: Instant
    """When it was made, by our clock: of two samples, the second."""
    summary: str
    """One sentence that stands alone, without a full stop."""
    ranks: tuple[int, ...] = ()
    """The ranks that it names, ascending. Empty: nobody is named."""
    since: Instant | None = None
    """Since when it is as the summary says, by our clock, as far as that is known."""
    step: int | None = None
    """The step of the run during which it is so."""
    count: int | None = None
    """The number of the collective operation."""
    lines: tuple[str, ...] = ()
    """The evidence and its details, for who wants to check. They may hold untrusted text."""
    advice: str = ""
    """What to do next, in a sentence."""
    is_answer: bool = True
    """False: it could not look, and the summary says why."""


class RankWay(msgspec.Struct, frozen=True, kw_only=True):
    """How the stack of a rank can be read, or why it cannot."""

    rank: int
    node: str
    pid: int
    started_s: float
    """When the process started, in seconds after the boot of its node: it must still be the same one."""
    way: Literal["py-spy", "signal", ""] = ""
    """By the py-spy of its own environment, or by a signal to its trainmon_hooks; empty: not at all."""
    why: str = ""
    """Why it cannot be read."""


class LookReply(msgspec.Struct, frozen=True):
    """What a person who asked for looks is told. The last reply to a request is done."""

    text: str
    """Progress, the summary of a look, or why there is none. Empty: nothing new."""
    look: RankLook | None = None
    is_done: bool = False
