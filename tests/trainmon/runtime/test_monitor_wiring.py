"""The parts of one start, joined: what a person asks is planned, written down, done, and followed after a restart."""

from __future__ import annotations

import queue
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.daemons import until
from tests.lab.slurm_config import ports
from tests.lab.wandb_server import WandbServer
from trainmon.config import DaemonSettings, RunSettings, Settings
from trainmon.ledger.ledger import recent_actions
from trainmon.model import ActionRequest, Plan, Record, Sample, State
from trainmon.runtime.demo import DemoMonitor
from trainmon.runtime.monitor import Monitor


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))


@contextmanager
def watching(tmp_path: Path, *, read_only: bool = False) -> Iterator[Monitor]:
    run = RunSettings(name="llm", save_switch=str(tmp_path / "save"), log=str(tmp_path / "train.log"))
    parts = Monitor(Settings(runs=(run,)), read_only=read_only)
    parts.start()
    try:
        yield parts
    finally:
        parts.stop()


def state_where(parts: Monitor, what: Callable[[State], object]) -> State:
    """The first State for which something holds."""
    reached = threading.Event()
    cancel = parts.subscribe(lambda state: reached.set() if what(state) else None)
    try:
        assert reached.wait(40), parts.engine.state
    finally:
        cancel()
    return parts.engine.state


def planned(parts: Monitor) -> Plan:
    answers: queue.Queue[Plan] = queue.Queue()
    parts.prepare(ActionRequest(verb="save", subjects=("llm",), requested_at=parts.engine.clock.now()), answers.put)
    return answers.get(timeout=120)


def record(state: State) -> Record | None:
    return next(iter(state.actions.values()), None)


def is_done(state: State) -> bool:
    found = record(state)
    return found is not None and found.status == "done"


def test_a_switch_is_dropped_written_down_and_followed_by_the_next_start(tmp_path: Path) -> None:
    with watching(tmp_path) as parts:
        state_where(parts, lambda state: any(source.health == "ok" for source in state.sources.values()))
        plan = planned(parts)
        assert plan.refusals == ()
        parts.act(plan.actions)
        state = state_where(parts, is_done)
    assert (tmp_path / "save").read_text().startswith("trainmon-tui save")
    (written,) = recent_actions(tmp_path / "state" / "trainmon-tui", 0.0, 10)
    assert (written.action, written.status) == (plan.actions[0], "done")
    assert record(state) is not None
    with watching(tmp_path) as parts:
        again = record(state_where(parts, is_done))
    assert again is not None
    assert again.action == plan.actions[0]


def test_nothing_is_done_where_reading_is_all_that_is_allowed(tmp_path: Path) -> None:
    with watching(tmp_path, read_only=True) as parts:
        plan = planned(parts)
    assert plan.actions == ()
    assert "read-only" in plan.refusals[0].why
    assert not (tmp_path / "save").exists()


def test_what_is_requested_after_the_stop_is_refused_and_not_lost(tmp_path: Path) -> None:
    with watching(tmp_path) as parts:
        pass
    plan = planned(parts)
    assert [refusal.why for refusal in plan.refusals] == ["no actions are possible here"]


def test_the_demo_acts_in_its_own_cluster_and_ledger(tmp_path: Path) -> None:
    parts = DemoMonitor()
    parts.start()
    try:
        state = state_where(parts, lambda state: any(run.job and run.spec.save_switch for run in state.runs.values()))
        name = next(name for name, run in state.runs.items() if run.job and run.spec.save_switch)
        state_where(parts, lambda state: state.runs[name].save is not None and state.runs[name].save.exists is False)
        answers: queue.Queue[Plan] = queue.Queue()
        parts.prepare(ActionRequest(verb="save", subjects=(name,), requested_at=parts.engine.clock.now()), answers.put)
        plan = answers.get(timeout=120)
        assert plan.refusals == ()
        parts.act(plan.actions)
        done = record(state_where(parts, is_done))
    finally:
        parts.stop()
    assert done is not None
    assert done.note is None
    assert not (tmp_path / "state").exists()


def test_the_demo_saves_the_samples_of_its_own_wandb(tmp_path: Path) -> None:
    parts = DemoMonitor()
    parts.start()
    answers: queue.Queue[str] = queue.Queue()
    try:
        state_where(parts, lambda state: "video-2b" in state.runs and state.runs["video-2b"].wandb is not None)
        parts.save_samples("video-2b", str(tmp_path / "saved"), answers.put)
        assert answers.get(timeout=120) == f"saved 1 sample of video-2b in {tmp_path}/saved"
    finally:
        parts.stop()
    assert [path.suffix for path in (tmp_path / "saved").iterdir()] == [".png"]


def test_a_run_is_looked_for_in_wandb_and_its_samples_can_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with WandbServer.start() as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        run = server.add_run("ab12", group="final")
        image = "media/images/val_3_ab12.png"
        run.put(image, b"\x89PNG", server.clock.now())
        server.log(run, {"loss": 2.5, "val": {"_type": "image-file", "path": image, "size": 4}}, step=3)
        parts = Monitor(Settings(runs=(RunSettings(name="llm", wandb="tester/video", group="final"),)))
        parts.start()
        try:
            kept = tmp_path / "state" / "trainmon-tui" / "samples"
            state = state_where(parts, lambda state: samples_of(state) and samples_of(state)[0].kept)
            wandb = state.runs["llm"].wandb
            assert wandb is not None
            assert (wandb.phase, wandb.active, wandb.keys) == ("active", ("ab12",), ("loss",))
            assert list(parts.curve("tester/video/ab12", "loss").values) == [2.5]
            assert [place.name for place in kept.glob("llm-*/*")] == ["val_3_ab12.png"]
            assert kept.stat().st_mode & 0o077 == 0
            replies: queue.Queue[str] = queue.Queue()
            parts.save_samples("llm", str(tmp_path / "mine"), replies.put)
            assert replies.get(timeout=120) == f"saved 1 sample of llm in {tmp_path}/mine"
            before = server.count("Runs")
            parts.refresh()
            state_where(parts, lambda _: server.count("Runs") > before)
        finally:
            parts.stop()
    assert (tmp_path / "mine" / "val_3_ab12.png").read_bytes() == b"\x89PNG"


def samples_of(state: State) -> tuple[Sample, ...]:
    found = state.runs.get("llm")
    return found.wandb.samples if found is not None and found.wandb is not None else ()


def test_the_daemon_serves_its_state_and_totals_and_removes_its_textfile_at_the_end(tmp_path: Path) -> None:
    (port,) = ports(1)
    file = tmp_path / "trainmon.prom"
    run = RunSettings(name="llm", log=str(tmp_path / "train.log"))
    daemon = DaemonSettings(metrics=("127.0.0.1", port), textfile=str(file))
    parts = Monitor(Settings(runs=(run,), daemon=daemon), program="alerts-only")
    parts.start()

    def page() -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
                return str(response.read().decode())
        except OSError:
            return ""

    try:
        until(lambda: 'trainmon_run_verdict{run="llm"' in page(), "the run has a verdict")
        until(file.exists, "the textfile is written")
    finally:
        parts.stop()
    until(lambda: not file.exists() and page() == "", "the file is removed and the port closed")
