"""Looks at the ranks of each run that makes no steps although it should, without a person: twice for each stall."""

from __future__ import annotations

from collections.abc import Callable

from trainmon.analysis.runs import STILL
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import SILENT, LookReply, Run, State

AT_MOST = 2
AGAIN: Seconds = 120.0
"""How long after the first look the second one is made: it shows that nothing has moved, and for how long."""


class AutomaticLooks:
    """Watches the State. Of several programs, the one that sends notifications looks; its alerts have the result."""

    def __init__(self, ask: Callable[[str, Callable[[LookReply], object]], None], clock: Clock) -> None:
        self._ask, self._clock = ask, clock
        self._made: dict[str, tuple[object, int, Instant]] = {}
        """By run: its last stall, how often it was looked at, and when it is next."""

    def observe(self, state: State) -> None:
        """Ask for looks at the runs that are due. On the engine's thread; never waits."""
        now = self._clock.now()
        self._made = {name: made for name, made in self._made.items() if name in state.runs}
        for name, run in state.runs.items() if state.leadership.holder in ("us", "nobody") else ():
            if run.verdict not in SILENT or is_paused(run, state):
                continue
            stall = (run.progress.at, run.job)
            known, count, due_at = self._made.get(name, (None, 0, 0.0))
            count = count if known == stall else 0
            if count < AT_MOST and (known != stall or now >= due_at):
                self._made[name] = stall, count + 1, now + AGAIN
                self._ask(name, lambda reply: None)


def is_paused(run: Run, state: State) -> bool:
    """Whether its job is suspended: none of its ranks can answer."""
    job = state.jobs.get(run.job or "")
    return job is not None and job.state in STILL
