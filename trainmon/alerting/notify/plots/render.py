"""The pictures that go with messages: the curve of the loss, and the newest sample of a validation.

A picture costs a message nothing but itself: it is drawn in a child, within its time, and left out when that fails.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from trainmon.alerting.notify.base import Attachment
from trainmon.alerting.notify.plots.wire import Drawing, Line
from trainmon.lib import Clock, Seconds, SystemClock, clean
from trainmon.lib.deadline import ChildRunner, DeadlineExceeded
from trainmon.model import Curve, Notice, NoticeKind, Run, Sample, State, WandbRun

log = logging.getLogger(__name__)

CHILD = (sys.executable, "-P", "-m", "trainmon.alerting.notify.plots.child")
WITHIN: Seconds = 20.0
FRESH: Seconds = 60.0
"""A picture is drawn once for all channels, and again when it is older."""
RUNS = 3
POINTS_KEPT = 4_096
POINTS_DRAWN = 2
FILE_BYTES = 15_000_000
WITH_PICTURES: frozenset[NoticeKind] = frozenset({
    "fire", "worse", "escalate", "repeat", "event", "digest", "heartbeat",
})  # fmt: skip
MEDIA = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".mp4": "video/mp4", ".webm": "video/webm",
}  # fmt: skip

ReadCurve = Callable[[str, str], Curve]
"""One metric of one W&B run, from its first point on."""


class Track:
    """The loss of a run as its log told it: every point at first, then every second one, and so on."""

    def __init__(self) -> None:
        self.steps: array[float] = array("d")
        self.values: array[float] = array("d")
        self._every = 1
        self._seen = 0

    def add(self, step: float, value: float) -> None:
        self._seen += 1
        if self._seen % self._every:
            return
        self.steps.append(step)
        self.values.append(value)
        if len(self.steps) >= POINTS_KEPT:
            self.steps, self.values = self.steps[::2], self.values[::2]
            self._every *= 2


class PlotRenderer:
    """What is attached to a message. Called by the threads that send; it reads the newest State."""

    def __init__(
        self,
        curve: ReadCurve,
        clock: Clock | None = None,
        *,
        cache: Path | None = None,
        argv: Sequence[str] = CHILD,
        within: Seconds = WITHIN,
    ) -> None:
        """`cache` is where the child may keep what it knows of the machine's fonts: without it, it looks every time."""
        self._curve = curve
        self._clock = clock or SystemClock()
        self._environ = environment(os.environ, cache)
        self._argv = tuple(argv)
        self._within = within
        self._children = ChildRunner("pictures")
        self._drawing = threading.Lock()
        self._drawn: dict[str, tuple[Seconds, bytes]] = {}
        self._tracks: dict[str, Track] = {}
        self._state = State()

    def observe(self, state: State) -> None:
        """Each new State, on one thread: the loss of a run without W&B is nowhere else."""
        before, self._state = self._state, state
        if state.runs is before.runs:
            return
        for name, run in state.runs.items():
            old = before.runs.get(name)
            said = run.progress
            if said.step is None or said.loss is None or (old is not None and old.progress is said):
                continue
            if old is None or (old.progress.step, old.progress.loss) != (said.step, said.loss):
                self._tracks.setdefault(name, Track()).add(said.step, said.loss)
        for name in self._tracks.keys() - state.runs.keys():
            del self._tracks[name]

    def __call__(self, notices: tuple[Notice, ...]) -> tuple[Attachment, ...]:
        """The files for one message; the curves are drawn when they are read."""
        files = [file for run in self._runs(notices) for file in (self._loss(run), self._sample(run)) if file]
        return tuple(files)

    def _runs(self, notices: Sequence[Notice]) -> Iterator[Run]:
        """Of an alert its run, if it is about the run; of a sign of life all, but not too many."""
        runs = self._state.runs
        wanted: dict[str, None] = {}
        for notice in notices:
            if notice.kind not in WITH_PICTURES:
                continue
            if notice.kind == "heartbeat":
                wanted |= dict.fromkeys(runs)
            wanted |= dict.fromkeys(one.run for one in notice.alerts if one.run and one.subject.startswith("run:"))
        yield from [runs[name] for name in wanted if name in runs][:RUNS]

    # ---- the curve

    def _loss(self, run: Run) -> Attachment | None:
        lines = self._lines(run)
        if not lines:
            return None
        step = f" at step {run.progress.step:,}" if run.progress.step is not None else ""
        label = run.wandb.keys[0] if run.wandb is not None and run.wandb.keys else "loss"
        title = f"{clean(run.name, 60)}: {clean(label, 60)}{step}"
        drawing = Drawing(title=title, across="step", up=clean(label, 60), lines=lines)
        name = f"{_file_name(run.name)}-loss.png"
        return Attachment(name=name, media_type="image/png", draw=partial(self._draw, run.name, drawing))

    def _lines(self, run: Run) -> tuple[Line, ...]:
        """Of W&B the attempt before and the one that trains; else what the log told since we look."""
        lines: list[Line] = []
        if run.wandb is not None and run.wandb.keys:
            attempts = [(run.wandb.before, True), (run.wandb.current, False)]
            lines = [line for one, is_old in attempts if one for line in self._attempt(one, run.wandb.keys[0], is_old)]
        track = self._tracks.get(run.name)
        if not any(not line.is_old for line in lines) and track is not None and _is_drawable(track.values):
            steps, values = track.steps[:], track.values[:]
            length = min(len(steps), len(values))  # the other thread may be adding one
            lines.append(Line(name=clean(run.name, 60), x=steps[:length].tobytes(), y=values[:length].tobytes()))
        return tuple(lines)

    def _attempt(self, attempt: WandbRun, key: str, is_old: bool) -> Iterator[Line]:
        curve = self._curve(attempt.path, key)
        if _is_drawable(curve.values):
            name = clean(attempt.name, 60)
            yield Line(name=name, x=curve.steps.tobytes(), y=curve.values.tobytes(), is_old=is_old)

    def _draw(self, run: str, drawing: Drawing, within: Seconds) -> bytes:
        """The picture, once for all who want it now; nothing when it fails."""
        within = min(within, self._within)
        if not self._drawing.acquire(timeout=within):
            return b""
        try:
            at, picture = self._drawn.get(run, (-math.inf, b""))
            now = self._clock.monotonic()
            if now - at <= FRESH:
                return picture
            picture = self._ask(drawing, within)
            self._drawn = {name: kept for name, kept in self._drawn.items() if now - kept[0] <= FRESH}
            self._drawn[run] = (now, picture)
            return picture
        finally:
            self._drawing.release()

    def _ask(self, drawing: Drawing, within: Seconds) -> bytes:
        try:
            ended = self._children.run(self._argv, msgspec.json.encode(drawing), within, self._environ)
        except DeadlineExceeded:
            log.info("no picture within %.0f s", within)
            return b""
        except OSError as error:
            log.info("the child that draws cannot be started: %s", error.strerror)
            return b""
        if ended.status != 0 or not ended.output.startswith(b"\x89PNG"):
            said = ended.errors.decode(errors="replace").strip().split("\n")[-1]
            log.info("no picture: the child that draws ended with %d: %s", ended.status, clean(said, 200))
            return b""
        return ended.output

    # ---- the sample

    def _sample(self, run: Run) -> Attachment | None:
        samples = run.wandb.samples if run.wandb is not None else ()
        kept = [sample for sample in samples if sample.kept and Path(sample.kept).suffix.lower() in MEDIA]
        newest = max(kept, key=lambda sample: sample.step or 0, default=None)
        if newest is None or newest.kept is None:
            return None
        path = Path(newest.kept)
        step = f"-step-{newest.step}" if newest.step is not None else ""
        name = f"{_file_name(run.name)}-sample{step}{path.suffix.lower()}"
        return Attachment(name=name, media_type=MEDIA[path.suffix.lower()], draw=partial(_read, newest))


def _read(sample: Sample, within: Seconds) -> bytes:
    try:
        with Path(sample.kept or "").open("rb") as opened:
            data = opened.read(FILE_BYTES + 1)
    except OSError as error:  # the next one has taken its place meanwhile
        log.info("a sample is gone: %s", error.strerror)
        return b""
    return data if len(data) <= FILE_BYTES else b""


def _is_drawable(values: Sequence[float]) -> bool:
    return len(values) >= POINTS_DRAWN and any(math.isfinite(value) for value in values)


def _file_name(run: str) -> str:
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in run)[:60]


def environment(before: Mapping[str, str], cache: Path | None) -> dict[str, str]:
    """What the child finds set: no screen, and a place of its own."""
    own = {} if cache is None else {"MPLCONFIGDIR": str(cache / "matplotlib")}
    return {**before, **own, "MPLBACKEND": "Agg"}
