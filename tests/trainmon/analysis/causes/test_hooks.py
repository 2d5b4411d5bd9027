"""What a loop with trainmon_hooks prints at its end is the cause, also where torchrun then fails."""

from __future__ import annotations

import pytest

from tests.trainmon.analysis.causes.logs import of
from trainmon.model import CauseName

STEPS = "".join(f"step: {n}/1000 | loss: 2.{n}\n" for n in range(1, 30))
SIGNALLED = """Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/usr/lib/python3/torch/distributed/elastic/multiprocessing/api.py", line 100, in _terminate_process_handler
    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 123 got signal: 15
"""
FAILED = """Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 12)
  error_file: <N/A>
"""


@pytest.mark.parametrize(
    ("why", "cause"),
    [
        ("SIGTERM on rank 0", "cancelled-by-user"),
        ("SIGTERM", "cancelled-by-user"),
        ("SIGUSR2 on rank 3", "cancelled-by-user"),
        ("the time limit", "time-limit"),
        ("the kill switch", "kill-switch"),
    ],
)
@pytest.mark.parametrize("launcher", ["", SIGNALLED, FAILED, "srun: error: n1: task 0: Exited with exit code 1\n"])
@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "0: "])
def test_the_end_that_the_loop_prints_outweighs_the_exit_status_of_the_launcher(
    prefix: str, launcher: str, why: str, cause: CauseName
) -> None:
    log = f"{STEPS}{prefix}trainmon: ended at step 46: stop: {why}\n{launcher}"
    assert of(log, exit_code=1, scheduler_state="FAILED").cause == cause
    assert of(log, exit_code=1).cause == cause


@pytest.mark.parametrize("launcher", ["", FAILED])
def test_a_last_save_that_finds_a_full_disk_is_the_cause_of_a_failure_and_not_the_signal_that_asked_for_it(
    launcher: str,
) -> None:
    log = f"""{STEPS}trainmon: stop, asked for by SIGTERM on rank 0, at step 29
trainmon: ended at step 29: an exception: OSError
Traceback (most recent call last):
  File "/x/train.py", line 210, in <module>
    save(step)
  File "/opt/torch/serialization.py", line 965, in save
    with _open_zipfile_writer(f) as opened_zipfile:
OSError: [Errno 28] No space left on device
{launcher}"""
    assert of(log, exit_code=1, scheduler_state="FAILED").cause == "disk-full"
    assert of(log, scheduler_state="CANCELLED by 1000").cause == "cancelled-by-user"


def test_the_end_of_an_attempt_before_in_the_same_log_is_not_that_of_this_one() -> None:
    log = f"trainmon: ended at step 4: stop: the kill switch\n{STEPS}torch.OutOfMemoryError: CUDA out of memory.\n"
    assert of(log, exit_code=1).cause == "cuda-oom"
