"""The text of a first trainmon.toml: known settings, and the other important ones as comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from trainmon.cli.init.discovery import folded
from trainmon.lib import clean, counted, shorten

if TYPE_CHECKING:
    from trainmon.cli.init.discovery import Account, SlurmReport
    from trainmon.model import Job, OwnProcess, Run

ENTITY = re.compile(r"[\w.-]{1,64}", re.ASCII)

TEXT = """\
# The config of trainmon-tui. docs/configuration.md lists all settings. `trainmon-tui check` tests this file.
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
# python = "python3"            # the Python interpreter on the nodes
# connect = {{ at_once = 8, timeout = "10s" }}
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
# stall_after = "15m"                           # the run is stalled after this long without a step
# nodes = {nodes_of_run:<38}# where it trains, if it has no Slurm job
# wandb = {project:<38}# its W&B project
# group = "my-run"                              # its W&B group; or run = "ab12cd34", display = "my-", tags = ["main"]
# restart_grace = "15m"                         # how long the next W&B run may take to appear
# wandb_dir = "/shared/my-run/wandb"            # the files of its W&B client: curves without a key, also offline
# charts = ["train/loss"]                       # default: metrics with the usual names
# cluster = {quoted_name:<36}# needed only with several clusters
# auto_requeue = "suggest"                      # default: as [retry] says
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
# type = "ntfy"                 # or webhook, alertmanager, healthchecks, command, desktop; apprise for all others
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

# The results of an evaluator: one JSON object per line, as docs/evals.md describes.
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


def text(
    name: str, login: str | None, nodes: Sequence[str], found: FoundFacts | None = None, why: str = "given"
) -> str:
    """A config for these hosts, with what was found. Each setting says whether it was given, found or guessed; `why`
    says so of the login host."""
    found = found or FoundFacts()
    slurm, account = found.slurm, found.account
    unnamed = NO_NODES
    if slurm is not None:
        unnamed = f"# {comment(slurm.summary)}\n" + marked('nodes = "slurm"', "found: the nodes of the runs' jobs")
    by_job = {run.spec.job: run for run in found.runs if run.spec.only is None}
    tables = [_job_run(job, by_job.get(job.name), account) for job in (slurm.jobs if slurm is not None else ())]
    tables += [_process_run(run, run.spec.process, account) for run in found.runs if run.spec.process is not None]
    return TEXT.format(
        name=setting("name", name, "guessed: any name will do" if name == "main" else "given"),
        quoted_name=quote(name),
        login=setting("login", login, why) if login else NO_LOGIN,
        nodes=marked(f"nodes = [{', '.join(map(quote, nodes))}]", "given") if nodes else unnamed,
        nodes_of_run=f"[{quote(nodes[0])}]" if nodes else '["gpu-001"]',
        users=f"[{quote(slurm.me)}]" if slurm is not None else '["me"]',
        runs="".join("\n".join(lines) + "\n\n" for lines in tables),
        project=_project(account),
        account="" if account is None else f"\n# {comment(account.summary)}",
    )


def _project(account: Account | None) -> str:
    entity = account.entity if account is not None else None
    return quote(f"{entity if entity and ENTITY.fullmatch(entity) else 'team'}/project")


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
    return marked(f"{name} = {quote(value)}", mark)


def marked(line: str, mark: str) -> str:
    return f"{line:<46}  # {mark}"


def comment(text: str) -> str:
    """Untrusted text behind a `#`: a new line would end the comment."""
    return shorten(clean(text), 90)


def quote(value: str) -> str:
    """A TOML basic string; JSON's is one as well, if it has no surrogates."""
    return json.dumps(value, ensure_ascii=False)
