"""The attachments of messages: a plot of the loss, and the newest validation sample.

A plot never delays a message for long: a child process draws it with a timeout, and it is left out when that fails.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec

from trainmon.alerting.notify.message import Attachment
from trainmon.alerting.notify.plots.child import Line, Plot
from trainmon.analysis.wandb import client_file, metric_names
from trainmon.lib import Clock, Seconds, SystemClock, clean, last_line
from trainmon.lib.extras import install_command
from trainmon.lib.threads import ChildRunner, DeadlineExceeded
from trainmon.model import Curve, Notice, NoticeKind, Run, Sample, State, Wandb

log = logging.getLogger(__name__)

CHILD = (sys.executable, "-P", "-m", "trainmon.alerting.notify.plots.child")
WITHIN: Seconds = 20.0
FRESH: Seconds = 60.0
"""A plot is drawn once for all channels, and again when it is older."""
NO_PLOTS = "matplotlib is not installed"
RUNS = 3
FILE_BYTES = 15_000_000
WITH_PLOTS: frozenset[NoticeKind] = frozenset({
    "fire", "worse", "escalate", "repeat", "event", "digest", "heartbeat",
})  # fmt: skip
MEDIA = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp",
    ".mp4": "video/mp4", ".webm": "video/webm",
}  # fmt: skip

ReadCurve = Callable[[str, str], Curve]
"""Reads one metric of one W&B run from its first point on."""


class PlotRenderer:
    """Makes the attachments of a message. The channel workers call it; it reads the newest State."""

    def __init__(
        self,
        curve: ReadCurve,
        clock: Clock | None = None,
        *,
        cache: Path | None = None,
        argv: Sequence[str] = CHILD,
        within: Seconds = WITHIN,
        tells_why: bool = True,
    ) -> None:
        """`cache`: the directory where the child may keep its font cache. `tells_why`: without matplotlib, the log
        says so once, for the first message that would have a plot."""
        self._curve = curve
        self._clock = clock or SystemClock()
        own = {} if cache is None else {"MPLCONFIGDIR": str(cache / "matplotlib")}
        self._environ = {**os.environ, **own, "MPLBACKEND": "Agg"}
        self._argv = tuple(argv)
        self._within = within
        self._children = ChildRunner("plots")
        self._drawing = threading.Lock()
        self._drawn: dict[str, tuple[Seconds, bytes]] = {}
        self._state = State()
        self._tells_why = tells_why

    def observe(self, state: State) -> None:
        """Follow each new State."""
        self._state = state

    def __call__(self, notices: tuple[Notice, ...]) -> tuple[Attachment, ...]:
        """The files for one message: of the run of an alert about a run, and of some runs for a heartbeat. A plot is
        drawn when its file is read."""
        runs = self._state.runs
        wanted: dict[str, None] = {}
        for notice in notices:
            if notice.kind == "heartbeat":
                wanted |= dict.fromkeys(runs)
            if notice.kind in WITH_PLOTS:
                wanted |= dict.fromkeys(one.run for one in notice.alerts if one.run and one.subject.startswith("run:"))
        chosen = [runs[name] for name in wanted if name in runs][:RUNS]
        command = install_command("plots") if chosen else None
        if command is not None and self._tells_why:
            self._tells_why = False
            log.warning("no plots: %s (%s)", NO_PLOTS, command)
        found = ((self._loss(run) if command is None else None, self._sample(run)) for run in chosen)
        return tuple(filter(None, chain.from_iterable(found)))

    # ---- the curve

    def _loss(self, run: Run) -> Attachment | None:
        source = self._state.sources.get(f"wandb:{run.name}")
        shown = client_file.shown(run, is_failing=source is not None and source.health == "down")
        lines = self._lines(run, shown)
        if not lines:
            return None
        step = f" at step {run.progress.step:,}" if run.progress.step is not None else ""
        label = clean(shown.keys[0], 60) if shown is not None and shown.keys else "loss"
        plot = Plot(title=f"{clean(run.name, 60)}: {label}{step}", x_label="step", y_label=label, lines=tuple(lines))
        name = f"{_file_name(run.name)}-loss.png"
        return Attachment(name=name, media_type="image/png", draw=partial(self._draw, run.name, plot))

    def _lines(self, run: Run, shown: Wandb | None) -> list[Line]:
        """The previous and the current attempt from W&B or its files; while they lack the current one, the loss of the
        log, if theirs is one."""
        lines: list[Line] = []
        log = client_file.of_file(run.log_metrics)
        is_same = all(metric_names.loss_of(one.keys[:1]) for one in (shown, log) if one is not None and one.keys)
        for source, is_old in ((shown, True), (shown, False), (log if is_same else None, False)):
            if source is None or not source.keys or (lines and not lines[-1].is_old):
                continue
            attempt = source.before if is_old else source.current
            curve = self._curve(attempt.path, source.keys[0]) if attempt else None
            if attempt and curve and len(curve.values) > 1 and any(map(math.isfinite, curve.values)):
                x, y = curve.steps.tobytes(), curve.values.tobytes()
                lines.append(Line(name=clean(attempt.name, 60), x=x, y=y, is_old=is_old))
        return lines

    def _draw(self, run: str, plot: Plot, within: Seconds) -> bytes:
        """The plot, drawn once for all channels; nothing when that fails."""
        within = min(within, self._within)
        if not self._drawing.acquire(timeout=within):
            return b""
        try:
            at, image = self._drawn.get(run, (-math.inf, b""))
            now = self._clock.monotonic()
            if now - at <= FRESH:
                return image
            image = self._run_child(plot, within)
            self._drawn = {name: kept for name, kept in self._drawn.items() if now - kept[0] <= FRESH}
            self._drawn[run] = (now, image)
            return image
        finally:
            self._drawing.release()

    def _run_child(self, plot: Plot, within: Seconds) -> bytes:
        try:
            ended = self._children.run(self._argv, msgspec.json.encode(plot), within, self._environ)
        except (DeadlineExceeded, OSError) as error:
            why = error.strerror if isinstance(error, OSError) else f"no answer within {within:.0f}s"
            log.info("no plot: %s", why)
            return b""
        if ended.status == 0 and ended.output.startswith(b"\x89PNG"):
            return ended.output
        log.info("no plot: the child process ended with %d: %s", ended.status, last_line(ended.errors, 200))
        return b""

    # ---- the sample

    def _sample(self, run: Run) -> Attachment | None:
        samples = run.wandb.samples if run.wandb is not None else ()
        kept = [sample for sample in samples if sample.kept and Path(sample.kept).suffix.lower() in MEDIA]
        newest = max(kept, key=lambda sample: sample.step or 0, default=None)
        if newest is None:
            return None
        suffix = Path(newest.kept or "").suffix.lower()
        step = f"-step-{newest.step}" if newest.step is not None else ""
        name = f"{_file_name(run.name)}-sample{step}{suffix}"
        return Attachment(name=name, media_type=MEDIA[suffix], draw=partial(_read, newest))


def _read(sample: Sample, within: Seconds) -> bytes:
    try:
        with Path(sample.kept or "").open("rb") as opened:
            data = opened.read(FILE_BYTES + 1)
    except OSError as error:  # a newer sample has replaced it
        log.info("a sample is gone: %s", error.strerror)
        return b""
    return data if len(data) <= FILE_BYTES else b""


def _file_name(run: str) -> str:
    return "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in run)[:60]
