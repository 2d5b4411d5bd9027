"""A mount that dies under a running probe: one row each for what lies on it, and nothing else is disturbed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.probe.files.wandb_files import framed, history, run_record, write
from tests.lab.hung_mount import HungMount
from tests.lab.nvml import Nvml
from tests.lab.probe import RunningProbe, until
from trainmon.model import (
    DiskSamples,
    FileContent,
    GpuSamples,
    HostSample,
    LogChunk,
    SwitchSamples,
    Trouble,
    WandbRows,
)


@pytest.fixture
def mount(tmp_path: Path) -> HungMount:
    return HungMount.at(tmp_path / "fsx", tmp_path)


def probe(mount: HungMount, tmp_path: Path, **spec: Any) -> RunningProbe:
    environment = {**Nvml(tmp_path).environment(), **mount.env}
    return RunningProbe(environment, python=sys.executable, patience=0.5, retry=0.5, **spec)


def test_a_disk_that_hangs_is_hung_and_comes_back(mount: HungMount, tmp_path: Path) -> None:
    dead = str(mount.folder)
    mount.hang()
    with probe(mount, tmp_path, disks=[dead, "/"]) as running:
        row = running.wait(DiskSamples, lambda line: any(disk.state == "hung" for disk in line.d))
        hung = next(disk for disk in row.d if disk.state == "hung")
        assert (hung.path, hung.total_bytes) == (dead, None)
        assert hung.error is not None
        assert hung.error.startswith("no answer for ")
        running.wait(DiskSamples, lambda line: any(disk.path == "/" and disk.free_bytes for disk in line.d))
        running.wait_anew(GpuSamples, lambda line: len(line.g) == 8)
        running.wait_anew(HostSample)
        running.wait_anew(DiskSamples, lambda line: any(disk.state == "hung" for disk in line.d))
        mount.recover()
        running.wait_anew(DiskSamples, lambda line: any(disk.path == dead and disk.state == "ok" for disk in line.d))


def test_a_hung_switch_is_unknown_not_absent(mount: HungMount, tmp_path: Path) -> None:
    switch = mount.folder / "kill-switch"
    switch.touch()
    mount.hang()
    with probe(mount, tmp_path, switches=[str(switch), str(tmp_path / "other")]) as running:
        line = running.wait(SwitchSamples, lambda line: any(one.error for one in line.s))
        assert next(one for one in line.s if one.error).exists is None
        running.wait(SwitchSamples, lambda line: any(one.exists is False for one in line.s))
        mount.recover()
        running.wait_anew(SwitchSamples, lambda line: any(one.path == str(switch) and one.exists for one in line.s))


def test_a_manifest_on_a_hung_mount_is_read_when_the_mount_is_back(mount: HungMount, tmp_path: Path) -> None:
    manifest = mount.folder / "manifest.json"
    manifest.write_text("{}")
    mount.hang()
    with probe(mount, tmp_path, files=[{"id": "data_manifest prod/88", "pattern": str(manifest)}]) as running:
        line = running.wait(FileContent, lambda line: line.error is not None)
        assert line.id == "data_manifest prod/88"
        assert (line.error or "").startswith("no answer for ")
        running.wait_anew(GpuSamples, lambda line: len(line.g) == 8)
        mount.recover()
        assert running.wait_anew(FileContent, lambda line: line.error is None).text == "{}"


@pytest.mark.slow
def test_the_files_of_a_w_and_b_client_are_read_on_when_their_mount_is_back(mount: HungMount, tmp_path: Path) -> None:
    written = framed(run_record("aaaa1111"), *(history(step, loss=2.0) for step in range(3)))
    file = write(mount.folder, "offline-run-20260101_120000-aaaa1111", written)
    wanted = {"id": "llm", "directory": str(mount.folder), "charts": ["loss"]}
    with probe(mount, tmp_path, wandb=[wanted]) as running:
        first = running.wait(WandbRows, lambda line: line.rows == 3)
        mount.hang()
        hung = running.wait(WandbRows, lambda line: line.error)
        assert hung.path is None
        assert hung.error is not None
        assert hung.error.startswith("no answer for ")
        running.wait_anew(GpuSamples, lambda line: len(line.g) == 8)
        file.write_bytes(framed(history(3, loss=1.9), after=written))
        mount.recover()
        again = running.wait_anew(WandbRows, lambda line: line.rows == 4)
        assert (again.file, again.error) == (first.file, None)


def test_a_log_elsewhere_goes_on_where_it_was_when_a_mount_hangs(mount: HungMount, tmp_path: Path) -> None:
    """The worker that follows it is abandoned with the mount; the next one repeats no line and misses none."""
    log = tmp_path / "train.log"
    log.write_text("step 1\nstep 2\n")
    spec: dict[str, Any] = {"logs": [{"id": "run", "pattern": str(log)}], "switches": [str(mount.folder / "kill")]}
    with probe(mount, tmp_path, **spec) as running:
        running.wait(LogChunk, lambda line: "step 2" in line.lines)
        worker = running.tree()[1]
        mount.hang()
        running.wait(SwitchSamples, lambda line: line.s[0].error)
        until(lambda: worker not in running.tree())
        with log.open("a") as file:
            file.write("step 3\n")
        running.wait(LogChunk, lambda line: "step 3" in line.lines)
        lines = [text for line in running.readings if isinstance(line, LogChunk) for text in line.lines]
        assert lines == ["step 1", "step 2", "step 3"]


def test_a_hung_log_says_so(mount: HungMount, tmp_path: Path) -> None:
    log = mount.folder / "train.log"
    log.write_text("step 1\n")
    mount.hang()
    with probe(mount, tmp_path, logs=[{"id": "run", "pattern": str(log)}]) as running:
        chunk = running.wait(LogChunk, lambda line: line.error)
        assert chunk.id == "run"
        assert (chunk.error or "").startswith("no answer for ")
        mount.recover()
        running.wait(LogChunk, lambda line: "step 1" in line.lines)


def test_ten_dead_paths_are_ten_rows_and_two_processes(mount: HungMount, tmp_path: Path) -> None:
    dead = [str(mount.folder / str(number)) for number in range(10)]
    mount.hang()
    with probe(mount, tmp_path, disks=[*dead, "/"]) as running:

        def hung() -> set[str]:
            lines = [line for line in running.readings if isinstance(line, DiskSamples)]
            return {disk.path for line in lines for disk in line.d if disk.state == "hung"}

        until(lambda: hung() == set(dead), timeout=120)
        running.wait_anew(GpuSamples, lambda line: len(line.g) == 8)
        assert len(running.tree()) <= 3, "the parent, its worker, and one trial"
        assert not [line for line in running.readings if isinstance(line, Trouble) and line.part == "probe"]
