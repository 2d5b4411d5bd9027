"""The tables of `[[cluster]] metrics`: Prometheus servers that have the numbers of GPUs and hosts."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import msgspec

from trainmon.config.notify import Headers, login_conflicts
from trainmon.config.table import Table
from trainmon.config.types import InvalidValue, Secret, ValueType, describe, quoted
from trainmon.config.units import polling_period
from trainmon.lib import Seconds

LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MATCHER = r"""\s*[A-Za-z_][A-Za-z0-9_]*\s*(?:=~|!~|!=|=)\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*"""
MATCHERS = re.compile(rf"(?:{MATCHER}(?:,{MATCHER})*,?\s*)?")
LOGIN = "authorization"
GPU_EXPORTERS = ("dcgm", "nvidia_gpu", "all-smi")


def parse_http_address(value: object) -> str:
    """The address of a server, without a slash at its end.

    Raises:
        InvalidValue: when it is none, or holds a password: it is shown on screens.
    """
    try:
        parts = urllib.parse.urlsplit(value if isinstance(value, str) else "")
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good or not isinstance(value, str) or not value.isprintable() or " " in value:
        raise InvalidValue('must be a URL such as "http://prometheus:9090"')
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidValue('must have no user, password or "?"; set "user" and "password" beside it')
    return value.rstrip("/").removesuffix("/api/v1")


def parse_label(value: object) -> str:
    """The name of a label.

    Raises:
        InvalidValue: when it is none.
    """
    if not isinstance(value, str) or LABEL.fullmatch(value) is None:
        raise InvalidValue(f'must be the name of a label such as "instance", not {describe(value)}')
    return value


def parse_matchers(value: object) -> str:
    """Label matchers, without braces.

    Raises:
        InvalidValue: when they are none.
    """
    if not isinstance(value, str) or MATCHERS.fullmatch(value) is None:
        raise InvalidValue(f"must be label matchers such as 'cluster=\"a\"', not {describe(value)}")
    return value.strip().rstrip(",")


HttpAddress = Annotated[str, ValueType("a URL", parse_http_address)]
LabelName = Annotated[str, ValueType("the name of a label", parse_label)]
Matchers = Annotated[str, ValueType("label matchers of PromQL", parse_matchers)]
MetricsPeriod = Annotated[Seconds, polling_period("Prometheus has no newer numbers", shortest=1.0)]


class MetricsSettings(Table, frozen=True, kw_only=True):
    """A Prometheus server, or anything with its HTTP API, that has the numbers of the nodes."""

    url: HttpAddress
    """The address of the server, without `/api/v1`. May have a path, such as that of Mimir or Thanos."""
    exporter: Literal["dcgm", "nvidia_gpu", "all-smi", "node"] = "dcgm"
    """The exporter whose metrics are read: dcgm-exporter, nvidia_gpu_exporter or all-smi for GPUs, node_exporter for
    hosts. For both kinds, write a list of two tables."""
    node_label: LabelName | None = None
    """The label that names the node. A port and a domain in its value are ignored. Without it: `instance`;
    for `dcgm`, `Hostname` and `hostname`. Either of these two stands for both."""
    match: Matchers = ""
    """Label matchers of PromQL that select the series of this cluster, such as `cluster="a"`."""
    token: Secret | None = None
    """The bearer token. It is read again for each request, so its file may be renewed. Never shown."""
    user: str | None = None
    """A user name for basic authentication, instead of a token."""
    password: Secret | None = None
    """The password of that user, read like the token. Never shown."""
    headers: Headers = msgspec.field(default_factory=dict)
    """HTTP headers, such as the tenant of Mimir: `{ X-Scope-OrgID = "team-a" }`. Their values are never shown."""
    every: MetricsPeriod = 15.0
    """The polling period. The scrape interval of the server decides how old the numbers are; see docs/prometheus.md."""


def metrics_conflicts(tables: Sequence[MetricsSettings], where: str) -> Iterator[str]:
    """A sentence for each table of a cluster that reads what another one reads, or whose login is contradictory."""
    for number, table in enumerate(tables, 1):
        texts = [*login_conflicts(table.token, table.user, table.password)]
        if table.token is not None or table.user is not None:
            texts += [f'"headers" has {name}, and so has the login' for name in table.headers if name.lower() == LOGIN]
        yield from (f"{where}: metrics #{number} ({quoted(table.exporter)}): {text}" for text in texts)
    kinds = ["GPUs" if table.exporter in GPU_EXPORTERS else "hosts" for table in tables]
    for number, kind in enumerate(kinds):
        first = kinds.index(kind)
        if first != number:
            name = quoted(tables[number].exporter)
            yield f"{where}: metrics #{number + 1} ({name}) and #{first + 1} both read {kind}; remove one of them"
