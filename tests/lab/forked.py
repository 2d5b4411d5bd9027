"""Commands of the product without the second of imports: each is a fork of a process that has imported everything.

What runs is the own `main` of the command line, in a process of its own with its arguments, environment and pipes.
Tests of what a start costs or loads, and of the installed program, start it for real: `subprocess`.
`python -m tests.lab.forked NAME` starts that process, one for all workers of a test run; it ends with the last of them.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from typing import Any

import trainmon.cli

AT_THE_START = ("LANG", "LC_", "LD_", "PYTHON", "TEXTUAL")
"""What an interpreter or a module reads only when it starts: other values need a start of their own."""
HARMLESS = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"}
LOCALE = "C.UTF-8"
LARGEST = 1 << 17
ROOT = Path(__file__).parents[2]
PROGRAMS = {str(Path(sys.executable).with_name("trainmon-tui")), str(ROOT / "trainmon" / "__main__.py")}
LIVE = "tests.tui.live"
"""A dashboard on a State of a test, which is started as the program is."""

_lock = threading.Lock()
_server: list[socket.socket] = []
RUN = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"process {os.getpid()}")


class Child:
    """A fork that runs. `pid` is its own; how it ended is told by the process that forked it."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None, *descriptors: int) -> None:
        """`descriptors`: its standard output and standard error, or the terminal that it gets."""
        reader, writer = os.pipe()
        request = {"argv": list(argv), "env": dict(env), "cwd": str(cwd or Path.cwd())}
        with _lock:
            socket.send_fds(_connection(), [json.dumps(request).encode()], [writer, *descriptors])
        os.close(writer)
        self._reply = os.fdopen(reader, "rb", 0)
        self.pid = int(self._reply.readline())
        self._status: int | None = None

    def poll(self, timeout: float = 0.0) -> int | None:
        """Its exit status, or minus the signal; None while it runs."""
        if self._status is None and select.select([self._reply], [], [], timeout)[0]:
            self._status = int(self._reply.readline())
            self._reply.close()
        return self._status


def run(
    argv: Sequence[str], *, env: Mapping[str, str], cwd: Path | None = None, timeout: float = 90.0
) -> CompletedProcess[str]:
    """As `subprocess.run(argv, capture_output=True, text=True)`, without a standard input. `argv[0]` is the program."""
    if not can_run(argv, env):
        started = argv if Path(argv[0]).suffix != ".py" else [sys.executable, "-m", "trainmon", *argv[1:]]
        return subprocess.run(
            started, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
            check=False,
        )  # fmt: skip
    pipes = os.pipe(), os.pipe()
    child = Child(argv, env, cwd, *(writer for _, writer in pipes))
    for _, writer in pipes:
        os.close(writer)
    with ThreadPoolExecutor(2) as pool:
        output, errors = (pool.submit(_read, reader) for reader, _ in pipes)
        status = child.poll(timeout)
        if status is None:
            os.kill(child.pid, signal.SIGKILL)
            raise TimeoutExpired(list(argv), timeout)
    return CompletedProcess(list(argv), status, output.result(), errors.result())


def can_run(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether this is our program, in an environment in which it needs no start of its own."""
    at_the_start = {name for name in env if name.startswith(AT_THE_START)} - HARMLESS
    return argv[0] in {*PROGRAMS, LIVE} and all(env[name] == LOCALE for name in at_the_start)


def _read(descriptor: int) -> str:
    with os.fdopen(descriptor, encoding="utf-8") as pipe:
        return pipe.read()


def _connection() -> socket.socket:
    """To the process that forks; the first call of a test run starts it."""
    if not _server:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
        while made.connect_ex(f"\0trainmon tests {RUN}"):
            # Nothing that one test has set: it outlives the test.
            environ = {"PATH": os.environ["PATH"], "LC_ALL": LOCALE}
            subprocess.run(
                [sys.executable, "-m", __name__, RUN], env=environ, cwd=ROOT, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, check=True, timeout=90.0,
            )  # fmt: skip
        _server.append(made)
        atexit.register(made.close)
    return _server[0]


# ---- the process that forks ----


def _import(*names: str) -> None:
    for name in names:
        importlib.import_module(name)


def _listen(run: str) -> socket.socket | None:
    """What the test processes of this run connect to; None in all but one process that listens."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind(f"\0trainmon tests {run}")
    except OSError:
        return None
    listener.listen(64)
    if os.fork():
        return None
    os.setsid()
    return listener


def _serve(listener: socket.socket) -> list[str] | None:
    """Fork for each request. Returns in each fork, with the words of its command line; None at the end."""
    clients: list[socket.socket] = []
    while True:
        for client in select.select([listener, *clients], [], [])[0]:
            if client is listener:
                clients.append(listener.accept()[0])
                continue
            data, received, _, _ = socket.recv_fds(client, LARGEST, 3)
            if data and _fork(received):
                return _become(json.loads(data), received[1:])
            if not data:
                client.close()
                clients.remove(client)
        if not clients:
            return None


def _fork(descriptors: list[int]) -> bool:
    """True in the process that is to become a command with these descriptors."""
    if len(descriptors) == 2:
        _import("tui.app", "textual.drivers.linux_driver", "trainmon.runtime.backend", LIVE)
    if os.fork() == 0:
        return not _keep(*descriptors)
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return False


def _keep(reply: int, *others: int) -> bool:
    """Fork once more, wait for that process and tell how it ended; False in that process itself."""
    child = os.fork()
    if child == 0:
        return False
    os.dup2(reply, 3)
    os.closerange(4, 256)
    with contextlib.suppress(BrokenPipeError):  # nobody asks any more
        os.write(3, b"%d\n" % child)
        os.write(3, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


def _become(request: dict[str, Any], descriptors: list[int]) -> list[str]:
    if len(descriptors) == 1:
        os.login_tty(descriptors[0])
    else:
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *descriptors)):
            os.dup2(descriptor, number)
    os.closerange(3, 256)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts jobs in the background deaf to it
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    return request["argv"]


def _main(words: list[str]) -> int:
    main: Callable[[], object] = importlib.import_module(LIVE if words[0] == LIVE else "trainmon.cli.main").main

    sys.argv = words
    try:
        if words[0] == LIVE:
            sys.exit(main())
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ended.code is not None
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> None:
    """As the interpreter ends, without taking thousands of objects apart."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    listener = _listen(sys.argv[1])
    if listener is None:
        sys.exit()
    commands = [module.name for module in pkgutil.walk_packages(trainmon.cli.__path__, "trainmon.cli.")]
    _import(*commands, "trainmon.runtime.monitor")
    gc.collect()
    gc.freeze()
    words = _serve(listener)
    if words is not None:
        _end(_main(words))
