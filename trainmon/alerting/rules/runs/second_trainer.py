"""The rule about two trainers that write the same checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from trainmon.alerting.rules.runs.base import all_sources, tail
from trainmon.alerting.rules.runs.retries import AttemptRule
from trainmon.analysis.runs import survivor, survivor_text, two_writers
from trainmon.lib import Instant
from trainmon.model import Attempt, Finding, Run, State


class SecondTrainer(AttemptRule, frozen=True, kw_only=True):
    """A trainer outlived its job: more than 30s after the scheduler's end, at least two new steps or checkpoints were
    written. Or two running jobs commit steps into one directory. No automatic retry follows, and `queue` and `requeue`
    ask for the job id."""

    name: ClassVar[str] = "second-trainer"
    origin: ClassVar[str] = "our choice: two trainers destroy each other's checkpoints"
    may_flap: ClassVar[bool] = False

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        return all_sources(state, run)

    def check_attempts(self, state: State, run: Run, attempts: Sequence[Attempt], now: Instant) -> Iterator[Finding]:
        one, both = survivor(run, attempts, now), two_writers(run, state)
        if one is not None:
            summary = f"{run.name}: {survivor_text(one, now)}"
            advice = (
                f"end its processes on {', '.join(one.nodes) or 'its nodes'} before the run starts again: a second "
            )
            advice += "trainer would write to the same checkpoints"
        elif both is not None:
            summary = f"{run.name}: jobs {both[0].id} and {both[1].id} both commit steps to {run.spec.checkpoints}"
            advice = f"cancel one of them: trainmon-tui cancel {both[1].id}; then check the newest checkpoint"
        else:
            return
        yield self.finding(
            state, run, "critical", summary, evidence=tail(run), advice=advice, fires_at_once=True, by_age=True
        )
