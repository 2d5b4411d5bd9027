"""One run in the demo's W&B: its history, its summary and its logged samples."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from random import Random
from zlib import crc32

from collectors.demo.model.history import Row
from collectors.demo.model.images import HEIGHT, WIDTH, answers, frame
from collectors.demo.model.inventory import GPUS, Trainer
from collectors.demo.model.metrics import NAMES
from trainmon.lib import Instant, Seconds
from trainmon.model import Points, Sample, WandbRun

SERVER = "https://wandb.example"
"""A reserved name (RFC 2606): `b` can open no stranger's page."""
HEARTBEAT_EVERY: Seconds = 15.0
ROWS_KEPT = 3_000
"""Per metric: a demo may run for weeks, and the engine keeps what it has read."""
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class MetricHistory:
    """The values of one metric with their steps and times."""

    def __init__(self) -> None:
        self.steps = array("d")
        self.times = array("d")
        self.values = array("d")

    def add(self, step: float, at: Instant, value: float) -> None:
        self.steps.append(step)
        self.times.append(at)
        self.values.append(value)
        if len(self.values) > ROWS_KEPT:
            for column in (self.steps, self.times, self.values):
                del column[: ROWS_KEPT // 2]

    def since(self, step: float) -> Points:
        begin = bisect_left(self.steps, step)
        return Points(self.steps[begin:], self.times[begin:], self.values[begin:])


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
        history: Callable[[], Iterable[Row]] = tuple,
    ) -> None:
        """`history` makes the rows from before the demo began, at the first request for them."""
        self.trainer = trainer
        self.name = name
        self.id = "".join(Random(f"{trainer.run.name} {name} {began:.0f}").choices(LETTERS, k=8))
        self.began = began
        self.state = state
        self.heartbeat_at = began
        self.is_silent = False
        self._user, self._host = user or trainer.user, host or trainer.run.nodes[0]
        self._commit = Random(f"{name} commit").randbytes(20).hex()
        self._history: Callable[[], Iterable[Row]] | None = history
        self._metrics: dict[str, MetricHistory] = {}
        self._summary: dict[str, float | str] = {}
        self._step: int | None = None
        self._rows = 0
        self._sample_step: int | None = None
        """The step of the newest sample."""
        self._sample: tuple[Sample, bytes] | None = None

    @property
    def is_alive(self) -> bool:
        return self.state == "running" and not self.is_silent

    def beat(self, now: Instant) -> None:
        """Send a heartbeat when one is due."""
        if now - self.heartbeat_at >= HEARTBEAT_EVERY:
            self.heartbeat_at = now

    def log(self, at: Instant, step: int, values: Mapping[str, float]) -> None:
        """Log one row of the history."""
        self._write(at, step, values)
        self.summarize(at, step, values)

    def summarize(self, at: Instant, step: int, values: Mapping[str, float], rows: int = 1) -> None:
        """Update the summary, after so many more rows."""
        self._rows += rows
        self._step = step
        self._summary |= {**values, "_step": float(step), "_timestamp": at, "_runtime": at - self.began}
        if self.trainer.format == "hf":
            self._summary["train/global_step"] = float(step)

    def points(self, key: str, since: float) -> Points:
        """The points of a metric from that step on."""
        self._load_history()
        return self._metrics.get(key, MetricHistory()).since(since)

    def log_sample(self, step: int) -> None:
        """Log a sample. It is made at the first request: that takes as long as a thousand steps."""
        self._sample_step, self._sample = step, None

    def samples(self) -> tuple[Sample, ...]:
        newest = self._newest_sample()
        return () if newest is None else newest[:1]

    def file(self, name: str) -> tuple[str, bytes] | None:
        """One of its files: the name without folders, and the content."""
        newest = self._newest_sample()
        return None if newest is None or newest[0].file != name else (PurePosixPath(name).name, newest[1])

    def _newest_sample(self) -> tuple[Sample, bytes] | None:
        if self._sample is None and self._sample_step is not None:
            self._sample = self._make_sample(self._sample_step)
        return self._sample

    def _make_sample(self, step: int) -> tuple[Sample, bytes] | None:
        """A picture from the video model, or answers from the chat model."""
        number = f"{step}_{crc32(f'{self.id} {step}'.encode()):08x}"
        match self.trainer.run.name:
            case "video-2b":
                name, data = f"media/images/val/frames_{number}.png", frame(step, step / self.trainer.target)
                return Sample(
                    key="val/frames", kind="image", file=name, step=step, bytes=len(data), width=WIDTH, height=HEIGHT,
                    caption="a sun over a hill", note="the first of 4",
                ), data  # fmt: skip
            case "sft-chat":
                name, data = f"media/table/eval/answers_{number}.table.json", answers(step)
                return Sample(key="eval/answers", kind="table", file=name, step=step, bytes=len(data)), data
        return None

    def keys(self) -> tuple[str, ...]:
        return NAMES[self.trainer.format].charted

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

    def _load_history(self) -> None:
        """Put the rows from before the demo began in front of all others."""
        if self._history is None:
            return
        history, self._history = self._history, None
        newer, self._metrics = self._metrics, {}
        for at, step, values in history():
            self._write(at, step, values)
        for key, metric in newer.items():
            whole = self._metrics.setdefault(key, MetricHistory())
            for row in zip(metric.steps, metric.times, metric.values, strict=True):
                whole.add(*row)

    def _write(self, at: Instant, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._metrics.setdefault(key, MetricHistory()).add(step, at, value)
