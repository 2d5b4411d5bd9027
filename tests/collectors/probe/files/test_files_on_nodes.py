"""The file senses in a process of their own: under every Python found, in the C locale, and on a hung mount."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors import probe
from tests.collectors.probe import interpreters
from tests.collectors.probe.wire import decoded
from tests.lab.hung_mount import HungMount
from trainmon.analysis.log_formats import KEEP

ROOT = Path(__file__).parents[4]
FOUND = interpreters.found()


class Worker:
    """The driver under one interpreter."""

    def __init__(self, python: str, env: dict[str, str] | None = None) -> None:
        argv = [python, "-B", str(Path(__file__).with_name("driver.py"))]
        env = {"PATH": os.defpath, "LC_ALL": "C", **(env or {}), "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd="/", bufsize=0
        )

    def ask(self, **question: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(question).encode() + b"\n")
        self.process.stdin.flush()

    def answers(self, within: float) -> bool:
        assert self.process.stdout
        return bool(select.select([self.process.stdout], [], [], within)[0])

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        assert self.answers(within=10), "the driver does not answer"
        line: dict[str, Any] = json.loads(self.process.stdout.readline())
        return line

    def all(self, sense: str, slow: bool = False) -> list[Any]:
        self.ask(sense=sense, slow=slow)
        lines = []
        while answer := self.answer():
            lines += [decoded(line) for line in answer["said"]]
        return lines


@pytest.fixture
def start() -> Iterator[Any]:
    workers: list[Worker] = []

    def started(python: str, env: dict[str, str] | None = None) -> Worker:
        workers.append(Worker(python, env))
        return workers[-1]

    yield started
    for worker in workers:
        worker.process.kill()
        worker.process.communicate(timeout=120)


def test_there_is_a_python_to_test_with():
    assert FOUND


def test_the_modules_need_no_more_than_python_3_6():
    folder = Path(probe.__path__[0])
    files = [str(folder / f"{name}.py") for name in ("paths", "disks", "switches", "lines", "tail", "logs")]
    argv = [sys.executable, "-c", "from vermin import main; main()", "--no-tips", "--violations", "-t=3.6-", *files]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", FOUND)
def test_the_senses_work_under_this_python_in_the_c_locale(version: str, tmp_path: Path, start: Any):
    folder = tmp_path / "läufe"
    folder.mkdir()
    log, kill = folder / "zug é.out", folder / "kill"
    log.write_bytes("Schritt 1 █\n\r 10%|█\r 20%|██".encode() + b"\xff")
    kill.write_text("weil é\n")
    worker = start(FOUND[version])
    worker.ask(sense="disks", spec={"disks": [str(folder), str(folder / "fehlt")]})
    worker.ask(sense="switches", spec={"switches": [str(kill)]})
    worker.ask(sense="logs", spec={"logs": [{"id": "ü", "pattern": str(folder / "zug*.out")}], "keep": KEEP})
    here, missing = (reading.d[0] for reading in worker.all("disks"))
    assert (here.state, here.path, here.total_bytes > 0) == ("ok", str(folder), True)
    assert missing.error == f"does not exist; the nearest existing parent is {folder}"
    [switch] = worker.all("switches")
    assert (switch.s[0].exists, switch.s[0].text) == (True, "weil é\n")
    [chunk] = worker.all("logs")
    assert (chunk.id, chunk.path, chunk.lines) == ("ü", str(log), ("Schritt 1 █",))
    assert chunk.partial == " 20%|██\ufffd"
    log.write_text("neu\n")
    assert [(c.restarted, c.lines) for c in worker.all("logs")] == [("truncated", ("neu",))]
    with log.open("a") as file:
        file.write(" iteration      200/    5000 | lm loss: 2.1E+00 |\n" + "noise\n" * 400)
    [burst] = worker.all("logs")
    assert (burst.kept, burst.dropped, burst.error) == (
        (" iteration      200/    5000 | lm loss: 2.1E+00 |",),
        201,
        None,
    )
    log.unlink()
    assert worker.all("logs")[0].error == f"no file matches {folder}/zug*.out"


@pytest.mark.parametrize("version", FOUND)
def test_links_are_followed_to_logs_and_not_to_the_text_of_a_switch_under_this_python(
    version: str, tmp_path: Path, start: Any
):
    (tmp_path / "é.out").write_text("one\n")
    for name in ("latest.log", "kill"):
        (tmp_path / name).symlink_to("é.out")
    worker = start(FOUND[version])
    worker.ask(sense="switches", spec={"switches": [str(tmp_path / "kill")]})
    worker.ask(sense="logs", spec={"logs": [{"id": "a", "pattern": str(tmp_path / "latest.log")}]})
    [switch] = worker.all("switches")
    assert (switch.s[0].exists, switch.s[0].kind, switch.s[0].text) == (True, "a symbolic link", None)
    assert [chunk.lines for chunk in worker.all("logs")] == [("one",)]


SPECS = {
    "disks": lambda folder: {"disks": [f"{folder}/alive", f"{folder}/dead/x"]},
    "switches": lambda folder: {"switches": [f"{folder}/alive/kill", f"{folder}/dead/kill"]},
    "logs": lambda folder: {
        "logs": [{"id": "a", "pattern": f"{folder}/alive/*.out"}, {"id": "b", "pattern": f"{folder}/dead/*.out"}]
    },
}


@pytest.mark.parametrize("sense", SPECS)
def test_a_hung_mount_holds_the_operation_of_its_own_path_alone(sense: str, tmp_path: Path, start: Any):
    mount = HungMount.at(tmp_path / "dead", tmp_path)
    (tmp_path / "alive").mkdir()
    mount.hang()
    worker = start(sys.executable, mount.env)
    worker.ask(sense=sense, spec=SPECS[sense](tmp_path))
    worker.ask(sense=sense, slow=False)
    assert "alive" in json.dumps(worker.answer())
    assert not worker.answers(within=0.5)
    mount.recover()
    assert "dead" in json.dumps(worker.answer())


def test_a_mount_that_dies_under_an_open_log_holds_its_operation(tmp_path: Path, start: Any):
    mount = HungMount.at(tmp_path / "dead", tmp_path)
    (mount.folder / "1.out").write_text("one\n")
    worker = start(sys.executable, mount.env)
    worker.ask(sense="logs", spec={"logs": [{"id": "b", "pattern": f"{mount.folder}/*.out"}]})
    assert [chunk.lines for chunk in worker.all("logs")] == [("one",)]
    mount.hang()
    worker.ask(sense="logs", slow=True)
    assert not worker.answers(within=0.5)
    mount.recover()
    assert worker.answer()["name"] == "log:b"
