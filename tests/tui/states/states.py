"""States made by hand, one for each thing that the screen must be able to say."""

from __future__ import annotations

import functools

import msgspec
from msgspec.structs import replace

from trainmon.analysis.log_formats import report
from trainmon.model import (
    GOING,
    Action,
    Checkpoint,
    Checkpoints,
    Cluster,
    Disk,
    Execute,
    Gpu,
    Job,
    Log,
    Milestone,
    Node,
    Process,
    Progress,
    Prompt,
    Record,
    Run,
    RunSpec,
    SchedulerNode,
    Source,
    State,
    StepNumbers,
    Switch,
)

NOW = 1_790_000_000.0
"""2026-09-21 14:13:20 UTC."""

GIB = 1 << 30


def gpu(index: int, temperature: int = 61, **more: object) -> Gpu:
    plain = {
        "index": index, "uuid": f"GPU-{index:04}", "name": "NVIDIA H100 80GB HBM3", "temperature_c": temperature,
        "memory_temperature_c": temperature + 9, "temperature_margin_c": 87 - temperature, "memory_used_mib": 71_680,
        "memory_total_mib": 81_559, "utilization_pct": 98, "power_w": 655.0, "power_limit_w": 700.0,
        "sm_clock_mhz": 1755, "throttle": ("sw_power_cap",), "ecc_uncorrected": 0, "ecc_corrected": 0,
        "remap_pending": False, "remap_failed": False,
        "processes": (Process(4242 + index, "me", 71_000, "python train.py --config big.yaml"),),
    }  # fmt: skip
    return msgspec.convert({**plain, **more}, Gpu)


def node(number: int, *gpus: Gpu) -> Node:
    own = gpus or tuple(gpu(index, 58 + (number + index * 3) % 7) for index in range(8))
    return Node(
        name=f"gpu-{number:03}", cluster="prod", probe="nvml", driver="570.124", load1=12.5, cpu_count=96,
        memory_used_mib=412_000, memory_total_mib=2_063_000, boot_time=NOW - 20 * 86_400.0, gpus_expected=8, gpus=own,
        gpus_at=NOW - 1.0, host_at=NOW - 1.0,
    )  # fmt: skip


def source(number: int, **more: object) -> Source:
    plain: dict[str, object] = {
        "name": f"node:gpu-{number:03}", "kind": "node", "cluster": "prod", "health": "ok", "answered_at": NOW - 1.0,
        "phase": "up",
    }  # fmt: skip
    return msgspec.convert({**plain, **more}, Source)


def log(lines: tuple[str, ...], **more: object) -> Log:
    plain: dict[str, object] = {
        "host": "gpu-001", "path": "/scratch/llm-70b/slurm-418190.out", "at": NOW - 6.0, "checked_at": NOW - 1.0,
        "size": 48_000_000, "lines": lines, "first": 41_000, "lines_per_s": 0.3,
    }  # fmt: skip
    return replace(msgspec.convert({**plain, **more}, Log), numbers=numbers_in(lines))


@functools.lru_cache(256)
def numbers_in(lines: tuple[str, ...]) -> tuple[StepNumbers | None, ...]:
    """What the engine reads in each of these lines."""
    read = (one.found for one in report(lines).lines)
    return tuple(None if one is None else StepNumbers(one.step, one.target_step, one.loss) for one in read)


LINE = (
    " iteration {step:>7}/   95000 | consumed samples: {samples:>12} | elapsed time per iteration (ms): 4103.1 | "
    "learning rate: 2.31E-04 | global batch size: 1024 | lm loss: {loss:.6E} | grad norm: 0.30"
)


@functools.cache
def iterations(count: int = 200, last: int = 12_880) -> tuple[str, ...]:
    steps = range(last - count + 1, last + 1)
    return tuple(LINE.format(step=step, samples=step * 1024, loss=1.9 - step * 2e-6) for step in steps)


def run(name: str, verdict: str = "healthy", why: str = "the step advances", **more: object) -> Run:
    progress = Progress(
        step=12_880, target_step=95_000, loss=1.8739, grad_norm=0.30, tokens_per_s=1_904_000.0, step_time_s=4.1,
        learning_rate=2.31e-4, at=NOW - 6.0, cadence_s=4.1, format="megatron",
    )  # fmt: skip
    plain: dict[str, object] = {
        "spec": RunSpec(name=name, cluster="prod", nodes=("gpu-001", "gpu-002")), "verdict": verdict, "why": why,
        "progress": progress, "log": log(iterations()),
        "eta_at": NOW + 17 * 3600.0 + 44 * 60.0 if verdict in GOING else None,
        "kill": Switch(path="/scratch/kill", exists=False), "save": Switch(path="/scratch/save", exists=False),
    }  # fmt: skip
    return Run(**{**plain, **more})  # type: ignore[arg-type]


def disk(path: str, free: float, of: float, inodes_free: float = 0.88, **more: object) -> Disk:
    plain: dict[str, object] = {
        "host": "login1", "cluster": "prod", "path": path, "at": NOW - 1.0, "mount": path, "filesystem": "lustre",
        "read_only": False, "total_bytes": int(of * GIB), "free_bytes": int(free * GIB),
        "usable_free_bytes": int(free * GIB), "total_inodes": 10_000_000, "free_inodes": int(10_000_000 * inodes_free),
        "bytes_per_day": 0.0, "inodes_per_day": 0.0,
    }  # fmt: skip
    return Disk(**{**plain, **more})  # type: ignore[arg-type]


def state(
    *, nodes: tuple[Node, ...] = (), runs: tuple[Run, ...] = (), disks: tuple[Disk, ...] = (), **more: object
) -> State:
    plain: dict[str, object] = {
        "at": NOW, "started_at": NOW - 600.0, "nodes": {one.name: one for one in nodes},
        "runs": {one.name: one for one in runs}, "disks": {one.key: one for one in disks},
        "sources": {f"node:{one.name}": source(int(one.name[-3:])) for one in nodes},
    }  # fmt: skip
    return State(**{**plain, **more})  # type: ignore[arg-type]


def job(id: str, state: str = "RUNNING", **more: object) -> Job:  # noqa: A002 - Slurm's name for it
    """A job of four nodes that has run for three of its 24 hours, or waits."""
    number = int(id.partition("_")[0])
    plain: dict[str, object] = {
        "cluster": "prod", "id": id, "number": number, "array": number if "_" in id else None, "name": "llm-70b",
        "tasks": id.partition("_")[2].strip("[]") or None, "user": "me", "state": state, "partition": "gpu",
        "account": "team-a", "qos": "normal", "node_count": 4, "priority": 4_294, "submitted_at": NOW - 4 * 3600.0,
        "time_limit_s": 86_400.0, "workdir": "/scratch/llm-70b", "detail_at": NOW - 60.0, "restarts": 0,
        "requeue": True, "batch": True, "command": "/scratch/llm-70b/train.slurm",
        "stdout": "/scratch/llm-70b/slurm-418190.out",
    }  # fmt: skip
    if state in {"RUNNING", "COMPLETING", "SUSPENDED"}:
        plain |= {
            "nodes": tuple(f"gpu-{number:03}" for number in range(1, 5)), "started_at": NOW - 3 * 3600.0,
            "ends_at": NOW + 21 * 3600.0,
        }  # fmt: skip
    elif state != "PENDING":
        plain |= {"started_at": NOW - 9 * 3600.0, "ends_at": NOW - 2 * 3600.0, "gone_at": NOW - 2 * 3600.0}
    return Job(**{**plain, **more})  # type: ignore[arg-type]


def scheduler_node(number: int, state: str = "ALLOCATED", *flags: str, **more: object) -> SchedulerNode:
    plain: dict[str, object] = {
        "name": f"gpu-{number:03}", "cluster": "prod", "state": state, "flags": flags, "gres": "gpu:h100:8",
        "partitions": ("gpu",),
    }  # fmt: skip
    return SchedulerNode(**{**plain, **more})  # type: ignore[arg-type]


def cluster(**more: object) -> Cluster:
    plain: dict[str, object] = {
        "name": "prod", "login": "login1", "spares": 2, "users": ("me", "ana"), "me": "me", "may_operate": False,
        "accounting": True, "slurm": "22.05.8",
    }  # fmt: skip
    return Cluster(**{**plain, **more})  # type: ignore[arg-type]


def slurm(**more: object) -> Source:
    plain: dict[str, object] = {
        "name": "slurm:prod", "kind": "slurm", "cluster": "prod", "health": "ok", "answered_at": NOW - 4.0,
        "phase": "up", "period": 30.0,
    }  # fmt: skip
    return msgspec.convert({**plain, **more}, Source)


def checkpoints(**more: object) -> Checkpoints:
    """One every 500 steps; the last is committed for 20 minutes, and nothing is wrong."""
    folder = "/scratch/llm-70b/ckpt"

    def one(step: int, state: str, at: float, **other: object) -> Checkpoint:
        name = f"{folder}/iter_{step:07}"
        plain: dict[str, object] = {"layout": "megatron", "bytes": 1_200 * GIB, "at": at, **other}
        return Checkpoint(step=step, state=state, path=name, **plain)  # type: ignore[arg-type]

    plain: dict[str, object] = {
        "path": folder, "host": "login1", "listed_at": NOW - 20.0,
        "list": (
            one(12_500, "committed", NOW - 1_200.0), one(12_000, "superseded", NOW - 3_300.0),
            one(11_700, "torn", NOW - 4_100.0, why="no metadata, and nobody writes it"),
        ),
        "resumes": f"{folder}/iter_0012500", "save_s": 40.0, "every_s": 2_050.0, "every_steps": 500,
        "bytes": 1_200 * GIB,
    }  # fmt: skip
    return Checkpoints(**{**plain, **more})  # type: ignore[arg-type]


def record(verb: str, *marks: Milestone, **more: object) -> Record:
    """An action on llm-70b, asked two minutes ago and done."""
    action = Action(
        id="0123456789ab", verb=verb, subject="llm-70b", cluster="prod", host="login1", run="llm-70b",  # type: ignore[arg-type]
        operation=Execute(argv=("scontrol", "show", "job", "418190")), title=f"{verb} llm-70b", who="me",
        from_host="laptop", requested_at=NOW - 120.0,
    )  # fmt: skip
    plain: dict[str, object] = {"status": "done", "done_at": NOW - 119.0, "outcome": "", "marks": marks}
    return Record(action=action, **{**plain, **more})  # type: ignore[arg-type]


DISKS = (disk("/scratch", 4_198, 10_750), disk("/home", 210, 620))


def calm() -> State:
    return state(
        nodes=tuple(node(number) for number in range(1, 9)),
        runs=(run("llm-70b"), run("sft-1b", log=log(iterations(40, 900), host="gpu-003", path="/scratch/sft/out.log"))),
        disks=DISKS,
    )  # fmt: skip


def troubled() -> State:
    """A hot GPU, a lost one, a silent node, a held one, a hung and a diverged run, a filling disk."""
    well = calm()
    hot = node(
        3,
        *(
            gpu(index, 94 if index == 5 else 71, **({"throttle": ("hw_thermal",)} if index == 5 else {}))
            for index in range(8)
        ),
    )
    lost = node(
        4, *(gpu(index) if index != 2 else Gpu(index=2, state="lost", error="GPU is lost") for index in range(8))
    )
    nodes = {**well.nodes, hot.name: hot, lost.name: lost}
    sources = {
        **well.sources,
        "node:gpu-005": source(5, health="down", answered_at=NOW - 42.0, phase="retrying", error="no answer in 10s"),
        "node:gpu-006": source(
            6, health="down", answered_at=None, phase="held", error="a person must log in", hint="press L"
        ),
    }
    stuck = run(
        "llm-7b-a", "hung", "no step for 11m (usual 4.1s), GPUs at 100% and low power",
        progress=Progress(
            step=81_204, target_step=120_000, loss=2.113, tokens_per_s=412_000.0, at=NOW - 660.0, cadence_s=4.1,
        ),
    )  # fmt: skip
    broken = run(
        "abl-3", "diverged", "the loss is nan", progress=Progress(step=4_400, loss=float("nan"), at=NOW - 7200.0)
    )
    armed = run("llm-70b", save=Switch(path="/scratch/save", exists=True, armed_at=NOW - 30.0, by="me"))
    done = run(
        "tok-test",
        "finished",
        "step 500 of 500",
        progress=Progress(step=500, target_step=500, loss=3.2, at=NOW - 90_000.0),
    )
    filling = disk("/scratch", 310, 10_750, 0.03, bytes_per_day=1.5e12, full_at=NOW + 5 * 3600.0)
    runs = {one.name: one for one in (armed, stuck, broken, done, well.runs["sft-1b"])}
    return msgspec.structs.replace(
        well, nodes=nodes, sources=sources, runs=runs, disks={**well.disks, filling.key: filling}
    )


SHORT_OF_GPUS = "gres/gpu count reported lower than configured (7 < 8)"


def queue_jobs() -> tuple[Job, ...]:
    """Every kind of row that the queue has."""
    return (
        job("418190", restarts=1),
        job("418223", name="llm-7b-a", user="ana", ends_at=NOW + 70.0, nodes=("gpu-005", "gpu-007"), node_count=2,
            partition="long"),
        job("418230", "SUSPENDED", name="sweep", user="ana", nodes=("gpu-008",), node_count=1),
        job("418191_[2-10%1]", "PENDING", reason="JobArrayTaskLimit"),
        job("418301", "PENDING", name="sft-1b", node_count=1, reason="BeginTime", starts_at=NOW + 125.0, restarts=1),
        job("418302", "PENDING", name="eval", reason="Dependency", dependency="afterany:418190(unfulfilled)"),
        job("418303", "PENDING", name="held-one", reason="JobHeldUser", priority=0),
        job("418304", "PENDING", name="hopeless", user="ana", reason="DependencyNeverSatisfied",
            dependency="afterok:418100(failed)"),
        job("418100", "FAILED", name="abl-3", exit_code="1:0"),
        job("418099", "COMPLETED", name="tok-test", ends_at=NOW - 7_300.0),
        job("418098", "CANCELLED", name="abl-2", ends_at=NOW - 9_000.0, cancelled_by="ana"),
        job("418097", name="lost-one", gone_at=NOW - 600.0),
    )  # fmt: skip


def queued() -> State:
    """A cluster with Slurm: jobs of every kind, drained nodes, a run with a job behind it and one that waits."""
    well = calm()
    nodes = (
        *(scheduler_node(number) for number in range(1, 6)),
        scheduler_node(6, "IDLE"),
        scheduler_node(7, "ALLOCATED", "DRAIN", reason=SHORT_OF_GPUS, reason_by="slurm", reason_at=NOW - 7_200.0),
        scheduler_node(8, "MIXED", "DRAIN", reason="fan 3 broken", reason_by="root", reason_at=NOW - 90_000.0),
        scheduler_node(9, "DOWN", "NOT_RESPONDING", reason="Not responding", reason_by="slurm", reason_at=NOW - 300.0),
    )
    training = run(
        "llm-70b", jobs=("prod/418190", "prod/418191_[]"), queued_behind=10, checkpoints=checkpoints(),
        save=Switch(path="/scratch/save", exists=True, armed_at=NOW - 30.0, by="me"),
        spec=RunSpec(name="llm-70b", cluster="prod", nodes=tuple(f"gpu-{number:03}" for number in range(1, 5)),
                     checkpoints="/scratch/llm-70b/ckpt"),
    )  # fmt: skip
    ending = run(
        "llm-7b-a", "healthy", "step 81,204, 2s ago; its job ends in 70s, but saving once more may need 88s",
        jobs=("prod/418223",), queued_behind=0,
        progress=Progress(step=81_204, target_step=120_000, loss=2.113, tokens_per_s=412_000.0, at=NOW - 2.0,
                          cadence_s=4.1, step_time_s=4.1),
        checkpoints=checkpoints(list=(), problem="no committed checkpoint found: it would start anew", resumes=None),
        spec=RunSpec(name="llm-7b-a", cluster="prod", nodes=("gpu-005", "gpu-007"), checkpoints="/scratch/7b"),
    )  # fmt: skip
    waiting = run(
        "sft-1b", "queued", "job 418301 starts in 2m; before it, job 418280: a node of it failed, 5m ago",
        jobs=("prod/418301",), queued_behind=0, eta_at=None,
    )  # fmt: skip
    over = run(
        "abl-3", "dead", "job 418100: exited with code 1, 2h ago, at step 4,400",
        jobs=("prod/418100",), queued_behind=0, eta_at=None,
        progress=Progress(step=4_400, loss=1.2, at=NOW - 7_200.0),
    )  # fmt: skip
    saved = record(
        "save", Milestone("the file appears", NOW - 118.0), Milestone("the file is taken", NOW - 114.0),
        Milestone("a checkpoint is committed", missed="nothing was committed within 2m"), settled_at=NOW,
    )  # fmt: skip
    by_name = {one.name: one for one in nodes}
    return msgspec.structs.replace(
        well, runs={one.name: one for one in (training, ending, waiting, over)}, clusters={"prod": cluster()},
        jobs={one.key: one for one in queue_jobs()}, scheduler_nodes=by_name, actions={saved.action.id: saved},
        sources={**well.sources, "slurm:prod": slurm()},
    )  # fmt: skip


def slurm_down() -> State:
    """The same, three minutes after the controller stopped to answer."""
    error = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
    down = slurm(health="down", answered_at=NOW - 190.0, phase="retrying", error=error)
    return msgspec.structs.replace(queued(), sources={**queued().sources, down.name: down})


def silent() -> State:
    """One run whose log stopped."""
    late = Progress(step=700, target_step=1_000, loss=2.5, at=NOW - 1_300.0, cadence_s=5.0)
    return state(
        nodes=(node(1),), runs=(run("quiet", "stalled", "no step for 21m (usual 5s)", progress=late),), disks=DISKS
    )


def empty() -> State:
    return state()


def asking(*prompts: Prompt) -> State:
    pending_prompts = prompts or (
        Prompt(
            id=7,
            host="gpu-001",
            title="Duo two-factor",
            instructions="Passcode or option (1-2):",
            fields=(("Passcode: ", False),),
        ),
    )
    return msgspec.structs.replace(calm(), prompts=pending_prompts)


NASTY = "[bold red]not markup[/] \x1b[31mred\x1b[0m \x1b]0;title\x07 [link=x](oops) \x00\x9b2J end"


def nasty() -> State:
    """Markup, escape sequences and control characters in every text that comes from outside."""
    bad = run(f"run{NASTY}", "healthy", NASTY, log=log((NASTY, "plain"), path=f"/x/{NASTY}", partial=NASTY))
    process = Process(1, NASTY, 10, NASTY)
    worse = msgspec.structs.replace(node(1, gpu(0, processes=(process,))), note=NASTY)
    return state(nodes=(worse,), runs=(bad,), disks=(disk(f"/mnt/{NASTY}", 1, 2),))


STATES = {
    "calm": calm, "troubled": troubled, "silent": silent, "empty": empty, "asking": asking, "nasty": nasty,
    "queued": queued, "slurm-down": slurm_down,
}  # fmt: skip
