"""The probe follows files of metrics of every format: rows as they were logged, whatever is damaged or written anew."""

from __future__ import annotations

import itertools
import json
import math
import os
import struct
import time
from pathlib import Path

import pytest

from collectors.probe.files import metrics as metrics_reader
from collectors.probe.files.metric_formats import masked_crc
from collectors.probe.files.metrics import MetricFiles
from tests.collectors.probe.files.wandb_files import Reader, field, framed, history, varint, write
from tests.collectors.probe.wire import ManualClock, readings_of

# ---- event files that a test writes --------------------------------------------------------------------------------


def fixed(number: int, value: float, kind: str) -> bytes:
    return varint(number << 3 | {"<d": 1, "<f": 5}[kind]) + struct.pack(kind, value)


def scalar(tag: str, value: float) -> bytes:
    return field(1, field(1, tag.encode()) + fixed(2, value, "<f"))


def tensor(tag: str, value: float) -> bytes:
    """The new form."""
    return field(1, field(1, tag.encode()) + field(8, field(1, 1) + field(4, struct.pack("<f", value))))


def event(step: int, *values: bytes, at: float | None = None) -> bytes:
    when = 1e9 + step if at is None else at
    return fixed(1, when, "<d") + field(2, step & (1 << 64) - 1) + field(5, b"".join(values))


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc(length)) + data + struct.pack("<I", masked_crc(data))


FIRST = record(fixed(1, 1e9, "<d") + field(3, b"brain.Event:2"))


def event_file(*events: bytes) -> bytes:
    return FIRST + b"".join(map(record, events))


def losses(steps: range, value: float = 0.5) -> list[bytes]:
    return [event(step, scalar("loss", step + value)) for step in steps]


def values_of(reader: Reader) -> list[tuple[float, float]]:
    return [(row["_step"], row["loss"]) for row in reader.rows.values()]


def read(folder: Path, **more: object) -> Reader:
    reader = Reader(folder)
    reader.read(**more)  # type: ignore[arg-type]
    return reader


# ---- TensorBoard ---------------------------------------------------------------------------------------------------


def test_the_scalars_of_both_forms_are_rows_by_their_steps(tmp_path: Path):
    text = field(1, field(1, b"text") + field(8, field(1, 7)))
    image = event(2, field(1, field(1, b"image") + field(4, bytes(200_000))))
    data = event_file(
        event(-1, scalar("loss", 2.0), tensor("lr", 0.5)), event(0, scalar("loss", math.nan)), image,
        event(1, scalar("loss", -math.inf), text), event(1, scalar("lr", 0.0), at=1e9 + 1.5),
    )  # fmt: skip
    (tmp_path / "events.out.tfevents.1.host").write_bytes(data)
    reader = read(tmp_path)
    assert list(reader.rows.values()) == [
        {"_step": -1, "loss": 2.0, "lr": 0.5},
        {"_step": 0, "loss": "NaN"},
        {"_step": 1, "loss": "-Infinity", "lr": 0.0},
    ]
    last = reader.last
    assert (last.format, last.damaged, last.offset, last.logged_at) == ("TensorBoard", 0, last.size, 1e9 + 1)


def test_a_restart_and_a_second_writer_add_files_that_go_on_the_curves(tmp_path: Path):
    (tmp_path / "events.out.tfevents.1.host").write_bytes(event_file(*losses(range(3))))
    reader = read(tmp_path)
    first = reader.last.file
    (tmp_path / "events.out.tfevents.2.host").write_bytes(event_file(*losses(range(2, 4))))
    reader.read(passes=6)
    (tmp_path / "events.out.tfevents.1.host").write_bytes(event_file(*losses(range(4))))
    reader.read()
    assert [step for step, _ in values_of(reader)] == [0, 1, 2, 2, 3, 3]
    assert (reader.last.file, reader.last.rows) == (first, 6)
    assert Path(reader.last.path or "").name == "events.out.tfevents.2.host"


@pytest.mark.parametrize("cut", [5, 12, 40, 70])
def test_what_is_torn_at_the_end_is_waited_for(tmp_path: Path, cut: int):
    file, data = tmp_path / "events.out.tfevents.1.host", event_file(*losses(range(4)))
    file.write_bytes(data[:-cut])
    reader = read(tmp_path)
    assert reader.last.damaged == 0
    file.write_bytes(data[:-cut] + bytes(cut))  # the file server has the size, and not yet the bytes
    reader.read(passes=2)
    assert reader.last.damaged == 0
    file.write_bytes(data)
    reader.read()
    assert values_of(reader) == [(step, step + 0.5) for step in range(4)]
    assert (reader.last.damaged, reader.last.tail) == (0, 0)


@pytest.mark.parametrize("place", ["length", "data"])
def test_a_damaged_record_costs_that_record_and_is_counted(tmp_path: Path, place: str):
    records = [record(one) for one in losses(range(100))]
    broken = bytearray(records[50])
    broken[{"length": 1, "data": 20}[place]] ^= 16
    records[50] = bytes(broken)
    (tmp_path / "events.out.tfevents.1.host").write_bytes(FIRST + b"".join(records))
    reader = read(tmp_path)
    assert [step for step, _ in values_of(reader)] == [step for step in range(100) if step != 50]
    assert (reader.last.damaged, reader.last.error) == (1, None)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"x" * 100, "is no event file: its first bytes are wrong"),
        (
            record(field(3, b"brain.Event:3")),
            "has version brain.Event:3 of the format; only brain.Event:2 can be read",
        ),
    ],
)
def test_what_cannot_be_read_is_one_sentence_until_another_file_comes(tmp_path: Path, data: bytes, why: str):
    file = tmp_path / "events.out.tfevents.1.host"
    file.write_bytes(data)
    reader = read(tmp_path)
    assert reader.last.error == f"{file}: {why}"
    assert reader.read(passes=20) == [], "it is said once"
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    reader.read(passes=6)
    assert values_of(reader) == [(1, 2.5)]
    assert reader.last.error is None


def test_ten_thousand_files_are_one_sentence(tmp_path: Path):
    for number in range(10_000):
        (tmp_path / f"events.out.tfevents.{number}.host").touch()
    reader = read(tmp_path)
    assert reader.last.error == f"{tmp_path}: has 10000 files of metrics: more than 200 are not read"


# ---- text ----------------------------------------------------------------------------------------------------------


def test_a_csv_is_read_again_when_it_is_written_anew_and_no_row_comes_twice(tmp_path: Path):
    file = tmp_path / "metrics.csv"
    file.write_text("epoch,loss,step\n0,1.5,0\n0,,1\n0,nan,2\n1,1.0,3")
    reader = read(tmp_path)
    assert [row["_step"] for row in reader.rows.values()] == [0, 1, 2], "the last line is not whole"
    before, known = reader.last, dict(reader.rows)
    reader.rows.clear()
    file.write_text("epoch,loss,step,val_loss\n0,1.5,0,\n0,,1,\n0,nan,2,\n1,1.0,3,2.0\n")
    reader.read()
    assert (reader.last.file, reader.last.format) == (before.file, "CSV")
    assert reader.rows.pop(4) == {"_step": 3, "epoch": 1.0, "loss": 1.0, "val_loss": 2.0}
    assert reader.rows == known, "under the same numbers, so that they are known"
    file.write_text(file.read_text() + "1,2\n1,0.9,4,\n")
    reader.read()
    assert (reader.last.rows, reader.last.damaged) == (5, 1)


def test_rows_without_a_time_lie_between_two_writes(tmp_path: Path):
    file = tmp_path / "metrics.csv"
    file.write_text("step,loss\n0,1\n1,1\n")
    os.utime(file, (1000, 1000))
    reader = read(tmp_path)
    assert [row[2] for row in reader.last.points] == [None, 1000.0]
    file.write_text(file.read_text() + "2,1\n3,1\n")
    os.utime(file, (1060, 1060))
    reader.read()
    assert [row[2] for row in reader.last.points] == [1030.0, 1060.0]


def test_json_lines_have_a_step_a_time_and_a_target(tmp_path: Path):
    lines = [
        {"config": "x"},
        {"current_steps": 5, "total_steps": 90, "loss": 2.0, "lr": 0.1, "phase": "train", "timestamp": 1.7e9},
        {"current_steps": 10, "total_steps": 90, "loss": math.nan, "timestamp": 1.7e12 + 1e4},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "trainer_log.jsonl").write_text(text + '{"step": 15, "los\n' + '{"step": 20, "loss": 1.0')
    reader = read(tmp_path)
    assert list(reader.rows.values()) == [{"_step": 5, "loss": 2.0, "lr": 0.1}, {"_step": 10, "loss": "NaN"}]
    assert [row[2] for row in reader.last.points] == [1.7e9, 1.7e9 + 10]
    assert reader.everything("config") == {"max_steps": "90.0"}
    assert (reader.last.format, reader.last.damaged, reader.last.tail) == ("JSON lines", 1, 1)


def test_the_state_of_the_newest_checkpoint_has_the_whole_history(tmp_path: Path):
    for number in (2, 4):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        log = [{"step": step, "loss": 1.0 + step, "epoch": 0.1} for step in range(number)]
        state = {"global_step": number, "log_history": [*log, {"step": number - 1, "eval_loss": 3.0}], "max_steps": 9}
        (folder / "trainer_state.json").write_text(json.dumps(state, indent=2))
        if number == 2:
            reader = read(tmp_path)
            first = reader.last
            assert [row.get("loss") for row in reader.rows.values()] == [1.0, 2.0, None]
            reader.rows.clear()
    reader.read(passes=6)
    assert [row.get("loss") for row in reader.rows.values()] == [1.0, 2.0, 3.0, 4.0, None]
    assert reader.everything("config") == {"max_steps": "9"}
    assert first.file != reader.last.file, "its curves begin again"
    (folder / "trainer_state.json").write_text('{"log_history": [')
    reader.read()
    assert (reader.last.error, reader.last.tail) == (None, 1), "it is being written"


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.jsonl", "events.out.tfevents.1.host", "trainer_state.json"])
def test_no_bytes_make_a_reader_fail(tmp_path: Path, name: str):
    lines = [
        b"step,loss",
        b"\0\0\xff\xfe",
        b"\xf0\x28,1",
        b"1" * 400 + b"," + b"9" * 400,
        b"[" * 9_000,
        b'{"step": "x"}',
        b"",
    ]
    (tmp_path / name).write_bytes(b"\n".join(lines * 20))
    reader = read(tmp_path, passes=3)
    assert reader.rows == {}
    assert reader.last.damaged or reader.last.error or reader.last.tail


NO_METRICS = "has no numbers with a step in its first lines: it is no file of metrics"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("metrics.csv", "step;loss\n0;1,5\n1;1,4\n", NO_METRICS),
        ("metrics.csv", 'step,loss\n0,"1,5"\n1,"1,4"\n', NO_METRICS),
        ("metrics.jsonl", '{"epoch": 1, "loss": 2}\n{"epoch": 2, "loss": 1}\n', NO_METRICS),
        ("metrics.csv", "step," + "x" * 70_000 + "\n1,2\n", "has more than 64 KiB in its first line: it is not read"),
    ],
)
def test_what_has_no_numbers_of_steps_is_one_sentence(tmp_path: Path, name: str, text: str, why: str):
    (tmp_path / name).write_text(text)
    assert read(tmp_path).last.error == f"{tmp_path / name}: {why}"


@pytest.mark.parametrize(
    ("name", "text", "row"),
    [
        ("metrics.jsonl", '{"step": 7, "global_step": 70, "loss": "NaN"}', {"_step": 70, "loss": "NaN"}),
        ("metrics.jsonl", '{"iter": "70", "train": {"loss": 2, "is_best": true}}', {"_step": 70, "train.loss": 2}),
        ("metrics.csv", 'step,note,loss\n1,"two\nlines",3\n70,one line,2', {"_step": 70, "loss": 2}),
    ],
)
def test_unusual_rows_are_read_as_they_are_meant(tmp_path: Path, name: str, text: str, row: dict[str, object]):
    (tmp_path / name).write_text(text + "\n")
    assert list(read(tmp_path).rows.values()) == [row]


def test_a_damaged_entry_of_a_checkpoint_costs_that_entry(tmp_path: Path):
    file = Path(saved_state(tmp_path))
    entries = [{"step": step, "loss": 2.0} for step in range(3_000)]
    text = json.dumps({"log_history": entries, "max_steps": 9, "more": {"of": {}}}, indent=2)
    file.write_text(text.replace('"step": 1000,', '"step": 1000 oops', 1) + "\n")
    reader = read(tmp_path, passes=3)
    assert [row["_step"] for row in reader.rows.values()] == [step for step in range(3_000) if step != 1000]
    assert (reader.last.damaged, reader.last.tail, reader.last.offset) == (1, 0, reader.last.size)
    assert reader.everything("config") == {"max_steps": "9"}


def test_a_text_without_any_step_is_no_file_of_metrics(tmp_path: Path):
    (tmp_path / "train_logs.jsonl").write_text('{"message": "started"}\n' * 5_000)
    reader = read(tmp_path)
    assert reader.last.error == f"{tmp_path}/train_logs.jsonl: {NO_METRICS}"


# ---- where they are ------------------------------------------------------------------------------------------------


def found_by(clock: ManualClock, *directories: Path, since: float = 0.0) -> MetricFiles:
    wanted = {"id": "llm", "directory": "", "found": [str(one) for one in directories], "since": since}
    return MetricFiles({"wandb": [wanted]}, clock)


def test_files_are_found_beside_the_checkpoints_and_only_new_ones_of_our_own(tmp_path: Path):
    logs, other = tmp_path / "lightning_logs" / "version_0", tmp_path / "somebody" / "version_0"
    for folder in (logs, other):
        folder.mkdir(parents=True)
        (folder / "metrics.csv").write_text("step,loss\n1,2\n")
    clock = ManualClock()
    probe = found_by(clock, tmp_path / "gone", tmp_path)
    [line] = readings_of(probe)
    assert (line.path, line.error) == (f"{logs}/metrics.csv", None)
    os.utime(logs / "metrics.csv", (3000, 3000))
    assert readings_of(found_by(clock, tmp_path, since=2000.0))[0].path == line.path
    for since in (4000.0, 0.0):  # without a job, those of the last hour count
        [nothing] = readings_of(found_by(clock, tmp_path, since=since))
        assert (nothing.path, nothing.error) == (None, None)


def test_a_file_that_is_found_twice_is_read_once(tmp_path: Path):
    write_events(tmp_path / "tb" / "events.out.tfevents.1.host.7.0", *losses(range(3)))
    assert readings_of(found_by(ManualClock(), tmp_path / "tb", tmp_path))[-1].rows == 3


def test_of_files_that_are_about_as_new_the_first_format_counts_and_it_is_not_left(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    (tmp_path / "tb").mkdir()
    events = tmp_path / "tb" / "events.out.tfevents.1.host"
    events.write_bytes(event_file(*losses(range(2))))
    now = time.time()
    os.utime(events, (now - 100, now - 100))
    reader = read(tmp_path)
    assert reader.last.format == "TensorBoard"
    os.utime(events, (now - 500, now - 500))
    reader.rows.clear()
    reader.read(passes=6)
    assert reader.last.format == "JSON lines"
    write(tmp_path / "wandb", "run-20260101_120000-aaaa1111", framed(history(0, loss=1.0)))
    assert read(tmp_path).last.format == "W&B"


def test_a_large_event_file_of_the_network_is_read_at_a_bounded_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(metrics_reader, "is_on_this_host", lambda *_: False)
    (tmp_path / "events.out.tfevents.1.host").write_bytes(event_file(*losses(range(30)), bytes(3_000_000)) * 1)
    monkeypatch.setattr(metrics_reader, "RATE", 10_000.0)
    monkeypatch.setattr(metrics_reader, "MAX_BUDGET", 20_000.0)
    reader = read(tmp_path)
    assert [step for step, _ in values_of(reader)] == list(range(30))


# ---- what other people and other processes put there -----------------------------------------------------------------


@pytest.mark.parametrize("time_or_step", ["time", "step"])
def test_a_time_or_a_step_that_is_no_number_costs_its_row_and_not_the_probe(tmp_path: Path, time_or_step: str):
    odd = (
        fixed(1, math.nan, "<d") + field(2, 1) + field(5, scalar("loss", 1.0)),
        fixed(1, 1e9, "<d") + field(2, 1 << 9000) + field(5, scalar("loss", 1.0)),
    )[time_or_step == "step"]
    (tmp_path / "events.out.tfevents.1.host").write_bytes(event_file(odd, field(3, 7), *losses(range(2))))
    reader = read(tmp_path)
    assert (values_of(reader), reader.last.damaged) == ([(0, 0.5), (1, 1.5)], 1)
    assert reader.last.logged_at == 1e9 + 1
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5, "time": 1e999}\n{"step": 1e300, "loss": 3}\n')
    (tmp_path / "events.out.tfevents.1.host").unlink()
    [row] = read(tmp_path).last.points
    assert row[:2] == (1, 1.0)


def test_what_is_no_readable_file_is_left_for_the_others(tmp_path: Path):
    (tmp_path / "metrics.csv").write_text("\ufeffstep,loss,day\n1,2,2026-11-29\n")
    os.utime(tmp_path / "metrics.csv", (3000, 3000))
    (tmp_path / "logs").symlink_to("logs")
    (tmp_path / "train_metrics.jsonl").symlink_to("nothing")
    os.mkfifo(tmp_path / "metrics.jsonl")
    reader = read(tmp_path)
    assert reader.last.error == f"{tmp_path}: a FIFO, not a regular file: it is not read"
    reader.read(passes=6)
    assert (list(reader.rows.values()), reader.last.error) == ([{"_step": 1, "loss": 2.0}], None)


def test_a_run_that_has_just_begun_with_step_0_has_its_time(tmp_path: Path):
    (tmp_path / "events.out.tfevents.1.host").write_bytes(event_file(event(0, scalar("loss", 2.0), scalar("lr", 0.5))))
    last = read(tmp_path).last
    assert (last.step, last.logged_at, [row[1:3] for row in last.points]) == (0.0, 1e9, [(0.0, 1e9)])


@pytest.mark.parametrize("part", ["eval", "dev"])
def test_the_file_of_an_evaluation_shows_no_steps_of_the_training(tmp_path: Path, part: str):
    (tmp_path / "metrics.csv").write_text("step,loss\n1,2\n")
    os.utime(tmp_path / "metrics.csv", (3000, 3000))
    (tmp_path / part).mkdir()
    (tmp_path / part / "events.out.tfevents.1.host").write_bytes(event_file(*losses(range(9))))
    (tmp_path / "val_metrics.jsonl").write_text('{"step": 9, "loss": 2.5}\n')
    assert list(read(tmp_path).rows.values()) == [{"_step": 1, "loss": 2.0}]


def test_many_runs_with_many_files_leave_open_files_to_the_rest_of_the_probe(tmp_path: Path):
    for run, number in itertools.product(range(60), range(10)):
        write_events(tmp_path / str(run) / f"events.out.tfevents.{number}.host", event(number, scalar("loss", 1.0)))
    wanted = [{"id": str(run), "directory": str(tmp_path / str(run))} for run in range(60)]
    before, section = len([*Path("/proc/self/fd").iterdir()]), MetricFiles({"wandb": wanted})
    lines = [line for _, operation in section.operations(slow=True) for line in operation()]
    assert len([*Path("/proc/self/fd").iterdir()]) - before <= 400
    section.configure({})
    assert {line["id"]: line["step"] for line in lines} == {str(run): 9 for run in range(60)}
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_a_run_is_not_read_anew_because_others_come(tmp_path: Path):
    for number in range(20):
        write_events(tmp_path / "0" / f"events.out.tfevents.{number:02}.host", event(number, scalar("loss", 1.0)))
    wanted = [{"id": str(run), "directory": str(tmp_path / str(run))} for run in range(30)]
    clock, files = ManualClock(), set()
    section = MetricFiles({"wandb": wanted[:1]}, clock)
    for known in (1, 30):
        section.configure({"wandb": wanted[:known]})
        clock.at += 60.0
        files |= {line["file"] for line in dict(section.operations(slow=True))["wandb:0"]()}
    section.configure({})
    assert len(files) == 1


def test_long_names_and_many_files_do_not_grow_the_probe(tmp_path: Path):
    for number in range(30):
        tags = scalar("loss", 1.0), scalar(f"{number}" * 5_000, 1.0)
        (tmp_path / f"events.out.tfevents.{number:02}.host").write_bytes(event_file(event(number, *tags)))
    reader = read(tmp_path)
    assert [step for step, _ in values_of(reader)] == list(range(10, 30))
    assert reader.last.keys == ("loss",)


def saved_state(folder: Path, at: float = 2000) -> str:
    file = folder / "checkpoint-500" / "trainer_state.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"log_history": [{"step": 500, "loss": 2.5}]}')
    os.utime(file, (at, at))
    return str(file)


def test_the_newest_checkpoint_in_a_directory_of_any_name_is_found_below_the_working_directory(tmp_path: Path):
    saved_state(tmp_path / "before", at=1000)
    saved_state(tmp_path / "out" / "deeper")
    (tmp_path / "out" / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    clock = ManualClock()
    probe = found_by(clock, tmp_path, since=1500.0)
    assert [one.path for one in readings_of(probe)] == [None]
    own = saved_state(tmp_path / "out")
    clock.at += 40.0
    assert readings_of(probe)[0].path == own
    assert readings_of(found_by(clock, tmp_path, tmp_path / "known", since=1500.0))[0].path is None, "not beside others"


def test_the_state_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    saved_state(tmp_path / "out")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert [one.path for one in readings_of(found_by(ManualClock(), tmp_path, since=1500.0))] == [None]


# ---- several directories of one run --------------------------------------------------------------------------------


def write_events(file: Path, *events: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(event_file(*events))


def test_the_directories_train_and_validation_of_one_run_are_read_together(tmp_path: Path):
    write_events(tmp_path / "train" / "events.out.tfevents.1.host.7.0.v2", event(0, scalar("loss", 2.0)))
    reader = read(tmp_path)
    first = reader.last.file
    assert list(reader.rows.values()) == [{"_step": 0, "train/loss": 2.0}]
    write_events(tmp_path / "validation" / "events.out.tfevents.5.host.7.1.v2", event(0, scalar("loss", 3.0)))
    reader.read(passes=6)
    assert list(reader.rows.values()) == [{"_step": 0, "train/loss": 2.0}, {"_step": 0, "validation/loss": 3.0}]
    assert (reader.last.path, reader.last.file) == (f"{tmp_path}/train/events.out.tfevents.1.host.7.0.v2", first)


@pytest.mark.parametrize("process", [".7.", ""])
def test_the_curves_of_add_scalars_are_those_of_the_run_above_and_other_runs_are_not(tmp_path: Path, process: str):
    folder, names = tmp_path / "run1", [f"{number}.host{process}{number if process else ''}" for number in range(4)]
    write_events(folder / f"events.out.tfevents.{names[0]}", event(1, scalar("lr", 0.5)))
    write_events(folder / "loss_val" / f"events.out.tfevents.{names[2]}", event(1, scalar("loss", 3.0)))
    write_events(folder / "loss_train" / f"events.out.tfevents.{names[1]}", event(1, scalar("loss", 2.0)))
    write_events(tmp_path / "run0" / f"events.out.tfevents.{names[3]}", event(9, scalar("loss", 9.0)))
    os.utime(tmp_path / "run0" / f"events.out.tfevents.{names[3]}", (3000, 3000))
    reader = read(tmp_path)
    values = {name: value for row in reader.rows.values() for name, value in row.items()}
    assert values == {"_step": 1, "lr": 0.5, "loss_train/loss": 2.0, "loss_val/loss": 3.0}
    assert reader.last.path == f"{folder}/events.out.tfevents.{names[0]}"


def test_the_newest_row_is_that_of_any_writer(tmp_path: Path):
    write_events(tmp_path / "events.out.tfevents.1.host.7.0", *losses(range(9)))
    write_events(tmp_path / "part" / "events.out.tfevents.1.host.7.1", *losses(range(5)))
    last = read(tmp_path).last
    assert (last.step, last.logged_at, last.rows) == (8, 1e9 + 8, 14)


def test_a_checkpoint_is_not_followed_while_a_file_of_metrics_is_written(tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n')
    os.utime(tmp_path / "metrics.jsonl", (3000, 3000))
    saved_state(tmp_path, at=6000)
    assert read(tmp_path).last.format == "JSON lines"
    saved_state(tmp_path / "newer", at=9000)
    assert read(tmp_path).last.format == "trainer_state.json"
