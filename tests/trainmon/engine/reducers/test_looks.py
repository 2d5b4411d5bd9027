"""Looks at the ranks of a run: the latest of each source, until the next step or the next start."""

from __future__ import annotations

from msgspec.structs import replace

from trainmon.analysis.attempts import merged
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import Attempt, Job, JobsListed, LookSource, Progress, RankLook, Run, RunLooked, RunSpec, State

RUN = Run(spec=RunSpec(name="llm", cluster="prod", job="llm"), progress=Progress(step=10, at=100.0))


def looked(state: State, at: float, source: LookSource = "nccl-ras", now: float | None = None) -> State:
    look = RankLook(source=source, at=at, summary=f"seen at {at:g}")
    return reduce(state, [RunLooked("llm", look)], now or at)


def shown(state: State) -> list[tuple[str, float]]:
    return [(look.source, look.at) for look in state.runs["llm"].looks]


def test_the_latest_look_of_each_source_is_kept() -> None:
    state = looked(looked(State(runs={"llm": RUN}), 130.0), 140.0, "proc")
    state = looked(looked(state, 150.0), 145.0, now=151.0)
    assert shown(state) == [("proc", 140.0), ("nccl-ras", 150.0)]
    failed = RankLook(source="proc", at=155.0, summary="no route to n1", is_answer=False)
    assert shown(reduce(state, [RunLooked("llm", failed)], 155.0)) == [("proc", 140.0), ("nccl-ras", 150.0)]
    unknown = reduce(state, [RunLooked("gone", RankLook(source="proc", at=1.0, summary=""))], 152.0)
    assert unknown.runs.keys() == {"llm"}


def test_a_step_or_a_new_start_ends_what_a_look_says() -> None:
    assert shown(looked(State(runs={"llm": RUN}), 99.0, now=120.0)) == []  # its last step came later
    state = looked(State(runs={"llm": RUN}), 130.0)
    state = reduce(State(runs={"llm": state.runs["llm"]}), [], 131.0)
    assert shown(state) == [("nccl-ras", 130.0)]
    job = Job(cluster="prod", id="88", number=88, name="llm", user="ana", state="RUNNING", started_at=160.0)
    assert shown(reduce(state, [JobsListed("prod", 161.0, (job,))], 161.0)) == []
    again = Attempt(attempt_id="2", run_id="llm", cluster="prod", started_at=160.0)
    assert shown(reduce(replace(state, attempts={"2": again}), [], 161.0)) == []  # without a job


def test_what_a_look_has_shown_stays_with_its_attempt_whatever_comes_after_it() -> None:
    old, new = (Attempt(attempt_id=name, run_id="llm", cluster="prod", job_id=name) for name in ("88", "89"))
    state = State(runs={"llm": RUN}, attempts={"88": old, "89": new})
    look = RankLook(source="flight-recorder", at=99.0, summary="rank 3 never entered", ranks=(3,))
    state = reduce(state, [RunLooked("llm", look, "88")], 120.0)
    assert [one.looks for one in state.attempts.values()] == [(look,), ()]
    failed = RankLook(source="flight-recorder", at=130.0, summary="no rank has a dump", is_answer=False)
    state = reduce(state, [RunLooked("llm", failed, "88"), RunLooked("llm", look, "gone")], 131.0)
    assert [one.looks for one in state.attempts.values()] == [(look,), ()]
    other, newer = replace(look, source="proc"), replace(look, at=140.0)
    seen = merged(replace(old, looks=(look, other)), replace(old, looks=(newer,)))
    assert seen.looks == (newer, other)
