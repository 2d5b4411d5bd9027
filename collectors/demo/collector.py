"""The demo as a collector: a thread that advances the world, the connections to its nodes, a shell and channels.

The readings of the nodes become events at a real collector's rate. The shell answers Slurm and lfs commands itself, and
runs all others on this machine. The channels send nothing.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random
from typing import ClassVar, Literal, NamedTuple

import msgspec

from collectors.demo.slurm import USERS, Scheduler
from collectors.demo.stories import CLUSTER, NODES, READER, Incident, Schedule
from collectors.demo.wandb import LOGIN as WANDB_LOGIN
from collectors.demo.world import World
from collectors.polling_thread import PollingThread
from collectors.probe.files.checkpoints import Checkpoints
from collectors.probe.files.contents import Contents
from collectors.probe.files.logs import Logs
from collectors.probe.files.switches import Switches
from collectors.quota import QuotaPoller, QuotaQuery
from collectors.slurm.collector import Poller, Watched
from collectors.wandb.collector import WandbCollector
from trainmon.alerting.notify.message import Message, Retry, Sent
from trainmon.analysis.attempts import rank_processes
from trainmon.analysis.attempts.looks.nccl_ras import Answer, Circumstances, Communicator, Process, call, placed
from trainmon.analysis.log_formats import KEEP
from trainmon.analysis.runs import last_attempts, status_file
from trainmon.lib import (
    Clock,
    CommandFailed,
    HostUnreachable,
    Instant,
    ScratchDirectory,
    Seconds,
    SystemClock,
    TrainmonError,
)
from trainmon.model import (
    SILENT,
    AnyReading,
    Channel,
    Event,
    FileSpec,
    LogSpec,
    NodeReading,
    RankLook,
    RankProcess,
    Route,
    Run,
    RunsChanged,
    Source,
    SourceChanged,
    SourceRemoved,
    Spec,
    State,
    StoryTold,
    Xid,
)
from trainmon.slurm.client import ENVIRONMENT, ON_A_LINE, Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LOGIN_SHELL, Completed, LocalShell, Shell, Sink, Stream

# ---- the demo's node collector ---------------------------------------------------------------------------------------

Outage = Literal["node", "reboot", "login"]
"""The reason why there is no connection: the name of a story."""

NOTICED_AFTER: Seconds = 6.0
"""The connection of a silent host fails after this time; until then it is late."""
DIAL_TAKES: Seconds = 0.5
BACK_OFF = (1.0, 2.0, 4.0, 8.0)
"""The pauses before the first retries."""
PERIOD: Seconds = 2.0

OUTAGES: dict[Outage, tuple[str, str]] = {
    "node": ("{}: no answer", "check that the node is up; press r to retry now"),
    "reboot": ("{} closed the connection: it is going down for a reboot", "trainmon-tui reconnects by itself"),
    "login": ("{} asks for a verification code", "press L to log in"),
}
"""The error of each, and the hint."""

STAGGER: Seconds = 0.055
AT_ONCE = 4
"""The number of nodes that are up at the start, so that the first frame has numbers."""
SLOW: Seconds = 30.0
DISKS_EVERY: Seconds = 10.0


class Connection:
    """The source of one node. `advance` yields its changes. `is_up`: its probe can be read."""

    def __init__(self, node: str, up_at: Seconds, random: Random) -> None:
        self.source = Source(name=f"node:{node}", kind="node", cluster=CLUSTER, period=PERIOD, phase="connecting")
        self.is_up = False
        self.sample_due = self.slow_due = self.disks_due = up_at
        """When its next readings are due."""
        self._node = node
        self._random = random
        self._next = up_at
        self._tries = 0
        self._outage: Outage | None = None
        self._silent_since: Seconds | None = None
        self._resolved: Outage | None = None
        """An outage that a person ended by logging in, before its story ended."""

    def advance(self, at: Seconds, now: Instant, outage: Outage | None) -> Iterator[Source]:
        """Apply the story's outage and the time: `at` is monotonic, `now` is the time of day."""
        if outage != self._resolved:
            self._resolved = None
        self._outage = None if outage == self._resolved else outage
        phase = self.source.phase
        if phase == "up" and self._outage is not None:
            self.is_up = False
            if self._outage == "node":  # noticed late; a closed connection and a login are noticed at once
                self._silent_since = at if self._silent_since is None else self._silent_since
                if at - self._silent_since < NOTICED_AFTER:
                    return
            self._tries = 0
            yield self._failed(at, now, self._outage)
        elif phase == "up":
            self.is_up, self._silent_since = True, None
        elif phase == "held" and self._outage is None:
            self._next = at + DIAL_TAKES
            yield self._changed(phase="connecting", health="late", error=None, hint=None)
        elif phase == "retrying" and at >= self._next:  # the error stands until it answers
            self._next = at + DIAL_TAKES
            yield self._changed(phase="connecting", retry_at=None)
        elif phase == "connecting" and at >= self._next:
            if self._outage is not None:
                yield self._failed(at, now, self._outage)
            else:
                self.is_up, self._silent_since = True, None
                yield self._changed(phase="up", health="ok", error=None, hint=None)

    def retry_now(self, at: Seconds) -> None:
        """Reconnect now, if it waits for its next retry."""
        if self.source.phase == "retrying":
            self._next = at

    def login(self) -> None:
        """A person has logged in."""
        if self.source.phase == "held":
            self._resolved = self._outage

    def _failed(self, at: Seconds, now: Instant, outage: Outage) -> Source:
        text, hint = OUTAGES[outage]
        error = text.format(self._node)
        if outage == "login":
            return self._changed(phase="held", health="down", error=error, hint=hint)
        wait = BACK_OFF[min(self._tries, len(BACK_OFF) - 1)] * self._random.uniform(0.8, 1.2)
        self._tries += 1
        self._next = at + wait
        return self._changed(phase="retrying", health="down", error=error, hint=hint, retry_at=now + wait)

    def _changed(self, **fields: object) -> Source:
        self.source = msgspec.structs.replace(self.source, **fields)
        return self.source


class DemoNodeCollector:
    """Collects readings from a world. `step` submits all that are due."""

    def __init__(self, world: World, submit: Callable[[Event], None], at: Seconds, seed: int) -> None:
        self._world = world
        self._submit = submit
        self._random = Random(f"{seed} watch")
        self._at = at
        self._now: Instant = 0.0
        self._refreshed = float("-inf")
        runs = world.runs
        spec = msgspec.to_builtins(
            Spec(
                period=PERIOD,
                slow=SLOW,
                logs=tuple(LogSpec(id=run.name, pattern=run.log) for run in runs if run.log),
                switches=tuple(path for run in runs for path in (run.kill_switch, run.save_switch) if path),
                checkpoints=tuple(run.checkpoints for run in runs if run.checkpoints),
                keep=KEEP,
            )
        )
        self._logs = Logs(spec, lambda: self._at)
        self._switches = Switches(spec)
        self._contents = Contents(spec, lambda: self._at)
        self._checkpoints = Checkpoints(spec, lambda: self._at, lambda: self._now)
        self._runs = runs
        self._status_files = tuple(file for run in runs if (file := status_file(run)) is not None)
        self._connections = {
            node: Connection(node, at + max(0, index + 1 - AT_ONCE) * STAGGER, self._random)
            for index, node in enumerate(NODES)
        }
        submit(RunsChanged(self._runs))
        for connection in self._connections.values():
            submit(SourceChanged(connection.source))

    def close(self) -> None:
        """Close the logs."""
        self._logs.configure({})

    def read_once(self, files: Sequence[FileSpec]) -> None:
        """Read these files of attempts."""
        self._contents.configure({"files": msgspec.to_builtins((*self._status_files, *files))})

    def step(self, started: Iterable[Incident], at: Seconds, now: Instant) -> None:
        """Submit what is due. `started`: the incidents that just began; `at` is monotonic, `now` the time of day."""
        self._at, self._now = at, now
        if self._world.runs != self._runs:  # a run moved to other nodes
            self._runs = self._world.runs
            self._submit(RunsChanged(self._runs))
        for node, connection in self._connections.items():
            was_up = connection.is_up
            outage = next((outage for outage in OUTAGES if self._world.is_active(outage, node)), None)
            for source in connection.advance(at, now, outage):
                self._submit(SourceChanged(source))
            if connection.is_up and not was_up:
                connection.sample_due = connection.slow_due = connection.disks_due = at
                self._submit_reading(node, self._world.node(node).hello(now))
        for incident in started:
            host, gpu = incident.node, incident.gpu
            if incident.story == "lost" and host is not None and gpu is not None and self._connections[host].is_up:
                text = f"NVRM: Xid (PCI:0000:{0x19 + 0x11 * gpu:02x}:00): 79, GPU has fallen off the bus."
                t = self._world.nodes[host].clock(now)
                self._submit_reading(host, Xid(v=1, t=t, code=79, index=gpu, text=text, source="kernel"))
        for node, connection in self._connections.items():
            if connection.is_up and at >= connection.sample_due:
                for reading in self._readings(node, connection):
                    self._submit_reading(node, reading)

    def refresh(self, at: Seconds) -> None:
        """Make everything due now; at most once a second."""
        if at - self._refreshed < 1.0:
            return
        self._refreshed = at
        for connection in self._connections.values():
            connection.retry_now(at)
            connection.sample_due = connection.slow_due = connection.disks_due = at

    def login(self, source: str) -> None:
        """A person has logged in to a node that waits for it."""
        connection = self._connections.get(source.removeprefix("node:"))
        if connection is not None:
            connection.login()

    def _readings(self, name: str, connection: Connection) -> Iterator[AnyReading]:
        """The readings of a node's probe in one period."""
        at, now, node = self._at, self._now, self._world.node(name)
        connection.sample_due = at + PERIOD * self._random.uniform(0.97, 1.03)
        is_slow = at >= connection.slow_due
        if is_slow:
            connection.slow_due = at + SLOW
            yield node.facts(now)
        yield node.samples(now)
        yield node.host(now)
        if is_slow:
            yield self._world.ranks(name, now)
        if at >= connection.disks_due:
            connection.disks_due = at + DISKS_EVERY
            yield node.disks(now, self._world.shared_disks() if name == READER else ())
        if name == READER:
            # Real files, read by the probe's own code.
            for section in (self._logs, self._switches, self._checkpoints, self._contents):
                for _, operation in section.operations(is_slow):
                    for reading in operation() or ():
                        yield msgspec.convert({"v": 1, "t": node.clock(now), **reading}, AnyReading)

    def _submit_reading(self, node: str, reading: AnyReading) -> None:
        self._submit(NodeReading(node=node, cluster=CLUSTER, received_at=self._now, reading=reading))


# ---- the demo as a collector -----------------------------------------------------------------------------------------

LFS = "lfs"


class DemoShell:
    """A shell on one host of the demo."""

    prompted = False

    def __init__(self, host: str, world: World, lock: AbstractContextManager[object], local: Shell) -> None:
        """`lock` guards the world: commands come from other threads."""
        self.host = host
        self._world = world
        self._scheduler = Scheduler(world.queue)
        self._lock, self._local = lock, local

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Simulate a Slurm or lfs command; run any other command, such as one on a switch file."""
        command = tuple(argv)
        for wrapper in (LOGIN_SHELL, ENVIRONMENT, ON_A_LINE):
            if command[: len(wrapper)] == wrapper:
                command = command[len(wrapper) :]
        with self._lock:
            if command and command[0] in self._scheduler.commands:
                return self._scheduler.answer(command, stdin)
            if LFS in argv:
                return Completed(0, self._world.quota().encode(), b"")
        return self._local.run(argv, stdin=stdin, timeout=timeout)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        return self._local.stream(argv, sink)

    def close(self) -> None:
        """Nothing to close."""


TICK: Seconds = 0.2
FIRST_TICK: Seconds = 0.05
"""The pause between steps in the first second, while the nodes connect."""
MAX_STEP: Seconds = 5.0
"""The longest step. After a laptop slept, the world continues where it stopped, without hours of logs at once."""
FILES = "files:demo"
SCRATCH = "demo"
"""The kind of its temporary directories."""
WANDB_EVERY: Seconds = 15.0
"""The shortest interval that a config may set."""
FIRST_WANDB_POLL: Seconds = 1.0
"""The first W&B poll reads whole histories: the first frame does not wait for them."""
QUEUE = Watched(
    cluster=CLUSTER, login=READER, users=USERS, every=15.0, spares=1, nodes=NODES, required=True
)  # one spare node is idle until a run moves to it
QUOTA = QuotaQuery(
    cluster=CLUSTER, path="/fsx", command=(LFS, "quota", "-q", "-u", "me", "/fsx"), parser="lustre", every=60.0
)


class Simulation(NamedTuple):
    """A world, and what reads its nodes and its W&B."""

    world: World
    nodes: DemoNodeCollector
    wandb: WandbCollector


class Demo(PollingThread):
    """A simulated cluster of 16 nodes. `step` is all of it without its thread."""

    stop_timeout: ClassVar[Seconds] = 1.0

    def __init__(
        self,
        submit: Callable[[Event], None],
        *,
        clock: Clock | None = None,
        seed: int = 7,
        speed: float = 1.0,
        directory: Path | None = None,
        story: str | None = None,
        schedule: Schedule | None = None,
        files: Callable[[], Mapping[str, tuple[FileSpec, ...]]] = dict,
    ) -> None:
        """`speed` is that of the world; readings keep their rate. `schedule` replaces the usual incidents. `files`: the
        files of attempts to read, by cluster."""
        super().__init__("demo", MAX_STEP, submit, clock or SystemClock())
        self.directory = directory
        """The directory of its files: given, or created at the first step. `stop` removes it."""
        self._speed, self._seed = speed, seed
        self._schedule = schedule or Schedule(story)
        self._files = files
        self._simulation: Simulation | None = None
        """None before the first step."""
        self._lock = threading.RLock()
        """Guards the world: commands come from other threads."""
        self._loop = EventLoop()
        self._local = LocalShell(self._loop)
        self._shells: dict[str, DemoShell] = {}
        self._queued: tuple[object, ...] = ()
        """The job queue at the last poll."""
        self._poller = Poller(QUEUE, lambda: Client(self.shell_of(READER)), submit, self._clock)
        self._quota = QuotaPoller(QUOTA, lambda: (READER,), self.shell_of, submit, self._clock)
        self._began = self._at = 0.0
        self._has_failed, self._told = False, ""
        self._scratch: ScratchDirectory | None = None
        """The directory that it made itself."""

    def stop(self) -> None:
        """Stop the demo and remove its files. Returns within a second."""
        super().stop()
        self._local.close()
        self._loop.stop()
        if self._simulation is not None:
            self._simulation.nodes.close()
            shutil.rmtree(self._simulation.world.directory, ignore_errors=True)
        if self._scratch is not None:
            self._scratch.cleanup()

    def refresh(self) -> None:
        """Read everything now and retry all connections; at most once a second."""
        self._poller.refresh()
        if (simulation := self._simulation) is not None:
            self._request(lambda: simulation.nodes.refresh(self._clock.monotonic()))
            simulation.wandb.refresh()

    def save_samples(self, run: str, directory: str, reply: Callable[[str], object]) -> None:
        """Write the newest media of a run into a directory; `reply` gets the result as a sentence."""
        if self._simulation is None:
            reply(f"{run} has no samples")
        else:
            self._simulation.wandb.save_samples(run, directory, reply)
            self._wake.set()

    def poll_soon(self, cluster: str) -> None:
        """Poll the queue now: an action has changed it."""
        self._poller.refresh()

    def poll_job(self, key: str) -> None:
        """Poll the details of a job that a person views."""
        self._poller.poll_job(key)

    def shell_of(self, host: str) -> Shell:
        """A shell on one of its nodes.

        Raises:
            HostUnreachable: for an unknown host, and before the first step.
        """
        if host not in NODES or self._simulation is None:
            raise HostUnreachable(host, f"{host} is not connected")
        return self._shells.setdefault(host, DemoShell(host, self._simulation.world, self._lock, self._local))

    def login(self, source: str) -> None:
        """Log in to a source that waits for a login, such as `node:gpu-011`."""
        if (simulation := self._simulation) is not None:
            self._request(lambda: simulation.nodes.login(source))

    def step(self) -> Seconds:
        """Do all that is due now. Returns the seconds until the next call."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if self._simulation is None:
            self._simulation = self._simulate(now, monotonic)
            self._began = self._at = monotonic
            self._loop.start()
        world, nodes, wandb = self._simulation
        passed, self._at = monotonic - self._at, monotonic
        with self._lock:
            started = world.advance(min(passed, MAX_STEP) * self._speed, now)
        if any(incident.story == "wandb-down" for incident in started):
            wandb.refresh()  # it is noticed at the next poll
        if world.told != self._told:
            self._told = world.told
            self._submit(StoryTold(world.told))
        self._do_requests()
        nodes.read_once(self._files().get(CLUSTER, ()))
        nodes.step(started, monotonic, now)
        queued = (*((job.number, job.state, job.reason, job.tasks) for job in world.queue.jobs), *world.queue.drains)
        if queued != self._queued:  # poll it at once when it changes: this controller has no load limit
            self._queued = queued
            self._poller.refresh()
        self._poller.step()
        is_connecting = monotonic - self._began < FIRST_WANDB_POLL
        if not is_connecting:
            with self._lock:
                wandb.step()
            self._quota.step()
        if self._has_failed:
            self._has_failed = False
            self._submit(SourceRemoved(FILES))
        return FIRST_TICK if is_connecting else TICK

    def _simulate(self, now: Instant, monotonic: Seconds) -> Simulation:
        """A world in a directory of its own, which `stop` removes.

        Raises:
            TrainmonError: when the given directory is not empty.
        """
        if self.directory is None and self._scratch is None:
            self._scratch = ScratchDirectory(SCRATCH)
        directory = self.directory or Path(self._scratch.name if self._scratch is not None else "")
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise TrainmonError(
                f"{directory} is not empty", hint="the demo removes its directory at the end: choose a new one"
            )
        try:
            world = World(directory, now - self._schedule.lead, self._seed, self._schedule)
            while world.elapsed < 0:
                world.advance(1.0, now + world.elapsed + 1.0)
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.directory = directory
        wandb = WandbCollector(
            world.runs, WANDB_EVERY, self._submit, self._clock, client=lambda: world.wandb,
            login=lambda: WANDB_LOGIN, samples=directory / "samples",
        )  # fmt: skip
        return Simulation(world, DemoNodeCollector(world, self._submit, monotonic, self._seed), wandb)

    def on_error(self, error: Exception) -> None:
        """Show it as a source that is down, such as a full disk under the demo's files."""
        self._has_failed = True
        message, hint = f"{type(error).__name__}: {error}", "the demo retries every 5s"
        if isinstance(error, TrainmonError):
            message, hint = error.message, error.hint
        elif isinstance(error, OSError):
            message, hint = error.strerror or message, f"check {error.filename or self.directory}"
        self._submit(SourceChanged(Source(
            name=FILES, kind="files", cluster=CLUSTER, health="down", phase="retrying",
            error=f"the demo has stopped: {message}", hint=hint,
        )))  # fmt: skip


TEXT = "accepted by the demo, not sent"
BUSY_EVERY = 4
"""Every fourth message finds the mail server busy, so that a retry is visible."""


class DemoChannel:
    """Accepts a message after a delay, like a remote server."""

    def __init__(self, name: str, kind: str, target: str, *, delay: Seconds, busy: bool = False) -> None:
        self.health = Channel(name=name, type=kind, target=target, note="a demo channel: it sends nothing")
        self._delay = delay
        self._busy = busy
        self._messages = 0

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Send nothing, after a delay.

        Raises:
            Retry: when the channel plays a busy server.
        """
        time.sleep(min(self._delay, timeout))
        self._messages += 1
        if self._busy and self._messages % BUSY_EVERY == 2:
            raise Retry("451 the demo's mail server is busy: try again later", 12.0)
        return Sent(TEXT)


def channels() -> tuple[DemoChannel, ...]:
    """New senders for one notification service."""
    return (
        DemoChannel("phone", "ntfy", "ntfy.example/***", delay=0.7),
        DemoChannel("mail", "apprise", "mailto://***", delay=1.8, busy=True),
    )


ROUTES = (
    Route(channel="phone", severity="warning", heartbeat=False),
    Route(channel="mail", severity="critical", heartbeat=False),
)


# ---- what NCCL would say of the ranks of a run: of one that hangs, one rank stays behind -----------------------------

OPERATIONS = 13
"""Operations of each step."""


def roll_call(run: Run, state: State, now: Instant) -> RankLook:
    """Two answers of the ranks of a run, judged as those of a real one.

    Raises:
        CommandFailed: when no process of it runs.
    """
    processes, attempt = rank_processes(run, state), last_attempts(state.attempts.values()).get(run.name)
    if not processes or attempt is None or attempt.ranks is None:
        raise CommandFailed("the processes of its ranks are not known: no node of it that is read shows them")
    is_silent = run.verdict in SILENT
    first, second = (
        _answer(processes, OPERATIONS * (run.step or 0) + n, is_silent) for n in (0, 0 if is_silent else 40)
    )
    circumstances = Circumstances(
        now - 15.0, now, attempt.ranks, placed(second, processes, attempt.ranks.ranks),
        is_late=is_silent, step=run.step, before=next(iter(run.looks), None),
    )  # fmt: skip
    return call(first, second, circumstances)


def _answer(processes: Mapping[str, Mapping[int, RankProcess]], count: int, is_stuck: bool) -> Answer:
    """Of a rank in the last third, the host has not launched what the others have. The hosts have their names here."""
    ranks = {
        rank: Process(node, one.pid, str(rank % 8)) for node, own in processes.items() for rank, one in own.items()
    }
    late = frozenset({ranks[sorted(ranks)[len(ranks) * 3 // 4]]}) if is_stuck else frozenset()
    sides = {count + 1: frozenset(ranks.values()) - late, **({count: late} if late else {})}
    world = Communicator(len(ranks), {"AllReduce": sides})
    return Answer("2.28.9", {"0x8f4b3d0c21a9e657": world}, frozenset(one[:2] for one in ranks.values()))
