"""One run and its W&B runs: what was read, what to request next, and what an answer means. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable

from msgspec.structs import replace

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
    Sample,
    SampleFetched,
    Wandb,
    WandbPolled,
    WandbRun,
    WandbSpec,
)

MAX_EARLIER = 5
"""Earlier attempts, to compare the current one with."""

CONSOLE_LINES = 200
SAMPLE_EVERY: Seconds = 3_600.0
"""The time between two samples that are fetched in advance."""

MAX_SAMPLE_BYTES = 20 << 20
"""Bytes of such a sample."""

MAX_FAILURES = 3
"""Consecutive failures after which a history is not requested again until the run changes."""

PollRequest = ReadHistory | ReadConsole
BackgroundRequest = ReadHistory | ReadMetadata | FetchFile


class ReadProgress:
    """What was read of one W&B run."""

    def __init__(self) -> None:
        self.since: dict[str, float] = {}
        """By metric: the first step that was not read yet."""
        self.version: tuple[object, ...] | None = None
        """The run's version at the last read."""
        self.is_read = False
        """Whether that read found nothing new."""
        self.step: int | None = None
        self.failures = 0
        self.metadata: RunMetadata | None = None
        self.has_metadata = False


class TrackedRun:
    """A run with a W&B project."""

    def __init__(self, run: RunSpec, spec: WandbSpec, samples: str | None = None) -> None:
        self.name = run.name
        self.cluster = run.cluster
        self.spec = spec
        self.wandb = Wandb()
        """Its W&B runs, as the engine sees them."""
        self.trouble: str | None = None
        """What cannot be read, although its list can."""
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
        runs = tuple(self._with_metadata(run) for run in answer.runs)
        wandb = replace(active_run.read(self.spec, runs, self.wandb, at, stopped=False), looked_at=at)
        current = wandb.current
        known = _first(answer, (current, *runs)) if current is not None else ()
        keys = metric_names.choose(self.spec.charts, known) or wandb.keys
        self.wandb = replace(wandb, keys=keys, samples=answer.samples.get(current.id, ()) if current else ())
        paths = {run.path for run in runs}
        self._progress = {path: one for path, one in self._progress.items() if path in paths}
        for run in runs:
            progress = self._progress_of(run)
            if run.step is not None:  # a restarted run has no step yet, and is shorter once it has
                if progress.step is not None and run.step < progress.step:  # rewound: read all of it again
                    progress.since.clear()
                    progress.version, progress.is_read = None, False
                progress.step = run.step
        return WandbPolled(self.name, at, runs, keys, self.wandb.samples)

    def _with_metadata(self, run: WandbRun) -> WandbRun:
        metadata = self._progress[run.path].metadata if run.path in self._progress else None
        if metadata is None:
            return run
        return replace(run, host=run.host or metadata.host, commit=run.commit or metadata.commit)

    def _progress_of(self, run: WandbRun) -> ReadProgress:
        return self._progress.setdefault(run.path, ReadProgress())

    # ---- read in every round: at most one more request --------------------------------------------------

    def next_request(self) -> PollRequest | None:
        """The request that follows the list: history and console log take turns."""
        current = self.wandb.current
        if current is None:
            return None
        history, console = self._history(current), self._console(current)
        self._is_consoles_turn = console is not None and (history is None or not self._is_consoles_turn)
        return console if self._is_consoles_turn else history

    def other_request(self, before: PollRequest | None) -> PollRequest | None:
        """The other of the two, if it was never read: at the start both are wanted."""
        current = self.wandb.current
        if current is None or before is None:
            return None
        if isinstance(before, ReadConsole):
            return self._history(current) if self._progress_of(current).version is None else None
        return self._console(current) if self._console_path != current.path else None

    def _history(self, run: WandbRun) -> ReadHistory | None:
        progress = self._progress_of(run)
        is_same = progress.version == _version(run)
        if not self.wandb.keys or (is_same and (progress.is_read or progress.failures >= MAX_FAILURES)):
            return None
        samples = 10_000 if not progress.failures else 1_000  # a smaller request may succeed
        return ReadHistory(id=0, path=run.path, keys=self.wandb.keys, since=dict(progress.since), samples=samples)

    def _console(self, run: WandbRun) -> ReadConsole | None:
        if not self.spec.console or (self._console_path == run.path and self._console_version == _version(run)):
            return None
        return ReadConsole(id=0, path=run.path, last=CONSOLE_LINES)

    def add_points(self, request: ReadHistory, answer: HistoryPoints, at: Instant) -> CurvesGrew | None:
        """Store new points of a history."""
        run = self._run(request.path)
        if run is None:
            return None
        progress = self._progress_of(run)
        is_first = not progress.since
        points = {
            key: grown for key in request.keys if key in answer.points and (grown := answer.points[key].points()).steps
        }
        progress.version, progress.is_read, progress.failures = _version(run), not points, 0
        self.trouble = None
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
        if is_other_run or is_restart:
            self._console_next = 0  # it may have no line yet
        following = self._console_next
        if following and _was_rewritten(answer, following - 1, self._console_last):
            following -= 1
        new = [place for place, number in enumerate(answer.numbers) if number >= following]
        self._console_path, self._console_version, self.trouble = request.path, _version(run), None
        if answer.numbers:
            self._console_next, self._console_last = max(following, answer.numbers[-1] + 1), answer.lines[-1]
        first = answer.numbers[new[0]] if new else following
        dropped = 0 if is_other_run or is_restart else first - following
        chunk = LogChunk(
            v=1,
            t=at,
            id=self.name,
            path=request.path,
            mtime=next((when for place in reversed(new) if (when := answer.times[place]) is not None), None),
            lines=tuple(answer.lines[place] for place in new),
            dropped=dropped,
            seen=len(new) + dropped,
            restarted="truncated" if is_restart else "newer" if is_other_run and before is not None else None,
        )
        return ConsoleRead(self.name, at, chunk)

    def failed(self, request: PollRequest | BackgroundRequest, words: str) -> None:
        """Count a failed read; a lasting failure is reported."""
        if isinstance(request, FetchFile):
            self._fetched = request.file  # not again before the next sample
            return
        run = self._run(request.path)
        if run is None:
            return
        progress = self._progress_of(run)
        if isinstance(request, ReadHistory):
            progress.failures += 1
            if progress.failures >= MAX_FAILURES:
                progress.version = _version(run)
                self.trouble = f"its curves cannot be read: {words}"
        elif isinstance(request, ReadConsole):
            self.trouble = f"its console log cannot be read: {words}"
        else:
            progress.has_metadata = True

    # ---- read once, between the rounds -------------------------------------------------------------------------------

    def background_request(self, at: Instant) -> BackgroundRequest | None:
        """The next request that can wait: earlier attempts, the metadata of the current one, a sample."""
        known = {run.id: run for run in self.wandb.runs}
        current = self.wandb.current
        for name in self.wandb.attempts[: 1 + MAX_EARLIER]:
            run = known.get(name)
            if run is not None and run is not current and self._needs_reading(run) and (history := self._history(run)):
                return history
        if current is None:
            return None
        if current.host is None and not self._progress_of(current).has_metadata:
            return ReadMetadata(id=0, path=current.path)
        newest = self._newest_image()
        is_due = newest is not None and newest.file != self._fetched and at - self._fetched_at >= SAMPLE_EVERY
        if newest is None or not is_due or self._samples is None:
            return None
        return FetchFile(id=0, path=current.path, file=newest.file, directory=self._samples)

    def _needs_reading(self, run: WandbRun) -> bool:
        """Whether an earlier run must be read: once, and once more after it ends. Otherwise several live runs would
        each cost a request in every round."""
        version = self._progress_of(run).version
        return version is None or (version != _version(run) and run.state not in active_run.ALIVE)

    def _newest_image(self) -> Sample | None:
        samples = self.wandb.samples
        images = [sample for sample in samples if sample.kind == "image" and (sample.bytes or 0) <= MAX_SAMPLE_BYTES]
        return max(images, key=lambda sample: sample.step if sample.step is not None else -1, default=None)

    def add_metadata(self, answer: RunMetadata) -> None:
        """Store a run's metadata; the next list includes it."""
        run = self._run(answer.path)
        if run is not None:
            self._progress_of(run).metadata, self._progress_of(run).has_metadata = answer, True

    def sample_fetched(self, answer: FetchedFile, at: Instant) -> SampleFetched:
        """Store the sample that was fetched in advance."""
        self._fetched, self._fetched_at = answer.file, at
        return SampleFetched(self.name, answer.file, answer.kept)

    def _run(self, path: str) -> WandbRun | None:
        return next((run for run in self.wandb.runs if run.path == path), None)


def _version(run: WandbRun) -> tuple[object, ...]:
    """While this is the same, so is the run's history."""
    return run.lines, run.step, run.state, run.heartbeat_at


def _was_rewritten(answer: ConsoleLines, number: int, before: str) -> bool:
    """Whether the last line has changed: a progress bar, or a line that was incomplete."""
    return any(at == number and text != before for at, text in zip(answer.numbers, answer.lines, strict=True))


def _first(answer: RunList, runs: Iterable[WandbRun]) -> tuple[str, ...]:
    """The metrics of the first run that has some: a new run will log those of the one before."""
    return next(filter(None, (answer.history_keys.get(run.id, ()) for run in runs)), ())
