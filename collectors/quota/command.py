"""One quota command: what is run, what it says, and what came in place of an answer."""

from __future__ import annotations

import msgspec

from trainmon.analysis.disks import Parser, of_path, parse
from trainmon.config import ClusterSettings, DiskSettings
from trainmon.lib import Clock, CommandFailed, HostUnreachable, Seconds, TrainmonError, clean, duration, scrub
from trainmon.model import Quota
from trainmon.transport.shell import Completed, Shell

TIME_BOX: Seconds = 60.0
"""For one command: a rquotad that is away lets quota(1) wait for minutes."""
DU_TIME_BOX: Seconds = 3_600.0
DU_EVERY: Seconds = 6 * 3_600.0
"""Walking through a directory costs its metadata server more than all the rest of this program."""
LATE: Seconds = 20.0
"""Beyond its own limit a command is waited for as long: timeout(1) ends it there, and its connection here."""

NOT_FOUND, CUT_OFF = 127, 124
SCRIPT = (
    "seconds=$1; shift; LC_ALL=C; export LC_ALL; PATH=$PATH:/usr/sbin:/sbin:/usr/lpp/mmfs/bin:/opt/beegfs/sbin; "
    'command -v ionice >/dev/null 2>&1 && set -- ionice -c 3 -t "$@"; '
    'command -v timeout >/dev/null 2>&1 && set -- timeout -k 5 "$seconds" "$@"; '
    'exec nice -n 19 "$@"'
)


class QuotaQuery(msgspec.Struct, frozen=True, kw_only=True):
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


def run_query(wanted: QuotaQuery, shell: Shell, clock: Clock, source: str, time_box: Seconds | None = None) -> Quota:
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


def _why(wanted: QuotaQuery, host: str, done: Completed, error: TrainmonError, limit: Seconds) -> TrainmonError:
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


def quota_query(disk: DiskSettings, cluster: ClusterSettings) -> QuotaQuery | None:
    """What is asked for one [[disk]] of one cluster."""
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
