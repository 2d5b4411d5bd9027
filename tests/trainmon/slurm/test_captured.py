"""What a real Slurm 22.05 printed, read: tests/captured/slurm-22.05/."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainmon.model import Job
from trainmon.slurm import errors
from trainmon.slurm.parse import (
    detailed,
    read_accounting,
    read_configuration,
    read_job,
    read_nodes,
    read_queue,
    read_steps,
)

CAPTURED = Path(__file__).parents[2] / "captured" / "slurm-22.05"


def captured(name: str) -> str:
    return (CAPTURED / name).read_text()


@pytest.fixture(scope="module")
def queue() -> dict[str, Job]:
    return {job.name: job for job in read_queue(captured("queue.txt"), "lab")}


SHOWN = sorted(path.name for path in CAPTURED.glob("job-*.txt") if path.stat().st_size)


@pytest.mark.parametrize("name", SHOWN)
def test_every_job_is_read_and_adds_its_details_to_its_row(name: str) -> None:
    rows = {job.number: job for job in read_queue(captured("queue.txt"), "lab")}
    shown = read_job(captured(name), "lab")
    assert shown
    for job in shown:
        whole = detailed(rows[job.number], job)
        assert whole.id == job.id
        assert whole.batch is True
        assert whole.restarts is not None
        assert whole.exit_code is not None
        assert whole.stdout is not None


def test_ends_have_their_words_and_reasons(queue: dict[str, Job]) -> None:
    ended = {name: (job.state, job.reason) for name, job in queue.items() if job.stage == "ended"}
    assert ended["fine"] == ("COMPLETED", None)
    assert ended["exit-3"] == ("FAILED", "NonZeroExitCode")
    assert ended["cancelled"] == ("CANCELLED", None)
    assert ended["on-a-dying-node"] == ("NODE_FAIL", "NodeDown")


def test_an_array_is_one_record_and_its_running_element_another(queue: dict[str, Job]) -> None:
    waiting, running = read_job(captured("job-array.txt"), "lab")
    assert (waiting.id, waiting.elements, waiting.key) == ("8_[3-10%1]", 8, "lab/8_[]")
    assert (running.id, running.number, running.array, running.state) == ("8_2", 12, 8, "RUNNING")


def test_a_requeued_job_counts_its_restart_and_waits_two_minutes() -> None:
    (job,) = read_job(captured("job-requeued.txt"), "lab")
    assert (job.state, job.reason, job.restarts) == ("PENDING", "BeginTime", 1)
    assert job.starts_at is not None
    assert job.submitted_at is not None
    assert job.starts_at - job.submitted_at == pytest.approx(121, abs=2)


def test_a_reason_of_several_words_is_the_same_from_both_commands() -> None:
    text = captured("job-requeued.txt").replace("Reason=BeginTime", "Reason=launch_failed_requeued_held")
    assert read_job(text, "lab")[0].reason == "launch failed requeued held"  # as squeue writes it


def test_a_nasty_name_is_one_job_and_printable() -> None:
    (job,) = read_job(captured("job-nasty.txt"), "lab")
    assert job.name.startswith("a|b #c |# d")
    assert job.name.isprintable()
    assert (job.user, job.state) == ("root", "RUNNING")
    assert [other.number for other in read_queue(captured("queue.txt"), "lab")].count(job.number) == 1


def test_nodes_of_every_kind_are_read() -> None:
    nodes = {node.name: node for node in read_nodes(captured("nodes-lost-gpu.txt"), "lab")}
    assert [node.is_usable for node in nodes.values()] == [False, True, True, False]
    assert (nodes["gpu-4"].lost_gpus, nodes["gpu-4"].flags) == (1, ("DRAIN", "INVALID_REG"))
    assert nodes["gpu-1"].is_drained
    assert (nodes["gpu-1"].reason or "").startswith("NHC: nv_health: GPU 3 has 12 pending page retirements")


def test_accounting_has_ends_and_who_cancelled() -> None:
    ends = {job.id: job for job in read_accounting(captured("accounting.txt"), "lab")}
    assert (ends["1"].state, ends["2"].state, ends["3"].exit_code) == ("TIMEOUT", "COMPLETED", "3:0")
    assert (ends["5"].state, ends["5"].cancelled_by) == ("CANCELLED", "0")
    assert ends["8_[3-10%1]"].stage == "waiting"
    assert read_accounting(captured("accounting-unknown.txt"), "lab") == ()


def test_steps_and_the_configuration_are_read() -> None:
    assert set(read_steps(captured("steps-running.txt"))) == {"batch", "0"}
    assert read_steps(captured("steps-completed.txt")) == ()
    found = read_configuration(captured("configuration.txt"))
    assert (found.version, found.accounting, found.administrator) == ("22.05.8", True, "root")
    assert read_configuration(captured("configuration-no-accounting.txt")).accounting is False


KINDS = {
    "stopped": "silent", "frozen": "silent", "munge": "silent", "denied": "denied", "held-by-admin": "denied",
    "unknown": "gone", "completed": "gone", "waiting": "refused", "running": "refused", "unknown-node": "refused",
    "no-script": "refused", "off": "refused", "no-accounting": "refused",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(path.stem for path in CAPTURED.glob("*.err")))
def test_every_complaint_has_its_kind(name: str) -> None:
    status = re.search(rf"^{name}: .* -> (\d+)$", captured("commands.txt"), re.MULTILINE)
    assert status is not None
    expected = KINDS[next(end for end in sorted(KINDS, key=len, reverse=True) if name.endswith(end))]
    stderr = captured(f"{name}.err")
    assert errors.kind(int(status[1]), stderr) == expected
    assert errors.message(stderr)


def test_no_accounting_is_reported_from_accounting_that_is_down() -> None:
    assert errors.is_without_accounting(captured("accounting-off.err"))
    assert not errors.is_without_accounting(captured("accounting-stopped.err"))
