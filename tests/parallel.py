"""Runs files of tests at the same time, in forks of the process that has collected all: nothing is imported twice.

`python -m pytest -p tests.parallel --at-once 8`. Each fork takes the next file when it is done with one, so what the
tests of a file share is started once. The process that collected reports what the forks tell it.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import itertools
import mmap
import os
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.lab import forked

BYTES = 4
"""Of the number of a file, in the pipe from which all processes take the next one."""


class Work:
    """The tests by their files, and what of it nobody has taken; all processes share it."""

    def __init__(self, tests: Iterable[pytest.Item]) -> None:
        self.files = [list(items) for _, items in itertools.groupby(tests, lambda test: test.path)]
        self.is_over = mmap.mmap(-1, 1)
        """Not zero: each process ends what it has started, after the test that it runs."""
        self._todo, numbers = os.pipe()
        os.write(numbers, b"".join(number.to_bytes(BYTES) for number in range(len(self.files))))
        os.close(numbers)

    def tests(self) -> Iterator[pytest.Item]:
        while number := os.read(self._todo, BYTES):
            yield from self.files[int.from_bytes(number)]


@dataclass
class Fork:
    pid: int
    ended: int
    """A descriptor that is readable when the process has ended: a child that it left may hold its connection."""
    connection: Connection
    test: tuple[str, tuple[str, int | None, str]] | None = None
    """What it runs: the name and the place of a test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--at-once", type=int, default=0, help="how many files of tests run at the same time")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the last files while the first ones are collected: in a clean checkout each takes a moment."""
    here = Path(__file__).parent
    if session.config.option.at_once and [Path(name).resolve() for name in session.config.args] == [here]:
        names = [".".join(path.relative_to(here.parent).with_suffix("").parts) for path in here.rglob("test_*.py")]
        if os.fork() == 0:
            for name in sorted(names, reverse=True):
                with contextlib.suppress(BaseException):  # its collection reports it
                    importlib.import_module(name)
            os._exit(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if not option.at_once or option.collectonly or session.testsfailed:
        return None
    forked.start()  # one for all
    work = Work(session.items)
    forks = [_fork(session, work, number) for number in range(min(option.at_once, len(work.files)))]
    try:
        _report(session, forks, work)
    finally:
        work.is_over[0] = 1
        for fork in forks:
            fork.connection.close()
        for fork in forks:
            wait([fork.ended])
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    return True


def _fork(session: pytest.Session, work: Work, number: int) -> Fork:
    folder: Path = session.config._tmp_path_factory.getbasetemp() / f"fork-{number}"  # type: ignore[attr-defined]
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        _run(session, work, folder, theirs)
    theirs.close()
    return Fork(pid, os.pidfd_open(pid), ours)


# ---- the process that reports ----


def _report(session: pytest.Session, forks: Sequence[Fork], work: Work) -> None:
    """Hand what the forks tell to pytest, until all have ended."""
    running = {fork.ended: fork for fork in forks}
    while running:
        ready = wait([*running, *(fork.connection for fork in running.values())])
        for fork in list(running.values()):
            with contextlib.suppress(EOFError):
                while fork.connection.poll():
                    _take(session, fork, fork.connection.recv())
            if fork.ended in ready:
                del running[fork.ended]
                status = os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])
                if status:
                    _take(session, fork, f"The process of this test ended with {status}.")
        if session.shouldfail:
            work.is_over[0] = 1


def _take(session: pytest.Session, fork: Fork, message: dict[str, Any] | tuple[Any, ...] | str) -> None:
    """`message`: a report, the test that begins, or what happened to the process."""
    hook = session.config.hook
    if isinstance(message, tuple):
        fork.test = message
        return
    if isinstance(message, str):
        name, place = fork.test or ("tests", ("tests", None, "no test"))
        report = pytest.TestReport(name, place, {}, "failed", message, "call")
    else:
        report = hook.pytest_report_from_serializable(config=session.config, data=message)
    hook.pytest_runtest_logreport(report=report)


# ---- the processes that run tests ----


def _run(session: pytest.Session, work: Work, folder: Path, connection: Connection) -> NoReturn:
    status, tests = 1, work.tests()
    atexit._clear()  # it is not the process that collected which ends here
    try:
        plugins = session.config.pluginmanager
        plugins.unregister(name="terminalreporter")
        plugins.register(Reporter(session.config, connection))
        capture = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()  # into files of its own
        folder.mkdir()
        session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
        try:
            test = next(tests, None)
            while test is not None and not work.is_over[0]:
                following = next(tests, None)
                test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
                test = following
        finally:
            session._setupstate.teardown_exact(None)
        status = 0
    except Exception:
        connection.send(traceback.format_exc())
    finally:
        threading._shutdown()
        atexit._run_exitfuncs()
        os._exit(status)


class Reporter:
    """Sends what happens to the process that reports."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send((nodeid, location))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(data)
