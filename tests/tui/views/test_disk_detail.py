"""One disk in full: its space, when it is full, which of our runs write there, and what could be deleted."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec.structs import replace

from collectors.demo.collector import Demo
from tests.tui.backend import FakeBackend
from tests.tui.pilot import running, thing_shown
from tests.tui.screen_text import StillClock, at_rest, dashboard, settled, text_of
from tests.tui.states.worlds import GIB, NOW, TIB, disk, state
from trainmon.engine.engine import Engine
from trainmon.model import Checkpoint, Checkpoints, Disk, Event, Forecast, Log, Run, RunSpec, State
from tui.screens.details import RunScreen
from tui.style import Linked
from tui.views.disks import disk_lines, shown_disks, spares


def checkpoint(step: int, state: str, **facts: object) -> Checkpoint:
    path = f"/fsx/llm/ckpt/step-{step}"
    known = {"step": step, "state": state, "path": path, "layout": "dcp", "bytes": int(100 * GIB), "at": NOW - 60}
    return Checkpoint(**known | facts)  # type: ignore[arg-type]


SAVED = Checkpoints(
    path="/fsx/llm/ckpt", host="login", listed_at=NOW, every_s=3600.0, bytes=int(100 * GIB),
    resumes="/fsx/llm/ckpt/step-3000",
    list=(
        checkpoint(3500, "torn", why="no .metadata yet"), checkpoint(3000, "committed"),
        checkpoint(2000, "superseded", at=NOW - 7_200), checkpoint(1000, "superseded", at=NOW - 10_800),
    ),
)  # fmt: skip
LLM = Run(
    spec=RunSpec(name="llm", cluster="prod"), verdict="healthy", checkpoints=SAVED,
    log=Log(host="login", path="/fsx/llm/train.log", size=int(3 * GIB), lines=("x" * 99,), lines_per_s=0.5),
)  # fmt: skip
OTHER = Run(spec=RunSpec(name="sft", cluster="prod"), log=Log(host="login", path="/home/me/sft.log", size=5))


def world(found: Disk | None = None, *runs: Run) -> State:
    fsx = found or disk("/fsx", filesystem="lustre")
    return state(disks=(fsx, disk("/home")), runs={run.name: run for run in runs or (LLM, OTHER)})


def texts(found: State, path: str = "/fsx", width: int = 100) -> list[str]:
    shown = next(one for one in shown_disks(found) if one.disk.path == path)
    lines = disk_lines(shown, found, width)
    return ["".join(span.text for span in (line.spans if isinstance(line, Linked) else line)) for line in lines]


def test_the_space_of_a_disk_and_when_it_is_full() -> None:
    end = NOW + 5 * 3600
    trend = Forecast(full_at=end, basis="stopped", span=90_000.0, fit=0.99)
    text = texts(world(disk("/fsx", full_at=end, forecast=trend)))
    assert "space         60% used: 40 TiB of 100 TiB free" in text
    assert "inodes        12% used: 880,000 of 1,000,000 free" in text
    assert "per day       +205 GiB" in text
    assert "full in       5h, deletions seem to have stopped" in text
    falling = texts(world(disk("/fsx", recent_per_day=126e3 * TIB, falling_full_at=NOW + 20)))
    assert "per day       +123 PiB, from the last two minutes" in falling
    assert "full in       20s at this rate" in falling
    begun = texts(world(disk("/fsx", recent_per_day=96 * TIB, bytes_per_day=None, forecast=None)))
    assert "full in       10h at this rate" in begun


def test_a_disk_that_cannot_be_read_shows_no_old_growth() -> None:
    missing = disk("/fsx", state="failed", error="does not exist", total_bytes=None, free_bytes=None, full_at=NOW + 9.0)
    text = texts(world(missing))
    assert text[0] == "problem       does not exist"
    assert not [line for line in text if line.startswith(("space", "per day", "full in"))]


def test_the_runs_that_write_there_with_their_checkpoints_and_logs() -> None:
    text = texts(world())
    assert "run         → llm  4 checkpoints 400 GiB, 100 GiB every 1h; log 3.0 GiB, 4.1 MiB/day" in text
    assert not any("sft" in line for line in text)
    assert "run         → sft  log 5 B" in texts(world(), "/home")
    assert "room for      409 checkpoints of the largest size" in text
    assert "None of the watched runs saves checkpoints or logs here." in texts(world(disk("/fsx"), OTHER))


def test_what_could_be_deleted_is_what_no_restart_needs_the_oldest_first() -> None:
    text = texts(world())
    start = text.index("what could be deleted; trainmon-tui deletes nothing")
    assert text[start + 1 :] == [
        "in total      3 checkpoints, 300 GiB: no restart needs them.",
        "llm           /fsx/llm/ckpt/step-1000   100G   3h old",
        "llm           /fsx/llm/ckpt/step-2000   100G   2h old",
        "llm           /fsx/llm/ckpt/step-3500   100G   1m old  incomplete: no .metadata yet",
    ]
    assert "Nothing of the watched runs: none of them has a checkpoint here." in texts(world(), "/home")


def kept(*runs: Run) -> list[int | None]:
    found = world(None, *runs)
    return [one.step for _, one in spares(next(one for one in shown_disks(found) if one.disk.path == "/fsx"), found)]


def test_nothing_is_spare_that_a_restart_takes_or_while_nothing_is_known() -> None:
    pointed = replace(LLM, checkpoints=replace(SAVED, resumes="/fsx/llm/ckpt/step-2000"))
    assert kept(pointed) == [1000, 3500]
    child = Checkpoints(path="/home/me/ckpt", host="login", listed_at=NOW, resumes="/fsx/llm/ckpt/step-1000")
    assert kept(LLM, replace(OTHER, checkpoints=child)) == [2000, 3500], "another run starts from it"
    assert kept(LLM, replace(LLM, spec=RunSpec(name="same", cluster="prod"))) == [1000, 2000, 3500], "one directory"
    none = replace(SAVED, list=tuple(one for one in SAVED.list if one.state != "committed"))
    assert kept(replace(LLM, checkpoints=none)) == []
    assert kept(replace(LLM, checkpoints=replace(SAVED, error="no answer for 30s"))) == []
    assert kept(OTHER) == []


async def test_y_copies_the_whole_path_of_a_checkpoint() -> None:
    deep = "/fsx/projects/of/a/team/with/long/names/llm/checkpoints"
    saved = replace(
        SAVED, path=deep, list=(*SAVED.list[:3], checkpoint(1000, "superseded", path=f"{deep}/step-1000", at=1.0))
    )
    app = dashboard(FakeBackend(world(None, replace(LLM, checkpoints=saved))))
    async with running(app, size=(80, 40)) as pilot:
        await at_rest(pilot)
        await pilot.press("3", "enter", "end", "up", "up", "y")
        shown = await settled(pilot)
        assert "…" in next(line for line in shown.splitlines() if "step-1000" in line)
        assert app.clipboard == f"{deep}/step-1000"


async def test_enter_opens_the_disk_and_its_run() -> None:
    app = dashboard(FakeBackend(world()))
    async with running(app, size=(100, 30)) as pilot:
        await at_rest(pilot)
        await pilot.press("3", "enter")
        await at_rest(pilot)
        assert thing_shown(app) == "disk"
        assert "what could be deleted" in text_of(app)
        await pilot.press("enter")
        await at_rest(pilot)
        assert isinstance(app.screen, RunScreen)
        await pilot.press("escape", "escape")
        await at_rest(pilot)
        assert app.screen is app.main


def test_the_runs_of_the_demo_save_on_its_disk(tmp_path: Path) -> None:
    """Its files are real: the probe lists them, and a checkpoint has the size of a real one."""
    engine, events = Engine(StillClock(), demo=True), list[Event]()
    demo = Demo(events.append, clock=StillClock(), directory=tmp_path / "demo")
    try:
        demo.step()
        found = engine.step(events, StillClock().now())
    finally:
        demo.stop()
    text = texts(found)
    runs = [line for line in text if line.startswith("run ")]
    assert re.fullmatch(r"run +→ video-2b  3 checkpoints 12 TiB, 4\.1 TiB every 2m; log \d\d KiB", runs[0])
    assert len(runs) == 5
    assert "in total      10 checkpoints, 13 TiB: no restart needs them." in text
    assert not any("iter_0081184" in line for line in text), "the newest of video-2b"
