"""Quotas: a site's own command, run where the path is looked at: niced, time-boxed, rarely, and never twice at once.

One thread a [[disk]] with a quota and a cluster. No answer means that nothing is known: what was said last stays, and
the source tells the error and the age.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from trainmon.clock import Clock, Seconds
from trainmon.config import ClusterSettings, DiskSettings, Settings
from trainmon.errors import CommandFailed, HostUnreachable, TrainmonError
from trainmon.model import Event, Source, SourceChanged
from trainmon.model_disks import Quota, QuotaSeen
from trainmon.quotas import Parser, of_path, parse
from trainmon.scrub import scrub
from trainmon.shell import Completed, Shell
from trainmon.text import clean, duration

log = logging.getLogger(__name__)

TIME_BOX: Seconds = 60.0
"""For one command: a rquotad that is away lets quota(1) wait for minutes."""
DU_TIME_BOX: Seconds = 3_600.0
DU_EVERY: Seconds = 6 * 3_600.0
"""Walking through a directory costs its metadata server more than all the rest of this program."""
DU_AFTER: Seconds = 60.0
"""Nor does a program do it that looks once and ends."""
LATE: Seconds = 20.0
"""Beyond its own limit a command is waited for as long: timeout(1) ends it there, and its connection here."""
LONGEST: Seconds = 6 * 3_600.0
UNREACHED: Seconds = 5.0
LOOK_EVERY: Seconds = 30.0
"""How often it is looked whether there are other hosts now, which asks nobody."""
PATIENCE: Seconds = 30.0
"""Until then after the start, a host that is not connected yet is no error."""
REFRESH: Seconds = 60.0
"""Between two looks that are asked for."""

NOT_FOUND, CUT_OFF = 127, 124
SCRIPT = (
    "seconds=$1; shift; LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin:/usr/lpp/mmfs/bin:/opt/beegfs/sbin; "
    'command -v ionice >/dev/null 2>&1 && set -- ionice -c 3 -t "$@"; '
    'command -v timeout >/dev/null 2>&1 && set -- timeout -k 5 "$seconds" "$@"; '
    'exec nice -n 19 "$@"'
)


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """One path whose quota is asked."""

    cluster: str
    path: str
    command: tuple[str, ...]
    parser: Parser
    every: Seconds
    limit: int | None = None
    shared: bool = True
    """Whether one host answers for the cluster; else every host that looks at the path is asked."""

    @property
    def time_box(self) -> Seconds:
        return DU_TIME_BOX if self.parser == "du" else TIME_BOX


class Asker:
    """Asks for the quota of one path. `hosts`: those that look at it now. `shell_of` raises HostUnreachable."""

    def __init__(
        self,
        wanted: Wanted,
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
            quota = ask(self.wanted, self._shell_of(host), self._clock, self._name(key))
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
        self._submit(QuotaSeen(quota, shared=self.wanted.shared))
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
        """What is to be told of those that cannot be asked now. A node's own row says why it does not answer."""
        if self.wanted.shared:
            if not hosts and now - self._started >= PATIENCE:
                words = f"no host that sees {self.wanted.path} answers"
                self._tell(self.wanted.cluster, "waiting", HostUnreachable("", words))
            return
        for key in self._began.keys() - set(hosts):
            self._tell(key, "off")

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
        if source != self._told.get(source.name):
            self._told[source.name] = source
            self._submit(SourceChanged(source))


def ask(wanted: Wanted, shell: Shell, clock: Clock, source: str, time_box: Seconds | None = None) -> Quota:
    """Run the command on one host, and read what it says. Raises TrainmonError."""
    limit = time_box or wanted.time_box
    argv = ("sh", "-c", SCRIPT, "quota", f"{limit:.0f}", *wanted.command)
    try:
        done = shell.run(argv, timeout=limit + LATE)
    except HostUnreachable:
        raise
    except CommandFailed as error:
        raise CommandFailed(f"{shell.host}: {wanted.command[0]} did not answer in {duration(limit)}") from error
    now = clock.now()
    said = [done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")]
    try:
        answer = of_path(parse(wanted.parser, "\n".join(said), now, wanted.command, wanted.limit), wanted.path)
    except TrainmonError as error:
        raise _why(wanted, shell.host, done, error, limit) from error
    return Quota(
        cluster=wanted.cluster,
        host=shell.host,
        path=wanted.path,
        at=now,
        allowances=answer.allowances,
        trouble=answer.trouble,
        source=source,
    )


def _why(wanted: Wanted, host: str, done: Completed, error: TrainmonError, limit: Seconds) -> TrainmonError:
    """What came in place of an answer: an exit status says more than that nothing was understood."""
    name = wanted.command[0]
    if done.status == NOT_FOUND:
        return CommandFailed(f"there is no {name} on {host}", hint="name it with its whole path")
    if done.status == CUT_OFF:
        return CommandFailed(f"{host}: {name} did not end in {duration(limit)}")
    last = scrub(clean(done.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2], 200))
    if done.status and last:
        return CommandFailed(f"{host}: {name}: {last}")
    return type(error)(f"{host}: {name}: {error.message}", hint=error.hint)


def wanted_of(disk: DiskSettings, cluster: ClusterSettings) -> Wanted | None:
    """What is asked for one [[disk]] of one cluster."""
    quota = disk.quota
    if quota is None:
        return None
    return Wanted(
        cluster=cluster.name,
        path=disk.path,
        command=quota.command,
        parser=quota.parser,
        every=max(DU_EVERY, quota.every) if quota.parser == "du" else quota.every,
        limit=quota.limit,
        shared=disk.on == "login",
    )


class Quotas:
    """All of them. `hosts` tells who of a cluster looks at a path now."""

    def __init__(
        self,
        settings: Settings,
        hosts: Callable[[str, str], Sequence[str]],
        shell_of: Callable[[str], Shell],
        submit: Callable[[Event], None],
        clock: Clock,
    ) -> None:
        found = [wanted_of(disk, cluster) for cluster in settings.clusters for disk in settings.disks]
        self._askers = tuple(
            Asker(wanted, lambda wanted=wanted: hosts(wanted.cluster, wanted.path), shell_of, submit, clock)  # type: ignore[misc]
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
