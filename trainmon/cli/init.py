"""trainmon-tui init: writes a first, commented trainmon.toml from what Slurm, W&B and the logs say."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

from collectors.wandb.child_process import ChildClient, WandbClient, WandbError
from collectors.wandb.login import Credentials, find_credentials
from collectors.wandb.wire import ReadViewer, Viewer
from trainmon.cli.snapshot import StateWatcher, first_full_state
from trainmon.cli.terminal import ask_on_terminal, print_error, read_line
from trainmon.config import ClusterSettings, ImplicitCluster, Settings, login_of, toml, why_not_trusted
from trainmon.config.decode import decode
from trainmon.lib import Seconds, TrainmonError, clean, counted, shorten, write_whole
from trainmon.model import Job, OwnProcess, Run, SchedulerNode, State
from trainmon.runtime.logs import log_to_file
from trainmon.runtime.monitor import Monitor
from trainmon.slurm import commands, parse
from trainmon.slurm.client import Client, SlurmFailed
from trainmon.transport.shell import AskUser
from trainmon.transport.ssh.config import known_hosts_by_name

# ---- queries for `init` ----------------------------------------------------------------------------------------------

RUNS_AT_MOST = 20

LOGIN_WAIT: Seconds = 600.0
"""The longest wait for a person's login and for Slurm, which have time limits of their own."""

WAIT: Seconds = 15.0
"""The longest wait for the logs of the runs."""

SETTLE_RUNS: Seconds = 2.0
"""The wait for directories and W&B runs that the logs name."""


class SlurmReport(NamedTuple):
    """What a Slurm reports."""

    me: str
    version: str | None
    nodes: tuple[SchedulerNode, ...]
    jobs: tuple[Job, ...]
    """Our own batch jobs that run now, one of each name, the latest."""

    @property
    def summary(self) -> str:
        """`Slurm 22.05.8: 32 nodes, gpu-[001-032]; 30 IDLE, 2 DOWN`."""
        states = Counter(node.state for node in self.nodes)
        listed = ", ".join(f"{count} {state}" for state, count in states.most_common(4))
        names = folded([node.name for node in self.nodes])
        return f"Slurm {self.version or ''}: {counted(len(self.nodes), 'node')}, {names}; {listed}".replace(" :", ":")


def query_cluster(
    login: str | None, ssh_config: Path | None, ask: AskUser | None, *, needs_slurm: bool
) -> tuple[SlurmReport | None, tuple[Run, ...]]:
    """What the Slurm of a login host, or of this machine, reports, and our runs with what their logs name. This machine
    may train without Slurm. All is read with the sources of the dashboard.

    Raises:
        TrainmonError: when no Slurm answers although one is needed.
    """
    cluster = ClusterSettings(login=login) if login is not None else ImplicitCluster()
    settings, report = Settings(clusters=(cluster,)), None
    with Monitor(settings, keeps=False, records=False, ssh_config=ssh_config, ask=ask) as monitor:
        node, queue = monitor.supervisor.nodes.get(login or ""), monitor.supervisor.queues.get(cluster.name)

        def failure() -> TrainmonError | None:
            return (node.failure if node is not None else None) or (queue.failure if queue is not None else None)

        def is_polled(state: State) -> bool:
            return any(one.is_polled for one in state.clusters.values())

        def has_come(state: State) -> bool:
            return queue is None or is_polled(state) or failure() is not None

        with contextlib.closing(StateWatcher(monitor.subscribe)) as watcher:
            watcher.wait_for(has_come, LOGIN_WAIT)
        if needs_slurm and not is_polled(monitor.engine.state) and (why := failure()) is not None:
            raise why
        log_to_file()
        if first_full_state(monitor, WAIT).runs:
            time.sleep(SETTLE_RUNS)  # what a log names is looked for, too
        state = monitor.engine.state
        known = state.clusters[cluster.name]
        if known.is_polled:
            own = [job for job in state.jobs.values() if job.user == known.me and job.stage == "running" and job.name]
            latest = {job.name: job for job in sorted(own, key=lambda job: job.number)}
            jobs = tuple(job for job in [*latest.values()][:RUNS_AT_MOST] if job.batch)
            nodes = parse.read_nodes(Client(monitor.supervisor.shell_of(known.login)).run(commands.nodes()), "")
            report = SlurmReport(known.me or "", known.slurm, nodes, jobs)
    return report, tuple(run for run in state.runs.values() if run.spec.ended_at is None)[:RUNS_AT_MOST]


def folded(nodes: Sequence[str]) -> str:
    """Names of nodes as a Slurm host list."""
    return str(NodeSet.fromlist(list(nodes), resolver=RESOLVER_NOGROUP)) if nodes else "none"


class Account(NamedTuple):
    """A W&B login of this machine; what its server did not report is None."""

    server: str
    location: str
    user: str | None = None
    entity: str | None = None
    teams: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """`W&B: the key in ~/.netrc is ana's on wandb.ai; teams: vision, speech`."""
        owner = f"is {self.user}'s on" if self.user else "is for"
        teams = [team for team in self.teams if team != self.user]
        return f"W&B: the key in {self.location} {owner} {self.server}" + (
            f"; teams: {', '.join(teams)}" if teams else ""
        )


def query_wandb(
    login: Callable[[], Credentials] = find_credentials,
    client: Callable[[], WandbClient] = ChildClient,
) -> Account | None:
    """The W&B account of this machine; None where there is no key. Without a key, no client is started."""
    found = login()
    if found.location is None:
        return None
    if sys.stderr.isatty():
        click.echo(clean(f"querying {found.server} with the key in {found.location} …"), err=True)
    account = Account(found.server, found.location)
    try:
        with contextlib.closing(client()) as connection:
            viewer = connection.query(ReadViewer(id=0), Viewer)
    except WandbError:
        return account  # `check` reports the error
    return account._replace(user=viewer.user, entity=viewer.entity, teams=viewer.teams)


# ---- the text of a first trainmon.toml -------------------------------------------------------------------------------

ENTITY = re.compile(r"[\w.-]{1,64}", re.ASCII)

TEXT = """\
# The config of trainmon-tui. docs/reference/configuration.md lists all settings. `trainmon-tui check` tests this file.
# A duration is written "2s", "15m" or "1h30m". A host is a name that ssh knows, or a Slurm host list.

# read_only = true              # refuse every action

[[cluster]]
{name}
{login}
{nodes}
# users = {users:<22}# the users whose jobs are watched; default: you
# slurm_every = "30s"           # the polling period of Slurm
# spares = 2                    # the number of healthy idle nodes that you want in reserve
# every = "2s"                  # the sampling period of GPUs and hosts
# gpu_hour_price = 2.5          # what a GPU costs in an hour: `trainmon-tui report` shows the cost with it
# python = "python3"            # the Python interpreter on the nodes
# connect = {{ by = "ssh", at_once = 8, timeout = "10s" }}   # by = "openssh": only by the ssh command
# metrics = {{ url = "http://prometheus:9090", exporter = "dcgm" }}   # GPU numbers of Prometheus instead of SSH
# ssh = "runs"                  # with metrics: which nodes SSH connects to all the time; or "files"

# [wandb]
# every = "60s"                 # the polling period of W&B{account}

{runs}# A training run. Its step, loss and speed are read from its log. Your running jobs are found automatically.
# A [[run]] adds settings to one of them.
# [[run]]
# name = "my-run"
# job = "my-run"                                # the name of its Slurm jobs
# user = "me"                                   # the owner of these jobs; default: you
# log = "/shared/my-run/logs/*.out"             # the newest match is followed; default: the output file of its job
# checkpoints = "/shared/my-run/checkpoints"    # the checkpoints and their disk are watched
# kill_switch = "/shared/my-run/kill-switch"    # the trainer saves and exits when this file appears
# save_switch = "/shared/my-run/save-switch"    # the trainer saves when this file appears
# status = "/shared/my-run/status"              # where `trainmon_hooks` reports; default: beside the switches
# script = "/shared/my-run/train.slurm"         # `trainmon-tui queue` submits it with sbatch
# target_step = 100_000                         # default: the target in its log
# stall_after = "15m"                           # stalled after this long without a step; default: 15m, hung sooner
# nodes = {nodes_of_run:<38}# where it trains, if it has no Slurm job
# wandb = {project:<38}# its W&B project
# group = "my-run"                              # its W&B group; or run = "ab12cd34", display = "my-", tags = ["main"]
# restart_grace = "15m"                         # how long the next W&B run may take to appear
# wandb_dir = "/shared/my-run/wandb"            # the files of its W&B client: curves without a key, also offline
# metrics_dir = "/shared/my-run/tensorboard"    # files of TensorBoard, CSV or JSON lines: curves without W&B
# charts = ["train/loss"]                       # default: metrics with the usual names
# cluster = {quoted_name:<36}# needed only with several clusters
# auto_requeue = "suggest"                      # default: that of [retry]
# model_family = "reasoning"                    # these four are stored with each attempt
# labels = {{ owner = "team-a" }}
# data_manifest = "v3"                          # or a file; default: $TRAINMON_DATA_MANIFEST, else its W&B setting
# config = "/shared/exp/train.yaml"             # default: as --config on its command line; its hash is stored
# receipts = "/shared/my-run/receipts"          # where `trainmon-run` keeps them; default: the state directory

# A log format of your own. It is tried before the built-in formats.
# [[log_format]]
# name = "mine"
# pattern = 'iter (?P<step>\\d+)/(?P<target_step>\\d+) loss (?P<loss>\\S+)'

# A disk to watch, in addition to the disks of the runs' own paths.
[[disk]]
path = "/"                                      # guessed: full root disks stop nodes
on = "nodes"                                    # guessed: all nodes; or "login", or "run": the nodes of the runs
# usable = "80%"                # treat 80% as full

# [[disk]]
# path = "/shared"
# on = "login"
# lag = "10m"                   # how old its statistics may be
# quota = {{ command = ["lfs", "quota", "-q", "-u", "me", "/shared"], parser = "lustre" }}

# Who is notified of alerts. Use two independent channels; `trainmon-tui check --notify` tests them.
# [[notify]]
# type = "ntfy"                 # or webhook, alertmanager, healthchecks, command, desktop
#                               # or apprise, for mail, Slack and 160 more: an extra; `check` prints how to install it
# topic = "env:NTFY_TOPIC"      # a secret: from an environment variable, or from "file:/path"
# severity = "warning"          # critical | warning | info

# [alerts]
# repeat = "4h"                 # a critical alert that nobody has acknowledged is notified again after this time

# [heartbeat]
# every = "4h"                  # the interval of a status report to every channel
# ping = "env:HEALTHCHECK_URL"  # a dead-man's switch: its service notifies you when the pings stop

# How often a run is retried after a cause without a new step or checkpoint, and by whom.
# [retry]
# auto_requeue = "off"          # or "suggest": notifies you; "on": `trainmon-tui --alerts-only` requeues the job
# nccl-timeout = 3

# The results of an evaluator: one JSON object per line, as docs/how-to/evaluators.md describes.
# [[eval]]
# run = "my-run"
# results = "/shared/my-run/evals.jsonl"
# command = ["sbatch", "/shared/my-run/eval.sbatch", "{{checkpoint}}"]   # R starts it when the evaluator has crashed

# What was recorded: attempts, actions and alerts. `trainmon-tui attempts`, `explain` and `sql` read it.
# [ledger]
# keep = "90d"                 # how long entries are kept
# copy_to = "env:TRAINMON_POSTGRESQL"         # a copy in a team's PostgreSQL: postgresql://user:password@host/database

# When alerts are shown but nobody is notified of them.
# [[maintenance]]
# days = ["tue"]
# at = "08:30"
# for = "2h"
# node = "gpu-014"

# Settings of a rule; `trainmon-tui rules` lists all rules.
# [[rule]]
# type = "gpu-hot"
# for = "5m"

# [dashboard]
# time = "utc"                  # or "local": the zone of this machine

# [daemon]
# host = "bastion"              # where `trainmon-tui --alerts-only` runs, if not on this machine
# metrics = "127.0.0.1:9464"    # the daemon serves /metrics for Prometheus; textfile = "….prom" is for node_exporter
"""

NO_LOGIN = '# login = "login1"            # shared files are read and Slurm is queried there; default: this machine'
NO_NODES = (
    '# nodes = ["gpu-[001-032]"]   # default: the login host or this machine; "slurm": the nodes of the runs\' jobs'
)


class FoundFacts(NamedTuple):
    """What is known without a config."""

    slurm: SlurmReport | None = None
    account: Account | None = None
    runs: tuple[Run, ...] = ()


def config_text(name: str, login: str | None, nodes: Sequence[str], found: FoundFacts, why: str = "given") -> str:
    """A config for these hosts, with what was found. Each setting says whether it was given, found or guessed; `why`
    says so of the login host."""
    slurm, account = found.slurm, found.account
    of_slurm = marked('nodes = "slurm"', "found: the nodes of the runs' jobs")
    unnamed = NO_NODES if slurm is None else f"# {comment(slurm.summary)}\n{of_slurm}"
    by_job = {run.spec.job: run for run in found.runs if run.spec.only is None}
    tables = [_job_run(job, by_job.get(job.name), account) for job in (slurm.jobs if slurm is not None else ())]
    tables += [_process_run(run, run.spec.process, account) for run in found.runs if run.spec.process is not None]
    return TEXT.format(
        name=setting("name", name, "guessed: any name will do" if name == "main" else "given"),
        quoted_name=toml(name),
        login=setting("login", login, why) if login else NO_LOGIN,
        nodes=marked(f"nodes = [{', '.join(map(toml, nodes))}]", "given") if nodes else unnamed,
        nodes_of_run=f"[{toml(nodes[0])}]" if nodes else '["gpu-001"]',
        users=f"[{toml(slurm.me)}]" if slurm is not None else '["me"]',
        runs="".join("\n".join(lines) + "\n\n" for lines in tables),
        project=_project(account),
        account="" if account is None else f"\n# {comment(account.summary)}",
    )


def _project(account: Account | None) -> str:
    entity = account.entity if account is not None else None
    return toml(f"{entity if entity and ENTITY.fullmatch(entity) else 'team'}/project")


def _job_run(job: Job, run: Run | None, account: Account | None) -> list[str]:
    """One of our own jobs as a run. Its log is a comment: a path with the number of a job is of no use later."""
    command = job.command or ""
    is_script = command.startswith("/") and " " not in command
    return [
        f"# Job {comment(job.id)} runs on {counted(len(job.nodes), 'node')} ({comment(folded(job.nodes))}).",
        "[[run]]",
        setting("name", job.name, "found: the name of the job"),
        "# " + setting("log", job.stdout, "found: the output file of the job, which is read without this line")
        if job.stdout
        else "# log: its job has no output file",
        setting("script", command, "found: the command of the job")
        if is_script
        else "# " + setting("script", "/shared/train.slurm", "guessed"),
        *_from_log(job.name, run, account),
    ]


def _process_run(run: Run, process: OwnProcess, account: Account | None) -> list[str]:
    """A trainer that runs on this machine without a job."""
    return [
        f"# Process {process.pid} trains on this machine: {comment(process.command)}",
        "[[run]]",
        setting("name", run.name, "found: the script of the process"),
        setting("log", process.stdout, "found: the standard output of the process")
        if process.stdout
        else "# " + setting("log", "/shared/train.log", "guessed: the standard output of the process is not a file"),
        *_from_log(run.name, run, account),
    ]


def _from_log(name: str, run: Run | None, account: Account | None) -> Iterator[str]:
    """What the log of a run names, and what it may be where it names nothing."""
    folder = "/shared/" + "".join(char if char.isalnum() or char in "-_." else "-" for char in name)
    spec = run.spec.wandb if run is not None else None
    if run is not None and spec is not None:
        active = run.wandb.runs if run.wandb is not None else ()
        group = next((one.group for one in active if one.id == spec.run), None)
        yield setting("wandb", spec.project, "found: the log names it")
        if group:
            yield setting("group", group, "found: the group of the W&B run that the log names")
        elif spec.run is not None:
            yield setting("run", spec.run, "found: the log names it; a `group` would include the next attempts")
    elif account is not None:
        yield marked(f"# wandb = {_project(account)}", "guessed: the account of your key")
        yield "# " + setting("group", name, "guessed")
    if run is not None and run.spec.checkpoints is not None:
        yield setting("checkpoints", run.spec.checkpoints, "found: the log names it, and checkpoints are in it")
    else:
        yield "# " + setting("checkpoints", f"{folder}/checkpoints", "guessed")
    yield "# " + setting("kill_switch", f"{folder}/kill-switch", "guessed")
    yield "# " + setting("save_switch", f"{folder}/save-switch", "guessed")
    yield marked("# target_step = 100_000", "guessed")


def setting(name: str, value: str, mark: str) -> str:
    """A line of the config: `name = "llm"   # found: the name of the job`."""
    return marked(f"{name} = {toml(value)}", mark)


def marked(line: str, mark: str) -> str:
    return f"{line:<46}  # {mark}"


def comment(text: str) -> str:
    """Untrusted text behind a `#`: a new line would end the comment."""
    return shorten(clean(text), 90)


# ---- trainmon-tui init -----------------------------------------------------------------------------------------------

SHOWN = 20


def write_config(
    hosts: tuple[str, ...],
    login: str | None,
    name: str,
    output: Path,
    force: bool,
    offline: bool,
    ssh_config: Path | None,
) -> int:
    """Write a config with what was given, found and guessed; the exit status."""
    why = "given" if login else "guessed from its name"
    login = login or _login_of(hosts)
    found = _query(login, hosts, offline, ssh_config)
    if not hosts and not login and found.slurm is None and not found.runs:
        hosts = _prompt_for_hosts()
        login = _login_of(hosts)
        found = _query(login, hosts, offline, ssh_config) if login else found
    written = _valid(name, login, [host for host in hosts if host != login], found, why)
    if str(output) == "-":
        click.echo(written, nl=False)
        return 0
    _write(output, written, force)
    if hosts and not login:
        click.echo("files such as logs are read on this machine; if they are not here: --login HOST", err=True)
    click.echo(f"wrote {output}; next: trainmon-tui check{'' if output.name == str(output) else f' --config {output}'}")
    if problem := why_not_trusted(output, output.stat(), os.getuid()):
        why, fix = problem
        print_error(f"it will not be read from here: {why}", fix)
    return 0


def _login_of(hosts: Sequence[str]) -> str | None:
    return login_of(host for host in hosts if "[" not in host)


def _prompt_for_hosts() -> tuple[str, ...]:
    """Ask the person at the terminal which hosts to watch."""
    known = [clean(host) for host in known_hosts_by_name()]
    shown = " ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")
    if not sys.stdin.isatty():
        offer = f"; ~/.ssh/config lists {shown}" if known else ""
        raise click.UsageError(f"specify the hosts, such as: trainmon-tui init login1 'gpu-[001-004]'{offer}")
    click.echo(f"~/.ssh/config lists: {shown}" if known else "~/.ssh/config lists no hosts", err=True)
    try:
        answer = read_line("Hosts to watch: names as above, or Slurm host lists (empty: this machine): ")
    except EOFError as error:
        raise click.Abort from error
    return tuple(answer.split())


def _query(login: str | None, hosts: Sequence[str], offline: bool, ssh_config: Path | None) -> FoundFacts:
    """What Slurm, W&B and the logs say. Without a login host, HOSTs are not queried."""
    if offline:
        return FoundFacts()
    slurm, runs = None, tuple[Run, ...]()
    has_slurm = login is not None or shutil.which("squeue") is not None
    if has_slurm and sys.stderr.isatty():
        click.echo(f"querying the Slurm of {clean(login or 'this machine')} …", err=True)
    if has_slurm or not hosts:
        try:
            ask = ask_on_terminal if sys.stdin.isatty() else None
            slurm, runs = query_cluster(login, ssh_config, ask, needs_slurm=bool(login or hosts))
        except TrainmonError as error:
            if login is not None:
                hint = "" if isinstance(error, SlurmFailed) else error.hint  # its hint is about a screen
                print_error(
                    f"Slurm could not be queried, so the config is written without its nodes and jobs: {error.message}",
                    hint,
                )
    return FoundFacts(slurm, query_wandb(), runs)


def _valid(name: str, login: str | None, nodes: Sequence[str], found: FoundFacts, why: str) -> str:
    """The text of the config, after it was decoded: what init writes always loads."""
    written = config_text(name, login, nodes, found, why)
    settings, problems = decode(tomllib.loads(written), "the command line")
    if settings is None:
        raise click.UsageError("\n".join(problems))
    return written


def _write(file: Path, text: str, force: bool) -> None:
    """Write a file that only its user can read, whole or not at all."""
    try:
        if not force:
            file.touch(0o600, exist_ok=False)  # it is ours from here on, whoever else writes one
        try:
            write_whole(file, text.encode(), mode=0o600)
        except BaseException:
            if not force:
                file.unlink()
            raise
    except FileExistsError as error:
        raise click.UsageError(f"{file} already exists; --force replaces it") from error
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {(error.strerror or 'failed').lower()}") from error
