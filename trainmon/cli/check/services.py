"""Checks the services of the config: Slurm with the jobs of the runs, Prometheus, W&B; and who sends notifications: the
channels, the dead-man's switch, and the daemon of `[daemon] host`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from collectors.connections import local_hostname
from collectors.daemon.collector import DaemonCollector, DaemonConnection
from collectors.prometheus.reader import MetricsReader, PrometheusClient
from collectors.slurm.collector import Watched
from collectors.wandb.child_process import ChildClient, WandbClient, WandbError
from collectors.wandb.collector import COMMON_ERRORS
from collectors.wandb.login import Credentials, find_credentials
from collectors.wandb.wire import ListRuns, ReadViewer, RunList, Viewer
from trainmon.alerting.notify.channels.healthchecks import Ping
from trainmon.alerting.notify.message import Broken, Sender, render
from trainmon.analysis.runs import holds_nodes, jobs_of, owner_of, parts_by_node, present
from trainmon.analysis.wandb import active_run
from trainmon.cli.check.output import PATH_TIMEOUT, FileTest, Row, check_files, in_parallel, reported
from trainmon.config import InvalidValue, MetricsSettings, Settings, address_error
from trainmon.lib import (
    Clock,
    ConfigError,
    Instant,
    Seconds,
    SystemClock,
    TrainmonError,
    counted,
    duration,
    find_state_directory,
    listed,
)
from trainmon.model import Job, JobPart, Notice, RunSpec, WandbRun, WandbSpec, by_name
from trainmon.runtime.alert_service import caveats, resolve, senders, unfit
from trainmon.slurm import batch_script, commands, errors, parse
from trainmon.slurm.client import Client, SlurmFailed
from trainmon.transport.shell import AskUser, Shell

# ---- Slurm -----------------------------------------------------------------------------------------------------------

FIXES = {
    "munge": "check on that host that munge runs and the clock is right: munge -n | unmunge",
    "configuration": "set SLURM_CONF in your profile on that host, or fix `login` in the config",
    "silent": "run scontrol ping on that host: it shows whether slurmctld answers",
    "absent": "set `login` to a host that has Slurm's commands, or remove `users`, `spares`, `job` and `script`",
}

SCRIPTS = 20
"""Batch scripts that are read at most, each with two commands."""


class QueueAnswer(NamedTuple):
    """What the queue tells about the hosts."""

    client: Client
    """The one that has read it."""
    nodes: tuple[str, ...]
    """Those of the runs' jobs, and of our own."""
    own: Mapping[str, JobPart]
    """Those of our own jobs, each with the number of a job there."""


def check_slurm(
    host: str, watched: Watched, runs: Sequence[RunSpec], shell: Shell
) -> Generator[Row, None, QueueAnswer | None]:
    """The rows of one Slurm and of the jobs of its cluster's runs. Returns what else its queue tells; None without an
    answer."""
    client = Client(shell)
    try:
        me = client.me()
        users = by_name(watched.users, me)
        jobs = parse.read_queue(client.run(commands.queue(users)), watched.cluster)
    except SlurmFailed as failure:
        yield from _silent(host, failure, required=watched.required)
        return None
    # The config's `me` is the user that runs the Slurm commands there.
    runs = [replace(run, user=owner_of(run, watched.users, me)) for run in runs]
    yield from _about(host, replace(watched, users=users), client, me, jobs)
    for run in runs:
        yield from reported(host, f"run {run.name}", _run(host, run, client, jobs))
    mine = [job for job in jobs if job.user == me]
    known = {run.job or run.name for run in runs if run.user in (None, me)}
    names = dict.fromkeys(job.name for job in mine if holds_nodes(job) and job.name not in known)
    if names:
        yield Row("ok", host, "runs", f"{len(names)} found in your running jobs: {', '.join(names)}")
    newest = {job.name: job for job in reversed(mine) if job.stage != "ended"}
    for job in list(newest.values())[:SCRIPTS]:
        yield from _signals(host, client, job)
    followed = [*(job for run in runs for job in jobs_of(run, jobs)), *mine]
    nodes = dict.fromkeys(node for job in followed if holds_nodes(job) for node in job.nodes)
    return QueueAnswer(client, tuple(nodes), parts_by_node(mine))


def _silent(host: str, failure: SlurmFailed, *, required: bool) -> Iterator[Row]:
    """The row of a Slurm without an answer. A host without Slurm is no problem when the config does not need it."""
    is_unconfigured = errors.is_without_configuration(failure.stderr)
    if (failure.kind == "absent" or is_unconfigured) and not required:
        return
    kind: str = "munge" if "munge" in failure.stderr.lower() else failure.kind
    if is_unconfigured and failure.kind != "absent":
        kind = "configuration"
    yield Row("bad", host, "Slurm", failure.message, FIXES.get(kind, failure.hint or f"try: squeue --me on {host}"))


def _about(host: str, watched: Watched, client: Client, me: str, jobs: Sequence[Job]) -> Iterator[Row]:
    running = sum(job.stage == "running" for job in jobs)
    waiting = sum(job.elements for job in jobs if job.stage == "waiting")
    try:
        found = parse.read_configuration(client.run(commands.configuration()))
    except SlurmFailed as failure:
        yield Row("bad", host, "Slurm", failure.message, FIXES["silent"])
        return
    off = "off: Slurm forgets how a job ended after a few minutes (MinJobAge)"
    yield Row("ok", host, "Slurm", f"{found.version or 'unknown version'}, as user {me}")
    yield Row("ok", host, "queue", f"{running} running, {waiting} pending ({', '.join(watched.users) or 'yours'})")
    yield Row("ok", host, "accounting", "on: sacct shows how jobs ended" if found.accounting else off)
    if watched.spares:
        yield from reported(host, "spares", _spares(host, watched, client))


def _spares(host: str, watched: Watched, client: Client) -> Iterator[Row]:
    nodes = parse.read_nodes(client.run(commands.nodes()), watched.cluster)
    idle = sum(node.state == "IDLE" and node.is_usable for node in nodes)
    text = f"{idle} idle of {counted(len(nodes), 'node')}, {watched.spares} wanted"
    yield Row("ok" if idle >= watched.spares else "note", host, "spares", text)


def _run(host: str, run: RunSpec, client: Client, jobs: Sequence[Job]) -> Iterator[Row]:
    own = [job for job in jobs_of(run, jobs) if job.stage != "ended"]
    job, what = present(own), f"run {run.name}"
    if job is not None:
        more = f", {len(own) - 1} more" if len(own) > 1 else ""
        yield Row("ok", host, what, f"job {job.id} is {job.state} on {counted(len(job.nodes), 'node')}{more}")
        if run.log is None and not (run.wandb is not None and run.wandb.console):
            yield from reported(host, "log", _output(host, client, job))
    elif own:
        yield Row("ok", host, what, f"job {own[0].id} is pending ({own[0].reason or 'no reason'})")
    else:
        name = run.job or run.name
        others = sorted({job.user for job in jobs if job.name == name and job.user != run.user})
        text, fix = f"no job named {name} is in the queue", "start the run, or fix its `job` in the config"
        if others:
            text, fix = f"no job named {name} belongs to {run.user}, but to {', '.join(others)}", "fix the run's `user`"
        yield Row("note", host, what, text, fix)
        if run.script is not None:
            script = client.shell.run(("head", "-c", "1000000", "--", run.script), timeout=PATH_TIMEOUT)
            yield from _signal(host, run.script, script.stdout.decode("utf-8", "replace"))


def _signals(host: str, client: Client, job: Job) -> Iterator[Row]:
    """Whether the signal that Slurm sends before the time limit reaches the trainer. A job of srun has no script."""
    with contextlib.suppress(SlurmFailed):
        script = client.run(commands.batch_script(str(job.number)))
        details = client.run(commands.show_job(str(job.number)))
        yield from _signal(host, f"job {job.id}", script, details)


def _signal(host: str, what: str, script: str, details: str = "") -> Iterator[Row]:
    found = batch_script.unheard_signal(script, details)
    if found is not None:
        yield Row("note", host, what, found.text, found.fix)


def _output(host: str, client: Client, job: Job) -> Iterator[Row]:
    """The log that is followed when the config names none: the output file of the job."""
    records = parse.read_job(client.run(commands.show_job(str(job.number))), job.cluster)
    path = next((one.stdout for one in records if one.number == job.number), None)
    if path is None:
        yield Row("note", host, "log", f"job {job.id} has no output file", "set the run's `log` in the config")
    else:
        fix = f"write its output to a disk that {host} mounts, or set the run's `log` in the config"
        check = FileTest(path, "-r", f"followed: the output of job {job.id}", "cannot be read", fix)
        yield from check_files(host, client.shell, [check])


# ---- Prometheus: one query for each metrics table --------------------------------------------------------------------


def check_metrics(
    settings: Settings,
    nodes_of_jobs: Mapping[str, tuple[str, ...]],
    environ: Mapping[str, str] = os.environ,
) -> Iterator[Row]:
    """The rows of all metrics tables. `nodes_of_jobs`: by cluster, those that the config does not name."""
    disks = tuple(disk.path for disk in settings.disks if disk.on == "nodes")
    for cluster in settings.clusters:
        only_login = (cluster.login,) if cluster.nodes is not None and cluster.login else ()
        nodes = cluster.nodes or only_login or nodes_of_jobs.get(cluster.name, ())
        for table in cluster.metrics:
            what = f"{cluster.name}, {table.exporter}"
            yield from reported("Prometheus", what, _table(what, table, nodes, disks, environ))


def _table(
    what: str, table: MetricsSettings, nodes: tuple[str, ...], disks: tuple[str, ...], environ: Mapping[str, str]
) -> Iterator[Row]:
    now = SystemClock().now
    client = PrometheusClient(table, now, environ)
    reader = MetricsReader(table, client, now)
    if not nodes:  # no job of the runs is known
        label, seen = reader.label_values()
        if not seen:
            raise reader.why_empty(())
        yield Row("ok", "Prometheus", what, f"{label} has {counted(len(seen), 'value')}: {listed(seen)}")
        return
    found = reader.read(nodes, dict.fromkeys(nodes, disks))
    age = duration(max(0.0, now() - reader.ours(max(node.at for node in found.values()))))
    gpus = sum(len(node.gpus) for node in found.values())
    of_gpus = "" if reader.exporter.is_host else f" with {counted(gpus, 'GPU')}"
    text = f"{counted(len(found), 'node')}{of_gpus}; the newest sample is {age} old"
    yield Row("note" if reader.gap else "ok", "Prometheus", what, "; ".join(filter(None, (text, reader.note))))
    if abs(client.clock_offset) > 0:
        way = "ahead of" if client.clock_offset > 0 else "behind"
        text = f"the clock of the server is {abs(client.clock_offset):.0f}s {way} the clock of this machine"
        yield Row("note", "Prometheus", what, text, "correct one of them: chronyc tracking")
    absent = [node for node in nodes if node not in found]
    silent = [node for node, numbers in found.items() if reader.is_silent(reader.ours(numbers.at))]
    for without, some in (("series", absent), ("new samples", silent)):
        if some:
            text = f"{len(some)} of {counted(len(nodes), 'node')} without {without}: {listed(some)}"
            yield Row("note", "Prometheus", what, text, reader.scrape_hint)


# ---- W&B: the key and its user, and whether the projects and W&B runs of the config exist ----------------------------

COMMON = COMMON_ERRORS | {"slow"}
"""Failures that the next request would meet, too."""


def check_wandb(
    runs: Sequence[RunSpec],
    login: Callable[[], Credentials] = find_credentials,
    client: Callable[[], WandbClient] = ChildClient,
) -> Iterator[Row]:
    """The rows of W&B; none when no run names a project. Nothing is started then."""
    watched = [(run, run.wandb) for run in runs if run.wandb is not None]
    if not watched:
        return
    found = login()
    if found.location is None:
        yield Row("bad", "W&B", "key", found.error, found.hint)
        return
    yield Row("ok", "W&B", "key", f"in {found.location}, for {found.server}")
    with contextlib.closing(client()) as connection:
        try:
            viewer = connection.query(ReadViewer(id=0), Viewer)
            teams = [team for team in viewer.teams if team != viewer.user]
            of = f", of {listed(teams)}" if teams else ""
            yield Row("ok", "W&B", "server", f"{found.server} answers {viewer.user or 'a service account'}{of}")
            for run, spec in watched:
                try:
                    active = connection.query(ListRuns(id=0, spec=spec), RunList).runs
                except WandbError as failure:
                    if failure.kind in COMMON:
                        raise
                    yield _not_answered(f"run {run.name}", failure, found)
                else:
                    yield _active(run, spec, active, time.time())
        except WandbError as failure:
            yield _not_answered("server", failure, found)


def _not_answered(what: str, failure: WandbError, login: Credentials) -> Row:
    return Row(
        "bad", "W&B", what, failure.message, failure.hint or f"try: curl -I {login.url}; is WANDB_BASE_URL right?"
    )


def _active(run: RunSpec, spec: WandbSpec, runs: tuple[WandbRun, ...], now: float) -> Row:
    """The row of one run, judged as in the dashboard."""
    what = f"run {run.name}"
    group = active_run.read(spec, runs, None, now, stopped=False)
    if not runs:
        fix = "if its W&B run has started, fix group, run, display or tags; otherwise it is found when it starts"
        return Row("note", "W&B", what, f"{spec.project} exists; {group.why}", fix)
    active = [one for one in runs if one.id in group.active]
    if len(active) > 1:
        return Row("note", "W&B", what, group.why, "end all but one, or add a [[run]] for each")
    if active:
        beat = active[0].heartbeat_at
        heartbeat = f", heartbeat {duration(max(0.0, now - beat))} ago" if beat is not None else ""
        return Row("ok", "W&B", what, f"{spec.description}: {group.why}{heartbeat}")
    text = f"{spec.description}: none is active; {group.why}"
    return Row("note" if group.phase == "overdue" else "ok", "W&B", what, text)


# ---- checks who sends notifications ----------------------------------------------------------------------------------

TIMEOUT: Seconds = 20.0
"""For one channel; channels are checked in parallel."""

MORE: Seconds = 10.0
"""After this additional time a channel has not answered."""

FIX_SECRET = "fix the config, or provide the environment variable or the file that it names"
FIX_CHANNEL = "fix its [[notify]] in the config"

RECEIVED = "a service may accept a message and not deliver it: check that it arrived"


def check_channels(settings: Settings, *, test: bool) -> Iterator[Row]:
    """The rows of each channel of the config. With `test`, a message is sent to each."""
    try:
        made = senders(settings.notify, state_directory=find_state_directory(os.environ).path)
    except ConfigError as error:
        yield from (Row("bad", "channel", "", problem, FIX_SECRET) for problem in error.problems)
        made = tuple(_usable(settings))
    late = f"no answer within {2 * TIMEOUT + MORE:g}s"
    checks = [
        (Row("bad", "channel", sender.health.name, late), partial(_channel, sender, test=test)) for sender in made
    ]
    for rows in in_parallel(checks, len(made), 2 * TIMEOUT + MORE):
        yield from rows
    yield from _dead_man_switch(settings, test=test)
    yield from (Row("note", "alerts", "", caveat) for caveat in caveats(settings))
    if test and made:
        yield Row("note", "alerts", "", RECEIVED)


def _usable(settings: Settings) -> Iterator[Sender]:
    """The channels without a mistake, when others have one."""
    for entry in settings.notify:
        with contextlib.suppress(ConfigError):  # already reported
            yield from senders((entry,), state_directory=find_state_directory(os.environ).path)


def _channel(sender: Sender, *, test: bool) -> Iterator[Row]:
    health = sender.health
    about = f"{health.type}, {health.target}" if health.target else health.type
    try:
        wrong = unfit(sender, TIMEOUT)
        if wrong:
            yield Row("bad", "channel", health.name, f"{about}: {wrong}", FIX_CHANNEL)
            return
        if test:
            answer = sender.send(render([test_notice(health.name, time.time())], time.time()), TIMEOUT).answer
            about += f": accepted the test{f' ({answer})' if answer else ''}"
        yield Row("ok", "channel", health.name, about)
    except TrainmonError as error:
        fix = FIX_CHANNEL if isinstance(error, Broken) else "try again; the failure may be temporary"
        yield Row("bad", "channel", health.name, f"{about}: {error.message}", fix)
    if note := sender.health.note:  # apprise's remark about the address
        yield Row("note", "channel", health.name, note)


def test_notice(channel: str, now: Instant) -> Notice:
    """What `check --notify` sends."""
    return Notice(
        key=f"check {now:.3f}",
        kind="test",
        reason="requested by check --notify",
        severity="info",
        at=now,
        channels=(channel,),
        title="a test of trainmon-tui",
        lines=(f"Somebody ran check --notify. If you read this, the channel {channel} works.",),
    )


def _dead_man_switch(settings: Settings, *, test: bool) -> Iterator[Row]:
    """The dead-man's switch. The test goes to its log, so that it does not count as a ping."""
    if settings.heartbeat.ping is None:
        return
    text = "an address is set; check --notify tests it"
    try:
        ping = Ping("ping", resolve(settings.heartbeat.ping, os.environ, address_error))
        if test:
            ping("log", "a test by trainmon-tui check --notify", TIMEOUT)
            text = "accepted the test"
        yield Row("ok", "heartbeat", "ping", text)
    except InvalidValue as wrong:
        yield Row("bad", "heartbeat", "ping", f'"ping" {wrong}', FIX_SECRET)
    except TrainmonError as error:
        yield Row("bad", "heartbeat", "ping", error.message, "fix [heartbeat] ping in the config")


START = "start the daemon there; trainmon-tui service systemd|cron|slurm|tmux prints how"
NO_DAEMON = "no daemon runs there; a dashboard sends the notifications while it runs"


def check_daemon(settings: Settings, ssh_config: Path | None, ask: AskUser | None) -> Iterator[Row]:
    """The rows of the daemon's host; none when the config names no host."""
    host = settings.daemon.host
    if host in (local_hostname(), "localhost"):
        text = "is this machine: remove [daemon]; a dashboard finds the daemon of its own machine in the ledger"
        yield Row("note", "daemon", host, text)
    elif host is not None:
        with contextlib.closing(DaemonConnection(host, lambda _: None, ask, ssh_config)) as connection:
            yield from query(settings, host, connection.shell, SystemClock())


def check_textfile(settings: Settings) -> Iterator[Row]:
    """The row of the file for node_exporter, if a daemon on this machine writes one."""
    host, textfile = settings.daemon.host, settings.daemon.textfile
    if textfile is None or host not in (None, local_hostname(), "localhost"):
        return
    folder = Path(textfile).parent
    if not folder.is_dir():
        fix = f"create it, and start node_exporter with --collector.textfile.directory={folder}"
        yield Row("bad", "textfile", "", f"{folder} is not a directory", fix)
    elif not os.access(folder, os.W_OK | os.X_OK):
        yield Row("bad", "textfile", "", f"you cannot write to {folder}", "let the user of the daemon write there")
    else:
        yield Row("ok", "textfile", "", textfile)


def query(settings: Settings, host: str, connect: Callable[[], Shell], clock: Clock) -> Iterator[Row]:
    """The daemon's status, read as the dashboard reads it."""
    collector = DaemonCollector(
        host, settings.daemon.command, settings.daemon.every, connect, lambda _: None, clock,
        on_active=lambda _: None, on_silent=lambda _: None,
    )  # fmt: skip
    try:
        is_watched, status = collector.poll()
    except TrainmonError as error:
        fix = error.hint or f"try: ssh {host} {settings.daemon.command[0]} status"
        yield Row("bad", "daemon", host, error.message.removeprefix(f"{host}: "), fix)
        return
    finally:
        collector.stop()
    if not is_watched:
        yield Row("bad", "daemon", host, status.leader.problem or NO_DAEMON, START)
        return
    last = status.leader.last_tick_at
    checked = "" if last is None else f", last check {duration(max(0.0, status.at - last))} ago"
    channels = counted(len(status.channels), "channel") if status.channels else "no channel"
    yield Row("ok", "daemon", host, f"pid {status.leader.pid} sends notifications to {channels}{checked}")
    if status.leader.problem:
        yield Row("note", "daemon", host, status.leader.problem)
    if not status.channels:
        yield Row("note", "daemon", host, "it has no notification channel", "add [[notify]] to the config there")
