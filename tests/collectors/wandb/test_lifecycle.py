"""How the W&B child begins and ends: nothing of it is left, whoever is killed; nothing hangs; nothing tells the key."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.wandb.child import environment
from collectors.wandb.wire import (
    ChildStarted,
    CoreStarted,
    ListRuns,
    ReadConsole,
    RequestFailed,
    RunList,
    decode_answer,
    encode,
)
from tests.lab.processes import gone
from tests.lab.wandb_child import COMMAND, REPOSITORY, WandbChild, environ_of, resident_mib, running_child
from tests.lab.wandb_server import WandbServer
from trainmon.lib import Seconds
from trainmon.model import WandbSpec

LIST = ListRuns(id=1, spec=WandbSpec(project="tester/video", group="final"))

PARENT = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
child.stdin.write(sys.argv[1].encode() + b"\\n")
child.stdin.flush()
time.sleep(120)
"""
"""Somebody who starts the child, asks it one thing, and is killed; the child's answers go where its own would."""


WRITING = """
import contextlib, itertools, os, pathlib, sys, threading, time
from collectors.wandb.child import SdkServer
directory = pathlib.Path(sys.argv[1])
def write():
    for number in itertools.count():
        with contextlib.suppress(OSError):
            os.makedirs(directory / f"tester{number % 50}" / "video", exist_ok=True)
threading.Thread(target=write, daemon=True).start()
time.sleep(0.2)
SdkServer(0, 1, directory, 5.0).end(3)
"""
"""A child that ends while its SDK writes."""


@pytest.fixture(scope="module")
def running_server() -> Iterator[WandbServer]:
    with WandbServer.start() as running:
        running.add_run("ab12", group="final")
        yield running


@pytest.fixture
def server(running_server: WandbServer) -> Iterator[WandbServer]:
    running_server.well()
    running_server.requests.clear()
    yield running_server
    running_server.well()


@pytest.fixture(scope="module")
def patience(running_server: WandbServer, tmp_path_factory: pytest.TempPathFactory) -> Seconds:
    """The time for a request of a child that is to meet its end: many times the first, which starts the SDK."""
    running_server.well()
    with running_child(running_server, tmp_path_factory.mktemp("home")) as child:
        began = time.monotonic()
        child.expect(RunList, LIST)
        return max(8.0, 6 * (time.monotonic() - began))


def until(fact: Callable[[], bool], what: str, within: float = 120.0) -> None:
    deadline = time.monotonic() + within
    while not fact():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def nothing_is_left(child: WandbChild) -> bool:
    assert child.sidecar is not None
    return gone(child.process.pid) and gone(child.sidecar) and not child.directory.exists()


def test_at_the_end_of_its_input_the_child_its_sidecar_and_its_directory_go(
    server: WandbServer, tmp_path: Path
) -> None:
    with running_child(server, tmp_path) as child:
        child.expect(RunList, LIST)
        assert child.sidecar is not None
        assert not gone(child.sidecar)
        assert (child.directory / "wandb").is_dir(), "what the SDK writes lies there"
        child.leave()
        assert child.process.wait(120) == 0
        until(lambda: nothing_is_left(child), "something of it is left")
        assert list(tmp_path.iterdir()) == [], "nothing was written into the home directory"


def test_all_processes_end_when_it_is_terminated(server: WandbServer, tmp_path: Path) -> None:
    with running_child(server, tmp_path) as child:
        child.expect(RunList, LIST)
        child.process.send_signal(signal.SIGINT)
        child.expect(RunList, LIST)
        child.process.send_signal(signal.SIGTERM)
        child.process.wait(120)
        until(lambda: nothing_is_left(child), "something of it is left")


def test_a_signal_that_wakes_another_of_its_threads_ends_it_too(server: WandbServer, tmp_path: Path) -> None:
    """As one does that comes just before the main thread begins to wait."""
    with running_child(server, tmp_path) as child:
        child.expect(RunList, LIST)
        pid = child.process.pid
        threads = sorted(int(task.name) for task in Path(f"/proc/{pid}/task").iterdir())
        until(lambda: Path(f"/proc/{pid}/task/{pid}/stat").read_text().split()[2] == "S", "it does not wait")
        assert ctypes.CDLL(None).tgkill(pid, threads[1], signal.SIGTERM) == 0
        child.process.wait(120)
        until(lambda: nothing_is_left(child), "something of it is left")


@pytest.mark.parametrize("is_hanging", [False, True], ids=["well", "hanging"])
def test_nothing_is_left_when_its_parent_is_killed(server: WandbServer, tmp_path: Path, is_hanging: bool) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, encode(LIST).decode().strip(), *COMMAND],
        stdout=subprocess.PIPE, cwd=REPOSITORY, env=environ_of(server, tmp_path),
    )  # fmt: skip
    assert parent.stdout is not None
    try:
        if is_hanging:
            server.hang()
        began, sidecar = decode_answer(parent.stdout.readline()), decode_answer(parent.stdout.readline())
        assert isinstance(began, ChildStarted)
        assert isinstance(sidecar, CoreStarted)
        until(lambda: len(server.requests) > 0, "it asks nothing")
        parent.kill()
        until(lambda: gone(began.pid), "the child lives on")
        until(lambda: gone(sidecar.pid), "the sidecar lives on")
        assert not Path(began.directory).exists()
    finally:
        parent.kill()
        parent.wait(120)
        parent.stdout.close()


def test_what_the_sdk_writes_until_the_end_goes_too(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WRITING, str(tmp_path / "own")], cwd=REPOSITORY, check=False)
    assert done.returncode == 3
    assert list(tmp_path.iterdir()) == []


def test_when_the_child_itself_is_killed_its_sidecar_goes(server: WandbServer, tmp_path: Path) -> None:
    with running_child(server, tmp_path) as child:
        child.expect(RunList, LIST)
        child.process.kill()
        child.process.wait(120)
        sidecar = child.sidecar
        assert sidecar is not None
        until(lambda: gone(sidecar), "the sidecar lives on")
        for path in sorted(child.directory.rglob("*"), reverse=True):  # its parent's duty, who knows of the directory
            path.unlink() if not path.is_dir() else path.rmdir()
        child.directory.rmdir()


def test_an_answer_that_does_not_come_is_reported_and_where_the_sdk_waits_for_ever_the_child_ends(
    server: WandbServer, tmp_path: Path, patience: Seconds
) -> None:
    with running_child(server, tmp_path, patience) as one, running_child(server, tmp_path, patience) as other:
        one.expect(RunList, LIST)
        other.expect(RunList, LIST)
        server.hang()
        other.send(encode(ReadConsole(id=2, path="tester/video/ab12")))
        result = one.refused(LIST)
        assert (result.kind, result.message) == ("slow", "W&B did not answer in time")
        overdue = other.receive()
        assert isinstance(overdue, RequestFailed)
        assert (overdue.id, overdue.kind) == (2, "slow")
        assert other.process.wait(120) == 1
        until(lambda: nothing_is_left(other), "something of it is left")
        server.well()
        one.expect(RunList, LIST)


def test_a_server_that_asks_to_be_left_alone_for_long_is_busy_not_slow(
    server: WandbServer, tmp_path: Path, patience: Seconds
) -> None:
    with running_child(server, tmp_path, patience) as child:
        child.expect(RunList, LIST)
        server.requests.clear()
        server.answer_with(429, retry_after=60)
        result = child.refused(LIST)
        assert (result.kind, result.message) == ("busy", "W&B limits the request rate (429)")
        assert len(server.requests) == 1


def test_when_the_sidecar_is_killed_the_child_reports_it_and_ends(server: WandbServer, tmp_path: Path) -> None:
    with running_child(server, tmp_path) as child:
        child.expect(RunList, LIST)
        assert child.sidecar is not None
        os.kill(child.sidecar, signal.SIGKILL)
        result = child.refused(LIST)
        assert (result.kind, result.message) == ("sdk", "wandb-core, the SDK's own process, has ended")
        child.process.wait(120)
        assert not child.directory.exists()


def test_without_a_key_it_says_so_at_once_and_sends_no_request(server: WandbServer, tmp_path: Path) -> None:
    with running_child(server, tmp_path, WANDB_API_KEY="") as child:
        result = child.refused(LIST)
        assert (result.kind, result.hint) == ("key", "log in with `wandb login`, or set WANDB_API_KEY")
    assert server.requests == []


def test_the_sdk_is_imported_with_the_first_request_and_its_own_environment(
    server: WandbServer, tmp_path: Path
) -> None:
    text = "import os\nraise RuntimeError(f'reports errors: {os.environ.get(\"WANDB_ERROR_REPORTING\")}')\n"
    (tmp_path / "wandb.py").write_text(text, "utf-8")
    with running_child(server, tmp_path, PYTHONPATH=str(tmp_path)) as child:
        result = child.refused(LIST)
        assert (result.kind, result.message) == ("sdk", "reports errors: false")


@pytest.mark.parametrize("place", ["netrc", "settings"])
def test_a_login_of_the_usual_kind_is_found(server: WandbServer, tmp_path: Path, place: str) -> None:
    if place == "netrc":
        (tmp_path / ".netrc").write_text(f"machine {server.url[7:]}\n login user\n password {server.key}\n", "utf-8")
        (tmp_path / ".netrc").chmod(0o600)
    else:
        (tmp_path / ".config" / "wandb").mkdir(parents=True)
        settings = f"[default]\nbase_url = {server.url}\napi_key = {server.key}\n"
        (tmp_path / ".config" / "wandb" / "settings").write_text(settings, "utf-8")
    url = server.url if place == "netrc" else ""
    with running_child(server, tmp_path, WANDB_API_KEY="", WANDB_BASE_URL=url) as child:
        child.expect(RunList, LIST)


def test_a_key_that_is_refused_is_in_no_word_of_the_answer(server: WandbServer, tmp_path: Path) -> None:
    wrong = "local-" + "f" * 40
    with running_child(server, tmp_path, WANDB_API_KEY=wrong) as child:
        result = child.refused(LIST)
        assert result.kind == "unauthorized"
        assert wrong not in encode(result).decode()
        child.leave()
        child.process.wait(120)
        assert child.process.stderr is not None
        assert wrong.encode() not in child.process.stderr.read()


def test_what_is_set_for_a_training_does_not_reach_the_sdk() -> None:
    before = {
        "WANDB_API_KEY": "k", "WANDB_BASE_URL": "https://w", "WANDB_MODE": "offline", "WANDB_SERVICE": "2-1-unix",
        "WANDB_RUN_ID": "x", "WANDB_DIR": "/fsx", "PATH": "/bin", "HTTPS_PROXY": "p", "TMPDIR": "/fsx/tmp",
    }  # fmt: skip
    after = environment(before, "/tmp/own")
    assert {name for name in after if name in before} == {
        "WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_DIR", "PATH", "HTTPS_PROXY", "TMPDIR",
    }  # fmt: skip
    assert after["WANDB_DIR"] == after["TMPDIR"] == "/tmp/own"


def test_its_memory_stays_what_it_is(server: WandbServer, tmp_path: Path) -> None:
    with running_child(server, tmp_path) as child:
        for _ in range(40):
            child.expect(RunList, LIST)
        assert child.sidecar is not None
        before = resident_mib(child.process.pid)
        for _ in range(160):
            child.expect(RunList, LIST)
        assert resident_mib(child.process.pid) - before < 1.5
