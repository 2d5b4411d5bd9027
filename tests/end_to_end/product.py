"""The product as its user has it: the installed command, in a home of its own, against real parts."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.lab import forked
from tests.lab.nvml import Nvml, library
from tests.lab.sshd import NESTED, Sshd
from tests.lab.terminal import Terminal

PROGRAM = str(Path(sys.executable).with_name("trainmon-tui"))
PATIENCE = 120.0
"""Seconds that anything may take on a busy machine of two cores."""

CLOCK = re.compile(r"\d\d:\d\d:\d\dZ")
"""The header's."""

QUICK = 4.0
"""Seconds that leaving may take: under one where nothing else runs; whatever hangs would take ten or more."""

STEP_LINE = (
    " [2026-01-02 03:04:05] iteration {step:8}/    1000 | consumed samples:        30720 |"
    " elapsed time per iteration (ms): 4100.0 | learning rate: 1.000000E-04 | global batch size:   256 |"
    " lm loss: {loss:.6E} | loss scale: 1.0 | grad norm: 0.310 | number of skipped iterations:   0 |"
    " number of nan iterations:   0 |\n"
)


def step_line(step: int, loss: float = 2.113) -> str:
    """A line of Megatron-LM's log."""
    return STEP_LINE.format(step=step, loss=loss)


def environment(home: Path, **extra: str) -> dict[str, str]:
    """A person's, with nothing of whoever runs the tests: no agent, no config, no colour wishes."""
    ours = {
        "HOME": str(home), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "USER": "tester",
    }  # fmt: skip
    return ours | extra


class Screen(Terminal):
    """A dashboard in a terminal of its own."""

    def __init__(self, argv: Sequence[str], *, columns: int, rows: int, env: Mapping[str, str], cwd: Path) -> None:
        words = ["env", "-i", "-C", str(cwd), *(f"{name}={value}" for name, value in env.items()), *argv]
        super().__init__(words, columns=columns, rows=rows)
        self._hung_up = False

    def line(self, text: str) -> str:
        """The first line of the screen that holds a text; empty when there is none."""
        return next((line for line in self.text().splitlines() if text in line), "")

    def until_line(self, text: str, pattern: str, seconds: float = PATIENCE) -> str:
        """Wait until the line that holds a text also matches a pattern. The clock of the header does not count."""
        deadline = time.monotonic() + seconds
        while True:
            lines = (CLOCK.sub("", line) for line in self.text().splitlines())
            found = next((line for line in lines if text in line and re.search(pattern, line)), None)
            if found is not None:
                return found
            assert time.monotonic() < deadline, f"no line with {text!r} and {pattern!r}:\n{self.text()}"
            time.sleep(0.05)

    def until_shown(self, *patterns: str, seconds: float = PATIENCE) -> str:
        """Wait until the screen matches every pattern at once."""
        deadline = time.monotonic() + seconds
        while True:
            text = self.text()
            missing = [pattern for pattern in patterns if not re.search(pattern, text)]
            if not missing:
                return text
            assert time.monotonic() < deadline, f"not on the screen: {missing}\n{text}"
            time.sleep(0.05)

    def until_gone(self, pattern: str, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while re.search(pattern, self.text()):
            assert time.monotonic() < deadline, f"still on the screen: {pattern!r}\n{self.text()}"
            time.sleep(0.05)

    def style_of(self, text: str) -> Any:
        """The first character of a text as it is drawn: its colours and attributes."""
        for number, line in enumerate(self.text().splitlines()):
            if text in line:
                return self._drawn.buffer[number][line.index(text)]
        raise AssertionError(f"{text!r} is not on the screen:\n{self.text()}")

    def hang_up(self) -> None:
        """The terminal goes away, as with a lost connection."""
        os.close(self._master)
        self._hung_up = True

    def leave(self, keys: str = "\x11") -> float:
        """Quit by keys, which is Ctrl+Q on every screen; the seconds it took."""
        started = time.monotonic()
        self.keys(keys)
        assert self.wait(PATIENCE) == 0
        return time.monotonic() - started

    def close(self) -> None:
        if self._hung_up:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, 9)
            if self._status is None:
                self.wait(PATIENCE)
            return
        super().close()


class QuickScreen(Screen):
    """The same, without the second that its imports take."""

    def __init__(self, argv: Sequence[str], *, columns: int, rows: int, env: Mapping[str, str], cwd: Path) -> None:
        self._environ, self._cwd = env, cwd
        super().__init__(argv, columns=columns, rows=rows, env=env, cwd=cwd)

    def _start(self, argv: Sequence[str], env: Mapping[str, str]) -> tuple[int, int]:
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, self._size)
        self._child = forked.Child(argv[argv.index(PROGRAM) :], self._environ, self._cwd, slave)
        os.close(slave)
        return self._child.pid, master

    def _poll(self) -> int | None:
        return self._child.poll()


def is_restored(raw: bytes) -> bool:
    """Whether the terminal is as it was: the first screen, a cursor, no mouse, no bracketed paste."""
    off = {b"1049l": b"1049h", b"25h": b"25l", b"1000l": b"1000h", b"1003l": b"1003h", b"2004l": b"2004h"}
    return all(raw.rfind(b"\x1b[?" + last) > raw.rfind(b"\x1b[?" + before) for last, before in off.items())


class Product:
    """Runs the command, with one ssh config and one home."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        self.work = folder / "work"
        self.work.mkdir(exist_ok=True)
        self.ssh_config: Path | None = None
        self.screens: list[Screen] = []

    def config(self, text: str, name: str = "c.toml") -> Path:
        path = self.work / name
        path.write_text(text)
        return path

    def argv(self, *words: str) -> list[str]:
        with_config = [f"--ssh-config={self.ssh_config}"] if self.ssh_config is not None else []
        return [PROGRAM, *words, *with_config]

    def run(self, *words: str, timeout: float = 90.0, **env: str) -> subprocess.CompletedProcess[str]:
        return forked.run(self.argv(*words), cwd=self.work, env=environment(self.home, **env), timeout=timeout)

    def snapshot(self, *words: str, status: int = 0, **env: str) -> dict[str, Any]:
        """snapshot --json, as a script reads it."""
        done = self.run("snapshot", "--json", "--wait", "40s", *words, **env)
        assert done.returncode == status, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def screen(self, *words: str, columns: int = 120, rows: int = 40, is_installed: bool = False, **env: str) -> Screen:
        """The dashboard; closed by the fixture if the test does not leave it. `is_installed`: by its script."""
        argv, environ = self.argv(*words), environment(self.home, **env)
        kind = Screen if is_installed or not forked.can_run(argv, environ) else QuickScreen
        found = kind(argv, columns=columns, rows=rows, env=environ, cwd=self.work)
        self.screens.append(found)
        return found

    def close(self) -> None:
        for screen in self.screens:
            screen.close()


class Cluster:
    """Nodes n0, n1, … of one real sshd; each has GPUs of its own that a test changes."""

    def __init__(self, sshd: Sshd, nvml: list[Nvml]) -> None:
        self.sshd = sshd
        self.nvml = nvml

    @classmethod
    @contextlib.contextmanager
    def start(
        cls,
        folder: Path,
        nodes: int,
        *,
        gpus: int,
        env: Mapping[str, str],
        own: Mapping[int, Mapping[str, str]],
        options: Mapping[str, str],
    ) -> Iterator[Cluster]:
        """`env` is what every session has in its environment, `own` those of one node; `options` are sshd's lines."""
        nvml = []
        for number in range(nodes):
            driver = folder / f"gpus-{number}"
            driver.mkdir(parents=True)
            nvml.append(Nvml(driver, gpus=gpus))
        shared = {"LD_LIBRARY_PATH": str(library()), **env}
        blocks = "".join(
            f"\nMatch LocalAddress {address(number)}\n  SetEnv "
            + words({**NESTED, **shared, **own.get(number, {}), "TRAINMON_LAB_NVML": str(node.path)})
            for number, node in enumerate(nvml)
        )
        with Sshd.start(folder / "sshd", **options, SetEnv=words(shared) + blocks) as sshd:
            yield cls(sshd, nvml)

    def sessions_of(self, node: int) -> list[int]:
        """The processes that serve one node, what they run included."""
        marked = f"TRAINMON_LAB_NVML={self.nvml[node].path}".encode()
        return [pid for pid in self.sshd.sessions() if marked in environ_of(pid)]

    def servers_of(self, node: int) -> list[int]:
        """The sshd processes of one node's connections, without the one that listens."""
        return list(dict.fromkeys(server for pid in self.sessions_of(node) for server in ancestors(pid, self.sshd.pid)))

    def end_sessions(self, node: int) -> None:
        """Every connection of one node breaks."""
        for pid in self.servers_of(node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def ancestors(pid: int, until: int) -> list[int]:
    """A process's parent, its parent, and so on; without the last. None of one that init has adopted."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        while (pid := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])) not in (until, 1, 0):
            found.append(pid)
    return found


def environ_of(pid: int) -> list[bytes]:
    """The environment that a process was started with; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def words(env: Mapping[str, str]) -> str:
    """As SetEnv of sshd_config takes them."""
    return " ".join(f'"{name}={value}"' for name, value in env.items())


def address(number: int) -> str:
    """As Sshd.address, before there is an sshd."""
    return f"127.0.{10 + number // 250}.{1 + number % 250}"
