"""The demo through its door: the events that it submits, on a clock that the test advances."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from collectors.demo.collector import Demo
from collectors.demo.stories import CLUSTER, GPUS, NODES, READER, RUNS
from tests.collectors.demo.stage import STARTED, Stage
from trainmon.lib import TrainmonError
from trainmon.model import (
    DECODER,
    GpuFactsAll,
    GpuSamples,
    Hello,
    LogChunk,
    NodeReading,
    QuotaRead,
    RunsChanged,
    SourceChanged,
    SourceRemoved,
    SwitchSample,
    SwitchSamples,
)


def wait_for(condition: Callable[[], object], seconds: float = 120.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        threading.Event().wait(0.01)
    return False


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "demo")


def test_the_first_step_names_the_runs_and_has_numbers_of_some_nodes(stage: Stage) -> None:
    stage.demo.step()
    events = [event for _, event in stage.events]
    assert isinstance(events[0], RunsChanged)
    assert [spec.name for spec in events[0].specs] == [run.name for run in RUNS]
    assert [event.source.name for event in events[1:17] if isinstance(event, SourceChanged)] == [
        f"node:{name}" for name in NODES
    ]
    assert len(list(stage.readings(GpuSamples))) == 4
    assert {chunk.id for _, chunk in stage.readings(LogChunk)} == {run.name for run in RUNS}


def test_all_nodes_are_up_with_numbers_after_a_second(stage: Stage) -> None:
    stage.play(1.0)
    for node in NODES:
        assert [source.phase for _, source in stage.sources(node)] == ["connecting", "up"]
        kinds = [
            type(event.reading) for _, event in stage.events if isinstance(event, NodeReading) and event.node == node
        ]
        assert kinds[:3] == [Hello, GpuFactsAll, GpuSamples]
        assert len(next(stage.readings(GpuSamples, node))[1].g) == GPUS


def test_a_node_speaks_every_two_seconds_and_not_all_at_once(stage: Stage) -> None:
    stage.play(14.0)
    times = [at for at, _ in stage.readings(GpuSamples, "gpu-009")]
    assert all(1.8 <= later - at <= 2.4 for at, later in pairwise(times))
    last = {node: max(at for at, _ in stage.readings(GpuSamples, node)) for node in NODES}
    assert len(set(last.values())) > 4


def test_every_reading_goes_over_the_wire_and_back(stage: Stage) -> None:
    stage.play(200.0)
    kinds = set()
    for _, event in stage.events:
        if isinstance(event, NodeReading):
            kinds.add(type(event.reading).__name__)
            assert DECODER.decode(msgspec.json.encode(event.reading)) == event.reading
    assert kinds == {
        "Hello", "GpuSamples", "GpuFactsAll", "HostSample", "DiskSamples", "LogChunk", "SwitchSamples", "Xid",
        "CheckpointListing", "FileContent", "RankProcesses",
    }  # fmt: skip


def test_logs_are_real_files_that_hold_the_lines_that_were_reported(stage: Stage) -> None:
    stage.play(30.0)
    for run in RUNS:
        written = "".join(path.read_text() for path in stage.home(run.name).glob("logs/*.out"))
        lines = stage.lines(run.name)
        assert lines
        assert all(line in written for line in lines)


def test_one_seed_says_the_same_twice(tmp_path: Path) -> None:
    received = []
    for seed in (7, 7, 8):
        stage = Stage(tmp_path / "demo", seed=seed).play(60.0)
        received.append([event for _, event in stage.events])
        stage.demo.stop()
    assert received[0] == received[1]
    assert received[0] != received[2]


def test_a_save_switch_put_there_by_hand_is_taken_and_a_checkpoint_appears(stage: Stage) -> None:
    stage.play(5.0)
    switch = stage.home("smol-3b") / "save-switch"
    before = set((stage.home("smol-3b") / "checkpoints").iterdir())
    switch.write_text("before the maintenance")
    stage.play(30.0)
    assert not switch.exists()
    new = [path for path in (stage.home("smol-3b") / "checkpoints").iterdir() if path not in before]
    assert [(path / "model_config.json").exists() for path in new] == [True]
    assert any("Save switch activated" in line for line in stage.lines("smol-3b"))


def test_a_kill_switch_put_there_by_hand_ends_the_run_and_its_gpus_go_idle(stage: Stage) -> None:
    stage.play(5.0)
    switch = stage.home("video-2b") / "kill-switch"
    switch.touch()
    stage.play(70.0)
    assert switch.exists(), "nobody but a person removes a kill switch"
    exits = [line for line in stage.lines("video-2b") if f"Detected kill switch at {switch}. Exiting" in line]
    assert len(exits) >= 3, "the elements that waited start, see the switch and exit: they burn"
    assert {sample.utilization_pct for sample in stage.gpu("gpu-002", 0, 60, 70)} == {0}
    seen = [sample for _, reading in stage.readings(SwitchSamples) for sample in reading.s if sample.exists]
    assert {sample.path for sample in seen} == {str(switch)}
    switch.unlink()
    stage.play(130.0)
    assert stage.gpu("gpu-002", 0, 125, 130)[-1].utilization_pct


def test_switches_are_watched_under_the_paths_of_the_runs(stage: Stage) -> None:
    stage.demo.step()
    specs = next(event.specs for _, event in stage.events if isinstance(event, RunsChanged))
    samples: list[SwitchSample] = [sample for _, reading in stage.readings(SwitchSamples) for sample in reading.s]
    assert {sample.path for sample in samples} == {path for run in specs for path in (run.kill_switch, run.save_switch)}
    assert all(sample.exists is False and sample.error is None for sample in samples)


def test_a_run_that_is_saving_shows_it_on_its_gpus(stage: Stage) -> None:
    stage.play(4.0)
    (stage.home("video-2b") / "save-switch").touch()
    stage.play(14.0)
    assert min(sample.utilization_pct or 0 for sample in stage.gpu("gpu-004", 1, 4, 14)) < 50


def test_a_faster_world_still_speaks_every_two_seconds(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "demo", speed=10.0).play(20.0)
    assert 9 <= len(list(stage.readings(GpuSamples, "gpu-001"))) <= 11
    assert any(sample.lost for sample in stage.gpu("gpu-014", 3, 8, 18)), "75 to 185s of the world's time"


@pytest.mark.parametrize("seconds", [150.0, pytest.param(360.0, marks=pytest.mark.slow)])
def test_hours_of_it_leave_a_bounded_number_of_files(seconds: float, tmp_path: Path) -> None:
    stage = Stage(tmp_path / "demo", speed=20.0).play(seconds)
    files = [path for path in stage.directory.rglob("*") if path.is_file()]
    assert len(files) < 5 * (4 * 9 + 4)
    assert sum(path.stat().st_blocks * 512 for path in files) < 30_000_000


def test_a_laptop_that_slept_does_not_live_through_the_night(stage: Stage) -> None:
    stage.play(4.0)
    before = len(stage.events)
    stage.clock.passed += 8 * 3600
    stage.demo.step()
    assert len(stage.events) - before < 200
    assert all(source.phase != "held" for node in NODES for _, source in stage.sources(node))


def test_a_time_of_day_that_is_set_back_does_not_silence_it(stage: Stage) -> None:
    stage.play(5.0)
    stage.clock.set_back = 3600.0
    stage.play(10.0)
    assert len([at for at, _ in stage.readings(GpuSamples, "gpu-001") if at > 5]) >= 2


def test_refresh_reads_everything_at_once_and_at_most_once_a_second(stage: Stage) -> None:
    stage.play(5.0)
    stage.events.clear()
    stage.demo.refresh()
    stage.demo.step()
    assert len(list(stage.readings(GpuSamples))) == len(NODES)
    stage.events.clear()
    stage.demo.refresh()
    stage.demo.step()
    assert not list(stage.readings(GpuSamples))


def test_a_directory_with_somebodys_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(TrainmonError, match="is not empty"):
        Stage(tmp_path).demo.step()
    assert (tmp_path / "thesis.tex").exists()


def test_started_for_real_it_speaks_at_once_and_stop_leaves_no_thread_and_no_directory() -> None:
    received: list[object] = []
    demo = Demo(received.append)
    demo.start()
    assert wait_for(lambda: any(isinstance(e, NodeReading) and isinstance(e.reading, GpuSamples) for e in received))
    directory = demo.directory
    assert directory is not None
    assert directory.is_dir()
    demo.stop()
    assert not directory.exists()
    assert "demo" not in {thread.name for thread in threading.enumerate()}


def test_files_that_cannot_be_written_are_a_source_with_an_error_and_the_demo_recovers(tmp_path: Path) -> None:
    received: list[object] = []
    place = tmp_path / "place"
    place.write_text("a file in the way")
    demo = Demo(received.append, directory=place)
    demo.start()
    assert wait_for(lambda: received)
    place.unlink()
    demo.refresh()
    assert wait_for(lambda: SourceRemoved("files:demo") in received)
    demo.stop()
    assert isinstance(received[0], SourceChanged)
    assert received[0].source.name == "files:demo"
    assert received[0].source.error == "the demo has stopped: File exists"


def test_nothing_happens_before_it_is_started(tmp_path: Path) -> None:
    received: list[object] = []
    demo = Demo(received.append, directory=tmp_path / "demo")
    demo.stop()
    assert received == []
    assert not (tmp_path / "demo").exists()


def test_it_imports_nothing_heavy() -> None:
    heavy = {"textual", "rich", "paramiko", "wandb", "plotext", "numpy", "ClusterShell", "pynvml"}
    code = f"import collectors.demo, sys; print(sorted({heavy!r} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert answer.stdout == "[]\n"


def test_ten_minutes_cost_less_than_two_percent_of_a_core(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "demo")
    started = time.process_time()
    stage.play(600.0)
    assert time.process_time() - started < 0.02 * 600
    assert stage.clock.now() - STARTED >= 600
    stage.demo.stop()


def test_a_quota_is_queried_as_on_a_real_cluster(stage: Stage) -> None:
    stage.play(70.0)
    seen = [event.quota for _, event in stage.events if isinstance(event, QuotaRead)]
    assert [(quota.path, quota.host, quota.source) for quota in seen] == [("/fsx", READER, f"quota:{CLUSTER}:/fsx")] * 2
    assert seen[0].allowances[0].owner == "user me"
    assert 0 < (seen[0].left_bytes or 0) < 80 * 10**12
