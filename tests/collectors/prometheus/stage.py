"""A poller and an engine that a test steps, with captured answers of a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from collectors.discovery import OverSsh
from collectors.prometheus.collector import PrometheusPoller
from collectors.prometheus.query import Series
from collectors.prometheus.reader import QueryFailed
from tests.collectors.prometheus.captured import NEWEST, series, until
from trainmon.config import ClusterSettings, MetricsSettings
from trainmon.engine.engine import Engine
from trainmon.lib import Instant, Seconds
from trainmon.model import (
    Event,
    Gpu,
    Node,
    Source,
    State,
)

BLANK = "2147483632"
"""DCGM's number for "no value"."""

HOSTS = MetricsSettings(url="http://p", exporter="node")

NODES = ("gpu-001", "me@gpu-002", "gpu-003")


class FakeClock:
    def __init__(self) -> None:
        self.at = NEWEST + 1.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class FakeServer:
    """A server whose answers the test sets: by the part of a query that identifies it."""

    def __init__(self) -> None:
        self.clock_offset: Seconds = 0.0
        self.answers: dict[str, tuple[Series, ...]] = {}
        self.error: QueryFailed | None = None
        self.errors: dict[str, QueryFailed] = {}
        """By the part of a query that fails."""
        self.past_error: QueryFailed | None = None
        self.queries: list[str] = []

    gap = ""

    def query(self, text: str) -> tuple[Series, ...]:
        self.queries.append(text)
        if self.error is not None:
            raise self.error
        for part, error in self.errors.items():
            if part in text:
                raise error
        return next((answer for key, answer in self.answers.items() if key in text), ())

    def query_range(self, text: str, start: Instant, end: Instant, step: Seconds) -> tuple[Series, ...]:
        self.queries.append(f"{text} {end - start:.0f}s by {step:.0f}s")
        if self.past_error is not None:
            raise self.past_error
        if "node_filesystem" in text:
            times = [start + n * step for n in range(int((end - start) / step))]
            return tuple(
                Series(one.metric, tuple((at, str(4e11 + (end - at) * 1e6)) for at in times))
                for one in filesystem()
                if one.metric["__name__"] == "node_filesystem_avail_bytes"
            )
        labels = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": "gpu-001", "gpu": "1"}
        return (
            Series(
                labels,
                tuple((start + n * step, str(40 + n % 10) if n else BLANK) for n in range(int((end - start) / step))),
            ),
        )


class Stage:
    """A poller and an engine, stepped by the test."""

    def __init__(self, *tables: MetricsSettings, nodes: Sequence[str] = NODES) -> None:
        self.clock, self.server, self.nodes = FakeClock(), FakeServer(), nodes
        self.disks: tuple[str, ...] = ()
        """Watched on every node."""
        self.ssh: dict[str, OverSsh] = {}
        self.events: list[Event] = []
        self.engine = Engine(self.clock)
        cluster = ClusterSettings(name="prod", nodes=tuple(nodes), metrics=tables or (MetricsSettings(url="http://p"),))
        self.poller = PrometheusPoller(
            cluster,
            lambda: dict.fromkeys(self.nodes, self.disks),
            lambda node: self.ssh.get(node, OverSsh()),
            self.events.append,
            self.clock,
            lambda settings, now: self.server,
        )
        self.server.answers["DCGM_FI_DEV_GPU_TEMP|"] = series("dcgm")
        self.server.answers["node_load1|"] = series("node")

    def step(self, after: Seconds = 0.0) -> State:
        self.clock.at += after
        self.events.clear()
        for table in self.poller.tables:
            table.step()
        return self.engine.step(self.events, self.clock.now())

    def node(self, name: str = "gpu-001") -> Node:
        return self.engine.state.nodes[name]

    def source(self, name: str = "prometheus:prod:dcgm") -> Source:
        return self.engine.state.sources[name]

    def gpu(self, name: str, index: int) -> Gpu:
        return self.node(name).gpus[index]

    def later(self, seconds: Seconds, change: Callable[[tuple[Series, ...]], tuple[Series, ...]] = tuple) -> None:
        """The server has scraped again."""
        self.server.answers["DCGM_FI_DEV_GPU_TEMP|"] = change(until(series("dcgm"), NEWEST, seconds))


def filesystem(
    at: Instant = NEWEST, mount: str = "/scratch", *, without: tuple[str, ...] = (), **values: float
) -> tuple[Series, ...]:
    """The series of a load and of a filesystem of gpu-001."""
    numbers = {
        "size_bytes": 1e12, "avail_bytes": 4e11, "files": 1e6, "files_free": 9e5, "readonly": 0, "device_error": 0
    } | values  # fmt: skip
    labels = {"instance": "gpu-001.dc:9100", "device": "/dev/nvme0n1", "fstype": "xfs", "mountpoint": mount}
    found = [
        Series({"__name__": f"node_filesystem_{name}", **labels}, ((at, str(value)),))
        for name, value in numbers.items()
        if name not in without
    ]
    return (Series({"__name__": "node_load1", "instance": "gpu-001.dc:9100"}, ((at, "3"),)), *found)
