"""The demo as a collector: one thread that lets the world go on, and a directory for its files."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from collectors.demo.model.inventory import CLUSTER, NODES, READER
from collectors.demo.nodes import DemoNodeCollector
from collectors.demo.shell import LFS, DemoShell, Hands
from collectors.demo.slurm.scheduler import USERS, Scheduler
from collectors.demo.stories import Script
from collectors.demo.wandb import LOGIN
from collectors.demo.world.world import World
from collectors.quota.collector import QuotaPoller
from collectors.quota.command import QuotaQuery
from collectors.slurm.collector import Poller, Watched
from collectors.wandb.collector import WandbCollector
from trainmon.analysis.log_formats import KEEP
from trainmon.lib import Clock, HostUnreachable, Instant, Seconds, SystemClock, TrainmonError
from trainmon.model import Event, Source, SourceChanged, SourceRemoved
from trainmon.slurm.client import Client
from trainmon.transport.shell import Shell

SPARES = 1
"""Healthy idle nodes wanted; there is one, until something takes it."""
TICK: Seconds = 0.2
FIRST_TICK: Seconds = 0.05
"""While the nodes come up, which takes the first second."""
LONGEST: Seconds = 5.0
"""A laptop that slept goes on where it stopped; it does not write hours of logs at once."""
FILES = "files:demo"
WANDB_EVERY: Seconds = 15.0
"""The shortest that a config may say."""
FIRST_LOOK: Seconds = 1.0
"""At W&B: whole histories come with it, and the first frame should not wait for them."""
SAMPLES = "samples"
QUOTA = QuotaQuery(
    cluster=CLUSTER, path="/fsx", command=(LFS, "quota", "-q", "-u", "me", "/fsx"), parser="lustre", every=60.0
)


class Demo:
    """A living cluster of 16 nodes. `step` is all of it without its thread."""

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
        script: Script | None = None,
    ) -> None:
        """`speed` is that of the world; readings come at their usual pace. `keep` is that of a probe's Spec; `script`
        is what happens, where it is not the usual."""
        self.directory = directory
        """Where its files are: given, or made at the first step. Removed by `stop`."""
        self._submit = submit
        self._clock = clock or SystemClock()
        self._speed, self._seed, self._keep = speed, seed, keep
        self._script = script or Script(story)
        self._world: World | None = None
        self._holding = threading.RLock()
        """Held while the world changes: commands come from the threads of those who act."""
        self._hands = Hands()
        self._shells: dict[str, DemoShell] = {}
        self._queued: tuple[object, ...] = ()
        """What the queue was when it was looked at last."""
        self._poller = Poller(
            Watched(cluster=CLUSTER, login=READER, users=USERS, every=15.0, spares=SPARES, nodes=NODES, required=True),
            lambda: Client(self.shell_of(READER)),
            submit,
            self._clock,
        )
        self._quota = QuotaPoller(QUOTA, lambda: (READER,), self.shell_of, submit, self._clock)
        self._watch: DemoNodeCollector | None = None
        self._wandb: WandbCollector | None = None
        self._began = self._at = 0.0
        self._requests: deque[str | None] = deque(maxlen=64)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_ill = False

    def start(self) -> None:
        """Begin, on a daemon thread."""
        self._thread = threading.Thread(target=self._live, name="demo", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it and remove its files. Returns within a second."""
        self._stopping.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(1.0)
        self._hands.close()
        if self._watch is not None:
            self._watch.close()
        if self._world is not None:
            shutil.rmtree(self._world.directory, ignore_errors=True)

    def refresh(self) -> None:
        """Look at everything again now, and redial what waits; at most once a second."""
        self._ask(None)
        self._poller.refresh()
        if self._wandb is not None:
            self._wandb.refresh()

    def save_samples(self, run: str, directory: str, reply: Callable[[str], None]) -> None:
        """Have the newest media of a run written into a directory, and hand reply a sentence."""
        if self._wandb is None:
            reply(f"{run} has no samples")
        else:
            self._wandb.save_samples(run, directory, reply)
            self._wake.set()

    def hurry(self, cluster: str) -> None:
        """Somebody has acted there: look at the queue now."""
        self._poller.refresh()

    def look_at_job(self, key: str) -> None:
        """A person looks at this job."""
        self._poller.look_at(key)

    def shell_of(self, host: str) -> Shell:
        """A connection to one of its nodes. Raises HostUnreachable for others, and before its first step."""
        if host not in NODES or self._world is None:
            raise HostUnreachable(host, f"{host} is not connected")
        return self._shells.setdefault(host, DemoShell(host, self._answers, self._prints, self._holding, self._hands))

    def _answers(self) -> Scheduler:
        assert self._world is not None
        return Scheduler(self._world.book)

    def _prints(self) -> str:
        assert self._world is not None
        return self._world.quota()

    def login(self, source: str) -> None:
        """A person logs in to a held source, such as `node:gpu-011`."""
        self._ask(source)

    def step(self) -> Seconds:
        """Do all that is due now. Returns the seconds until it should be called again."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        if self._world is None:
            self._world = self._make(now)
            self._began = self._at = monotonic
        if self._watch is None:
            self._watch = DemoNodeCollector(self._world, self._submit, monotonic, self._seed, self._keep)
        passed, self._at = monotonic - self._at, monotonic
        with self._holding:
            begun = self._world.advance(min(passed, LONGEST) * self._speed, now)
        while self._requests:
            source = self._requests.popleft()
            if source is None:
                self._watch.refresh(monotonic)
            else:
                self._watch.login(source)
        self._watch.step(begun, monotonic, now)
        self._poll(self._world)
        if monotonic - self._began >= FIRST_LOOK:
            self._look_at_wandb(self._world)
            self._quota.step()
        return FIRST_TICK if monotonic - self._began < 1.0 else TICK

    def _poll(self, world: World) -> None:
        """Look at the queue as the dashboard does, and as soon as it changes: here is no controller to be spared."""
        jobs = ((entry.number, entry.state, entry.reason, entry.tasks) for entry in world.book.entries)
        queued = (*jobs, *world.book.drains)
        if queued != self._queued:
            self._queued = queued
            self._poller.refresh()
        self._poller.step()

    def _look_at_wandb(self, world: World) -> None:
        """Ask W&B as the dashboard does."""
        if self._wandb is None:
            self._wandb = WandbCollector(
                world.runs, WANDB_EVERY, self._submit, self._clock, client=lambda: world.wandb, login=lambda: LOGIN,
                samples=world.directory / SAMPLES,
            )  # fmt: skip
        with self._holding:
            self._wandb.step()

    def _make(self, now: Instant) -> World:
        directory = _empty(self.directory)
        try:
            world = World(directory, now, self._seed, self._script)
        except OSError:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.directory = directory
        return world

    def _ask(self, source: str | None) -> None:
        """Leave a request for the demo's own thread."""
        self._requests.append(source)
        self._wake.set()

    def _live(self) -> None:
        while not self._stopping.is_set():
            try:
                wait = self.step()
                if self._is_ill:
                    self._is_ill = False
                    self._submit(SourceRemoved(FILES))
            except Exception as error:  # the demo must not end in silence: its fault becomes a source's error
                wait = LONGEST
                self._complain(error)
            self._wake.wait(wait)
            self._wake.clear()

    def _complain(self, error: Exception) -> None:
        """Say what failed, such as a full disk under its files, and that it is tried again."""
        self._is_ill = True
        what, hint = f"{type(error).__name__}: {error}", "it is tried again every 5 s"
        if isinstance(error, TrainmonError):
            what, hint = error.message, error.hint
        elif isinstance(error, OSError):
            what, hint = error.strerror or what, f"look at {error.filename or self.directory}"
        source = Source(
            name=FILES,
            kind="files",
            cluster=CLUSTER,
            health="down",
            phase="retrying",
            error=f"the demo cannot go on: {what}",
            hint=hint,
        )
        self._submit(SourceChanged(source))


def _empty(directory: Path | None) -> Path:
    """A directory for the demo alone: it is removed as a whole at the end."""
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="trainmon-demo-"))
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise TrainmonError(
            f"{directory} is not empty", hint="the demo removes its directory at the end: name a new one"
        )
    return directory
