"""Quotas: a site's own command, run where the path is looked at: niced, time-boxed, rarely, and never twice at once.

One thread a [[disk]] with a quota and a cluster. No answer means that nothing is known: what was said last stays, and
the source tells the error and the age.
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
"""du waits so long after the start: a program that looks once and ends does not run it."""
LONGEST: Seconds = 6 * 3_600.0
UNREACHED: Seconds = 5.0
LOOK_EVERY: Seconds = 30.0
"""How often it is looked whether there are other hosts now, which asks nobody."""
PATIENCE: Seconds = 30.0
"""Until then after the start, a host that is not connected yet is no error."""
REFRESH: Seconds = 60.0
"""Between two looks that are asked for."""


class QuotaPoller:
    """Asks for the quota of one path. `hosts`: those that look at it now. `shell_of` raises HostUnreachable."""

    def __init__(
        self,
        wanted: QuotaQuery,
        hosts: Callable[[], Sequence[str]],
        shell_of: Callable[[str], Shell],
        submit: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        self.wanted = wanted
        self._hosts = hosts
        self._shell_of = shell_of
        self._submit = submit
        self._clock = clock
        self._started = clock.monotonic()
        self._due: dict[str, Seconds] = {}
        self._began: dict[str, Seconds] = {}
        self._failed: dict[str, int] = {}
        self._told: dict[str, Source] = {}
        self._well: dict[str, Source] = {}
        """The last of each that had answered."""
        self._gone: set[str] = set()
        """Those that no host can be asked for now."""
        self._hurried = threading.Event()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"quota {wanted.path}", daemon=True)

    def start(self) -> None:
        if self.wanted.shared and self.wanted.parser != "du":
            self._tell(self.wanted.cluster, "waiting")
        self._thread.start()

    def stop(self) -> None:
        """Let go; a command that hangs is left to its own end."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(0.3)

    def refresh(self) -> None:
        """Somebody wants to see it now; at most once a minute, and du goes at its own pace."""
        self._hurried.set()
        self._wake.set()

    def names(self, source: str) -> bool:
        """Whether this is the source of that name."""
        return source in self._told

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(self.step())
            self._wake.clear()

    def step(self) -> Seconds:
        """Ask the host whose turn it is. Returns the seconds until it should be called again."""
        now = self._clock.monotonic()
        if self._hurried.is_set():
            self._hurried.clear()
            self._bring_forward(now)
        hosts = tuple(self._hosts())
        hosts = hosts[:1] if self.wanted.shared else hosts
        self._rest(hosts, now)
        for host in hosts:
            if self._is_due(host, now):
                self._ask(host)
                break
        now = self._clock.monotonic()
        soonest = min((self._due.get(self._key(host), now) for host in hosts), default=now + UNREACHED)
        return min(LOOK_EVERY, max(0.0, soonest - now))

    def _is_due(self, host: str, now: Seconds) -> bool:
        first = self._started + (DU_AFTER if self.wanted.parser == "du" else 0.0)
        return self._due.setdefault(self._key(host), first) <= now

    def _key(self, host: str) -> str:
        return self.wanted.cluster if self.wanted.shared else host

    def _bring_forward(self, now: Seconds) -> None:
        if self.wanted.parser != "du":
            for key, began in self._began.items():
                self._due[key] = min(self._due[key], max(now, began + REFRESH))

    def _ask(self, host: str) -> None:
        key = self._key(host)
        self._began[key] = now = self._clock.monotonic()
        try:
            quota = run_query(self.wanted, self._shell_of(host), self._clock, self._name(key))
        except HostUnreachable as error:
            self._due[key] = now + UNREACHED
            if self._failed.get(key) is None and now - self._started >= PATIENCE:
                self._tell(key, "waiting", error)
            return
        except Exception as error:  # a fault of ours must not end the watch in silence: it becomes the source's error
            self._fail(key, error)
            return
        self._failed.pop(key, None)
        self._due[key] = self._clock.monotonic() + self.wanted.every
        self._submit(QuotaRead(quota, shared=self.wanted.shared))
        self._tell(key, "up")

    def _fail(self, key: str, error: Exception) -> None:
        if not isinstance(error, TrainmonError):
            log.exception("the quota of %s", self.wanted.path)
            error = CommandFailed(f"{type(error).__name__}: {error}")
        self._failed[key] = times = min(self._failed.get(key, 0) + 1, 10)
        pause = min(max(LONGEST, self.wanted.every), self.wanted.every * 2 ** (times - 1))
        self._due[key] = self._clock.monotonic() + pause
        self._tell(key, "retrying", error, pause)

    def _rest(self, hosts: Sequence[str], now: Seconds) -> None:
        """Tell of those that cannot be asked now: what they said last is no sign that anything is seen. One that is
        back is asked soon; du is not, its last word holds again."""
        known = {self.wanted.cluster} if self.wanted.shared else set(self._began)
        gone = known - {self._key(host) for host in hosts}
        if self.wanted.shared and now - self._started < PATIENCE:
            gone = set()
        for key in gone:
            if self.wanted.shared and self.wanted.parser != "du":
                self._tell(key, "waiting", HostUnreachable("", f"no host that sees {self.wanted.path} answers"))
            else:
                self._tell(key, "off")
        for key in self._gone - gone:
            if self.wanted.parser == "du" and key in self._well:
                self._submit_source(self._well[key])
            else:
                self._due[key] = max(now, self._began.get(key, now - REFRESH) + REFRESH)
        self._gone = gone

    def _name(self, key: str) -> str:
        return f"quota:{key}:{self.wanted.path}"

    def _tell(
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
            cluster=self.wanted.cluster,
            seen_at=now if phase == "up" else None,
            period=self.wanted.every,
            phase=phase,
            retry_at=None if pause is None else now + pause,
            error=None if error is None else error.message,
            hint=None if error is None else error.hint or None,
        )
        if phase == "up":
            self._well[key] = source
        self._submit_source(source)

    def _submit_source(self, source: Source) -> None:
        if source != self._told.get(source.name):
            self._told[source.name] = source
            self._submit(SourceChanged(source))


class QuotaCollector:
    """All of them. `hosts` tells who of a cluster looks at a path now."""

    def __init__(
        self,
        settings: Settings,
        hosts: Callable[[str, str], Sequence[str]],
        shell_of: Callable[[str], Shell],
        submit: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        found = [quota_query(disk, cluster) for cluster in settings.clusters for disk in settings.disks]
        self._askers = tuple(
            QuotaPoller(wanted, lambda wanted=wanted: hosts(wanted.cluster, wanted.path), shell_of, submit, clock)  # type: ignore[misc]
            for wanted in found
            if wanted is not None
        )

    def start(self) -> None:
        for asker in self._askers:
            asker.start()

    def stop(self) -> None:
        for asker in self._askers:
            asker.stop()

    def refresh(self) -> None:
        """A person asks."""
        for asker in self._askers:
            asker.refresh()

    def hurry(self, source: str) -> None:
        """What one source said is suspicious: look again soon."""
        for asker in self._askers:
            if asker.names(source):
                asker.refresh()
