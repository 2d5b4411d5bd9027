"""What looks whole and is not, and the reverse, layout by layout."""

from __future__ import annotations

import os
from pathlib import Path

from tests.lab.checkpoints import SAVES, made
from tests.trainmon.analysis.checkpoints.reading import NOW, problem, read, states, two


def test_saving_over_itself_makes_a_checkpoint_not_whole(tmp_path: Path):
    two(tmp_path, SAVES["torchtitan"])
    shard = tmp_path / "step-1000" / "__0_0.distcp"
    os.utime(shard, (NOW - 10, NOW - 10))
    answer = read(tmp_path)
    assert states(answer) == [(1000, "writing"), (500, "committed")]
    assert answer.list[0].why == ".metadata is older than its shards: the checkpoint is being overwritten"
    os.utime(shard, (NOW - 1000, NOW - 1000))
    assert problem(tmp_path) == (
        "a restart would resume from step-1000, which is incomplete: "
        ".metadata is older than its shards: the checkpoint is being overwritten"
    )


def test_fewer_deepspeed_shards_than_before_are_not_whole(tmp_path: Path):
    two(tmp_path, SAVES["deepspeed"])
    next(iter((tmp_path / "global_step1000").glob("*rank_2*optim_states.pt"))).unlink()
    answer = read(tmp_path)
    assert states(answer) == [(1000, "torn"), (500, "committed")]
    assert answer.list[0].why == "3 shards, but the checkpoint before has 4"
    assert (
        answer.problem == "latest names global_step1000, which is incomplete: 3 shards, but the checkpoint before has 4"
    )


def test_a_run_that_goes_on_with_fewer_nodes_has_fewer_shards(tmp_path: Path):
    for step, ago in ((500, 9000), (1000, 6000), (1500, 3000)):
        made(tmp_path, SAVES["deepspeed"], step, at=NOW - ago)
        if step > 500:
            next(iter((tmp_path / f"global_step{step}").glob("*rank_3*optim_states.pt"))).unlink()
    assert states(read(tmp_path)) == [(1500, "committed"), (1000, "superseded"), (500, "superseded")]


def test_a_missing_file_of_weights_is_counted(tmp_path: Path):
    two(tmp_path, SAVES["hf"])
    (tmp_path / "checkpoint-1000" / "model-00002-of-00003.safetensors").unlink()
    answer = read(tmp_path)
    assert (answer.list[0].state, answer.list[0].why) == ("torn", "2 of 3 weight files")
    (tmp_path / "checkpoint-500" / "trainer_state.json").write_text("")
    assert read(tmp_path).list[1].why == "trainer_state.json is empty"


def test_a_ckpt_file_is_writing_until_two_looks_find_it_as_large(tmp_path: Path):
    name = "epoch=2-step=1500.ckpt"
    two(tmp_path, SAVES["lightning"])
    made(tmp_path, SAVES["lightning"], 1500, at=NOW - 61, stop=2)
    first = read(tmp_path)
    assert states(first)[0] == (1500, "writing")
    assert states(read(tmp_path, before=first))[0] == (1500, "writing"), "the same look again proves nothing"
    (tmp_path / name).write_text("\0" * 4000)
    os.utime(tmp_path / name, (NOW + 5, NOW + 5))
    second = read(tmp_path, NOW + 10, before=first)
    assert states(second)[0] == (1500, "writing")
    third = read(tmp_path, NOW + 20, before=second)
    assert states(third)[0] == (1500, "committed")
    assert states(read(tmp_path, NOW + 20, before=third))[0] == (1500, "committed")


def test_a_ckpt_file_that_was_cut_short_is_smaller_than_the_others(tmp_path: Path):
    two(tmp_path, SAVES["lightning"])
    made(tmp_path, SAVES["lightning"], 1500, at=NOW - 1000, stop=3)
    assert (read(tmp_path).list[0].state, read(tmp_path).list[0].why) == ("torn", "smaller than the others: truncated")


def test_a_file_of_another_kind_may_be_smaller(tmp_path: Path):
    for step in (500, 1000, 1500):
        made(tmp_path, SAVES["lightning"], step, at=NOW - 9000 + step)
    (tmp_path / "best-weights.ckpt").write_text("x")
    os.utime(tmp_path / "best-weights.ckpt", (NOW - 9000, NOW - 9000))
    assert {one.state for one in read(tmp_path).list} == {"committed", "superseded"}
    (tmp_path / "last.ckpt").write_text("x")
    os.utime(tmp_path / "last.ckpt", (NOW - 1000, NOW - 1000))
    assert read(tmp_path).list[0].why == "smaller than the others: truncated"


def test_last_ckpt_is_a_second_name_or_a_checkpoint_without_a_step(tmp_path: Path):
    two(tmp_path, SAVES["lightning"])
    last = tmp_path / "last.ckpt"
    last.symlink_to("epoch=2-step=1000.ckpt")
    answer = read(tmp_path)
    assert states(answer) == [(1000, "committed"), (500, "superseded")]
    assert answer.resumes == f"{tmp_path}/epoch=2-step=1000.ckpt"
    last.unlink()
    last.write_text("\0" * 4000)
    os.utime(last, (NOW - 3530, NOW - 3530))
    answer = read(tmp_path)
    assert states(answer) == [(1000, "committed"), (None, "superseded"), (500, "superseded")]
    assert answer.resumes == f"{tmp_path}/last.ckpt"
    (tmp_path / "hpc_ckpt_3.ckpt").write_text("\0" * 4000)
    os.utime(tmp_path / "hpc_ckpt_3.ckpt", (NOW - 1000, NOW - 1000))
    answer = read(tmp_path)
    assert states(answer)[0] == (None, "committed")
    assert answer.resumes == f"{tmp_path}/hpc_ckpt_3.ckpt"


def test_a_nemo_ema_copy_shares_the_marker(tmp_path: Path):
    base = "gpt--val_loss=2.10-step=500-consumed_samples=16000.0"
    for end in (".ckpt", "-EMA.ckpt", "-unfinished"):
        (tmp_path / (base + end)).write_text("x")
        os.utime(tmp_path / (base + end), (NOW - 30, NOW - 30))
    assert states(read(tmp_path)) == [(500, "writing"), (500, "writing")]
    (tmp_path / f"{base}-unfinished").unlink()
    assert sorted(states(read(tmp_path))) == [(500, "committed"), (500, "superseded")]


def test_kempnerforge_without_its_train_state_would_begin_again(tmp_path: Path):
    two(tmp_path, SAVES["kempnerforge"])
    (tmp_path / "step_1000" / "train_state.pt").unlink()
    assert problem(tmp_path) == (
        "latest names step_1000, which is incomplete: no train_state.pt: a restart would begin at step 0"
    )


def test_orbax_needs_its_commit_marker_where_those_before_have_it(tmp_path: Path):
    two(tmp_path, SAVES["orbax"])
    (tmp_path / "500" / "commit_success.txt").unlink()
    assert states(read(tmp_path)) == [(1000, "committed"), (500, "superseded")], "an older version had none"
    made(tmp_path, SAVES["orbax"], 1500, at=NOW - 1000)
    (tmp_path / "1500" / "commit_success.txt").unlink()
    assert read(tmp_path).list[0].why == "no commit_success.txt, which earlier checkpoints have"


def test_one_that_retention_is_deleting_is_no_torn_one(tmp_path: Path):
    save = SAVES["megatron"]
    two(tmp_path, save)
    made(tmp_path, save, 1500, at=NOW - 100)
    old = tmp_path / "iter_0000500"
    (old / "metadata.json").unlink()
    (old / "__0_0.distcp").unlink()
    os.utime(old, (NOW - 2, NOW - 2))
    assert states(read(tmp_path)) == [(1500, "committed"), (1000, "superseded")]
    assert states(read(tmp_path, NOW + 1000))[-1] == (500, "torn"), "it was left half deleted"


def test_the_last_ckpt_file_of_a_job_that_is_gone_does_not_grow(tmp_path: Path):
    two(tmp_path, SAVES["lightning"])
    made(tmp_path, SAVES["lightning"], 1500, at=NOW - 61)
    assert states(read(tmp_path))[0] == (1500, "writing")
    assert states(read(tmp_path, is_running=False))[0] == (1500, "committed")


def test_a_universal_checkpoint_of_deepspeed_is_no_save(tmp_path: Path):
    two(tmp_path, SAVES["deepspeed"])
    universal = tmp_path / "global_step1000_universal"
    universal.mkdir()
    (universal / "mp_rank_00_model_states.pt").write_text("x")
    assert states(read(tmp_path)) == [(1000, "committed"), (500, "superseded")]


def test_the_one_file_of_nanogpt_is_whole_when_two_looks_find_it_as_large(tmp_path: Path):
    file = tmp_path / "ckpt.pt"
    file.write_text("\0" * 4000)
    os.utime(file, (NOW - 5, NOW - 5))
    first = read(tmp_path)
    assert [(one.layout, one.state, one.why) for one in first.list] == [("nanogpt", "writing", "it may still grow")]
    second = read(tmp_path, NOW + 10, before=first)
    assert (states(second), second.resumes, second.problem) == ([(None, "committed")], str(file), None)
    soon = read(tmp_path, NOW + 2, before=first)
    assert states(soon) == [(None, "writing")], "a followed directory is listed every 2 s: a writer may pause for that"
    assert states(read(tmp_path, NOW + 4, before=soon)) == [(None, "committed")]
    file.write_text("")
    assert read(tmp_path, NOW + 20, before=second).list[0].why == "it is empty"
    (tmp_path / "model.pt").write_text("weights of another program")
    assert len(read(tmp_path).list) == 1
