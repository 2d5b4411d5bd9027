"""The components of a heterogeneous job are one job, whichever command told of them."""

from __future__ import annotations

from typing import Any

from tests.trainmon.slurm.test_parse_jobs import row
from trainmon.model import Job
from trainmon.slurm.parse import joined, read_accounting, read_job, read_queue

SHOWN = """\
JobId=7 HetJobId=7 HetJobOffset=0 JobName=het HetJobIdSet=7-8 UserId=ana(1001) GroupId=llm(100) MCS_label=N/A \
Priority=9 Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 \
BatchFlag=1 Reboot=0 ExitCode=0:0 TimeLimit=01:00:00 SubmitTime=2026-11-22T06:12:11 StartTime=2026-11-22T06:12:12 \
EndTime=2026-11-22T07:12:12 Partition=train ExcNodeList=gpu-[8-9] NodeList=gpu-1 NumNodes=1 \
TRES=cpu=1,node=1,gres/gpu=2 Command=/fsx/het.sh WorkDir=/fsx StdErr=/fsx/7.log StdIn=/dev/null StdOut=/fsx/7.log Power=
JobId=8 HetJobId=7 HetJobOffset=1 JobName=het HetJobIdSet=7-8 UserId=ana(1001) GroupId=llm(100) MCS_label=N/A \
Priority=8 Nice=0 Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=0 \
BatchFlag=1 Reboot=0 ExitCode=0:0 TimeLimit=00:30:00 SubmitTime=2026-11-22T06:12:11 StartTime=2026-11-22T06:12:12 \
EndTime=2026-11-22T06:42:12 Partition=train ExcNodeList=gpu-9 NodeList=gpu-[2-3] NumNodes=2 \
TRES=cpu=2,gres/gpu=16 Command=/fsx/het.sh WorkDir=/fsx StdErr=/fsx/8.log StdIn=/dev/null StdOut=/fsx/8.log Power=
"""
"""scontrol show job -o of 22.05, its fields that matter."""


def part(place: int, state: str = "RUNNING", **described: Any) -> Job:
    return Job(cluster="prod", id=f"7+{place}", number=7 + place, state=state, **described)


def one(*parts: Job) -> Job:
    (job,) = joined(parts)
    return job


def test_the_queue_has_one_row_for_it_with_the_nodes_of_all() -> None:
    parts = (
        row(A="8", i="7+1", N="gpu-[2-3]", D="2", P="big", e="2026-03-02T20:00:00"),
        row(A="7", i="7+0", N="gpu-1", P="small"),
    )
    other, job = read_queue(row(A="6", i="6") + "".join(parts), "prod")
    assert other.id == "6"
    assert (job.key, job.target, job.number, job.components) == ("prod/7", "7", 7, (7, 8))
    assert (job.nodes, job.node_count, job.partition) == (("gpu-1", "gpu-2", "gpu-3"), 3, "small,big")
    assert job.ends_at == read_queue(parts[0], "prod")[0].ends_at, "a component is ended by its own time limit"


def test_its_details_are_those_of_the_first_and_the_gpus_of_all() -> None:
    (job,) = read_job(SHOWN, "prod")
    assert (job.id, job.components, job.nodes) == ("7", (7, 8), ("gpu-1", "gpu-2", "gpu-3"))
    assert (job.stdout, job.gpus, job.step_target) == ("/fsx/7.log", 18, "7,8")
    assert (job.excluded, job.excluded_in_part) == (("gpu-9",), ("gpu-8",))


def test_a_component_whose_fellows_are_not_listed_has_the_id_of_the_job() -> None:
    (job,) = read_queue(row(A="8", i="7+1"), "prod")
    assert (job.id, job.number, job.components) == ("7", 7, (8,))


def test_it_runs_while_a_component_runs_and_only_on_the_nodes_of_that() -> None:
    job = one(part(0, nodes=("n1",)), part(1, "TIMEOUT", nodes=("n2",), ends_at=5.0))
    assert (job.stage, job.nodes, job.ends_at) == ("running", ("n1",), None)
    job = one(part(0, "COMPLETED", exit_code="0:0"), part(1, "COMPLETING", nodes=("n2",)))
    assert (job.state, job.nodes) == ("COMPLETING", ("n2",))
    assert one(part(0, "FAILED", exit_code="3:0"), part(1, "COMPLETED")).state == "FAILED"


def test_one_held_component_holds_it() -> None:
    job = one(part(0, "PENDING", priority=9), part(1, "PENDING", priority=0, reason="JobHeldUser"))
    assert (job.priority, job.reason) == (0, "JobHeldUser")


def test_accounting_lists_each_of_its_attempts() -> None:
    line = "{0}|3fa9#7+{1}|3fa9#{2}|3fa9#0:0|3fa9#{3}|3fa9#{3}|3fa9#{3}|3fa9#ana|3fa9#p|3fa9#|3fa9#|3fa9#1|3fa9#n{1}\n"
    first, second = "2026-11-22T06:14:42", "2026-11-22T06:14:45"
    result = "".join(
        line.format(7 + place, place, state, at)
        for state, at in (("REQUEUED", first), ("CANCELLED by 1001", second))
        for place in (0, 1)
    )
    jobs = read_accounting(result, "prod")
    assert [(job.id, job.state, job.nodes) for job in jobs] == [
        ("7", "REQUEUED", ("n0", "n1")), ("7", "CANCELLED", ("n0", "n1")),
    ]  # fmt: skip
