"""Runs that are found as processes on the GPUs of this machine."""

from __future__ import annotations

import pytest

from tests.trainmon.analysis.runs.judged import judge
from tests.trainmon.analysis.runs.test_status import NOW
from trainmon.analysis.runs import RunContext, process_runs
from trainmon.model import OwnProcess, Progress, Run, RunSpec

DAY = 86_400.0


def trainer(pid: int, stdout: str | None = "/runs/a.log", command: str = "python train.py") -> OwnProcess:
    return OwnProcess(pid=pid, command=command, workdir="/home/ana/nanoGPT", stdout=stdout)


def found(*own: OwnProcess, before: tuple[RunSpec, ...] = (), now: float = NOW) -> tuple[RunSpec, ...]:
    return process_runs(before, own, "local", "box", now)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py --out a.py", "train"),
        ("/usr/bin/python3 -u /srv/code/run_clm.py", "run_clm"),
        ("python -m torchtitan.train", "torchtitan.train"),
        ("/opt/llm.c/train_gpt2cu -i data", "nanoGPT"),
        ("python -c from multiprocessing.spawn import spawn_main; spawn_main(5)", "nanoGPT"),
    ],
)
def test_a_run_has_the_name_of_its_script_or_of_its_directory(command: str, name: str) -> None:
    (run,) = found(trainer(7, command=command))
    assert (run.name, run.found, run.cluster, run.nodes, run.log) == (name, True, "local", ("box",), "/runs/a.log")


@pytest.mark.parametrize("stdout", ["/runs/a.log", None])
def test_the_ranks_of_a_trainer_are_one_run(stdout: str | None) -> None:
    assert [(run.process and run.process.pid, run.log) for run in found(*(trainer(n, stdout) for n in (9, 8)))] == [
        (8, stdout)
    ]


def test_two_trainings_of_one_script_are_two_runs_that_keep_their_names() -> None:
    first = found(trainer(7))
    both = found(trainer(3, "/runs/b.log"), trainer(7), before=first)
    assert [(run.name, run.log) for run in both] == [("train-3", "/runs/b.log"), ("train", "/runs/a.log")]
    assert found(trainer(7), trainer(3, "/runs/b.log"), before=both) == both


def test_what_holds_a_gpu_for_a_person_is_no_run() -> None:
    assert found(trainer(1, None, "/usr/lib/Xorg :0"), trainer(2, None, "python -m ipykernel_launcher -f x.json")) == ()


def test_secrets_of_a_command_are_not_kept() -> None:
    (run,) = found(trainer(7, command="python train.py --api_key=hunter22222"))
    assert run.process is not None
    assert "hunter22222" not in run.process.command


def test_a_run_without_its_process_has_ended_and_stays_for_a_day_or_until_its_next_start() -> None:
    ended = found(before=found(trainer(7)), now=NOW + 5)
    assert [(run.name, run.ended_at) for run in ended] == [("train", NOW + 5)]
    assert found(before=ended, now=NOW + 60) == ended
    assert found(before=ended, now=NOW + 5 + DAY) == ()
    for log in ("/runs/a.log", "/runs/b.log"):
        (again,) = found(trainer(8, log), before=ended, now=NOW + 60)
        assert (again.name, again.log, again.ended_at) == ("train", log, None)


@pytest.mark.parametrize(
    ("step", "target", "verdict", "why"),
    [
        (None, None, "unknown", "process 7 ended 2m ago; no target step is known"),
        (250, None, "unknown", "process 7 ended 2m ago, at step 250; no target step is known"),
        (250, 5_000, "dead", "process 7 ended 2m ago, at step 250 of 5,000: not finished"),
        (
            5_000, 5_000, "unknown",
            "process 7 ended 2m ago, at step 5,000, its target; nothing shows whether it ended well",
        ),
    ],
)  # fmt: skip
def test_its_verdict_is_about_its_end_at_once(step: int | None, target: int | None, verdict: str, why: str) -> None:
    (spec,) = found(before=found(trainer(7)), now=NOW - 120)
    progress = Progress(step=step, target_step=target, at=None if step is None else NOW - 130)
    assert judge(Run(spec=spec, progress=progress), RunContext(), NOW) == (verdict, why)
