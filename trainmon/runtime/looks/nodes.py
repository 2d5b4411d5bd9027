"""Runs the script of a look on nodes, over the connections that are open: two at a time on each node."""

from __future__ import annotations

import json
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from threading import Semaphore
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


class Nodes:
    """What a source of looks may use. `shell_of` gives the open connection of a host, `python_of` the name of its
    interpreter; both may raise TrainmonError. `wait` waits for seconds."""

    def __init__(
        self,
        shell_of: Callable[[str], Shell],
        python_of: Callable[[str], str] = lambda host: "python3",
        wait: Callable[[Seconds], object] = time.sleep,
    ) -> None:
        self.shell_of, self._python_of, self.wait = shell_of, python_of, wait
        self._turns = defaultdict[str, Semaphore](lambda: Semaphore(2))
        """By host: several runs may be looked at there, and a person may want its stacks meanwhile."""

    def ask(self, host: str, script: str, asked: object, timeout: Seconds) -> Any:
        """Run a script of `on_node` there, and return its answer. It ends after `timeout`, even if nobody waits.

        Raises:
            TrainmonError: when the node has no connection or Python, or does not answer.
        """
        python = self._python_of(host)
        if not python:
            raise CommandFailed(f"{host} has no usable python3")
        words = json.dumps(asked), str(int(timeout))
        shell = self.shell_of(host)
        with self._turns[host]:
            done = shell.run([python, "-I", "-S", "-B", "-", *words], stdin=code(script), timeout=timeout + SLACK)
        _, began, packed = done.stdout.partition(BEGIN)
        if done.status != 0 or not began:
            why = last_line(done.stderr) or f"it ended with status {done.status}"
            raise CommandFailed(f"{host}: the look failed: {why}")
        try:
            return json.loads(zlib.decompressobj().decompress(packed, ANSWER_BYTES))
        except (zlib.error, ValueError) as error:
            raise CommandFailed(f"{host}: the answer of the look is cut off") from error

    def ask_each(self, asked: Mapping[str, object], script: str, timeout: Seconds) -> dict[str, Any | TrainmonError]:
        """Run a script on several hosts, with what each is asked. By host: its answer, or why there is none."""
        from multiprocessing.pool import ThreadPool  # 15 ms, for which the start need not wait

        def answer(host: str) -> Any | TrainmonError:
            try:
                return self.ask(host, script, asked[host], timeout)
            except TrainmonError as error:
                return error

        with ThreadPool(min(AT_ONCE, len(asked)) or 1) as pool:  # its threads are daemons
            return dict(zip(asked, pool.map(answer, asked, chunksize=1), strict=True))


SLACK: Seconds = 10.0
"""How much longer than the script its command may take: the start of Python on a slow disk, and the link."""


@cache
def code(script: str) -> bytes:
    """What is sent: `run.py`, and the script."""
    return b"\n\n".join(
        [*((SCRIPTS / f"{name}.py").read_bytes() for name in ("run", script)), b"run(look, *sys.argv[1:3])\n"]
    )


class Request(NamedTuple):
    """What a source gets. It reads nodes by `nodes`, and may report progress in a sentence."""

    state: State
    run: Run
    nodes: Nodes
    clock: Clock
    say: Callable[[str], object]
    latest: Callable[[], State]
    """The State now: a look takes a while."""
