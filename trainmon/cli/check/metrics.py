"""Checks the Prometheus servers of the clusters: one query for each metrics table."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from trainmon.cli.check.output import Row
from trainmon.config import ClusterSettings, MetricsSettings, Settings
from trainmon.lib import Clock, SystemClock, counted, duration

if TYPE_CHECKING:
    from collectors.prometheus.reader import MetricsReader

SHOWN = 5
"""Nodes that are listed by name."""


def check_metrics(
    settings: Settings,
    nodes_of_jobs: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    environ: Mapping[str, str] = os.environ,
    clock: Clock | None = None,
) -> list[Row]:
    """The rows of all metrics tables. Without one, nothing is imported. `nodes_of_jobs`: by cluster, those that the
    config does not name."""
    now = (clock or SystemClock()).now
    tables = [(cluster, table) for cluster in settings.clusters for table in cluster.metrics]
    by_name = {cluster.name: _nodes(cluster) or nodes_of_jobs.get(cluster.name, ()) for cluster in settings.clusters}
    disks = tuple(disk.path for disk in settings.disks if disk.on == "nodes")
    return [
        row for cluster, table in tables for row in _table(cluster, table, by_name[cluster.name], disks, environ, now)
    ]


def _nodes(cluster: ClusterSettings) -> tuple[str, ...]:
    """The nodes that the config names; its login host if that is the only one."""
    return cluster.nodes or ((cluster.login,) if cluster.nodes is not None and cluster.login else ())


def _table(
    cluster: ClusterSettings,
    table: MetricsSettings,
    nodes: tuple[str, ...],
    disks: tuple[str, ...],
    environ: Mapping[str, str],
    now: Callable[[], float],
) -> Iterator[Row]:
    from collectors.prometheus.client import PrometheusClient, QueryFailed
    from collectors.prometheus.reader import MetricsReader

    what = f"{cluster.name}, {table.exporter}"
    client = PrometheusClient(table, now, environ)
    reader = MetricsReader(table, client, now)
    try:
        if not nodes:  # no job of the runs is known
            yield _labels(reader, what)
            return
        found = reader.read(nodes, dict.fromkeys(nodes, disks))
    except QueryFailed as failure:
        yield Row("bad", "Prometheus", what, failure.message, failure.hint)
        return
    age = duration(max(0.0, now() - reader.ours(max(node.at for node in found.values()))))
    gpus = sum(len(node.gpus) for node in found.values())
    of_gpus = "" if reader.exporter.is_host else f" with {counted(gpus, 'GPU')}"
    text = f"{counted(len(found), 'node')}{of_gpus}; the newest sample is {age} old"
    yield Row("note" if reader.gap else "ok", "Prometheus", what, "; ".join(filter(None, (text, reader.note))))
    if abs(client.clock_offset) > 0:
        way = "ahead of" if client.clock_offset > 0 else "behind"
        text = f"the clock of the server is {abs(client.clock_offset):.0f}s {way} the clock of this machine"
        yield Row("note", "Prometheus", what, text, "correct one of them: chronyc tracking")
    absent = [node for node in nodes if node not in found]
    silent = [node for node, numbers in found.items() if reader.is_silent(reader.ours(numbers.at))]
    for without, some in (("series", absent), ("new samples", silent)):
        if some:
            more = f" and {len(some) - SHOWN} more" if len(some) > SHOWN else ""
            text = f"{len(some)} of {counted(len(nodes), 'node')} without {without}: {', '.join(some[:SHOWN])}{more}"
            yield Row("note", "Prometheus", what, text, reader.scrape_hint)


def _labels(reader: MetricsReader, what: str) -> Row:
    label, seen = reader.label_values()
    if not seen:
        raise reader.why_empty(())
    more = f" and {len(seen) - SHOWN} more" if len(seen) > SHOWN else ""
    text = f"{label} has {counted(len(seen), 'value')}: {', '.join(seen[:SHOWN])}{more}"
    return Row("ok", "Prometheus", what, text)
