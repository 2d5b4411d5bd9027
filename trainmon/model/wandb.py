"""Weights & Biases: runs, samples and curves. All text in them is clean; `None` means "not known"."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds

GroupPhase = Literal["active", "several", "waiting", "overdue", "ended", "none"]
"""active: exactly one run is. several: more than one, which nobody expects. waiting: none since less than the
restart grace. overdue: none for longer. ended: the last one finished, or a person stopped it. none: no run was seen."""

LossState = Literal["fine", "nan", "spike"]


class WandbSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a run is found in W&B: its project, and one of group, id, display name or tags."""

    project: str
    """`entity/project`."""
    group: str | None = None
    run: str | None = None
    """A run's id."""
    display: str | None = None
    """A regular expression, searched in the display name."""
    tags: tuple[str, ...] = ()
    """All of them."""
    restart_grace: Seconds = 900.0
    """W&B is initialised that late after a restart."""
    charts: tuple[str, ...] = ()
    """The metrics to chart; empty: those with the common names."""
    console: bool = False
    """Whether its console log is the run's log."""

    @property
    def description(self) -> str:
        """What is looked for, as a person says it: `team/project, group video-2b-final`."""
        how = (("group", self.group), ("run", self.run), ("display name", self.display), ("tags", ", ".join(self.tags)))
        return ", ".join((self.project, *(f"{word} {value}" for word, value in how if value)))


class WandbRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of W&B, as its server last told: one attempt of ours."""

    entity: str
    project: str
    id: str
    name: str
    """Its display name."""
    state: str
    """The server's word: running, finished, failed, crashed, killed, pending, preempting, preempted."""
    group: str | None = None
    url: str | None = None
    created_at: Instant | None = None
    heartbeat_at: Instant | None = None
    step: int | None = None
    """W&B's own counter `_step`, which is not always the trainer's."""
    logged_at: Instant | None = None
    """When its last row was logged, by the run's own clock (`_timestamp`): it may beat, and log nothing any more."""
    lines: int | None = None
    """Rows of its history."""
    tags: tuple[str, ...] = ()
    user: str | None = None
    host: str | None = None
    commit: str | None = None
    summary: Mapping[str, float | str] = {}
    """The latest value of each metric, nan and infinities among them; at most 300."""
    config: Mapping[str, str] = {}
    """Its settings, each in a few words; at most 300."""

    @property
    def path(self) -> str:
        """Its name in the whole world: `entity/project/id`."""
        return f"{self.entity}/{self.project}/{self.id}"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """An image, or a video, that a run logged: the newest of its metric."""

    key: str
    kind: str
    """image, video, table, or another of W&B's words."""
    file: str
    """Its path among the run's files: `media/images/val_120_ab12.png`."""
    step: int | None = None
    bytes: int | None = None
    width: int | None = None
    height: int | None = None
    caption: str | None = None
    note: str | None = None
    """For a video: that its first frame is shown, or why none is."""
    kept: str | None = None
    """Where it lies on this machine, once it was fetched."""


class Beat(msgspec.Struct, frozen=True):
    """A heartbeat of one run. Its server's clock may not be ours: one that is seen to move is as old as that look."""

    at: Instant
    """By its server's clock."""
    seen_at: Instant
    """When it was first seen, by ours."""
    moved: bool = False
    """Whether it moved on from an earlier one that was seen, too."""


class LossTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """What was odd about the loss last: no number, or outside of its usual band."""

    state: LossState
    key: str
    value: float
    step: float
    """Of a spike its highest point, of what is no number the first."""
    at: Instant
    """When it was noticed, by our clock."""
    low: float | None = None
    high: float | None = None
    """Of a spike: between these the loss usually was."""
    after: int = 0
    """Points that have come since, back in the band."""


class Wandb(msgspec.Struct, frozen=True, kw_only=True):
    """All that W&B tells of one run of ours."""

    looked_at: Instant | None = None
    """When its server last answered, by our clock."""
    runs: tuple[WandbRun, ...] = ()
    """The newest first, at most RUNS_AT_MOST."""
    active: tuple[str, ...] = ()
    """The ids of those that are believed to run now, the newest first."""
    phase: GroupPhase = "none"
    since: Instant | None = None
    """Since when it is in this phase, by our clock; of overdue: since when none is active."""
    why: str = ""
    """What the phase means, in a sentence; of several active runs it names them."""
    keys: tuple[str, ...] = ()
    """The metrics that are charted, the loss first."""
    points: int = 0
    """Points of its curves that have come since the start: it changes when a chart has something new to show."""
    recent: tuple[float, ...] = ()
    """The last values of the loss, at most RECENT_LOSSES, for its usual band."""
    loss_state: LossState = "fine"
    loss_why: str = ""
    """Such as: `spike: 9.1 at step 1,200, usually 2.1 to 2.4`."""
    trouble: LossTrouble | None = None
    """What the two are made from."""
    stepped_at: Instant | None = None
    """When its step last advanced, by our clock."""
    samples: tuple[Sample, ...] = ()
    """The newest sample of each metric that has some."""
    beats: Mapping[str, Beat] = {}
    """The heartbeats of those that W&B says are running, by id."""
    attempts: tuple[str, ...] = ()
    """Ids in the order in which they trained, the last first: a run that was resumed comes again."""

    @property
    def current(self) -> WandbRun | None:
        """The active run, else the one that trained last: a newer one may have come and gone before it."""
        known = {run.id: run for run in self.runs}
        trained = (known[name] for name in (*self.active, *self.attempts) if name in known)
        return next(trained, self.runs[0] if self.runs else None)

    @property
    def before(self) -> WandbRun | None:
        """The attempt before the current one."""
        current = self.current
        known = {run.id: run for run in self.runs}
        if current is not None and self.attempts[:1] == (current.id,):
            return next((known[name] for name in self.attempts[1:] if name in known and name != current.id), None)
        older = self.runs[self.runs.index(current) + 1 :] if current is not None else ()
        return older[0] if older else None


RUNS_AT_MOST = 20

RECENT_LOSSES = 200


class Points(msgspec.Struct, frozen=True):
    """A piece of one curve, oldest first: the three are of one length. A value may be nan or infinite.

    Where there are many, arrays of doubles: 100,000 floats in a tuple are 3 MB, and are copied one by one.
    """

    steps: Sequence[float]
    times: Sequence[float]
    """When each was logged, by the run's own clock (Unix seconds)."""
    values: Sequence[float]


class Curve(msgspec.Struct, frozen=True):
    """One metric of one attempt from its point number `start` on. Where `epoch` is another than before, points were
    dropped or rewritten in the meantime: forget what was read, and ask again from 0."""

    epoch: int
    start: int
    steps: array[float]
    times: array[float]
    values: array[float]
