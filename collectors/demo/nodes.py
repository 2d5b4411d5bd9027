"""The demo's node collector: the connections and readings of its nodes, as events at a real collector's rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Literal

import msgspec

from collectors.demo.stories import CLUSTER, NODES, READER, Incident
from collectors.demo.world import World
from collectors.probe.files.checkpoints import Checkpoints
from collectors.probe.files.contents import Contents
from collectors.probe.files.logs import Logs
from collectors.probe.files.switches import Switches
from trainmon.analysis.runs import status_file
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    AnyReading,
    Event,
    FileSpec,
    LogSpec,
    NodeReading,
    RunsChanged,
    Source,
    SourceChanged,
    Spec,
    Xid,
)

Outage = Literal["node", "reboot", "login"]
"""The reason why there is no connection: the name of a story."""

NOTICED_AFTER: Seconds = 6.0
"""The connection of a silent host fails after this time; until then it is late."""
DIAL_TAKES: Seconds = 0.5
BACK_OFF = (1.0, 2.0, 4.0, 8.0)
"""The pauses before the first retries."""
PERIOD: Seconds = 2.0

ERRORS: dict[Outage, str] = {
    "node": "{}: no data for 6s",
    "reboot": "{} closed the connection: it is going down for a reboot",
    "login": "{} asks for a verification code to log in",
}
HINTS: dict[Outage, str] = {
    "node": "is the node up? press r to retry now",
    "reboot": "trainmon-tui reconnects by itself",
    "login": "press L to log in",
}

STAGGER: Seconds = 0.055
AT_ONCE = 4
"""The number of nodes that are up at the start, so that the first frame has numbers."""
SLOW: Seconds = 30.0
DISKS_EVERY: Seconds = 10.0
OUTAGES: tuple[Outage, ...] = ("node", "reboot", "login")


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
        error, hint = ERRORS[outage].format(self._node), HINTS[outage]
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

    def __init__(self, world: World, submit: Callable[[Event], None], at: Seconds, seed: int, keep: str) -> None:
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
                keep=keep,
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
