"""Step lines among thousands of other lines: what the probe sends of them is bounded, and the steps are still read."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from collectors.probe.files.lines import CHUNK_BYTES, KEPT_BYTES, LINES, Lines
from tests.lab.nvml import Nvml
from tests.lab.probe import RunningProbe
from tests.trainmon.analysis.log_formats.test_learned import LOGS, read
from trainmon.analysis.log_formats import KEEP
from trainmon.model import LogChunk, LogShape, Progress

NOISE = "gpu-003:88210:88544 [2] NCCL INFO Channel 05/0 : 2[2] -> 10[2] [send] via NET/IB/2/GDRDMA"
A_BURST = [NOISE] * (LINES + 20)
"""More lines than a chunk holds."""
READ_IN_A_BURST = 0.9
"""The share of captured logs. The rows of most tables name no loss, and are lost in a burst."""
PERIOD = 0.5


def in_a_burst(lines: Iterable[str]) -> list[str]:
    """What the probe sends of the lines when more others than a chunk holds are before and behind them."""
    followed = Lines(re.compile(KEEP))
    followed.feed("".join(f"{line}\n" for line in (*A_BURST, *lines, *A_BURST)).encode())
    taken: dict[str, Any] = followed.take()
    return [*taken.get("kept", ()), *taken["lines"]]


@pytest.mark.parametrize("every", [15, pytest.param(1, marks=pytest.mark.slow)])
def test_the_steps_of_captured_logs_are_read_in_a_burst(every: int) -> None:
    expected = [(log, read(log["lines"])[0].step) for log in LOGS[::every] if not log.get("negative")]
    with_steps = [(log, step) for log, step in expected if step is not None]
    found = [read(in_a_burst(log["lines"]))[0].step == step for log, step in with_steps]
    assert sum(found) >= READ_IN_A_BURST * len(found), f"{sum(found)} of {len(found)}"


def test_a_step_in_several_lines_comes_whole() -> None:
    header = ["[step=7/100,epoch=0]", "    optim/total_grad_norm=0.5", "    train/CrossEntropyLoss=2.5"]
    sent = in_a_burst(header)
    assert [line for line in sent if line != NOISE] == header
    assert len(sent) < 260


class Writer:
    """Writes 10,000 lines a second, with one step in 5,000 of them."""

    def __init__(self, path: Path, step: str) -> None:
        self.path, self.step, self.steps = path, step, 0
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._write, daemon=True)

    def _write(self) -> None:
        with self.path.open("a") as file:
            while not self.ends.wait(0.1):
                lines = [NOISE] * 1000
                if self.steps % 5 == 0:
                    lines[500] = self.step.format(self.steps // 5)
                self.steps += 1
                file.write("\n".join(lines) + "\n")
                file.flush()


@pytest.mark.parametrize(
    "step", ["it {0} :: train_loss 2.{0}", "[step={0}/900]\n    optim/norm=0.5\n    train/CrossEntropyLoss=2.{0}"]
)
def test_of_10_000_lines_a_second_little_crosses_and_the_step_is_read(tmp_path: Path, step: str) -> None:
    log = tmp_path / "train.out"
    log.touch()
    spec: dict[str, Any] = {"logs": [{"id": "run", "pattern": str(log)}], "keep": KEEP, "period": PERIOD}
    writer, progress, shape = Writer(log, step), Progress(), LogShape()
    with RunningProbe(Nvml(tmp_path).environment(), python=sys.executable, **spec) as running:
        running.wait(LogChunk)
        writer.thread.start()
        time.sleep(4.0)
        writer.ends.set()
        writer.thread.join()
        running.wait(LogChunk, lambda chunk: chunk.size == log.stat().st_size)
        chunks = [one for one in running.readings if isinstance(one, LogChunk)]
        sizes = [len(line) for line in running.raw if b'"k":"log"' in line.replace(b" ", b"")]
    for chunk in chunks:
        progress, shape = read((*chunk.kept, *chunk.lines), progress, shape)
    assert max(sizes) < CHUNK_BYTES + KEPT_BYTES + 1000
    assert sum(sizes) < 0.25 * log.stat().st_size
    assert sum(chunk.seen for chunk in chunks) == log.read_text().count("\n")
    assert progress.step == (writer.steps - 1) // 5
