"""The commands that are put to Slurm."""

from __future__ import annotations

import pytest

from trainmon.slurm import commands

NASTY = ["a'; echo foo", "a\nb", "-rf", "$(id)"]


def test_the_queue_is_filtered_by_the_controller() -> None:
    assert commands.queue()[:5] == ("squeue", "--noheader", "--noconvert", "--me", "--states=all")
    assert "--user=ana,ben" in commands.queue(["ana", "ben"])
    assert not [part for part in commands.queue() if "json" in part]


def test_nodes_are_named_or_those_of_partitions_or_all() -> None:
    assert commands.nodes(["gpu-1", "gpu-2"])[:4] == ("sinfo", "--noheader", "--Node", "--nodes=gpu-1,gpu-2")
    assert commands.nodes(None, ["h100"])[3] == "--partition=h100"
    assert len(commands.nodes()) == 4


def test_accounting_is_queried_for_every_attempt() -> None:
    argv = commands.accounting(["88", "90_3"])
    assert {"--allocations", "--duplicates", "--jobs=88,90_3", "--parsable2"} <= set(argv)


def test_a_requeue_never_runs_a_completed_job_again() -> None:
    assert commands.requeue("88_3") == ("scontrol", "requeue", "Incomplete", "88_3")
    assert commands.requeue_ended("88_3") == ("scontrol", "requeue", "88_3")


def test_a_signal_goes_to_the_batch_shell_or_to_the_steps() -> None:
    assert commands.signal("88", "USR1", batch=True) == ("scancel", "--signal=USR1", "--batch", "88")
    assert commands.signal("88", "USR1", batch=False) == ("scancel", "--signal=USR1", "88")


@pytest.mark.parametrize("name", NASTY)
def test_paths_and_reasons_stay_one_argument(name: str) -> None:
    assert commands.submit(3, "88", f"/fsx/{name}", f"/fsx/{name}/train.slurm") == (
        "sbatch", "--array=1-3%1", "--dependency=afterany:88", f"--chdir=/fsx/{name}", f"/fsx/{name}/train.slurm",
    )  # fmt: skip
    assert commands.drain("gpu-1", name)[-1] == f"Reason={name}"


def test_a_first_job_waits_for_none() -> None:
    assert commands.submit(1, None, None, "/t.sh") == ("sbatch", "--array=1-1%1", "/t.sh")


def test_the_excluded_nodes_replace_those_before() -> None:
    assert commands.exclude("88", ["gpu-1", "gpu-2"]) == ("scontrol", "update", "JobId=88", "ExcNodeList=gpu-1,gpu-2")
