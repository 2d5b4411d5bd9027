"""Checkpoints of every layout, made as its trainer makes them, listed by the real probe, in every state."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.lab.checkpoints import SAVES, clear, made
from tests.trainmon.analysis.checkpoints.reading import NOW, commit_of, listed, read, states, two
from trainmon.analysis.checkpoints import listing as checkpoints
from trainmon.model import CheckpointEntry, CheckpointListing, FileGroup

ROOT = Path(__file__).parents[4]
LAYOUT = {
    "megatron-legacy": "megatron", "hf-staged": "hf", "hf-deepspeed": "hf", "torchtitan": "dcp",
    "lightning-sharded": "lightning", "lightning-deepspeed": "lightning", "hf-fsdp": "hf",
    "kempnerforge-async": "kempnerforge",
}  # fmt: skip


def test_a_pause_between_two_attempts_is_not_the_usual_time_between_two_commits(tmp_path: Path) -> None:
    for step, at in ((500, NOW - 90_000), (1000, NOW - 3_600), (1500, NOW - 1_800)):
        made(tmp_path, SAVES["megatron"], step, at=at)
    assert read(tmp_path).every_s == pytest.approx(1_800, abs=60)


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


def test_other_things_are_passed_over_and_two_layouts_are_reported(tmp_path: Path):
    two(tmp_path, SAVES["hf"])
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.out.tfevents.1").touch()
    made(tmp_path, SAVES["lightning"], 100, at=NOW - 9000)
    answer = read(tmp_path)
    assert [one.layout for one in answer.list] == ["hf", "hf", "lightning"]
    assert answer.note == "also checkpoints of lightning"


def test_the_directory_above_is_reported(tmp_path: Path):
    (tmp_path / "checkpoint").mkdir()
    two(tmp_path / "checkpoint", SAVES["torchtitan"])
    answer = read(tmp_path)
    assert answer.list == ()
    assert answer.note == "did you mean the subdirectory checkpoint?"
    assert answer.problem == "no committed checkpoint found: nothing here looks like a checkpoint (1 other name)"


def test_the_directory_several_levels_above_is_reported(tmp_path: Path):
    below = tmp_path / "lightning_logs" / "version_7" / "checkpoints"
    below.mkdir(parents=True)
    two(below, SAVES["lightning"])
    assert read(tmp_path).note == "did you mean the subdirectory lightning_logs/version_7/checkpoints?"


def test_one_that_was_not_looked_through_is_not_judged(tmp_path: Path):
    two(tmp_path, SAVES["torchtitan"])
    listing = listed(tmp_path)
    cut = [replace(one, cut=True, groups=one.groups[1:]) for one in listing.entries[:1]]
    listing = replace(listing, entries=(*cut, *listing.entries[1:]), left_out=3, took_s=6.0)
    answer = checkpoints.read(listing, host="n1", at=NOW, is_running=True, now=NOW, skew=0.0, before=None)
    assert states(answer) == [(500, "committed")]
    assert answer.note == (
        "3 entries were not examined: too many, or too slow; 1 not fully listed yet; listing it took 6s"
    )
    assert answer.problem is None
    one = checkpoints.read(
        replace(listing, left_out=1), host="n1", at=NOW, is_running=True, now=NOW, skew=0.0, before=None
    )
    assert (one.note or "").startswith("1 entry was not examined: too many, or too slow; ")
    none = replace(listing, entries=tuple(cut), left_out=3)
    answer = checkpoints.read(none, host="n1", at=NOW, is_running=True, now=NOW, skew=0.0, before=None)
    assert answer.problem == "no committed checkpoint found so far: 4 entries were not examined"
    assert answer.trouble is None, "they may be read yet"


def test_what_cannot_be_looked_at_is_as_old_as_the_last_look(tmp_path: Path):
    two(tmp_path, SAVES["hf"])
    before = read(tmp_path)
    hung = CheckpointListing(v=1, t=NOW + 100, path=str(tmp_path), error="no answer for 30s")
    more: dict[str, Any] = {"host": "n1", "at": NOW + 100, "is_running": True, "now": NOW + 100, "skew": 0.0}
    answer = checkpoints.read(hung, before=before, **more)
    assert (answer.error, answer.listed_at, answer.list) == ("no answer for 30s", NOW, before.list)
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


WORDS = (
    "iter_", "checkpoint-", "tmp-checkpoint-", "global_step", "step_", "step-", "opt_step-", "500", "0001500",
    "release", "latest", "latest.txt", "latest_checkpointed_iteration.txt", "latest_opt_step_dir", ".ckpt",
    "-unfinished", "--val_loss=2.1-step=", ".orbax-checkpoint-tmp", "9" * 40, "last", "٣", "\n", "/", "#",
    ".metadata", "__#_#.distcp", "mp_rank_#_model_states.pt", "trainer_state.json", "model-#-of-#.safetensors",
    "model.safetensors.index.json", "",
)  # fmt: skip


def test_whatever_a_node_says_is_read():
    some = random.Random(4)

    def word() -> str:
        return "".join(some.choices(WORDS, k=some.randrange(1, 4)))

    def group() -> FileGroup:
        return FileGroup(word(), some.randrange(3), some.randrange(3), 0.0, NOW - some.choice((30.0, 9e5)), word())

    def entry() -> CheckpointEntry:
        kind: Any = some.choice(("dir", "file", "link", "other"))
        groups = tuple(group() for _ in range(some.randrange(4)))
        text, target = some.choice((None, word())), some.choice((None, word()))
        cut = some.random() < 0.1
        return CheckpointEntry(word(), kind, NOW - 5, some.choice((None, 7)), target, groups, text, cut=cut)

    seen: set[str] = set()
    before = None
    for _ in range(2000):
        entries = tuple(entry() for _ in range(some.randrange(8)))
        listing = CheckpointListing(v=1, t=NOW, path="/fsx/ckpt", entries=entries, left_out=some.randrange(2))
        running = some.choice((True, False, None))
        before = checkpoints.read(listing, host="n", at=NOW, is_running=running, now=NOW, skew=0.0, before=before)
        seen |= {one.state for one in before.list}
        assert before.problem is not None or before.committed is not None or before.unrecognised is not None
        assert all(one.path.isprintable() and one.at is not None and one.at <= NOW for one in before.list)
        assert len([one for one in before.list if one.state == "committed"]) <= 1
    assert seen == {"writing", "committed", "superseded", "torn", "unknown"}
