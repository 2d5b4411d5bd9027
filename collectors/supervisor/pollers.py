"""The pollers of a supervisor, each with a thread of its own: queues, quotas and Prometheus servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from collectors.polling_thread import PollingThread
from collectors.prometheus.nodes import Coverage
from collectors.quota.collector import QuotaPoller
from collectors.slurm.collector import Poller
from trainmon.config import Settings
from trainmon.lib import Clock, Seconds
from trainmon.model import Event

if TYPE_CHECKING:
    from collectors.prometheus.collector import PrometheusPoller

SOON_EVERY: Seconds = 15.0
"""Seconds between two early polls of one source: its host may be overloaded already."""


class Pollers:
    """The pollers of queues and of Prometheus servers, by cluster, and those of quotas. No method blocks."""

    def __init__(
        self,
        queues: Mapping[str, Poller],
        quotas: Sequence[QuotaPoller],
        metrics: Mapping[str, PrometheusPoller],
        clock: Clock,
    ) -> None:
        self.queues = queues
        self._quotas = quotas
        self._metrics = metrics
        self._all: tuple[PollingThread | PrometheusPoller, ...] = (*queues.values(), *quotas, *metrics.values())
        self._clock = clock
        self._polled_soon_at: dict[str, Seconds] = {}

    def start(self) -> None:
        for poller in self._all:
            poller.start()

    def stop(self) -> None:
        for poller in self._all:
            poller.stop()

    def refresh(self) -> None:
        """Poll everything: a person requests it."""
        for poller in self._all:
            poller.refresh()

    def may_poll_soon(self, source: str) -> bool:
        """Whether a source may be polled early; if so, that counts as such a poll."""
        now = self._clock.monotonic()
        if now - self._polled_soon_at.get(source, -SOON_EVERY) < SOON_EVERY:
            return False
        self._polled_soon_at[source] = now
        return True

    def poll_soon(self, source: str) -> None:
        """Poll the queue or the quota of a source."""
        kind, _, name = source.partition(":")
        if kind == "slurm":
            self.poll_queue(name)
        elif kind == "quota":
            for poller in self._quotas:
                if poller.has_source(source):
                    poller.refresh()

    def poll_queue(self, cluster: str) -> None:
        if cluster in self.queues:
            self.queues[cluster].poll_soon()

    def poll_job(self, key: str) -> None:
        """Request a job's details. The key is `prod/88_3`."""
        cluster = key.partition("/")[0]
        if cluster in self.queues:
            self.queues[cluster].poll_job(key)

    def read_past(self, cluster: str | None, node: str) -> None:
        """Read the last day of a node from the Prometheus server of its cluster."""
        if cluster is not None and cluster in self._metrics:
            self._metrics[cluster].view(node)

    def disks_of(self, node: str) -> frozenset[str]:
        """The paths whose disks a Prometheus server has."""
        return frozenset().union(*(poller.disks(node) for poller in self._metrics.values()))

    def nodes_planned(self) -> None:
        """Other nodes may be in sight."""
        for poller in self._metrics.values():
            poller.nodes_planned()

    def connected(self, cluster: str, node: str) -> None:
        """SSH reads a node now. Does not block."""
        if cluster in self._metrics:
            self._metrics[cluster].connected(node)


def metrics_pollers(
    settings: Settings,
    coverage: Coverage,
    over_ssh: Callable[[str], tuple[bool, str | None]],
    submit: Callable[[Event], None],
    clock: Clock,
) -> Mapping[str, PrometheusPoller]:
    """The pollers of Prometheus servers, by cluster. Without a server, their HTTP client is not imported."""
    clusters = [cluster for cluster in settings.clusters if cluster.metrics]
    if not clusters:
        return {}
    from collectors.prometheus.collector import prometheus_pollers
    from collectors.prometheus.nodes import OverSsh

    return prometheus_pollers(clusters, coverage.nodes, lambda host: OverSsh(*over_ssh(host)), submit, clock)
