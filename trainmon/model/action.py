"""Actions: the request of a person, the plan, the action, and its record."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainmon.lib import Instant, Sentence
from trainmon.model.job import RankWay

Verb = Literal[
    "save", "kill", "unsave", "unkill", "requeue", "cancel", "hold", "release", "signal", "queue", "exclude",
    "evaluate", "stacks",
]  # fmt: skip


class ActionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person requests, captured when the key was pressed."""

    verb: Verb
    subjects: tuple[str, ...]
    """Names of runs, keys of jobs (`prod/88_3`), or names of nodes for `exclude`."""
    requested_at: Instant
    why: str = ""
    """The reason in the person's own words. It is written into switch files and the ledger."""
    count: int = 1
    """For `queue`: how many more jobs."""
    signal: str = "USR1"
    """For `signal`."""
    switch: str | None = None
    """For `unkill` and `unsave`: the path of the chosen switch."""
    is_exact: bool = False
    """For the same: only the switch of that name is meant. The key U means every armed switch."""
    run: str | None = None
    """For `exclude`: the run whose waiting jobs are meant; null for all jobs of ours."""
    is_retry: bool = False
    """For `requeue`: an automatic retry of a job that has failed. Nothing that runs is ended."""


class Execute(msgspec.Struct, frozen=True, tag="execute"):
    """Run a command. argv end to end."""

    argv: tuple[str, ...]
    login_shell: bool = False
    """Whether it needs the environment of a login shell (modules): sbatch passes it on to the job."""
    shown: str = ""
    """The command as a person would write it; if empty, argv quoted by shlex."""


class ReadStacks(Execute, frozen=True, tag="stacks"):
    """Read the stacks of ranks, on all their nodes. There is no one command for that; `shown` says how it is done."""

    ranks: tuple[RankWay, ...] = ()


class CreateFile(msgspec.Struct, frozen=True, tag="drop"):
    """Create a switch file atomically. It never replaces a file."""

    path: str
    text: str
    """One line: who, from where, when, why."""


class RemoveFile(msgspec.Struct, frozen=True, tag="remove"):
    """Remove a switch file, if it is still the file that was observed."""

    path: str
    armed_at: Instant | None = None
    """Its mtime by the node's clock, when it was observed."""
    mark: str = ""
    """Its identity: inode, size, mtime and owner, as its host printed them."""


Operation = Execute | ReadStacks | CreateFile | RemoveFile


class JobChain(msgspec.Struct, frozen=True):
    """The waiting and running jobs of a run. If another job was queued meanwhile, two would train at once."""

    name: str
    """The name of its jobs."""
    user: str | None
    """Their owner; null for any user."""
    numbers: tuple[str, ...]
    """The number of each job, or of its array."""
    users: tuple[str, ...] = ()
    """The users whose queue is read; empty for one's own."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What must still hold when the action runs. Otherwise it is aborted with the reason."""

    id: str | None = None
    """The id of the job."""
    submitted_at: Instant | None = None
    """Identifies the job together with its id: Slurm reuses ids, and a controller may lose its state."""
    stages: tuple[str, ...] = ()
    """The stages in which the job may be (see job.Stage)."""
    user: str | None = None
    restarts: int | None = None
    switch_absent: str | None = None
    """A path that must not exist: a job that is requeued under an armed kill switch ends at once."""
    excluded: tuple[str, ...] | None = None
    """The excluded nodes of the job: a new list replaces the old one."""
    undrained: str | None = None
    """A node that must not be drained: the reason of another person must not be overwritten."""
    chain: JobChain | None = None
    needs_slurm: bool = True
    """Whether it needs an answer of the scheduler. A switch file does not."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One action with everything that is shown, recorded and run."""

    id: str
    """Twelve hexadecimal digits; also written into the switch file."""
    verb: Verb
    subject: str
    """The row for which it was requested: the name of a run, the key of a job or the name of a node."""
    cluster: str
    host: str
    """The host where it runs."""
    operation: Operation = msgspec.field(name="deed")
    title: str
    """`Requeue job 88_3 of video-2b`."""
    run: str | None = None
    job: str | None = None
    """The job's key as captured."""
    facts: tuple[tuple[str, str], ...] = ()
    """What a person must know before: label and text."""
    consequences: tuple[Sentence, ...] = ()
    """What happens next, in sentences."""
    warnings: tuple[Sentence, ...] = ()
    expected: Expected = Expected()
    keep_log: str | None = None
    """A log as `host:path`. Its tail is copied to the ledger first, because a requeue may truncate it."""
    keep_errors: str | None = None
    """The same for the standard error of the job, if that is another file: it has the traceback."""
    step: int | None = None
    """The step of the run at the request."""
    checkpoint: int | None = None
    """The last committed step at the request; for `evaluate`, the step that is evaluated."""
    results: int | None = None
    """For `evaluate`: how many results of that step were known at the request."""
    who: str = ""
    from_host: str = ""
    why: str = ""
    requested_at: Instant = msgspec.field(default=0.0, name="asked_at")


class NodeCheck(msgspec.Struct, frozen=True):
    """One check before a run is started again: of a node, or with an empty `node` of the run."""

    node: str
    check: str
    """`GPUs listed`, `Xids`, `/tmp` …"""
    outcome: Literal["passed", "noted", "fault", "not checked", "not used"] = "passed"
    """noted: something was seen that does not end a start. not used: Slurm starts nothing on the node now, so that its
    faults do not matter."""
    why: str = ""
    """In a sentence, unless it passed."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why an action is not possible, and how to fix that."""

    subject: str
    why: str
    hint: Sentence = ""


class RowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for one row: what would be done, what is refused, and what must be typed to confirm."""

    actions: tuple[Action, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    checks: tuple[NodeCheck, ...] = ()
    """Of the nodes on which a run may start again."""
    typed: str | None = None
    """What a person must type to confirm a dangerous action: the id of the job."""
    because: str = ""
    """Why that must be typed. Empty for a row: it need not be."""
    choices: tuple[tuple[str, str], ...] = ()
    """For `unkill` and `unsave` with several armed switches: path and text. A new request chooses one."""


class Plan(RowPlan, frozen=True, kw_only=True):
    """The answer to a request: the plans of its rows together."""

    request: ActionRequest


Status = Literal["asked", "done", "failed", "refused", "unknown"]
"""asked: recorded, result not known yet. done: the operation is complete; the milestones show what followed.
unknown: this program stopped in the middle, and the result cannot be determined."""


class Milestone(msgspec.Struct, frozen=True):
    """One expected effect, such as `the file is consumed`, and when it happened."""

    name: str
    at: Instant | None = None
    missed: Sentence | None = None
    """Why it will not happen, or is overdue, in a sentence."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An action and its result: a row of the ledger."""

    action: Action
    status: Status = "asked"
    written_at: Instant | None = None
    """When it was recorded, just before it ran. The plan may have been open for long before."""
    done_at: Instant | None = None
    outcome: Sentence = ""
    """The result in a sentence; the output of the command, if there is any."""
    made: str | None = None
    """For `queue`: the id of the new job."""
    marks: tuple[Milestone, ...] = ()
    settled_at: Instant | None = None
    """When its effects were complete; null while they are watched."""
    note: str | None = None
    """What went wrong beside it: `not recorded in the ledger: the ledger does not answer`."""

    @property
    def is_open(self) -> bool:
        return self.settled_at is None
