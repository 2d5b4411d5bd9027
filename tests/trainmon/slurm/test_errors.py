"""What a failed command of Slurm means."""

from __future__ import annotations

import pytest

from trainmon.slurm.errors import (
    has_complained,
    has_no_step,
    is_without_accounting,
    kind,
    message,
    step_message,
    would_fail_alone,
)


@pytest.mark.parametrize(
    "stderr",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "slurm_load_jobs error: Socket timed out on send/recv operation",
        "slurm_load_jobs error: Zero Bytes were transmitted or received",
        "slurm_load_jobs error: Slurm backup controller in standby mode",
        "slurm_load_jobs error: Controller is in standby mode, try a different controller",
        "slurm_load_jobs error: Protocol authentication error",
        'scontrol: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory',
        "slurm_load_jobs error: Incompatible versions of client and server code",
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
        "slurm_load_jobs error: Rate limit exceeded, please retry momentarily",
        "squeue: fatal: Could not establish a configuration source",
        "sacct: error: Problem talking to the database: Connection refused",
    ],
)
def test_silence_of_the_controller_is_not_knowing(stderr: str) -> None:
    assert kind(1, stderr) == "silent"


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (1, "slurm_load_jobs error: Invalid job id specified", "gone"),
        (1, "scancel: error: Kill job error on job id 88: Invalid job id specified", "gone"),
        (210, "scancel: error: Kill job error on job id 1: Access/permission denied", "denied"),
        (1, "slurm_update error: Invalid user id", "denied"),
        (127, "env: 'squeue': No such file or directory", "absent"),
        (127, "bash: line 1: exec: squeue: not found", "absent"),
        (127, "scancel: error: Kill job error on job id 1: Invalid node state specified", "refused"),
        (1, "Job is pending execution for job 88", "refused"),
        (1, "Requested operation is presently disabled for job 88", "refused"),
        (1, "squeue: error: Invalid user: ghost", "refused"),
        (1, "", "refused"),
    ],
)
def test_every_other_no_has_its_kind(status: int, stderr: str, expected: str) -> None:
    assert kind(status, stderr) == expected


def test_the_words_are_those_that_say_most() -> None:
    assert message("slurm_load_jobs error: Invalid job id specified\n") == "Invalid job id specified"
    assert message("scancel: error: Kill job error on job id 9: Invalid job id specified\n\n") == (
        "Kill job error on job id 9: Invalid job id specified"
    )
    assert message("scontrol: error: If munged is up\nUnexpected message received for job 1\n") == (
        "Unexpected message received for job 1"
    )
    assert message("squeue: fatal: a\x1b[31mb\n") == "ab"
    assert message("") == ""


def test_a_user_whom_nobody_knows_is_a_complaint_though_it_ends_well() -> None:
    assert has_complained("squeue: error: Invalid user: ghost\n\n")
    assert not has_complained("warning: the login node is busy\n")


def test_no_accounting_is_a_fact() -> None:
    assert is_without_accounting("Slurm accounting storage is disabled\n")
    assert not is_without_accounting("sacct: error: Problem talking to the database: Connection refused")


CHECK = "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 7\n"
"""srun adds it to all that it says of an allocation."""


@pytest.mark.parametrize(
    ("stderr", "sentence", "is_for_all"),
    [
        (
            "srun: error: Unable to confirm allocation for job 7: "
            f"Unable to contact slurm controller (connect failure)\n{CHECK}",
            "Slurm starts no step of job 7: Unable to contact slurm controller (connect failure)",
            True,
        ),
        (
            "srun: error: Unable to confirm allocation for job 7: Socket timed out on send/recv operation\n" + CHECK,
            "Slurm starts no step of job 7: Socket timed out on send/recv operation",
            True,
        ),
        (
            "srun: error: If munged is up, restart with --num-threads=10\n"
            "srun: error: Munge encode failed: Failed to access the socket: No such file or directory\n"
            "srun: error: Unable to confirm allocation for job 7: Protocol authentication error\n" + CHECK,
            "Slurm starts no step of job 7: Protocol authentication error",
            True,
        ),
        (
            "srun: error: Unable to create step for job 7: Access/permission denied\n",
            "Slurm denies a step of job 7: Access/permission denied",
            True,
        ),
        (
            "srun: error: Unable to create step for job 7: Step limit reached for this job\n",
            "Slurm starts no step of job 7: Step limit reached for this job",
            True,
        ),
        (
            "srun: error: Unable to create step for job 7: Requested node configuration is not available\n",
            "Slurm starts no step of job 7: Requested node configuration is not available",
            False,
        ),
        (
            "srun: error: slurm_receive_msgs: [[localhost]:25218] failed: Socket timed out on send/recv operation\n"
            "srun: error: Task launch for StepId=7.0 failed on node gpu-1: Socket timed out on send/recv operation\n"
            "srun: error: Application launch failed: Socket timed out on send/recv operation\nsrun: Job step aborted\n",
            "the step of job 7 does not start on gpu-1: Socket timed out on send/recv operation",
            False,
        ),
        ("srun: error: Slurm job 7 has expired\n" + CHECK, "job 7 has ended, or its step was cancelled", True),
        (
            "srun: error: Unable to confirm allocation for job 7: Job is pending execution\n" + CHECK,
            "job 7 is pending again",
            True,
        ),
    ],
)
def test_why_srun_starts_no_step_is_said_without_doubt_about_the_job(
    stderr: str, sentence: str, is_for_all: bool
) -> None:
    """As srun of Slurm 22.05 says it."""
    assert step_message(7, stderr) == sentence
    assert would_fail_alone(stderr) == is_for_all
    assert has_no_step(stderr) == ("Task launch" not in stderr)
