"""A small cluster at one moment, for the tests of plans and of what follows: a run that trains as job 88_3."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from trainmon.actions import planning as actions
from trainmon.actions.planning import Actor, FileStat, Readback
from trainmon.analysis.runs import jobs_of
from trainmon.lib import say
from trainmon.model import (
    Action,
    ActionRequest,
    Checkpoint,
    Checkpoints,
    Cluster,
    Gpu,
    Job,
    Log,
    Node,
    Plan,
    Process,
    Progress,
    Record,
    Refusal,
    Run,
    RunSpec,
    SchedulerNode,
    Source,
    State,
    Switch,
    Verb,
)

NOW = 1_795_262_400.0
"""2026-11-21T12:00:00Z"""

ANA = Actor("ana", "laptop")
KILL, SAVE = "/fsx/llm/kill", "/fsx/llm/save"
USR1 = 1 << 9
SPEC = RunSpec(
    name="llm", cluster="prod", job="llm", log="/fsx/llm.out", checkpoints="/fsx/ckpt", kill_switch=KILL,
    save_switch=SAVE, script="/fsx/train.slurm", nodes=("n1", "n2"),
)  # fmt: skip
RUNNING = Job(
    cluster="prod", id="88_3", number=91, array=88, tasks="3", name="llm", user="ana", state="RUNNING",
    nodes=("n1", "n2"), node_count=2, started_at=NOW - 7200, ends_at=NOW + 7200, workdir="/fsx/work", detail_at=NOW,
    restarts=0, requeue=True, batch=True, stdout="/fsx/llm.out", priority=10, submitted_at=NOW - 9000,
)  # fmt: skip
WAITING = Job(
    cluster="prod", id="88_[4-10%1]", number=88, array=88, tasks="4-10%1", name="llm", user="ana", state="PENDING",
    reason="JobArrayTaskLimit", priority=10, submitted_at=NOW - 9000, node_count=2,
)  # fmt: skip
DONE = Job(
    cluster="prod", id="80", number=80, name="llm", user="ana", state="FAILED", exit_code="1:0", ends_at=NOW - 9500,
    submitted_at=NOW - 20_000, detail_at=NOW, restarts=0,
)  # fmt: skip
CHECKPOINTS = Checkpoints(
    path="/fsx/ckpt", host="login", listed_at=NOW, save_s=90.0, every_s=3600.0,
    list=(Checkpoint(step=12_000, state="committed", path="/fsx/ckpt/12000", layout="megatron", at=NOW - 840),),
)  # fmt: skip
RUN = Run(
    spec=SPEC, verdict="healthy", progress=Progress(step=12_880, at=NOW - 6, cadence_s=4.0, step_time_s=4.0),
    log=Log(host="login", path="/fsx/llm.out"), checkpoints=CHECKPOINTS,
    kill=Switch(path=KILL, exists=False), save=Switch(path=SAVE, exists=False),
)  # fmt: skip
CLUSTER = Cluster(name="prod", login="login", me="ana", may_operate=False)


def source(name: str, **fields: Any) -> Source:
    kind = "slurm" if name.startswith("slurm") else "node"
    period = 30.0 if kind == "slurm" else 2.0
    return Source(**{"name": name, "kind": kind, "cluster": "prod", "health": "ok", "answered_at": NOW, "phase": "up",
                     "period": period} | fields)  # fmt: skip


def node(name: str, *, caught: int | None = USR1, processes: int = 8, are_tasks: bool = True) -> Node:
    """A node with a process on each GPU: a task of Slurm, or what a launcher has started there."""

    def process(pid: int) -> Process:
        task = pid if are_tasks else 99
        return Process(pid=pid, user="ana", caught=caught, environment={"SLURM_TASK_PID": str(task)})

    gpus = tuple(Gpu(index=i, processes=(process(100 + i),) if i < processes else ()) for i in range(8))
    return Node(name=name, cluster="prod", gpus=gpus, gpus_at=NOW)


def state(*jobs: Job, run: Run = RUN, **fields: Any) -> State:
    """The run with these jobs (its own are joined to it), as all sources told just now."""
    every = jobs or (RUNNING, WAITING, DONE)
    own = tuple(job.key for job in jobs_of(run.spec, every))
    known = {
        "at": NOW, "started_at": NOW - 600, "runs": {run.name: replace(run, jobs=own)}, "clusters": {"prod": CLUSTER},
        "jobs": {job.key: job for job in every}, "nodes": {name: node(name) for name in ("n1", "n2")},
        "sources": {name: source(name) for name in ("slurm:prod", "node:login")},
        "scheduler_nodes": {"n9": SchedulerNode(name="n9", cluster="prod", state="IDLE")},
    }  # fmt: skip
    return State(**known | fields)


def ask(verb: Verb, *subjects: str, **fields: Any) -> ActionRequest:
    return ActionRequest(
        **{"verb": verb, "subjects": subjects or ("llm",), "requested_at": NOW, "why": "loss spike"} | fields
    )


def readback(*jobs: Job, **fields: Any) -> Readback:
    return Readback(**{"at": NOW, "jobs": {job.key: job for job in jobs}} | fields)


def planned(verb: Verb, *subjects: str, of: State | None = None, seen: Readback | None = None, **fields: Any) -> Plan:
    known = state() if of is None else of
    return actions.plan(ask(verb, *subjects, **fields), known, Readback(at=NOW) if seen is None else seen, ANA, NOW)


def only(plan: Plan) -> Action:
    """The one action of a plan that refuses nothing."""
    assert plan.refusals == ()
    (one,) = plan.actions
    return said(one)


def said(action: Action) -> Action:
    """With the texts of its sentences, as the dashboard shows them."""
    texts = {name: tuple(say(one) for one in getattr(action, name)) for name in ("consequences", "warnings")}
    return replace(action, **texts)


def refused(plan: Plan) -> Refusal:
    """The one refusal of a plan that does nothing."""
    assert plan.actions == ()
    (one,) = plan.refusals
    return replace(one, hint=say(one.hint))


def stat(path: str, **fields: Any) -> dict[str, FileStat]:
    return {f"login:{path}": FileStat(**{"path": path} | fields)}


def done(action: Action, **fields: Any) -> Record:
    return Record(**{"action": action, "status": "done", "written_at": NOW, "done_at": NOW} | fields)
