"""Checkpoints of every layout, made as its trainer makes them, listed by the real probe, in every state."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from collectors.probe.checkpoints import Checkpoints as Probe
from tests.lab.checkpoints import SAVES, Save, clear, made
from trainmon import checkpoints
from trainmon.model_checkpoints import Checkpoints
from trainmon.readings import DECODER, CheckpointListing

NOW = 1_700_000_000.0
ROOT = Path(__file__).parents[2]
LAYOUT = {
    "megatron-legacy": "megatron", "hf-staged": "hf", "hf-deepspeed": "hf", "torchtitan": "dcp",
    "lightning-sharded": "lightning", "kempnerforge-async": "kempnerforge",
}  # fmt: skip
STATES = ("committed", "superseded", "superseded")


def listed(folder: Path, now: float = NOW) -> CheckpointListing:
    """What the probe says of a directory."""
    sense = Probe({"checkpoints": [str(folder)]}, wall=lambda: now)
    [line] = [line for _, look in sense.operations(True) for line in look()]
    reading = DECODER.decode(json.dumps({"v": 1, "t": now, **line}))
    assert isinstance(reading, CheckpointListing)
    return reading


def read(folder: Path, now: float = NOW, **given: Any) -> Checkpoints:
    known: dict[str, Any] = {"host": "n1", "at": now, "is_running": True, "now": now, "skew": 0.0, "before": None}
    return checkpoints.read(listed(folder, now), **{**known, **given})


def states(answer: Checkpoints) -> list[tuple[int | None, str]]:
    return [(one.step, one.state) for one in answer.list]


def two(folder: Path, save: Save) -> None:
    """Two whole ones, saved in a minute each, an hour apart; the last an hour ago."""
    made(folder, save, 500, at=NOW - 7200)
    made(folder, save, 1000, at=NOW - 3600)


def commit_of(save: Save) -> int:
    """How many operations it takes to be whole."""
    return next(index + 1 for index, one in enumerate(save(1)) if one.commits)


@pytest.mark.parametrize("name", SAVES)
def test_whole_ones_are_committed_or_superseded_and_the_newest_is_resumed(name: str, tmp_path: Path):
    two(tmp_path, SAVES[name])
    answer = read(tmp_path)
    assert states(answer) == [(1000, "committed"), (500, "superseded")]
    assert {one.layout for one in answer.list} == {LAYOUT.get(name, name)}
    assert answer.problem is None
    assert answer.committed is not None
    assert answer.resumes == answer.committed.path
    assert answer.every_s == pytest.approx(3600, abs=1)
    assert (answer.every_steps, answer.note, answer.error) == (500, None, None)
    assert answer.committed.at == pytest.approx(NOW - 3540, abs=30)
    assert answer.bytes == pytest.approx(answer.committed.bytes, abs=1)
    assert answer.bytes is not None
    assert answer.bytes > 1000
    if name != "lightning":  # one file tells no duration
        assert answer.save_s is not None
        assert 20 < answer.save_s <= 60
        assert answer.share == pytest.approx(answer.save_s / 3600, rel=0.01)


@pytest.mark.parametrize("name", SAVES)
def test_a_save_that_is_under_way_is_writing_at_every_file_until_its_marker(name: str, tmp_path: Path):
    save = SAVES[name]
    for stop in range(1, commit_of(save)):
        clear(tmp_path / "run")
        two(tmp_path / "run", save)
        made(tmp_path / "run", save, 1500, at=NOW - 61, stop=stop)
        answer = read(tmp_path / "run")
        assert states(answer) == [(1500, "writing"), (1000, "committed"), (500, "superseded")], save(1500)[:stop]
        assert answer.writing is not None
        assert answer.writing.why
        assert answer.problem is None


@pytest.mark.parametrize("name", SAVES)
def test_a_save_that_was_cut_off_anywhere_is_torn(name: str, tmp_path: Path):
    save = SAVES[name]
    for stop in range(1, commit_of(save)):
        clear(tmp_path / "run")
        two(tmp_path / "run", save)
        made(tmp_path / "run", save, 1500, at=NOW - 700, stop=stop)
        assert states(read(tmp_path / "run", is_running=None)) == [
            (1500, "torn"), (1000, "committed"), (500, "superseded")
        ], save(1500)[:stop]  # fmt: skip


@pytest.mark.parametrize("name", SAVES)
def test_a_save_is_whole_after_its_marker_whatever_still_follows(name: str, tmp_path: Path):
    save = SAVES[name]
    for stop in range(commit_of(save), len(save(1)) + 1):
        clear(tmp_path / "run")
        two(tmp_path / "run", save)
        made(tmp_path / "run", save, 1500, at=NOW - 300, stop=stop)
        assert states(read(tmp_path / "run"))[0] == (1500, "committed"), save(1500)[:stop]


@pytest.mark.parametrize("name", SAVES)
def test_the_job_being_gone_tears_an_unfinished_save_at_once(name: str, tmp_path: Path):
    two(tmp_path, SAVES[name])
    made(tmp_path, SAVES[name], 1500, at=NOW - 61, stop=commit_of(SAVES[name]) - 1)
    assert states(read(tmp_path, is_running=False))[0] == (1500, "torn")


@pytest.mark.parametrize("name", ["hf", "torchtitan", "deepspeed"])
def test_a_trainer_that_is_killed_in_the_middle_leaves_a_torn_one(name: str, tmp_path: Path):
    now = time.time()
    made(tmp_path, SAVES[name], 500, at=now - 3600)
    argv = [sys.executable, "-m", "tests.lab.checkpoints", name, str(tmp_path), "1000", "30"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as trainer:
        assert trainer.stdout is not None
        trainer.stdout.readline()
        assert states(read(tmp_path, time.time())) == [(1000, "writing"), (500, "committed")]
        trainer.kill()
    answer = read(tmp_path, time.time(), is_running=False)
    assert states(answer) == [(1000, "torn"), (500, "committed")]


def test_a_slow_save_is_given_four_times_its_usual_time(tmp_path: Path):
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW - 9000, took=900)
    made(tmp_path, SAVES["torchtitan"], 1000, at=NOW - 1500, took=900, stop=5)
    assert states(read(tmp_path, NOW + 1000))[0] == (1000, "writing")
    assert states(read(tmp_path, NOW + 4000))[0] == (1000, "torn")


def test_one_that_a_later_one_overtook_is_torn_after_two_minutes(tmp_path: Path):
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW - 300, stop=5)
    made(tmp_path, SAVES["torchtitan"], 1000, at=NOW - 100)
    assert states(read(tmp_path)) == [(1000, "committed"), (500, "torn")]


def test_times_are_by_our_clock(tmp_path: Path):
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW - 100)
    answer = read(tmp_path, skew=1000.0, now=NOW - 1000, at=NOW - 1000)
    assert answer.committed is not None
    assert answer.committed.at == pytest.approx(NOW - 1046, abs=10)
    assert answer.committed.began_at == pytest.approx(NOW - 1095, abs=10)


# -- what would be resumed ------------------------------------------------------------------------------------------


def problem(folder: Path, **given: Any) -> str | None:
    return read(folder, **given).problem


def test_an_empty_directory_is_an_error_state_of_its_own(tmp_path: Path):
    assert problem(tmp_path) == "no committed checkpoint found: the directory is empty, nothing was saved yet"
    (tmp_path / "notes.txt").touch()
    assert problem(tmp_path) == "no committed checkpoint found: nothing here looks like one (1 other name)"


def test_a_missing_directory_says_so(tmp_path: Path):
    answer = read(tmp_path / "ckpt")
    assert answer.error == f"does not exist; the nearest parent that does is {tmp_path}"
    assert answer.problem == f"no committed checkpoint found: the directory {answer.error}"


def test_the_first_save_is_told_from_a_loss(tmp_path: Path):
    made(tmp_path, SAVES["hf"], 500, at=NOW - 61, stop=4)
    assert problem(tmp_path) == "no committed checkpoint found yet: step 500 is being written"
    made(tmp_path, SAVES["hf"], 1000, at=NOW - 61, stop=4)
    assert problem(tmp_path, is_running=False) == (
        "no committed checkpoint found: step 1000 is torn (no trainer_state.json yet), and 1 more; "
        "a restart would take checkpoint-1000, which is torn: no trainer_state.json yet"
    )


def test_hf_resumes_the_highest_even_when_it_is_torn(tmp_path: Path):
    two(tmp_path, SAVES["hf"])
    made(tmp_path, SAVES["hf"], 1500, at=NOW - 3000, stop=6)
    answer = read(tmp_path)
    assert answer.resumes == f"{tmp_path}/checkpoint-1500"
    assert answer.problem == "a restart would take checkpoint-1500, which is torn: no trainer_state.json yet"


def test_torchtitan_passes_over_a_torn_one(tmp_path: Path):
    two(tmp_path, SAVES["torchtitan"])
    made(tmp_path, SAVES["torchtitan"], 1500, at=NOW - 3000, stop=6)
    answer = read(tmp_path)
    assert (answer.resumes, answer.problem) == (f"{tmp_path}/step-1000", None)


POINTED = {
    "megatron": ("latest_checkpointed_iteration.txt", "1500", "iter_0001500"),
    "deepspeed": ("latest", "global_step1500", "global_step1500"),
    "nanotron": ("latest.txt", "1500", "1500"),
    "idefics": ("latest_opt_step_dir", "/ckpt/opt_step-1500/", "opt_step-1500"),
}


@pytest.mark.parametrize("name", POINTED)
def test_a_pointer_to_nothing_is_told(name: str, tmp_path: Path):
    pointer, text, target = POINTED[name]
    two(tmp_path, SAVES[name])
    (tmp_path / pointer).write_text(text)
    answer = read(tmp_path)
    assert answer.problem == f"{pointer} names {target}, which is not here"
    assert answer.resumes == f"{tmp_path}/{target}"
    assert states(answer) == [(1000, "committed"), (500, "superseded")]


@pytest.mark.parametrize("name", ["megatron", "deepspeed", "nanotron", "idefics"])
def test_a_pointer_to_a_torn_one_is_told(name: str, tmp_path: Path):
    pointer, text, target = POINTED[name]
    two(tmp_path, SAVES[name])
    made(tmp_path, SAVES[name], 1500, at=NOW - 3000, stop=commit_of(SAVES[name]) - 2)
    (tmp_path / pointer).write_text(text)
    answer = read(tmp_path)
    assert answer.list[0].state == "torn"
    assert answer.problem == f"{pointer} names {target}, which is torn: {answer.list[0].why}"


def test_a_link_to_nothing_is_told(tmp_path: Path):
    two(tmp_path, SAVES["kempnerforge"])
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").symlink_to("step_1500")
    assert problem(tmp_path) == "latest names step_1500, which is not here"
    (tmp_path / "latest").unlink()
    assert read(tmp_path).resumes == f"{tmp_path}/step_1000"


def test_an_empty_or_strange_pointer_is_told(tmp_path: Path):
    two(tmp_path, SAVES["megatron"])
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("")
    assert problem(tmp_path) == "latest_checkpointed_iteration.txt is empty"
    tracker.write_text("\x1b[31mx\n")
    assert problem(tmp_path) == "latest_checkpointed_iteration.txt says “x”, which names no checkpoint"
    tracker.unlink()
    assert problem(tmp_path) == "no pointer: a restart would begin from scratch, though step 1000 is whole"


def test_after_a_rollback_the_pointer_says_which_one_counts(tmp_path: Path):
    save = SAVES["megatron"]
    two(tmp_path, save)
    made(tmp_path, save, 700, at=NOW - 600)
    answer = read(tmp_path)
    assert states(answer) == [(1000, "superseded"), (700, "committed"), (500, "superseded")]
    assert answer.resumes == f"{tmp_path}/iter_0000700"


def test_a_released_megatron_model_is_a_checkpoint_without_a_step(tmp_path: Path):
    made(tmp_path, SAVES["megatron-legacy"], 0, at=NOW - 3600)
    (tmp_path / "iter_0000000").rename(tmp_path / "release")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("release\n")
    answer = read(tmp_path)
    assert states(answer) == [(None, "committed")]
    assert answer.resumes == f"{tmp_path}/release"


# -- what looks whole and is not ------------------------------------------------------------------------------------


def test_saving_over_itself_makes_a_checkpoint_not_whole(tmp_path: Path):
    two(tmp_path, SAVES["torchtitan"])
    shard = tmp_path / "step-1000" / "__0_0.distcp"
    os.utime(shard, (NOW - 10, NOW - 10))
    answer = read(tmp_path)
    assert states(answer) == [(1000, "writing"), (500, "committed")]
    assert answer.list[0].why == ".metadata is older than its shards: it is saved again over itself"
    os.utime(shard, (NOW - 1000, NOW - 1000))
    assert problem(tmp_path) == (
        "a restart would take step-1000, which is torn: "
        ".metadata is older than its shards: it is saved again over itself"
    )


def test_fewer_deepspeed_shards_than_before_are_not_whole(tmp_path: Path):
    two(tmp_path, SAVES["deepspeed"])
    next(iter((tmp_path / "global_step1000").glob("*rank_2*optim_states.pt"))).unlink()
    answer = read(tmp_path)
    assert states(answer) == [(1000, "torn"), (500, "committed")]
    assert answer.list[0].why == "3 shards, where the one before has 4"
    assert answer.problem == "latest names global_step1000, which is torn: 3 shards, where the one before has 4"


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
    assert (answer.list[0].state, answer.list[0].why) == ("torn", "2 of 3 files of weights")
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
    assert (read(tmp_path).list[0].state, read(tmp_path).list[0].why) == ("torn", "smaller than the others: cut short")


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
        "latest names step_1000, which is torn: no train_state.pt: it would begin again at step 0"
    )


def test_orbax_needs_its_commit_marker_where_those_before_have_it(tmp_path: Path):
    two(tmp_path, SAVES["orbax"])
    (tmp_path / "500" / "commit_success.txt").unlink()
    assert states(read(tmp_path)) == [(1000, "committed"), (500, "superseded")], "an older version had none"
    made(tmp_path, SAVES["orbax"], 1500, at=NOW - 1000)
    (tmp_path / "1500" / "commit_success.txt").unlink()
    assert read(tmp_path).list[0].why == "no commit_success.txt, which those before it have"


# -- what else lies there -------------------------------------------------------------------------------------------


def test_other_things_are_passed_over_and_two_layouts_are_told(tmp_path: Path):
    two(tmp_path, SAVES["hf"])
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.out.tfevents.1").touch()
    made(tmp_path, SAVES["lightning"], 100, at=NOW - 9000)
    answer = read(tmp_path)
    assert [one.layout for one in answer.list] == ["hf", "hf", "lightning"]
    assert answer.note == "also checkpoints of lightning"


def test_the_directory_above_is_told(tmp_path: Path):
    (tmp_path / "checkpoint").mkdir()
    two(tmp_path / "checkpoint", SAVES["torchtitan"])
    answer = read(tmp_path)
    assert answer.list == ()
    assert answer.note == "is it the directory below, checkpoint?"
    assert answer.problem == "no committed checkpoint found: nothing here looks like one (1 other name)"


def test_one_that_was_not_looked_through_is_not_judged(tmp_path: Path):
    two(tmp_path, SAVES["torchtitan"])
    listing = listed(tmp_path)
    cut = [replace(one, cut=True, groups=one.groups[1:]) for one in listing.entries[:1]]
    listing = replace(listing, entries=(*cut, *listing.entries[1:]), left_out=3, took_s=6.0)
    answer = checkpoints.read(listing, host="n1", at=NOW, is_running=True, now=NOW, skew=0.0, before=None)
    assert states(answer) == [(500, "committed")]
    assert answer.note == (
        "3 names were not looked at: too many, or too slow; 1 not looked through yet; listing it took 6s"
    )
    assert answer.problem is None


def test_what_cannot_be_looked_at_is_as_old_as_the_last_look(tmp_path: Path):
    two(tmp_path, SAVES["hf"])
    before = read(tmp_path)
    hung = CheckpointListing(v=1, t=NOW + 100, path=str(tmp_path), error="no answer for 30 s")
    more: dict[str, Any] = {"host": "n1", "at": NOW + 100, "is_running": True, "now": NOW + 100, "skew": 0.0}
    answer = checkpoints.read(hung, before=before, **more)
    assert (answer.error, answer.looked_at, answer.list) == ("no answer for 30 s", NOW, before.list)
    assert checkpoints.read(hung, before=None, **more).list == ()
    moved = checkpoints.read(replace(hung, path="/other"), before=before, **more)
    assert moved.list == ()


def test_names_are_made_safe(tmp_path: Path):
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW - 3600)
    evil = tmp_path / "a\x1b[31mred\nstep 7"
    (evil).mkdir()
    (evil / "__0_0.distcp").touch()
    (evil / ".metadata").touch()
    (tmp_path / "latest").write_text("\x1b]0;x\x07gone")
    for one in read(tmp_path).list:
        assert one.path.isprintable()
    assert states(read(tmp_path)) == [(500, "committed"), (7, "superseded")]
