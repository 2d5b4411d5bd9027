"""Weights & Biases: runs, samples and curves. All text in them is clean; `None` means "not known"."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds

GroupPhase = Literal["active", "several", "waiting", "overdue", "ended", "none"]
"""active: exactly one run is. several: more than one, which nobody expects. waiting: none since less than the
restart grace. overdue: none for longer. ended: the last one finished, or a person stopped it. none: no run was seen."""

LossState = Literal["fine", "nan", "spike"]

TRAINER_STATE = "trainer_state.json"
"""The format of the state in a checkpoint of Hugging Face's Trainer."""


class WandbSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run is in W&B: its project, and its group, id, display name or tags."""

    project: str
    """`entity/project`."""
    group: str | None = None
    run: str | None = None
    """A run's id."""
    display: str | None = None
    """A regular expression, searched in the display name."""
    tags: tuple[str, ...] = ()
    """A run must have all of these tags."""
    restart_grace: Seconds = 900.0
    """The longest usual time from a restart until W&B is initialised."""
    charts: tuple[str, ...] = ()
    """The metrics to chart; empty: metrics with common names."""
    console: bool = False
    """Whether its console log is the run's log."""

    @property
    def description(self) -> str:
        """The query in words: `team/project, group video-2b-final`."""
        how = (("group", self.group), ("run", self.run), ("display name", self.display), ("tags", ", ".join(self.tags)))
        return ", ".join((self.project, *(f"{word} {value}" for word, value in how if value)))


class WandbRun(msgspec.Struct, frozen=True, kw_only=True):
    """One W&B run as its server last reported it: one attempt of our run."""

    entity: str
    project: str
    id: str
    name: str
    """Its display name."""
    state: str
    """The state on the server: running, finished, failed, crashed, killed, pending, preempting, preempted."""
    group: str | None = None
    url: str | None = None
    created_at: Instant | None = None
    heartbeat_at: Instant | None = None
    step: int | None = None
    """W&B's own counter `_step`, which is not always the trainer's."""
    logged_at: Instant | None = None
    """When its last row was logged, by the run's clock (`_timestamp`). A run may send heartbeats and log nothing."""
    lines: int | None = None
    """Rows of its history."""
    tags: tuple[str, ...] = ()
    user: str | None = None
    host: str | None = None
    commit: str | None = None
    summary: Mapping[str, float | str] = {}
    """The latest value of each metric, including nan and infinity; at most 300."""
    config: Mapping[str, str] = {}
    """Its settings, each as a short text; at most 300."""

    @property
    def path(self) -> str:
        """Its unique path: `entity/project/id`."""
        return f"{self.entity}/{self.project}/{self.id}"


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The newest image or video of one metric of a run."""

    key: str
    kind: str
    """image, video, table, or another type of W&B."""
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
    """Its path on this machine, once it was fetched."""


class Beat(msgspec.Struct, frozen=True):
    """A heartbeat of one run. The server's clock may differ from ours, so the age of a heartbeat whose arrival we
    observed counts from then."""

    at: Instant
    """Its time by the server's clock."""
    observed_at: Instant
    """When we first observed it, by our clock."""
    moved: bool = False
    """Whether we also observed an earlier one."""


class LossTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """The last anomaly of the loss: not finite, or above its usual band."""

    state: LossState
    key: str
    value: float
    step: float
    """The highest point of a spike, or the first value that is not finite."""
    at: Instant
    """When it was noticed, by our clock; of one that a first look at a log or a curve shows, when it was written."""
    low: float | None = None
    high: float | None = None
    """For a spike: the usual band."""
    after: int = 0
    """How many points have followed within the band."""
    source: str = ""
    """What shows it, if not the log: W&B, or the format of a file of metrics."""

    @property
    def text(self) -> str:
        """`spike: 9.1 at step 1,200, usually 2.1 to 2.4`."""
        if self.state == "nan":
            return f"{self.key} has been {non_finite_text(self.value)} since step {self.step:,.0f}"
        usual = "" if self.low is None else f", usually {self.low:.3g} to {self.high:.3g}"
        back = ", and back since" if self.after else ""
        return f"spike: {self.value:.3g} at step {self.step:,.0f}{usual}{back}"


def non_finite_text(value: float) -> str:
    """A loss that is not finite: `NaN` or `infinite`."""
    return "NaN" if math.isnan(value) else "infinite"


class ChartedMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the metrics of a run, and of its loss."""

    keys: tuple[str, ...] = ()
    """The charted metrics, the loss first."""
    points: int = 0
    """How many points its curves have received: a chart is redrawn when this changes."""
    recent: tuple[float, ...] = ()
    """The last values of its loss, at most RECENT_LOSSES, for its usual band."""
    trouble: LossTrouble | None = None
    """The last anomaly of its loss."""

    @property
    def loss_state(self) -> LossState:
        return "fine" if self.trouble is None else self.trouble.state

    @property
    def loss_why(self) -> str:
        """The anomaly in words, or nothing."""
        return "" if self.trouble is None else self.trouble.text


class Wandb(ChartedMetrics, frozen=True, kw_only=True):
    """Everything that W&B reports about one of our runs."""

    source: str = "W&B"
    """What reports it: W&B's server, or the format of the files of metrics."""
    polled_at: Instant | None = None
    """When its server last answered, by our clock."""
    runs: tuple[WandbRun, ...] = ()
    """The newest first, at most RUNS_AT_MOST."""
    active: tuple[str, ...] = ()
    """The ids of the runs that are probably alive: the one that is followed, then the newest first."""
    phase: GroupPhase = "none"
    since: Instant | None = None
    """The start of this phase, by our clock; for overdue: since when none is active."""
    why: str = ""
    """The reason for the phase, in a sentence; it names several active runs."""
    names: tuple[str, ...] = ()
    """All metrics with curves, where they are more."""
    stepped_at: Instant | None = None
    """When its step last advanced, by our clock."""
    samples: tuple[Sample, ...] = ()
    """The newest sample of each metric that has some."""
    beats: Mapping[str, Beat] = {}
    """By id: the heartbeats of the runs that W&B reports as running."""
    attempts: tuple[str, ...] = ()
    """Ids in the order in which they trained, the latest first."""

    @property
    def current(self) -> WandbRun | None:
        """The active run, else the one that trained last."""
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


class WandbFile(ChartedMetrics, frozen=True, kw_only=True):
    """What the files of metrics, of the W&B client or another writer, say about one of our runs. They show curves, and
    nothing of whether it lives."""

    host: str = ""
    """The host that reads them."""
    path: str | None = None
    """The file of the newest run directory."""
    file: str = ""
    """The same as long as it is the same file, or another one of the same run goes on."""
    format: str = "W&B"
    """As a person knows it: W&B, TensorBoard, JSON lines, CSV, trainer_state.json."""
    project: str = ""
    """`entity/project`, as far as the client knows it."""
    size: int = 0
    offset: int = 0
    """How far it was read."""
    rows: int = 0
    damaged: int = 0
    """Blocks and records that were skipped, because they are damaged."""
    damaged_before: int = 0
    """The same in the files that were followed before it."""
    tail: int = 0
    """Incomplete parts at its end, for which more may come."""
    written_at: Instant | None = None
    """When it was last written, by our clock."""
    is_behind: bool = False
    """Whether some of it is still to be read."""
    logged_at: Instant | None = None
    """When its newest row was logged, by our clock."""
    checked_at: Instant | None = None
    """When it was last read, by our clock."""
    exit_code: int | None = None
    names: tuple[str, ...] = ()
    """The metrics with curves."""
    recent_step: float = -math.inf
    """The step of the last one of `recent`."""
    runs: tuple[WandbRun, ...] = ()
    """A run for each directory that was followed, the newest first, at most RUNS_AT_MOST."""
    error: str | None = None

    @property
    def shows_steps(self) -> bool:
        """Whether it may show that a run trains now. The state in a checkpoint is of the past."""
        return bool(self.runs) and self.format != TRAINER_STATE


RUNS_AT_MOST = 20

RECENT_LOSSES = 200


class Points(msgspec.Struct, frozen=True):
    """A piece of one curve, oldest first; all three have the same length. A value may be nan or infinite.

    Many points are arrays of doubles: 100,000 floats in a tuple are 3 MB, and are copied one by one.
    """

    steps: Sequence[float]
    times: Sequence[float]
    """When each was logged, by the run's own clock (Unix seconds)."""
    values: Sequence[float]


class Curve(msgspec.Struct, frozen=True):
    """One metric of one attempt, from point number `start` on. If `epoch` has changed, points were dropped or
    rewritten: discard what was read, and read again from 0."""

    epoch: int
    start: int
    steps: array[float]
    times: array[float]
    values: array[float]
