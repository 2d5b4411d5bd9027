"""Watches all hosts of the settings, and those that the runs' jobs are on: one Watch each, one thread that ticks them
and places the shared files. What the queues say comes on their own threads."""

from __future__ import annotations

import logging
import queue
import sys
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from collectors.assignment import WatchPlan, assign, merge, stand_in_specs
from collectors.connections import Connections, is_local, local_hostname
from collectors.discovery import RunDiscovery
from collectors.nodes.collector import NodeCollector
from collectors.quota.collector import QuotaCollector
from collectors.slurm.collector import Poller
from collectors.slurm.pollers import MakeQueue, SlurmPollers
from collectors.targets import configured_cluster, disks_changed, watch_plan
from trainmon.config import ClusterSettings, Settings
from trainmon.lib import Clock, HostUnreachable, Seconds, SystemClock
from trainmon.model import ClustersChanged, Event, Job, RunsChanged, SourceRemoved, Spec
from trainmon.transport.event_loop import EventLoop, raise_descriptor_limit
from trainmon.transport.local import LocalShell
from trainmon.transport.shell import AskUser, Shell

log = logging.getLogger(__name__)

TICK = 0.5
REFRESH_EVERY = 5.0
"""Seconds between two refreshes that a person may ask for."""

HURRY_EVERY: Seconds = 15.0
"""Seconds between two looks at one source that suspicion may ask for: its host may be in trouble already."""

STAYS: Seconds = 600.0
"""How long a node is shown, as off, after the job for which it was watched."""

JOB_ENDED = "its job ended"


class Supervisor:
    """The living end of the settings. `ask` puts login questions to a person; None means that nobody is there."""

    def __init__(
        self,
        settings: Settings,
        submit: Callable[[Event], None],
        *,
        ask: AskUser | None,
        clock: Clock | None = None,
        ssh_config: Path | None = None,
        make_queue: MakeQueue = Poller,
    ) -> None:
        self._submit = submit
        self._clock = clock or SystemClock()
        self._loop = EventLoop()
        self._local = LocalShell(self._loop, host=local_hostname())
        self._settings = settings
        self._following = RunDiscovery(settings)
        self._plans: tuple[WatchPlan, ...] = ()
        self._dialling = {
            cluster.name: Connections(self._loop, cluster.connect, ask, ssh_config) for cluster in settings.clusters
        }
        self._queues = SlurmPollers(settings, self._shell_of_cluster, submit, self._clock, self._seen, make_queue)
        self._specs: dict[str, Spec] = {}
        """What every host looks at now."""
        self._lent: dict[str, Spec] = {}
        """What of it in the place of another host."""
        self._quotas = QuotaCollector(settings, self._who_sees, self.shell_of, submit, self._clock)
        self._changing = threading.Lock()
        """Held while the hosts that are watched change: the queues of several clusters may speak at once."""
        self._watches: dict[str, NodeCollector] = {}
        """Replaced as a whole, never changed: other threads read it."""
        self._left: dict[str, Seconds] = {}
        """Since when a host is watched for no job any more."""
        self._hurried: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = False
        self._refreshed_at: Seconds = -REFRESH_EVERY
        self._hurried_at: dict[str, Seconds] = {}
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._submit(ClustersChanged(tuple(configured_cluster(cluster) for cluster in self._settings.clusters)))
        self._submit(RunsChanged(self._following.runs))
        self._submit(disks_changed(self._settings))
        with self._changing:
            self._plan()
        self._place()
        self._thread.start()
        self._queues.start()
        self._quotas.start()

    def stop(self) -> None:
        """Let go of all hosts; under a second, whatever hangs."""
        with self._changing:  # what a queue says from now on makes no new watch
            self._stopping = True
        self._wake.set()
        for watch in self._watches.values():
            watch.stop()
        for dialling in self._dialling.values():
            dialling.close()
        self._local.close()
        self._queues.stop()  # whose commands have just been ended
        self._quotas.stop()
        self._loop.stop()

    def refresh(self) -> None:
        """Dial what waits for its next try now, and look at the queues; at most every 5 s."""
        now = self._clock.monotonic()
        if now - self._refreshed_at >= REFRESH_EVERY:
            self._refreshed_at = now
            for watch in self._watches.values():
                watch.refresh()
            self._queues.refresh()
            self._quotas.refresh()
            self._wake.set()

    def login(self, source: str) -> None:
        """Try to log in to one held host again."""
        watch = self._watches.get(source.removeprefix("node:"))
        if watch is not None:
            watch.login()
            self._wake.set()

    def shell_of(self, host: str) -> Shell:
        """The live connection of a watched host, or this machine; never a second login. Raises HostUnreachable with
        the words of the host's row where there is none."""
        watch = self._watches.get(host)
        if watch is not None and watch.is_dialled:
            return watch.shell
        if host == local_hostname():
            return self._local
        raise HostUnreachable(host, f"{host} is not watched", hint="name it in the config")

    def hurry_slurm(self, cluster: str) -> None:
        """Something was done there: look at its queue soon."""
        self._queues.hurry(cluster)

    def hurry(self, source: str) -> None:
        """Something may be wrong with what this source tells: look sooner, each at most every HURRY_EVERY."""
        now = self._clock.monotonic()
        if now - self._hurried_at.get(source, -HURRY_EVERY) < HURRY_EVERY:
            return
        self._hurried_at[source] = now
        kind, _, name = source.partition(":")
        watch = self._watches.get(name)
        if kind == "slurm":
            self._queues.hurry(name)
        elif kind == "quota":
            self._quotas.hurry(source)
        elif kind == "node" and watch is not None:
            watch.refresh()
            self._wake.set()

    def look_at_job(self, key: str) -> None:
        """A person looks at a job: ask for its details."""
        self._queues.look_at(key)

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        raise_descriptor_limit()
        self._loop.start()
        while not self._stopping:
            for watch in self._watches.values():
                self._tick(watch)
            self._wake.wait(TICK)
            self._wake.clear()
            self._ask_queues()
            self._forget()
            self._place()

    @staticmethod
    def _tick(watch: NodeCollector) -> None:
        try:
            watch.tick()
        except Exception:  # such as no more threads: this host waits for its next tick, the others go on
            log.exception("%s could not be looked after", watch.name)

    def _ask_queues(self) -> None:
        """Have the queues looked at that may explain a loss."""
        while not self._hurried.empty():
            self._queues.hurry(self._hurried.get())

    def _place(self) -> None:
        """Tell every host what to look at, given who answers now."""
        specs: dict[str, Spec] = {}
        borrowed: dict[str, Spec] = {}
        implied: set[str] = set()
        named: set[str] = set()
        plans, watches = self._plans, self._watches  # in this order: those of a newer plan are there by then
        for watched in plans:
            up = {host for host in watched.hosts if watches[host].is_up and watches[host].reads_files}
            implied.update(watched.implied_disks)
            named.update((*watched.shared_disks, *watched.node_disks))
            is_awaited = bool(watched.hosts) and watches[watched.hosts[0]].is_awaited
            _add(specs, assign(watched, up, is_awaited=is_awaited))
            _add(borrowed, stand_in_specs(watched, up, is_awaited=is_awaited))
        for host, spec in specs.items():
            watches[host].watch(spec, frozenset(implied - named), borrowed.get(host))
        self._specs, self._lent = specs, borrowed

    def named_disks(self) -> frozenset[tuple[str, str]]:
        """The paths of the config that hosts look at for themselves, each with its host; from any thread. What hangs on
        a host that stands in for another is discarded, so nobody can wait for it."""
        named = {path for plan in self._plans for path in (*plan.shared_disks, *plan.node_disks)}
        specs, stand_in = self._specs, self._lent
        return frozenset(
            (host, path)
            for host, spec in specs.items()
            for path in spec.disks
            if path in named and not (host in stand_in and path in stand_in[host].disks)
        )

    def _who_sees(self, cluster: str, path: str) -> list[str]:
        """The hosts of a cluster that look at a path now for themselves, and answer: who stands in for another may be
        another user there. On the threads of the quotas."""
        watches, stand_in = self._watches, self._lent
        return [
            host
            for host, spec in self._specs.items()
            if path in spec.disks
            and host in watches
            and watches[host].cluster == cluster
            and watches[host].is_up
            and not (host in stand_in and path in stand_in[host].disks)
        ]

    # ---- the hosts, as they come and go ------------------------------------------------------------------------------

    def _seen(self, cluster: str, jobs: tuple[Job, ...], me: str) -> None:
        """A queue was looked at. On its poller's thread."""
        with self._changing:
            if self._stopping:
                return
            before = self._following.nodes(cluster)
            has_changed = self._following.seen(cluster, jobs, me or None, self._clock.now())
            if has_changed:
                self._submit(RunsChanged(self._following.runs))
            if has_changed or self._following.nodes(cluster) != before:
                self._plan()
        for watch in self._watches.values():
            if watch.cluster == cluster:
                watch.queue_polled()
                if watch.backoff.may_log_in_again():
                    watch.login()
        self._wake.set()

    def _plan(self) -> None:
        """Watch what is to be watched now, and let go of the rest."""
        runs = self._following.runs
        plans = tuple(
            watch_plan(self._settings, cluster, runs, self._following.nodes(cluster.name))
            for cluster in self._settings.clusters
        )
        watches = dict(self._watches)
        for cluster, watched in zip(self._settings.clusters, plans, strict=True):
            for host in watched.hosts:
                if host not in watches:  # it may be the other cluster's too
                    watches[host] = self._watch(cluster, host, host in watched.nodes)
                elif host in self._left:
                    watches[host].resume()
        wanted = {host for watched in plans for host in watched.hosts}
        now = self._clock.monotonic()
        for host in watches.keys() - wanted - self._left.keys():
            watches[host].release(JOB_ENDED)
        self._left = {host: self._left.get(host, now) for host in watches.keys() - wanted}
        self._watches, self._plans = watches, plans

    def _watch(self, cluster: ClusterSettings, host: str, is_node: bool) -> NodeCollector:
        local = is_local(cluster, host)
        dial = partial(LocalShell, self._loop) if local else partial(self._dialling[cluster.name].dial, host)
        python = sys.executable if local else cluster.python
        watch = NodeCollector(host, cluster.name, dial, self._submit, self._clock, python=python)
        watch.is_dialled = not local
        watch.wake = self._wake.set
        if is_node and host != cluster.login and not local:
            watch.backoff.is_ours = partial(self._following.is_ours, cluster.name, host)
            watch.backoff.ask_queue = partial(self._ask_queue, cluster.name)
        return watch

    def _ask_queue(self, cluster: str) -> None:
        """Called with a Watch's lock held: the queue is told on our own thread."""
        self._hurried.put(cluster)
        self._wake.set()

    def _forget(self) -> None:
        """Let nodes go from the screen some time after their last job."""
        now = self._clock.monotonic()
        if not any(now - since >= STAYS for since in self._left.values()):
            return
        with self._changing:
            gone = [host for host, since in self._left.items() if now - since >= STAYS]
            watches = {host: watch for host, watch in self._watches.items() if host not in gone}
            for host in gone:
                self._watches[host].stop()
                self._submit(SourceRemoved(f"node:{host}"))
                del self._left[host]
            self._watches = watches

    def _shell_of_cluster(self, cluster: ClusterSettings) -> Shell:
        """Where a cluster's scheduler is asked."""
        return self._local if cluster.login is None else self.shell_of(cluster.login)


def _add(specs: dict[str, Spec], more: Mapping[str, Spec]) -> None:
    """Those of another cluster, with which a host may be shared."""
    for host, spec in more.items():
        specs[host] = merge(specs[host], spec) if host in specs else spec
