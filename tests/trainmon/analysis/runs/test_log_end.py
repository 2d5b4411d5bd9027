"""A run that only its log shows: what the end of real logs says, and what says nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.runs.judged import judge
from tests.trainmon.analysis.runs.test_status import NOW, PROGRESS, SPEC, run
from trainmon.analysis.causes.classify import fatal_end
from trainmon.analysis.runs.context import RunContext
from trainmon.model import Gpu, Node, Process, Progress, Run, Source, Switch

CAPTURED = Path(__file__).parents[3] / "captured"


def captured(folder: str) -> list[dict[str, Any]]:
    files = sorted((CAPTURED / folder).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


FAILURES = {one["id"]: one for one in captured("failures")}
STEP = " [2025-08-01 07:19:37] iteration {:8d}/    5000 | elapsed time per iteration (ms): 4100.0 | lm loss: 2.0E+00 |"
STEPS = tuple(STEP.format(step) for step in range(100, 130))
OOM = next(one for one in FAILURES.values() if one["cause"] == "cuda-oom" and fatal_end(one["log"].split("\n")))
EMPTY = RunContext({"n1": Node(name="n1", cluster="prod", gpus=(Gpu(index=0, memory_used_mib=1),))})
HELD = RunContext(
    {
        "n1": Node(
            name="n1",
            cluster="prod",
            gpus=(Gpu(index=0, memory_used_mib=70_000, processes=(Process(pid=7, user="ana"),)),),
        )
    }
)


def ended(seconds: float, *lines: str, progress: Progress = PROGRESS, **changes: Any) -> Run:
    """A run that wrote these lines, the last one so long ago."""
    at = replace(progress, at=None if progress.at is None else NOW - seconds - 2)
    return replace(run(progress=at, at=NOW - seconds, lines=lines), **changes)


def test_the_end_of_a_captured_failure_is_fatal_with_the_right_cause() -> None:
    found = {name: fatal_end(one["log"].split("\n")) for name, one in FAILURES.items()}
    fatal = {name: one.cause for name, one in found.items() if one is not None}
    wrong = {
        name for name, cause in fatal.items() if cause not in (FAILURES[name]["cause"], *FAILURES[name]["also_right"])
    }
    assert wrong == set()
    assert len(fatal) >= 56


def test_no_captured_log_of_steps_ends_with_a_fatal_error() -> None:
    assert [log["id"] for log in captured("steps") if fatal_end(log["lines"])] == []


def test_a_trainer_that_goes_on_after_any_captured_failure_is_healthy() -> None:
    assert [one["id"] for one in FAILURES.values() if fatal_end((*one["log"].split("\n"), *STEPS[:5]))] == []


def test_a_log_that_ends_with_an_oom_says_so_after_a_minute() -> None:
    lines = (*STEPS, *OOM["log"].split("\n"))
    assert judge(ended(50, *lines), RunContext(), NOW).verdict == "healthy"
    verdict, why = judge(ended(70, *lines), RunContext(), NOW)
    assert (verdict, why.partition(": ")[0]) == ("dead", "its log ended 1m ago with an error, after step 12,880")
    assert why.partition(": ")[2].startswith("cuda-oom (")
    left = judge(ended(70, *lines), EMPTY, NOW)
    assert (left.verdict, left.why) == ("dead", f"{why}; no process holds memory on its GPUs")
    held = judge(ended(70, *lines), HELD, NOW)
    assert (held.verdict, held.why) == ("stalled", f"{why}; memory on its GPUs is still held")


def test_an_error_before_the_first_step_says_so() -> None:
    verdict, why = judge(ended(130, *OOM["log"].split("\n"), progress=Progress()), RunContext(), NOW)
    assert (verdict, why.startswith("its log ended 2m ago with an error, before its first step: cuda-oom")) == (
        "dead",
        True,
    )


@pytest.mark.parametrize("seconds", [5, 70, 800])
def test_an_exception_that_a_trainer_catches_and_logs_ends_nothing(seconds: float) -> None:
    caught = (
        "2025-08-01 07:19:40 ERROR trainer: out of memory in this batch, it is skipped",
        "Traceback (most recent call last):",
        '  File "/app/trainer.py", line 12, in train_step',
        "    loss = self.model(batch)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    )
    for lines in ((*STEPS, *caught), (*STEPS, *caught, *STEPS[:1]), (*STEPS, *OOM["log"].split("\n"), STEPS[0])):
        assert judge(ended(seconds, *lines), RunContext(), NOW).verdict == "healthy"


def test_a_slow_trainer_is_given_three_of_its_steps() -> None:
    slow = replace(PROGRESS, cadence_s=200.0)
    lines = (*STEPS, *OOM["log"].split("\n"))
    assert judge(ended(500, *lines, progress=slow), RunContext(), NOW).verdict == "healthy"
    assert judge(ended(700, *lines, progress=slow), RunContext(), NOW).verdict == "dead"


def test_an_error_of_an_earlier_log_says_nothing_of_the_next_one() -> None:
    lines = (*OOM["log"].split("\n"), "──── a newer log ────", *STEPS)
    assert judge(ended(70, *lines), RunContext(), NOW).verdict == "healthy"


def test_no_process_on_its_gpus_is_the_end_before_stall_after() -> None:
    assert judge(ended(50, *STEPS), EMPTY, NOW).verdict == "healthy"
    assert judge(ended(70, *STEPS), EMPTY, NOW) == (
        "dead",
        "no step for 72s (usually every 4.1s), the last was step 12,880; no process holds memory on its GPUs",
    )
    assert judge(ended(70, *STEPS), HELD, NOW).verdict == "healthy"
    saving = replace(PROGRESS, doing="save", doing_at=NOW - 70)
    assert judge(ended(70, *STEPS, progress=saving), HELD, NOW).verdict == "saving"


def test_a_run_of_slurm_or_under_a_kill_switch_is_judged_by_that() -> None:
    lines = (*STEPS, *OOM["log"].split("\n"))
    job = ended(70, *lines, spec=replace(SPEC, job="llm"))
    slurm = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="up", answered_at=NOW)
    assert judge(job, RunContext(sources={slurm.name: slurm}), NOW).verdict == "healthy"
    assert judge(job, RunContext(), NOW).verdict == "dead", "a run of the config has a job name, also without Slurm"
    off = replace(slurm, phase="off", answered_at=None, health="off")
    assert judge(job, RunContext(sources={off.name: off}), NOW).verdict == "dead"
    silent = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="waiting")
    assert judge(ended(70, *lines), RunContext(sources={silent.name: silent}), NOW).verdict == "healthy"
    armed = ended(70, *lines, kill=Switch(path="/k", exists=True, armed_at=NOW - 100, by="ann"))
    assert judge(armed, RunContext(), NOW).verdict == "healthy"


@pytest.mark.parametrize("lines", [STEPS, (*STEPS, "Training completed. Exiting."), (*STEPS, *OOM["log"].split("\n"))])
def test_a_run_that_only_has_a_log_is_stopped_by_its_kill_switch_after_stall_after(lines: tuple[str, ...]) -> None:
    """Its trainer may be saving: nothing but the silence shows that it has obeyed."""
    spec = replace(SPEC, stall_after=600.0)
    kill = Switch(path="/k", exists=True, armed_at=NOW - 650, by="ann")
    for quiet, verdict in ((70, "healthy"), (590, "healthy"), (610, "stopped")):
        found = judge(ended(quiet, *lines, spec=spec, kill=kill), RunContext(), NOW)
        assert found.verdict == verdict, quiet
        assert "kill switch" in found.why
        assert "armed for 11m by ann" in found.why


TORCHRUN = (
    "E0801 07:19:39.000000 1234 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -9) "
    "local_rank: 0 (pid: 1300) of binary: /usr/bin/python3",
    "Traceback (most recent call last):",
    '  File "/usr/local/bin/torchrun", line 8, in <module>',
    "    sys.exit(main())",
    '  File "/usr/lib/torch/distributed/launcher/api.py", line 264, in launch_agent',
    "    raise ChildFailedError(",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    "=" * 51,
    "train.py FAILED",
    "Root Cause (first observed failure):",
    "[0]:",
    "  rank      : 0 (local_rank: 0)",
    "  exitcode  : -9 (pid: 1300)",
    "  traceback : Signal 9 (SIGKILL) received by PID 1300",
)
ACCELERATE = (
    "Traceback (most recent call last):",
    '  File "/usr/bin/accelerate", line 8, in <module>',
    "    raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)",
    "subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' died with <Signals.SIGKILL: 9>.",
)
SHELL = "train.sh: line 25: 1200261 Killed                  python train.py"


def test_a_launcher_that_ends_because_its_program_was_killed_is_the_end() -> None:
    for launcher in (TORCHRUN, ACCELERATE):
        verdict, why = judge(ended(70, *STEPS, *launcher), RunContext(), NOW)
        assert (verdict, why.partition(": ")[0]) == ("dead", "its log ended 1m ago with an error, after step 12,880")
        assert why.endswith(", not certain"), "a person or the OOM killer"
        assert judge(ended(50, *STEPS, *launcher), RunContext(), NOW).verdict == "healthy"
        assert judge(ended(70, *STEPS, *launcher, *STEPS[:2]), RunContext(), NOW).verdict == "healthy"
    assert judge(ended(70, *STEPS, TORCHRUN[0]), RunContext(), NOW).verdict == "healthy", "it may start it again"


def test_an_exception_of_a_thread_ends_nothing() -> None:
    thread = (
        "Exception in thread Thread-3 (upload):",
        "Traceback (most recent call last):",
        '  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner',
        '  File "/app/train.py", line 9, in upload',
    )
    for error in (ACCELERATE[-1], "RuntimeError: cannot write to the bucket"):
        assert judge(ended(70, *STEPS, *thread, error), RunContext(), NOW).verdict == "healthy"


@pytest.mark.parametrize("line", [SHELL, "Killed", "Process finished with exit code 137"])
def test_a_shell_that_says_that_a_program_was_killed_may_go_on(line: str) -> None:
    assert judge(ended(70, *STEPS, line), RunContext(), NOW).verdict == "healthy"


BARE = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


@pytest.mark.parametrize("line", [BARE, f"[rank0]: {BARE}", "OSError: [Errno 28] No space left on device"])
def test_an_exception_without_its_traceback_as_the_last_line_is_the_end(line: str) -> None:
    assert judge(ended(50, *STEPS, line), RunContext(), NOW).verdict == "healthy"
    assert judge(ended(70, *STEPS, line), RunContext(), NOW).verdict == "dead"
    assert judge(ended(70, *STEPS, line, *STEPS[:1]), RunContext(), NOW).verdict == "healthy"
    assert (
        judge(ended(70, *STEPS, f"2025-08-01 07:19:40 ERROR trainer: {line}"), RunContext(), NOW).verdict == "healthy"
    )


BAR = " 64%|######4   | 12880/20000 [14:02<07:45, 15.30it/s]"
ABORTED = ("terminate called after throwing an instance of 'std::bad_alloc'", "  what():  std::bad_alloc")
CANCELLED = "slurmstepd: error: *** JOB 71 ON gpu-1 CANCELLED AT 2026-11-02T10:00:00{} ***"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((BAR, *OOM["log"].split("\n"), BAR), "its log ended 1m ago with an error, after step 12,880: cuda-oom"),
        (ABORTED, "its log ended 1m ago with an error, after step 12,880: host-oom"),
        ((CANCELLED.format(""),), "its log ended 1m ago, after step 12,880: cancelled-by-user"),
        ((CANCELLED.format(" DUE TO TIME LIMIT"),), "its log ended 1m ago, after step 12,880: time-limit"),
    ],
)
def test_what_ends_a_program_at_once_is_the_end(lines: tuple[str, ...], why: str) -> None:
    """tqdm draws its bar once more behind the traceback; of an end by Slurm or a person, nobody speaks of an error."""
    verdict, said = judge(ended(70, *STEPS, *lines), RunContext(), NOW)
    assert (verdict, said.partition(" (")[0]) == ("dead", why)
    assert judge(ended(70, *STEPS, *lines, *STEPS[:2]), RunContext(), NOW).verdict == "healthy"


@pytest.mark.parametrize(
    "lines",
    [
        ("RuntimeError: CUDA out of memory in the evaluation", "it exited with code 137; training continues", "saving"),
        ("OSError: [Errno 5] Input/output error", "data worker 3 exited with exit code 1, restarting it"),
    ],
)
def test_a_trainer_that_outlives_what_it_has_started_has_not_ended(lines: tuple[str, ...]) -> None:
    assert judge(ended(70, *STEPS, *lines), RunContext(), NOW).verdict == "healthy"


def test_the_last_line_counts_without_a_line_break_too() -> None:
    died = ended(70, *STEPS)
    assert died.log is not None
    died = replace(died, log=replace(died.log, partial=BARE))
    assert judge(died, RunContext(), NOW).verdict == "dead"


def test_a_log_that_ends_with_the_last_words_of_its_trainer_has_ended() -> None:
    words = "Training completed. Exiting."
    endless = replace(SPEC, target_step=None)
    assert judge(ended(50, *STEPS, words, spec=endless), RunContext(), NOW).verdict == "healthy"
    assert judge(ended(70, *STEPS, words, spec=endless), RunContext(), NOW) == (
        "finished",
        "its log ended 1m ago with: Training completed. Exiting.; no target step is known",
    )
    assert judge(ended(70, *STEPS, words), RunContext(), NOW) == (
        "dead",
        "its log ended 1m ago with: Training completed. Exiting., at step 12,880 of 20,000: not finished",
    )
    assert judge(
        ended(70, *STEPS, words, spec=endless, progress=replace(PROGRESS, loss=math.nan)), RunContext(), NOW
    ) == (
        "diverged",
        "its log ended 1m ago with: Training completed. Exiting., but the loss is NaN",
    )
    assert judge(ended(70, *STEPS, words, spec=endless), HELD, NOW).verdict == "healthy"
    there = replace(PROGRESS, step=20_000)
    assert judge(ended(70, *STEPS, words, progress=there), RunContext(), NOW)[0] == "finished"
    lost = judge(ended(70, *STEPS, words, progress=replace(there, loss=math.nan)), RunContext(), NOW)
    assert lost.verdict == "diverged"
    assert lost.why.startswith("reached step 20,000 of 20,000, but the loss is NaN; its log ended 1m ago with: Train")


@pytest.mark.parametrize("line", ["Finished training epoch 3", "Training of stage 1 done", "Evaluation finished"])
def test_the_end_of_a_part_of_the_training_is_not_its_end(line: str) -> None:
    assert judge(ended(70, *STEPS, line), RunContext(), NOW).verdict == "healthy"
