"""What a training loop reports by trainmon_hooks: read from its own file, shown on the screen, said in plans."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import KILL, NOW, RUN, RUNNING, SAVE, node, only, planned, readback
from tests.trainmon.actions.cluster import state as cluster_state
from tests.trainmon.ledger.records import action
from trainmon.analysis.attempts import read_once
from trainmon.analysis.runs.trainer import read_status, status_file
from trainmon.config.load import run_specs
from trainmon.config.schema import ClusterSettings, RunSettings, Settings
from trainmon.engine.reducers.reduce import reduce
from trainmon.job import trainmon_hooks
from trainmon.model import (
    Action,
    FileContent,
    FileSpec,
    Gpu,
    Node,
    NodeReading,
    Process,
    Record,
    Run,
    RunsChanged,
    State,
    Switch,
    Trainer,
)
from tui.views.runs import trainer_lines

STEPS = {RUNNING.key: ("88.0",)}


def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ends: bool = False, kill: str = KILL) -> str:
    """The status file of a real loop that was asked to save by USR1 12s ago, and saved 2s ago."""
    clock = SimpleNamespace(now=NOW - 20)
    times = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: clock.now)
    monkeypatch.setattr(trainmon_hooks, "time", times)
    monkeypatch.setenv("SLURM_TASK_PID", str(os.getpid()))
    path = tmp_path / "status"
    hooks = trainmon_hooks.Hooks(kill=kill, save=SAVE, status=str(path), deadline=NOW + 3720, rank=0)
    hooks.step(12_878, 2.5)
    hooks._told["SIGUSR1"] += 1
    clock.now = NOW - 12
    assert hooks.step(12_880, 2.4) == "save"
    clock.now = NOW - 2
    hooks.saved(12_880)
    if ends:
        hooks.done(12_881)
    hooks.close()
    return path.read_text()


def reported(text: str | None, **fields: object) -> Run:
    """The run after the probe has read the file."""
    content = FileContent(1, NOW, "status of llm", path=f"{KILL}.status", text=text, **fields)  # type: ignore[arg-type]
    read = NodeReading("n1", "prod", NOW, content)
    state = reduce(State(), [RunsChanged((RUN.spec,)), read], NOW)
    return replace(RUN, trainer=state.runs["llm"].trainer)


def shown(run: Run, now: float = NOW) -> list[str]:
    return ["".join(span.text for span in line).strip() for line in trainer_lines(run, now, 100)]


def test_the_screen_shows_what_the_trainer_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = reported(written(tmp_path, monkeypatch))
    assert [" ".join(line.split()) for line in shown(run)] == [
        "trainer training, step 12,880, reported 2s ago",
        "asked to save by SIGUSR1 on rank 0, 12s ago, at step 12,880",
        "saved step 12,880 2s ago",
        "saves and stops in 1h, before its time limit",
    ]
    assert shown(replace(RUN, trainer=None)) == []
    ended = reported(written(tmp_path, monkeypatch, ends=True))
    assert "ended 2s ago: the training loop has ended" in shown(ended)


def test_a_trainer_that_looks_at_another_switch_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = reported(written(tmp_path, monkeypatch, kill="/fsx/other/kill"))
    assert shown(run)[-1] == f"it looks at /fsx/other/kill, not at {KILL}"


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"at": "x"}', "step 7", '{"at": 1, "phase": 2}'])
def test_what_is_no_status_file_changes_nothing(text: str | None) -> None:
    assert reported(text).trainer is None


def test_texts_of_the_file_are_cleaned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.loads(written(tmp_path, monkeypatch))
    text["asked"]["by"] = "\x1b[31mred"
    trainer = read_status(FileContent(1, NOW, "status of llm", text=json.dumps(text)), "n1", 0.0)
    assert trainer is not None
    assert trainer.asked is not None
    assert "\x1b" not in trainer.asked.by


def test_the_status_file_is_named_or_beside_the_switch() -> None:
    def path(**paths: str) -> str | None:
        settings = Settings(clusters=(ClusterSettings(name="lab"),), runs=(RunSettings(name="llm", **paths),))  # type: ignore[arg-type]
        found = status_file(run_specs(settings)[0])
        return None if found is None else found.pattern

    assert path(kill_switch="/a/kill", save_switch="/a/save") == "/a/kill.status"
    assert path(save_switch="/a/save") == "/a/save.status"
    assert path(kill_switch="/a/kill", status="/b/status") == "/b/status"
    assert path() is None


def said(run: Run, verb: str, records: tuple[Record, ...] = (), **fields: object) -> str | None:
    seen = readback(RUNNING, steps=STEPS) if verb == "signal" else readback(RUNNING)
    state = replace(cluster_state(RUNNING), runs={"llm": run}, actions={one.action.id: one for one in records})
    plan = planned(verb, of=state, seen=seen, **fields)  # type: ignore[arg-type]
    return dict(only(plan).facts).get("trainer listens")


def test_the_plans_say_whether_the_trainer_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = reported(written(tmp_path, monkeypatch))
    run = replace(run, jobs=(RUNNING.key,))
    assert said(run, "save") == said(run, "kill") == "yes: it reported 2s ago"
    assert said(run, "signal", signal="USR1") == "yes: it reported 2s ago; USR1 asks it to save"
    assert said(run, "signal", signal="TERM") == "yes: it reported 2s ago; TERM asks it to stop"
    assert said(run, "signal", signal="USR2") == "no: it does not listen to USR2"
    trainer = run.trainer
    assert trainer is not None

    def changed(**fields: object) -> Run:
        return replace(run, trainer=replace(trainer, **fields))

    assert said(changed(at=NOW - 300), "save") == "unknown: its last report was 5m ago"
    assert said(changed(at=NOW - 300, phase="saving"), "save") == "yes: it reported 5m ago"
    assert said(changed(save="/fsx/else"), "save") == "no: it looks at /fsx/else"
    assert said(changed(kill=None), "kill") == "no: it looks at no such file"
    assert said(changed(ended="stop: the time limit"), "save") == "no: it ended 2s ago (stop: the time limit)"


def test_the_plans_say_that_it_is_not_known_whether_a_trainer_without_a_status_file_listens() -> None:
    run = replace(RUN, jobs=(RUNNING.key,))
    assert said(run, "save") == "not known: no status file yet; this save will show it"
    assert said(run, "kill") == "not known: no status file yet; a save would show it"
    assert said(run, "signal", signal="USR1") is None, "the plan says who catches it"
    blind = replace(run, spec=replace(run.spec, save_switch=None))
    assert said(blind, "kill") == "not known: no status file yet"


def test_a_save_switch_that_disappeared_is_a_sign_that_the_trainer_listens_unless_a_person_removed_it() -> None:
    run = replace(RUN, jobs=(RUNNING.key,), save=Switch(path=SAVE, exists=False, taken_at=NOW - 7200))
    assert said(run, "save") == said(run, "kill") == "probably: it removed the save switch 2h ago"
    removed = Record(action=action(verb="unsave", run="llm"), status="done", done_at=NOW - 7205)
    assert said(run, "kill", records=(removed,)) == "not known: no status file yet; a save would show it"


def test_the_plans_of_requeue_and_cancel_say_that_the_trainer_saves_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(reported(written(tmp_path, monkeypatch)), jobs=(RUNNING.key,))

    def consequences(run: Run, verb: str) -> tuple[str, ...]:
        plan = planned(verb, of=replace(cluster_state(RUNNING), runs={"llm": run}), seen=readback(RUNNING))  # type: ignore[arg-type]
        return only(plan).consequences

    saves = (
        "Slurm ends it now: SIGTERM, on which its trainer saves (usually about 90s), then SIGKILL after KillWait"
        " (30s by default).",
        "A save that takes longer than KillWait is lost.",
    )
    assert consequences(run, "cancel")[:2] == consequences(run, "requeue")[:2] == saves
    assert "It resumes from the checkpoint, if its trainer loads the last one." in consequences(run, "requeue")
    trainer = run.trainer
    assert trainer is not None
    for changed in (
        None, replace(trainer, ended="done"), replace(trainer, at=NOW - 300), replace(trainer, signals={}),
        replace(trainer, is_task=False),
    ):  # fmt: skip
        for verb in ("requeue", "cancel"):
            assert consequences(replace(run, trainer=changed), verb)[0].endswith(
                "No checkpoint is saved first; to save one, use S."
            )


def test_the_plan_of_a_signal_says_what_a_trainer_that_reports_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(reported(written(tmp_path, monkeypatch)), jobs=(RUNNING.key,))

    def plan(name: str) -> Action:
        of = replace(cluster_state(RUNNING), runs={"llm": run}, nodes={"n1": node("n1", caught=None)})
        return only(planned("signal", of=of, seen=readback(RUNNING, steps=STEPS), signal=name))

    saves = "The trainer saves at its next iteration (a save usually takes about 90s)"
    assert plan("USR1").consequences[0] == f"{saves}; training goes on."
    assert plan("TERM").consequences[0] == f"{saves}; then it exits."
    assert plan("USR1").warnings == (), "it is known that it catches the signal"
    assert plan("USR2").warnings == ("It is not known whether its step catches USR2: an uncaught signal kills.",)


def test_the_times_of_the_file_are_by_our_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = FileContent(1, NOW, "status of llm", text=written(tmp_path, monkeypatch))
    trainer = read_status(content, "n1", 100.0)
    assert isinstance(trainer, Trainer)
    assert (trainer.at, trainer.deadline, trainer.saved_at) == (NOW - 102, NOW + 3620, NOW - 102)


def test_the_file_of_a_run_without_switches_is_named_by_the_environment_of_its_processes() -> None:
    def named(run: Run = RUN, **environment: str) -> list[str]:
        process = Process(pid=7, environment={"SLURM_JOB_ID": str(RUNNING.number), **environment})
        nodes = {"n1": Node(name="n1", cluster="prod", gpus=(Gpu(index=0, processes=(process,)),))}
        run = replace(run, spec=replace(run.spec, status=None), jobs=(RUNNING.key,))
        state = State(nodes=nodes, jobs={RUNNING.key: RUNNING}, runs={run.name: run})
        return [file.pattern for file in read_once(state).get("prod", ()) if isinstance(file, FileSpec)]

    assert named(TRAINMON_STATUS="/a/status", TRAINMON_KILL="/a/kill") == ["/a/status"]
    assert named(TRAINMON_KILL="/a/kill") == ["/a/kill.status"]
    assert named() == named(TRAINMON_STATUS="relative") == []
    assert named(TRAINMON_STATUS="/a/status", SLURM_JOB_ID="1") == []
