"""One run in the demo's W&B: its history, its summary and its logged samples, pictures and answers."""

from __future__ import annotations

import json
import math
import struct
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from random import Random

from collectors.demo.model.inventory import GPUS, Trainer
from collectors.demo.model.metrics import HistoryRow
from trainmon.lib import Instant
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
        self._metrics: dict[str, MetricHistory] = {}
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
        self._load_history()
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

    def _load_history(self) -> None:
        """Insert the rows from before the demo began before all others."""
        if self._history is None:
            return
        history, self._history = self._history, None
        newer, self._metrics = self._metrics, {}
        for at, step, values in history():
            self._add(at, step, values)
        for key, metric in newer.items():
            for row in zip(*metric.columns, strict=True):
                self._metrics.setdefault(key, MetricHistory()).add(*row)

    def _add(self, at: Instant, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            if key not in self._metrics:
                self._metrics[key] = MetricHistory()
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
