"""One quota command: its command line, its answer, and its errors."""

from __future__ import annotations

import msgspec

from trainmon.analysis.disks import Parser, of_path, parse
from trainmon.config import ClusterSettings, DiskSettings
from trainmon.lib import Clock, CommandFailed, HostUnreachable, Seconds, TrainmonError, duration, last_line
from trainmon.model import Quota
from trainmon.transport.shell import Completed, Shell

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


def run_query(query: QuotaQuery, shell: Shell, clock: Clock, source: str, time_limit: Seconds | None = None) -> Quota:
    """Run the command on one host, and parse its output.

    Raises:
        TrainmonError: when there is no usable answer.
    """
    limit = time_limit or query.time_limit
    try:
        done = shell.run(("sh", "-c", SCRIPT, "quota", f"{limit:.0f}", *query.command), timeout=limit + SHELL_MARGIN)
    except HostUnreachable:
        raise
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
