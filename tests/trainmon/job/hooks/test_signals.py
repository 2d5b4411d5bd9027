"""Signals ask the loop, go to the handler from before too, and are given back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.trainmon.job.hooks.conftest import Make, status
from trainmon.job.trainmon_hooks import Hooks


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


def test_outside_the_main_thread_it_warns_once_and_the_switches_work(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made: list[Hooks] = []
    thread = threading.Thread(target=lambda: made.append(make()))
    thread.start()
    thread.join()
    warned = [line for line in capfd.readouterr().err.splitlines() if "signals cannot be received" in line]
    assert len(warned) == 1
    assert status(tmp_path)["signals"] == {}
    (tmp_path / "save").touch()
    assert made[0].step(1) == "save"


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
