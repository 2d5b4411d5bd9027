"""One run of the demo's W&B: an attempt with its history, its summary and what it logged to be looked at."""

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
"""A name that nobody can have: `b` opens no stranger's page."""
BEATS: Seconds = 15.0
ROWS_KEPT = 3_000
"""Of a metric: a demo may run for weeks, and what was read of it is with the engine."""
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


class Column:
    """One metric."""

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


class Attempt:
    """A run in a group of W&B."""

    def __init__(
        self,
        trainer: Trainer,
        name: str,
        began: Instant,
        *,
        state: str = "running",
        user: str | None = None,
        host: str | None = None,
        past: Callable[[], Iterable[Row]] = tuple,
    ) -> None:
        """`past` is what it logged before the demo began; it is made when somebody asks for it."""
        self.trainer = trainer
        self.name = name
        self.id = "".join(Random(f"{trainer.run.name} {name} {began:.0f}").choices(LETTERS, k=8))
        self.began = began
        self.state = state
        self.beat = began
        self.is_silent = False
        self._user, self._host = user or trainer.user, host or trainer.run.nodes[0]
        self._commit = Random(f"{name} commit").randbytes(20).hex()
        self._past: Callable[[], Iterable[Row]] | None = past
        self._columns: dict[str, Column] = {}
        self._summary: dict[str, float | str] = {}
        self._step: int | None = None
        self._rows = 0
        self._draws: int | None = None
        """The step at which it logged something to look at."""
        self._drawn: tuple[Sample, bytes] | None = None

    @property
    def is_alive(self) -> bool:
        return self.state == "running" and not self.is_silent

    def live(self, now: Instant) -> None:
        """Its process is there: it beats."""
        if now - self.beat >= BEATS:
            self.beat = now

    def log(self, at: Instant, step: int, values: Mapping[str, float]) -> None:
        """A row of its history."""
        self._write(at, step, values)
        self.summarize(at, step, values)

    def summarize(self, at: Instant, step: int, values: Mapping[str, float], rows: int = 1) -> None:
        """The latest values, which every list of runs shows, after so many more rows."""
        self._rows += rows
        self._step = step
        self._summary |= {**values, "_step": float(step), "_timestamp": at, "_runtime": at - self.began}
        if self.trainer.format == "hf":
            self._summary["train/global_step"] = float(step)

    def points(self, key: str, since: float) -> Points:
        """What is new of a metric, that step included."""
        self._recall()
        return self._columns.get(key, Column()).since(since)

    def draw(self, step: int) -> None:
        """It logs something to look at: made when somebody asks, it takes as long as a thousand steps."""
        self._draws, self._drawn = step, None

    def samples(self) -> tuple[Sample, ...]:
        newest = self._newest()
        return () if newest is None else newest[:1]

    def file(self, name: str) -> tuple[str, bytes] | None:
        """One of its files, under its own last name."""
        newest = self._newest()
        return None if newest is None or newest[0].file != name else (PurePosixPath(name).name, newest[1])

    def _newest(self) -> tuple[Sample, bytes] | None:
        if self._drawn is None and self._draws is not None:
            self._drawn = self._made(self._draws)
        return self._drawn

    def _made(self, step: int) -> tuple[Sample, bytes] | None:
        """Pictures of the video model, answers of the chat model."""
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

    def told(self) -> WandbRun:
        """The run as W&B lists it."""
        spec = self.trainer.run.wandb
        assert spec is not None
        entity, _, project = spec.project.partition("/")
        return WandbRun(
            entity=entity, project=project, id=self.id, name=self.name, state=self.state, group=spec.group,
            url=f"{SERVER}/{spec.project}/runs/{self.id}", created_at=self.began, heartbeat_at=self.beat,
            step=self._step, lines=self._rows, tags=("final",), user=self._user, host=self._host, commit=self._commit,
            summary=dict(self._summary), config=_config(self.trainer),
        )  # fmt: skip

    def _recall(self) -> None:
        """Take in what was logged before the demo began: those rows go before all others."""
        if self._past is None:
            return
        past, self._past = self._past, None
        since, self._columns = self._columns, {}
        for at, step, values in past():
            self._write(at, step, values)
        for key, column in since.items():
            mine = self._columns.setdefault(key, Column())
            for row in zip(column.steps, column.times, column.values, strict=True):
                mine.add(*row)

    def _write(self, at: Instant, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self._columns.setdefault(key, Column()).add(step, at, value)


def _config(trainer: Trainer) -> dict[str, str]:
    return {
        "command": trainer.command,
        "global_batch_size": str(trainer.batch),
        "tokens_per_step": f"{trainer.tokens_per_step:,}",
        "learning_rate": "0.0003",
        "world_size": str(len(trainer.run.nodes) * GPUS),
        "save_interval": str(trainer.save_every),
    }
