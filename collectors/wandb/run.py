"""The state of a run's W&B polling: what was read, the next request, and the meaning of an answer. No I/O.

W&B limits requests per key, often for a whole team: so does the rate here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec.structs import replace

from collectors.polling_thread import PollTimes
from collectors.wandb.wire import (
    ConsoleLines,
    FetchedFile,
    FetchFile,
    HistoryPoints,
    ListRuns,
    ReadConsole,
    ReadHistory,
    ReadMetadata,
    RunList,
    RunMetadata,
)
from trainmon.analysis.wandb import active_run, metric_names
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    ConsoleRead,
    CurvesGrew,
    LogChunk,
    RunSpec,
    SampleFetched,
    Wandb,
    WandbPolled,
    WandbRun,
    WandbSpec,
)

# ---- the state of a run's W&B polling --------------------------------------------------------------------------------

MAX_EARLIER = 5
"""The number of earlier attempts that the current one is compared with."""

CONSOLE_LINES = 200
SAMPLE_EVERY: Seconds = 3_600.0
"""The time between two samples that are fetched in advance."""

SAMPLE_AGAIN: Seconds = 60.0
"""The time until a sample is tried again: W&B's client uploads a file only after the row that names it."""

MAX_SAMPLE_BYTES = 20 << 20
"""The maximum size of such a sample in bytes."""

MAX_POINTS = 1_000_000
"""Of all metrics of one request: they are 32 MB on the way from the child, which is killed for a longer answer."""

MAX_FAILURES = 3
"""The number of consecutive failures after which a history is not requested again until the run changes."""

PollRequest = ReadHistory | ReadConsole
BackgroundRequest = ReadHistory | ReadMetadata | FetchFile


class ReadProgress:
    """What was read of one W&B run."""

    def __init__(self) -> None:
        self.since: dict[str, float] = {}
        """By metric: the first step that was not read yet."""
        self.version: tuple[object, ...] | None = None
        """The run's version at the last read."""
        self.keys: frozenset[str] = frozenset()
        """The metrics that were requested."""
        self.is_read = False
        """Whether the last read returned nothing new."""
        self.step: int | None = None
        self.failures = 0
        self.metadata: RunMetadata | None = None
        """None before it was requested; empty if it cannot be read."""


class TrackedRun:
    """A run with a W&B project."""

    def __init__(self, run: RunSpec, spec: WandbSpec, samples: str | None = None) -> None:
        self.name = run.name
        self.cluster = run.cluster
        self.is_from_log = "wandb" in run.from_log
        self.spec = spec
        self.wandb = Wandb()
        """Its W&B runs, as the engine sees them."""
        self.error: str | None = None
        """Which part cannot be read, although the list can."""
        self.on_screen: Sequence[str] = ()
        """Metrics that are read beside the usual ones, as a person looks at them."""
        self._samples = samples
        self._progress: dict[str, ReadProgress] = {}
        self._console_path: str | None = None
        self._console_next = 0
        self._console_last = ""
        self._console_version: tuple[object, ...] | None = None
        self._is_consoles_turn = True  # the history comes first
        self._fetched: str | None = None
        self._fetched_at: Instant = -math.inf

    # ---- the list --------------------------------------------------------------------------------------------------

    def listing(self) -> ListRuns:
        return ListRuns(id=0, spec=self.spec, limit=1 + MAX_EARLIER)

    def update(self, answer: RunList, at: Instant) -> WandbPolled:
        """Store the list of matching runs."""
        self._progress = {run.path: self._progress.get(run.path, ReadProgress()) for run in answer.runs}
        runs = []
        for run in answer.runs:
            progress = self._progress[run.path]
            read = progress.metadata or RunMetadata(path=run.path)
            runs.append(replace(run, host=run.host or read.host, commit=run.commit or read.commit))
            if run.step is not None:  # a restarted run has no step yet, and is shorter once it has
                if progress.step is not None and run.step < progress.step:  # rewound: read all of it again
                    progress.since.clear()
                    progress.version, progress.is_read = None, False
                progress.step = run.step
        wandb = replace(active_run.read(self.spec, tuple(runs), self.wandb, at, stopped=False), polled_at=at)
        current = wandb.current
        newest = () if current is None else (current, *runs)
        names = next(filter(None, (answer.history_keys.get(run.id) for run in newest)), ())  # a new run will log them
        keys = metric_names.choose(self.spec.charts, names) or wandb.keys
        samples = answer.samples.get(current.id, ()) if current else ()
        self.wandb = replace(wandb, keys=keys, names=names or wandb.names, samples=samples)
        return WandbPolled(self.name, at, self.wandb.runs, keys, samples, self.wandb.names)

    @property
    def running(self) -> frozenset[str]:
        """The ids of the runs that the last list showed as running."""
        return frozenset(run.id for run in self.wandb.runs if run.state in active_run.ALIVE)

    @property
    def is_undecided(self) -> bool:
        """Whether another run has begun, and the next heartbeat shows whether the active one still trains."""
        current = self.wandb.current
        newer = () if current is None else self.wandb.runs[: self.wandb.runs.index(current)]
        return any(run.id in self.wandb.beats and run.id not in self.wandb.active for run in newer)

    # ---- read in every round: at most one more request, at the start both ----------------------------------------

    def requests(self) -> tuple[PollRequest, ...]:
        """The requests that follow the list: history and console log take turns. What was never read comes, too."""
        current = self.wandb.current
        if current is None:
            return ()
        history, console = self._history(current), self._console(current)
        self._is_consoles_turn = console is not None and (history is None or not self._is_consoles_turn)
        if self._is_consoles_turn:
            unread = self._progress[current.path].version is None
            wanted: tuple[PollRequest | None, ...] = (console, history if unread else None)
        else:
            wanted = (history, console if self._console_path != current.path else None)
        return tuple(request for request in wanted if request is not None)

    def _keys(self) -> tuple[str, ...]:
        """The metrics to read."""
        return tuple(dict.fromkeys((*self.wandb.keys, *(key for key in self.on_screen if key in self.wandb.names))))

    def _history(self, run: WandbRun) -> ReadHistory | None:
        progress, keys = self._progress[run.path], self._keys()
        is_read = progress.is_read and progress.keys.issuperset(keys)
        if not keys or (progress.version == _version(run) and (is_read or progress.failures >= MAX_FAILURES)):
            return None
        # A smaller request may succeed.
        samples = min(10_000, MAX_POINTS // len(keys)) if not progress.failures else 1_000
        return ReadHistory(id=0, path=run.path, keys=keys, since=dict(progress.since), samples=samples)

    def _console(self, run: WandbRun) -> ReadConsole | None:
        if not self.spec.console or (self._console_path == run.path and self._console_version == _version(run)):
            return None
        return ReadConsole(id=0, path=run.path, last=CONSOLE_LINES)

    def add_points(self, request: ReadHistory, answer: HistoryPoints, at: Instant) -> CurvesGrew | None:
        """Store new points of a history."""
        run = self._run(request.path)
        if run is None:
            return None
        progress = self._progress[run.path]
        is_first = not progress.since
        points = {
            key: grown for key in request.keys if key in answer.points and (grown := answer.points[key].points()).steps
        }
        progress.version, progress.is_read, progress.failures = _version(run), not points, 0
        progress.keys |= frozenset(request.keys)
        self.error = None
        for key, grown in points.items():
            progress.since[key] = max(grown.steps) + 1
        return CurvesGrew(self.name, request.path, at, points, fresh=is_first) if points else None

    def add_console(self, request: ReadConsole, answer: ConsoleLines, at: Instant) -> ConsoleRead | None:
        """Store new lines of the console log."""
        run = self._run(request.path)
        if run is None:
            return None
        before = self._console_path
        is_other_run = before != request.path
        is_restart = not is_other_run and bool(answer.numbers) and answer.numbers[-1] < self._console_next - 1
        is_new = is_other_run or is_restart
        following = 0 if is_new else self._console_next
        lines = dict(zip(answer.numbers, answer.lines, strict=True))
        if following and lines.get(following - 1, self._console_last) != self._console_last:
            following -= 1  # the last line was rewritten: a progress bar, or it was incomplete
        new = [index for index, number in enumerate(answer.numbers) if number >= following]
        self._console_path, self._console_version, self.error = request.path, _version(run), None
        self._console_next = following
        if answer.numbers:
            self._console_next, self._console_last = max(following, answer.numbers[-1] + 1), answer.lines[-1]
        dropped = 0 if is_new or not new else answer.numbers[new[0]] - following
        chunk = LogChunk(
            v=1,
            t=at,
            id=self.name,
            path=request.path,
            mtime=next((answer.times[index] for index in reversed(new) if answer.times[index] is not None), None),
            lines=tuple(answer.lines[index] for index in new),
            dropped=dropped,
            seen=len(new) + dropped,
            restarted="truncated" if is_restart else "newer" if is_other_run and before is not None else None,
        )
        return ConsoleRead(self.name, at, chunk)

    def failed(self, request: PollRequest | BackgroundRequest, message: str, at: Instant) -> None:
        """Count a failed read; a lasting failure is reported."""
        if isinstance(request, FetchFile):
            self._fetched_at = at - SAMPLE_EVERY + SAMPLE_AGAIN
            return
        run = self._run(request.path)
        if run is None:
            return
        progress = self._progress[run.path]
        match request:
            case ReadHistory():
                progress.failures += 1
                if progress.failures >= MAX_FAILURES:
                    progress.version = _version(run)
                    self.error = f"its curves cannot be read: {message}"
            case ReadConsole():
                self.error = f"its console log cannot be read: {message}"
            case ReadMetadata():
                progress.metadata = RunMetadata(path=request.path)

    # ---- read once, between the rounds -------------------------------------------------------------------------------

    def background_request(self, at: Instant) -> BackgroundRequest | None:
        """The next request that can wait: metrics on the screen, earlier attempts, the metadata of the current one, a
        sample."""
        known = {run.id: run for run in self.wandb.runs}
        current = self.wandb.current
        for run in filter(None, map(known.get, (*self.wandb.active, *self.wandb.attempts[: 1 + MAX_EARLIER]))):
            # An earlier run is read once, and once more after it ends: a live run would cost a request per round.
            progress = self._progress[run.path]
            has_ended = progress.version != _version(run) and run.state not in active_run.ALIVE
            is_new = run is not current and (progress.version is None or has_ended)
            is_due = is_new or (progress.version is not None and not progress.keys.issuperset(self._keys()))
            history = self._history(run) if is_due else None
            if history is not None:
                return history
        if current is None:
            return None
        if current.host is None and self._progress[current.path].metadata is None:
            return ReadMetadata(id=0, path=current.path)
        if self._samples is None or at - self._fetched_at < SAMPLE_EVERY:
            return None
        images = (sample for sample in self.wandb.samples if sample.kind == "image")
        small = (sample for sample in images if (sample.bytes or 0) <= MAX_SAMPLE_BYTES)
        newest = max(small, key=lambda sample: sample.step if sample.step is not None else -1, default=None)
        if newest is None or newest.file == self._fetched:
            return None
        return FetchFile(id=0, path=current.path, file=newest.file, directory=self._samples)

    def add_metadata(self, answer: RunMetadata) -> None:
        """Store a run's metadata; the next list includes it."""
        if answer.path in self._progress:
            self._progress[answer.path].metadata = answer

    def sample_fetched(self, answer: FetchedFile, at: Instant) -> SampleFetched:
        """Store the sample that was fetched in advance."""
        self._fetched, self._fetched_at = answer.file, at
        return SampleFetched(self.name, answer.file, answer.saved_as)

    def _run(self, path: str) -> WandbRun | None:
        return next((run for run in self.wandb.runs if run.path == path), None)


def _version(run: WandbRun) -> tuple[object, ...]:
    """While this is the same, so is the run's history."""
    return run.lines, run.step, run.state, run.heartbeat_at


# ---- the polling rate of W&B, which limits requests per key, often for a whole team ----------------------------------

MAX_PAUSE: Seconds = 600.0
"""The longest pause between two rounds, after errors or rate limiting."""
OUTAGE_PAUSE: Seconds = 60.0
"""The longest pause while W&B is down or cannot be reached: it is polled again soon after it recovers. One request a
minute burdens nobody; a server that limits the rate is left alone for longer."""
MIN_PAUSE: Seconds = 1.0
"""The shortest pause between two rounds, however long one takes, and between two background requests."""


SOON: Seconds = 10.0
"""The pause while W&B has not yet shown whether a new run replaces the active one: its next heartbeat does."""


NEW_RUNS_SHARE = 0.25
"""Between two rounds, W&B is asked for new runs each quarter of the period: a second active run overwrites checkpoints,
and people should know of it within 30 s. One request covers all runs of a project."""


class WandbRateLimit(PollTimes):
    """When the next round is due. A round polls every run, one request at a time."""

    def __init__(self, every: Seconds) -> None:
        super().__init__(every)
        self._background_due = self._new_runs_due = float("-inf")
        self._failures = 0

    @property
    def is_healthy(self) -> bool:
        """Whether the last round succeeded."""
        return not self._failures

    def background_due_in(self, now: Seconds) -> Seconds:
        """Background requests come between the rounds, while there is no error."""
        return max(0.0, self._background_due - now)

    def new_runs_due_in(self, now: Seconds) -> Seconds:
        """The seconds until W&B is asked for new runs."""
        return max(0.0, self._new_runs_due - now)

    def new_runs_done(self, now: Seconds) -> None:
        self._new_runs_due = now + NEW_RUNS_SHARE * self._every

    def answered(self, now: Seconds) -> None:
        """The round has succeeded."""
        self._failures = 0
        self.interval = self._every
        self._due = max(self._began + self.interval, now + min(MIN_PAUSE, self._every))
        self.background_done(now)
        self.new_runs_done(self._began)

    def look_soon(self, now: Seconds) -> None:
        """The next answer decides something."""
        self._due = min(self._due, now + SOON)

    def failed(self, now: Seconds, *, is_outage: bool = False) -> None:
        """The round has failed. The SDK does not pass Retry-After on. `is_outage`: W&B is down or cannot be reached."""
        self._failures += 1
        doubled = self._every * 2.0 ** min(self._failures, 12)
        self.interval = min(max(OUTAGE_PAUSE if is_outage else MAX_PAUSE, self._every), doubled)
        self._due = now + self.interval

    def background_done(self, now: Seconds) -> None:
        self._background_due = now + min(MIN_PAUSE, self._every)
