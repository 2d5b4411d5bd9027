"""Logs given as a pattern: the newest match, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collectors.probe.files import disks
from tests.collectors.probe.files.log_reader import Log


def test_the_newest_match_is_followed_by_time_then_by_name(tmp_path: Path):
    for name in ("1.out", "2.out", "3.out"):
        (tmp_path / name).write_text(name + "\n")
        os.utime(tmp_path / name, (1000, 1000))
    (tmp_path / "4.err").touch()
    (tmp_path / "5.out").mkdir()
    assert Log(tmp_path / "*.out").chunk().lines == ("3.out",)
    os.utime(tmp_path / "1.out", (2000, 2000))
    assert Log(tmp_path / "*.out").chunk().lines == ("1.out",)


def test_a_new_match_takes_over_within_10_s_and_the_rest_of_the_old_one_comes_first(tmp_path: Path):
    old, new = tmp_path / "1.out", tmp_path / "2.out"
    old.write_text("one\n")
    log = Log(tmp_path / "*.out")
    log.chunk()
    with old.open("a") as file:
        file.write("two\n")
    os.utime(old, (1000, 1000))
    new.write_text("n" * 99 + "\n" + "fresh\n" * 20_000)
    first = log.chunk()
    assert (first.path, first.lines) == (str(old), ("two",))
    newer = log.chunk(after=8.0)
    assert (newer.path, newer.restarted, newer.seen) == (str(new), "newer", 20_001)


def test_a_match_that_belongs_to_another_run_is_not_read(tmp_path: Path):
    (tmp_path / "a-1.out").write_text("own\n")
    os.utime(tmp_path / "a-1.out", (1000, 1000))
    (tmp_path / "b-1.out").write_text("of the other\n")
    own = Log(tmp_path / "*.out", without=rf"{tmp_path}/b-[^/]*\.out\Z").chunk()
    assert (own.lines, own.others) == (("own",), ())


def test_a_pattern_that_changes_hands_leaves_its_log_at_once(tmp_path: Path):
    (tmp_path / "b-1.out").write_text("of the other\n")
    log = Log(tmp_path / "*.out")
    assert log.chunk().lines == ("of the other",)
    spec = {"id": "run", "pattern": f"{tmp_path}/*.out", "without": rf"{tmp_path}/b-.*\Z"}
    log.sense.configure({"logs": [spec], "keep": "step"})
    assert log.chunk().error == f"no file matches {tmp_path}/*.out that belongs to no other run"


@pytest.mark.parametrize("name", ["1.out", "*.out"])
def test_a_host_that_reads_its_own_disk_and_memory_finds_nothing_on_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    with TemporaryDirectory(dir="/dev/shm") as memory, TemporaryDirectory(dir="/dev/shm") as network:
        for folder in (str(tmp_path), memory, network):
            Path(folder, "1.out").write_text("a\n")
        for own in (str(tmp_path), memory):
            chunk = Log(f"{own}/{name}", optional=True, local=True).chunk()
            assert (chunk.lines, chunk.local) == (("a",), True)
        (tmp_path / "mounts").write_text("22 1 0:27 / /dev/shm rw - nfs4 server:/export rw\n")
        monkeypatch.setattr(disks, "MOUNTS", str(tmp_path / "mounts"))
        elsewhere = Log(f"{network}/{name}", optional=True, local=True).chunk()
        assert (elsewhere.path, elsewhere.error, elsewhere.lines) == (None, None, ())
        shared = Log(f"{network}/{name}").chunk()
        assert (shared.lines, shared.local) == (("a",), False)


def test_two_logs_written_at_the_same_time_do_not_take_turns(tmp_path: Path):
    one, two = tmp_path / "1.out", tmp_path / "2.out"
    one.write_text("a\n")
    two.write_text("b\n")
    os.utime(one, (1000, 1000))
    log = Log(tmp_path / "*.out")
    assert log.chunk().path == str(two)
    for i in range(20):
        for path in (two, one):
            with path.open("a") as file:
                file.write(f"{i}\n")
        os.utime(two, (1000, 1000))
        chunk = log.chunk(after=10.0)
        assert (chunk.path, chunk.restarted) == (str(two), None)
    with one.open("a") as file:
        file.write("alone\n")
    assert log.chunks(after=30.0) == []
    taken = log.chunk(after=40.0)
    assert (taken.path, taken.restarted, taken.lines[-1]) == (str(one), "newer", "alone")


def test_a_log_that_is_returned_to_goes_on_without_repeating_lines(tmp_path: Path):
    one, two = tmp_path / "1.out", tmp_path / "2.out"
    one.write_text("a\n")
    log = Log(tmp_path / "*.out")
    log.chunk()
    two.write_text("b\n")
    os.utime(one, (1000, 1000))
    assert log.chunks(after=10.0)[-1].path == str(two)
    os.utime(two, (1000, 1000))
    with one.open("a") as file:
        file.write("c\n")
    log.chunks(after=30.0)
    back = log.chunk(after=61.0)
    assert (back.path, back.restarted, back.lines) == (str(one), "newer", ("c",))


def test_a_match_that_is_renamed_is_the_same_log(tmp_path: Path):
    one = tmp_path / "1.out"
    one.write_text("a\n")
    log = Log(tmp_path / "*.out")
    log.chunk()
    one.rename(tmp_path / "9.out")
    with (tmp_path / "9.out").open("a") as file:
        file.write("b\n")
    chunk = log.chunk()
    assert (chunk.path, chunk.restarted, chunk.lines) == (str(tmp_path / "9.out"), None, ("b",))


def test_a_pattern_without_a_match_says_so_and_recovers(tmp_path: Path):
    log = Log(tmp_path / "*.out")
    assert log.chunk().error == f"no file matches {tmp_path}/*.out"
    assert log.chunks() == []
    (tmp_path / "1.out").write_text("hello\n")
    chunk = log.chunk(after=10.0)
    assert (chunk.error, chunk.lines) == (None, ("hello",))


def test_a_pattern_in_a_missing_folder_says_which(tmp_path: Path):
    expected = f"no file matches {tmp_path}/no/*.out: {tmp_path}/no does not exist; "
    assert Log(tmp_path / "no" / "*.out").chunk().error == expected + f"the nearest existing parent is {tmp_path}"


def test_a_name_with_brackets_is_found_as_it_is_written(tmp_path: Path):
    (tmp_path / "run[1].out").write_text("x\n")
    assert Log(tmp_path / "run[1].out").chunk().lines == ("x",)


def test_a_directory_a_fifo_and_a_device_are_refused(tmp_path: Path):
    os.mkfifo(tmp_path / "fifo")
    assert Log(tmp_path).chunk().error == f"{tmp_path}: a directory, not a regular file: it is not read"
    assert Log(tmp_path / "fifo").chunk().error == f"{tmp_path}/fifo: a FIFO, not a regular file: it is not read"
    assert Log("/dev/zero").chunk().error == "/dev/zero: a device, not a regular file: it is not read"


def test_names_and_text_that_are_not_utf8_still_decode(tmp_path: Path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.out")).write_bytes(b"\xff\x80 step\n")
    chunk = Log(tmp_path / "*.out").chunk()
    assert (chunk.lines, chunk.path) == (("\ufffd\ufffd step",), f"{tmp_path}/\ufffd.out")


def test_with_the_newest_match_the_other_ones_are_named_once_the_newest_first(tmp_path: Path):
    for second in range(25):
        (tmp_path / f"{second:02}.out").write_text("line\n")
        os.utime(tmp_path / f"{second:02}.out", (1000 + second, 1000 + second))
    log = Log(tmp_path / "*.out")
    chunk = log.chunk()
    others = [(Path(one.path).name, one.written_at) for one in chunk.others]
    assert others == [(f"{second:02}.out", 1000.0 + second) for second in range(23, 3, -1)]
    with (tmp_path / "24.out").open("a") as file:
        file.write("more\n")
    assert log.chunk().others == ()
    (tmp_path / "new.out").write_text("line\n")
    assert [Path(one.path).name for one in log.chunk(after=10.0).others][:2] == ["24.out", "23.out"]
    assert Log(tmp_path / "24.out").chunk().others == ()
