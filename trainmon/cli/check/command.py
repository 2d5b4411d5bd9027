"""trainmon-tui check: tests the config and all that it names, the hosts first. Each ✗ comes with a fix."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from collectors.assignment import WatchPlan, assign
from collectors.connections import ClusterConnections, is_local
from collectors.discovery import Coverage, watch_plan
from collectors.nodes.collector import NEEDS_A_JOB, NEEDS_A_STEP, requires_job
from collectors.nodes.steps import SHARES_GPUS, StepShell, node_name
from collectors.nodes.stream import ProbeStream
from collectors.probe import bundle
from collectors.quota import QuotaQuery, quota_query, run_query
from collectors.slurm.collector import polled_clusters
from trainmon.cli.check.output import (
    Check,
    Row,
    check_files,
    colour,
    files_of,
    in_parallel,
    print_fix,
    print_progress,
    print_rows,
    reported,
)
from trainmon.cli.check.readings import LogChecks, ProbeOutput, probe_rows
from trainmon.cli.check.services import (
    QueueAnswer,
    check_channels,
    check_daemon,
    check_metrics,
    check_slurm,
    check_textfile,
    check_wandb,
)
from trainmon.cli.terminal import ask_on_terminal
from trainmon.config import (
    AlertmanagerSettings,
    ClusterSettings,
    MetricsSettings,
    Settings,
    load_settings,
    log_formats,
    run_specs,
)
from trainmon.ledger.ledger import KEEP, NAME
from trainmon.ledger.postgresql import connection_error
from trainmon.lib import (
    ConfigError,
    HostKeyRefused,
    HostUnreachable,
    LoginNeeded,
    LoginRefused,
    Seconds,
    SystemClock,
    TrainmonError,
    counted,
    duration,
    find_state_directory,
    size,
)
from trainmon.lib.threads import DeadlineExceeded, DeadlineRunner
from trainmon.model import AnyReading, JobPart, Node, NodeReading, Spec
from trainmon.runtime.logs import log_to_file
from trainmon.runtime.monitor import copy_address
from trainmon.slurm.client import Client
from trainmon.slurm.commands import OWN_STEP
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import AskUser, Shell
from trainmon.transport.ssh.client import addresses
from trainmon.transport.ssh.config import FALLBACK_NOTE, HostSettings, openssh_settings
from tui.keys import changed_keys


def check_all(
    hosts: tuple[str, ...], config: Path | None, ssh_config: Path | None, headless: bool, notify: bool
) -> int:
    """Check the config and all that it names, and print the rows; the exit status."""

    log_to_file()
    try:
        settings, file = load_settings(config, hosts)
        changed_keys(settings.keys, str(file))
    except ConfigError as error:
        print_rows([Row("bad", "config", "", problem) for problem in error.problems])
        if error.hint:
            print_fix(error.hint)
        return 2
    bad = 0
    for rows in _everything(settings, file, ssh_config, headless=headless, notify=notify):
        bad += sum(row.mark == "bad" for row in rows)
        print_rows(rows)
    total = f"{counted(bad, 'problem')} to fix" if bad else "no problems"
    click.echo(click.style(total, bold=True), color=colour())
    return 3 if bad else 0


def _everything(
    settings: Settings, file: Path | None, ssh_config: Path | None, *, headless: bool, notify: bool
) -> Iterator[list[Row]]:
    """The rows of the config, and then of all that it names, as soon as each part is known."""

    yield [*config_rows(settings, file), *permission_rows(settings, file)]
    if headless and os.environ.pop("SSH_AUTH_SOCK", ""):
        text = "the SSH agent of this login session was not used, because the daemon will not have it"
        fix = "give the daemon a key file without a passphrase: IdentityFile in ~/.ssh/config"
        yield [Row("note", "agent", "", text, fix)]
    ask = ask_on_terminal if not headless and sys.stdin.isatty() else None
    nodes = yield from check_hosts(settings, ask=ask, progress=print_progress, ssh_config=ssh_config)
    yield list(check_metrics(settings, nodes))
    yield list(check_wandb(run_specs(settings)))
    yield list(check_channels(settings, test=notify))
    yield [*check_daemon(settings, ssh_config, ask), *check_textfile(settings)]


# ---- who else can read the secrets of the config ---------------------------------------------------------------------

SECRETS = frozenset({"topic", "reply_topic", "token", "reply_token", "password", "url", "headers", "ping", "copy_to"})
"""The settings of [[notify]], [heartbeat], [ledger] and `metrics` that are secrets."""


def permission_rows(settings: Settings, file: Path | None) -> Iterator[Row]:
    """A note for each file with secrets that other users can read."""
    secrets = [*_secrets(settings)]
    if file is not None and any(not text.startswith(("env:", "file:")) for text in secrets):
        yield from _row("config", file, stat.S_IRGRP | stat.S_IROTH, "it contains secrets")
    named = (text.removeprefix("file:") for text in secrets if text.startswith("file:"))
    for name in dict.fromkeys(named):
        yield from _row("secret", Path(name).expanduser(), stat.S_IRWXG | stat.S_IRWXO, "it is a secret")


def _secrets(value: object, name: str = "") -> Iterator[str]:
    """The secrets of a setting and of all below it, as they are written."""
    match value:
        case AlertmanagerSettings(url=url) | MetricsSettings(url=url) if "@" not in url:  # the address is no secret
            yield from _secrets(msgspec.structs.asdict(value) | {"url": None})
        case msgspec.Struct():
            yield from _secrets(msgspec.structs.asdict(value))
        case dict():
            for key, inner in value.items():
                yield from _secrets(inner, name or key)
        case tuple():
            for inner in value:
                yield from _secrets(inner)
        case str() if name in SECRETS:
            yield value


def _row(what: str, file: Path, refused: int, why: str) -> Iterator[Row]:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return  # another row says that it cannot be read
    if mode & refused:
        text = f"other users can read {file} (mode {mode:o}), and {why}"
        yield Row("note", what, "", text, f"chmod go-rwx {shlex.quote(str(file))}")


# ---- what the config holds -------------------------------------------------------------------------------------------


def copy_rows(settings: Settings) -> Iterator[Row]:
    """Whether the ledger can be copied to PostgreSQL.

    Raises:
        ConfigError: when its address is missing or not valid, or psycopg is not installed.
    """
    url = copy_address(settings)
    if url is not None:
        problem = connection_error(url)
        yield Row("ok" if problem is None else "bad", "ledger", "copy_to", problem or "PostgreSQL answers")


def size_rows(settings: Settings, directory: Path) -> list[Row]:
    """The size of the ledger, if there is one, and how long it keeps its entries."""

    used = sum(file.stat().st_size for file in directory.glob(f"{NAME}*"))
    keep = KEEP if settings.ledger is None else settings.ledger.keep
    return [Row("ok", "ledger", "size", f"{size(used)}; entries are kept for {duration(keep)}")] if used else []


def config_rows(settings: Settings, file: Path | None) -> Iterator[Row]:
    """The config in short, and its settings that this version does not use yet."""
    counts = f"{counted(len(settings.clusters), 'cluster')}, {counted(len(settings.runs), 'run')}"
    yield Row("ok", "config", "", f"{file or 'no file'}: {counts}")
    kept = find_state_directory(os.environ)
    yield Row("note" if kept.warning else "ok", "ledger", "", kept.warning or f"in {kept.path}")
    yield from size_rows(settings, kept.path)
    yield from reported("ledger", "copy_to", copy_rows(settings))
    if shutil.which("ssh") is None:
        yield Row("note", "ssh", "", FALLBACK_NOTE, "install OpenSSH's client")


# ---- checks all hosts, in parallel -----------------------------------------------------------------------------------

HOST_TIMEOUT: Seconds = 600.0
"""Each step has its own timeout. This one is for a step that hangs nevertheless."""

PROBE_TIMEOUT: Seconds = 20.0
"""A cold Python on a loaded node has taken 8 s to start; nvmlInit on eight GPUs without persistence as long."""

RESOLVE_TIMEOUT: Seconds = 10.0
QUOTA_TIMEOUT: Seconds = 30.0

FIX_QUOTA = "run its command on that host, and fix `quota` in the config"


def check_hosts(
    settings: Settings,
    *,
    ask: AskUser | None,
    progress: Callable[[int, int], None],
    ssh_config: Path | None = None,
) -> Generator[list[Row], None, dict[str, tuple[str, ...]]]:
    """The rows of each host, in the order of the config; after them those of the nodes that the runs' jobs are on, and
    those of the logs that no host has and of the log formats of the config. `ask` shows login prompts to a person;
    None: no person is there. Returns the nodes of the jobs that the config does not name, by cluster."""
    nodes: dict[str, tuple[str, ...]] = {}
    loop = EventLoop()
    logs = LogChecks(log_formats(settings), sum(run.log is not None for run in settings.runs), {}, {})
    loop.start()
    with contextlib.ExitStack() as stack:
        stack.callback(loop.stop)
        for cluster in settings.clusters:
            check = ClusterCheck(settings, cluster, loop, ask, ssh_config, logs)
            stack.callback(check.close)
            at_once = cluster.connect.at_once
            rows = in_parallel(list(check.checks(None)), at_once, HOST_TIMEOUT, progress)
            yield from filter(None, rows)  # a machine that is only queried for Slurm, and has none, has no rows
            of_jobs = check.queue.nodes if check.queue is not None and cluster.nodes is None else ()
            yield from in_parallel(list(check.checks(of_jobs)), at_once, HOST_TIMEOUT, progress)
            nodes[cluster.name] = of_jobs
    yield from filter(None, [[*filter(None, logs.missing.values()), *logs.check_formats()]])
    return nodes


class ClusterCheck:
    """The checks of the hosts of one cluster."""

    def __init__(
        self,
        settings: Settings,
        cluster: ClusterSettings,
        loop: EventLoop,
        ask: AskUser | None,
        ssh_config: Path | None,
        logs: LogChecks,
    ) -> None:
        self.queue: QueueAnswer | None = None
        """Set by the host that reads the queue."""
        self._connections = ClusterConnections(
            cluster, loop, ask, ssh_config, client_of=self._client, part_of=self._own_part
        )
        self._settings, self._cluster, self._ssh_config, self._logs = settings, cluster, ssh_config, logs
        self._runs = tuple(run for run in run_specs(settings) if run.cluster == cluster.name)
        self._polled = next((polled for polled, one in polled_clusters(settings) if one is cluster), None)

    def _client(self) -> Client:
        """What starts the steps of our jobs, which are known once the queue was read."""
        assert self.queue is not None
        return self.queue.client

    def _own_part(self, _: str, host: str) -> JobPart | None:
        return None if self.queue is None else self.queue.own.get(node_name(host))

    def close(self) -> None:
        """Close all connections; waits a moment for the end of the steps."""
        self._connections.close()
        if self.queue is not None:
            self.queue.client.shell.close()

    def checks(self, nodes: tuple[str, ...] | None) -> Iterator[Check]:
        """Before the queue was read, which is None: the hosts of the config that need no step; the first reads the
        shared files, and the login host or this machine queries its Slurm. Then those that a step may reach, and the
        nodes of the runs' jobs that the config does not name."""
        is_first, named = nodes is None, self._plan(()).hosts
        plan = self._plan(nodes or ())
        specs, _ = assign((plan,), plan.hosts)
        for host in plan.hosts:
            needs_queue = host not in named or self._may_use_step(plan, host)
            if needs_queue != is_first:
                yield self._check(plan, host, specs[host], is_first=is_first and host == plan.hosts[0])
        if is_first and self._polled is not None and self._polled.login not in plan.hosts:
            yield self._check(plan, self._polled.login, None)

    def _plan(self, nodes: tuple[str, ...]) -> WatchPlan:
        """What is read over SSH. `nodes`: those of the runs' jobs."""
        plan = watch_plan(self._settings, self._cluster, self._runs, nodes)
        return Coverage([self._cluster]).limited(plan, nodes)

    def _may_use_step(self, plan: WatchPlan, host: str) -> bool:
        return self._connections.may_use_step(host, is_node=host in plan.nodes)

    def _check(self, plan: WatchPlan, host: str, spec: Spec | None, *, is_first: bool = False) -> Check:
        late = Row("bad", host, "check", f"not finished after {HOST_TIMEOUT:g}s", f"try: ssh {host}")
        return late, partial(self._host, plan, host, spec, is_first=is_first)

    def _host(self, plan: WatchPlan, host: str, spec: Spec | None, *, is_first: bool) -> Iterator[Row]:
        """The steps to one host. They end at the first failure, because the next steps need it. Without a spec, only
        Slurm is checked there."""
        is_here = is_local(self._cluster, host)
        by = self._cluster.connect.by if self._may_use_step(plan, host) else "ssh"
        if not is_here and by != "srun":
            found = list(reported(host, "settings", resolved(host, self._ssh_config)))
            if by != "ssh":  # it need not lead to the host: a step may
                found = [row._replace(mark="note") if row.mark == "bad" else row for row in found]
            yield from found
            if found[-1].mark == "bad":
                return
        try:
            shell = self._connections.dialler(host, is_node=host in plan.nodes)()
            if isinstance(shell, StepShell):
                shell.test()
        except TrainmonError as error:
            yield from _not_connected(host, error) if by != "srun" else _without_step(host, error)
            return
        try:
            yield from _connected(host, shell, is_here=is_here, refuses_ssh=by == "auto")
            if spec is not None:
                python = sys.executable if is_here else self._cluster.python
                yield from reported(host, "probe", self._probed(host, spec, python, shell))
                yield from check_files(host, shell, files_of(self._runs, plan.shared_disks) if is_first else ())
                yield from self._quotas(host, spec, shell)
            if self._polled is not None and host == self._polled.login:
                self.queue = yield from check_slurm(host, self._polled, self._runs, shell)
        finally:
            if self.queue is None or shell is not self.queue.client.shell:  # that one starts the steps later
                shell.close()

    def _quotas(self, host: str, spec: Spec, shell: Shell) -> Iterator[Row]:
        for disk in self._settings.disks:
            query = quota_query(disk, self._cluster)
            if query is not None and disk.path in spec.disks:
                yield from reported(host, f"quota {query.path}", quota_rows(host, shell, query), FIX_QUOTA)

    def _probed(self, host: str, spec: Spec, python: str, shell: Shell) -> Iterator[Row]:
        output = run_probe(shell, Node(name=host, cluster=self._cluster.name), spec, python, PROBE_TIMEOUT)
        for part, text in output.node.troubles.items():
            yield Row("bad", host, part, text)
        if output.node.greeted_at is not None:
            yield from probe_rows(host, spec, output, self._runs, self._logs)
        else:
            why = output.end or f"no output within {PROBE_TIMEOUT:g}s"
            fix = bundle.START_HINT.format(host=host, python=python)
            yield Row("bad", host, "probe", f"{why}: {output.printed}" if output.printed else why, fix)


# ---- the steps to one host -------------------------------------------------------------------------------------------


def resolved(host: str, ssh_config: Path | None) -> Iterator[Row]:
    """The settings of ssh's config for the name, and its address."""
    user, _, name = host.rpartition("@")
    settings = openssh_settings(name, ssh_config, user=user or None)
    if settings.identity_agent not in (None, os.environ.get("SSH_AUTH_SOCK")):
        text = f"uses the SSH agent at {settings.identity_agent}: the daemon needs it even when nobody is logged in"
        fix = "or give the daemon a key file without a passphrase: IdentityFile in ~/.ssh/config"
        yield Row("note", host, "agent", text, fix)
    way = " and ".join(settings.proxy_jump) or (settings.proxy_command and "a ProxyCommand")
    yield Row("ok", host, "name", f"{settings.hostname}, through {way}") if way else _looked_up(host, settings)


def _looked_up(host: str, settings: HostSettings) -> Row:
    """The address of the name, resolved on a thread, because a resolver may hang for minutes."""
    resolver: DeadlineRunner[Any] = DeadlineRunner(f"resolve {host}")
    try:
        found = resolver.call(partial(addresses, settings), RESOLVE_TIMEOUT)
        return Row("ok", host, "name", f"{settings.hostname} resolves to {found[0][4][0]}")
    except OSError as error:
        why, is_dns = str(error.strerror), error.errno == socket.EAI_AGAIN
    except DeadlineExceeded:
        why, is_dns = f"no answer within {RESOLVE_TIMEOUT:g}s", True
    fix = "check the DNS of this machine" if is_dns else "correct the name in the config, or HostName in ~/.ssh/config"
    text = f"{settings.hostname} cannot be resolved: {why}"
    return Row("bad", host, "name", text, f"{fix}; try: getent hosts {settings.hostname}")


def _connected(host: str, shell: Shell, *, is_here: bool, refuses_ssh: bool) -> Iterator[Row]:
    if isinstance(shell, StepShell):
        text = f"a step of job {shell.part.job}, named {OWN_STEP}"
        yield Row("ok", host, "srun", f"{text}; the node refuses SSH" if refuses_ssh else text)
    elif not is_here:
        yield Row("ok", host, "connection", "answers")
        yield Row("ok", host, "host key", "known")
        text = "needs an interactive login: the dashboard prompts you; the daemon cannot log in"
        yield Row("note", host, "login", text) if shell.prompted else Row("ok", host, "login", "no prompt")


def _not_connected(host: str, error: TrainmonError) -> Iterator[Row]:
    is_login, is_host_key = isinstance(error, LoginRefused | LoginNeeded), isinstance(error, HostKeyRefused)
    if is_login or is_host_key or requires_job(error):
        yield Row("ok", host, "connection", "answers")
    if requires_job(error):
        yield Row("note", host, "login", f"{NEEDS_A_JOB}: the node is watched only while one of your jobs runs there")
        return
    if is_login:
        yield Row("ok", host, "host key", "known")
    step = "login" if is_login else "host key" if is_host_key else "connection"
    fix = error.hint or (f"try: ssh {host}" if isinstance(error, HostUnreachable) else "")
    yield Row("bad", host, step, error.message, fix)


def _without_step(host: str, error: TrainmonError) -> Iterator[Row]:
    if requires_job(error):
        text = f"{NEEDS_A_STEP}: the node is watched only while one of your jobs runs there"
        yield Row("note", host, "srun", text)
    else:
        yield Row("bad", host, "srun", error.message, error.hint or f"try: srun --overlap -w {host} hostname")


def run_probe(shell: Shell, node: Node, spec: Spec, python: str, timeout: Seconds) -> ProbeOutput:
    """Run the probe of a node until it has reported everything in the spec, has ended, or the timeout is over.

    When Python ends without output, the shell probe replaces it, as in the dashboard.
    """
    output = _run_once(shell, node, spec, python, timeout)
    if output.end is not None and SHARES_GPUS in output.end:
        output = _run_once(shell, node, spec, python, timeout)
    if output.node.greeted_at is None and output.end is not None and python != bundle.NO_PYTHON:
        instead = _run_once(shell, node, spec, bundle.NO_PYTHON, timeout)
        return instead if instead.node.greeted_at is not None else output
    return output


def _run_once(shell: Shell, node: Node, spec: Spec, python: str, timeout: Seconds) -> ProbeOutput:
    output, until = ProbeOutput(node), time.monotonic() + timeout
    has_started, has_ended = threading.Event(), threading.Event()

    def received(stream: ProbeStream, reading: AnyReading) -> None:
        _, arrived, left = stream.transit
        at = time.time() - arrived  # the wait is no difference of the clocks
        output.read(NodeReading(node.name, node.cluster, at, reading, under_way=left - arrived))
        if output.is_complete(spec):
            has_ended.set()

    def ended(stream: ProbeStream, error: TrainmonError, _: bool) -> None:
        if not has_ended.is_set():  # else we have closed it
            output.end = str(error) if stream.status is None else f"it ended with status {stream.status}"
        has_ended.set()
        has_started.set()

    probe = ProbeStream(shell.host, SystemClock(), lambda _: has_started.set(), received, ended)
    probe.command = shell.stream(bundle.command(python), probe)
    if has_started.wait(timeout) and not has_ended.is_set():
        probe.write(bundle.payload(probe.greeting or b"") + bundle.spec_line(spec))
        has_ended.wait(max(0.0, until - time.monotonic()))
    has_ended.set()
    output.printed = probe.output
    probe.command.close()
    return output


def quota_rows(host: str, shell: Shell, query: QuotaQuery) -> Iterator[Row]:
    """The rows of one quota.

    Raises:
        TrainmonError: when its command gives no usable answer.
    """
    what = f"quota {query.path}"
    if query.parser == "du":
        yield Row("note", host, what, "not tested: du reads the whole tree; the monitor runs it every 6h at most")
        return
    quota = run_query(query, shell, SystemClock(), "", QUOTA_TIMEOUT)
    if quota.trouble is not None:
        yield Row("note", host, what, quota.trouble)
    if not quota.allowances:
        yield Row("note", host, what, "no quota is set")
    for one in quota.allowances:
        limit = "no limit" if one.hard_bytes is None else f"limit {size(one.hard_bytes)}"
        text = f"{one.owner}: {size(one.used_bytes)} used, {limit}"
        if one.used_inodes is not None:
            files = "no limit" if one.hard_inodes is None else f"limit {one.hard_inodes:,}"
            text += f"; {one.used_inodes:,} files, {files}"
        yield Row("ok", host, what, text)
