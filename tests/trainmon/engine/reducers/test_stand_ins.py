"""A host that reads shared files in the place of the one that should: what it sees counts, what it misses does not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    AnyReading,
    CheckpointEntry,
    CheckpointListing,
    Cluster,
    ClustersChanged,
    DiskSample,
    DiskSamples,
    DisksReleased,
    Event,
    LogChunk,
    NodeReading,
    Run,
    RunsChanged,
    RunSpec,
    Source,
    SourceChanged,
    State,
    SwitchSample,
    SwitchSamples,
)

NOW = 1_750_000_000.0
SPEC = RunSpec(name="llm", cluster="prod", log="/fsx/llm.out", checkpoints="/fsx/ckpt", kill_switch="/fsx/kill")
STEP = CheckpointEntry("step_100", "dir", NOW - 60, 10)


class Scene:
    """What the login host and n1 tell of the run's files, through the fold."""

    def __init__(self) -> None:
        self.state = State(at=NOW)
        source = Source(name="node:login", kind="node", cluster="prod", phase="connecting")
        self.say(ClustersChanged((Cluster(name="prod", login="login"),)), RunsChanged((SPEC,)), SourceChanged(source))

    def say(self, *events: Event) -> None:
        self.state = reduce(self.state, events, NOW)

    def reads(self, host: str, reading: AnyReading, **more: Any) -> None:
        self.say(NodeReading(host, "prod", NOW, reading, **more))

    @property
    def run(self) -> Run:
        return self.state.runs["llm"]


def disks(**changes: Any) -> DiskSamples:
    return DiskSamples(1, NOW, (DiskSample("/fsx", **{"mount": "/fsx", "free_bytes": 7, "total_bytes": 9, **changes}),))


def switch(exists: bool | None, error: str | None = None) -> SwitchSamples:
    return SwitchSamples(1, NOW, (SwitchSample("/fsx/kill", exists, NOW if exists else None, error=error),))


def test_a_log_on_the_disk_of_a_node_is_read_there_and_the_login_host_may_miss_it() -> None:
    scene = Scene()
    scene.say(RunsChanged((replace(SPEC, nodes=("n1",)),)))
    nothing = LogChunk(1, NOW, "on its node: llm")
    own = replace(nothing, path="/fsx/llm.out", lines=("step 5: loss 2.1, lr 1e-4",), mtime=NOW)
    missing = LogChunk(1, NOW, "llm", error="no file matches")
    scene.reads("n1", nothing)
    assert scene.run.log is None
    scene.reads("login", missing)
    assert scene.run.log is not None
    assert scene.run.log.error == "no file matches"
    scene.reads("n1", own)
    scene.reads("login", missing)
    scene.reads("n1", nothing)
    assert (scene.run.log.host, scene.run.log.error, scene.run.progress.step) == ("n1", None, 5)
    scene.reads("login", replace(own, id="llm", lines=("step 6: loss 2.1, lr 1e-4",)))
    scene.reads("n1", own)
    assert (scene.run.log.host, scene.run.progress.step) == ("login", 6), "both are one machine"


def log(host: str, step: int, *, age: float, local: bool = True) -> LogChunk:
    """Lines of a log up to a step, last written some time ago."""
    lines = tuple(f"step {number}: loss 2.1, lr 1e-4" for number in range(max(0, step - 5), step + 1))
    name = "llm" if host == "login" else "on its node: llm"
    return LogChunk(1, NOW, name, "/tmp/llm.out", 99, NOW - age, lines, seen=6, local=local)


@pytest.mark.parametrize("hosts", [("login", "n1"), ("n1", "login"), ("n2", "n1"), ("login", "n2", "n1")])
@pytest.mark.parametrize("stale_step", [12, 5000])
def test_a_stale_file_of_the_same_path_on_another_host_does_not_count(hosts: tuple[str, ...], stale_step: int) -> None:
    scene = Scene()
    scene.say(RunsChanged((replace(SPEC, nodes=("n2", "n1")),)))
    for step in (76, 77):
        for host in hosts:
            is_written = host == "n1"
            scene.reads(host, log(host, step if is_written else stale_step, age=1.0 if is_written else 3 * 86400.0))
    assert scene.run.log is not None
    assert (scene.run.log.host, scene.run.progress.step) == ("n1", 77)


def test_a_newer_file_on_a_node_does_not_count_where_the_first_host_reads_a_shared_one() -> None:
    scene = Scene()
    scene.say(RunsChanged((replace(SPEC, nodes=("n1",)),)))
    for host, local in (("login", False), ("n1", True), ("login", False)):
        scene.reads(host, log(host, 12 if host == "login" else 76, age=600.0 if host == "login" else 1.0, local=local))
    assert scene.run.log is not None
    assert (scene.run.log.host, scene.run.progress.step) == ("login", 12)


def test_of_two_files_of_the_same_path_that_both_grow_the_first_counts() -> None:
    scene = Scene()
    scene.say(RunsChanged((replace(SPEC, nodes=("n1", "n2")),)))
    for step in (5, 6):
        scene.reads("n1", log("n1", step, age=30.0))
        scene.reads("n2", log("n2", step, age=1.0))
        assert scene.run.log is not None
        assert scene.run.log.host == "n1"


@pytest.mark.parametrize(
    "reading",
    [
        disks(state="error", error="no permission", mount=None),
        disks(state="error", error="does not exist", mount=None),
        disks(state="hung", mount=None),
        LogChunk(1, NOW, "llm", error="no permission"),
        LogChunk(1, NOW, "llm", error="no file matches"),
        CheckpointListing(1, NOW, "/fsx/ckpt", error="no permission"),
        CheckpointListing(1, NOW, "/fsx/ckpt"),
        CheckpointListing(1, NOW, "/fsx/ckpt", (CheckpointEntry("step_100", "dir", NOW - 60, error="no permission"),)),
        switch(None, "no permission"),
        switch(False),
    ],
)
def test_what_it_must_not_read_or_does_not_find_stays_unknown(reading: AnyReading) -> None:
    scene = Scene()
    scene.reads("n1", reading, is_stand_in=True)
    assert scene.state.disks == {}
    assert (scene.run.log, scene.run.checkpoints, scene.run.kill) == (None, None, None)
    scene.reads("login", reading)
    known = (scene.run.log, scene.run.checkpoints, scene.run.kill, *scene.state.disks.values())
    assert any(one is not None for one in known), "who should read it judges it"


def test_what_it_reads_well_counts() -> None:
    scene = Scene()
    for reading in (
        disks(read_only=True),
        LogChunk(1, NOW, "llm", "/fsx/llm.out", 9, NOW, ("step",), seen=1),
        CheckpointListing(1, NOW, "/fsx/ckpt", (STEP,)),
        switch(True),
    ):
        scene.reads("n1", reading, is_stand_in=True)
    assert (scene.state.disks["n1:/fsx"].free_bytes, scene.state.disks["n1:/fsx"].read_only) == (7, None)
    assert scene.run.log is not None
    assert scene.run.log.host == "n1"
    assert scene.run.checkpoints is not None
    assert scene.run.kill is not None
    assert scene.run.kill.exists


def test_a_switch_that_the_login_host_saw_is_not_gone_because_another_host_does_not_see_it() -> None:
    scene = Scene()
    scene.reads("login", switch(True))
    scene.reads("n1", switch(False), is_stand_in=True)
    assert scene.run.kill is not None
    assert (scene.run.kill.exists, scene.run.kill.taken_at) == (True, None)
    scene.reads("n1", switch(True), is_stand_in=True)
    scene.reads("n1", switch(False), is_stand_in=True)
    assert (scene.run.kill.exists, scene.run.kill.taken_at) == (False, NOW)


def test_what_it_reported_of_disks_is_gone_when_it_hands_them_back() -> None:
    scene = Scene()
    scene.reads("n1", disks(), is_stand_in=True)
    scene.say(DisksReleased("n1", ("/fsx",)))
    assert (scene.state.disks, set(scene.state.released_disks)) == ({}, {"n1:/fsx"})
    scene.reads("n1", disks(), is_stand_in=True)
    assert (set(scene.state.disks), scene.state.released_disks) == ({"n1:/fsx"}, {})
