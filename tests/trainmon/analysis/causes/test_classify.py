"""What ended an attempt: the log, the exit status, the scheduler and the nodes together."""

from __future__ import annotations

import pytest

from tests.trainmon.analysis.causes.logs import of
from trainmon.analysis.causes.rules import RULE
from trainmon.model import CauseName, NodeFacts

STEPS = "".join(f"step {n}/1000 | loss 2.{n} | 3.1 it/s\n" for n in range(1, 30))
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
WATCHDOG = (
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=71, OpType=ALLREDUCE) ran for 600060 milliseconds"
)


def uncaught(error: str, rank: str = "", function: str = "train") -> str:
    lines = [
        "Traceback (most recent call last):",
        '  File "/home/ana/train.py", line 88, in <module>',
        "    main()",
        f'  File "/home/ana/{function}.py", line 12, in {function}',
        "    run(batch)",
        error,
    ]
    return "".join(f"{rank}{line}\n" for line in lines)


CHILD_FAILED = uncaught("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ")
TORCHRUN = (
    CHILD_FAILED
    + """
Root Cause (first observed failure):
[0]:
  time      : 2026-11-02_10:00:00
  rank      : 3 (local_rank: 3)
  exitcode  : 1 (pid: 71)
  error_file: /tmp/torchelastic_x/none_y/attempt_0/3/error.json
  traceback : Traceback (most recent call last):
    File "/home/ana/train.py", line 12, in main
      run(batch)
  ValueError: bad shape

"""
)
THROWN = "terminate called after throwing an instance of 'c10::DistBackendError'\n"
CANCELLED = "slurmstepd: error: *** JOB 71 ON gpu-1 CANCELLED AT 2026-11-02T10:00:00 ***\n"
LIMIT = "slurmstepd: error: *** JOB 71 ON gpu-1 CANCELLED AT 2026-11-02T10:00:00 DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (uncaught(OOM, "[rank3]: ") + f"[rank5]:[E1] {WATCHDOG}\n" * 3 + CHILD_FAILED, "cuda-oom"),
        (f"[rank5]:[E1] {WATCHDOG}\n" * 3 + CHILD_FAILED, "nccl-timeout"),
        (f"{THROWN}  what():  Process group watchdog thread terminated with exception: {WATCHDOG}\n", "nccl-timeout"),
        (uncaught("KeyError: 'input_ids'", "[rank2]: ") + CHILD_FAILED, "python-exception"),
        (STEPS + "W: Received SIGTERM: 15, saving\n" + uncaught("EOFError") + CHILD_FAILED, "cancelled-by-user"),
        (STEPS + uncaught("KeyError: 'x'", "[rank0]: ") + CANCELLED, "python-exception"),
        (STEPS + CANCELLED, "cancelled-by-user"),
        (STEPS + LIMIT, "time-limit"),
        (uncaught(OOM, "[rank3]: ") + STEPS[:0] + LIMIT, "cuda-oom"),
        ("ERROR could not read image 7, skipped\n" + STEPS + "Training completed.\n", "completed"),
        (uncaught(OOM) + STEPS + "Training completed.\n", "completed"),
        (STEPS + "Saving model checkpoint to out\n" + uncaught("KeyError: 'f1'", function="evaluate"), "evaluator"),
        (STEPS + uncaught("KeyError: 'f1'", function="evaluate"), "python-exception"),
        ("step 1 loss: 2.1\n" + "step 2 loss: nan\n" * 5 + "Training completed.\n", "diverged"),
        ("step 1 loss: nan\nstep 2 loss: 2.1\nstep 3 loss: 2.0\nTraining completed.\n", "completed"),
        ("NVRM: Xid (PCI:0000:38:00): 79, pid=7\n" + uncaught("RuntimeError: CUDA error: x"), "gpu-hardware"),
        ("NVRM: Xid (PCI:0000:38:00): 13, pid=7, name=python, Graphics SM Warp Exception\n", "cuda-illegal-access"),
        ("NVRM: Xid (PCI:0000:38:00): 39, pid=7, name=python, Ch 00000008\n", "cuda-illegal-access"),
        ("NVRM: Xid (PCI:0000:79:00): 45, pid=7, name=python, Ch 00000008\n", "unknown"),
        (uncaught("KeyboardInterrupt") + uncaught("BrokenPipeError: [Errno 32]", "[rank1]: "), "cancelled-by-user"),
        ("OSError: [Errno 28] No space left on device: '/dev/shm/torch_1'\n", "dataloader-worker"),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.\n", "host-oom"),
        ("ft_launcher: worker group failed, exit code 93\n", "no-restart"),
        ("Exception ignored in: <function>\n" + uncaught("AttributeError: x") + "Training done\n", "completed"),
        ("bash: module: command not found\n" + uncaught(OOM), "cuda-oom"),
        ("bash: pyton: command not found\n", "import-error"),
        (uncaught("IndexError: list index out of range"), "python-exception"),
        ("".join(uncaught("KeyError: 'x'").splitlines(keepends=True)[:-1]), "python-exception"),
        ("".join(uncaught("KeyError: 'x'").splitlines(keepends=True)[3:]), "python-exception"),
        (TORCHRUN, "python-exception"),
        (STEPS + "W: Received SIGTERM: 15, saving\n" + uncaught("ValueError: x"), "cancelled-by-user"),
        (uncaught("ValueError: x") + "W: Received SIGTERM: 15, saving\n", "python-exception"),
        (uncaught("KeyError: 'x'") + "starting again\n" * 5 + uncaught(OOM), "cuda-oom"),
        (uncaught(OOM) + "uploading\n" * 5 + uncaught("ModuleNotFoundError: No module named 'y'"), "cuda-oom"),
        (
            uncaught("RuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly", "[rank1]: ")
            + uncaught("KeyboardInterrupt"),
            "cancelled-by-user",
        ),
        ("NVRM: Xid (PCI:0000:38:00): 79, pid=7\nkill switch file /out/KILL found, exiting\n", "kill-switch"),
        ("step 1 loss: nan\n", "unknown"),
        ("cannot identify image file 7.jpg\nstep 8 | loss: 2.1\n100%|###| 9/9 [00:01<00:00, 9.0it/s]\n", "completed"),
        ("FileNotFoundError: no such dataset: data/x.bin\n", "missing-file"),
        ("", "unknown"),
        ("\n\n", "unknown"),
    ],
)  # fmt: skip
def test_the_root_cause_beats_what_follows_from_it(log: str, cause: CauseName) -> None:
    assert of(log).cause == cause


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104))", "network-or-auth"),
        ("ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out", "nccl-network"),
        ("HorovodInternalError: One or more rank exceeded stall_shutdown_time limit.", "nccl-timeout"),
        ("tarfile.ReadError: unexpected end of data", "data-error"),
        ("OSError: [Errno 110] Connection timed out: '/mnt/nfs/rank3.pt'", "storage-io"),
        ("W: RESOURCE_EXHAUSTED: out/ckpt; No space left on device", "disk-full"),
        ("NVRM: API mismatch: the client has the version 535.1", "driver-mismatch"),
        ("1 Workers killed due to memory pressure (OOM)", "host-oom"),
        ("kill switch file /out/KILL found, exiting", "kill-switch"),
        ("exiting program after 235.02 minutes", "time-limit"),
        ("no kill switch file /out/KILL found", "unknown"),
        ("Some tensors: HorovodAllreduce_3 [missing ranks: 2, 3]", "hang"),
        ("NCCL WARN NET/IB : Got completion from peer 10.0.0.7<5> with status=12 opcode=0", "nccl-network"),
        ("Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to 2.5e-320", "diverged"),
        ("start-worker: GCP Metadata Service says termination is imminent", "preempted"),
        ("service.APIError: The request exceeded the maximum allowed time", "network-or-auth"),
        ("rkey.c:250 UCX ERROR Failed to unpack a key: Input/output error", "nccl-network"),
    ],
)
def test_a_line_means_what_it_says_and_not_what_it_resembles(line: str, cause: CauseName) -> None:
    assert of(STEPS + line + "\n").cause == cause


@pytest.mark.parametrize("words", ["Preemption detected, saving checkpoint", "Received preemption notice: exiting"])
def test_a_trainer_that_calls_a_signal_a_preemption_is_not_certain(words: str) -> None:
    found = of(f"{STEPS}{words}\n", exit_code=143)
    assert (found.cause, found.confidence) == ("preempted", "low")


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank3]: ", "[default3]:", "3: ", "(RayTrainWorker pid=77, ip=10.0.0.3) ", "[1,3]<stderr>:", "worker-3 | ",
        "[2026-11-22 10:00:00] ", "2026-11-22 10:00:00,123 - root - ERROR - ", "E1122 10:00:00.123456 71 train.py:88] ",
        "11/22 10:00:00 ", "Nov 22 10:00:00 gpu-1 python[71]: ", "[INFO] ", "ERROR:root:",
        "2026-11-22 10:00:00.123 | ERROR    | __main__:main:12 - ", "2026-11-22T10:00:00Z ",
    ],
)  # fmt: skip
def test_an_exception_is_found_behind_what_launchers_and_loggers_put_in_front(prefix: str) -> None:
    for error, cause in (("KeyError: 'x'", "python-exception"), (OOM, "cuda-oom")):
        found = of("".join(f"{prefix}{line}\n" for line in uncaught(error).splitlines()), exit_code=1)
        assert (found.cause, found.exception, found.confidence) == (cause, error.partition(":")[0], "high")


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("WARNING:root:could not read image 7.jpg", "completed"),
        ("[INFO] could not read image 7.jpg", "completed"),
        ("2026-11-22 10:00:00 - data - ERROR - could not read image 7.jpg", "data-error"),
    ],
)
def test_the_level_in_front_of_a_line_says_whether_it_is_about_an_end(line: str, cause: CauseName) -> None:
    assert of(f"{STEPS}{line}\n", exit_code=0 if cause == "completed" else 1).cause == cause


def test_a_traceback_that_a_library_logs_as_a_warning_ended_nothing() -> None:
    caught = uncaught("FileNotFoundError: [Errno 2] No such file or directory: 'ldconfig'").replace("<module>", "run")
    warned = "".join(f"[2026-11-22 10:00:00,940] torch._dynamo: [WARNING] {line}\n" for line in caught.splitlines())
    assert of(warned + "TERM_RUNLIMIT: job killed after reaching LSF run time limit.\n").cause == "time-limit"
    assert of(warned.replace("WARNING", "ERROR")).cause == "missing-file"


def test_a_line_that_only_says_killed_proves_nothing() -> None:
    found = of(STEPS + "Killed\n")
    assert (found.cause, found.confidence) == ("host-oom", "low")


@pytest.mark.parametrize(
    ("facts", "cause", "confidence"),
    [
        ({"exit_code": 0}, "completed", "high"),
        ({"exit_code": 1}, "unknown", "low"),
        ({"exit_code": 2}, "unknown", "low"),
        ({"exit_code": 3}, "unknown", "low"),
        ({"exit_code": 9}, "unknown", "low"),  # sacct prints 137 as 9
        ({"exit_code": 11}, "unknown", "low"),
        ({"exit_code": 93}, "no-restart", "low"),
        ({"exit_code": 127}, "unknown", "low"),
        ({"exit_code": 137}, "unknown", "low"),
        ({"exit_code": -9}, "unknown", "low"),
        ({"exit_code": 139}, "unknown", "low"),
        ({"exit_code": -11}, "segfault", "low"),
        ({"signal": 11}, "segfault", "low"),
        ({"exit_code": 143}, "unknown", "low"),
        ({"scheduler_state": "CANCELLED by 1000"}, "cancelled-by-user", "high"),
        ({"scheduler_state": "PREEMPTED"}, "preempted", "high"),
        ({"scheduler_state": "NODE_FAIL"}, "node-fail", "high"),
        ({"scheduler_state": "OUT_OF_MEMORY"}, "host-oom", "high"),
        ({"scheduler_state": "TIMEOUT"}, "time-limit", "high"),
        ({"scheduler_state": "FAILED", "exit_code": 1}, "unknown", "low"),
        ({"scheduler_state": "COMPLETED", "exit_code": 0}, "completed", "high"),
        ({"wandb_state": "finished"}, "completed", "low"),
        ({"kill_switch": True, "exit_code": 0}, "kill-switch", "high"),
        ({"kill_switch": True, "exit_code": 143}, "kill-switch", "high"),
        ({"nodes": (NodeFacts(name="gpu-1", xids=(13, 79)),)}, "gpu-hardware", "high"),
        ({"nodes": (NodeFacts(name="gpu-1", xids=(13, 31)),)}, "unknown", "low"),
        ({"nodes": (NodeFacts(name="gpu-1", xids=(62,)),)}, "gpu-hardware", "high"),  # its alert: reset the GPU
        ({"nodes": (NodeFacts(name="gpu-1", xids=(171,)),)}, "gpu-hardware", "high"),
        ({"nodes": (NodeFacts(name="gpu-1", lost_gpus=1),)}, "gpu-hardware", "high"),
        ({"nodes": (NodeFacts(name="gpu-1", rebooted=True),)}, "node-fail", "high"),
        ({"nodes": (NodeFacts(name="gpu-1", drained="DOWN in Slurm"),)}, "unknown", "low"),
        ({"nodes": (NodeFacts(name="gpu-1", oom_kills=2),)}, "host-oom", "high"),
        ({}, "unknown", "low"),
    ],
)
def test_without_a_log_the_other_facts_decide(facts: dict[str, object], cause: CauseName, confidence: str) -> None:
    found = of("", **facts)
    assert (found.cause, found.confidence) == (cause, confidence)


@pytest.mark.parametrize(
    ("log", "facts", "cause"),
    [
        (uncaught(OOM), {"scheduler_state": "TIMEOUT"}, "cuda-oom"),
        (uncaught(OOM), {"scheduler_state": "CANCELLED by 1000"}, "cuda-oom"),
        (uncaught(OOM), {"scheduler_state": "PREEMPTED"}, "preempted"),
        (WATCHDOG, {"scheduler_state": "CANCELLED by 1000"}, "cancelled-by-user"),
        (uncaught("RuntimeError: CUDA error: x"), {"nodes": (NodeFacts(name="a", xids=(79,)),)}, "gpu-hardware"),
        (uncaught(OOM), {"nodes": (NodeFacts(name="a", oom_kills=1),)}, "cuda-oom"),
        (uncaught("OSError: [Errno 5] x"), {"nodes": (NodeFacts(name="a", full_disks=("/tmp",)),)}, "disk-full"),
        (uncaught("KeyError: 'f1'", function="evaluate"), {"checkpoint_committed": True}, "evaluator"),
        (uncaught("KeyError: 'f1'", function="report"), {"last_step": 100, "target_step": 100}, "evaluator"),
        (uncaught("KeyError: 'x'"), {"exit_code": 0}, "python-exception"),
        (STEPS, {"exit_code": 0}, "completed"),
    ],
)  # fmt: skip
def test_the_log_and_the_other_facts_are_weighed(log: str, facts: dict[str, object], cause: CauseName) -> None:
    assert of(log, **facts).cause == cause


@pytest.mark.parametrize("code", [1, 3, 9])
def test_an_exit_status_alone_names_no_traceback(code: int) -> None:
    answer = of("", exit_code=code)
    assert "traceback names" not in answer.advice
    assert f"exit status {code}" in answer.evidence[0].text


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("", "unknown"),
        (STEPS, "unknown"),
        (STEPS + "Training completed.\n", "unknown"),
        (STEPS + "epoch 68/68\n", "unknown"),
        (STEPS + "srun: error: gpu-1: task 0: Killed\n", "unknown"),
        (STEPS + uncaught(OOM) + "Training completed.\n", "cuda-oom"),
        (STEPS + "Training completed.\n" + uncaught(OOM, function="evaluate"), "evaluator"),
    ],
)
@pytest.mark.parametrize("code", [None, 0, 1])
def test_what_slurm_calls_failed_has_not_completed(log: str, cause: CauseName, code: int | None) -> None:
    answer = of(log, exit_code=code, scheduler_state="FAILED", wandb_state="finished")
    assert answer.cause == cause
    assert (answer.confidence == "low") == (cause not in ("cuda-oom", "evaluator"))


REQUEUE = CANCELLED.replace(" ***\n", " DUE TO JOB REQUEUE ***\n")


def steps(first: int, last: int) -> str:
    return "".join(f"iteration {n:8}/    1000 | lm loss: 2.{n:03}E+00 |\n" for n in range(first, last))


XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus."
AGAIN = "initializing torch distributed ...\n"
NEXT_ATTEMPTS: tuple[tuple[str, dict[str, object], CauseName], ...] = (
    (steps(40, 90) + uncaught(OOM), {"exit_code": 1, "scheduler_state": "FAILED"}, "cuda-oom"),
    (steps(40, 90) + "Training completed.\n", {"exit_code": 0, "scheduler_state": "COMPLETED"}, "completed"),
    (steps(40, 90) + CANCELLED, {"scheduler_state": "CANCELLED by 0"}, "cancelled-by-user"),
)


@pytest.mark.parametrize("why", ["NODE FAILURE, SEE SLURMCTLD LOG", "PREEMPTION", "TIME LIMIT", "JOB REQUEUE"])
@pytest.mark.parametrize(("log", "facts", "cause"), NEXT_ATTEMPTS)
def test_what_ended_the_attempt_before_in_the_same_file_does_not_end_the_next_one(
    why: str, log: str, facts: dict[str, object], cause: CauseName
) -> None:
    before = steps(1, 70) + CANCELLED.replace(" ***\n", f" DUE TO {why} ***\n")
    for known in (facts, {}):
        assert of(before + log, **known).cause == cause
    resumed = log.replace(steps(40, 90), steps(70, 120))  # its last save was at its last step
    assert of(before + resumed, **facts).cause == cause
    assert of(before + AGAIN + resumed).cause == cause


def test_the_line_that_ended_this_attempt_is_its_evidence() -> None:
    line = CANCELLED.replace(" ***\n", " DUE TO NODE FAILURE ***\n")
    for between in (steps(1, 40), steps(70, 120)):
        answer = of(steps(1, 70) + line + between + line.replace("T10:", "T11:"), scheduler_state="NODE_FAIL")
        assert [one.text for one in answer.evidence if "T10:" in one.text] == []


@pytest.mark.parametrize("why", ["PREEMPTION", "TIME LIMIT"])
def test_a_run_that_goes_on_through_its_notice_was_ended_by_what_the_notice_says(why: str) -> None:
    line = CANCELLED.replace(" ***\n", f" DUE TO {why} ***\n")
    ranks = "".join(f"step {n} loss 2.1\nstep {n - 1} loss 2.1\n" for n in range(70, 90))
    for log in (steps(1, 70) + line + steps(70, 90), "step 68 loss 2.1\nstep 69 loss 2.1\n" + line + ranks):
        assert of(log).cause == {"PREEMPTION": "preempted", "TIME LIMIT": "time-limit"}[why]


@pytest.mark.parametrize("line", [f"{XID}\n", "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.\n"])
def test_what_broke_an_attempt_before_does_not_explain_the_next_one(line: str) -> None:
    assert of(steps(1, 70) + line + steps(1, 70) + uncaught("KeyError: 'x'")).cause == "python-exception"
    assert of(steps(1, 70) + line + steps(70, 90) + uncaught("KeyError: 'x'")).cause == "python-exception"
    assert of(steps(1, 70) + line + steps(70, 72) + uncaught("KeyError: 'x'")).cause != "python-exception"


def test_a_requeue_is_a_cause_of_its_own() -> None:
    told = of(STEPS, scheduler_state="REQUEUED")
    assert (told.cause, told.family, told.confidence) == ("requeued", "scheduler", "high")
    assert told.evidence[0].text == "Slurm: REQUEUED"
    assert RULE["requeued"].meaning == "The job was requeued; who did it is unknown."
    assert (of(STEPS + REQUEUE).cause, of(STEPS + REQUEUE).confidence) == ("requeued", "high")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        (STEPS + REQUEUE + uncaught("KeyboardInterrupt"), "requeued"),
        (STEPS + REQUEUE + uncaught("RuntimeError: CUDA error: unspecified launch failure"), "requeued"),
        (STEPS + uncaught("KeyboardInterrupt"), "requeued"),
        (STEPS + uncaught(OOM) + "requeuing job 88\n" + REQUEUE, "cuda-oom"),
        (STEPS + REQUEUE.replace("JOB REQUEUE", "PREEMPTION"), "preempted"),
        (STEPS + REQUEUE.replace("JOB REQUEUE", "NODE FAILURE"), "node-fail"),
    ],
)  # fmt: skip
def test_a_requeue_explains_what_follows_it_but_not_what_came_before(log: str, cause: CauseName) -> None:
    assert of(log, scheduler_state="REQUEUED").cause == cause


def test_the_requeue_of_an_earlier_attempt_in_the_same_log_is_not_the_end_of_this_one() -> None:
    assert of(STEPS + REQUEUE + STEPS + uncaught(OOM)).cause == "cuda-oom"
    assert of(STEPS + REQUEUE + STEPS, exit_code=0).cause == "completed"


def test_a_program_that_ended_with_an_error_has_not_completed() -> None:
    done = STEPS + "Training completed.\n"
    assert [of(done, exit_code=code).cause for code in (0, 1, 70)] == ["completed", "unknown", "unknown"]
    assert of(done, exit_code=1).confidence == "low"


def test_a_run_that_completed_before_its_target_step_is_not_certain() -> None:
    for log in ("", STEPS + "Training completed.\n"):
        short = of(log, exit_code=0, last_step=40, target_step=1_000)
        assert (short.cause, short.confidence) == ("completed", "low")
        assert "step 40 of 1,000: not finished" in [one.text for one in short.evidence]
        assert short.advice.startswith("See why it ended before its target step.")
        assert of(log, exit_code=0, last_step=1_000, target_step=1_000).confidence == "high"


def test_the_answer_says_where_what_and_on_which_rank() -> None:
    found = of(STEPS + uncaught("KeyError: 'input_ids'", "[rank2]: "))
    assert (found.exception, found.rank) == ("KeyError", "2")
    assert [(one.line, one.text) for one in found.evidence] == [
        (33, '  File "/home/ana/train.py", line 12, in train'),
        (35, "KeyError: 'input_ids'"),
    ]


def test_evidence_holds_no_secret_and_no_escape_sequence() -> None:
    secret = "hf_" + "aB3" * 9
    found = of(f"\x1b[31mGatedRepoError: 401 Client Error, token={secret}\x1b[0m\n")
    assert found.cause == "network-or-auth"
    assert secret not in found.evidence[0].text
    assert "\x1b" not in found.evidence[0].text


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("OSError: [Errno 28] No space left: '/a/b1'", "OSError: [Errno 28] No space left: '/c'", True),
        ("ValueError: shape (3, 4) at 0x7f12ab at gpu-001", "ValueError: shape (7, 9) at 0x11ff00 at gpu-117", True),
        ("RuntimeError: 10.0.0.1:29500 failed at 10:00:00", "RuntimeError: 10.9.8.7:29501 failed at 11:11:11", True),
        ("KeyError: 'input_ids'", "KeyError: 'labels'", False),
        ("KeyError: 'input_ids'", "IndexError: 'input_ids'", False),
    ],
)  # fmt: skip
def test_a_fingerprint_tells_failures_apart_but_not_their_numbers(one: str, other: str, is_equal: bool) -> None:
    assert (of(uncaught(one)).fingerprint == of(uncaught(other)).fingerprint) is is_equal


def test_the_error_file_of_torchrun_shows_what_childfailederror_hides() -> None:
    found = of(TORCHRUN)
    assert (found.cause, found.exception, found.confidence, found.rank) == (
        "python-exception",
        "ValueError",
        "high",
        "3",
    )
    error, file = [one for one in found.evidence if "Value" in one.text or "error_file" in one.text]
    assert (error.text, error.rank, file.rank) == ("  ValueError: bad shape", "3", "3")
    assert file.text == "  error_file: /tmp/torchelastic_x/none_y/attempt_0/3/error.json"


def test_the_rank_of_an_exception_without_one_is_that_of_the_only_failure_in_the_summary_of_torchrun() -> None:
    table = "Failures:\n{}\n---\nRoot Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n"
    log = uncaught("ValueError: bad shape") + CHILD_FAILED + table + "  error_file: <N/A>\n"
    found = of(log.format("  <NO_OTHER_FAILURES>"))
    assert (found.exception, found.rank) == ("ValueError", "1")
    assert not any("error_file" in one.text for one in found.evidence)
    assert of(log.format("[1]:\n  rank      : 0 (local_rank: 0)")).rank is None, "which of them raised it is not known"


def test_a_fingerprint_does_not_depend_on_the_names_of_the_nodes() -> None:
    def told(node: str) -> str | None:
        return of(uncaught(f"RuntimeError: no answer from {node}"), nodes=(NodeFacts(name=node),)).fingerprint

    assert told("login-a") == told("login-b")
    assert told("login-a") is not None


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (
            (NodeFacts(name="n1"), NodeFacts(name="n2", drained="DOWN in Slurm (n1 is fine)")),
            ["n2: DOWN in Slurm (n1 is fine)"],
        ),
        ((NodeFacts(name="n1"),), ["n1: the only node of the attempt"]),
        ((NodeFacts(name="n1"), NodeFacts(name="n2")), []),
    ],
)
def test_the_evidence_of_a_failed_node_names_it(nodes: tuple[NodeFacts, ...], said: list[str]) -> None:
    found = of("", scheduler_state="NODE_FAIL", nodes=nodes)
    assert [one.text for one in found.evidence] == ["Slurm: NODE_FAIL", *said]
