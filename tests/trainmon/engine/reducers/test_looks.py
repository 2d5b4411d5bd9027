"""Looks at the ranks of a run: the latest of each source, until the next step or the next start."""

from __future__ import annotations

from trainmon.engine.reducers.reduce import reduce
from trainmon.model import Job, JobsListed, LookSource, Progress, RankLook, Run, RunLooked, RunSpec, State

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
    unknown = reduce(state, [RunLooked("gone", RankLook(source="proc", at=1.0, summary=""))], 152.0)
    assert unknown.runs.keys() == {"llm"}


def test_a_step_or_a_new_start_ends_what_a_look_says() -> None:
    assert shown(looked(State(runs={"llm": RUN}), 99.0, now=120.0)) == []  # its last step came later
    state = looked(State(runs={"llm": RUN}), 130.0)
    state = reduce(State(runs={"llm": state.runs["llm"]}), [], 131.0)
    assert shown(state) == [("nccl-ras", 130.0)]
    job = Job(cluster="prod", id="88", number=88, name="llm", user="ana", state="RUNNING", started_at=160.0)
    assert shown(reduce(state, [JobsListed("prod", 161.0, (job,))], 161.0)) == []
