"""A Shell for each node of a running job. Probes are branches of one step; other commands are steps of their own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from collectors.nodes.steps import relay
from collectors.nodes.steps.step import Branch, Step
from trainmon.lib import CommandFailed, HostUnreachable, Seconds
from trainmon.model import JobPart, NoticeGiven
from trainmon.slurm import commands, errors
from trainmon.slurm.client import ON_A_LINE, Client, SlurmFailed
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, Sink, Stream

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
            raise HostUnreachable(host, NO_JOB, hint="it is read by a step of your job, so it needs one")
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

    def test(self) -> None:
        """Find srun.

        Raises:
            HostUnreachable: when the host of Slurm's commands is not connected.
            SlurmFailed: when it does not answer.
            NoSrun: when it has none.
        """
        try:
            self._client_of().step_command(("srun",))
        except SlurmFailed as failure:
            if failure.kind == "absent":
                raise NoSrun(failure.message, hint=NO_SRUN) from failure
            raise

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
            raise self._with_ssh_error(failure) from failure
        return branch

    def test(self) -> None:
        """Find out whether steps can be started.

        Raises:
            TrainmonError: when they cannot.
        """
        try:
            self._steps.test()
        except NoSrun as failure:
            raise self._with_ssh_error(failure) from failure

    def _with_ssh_error(self, failure: NoSrun) -> NoSrun:
        return NoSrun("; ".join(filter(None, (self.ssh_error, failure.message))), hint=failure.hint)

    def close(self) -> None:
        for branch in self._branches:
            branch.close()


def step_notice(job: int) -> NoticeGiven:
    """What a person is told when the first step of all runs."""
    name = commands.OWN_STEP
    text = f"The probes run as a step of your job {job}. squeue --steps and sacct list it as {name}."
    return NoticeGiven("step", f"{text} It shares the resources of the job, and reserves none.")


def node_name(host: str) -> str:
    """Slurm's name of a host of the config, such as me@gpu-001."""
    return host.rpartition("@")[2]
