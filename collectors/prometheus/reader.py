"""Reads one metrics table of a Prometheus server: the newest numbers of nodes, their past, and why there are none.

One query a request, with a time limit. No error holds a secret.
"""

from __future__ import annotations

import contextlib
import email.utils
import math
import os
import re
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from http import HTTPStatus

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from collectors.polling_thread import PollTimes
from collectors.prometheus import query, readings
from collectors.prometheus.query import DECODER, EXPORTERS, Answer, Series, lacking
from collectors.prometheus.readings import NodeNumbers, XidChanges
from trainmon.alerting.notify.channels.http import AGENT, pool_for, text_of, translated
from trainmon.alerting.notify.channels.ntfy import login_of
from trainmon.config import InvalidValue, MetricsSettings, resolve_secret
from trainmon.lib import (
    MASK,
    Instant,
    Seconds,
    TrainmonError,
    clean,
    clock_difference,
    counted,
    duration,
    listed,
    scrub,
)
from trainmon.lib.threads import DeadlineExceeded, DeadlineRunner
from trainmon.model import GPU_METRICS, LATE_AFTER, DiskHistoryRead, DiskSample, GpuFacts, GpuHistoryRead

# ---- the HTTP API of a Prometheus server -----------------------------------------------------------------------------

TIMEOUT: Seconds = 10.0
ANSWER_BYTES = 64 * 2**20
"""The maximum size of an answer without compression."""

DATE_PRECISION: Seconds = 2.0
"""The header Date has whole seconds: a smaller difference of the clocks cannot be seen."""


PLAIN = (400, 401, 403, 502, 503, 504)
"""The status of refusals in plain text, such as those of Mimir and of proxies; others say nothing that helps."""

GIVEN_UP = ("timeout", "canceled")
"""Types of error of a query that takes too long, or of too many at once."""

NO_TENANT = "no org id"
"""Mimir, Cortex and Loki, without the header X-Scope-OrgID."""


class QueryFailed(TrainmonError):
    """The server did not answer a query, or refused it."""


class PrometheusClient:
    """Queries one server, one query at a time."""

    def __init__(self, settings: MetricsSettings, now: Callable[[], Instant], environ: Mapping[str, str] = os.environ):
        self.clock_offset: Seconds = 0.0
        """The clock of the server minus ours."""
        self.gap = ""
        """Why the last answer may be incomplete, in the words of the server."""
        self._settings = settings
        self._secrets: tuple[str, ...] = ()
        self._now = now
        self._environ = environ
        self._pool: urllib3.PoolManager | None = None
        self._runner: DeadlineRunner[tuple[int, bytes, str]] = DeadlineRunner("prometheus query")

    def query(self, text: str) -> tuple[Series, ...]:
        """The series of a query about now.

        Raises: QueryFailed: with a sentence for the person who configured the server, and what to do.
        """
        return self._ask("query", {"query": text})

    def query_range(self, text: str, start: Instant, end: Instant, step: Seconds) -> tuple[Series, ...]:
        """The series of a query between two times of our clock.

        Raises: QueryFailed: as `query`.
        """
        begin, until = (f"{at + self.clock_offset:.3f}" for at in (start, end))
        return self._ask("query_range", {"query": text, "start": begin, "end": until, "step": f"{step:g}"})

    def _ask(self, endpoint: str, form: Mapping[str, str]) -> tuple[Series, ...]:
        headers, asked_at = self._login(), self._now()
        try:
            status, body, date = self._runner.call(lambda: self._post(endpoint, form, headers), TIMEOUT + 1)
        except DeadlineExceeded:
            raise QueryFailed(f"no answer within {TIMEOUT:.0f}s", hint=self._try_hint) from None
        except (HTTPError, OSError, ValueError) as error:
            raise QueryFailed(translated(error, TIMEOUT).message, hint=self._try_hint) from None
        self._compare_clocks(date, asked_at)
        try:
            answer = DECODER.decode(body)
        except msgspec.DecodeError:
            answer = Answer("", error=plain_text(status, body))
        if status == 200 and answer.data is not None:
            self.gap = self._shown(answer.gap)
            return answer.data.result
        raise refused(status, self._shown(answer.error), answer.error_type, self._settings)

    def _login(self) -> dict[str, str]:
        """The headers of a request that hold secrets, which are remembered as what must not be shown.

        Raises: QueryFailed: when one cannot be read.
        """
        own = self._settings
        written = {"token": own.token, "password": own.password, **own.headers}
        found = {}
        for name, text in written.items():
            try:
                found[name] = "" if text is None else resolve_secret(text, self._environ)
            except InvalidValue as wrong:
                hint = 'set it before the program starts, or use "file:/path", which is read again for each query'
                raise QueryFailed(f'its "{name}" {wrong}', hint=hint) from None
        login = login_of(found["token"], own.user, found["password"])
        headers = {name: found[name] for name in own.headers}
        headers |= {} if login is None else {"Authorization": login}
        self._secrets = tuple(filter(None, (*found.values(), *(login or "").split()[1:])))
        return headers

    def _shown(self, text: str) -> str:
        """Words of the server without the secrets that it may repeat."""
        for secret in self._secrets:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
        return clean(scrub(text), 200)

    @property
    def _try_hint(self) -> str:
        return f"try: curl {self._settings.url}/api/v1/query?query=up"

    def _post(self, endpoint: str, form: Mapping[str, str], login: Mapping[str, str]) -> tuple[int, bytes, str]:
        if self._pool is None:
            self._pool = pool_for(self._settings.url)
        form_type = "application/x-www-form-urlencoded"
        headers = {"User-Agent": AGENT, "Accept-Encoding": "gzip", "Content-Type": form_type, **login}
        response = self._pool.request(
            "POST",
            f"{self._settings.url}/api/v1/{endpoint}",
            body=urllib.parse.urlencode(form),
            headers=headers,
            timeout=urllib3.Timeout(total=TIMEOUT),
            retries=urllib3.Retry(1, redirect=False, read=False, allowed_methods=None),  # it may have closed the last
            redirect=False,
            preload_content=False,
        )
        try:
            return response.status, response.read(ANSWER_BYTES, decode_content=True), response.headers.get("Date", "")
        finally:
            response.drain_conn()
            response.release_conn()

    def _compare_clocks(self, date: str, asked_at: Instant) -> None:
        try:
            theirs = email.utils.parsedate_to_datetime(date).timestamp()
        except (ValueError, TypeError):
            return
        offset = clock_difference(theirs, asked_at, self._now(), self.clock_offset)
        if abs(offset - self.clock_offset) > DATE_PRECISION:  # a smaller change is the precision of the header
            self.clock_offset = offset if abs(offset) > DATE_PRECISION else 0.0


def plain_text(status: int, body: bytes) -> str:
    """The text of a refusal that is no JSON; empty if it only repeats its status, or is a page."""
    if status not in PLAIN or body.startswith(b"<"):
        return ""
    text = text_of(body)
    return "" if text.lower() == HTTPStatus(status).phrase.lower() else text


def refused(status: int, text: str, kind: str, used: MetricsSettings) -> QueryFailed:
    """What an answer that is no success means, and what to do about the settings that were used. `kind`: the type of
    error that the server names."""
    detail = f": {text}" if text else ""
    match status:
        case 401 if NO_TENANT in text:
            what, hint = "the server requires a tenant", 'set headers = { X-Scope-OrgID = "…" } in its metrics table'
        case 401 | 403 if used.token is not None:
            what, hint = "the server refuses the token", 'renew the "token" of its metrics table'
        case 401 | 403 if used.user is not None:
            what, hint = (
                "the server refuses the user or the password",
                'correct "user" or "password" in its metrics table',
            )
        case 401 | 403:
            what, hint = "the server requires a login", 'set "token", or "user" and "password", in its metrics table'
        case 400 | 422:
            what, hint = "the server cannot run the query", 'check "match" and "node_label"'
        case 404 | 405:
            return QueryFailed(f"there is no Prometheus API at its address ({status})", hint='check "url"')
        case 429:
            what, hint = "the server limits the queries", 'raise "every"'
        case 503 if kind in GIVEN_UP:
            return QueryFailed(f"the server gave up the query ({status}): {text}", hint="see the limits of the server")
        case 503:  # Prometheus says so while it starts, and a proxy while nothing behind it answers
            what, hint = "the server is not available", "check that it is up; it may still be starting"
        case 502 | 504:
            what, hint = "a proxy gets no answer from the server", "is the server behind the proxy up?"
        case 200:
            return QueryFailed("its answer is not that of a Prometheus API", hint='check "url"')
        case _ if 300 <= status < 400:
            return QueryFailed(f"the server redirects to another address ({status})", hint='correct "url"')
        case _:
            what, hint = "the server answers with an error", "see the log of the server"
    return QueryFailed(f"{what} ({status}){detail}", hint=hint)


# ---- reads one metrics table -----------------------------------------------------------------------------------------

LOOKBACK: Seconds = 300.0
"""The window of the first query, as long as Prometheus's own lookback: the scrape interval is not known yet."""

SCRAPES = 2.5
"""The window of later queries in scrape intervals: it always holds two samples."""

MAX_PAUSE: Seconds = 120.0
"""The longest pause between two polls of a server that fails."""

CPUS_EVERY: Seconds = 3_600.0
"""The CPUs are counted again after this time: a node may come back as another machine."""

SLOW: Seconds = 3.0
"""Seven metrics of 2,048 GPUs take a busy Prometheus 0.2 s."""

HISTORIES: tuple[tuple[Seconds, Seconds], ...] = ((3_600.0, 15.0), (86_400.0, 60.0))
"""The last hour and the last day of a plot, and their steps."""


DISKS_SPAN: Seconds = 86_400.0
DISKS_EVERY: Seconds = 300.0
"""The past of disks: a day of one mount point on 64 nodes is one answer of about 1 MB."""


class MetricsTimes(PollTimes):
    """When a server is polled next: less often while it fails."""

    def __init__(self, every: Seconds) -> None:
        super().__init__(every)
        self.failures = 0
        """Polls in a row that failed."""

    def answered(self, now: Seconds) -> None:
        self.failures, self.interval = 0, self._every
        self._due = now + self.interval

    def failed(self, now: Seconds) -> None:
        self.interval = min(max(MAX_PAUSE, self._every), self._every * 2.0 ** min(self.failures, 4))
        self.failures += 1
        self._due = now + self.interval


class MetricsReader:
    """One exporter of a cluster. `latest` holds what the last queries have shown."""

    def __init__(self, settings: MetricsSettings, client: PrometheusClient, now: Callable[[], Instant]) -> None:
        self.settings = settings
        self.exporter = EXPORTERS[settings.exporter]
        self.labels = self.exporter.node_labels
        """Those that name the nodes: the configured one, then the other names that the exporter has for it."""
        if (named := settings.node_label) is not None:
            others = self.labels if named in self.labels else ()
            self.labels = (named, *(one for one in others if one != named))
        self.times = MetricsTimes(settings.every)
        self.part = "host" if self.exporter.is_host else "gpu"
        self.latest: dict[str, Instant] = {}
        """By node: the time of its newest sample, by our clock."""
        self.facts: dict[str, tuple[GpuFacts, ...]] = {}
        """By node: the slow facts that were submitted last."""
        self.disks: dict[str, tuple[DiskSample, ...]] = {}
        """By node: its watched disks, as they were last."""
        self._exported: set[str] = set()
        """The watched paths whose disk some node has had."""
        self.xids = XidChanges(has_times="xid_at" in self.exporter.fields)
        self.cpus: dict[str, int | None] = {}
        """By node: the number of its CPUs; None if the server does not know it."""
        self._cpus_at: Instant = -math.inf
        self.lacking: tuple[str, ...] = ()
        """What no series has had so far."""
        self.gap = ""
        """Why the last answer may be incomplete."""
        self.took: Seconds = 0.0
        """How long the server took for the last answers."""
        self._fields: set[str] = set()
        self._client = client
        self._now = now
        self._window = LOOKBACK
        self._interval: Seconds | None = None

    @property
    def period(self) -> Seconds:
        """How often there can be new numbers."""
        return max(self.settings.every, self._interval or 0.0)

    @property
    def tolerance(self) -> Seconds:
        """How much older than the newest sample of its node a sample may be: a series that has ended is older."""
        return 1.5 * (self._interval or self.settings.every)

    def read(self, nodes: Sequence[str], disks: Mapping[str, Sequence[str]] | None = None) -> Mapping[str, NodeNumbers]:
        """The numbers of these nodes that have samples now, with times of our clock. `disks`: by node, the paths whose
        disks are watched.

        Raises: QueryFailed: with a sentence for the person who configured the server, and what to do.
        """
        began = self._now()
        found: dict[str, NodeNumbers] = {}
        gaps: list[Seconds] = []
        gap = ""
        names = {query.short_name(node): node for node in nodes}
        for (
            label
        ) in self.labels:  # of nodes that no label before it has: exporters of two releases may run side by side
            for some in query.chunks([node for node in nodes if node not in found]):
                paths = [path for node in some for path in (disks or {}).get(node, ())]
                mounts = [query.at_mount_points(readings.mount_points(paths))] if self.exporter.is_host else []
                text = query.newest(self.exporter, label, some, self.settings.match, self._window, *mounts)
                series = self._client.query(text)
                gap = gap or self._client.gap
                found |= readings.read(self.exporter, label, series, names)
                gaps += filter(None, [readings.interval(series)])
        if not found and self._window < LOOKBACK:  # all exporters, or the server itself, may have paused
            self._window = LOOKBACK
            return self.read(nodes, disks)
        if not found and gap:
            raise QueryFailed(f"the answer of the server is incomplete: {gap}", hint="see the log of the server")
        if not found:
            if not self.latest:
                raise self.why_empty(nodes)
            raise QueryFailed(f"no series has a sample of the last {LOOKBACK / 60:.0f}m", hint=self.scrape_hint)
        self.gap, self.took = gap, self._now() - began
        self._interval = min(gaps, default=self._interval)
        if self._interval is not None:
            lag = max(0.0, self._now() + self._client.clock_offset - max(node.at for node in found.values()))
            self._window = min(LOOKBACK, math.ceil(lag + SCRAPES * self._interval))
        self._fields |= {field for node in found.values() for field in node.fields()}
        self.lacking = lacking(self.exporter, self._fields)
        if self.exporter.is_host:
            self._find_disks(found, disks or {})
        if self.exporter.cpus:
            self._count_cpus([*found])
            self.lacking += ("number of CPUs",) if not any(self.cpus.values()) else ()
        return found

    def _find_disks(self, found: Mapping[str, NodeNumbers], disks: Mapping[str, Sequence[str]]) -> None:
        """Take over the disks of the nodes that have samples."""
        self.disks |= {
            name: readings.disk_samples(node, disks.get(name, ()), self.tolerance) for name, node in found.items()
        }
        self._exported |= {disk.path for name in found for disk in self.disks[name]}
        wanted = dict.fromkeys(path for name in found for path in disks.get(name, ()))
        self.lacking += tuple(f"disk {path}" for path in wanted if path not in self._exported)

    def _count_cpus(self, nodes: Sequence[str]) -> None:
        """Ask for the CPUs of new nodes, and now and then of all."""
        is_due = self._now() - self._cpus_at > CPUS_EVERY
        known = {} if is_due else self.cpus
        new = {query.short_name(node): node for node in nodes if node not in known}
        for some in query.chunks([*new]):
            text, found = query.cpu_counts(self.exporter, self.labels[0], some, self.settings.match), {}
            with contextlib.suppress(QueryFailed):  # it must not cost the other numbers
                for one in self._client.query(text):
                    if one.value is not None:
                        found[query.short_name(one.metric.get(self.labels[0], ""))] = round(float(one.value[1]))
            known |= {new[name]: found.get(name) for name in some}
        self.cpus = known  # at once: the other table reads it
        self._cpus_at = self._now() if is_due else self._cpus_at

    @property
    def note(self) -> str:
        """What the numbers lack, and whether they come late; empty if nothing."""
        lacks = f"{self.exporter.program} has no {', '.join(self.lacking)}" if self.lacking else ""
        gap = f"the answer of the server may be incomplete: {self.gap}" if self.gap else ""
        slow = f"the server took {duration(self.took)} to answer" if self.took >= SLOW else ""
        return "; ".join(filter(None, (gap, slow, lacks)))

    def is_silent(self, at: Instant) -> bool:
        """Whether a sample of this time, by our clock, is too old to be the last one."""
        return self._now() - at >= LATE_AFTER * self.period

    def ours(self, at: Instant) -> Instant:
        """A time of the server by our clock."""
        return at - self._client.clock_offset

    @property
    def scrape_hint(self) -> str:
        return f"check that {self.exporter.program} is up and that the server scrapes it"

    def label_values(self) -> tuple[str, list[str]]:
        """The label that names the nodes that the server has, or several, and their values.

        Raises: QueryFailed: as `read`.
        """
        series = self._client.query(query.label_values(self.exporter, self.labels, self.settings.match))
        used = [label for label in self.labels if any(one.metric.get(label) for one in series)]
        values = {query.label_of(one.metric, self.labels) for one in series}
        return " or ".join(used), sorted(clean(value, 40) for value in values if value)

    def why_empty(self, nodes: Sequence[str]) -> QueryFailed:
        """Why no series belongs to these nodes, with the labels that were seen.

        Raises: QueryFailed: as `read`.
        """
        match, (label, seen) = self.settings.match, self.label_values()
        for some in dict.fromkeys((match, "")):
            any_series = f"topk(1, {query.selector(self.exporter, [self.exporter.presence], some)})"
            one = next(iter(self._client.query(any_series)), None)
            if one is None:
                continue
            labels = ", ".join(f'{key}="{clean(value, 40)}"' for key, value in one.metric.items() if key != "__name__")
            if some != match:
                return QueryFailed(f"no series matches {match}; labels seen: {labels}", hint='correct "match"')
            if not seen:
                text = f"no series has a label {' or '.join(self.labels)}; labels seen: {labels}"
                return QueryFailed(text, hint='set "node_label"')
            wanted = f"{nodes[0]} or {counted(len(nodes) - 1, 'other node')}" if len(nodes) > 1 else nodes[0]
            text = f"no series of {wanted}; values of {label}: {listed(seen)}; labels seen: {labels}"
            return QueryFailed(text, hint='set "node_label" to the label with the node names, or correct "nodes"')
        return QueryFailed(f"the server has no series {self.exporter.presence}", hint=self.scrape_hint)

    def past(self, node: str) -> Iterable[GpuHistoryRead]:
        """The numbers of the last hour and the last day of a node's GPUs, as plots need them.

        Raises: QueryFailed: as `read`.
        """
        now, names = self._now(), {query.short_name(node): node}
        fields = {"info", *(field for field, _ in GPU_METRICS.values())}  # the first names the indexes of its GPUs
        for span, step in HISTORIES:
            step = max(step, self.period)
            start = now - now % step - span
            row, length = partial(self._row, start, step), int((now - start) / step) + 1
            answers = {
                label: self._client.query_range(
                    query.past(self.exporter, label, [node], self.settings.match, fields), start, now, step
                )
                for label in self.labels
            }
            if columns := readings.columns(self.exporter, answers, names, row, length):
                yield GpuHistoryRead(node=node, start=start, step=step, span=span, columns=columns)

    def past_of_disks(self, nodes: Sequence[str]) -> Iterable[DiskHistoryRead]:
        """The last day of the disks that these nodes have now, as forecasts and plots need it. One query.

        Raises: QueryFailed: as `read`.
        """
        disks = {node: {disk.path: disk for disk in self.disks[node] if disk.mount} for node in nodes}
        points = sorted({disk.mount or "" for own in disks.values() for disk in own.values()})
        fields, mounts = ("free_bytes", "free_inodes", "total_bytes"), query.at_mount_points(points)
        text = query.past(self.exporter, self.labels[0], nodes, self.settings.match, fields, mounts)
        now, names = self._now(), {query.short_name(node): node for node in nodes}
        step = max(DISKS_EVERY, self.period)
        start = now - now % step - DISKS_SPAN
        series = self._client.query_range(text, start, now, step)
        row, length = partial(self._row, start, step), int((now - start) / step) + 1
        found = readings.disk_columns(self.exporter, self.labels[0], series, names, row, length)
        for node, own in disks.items():
            columns = {path: dict(found.get((node, disk.mount or ""), {})) for path, disk in own.items()}
            for path, disk in own.items():
                if disk.total_inodes is None:  # their number is not fixed
                    columns[path].pop("free_inodes", None)
            yield DiskHistoryRead(node=node, start=start, step=step, columns={p: c for p, c in columns.items() if c})

    def _row(self, start: Instant, step: Seconds, at: Instant) -> int:
        return round((self.ours(at) - start) / step)
