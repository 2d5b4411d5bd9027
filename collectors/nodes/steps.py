"""A Shell for each node of a running job. Probes are branches of one step; other commands are steps of their own.

A step is one srun. Each branch is the stream of one node: lines come back by label, and go out by address.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from collectors.nodes import relay
from collectors.probe.host import HIDDEN
from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError
from trainmon.model import JobPart, NoticeGiven
from trainmon.slurm import commands, errors
from trainmon.slurm.client import ON_A_LINE, Client, SlurmFailed
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, Sink, Stream, Transit

# ---- one srun and its branches ---------------------------------------------------------------------------------------

BATCH: Seconds = 0.03
"""Input is collected for this long, so that the code of the probe is sent once to all nodes that greet together."""

SHARES_GPUS = "a step without GPUs does not see them here; the next step shares those of the job"


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

    close = finish
    """End it; the step ends with its last branch."""

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
        self._labels = relay.Labels()
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
            ended = relay.ENDED.fullmatch(line)
            if ended is not None and int(ended[1]) == relay.BY_SIGTERM:
                branch.end(None, HostUnreachable(branch.host, f"its step of job {self.job} was terminated by Slurm"))
            elif ended is not None:
                branch.end(int(ended[1]), None)
            elif not self.with_gpus and line.startswith(b'{"k":"hello"') and HIDDEN.encode() in line:
                self.hides_gpus = True
                self.close()
            else:
                branch.sink.received(line + b"\n")
            if branch.has_ended:
                self._close_if_unused()

    def stderr_received(self, data: bytes) -> None:
        for line in data.splitlines(keepends=True):
            if errors.DOUBT.search(line.decode("utf-8", "replace")):
                continue
            label = relay.LABEL.match(line)
            branch = self.branches.get(self._nodes.get(int(label[1]), "")) if label is not None else None
            if label is not None and branch is not None:
                branch.sink.stderr_received(line[label.end() :])
                continue
            self.stderr = (self.stderr + line.decode("utf-8", "replace"))[-4_096:]
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


# ---- A Shell for each node of a running job --------------------------------------------------------------------------

log = logging.getLogger(__name__)

GATHER: Seconds = 0.1
"""How long the first node of a job waits for the others: all that ask in this time share a step."""

START_TIMEOUT: Seconds = 60.0
"""How long a node waits for the thread that starts the step."""

END_TIMEOUT: Seconds = 0.5
"""How long `close` waits for the end of the steps: 0.13 s were measured with Slurm 22.05."""

NO_JOB = "no active job of yours there"

NO_SRUN = 'set "login" to a host that has srun, or connect.by = "ssh"'
"""What to do where Slurm's commands have no srun."""


class NoSrun(CommandFailed):
    """There is no srun where Slurm's commands run: no step starts, whatever becomes of the job."""


class JobSteps:
    """The steps of the user's jobs in one cluster. `client_of` returns the client of the host where Slurm's commands
    run, and raises HostUnreachable; `part_of`, our job on a node. `on_start` is called for each step.
    `gather` waits for the other nodes of a step; it gets a function that counts those that have joined."""

    def __init__(
        self,
        loop: EventLoop,
        client_of: Callable[[], Client],
        part_of: Callable[[str], JobPart | None],
        on_start: Callable[[int], None] = lambda job: None,
        gather: Callable[[Callable[[], int]], None] = lambda joined: time.sleep(GATHER),
    ) -> None:
        self.part_of = part_of
        self._loop, self._client_of, self._on_start = loop, client_of, on_start
        self._gather = gather
        self._lock = threading.Lock()
        self._gathering: dict[tuple[JobPart, tuple[str, ...]], _Group] = {}
        self._running: set[Step] = set()
        self._apart: set[JobPart] = set()
        """Jobs whose step of several nodes has failed: each node has a step of its own."""
        self._with_gpus: set[JobPart] = set()
        """Jobs whose GPUs cannot be seen by a step without GPUs."""
        self._is_closed = False

    def shell(self, host: str, ssh_error: str = "") -> StepShell:
        """The shell of a node on which a job of ours runs. `ssh_error`: why SSH did not reach it.

        Raises:
            HostUnreachable: when none does, or the host of Slurm's commands is not connected.
        """
        part = self.part_of(host)
        if part is None:
            raise HostUnreachable(host, NO_JOB, hint="it is read by a step of your job: it needs a job of yours on it")
        return StepShell(self, host, part, ssh_error)

    def join(self, part: JobPart, argv: Sequence[str], branch: Branch) -> None:
        """Start a command on a node, in one step with the other nodes of the job that ask now. Blocks.

        Raises:
            HostUnreachable: when the step cannot be started.
            CommandFailed: the same; NoSrun for lack of it.
        """
        with self._lock:
            key = (part, tuple(argv))
            group = self._gathering.get(key)
            is_first = group is None or part in self._apart or branch.node in group.branches
            if group is None or is_first:
                group = _Group()
                self._gathering[key] = group
            group.branches[branch.node] = branch
        if is_first:
            self._start(key, group)
        if not group.is_started.wait(START_TIMEOUT):
            raise CommandFailed(f"{branch.host}: the step of job {part.job} was not started in {START_TIMEOUT:g}s")
        if isinstance(group.error, SlurmFailed) and group.error.kind == "absent":
            raise NoSrun(group.error.message, hint=NO_SRUN)
        if group.error is not None:
            text = f"{type(group.error).__name__}: {group.error}"
            raise HostUnreachable(branch.host, getattr(group.error, "message", text))

    def _start(self, key: tuple[JobPart, tuple[str, ...]], group: _Group) -> None:
        part, argv = key
        if part not in self._apart:
            self._gather(lambda: len(group.branches))
        with self._lock:
            if self._gathering.get(key) is group:
                del self._gathering[key]
            branches = tuple(group.branches.values())
        try:
            with_gpus = part in self._with_gpus
            step = Step(part, branches, self._loop, self._ended, with_gpus=with_gpus)
            client = self._client_of()
            line = commands.own_step(part, tuple(group.branches), relay.command(argv), gpus=with_gpus, label=True)
            command = client.shell.stream((*ON_A_LINE, *client.step_command(line)), step)
            with self._lock:
                if not step.has_ended.is_set():
                    self._running.add(step)
            step.started(command)
            if self._is_closed:
                step.close()
            self._on_start(part.job)
        except Exception as error:
            group.error = error
        finally:
            group.is_started.set()

    def run(self, host: str, part: JobPart, argv: Sequence[str], stdin: bytes, timeout: Seconds) -> Completed:
        """Run a command on a node, as a step of its own.

        Raises:
            HostUnreachable: when Slurm starts no step, such as after the end of the job.
            CommandFailed: when it does not end in time.
        """
        client = self._client_of()
        line = commands.own_step(part, (node_name(host),), argv)
        done = client.shell.run(client.step_command(line), stdin=stdin, timeout=timeout)
        stderr = done.stderr.decode("utf-8", "replace")
        if done.status != 0 and errors.has_no_step(stderr):
            raise HostUnreachable(host, errors.step_message(part.job, stderr))
        return done

    def close(self) -> None:
        """End all steps, and wait a moment for it: a killed srun would leave its step behind for seconds."""
        self._is_closed = True
        with self._lock:
            running = tuple(self._running)
        for step in running:
            step.close()
        until = time.monotonic() + END_TIMEOUT
        for step in running:
            step.has_ended.wait(max(0.0, until - time.monotonic()))

    def _ended(self, step: Step) -> None:
        """A step has ended, on the event loop's thread."""
        with self._lock:
            self._running.discard(step)
            if step.hides_gpus:
                self._with_gpus.add(step.part)
            elif len(step.branches) > 1 and not step.has_begun and not errors.would_fail_alone(step.stderr):
                self._apart.add(step.part)
                log.warning("job %d: one step for %d nodes failed: %s", step.job, len(step.branches), step.stderr)


class _Group:
    """The nodes that wait for one step."""

    def __init__(self) -> None:
        self.branches: dict[str, Branch] = {}
        self.is_started = threading.Event()
        self.error: Exception | None = None


class StepShell:
    """The shell of one node of a job."""

    prompted = False

    def __init__(self, steps: JobSteps, host: str, part: JobPart, ssh_error: str = "") -> None:
        self.host, self.part, self.ssh_error = host, part, ssh_error
        self._steps = steps
        self._branches: list[Branch] = []

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Run a command to its end; see Shell.run."""
        return self._steps.run(self.host, self.part, argv, stdin, timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        """Start a command that prints lines; see Shell.stream. Only lines of JSON may be longer than 1024 bytes."""
        branch = Branch(self.host, node_name(self.host), sink)
        self._branches.append(branch)
        try:
            self._steps.join(self.part, argv, branch)
        except NoSrun as failure:
            raise NoSrun("; ".join(filter(None, (self.ssh_error, failure.message))), hint=failure.hint) from failure
        return branch

    def close(self) -> None:
        for branch in self._branches:
            branch.close()


def step_notice(job: int) -> NoticeGiven:
    """What a person is told when the first step of all runs."""
    text = f"The probes run as a step of your job {job}. squeue --steps and sacct list it as {commands.OWN_STEP}."
    return NoticeGiven("step", f"{text} It shares the resources of the job, and reserves none.")


def node_name(host: str) -> str:
    """Slurm's name of a host of the config, such as me@gpu-001."""
    return host.rpartition("@")[2]
