"""Looks without a person: at a run that makes no steps although it should, twice for each stall."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from trainmon.model import Job, Leadership, LookReply, Progress, Run, RunSpec, State, Verdict
from trainmon.runtime.looks import AutomaticLooks

RUN = Run(spec=RunSpec(name="llm", cluster="prod"), verdict="hung", progress=Progress(step=9, at=100.0))


class Asked:
    """The clock, and what was asked when."""

    def __init__(self) -> None:
        self.at = 1_000.0
        self.made: list[float] = []
        self.looks = AutomaticLooks(self.ask, self)

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at

    def ask(self, run: str, reply: Callable[[LookReply], object]) -> None:
        assert run == "llm"
        self.made.append(self.at)

    def see(self, at: float, run: Run = RUN, **more: object) -> None:
        self.at = at
        self.looks.observe(replace(State(runs={"llm": run}), **more))


def test_a_stall_is_looked_at_twice() -> None:
    asked = Asked()
    for at in range(1_000, 3_000, 10):
        asked.see(at)
    assert asked.made == [1_000, 1_120]
    asked.see(3_000, replace(RUN, verdict="healthy", progress=Progress(step=10, at=2_995.0)))
    asked.see(4_000, replace(RUN, verdict="stalled", progress=Progress(step=10, at=2_995.0)))
    assert asked.made == [1_000, 1_120, 4_000]


def test_a_run_that_goes_on_or_is_suspended_is_left_alone() -> None:
    asked = Asked()
    verdicts: tuple[Verdict, ...] = ("healthy", "starting", "saving", "evaluating", "unknown", "dead", "queued")
    for verdict in verdicts:
        asked.see(1_000, replace(RUN, verdict=verdict))
    job = Job(cluster="prod", id="88", number=88, state="SUSPENDED")
    asked.see(1_000, replace(RUN, verdict="stalled", jobs=(job.key,)), jobs={job.key: job})
    assert asked.made == []


def test_of_several_programs_the_one_that_notifies_looks() -> None:
    asked = Asked()
    asked.see(1_000, leadership=Leadership(holder="other"))
    asked.see(1_000, leadership=Leadership(holder="daemon"))
    assert asked.made == []
    for at in range(1_010, 3_000, 10):  # the other one has ended
        asked.see(at, leadership=Leadership(holder="us"))
    assert asked.made == [1_010, 1_130]
