"""Stacks of real processes: by a signal to trainmon_hooks, or by py-spy; and to whom nothing is ever sent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.probe.interpreters import found
from tests.lab.sshd import until
from tests.lab.torchrun import py_spy
from trainmon.job import hooks_module
from trainmon.runtime.looks.nodes import code
from trainmon.runtime.looks.on_node.run import BEGIN

TICKS = os.sysconf("SC_CLK_TCK")
STACKS = signal.SIGRTMIN + 11

TRAINER = """\
import ctypes, faulthandler, os, signal, sys, time
signal.alarm(100); exec(os.environ.get("BEFORE", ""))
from trainmon_hooks import Hooks

def waits_for_a_batch(secret):
    print("ready", flush=True)
    time.sleep(100)

def main():
    hooks = Hooks()
    exec(sys.argv[1])
    waits_for_a_batch("a batch that is nobody's business")

main()
"""

Rows = list[tuple[int, str, str, list[list[tuple[str, int, str]]]]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trainmon_hooks.py").write_text(hooks_module())
    (tmp_path / "train.py").write_text(TRAINER)
    return tmp_path


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        one.kill()
        one.communicate()


def start(running: list[subprocess.Popen[str]], *argv: str | Path, **environ: str) -> int:
    """Start a process that prints a line when it is ready; its pid."""
    env = os.environ | environ
    running.append(subprocess.Popen([str(word) for word in argv], stdout=subprocess.PIPE, text=True, env=env))
    output = running[-1].stdout
    assert output is not None
    output.readline()
    return running[-1].pid


def trainer(running: list[subprocess.Popen[str]], folder: Path, first: str = "", **environ: str) -> int:
    return start(running, sys.executable, folder / "train.py", first, **environ)


def fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def look(*ranks: tuple[int, str], stacks: int = 1, python: str = sys.executable, late: float = 0.0) -> Rows:
    """Ask these processes, each as it was planned."""
    asked = [(at, pid, int(fields(pid)[19]) / TICKS + late, way) for at, (pid, way) in enumerate(ranks)]
    argv = [python, "-I", "-S", "-B", "-", json.dumps(([0.0] * stacks, asked)), "60"]
    done = subprocess.run(argv, input=code("stacks"), capture_output=True, timeout=70, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answer: Rows = json.loads(zlib.decompress(done.stdout.partition(BEGIN)[2]))
    return answer


def functions(rows: Rows, rank: int = 0) -> list[list[str]]:
    return [[function for _, _, function in stack] for stack in rows[rank][3]]


@pytest.mark.parametrize(
    "version",
    [version if version == "3.6" else pytest.param(version, marks=pytest.mark.slow) for version in sorted(found())],
)
def test_hooks_say_where_the_main_thread_stands_and_nothing_of_its_values(
    running: list[subprocess.Popen[str]], folder: Path, version: str
) -> None:
    pid = trainer(running, folder)
    assert look((pid, "")) == [[0, "signal", "", []]]
    rows = look((pid, "signal"), stacks=2, python=found()[version])
    assert functions(rows) == [["<module>", "main", "waits_for_a_batch"]] * 2
    assert rows[0][3][0][2][:2] == [str(folder / "train.py"), 7]
    assert "business" not in json.dumps(rows)
    assert fields(pid)[0] == "S", "it sleeps on"


def test_many_stacks_do_not_fill_the_memory(running: list[subprocess.Popen[str]], folder: Path) -> None:
    pid = trainer(running, folder)
    (listening,) = [one for one in Path(f"/proc/{pid}/fd").iterdir() if "trainmon-stacks" in str(one.readlink())]
    with listening.open("a") as file:
        file.write("x" * (2 << 20))
    assert functions(look((pid, "signal"))) == [["<module>", "main", "waits_for_a_batch"]]
    assert listening.stat().st_size < 10_000
    assert functions(look((pid, "signal"))) == [["<module>", "main", "waits_for_a_batch"]]


NOBODY = "its environment has no py-spy, and no trainmon_hooks listens in it"


@pytest.mark.parametrize(
    "first",
    [
        pytest.param("signal.signal(signal.SIGRTMIN + 11, signal.SIG_DFL)", id="the handler is gone"),
        pytest.param("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN + 11])", id="it is blocked"),
    ],
)
def test_who_does_not_listen_any_more_is_sent_nothing(
    running: list[subprocess.Popen[str]], folder: Path, first: str
) -> None:
    pid = trainer(running, folder, first)
    assert look((pid, "signal")) == [[0, "", NOBODY, []]]
    assert fields(pid)[0] == "S"


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(f"faulthandler.register({STACKS}, sys.stderr)", id="a library catches it in C"),
        pytest.param(f"signal.signal({STACKS}, lambda *_: os._exit(9))", id="the trainer catches it"),
        pytest.param(f"signal.signal({STACKS}, signal.SIG_IGN)", id="it is ignored"),
        pytest.param(f"signal.pthread_sigmask(signal.SIG_BLOCK, [{STACKS}])", id="a thread waits for it"),
    ],
)
def test_a_signal_that_a_trainer_uses_itself_is_not_taken(
    running: list[subprocess.Popen[str]], folder: Path, before: str
) -> None:
    pid = trainer(running, folder, BEFORE=before)
    assert not [one for one in Path(f"/proc/{pid}/fd").iterdir() if "trainmon-stacks" in str(one.readlink())]
    assert look((pid, "signal")) == [[0, "", NOBODY, []]]


def test_a_second_copy_of_the_hooks_leaves_it_to_the_first(running: list[subprocess.Popen[str]], folder: Path) -> None:
    (folder / "copy_of_hooks.py").write_text(hooks_module())
    pid = trainer(running, folder, "import copy_of_hooks; copy_of_hooks.Hooks()")
    assert functions(look((pid, "signal"))) == [["<module>", "main", "waits_for_a_batch"]]


def test_a_file_that_is_closed_meanwhile_hides_nothing() -> None:
    """A process that asks about itself: its list of files was a file. The tests' own may have hooks of others."""
    program = (
        "import os; from trainmon.runtime.looks.on_node import stacks;"
        " started = int(open('/proc/self/stat').read().rpartition(')')[2].split()[19]) / stacks.TICKS;"
        " print(stacks.way(os.getpid(), started)[1])"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip().endswith("no trainmon_hooks listens in it")


def test_nothing_is_sent_to_a_process_that_only_inherited_or_claims_to_listen(
    running: list[subprocess.Popen[str]], folder: Path
) -> None:
    parent = trainer(running, folder, "os.fork()")
    children = Path(f"/proc/{parent}/task/{parent}/children")
    until(lambda: children.read_text().strip(), "the child is there")
    child = int(children.read_text())
    claims = folder / "trainmon-stacks.1"
    claims.write_text(f"trainmon-stacks {STACKS} {child}\n")
    liar = start(running, "sh", "-c", f"exec 9<{claims}; echo; exec sleep 100")
    for pid in (child, liar):
        ((_, way, why, stacks),) = look((pid, "signal"))
        assert (way, why, stacks) == ("", NOBODY, [])
        assert fields(pid)[0] == "S"
    os.kill(child, signal.SIGKILL)


def test_a_stopped_process_is_left_stopped_and_another_with_its_pid_is_left_alone(
    running: list[subprocess.Popen[str]], folder: Path
) -> None:
    pid = trainer(running, folder)
    assert look((pid, "signal"), late=1.0) == [[0, "", "it has ended", []]]
    os.kill(pid, signal.SIGSTOP)
    until(lambda: fields(pid)[0] == "T", "it is stopped")
    assert look((pid, "signal")) == [[0, "", "it is in state T", []]]
    assert fields(pid)[0] == "T"


def test_a_way_that_was_not_planned_is_not_gone(running: list[subprocess.Popen[str]], folder: Path) -> None:
    assert look((trainer(running, folder), "py-spy")) == [[0, "signal", "", []]]


# ---- py-spy: a program of the trainer's environment, which may do anything -------------------------------------------


def spy(folder: Path, script: str) -> str:
    """A program with its name; the PATH to it."""
    (folder / "bin").mkdir()
    (folder / "bin" / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "py-spy").chmod(0o755)
    return f"{folder}/bin:{os.environ['PATH']}"


def test_it_is_found_in_a_huge_environment(running: list[subprocess.Popen[str]], folder: Path) -> None:
    frames = [{"filename": "/w/a.py", "line": 3, "name": "inner", "locals": [{"repr": "secret"}]}]
    threads = [{"os_thread_id": 1, "frames": []}, {"os_thread_id": 0, "frames": frames}]
    path = spy(folder, f"""echo '{json.dumps(threads)}' | sed "s/0, \\"frames/$5, \\"frames/" """)
    padding = {f"PADDING_{at}": "x" * 100_000 for at in range(12)}
    pid = trainer(running, folder, PATH=path, **padding)
    assert look((pid, ""))[0][1] == "py-spy"
    assert look((pid, "py-spy")) == [[0, "py-spy", "", [[["/w/a.py", 3, "inner"]]]]]


def test_of_a_deep_stack_both_ways_keep_the_innermost_frames(
    running: list[subprocess.Popen[str]], folder: Path
) -> None:
    frames = [{"filename": "/w/a.py", "line": 1, "name": f"f{at}"} for at in range(150)]
    by_py_spy = trainer(running, folder, PATH=spy(folder, f"echo '{json.dumps([{'frames': frames}])}'"))
    deep = "global f\ndef f(at):\n if at == 149: waits_for_a_batch('x')\n f(at + 1)\nf(0)"
    by_signal = start(running, sys.executable, folder / "train.py", deep)
    rows = look((by_py_spy, "py-spy"), (by_signal, "signal"))
    assert functions(rows) == [[f"f{at}" for at in reversed(range(100))]]
    assert functions(rows, 1) == [["f"] * 99 + ["waits_for_a_batch"]]


def test_what_it_has_stopped_is_continued(running: list[subprocess.Popen[str]], folder: Path) -> None:
    pid = trainer(running, folder, PATH=spy(folder, 'kill -STOP "$5"; echo "Error: torn" >&2; exit 1'))
    ((_, way, why, _),) = look((pid, "py-spy"), stacks=2)
    assert (way, why) == ("", "py-spy: torn")
    until(lambda: fields(pid)[0] == "S", "it sleeps on")


def test_who_is_stopped_by_a_person_after_it_has_failed_stays_stopped(
    running: list[subprocess.Popen[str]], folder: Path
) -> None:
    script = 'kill -STOP "$5"; ( sleep 1; kill -STOP "$5" ) >/dev/null 2>&1 & exit 1'
    pid = trainer(running, folder, PATH=spy(folder, script))
    look((pid, "py-spy"))
    until(lambda: fields(pid)[0] == "T", "the person stops it")


def test_what_it_prints_may_be_anything(running: list[subprocess.Popen[str]], folder: Path) -> None:
    for number, output in enumerate(("", "[]", '[{"frames": [{"line": "x"}]}]', "{}", "null")):
        place = folder / str(number)
        place.mkdir()
        pid = trainer(running, folder, PATH=spy(place, f"echo '{output}'"))
        ((_, way, why, stacks),) = look((pid, "py-spy"))
        assert (way, stacks) == ("", [])
        assert why.startswith("py-spy: ")


@pytest.mark.slow  # it waits for 10 s
def test_one_that_hangs_is_killed(running: list[subprocess.Popen[str]], folder: Path) -> None:
    pid = trainer(running, folder, PATH=spy(folder, 'kill -STOP "$5"; exec sleep 100'))
    ((_, way, why, _),) = look((pid, "py-spy"), stacks=3)
    assert (way, why) == ("", "py-spy: it did not end in 10s")
    until(lambda: fields(pid)[0] == "S", "it sleeps on")


@pytest.mark.slow  # py-spy is a download
def test_the_real_one(running: list[subprocess.Popen[str]], folder: Path) -> None:
    pid = trainer(running, folder, PATH=f"{py_spy()}:{os.environ['PATH']}")
    rows = look((pid, "py-spy"), stacks=2)
    assert functions(rows) == [["<module>", "main", "waits_for_a_batch"]] * 2
    assert "business" not in json.dumps(rows)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gets_nothing(running: list[subprocess.Popen[str]], folder: Path) -> None:
    pid = trainer(running, folder, PATH=spy(folder, "exit 1"))
    asked: Any = ([0.0], [(0, pid, int(fields(pid)[19]) / TICKS, "signal")])
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-I", "-S", "-B", "-"]
    done = subprocess.run([*argv, json.dumps(asked), "60"], input=code("stacks"), capture_output=True, check=True)
    assert json.loads(zlib.decompress(done.stdout.partition(BEGIN)[2])) == [
        [0, "", "it is of another user, or in a container, and Permission denied", []]
    ]
    assert fields(pid)[0] == "S"
