"""Polls disk quotas with a site's own command, on a host that reads the path: niced, with a time limit, one at a time.

There is one thread for each [[disk]] with a quota and each cluster. Without an answer the last quota stays; the source
reports the error and the age.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import msgspec

from collectors.polling_thread import PollingThread
from trainmon.analysis.disks import Parser, of_path, parse
from trainmon.config import ClusterSettings, DiskSettings, Settings
from trainmon.lib import Clock, CommandFailed, HostUnreachable, Seconds, TrainmonError, duration, last_line
from trainmon.model import Event, Quota, QuotaRead, Source
from trainmon.transport.shell import Completed, Shell

# ---- one quota command -----------------------------------------------------------------------------------------------

TIME_LIMIT: Seconds = 60.0
"""For one command: without its rquotad, quota(1) waits for minutes."""
DU_TIME_LIMIT: Seconds = 3_600.0
DU_EVERY: Seconds = 6 * 3_600.0
"""Walking through a directory loads its metadata server more than the rest of this program."""
SHELL_MARGIN: Seconds = 20.0
"""The shell's timeout is this much longer than timeout(1), which ends the command on its host."""

NOT_FOUND, TIMED_OUT = 127, 124
SCRIPT = (
    "seconds=$1; shift; LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin:/usr/lpp/mmfs/bin:/opt/beegfs/sbin; "
    'command -v ionice >/dev/null 2>&1 && set -- ionice -c 3 -t "$@"; '
    'command -v timeout >/dev/null 2>&1 && set -- timeout -k 5 "$seconds" "$@"; '
    'exec nice -n 19 "$@"'
)


class QuotaQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The quota command of one path."""

    cluster: str
    path: str
    command: tuple[str, ...]
    parser: Parser
    every: Seconds
    limit: int | None = None
    shared: bool = True
    """Whether one host answers for the cluster; otherwise every host that reads the path is polled."""

    @property
    def time_limit(self) -> Seconds:
        return DU_TIME_LIMIT if self.parser == "du" else TIME_LIMIT


def run_query(query: QuotaQuery, shell: Shell, clock: Clock, source: str) -> Quota:
    """Run the command on one host, and parse its output.

    Raises:
        TrainmonError: when there is no usable answer.
    """
    limit = query.time_limit
    try:
        done = shell.run(("sh", "-c", SCRIPT, "quota", f"{limit:.0f}", *query.command), timeout=limit + SHELL_MARGIN)
    except CommandFailed as error:
        raise CommandFailed(f"{shell.host}: {query.command[0]} did not answer in {duration(limit)}") from error
    now = clock.now()
    output = (done.stdout + b"\n" + done.stderr).decode("utf-8", "replace")
    try:
        answer = of_path(parse(query.parser, output, now, query.command, query.limit), query.path)
    except TrainmonError as error:
        raise _error(query, shell.host, done, error, limit) from error
    return Quota(
        cluster=query.cluster,
        host=shell.host,
        path=query.path,
        at=now,
        allowances=answer.allowances,
        trouble=answer.trouble,
        source=source,
    )


def _error(query: QuotaQuery, host: str, done: Completed, error: TrainmonError, limit: Seconds) -> TrainmonError:
    """The error for unusable output. An exit status explains more than a parse error."""
    name = query.command[0]
    if done.status == NOT_FOUND:
        return CommandFailed(f"there is no {name} on {host}", hint="set its absolute path")
    if done.status == TIMED_OUT:
        return CommandFailed(f"{host}: {name} did not end in {duration(limit)}")
    last = last_line(done.stderr, 200)
    if done.status and last:
        return CommandFailed(f"{host}: {name}: {last}")
    return type(error)(f"{host}: {name}: {error.message}", hint=error.hint)


def quota_query(disk: DiskSettings, cluster: ClusterSettings) -> QuotaQuery | None:
    """The query for one [[disk]] of one cluster; None without a quota."""
    quota = disk.quota
    if quota is None:
        return None
    return QuotaQuery(
        cluster=cluster.name,
        path=disk.path,
        command=quota.command,
        parser=quota.parser,
        every=max(DU_EVERY, quota.every) if quota.parser == "du" else quota.every,
        limit=quota.limit,
        shared=disk.on == "login",
    )


# ---- polls disk quotas with a site's own command, on a host that reads the path --------------------------------------

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


class QuotaPoller(PollingThread):
    """Polls the quota of one path. `hosts` returns the hosts that read it now; `shell_of` raises HostUnreachable."""

    def __init__(
        self,
        query: QuotaQuery,
        hosts: Callable[[], Sequence[str]],
        shell_of: Callable[[str], Shell],
        submit: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        super().__init__(f"quota {query.path}", query.every, submit, clock)
        self.query = query
        self._is_du = query.parser == "du"
        self._hosts = hosts
        self._shell_of = shell_of
        self._started = clock.monotonic()
        self._due: dict[str, Seconds] = {}
        self._began: dict[str, Seconds] = {}
        self._failed: dict[str, int] = {}
        self._last_up: dict[str, Source] = {}
        """By key: the last source that was up."""
        self._gone: set[str] = set()
        """Keys without a host now."""

    def start(self) -> None:
        if self.query.shared and not self._is_du:
            self._report(self.query.cluster, "waiting")
        super().start()

    def refresh(self) -> None:
        """Poll now, at most once a minute; du keeps its own interval."""
        self._request(self._poll_soon)

    def host_is_up(self) -> None:
        """A host answers from now on, which may read the path. Does not block."""
        self._wake.set()

    def has_source(self, source: str) -> bool:
        """Whether it reports this source."""
        return source in self._sources

    def step(self) -> Seconds:
        """Poll the host that is due. Returns the seconds until the next call."""
        self._do_requests()
        now = self._clock.monotonic()
        hosts = tuple(self._hosts())
        hosts = hosts[:1] if self.query.shared else hosts
        self._report_missing(hosts, now)
        for host in hosts:
            if self._due.setdefault(self._key(host), self._started + (DU_AFTER if self._is_du else 0.0)) <= now:
                self._poll(host)
                break
        now = self._clock.monotonic()
        soonest = min((self._due.get(self._key(host), now) for host in hosts), default=now + RETRY_UNREACHABLE)
        return min(CHECK_EVERY, max(0.0, soonest - now))

    def _poll_soon(self) -> None:
        for key, began in self._began.items() if not self._is_du else ():
            self._due[key] = min(self._due[key], max(self._clock.monotonic(), began + MIN_REFRESH))

    def _key(self, host: str) -> str:
        return self.query.cluster if self.query.shared else host

    def _poll(self, host: str) -> None:
        key = self._key(host)
        self._began[key] = now = self._clock.monotonic()
        try:
            quota = run_query(self.query, self._shell_of(host), self._clock, self._name(key))
        except HostUnreachable as failure:
            self._due[key] = now + RETRY_UNREACHABLE
            if self._failed.get(key) is None and now - self._started >= CONNECT_TIMEOUT:
                self._report(key, "waiting", failure)
            return
        except Exception as failure:  # a bug must not end the polls silently: it becomes the source's error
            error = failure if isinstance(failure, TrainmonError) else None
            if error is None:
                log.exception("the quota of %s", self.query.path)
                error = CommandFailed(f"{type(failure).__name__}: {failure}")
            self._failed[key] = tries = min(self._failed.get(key, 0) + 1, 10)
            pause = min(max(MAX_PAUSE, self.query.every), self.query.every * 2 ** (tries - 1))
            self._due[key] = self._clock.monotonic() + pause
            self._report(key, "retrying", error, pause)
            return
        self._failed.pop(key, None)
        self._due[key] = self._clock.monotonic() + self.query.every
        self._submit(QuotaRead(quota, shared=self.query.shared))
        self._report(key, "up")

    def _report_missing(self, hosts: Sequence[str], now: Seconds) -> None:
        """Report keys without a host: their last data is old. A key whose host is back is polled soon; for du its
        last source holds again."""
        known = {self.query.cluster} if self.query.shared else set(self._began)
        is_starting = self.query.shared and now - self._started < CONNECT_TIMEOUT
        gone = set() if is_starting else known - {self._key(host) for host in hosts}
        for key in gone:
            if self.query.shared and not self._is_du:
                self._report(key, "waiting", HostUnreachable("", f"no host that reads {self.query.path} is up"))
            else:
                self._report(key, "off")
        for key in self._gone - gone:
            if self._is_du and key in self._last_up:
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
            answered_at=now if phase == "up" else None,
            period=self.query.every,
            phase=phase,
            retry_at=None if pause is None else now + pause,
            error=None if error is None else error.message,
            hint=None if error is None else error.hint or None,
        )
        if phase == "up":
            self._last_up[key] = source
        self._submit_source(source)


def quota_pollers(
    settings: Settings,
    hosts: Callable[[str, str], Sequence[str]],
    shell_of: Callable[[str], Shell],
    submit: Callable[[Event], None],
    clock: Clock,
) -> tuple[QuotaPoller, ...]:
    """The quota pollers of all clusters. `hosts` returns the hosts of a cluster that read a path now."""
    queries = [quota_query(disk, cluster) for cluster in settings.clusters for disk in settings.disks]
    return tuple(
        QuotaPoller(query, partial(hosts, query.cluster, query.path), shell_of, submit, clock)
        for query in queries
        if query is not None
    )
