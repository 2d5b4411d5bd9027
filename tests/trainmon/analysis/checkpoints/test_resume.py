"""What would be resumed, by each trainer's own rule, and what is wrong with that."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.lab.checkpoints import SAVES, made
from tests.trainmon.analysis.checkpoints.reading import NOW, commit_of, listed, problem, read, states, two
from trainmon.analysis.checkpoints import listing as checkpoints
from trainmon.analysis.checkpoints.listing import with_pointers
from trainmon.model import CheckpointListing


def test_an_empty_directory_is_an_error_state_of_its_own(tmp_path: Path):
    assert problem(tmp_path) == "no committed checkpoint found: the directory is empty, nothing was saved yet"
    assert read(tmp_path).trouble is None, "every training begins so"
    (tmp_path / "notes.txt").touch()
    assert problem(tmp_path) == "no committed checkpoint found: nothing here looks like a checkpoint (1 other name)"
    assert read(tmp_path).trouble == problem(tmp_path)


def test_a_missing_directory_says_so(tmp_path: Path):
    answer = read(tmp_path / "ckpt")
    assert answer.error == f"does not exist; the nearest existing parent is {tmp_path}"
    assert answer.problem == f"no committed checkpoint found: the directory {answer.error}"


def test_the_first_save_is_distinguished_from_a_loss(tmp_path: Path):
    made(tmp_path, SAVES["hf"], 500, at=NOW - 61, stop=4)
    assert problem(tmp_path) == "no committed checkpoint found yet: step 500 is being written"
    assert read(tmp_path).trouble is None
    made(tmp_path, SAVES["hf"], 1000, at=NOW - 61, stop=4)
    assert problem(tmp_path, is_running=False) == (
        "no committed checkpoint found: step 1,000 is incomplete (no trainer_state.json yet), and 1 more; "
        "a restart would resume from checkpoint-1000, which is incomplete: no trainer_state.json yet"
    )
    assert read(tmp_path, is_running=False).trouble == problem(tmp_path, is_running=False)


def test_hf_resumes_the_highest_even_when_it_is_torn(tmp_path: Path):
    two(tmp_path, SAVES["hf"])
    made(tmp_path, SAVES["hf"], 1500, at=NOW - 3000, stop=6)
    answer = read(tmp_path)
    assert answer.resumes == f"{tmp_path}/checkpoint-1500"
    assert (
        answer.problem == "a restart would resume from checkpoint-1500, which is incomplete: no trainer_state.json yet"
    )


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
def test_a_pointer_to_nothing_is_reported(name: str, tmp_path: Path):
    pointer, text, target = POINTED[name]
    two(tmp_path, SAVES[name])
    (tmp_path / pointer).write_text(text)
    answer = read(tmp_path)
    assert answer.problem == f"{pointer} names {target}, which does not exist"
    assert answer.resumes == f"{tmp_path}/{target}"
    assert states(answer) == [(1000, "committed"), (500, "superseded")]


@pytest.mark.parametrize("name", ["megatron", "deepspeed", "nanotron", "idefics"])
def test_a_pointer_to_a_torn_one_is_reported(name: str, tmp_path: Path):
    pointer, text, target = POINTED[name]
    two(tmp_path, SAVES[name])
    made(tmp_path, SAVES[name], 1500, at=NOW - 3000, stop=commit_of(SAVES[name]) - 2)
    (tmp_path / pointer).write_text(text)
    answer = read(tmp_path)
    assert answer.list[0].state == "torn"
    assert answer.problem == f"{pointer} names {target}, which is incomplete: {answer.list[0].why}"


def test_a_link_to_nothing_is_reported(tmp_path: Path):
    two(tmp_path, SAVES["kempnerforge"])
    (tmp_path / "latest").unlink()
    (tmp_path / "latest").symlink_to("step_1500")
    assert problem(tmp_path) == "latest names step_1500, which does not exist"
    (tmp_path / "latest").unlink()
    assert read(tmp_path).resumes == f"{tmp_path}/step_1000"


def test_an_empty_or_strange_pointer_is_reported(tmp_path: Path):
    two(tmp_path, SAVES["megatron"])
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("")
    os.utime(tracker, (NOW - 61, NOW - 61))
    assert problem(tmp_path) == "latest_checkpointed_iteration.txt is empty"
    tracker.write_text("\x1b[31mx\n")
    assert problem(tmp_path) == "latest_checkpointed_iteration.txt contains “x”, which names no checkpoint"
    tracker.unlink()
    assert problem(tmp_path) == "no pointer file: a restart would begin from scratch, although step 1,000 is complete"


@pytest.mark.parametrize("name", ["megatron", "megatron-legacy", "deepspeed", "nanotron", "idefics"])
def test_a_pointer_that_is_truncated_before_it_is_written_is_a_problem_only_if_it_stays_empty(
    name: str, tmp_path: Path
):
    pointer, _, _ = POINTED[name.removesuffix("-legacy")]
    two(tmp_path, SAVES[name])
    before, whole = listed(tmp_path), read(tmp_path)
    (tmp_path / pointer).write_text("")
    for age in (0, 59):
        os.utime(tmp_path / pointer, (NOW - age, NOW - age))
        moment = with_pointers(with_pointers(listed(tmp_path), before), before)
        assert read(tmp_path, listing=moment) == whole
        assert "is empty" not in (problem(tmp_path) or ""), "what it said before is not known"
    os.utime(tmp_path / pointer, (NOW - 61, NOW - 61))
    moment = with_pointers(listed(tmp_path), before)
    assert (read(tmp_path, listing=moment).problem or "").endswith(f"{pointer} is empty")


def test_a_first_look_at_an_empty_tracker_judges_by_the_shards(tmp_path: Path):
    two(tmp_path, SAVES["megatron-legacy"])
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("")
    for age, expected in ((1, None), (61, "latest_checkpointed_iteration.txt is empty")):
        os.utime(tracker, (NOW - age, NOW - age))
        answer = read(tmp_path)
        assert states(answer) == [(1000, "committed"), (500, "superseded")]
        assert answer.problem == expected
    made(tmp_path, SAVES["megatron-legacy"], 1500, at=NOW - 10, stop=commit_of(SAVES["megatron-legacy"]) - 1)
    os.utime(tracker, (NOW - 3000, NOW - 3000))
    assert states(read(tmp_path))[0] == (1500, "writing"), "it is younger than the tracker"
    assert read(tmp_path).list[0].why == "latest_checkpointed_iteration.txt is empty"


def test_after_a_rollback_the_pointer_says_which_one_counts(tmp_path: Path):
    save = SAVES["megatron"]
    two(tmp_path, save)
    made(tmp_path, save, 700, at=NOW - 600)
    answer = read(tmp_path)
    assert states(answer) == [(1000, "superseded"), (700, "committed"), (500, "superseded")]
    assert answer.resumes == f"{tmp_path}/iter_0000700"


@pytest.mark.parametrize(("name", "named"), [("megatron", "iter_0001000"), ("idefics", "opt_step-1000")])
def test_a_pointer_that_was_not_moved_on_is_reported(name: str, named: str, tmp_path: Path):
    two(tmp_path, SAVES[name])
    made(tmp_path, SAVES[name], 1500, at=NOW - 600, stop=commit_of(SAVES[name]))
    answer = read(tmp_path)
    assert states(answer)[0] == (1500, "committed")
    assert answer.resumes == f"{tmp_path}/{named}"
    assert answer.problem == (
        f"{POINTED[name][0]} names {named}, although step 1,500 is complete: a restart would resume from the older one"
    )
    assert problem(tmp_path, now=NOW) is not None
    made(tmp_path, SAVES[name], 1500, at=NOW - 80, stop=commit_of(SAVES[name]))
    assert problem(tmp_path) is None, "it is moved a moment after the commit"


def test_a_pointer_that_a_person_moved_back_says_which_one_counts(tmp_path: Path):
    two(tmp_path, SAVES["megatron"])
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("500")
    os.utime(tmp_path / "latest_checkpointed_iteration.txt", (NOW - 100, NOW - 100))
    answer = read(tmp_path)
    assert states(answer) == [(1000, "superseded"), (500, "committed")]
    assert (answer.at_risk(700), answer.problem) == (200, None)


@pytest.mark.parametrize("name", ["megatron", "kempnerforge"])
def test_the_steps_since_the_checkpoint_of_the_pointer_are_at_risk(name: str, tmp_path: Path):
    two(tmp_path, SAVES[name])
    made(tmp_path, SAVES[name], 1500, at=NOW - 30, stop=commit_of(SAVES[name]))
    answer = read(tmp_path)
    assert answer.committed is not None
    assert (answer.committed.step, answer.problem) == (1500, None), "the pointer moves a moment later"
    assert answer.at_risk(1600) == 600, "a restart resumes from step 1000 until then"


def test_all_steps_are_at_risk_where_nothing_is_saved_and_none_is_reported_where_nobody_can_look(tmp_path: Path):
    assert read(tmp_path).at_risk(700) == 700
    assert read(tmp_path / "gone").at_risk(700) == 700
    hung = CheckpointListing(v=1, t=NOW, path="/x", error="no answer for 30s")
    known: dict[str, Any] = {"host": "n1", "at": NOW, "is_running": True, "now": NOW, "skew": 0.0, "before": None}
    assert checkpoints.read(hung, **known).at_risk(700) is None


def test_a_released_megatron_model_is_a_checkpoint_without_a_step(tmp_path: Path):
    made(tmp_path, SAVES["megatron-legacy"], 0, at=NOW - 3600)
    (tmp_path / "iter_0000000").rename(tmp_path / "release")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("release\n")
    answer = read(tmp_path)
    assert states(answer) == [(None, "committed")]
    assert answer.resumes == f"{tmp_path}/release"
