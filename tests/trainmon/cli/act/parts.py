"""A cluster's State, and parts that answer with a given Plan, for tests of the commands that act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from trainmon.model import Action, ActionRequest, Cluster, Job, Node, Plan, Record, Run, RunSpec, Source, State


def job(number: int, name: str = "video-2b", **more: Any) -> Job:
    return Job(**{"cluster": "prod", "id": str(number), "number": number, "name": name, "state": "RUNNING", **more})


JOBS = (
    job(88),
    job(95, "sweep", id="91_3", array=91, tasks="3"),
    job(91, "sweep", id="91_[4-10%1]", array=91, tasks="4-10%1", state="PENDING"),
    job(60, "old", state="COMPLETED", gone_at=5.0),
)


def state(**changes: Any) -> State:
    """Cluster prod: run video-2b with job 88, the array 91 of no run, nodes gpu-001 and gpu-002."""
    run = Run(spec=RunSpec(name="video-2b", cluster="prod", kill_switch="/fsx/kill"), jobs=("prod/88",))
    slurm = Source(name="slurm:prod", kind="slurm", cluster="prod", health="ok", answered_at=9.0)
    whole = State(
        at=10.0,
        sources={"slurm:prod": slurm},
        clusters={"prod": Cluster(name="prod", login="login1")},
        runs={"video-2b": run},
        jobs={one.key: one for one in JOBS},
        nodes={name: Node(name=name, cluster="prod") for name in ("gpu-001", "gpu-002")},
    )
    return replace(whole, **changes)


class Parts:
    """Answers every Ask with one Plan; what is acted becomes what a test says, a State a step."""

    def __init__(self, plan: Plan | None = None, becomes: Sequence[Record] = (), *, now: State | None = None) -> None:
        self.state = now or state()
        self.requests: list[ActionRequest] = []
        self.acted: list[Action] = []
        self._plan = plan
        self._becomes = becomes
        self._sinks: list[Callable[[State], None]] = []

    def subscribe(self, sink: Callable[[State], None]) -> Callable[[], None]:
        self._sinks.append(sink)
        sink(self.state)
        return lambda: self._sinks.remove(sink)

    def prepare(self, ask: ActionRequest, reply: Callable[[Plan], None]) -> None:
        self.requests.append(ask)
        if self._plan is not None:
            reply(replace(self._plan, request=ask))

    def act(self, actions: Sequence[Action]) -> None:
        self.acted += actions
        for record in self._becomes:
            self.state = replace(self.state, actions={**self.state.actions, record.action.id: record})
            for sink in self._sinks:
                sink(self.state)
