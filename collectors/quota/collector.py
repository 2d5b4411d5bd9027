"""Polls disk quotas with a site's own command, on a host that reads the path: niced, with a time limit, one at a time.

There is one thread for each [[disk]] with a quota and each cluster. Without an answer the last quota stays; the source
reports the error and the age.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Literal

from collectors.quota.command import QuotaQuery, quota_query, run_query
from trainmon.config import Settings
from trainmon.lib import Clock, CommandFailed, HostUnreachable, Seconds, TrainmonError
from trainmon.model import Event, QuotaRead, Source, SourceChanged
from trainmon.transport.shell import Shell

log = logging.getLogger(__name__)

DU_AFTER: Seconds = 60.0
"""The first du runs this long after the start: a program that polls once and exits does not run it."""
MAX_PAUSE: Seconds = 6 * 3_600.0
RETRY_UNREACHABLE: Seconds = 5.0
CHECK_EVERY: Seconds = 30.0
"""How often the list of hosts is checked; no command is run for it."""
CONNECT_TIMEOUT: Seconds = 30.0
"""For this long after the start, a host that is not connected is no error."""
MIN_REFRESH: Seconds = 60.0
"""Between two polls that a person requests."""


class QuotaPoller:
    """Polls the quota of one path. `hosts`: those that read it now. `shell_of` raises HostUnreachable."""

    def __init__(
        self,
        query: QuotaQuery,
        hosts: Callable[[], Sequence[str]],
        shell_of: Callable[[str], Shell],
        submit: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        self.query = query
        self._hosts = hosts
        self._shell_of = shell_of
        self._submit = submit
        self._clock = clock
        self._started = clock.monotonic()
        self._due: dict[str, Seconds] = {}
        self._began: dict[str, Seconds] = {}
        self._failed: dict[str, int] = {}
        self._reported: dict[str, Source] = {}
        self._last_up: dict[str, Source] = {}
        """By key: the last source that was up."""
        self._gone: set[str] = set()
        """Keys without a host now."""
        self._refresh_requested = threading.Event()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"quota {query.path}", daemon=True)

    def start(self) -> None:
        if self.query.shared and self.query.parser != "du":
            self._report(self.query.cluster, "waiting")
        self._thread.start()

    def stop(self) -> None:
        """Stop; a command that hangs ends by its own time limit."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(0.3)

    def refresh(self) -> None:
        """Poll now, at most once a minute; du keeps its own pace."""
        self._refresh_requested.set()
        self._wake.set()

    def names(self, source: str) -> bool:
        """Whether it reports the source of that name."""
        return source in self._reported

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(self.step())
            self._wake.clear()

    def step(self) -> Seconds:
        """Poll the host that is due. Returns the seconds until the next call."""
        now = self._clock.monotonic()
        if self._refresh_requested.is_set():
            self._refresh_requested.clear()
            self._bring_forward(now)
        hosts = tuple(self._hosts())
        hosts = hosts[:1] if self.query.shared else hosts
        self._report_missing(hosts, now)
        for host in hosts:
            if self._is_due(host, now):
                self._ask(host)
                break
        now = self._clock.monotonic()
        soonest = min((self._due.get(self._key(host), now) for host in hosts), default=now + RETRY_UNREACHABLE)
        return min(CHECK_EVERY, max(0.0, soonest - now))

    def _is_due(self, host: str, now: Seconds) -> bool:
        first = self._started + (DU_AFTER if self.query.parser == "du" else 0.0)
        return self._due.setdefault(self._key(host), first) <= now

    def _key(self, host: str) -> str:
        return self.query.cluster if self.query.shared else host

    def _bring_forward(self, now: Seconds) -> None:
        if self.query.parser != "du":
            for key, began in self._began.items():
                self._due[key] = min(self._due[key], max(now, began + MIN_REFRESH))

    def _ask(self, host: str) -> None:
        key = self._key(host)
        self._began[key] = now = self._clock.monotonic()
        try:
            quota = run_query(self.query, self._shell_of(host), self._clock, self._name(key))
        except HostUnreachable as error:
            self._due[key] = now + RETRY_UNREACHABLE
            if self._failed.get(key) is None and now - self._started >= CONNECT_TIMEOUT:
                self._report(key, "waiting", error)
            return
        except Exception as error:  # a bug must not end the thread silently: it becomes the source's error
            self._fail(key, error)
            return
        self._failed.pop(key, None)
        self._due[key] = self._clock.monotonic() + self.query.every
        self._submit(QuotaRead(quota, shared=self.query.shared))
        self._report(key, "up")

    def _fail(self, key: str, error: Exception) -> None:
        if not isinstance(error, TrainmonError):
            log.exception("the quota of %s", self.query.path)
            error = CommandFailed(f"{type(error).__name__}: {error}")
        self._failed[key] = times = min(self._failed.get(key, 0) + 1, 10)
        pause = min(max(MAX_PAUSE, self.query.every), self.query.every * 2 ** (times - 1))
        self._due[key] = self._clock.monotonic() + pause
        self._report(key, "retrying", error, pause)

    def _report_missing(self, hosts: Sequence[str], now: Seconds) -> None:
        """Report keys without a host: their last data is old. A key whose host is back is polled soon; for du its
        last source holds again."""
        known = {self.query.cluster} if self.query.shared else set(self._began)
        gone = known - {self._key(host) for host in hosts}
        if self.query.shared and now - self._started < CONNECT_TIMEOUT:
            gone = set()
        for key in gone:
            if self.query.shared and self.query.parser != "du":
                self._report(key, "waiting", HostUnreachable("", f"no host that reads {self.query.path} is up"))
            else:
                self._report(key, "off")
        for key in self._gone - gone:
            if self.query.parser == "du" and key in self._last_up:
                self._submit_source(self._last_up[key])
            else:
                self._due[key] = max(now, self._began.get(key, now - MIN_REFRESH) + MIN_REFRESH)
        self._gone = gone

    def _name(self, key: str) -> str:
        return f"quota:{key}:{self.query.path}"

    def _report(
        self,
        key: str,
        phase: Literal["waiting", "up", "retrying", "off"],
        error: TrainmonError | None = None,
        pause: Seconds | None = None,
    ) -> None:
        now = self._clock.now()
        source = Source(
            name=self._name(key),
            kind="files",
            cluster=self.query.cluster,
            seen_at=now if phase == "up" else None,
            period=self.query.every,
            phase=phase,
            retry_at=None if pause is None else now + pause,
            error=None if error is None else error.message,
            hint=None if error is None else error.hint or None,
        )
        if phase == "up":
            self._last_up[key] = source
        self._submit_source(source)

    def _submit_source(self, source: Source) -> None:
        if source != self._reported.get(source.name):
            self._reported[source.name] = source
            self._submit(SourceChanged(source))


class QuotaCollector:
    """All quota pollers. `hosts` returns the hosts of a cluster that read a path now."""

    def __init__(
        self,
        settings: Settings,
        hosts: Callable[[str, str], Sequence[str]],
        shell_of: Callable[[str], Shell],
        submit: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        found = [quota_query(disk, cluster) for cluster in settings.clusters for disk in settings.disks]
        self._pollers = tuple(
            QuotaPoller(query, lambda query=query: hosts(query.cluster, query.path), shell_of, submit, clock)  # type: ignore[misc]
            for query in found
            if query is not None
        )

    def start(self) -> None:
        for poller in self._pollers:
            poller.start()

    def stop(self) -> None:
        for poller in self._pollers:
            poller.stop()

    def refresh(self) -> None:
        """Poll all now: a person requested it."""
        for poller in self._pollers:
            poller.refresh()

    def hurry(self, source: str) -> None:
        """Poll one source soon: its data looks suspicious."""
        for poller in self._pollers:
            if poller.names(source):
                poller.refresh()
