"""The W&B of the demo: a group for each run, and the answers to what the dashboard asks of the real one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from collectors.demo.model import history as past
from collectors.demo.model.attempt import Attempt
from collectors.demo.model.effects import Effect, Ended, Logged, Validated
from collectors.demo.model.metrics import NAMES, row
from collectors.demo.training.loop import Loop
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

SWEEP: Seconds = 18.0
"""So long after its last heartbeat a run is called crashed. A real server waits for five minutes."""
KEPT = 8
"""Attempts of a group."""
GUEST = -9
"""The number of the attempt that nobody expected."""

LOGIN = Credentials("https://api.wandb.example", "the demo")


class Group:
    """The attempts of one run."""

    def __init__(self, loop: Loop, now: Instant) -> None:
        self.loop = loop
        self.attempts = list(_before(loop, now))
        """The oldest first."""
        self._own: Attempt | None = self.attempts[-1]
        """The one that trains as the cluster knows it."""
        self._guest: Attempt | None = None
        self._guest_step = 0
        self._guest_at = now

    def told(self, effect: Effect) -> None:
        """The training loop has done something."""
        match effect:
            case Logged(moment):
                self._present(moment.at).log(moment.at, moment.step, row(self.loop.trainer, moment))
            case Validated(moment):
                name = NAMES[self.loop.trainer.format].validation
                value = self.loop.course.validation(moment.step, self.loop.attempt)
                self._present(moment.at).log(moment.at, moment.step, {name: value})
                self._present(moment.at).draw(moment.step)
            case Ended(exit_code, silent) if self._own is not None:
                self._own.is_silent = silent
                if not silent:
                    self._own.state = "failed" if exit_code else "finished"
                self._own = None

    def advance(self, now: Instant) -> None:
        """Hearts beat, those that do not are noticed, and the guest steps."""
        for attempt in self.attempts:
            if attempt.is_alive:
                attempt.live(now)
            elif attempt.is_silent and attempt.state == "running" and now - attempt.beat >= SWEEP:
                attempt.state = "crashed"
        self._let_step(now)

    def invite(self, now: Instant) -> None:
        """Somebody starts the run a second time, to try something, and forgets to change the group."""
        name = self.loop.trainer.run.name
        self._guest = Attempt(self.loop.trainer, f"{name}-debug", now, user="lea", host="lea-desktop")
        self._guest_step, self._guest_at = 0, now
        self._add(self._guest)

    def dismiss(self) -> None:
        if self._guest is not None:
            self._guest.state, self._guest = "finished", None

    def _let_step(self, now: Instant) -> None:
        trainer = self.loop.trainer
        while self._guest is not None and self._guest_at + trainer.step_time <= now:
            self._guest_at += trainer.step_time
            self._guest_step += 1
            moment = self.loop.course.moment(self._guest_at, self._guest_step, trainer.step_time, attempt=GUEST)
            self._guest.log(self._guest_at, self._guest_step, row(trainer, moment))

    def _present(self, at: Instant) -> Attempt:
        """The attempt that logs. W&B hears of it with its first row."""
        if self._own is None:
            self._own = Attempt(self.loop.trainer, f"{self.loop.trainer.run.name}-{self.loop.job}", at)
            self._add(self._own)
        return self._own

    def _add(self, attempt: Attempt) -> None:
        self.attempts = [*self.attempts[1 - KEPT :], attempt]


class Server:
    """Who is asked. Nothing in it waits; the world is held while it answers."""

    def __init__(self, loops: Mapping[str, Loop], now: Instant) -> None:
        self.groups = {name: Group(loop, now) for name, loop in loops.items()}
        self.is_down = False

    def ask(self, asked: AnyRequest, wanted: type[AnswerType]) -> AnswerType:
        """As of the child that speaks with the real one."""
        if self.is_down:
            words = "W&B cannot be reached: dial tcp 192.0.2.7:443: connect: connection refused"
            raise WandbError(words, kind="unreachable", hint="can this machine reach it? The runs train on without it")
        answer = self._answer(asked)
        if not isinstance(answer, wanted):
            raise WandbError("the demo's W&B does not know that", kind="absent")
        return answer

    def close(self) -> None:
        """It is no connection."""

    def _answer(self, asked: AnyRequest) -> AnyAnswer | None:
        match asked:
            case ListRuns(spec=spec, limit=limit):
                groups = (group for group in self.groups.values() if group.loop.trainer.run.wandb == spec)
                found = [attempt for group in groups for attempt in reversed(group.attempts)][:limit]
                return RunList(
                    runs=tuple(attempt.told() for attempt in found),
                    samples={attempt.id: attempt.samples() for attempt in found if attempt.samples()},
                    history_keys={attempt.id: attempt.keys() for attempt in found},
                )
            case ReadHistory(path=path, keys=keys, since=since):
                attempt = self._find(path)
                points = {key: attempt.points(key, since.get(key, 0.0)) for key in keys}
                return HistoryPoints(
                    path=path, points={key: PackedPoints.of(grown) for key, grown in points.items() if grown.steps}
                )
            case FetchFile(path=path, directory=directory):
                return _written(asked, self._find(path), directory)
        return None

    def _find(self, path: str) -> Attempt:
        name = path.rpartition("/")[2]
        for group in self.groups.values():
            for attempt in group.attempts:
                if attempt.id == name:
                    return attempt
        raise WandbError(f"{path} is not there any more", kind="absent")


def _written(asked: FetchFile, attempt: Attempt, directory: str) -> FetchedFile:
    found = attempt.file(asked.file)
    if found is None:
        raise WandbError(f"{asked.file} is not there any more", kind="absent")
    there = Path(directory, found[0])
    try:
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(found[1])
    except OSError as error:
        raise WandbError(f"{there}: {(error.strerror or 'it cannot be written').lower()}", kind="sdk") from error
    return FetchedFile(path=asked.path, file=asked.file, kept=str(there))


def _before(loop: Loop, now: Instant) -> Iterator[Attempt]:
    """The attempts from before the demo began; the last of them trains."""
    trainer, course = loop.trainer, loop.course
    for stretch in past.stretches(trainer, now):
        attempt = Attempt(
            trainer, f"{trainer.run.name}-{trainer.job + 7 * stretch.number}", stretch.began, state=stretch.state,
            past=partial(past.rows, trainer, course, stretch),
        )  # fmt: skip
        attempt.summarize(*past.last_row(trainer, course, stretch), stretch.last - stretch.first)
        attempt.beat = stretch.ended
        step = past.last_validation(trainer, stretch)
        if step is not None and stretch.number == 0:
            attempt.draw(step)
        yield attempt
