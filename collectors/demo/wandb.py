"""One run in the demo's W&B, and a server for the dashboard's requests: a group of runs for each training run."""

from __future__ import annotations

import json
import math
import struct
import zlib
from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from random import Random

from collectors.demo.stories import GPUS, Trainer
from collectors.demo.trainers import (
    NAMES,
    Attempt,
    HistoryRow,
    all_attempts,
    history_rows,
    summary_row,
    validation_steps,
    wandb_row,
)
from collectors.demo.training import AttemptEnded, Effect, MetricsLogged, TrainingLoop, Validated
from collectors.wandb.child_process import AnswerType, WandbError
from collectors.wandb.login import Credentials
from collectors.wandb.wire import (
    AnyAnswer,
    AnyRequest,
    FetchedFile,
    FetchFile,
    HistoryPoints,
    ListRuns,
    PackedPoints,
    ReadHistory,
    RunList,
)
from trainmon.lib import Instant, Seconds
from trainmon.model import Points, Sample, WandbRun

SERVER = "https://wandb.example"
"""A reserved name (RFC 2606): `b` never opens a stranger's page."""
ROWS_KEPT = 3_000
"""The maximum number of rows per metric: a demo may run for weeks."""
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WIDTH, HEIGHT = 96, 64
SKY, SUN, HILL = (64, 116, 196), (250, 214, 92), (44, 118, 66)


class MetricHistory:
    """The values of one metric with their steps and times."""

    def __init__(self) -> None:
        self.columns = array("d"), array("d"), array("d")

    def add(self, *row: float) -> None:
        """Add a step with its time and value."""
        for column, value in zip(self.columns, row, strict=True):
            column.append(value)
            if len(column) > ROWS_KEPT:
                del column[: ROWS_KEPT // 2]

    def since(self, step: float) -> Points:
        begin = bisect_left(self.columns[0], step)
        return Points(*(column[begin:] for column in self.columns))


class DemoWandbRun:
    """A run in a W&B group."""

    def __init__(
        self,
        trainer: Trainer,
        name: str,
        began: Instant,
        *,
        state: str = "running",
        user: str | None = None,
        host: str | None = None,
        history: Callable[[], Iterable[HistoryRow]] = tuple,
    ) -> None:
        """`history` makes the rows from before the demo began, when they are first requested."""
        self.trainer = trainer
        self.name = name
        self.id = "".join(Random(f"{trainer.run.name} {name} {began:.0f}").choices(LETTERS, k=8))
        self.began = began
        self.state = state
        self.heartbeat_at = began
        self.is_silent = False
        self._user, self._host = user or trainer.user, host or trainer.run.nodes[0]
        self._commit = Random(f"{name} commit").randbytes(20).hex()
        self._history: Callable[[], Iterable[HistoryRow]] | None = history
        self._metrics: defaultdict[str, MetricHistory] = defaultdict(MetricHistory)
        self._summary: dict[str, float | str] = {}
        self._step: int | None = None
        self._rows = 0
        self._sample_step: int | None = None
        """The step of the newest sample."""
        self._newest_sample: tuple[tuple[Sample, bytes], ...] = ()
        """The newest sample with its file, once it is made."""

    @property
    def is_alive(self) -> bool:
        return self.state == "running" and not self.is_silent

    def log(self, at: Instant, step: int, values: Mapping[str, float]) -> None:
        """Log one row of the history."""
        self._add(at, step, values)
        self.summarize(at, step, values)

    def summarize(self, at: Instant, step: int, values: Mapping[str, float], rows: int = 1) -> None:
        """Update the summary after this number of new rows."""
        self._rows += rows
        self._step = step
        self._summary |= {**values, "_step": float(step), "_timestamp": at, "_runtime": at - self.began}
        if self.trainer.format == "hf":
            self._summary["train/global_step"] = float(step)

    def points(self, key: str, since: float) -> Points:
        """The points of a metric from that step on."""
        if self._history is not None:  # its rows come before all others
            history, self._history = self._history, None
            newer, self._metrics = self._metrics, defaultdict(MetricHistory)
            for at, step, values in history():
                self._add(at, step, values)
            for name, metric in newer.items():
                for row in zip(*metric.columns, strict=True):
                    self._metrics[name].add(*row)
        return self._metrics.get(key, MetricHistory()).since(since)

    def log_sample(self, step: int) -> None:
        """Log a sample. It is made at the first request: that takes as long as a thousand steps."""
        self._sample_step, self._newest_sample = step, ()

    def samples(self) -> tuple[Sample, ...]:
        return tuple(sample for sample, _ in self._newest())

    def file(self, name: str) -> bytes | None:
        """The content of one of its files."""
        return next((data for sample, data in self._newest() if sample.file == name), None)

    def _newest(self) -> tuple[tuple[Sample, bytes], ...]:
        """The newest sample: a picture from the video model, or answers from the chat model."""
        step = self._sample_step
        if self._newest_sample or step is None:
            return self._newest_sample
        number = f"{step}_{zlib.crc32(f'{self.id} {step}'.encode()):08x}"
        match self.trainer.run.name:
            case "video-2b":
                name, data = f"media/images/val/frames_{number}.png", frame(step, step / self.trainer.target)
                sample = Sample(
                    key="val/frames", kind="image", file=name, step=step, bytes=len(data), width=WIDTH, height=HEIGHT,
                    caption="a sun over a hill", note="the first of 4",
                )  # fmt: skip
                self._newest_sample = ((sample, data),)
            case "sft-chat":
                name, data = f"media/table/eval/answers_{number}.table.json", answers(step)
                sample = Sample(key="eval/answers", kind="table", file=name, step=step, bytes=len(data))
                self._newest_sample = ((sample, data),)
        return self._newest_sample

    def listed(self) -> WandbRun:
        """The run as W&B lists it."""
        trainer, spec = self.trainer, self.trainer.run.wandb
        assert spec is not None
        entity, _, project = spec.project.partition("/")
        return WandbRun(
            entity=entity, project=project, id=self.id, name=self.name, state=self.state, group=spec.group,
            url=f"{SERVER}/{spec.project}/runs/{self.id}", created_at=self.began, heartbeat_at=self.heartbeat_at,
            step=self._step, lines=self._rows, tags=("final",), user=self._user, host=self._host, commit=self._commit,
            summary=dict(self._summary), config={
                "command": trainer.command,
                "global_batch_size": str(trainer.batch),
                "tokens_per_step": f"{trainer.tokens_per_step:,}",
                "learning_rate": "0.0003",
                "world_size": str(len(trainer.run.nodes) * GPUS),
                "save_interval": str(trainer.save_every),
            },
        )  # fmt: skip

    def _add(self, at: Instant, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._metrics[key].add(step, at, value)


def frame(step: int, done: float) -> bytes:
    """A sun over a hill as PNG. `done` is the finished share of the training, from 0 to 1."""
    random = Random(step)
    grain = 150 * (1 - done) ** 2 + 6
    sun = 12 + 72 * random.random()
    rows = bytearray()
    for y in range(HEIGHT):
        rows.append(0)  # no filter
        for x in range(WIDTH):
            noise = grain * (random.random() - 0.5)
            is_hill = y > HEIGHT * (0.72 + 0.1 * math.sin(x / 15))
            colour = HILL if is_hill else SUN if math.hypot(x - sun, y - 18) < 9 else SKY
            rows += bytes(max(0, min(255, int(part + noise))) for part in colour)
    png = b"\x89PNG\r\n\x1a\n"
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 6)), (b"IEND", b"")):
        png += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return png


def answers(step: int) -> bytes:
    """Prompts and a model's answers, as a W&B table."""
    data = [
        ["What is a checkpoint?", "A file from which training goes on."],
        ["Why did the loss jump?", f"Look at the data of step {step}."],
        ["Is the run alive?", "It stepped 2s ago."],
    ]
    return json.dumps({"columns": ["prompt", "answer"], "data": data}).encode()


HEARTBEAT_EVERY: Seconds = 15.0
CRASHED_AFTER: Seconds = 18.0
"""The server marks a run as crashed after this time without a heartbeat. A real server waits five minutes."""
KEPT_ATTEMPTS = 8
"""The maximum number of W&B runs in a group."""
GUEST_NUMBER = -9
"""The attempt number of the unexpected second run: its noise differs from every real attempt."""

LOGIN = Credentials("https://api.wandb.example", "the demo")


class WandbGroup:
    """The W&B runs of one training run: one per attempt, and at times an unexpected guest run."""

    def __init__(self, loop: TrainingLoop, now: Instant) -> None:
        self.loop = loop
        self.attempts = [_earlier(loop, attempt) for attempt in all_attempts(loop.trainer, now)]
        """The oldest first."""
        self._own: DemoWandbRun | None = self.attempts[-1]
        """The attempt that trains now."""
        self._guest: DemoWandbRun | None = None
        self._guest_step = 0
        self._guest_at = now

    def apply(self, effect: Effect) -> None:
        """Log what the training loop did."""
        match effect:
            case MetricsLogged(metrics):
                self._current(metrics.at).log(metrics.at, metrics.step, wandb_row(self.loop.trainer, metrics))
            case Validated(metrics):
                loss = self.loop.generator.validation(metrics.step, self.loop.attempt)
                attempt = self._current(metrics.at)
                attempt.log(metrics.at, metrics.step, {NAMES[self.loop.trainer.format].validation: loss})
                attempt.log_sample(metrics.step)
            case AttemptEnded(exit_code, silent) if self._own is not None:
                self._own.is_silent = silent
                if not silent:
                    self._own.state = "failed" if exit_code else "finished"
                self._own = None

    def advance(self, now: Instant) -> None:
        """Send heartbeats, mark silent runs as crashed, and let the guest step."""
        for attempt in self.attempts:
            if attempt.is_alive and now - attempt.heartbeat_at >= HEARTBEAT_EVERY:
                attempt.heartbeat_at = now
            elif attempt.is_silent and attempt.state == "running" and now - attempt.heartbeat_at >= CRASHED_AFTER:
                attempt.state = "crashed"
        trainer = self.loop.trainer
        while self._guest is not None and self._guest_at + trainer.step_time <= now:
            self._guest_at += trainer.step_time
            self._guest_step += 1
            metrics = self.loop.generator.metrics(
                self._guest_at, self._guest_step, trainer.step_time, attempt=GUEST_NUMBER
            )
            self._guest.log(self._guest_at, self._guest_step, wandb_row(trainer, metrics))

    def start_guest(self, now: Instant) -> None:
        """Start a debug run in this group: its owner forgot to change the group."""
        trainer = self.loop.trainer
        self._guest = DemoWandbRun(trainer, f"{trainer.run.name}-debug", now, user="lea", host="lea-desktop")
        self._guest_step, self._guest_at = 0, now
        self._add(self._guest)

    def finish_guest(self) -> None:
        if self._guest is not None:
            self._guest.state, self._guest = "finished", None

    def _current(self, at: Instant) -> DemoWandbRun:
        """The attempt that trains now. Its W&B run appears with its first row."""
        if self._own is None:
            self._own = DemoWandbRun(self.loop.trainer, f"{self.loop.trainer.run.name}-{self.loop.job}", at)
            self._add(self._own)
        return self._own

    def _add(self, attempt: DemoWandbRun) -> None:
        self.attempts = [*self.attempts[1 - KEPT_ATTEMPTS :], attempt]


class WandbServer:
    """Answers requests at once. Its caller holds the world's lock."""

    def __init__(self, loops: Mapping[str, TrainingLoop], now: Instant) -> None:
        self.groups = {name: WandbGroup(loop, now) for name, loop in loops.items()}
        self.is_down = False

    def query(self, request: AnyRequest, answer_type: type[AnswerType]) -> AnswerType:
        """Answer a request, like the child process that speaks with the real W&B.

        Raises:
            WandbError: when W&B is down, or has no such run or file.
        """
        if self.is_down:
            raise WandbError(
                "W&B cannot be reached: dial tcp 192.0.2.7:443: connect: connection refused", kind="unreachable",
                hint="check that this machine can reach it; the runs train on without it",
            )  # fmt: skip
        answer = self._answer(request)
        if not isinstance(answer, answer_type):
            raise WandbError("the demo's W&B does not know that", kind="absent")
        return answer

    def close(self) -> None:
        """It is no connection."""

    def _answer(self, request: AnyRequest) -> AnyAnswer | None:
        match request:
            case ListRuns(spec=spec, limit=limit):
                groups = (group for group in self.groups.values() if group.loop.trainer.run.wandb == spec)
                found = [attempt for group in groups for attempt in reversed(group.attempts)][:limit]
                return RunList(
                    runs=tuple(attempt.listed() for attempt in found),
                    samples={attempt.id: attempt.samples() for attempt in found if attempt.samples()},
                    history_keys={attempt.id: tuple(filter(None, NAMES[attempt.trainer.format])) for attempt in found},
                )
            case ReadHistory(path=path, keys=keys, since=since):
                attempt = self._find(path)
                points = {key: attempt.points(key, since.get(key, 0.0)) for key in keys}
                packed = {key: PackedPoints.of(new) for key, new in points.items() if new.steps}
                return HistoryPoints(path=path, points=packed)
            case FetchFile(path=path, file=file, directory=directory):
                content, target = self._find(path).file(file), Path(directory, Path(file).name)
                if content is None:
                    raise WandbError(f"{file} no longer exists", kind="absent")
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
                except OSError as error:
                    why = (error.strerror or "it cannot be written").lower()
                    raise WandbError(f"{target}: {why}", kind="sdk") from error
                return FetchedFile(path=path, file=file, saved_as=str(target))
        return None

    def _find(self, path: str) -> DemoWandbRun:
        name = path.rpartition("/")[2]
        found = (attempt for group in self.groups.values() for attempt in group.attempts if attempt.id == name)
        attempt = next(found, None)
        if attempt is None:
            raise WandbError(f"{path} no longer exists", kind="absent")
        return attempt


def _earlier(loop: TrainingLoop, attempt: Attempt) -> DemoWandbRun:
    """The W&B run of an attempt that began before the demo."""
    trainer, generator = loop.trainer, loop.generator
    run = DemoWandbRun(
        trainer, f"{trainer.run.name}-{trainer.job + 7 * attempt.number}", attempt.began, state=attempt.state,
        history=partial(history_rows, trainer, generator, attempt),
    )  # fmt: skip
    run.summarize(*summary_row(trainer, generator, attempt), attempt.last - attempt.first)
    run.heartbeat_at = attempt.ended
    step = max(validation_steps(trainer, attempt), default=None)
    if step is not None and attempt.number == 0:
        run.log_sample(step)
    return run
