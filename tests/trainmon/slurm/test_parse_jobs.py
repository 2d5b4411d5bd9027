"""What Slurm answers, from 20.02 to 25."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from trainmon.model import Job
from trainmon.slurm import commands
from trainmon.slurm.parse import (
    detailed,
    read_accounting,
    read_configuration,
    read_job,
    read_priority,
    read_queue,
    read_steps,
)

WRITTEN = Path(__file__).parents[2] / "written" / "slurm"
VERSIONS = sorted(path.name for path in WRITTEN.iterdir() if path.is_dir())


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def written(version: str, name: str) -> str:
    return (WRITTEN / version / name).read_text()


def by_id(jobs: tuple[Job, ...]) -> dict[str, Job]:
    return {job.id: job for job in jobs}


def row(**fields: str) -> str:
    values = {
        "A": "88", "i": "88", "F": "88", "K": "N/A", "T": "RUNNING", "u": "ana", "P": "h100", "a": "llm", "q": "high",
        "D": "1", "Q": "10", "V": "2026-03-02T08:00:00", "S": "2026-03-02T08:00:00", "e": "2026-03-03T08:00:00",
        "l": "1-00:00:00", "N": "gpu-1", "E": "(null)", "r": "None", "Z": "/fsx", "j": "run", **fields,
    }  # fmt: skip
    return "".join(f"|3fa9#{values[letter]}" for letter in commands.QUEUE) + "\n"


def test_all_versions_that_are_promised_are_here() -> None:
    assert VERSIONS == ["20.02", "20.11", "21.08", "23.02", "23.11", "24.05", "24.11", "25.05"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_queue_lists_every_kind_of_job(version: str) -> None:
    jobs = by_id(read_queue(written(version, "queue.txt"), "prod"))
    assert list(jobs) == ["418190", "418191_[2-5%1]", "418200_7", "418250", "418251", "418180", "418260"]
    running = jobs["418190"]
    assert (running.state, running.stage, running.reason, running.array) == ("RUNNING", "running", None, None)
    assert running.nodes == ("gpu-001", "gpu-002", "gpu-003", "gpu-004", "gpu-006", "gpu-007")
    assert running.started_at == at("2026-03-02T08:16:40")
    assert running.ends_at == at("2026-03-04T08:16:40")
    assert (running.time_limit_s, running.starts_at) == (172_800.0, None)
    behind = jobs["418191_[2-5%1]"]
    assert (behind.key, behind.elements, behind.target) == ("prod/418191_[]", 4, "418191_[2-5]")
    assert (behind.reason, behind.dependency) == ("Dependency", "afterany:418190(unfulfilled)")
    assert (behind.nodes, behind.started_at, behind.starts_at) == ((), None, None)
    element = jobs["418200_7"]
    assert (element.number, element.array, element.tasks) == (418207, 418200, "7")
    assert (element.name, element.workdir) == ("sweep lr=1e-3 Restarts=5", "/home/ana/my sweeps")
    begins = jobs["418250"]
    assert (begins.reason, begins.starts_at, begins.time_limit_s) == ("BeginTime", at("2026-03-02T10:02:01"), None)
    assert (jobs["418251"].priority, jobs["418251"].reason) == (0, "JobHeldUser")
    assert jobs["418180"].stage == "ended"
    assert jobs["418260"].account is None


@pytest.mark.parametrize("version", VERSIONS)
def test_scontrol_adds_what_only_it_knows(version: str) -> None:
    shown = by_id(read_job(written(version, "jobs.txt"), "prod"))
    queued = by_id(read_queue(written(version, "queue.txt"), "prod"))
    assert list(shown) == list(queued)
    jobs = {name: detailed(job, shown[name]) for name, job in queued.items()}
    running = jobs["418190"]
    assert (running.restarts, running.requeue, running.batch, running.exit_code) == (2, True, True, "0:0")
    assert running.stdout == "/fsx/video/logs/video-2b-000418190-gpu-001.out"
    assert running.command == "/fsx/video/train.slurm --lr=3e-4 WANDB_API_KEY=***"
    assert running.comment == "resume=auto Restarts=9"
    sweep = jobs["418200_7"]
    assert (sweep.name, sweep.restarts) == ("sweep lr=1e-3 Restarts=5", 0)
    assert (sweep.command, sweep.stdout) == ("/home/ana/my sweeps/run.sh", "/home/ana/my sweeps/logs/418200_7.out")
    assert (jobs["418250"].restarts, jobs["418250"].excluded) == (1, ("gpu-005", "gpu-012"))
    assert jobs["418251"].requeue is False
    assert jobs["418180"].exit_code == "0:9"
    shell = jobs["418260"]
    assert (shell.batch, shell.command, shell.stdout) == (False, None, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_both_commands_say_the_same_of_a_job(version: str) -> None:
    shown = by_id(read_job(written(version, "jobs.txt"), "prod"))
    for name, job in by_id(read_queue(written(version, "queue.txt"), "prod")).items():
        other = shown[name]
        for field in ("number", "array", "tasks", "name", "user", "state", "nodes", "submitted_at", "started_at",
                      "time_limit_s", "dependency", "reason", "priority", "workdir"):  # fmt: skip
            assert getattr(job, field) == getattr(other, field), (name, field)


@pytest.mark.parametrize("version", VERSIONS)
def test_accounting_lists_every_attempt_oldest_first(version: str) -> None:
    attempts = read_accounting(written(version, "accounting.txt"), "prod")
    assert [(job.state, job.cancelled_by) for job in attempts if job.number == 418180] == [
        ("NODE_FAIL", None),
        ("CANCELLED", "1002"),
    ]
    jobs = by_id(attempts)
    assert (jobs["418200_7"].number, jobs["418200_7"].state) == (418207, "TIMEOUT")
    assert (jobs["418250"].state, jobs["418250"].exit_code) == ("FAILED", "1:0")
    assert jobs["418250"].ends_at == at("2026-03-02T08:20:00")
    never = jobs["418191_[2-5]"]
    assert (never.cancelled_by, never.started_at, never.nodes) == ("1001", None, ())
    assert (jobs["418260"].stage, jobs["418260"].ends_at) == ("running", None)


def test_a_name_cannot_forge_another_row() -> None:
    forged = row(A="1", i="1", j="mine").replace("|3fa9#", "|#")
    jobs = read_queue(row(j=f"evil\n{forged}|#end") + row(A="89", i="89"), "prod")
    assert [job.id for job in jobs] == ["88", "89"]
    assert jobs[0].name.startswith("evil |#1|#1")


def test_the_mark_is_not_to_be_guessed_and_requests_no_details() -> None:
    assert commands.MARK.startswith("|")
    assert commands.MARK.endswith("#")
    assert len(commands.MARK) == 8
    assert "C" not in "".join(commands.queue())[len("squeue") :]


def test_text_of_strangers_is_made_printable() -> None:
    (job,) = read_queue(row(j="a\x1b[31mb\u202ec\x07", r="why\x1b]0;x\x07 not"), "prod")
    assert (job.name, job.reason) == ("abc", "why not")


@pytest.mark.parametrize(
    "broken", ["", "\n", "CLUSTER: prod\n", "|3fa9#88|3fa9#88|3fa9#88\n", row(i="x; rm -rf"), row(A="?")]
)
def test_what_is_no_row_is_left_out(broken: str) -> None:
    assert read_queue(broken, "prod") == ()


def test_lines_before_the_first_row_are_passed_over() -> None:
    (job,) = read_queue("CLUSTER: prod\n" + row(), "prod")
    assert job.id == "88"


def test_text_of_a_login_script_without_a_line_feed_hides_no_first_row() -> None:
    welcome, mark = "Welcome to |#login1#|. ", commands.MARK
    queue = (row() + row(A="89", i="89")).replace("|3fa9#", mark)
    assert [job.id for job in read_queue(welcome + queue, "prod")] == ["88", "89"]
    shown = written("23.02", "jobs.txt")
    assert read_job(welcome + shown, "prod") == read_job(shown, "prod")
    ended = written("23.02", "accounting.txt")
    assert read_accounting(f"Welcome. {ended}", "prod") == read_accounting(ended, "prod")


def test_an_answer_that_was_cut_off_keeps_its_whole_rows() -> None:
    text = row() + row(A="89", i="89")
    assert [job.id for job in read_queue(text[:-40], "prod")] == ["88"]


def test_a_job_of_unknown_state_is_neither_running_nor_ended() -> None:
    (job,) = read_queue(row(T="TELEPORTING"), "prod")
    assert (job.state, job.stage) == ("TELEPORTING", "unknown")


def test_a_comment_that_looks_like_fields_changes_none() -> None:
    text = written("23.02", "jobs.txt").replace(
        "Comment=resume=auto Restarts=9", "Comment=x StdOut=/etc/passwd Restarts=9"
    )
    job = by_id(read_job(text, "prod"))["418190"]
    assert (job.restarts, job.stdout) == (2, "/fsx/video/logs/video-2b-000418190-gpu-001.out")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_line_of_its_submission_is_no_part_of_a_command(version: str) -> None:
    text = written(version, "jobs.txt")
    newer = text.replace(" WorkDir=", " SubmitLine=sbatch -J x /fsx/video/train.slurm WorkDir=")
    assert read_job(newer, "prod") == read_job(text, "prod")


def test_a_line_feed_in_a_name_does_not_end_the_answer() -> None:
    text = written("25.05", "jobs.txt").replace("JobName=held", "JobName=two\nlines UserId=root(0) Restarts=7")
    job = by_id(read_job(text, "prod"))["418251"]
    assert (job.user, job.restarts, job.reason) == ("ana", 0, "JobHeldUser")


def test_details_of_another_job_are_not_taken() -> None:
    (job,) = read_queue(row(), "prod")
    other = by_id(read_job(written("25.05", "jobs.txt"), "prod"))["418190"]
    assert detailed(job, other) is job


def test_steps_are_known_by_their_names() -> None:
    assert read_steps("|3fa9#88.batch\n|3fa9#88.extern\n|3fa9#88_3.0\n") == ("batch", "extern", "0")
    assert read_steps("") == ()


def test_the_steps_of_our_own_probes_are_left_out() -> None:
    """Otherwise a signal would go to them, and not to the batch shell with the trainer."""
    assert read_steps("|3fa9#88.batch|batch\n|3fa9#88.0|train|x\n|3fa9#88.1|trainmon\n") == ("batch", "0")


def test_the_configuration_says_whether_it_accounts() -> None:
    lines = (
        "Configuration data as of x",
        "AccountingStorageType   = accounting_storage/{}",
        "SLURM_VERSION           = 22.05.8",
        "SlurmUser               = slurm(64030)",
        "Cgroup Support Configuration:",
        "SLURM_VERSION = 1",
    )
    text = "\n".join(lines)
    found = read_configuration(text.format("slurmdbd"))
    assert (found.version, found.accounting, found.administrator) == ("22.05.8", True, "slurm")
    assert read_configuration(text.format("none")).accounting is False
    assert read_configuration("").accounting is None


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        (" TRES=cpu=96,mem=1800G,node=1,billing=96,gres/gpu=8", 8),
        (" TRES=cpu=96,gres/gpu:h100=6,gres/gpu:a100=2", 8),
        (" ReqTRES=cpu=96,gres/gpu=16 AllocTRES=cpu=96,gres/gpu=8,gres/gpu:h100=8", 8),
        (" ReqTRES=cpu=96,gres/gpu=16 AllocTRES=(null)", None),
        (" TRES=cpu=96,node=1", None),
    ],
)
def test_how_many_gpus_a_job_was_given(tres: str, gpus: int | None) -> None:
    head = "JobId=88 JobName=llm UserId=ana(1000) GroupId=ana(1000) MCS_label=N/A JobState=RUNNING"
    (job,) = read_job(f"{head}{tres} Command=/fsx/train.slurm WorkDir=/fsx", "prod")
    assert job.gpus == gpus
    assert detailed(replace(job, gpus=None), job).gpus == gpus


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("TresPerNode=gres:gpu:8", 16),
        ("TresPerNode=gres/gpu:h100:4,gres/nvme:1", 8),
        ("TresPerNode=gres:gpu", 2),
        ("TresPerJob=gres/gpu=12", 12),
        ("TresPerNode=gres:gpumem:4", None),
        ("MailUser=x", None),
    ],
)
def test_how_many_gpus_a_job_requested(tres: str, gpus: int | None) -> None:
    line = (
        "JobId=7 JobName=a UserId=ana(1000) GroupId=ana(1000) MCS_label=N/A JobState=RUNNING NumNodes=2 "
        f"Command=/fsx/a.sh WorkDir=/fsx StdErr=/fsx/log StdIn=/dev/null StdOut=/fsx/log Power= {tres}"
    )
    (job,) = read_job(line, "prod")
    assert (job.gpus_requested, job.stdout) == (gpus, "/fsx/log")


def test_the_details_name_the_gpus_of_each_node() -> None:
    """As 22.05 writes it; TRES has no gres/gpu where AccountingStorageTRES does not name it."""
    line = (
        "JobId=8 JobName=a Nodes=x CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:9) UserId=ana(7) GroupId=ana(7) MCS_label=N/A"
        " JobState=RUNNING Reason=None NodeList=gpu-[1-3] NumNodes=3 TRES=cpu=1,node=3,billing=1"
        " Socks/Node=* JOB_GRES=gpu:h100:9"
        "   Nodes=gpu-1 CPU_IDs=0 Mem=0 GRES=gpu:h100:3(IDX:0-1,3),shard:1(IDX:4)"
        "   Nodes=gpu-[2-3] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:2,5),gpu:a100:1(IDX:7) MinCPUsNode=1 Command=/x"
        " WorkDir=/tmp StdErr=/e StdIn=/dev/null StdOut=/o TresPerNode=gres:gpu:3\n"
    )
    (job,) = read_job(line, "lab")
    assert job.gpu_indices == {"gpu-1": (0, 1, 3), "gpu-2": (2, 5, 7), "gpu-3": (2, 5, 7)}
    assert (job.gpus, job.gpus_held, job.state) == (None, 9, "RUNNING")
    (plain,) = read_job(line.replace("(IDX:0-1,3)", "(IDX:N/A)").replace("(IDX:2,5)", "").replace("(IDX:7)", ""), "lab")
    assert (plain.gpu_indices, plain.gpus_held) == ({}, 9)


@pytest.mark.parametrize(
    ("head", "row", "parts"),
    [
        ("JOBID PARTITION USER PRIORITY SITE AGE ASSOC FAIRSHARE JOBSIZE PARTITION  QOS NICE TRES",
         "    3 train     root     1105    0   5     0         0     100      1000    0    0     ",
         "age 5 + jobsize 100 + partition 1000"),
        ("JOBID PARTITION     USER   PRIORITY        AGE  FAIRSHARE", "3 train   root  10  10  0", "age 10"),
        ("", "", ""),
    ],
)  # fmt: skip
def test_the_parts_of_a_priority_are_those_of_sprio_that_are_not_0(head: str, row: str, parts: str) -> None:
    assert read_priority(f"  {head}\n  {row}\n") == parts
