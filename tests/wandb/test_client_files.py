"""What the real client writes into its file, against what wandb's own protobuf and `wandb sync` read there."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collectors.probe.files.wandb_records import Records
from tests.collectors.probe.files.wandb_files import Reader
from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_training import OfflineTraining

ROWS = 20_000


def by_wandb(file: Path) -> dict[int, dict[str, float]]:
    """The rows of a file, each record read by wandb's own protobuf; numbers only."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[int, dict[str, float]] = {}
    for _, data in Records().read(file.read_bytes(), is_end=True):
        record = Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            row = {".".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            step = int(row.pop("_step"))
            found[step] = {key: float(text) for key, text in row.items() if not key.startswith("_")}
    return found


def sent_by(reader: Reader) -> dict[int, dict[str, Any]]:
    rows = {int(row.pop("_step")): row for row in (dict(one) for one in reader.rows.values())}
    return {step: {key: float(value) for key, value in row.items()} for step, row in rows.items()}


def the_file(folder: Path) -> Path:
    [file] = folder.glob("wandb/offline-run-*/run-*.wandb")
    return file


def all_of(folder: Path, charts: tuple[str, ...]) -> Reader:
    """A reader that has read the whole file of this folder."""
    reader = Reader(folder / "wandb", charts)
    reader.read()
    while reader.last.offset < reader.last.size:
        before = reader.last.offset
        reader.read()
        assert reader.last.offset > before
    return reader


CHARTS = (
    "train/loss", "train/grad_norm", "train/learning_rate", "train/tokens_per_s", "trainer/global_step", "val/loss",
    "val/accuracy",
)  # fmt: skip


@pytest.mark.slow
def test_twenty_thousand_rows_are_what_wandbs_own_protobuf_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.probe.files.wandb_records.SAMPLED_FROM", 1 << 40)
    with OfflineTraining(tmp_path, f"log {ROWS * 10 // 11}", "row train/loss=nan", "row val/loss=inf") as training:
        assert training.wait() == 0
    expected = by_wandb(the_file(tmp_path))
    assert len(expected) == ROWS + 1
    reader = all_of(tmp_path, CHARTS)
    found = sent_by(reader)
    assert reader.last.damaged == 0
    assert sum(not _equal(found.get(step, {}), row) for step, row in expected.items()) == 0
    assert found.keys() == expected.keys()
    assert (reader.last.rows, reader.last.exit[0]) == (ROWS + 1, 0)


@pytest.mark.slow
def test_what_the_client_measures_of_its_machine_is_what_wandbs_own_protobuf_reads(tmp_path: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    measure = {"WANDB__DISABLE_STATS": "false", "WANDB__STATS_SAMPLING_INTERVAL": "0.2"}
    with OfflineTraining(tmp_path, "log 20 0.1", environ=measure) as training:
        assert training.wait() == 0
    records = (Record.FromString(data) for _, data in Records().read(the_file(tmp_path).read_bytes(), is_end=True))
    items = [item for record in records if record.WhichOneof("record_type") == "stats" for item in record.stats.item]
    reader = all_of(tmp_path, ())
    for name in ("cpu", "memory_percent", "proc.memory.rssMB", "network.sent"):
        expected = [float(item.value_json) for item in items if item.key == name]
        assert expected
        key = f"system/{name}"
        assert [float(row[key]) for _, row in sorted(reader.rows.items()) if key in row] == expected


@pytest.mark.slow
def test_wandb_sync_sends_the_same_rows_to_its_server(tmp_path: Path, server: WandbServer) -> None:
    with OfflineTraining(tmp_path, "log 500") as training:
        assert training.wait() == 0
    folder = the_file(tmp_path).parent
    argv = [str(Path(sys.executable).with_name("wandb")), "sync", str(folder)]
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"} | server.environ_in(tmp_path)
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [run] = server.runs.values()
    synced = {int(row["_step"]): {key: row[key] for key in CHARTS if key in row} for row in run.history}
    found = sent_by(all_of(tmp_path, CHARTS))
    assert found == synced
    assert len(found) == 550


def _equal(one: dict[str, float], other: dict[str, float]) -> bool:
    return one.keys() == other.keys() and all(
        one[key] == other[key] or (math.isnan(one[key]) and math.isnan(other[key])) for key in one
    )
