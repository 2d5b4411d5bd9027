"""Log tails on real files: rotation, truncation, replacement, holes, bursts, newer matches, failures."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

from collectors.probe.files import logs
from collectors.probe.files.logs import Logs
from tests.collectors.probe.files.conftest import FOREIGN, ForeignLink
from tests.collectors.probe.files.log_reader import Log
from tests.collectors.probe.wire import decoded, readings_of


def test_it_begins_with_the_whole_lines_of_the_last_64_kib(path: Path):
    path.write_text("".join(f"{i:099d}\n" for i in range(2000)))
    chunk = Log(path).chunk()
    assert chunk.lines[-1] == f"{1999:099d}"
    assert chunk.lines[0] == f"{1800:099d}"
    assert chunk.seen == logs.TAIL // 100
    assert chunk.dropped == 0, "they did not come too fast: they were there before"
    assert (chunk.id, chunk.path, chunk.size) == ("run", str(path), 200_000)
    assert chunk.restarted is chunk.error is chunk.partial is None
    assert chunk.mtime == path.stat().st_mtime


def test_new_lines_are_reported_and_silence_is_reported_on_the_slow_tick(path: Path):
    path.write_text("a\nb\n")
    log = Log(path)
    assert log.chunk().lines == ("a", "b")
    assert log.chunks() == []
    with path.open("a") as file:
        file.write("c\nhalf")
    chunk = log.chunk()
    assert (chunk.lines, chunk.partial, chunk.size) == (("c",), "half", 10)
    assert log.chunks() == []
    bare = log.chunk(slow=True)
    assert (bare.lines, bare.partial, bare.size, bare.seen) == ((), "half", 10, 0)


@pytest.mark.parametrize("name", ["evals.jsonl", "ckpt[[]1]/evals.jsonl"])
def test_a_file_that_need_not_exist_is_read_as_soon_as_it_does(tmp_path: Path, name: str):
    folder = tmp_path / "ckpt[1]" if "/" in name else tmp_path
    log = Log(tmp_path / name, optional=True)
    first = log.chunk(slow=True)
    assert (first.path, first.error, first.lines) == (None, None, ())
    assert [log.chunks(slow=True) for _ in range(9)] == [[]] * 9
    folder.mkdir(exist_ok=True)
    (folder / "evals.jsonl").write_text("{}\n")
    assert log.chunk(after=20.0).lines == ("{}",)
    (folder / "evals.jsonl").unlink()
    assert log.chunk(after=20.0).error is None
    assert log.chunks(slow=True, after=60.0) == []


def test_a_file_that_need_not_exist_and_cannot_be_read_is_an_error(tmp_path: Path):
    (tmp_path / "evals.jsonl").mkdir()
    assert "a directory" in Log(tmp_path / "evals.jsonl", optional=True).chunk().error


def test_a_bar_without_newlines_is_followed_as_the_partial_line(path: Path):
    path.write_bytes(b"\r  1%|" * 20_000)
    log = Log(path)
    assert log.chunk().partial == "  1%|"
    for percent in (2, 3):
        with path.open("ab") as file:
            file.write(b"\r%3d%%|" % percent)
        assert log.chunk().partial == f"{percent:3d}%|"


def test_truncation_is_reported_and_read_from_the_start(path: Path):
    path.write_text("old\n" * 100)
    log = Log(path)
    log.chunk()
    path.write_text("new 1\nnew 2\n")
    chunk = log.chunk()
    assert (chunk.restarted, chunk.lines) == ("truncated", ("new 1", "new 2"))


def test_truncation_to_nothing_is_reported(path: Path):
    path.write_text("old\n")
    log = Log(path)
    log.chunk()
    os.truncate(path, 0)
    chunk = log.chunk()
    assert (chunk.restarted, chunk.lines, chunk.size) == ("truncated", (), 0)


@pytest.mark.parametrize("text", ["NEW\n", "NEW line of a longer file\nand more\n"], ids=["same size", "longer"])
def test_a_file_written_anew_to_the_same_or_a_greater_size_is_noticed(path: Path, text: str):
    path.write_text("old\n")
    log = Log(path)
    log.chunk()
    path.write_text(text)
    os.utime(path, (1, 1))
    chunk = log.chunk()
    assert (chunk.restarted, chunk.lines) == ("truncated", tuple(text.splitlines()))


def test_a_touched_file_is_not_written_anew(path: Path):
    path.write_text("old\n")
    log = Log(path)
    log.chunk()
    os.utime(path, (1, 1))
    chunk = log.chunk()
    assert (chunk.restarted, chunk.lines, chunk.mtime) == (None, (), 1)


def test_of_a_replaced_file_the_rest_of_the_old_one_comes_first(path: Path):
    path.write_text("one\n")
    log = Log(path)
    log.chunk()
    with path.open("a") as file:
        file.write("two\nlast words")
    path.rename(path.with_suffix(".out.1"))
    path.write_text("new\n")
    old, new = log.chunks()
    assert (old.lines, old.restarted) == (("two", "last words"), None)
    assert (new.lines, new.restarted, new.partial) == (("new",), "replaced", None)


def test_a_replacement_over_the_old_name_is_noticed_whatever_its_size(path: Path):
    path.write_text("same\n")
    log = Log(path)
    log.chunk()
    other = path.with_name("other")
    other.write_text("same\n")
    other.replace(path)
    assert [(c.restarted, c.lines) for c in log.chunks()] == [("replaced", ("same",))]


def test_a_renamed_file_is_read_while_its_writer_still_adds_to_it(path: Path):
    path.write_text("one\n")
    log = Log(path)
    log.chunk()
    moved = path.rename(path.with_suffix(".old"))
    with moved.open("a") as file:
        file.write("two\n")
    assert log.chunk().lines == ("two",)
    assert log.chunk().error == f"{path} does not exist; the nearest existing parent is {path.parent}"


def test_a_deleted_file_is_an_error_is_let_go_and_comes_back(path: Path):
    path.write_text("one\n")
    log = Log(path)
    log.chunk()
    path.unlink()
    assert "does not exist" in log.chunk().error
    assert not [link for link in Path("/proc/self/fd").iterdir() if str(path) in os.path.realpath(link)]
    assert log.chunks() == []
    assert "does not exist" in log.chunk(slow=True).error
    path.write_text("two\n")
    chunk = log.chunk()
    assert (chunk.lines, chunk.error, chunk.restarted) == (("two",), None, "replaced")


def test_a_file_moved_away_and_back_goes_on_where_it_was(path: Path):
    path.write_text("one\nha")
    log = Log(path)
    log.chunk()
    away = path.rename(path.with_suffix(".away"))
    assert log.chunk().error
    away.rename(path)
    with path.open("a") as file:
        file.write("lf\n")
    assert [(c.lines, c.restarted) for c in log.chunks()] == [(("half",), None)]


def test_a_hole_of_gigabytes_is_neither_text_nor_memory(path: Path):
    writer = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.pwrite(writer, b"before\n", 3 << 30)
    log = Log(path)
    log.chunk()
    os.truncate(path, 0)
    os.pwrite(writer, b"after step 8\n", (3 << 30) + 7)
    os.close(writer)
    tracemalloc.start()
    chunk = log.chunk()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (chunk.restarted, chunk.lines, chunk.partial) == ("truncated", ("after step 8",), None)
    assert peak < 3_000_000


def test_bytes_that_a_file_server_fills_in_later_are_not_lost(path: Path):
    path.write_text("one\n")
    log = Log(path)
    log.chunk()
    os.truncate(path, 8)
    assert log.chunk().lines == ()
    with path.open("r+b") as file:
        file.seek(4)
        file.write(b"two\n")
    assert log.chunk().lines == ("two",)


def test_a_line_of_10_mb_costs_one_short_line_and_little_memory(path: Path):
    path.write_text("start\n")
    log = Log(path)
    log.chunk()
    with path.open("a") as file:
        file.write("x" * 3_900_000)
    tracemalloc.start()
    assert log.chunk().partial == "x" * 4000 + "…"
    with path.open("a") as file:
        for _ in range(62):
            file.write("x" * 100_000)
        file.write("\nstep 9\n")
    chunk = log.chunk()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert chunk.lines[-1] == "step 9"
    assert sum(map(len, chunk.lines)) < 5000
    assert peak < 3_000_000


def test_utf8_that_is_written_in_pieces_arrives_whole(path: Path):
    path.touch()
    log = Log(path)
    log.chunk()
    data = "schön 🚀 50%|█▌ |\n".encode()
    lines: list[str] = []
    for byte in data:
        with path.open("ab") as file:
            file.write(bytes((byte,)))
        lines += [line for chunk in log.chunks() for line in chunk.lines]
        assert not any("\ufffd" in (chunk.partial or "") for chunk in log.chunks(slow=True))
    assert lines == [data.decode().strip()]


def test_a_burst_is_bounded_counted_and_keeps_its_last_steps(path: Path):
    path.touch()
    log = Log(path, keep=r"step=\d+")
    log.chunk()
    with path.open("a") as file:
        file.writelines(f"step={i // 100} noise {i}\n" if i % 100 == 0 else f"noise {i}\n" for i in range(2000))
        file.write("noise\n" * 200)
    chunk = log.chunk()
    assert (chunk.seen, chunk.dropped, len(chunk.lines)) == (2200, 2000, 200)
    assert [line.split()[0] for line in chunk.kept] == [f"step={i}" for i in range(12, 20)]


def test_only_lines_that_came_after_the_first_look_can_have_come_too_fast(path: Path):
    path.write_text("before\n" * 300)
    log = Log(path)
    assert log.chunk().dropped == 0
    with path.open("a") as file:
        file.write("since\n" * 300)
    assert log.chunk().dropped == 100


def test_a_writer_faster_than_we_read_is_skipped_ahead_of_and_its_lines_counted(path: Path):
    path.write_text("start\n")
    log = Log(path)
    log.chunk()
    with path.open("a") as file:
        file.write(("n" * 99 + "\n") * 80_000)
        file.write("step 80000\n")
    chunk = log.chunk()
    assert chunk.lines[-1] == "step 80000"
    assert chunk.seen == 80_001
    assert chunk.dropped == chunk.seen - len(chunk.lines)


def test_a_broken_expression_is_reported_and_the_log_goes_on(path: Path):
    path.write_text("x\n" * 300)
    chunk = Log(path, keep="step(").chunk()
    assert chunk.error.startswith("step lines are not kept in bursts: their expression is invalid: ")
    assert (len(chunk.lines), chunk.seen, chunk.kept) == (200, 300, ())


def test_reading_leaves_the_access_time_alone(path: Path):
    path.write_text("x\n")
    os.utime(path, (1000, 5000))
    assert Log(path).chunk().lines == ("x",)
    assert path.stat().st_atime == 1000


def test_a_new_spec_keeps_the_place_of_logs_that_stay(tmp_path: Path):
    one, two = tmp_path / "1.out", tmp_path / "2.out"
    one.write_text("a\n")
    two.write_text("b\n")
    sense = Logs({"logs": [{"id": "x", "pattern": str(one)}, {"id": "y", "pattern": str(one)}]})
    assert [c.lines for c in readings_of(sense)] == [("a",), ("a",)]
    sense.configure({"logs": [{"id": "x", "pattern": str(one)}, {"id": "y", "pattern": str(two)}]})
    assert [(c.id, c.lines) for c in readings_of(sense)] == [("y", ("b",))]
    assert [name for name, _ in sense.operations(slow=False)] == ["log:x", "log:y"]


def test_another_worker_goes_on_where_the_killed_one_was(tmp_path: Path):
    path = tmp_path / "é.out"
    path.write_text("one\ntwo\nha")
    log = Log(tmp_path / "*.out")
    log.chunk()
    state = json.loads(json.dumps(log.sense.state()))
    with path.open("a") as file:
        file.write("lf\nfour\n")
    other = Log(tmp_path / "*.out")
    other.sense.restore(state)
    assert [(c.lines, c.restarted) for c in other.chunks()] == [(("half", "four"), None)]


def test_another_worker_notices_what_happened_in_between(path: Path):
    path.write_text("one\ntwo\n")
    log = Log(path)
    log.chunk()
    state = log.sense.state()
    path.write_text("a new text, and a longer one\n")
    other = Log(path)
    other.sense.restore(state)
    assert [(c.lines, c.restarted) for c in other.chunks()] == [(("a new text, and a longer one",), "replaced")]


def test_a_chunk_leaves_out_what_it_has_none_of(path: Path):
    path.write_text("x\n")
    [(_, look)] = Log(path).sense.operations(slow=False)
    [line] = look()
    assert sorted(line) == ["id", "k", "lines", "local", "mtime", "path", "seen", "size"]
    assert decoded(line).dropped == 0


def test_the_lines_from_before_that_mention_a_text_are_sent_once(path: Path):
    name, save = "wandb: View run at https://wandb.ai/a/b/runs/c", "saving checkpoint to /out/{}"
    filler = "".join(f"iter {i}: loss 2.5, time 30.1ms\n" for i in range(10_000))
    path.write_text(f"{name}\n{filler}{save.format(1)}\n{save.format(2)}\n{filler}")
    log = Log(path)
    assert log.chunk().mentions == ()
    log.sense = Logs({"logs": [{"id": "run", "pattern": str(path)}], "mentions": ["View run", "aving"]}, log.watch)
    assert log.chunk().mentions == (name, save.format(2))
    assert log.chunk(slow=True).mentions == ()


def test_a_mention_of_a_short_log_is_sent_though_later_lines_push_it_out(path: Path):
    path.write_text("saving checkpoint to /out\n" + "x\n" * 1000)
    log = Log(path)
    log.sense = Logs({"logs": [{"id": "run", "pattern": str(path)}], "mentions": ["aving"]}, log.watch)
    chunk = log.chunk()
    assert (chunk.mentions, len(chunk.lines)) == (("saving checkpoint to /out",), 200)


def test_of_a_file_that_was_there_before_its_first_date_is_sent_once(path: Path):
    path.write_text("".join(["a banner\n", "[2025-08-01 07:19:37] begins\n", "x" * 99 + "\n"] + ["step\n"] * 40_000))
    log = Log(path)
    assert log.chunk().head == "[2025-08-01 07:19:37] begins"
    with path.open("a") as file:
        file.write("2026-01-01 00:00:00 more\n")
    assert log.chunk().head is None
    path.write_text("2026-02-02 00:00:00 anew\n")
    chunk = log.chunk()
    assert (chunk.restarted, chunk.head, chunk.lines) == ("truncated", None, ("2026-02-02 00:00:00 anew",))


def test_a_file_without_dates_at_its_begin_shows_none(path: Path):
    path.write_text("a banner\n" * 4_000 + "2026-01-01 00:00:00 late\n")
    assert Log(path).chunk().head is None


def test_a_log_behind_links_of_our_own_is_followed(tmp_path: Path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "1.out").write_text("one\n")
    (tmp_path / "now").symlink_to("logs")
    (tmp_path / "newest.log").symlink_to("now/1.out")
    (tmp_path / "latest.log").symlink_to(tmp_path / "newest.log")
    log = Log(tmp_path / "latest.log")
    assert (log.chunk().lines, log.chunks()) == (("one",), [])
    (tmp_path / "logs" / "2.out").write_text("two\n")
    (tmp_path / "newest.log").unlink()
    (tmp_path / "newest.log").symlink_to("now/2.out")
    assert [chunk.lines for chunk in log.chunks()] == [("two",)]


@pytest.mark.parametrize("pattern", ["train.out", "*.out"])
def test_a_log_that_somebody_has_linked_to_a_file_of_another_is_not_read(
    pattern: str, tmp_path: Path, foreign_link: ForeignLink
):
    foreign_link(tmp_path / "train.out")
    chunk = Log(tmp_path / pattern).chunk()
    assert chunk.lines == ()
    assert chunk.error == f"{tmp_path}/train.out: {FOREIGN}"


def test_a_log_in_a_circle_of_links_is_an_error(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "symbolic links in a circle" in Log(tmp_path / "a").chunk().error
