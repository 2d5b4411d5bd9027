"""The text of a first trainmon.toml: what is known is written, everything else that matters is there as a comment."""

from __future__ import annotations

import json
from collections.abc import Sequence

TEXT = """\
# What trainmon-tui watches. Every setting: see the README. `trainmon-tui check` looks whether all of it can be reached.
# Durations are written "2s", "15m", "1h30m"; hosts as ssh knows them, or as Slurm host lists.

# read_only = true              # refuse every action

[[cluster]]
name = {name}
{login}
{nodes}
# every = "2s"                  # the period of the fast numbers
# python = "python3"            # the interpreter on the nodes
# connect = {{ at_once = 8, timeout = "10s" }}

# A training run. Its step, loss and speed are read from its log.
# [[run]]
# name = "my-run"
# log = "/shared/my-run/logs/*.out"             # the newest match is followed
# checkpoints = "/shared/my-run/checkpoints"    # the disk under it is watched
# kill_switch = "/shared/my-run/kill-switch"    # the file that ends it when it appears
# save_switch = "/shared/my-run/save-switch"    # the file that makes it save when it appears
# target_step = 100_000                         # otherwise what its log says
# stall_after = "15m"                           # without a step for this long it is stalled
# nodes = [{node}]
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
"""

NO_LOGIN = '# login = "login1"            # shared files are read there; absent: on this machine'
NO_NODES = '# nodes = ["gpu-[001-032]"]   # absent: the login host, or this machine'


def text(name: str, login: str | None, nodes: Sequence[str]) -> str:
    """A config for these hosts."""
    wanted = ", ".join(quote(node) for node in nodes)
    return TEXT.format(
        name=quote(name),
        login=f"login = {quote(login)}" if login else NO_LOGIN,
        nodes=f"nodes = [{wanted}]" if nodes else NO_NODES,
        node=quote(nodes[0]) if nodes else '"gpu-001"',
    )


def quote(value: str) -> str:
    """A TOML basic string; JSON's is one as well."""
    return json.dumps(value)
