"""The demo's W&B: a group of runs for each training run, and a server for the dashboard's requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from collectors.demo.model.effects import AttemptEnded, Effect, MetricsLogged, Validated
from collectors.demo.model.metrics import (
    NAMES,
    Attempt,
    all_attempts,
    history_rows,
    summary_row,
    validation_steps,
    wandb_row,
)
from collectors.demo.model.wandb_run import DemoWandbRun
from collectors.demo.training.loop import TrainingLoop
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
                hint="can this machine reach it? The runs train on without it",
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
