"""`.wandb` files: a real one, and those that a test writes record by record."""

from __future__ import annotations

import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

from collectors.probe.files.metrics import MetricFiles
from tests.collectors.probe.wire import ManualClock, readings_of
from trainmon.analysis.wandb import client_file

CAPTURED = next((Path(__file__).parents[3] / "captured" / "wandb-0.31").glob("offline-run-*"))
"""What wandb 0.31.0 wrote offline: 120 rows of `row`, then a summary, another setting, and exit code 3."""

BLOCK = 32 * 1024


def row(number: int) -> dict[str, float]:
    """The metrics that the captured run logged."""
    values = {"train/loss": 2 + math.sin(number) / 10, "train/grad_norm": 0.1 * number, "lr": 3e-4}
    values["layers.first.norm"] = float(number)
    if number % 40 == 0:
        values["val/loss"] = 3.0 - number / 100
    return values | {7: {"train/loss": math.nan}, 9: {"train/grad_norm": math.inf}}.get(number, {})


# ---- files that a test writes --------------------------------------------------------------------------------------


def varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found, number = found + bytes([number & 127 | 128]), number >> 7
    return found + bytes([number])


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def item(key: str, value: object) -> bytes:
    return field(1, field(1, key.encode()) + field(16, json.dumps(value).encode()))


def history(step: int, **values: object) -> bytes:
    """A record of one row."""
    metrics = {"_step": step, "_timestamp": 1e9 + step} | values
    return field(2, b"".join(item(key, value) for key, value in metrics.items()))


def run_record(name: str, start: int = 1_000_000_000) -> bytes:
    return field(17, field(1, name.encode()) + field(8, name.encode()) + field(17, field(1, start)))


def framed(*records: bytes, after: bytes = b"") -> bytes:
    """The bytes that wandb writes for these records behind what is written already."""
    data = after or struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
    for record in records:
        is_first = True
        while True:
            left = BLOCK - len(data) % BLOCK
            if left < 7:
                data += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (1 if is_first else 4) if not record else (2 if is_first else 3)
            chunk = bytes([kind]) + part
            data += struct.pack("<IH", zlib.crc32(chunk), len(part)) + chunk
            is_first = False
            if not record:
                break
    return data


def write(directory: Path, name: str, data: bytes) -> Path:
    """A run directory with this file; returns the file."""
    (directory / name).mkdir(parents=True, exist_ok=True)
    file = directory / name / f"run-{name.rpartition('-')[2]}.wandb"
    file.write_bytes(data)
    return file


# ---- reading -------------------------------------------------------------------------------------------------------


class Reader:
    """The probe's reader of one directory, and the rows that it has sent."""

    def __init__(self, directory: Path, charts: tuple[str, ...] = ()) -> None:
        spec = client_file.directory_of("llm", str(directory), charts)
        self.clock = ManualClock()
        wanted = {"id": "llm", "directory": spec.directory, "charts": spec.charts, "pattern": spec.pattern}
        self.probe = MetricFiles({"wandb": [wanted]}, self.clock)
        self.lines: list[Any] = []
        self.rows: dict[float, dict[str, Any]] = {}

    def read(self, *, slow: bool = False, passes: int = 1) -> list[Any]:
        """The lines of so many periods."""
        found = []
        for _ in range(passes):
            self.clock.at += 2.0
            found += readings_of(self.probe, slow)
        self.lines += found
        for line in found:
            for number, step, _, *values in line.points:
                assert number not in self.rows, "a row was sent twice"
                sent = {key: value for key, value in zip(line.keys, values, strict=False) if value is not None}
                self.rows[number] = {"_step": step} | sent
        return found

    @property
    def last(self) -> Any:
        return self.lines[-1]

    def everything(self, name: str) -> dict[str, str]:
        """All that was sent of a summary or config."""
        return {key: value for line in self.lines for key, value in getattr(line, name).items()}


def replaced(file: Path, data: bytes) -> None:
    """Another file under the same path."""
    beside = file.with_suffix(".new")
    beside.write_bytes(data)
    beside.replace(file)
