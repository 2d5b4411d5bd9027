"""What the real libraries wrote, against what they read and what was logged: PyTorch's writer of event files and
TensorBoard, Lightning's CSV, and the state of Hugging Face's Trainer."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest

from tests.collectors.probe.files.wandb_files import Reader
from tests.lab import metric_writers
from tests.lab.torchrun import frameworks_python

CAPTURED = Path(__file__).parents[3] / "captured" / "lightning-2.6"
"""240 steps by torch 2.14, lightning 2.6.6 and transformers 5.24, and the event files as TensorBoard 2.21 read them."""

Scalars = list[tuple[int, str, float]]


def read(folder: Path) -> Scalars:
    """Step, name and value of all that the probe sends of a directory."""
    reader = Reader(folder, charts=(metric_writers.LOSS, metric_writers.GRAD, metric_writers.VALIDATION, "loss"))
    reader.read()
    while reader.last.offset < reader.last.size:
        reader.read()
    assert (reader.last.error, reader.last.damaged, reader.last.tail) == (None, 0, 0)
    found = [(int(row.pop("_step")), row) for row in map(dict, reader.rows.values())]
    return [(step, name, float(value)) for step, row in found for name, value in row.items()]


def same(one: Scalars, other: Scalars) -> bool:
    """Whether they are equal by name; a NaN is equal to a NaN."""
    texts = [sorted(scalars, key=lambda scalar: (scalar[1], scalar[0])) for scalars in (one, other)]
    return str(texts[0]) == str(texts[1])


def check(folder: Path, rows: int, tensorboard: Scalars) -> None:
    logged = [(step, name, value) for step in range(rows) for name, value in metric_writers.values(step).items()]
    events = read(folder / "tensorboard")
    assert len(events) == len(logged) > 2 * rows
    assert same(events, tensorboard)
    assert same(read(folder / "csv"), logged)
    history = json.loads((folder / f"checkpoint-{rows}" / "trainer_state.json").read_text())["log_history"]
    assert same(read(folder / f"checkpoint-{rows}"), [(entry["step"], "loss", entry["loss"]) for entry in history])


def test_what_the_libraries_wrote_is_read_as_they_read_it() -> None:
    recorded = [(step, name, value) for step, name, value in json.loads((CAPTURED / "tensorboard.json").read_text())]
    assert any(math.isnan(value) for _, _, value in recorded)
    check(CAPTURED, 240, recorded)


@pytest.mark.slow
def test_none_of_20_000_rows_differs_from_what_the_libraries_read(tmp_path: Path) -> None:
    script = [str(frameworks_python("tensorboard")), metric_writers.__file__]
    subprocess.run([*script, "write", str(tmp_path), "20000"], check=True, timeout=300)
    done = subprocess.run([*script, "read", str(tmp_path)], check=True, timeout=300, stdout=subprocess.PIPE)
    check(tmp_path, 20_000, [(step, name, value) for step, name, value in json.loads(done.stdout)])
