"""The tables of one cluster do not wait for each other."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from collectors.discovery import OverSsh
from collectors.prometheus.collector import PrometheusPoller
from tests.collectors.prometheus.captured import FOLDER
from tests.lab.daemons import until
from tests.lab.receiver import Answer, Receiver
from trainmon.config import ClusterSettings, MetricsSettings
from trainmon.lib import SystemClock
from trainmon.model import Event, GpuSamples, NodeReading, SourceChanged


@contextmanager
def hung_server() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_server_that_hangs_delays_no_other_table_and_no_stop() -> None:
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    seen: list[Event] = []

    def answers() -> int:
        while not events.empty():
            seen.append(events.get())
        return sum(isinstance(one, NodeReading) and isinstance(one.reading, GpuSamples) for one in seen)

    before = {*threading.enumerate()}
    with Receiver.start() as server, hung_server() as hung:
        server.script(*[Answer("status", 200, (FOLDER / "dcgm.json").read_bytes())] * 50)
        tables = (
            MetricsSettings(url=hung, exporter="node", every=1.0),
            MetricsSettings(url=server.url, every=1.0),
        )
        cluster = ClusterSettings(name="prod", nodes=("gpu-001",), metrics=tables)
        poller = PrometheusPoller(cluster, lambda: {"gpu-001": ()}, lambda node: OverSsh(), events.put, SystemClock())
        for table in poller.tables:
            table.start()
        until(lambda: answers() and len(server.requests) >= 3, "the GPUs are polled while the other table waits", 8.0)
        polling = [one for one in {*threading.enumerate()} - before if one.name.startswith("prometheus prod")]
        began = time.monotonic()
        for table in poller.tables:
            table.stop()
        assert time.monotonic() - began < 5.0, "a poll gives up after 10s"
    assert sorted(one.name for one in polling) == ["prometheus prod dcgm", "prometheus prod node"]
    hosts = [one.source for one in seen if isinstance(one, SourceChanged) and one.source.name == "prometheus:prod:node"]
    assert [one.phase for one in hosts] == ["connecting"], "it has neither answered nor failed yet"
