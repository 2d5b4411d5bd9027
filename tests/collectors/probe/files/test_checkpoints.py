"""Checkpoint directories: what is told of them, when, at what cost, and what goes wrong with them in words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collectors.probe.files.checkpoints import BUDGET, MAX_ENTRIES, MAX_GROUPS, SLICE, Checkpoints
from tests.collectors.probe import interpreters
from tests.collectors.probe.wire import ManualClock, readings_of
from tests.lab.checkpoints import SAVES, made
from tests.lab.hung_mount import HungMount
from tests.lab.nvml import Nvml
from tests.lab.probe import RunningProbe
from trainmon.model import CheckpointListing, GpuSamples, HostSample

ROOT = Path(__file__).parents[4]
NOW = 1_700_000_000.0


def sense(folder: Path, watch: ManualClock | None = None, now: float = NOW) -> Checkpoints:
    return Checkpoints({"checkpoints": [str(folder)]}, watch or ManualClock(), lambda: now)


def listing(folder: Path) -> Any:
    [reading] = readings_of(sense(folder))
    return reading


def entry(folder: Path, name: str) -> Any:
    return next(one for one in listing(folder).entries if one.name == name)


def test_shards_are_one_group_with_count_size_times_and_folders(tmp_path: Path):
    for rank in range(20):
        shard = tmp_path / "step_500" / f"pp{rank % 2}" / f"__{rank}_0.distcp"
        shard.parent.mkdir(parents=True, exist_ok=True)
        shard.write_bytes(b"x" * 100)
        os.utime(shard, (NOW - rank, NOW - rank))
    (tmp_path / "step_500" / "train_state.pt").write_bytes(b"y" * 7)
    [one] = listing(tmp_path).entries
    assert (one.name, one.kind, one.bytes, one.cut, one.error) == ("step_500", "dir", 2007, False, None)
    shards, state = one.groups
    assert (shards.pattern, shards.count, shards.bytes, shards.folders) == ("pp#/__#_#.distcp", 20, 2000, 2)
    assert (shards.oldest, shards.newest, shards.example) == (NOW - 19, NOW, "pp1/__9_0.distcp")
    assert (state.pattern, state.count, state.folders) == ("train_state.pt", 1, 1)


def test_pointers_are_read_and_nothing_else_is_opened(tmp_path: Path):
    (tmp_path / "latest").write_text("global_step500\n" + "x" * 600)
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("500")
    (tmp_path / "secret.txt").write_text("no")
    (tmp_path / "last.ckpt").symlink_to("epoch=1.ckpt")
    os.mkfifo(tmp_path / "latest.txt")
    by_name = {one.name: one for one in listing(tmp_path).entries}
    assert by_name["latest"].text == "global_step500\n" + "x" * 485
    assert by_name["latest_checkpointed_iteration.txt"].text == "500"
    assert (by_name["secret.txt"].text, by_name["secret.txt"].bytes) == (None, 2)
    assert (by_name["last.ckpt"].kind, by_name["last.ckpt"].target) == ("link", "epoch=1.ckpt")
    assert (by_name["latest.txt"].kind, by_name["latest.txt"].text) == ("other", None)


def test_a_pointer_of_which_a_backup_is_a_second_link_is_read(tmp_path: Path):
    (tmp_path / "latest").write_text("global_step500")
    (tmp_path.parent / f"{tmp_path.name}-backup").hardlink_to(tmp_path / "latest")  # as cp -al makes it
    [latest] = [one for one in listing(tmp_path).entries if one.name == "latest"]
    assert (latest.text, latest.error) == ("global_step500", None)


def test_a_pointer_is_read_again_when_it_changes(tmp_path: Path):
    watch = ManualClock()
    probe = sense(tmp_path, watch)
    (tmp_path / "latest").write_text("global_step500")
    assert readings_of(probe)[0].entries[0].text == "global_step500"
    watch.at += 30
    (tmp_path / "latest").write_text("global_step1000")
    assert readings_of(probe)[0].entries[0].text == "global_step1000"


def test_links_are_not_followed(tmp_path: Path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    (outside / "data").mkdir(parents=True)
    (outside / "data" / "big").write_bytes(b"x" * 1000)
    (inside / "checkpoint-1").mkdir(parents=True)
    (inside / "checkpoint-1" / "data").symlink_to(outside / "data")
    (inside / "checkpoint-2").symlink_to(outside)
    (inside / "checkpoint-1" / "loop").symlink_to(".")
    two, one = listing(inside).entries
    assert (two.kind, two.target, two.groups) == ("link", str(outside), ())
    assert {group.pattern for group in one.groups} == {"data", "loop"}
    assert one.bytes < 1000
    through = listing_through(tmp_path, inside)
    assert (len(through.entries), through.path, through.real) == (2, str(tmp_path / "link"), os.path.realpath(inside))


def listing_through(tmp_path: Path, target: Path) -> Any:
    """The watched path itself may be a link."""
    (tmp_path / "link").symlink_to(target)
    return listing(tmp_path / "link")


def test_a_missing_directory_names_the_nearest_parent(tmp_path: Path):
    found = listing(tmp_path / "no" / "ckpt")
    assert found.error == f"does not exist; the nearest existing parent is {tmp_path}"
    assert found.entries == ()
    (tmp_path / "file").touch()
    assert listing(tmp_path / "file").error == "not a directory"
    assert listing(tmp_path / "file" / "x").error == f"does not exist; the nearest existing parent is {tmp_path}/file"
    assert "embedded null" in listing(Path("/tmp/a\0b")).error


AS_NOBODY = """
import json, os, sys
from collectors.probe.files.checkpoints import Checkpoints
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
print(json.dumps([line for _, op in Checkpoints({"checkpoints": sys.argv[1:]}).operations(False) for line in op()]))
"""


def test_what_may_not_be_read_is_reported(open_path: Path):
    closed, part = open_path / "closed", open_path / "part"
    closed.mkdir(mode=0)
    (part / "step-1").mkdir(parents=True)
    (part / "step-1").chmod(0)
    (part / "latest").touch(mode=0)
    argv = [sys.executable, "-c", AS_NOBODY, str(closed), str(part)]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=60, cwd=ROOT)
    hidden, half = json.loads(done.stdout)
    assert hidden["error"] == "no permission"
    by_name = {one["name"]: one["error"] for one in half["entries"]}
    assert by_name == {"step-1": "cannot be listed: no permission", "latest": "cannot be read: no permission"}


def test_names_of_any_bytes_are_reported(tmp_path: Path):
    folder = tmp_path / os.fsdecode(b"step-1\n\x1b[31m\xff")
    folder.mkdir()
    (folder / os.fsdecode(b"a\xfe\n1")).touch()
    [one] = listing(tmp_path).entries
    assert one.name == "step-1\n\x1b[31m\ufffd"
    assert one.groups[0].pattern == "a\ufffd\n#"


# -- when it is told ------------------------------------------------------------------------------------------------


def test_it_is_reported_when_it_changes_and_the_rest_now_and_then(tmp_path: Path):
    watch = ManualClock()
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW - 9000)
    probe = sense(tmp_path, watch)
    assert len(readings_of(probe)) == 1
    watch.at += 9.9
    assert readings_of(probe) == []
    watch.at += 0.1
    assert probe.operations(False), "something changed: it is new"
    assert readings_of(probe) == []
    watch.at += 29.9
    assert probe.operations(False) == []
    made(tmp_path, SAVES["torchtitan"], 1000, at=NOW - 9000, stop=3)
    watch.at += 0.1
    [changed] = readings_of(probe)
    assert [one.name for one in changed.entries] == ["step-1000", "step-500"]
    watch.at += 10
    assert readings_of(probe) == []
    watch.at += 300
    assert len(readings_of(probe)) == 1, "unchanged, and told again after 5 minutes"


def test_what_was_written_lately_is_reported_at_every_look(tmp_path: Path):
    watch = ManualClock()
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW - 500, stop=3)
    probe = sense(tmp_path, watch)
    for _ in range(4):
        assert len(readings_of(probe)) == 1
        watch.at += 30


def test_a_followed_directory_is_listed_in_every_period_of_two_seconds(tmp_path: Path):
    watch = ManualClock()
    probe = sense(tmp_path, watch)
    readings_of(probe)
    probe.configure({"checkpoints": [str(tmp_path)], "followed": [str(tmp_path)]})
    readings_of(probe)
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW)
    watch.at += 2.0
    assert [one.name for one in readings_of(probe)[0].entries] == ["step-500"]
    watch.at += 2.0
    assert probe.operations(False), "nothing has changed, and it is listed nevertheless"
    probe.configure({"checkpoints": [str(tmp_path)]})
    readings_of(probe)
    watch.at += 2.0
    assert probe.operations(False) == [], "nobody follows it any more"


def test_a_new_spec_reports_at_once(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    probe = sense(tmp_path / "a")
    assert len(readings_of(probe)) == 1
    assert readings_of(probe) == []
    probe.configure({"checkpoints": [str(tmp_path / "a"), str(tmp_path / "b")]})
    assert [name for name, _ in probe.operations(False)] == [f"ckpt:{tmp_path}/a", f"ckpt:{tmp_path}/b"]
    assert [reading.path for reading in readings_of(probe)] == [f"{tmp_path}/a", f"{tmp_path}/b"]
    probe.configure({})
    assert probe.operations(True) == []


class Counting:
    """How many times the kernel is asked for a path's state."""

    def __init__(self) -> None:
        self.requests = 0


@pytest.fixture
def lstats(monkeypatch: pytest.MonkeyPatch) -> Counting:
    counting = Counting()
    real = os.lstat

    def counted(path: Any) -> os.stat_result:
        counting.requests += 1
        return real(path)

    monkeypatch.setattr("os.lstat", counted)
    return counting


def test_what_has_long_been_still_is_not_walked_again(tmp_path: Path, lstats: Counting):
    shards = [tmp_path / "step-500" / f"__{rank}_0.distcp" for rank in range(300)]
    (tmp_path / "step-500").mkdir()
    for shard in [*shards, tmp_path / "step-500" / ".metadata"]:
        shard.touch()
        os.utime(shard, (NOW - 5000, NOW - 5000))
    os.utime(tmp_path / "step-500", (NOW - 5000, NOW - 5000))
    watch = ManualClock()
    probe = sense(tmp_path, watch)
    assert readings_of(probe)[0].entries[0].groups[1].count == 300
    assert lstats.requests > 300
    lstats.requests = 0
    watch.at += 1000
    assert len(readings_of(probe)) == 1
    above = len(tmp_path.parts) - 1  # each may be a symbolic link
    assert lstats.requests - above < 6, "no file of the checkpoint"
    shards[7].unlink()
    watch.at += 1000
    assert readings_of(probe)[0].entries[0].groups[1].count == 299, "its folder changed"
    os.utime(tmp_path / "step-500", (NOW - 5000, NOW - 5000))
    watch.at += 1000
    readings_of(probe)
    for shard in shards[8:]:
        shard.write_text("again")
    os.utime(tmp_path / "step-500", (NOW - 5000, NOW - 5000))
    shards[0].write_text("again")
    watch.at += 1000
    assert readings_of(probe)[0].entries[0].bytes > 1000, "its folder is as it was, but a shard is not"


class Slow:
    """A clock on which everything that is looked at takes some time."""

    def __init__(self, each: float) -> None:
        self.at, self.each = 100.0, each

    def __call__(self) -> float:
        self.at += self.each
        return self.at


def test_a_slow_directory_is_read_in_slices_and_says_what_it_has_after_five_seconds(tmp_path: Path):
    for step in range(40):
        made(tmp_path, SAVES["torchtitan"], 500 * step, at=NOW - 9000)
    clock = Slow(0.05)
    probe = Checkpoints({"checkpoints": [str(tmp_path)]}, clock, lambda: NOW)
    slices, lines = 0, []
    while not lines:
        before = clock.at
        lines = readings_of(probe)
        slices += 1
        assert clock.at - before < SLICE + 0.3
    [first] = lines
    assert slices >= BUDGET / SLICE - 2
    assert BUDGET <= first.took_s < BUDGET + 1
    assert first.left_out + len(first.entries) == 40
    assert first.left_out > 10
    assert first.entries[0].name == "step-19500"
    assert first.entries[0].groups
    assert first.entries[-1].cut
    for _ in range(200):
        lines += readings_of(probe)
    assert lines[-1].left_out == 0
    assert len(lines[-1].entries) == 40
    assert not any(one.cut for one in lines[-1].entries)


@pytest.mark.parametrize("is_followed", [False, True])
def test_after_a_slow_look_comes_a_long_pause(is_followed: bool, tmp_path: Path):
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW - 9000)
    clock = Slow(0.1)
    spec = {"checkpoints": [str(tmp_path)], "followed": [str(tmp_path)] if is_followed else []}
    probe = Checkpoints(spec, clock, lambda: NOW)
    while not (lines := readings_of(probe)):
        continue
    ended = clock.at
    while not probe.operations(False):
        clock.at += 1
    assert clock.at - ended >= 10 * lines[0].took_s - 1


def test_too_many_names_are_counted_and_the_newest_stay(tmp_path: Path):
    for number in range(MAX_ENTRIES + 30):
        (tmp_path / f"epoch=0-step={number}.ckpt").touch()
    (tmp_path / "last.ckpt").touch()
    found = listing(tmp_path)
    assert (len(found.entries), found.left_out) == (MAX_ENTRIES, 31)
    assert found.entries[0].name == "last.ckpt"
    assert found.entries[1].name == f"epoch=0-step={MAX_ENTRIES + 29}.ckpt"


def test_names_that_differ_in_more_than_numbers_do_not_fill_the_line(tmp_path: Path):
    folder = tmp_path / "500" / "d"
    folder.mkdir(parents=True)
    for number in range(300):
        (folder / "".join(chr(ord("a") + int(digit)) for digit in str(number))).touch()
    [one] = listing(tmp_path).entries
    assert len(one.groups) == MAX_GROUPS + 1
    assert sum(group.count for group in one.groups) == 300
    assert next(group.count for group in one.groups if group.pattern == "d/*") == 300 - MAX_GROUPS


def test_a_line_is_bounded(tmp_path: Path):
    for step in range(100):
        folder = tmp_path / f"step-{step}"
        folder.mkdir()
        for letter in "abcdefghij":
            (folder / (letter * 200)).touch()
    found = listing(tmp_path)
    assert found.left_out > 10
    assert len(json.dumps([[one.name, [group.pattern for group in one.groups]] for one in found.entries])) < 256 * 1024


# -- in the whole probe ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", interpreters.found())
def test_the_probe_lists_under_this_python(version: str, tmp_path: Path):
    folder = tmp_path / "läufe"
    made(folder, SAVES["deepspeed"], 500, at=NOW)
    environment = {**Nvml(tmp_path).environment(), "LANG": "C", "LC_ALL": "C"}
    with RunningProbe(environment, python=interpreters.found()[version], checkpoints=[str(folder)]) as running:
        found = running.wait(CheckpointListing)
        assert (found.path, found.error) == (str(folder), None)
        [latest] = [one for one in found.entries if one.name == "latest"]
        assert latest.text == "global_step500"
        [step] = [one for one in found.entries if one.name == "global_step500"]
        assert [group.count for group in step.groups] == [4, 1]
        made(folder, SAVES["deepspeed"], 1000, at=NOW, stop=3)
        running.wait(CheckpointListing, lambda line: len(line.entries) == 4)


def test_a_hung_checkpoint_directory_says_so_and_disturbs_nothing(tmp_path: Path):
    mount = HungMount.at(tmp_path / "fsx", tmp_path)
    made(mount.folder, SAVES["torchtitan"], 500, at=NOW)
    (tmp_path / "other").mkdir()
    mount.hang()
    environment = {**Nvml(tmp_path).environment(), **mount.env}
    dead, alive = str(mount.folder), str(tmp_path / "other")
    with RunningProbe(environment, python=sys.executable, patience=0.5, retry=0.5, checkpoints=[dead, alive]) as probe:
        hung = probe.wait(CheckpointListing, lambda line: line.path == dead)
        assert (hung.error or "").startswith("no answer for ")
        probe.wait(CheckpointListing, lambda line: line.path == alive and line.error is None)
        probe.wait_anew(GpuSamples, lambda line: len(line.g) == 8)
        probe.wait_anew(HostSample)
        mount.recover()
        probe.wait_anew(CheckpointListing, lambda line: line.path == dead and len(line.entries) == 1)


# -- sizes, against the save before -----------------------------------------------------------------------------------


def shrunk(probe: Checkpoints) -> dict[str, Any]:
    """By checkpoint: the file that has less than a tenth of its size in the save before."""
    [reading] = readings_of(probe)
    return {one.name: group.shrunk for one in reading.entries for group in one.groups if group.shrunk}


def aged(folder: Path, at: float) -> None:
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (at, at))


@pytest.mark.parametrize(
    ("layout", "name", "path"),
    [
        ("torchtitan", "step-1000", "__1_0.distcp"),
        ("hf-deepspeed", "checkpoint-1000", "global_step1000/bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt"),
        ("nanotron", "1000", "optimizer/optimizer_pp-0-of-1_tp-0-of-2.pt"),
    ],
)
def test_a_file_of_less_than_a_tenth_of_its_size_in_the_save_before_is_named(
    layout: str, name: str, path: str, tmp_path: Path
):
    for step in (500, 1000):
        made(tmp_path, SAVES[layout], step, at=NOW - 9000 + step)
    file = tmp_path / name / path
    os.truncate(file, 101)
    assert shrunk(sense(tmp_path)) == {}
    os.truncate(file, 99)
    assert shrunk(sense(tmp_path)) == {name: (path, 99, 1000)}


def test_a_run_of_another_size_has_other_shards(tmp_path: Path):
    made(tmp_path, SAVES["torchtitan"], 500, at=NOW - 9000)
    for rank in range(512):
        shard = tmp_path / "step-1000" / f"__{rank}_0.distcp"
        shard.parent.mkdir(exist_ok=True)
        shard.write_bytes(b"x" * 9)
    assert shrunk(sense(tmp_path)) == {}


def test_a_new_save_is_compared_although_the_one_before_has_long_been_still(tmp_path: Path, lstats: Counting):
    watch = ManualClock()
    for step in (500, 1000):
        made(tmp_path, SAVES["torchtitan"], step, at=NOW - 9000 + step)
    os.truncate(tmp_path / "step-500" / "__0_0.distcp", 3)
    os.truncate(tmp_path / "step-1000" / "__3_1.distcp", 3)
    aged(tmp_path, NOW - 5000)
    probe = sense(tmp_path, watch)
    known = {"step-1000": ("__3_1.distcp", 3, 1000)}
    assert shrunk(probe) == known
    made(tmp_path, SAVES["torchtitan"], 1500, at=NOW - 70)
    os.truncate(tmp_path / "step-1500" / "__2_0.distcp", 0)
    watch.at += 100
    assert shrunk(probe) == {"step-1500": ("__2_0.distcp", 0, 1000)} | known
    lstats.requests = 0
    watch.at += 100
    assert shrunk(probe) == {"step-1500": ("__2_0.distcp", 0, 1000)} | known
    assert lstats.requests < 40, "only the newest is walked again"
    aged(tmp_path / "step-1500", NOW - 5000)
    for _ in range(2):
        watch.at += 400
        assert shrunk(probe) == {"step-1500": ("__2_0.distcp", 0, 1000)} | known
    assert not any(tree._last.sizes for tree in trees(probe)), "no sizes are kept when nothing is written"


def trees(probe: Checkpoints) -> list[Any]:
    [directory] = probe._known.values()
    return [entry.tree for entry in directory._known.values() if entry.tree is not None]
