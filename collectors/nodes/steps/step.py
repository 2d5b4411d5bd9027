"""One srun and its branches: each branch is the stream of one node. Lines come back by label, and go out by address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from collectors.nodes.steps import relay
from collectors.nodes.steps.relay import ENDED, LABEL, Labels
from collectors.probe.host import HIDDEN
from trainmon.lib import HostUnreachable, Seconds, TrainmonError
from trainmon.model import JobPart
from trainmon.slurm import errors
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Sink, Stream, Transit

BATCH: Seconds = 0.03
"""Input is collected for this long, so that the code of the probe is sent once to all nodes that greet together."""

SHARES_GPUS = "a step without GPUs does not see them here; the next step shares those of the job"

KEPT_STDERR = 4_096


class Branch:
    """The stream of one node in a step."""

    def __init__(self, host: str, node: str, sink: Sink) -> None:
        self.host, self.node, self.sink = host, node, sink
        self.step: Step | None = None
        self.has_greeted = False
        self.has_ended = False
        self.is_closed = False

    @property
    def transit(self) -> Transit:
        return Transit() if self.step is None else self.step.transit

    def write(self, data: bytes) -> None:
        """Queue lines for its standard input; never blocks."""
        if self.step is not None and not self.is_closed:
            self.step.write(self.node, data)

    def finish(self) -> None:
        """Close its standard input."""
        if self.step is not None and not self.is_closed:
            self.is_closed = True
            self.step.close_branch(self)

    def close(self) -> None:
        """End it; the step ends with its last branch."""
        self.finish()

    def end(self, status: int | None, error: TrainmonError | None) -> None:
        """Report its end, once."""
        if not self.has_ended:
            self.has_ended = True
            self.sink.ended(None if self.is_closed else status, None if self.is_closed else error)


class Step:
    """A running srun. It is the Sink of srun's output, on the event loop's thread."""

    def __init__(
        self,
        part: JobPart,
        branches: Sequence[Branch],
        loop: EventLoop,
        on_end: Callable[[Step], None],
        *,
        with_gpus: bool,
    ) -> None:
        self.part, self.job = part, part.job
        self.branches = {branch.node: branch for branch in branches}
        self.with_gpus = with_gpus
        """Whether it has the GPUs of the job."""
        self.hides_gpus = False
        """Whether a node has reported that a step without GPUs cannot see them."""
        self.stderr = ""
        self.has_ended = threading.Event()
        self._loop, self._on_end = loop, on_end
        self._command: Stream | None = None
        self._labels = Labels()
        self._nodes: dict[int, str] = {}
        self._lock = threading.Lock()
        self._queued: dict[str, list[bytes]] = {}
        for branch in branches:
            branch.step = self

    def started(self, command: Stream) -> None:
        """srun runs: send what was queued."""
        with self._lock:
            self._command = command
        self._flush()
        self._close_if_unused()

    @property
    def transit(self) -> Transit:
        return Transit() if self._command is None else self._command.transit

    # ---- input, from any thread ----

    def write(self, node: str, data: bytes) -> None:
        """Queue the lines of one node."""
        with self._lock:
            is_first = not self._queued
            self._queued.setdefault(node, []).extend(data.removesuffix(b"\n").split(b"\n"))
        if is_first:
            self._loop.call_later(BATCH, self._flush)

    def close_branch(self, branch: Branch) -> None:
        """End one node's command, and the step if it was the last."""
        self._flush()
        if not self._close_if_unused() and self._command is not None:
            self._command.write(relay.end_of(branch.node))

    def _flush(self) -> None:
        with self._lock:
            if self._command is not None:
                self._command.write(relay.addressed(self._queued, len(self.branches)))
                self._queued = {}

    def _close_if_unused(self) -> bool:
        is_unused = all(branch.is_closed or branch.has_ended for branch in self.branches.values())
        if is_unused and self._command is not None:
            self._command.close()
        return is_unused

    # ---- output, on the event loop's thread ----

    def received(self, data: bytes) -> None:
        for task, line in self._labels.feed(data):
            if line.startswith(relay.NODE):
                self._nodes[task] = line.removeprefix(relay.NODE).decode("utf-8", "replace").strip()
            branch = self.branches.get(self._nodes.get(task, ""))
            if branch is None or not branch.has_greeted:
                if branch is not None:
                    branch.has_greeted = True
                continue
            ended = ENDED.fullmatch(line)
            if ended is not None and int(ended[1]) == relay.BY_SIGTERM:
                branch.end(None, HostUnreachable(branch.host, f"its step of job {self.job} was terminated by Slurm"))
            elif ended is not None:
                branch.end(int(ended[1]), None)
            elif self._shows_hidden_gpus(line):
                self.hides_gpus = True
                self.close()
            else:
                branch.sink.received(line + b"\n")
            if branch.has_ended:
                self._close_if_unused()

    def _shows_hidden_gpus(self, line: bytes) -> bool:
        return not self.with_gpus and line.startswith(b'{"k":"hello"') and HIDDEN.encode() in line

    def stderr_received(self, data: bytes) -> None:
        for line in data.splitlines(keepends=True):
            if errors.DOUBT.search(line.decode("utf-8", "replace")):
                continue
            label = LABEL.match(line)
            branch = self.branches.get(self._nodes.get(int(label[1]), "")) if label is not None else None
            if label is not None and branch is not None:
                branch.sink.stderr_received(line[label.end() :])
                continue
            self.stderr = (self.stderr + line.decode("utf-8", "replace"))[-KEPT_STDERR:]
            for one in self.branches.values():
                if not one.has_greeted:
                    one.sink.stderr_received(line)

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        self.has_ended.set()
        self._on_end(self)
        reason = error.message if error is not None else self._reason(status)
        for branch in self.branches.values():
            branch.end(None, HostUnreachable(branch.host, reason))

    @property
    def has_begun(self) -> bool:
        """Whether the command has started on every node."""
        return all(branch.has_greeted for branch in self.branches.values())

    def _reason(self, status: int | None) -> str:
        if self.hides_gpus:
            return SHARES_GPUS
        return errors.step_message(self.job, self.stderr) or f"the step of job {self.job} ended with status {status}"

    def close(self) -> None:
        """End it soon."""
        if self._command is not None:
            self._command.close()
