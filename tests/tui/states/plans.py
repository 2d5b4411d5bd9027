"""Plans: made by hand, and by the real planner; States with jobs to ask them of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.trainmon.analysis.retries.attempts import ended
from tests.tui.backend import FakeBackend
from tests.tui.states import alerts as alert_states
from tests.tui.states import states
from tests.tui.states import wandb as wandb_states
from tests.tui.states.states import NOW, queued, run, source, troubled
from tests.tui.states.wandb_runs import filled
from trainmon.actions import planning as actions
from trainmon.actions.planning import Actor, Readback
from trainmon.model import (
    Action,
    ActionRequest,
    Cluster,
    CreateFile,
    Execute,
    Job,
    Milestone,
    Plan,
    Record,
    Refusal,
    Run,
    State,
)

LOGIN = "login1"


def job(number: int, state: str = "RUNNING", **facts: object) -> Job:
    plain: dict[str, object] = {
        "cluster": "prod", "id": str(number), "number": number, "name": f"job-{number}", "user": "me", "state": state,
        "nodes": ("gpu-001", "gpu-002") if state == "RUNNING" else (), "node_count": 2, "submitted_at": NOW - 9_000.0,
        "started_at": NOW - 8_000.0 if state == "RUNNING" else None,
    }  # fmt: skip
    return Job(**{**plain, **facts})  # type: ignore[arg-type]


def with_jobs(read_only: bool = False) -> State:
    """The troubled cluster; its hung run and a calm one have jobs, and one job waits for nobody's run."""
    jobs = (job(418223), job(418190), job(418500, "PENDING", reason="Priority", nodes=()))
    state = troubled()
    runs = {
        **state.runs,
        "llm-7b-a": msgspec.structs.replace(state.runs["llm-7b-a"], jobs=("prod/418223",)),
        "llm-70b": run("llm-70b", jobs=("prod/418190",)),
    }
    return msgspec.structs.replace(
        state,
        runs=runs,
        jobs={one.key: one for one in jobs},
        clusters={"prod": Cluster(name="prod", login=LOGIN, me="me")},
        sources={**state.sources, f"node:{LOGIN}": source(0, name=f"node:{LOGIN}")},
        read_only=read_only,
    )


def acting() -> State:
    """The cluster with a queue; its runs have switches and a script."""
    state = queued()
    return msgspec.structs.replace(state, runs={name: _switched(one) for name, one in state.runs.items()})


def _switched(one: Run) -> Run:
    folder = f"/fsx/{one.name}"
    spec = msgspec.structs.replace(
        one.spec, kill_switch=f"{folder}/kill-switch", save_switch=f"{folder}/save-switch", script=f"{folder}/train.sl"
    )
    return msgspec.structs.replace(one, spec=spec)


def planned(state: State) -> Callable[[ActionRequest], Plan]:
    """The real plans, as if everything that the State says had been read just now."""
    readback = Readback(at=NOW, jobs=state.jobs)
    return lambda ask: actions.plan(ask, state, readback, Actor("me", "laptop"), NOW)


def attempted(count: int = 2) -> State:
    """llm-70b has ended so many times, each attempt after half an hour, and runs again."""
    known: dict[str, Any] = {"run_id": "llm-70b", "job_id": "418190", "nodes": ("gpu-001",), "has_checkpoints": True}
    known |= {"first_step": 1, "last_step": 80, "last_committed_step": 60}
    done = [ended(number, "cuda-oom", "gpu-001: Xid 79", **known) for number in range(1, count + 1)]
    last = ended(count + 1, "cuda-oom", **known)
    runs = replace(last, end=None, seen_at=(last.started_at or 0.0) + 600.0)
    return replace(queued(), attempts={one.attempt_id: one for one in (*done, runs)})


STATES = {
    **states.STATES, **wandb_states.STATES, **alert_states.STATES, "acting": acting, "attempted": attempted,
}  # fmt: skip


def planning(state: State) -> FakeBackend:
    """A backend of this State that answers with the real plans, and has the curves of its runs."""
    backend = filled(state) if any(one.wandb for one in state.runs.values()) else FakeBackend(state)
    backend.plan = planned(state)
    return backend


def action(ask: ActionRequest, subject: str, **facts: object) -> Action:
    """Drops a kill switch; or what the facts say."""
    plain: dict[str, object] = {
        "id": f"{abs(hash((ask.verb, subject))):012x}"[:12], "verb": ask.verb, "subject": subject, "cluster": "prod",
        "host": LOGIN, "operation": CreateFile(f"/fsx/{subject}/kill-switch", f"trainmon-tui kill by me: {ask.why}"),
        "title": f"Create the kill switch of {subject}", "run": subject, "job": "prod/418223",
        "facts": (
            ("run", subject), ("job", "418223 (RUNNING on 2 nodes)"), ("owner", "me"), ("host", LOGIN),
            ("file", f"/fsx/{subject}/kill-switch"), ("last checkpoint", "step 81,200, 12m ago; 4 steps since"),
        ),
        "consequences": (
            "The trainer saves (usually about 95s) and exits at its next iteration (about 4s).",
            "The switch stays until someone removes it (U); until then a requeue (R) is refused.",
        ),
        "why": ask.why, "requested_at": ask.requested_at,
    }  # fmt: skip
    return Action(**{**plain, **facts})  # type: ignore[arg-type]


def kills(ask: ActionRequest) -> Plan:
    """One action for each row."""
    return Plan(request=ask, actions=tuple(action(ask, subject) for subject in ask.subjects))


def cancels(ask: ActionRequest) -> Plan:
    """Of a job on several nodes: its id must be typed."""
    made = tuple(
        action(
            ask, subject, operation=Execute(("scancel", "418223")), title="Cancel job 418223 of llm-7b-a",
            facts=(("job", "418223 (RUNNING on 2 nodes)"), ("host", LOGIN), ("command", "scancel 418223")),
            consequences=("Slurm ends it within 30s. 4 steps since the last checkpoint are lost.",),
        )
        for subject in ask.subjects
    )  # fmt: skip
    return Plan(request=ask, actions=made, typed="418223", because="job 418223 holds 2 nodes")


def refuses(ask: ActionRequest) -> Plan:
    return Plan(
        request=ask,
        refusals=tuple(
            Refusal(
                subject=subject, why="the kill switch has been armed for 4m by ana", hint="remove it first: U"
            ) for subject in ask.subjects
        ),
    )  # fmt: skip


SWITCHES = (("/fsx/kill", "kill switch, armed 4m ago by ana"), ("/fsx/save", "save switch, armed 9s ago by me"))


def switches(ask: ActionRequest) -> Plan:
    """Two armed switches: one is to be chosen first."""
    if ask.switch is None:
        return Plan(request=ask, choices=SWITCHES)
    return Plan(request=ask, actions=(action(ask, ask.subjects[0], title=f"Remove {ask.switch}"),))


def record(status: str = "asked", *marks: Milestone, **facts: object) -> Record:
    """What became of a save of llm-70b."""
    made = action(
        ActionRequest(verb="save", subjects=("llm-70b",), requested_at=NOW), "llm-70b", title="Save llm-70b", id="a1"
    )
    done = NOW + 1.0 if status == "done" else None
    plain: dict[str, object] = {"action": made, "status": status, "marks": marks, "done_at": done}
    return Record(**{**plain, **facts})  # type: ignore[arg-type]
