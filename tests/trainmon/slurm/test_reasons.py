"""Slurm's words as a person says them."""

from __future__ import annotations

from typing import Any

import pytest

from trainmon.model import Job, SchedulerNode, count_tasks
from trainmon.slurm.reasons import PERMANENT, REASONS, end_reason, is_permanent, waiting_reason

NOW = 100_000.0


def job(**changes: Any) -> Job:
    return Job(**{"cluster": "prod", "id": "88", "number": 88, "name": "llm", "state": "PENDING"} | changes)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"reason": "BeginTime", "starts_at": NOW + 119}, "starts in 2m"),
        ({"reason": "BeginTime", "starts_at": NOW - 1}, "may start at any moment"),
        ({"reason": "JobHeldUser"}, "held"),
        ({"reason": "JobHeldAdmin"}, "held by an administrator; only an administrator can release it"),
        ({"reason": "Resources"}, "no free nodes"),
        ({"reason": "Resources", "starts_at": NOW + 3600}, "no free nodes; expected in 1h"),
        ({"reason": "JobArrayTaskLimit"}, "array task limit reached"),
        ({"reason": "Dependency", "dependency": "afterany:88(unfulfilled)"}, "after the end of 88"),
        (
            {"reason": "Dependency", "dependency": "afterok:88_*(unfulfilled),afterany:90(unfulfilled)"},
            "after the success of 88, the end of 90",
        ),
        (
            {"reason": "Dependency", "dependency": "afterany:88(unfulfilled)?afterany:90(unfulfilled)"},
            "after the end of 88 or the end of 90",
        ),
        ({"reason": "Dependency", "dependency": "singleton(unfulfilled)"},
         "after the end of its user's jobs with the same name"),
        (
            {"reason": "DependencyNeverSatisfied", "dependency": "afterok:88(failed)"},
            "its dependency can no longer be met: it will never start",
        ),
        ({"reason": "ReqNodeNotAvail, UnavailableNodes:gpu-[1-2]"},
         "nodes that it needs are not available: gpu-[1-2]"),
        ({"reason": "ReqNodeNotAvail, UnavailableNodes:"}, "nodes that it needs are not available"),
        ({"reason": "QOSMaxJobsPerUserLimit"}, "a limit of its QOS is reached (QOSMaxJobsPerUserLimit)"),
        ({"reason": "AssocGrpGRES"}, "a limit of its account is reached (AssocGrpGRES)"),
        ({"reason": "MaxGRESPerAccount"}, "a limit of its account is reached (MaxGRESPerAccount)"),
        ({"reason": "AssocMaxNodePerJobLimit"},
         "it requests more than its account allows one job (AssocMaxNodePerJobLimit)"),
        ({"reason": "QOSMaxWallDurationPerJobLimit"},
         "it requests more than its QOS allows one job (QOSMaxWallDurationPerJobLimit)"),
        ({"reason": "QOSMinGRES"}, "it requests less than its QOS requires (QOSMinGRES)"),
        ({"reason": "QOSNotAllowed"}, "its partition or account does not accept its QOS"),
        ({"reason": "Licenses"}, "no license is free"),
        ({"reason": "ReqNodeNotAvail, Reserved for maintenance"},
         "nodes that it needs are not available: Reserved for maintenance"),
        ({"reason": "SomethingNew"}, "SomethingNew"),
        ({}, "no reason yet"),
    ],
)  # fmt: skip
def test_why_a_job_waits_is_reported_in_words(changes: dict[str, Any], text: str) -> None:
    assert waiting_reason(job(**changes), NOW) == text


def test_what_no_waiting_cures_has_words_too_and_a_limit_of_one_job_is_such() -> None:
    assert REASONS.keys() > PERMANENT
    assert all(
        is_permanent(reason) for reason in (*PERMANENT, "QOSMaxGRESPerJob", "AssocMaxNodePerJobLimit", "QOSMinGRES")
    )
    assert not any(is_permanent(reason) for reason in (None, "Priority", "QOSMaxJobsPerUserLimit", "AssocGrpGRES"))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": "FAILED", "exit_code": "1:0"}, "exited with code 1"),
        ({"state": "FAILED", "exit_code": "0:9"}, "ended by signal 9"),
        ({"state": "COMPLETED", "exit_code": "0:0"}, "exited with code 0"),
        ({"state": "CANCELLED", "cancelled_by": "ana"}, "cancelled by ana"),
        ({"state": "CANCELLED"}, "cancelled"),
        ({"state": "TIMEOUT"}, "it reached its time limit"),
        ({"state": "SOMETHING_NEW"}, "SOMETHING_NEW"),
    ],
)
def test_how_a_job_ended_is_reported_in_words(changes: dict[str, Any], text: str) -> None:
    assert end_reason(job(**changes)) == text


@pytest.mark.parametrize(
    ("state", "stage"),
    [
        ("PENDING", "waiting"),
        ("REQUEUE_HOLD", "waiting"),
        ("RUNNING", "running"),
        ("COMPLETING", "running"),
        ("NODE_FAIL", "ended"),
        ("A_WORD_OF_TOMORROW", "unknown"),
    ],
)
def test_a_state_is_a_stage_of_life_and_a_new_word_is_unknown(state: str, stage: str) -> None:
    assert job(state=state).stage == stage


def test_the_waiting_elements_of_an_array_are_one_record_whose_key_stays() -> None:
    more = job(id="88_[4-10%1]", array=88, tasks="4-10%1")
    fewer = job(id="88_[7-10%1]", array=88, tasks="7-10%1")
    assert (more.key, more.target, more.elements) == ("prod/88_[]", "88_[4-10]", 7)
    assert (fewer.key, fewer.elements) == ("prod/88_[]", 4)
    element = job(id="88_3", array=88, tasks="3")
    assert (element.key, element.target, element.elements) == ("prod/88_3", "88_3", 1)


@pytest.mark.parametrize(
    ("tasks", "count"), [("3", 1), ("2-10%1", 9), ("1,5-7,9-15:2%4", 8), ("1-3,...", 3), ("", 1), ("x", 1)]
)
def test_tasks_are_counted(tasks: str, count: int) -> None:
    assert count_tasks(tasks) == count


def test_a_reason_that_counts_fewer_gpus_is_a_lost_gpu() -> None:
    reasons = (
        "gres/gpu count reported lower than configured (7 < 8)",
        "gres/gpu count reported lower than configured (4 < 8)",
        "gres/gpu count reported lower than configured",
        "Not responding",
        None,
    )
    nodes = [SchedulerNode(name="n1", cluster="prod", state="IDLE", reason=reason) for reason in reasons]
    assert [node.lost_gpus for node in nodes] == [1, 4, 1, None, None]


@pytest.mark.parametrize(
    ("state", "flags", "usable"),
    [
        ("IDLE", (), True),
        ("MIXED", (), True),
        ("IDLE", ("DRAIN",), False),
        ("IDLE", ("NOT_RESPONDING",), False),
        ("DOWN", (), False),
        ("TOMORROW", (), False),
    ],
)
def test_a_node_is_usable_where_jobs_may_be_put(state: str, flags: tuple[str, ...], usable: bool) -> None:
    assert SchedulerNode(name="n1", cluster="prod", state=state, flags=flags).is_usable is usable


@pytest.mark.parametrize(
    ("gres", "count"),
    [
        (None, 0),
        ("", 0),
        ("gpu:8", 8),
        ("gpu:a100:8(S:0-1)", 8),
        ("gpu:a100:4(S:0,2),gpu:h100:2(S:1,3),nvme:1", 6),
        ("gpu", 1),
        ("gpu:a100", 1),
        ("gpu:0", 0),
        ("shard:64,mps:gpu:100", 0),
        ("gpu:h100:8(IDX:0-7)", 8),
    ],
)
def test_the_gpus_of_a_gres_are_counted(gres: str | None, count: int) -> None:
    assert SchedulerNode(name="n1", cluster="prod", state="IDLE", gres=gres).gpus == count
