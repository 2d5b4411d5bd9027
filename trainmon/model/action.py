"""The nouns of acting: what a person asks for, the plan that answers, the action, and what became of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainmon.lib import Instant

Verb = Literal[
    "save", "kill", "unsave", "unkill", "requeue", "cancel", "hold", "release", "signal", "queue", "exclude"
]  # fmt: skip


class ActionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants, and of what: captured when the key was pressed."""

    verb: Verb
    subjects: tuple[str, ...]
    """Names of runs, keys of jobs (`prod/88_3`), or names of nodes for `exclude`."""
    requested_at: Instant
    why: str = ""
    """The person's own words, written into switch files and the ledger."""
    count: int = 1
    """Of `queue`: how many more."""
    signal: str = "USR1"
    """Of `signal`."""
    switch: str | None = None
    """Of `unkill` and `unsave`: the path of the switch that was chosen."""
    is_exact: bool = False
    """Of the same: that nothing but the switch of that name is meant. The key U means whatever is armed."""
    run: str | None = None
    """Of `exclude`: the run whose waiting jobs are meant; null for all that are ours."""


class Execute(msgspec.Struct, frozen=True, tag="execute"):
    """Run a command. argv end to end."""

    argv: tuple[str, ...]
    login_shell: bool = False
    """Whether it needs the environment of a login (modules): sbatch hands it on to the job."""
    shown: str = ""
    """How a person would write it; shlex's quoting of argv when empty."""


class CreateFile(msgspec.Struct, frozen=True, tag="drop"):
    """Create a switch file, atomically and never over one that is there."""

    path: str
    text: str
    """One line: who, from where, when, why."""


class RemoveFile(msgspec.Struct, frozen=True, tag="remove"):
    """Remove a switch file, if it is still the one that was seen."""

    path: str
    armed_at: Instant | None = None
    """Its time of change as the node's clock has it, when it was seen."""
    mark: str = ""
    """By which it is known again: its inode, size, time of change and owner, as its host printed them."""


Operation = Execute | CreateFile | RemoveFile


class JobChain(msgspec.Struct, frozen=True):
    """The jobs of a run that wait and run: one that was queued meanwhile would run beside the one that is queued."""

    name: str
    """Of its jobs."""
    user: str | None
    """Whose they must be; null for anybody's."""
    numbers: tuple[str, ...]
    """Of each, or of its array."""
    users: tuple[str, ...] = ()
    """Whose queue is read; empty for one's own."""


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What must still hold when the action is done; otherwise it is aborted, in words."""

    id: str | None = None
    """The job's."""
    submitted_at: Instant | None = None
    """With its id this is that job and no other: numbers are used again, and a controller may lose its memory."""
    stages: tuple[str, ...] = ()
    """The stages of life in which it may be (see job.Stage)."""
    user: str | None = None
    restarts: int | None = None
    switch_absent: str | None = None
    """A path at which there must be no file: requeueing under an armed kill switch burns the attempt."""
    excluded: tuple[str, ...] | None = None
    """The nodes that it keeps off: a new list replaces the one that is there."""
    undrained: str | None = None
    """A node that nobody has drained: another's reason is not to be written over."""
    chain: JobChain | None = None
    needs_slurm: bool = True
    """Whether it is left undone while the scheduler is silent. A switch file needs none."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, complete: shown, written down, done, told."""

    id: str
    """Twelve hexadecimal digits; also written into the switch file."""
    verb: Verb
    subject: str
    """The row it was asked for: a run's name, a job's key, a node's name."""
    cluster: str
    host: str
    """Where it is done."""
    operation: Operation = msgspec.field(name="deed")
    title: str
    """`Requeue job 88_3 of video-2b`."""
    run: str | None = None
    job: str | None = None
    """The job's key as captured."""
    facts: tuple[tuple[str, str], ...] = ()
    """What a person must know before: label and words."""
    consequences: tuple[str, ...] = ()
    """What will happen next, in sentences."""
    warnings: tuple[str, ...] = ()
    expected: Expected = Expected()
    keep_log: str | None = None
    """A log whose tail is copied to the ledger first, as `host:path`: a requeue may truncate it."""
    keep_errors: str | None = None
    """The same of the job's standard error, where that is another file: the traceback is there."""
    step: int | None = None
    """The run's step when it was asked."""
    checkpoint: int | None = None
    """Its last committed step then."""
    who: str = ""
    from_host: str = ""
    why: str = ""
    requested_at: Instant = msgspec.field(default=0.0, name="asked_at")


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why not, and the way out."""

    subject: str
    why: str
    hint: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an Ask: what would be done, what is refused, and what must be typed to go on."""

    request: ActionRequest
    actions: tuple[Action, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    typed: str | None = None
    """What a person must type first: the job's id, where much is at stake."""
    because: str = ""
    """Why that must be typed."""
    choices: tuple[tuple[str, str], ...] = ()
    """Of `unkill` and `unsave` with several armed switches: path and words; one must be chosen, by a new Ask."""


Status = Literal["asked", "done", "failed", "refused", "unknown"]
"""asked: written down, not yet known to be done. done: the act itself is over; its stages tell what followed.
unknown: we stopped in the middle, and what can be seen now does not tell."""


class Milestone(msgspec.Struct, frozen=True):
    """One thing that is expected to follow: `the file is taken`, and when it did."""

    name: str
    at: Instant | None = None
    missed: str | None = None
    """Why it does not follow any more, or is overdue, in a sentence."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """An action and what became of it: a row of the ledger."""

    action: Action
    status: Status = "asked"
    written_at: Instant | None = None
    """When it was written down, just before it was done; the plan may have been looked at for long."""
    done_at: Instant | None = None
    outcome: str = ""
    """In a sentence; what the command printed, where it said something."""
    made: str | None = None
    """Of `queue`: the number of the job that it made."""
    marks: tuple[Milestone, ...] = ()
    settled_at: Instant | None = None
    """When nothing more was to be expected; null while it is watched."""
    note: str | None = None
    """What went wrong beside it: `not recorded in the ledger: the ledger does not answer`."""

    @property
    def is_open(self) -> bool:
        return self.settled_at is None
