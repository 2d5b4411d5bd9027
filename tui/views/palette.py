"""The commands of the palette: panes, keys, runs, nodes, jobs, alerts and themes, each with its names.

A command that opens a plan is found only by the start of its verb, never by its description or its subject.
It is listed last unless its verb is typed in full, so that no other word leads to a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple

from trainmon.model import State
from tui.keys import ACTS, CONTEXTS, Key, active_keys
from tui.style import NAMES
from tui.views.alerts import ORDERS, status_of
from tui.widgets import Link

Kind = Literal["pane", "key", "run", "node", "job", "charts", "alert", "theme", "act"]

PANES = {
    "1": ("run", "training", "trainings"),
    "2": ("gpu", "node", "nodes", "host", "hosts"),
    "3": ("disks", "df", "storage", "filesystems", "quota", "quotas"),
    "4": ("logs", "tail"),
    "5": ("alert", "alarms"),
    "6": ("wandb", "weights & biases", "metrics", "charts", "curves", "loss"),
    "7": ("job", "jobs", "slurm", "squeue"),
}
"""Other names of the panes."""

ALSO = {
    "view.filter": ("find", "grep"),
    "view.sort": ("order",),
    "view.copy": ("copy", "yank"),
    "view.zoom": ("full screen",),
    "view.refresh": ("reload",),
    "log.find": ("find", "grep"),
    "log.inspect": ("log format", "teach"),
    "alerts.ack": ("acknowledge",),
    "alerts.mute": ("unmute", "silence"),
    "view.moment": ("moment",),
    "view.changes": ("changes", "since"),
    "run.samples": ("images", "videos"),
    "runs.page": ("browser",),
    "wandb.alone": ("alone",),
    "wandb.in": ("zoom in",),
    "wandb.out": ("zoom out",),
    "wandb.whole": ("whole",),
    "app.help": ("keys", "?", "h"),
    "app.palette": ("commands", "palette"),
    "app.quit": ("q", "q!", "exit"),
    "app.leave": ("quit", "q", "q!", "exit"),
    "act.login": ("login", "log in"),
}
"""Other names of the keys."""

VERBS = {
    "act.menu": ("actions", "menu"),
    "act.save": ("save",),
    "act.kill": ("kill",),
    "act.requeue": ("requeue",),
    "act.cancel": ("cancel", "scancel"),
    "act.unkill": ("unkill", "unsave"),
    "act.hold": ("hold", "release"),
    "act.signal": ("signal",),
    "act.queue": ("queue", "queue another"),
    "act.exclude": ("exclude", "drain"),
}
"""All names of the keys that open a plan."""

UNNAMED = frozenset({"app.how_to_quit", "lines.mark", "log.next", "log.previous"})
"""Keys that make no sense outside their pane."""


class Command(NamedTuple):
    """One command: its line in the palette, and its names in lower case."""

    kind: Kind
    text: str
    names: tuple[str, ...]
    target: Link | str
    """A link, a pane by its number, a run or theme by its name, or the key to press; empty to choose the theme."""
    cap: str = ""
    """Its key, as it is written on the screen."""

    @property
    def is_everyday(self) -> bool:
        """Whether it is listed before a query is typed."""
        return self.kind in {"pane", "key", "act"}


# ---- matching ----

EXACT, BEGINS, ALSO_BEGINS, AT_WORD, WITHIN, LINE_AT_WORD, LINE_WITHIN, SCATTERED, ACTS_LAST, NO_MATCH = range(10)
"""The ranks of a match, the best first."""


def find_commands(query: str, commands: Sequence[Command]) -> list[Command]:
    """The commands that match a query, the best first."""
    query = " ".join(query.casefold().split())
    starts = [at_word(word) for word in (query, *query.split())]
    ranks = ((rank(query, starts, command), command) for command in commands)
    return [command for _, command in sorted((one for one in ranks if one[0] < NO_MATCH), key=itemgetter(0))]


def at_word(text: str) -> re.Pattern[str]:
    """A pattern that finds a text at the start of a word."""
    return re.compile(rf"(?<![^\W_]){re.escape(text)}")


def rank(query: str, starts: Sequence[re.Pattern[str]], command: Command) -> int:
    """The rank of a match."""
    if query in command.names:
        return EXACT
    begins = any(name.startswith(query) for name in command.names)
    if command.kind == "act":
        return ACTS_LAST if begins else NO_MATCH
    if begins:
        return BEGINS if command.names[0].startswith(query) else ALSO_BEGINS
    names, line = "\n".join(command.names), command.text.casefold()
    for text, word, within in ((names, AT_WORD, WITHIN), (line, LINE_AT_WORD, LINE_WITHIN)):
        if query in text:
            return word if starts[0].search(text) else within
    return SCATTERED if all(start.search(f"{names}\n{line}") for start in starts[1:]) else NO_MATCH


# ---- the commands ----


def commands(context: str, state: State | None, themes: Sequence[str]) -> list[Command]:
    """All commands of a context. Those that open a plan come last."""
    keys = [
        Command("act" if key.scope in ACTS else "key", key.text, names_of(key), key.keys.split(",")[0], key.cap)
        for key in active_keys(context)
        if key.group != "move" and key.id not in UNNAMED and (key.id != "app.leave" or "main" not in CONTEXTS[context])
    ]
    return [
        *(Command("pane", name, _names(name, *PANES[number]), number, number) for number, name in NAMES.items()),
        *(key for key in keys if key.kind != "act"),
        Command("key", "choose the theme", ("theme", "themes", "colours", "colors"), ""),
        *(subject_commands(state) if state is not None else ()),
        *(Command("theme", name, _names(name, f"theme {name}"), name) for name in themes),
        *(key for key in keys if key.kind == "act"),
    ]


def _names(*names: str) -> tuple[str, ...]:
    return tuple(name.casefold() for name in names if name)


def names_of(key: Key) -> tuple[str, ...]:
    """The names of a key."""
    return VERBS[key.id] if key.scope in ACTS else _names(key.short, *ALSO.get(key.id, ()))


def subject_commands(state: State) -> Iterator[Command]:
    """Runs, nodes, jobs, charts and alerts; firing alerts first, then by severity."""
    for run in state.runs:
        yield Command("run", run, _names(run, f"run {run}"), run)
    for node in dict.fromkeys((*state.nodes, *state.scheduler_nodes)):
        yield Command("node", node, _names(node, f"node {node}"), Link("node", node))
    for key, job in sorted(state.jobs.items(), key=lambda item: item[1].gone_at is not None):
        yield Command("job", f"{job.id}  {job.name}", _names(job.id, key, f"job {job.id}"), Link("job", key))
    for run in (name for name, run in state.runs.items() if run.spec.has_charts):
        text = f"W&B charts of {run}"
        yield Command("charts", text, _names(text, f"charts {run}", f"wandb {run}"), Link("wandb", run))
    for alert in sorted(state.alerts.values(), key=lambda one: (not one.is_firing, ORDERS["worst"](one))):
        aside = "" if alert.is_firing else f" ({status_of(alert, state.at)})"
        text = f"{alert.id}  {alert.rule}: {alert.summary}{aside}"
        yield Command("alert", text, _names(alert.id, alert.rule, f"alert {alert.id}"), Link("alert", alert.id))
