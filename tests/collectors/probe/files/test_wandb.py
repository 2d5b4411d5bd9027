"""The probe follows the newest `.wandb` file: whole rows, whatever its tail looks like, and never too fast."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from collectors.probe.files import metric_rows
from collectors.probe.files import metrics as wandb_reader
from collectors.probe.files.wandb_records import BLOCK, Records
from collectors.probe.worker import Worker
from collectors.probe.worker_process import Mark
from tests.collectors.probe.files.wandb_files import (
    CAPTURED,
    Reader,
    field,
    framed,
    history,
    item,
    replaced,
    row,
    run_record,
    write,
)
from trainmon.analysis.wandb import client_file

FIRST = "offline-run-20260101_120000-aaaa1111"
SECOND = "run-20260101_130000-bbbb2222"


def rows(count: int, start: int = 0, **more: object) -> list[bytes]:
    return [history(step, loss=1.5 * step, **more) for step in range(start, start + count)]


def losses(reader: Reader) -> list[float]:
    return [values["loss"] for _, values in sorted(reader.rows.items())]


def as_sent(values: dict[str, float]) -> dict[str, object]:
    words = {math.inf: "Infinity"}
    return {key: "NaN" if value != value else words.get(value, value) for key, value in values.items()}


# ---- what a real client wrote --------------------------------------------------------------------------------------


def test_every_row_of_a_real_run_arrives_as_it_was_logged():
    reader = Reader(CAPTURED.parent)
    reader.read()
    assert [reader.rows[n + 1] for n in range(120)] == [as_sent({"_step": n} | row(n)) for n in range(120)]
    assert (reader.last.rows, reader.last.damaged, reader.last.error) == (120, 0, None)
    assert reader.last.offset == reader.last.size


def test_a_real_run_has_its_name_settings_latest_values_and_end():
    reader = Reader(CAPTURED.parent)
    reader.read()
    run = reader.last.run
    assert (run.id, run.entity, run.project, run.group, run.name, run.host, run.tags) == (
        "ab12cd34", "team", "video", "video-2b", "warm-start-7", "gpu-001", ("final",),
    )  # fmt: skip
    assert run.started_at == pytest.approx(1795407918, abs=60)
    assert reader.last.exit[0] == 3
    config = reader.everything("config")
    assert (config["lr"], config["later"]) == ("0.0003", "[1,2]")
    assert set(config) == {"lr", "optimizer", "data", "later"}
    summary = reader.everything("summary")
    assert (summary["best"], summary["phase"], summary["layers.first.norm"]) == ("1.5", '"warm"', "119")


def test_only_the_metrics_of_the_charts_cross_the_network():
    reader = Reader(CAPTURED.parent, charts=("lr",))
    reader.read()
    assert {key for values in reader.rows.values() for key in values} == {"_step", "lr"}


# ---- incomplete and damaged ----------------------------------------------------------------------------------------


def read_in_two(data: bytes, cut: int) -> tuple[list[bytes], Records]:
    """The records of a file that has grown from the cut to its whole."""
    records, found = Records(), []
    for size in (cut, len(data)):
        before = -1
        while before != records.offset:
            before = records.offset
            piece = data[records.offset : min(size, records.offset + metric_rows.PIECE)]
            found += [record for _, record in records.read(piece, records.offset + len(piece) >= size)]
    return found, records


def test_a_tail_that_is_cut_at_any_byte_is_waited_for():
    expected = rows(12, note="x" * 20)
    data = framed(*expected)
    for cut in range(len(data) + 1):
        found, records = read_in_two(data, cut)
        assert (found, records.damaged, records.offset) == (expected, 0, len(data)), cut


def test_a_record_across_blocks_is_waited_for_wherever_it_is_cut():
    expected = [*rows(3), history(3, loss=4.5, note="y" * 2 * BLOCK), *rows(3, start=4)]
    data = framed(*expected)
    edges = [edge for block in (BLOCK, 2 * BLOCK) for edge in range(block - 9, block + 9)]
    for cut in (*edges, 300, 5000, len(data) - 1):
        found, records = read_in_two(data, cut)
        assert (found, records.damaged, records.offset) == (expected, 0, len(data)), cut


def test_the_padding_at_the_end_of_a_block_may_be_of_any_length():
    for length in range(BLOCK - 60, BLOCK - 20):
        expected = [history(0, note="z" * (length - 57)), *rows(2, start=1)]
        assert read_in_two(framed(*expected), 40)[0] == expected


@pytest.mark.parametrize("position", [7, 11, 13, 80, 20_000, BLOCK - 100, BLOCK + 5])
def test_a_damaged_byte_costs_the_rest_of_its_block_and_is_counted(position: int):
    expected = rows(1200)
    data = bytearray(framed(*expected))
    assert 2 * BLOCK < len(data) < 3 * BLOCK
    data[position] ^= 0x40
    found, records = read_in_two(bytes(data), 40_000)
    assert (records.damaged, records.offset) == (1, len(data))
    ends = [end for end, _ in Records().read(framed(*expected), is_end=True)]
    before = sum(end <= position for end in ends)
    assert found[:before] == expected[:before]
    assert found[before:] == expected[before - len(found) :]
    assert len(data) - len(framed(*found)) <= BLOCK + 100, "one block was lost, and no more"


def test_zeros_at_the_end_are_waited_for_and_no_damage(tmp_path: Path):
    written = framed(*rows(5))
    file = write(tmp_path, FIRST, written + bytes(3 * BLOCK))
    reader = Reader(tmp_path)
    reader.read(passes=3)
    assert losses(reader) == [0.0, 1.5, 3.0, 4.5, 6.0]
    assert (reader.last.offset, reader.last.damaged) == (len(written), 0)
    whole = framed(*rows(900, start=5), after=written)
    file.write_bytes(whole + bytes(10))
    reader.read(passes=3)
    assert losses(reader) == [1.5 * step for step in range(905)]
    assert (reader.last.offset, reader.last.damaged) == (len(whole), 0)


EXIT = field(18, field(1, 3) + field(2, 90))


@pytest.mark.parametrize(
    ("tail", "parts"),
    [
        (framed(*rows(1, start=5))[7:-4], 1),
        (b"\x7fgarbage that is no chunk", 1),
        (bytes(50), 0),
        (b"", 0),
    ],
    ids=["cut", "garbage", "zeros", "nothing"],
)
def test_what_is_amiss_at_the_end_is_damage_once_the_run_has_ended(tmp_path: Path, tail: bytes, parts: int):
    file = write(tmp_path, FIRST, framed(*rows(5)) + tail)
    reader = Reader(tmp_path)
    reader.read(passes=2)
    assert (reader.last.damaged, reader.last.more) == (0, False), "it is waited for"
    assert reader.last.tail == parts
    file.write_bytes(framed(EXIT, after=framed(*rows(5))) + tail)
    reader.read(passes=2)
    assert (reader.last.damaged, reader.last.tail, reader.last.exit) == (parts, 0, (3, 90))
    assert len(losses(reader)) == 5


def test_a_record_of_which_only_the_first_part_was_written_is_damage_at_the_end(tmp_path: Path):
    long = framed(history(5, loss=1.0, text="x" * BLOCK), after=framed(*rows(5)))
    file = write(tmp_path, FIRST, long[:BLOCK])
    reader = Reader(tmp_path)
    reader.read(passes=2)
    assert (reader.last.damaged, reader.last.tail) == (0, 1)
    write(tmp_path, SECOND, framed(*rows(2)))
    reader.rows.clear()
    reader.read(passes=10)
    (left,) = [line for line in reader.lines if line.damaged]
    assert (left.path, left.damaged, reader.last.damaged) == (str(file), 1, 0), "the next run has begun"


def test_a_file_that_is_not_read_to_its_end_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wandb_reader, "is_on_this_host", lambda *_: False)
    write(tmp_path, FIRST, framed(*rows(60, text="x" * 60_000)))
    reader = Reader(tmp_path)
    first = reader.read()[-1]
    assert first.more
    assert 0 < first.offset < first.size
    reader.read(passes=5)
    assert (reader.last.more, reader.last.offset) == (False, reader.last.size)


def test_a_record_that_is_no_message_is_counted_and_the_next_ones_are_read(tmp_path: Path):
    write(tmp_path, FIRST, framed(*rows(2), b"\x12\x7fcut", b"\xff", field_of_group(), *rows(2, start=2)))
    reader = Reader(tmp_path)
    reader.read()
    assert losses(reader) == [0.0, 1.5, 3.0, 4.5]
    assert reader.last.damaged == 3


def field_of_group() -> bytes:
    return b"\x13\x14"


def test_a_huge_record_is_skipped(tmp_path: Path):
    write(tmp_path, FIRST, framed(*rows(1), history(1, note="x" * (2 << 20)), *rows(1, start=2)))
    reader = Reader(tmp_path)
    reader.read(passes=3)
    assert losses(reader) == [0.0, 3.0]


def test_numbers_that_json_does_not_have_are_words(tmp_path: Path):
    values = (float("nan"), float("-inf"), 10**400, True, "text", {"_type": "image-file"})
    write(tmp_path, FIRST, framed(*[history(step, loss=value) for step, value in enumerate(values)]))
    reader = Reader(tmp_path)
    reader.read()
    assert [values.get("loss") for values in reader.rows.values()] == ["NaN", "-Infinity", "Infinity", None, None, None]


# ---- which file ----------------------------------------------------------------------------------------------------


def test_the_run_that_began_last_is_followed_and_a_new_one_begins_a_new_curve(tmp_path: Path):
    write(tmp_path, FIRST, framed(run_record("aaaa1111"), *rows(3)))
    (tmp_path / "latest-run").symlink_to(tmp_path / FIRST)
    write(tmp_path, "run-of-somebody", framed(*rows(1)))
    reader = Reader(tmp_path)
    reader.read()
    first = reader.last.file
    assert reader.last.path == f"{tmp_path}/{FIRST}/run-aaaa1111.wandb"
    (tmp_path / SECOND).mkdir()
    reader.read(passes=8)
    assert reader.last.path.endswith("aaaa1111.wandb"), "the new one has no file yet"
    write(tmp_path, SECOND, framed(run_record("bbbb2222", 2_000_000_000), *rows(2)))
    reader.rows.clear()
    reader.read(passes=8)
    assert reader.last.path.endswith("bbbb2222.wandb")
    assert losses(reader) == [0.0, 1.5]
    assert reader.last.file != first


@pytest.mark.parametrize("how", ["replaced", "truncated"])
def test_a_file_that_was_replaced_is_read_from_its_start(tmp_path: Path, how: str):
    file = write(tmp_path, FIRST, framed(run_record("aaaa1111"), *rows(9)))
    reader = Reader(tmp_path)
    reader.read()
    first, data = reader.last.file, framed(run_record("aaaa1111", 1_500_000_000), *rows(2, start=100))
    reader.rows.clear()
    if how == "replaced":
        replaced(file, data)
    else:
        file.write_bytes(data)
    reader.read(passes=2)
    assert losses(reader) == [150.0, 151.5]
    assert reader.last.file != first


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"hello world", "is no .wandb file: its first bytes are wrong"),
        (b":W&B\xe1\xbe\x03", "has version 3 of the format; only version 0 can be read"),
    ],
)
def test_another_file_is_an_error(tmp_path: Path, data: bytes, error: str):
    file = write(tmp_path, FIRST, data)
    reader = Reader(tmp_path)
    reader.read()
    assert reader.last.error == f"{file}: {error}"


def test_a_directory_without_runs_says_so(tmp_path: Path):
    reader = Reader(tmp_path)
    reader.read()
    assert reader.last.error == (
        f"{tmp_path}: has no directory run-… or offline-run-… of the W&B client, no event file of TensorBoard, "
        "no metrics.csv, no metrics.jsonl and no trainer_state.json"
    )
    assert reader.read(passes=2) == [], "it is said once"
    missing = Reader(tmp_path / "gone")
    missing.read()
    assert missing.last.error == f"{tmp_path}/gone: does not exist; the nearest existing parent is {tmp_path}"
    write(tmp_path, FIRST, framed(*rows(1)))
    reader.read(passes=8)
    assert (losses(reader), reader.last.error) == ([0.0], None)


def test_a_fifo_is_not_opened(tmp_path: Path):
    (tmp_path / FIRST).mkdir()
    os.mkfifo(tmp_path / FIRST / "run-aaaa1111.wandb")
    reader = Reader(tmp_path)
    reader.read()
    assert reader.last.error.endswith("a FIFO, not a regular file: it is not read")


def test_each_piece_of_a_file_has_the_values_of_its_newest_row(tmp_path: Path):
    records = [one for n in range(9) for one in (history(n, loss=n, note="x" * 30_000), field(3, item("step", 10 * n)))]
    write(tmp_path, FIRST, framed(*records))
    reader = Reader(tmp_path)
    pieces = reader.read()
    assert len(pieces) > 2
    assert all(int(line.summary["step"]) in (10 * line.step, 10 * line.step - 10) for line in pieces)


# ---- the machine's metrics -------------------------------------------------------------------------------------------


def stats(at: int, **values: float) -> bytes:
    """A record of what the client has measured."""
    items = (field(3, field(1, key.encode()) + field(16, json.dumps(value).encode())) for key, value in values.items())
    return field(7, field(2, field(1, at)) + b"".join(items))


def test_what_the_client_measured_of_its_machine_is_beside_the_rows_and_of_many_gpus_two_values_are_sent(
    tmp_path: Path,
):
    gpus = {f"gpu.{gpu}.temp": 40.0 + gpu for gpu in range(8)}
    measured = stats(50, cpu=12.5, **gpus, **{"gpu.0.smClock": 1980.0, "disk.sda.in": 1.0})
    write(tmp_path, FIRST, framed(*rows(2), measured, stats(65, cpu=13.5, **{"gpu.0.temp": 41.0}), *rows(1, 2)))
    reader = Reader(tmp_path)
    [line] = reader.read()
    assert list(reader.rows.values())[2:4] == [
        {"_step": 1, "system/cpu": 12.5, "system/gpu.temp.min": 40.0, "system/gpu.temp.max": 47.0},
        {"_step": 1, "system/cpu": 13.5, "system/gpu.temp": 41.0},
    ]
    assert [point[2] for point in line.points][2:4] == [50.0, 65.0]
    assert (line.rows, line.step, line.damaged) == (3, 2, 0)
    points = client_file.points_of(line)
    assert points["system/cpu"].values == (12.5, 13.5)
    assert client_file.points_of(line, 3) == {}, "a reader that starts again repeats them"


def test_a_run_with_charts_of_its_own_sends_those_alone(tmp_path: Path):
    write(tmp_path, FIRST, framed(*rows(1), stats(50, cpu=12.5)))
    reader = Reader(tmp_path, charts=("loss",))
    reader.read()
    assert list(reader.rows.values()) == [{"_step": 0, "loss": 0.0}]


# ---- how fast ------------------------------------------------------------------------------------------------------


def test_a_file_on_a_disk_of_this_machine_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wandb_reader, "is_on_this_host", lambda *_: True)
    write(tmp_path, FIRST, framed(*rows(500, note="x" * 10_000)))
    reader = Reader(tmp_path)
    reader.read()
    assert (reader.last.rows, reader.last.more) == (500, False)


def test_a_long_file_on_a_disk_of_this_machine_is_read_in_turns_within_one_period(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wandb_reader, "is_on_this_host", lambda *_: True)
    monkeypatch.setattr(wandb_reader, "LOCAL_PIECES_S", 0.0)
    write(tmp_path, FIRST, framed(*rows(300, note="x" * 1_000)))
    spec = {"wandb": [{"id": "llm", "directory": str(tmp_path), "charts": ["loss"]}]}
    worker = Worker(json.dumps(spec).encode(), {}, {}, None, Mark())
    worker.plan(0.0)
    turns = []
    while worker.queue:
        name, operation = worker.queue.pop(0)
        if name == "wandb:llm":
            worker.perform(name, operation)
            turns.append(worker.output[-1]["rows"])
    assert len(turns) > 4
    assert turns[-1] == 300
    assert not any("again" in line for line in worker.output)


def test_a_large_file_of_the_network_is_read_at_one_megabyte_per_second_and_its_curve_has_ten_thousand_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wandb_reader, "is_on_this_host", lambda *_: False)
    monkeypatch.setattr(metric_rows, "SAMPLED_FROM", 1 << 20)
    monkeypatch.setattr(metric_rows, "POINTS", 100)
    data = framed(*rows(300, note="x" * 10_000, **{"val/loss": 1}))
    file = write(tmp_path, FIRST, data)
    reader = Reader(tmp_path)
    begun = reader.read()
    assert all(line.offset <= 3e6 + metric_rows.PIECE for line in begun)
    assert 0 < reader.last.offset < reader.last.size == len(data)
    while reader.last.offset < len(data):
        before = reader.last.offset
        reader.read()
        assert 0 < reader.last.offset - before <= 2e6 + metric_rows.PIECE
    assert 80 <= len(reader.rows) <= 110
    assert reader.last.rows == 300
    file.write_bytes(framed(*rows(3, start=300), after=data))
    reader.read()
    assert [n for n in reader.rows if n > 300] == [301, 302, 303], "new rows are not left out"


def test_a_rare_metric_keeps_all_its_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metric_rows, "SAMPLED_FROM", 10_000)
    monkeypatch.setattr(metric_rows, "POINTS", 50)
    records = [history(step, loss=1, **({"val/loss": 2} if step % 100 == 0 else {})) for step in range(1000)]
    write(tmp_path, FIRST, framed(*records))
    reader = Reader(tmp_path)
    reader.read(passes=3)
    assert sum("val/loss" in values for values in reader.rows.values()) == 10
    assert sum("loss" in values for values in reader.rows.values()) < 120


def test_many_metrics_are_bounded(tmp_path: Path):
    metrics = {f"loss/{n}": n for n in range(100)} | {f"other/{n}": n for n in range(400)}
    write(tmp_path, FIRST, framed(history(0, **metrics), history(1, **metrics)))
    reader = Reader(tmp_path)
    [line] = reader.read()
    assert len(line.keys) == metric_rows.MAX_CURVES


def test_nothing_new_is_said_every_slow_period_only(tmp_path: Path):
    write(tmp_path, FIRST, framed(*rows(2)))
    reader = Reader(tmp_path)
    reader.read()
    assert reader.read() == []
    [line] = reader.read(slow=True)
    assert (line.rows, line.points) == (2, ())
