"""Commands of the product without the second of imports: each is a fork of a process that has imported everything.

What runs is the own `main` of the command line, in a process of its own with its arguments, environment and pipes.
Tests of what a start costs or loads, and of the installed program, start it for real: `subprocess`.
`python -m tests.lab.forked SOCKET` is that process; it ends with the test process that started it.
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
    """To the process that forks; the first call starts it."""
    if not _server:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {"PATH": os.environ["PATH"], "LC_ALL": LOCALE}  # nothing that one test has set: it outlives the test
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())], env=environ, cwd=ROOT, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
        )  # fmt: skip
        theirs.close()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LARGEST)
        _server.append(ours)
        atexit.register(process.wait, 30)
        atexit.register(ours.close)
    return _server[0]


# ---- the process that forks ----


def _import(*names: str) -> None:
    for name in names:
        importlib.import_module(name)


def _serve(requests: socket.socket) -> list[str] | None:
    """Fork for each request. Returns in each fork, with the words of its command line; None at the end."""
    while True:
        data, received, _, _ = socket.recv_fds(requests, LARGEST, 3)
        if not data:
            return None
        reply, *descriptors = received
        if len(descriptors) == 1:
            _import("tui.app", "textual.drivers.linux_driver", "trainmon.runtime.backend", LIVE)
        if os.fork() == 0 and not _keep(reply, descriptors):
            return _become(json.loads(data), descriptors)
        for descriptor in (reply, *descriptors):
            os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _keep(reply: int, descriptors: list[int]) -> bool:
    """Fork once more, wait for that process and tell how it ended; False in that process itself."""
    child = os.fork()
    if child == 0:
        return False
    for descriptor in descriptors:
        os.close(descriptor)
    with contextlib.suppress(BrokenPipeError):  # nobody asks any more
        os.write(reply, b"%d\n" % child)
        os.write(reply, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
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
    commands = [module.name for module in pkgutil.walk_packages(trainmon.cli.__path__, "trainmon.cli.")]
    _import(*commands, "trainmon.runtime.monitor")
    gc.collect()
    gc.freeze()
    words = _serve(socket.socket(fileno=int(sys.argv[1])))
    if words is not None:
        _end(_main(words))
