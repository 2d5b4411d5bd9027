"""The machine-readable contract: jobs, spares and checkpoints."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tests.end_to_end.contract import breaches
from trainmon.analysis.disks import checkpoints_that_fit
from trainmon.cli.snapshot import lines
from trainmon.engine.snapshot import encode, snapshot
from trainmon.model import (
    Checkpoint,
    Checkpoints,
    Cluster,
    Disk,
    Job,
    Progress,
    Run,
    RunSpec,
    SchedulerNode,
    Source,
    State,
)

NOW = 100_000.0
GB = 10**9
SAVED = Checkpoints(
    path="/fsx/ckpt",
    host="login1",
    listed_at=NOW,
    bytes=4 * GB,
    list=(
        Checkpoint(step=300, state="torn", path="/fsx/ckpt/iter_0000300", layout="megatron"),
        Checkpoint(step=200, state="committed", path="/fsx/ckpt/iter_0000200", layout="megatron", at=NOW - 90),
        Checkpoint(step=100, state="superseded", path="/fsx/ckpt/iter_0000100", layout="megatron", at=NOW - 900),
    ),
)
RUN = Run(
    spec=RunSpec(name="llm", cluster="prod"),
    progress=Progress(step=340),
    jobs=("prod/88_3",),
    queued_behind=2,
    checkpoints=SAVED,
)
JOB = Job(
    cluster="prod", id="88_3", number=91, array=88, tasks="3", name="llm", user="ana", state="RUNNING",
    nodes=("n1", "n2"), node_count=2, started_at=NOW - 60, ends_at=NOW + 600, restarts=1,
)  # fmt: skip
STATE = State(
    at=NOW,
    sources={"slurm:prod": Source(name="slurm:prod", kind="slurm", cluster="prod", health="ok", answered_at=NOW)},
    clusters={"prod": Cluster(name="prod", login="login1", spares=2)},
    scheduler_nodes={"n3": SchedulerNode(name="n3", cluster="prod", state="IDLE")},
    jobs={"prod/88_3": JOB, "prod/70": Job(cluster="prod", id="70", number=70, state="FAILED", gone_at=NOW - 60)},
    runs={"llm": RUN},
)


def test_a_snapshot_with_jobs_keeps_the_contract() -> None:
    assert list(breaches(msgspec.json.decode(encode(STATE, NOW)))) == []


def test_jobs_are_those_that_the_queue_lists_with_the_time_that_is_left() -> None:
    (job,) = snapshot(STATE, NOW)["jobs"]
    assert (job["id"], job["array"], job["nodes"], job["time_left_s"], job["restarts"]) == (
        "88_3",
        88,
        ["n1", "n2"],
        600.0,
        1,
    )


def test_a_run_has_its_job_and_its_checkpoints() -> None:
    (run,) = snapshot(STATE, NOW)["runs"]
    assert (run["job"], run["queued_behind"]) == ("88_3", 2)
    found = run["checkpoints"]
    assert (found["latest_committed_step"], found["latest_committed_at"]) == (200, NOW - 90)
    assert found["steps_at_risk"] == 140
    assert found["torn"] == ["/fsx/ckpt/iter_0000300"]
    assert [one["state"] for one in found["list"]] == ["torn", "committed", "superseded"]


def test_nothing_of_a_finished_run_is_at_risk() -> None:
    (run,) = STATE.runs.values()
    finished = msgspec.structs.replace(run, verdict="finished")
    (row,) = snapshot(msgspec.structs.replace(STATE, runs={run.name: finished}), NOW)["runs"]
    assert row["checkpoints"]["steps_at_risk"] == 0


def test_spares_are_compared_with_what_is_wanted() -> None:
    assert snapshot(STATE, NOW)["spares"] == [{"cluster": "prod", "wanted": 2, "idle_healthy": 1, "drained": 0}]


def test_a_disk_says_how_many_checkpoints_still_fit() -> None:
    disk = Disk(host="login1", cluster="prod", path="/fsx", at=NOW, usable_free_bytes=11 * GB)
    assert checkpoints_that_fit(disk, {}, [RUN]) == 2
    other = Disk(host="login1", cluster="prod", path="/fs", at=NOW, usable_free_bytes=11 * GB)
    assert checkpoints_that_fit(other, {}, [RUN]) is None


def test_the_tables_show_jobs_nodes_and_spares() -> None:
    drained = SchedulerNode(
        name="n4", cluster="prod", state="IDLE", flags=("DRAIN",), reason="NHC: no disk", reason_by="ops"
    )
    waiting = Job(cluster="prod", id="90", number=90, name="llm", user="ana", state="PENDING", reason="Resources")
    state = replace(
        STATE, scheduler_nodes=STATE.scheduler_nodes | {"n4": drained}, jobs=STATE.jobs | {"prod/90": waiting}
    )
    found = "\n".join(lines(state))
    assert "88_3 +2  340" in found
    assert "200 1m ago" in found
    assert "88_3  llm   ana   RUNNING  2      10m        1" in found
    assert "90    llm   ana   PENDING  ?      -          ?         no free nodes" in found
    assert "n4          IDLE+DRAIN  NHC: no disk  ops" in found
    assert found.endswith("prod: healthy idle nodes: 1 (2 wanted), 1 drained")
