"""No step and no end of a training waits for a file system, which the thread of the hooks looks at alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.probe.interpreters import found
from tests.lab.hung_mount import HungMount
from tests.trainmon.job.hooks.conftest import Make
from trainmon import job
from trainmon.job.trainmon_hooks import Hooks

PYTHONS = sorted(set(found()) - {"3.6", "3.7"}, key=lambda one: int(one.split(".")[1]))

BEGIN = """
import os, signal, sys, time
sys.path.insert(0, sys.argv[1])
import trainmon_hooks
trainmon_hooks.PATIENCE = 1.0
kill, save = (sys.argv[1] + "/mount/" + name for name in ("kill", "save"))

def until(is_so):
    for _ in range(6000):
        if is_so():
            return
        time.sleep(0.01)
    sys.exit("it waited in vain")

hooks = trainmon_hooks.Hooks(kill=kill, save=save, status=os.environ.get("TRAINMON_STATUS"))
"""

DEAD = """
hang = sys.argv[1] + "/hung_mount.hangs"
until(lambda: os.path.exists(kill + ".status"))
open(hang, "w").close()
time.sleep(0.6)  # the thread looks every 0.25 s: now it hangs
for step in range(2000):
    assert hooks.step(step, 1.0) == ""
os.kill(os.getpid(), signal.SIGTERM)
assert hooks.step(2000) == "stop"
hooks.saved(2000)
hooks.done(2000)
print("done")
"""

LIMIT = """
import threading
hang = sys.argv[1] + "/hung_mount.hangs"
hooks.close()
open(hang, "w").close()
hooks = trainmon_hooks.Hooks(kill=kill, deadline=time.time() + 2)
assert not hooks.stop_at_start()
until(lambda: hooks.step(1) == "stop")
assert hooks.why == "stop: the time limit"
trainmon_hooks.PATIENCE = 60.0
threading.Timer(1.0, os.unlink, [hang]).start()  # it answers again after the exception, before the end of the process
raise ValueError("in the middle")
"""

FORKED = """
hang = sys.argv[1] + "/hung_mount.hangs"
until(lambda: os.path.exists(kill + ".status"))
open(hang, "w").close()
time.sleep(0.6)
os.kill(os.getpid(), signal.SIGUSR1)
for _ in range(20):  # the thread is in a system call: whatever it holds then, the child would hold for ever
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        assert hooks.step(1) == "" and hooks.poll() == "" and not hooks.skip(float("nan"))
        hooks.saved(1)
        hooks.done(1)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
assert hooks.step(1) == "save"
os.unlink(hang)
until(lambda: '"saving"' in open(kill + ".status").read())
print("done")
"""


def run(script: str, tmp_path: Path, python: str = sys.executable, **environ: str) -> Any:
    (tmp_path / "trainmon_hooks.py").write_text(job.hooks_module())
    mount = HungMount.at(tmp_path / "mount", tmp_path)
    argv = [python, "-I", "-S", "-c", BEGIN + script, str(tmp_path)]
    return subprocess.run(argv, env=mount.env | environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("version", PYTHONS)
def test_on_a_dead_mount_no_step_waits_a_signal_is_obeyed_and_the_process_ends(version: str, tmp_path: Path) -> None:
    done = run(DEAD, tmp_path, found()[version])
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.splitlines() == [
        "trainmon: stop, asked for by SIGTERM on rank 0, at step 2000",
        "trainmon: ended at step 2000: stop: SIGTERM on rank 0",
        "trainmon: warning: a file system does not answer: no switch is seen and no status is written",
    ]


@pytest.mark.parametrize("version", PYTHONS)
def test_a_forked_worker_does_nothing_while_the_thread_of_its_parent_is_in_a_system_call(
    version: str, tmp_path: Path
) -> None:
    done = run(FORKED, tmp_path, found()[version])
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert done.stderr.count("trainmon: save, asked for") == 1
    assert "ended" not in done.stderr


def test_a_start_on_a_dead_mount_obeys_the_time_limit_and_an_exception_ends_it(tmp_path: Path) -> None:
    error = tmp_path / "error.json"
    done = run(LIMIT, tmp_path, TORCHELASTIC_ERROR_FILE=str(error))
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: in the middle\n")
    assert json.loads(error.read_text())["message"]["message"] == "ValueError: in the middle"
    known = json.loads((tmp_path / "mount" / "kill.status").read_text())
    assert known["ended"]["why"] == "an exception: ValueError"


@pytest.mark.parametrize("end", ["sys.exit(0)", "raise ValueError", "pass", "hooks.done(7)"])
def test_what_was_reported_last_is_written_however_the_process_ends(end: str, tmp_path: Path) -> None:
    slow = "import os; look = os.stat; os.stat = lambda *path, **how: time.sleep(0.1) or look(*path, **how)\n"
    slow += "trainmon_hooks.PATIENCE = 60.0\n"
    run(f"{slow}time.sleep(0.3)\nhooks.step(7, 1.5)\nhooks.saved(7)\n{end}", tmp_path)
    known = json.loads((tmp_path / "mount" / "kill.status").read_text())
    assert (known["step"], known["last_save"]["step"]) == (7, 7)
    assert (known["ended"] is not None) == (end in ("raise ValueError", "hooks.done(7)"))
    assert sorted(path.name for path in (tmp_path / "mount").iterdir()) == ["kill.status"]


def test_a_switch_is_seen_and_removed_on_the_thread(make: Make, tmp_path: Path) -> None:
    hooks = make(kind=Hooks)
    (tmp_path / "save").touch()
    until = time.monotonic() + 60
    while hooks.step(1) != "save":
        assert time.monotonic() < until
    hooks.saved(1)
    while (tmp_path / "save").exists():
        assert time.monotonic() < until
    assert {hooks.step(step) for step in range(1000)} == {""}
    (tmp_path / "kill").touch()
    assert hooks.stop_at_start()
    assert json.loads((tmp_path / "kill.status").read_text())["ended"]["why"] == "stop: the kill switch"


def test_a_status_is_not_written_through_a_link_that_somebody_made(make: Make, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("mine")
    for name in ("symlink_to", "hardlink_to"):
        place = tmp_path / f"kill.status.{os.uname().nodename}.{os.getpid()}.tmp"
        getattr(place, name)(private)
        make().close()
        assert private.read_text() == "mine"
        assert json.loads((tmp_path / "kill.status").read_text())["phase"] == "starting"


class Tensor:
    """As of torch: a number with a gradient is no plain one."""

    def __init__(self, number: float, has_gradient: bool = True) -> None:
        self.number, self.has_gradient = number, has_gradient

    def detach(self) -> Tensor:
        return Tensor(self.number, False)

    def __float__(self) -> float:
        assert not self.has_gradient, "Converting a tensor with requires_grad=True to a scalar"
        return self.number


def test_a_loss_with_a_gradient_is_detached(make: Make, tmp_path: Path) -> None:
    hooks = make(nan="stop")
    assert hooks.step(1, Tensor(1.5)) == ""
    assert json.loads((tmp_path / "kill.status").read_text())["phase"] == "starting"
    hooks.saved(1)
    assert json.loads((tmp_path / "kill.status").read_text())["loss"] == 1.5
    assert hooks.line(1, Tensor(1.5)) == "step: 1 | loss: 1.5"
    assert hooks.step(2, Tensor(float("nan"))) == "stop"
