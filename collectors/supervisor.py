"""Watches all hosts of the settings: one Watch each, one thread that ticks them and places the shared files."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.nodes import Watch
from collectors.placement import Plan, merged, place
from trainmon import steps
from trainmon.clock import Clock, Seconds, SystemClock
from trainmon.config import ClusterSettings, ConnectSettings, Settings, formats, run_specs
from trainmon.model import DisksChanged, Event, RunsChanged, RunSpec
from trainmon.reader import Reader, raise_descriptor_limit
from trainmon.readings import Spec
from trainmon.shell import Local, Shell

if TYPE_CHECKING:
    from trainmon.ssh import Dialer

log = logging.getLogger(__name__)

TICK = 0.5
REFRESH_EVERY = 5.0
"""Seconds between two refreshes that a person may ask for."""

Ask = Callable[[str, str, str, tuple[tuple[str, bool], ...]], tuple[str, ...] | None]


class Supervisor:
    """The living end of the settings. `ask` puts login questions to a person; None means that nobody is there."""

    def __init__(
        self,
        settings: Settings,
        submit: Callable[[Event], None],
        *,
        ask: Ask | None,
        clock: Clock | None = None,
        ssh_config: Path | None = None,
    ) -> None:
        self._submit = submit
        self._ask = ask
        self._clock = clock or SystemClock()
        self._ssh_config = ssh_config
        self._reader = Reader()
        self._settings = settings
        self._runs = run_specs(settings)
        self._plans = tuple(plan(settings, cluster, self._runs) for cluster in settings.clusters)
        self._dialling: list[Dialling] = []
        self._watches: dict[str, Watch] = {}
        self._wake = threading.Event()
        self._stopping = False
        self._refreshed_at: Seconds = -REFRESH_EVERY
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._submit(RunsChanged(self._runs))
        self._submit(DisksChanged({disk.path: disk.usable for disk in self._settings.disks if disk.usable < 1}))
        for cluster, watched in zip(self._settings.clusters, self._plans, strict=True):
            dialling = Dialling(self._reader, cluster.connect, self._ask, self._ssh_config)
            self._dialling.append(dialling)
            for host in watched.hosts:
                if host in self._watches:  # it is the other cluster's too
                    continue
                is_here = host == here() and host not in (cluster.nodes or ()) and host != cluster.login
                watch = Watch(
                    host,
                    cluster.name,
                    self._local if is_here else partial(dialling.dial, host),
                    self._submit,
                    self._clock,
                    python=sys.executable if is_here else cluster.python,
                )
                watch.wake = self._wake.set
                self._watches[host] = watch
        self._place()
        self._thread.start()

    def stop(self) -> None:
        """Let go of all hosts; under a second, whatever hangs."""
        self._stopping = True
        self._wake.set()
        for watch in self._watches.values():
            watch.stop()
        for dialling in self._dialling:
            dialling.close()
        self._reader.stop()

    def refresh(self) -> None:
        """Dial what waits for its next try now; at most every 5 s."""
        now = self._clock.monotonic()
        if now - self._refreshed_at >= REFRESH_EVERY:
            self._refreshed_at = now
            for watch in self._watches.values():
                watch.hurry()
            self._wake.set()

    def login(self, source: str) -> None:
        """Try to log in to one held host again."""
        watch = self._watches.get(source.removeprefix("node:"))
        if watch is not None:
            watch.login()
            self._wake.set()

    def _run(self) -> None:
        raise_descriptor_limit()
        self._reader.start()
        while not self._stopping:
            for watch in self._watches.values():
                self._tick(watch)
            self._wake.wait(TICK)
            self._wake.clear()
            self._place()

    @staticmethod
    def _tick(watch: Watch) -> None:
        try:
            watch.tick()
        except Exception:  # such as no more threads: this host waits for its next tick, the others go on
            log.exception("%s could not be looked after", watch.name)

    def _place(self) -> None:
        """Tell every host what to look at, given who answers now."""
        specs: dict[str, Spec] = {}
        implied: set[str] = set()
        named: set[str] = set()
        for watched in self._plans:
            up = {host for host in watched.hosts if self._watches[host].is_up and self._watches[host].reads_files}
            implied.update(watched.implied_disks)
            named.update((*watched.shared_disks, *watched.node_disks))
            for host, spec in place(watched, up).items():
                specs[host] = merged(specs[host], spec) if host in specs else spec
        for host, spec in specs.items():
            self._watches[host].watch(spec, frozenset(implied - named))

    def _local(self) -> Local:
        return Local(self._reader)


class Dialling:
    """One Dialer a cluster, made (and paramiko imported) when its first host is dialled."""

    def __init__(self, reader: Reader, connect: ConnectSettings, ask: Ask | None, ssh_config: Path | None) -> None:
        self._reader = reader
        self._connect = connect
        self._ask = ask
        self._ssh_config = ssh_config
        self._lock = threading.Lock()
        self._dialer: Dialer | None = None

    def dial(self, host: str) -> Shell:
        return self._made().dial(host)

    def _made(self) -> Dialer:
        from trainmon.ssh import Dialer

        with self._lock:
            if self._dialer is None:
                self._dialer = Dialer(
                    self._reader,
                    ask=self._ask,
                    at_once=self._connect.at_once,
                    timeout=self._connect.timeout,
                    config_file=self._ssh_config,
                )
            return self._dialer

    def close(self) -> None:
        if self._dialer is not None:
            self._dialer.close()


def here() -> str:
    """What this machine is called as a node."""
    return socket.gethostname().partition(".")[0] or "localhost"


def plan(settings: Settings, cluster: ClusterSettings, runs: tuple[RunSpec, ...]) -> Plan:
    """What one cluster of the settings wants to be watched. With no [[disk]], every node's root disk is."""
    own = tuple(run for run in runs if run.cluster == cluster.name)
    nodes = tuple(dict.fromkeys((*(cluster.nodes or ()), *(node for run in own for node in run.nodes))))
    disks = {on: tuple(disk.path for disk in settings.disks if disk.on == on) for on in ("login", "nodes", "run")}
    wants_files = bool(own or disks["login"])
    hosts = nodes
    if cluster.login is not None:
        hosts = (cluster.login, *nodes)
    elif wants_files or not nodes:
        hosts = (here(), *nodes)
    return Plan(
        cluster=cluster.name,
        hosts=tuple(dict.fromkeys(hosts)),
        nodes=frozenset(nodes or hosts),
        period=cluster.every,
        runs=own,
        shared_disks=disks["login"],
        node_disks=disks["nodes"] or (() if settings.disks else ("/",)),
        run_disks=disks["run"],
        keep=steps.keep((*formats(settings), *steps.FORMATS)),
    )
