"""The demo's node collector: connections and readings of its nodes, as events at a real collector's rate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

import msgspec

from collectors.demo.connection import PERIOD, Connection, Outage
from collectors.demo.model.inventory import CLUSTER, NODES, READER
from collectors.demo.stories import Incident
from collectors.demo.world.world import World
from collectors.probe.files.checkpoints import Checkpoints
from collectors.probe.files.logs import Logs
from collectors.probe.files.switches import Switches
from trainmon.lib import Instant, Seconds
from trainmon.model import AnyReading, Event, LogSpec, NodeReading, RunsChanged, SourceChanged, Spec, Xid

STAGGER: Seconds = 0.055
AT_ONCE = 4
"""Nodes that are up at the start, so that the first frame has numbers."""
SLOW: Seconds = 30.0
DISKS_EVERY: Seconds = 10.0
OUTAGES: tuple[Outage, ...] = ("node", "reboot", "login")


class DueTimes:
    """When the next readings of one node are due."""

    def __init__(self, at: Seconds) -> None:
        self.sample = at
        self.slow = at
        self.disks = at


class DemoNodeCollector:
    """Collects readings from a world. `step` submits all that are due."""

    def __init__(self, world: World, submit: Callable[[Event], None], at: Seconds, seed: int, keep: str) -> None:
        self._world = world
        self._submit = submit
        self._random = Random(f"{seed} watch")
        self._at = at
        self._now: Instant = 0.0
        self._refreshed = float("-inf")
        spec = msgspec.to_builtins(_spec(world, keep))
        self._logs = Logs(spec, lambda: self._at)
        self._switches = Switches(spec)
        self._checkpoints = Checkpoints(spec, lambda: self._at, lambda: self._now)
        self._runs = world.runs
        ups = {node: at + max(0, place + 1 - AT_ONCE) * STAGGER for place, node in enumerate(NODES)}
        self._connections = {node: Connection(node, up, self._random) for node, up in ups.items()}
        self._due = {node: DueTimes(up) for node, up in ups.items()}
        submit(RunsChanged(self._runs))
        for connection in self._connections.values():
            submit(SourceChanged(connection.first()))

    def close(self) -> None:
        """Close the logs."""
        self._logs.configure({})

    def step(self, started: Iterable[Incident], at: Seconds, now: Instant) -> None:
        """Submit what is due. `started`: the incidents that just began; `at` is monotonic, `now` the time of day."""
        self._at, self._now = at, now
        if self._world.runs != self._runs:  # a run moved to other nodes
            self._runs = self._world.runs
            self._submit(RunsChanged(self._runs))
        for node in NODES:
            self._connect(node)
        for incident in started:
            host, gpu = incident.node, incident.gpu
            if incident.story == "lost" and host is not None and gpu is not None and self._connections[host].is_up:
                text = f"NVRM: Xid (PCI:0000:{0x19 + 0x11 * gpu:02x}:00): 79, GPU has fallen off the bus."
                t = self._world.nodes[host].clock(now)
                self._submit_reading(host, Xid(v=1, t=t, code=79, index=gpu, text=text, source="kernel"))
        for node in NODES:
            if self._connections[node].is_up and at >= self._due[node].sample:
                for reading in self._readings(node):
                    self._submit_reading(node, reading)

    def refresh(self, at: Seconds) -> None:
        """Make everything due now; at most once a second."""
        if at - self._refreshed < 1.0:
            return
        self._refreshed = at
        for node, connection in self._connections.items():
            connection.retry_now(at)
            self._due[node] = DueTimes(at)

    def login(self, source: str) -> None:
        connection = self._connections.get(source.removeprefix("node:"))
        if connection is not None:
            connection.login()

    def _connect(self, node: str) -> None:
        connection = self._connections[node]
        was_up = connection.is_up
        outage = next((outage for outage in OUTAGES if self._world.is_active(outage, node)), None)
        for source in connection.advance(self._at, self._now, outage):
            self._submit(SourceChanged(source))
        if connection.is_up and not was_up:
            self._due[node] = DueTimes(self._at)
            self._submit_reading(node, self._world.node(node).hello(self._now))

    def _readings(self, name: str) -> Iterator[AnyReading]:
        """The readings of a node's probe in one period."""
        at, now, due, node = self._at, self._now, self._due[name], self._world.node(name)
        due.sample = at + PERIOD * self._random.uniform(0.97, 1.03)
        is_slow = at >= due.slow
        if is_slow:
            due.slow = at + SLOW
            yield node.facts(now)
        yield node.samples(now)
        yield node.host(now)
        if at >= due.disks:
            due.disks = at + DISKS_EVERY
            yield node.disks(now, self._world.shared_disks() if name == READER else ())
        if name == READER:
            for section in (self._logs, self._switches, self._checkpoints):  # real files, read by the probe's own code
                for _, operation in section.operations(is_slow):
                    for reading in operation():
                        yield msgspec.convert({"v": 1, "t": node.clock(now), **reading}, AnyReading)

    def _submit_reading(self, node: str, reading: AnyReading) -> None:
        self._submit(NodeReading(node=node, cluster=CLUSTER, received_at=self._now, reading=reading))


def _spec(world: World, keep: str) -> Spec:
    """The Spec that a real probe would get for these runs."""
    switches = tuple(path for run in world.runs for path in (run.kill_switch, run.save_switch) if path)
    logs = tuple(LogSpec(id=run.name, pattern=run.log) for run in world.runs if run.log)
    checkpoints = tuple(run.checkpoints for run in world.runs if run.checkpoints)
    return Spec(period=PERIOD, slow=SLOW, logs=logs, switches=switches, checkpoints=checkpoints, keep=keep)
