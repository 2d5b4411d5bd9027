"""The demo as a collector: a thread that advances the world, a directory for its files, a shell and channels.

The shell answers Slurm and lfs commands itself, and runs all others on this machine. The channels send nothing.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar

from collectors.demo.nodes import DemoNodeCollector
from collectors.demo.slurm import USERS, Scheduler
from collectors.demo.stories import CLUSTER, NODES, READER, Schedule
from collectors.demo.wandb import LOGIN as WANDB_LOGIN
from collectors.demo.world import World
from collectors.polling_thread import PollingThread
from collectors.quota import QuotaPoller, QuotaQuery
from collectors.slurm.collector import Poller, Watched
from collectors.wandb.collector import WandbCollector
from trainmon.alerting.notify.message import Message, Retry, Sent
from trainmon.analysis.log_formats import KEEP
from trainmon.lib import Clock, HostUnreachable, Instant, ScratchDirectory, Seconds, SystemClock, TrainmonError
from trainmon.model import Channel, Event, FileSpec, Route, Source, SourceChanged, SourceRemoved
from trainmon.slurm.client import ON_A_LINE, Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, LocalShell, Shell, Sink, Stream

LOGIN = ("bash", "-lc", 'exec "$@"', "bash")
LFS = "lfs"


class DemoShell:
    """A shell on one host of the demo."""

    prompted = False

    def __init__(
        self,
        host: str,
        scheduler: Scheduler,
        quota: Callable[[], str],
        lock: AbstractContextManager[object],
        local: Shell,
    ) -> None:
        """`lock` guards the world: commands come from other threads. `quota` returns the output of lfs."""
        self.host = host
        self._quota = quota
        self._scheduler = scheduler
        self._lock = lock
        self._local = local

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        """Simulate a Slurm or lfs command; run any other command, such as one on a switch file."""
        command = list(argv)  # without its login shell or its `env`
        if tuple(command[: len(LOGIN)]) == LOGIN:
            del command[: len(LOGIN)]
        elif command[:1] == ["env"]:
            del command[0]
            while command and (command[0] == "-u" or "=" in command[0]):
                del command[: 2 if command[0] == "-u" else 1]
        if tuple(command[: len(ON_A_LINE)]) == ON_A_LINE:
            del command[: len(ON_A_LINE)]
        with self._lock:
            if command and self._scheduler.knows(command[0]):
                return self._scheduler.answer(command, stdin)
            if LFS in argv:
                return Completed(0, self._quota().encode(), b"")
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


class Demo(PollingThread):
    """A simulated cluster of 16 nodes. `step` is all of it without its thread."""

    join_timeout: ClassVar[Seconds] = 1.0

    def __init__(
        self,
        submit: Callable[[Event], None],
        *,
        clock: Clock | None = None,
        seed: int = 7,
        speed: float = 1.0,
        directory: Path | None = None,
        story: str | None = None,
        keep: str = KEEP,
        schedule: Schedule | None = None,
        files: Callable[[], Mapping[str, tuple[FileSpec, ...]]] = dict,
    ) -> None:
        """`speed` is that of the world; readings keep their rate. `keep` as in a probe's Spec. `schedule` replaces the
        usual incidents. `files`: the files of attempts to read, by cluster."""
        super().__init__("demo", MAX_STEP, submit, clock or SystemClock())
        self.directory = directory
        """The directory of its files: given, or created at the first step. `stop` removes it."""
        self._speed, self._seed, self._keep = speed, seed, keep
        self._schedule = schedule or Schedule(story)
        self._files = files
        self._world: World | None = None
        self._lock = threading.RLock()
        """Guards the world: commands come from other threads."""
        self._loop = EventLoop()
        self._local = LocalShell(self._loop)
        self._shells: dict[str, DemoShell] = {}
        self._queued: tuple[object, ...] = ()
        """The job queue at the last poll."""
        self._poller = Poller(QUEUE, lambda: Client(self.shell_of(READER)), submit, self._clock)
        self._quota = QuotaPoller(QUOTA, lambda: (READER,), self.shell_of, submit, self._clock)
        self._nodes: DemoNodeCollector | None = None
        self._wandb: WandbCollector | None = None
        self._began = self._at = 0.0
        self._node_requests: deque[Callable[[DemoNodeCollector], None]] = deque(maxlen=64)
        self._has_failed = False
        self._scratch: ScratchDirectory | None = None
        """The directory that it made itself."""

    def stop(self) -> None:
        """Stop the demo and remove its files. Returns within a second."""
        super().stop()
        self._local.close()
        self._loop.stop()
        if self._nodes is not None:
            self._nodes.close()
        if self._world is not None:
            shutil.rmtree(self._world.directory, ignore_errors=True)
        if self._scratch is not None:
            self._scratch.cleanup()

    def refresh(self) -> None:
        """Read everything now and retry all connections; at most once a second."""
        self._node_requests.append(lambda nodes: nodes.refresh(self._clock.monotonic()))
        self._wake.set()
        self._poller.refresh()
        if self._wandb is not None:
            self._wandb.refresh()

    def save_samples(self, run: str, directory: str, reply: Callable[[str], None]) -> None:
        """Write the newest media of a run into a directory; `reply` gets the result as a sentence."""
        if self._wandb is None:
            reply(f"{run} has no samples")
        else:
            self._wandb.save_samples(run, directory, reply)
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
        if host not in NODES or self._world is None:
            raise HostUnreachable(host, f"{host} is not connected")
        world = self._world
        return self._shells.setdefault(
            host, DemoShell(host, Scheduler(world.queue), world.quota, self._lock, self._local)
        )

    def login(self, source: str) -> None:
        """Log in to a source that waits for a login, such as `node:gpu-011`."""
        self._node_requests.append(lambda nodes: nodes.login(source))
        self._wake.set()

    def step(self) -> Seconds:
        """Do all that is due now. Returns the seconds until the next call."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if self._world is None:
            self._world = self._create_world(now)
            self._began = self._at = monotonic
            self._loop.start()
        world = self._world
        if self._nodes is None:
            self._nodes = DemoNodeCollector(world, self._submit, monotonic, self._seed, self._keep)
        passed, self._at = monotonic - self._at, monotonic
        with self._lock:
            started = world.advance(min(passed, MAX_STEP) * self._speed, now)
        while self._node_requests:
            self._node_requests.popleft()(self._nodes)
        self._nodes.read_once(self._files().get(CLUSTER, ()))
        self._nodes.step(started, monotonic, now)
        queued = (*((job.number, job.state, job.reason, job.tasks) for job in world.queue.jobs), *world.queue.drains)
        if queued != self._queued:  # poll it at once when it changes: this controller has no load limit
            self._queued = queued
            self._poller.refresh()
        self._poller.step()
        is_connecting = monotonic - self._began < FIRST_WANDB_POLL
        if not is_connecting:
            if self._wandb is None:
                self._wandb = WandbCollector(
                    world.runs, WANDB_EVERY, self._submit, self._clock, client=lambda: world.wandb,
                    login=lambda: WANDB_LOGIN, samples=world.directory / "samples",
                )  # fmt: skip
            with self._lock:
                self._wandb.step()
            self._quota.step()
        if self._has_failed:
            self._has_failed = False
            self._submit(SourceRemoved(FILES))
        return FIRST_TICK if is_connecting else TICK

    def _create_world(self, now: Instant) -> World:
        """The world in a directory of its own, which `stop` removes.

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
            world = World(directory, now, self._seed, self._schedule)
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.directory = directory
        return world

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
