"""What has the name or the files of a checkpoint and is none: cut short, under a temporary name, or only a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.lab.checkpoints import SAVES, made
from tests.trainmon.analysis.checkpoints.reading import NOW, listed, read, states, two
from trainmon.analysis.checkpoints import listing as checkpoints

SHARDS = {
    "megatron": ("iter_0001500", "__2_1.distcp"),
    "megatron-legacy": ("iter_0001500", "mp_rank_03/distrib_optim.pt"),
    "deepspeed": ("global_step1500", "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
    "hf": ("checkpoint-1500", "model-00002-of-00003.safetensors"),
    "hf-deepspeed": ("checkpoint-1500", "global_step1500/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"),
    "torchtitan": ("step-1500", "__0_0.distcp"),
    "nanotron": ("1500", "optimizer/optimizer_pp-0-of-1_tp-0-of-2.pt"),
    "nemo": ("gpt--val_loss=2.10-step=1500-consumed_samples=48000.0-last", "weights/__3_0.distcp"),
    "kempnerforge": ("step_1500", "__1_1.distcp"),
    "idefics": ("opt_step-1500", "unwrapped_model/pytorch_model.bin"),
}
"""By layout: the third checkpoint, and a file with weights or the state of an optimizer."""


def cut(path: Path, size: int) -> None:
    """Cut a file short; its time stays, as on a filesystem that has lost the end of a write."""
    times = path.stat()
    os.truncate(path, size)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize("name", SHARDS)
def test_a_shard_below_a_tenth_of_its_size_in_the_save_before_tears_the_checkpoint(name: str, tmp_path: Path):
    folder, shard = SHARDS[name]
    two(tmp_path, SAVES[name])
    made(tmp_path, SAVES[name], 1500, at=NOW - 90)
    cut(tmp_path / folder / shard, 100)
    assert states(read(tmp_path))[0] == (1500, "committed"), "a tenth is enough"
    cut(tmp_path / folder / shard, 99)
    answer = read(tmp_path)
    assert states(answer) == [(1500, "torn"), (1000, "committed"), (500, "superseded")]
    assert answer.list[0].why == f"{shard} is cut short: 99 B, 1.0 KiB in the save before"
    assert answer.at_risk(1600) == 600, "a crash would lose the steps since the last complete one"


def test_a_shard_that_was_just_written_may_not_be_shown_in_full_size_yet(tmp_path: Path):
    two(tmp_path, SAVES["torchtitan"])
    made(tmp_path, SAVES["torchtitan"], 1500, at=NOW - 60)
    cut(tmp_path / "step-1500" / "__0_0.distcp", 0)
    os.utime(tmp_path / "step-1500" / ".metadata", (NOW - 3, NOW - 3))
    assert states(read(tmp_path))[0] == (1500, "writing")
    assert states(read(tmp_path, is_running=False))[0] == (1500, "torn")
    assert states(read(tmp_path, NOW + 10))[0] == (1500, "torn")


def test_what_is_no_shard_may_shrink(tmp_path: Path):
    for step, size in ((500, 5000), (1000, 5000), (1500, 10)):
        made(tmp_path, SAVES["hf"], step, at=NOW - 9000 + step)
        for file in ("rng_state_0.pth", "scheduler.pt", "trainer_state.json", "dataloader_rank_0.pt"):
            path = tmp_path / f"checkpoint-{step}" / file
            path.write_bytes(b"x" * size)
            os.utime(path, (NOW - 8000 + step, NOW - 8000 + step))
    assert states(read(tmp_path))[0] == (1500, "committed")


def test_a_single_file_below_a_tenth_of_the_save_before_is_torn(tmp_path: Path):
    save = SAVES["lightning"]
    made(tmp_path, save, 500, at=NOW - 7200)
    made(tmp_path, save, 1000, at=NOW - 3600)
    cut(tmp_path / "epoch=2-step=1000.ckpt", 300)
    answer = read(tmp_path)
    assert states(answer) == [(1000, "torn"), (500, "committed")]
    assert answer.list[0].why == "it is cut short: 300 B, 3.9 KiB in the save before"


TEMPORARY_NAMES = (
    "{}.tmp", "{}_tmp", "{}.tmp-3f9a", "{}.tmp.12345", "{}.tmpk2x9a_1b", "{}.TEMP", "tmp-{}", ".tmp_{}", ".{}",
    "{}.partial", "{}.incomplete", "{}.in_progress", "{}~",
)  # fmt: skip


@pytest.mark.parametrize("temporary", TEMPORARY_NAMES)
@pytest.mark.parametrize("name", [name for name in SHARDS if name != "nemo"])
def test_a_checkpoint_under_a_temporary_name_is_writing_or_torn(name: str, temporary: str, tmp_path: Path):
    folder, _ = SHARDS[name]
    two(tmp_path, SAVES[name])
    made(tmp_path, SAVES[name], 1500, at=NOW - 70)
    (tmp_path / folder).rename(tmp_path / temporary.format(folder))
    answer = read(tmp_path)
    assert states(answer) == [(1500, "writing"), (1000, "committed"), (500, "superseded")]
    assert answer.list[0].why == "still under its temporary name"
    assert states(read(tmp_path, is_running=False))[0] == (1500, "torn")
    assert states(read(tmp_path, NOW + 1000))[0] == (1500, "torn")


@pytest.mark.parametrize(
    "file", ["epoch=3-step=1500.ckpt.tmp", "tmp-epoch=3-step=1500.ckpt", "epoch=3-step=1500.tmp.ckpt"]
)
def test_a_single_file_under_a_temporary_name_is_writing_or_torn(file: str, tmp_path: Path):
    two(tmp_path, SAVES["lightning"])
    made(tmp_path, SAVES["lightning"], 1500, at=NOW - 700)
    (tmp_path / "epoch=3-step=1500.ckpt").rename(tmp_path / file)
    answer = read(tmp_path)
    assert states(answer)[0] == (1500, "torn")
    assert answer.resumes == f"{tmp_path}/epoch=2-step=1000.ckpt"


@pytest.mark.parametrize("name", ["model_temp_0.5_step_1500", "temp_0.5-step_1500", "step_1500"])
def test_a_temperature_in_a_name_is_no_temporary_name(name: str, tmp_path: Path):
    made(tmp_path, SAVES["torchtitan"], 1500, at=NOW - 700)
    (tmp_path / "step-1500").rename(tmp_path / name)
    assert states(read(tmp_path)) == [(1500, "committed")]


@pytest.mark.parametrize("target", [".", "./", "..", "../..", "../run", "{run}", "{run}/", "{parent}", "/"])
def test_a_link_to_its_own_parent_is_no_checkpoint(target: str, tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    two(run, SAVES["torchtitan"])
    (run / "step-3000").symlink_to(target.format(run=run, parent=tmp_path))
    answer = read(run)
    assert states(answer) == [(1000, "committed"), (500, "superseded")]
    assert (answer.resumes, answer.problem) == (f"{run}/step-1000", None)
    for path in (f"{run}/", f"{run}/."):
        again = checkpoints.read(
            replace(listed(run), path=path), host="n1", at=NOW, is_running=True, now=NOW, skew=0.0, before=None
        )
        assert states(again) == states(answer)


def test_a_link_to_a_checkpoint_elsewhere_is_one(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    two(run, SAVES["torchtitan"])
    (run / "step-3000").symlink_to("/other/disk/step-3000/")
    assert states(read(run))[0][0] == 3000
    (run / "step-4000").symlink_to("step-4000")
    (run / "step-5000").symlink_to("step-1000/")
    assert [step for step, _ in states(read(run))] == [3000, 1000, 500], "a loop, and a second name"
