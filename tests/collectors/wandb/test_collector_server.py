"""The thread, the child and the real client against a W&B server on loopback, well and unwell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from collectors.wandb.child_process import ANSWER_TIMEOUT, ChildClient
from collectors.wandb.collector import WandbCollector
from collectors.wandb.login import find_credentials
from tests.end_to_end.product import QUICK
from tests.lab.processes import gone
from tests.lab.wandb_child import environ_of
from tests.lab.wandb_server import WandbServer
from trainmon.lib import Seconds, SystemClock
from trainmon.model import CurvesGrew, Event, RunSpec, Source, SourceChanged, WandbPolled, WandbSpec

RUN = RunSpec(name="llm", cluster="prod", wandb=WandbSpec(project="tester/video", group="final"))
PATIENCE = 120.0


class RunningCollector:
    """A watcher of one run, and what it said last."""

    def __init__(self, environ: Mapping[str, str], every: Seconds) -> None:
        self.events: list[Event] = []
        self._heard = threading.Condition()
        self.client = ChildClient(environ)
        self.watcher = WandbCollector(
            (RUN,),
            every,
            self._hear,
            SystemClock(),
            client=lambda: self.client,
            login=partial(find_credentials, environ),
        )

    def _hear(self, event: Event) -> None:
        with self._heard:
            self.events.append(event)
            self._heard.notify_all()

    def until(self, what: Callable[[], object]) -> None:
        """Wait until something that it said makes it so."""
        with self._heard:
            assert self._heard.wait_for(lambda: bool(what()), PATIENCE), self.source

    def last(self, kind: type[Any]) -> Any:
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)

    @property
    def source(self) -> Source:
        return self.last(SourceChanged).source  # type: ignore[no-any-return]

    def state(self) -> str | None:
        seen: WandbPolled | None = self.last(WandbPolled)
        return seen.runs[0].state if seen is not None and seen.runs else None

    def has_grown_to(self, step: int) -> bool:
        grown: CurvesGrew = self.last(CurvesGrew)
        return grown.points["loss"].steps[-1] == step

    def is_well(self) -> bool:
        return self.source.phase == "up" and self.source.error is None

    def fails(self, words: str) -> bool:
        return words in (self.source.error or "")


@contextmanager
def watching(environ: Mapping[str, str], every: Seconds = 0.1) -> Iterator[RunningCollector]:
    """A running watcher; its end is quick whatever hangs, and leaves nothing."""
    made = RunningCollector(environ, every)
    made.watcher.start()
    try:
        yield made
    finally:
        began = time.monotonic()
        made.watcher.stop()
        took = time.monotonic() - began
    assert took < QUICK
    soon(lambda: not processes(environ))


def processes(environ: Mapping[str, str]) -> list[int]:
    """What runs with this server in its environment."""
    mark = f"WANDB_BASE_URL={environ['WANDB_BASE_URL']}".encode()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit() and int(place.name) != os.getpid() and not gone(int(place.name)):
            try:
                raw = (place / "environ").read_bytes()
            except OSError:
                continue  # it has just ended, or is another's
            found += [int(place.name)] if mark in raw.split(b"\0") else []
    return found


def soon(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline
        threading.Event().wait(0.05)


@pytest.fixture
def server() -> Iterator[WandbServer]:
    with WandbServer.start() as started:
        run = started.add_run("ab12", group="final", age=60.0)
        for step in range(20):
            started.log(run, {"loss": 3.0 - step / 100, "grad_norm": 1.0}, step=step)
        yield started


def test_a_run_is_followed_to_its_end_with_two_requests_a_round(server: WandbServer, tmp_path: Path) -> None:
    run = server.runs["tester/video/ab12"]
    with watching(environ_of(server, tmp_path)) as made:
        made.until(made.is_well)
        made.until(lambda: made.last(CurvesGrew))
        assert (made.state(), made.last(WandbPolled).keys) == ("running", ("loss", "grad_norm"))
        first = made.last(CurvesGrew)
        assert (first.fresh, len(first.points["loss"].values)) == (True, 20)
        count_before = server.count("Runs")
        for step in range(20, 25):
            server.log(run, {"loss": 2.0, "grad_norm": 1.0, "moe/expert 7": step / 10}, step=step)
            made.until(partial(made.has_grown_to, step))
        run.state = "finished"
        made.until(lambda: made.state() == "finished")
        rounds = server.count("Runs") - count_before
        assert server.count("RunSampledHistory") <= rounds + 2
        assert {request.operation for request in server.requests[-6:]} <= {"Runs", "RunSampledHistory"}
        assert {*made.last(WandbPolled).names} == {"loss", "grad_norm", "moe/expert 7"}
        read = server.count("RunSampledHistory")
        made.watcher.show_curves(["llm"], ["moe/expert 7"])
        made.until(lambda: "moe/expert 7" in made.last(CurvesGrew).points)
        grown = made.last(CurvesGrew)
        assert [*grown.points["moe/expert 7"].values] == [step / 10 for step in range(20, 25)]
        assert not grown.fresh
        assert server.count("RunSampledHistory") <= read + 2, "one request, and one that shows that there is no more"


def test_a_server_that_refuses_is_an_error_of_the_source_until_it_does_no_more(
    server: WandbServer, tmp_path: Path
) -> None:
    with watching(environ_of(server, tmp_path)) as made:
        made.until(made.is_well)
        for status, words in ((429, "limits the request rate"), (401, "rejects the API key")):
            server.answer_with(status)
            made.until(partial(made.fails, words))
            assert made.source.retry_at is not None
            server.well()
            made.until(made.is_well)
        assert server.key not in str(made.events)


def test_a_client_that_hangs_is_killed_and_started_anew_and_never_holds_up_the_end(
    server: WandbServer, tmp_path: Path
) -> None:
    environ = environ_of(server, tmp_path)
    with watching(environ) as made:
        made.until(made.is_well)
        before = processes(environ)
        assert before
        made.client.timeout = 1.5
        count_before = server.count("Runs")
        soon(lambda: server.count("Runs") > count_before + 1)
        server.hang()
        made.until(lambda: made.fails("gave no answer in 1.5s"))
        made.client.timeout = ANSWER_TIMEOUT
        soon(lambda: not set(before) & set(processes(environ)))
        server.well()
        made.until(made.is_well)
        count_before = len(server.requests)
        server.hang()
        soon(lambda: len(server.requests) > count_before)


def test_without_a_key_no_process_is_started(server: WandbServer, tmp_path: Path) -> None:
    environ = environ_of(server, tmp_path, WANDB_API_KEY="")
    with watching(environ) as made:
        made.until(lambda: made.fails("there is no key for 127.0.0.1"))
        assert made.source.hint == "log in with `wandb login`, or set WANDB_API_KEY"
        assert processes(environ) == []
    assert server.requests == []


PARENT = """
import threading
from collectors.wandb.collector import WandbCollector
from trainmon.lib import SystemClock
from trainmon.model import RunSpec
from trainmon.model import WandbSpec
run = RunSpec(name="llm", cluster="prod", wandb=WandbSpec(project="tester/video", group="final"))
WandbCollector((run,), 0.5, lambda event: print(event, flush=True), SystemClock()).start()
threading.Event().wait(120)
"""


def test_kill_9_leaves_nothing(server: WandbServer, tmp_path: Path) -> None:
    environ = environ_of(server, tmp_path, TMPDIR=str(tmp_path))
    server.slow(0.2)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], env=environ, stdout=subprocess.DEVNULL)
    soon(lambda: server.count("Runs") > 1)
    assert len(processes(environ)) == 3, "we, the child and wandb-core"
    server.hang()
    parent.send_signal(signal.SIGKILL)
    parent.wait(40)
    soon(lambda: not processes(environ))
    soon(lambda: not [*tmp_path.glob("trainmon-*")])
