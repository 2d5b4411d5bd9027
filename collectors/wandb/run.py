"""One run of ours in W&B: what was read of it, what is to be asked next, and what an answer means. No I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

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
from trainmon.analysis.wandb import active_run as wandb_group
from trainmon.analysis.wandb import metric_names as wandb_keys
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

EARLIER_AT_MOST = 5
"""Attempts before the present one, to compare it with."""

CONSOLE_LINES = 200
SAMPLE_EVERY: Seconds = 3_600.0
"""Between two samples that are fetched unasked: one is kept ready."""

SAMPLE_AT_MOST = 20 << 20
"""Bytes of such a sample."""

ODD_AT_MOST = 3
"""Reads of one thing that failed one after another; then it is asked for no more, until something of it changes."""

PollRequest = ReadHistory | ReadConsole
BackgroundRequest = ReadHistory | ReadMetadata | FetchFile


class Mark(NamedTuple):
    """What the server says of a run's history: when this is the same, so is that."""

    lines: int | None
    step: int | None
    state: str
    beat: Instant | None

    @classmethod
    def of(cls, run: WandbRun) -> Mark:
        return cls(run.lines, run.step, run.state, run.heartbeat_at)


class ReadProgress:
    """One W&B run, as far as it was read."""

    def __init__(self) -> None:
        self.since: dict[str, float] = {}
        """From which step on each metric is new."""
        self.mark: Mark | None = None
        """That of the last read."""
        self.is_read = False
        """Whether that read brought nothing new."""
        self.step: int | None = None
        self.failures = 0
        self.facts: RunMetadata | None = None
        self.has_facts = False

    def forget(self) -> None:
        """Its history was rewritten."""
        self.since.clear()
        self.mark, self.is_read = None, False


class TrackedRun:
    """A run of ours with a W&B project."""

    def __init__(self, run: RunSpec, spec: WandbSpec, samples: str | None = None) -> None:
        self.name = run.name
        self.cluster = run.cluster
        self.spec = spec
        self.wandb = Wandb()
        """What its runs are, as the engine will judge it."""
        self.trouble: str | None = None
        """What of it cannot be read, in a sentence; its list can."""
        self._samples = samples
        self._attempts: dict[str, ReadProgress] = {}
        self._console_path: str | None = None
        self._console_next = 0
        self._console_last = ""
        self._console_mark: Mark | None = None
        self._is_consoles_turn = True  # the curves begin
        self._fetched: str | None = None
        self._fetched_at: Instant = -math.inf

    # ---- the list --------------------------------------------------------------------------------------------------

    def listing(self) -> ListRuns:
        return ListRuns(id=0, spec=self.spec, limit=1 + EARLIER_AT_MOST)

    def listed(self, told: RunList, at: Instant) -> WandbPolled:
        """The runs that match are these."""
        runs = tuple(self._with_facts(run) for run in told.runs)
        group = wandb_group.read(self.spec, runs, self.wandb, at, stopped=False)
        wandb = replace(self.wandb, looked_at=at, runs=runs, **group._asdict())
        current = wandb.current
        known = _first(told, (current, *runs)) if current is not None else ()
        keys = wandb_keys.choose(self.spec.charts, known) or wandb.keys
        self.wandb = replace(wandb, keys=keys, samples=told.samples.get(current.id, ()) if current else ())
        paths = {run.path for run in runs}
        self._attempts = {path: one for path, one in self._attempts.items() if path in paths}
        for run in runs:
            self._look_back(run)
        return WandbPolled(self.name, at, runs, keys, self.wandb.samples)

    def _look_back(self, run: WandbRun) -> None:
        """A run that was rewound has a history that is shorter than what was read of it."""
        attempt = self._attempt(run)
        if run.step is None:
            return  # one that was begun anew has none yet, and is shorter once it has
        if attempt.step is not None and run.step < attempt.step:
            attempt.forget()
        attempt.step = run.step

    def _with_facts(self, run: WandbRun) -> WandbRun:
        facts = self._attempts[run.path].facts if run.path in self._attempts else None
        if facts is None:
            return run
        return replace(run, host=run.host or facts.host, commit=run.commit or facts.commit)

    def _attempt(self, run: WandbRun) -> ReadProgress:
        return self._attempts.setdefault(run.path, ReadProgress())

    # ---- what is read in every round: one more question at the most --------------------------------------------------

    def reading(self) -> PollRequest | None:
        """What to ask beside the list: the curves and the console log take turns."""
        current = self.wandb.current
        if current is None:
            return None
        history, console = self._history(current), self._console(current)
        self._is_consoles_turn = console is not None and (history is None or not self._is_consoles_turn)
        return console if self._is_consoles_turn else history

    def first_reading(self, before: PollRequest | None) -> PollRequest | None:
        """The other of the two, where nothing was read of it yet: a person who has just come waits for both."""
        current = self.wandb.current
        if current is None or before is None:
            return None
        if isinstance(before, ReadConsole):
            return self._history(current) if self._attempt(current).mark is None else None
        return self._console(current) if self._console_path != current.path else None

    def _history(self, run: WandbRun) -> ReadHistory | None:
        attempt = self._attempt(run)
        is_same = attempt.mark == Mark.of(run)
        if not self.wandb.keys or (is_same and (attempt.is_read or attempt.failures >= ODD_AT_MOST)):
            return None
        samples = 10_000 if not attempt.failures else 1_000  # what was too much may be less
        return ReadHistory(id=0, path=run.path, keys=self.wandb.keys, since=dict(attempt.since), samples=samples)

    def _console(self, run: WandbRun) -> ReadConsole | None:
        if not self.spec.console or (self._console_path == run.path and self._console_mark == Mark.of(run)):
            return None
        return ReadConsole(id=0, path=run.path, last=CONSOLE_LINES)

    def grown(self, asked: ReadHistory, told: HistoryPoints, at: Instant) -> CurvesGrew | None:
        """New points of one attempt."""
        run = self._run(asked.path)
        if run is None:
            return None
        attempt = self._attempt(run)
        is_first = not attempt.since
        points = {key: grown for key in asked.keys if key in told.points and (grown := told.points[key].points()).steps}
        attempt.mark, attempt.is_read, attempt.failures = Mark.of(run), not points, 0
        self.trouble = None
        for key, grown in points.items():
            attempt.since[key] = max(grown.steps) + 1
        return CurvesGrew(self.name, asked.path, at, points, fresh=is_first) if points else None

    def said(self, asked: ReadConsole, told: ConsoleLines, at: Instant) -> ConsoleRead | None:
        """New lines of the console log."""
        run = self._run(asked.path)
        if run is None:
            return None
        before = self._console_path
        is_other = before != asked.path
        is_anew = not is_other and bool(told.numbers) and told.numbers[-1] < self._console_next - 1
        if is_other or is_anew:
            self._console_next = 0  # it may have no line yet
        following = self._console_next
        if following and _was_rewritten(told, following - 1, self._console_last):
            following -= 1
        new = [place for place, number in enumerate(told.numbers) if number >= following]
        self._console_path, self._console_mark, self.trouble = asked.path, Mark.of(run), None
        if told.numbers:
            self._console_next, self._console_last = max(following, told.numbers[-1] + 1), told.lines[-1]
        first = told.numbers[new[0]] if new else following
        dropped = 0 if is_other or is_anew else first - following
        chunk = LogChunk(
            v=1,
            t=at,
            id=self.name,
            path=asked.path,
            mtime=next((when for place in reversed(new) if (when := told.times[place]) is not None), None),
            lines=tuple(told.lines[place] for place in new),
            dropped=dropped,
            seen=len(new) + dropped,
            restarted="truncated" if is_anew else "newer" if is_other and before is not None else None,
        )
        return ConsoleRead(self.name, at, chunk)

    def failed(self, asked: PollRequest | BackgroundRequest, words: str) -> None:
        """It could not be read: tried again, and of what lasts something is said."""
        if isinstance(asked, FetchFile):
            self._fetched = asked.file  # not again before the next
            return
        run = self._run(asked.path)
        if run is None:
            return
        attempt = self._attempt(run)
        if isinstance(asked, ReadHistory):
            attempt.failures += 1
            if attempt.failures >= ODD_AT_MOST:
                attempt.mark = Mark.of(run)
                self.trouble = f"its curves cannot be read: {words}"
        elif isinstance(asked, ReadConsole):
            self.trouble = f"its console log cannot be read: {words}"
        else:
            attempt.has_facts = True

    # ---- what is asked once, between the rounds ----------------------------------------------------------------------

    def errand(self, at: Instant) -> BackgroundRequest | None:
        """The next of what can wait: earlier attempts, facts of the present one, and a sample to have at hand."""
        return next(self._errands(at), None)

    def _errands(self, at: Instant) -> Iterator[BackgroundRequest]:
        known = {run.id: run for run in self.wandb.runs}
        current = self.wandb.current
        for name in self.wandb.attempts[: 1 + EARLIER_AT_MOST]:
            run = known.get(name)
            if run is not None and run is not current and self._is_to_be_read(run):
                history = self._history(run)
                if history is not None:
                    yield history
        if current is not None and current.host is None and not self._attempt(current).has_facts:
            yield ReadMetadata(id=0, path=current.path)
        newest = self._newest_image()
        is_due = newest is not None and newest.file != self._fetched and at - self._fetched_at >= SAMPLE_EVERY
        if current is not None and newest is not None and is_due and self._samples is not None:
            yield FetchFile(id=0, path=current.path, file=newest.file, directory=self._samples)

    def _is_to_be_read(self, run: WandbRun) -> bool:
        """Of one that is not the current: once, and once more when it has ended. Several that beat at a time would
        each cost a question a round."""
        mark = self._attempt(run).mark
        return mark is None or (mark != Mark.of(run) and run.state not in wandb_group.ALIVE)

    def _newest_image(self) -> Sample | None:
        samples = self.wandb.samples
        images = [sample for sample in samples if sample.kind == "image" and (sample.bytes or 0) <= SAMPLE_AT_MOST]
        return max(images, key=lambda sample: sample.step if sample.step is not None else -1, default=None)

    def found(self, told: RunMetadata) -> None:
        """Where and from what it was started: told with the next list."""
        run = self._run(told.path)
        if run is not None:
            self._attempt(run).facts, self._attempt(run).has_facts = told, True

    def kept(self, told: FetchedFile, at: Instant) -> SampleFetched:
        """The sample that is kept ready."""
        self._fetched, self._fetched_at = told.file, at
        return SampleFetched(self.name, told.file, told.kept)

    def _run(self, path: str) -> WandbRun | None:
        return next((run for run in self.wandb.runs if run.path == path), None)


def _was_rewritten(told: ConsoleLines, number: int, before: str) -> bool:
    """Whether the line that was the last says something else now: a progress bar, or one that was not yet whole."""
    return any(at == number and text != before for at, text in zip(told.numbers, told.lines, strict=True))


def _first(told: RunList, runs: Iterable[WandbRun]) -> tuple[str, ...]:
    """The metrics of the first of these that has some: one that has just begun will log those of the last."""
    return next(filter(None, (told.history_keys.get(run.id, ()) for run in runs)), ())
