"""After a start of this program, the curves of a log that was there before are read again from the file."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace

from trainmon.engine.engine import Engine
from trainmon.model import CurvesGrew, LogChunk, NodeReading, Run, RunsChanged, RunSpec
from trainmon.runtime.log_file import LogFile, LogHistories
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell

TAIL = 64 * 1024
AT = 2_000_000.0
LINE = " iteration {:8d}/   90000 | elapsed time per iteration (ms): 1000.0 | lm loss: {:.6E} | grad norm: 0.5 |"


@pytest.fixture
def shell() -> Iterator[LocalShell]:
    loop = EventLoop()
    loop.start()
    local = LocalShell(loop, host="n0")
    yield local
    local.close()
    loop.stop()


class Restarted:
    """This program after a start: the probe has sent the end of a log."""

    def __init__(self, file: Path, lines: list[str], shell: LocalShell) -> None:
        file.write_text("".join(f"{line}\n" for line in lines))
        text = file.read_bytes()
        tail = text[-TAIL:].decode().split("\n")[1:-1] if len(text) > TAIL else lines
        spec = RunSpec(name="llm", cluster="c", log=str(file))
        chunk = LogChunk(
            v=1, t=AT, id="llm", path=str(file), lines=tuple(tail), seen=len(tail), mtime=AT, size=len(text)
        )
        self.engine = Engine()
        self.engine.step([RunsChanged((spec,)), NodeReading("n0", "c", AT, chunk)], AT)
        self.before = self.run
        read = queue.SimpleQueue[CurvesGrew]()
        histories = LogHistories(lambda run: LogFile(run, lambda _: shell, ()), read.put)
        histories.observe(self.engine.state)
        histories.observe(self.engine.state)
        wait_for_threads()
        while not read.empty():
            self.engine.step([read.get()], AT)

    @property
    def run(self) -> Run:
        return self.engine.state.runs["llm"]

    def curves(self) -> list[tuple[str, list[float], list[float]]]:
        metrics = self.run.log_metrics
        assert metrics is not None
        found = [(one.name, self.engine.curve(one.path, "loss")) for one in metrics.runs]
        return [(name, [*curve.steps], [*curve.times]) for name, curve in found]


def wait_for_threads() -> None:
    for thread in threading.enumerate():
        if thread.name == "log file":
            thread.join(60)


def of_steps(first: int, last: int) -> list[str]:
    return [LINE.format(step, 2.0 + step / 1e5) for step in range(first, last + 1)]


def test_the_curves_of_every_start_are_read_again_and_the_status_stays(tmp_path: Path, shell: LocalShell) -> None:
    starts = ((1, 1_000), (501, 3_000), (2_001, 2_200), (2_101, 2_300))
    lines = [line for first, last in starts for line in of_steps(first, last)]
    lines.insert(1_000, "loading checkpoint from /ckpt at iteration 500")
    made = Restarted(tmp_path / "a.out", lines, shell)

    found = made.curves()[::-1]
    assert [name for name, _, _ in found] == [f"from step {first:,}" for first, _ in starts]
    for (_, steps, times), (first, last) in zip(found, starts, strict=True):
        assert (steps[0], steps[-1]) == (first, last)
        assert len(steps) > 0.9 * (last - first), "of 1 MB, some lines at the edges of pieces are missing"
        assert sorted({*steps}) == steps, "each step once, in order"
        assert sorted(times) == times
    begun = [times[0] for _, _, times in found]
    assert [AT - at for at in begun] == pytest.approx([3_896, 2_897, 398, 199], abs=5), "at the pace of the run"
    metrics = made.run.log_metrics
    assert metrics is not None
    assert [one.step for one in metrics.runs] == [last for _, last in starts[::-1]]
    assert replace(made.run, log_metrics=None) == replace(made.before, log_metrics=None)


def test_the_end_of_a_log_goes_on_upwards_with_the_lines_before_it(tmp_path: Path, shell: LocalShell) -> None:
    made = Restarted(tmp_path / "a.out", [*of_steps(1, 1_000), *of_steps(501, 2_500)], shell)
    (name, steps, times), (before, *_) = made.curves()
    assert (name, before, steps[0], steps[-1]) == ("from step 501", "from step 1", 501, 2_500)
    assert times == pytest.approx([AT - 2_500 + step for step in steps]), "at the pace of the run"


def test_of_a_large_log_pieces_from_all_over_it_are_read(tmp_path: Path, shell: LocalShell) -> None:
    made = Restarted(tmp_path / "a.out", of_steps(1, 80_000), shell)
    ((name, steps, _),) = made.curves()
    assert (name, steps[0], steps[-1]) == ("from step 1", 1.0, 80_000.0)
    assert len(steps) < 20_000
    gaps = [after - before for before, after in pairwise(steps)]
    assert max(gaps) < 80_000 / 50
    assert steps == sorted({*steps})


def test_a_log_of_which_the_probe_has_sent_all_is_not_read_again(tmp_path: Path, shell: LocalShell) -> None:
    made = Restarted(tmp_path / "a.out", of_steps(1, 100), shell)
    ((name, steps, _),) = made.curves()
    assert (name, len(steps)) == ("from step 1", 100)


@pytest.mark.parametrize("now", ["garbage", "truncated", "gone"])
def test_a_file_that_is_another_one_by_now_gives_no_curves(tmp_path: Path, shell: LocalShell, now: str) -> None:
    file = tmp_path / "a.out"
    made = Restarted(file, of_steps(1, 2_000), shell)
    size = file.stat().st_size
    if now == "truncated":
        file.write_text("".join(f"{line}\n" for line in of_steps(7, 500)))
    elif now == "gone":
        file.unlink()
    else:
        file.write_bytes(b"\n".join(b"step %d loss: 9.5" % random.Random(at).randrange(9) for at in range(size // 10)))
    read = queue.SimpleQueue[CurvesGrew]()
    LogFile(made.before, lambda _: shell, ()).history(read.put)
    wait_for_threads()
    assert read.empty()
