"""Runs the script of a look on nodes, over the connections that are open: one at a time on each node."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

from trainmon.lib import Clock, CommandFailed, Seconds, TrainmonError, last_line
from trainmon.model import Run, State
from trainmon.runtime.looks.on_node.run import BEGIN
from trainmon.transport.shell import Shell

SCRIPTS = Path(__file__).parent / "on_node"

ANSWER_BYTES = 32 * 1024 * 1024
"""The longest answer of a script, unpacked."""

AT_ONCE = 16
"""Nodes that are looked at at the same time."""

END = "run(look, *sys.argv[1:3])\n"


class StoppedError(TrainmonError):
    """The program ends."""


class Nodes:
    """What a source of looks may use. `shell_of` gives the open connection of a host, `python_of` the name of its
    interpreter; both may raise TrainmonError. `wait` waits for seconds, and returns whether the program ends."""

    def __init__(
        self,
        shell_of: Callable[[str], Shell],
        python_of: Callable[[str], str] = lambda host: "python3",
        wait: Callable[[Seconds], bool] | None = None,
    ) -> None:
        self.shell_of, self._python_of = shell_of, python_of
        self._stopped = Event()
        self._wait = wait or self._stopped.wait
        self._busy: set[str] = set()
        self._lock = Lock()

    def stop(self) -> None:
        """End all waits."""
        self._stopped.set()

    def pause(self, seconds: Seconds) -> None:
        """Wait between two samples.

        Raises:
            StoppedError: when the program ends.
        """
        if self._wait(seconds) or self._stopped.is_set():
            raise StoppedError("stopped")

    def ask(self, host: str, script: str, asked: object, timeout: Seconds) -> Any:
        """Run a script of `on_node` there, and return its answer. It ends after `timeout`, even if nobody waits.

        Raises:
            TrainmonError: when the node has no connection or Python, is being looked at, or does not answer.
        """
        with self._lock:
            if host in self._busy:
                raise CommandFailed(f"{host} is being looked at")
            self._busy.add(host)
        try:
            return self._ask(host, script, asked, timeout)
        finally:
            with self._lock:
                self._busy.discard(host)

    def ask_each(self, asked: Mapping[str, object], script: str, timeout: Seconds) -> dict[str, Any | TrainmonError]:
        """Run a script on several hosts, with what each is asked. By host: its answer, or why there is none."""

        found: dict[str, Any | TrainmonError] = {}
        hosts = SimpleQueue[str]()

        def work() -> None:
            with suppress(Empty):
                while True:
                    host = hosts.get_nowait()
                    try:
                        found[host] = self.ask(host, script, asked[host], timeout)
                    except TrainmonError as error:
                        found[host] = error

        for host in asked:
            hosts.put(host)
        threads = [Thread(target=work, name="look", daemon=True) for _ in range(min(AT_ONCE, len(asked)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {host: found[host] for host in asked}

    def _ask(self, host: str, script: str, asked: object, timeout: Seconds) -> Any:
        python = self._python_of(host)
        if not python:
            raise CommandFailed(f"{host} has no usable python3")
        words = json.dumps(asked), str(int(timeout))
        shell = self.shell_of(host)
        done = shell.run([python, "-I", "-S", "-B", "-", *words], stdin=code(script), timeout=timeout + SLACK)
        _, began, packed = done.stdout.partition(BEGIN)
        if done.status != 0 or not began:
            why = last_line(done.stderr) or f"it ended with status {done.status}"
            raise CommandFailed(f"{host}: the look failed: {why}")
        try:
            return json.loads(zlib.decompressobj().decompress(packed, ANSWER_BYTES))
        except (zlib.error, ValueError) as error:
            raise CommandFailed(f"{host}: the answer of the look is cut off") from error


SLACK: Seconds = 10.0
"""How much longer than the script its command may take: the start of Python on a slow disk, and the link."""


@cache
def code(script: str) -> bytes:
    """What is sent: `run.py`, and the script."""
    return b"\n\n".join([*((SCRIPTS / f"{name}.py").read_bytes() for name in ("run", script)), END.encode()])


class Request(NamedTuple):
    """What a source gets. It reads nodes by `nodes`, and may report progress in a sentence."""

    state: State
    run: Run
    nodes: Nodes
    clock: Clock
    say: Callable[[str], object]
    latest: Callable[[], State]
    """The State now: a look takes a while."""
