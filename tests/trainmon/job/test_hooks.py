"""trainmon_hooks: the loop is asked to save or to stop, on every rank at the same step, and says how it does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trainmon_hooks as installed
from tests.collectors.probe.interpreters import found
from trainmon import job
from trainmon.analysis.log_formats.progress import advance
from trainmon.analysis.log_formats.read import read_line
from trainmon.job import trainmon_hooks
from trainmon.job.trainmon_hooks import Hooks
from trainmon.model import LogShape, Progress

NAN = float("nan")
Make = Callable[..., Hooks]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes Hooks with both switches, which looks at them in each step."""
    for name in ("RANK", "SLURM_PROCID", "SLURM_JOB_END_TIME", "SLURM_JOB_ID", "TORCHELASTIC_ERROR_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(trainmon_hooks, "LOOK_EVERY", 0.0)
    made: list[Hooks] = []

    def hooks(**settings: Any) -> Hooks:
        made.append(Hooks(**{"kill": str(tmp_path / "kill"), "save": str(tmp_path / "save"), **settings}))
        return made[-1]

    yield hooks
    for one in made:
        one.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A time that the test sets."""
    clock = SimpleNamespace(now=1000.0)
    times = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1e9 + clock.now)
    monkeypatch.setattr(trainmon_hooks, "time", times)
    return clock


def status(tmp_path: Path) -> Any:
    return json.loads((tmp_path / "kill.status").read_text())


def test_a_save_switch_asks_once_and_is_removed(make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hooks = make()
    assert hooks.step(1, 2.5) == ""
    (tmp_path / "save").touch()
    assert hooks.step(2, 2.4) == "save"
    assert not (tmp_path / "save").exists()
    assert status(tmp_path)["phase"] == "saving"
    assert [hooks.step(3, 2.3), hooks.step(4, 2.2)] == ["", ""]
    assert capfd.readouterr().err == "trainmon: save, asked for by the save switch, at step 2\n"


def test_a_kill_switch_asks_to_stop_and_stays(make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hooks = make()
    (tmp_path / "kill").touch()
    assert [hooks.step(1), hooks.step(2), hooks.poll()] == ["stop"] * 3
    assert (tmp_path / "kill").exists()
    hooks.saved(1)
    hooks.done(1)
    assert status(tmp_path)["ended"]["why"] == "stop: the kill switch"
    assert capfd.readouterr().err == (
        "trainmon: stop, asked for by the kill switch, at step 1\ntrainmon: ended at step 1: stop: the kill switch\n"
    )


def test_an_armed_kill_switch_stops_at_the_start(make: Make, tmp_path: Path) -> None:
    assert make().stop_at_start() is False
    (tmp_path / "kill").touch()
    (tmp_path / "save").touch()
    for rank in (0, 1):  # before the ranks know of each other, each looks
        assert make(rank=rank).stop_at_start() is True
    assert status(tmp_path)["phase"] == "ended"
    assert (tmp_path / "save").exists()


def test_signals_ask_call_the_handler_before_and_are_given_back(make: Make, tmp_path: Path) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
    mine = signal.getsignal(signal.SIGUSR1)
    try:
        hooks = make()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert [hooks.step(1), hooks.step(2)] == ["save", ""]
        assert heard == [signal.SIGUSR1]
        assert status(tmp_path)["asked"] | {"at": 0} == {"what": "save", "by": "SIGUSR1 on rank 0", "at": 0, "step": 1}
        os.kill(os.getpid(), signal.SIGTERM)
        assert [hooks.step(3), hooks.step(4)] == ["stop", "stop"]
        hooks.close()
        assert signal.getsignal(signal.SIGUSR1) is mine
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        assert hooks.step(5) == "stop"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_signals_are_configurable(make: Make, tmp_path: Path) -> None:
    hooks = make(signals={"SIGUSR2": "stop", "SIGHUP": "save"})
    assert status(tmp_path)["signals"] == {"SIGHUP": "save", "SIGUSR2": "stop"}
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    os.kill(os.getpid(), signal.SIGHUP)
    assert hooks.step(1) == "save"
    os.kill(os.getpid(), signal.SIGUSR2)
    assert hooks.poll() == "stop"


def test_a_handler_that_came_later_is_kept(make: Make) -> None:
    hooks = make()
    ours = signal.getsignal(signal.SIGUSR1)
    later = lambda number, frame: ours(number, frame)  # type: ignore[operator, misc] # noqa: E731
    signal.signal(signal.SIGUSR1, later)
    try:
        hooks.close()
        assert signal.getsignal(signal.SIGUSR1) is later
        os.kill(os.getpid(), signal.SIGUSR1)  # ours has nothing left to ask for
        assert hooks.step(1) == ""
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)


@pytest.mark.parametrize("step_s", [0.01, 0.3, 4.0])
@pytest.mark.parametrize("agree", [None, list], ids=["alone", "agreed"])
def test_a_switch_is_seen_within_a_second_or_a_step(
    step_s: float, agree: Any, make: Make, clock: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainmon_hooks, "LOOK_EVERY", 0.5)
    hooks = make(agree=agree, every=1000)
    for number in range(400):
        clock.now += step_s
        assert hooks.step(number, 1.0) == ""
    (tmp_path / "save").touch()
    touched = clock.now
    for number in range(400):
        clock.now += step_s
        if hooks.step(number, 1.0) == "save":
            break
    assert clock.now - touched <= max(1.0, step_s)


def test_ranks_agree_every_k_steps_and_in_each_step_if_steps_are_long(
    make: Make, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainmon_hooks, "LOOK_EVERY", 0.5)
    votes: list[float] = []
    hooks = make(agree=lambda vote: votes.append(clock.now) or vote, every=10)  # type: ignore[func-returns-value]
    for step_s, expected in ((0.001, 4), (2.0, 30)):
        for _ in range(10):  # the pace is known after some votes
            clock.now += step_s
            hooks.step(0)
        votes.clear()
        for _ in range(30):
            clock.now += step_s
            hooks.step(0)
        assert expected - 1 <= len(votes) <= expected


@pytest.mark.parametrize("given", ["environment", "number"])
def test_the_loop_is_asked_to_stop_before_the_time_limit(
    given: str, make: Make, clock: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = 1e9 + clock.now + 300
    if given == "environment":
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(end)))
    hooks = make(grace=60, **({"deadline": end} if given == "number" else {}))
    clock.now += 200
    assert hooks.step(1) == ""
    assert status(tmp_path)["deadline"] == end
    clock.now += 50
    assert hooks.step(2) == "stop"
    assert hooks.why == "stop: the time limit"


def test_a_short_job_trains_for_half_of_its_time(make: Make, clock: SimpleNamespace) -> None:
    hooks = make(deadline=1e9 + clock.now + 100)
    clock.now += 49
    assert hooks.step(1) == ""
    clock.now += 2
    assert hooks.step(2) == "stop"


def test_a_time_limit_that_is_no_number_is_none(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", "Unknown")
    monkeypatch.setenv("SLURM_PROCID", "")
    assert make().deadline is None


def test_a_loss_that_is_not_finite_warns_once_or_stops_after_some(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hooks = make()
    assert [hooks.step(1, NAN), hooks.step(2, float("inf"))] == ["", ""]
    assert hooks.is_bad
    assert capfd.readouterr().err == "trainmon: warning: a loss is not finite\n"
    hooks.saved(2)
    assert status(tmp_path)["loss"] is None
    hooks.step(3, 1.0)
    assert not hooks.is_bad
    hooks.close()
    hooks = make(nan="stop", nan_after=3)
    assert [hooks.step(step, loss) for step, loss in enumerate((NAN, NAN, 2.0, NAN, NAN))] == [""] * 5
    assert hooks.step(6, NAN) == "stop"
    assert hooks.why == "stop: a loss that is not finite"
    assert make(nan="ignore").step(1, NAN) == ""


def test_what_is_no_number_is_no_loss(make: Make) -> None:
    hooks = make()
    for loss in (None, "text", [1, 2], object()):
        assert hooks.step(1, loss) == ""
    assert not hooks.is_bad


def test_the_status_says_how_the_training_does(make: Make, tmp_path: Path, clock: SimpleNamespace) -> None:
    hooks = make()
    assert status(tmp_path)["phase"] == "starting"
    clock.now += 2
    hooks.step(7, 1.5)
    known = status(tmp_path)
    assert (known["v"], known["step"], known["loss"], known["at"]) == (1, 7, 1.5, 1e9 + clock.now)
    assert (known["phase"], known["pid"], known["host"]) == ("training", os.getpid(), os.uname().nodename)
    assert (known["kill"], known["save"]) == (str(tmp_path / "kill"), str(tmp_path / "save"))
    clock.now += 2
    hooks.poll()
    assert status(tmp_path)["phase"] == "evaluation"
    (tmp_path / "save").touch()
    hooks.step(8, 1.4)
    assert status(tmp_path)["asked"] == {"what": "save", "by": "the save switch", "at": 1e9 + clock.now, "step": 8}
    hooks.saved(8)
    known = status(tmp_path)
    assert (known["last_save"], known["phase"]) == ({"step": 8, "at": 1e9 + clock.now}, "training")
    hooks.done(9)
    assert status(tmp_path)["ended"] == {"step": 9, "at": 1e9 + clock.now, "why": "the training loop has ended"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kill.status"]  # and no temporary file


def test_the_status_is_written_at_most_once_a_second(
    make: Make, clock: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = make()
    written: list[float] = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: written.append(clock.now) or replace(*paths))  # type: ignore[func-returns-value]
    for step in range(1000):
        clock.now += 0.01
        hooks.step(step, 1.0)
    assert 9 <= len(written) <= 10


def test_the_place_of_the_status_is_given_or_beside_the_kill_switch(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kill", "save", "status"):
        monkeypatch.setenv(f"TRAINMON_{name.upper()}", f"{tmp_path}/of-{name}")
    monkeypatch.setenv("TRAINMON_DEADLINE", "5")
    hooks = Hooks.from_env()
    hooks.close()
    assert (hooks.kill, hooks.save, hooks.status) == tuple(
        f"{tmp_path}/of-{name}" for name in ("kill", "save", "status")
    )
    assert hooks.deadline == 5.0
    assert make(kill=None).status == str(tmp_path / "save.status")
    assert make(kill=None, save=None).status is None


def test_our_reader_reads_the_step_line(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    hooks = make(print_every=2, total=1000)
    for step in range(1, 9):
        hooks.step(step, 3.0 - step / 10, lr=3e-4, grad_norm=0.5, tokens_per_s=1234.0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step: 2/1000 | loss: 2.8 | lr: 0.0003 | grad_norm: 0.5 | tokens_per_s: 1234"
    progress, shape = Progress(), LogShape()
    for at, line in enumerate(lines):
        read, shape = read_line(line, progress, shape, float(at))
        progress = progress if read is None else advance(progress, *read, float(at))
    assert (progress.step, progress.target_step, progress.loss) == (8, 1000, 2.2)
    assert (progress.learning_rate, progress.grad_norm, progress.tokens_per_s) == (3e-4, 0.5, 1234.0)


def test_nothing_raises_and_each_warning_comes_once(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hooks = make(status=str(tmp_path / "no" / "status"), kill=str(tmp_path / ("n" * 300)))
    make()
    for step in range(3):
        hooks.step(step)
    hooks.saved(3)
    hooks.done(3)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(":")[2] for line in lines if "warning" in line] == [
        " a file cannot be written", " there are two Hooks", " a switch cannot be read",
    ]  # fmt: skip


class Number:
    """As a number of numpy or torch: no int, but there is one in it."""

    def __int__(self) -> int:
        return 7

    def __mod__(self, other: int) -> int:
        return 7 % other


def test_steps_of_other_libraries_and_a_closed_output_raise_nothing(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = make()
    hooks.step(Number(), 1.0)  # type: ignore[arg-type]
    hooks.saved(Number())  # type: ignore[arg-type]
    assert (status(tmp_path)["step"], status(tmp_path)["last_save"]["step"]) == (7, 7)
    hooks._report["step"] = object()
    hooks.saved(8)
    closed = (tmp_path / "closed").open("w")
    closed.close()
    monkeypatch.setattr(sys, "stdout", closed)
    assert make(print_every=1).step(1, 2.0) == ""


def test_a_save_switch_that_cannot_be_removed_counts_once(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "save").mkdir()  # unlink refuses a directory
    hooks = make()
    assert [hooks.step(1), hooks.step(2)] == ["save", ""]
    assert "the save switch cannot be removed" in capfd.readouterr().err
    (tmp_path / "save").rmdir()
    (tmp_path / "save").touch()
    assert hooks.step(3) == "save"


def test_outside_the_main_thread_it_warns_once_and_the_switches_work(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made: list[Hooks] = []
    thread = threading.Thread(target=lambda: made.append(make()))
    thread.start()
    thread.join()
    warned = [line for line in capfd.readouterr().err.splitlines() if "signals are not heard" in line]
    assert len(warned) == 1
    assert status(tmp_path)["signals"] == {}
    (tmp_path / "save").touch()
    assert made[0].step(1) == "save"


def test_a_vote_that_fails_decides_nothing_and_forgets_nothing(make: Make, capfd: pytest.CaptureFixture[str]) -> None:
    broken = [True]

    def agree(votes: list[float]) -> list[float]:
        if broken:
            raise RuntimeError("connection reset by peer")
        return votes

    hooks = make(agree=agree)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert [hooks.step(1), hooks.step(2)] == ["", ""]
    assert (
        capfd.readouterr().err == "trainmon: warning: the ranks cannot agree: RuntimeError: connection reset by peer\n"
    )
    broken.clear()
    assert hooks.step(3) == "save"


def test_the_caller_may_add_the_vote_to_a_reduction_of_its_own(make: Make, tmp_path: Path) -> None:
    first, second = make(rank=0), make(rank=1)
    second._told["SIGTERM"] += 1
    for _ in range(2):
        votes = [max(pair) for pair in zip(first.votes(1.0), second.votes(NAN), strict=True)]
        assert [one.step(5, 1.0, agreed=votes) for one in (first, second)] == ["stop", "stop"]
        assert first.is_bad == second.is_bad == True  # noqa: E712
    assert first.why == "stop: SIGTERM on rank 1"
    assert status(tmp_path)["asked"]["by"] == "SIGTERM on rank 1"
    assert first.step(6, 1.0, agreed=[0.0]) == "stop"


def test_a_forked_process_has_its_signals_back_and_ignores_what_asks_for_a_save(make: Make) -> None:
    hooks = make()
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGUSR1)
        os._exit(0 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and hooks.step(1) == "" else 1)
    assert os.waitpid(child, 0)[1] == 0
    os.kill(os.getpid(), signal.SIGUSR1)
    assert hooks.step(1) == "save"


def test_workers_of_a_loader_ignore_the_signals() -> None:
    script = (
        "import os, signal, trainmon_hooks; trainmon_hooks.ignore_signals(0)\n"
        "for name in ('SIGTERM', 'SIGUSR1'): os.kill(os.getpid(), getattr(signal, name))\n"
        "print('alive')"
    )
    assert subprocess.check_output([sys.executable, "-c", script], timeout=120) == b"alive\n"


RAISES = """
import sys, trainmon_hooks
hooks = trainmon_hooks.Hooks(status=sys.argv[1])
hooks.step(4, 1.0)
raise ValueError("batch 4711 has the shape (7, 3)")
"""


def test_an_exception_is_written_where_torchrun_looks_for_it(tmp_path: Path) -> None:
    error, told = tmp_path / "error.json", tmp_path / "status"
    argv = [sys.executable, "-c", RAISES, str(told)]
    environ = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(error)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: batch 4711 has the shape (7, 3)\n")
    message = json.loads(error.read_text())["message"]
    assert message["message"] == "ValueError: batch 4711 has the shape (7, 3)"
    assert message["extraInfo"]["py_callstack"].startswith("Traceback (most recent call last):")
    assert abs(int(message["extraInfo"]["timestamp"]) - time.time()) < 300
    assert json.loads(told.read_text())["ended"]["why"] == "an exception: ValueError"
    error.write_text("of torch.distributed.elastic")
    subprocess.run(argv, env=environ, capture_output=True, timeout=120, check=False)
    assert error.read_text() == "of torch.distributed.elastic"


RANKS = """
import json, os, signal, socket, sys, time
sys.path.insert(0, sys.argv[1])
import trainmon_hooks
ours, theirs = socket.socketpair()
rank = 0 if os.fork() else 1
mine = (ours, theirs)[rank]
answers = mine.makefile("r")
signal.alarm(100)  # nobody waits longer for the other

def agree(votes):
    mine.sendall((json.dumps(votes) + "\\n").encode())
    return [max(pair) for pair in zip(votes, json.loads(answers.readline()))]

kill = "%s/kill-%d" % (sys.argv[1], rank)
settings = dict(nan="stop", nan_after=2) if sys.argv[2] == "nan" else dict(nan="skip")
hooks = trainmon_hooks.Hooks(kill=kill, save=kill + "-save", rank=rank, agree=agree, **settings)
seen = []
for step in range(200):
    time.sleep(0.002)
    if step == 20 and rank == 1:
        if sys.argv[2] == "switch":
            open(kill, "w").close()  # of no file that rank 0 looks at
        elif sys.argv[2] in ("USR1", "TERM"):
            os.kill(os.getpid(), getattr(signal, "SIG" + sys.argv[2]))
    loss = float("nan") if sys.argv[2] in ("nan", "skip") and rank == 1 and step in (20, 21) else 1.0
    if hooks.skip(loss):
        seen.append([step, "skip"])
    ask = hooks.step(step, loss)
    if ask:
        seen.append([step, ask])
    if ask == "stop":
        break
open("%s/seen-%d" % (sys.argv[1], rank), "w").write(json.dumps(seen))
if rank == 0:
    os.wait()
"""
EXPECTED = {"USR1": ["save"], "TERM": ["stop"], "nan": ["stop"], "skip": ["skip", "skip"], "switch": []}


@pytest.mark.parametrize("what", EXPECTED)
def test_what_one_rank_is_told_both_do_at_the_same_step(what: str, tmp_path: Path) -> None:
    (tmp_path / "trainmon_hooks.py").write_text(job.hooks_module())
    done = subprocess.run(
        [sys.executable, "-c", RANKS, str(tmp_path), what], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"seen-{rank}").read_text()) for rank in (0, 1))
    assert first == second
    assert [ask for _, ask in first] == EXPECTED[what]
    assert not (tmp_path / "kill-1.status").exists()


LOOP = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import trainmon_hooks
hooks = trainmon_hooks.Hooks.from_env(print_every=1)
assert not hooks.stop_at_start()
os.kill(os.getpid(), signal.SIGUSR1)
asked = [hooks.step(1, 2.5)]
hooks.saved(1)
os.kill(os.getpid(), signal.SIGTERM)
asked += [hooks.step(2, 2.0, lr=1e-3), hooks.step(3)]
hooks.done(3)
print(asked, "torch" in sys.modules, "transformers" in sys.modules)
"""


@pytest.mark.parametrize("version", sorted(set(found()) - {"3.6", "3.7"}, key=lambda one: int(one.split(".")[1])))
def test_every_python_runs_it(version: str, tmp_path: Path) -> None:
    (tmp_path / "trainmon_hooks.py").write_text(job.hooks_module())
    argv = [found()[version], "-W", "error", "-I", "-S", "-c", LOOP, str(tmp_path)]
    environ = {"TRAINMON_SAVE": str(tmp_path / "save")}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == (
        "step: 1 | loss: 2.5\nstep: 2 | loss: 2 | lr: 0.001\nstep: 3\n['save', 'stop', 'stop'] False False\n"
    ), done.stderr
    known = json.loads((tmp_path / "save.status").read_text())
    assert known["ended"]["why"] == "stop: SIGTERM on rank 0"


def test_the_printed_file_is_what_is_installed_and_short() -> None:
    printed = subprocess.check_output([sys.executable, "-m", "trainmon", "hooks"], text=True, timeout=120)
    assert printed == job.hooks_module()
    names: dict[str, Any] = {"__name__": "printed"}
    exec(compile(printed, "trainmon_hooks.py", "exec"), names)
    assert set(installed.__all__) <= set(names)
    assert all(len(line) <= 120 for line in printed.splitlines())
