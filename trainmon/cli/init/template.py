"""The text of a first trainmon.toml: what is known is written, everything else that matters is there as a comment."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainmon.cli.init.discovery import folded
from trainmon.lib import clean, counted, shorten

if TYPE_CHECKING:
    from trainmon.cli.init.discovery import Account, Found
    from trainmon.model import Job

ENTITY = re.compile(r"[\w.-]{1,64}", re.ASCII)

TEXT = """\
# What trainmon-tui watches. Every setting: docs/configuration.md. `trainmon-tui check` tests all that it names.
# Durations are written "2s", "15m", "1h30m"; hosts as ssh knows them, or as Slurm host lists.

# read_only = true              # refuse every action

[[cluster]]
name = {name}
{login}
{nodes}
# users = [{user}]              # whose jobs are watched; absent: your own
# slurm_every = "30s"           # the period of the queue
# spares = 2                    # healthy idle nodes wanted
# every = "2s"                  # the period of the fast numbers
# python = "python3"            # the interpreter on the nodes
# connect = {{ at_once = 8, timeout = "10s" }}

# [wandb]
# every = "60s"                 # the period{account}

{runs}# A training run. Its step, loss and speed are read from its log. Your own running jobs are runs by themselves; an
# entry adds to what is known of them.
# [[run]]
# name = "my-run"
# job = "my-run"                                # the name of its Slurm jobs
# user = "me"                                   # whose these jobs are; absent: you
# log = "/shared/my-run/logs/*.out"             # the newest match is followed; absent: what its job prints
# checkpoints = "/shared/my-run/checkpoints"    # these and the disk under it are watched
# kill_switch = "/shared/my-run/kill-switch"    # the file that ends it when it appears
# save_switch = "/shared/my-run/save-switch"    # the file that makes it save when it appears
# script = "/shared/my-run/train.slurm"         # what "queue another" hands to sbatch
# target_step = 100_000                         # otherwise what its log says
# stall_after = "15m"                           # without a step for this long it is stalled
# nodes = [{node}]                          # where no job says it
# wandb = {project:<38}# its W&B project
# group = "my-run"                              # its runs there; or run = "ab12cd34", display = "my-", tags = ["main"]
# restart_grace = "15m"                         # how late the next may appear after one has ended
# charts = ["train/loss"]                       # absent: the metrics with the common names
# labels = {{ owner = "me" }}
# cluster = {name}                              # needed only with several clusters

# A log format of your own, tried before the built-in ones.
# [[log_format]]
# name = "mine"
# pattern = 'iter (?P<step>\\d+)/(?P<target_step>\\d+) loss (?P<loss>\\S+)'

# A disk to watch, besides those under the runs' own paths.
[[disk]]
path = "/"
on = "nodes"                    # login | nodes | run
# usable = "80%"                # where 80 % is the new 100 %

# [[disk]]
# path = "/shared"
# on = "login"
# lag = "10m"                   # its statistics may be this old
# quota = {{ command = ["lfs", "quota", "-q", "-u", "me", "/shared"], parser = "lustre" }}

# Who is told of alerts. Two channels that share nothing let people sleep; `trainmon-tui check --notify` tests them.
# [[notify]]
# type = "ntfy"                 # or webhook, healthchecks, command, desktop; apprise for mail, Slack, SMS and the rest
# topic = "env:NTFY_TOPIC"      # secrets come from the environment, or from "file:/path"
# severity = "warning"          # critical | warning | info

# [heartbeat]
# every = "4h"                  # a sign of life by every channel
# ping = "env:HEALTHCHECK_URL"  # a dead-man's switch elsewhere: it calls when it is not asked any more

# A rule whose settings differ; `trainmon-tui rules` lists all of them.
# [[rule]]
# type = "gpu-hot"
# for = "5m"

# [daemon]
# host = "bastion"              # where `trainmon-tui --alerts-only` runs, if not on this machine
"""

NO_LOGIN = '# login = "login1"            # shared files are read and Slurm is asked there; absent: on this machine'
NO_NODES = '# nodes = ["gpu-[001-032]"]   # absent: the login host, or this machine; "slurm": those of the runs\' jobs'
SLURMS_NODES = 'nodes = "slurm"                 # those of the runs\' jobs, as they come and go; or ["gpu-[001-032]"]'

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
"""Of a run, where there is a W&B login."""


def text(
    name: str,
    login: str | None,
    nodes: Sequence[str],
    found: Found | None = None,
    account: Account | None = None,
) -> str:
    """A config for these hosts, and for what a Slurm and a W&B login say."""
    unnamed = NO_NODES if found is None else f"# {comment(found.summary)}\n{SLURMS_NODES}"
    return TEXT.format(
        name=quote(name),
        login=f"login = {quote(login)}" if login else NO_LOGIN,
        nodes=f"nodes = [{', '.join(map(quote, nodes))}]" if nodes else unnamed,
        node=quote(nodes[0]) if nodes else '"gpu-001"',
        user=quote(found.me) if found is not None else '"me"',
        runs="".join(_run(job, account) for job in found.jobs) if found is not None else "",
        project=_project(account),
        account="" if account is None else f"\n# {comment(account.summary)}",
    )


def _project(account: Account | None) -> str:
    entity = account.entity if account is not None else None
    return quote(f"{entity if entity and ENTITY.fullmatch(entity) else 'team'}/project")


def _run(job: Job, account: Account | None) -> str:
    """One of our own jobs as a run. Its log is found by itself: a path with the number of a job is of no use later."""
    command = job.command or ""
    known = command.startswith("/") and " " not in command
    return RUN.format(
        id=comment(job.id),
        count=counted(len(job.nodes), "node"),
        hosts=comment(folded(job.nodes)),
        name=quote(job.name),
        plain="".join(char if char.isalnum() or char in "-_." else "-" for char in job.name),
        log=f"# log = {quote(job.stdout)}   # found by itself: what its job prints" if job.stdout else "# log: none",
        wandb="" if account is None else WANDB.format(project=_project(account), name=quote(job.name)),
        script=f"script = {quote(command)}" if known else '# script = "/shared/train.slurm"',
    )


def comment(words: str) -> str:
    """A stranger's words behind a `#`: a new line would end the comment."""
    return shorten(clean(words), 90)


def quote(value: str) -> str:
    """A TOML basic string; JSON's is one as well, as long as it holds no halves of characters."""
    return json.dumps(value, ensure_ascii=False)
