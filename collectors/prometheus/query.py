"""Queries in PromQL, and the answers of the HTTP API. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address

import msgspec

from collectors.prometheus.exporters import Exporter
from trainmon.lib import Seconds

NODES_AT_ONCE = 64
"""Nodes of one query: its answer about 8 GPUs each has about 1 MB."""

PORT = re.compile(r":\d+$")


class Series(msgspec.Struct, frozen=True, gc=False):
    """One time series: its labels, `__name__` among them, and its samples, the newest last."""

    metric: Mapping[str, str]
    values: tuple[tuple[float, str], ...] = ()
    value: tuple[float, str] | None = None
    """The only sample of an instant vector."""


class Data(msgspec.Struct, frozen=True, gc=False, rename={"kind": "resultType"}):
    """The result of a query: a matrix, or a vector."""

    result: tuple[Series, ...]
    kind: str = ""


class Answer(msgspec.Struct, frozen=True, gc=False):
    """The answer of the HTTP API."""

    status: str
    data: Data | None = None
    error: str = ""
    error_type: str = msgspec.field(default="", name="errorType")
    """Such as `timeout`, `canceled` or `unavailable`."""
    warnings: tuple[str, ...] = ()
    """Thanos: which stores did not answer. Prometheus: also remarks about the query, which begin with `PromQL `."""
    partial: bool = msgspec.field(default=False, name="isPartial")
    """VictoriaMetrics in a cluster: whether a storage node did not answer."""

    @property
    def gap(self) -> str:
        """Why series may be missing; empty if none are. See "Partial Response" of thanos.io/tip/components/query.md."""
        told = next((text for text in self.warnings if not text.startswith("PromQL ")), "")
        return told or ("a storage node did not answer" if self.partial else "")


DECODER = msgspec.json.Decoder(Answer)


@lru_cache(maxsize=8_192)
def short_name(node: str) -> str:
    """The name by which a node and the value of a label are compared: without user, domain and port."""
    name = node.rpartition("@")[2]
    name = PORT.sub("", name) if name.count(":") == 1 or name.startswith("[") else name
    name = name.strip("[]")
    try:
        return str(ip_address(name))
    except ValueError:
        return name.partition(".")[0].lower()


def chunks(nodes: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(nodes), NODES_AT_ONCE):
        yield nodes[start : start + NODES_AT_ONCE]


def selector(exporter: Exporter, names: Iterable[str], match: str, *more: str) -> str:
    """A selector of these metrics of the cluster."""
    listed = "|".join(names)
    return "{" + ",".join(filter(None, (f'__name__=~"{listed}"', match, exporter.matchers, *more))) + "}"


def of_nodes(label: str, nodes: Iterable[str]) -> str:
    """A matcher of these nodes, with or without a domain and a port."""
    listed = "|".join(_escaped(short_name(node)) for node in nodes)
    return f'{label}=~"(?i)\\\\[?(?:{listed})\\\\]?(?:\\\\..*)?(?::[0-9]+)?"'


def at_mount_points(points: Iterable[str]) -> str:
    """A matcher of the filesystems that are mounted there. Metrics of other things have no mount point."""
    return f'mountpoint=~"|{"|".join(map(_escaped, points))}"'


def _escaped(name: str) -> str:
    """A name as a regular expression inside a string of PromQL."""
    pattern = re.sub(r"([^\w/-])", r"\\\1", name)
    return pattern.replace("\\", "\\\\").replace('"', '\\"')


def newest(exporter: Exporter, label: str, nodes: Sequence[str], match: str, window: Seconds, *more: str) -> str:
    """The samples of the last `window` seconds of all metrics of these nodes, each with its own time."""
    return f"{selector(exporter, exporter.metrics, match, of_nodes(label, nodes), *more)}[{round(window)}s]"


def cpu_counts(exporter: Exporter, label: str, nodes: Sequence[str], match: str) -> str:
    """The number of CPUs of these nodes."""
    series = selector(exporter, [exporter.cpus], match, of_nodes(label, nodes), 'mode="idle"')
    return f"count by ({label}) ({series})"


def past(exporter: Exporter, label: str, node: str, match: str, fields: Iterable[str]) -> str:
    """The metrics of one node that are plotted."""
    found = [metric for field in fields if (metric := exporter.metric_of(field)) is not None]
    names = [name for name, _ in found]
    if "info" in {field for field, _ in exporter.metrics.values()}:
        names += [name for name, (field, _) in exporter.metrics.items() if field == "info"]
    return selector(exporter, names, match, of_nodes(label, [node]))


def past_of_disks(exporter: Exporter, label: str, nodes: Sequence[str], match: str, points: Iterable[str]) -> str:
    """What was free on the filesystems at these mount points, and their sizes."""
    found = (exporter.metric_of(field) for field in ("free_bytes", "free_inodes", "total_bytes"))
    names = [metric[0] for metric in found if metric is not None]
    return selector(exporter, names, match, of_nodes(label, nodes), at_mount_points(points))


def label_values(exporter: Exporter, labels: Iterable[str], match: str) -> str:
    """One series for each value of the labels of nodes, whatever the nodes are."""
    return f"count by ({', '.join(labels)}) ({selector(exporter, [exporter.presence], match)})"


def any_series(exporter: Exporter, match: str) -> str:
    """One series of the exporter, with its labels."""
    return f"topk(1, {selector(exporter, [exporter.presence], match)})"


def label_of(labels: Mapping[str, str], names: Iterable[str]) -> str | None:
    """The first of these labels that a series has."""
    for name in names:
        if labels.get(name):
            return labels[name]
    return None
