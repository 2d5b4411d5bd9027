"""Our end of the W&B child: scripted children that answer, hang, die and babble, and what is left of them."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collectors.wandb.child_process import ChildClient, WandbError
from collectors.wandb.wire import ConsoleLines, ReadConsole, ReadMetadata, RunMetadata
from tests.end_to_end.product import QUICK
from tests.lab.processes import gone

CHILD = """
import json, os, subprocess, sys, tempfile, time
def say(**told):
    print(json.dumps(told), flush=True)
directory = tempfile.mkdtemp(prefix="trainmon-", dir=sys.argv[1])
say(**{"is": "began"}, pid=os.getpid(), directory=directory)
core = subprocess.Popen(["sleep", "60"], start_new_session=True)
open(os.path.join(sys.argv[1], "pids"), "a").write(f"{os.getpid()} {core.pid}\\n")
say(**{"is": "sidecar"}, pid=core.pid)
for line in sys.stdin:
    asked = json.loads(line)
    how = asked["path"]
    if how == "hang":
        time.sleep(60)
    elif how == "deaf":
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.stdin.close()
        time.sleep(60)
    elif how == "die":
        print("Traceback: it fell over", file=sys.stderr)
        os._exit(7)
    elif how == "babble":
        print("wandb: hello!", flush=True)
    elif how == "long":
        say(**{"is": "facts"}, id=asked["id"], path="x", host="h" * 1_000_000)
    elif how == "busy":
        say(**{"is": "failed"}, id=asked["id"], kind="busy", message="too many", hint="wait")
    elif how == "other":
        say(**{"is": "facts"}, id=asked["id"] + 1, path="x")
    else:
        say(**{"is": "facts"}, id=asked["id"], path=how, host=os.environ.get("SAID"))
core.kill()
os.rmdir(directory)
"""


class Scripted:
    """A client of scripted children, and what they left behind."""

    def __init__(self, folder: Path, within: float) -> None:
        environ = {"PATH": os.environ["PATH"], "SAID": "as I was told"}
        self.client = ChildClient(environ, [sys.executable, "-S", "-c", CHILD, str(folder)], within)
        self.folder = folder

    def ask(self, how: str) -> RunMetadata:
        return self.client.query(ReadMetadata(id=0, path=how), RunMetadata)

    def fails(self, how: str) -> WandbError:
        with pytest.raises(WandbError) as caught:
            self.ask(how)
        return caught.value

    @property
    def pids(self) -> list[int]:
        return [int(pid) for pid in (self.folder / "pids").read_text().split()]

    def is_gone(self) -> bool:
        """Whether no process and no directory of any of them is left."""
        return all(map(gone, self.pids)) and not [*self.folder.glob("trainmon-*")]


def soon(what: threading.Event | None, is_so: object) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + 120
    assert callable(is_so)
    while not is_so():
        assert time.monotonic() < deadline
        (what or threading.Event()).wait(0.02)


@contextmanager
def scripted(folder: Path, within: float = 10.0) -> Iterator[Scripted]:
    made = Scripted(folder, within)
    try:
        yield made
    finally:
        began = time.monotonic()
        made.client.close()
        assert time.monotonic() - began < QUICK
    soon(None, made.is_gone)


def test_a_question_has_its_answer_and_one_child_serves_all(tmp_path: Path) -> None:
    with scripted(tmp_path) as made:
        assert made.ask("a/b/c").path == "a/b/c"
        assert made.ask("d").host == "as I was told"
        assert len(made.ask("long").host or "") == 1_000_000
        assert len(made.pids) == 2


def test_no_question_starts_nothing(tmp_path: Path) -> None:
    client = ChildClient({}, [sys.executable, "-S", "-c", CHILD, str(tmp_path)])
    client.close()
    assert [*tmp_path.iterdir()] == []


def test_what_failed_has_its_words(tmp_path: Path) -> None:
    with scripted(tmp_path) as made:
        error = made.fails("busy")
        assert (error.kind, error.message, error.hint) == ("busy", "too many", "wait")
        assert made.ask("next").path == "next"
        assert len(made.pids) == 2


def test_a_child_that_hangs_is_killed_with_its_sidecar_and_another_serves(tmp_path: Path) -> None:
    with scripted(tmp_path, within=0.5) as made:
        error = made.fails("hang")
        assert (error.kind, error.message) == ("slow", "the W&B client gave no answer in 0.5s and was killed")
        soon(None, made.is_gone)
        assert made.ask("again").path == "again"
        assert len(made.pids) == 4


def test_a_child_that_dies_says_why_and_another_serves(tmp_path: Path) -> None:
    with scripted(tmp_path) as made:
        error = made.fails("die")
        assert (error.kind, error.message) == ("gone", "the W&B client has ended: Traceback: it fell over")
        soon(None, made.is_gone)
        assert made.ask("again").path == "again"


@pytest.mark.parametrize("how", ["babble", "other"])
def test_a_child_that_talks_nonsense_is_replaced(tmp_path: Path, how: str) -> None:
    with scripted(tmp_path) as made:
        assert made.fails(how).kind in ("gone", "sdk")
        soon(None, made.is_gone)
        assert made.ask("again").path == "again"


def test_an_answer_of_another_kind_is_none(tmp_path: Path) -> None:
    with scripted(tmp_path) as made, pytest.raises(WandbError, match="answered RunMetadata to ReadConsole"):
        made.client.query(ReadConsole(id=0, path="x"), ConsoleLines)


@pytest.mark.parametrize("how", ["hang", "deaf"])
def test_the_end_waits_for_no_answer(tmp_path: Path, how: str) -> None:
    with scripted(tmp_path, within=600) as made:
        made.ask("first")
        failed: list[WandbError] = []
        asking = threading.Thread(target=lambda: failed.append(made.fails(how)))
        asking.start()
        soon(None, lambda: made.client._last_id == 2)
        made.client.close()
        asking.join(60)
        assert not asking.is_alive()
        assert failed[0].kind == "gone"
        assert made.fails("more").message == "the W&B client is closed"


def test_a_program_that_is_not_there_is_reported() -> None:
    client = ChildClient({}, ["/no/such/python"])
    with pytest.raises(WandbError, match=r"the W&B child cannot be started: .*No such file"):
        client.query(ReadMetadata(id=0, path="x"), RunMetadata)
    client.close()
