"""The demo's senses: connections and readings of its nodes at a real collector's pace, out as events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random

import msgspec

from collectors.demo.link import PERIOD, Cut, Link
from collectors.demo.model.inventory import CLUSTER, NODES, READER
from collectors.demo.stories import Act
from collectors.demo.world.world import World
from collectors.probe.files.checkpoints import Checkpoints
from collectors.probe.files.logs import Logs
from collectors.probe.files.switches import Switches
from trainmon.lib import Instant, Seconds
from trainmon.model import AnyReading, Event, LogSpec, NodeReading, RunsChanged, SourceChanged, Spec, Xid

STAGGER: Seconds = 0.055
AT_ONCE = 4
"""Nodes that are up from the very start, so that the first frame has numbers."""
SLOW: Seconds = 30.0
DISKS_EVERY: Seconds = 10.0
CUTS: tuple[Cut, ...] = ("node", "reboot", "login")


class Pace:
    """When the readings of one node are due."""

    def __init__(self, at: Seconds) -> None:
        self.sample = at
        self.slow = at
        self.disks = at


class DemoNodeCollector:
    """Watches a world. `step` submits all that is to be said now."""

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
        self._links = {node: Link(node, up, self._random) for node, up in ups.items()}
        self._paces = {node: Pace(up) for node, up in ups.items()}
        submit(RunsChanged(self._runs))
        for link in self._links.values():
            submit(SourceChanged(link.first()))

    def close(self) -> None:
        """Let go of the logs."""
        self._logs.configure({})

    def step(self, begun: Iterable[Act], at: Seconds, now: Instant) -> None:
        """`begun` is what has just happened in the world; `at` runs evenly, `now` is the time of day."""
        self._at, self._now = at, now
        if self._world.runs != self._runs:  # one has moved to other nodes
            self._runs = self._world.runs
            self._submit(RunsChanged(self._runs))
        for node in NODES:
            self._connect(node)
        for act in begun:
            self._xid(act)
        for node in NODES:
            if self._links[node].is_up and at >= self._paces[node].sample:
                for reading in self._readings(node):
                    self._say(node, reading)

    def refresh(self, at: Seconds) -> None:
        """Everything is due now; at most once a second."""
        if at - self._refreshed < 1.0:
            return
        self._refreshed = at
        for node, link in self._links.items():
            link.hurry(at)
            self._paces[node] = Pace(at)

    def login(self, source: str) -> None:
        link = self._links.get(source.removeprefix("node:"))
        if link is not None:
            link.login()

    def _connect(self, node: str) -> None:
        link = self._links[node]
        was_up = link.is_up
        for source in link.advance(self._at, self._now, self._cut(node)):
            self._submit(SourceChanged(source))
        if link.is_up and not was_up:
            self._paces[node] = Pace(self._at)
            self._say(node, self._world.look(node).hello(self._now))

    def _cut(self, node: str) -> Cut | None:
        return next((cut for cut in CUTS if self._world.happens(cut, node)), None)

    def _xid(self, act: Act) -> None:
        if act.story != "lost" or act.node is None or act.gpu is None or not self._links[act.node].is_up:
            return
        text = f"NVRM: Xid (PCI:0000:{0x19 + 0x11 * act.gpu:02x}:00): 79, GPU has fallen off the bus."
        t = self._world.nodes[act.node].clock(self._now)
        self._say(act.node, Xid(v=1, t=t, code=79, index=act.gpu, text=text, source="kernel"))

    def _readings(self, name: str) -> Iterator[AnyReading]:
        """What the probe of a node says in one period."""
        at, now, pace, node = self._at, self._now, self._paces[name], self._world.look(name)
        pace.sample = at + PERIOD * self._random.uniform(0.97, 1.03)
        is_slow = at >= pace.slow
        if is_slow:
            pace.slow = at + SLOW
            yield node.facts(now)
        yield node.samples(now)
        yield node.host(now)
        if at >= pace.disks:
            pace.disks = at + DISKS_EVERY
            yield node.disks(now, self._world.shared_disks() if name == READER else ())
        if name == READER:
            yield from self._files(node.clock(now), slow=is_slow)

    def _files(self, t: Instant, *, slow: bool) -> Iterator[AnyReading]:
        """Logs, switches and checkpoints, read from the real files by the probe's own code."""
        sections = (self._logs, self._switches, self._checkpoints)
        for _, look in (operation for section in sections for operation in section.operations(slow)):
            for said in look():
                yield msgspec.convert({"v": 1, "t": t, **said}, AnyReading)

    def _say(self, node: str, reading: AnyReading) -> None:
        self._submit(NodeReading(node=node, cluster=CLUSTER, received_at=self._now, reading=reading))


def _spec(world: World, keep: str) -> Spec:
    """What a real probe would be told to watch for these runs."""
    switches = tuple(path for run in world.runs for path in (run.kill_switch, run.save_switch) if path)
    logs = tuple(LogSpec(id=run.name, pattern=run.log) for run in world.runs if run.log)
    shelves = tuple(run.checkpoints for run in world.runs if run.checkpoints)
    return Spec(period=PERIOD, slow=SLOW, logs=logs, switches=switches, checkpoints=shelves, keep=keep)
