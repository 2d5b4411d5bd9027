"""Each signal reaches the command of trainmon-run as if the command were bare."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.lab.terminal import Terminal
from tests.trainmon.job.commands import TRAINER, state_of, training, until, wrapped


@pytest.mark.parametrize("name", ["TERM", "USR1", "INT", "HUP", "CONT", "WINCH", "QUIT"])
@pytest.mark.parametrize("to", ["process", "group"])
def test_a_signal_reaches_the_command_exactly_once(name: str, to: str, folder: Path) -> None:
    number = signal.Signals[f"SIG{name}"]
    results = []
    for before in ([], wrapped(folder)):
        with training(folder, before) as one:
            for _ in range(1 if name == "TERM" else 2):
                count = len(one.signals())
                (os.kill if to == "process" else os.killpg)(one.process.pid, number)
                until(lambda one=one, count=count: len(one.signals()) > count)
                time.sleep(0.2)  # a second one would come at once
            if name != "TERM":
                one.process.send_signal(signal.SIGTERM)
            out, err = one.process.communicate(timeout=60)
            results.append((one.signals(), one.process.returncode, out, err))
    assert results[1] == results[0]


def test_a_signal_is_not_lost_while_the_companion_waits_for_a_disk(folder: Path) -> None:
    with training(folder, wrapped(folder)) as one:
        (companion,) = set(one.others()) - {one.pid}
        os.kill(companion, signal.SIGSTOP)  # as a write that does not return: it looks at nothing
        until(lambda: state_of(companion) == "T")
        os.killpg(one.process.pid, signal.SIGUSR1)
        until(lambda: one.signals() == ["SIGUSR1"])
        until(lambda: one.is_idle(one.process.pid))  # it has taken the first, and waits for the companion
        os.kill(one.process.pid, signal.SIGUSR1)
        until(lambda: len(one.signals()) == 2)
        os.kill(companion, signal.SIGCONT)
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 7
        assert one.signals() == ["SIGUSR1", "SIGUSR1", "SIGTERM"]


@pytest.mark.parametrize("to", ["process", "group"])
def test_stop_and_continue_work_as_under_a_shell(to: str, folder: Path) -> None:
    tell = os.kill if to == "process" else os.killpg
    with training(folder, wrapped(folder)) as one:
        for count in (1, 2):
            tell(one.process.pid, signal.SIGTSTP)
            pid, status = os.waitpid(one.process.pid, os.WUNTRACED)
            assert (pid, os.WIFSTOPPED(status), os.WSTOPSIG(status)) == (one.process.pid, True, signal.SIGTSTP)
            assert state_of(one.pid) == "T"
            tell(one.process.pid, signal.SIGCONT)
            until(lambda count=count: one.signals() == ["SIGCONT"] * count)
            assert state_of(one.pid) != "T"
            until(one.is_idle)  # the next stop would take a SIGCONT back that nobody has looked at yet
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 7


@pytest.mark.parametrize("to", ["process", "group"])
def test_a_continue_right_after_the_stop_is_not_lost(to: str, folder: Path) -> None:
    tell = os.kill if to == "process" else os.killpg
    with training(folder, wrapped(folder)) as one:
        tell(one.process.pid, signal.SIGTSTP)
        until(lambda: state_of(one.pid) == "T", every=0.0005)  # trainmon-run has yet to stop itself
        tell(one.process.pid, signal.SIGCONT)
        until(lambda: one.signals() == ["SIGCONT"])
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 7


def test_control_c_in_a_terminal_tells_the_command_once(folder: Path) -> None:
    told = folder / "told"
    terminal = Terminal([*wrapped(folder), sys.executable, "-c", TRAINER, str(told)])
    until(lambda: told.exists() and "ready" in told.read_text())
    terminal.keys("\x03")
    until(lambda: "SIGINT" in told.read_text())
    time.sleep(0.2)
    assert told.read_text().splitlines()[1:] == ["SIGINT"]
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 7


@pytest.mark.parametrize("options", [(), ("--log", "copy")], ids=["inherited", "copied"])
def test_control_z_and_fg_in_an_interactive_shell_stop_and_continue_the_command(
    options: tuple[str, ...], folder: Path
) -> None:
    told = folder / "told"
    command = shlex.join([*wrapped(folder, *options), sys.executable, "-c", TRAINER, str(told)])
    (folder / "job").write_text(command)
    with Terminal(["bash", "--noprofile", "--norc", "-i"]) as terminal:
        terminal.keys(f"cd {folder}; . ./job\n")
        until(lambda: told.exists() and "ready" in told.read_text())
        terminal.keys("\x1a")
        terminal.wait_for(b"Stopped")
        assert state_of(int(told.read_text().split()[1])) == "T"
        terminal.keys("echo the shell answers | tr a-z A-Z\n")
        terminal.wait_for(b"THE SHELL ANSWERS")
        terminal.keys("fg\n")
        until(lambda: "SIGCONT" in told.read_text())
        terminal.keys("\x03")
        until(lambda: "SIGINT" in told.read_text())
        os.kill(int(told.read_text().split()[1]), signal.SIGTERM)
        terminal.wait_for(b"SAVED")
        terminal.keys("echo status=$?\n")
        terminal.wait_for(b"status=7")
        terminal.keys("exit\n")
        terminal.wait()
    assert told.read_text().splitlines()[1:] == ["SIGCONT", "SIGINT", "SIGTERM"]


def test_without_forwarding_only_the_wrapper_is_told_and_with_always_the_command_twice(folder: Path) -> None:
    for forward, expected in (("never", []), ("always", ["SIGUSR1", "SIGUSR1"])):
        with training(folder, wrapped(folder, "--forward", forward)) as one:
            if forward == "always":  # the whole group, one after the other: two at once may count as one
                for pid in one.others():
                    os.kill(pid, signal.SIGUSR1)
                until(lambda one=one: one.signals() == ["SIGUSR1"])
            one.process.send_signal(signal.SIGUSR1)
            until(lambda one=one, expected=expected: one.signals() == expected)
            time.sleep(0.2)
            assert one.signals() == expected
