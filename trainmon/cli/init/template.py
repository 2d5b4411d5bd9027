"""The text of a first trainmon.toml: known settings, and the other important ones as comments."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmon.cli.init.discovery import folded
from trainmon.lib import clean, counted, shorten

if TYPE_CHECKING:
    from trainmon.cli.init.discovery import Account, SlurmReport
    from trainmon.model import Job

ENTITY = re.compile(r"[\w.-]{1,64}", re.ASCII)

TEXT = """\
# The config of trainmon-tui. docs/configuration.md lists all settings. `trainmon-tui check` tests this file.
# A duration is written "2s", "15m" or "1h30m". A host is a name that ssh knows, or a Slurm host list.

# read_only = true              # refuse every action

[[cluster]]
name = {name}
{login}
{nodes}
# users = {users:<22}# the users whose jobs are watched; default: you
# slurm_every = "30s"           # the polling period of Slurm
# spares = 2                    # the number of healthy idle nodes that you want in reserve
# every = "2s"                  # the sampling period of GPUs and hosts
# python = "python3"            # the Python interpreter on the nodes
# connect = {{ at_once = 8, timeout = "10s" }}

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
# script = "/shared/my-run/train.slurm"         # `trainmon-tui queue` submits it with sbatch
# target_step = 100_000                         # default: the target in its log
# stall_after = "15m"                           # the run is stalled after this long without a step
# nodes = {nodes_of_run:<38}# where it trains, if it has no Slurm job
# wandb = {project:<38}# its W&B project
# group = "my-run"                              # its W&B group; or run = "ab12cd34", display = "my-", tags = ["main"]
# restart_grace = "15m"                         # how long the next W&B run may take to appear
# charts = ["train/loss"]                       # default: metrics with the usual names
# cluster = {name}                              # needed only with several clusters

# A log format of your own. It is tried before the built-in formats.
# [[log_format]]
# name = "mine"
# pattern = 'iter (?P<step>\\d+)/(?P<target_step>\\d+) loss (?P<loss>\\S+)'

# A disk to watch, in addition to the disks of the runs' own paths.
[[disk]]
path = "/"
on = "nodes"                    # login: on the login host | nodes: on all nodes | run: on the nodes of the runs
# usable = "80%"                # treat 80 % as full

# [[disk]]
# path = "/shared"
# on = "login"
# lag = "10m"                   # how old its statistics may be
# quota = {{ command = ["lfs", "quota", "-q", "-u", "me", "/shared"], parser = "lustre" }}

# Who is notified of alerts. Use two independent channels; `trainmon-tui check --notify` tests them.
# [[notify]]
# type = "ntfy"                 # or webhook, healthchecks, command, desktop; apprise for e-mail, Slack, SMS and others
# topic = "env:NTFY_TOPIC"      # a secret: from an environment variable, or from "file:/path"
# severity = "warning"          # critical | warning | info

# [heartbeat]
# every = "4h"                  # the interval of a status report to every channel
# ping = "env:HEALTHCHECK_URL"  # a dead-man's switch: its service notifies you when the pings stop

# Settings of a rule; `trainmon-tui rules` lists all rules.
# [[rule]]
# type = "gpu-hot"
# for = "5m"

# [daemon]
# host = "bastion"              # where `trainmon-tui --alerts-only` runs, if not on this machine
"""

NO_LOGIN = '# login = "login1"            # shared files are read and Slurm is queried there; default: this machine'
NO_NODES = (
    '# nodes = ["gpu-[001-032]"]   # default: the login host or this machine; "slurm": the nodes of the runs\' jobs'
)
SLURMS_NODES = 'nodes = "slurm"                 # the nodes of the runs\' jobs; or ["gpu-[001-032]"]'

RUN = """\
# Job {id} runs on {count} ({hosts}).
[[run]]
name = {name}
{log}
{script}
{wandb}# checkpoints = "/shared/{plain}/checkpoints"
# kill_switch = "/shared/{plain}/kill-switch"
# save_switch = "/shared/{plain}/save-switch"
# target_step = 100_000

"""


WANDB = """\
# wandb = {project}
# group = {name}
"""
"""The lines of a run, if there is a W&B login."""


def text(
    name: str,
    login: str | None,
    nodes: Sequence[str],
    found: SlurmReport | None = None,
    account: Account | None = None,
) -> str:
    """A config for these hosts, with what Slurm and W&B reported."""
    unnamed = NO_NODES if found is None else f"# {comment(found.summary)}\n{SLURMS_NODES}"
    return TEXT.format(
        name=quote(name),
        login=f"login = {quote(login)}" if login else NO_LOGIN,
        nodes=f"nodes = [{', '.join(map(quote, nodes))}]" if nodes else unnamed,
        nodes_of_run=f"[{quote(nodes[0])}]" if nodes else '["gpu-001"]',
        users=f"[{quote(found.me)}]" if found is not None else '["me"]',
        runs="".join(_run(job, account) for job in found.jobs) if found is not None else "",
        project=_project(account),
        account="" if account is None else f"\n# {comment(account.summary)}",
    )


def _project(account: Account | None) -> str:
    entity = account.entity if account is not None else None
    return quote(f"{entity if entity and ENTITY.fullmatch(entity) else 'team'}/project")


def _run(job: Job, account: Account | None) -> str:
    """One of our own jobs as a run. Its log is a comment: a path with the number of a job is of no use later."""
    command = job.command or ""
    known = command.startswith("/") and " " not in command
    return RUN.format(
        id=comment(job.id),
        count=counted(len(job.nodes), "node"),
        hosts=comment(folded(job.nodes)),
        name=quote(job.name),
        plain="".join(char if char.isalnum() or char in "-_." else "-" for char in job.name),
        log=f"# log = {quote(job.stdout)}   # found automatically"
        if job.stdout
        else "# log: its job has no output file",
        wandb="" if account is None else WANDB.format(project=_project(account), name=quote(job.name)),
        script=f"script = {quote(command)}" if known else '# script = "/shared/train.slurm"',
    )


def comment(text: str) -> str:
    """Untrusted text behind a `#`: a new line would end the comment."""
    return shorten(clean(text), 90)


def quote(value: str) -> str:
    """A TOML basic string; JSON's is one as well, if it has no surrogates."""
    return json.dumps(value, ensure_ascii=False)
