"""All keys, in one table. The footer, the help, docs/reference/keys.md, the palette and the dispatch read it.

A key that acts on a run, a job or a node is a capital letter. It opens a plan and never acts by itself. A key belongs
to a scope, and a context (a pane, a screen or a dialog) has several scopes. In one context, a key has one meaning (see
`clashes`).
"""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from trainmon.actions.verbs import VERB, VERBS, verbs_of_key
from trainmon.lib import ConfigError, listed

if TYPE_CHECKING:
    from textual.binding import BindingType

Group = Literal["move", "view", "act"]

NAMES = {"1": "Runs", "2": "GPUs", "3": "Disk", "4": "Log", "5": "Alerts", "6": "Charts", "7": "Queue"}
"""The panes by their keys."""


class Key(NamedTuple):
    """One entry: its keys (Textual's names), an id that never changes, its action, and its description."""

    keys: str
    id: str
    action: str
    """The Textual action, with its namespace where the key is bound lower than it acts."""
    text: str
    scope: str
    group: Group
    cap: str
    """The key, as the screen shows it."""
    short: str = ""
    """Its label in the footer; empty: not in the footer."""


def _verb_keys() -> list[Key]:
    """The keys of the verbs: those that the footer shows first, and at last those of nodes."""
    specs = sorted(
        (spec for spec in VERBS if spec.help), key=lambda spec: (spec.target == "node", not spec.is_in_footer)
    )
    return [
        Key(spec.key, f"act.{spec.name}", f"screen.act('{spec.name}')", spec.help,
            "act-node" if spec.target == "node" else "act", "act", spec.key,
            spec.title if spec.is_in_footer else "")
        for spec in specs
    ]  # fmt: skip


KEYS: tuple[Key, ...] = (
    Key("slash", "view.filter", "screen.find", "filter the rows; Esc clears the filter", "rows", "view", "/", "Filter"),
    Key("s", "view.sort", "screen.sort", "sort the rows", "rows", "view", "s", "Sort"),
    Key("right", "view.sort_next", "screen.sort_column(1)", "sort by the next column", "rows", "view", "→"),
    Key("left", "view.sort_previous", "screen.sort_column(-1)", "sort by the previous column", "rows", "view", "←"),
    Key("c", "view.columns", "screen.columns", "choose and order the columns", "rows", "view", "c"),
    Key("space", "columns.toggle", "screen.toggle_column", "show or hide this column", "columns", "view", "Space",
        "on/off"),
    Key("right_square_bracket", "columns.later", "screen.move_column(1)", "move this column to the right", "columns",
        "view", "]", "right"),
    Key("left_square_bracket", "columns.earlier", "screen.move_column(-1)", "move this column to the left", "columns",
        "view", "[", "left"),
    Key("comma", "view.reverse", "screen.reverse", "reverse the order of the rows", "rows", "view", ","),
    Key("v", "view.metric", "metric", "next metric; then who holds GPUs: the users, their jobs",
        "gpus", "view", "v", "View"),
    Key("v", "queue.view", "next_view", "next view: all jobs, nodes, my jobs, finished jobs", "queue", "view",
        "v", "View"),
    Key("slash", "log.find", "screen.find", "search in the log; Esc clears the search", "log", "view", "/", "Search"),
    Key("ampersand", "log.only", "screen.find_lines", "show only the lines with a text; Esc shows all", "log", "view",
        "&", "Only"),
    Key("s", "log.save", "screen.save_log", "save the shown lines, or the whole file", "log", "view", "s"),
    Key("n", "log.next", "next_match(1)", "next match, downwards", "log", "view", "n"),
    Key("N", "log.previous", "next_match(-1)", "previous match, upwards", "log", "view", "N"),
    Key("f", "log.follow", "follow", "follow the end of the log, or stop following", "log", "view", "f", "Follow"),
    Key("w", "log.wrap", "wrap", "wrap long lines, or cut them", "log", "view", "w", "Wrap"),
    Key("s", "format.step", "screen.name('step')", "this number is the step", "cells", "view", "s"),
    Key("l", "format.loss", "screen.name('loss')", "this number is the loss", "cells", "view", "l"),
    Key("t", "format.time", "screen.name('step_time')", "this number is the time of a step", "cells", "view", "t"),
    Key("x,delete,backspace", "format.none", "screen.name('')", "this number is of no interest", "cells", "view", "x"),
    Key("y,c", "format.copy", "screen.copy", "copy the [[log_format]] block for the config", "cells", "view", "y"),
    Key("left", "format.left", "screen.cell(-1)", "the previous number of the line", "cells", "move", "←"),
    Key("right", "format.right", "screen.cell(1)", "the next number of the line; Enter lists all fields", "cells",
        "move", "→"),
    Key("slash", "wandb.filter", "screen.find", "show only metrics with a text; Esc shows all", "wandb", "view", "/",
        "Filter"),
    Key("v", "wandb.next", "next_charts", "next page of charts; last: settings and latest values", "wandb", "view",
        "v", "Charts"),
    Key("enter", "wandb.alone", "alone", "show only this chart, or all charts", "wandb", "view", "Enter"),
    Key("e", "wandb.log", "log", "y axis: linear, logarithmic, or without the start", "wandb", "view", "e",
        "Log"),
    Key("i", "wandb.inspect", "inspect", "inspect values under a cursor, which ← and → move", "wandb",
        "view", "i", "Inspect"),
    Key("t", "wandb.axis", "axis", "x axis: step or time", "wandb", "view", "t", "Axis"),
    Key("d", "wandb.range", "range", "x range: the last day, the last hour, or all", "wandb", "view", "d", "Range"),
    Key("c", "wandb.compare", "compare", "show or hide earlier attempts and marked runs", "wandb", "view", "c",
        "Compare"),
    Key("d", "run.samples", "screen.save_samples", "fetch its newest W&B images and videos into a folder",
        "samples",
        "view", "d", "Samples"),
    Key("b", "wandb.page", "screen.open_page", "open its W&B page; over SSH, show its URL", "page",
        "view", "b",
        "Browser"),
    Key("s", "wandb.smooth", "smooth", "smooth the curves: the next level, then off", "wandb", "view", "s", "Smooth"),
    Key("plus,equals_sign", "wandb.in", "zoom_in", "zoom in: half the range", "wandb", "view", "+"),
    Key("minus", "wandb.out", "zoom_out", "zoom out: twice the range", "wandb", "view", "-"),
    Key("0", "wandb.whole", "whole", "show the whole range", "wandb", "view", "0"),
    Key("a", "alerts.ack", "screen.acknowledge", "acknowledge the row's alerts, or the worst one",
        "alerts", "view", "a", "Ack"),
    Key("m", "alerts.mute", "screen.mute", "mute the row's alerts, a rule or a run; unmute",
        "alerts", "view", "m", "Mute"),
    Key("o", "view.moment", "screen.moment", "show the run at the time of its alert: charts and log",
        "moments", "view", "o", "Moment"),
    Key("enter", "moment.run", "open_run", "open the run", "moment", "view", "Enter", "Run"),
    Key("o", "moment.close", "screen.dismiss", "return to the view that opened the moment", "moment", "view", "o"),
    Key("b", "runs.page", "screen.open_page", "open the run's W&B page; over SSH, show its URL", "runs",
        "view", "b"),
    Key("l", "view.log", "screen.full_log", "show the selected run's log on the full screen", "main", "view", "l",
        "Log"),
    Key("enter", "lines.choose", "choose", "open what is under the cursor", "list", "view", "Enter", "Open"),
    Key("space", "lines.mark", "toggle_mark", "mark or unmark this row, to act on several at once", "marks",
        "view",
        "Space"),
    Key("i", "log.inspect", "screen.log_format", "inspect what is read in each line, and correct it", "format",
        "view", "i", "Inspect"),
    Key("y", "view.copy", "screen.copy", "copy the name, path, line or URL (clipboard: OSC 52)", "pane",
        "view", "y"),
    Key("exclamation_mark", "view.ssh", "screen.ssh", "open ssh to the node of this row, run or alert",
        "pane", "view", "!"),
    Key("1", "pane.runs", "pane('1')", "go to Runs; again: full screen", "main", "move", "1"),
    Key("2", "pane.gpus", "pane('2')", "go to GPUs; again: full screen", "main", "move", "2"),
    Key("3", "pane.disk", "pane('3')", "go to Disk; again: full screen", "main", "move", "3"),
    Key("4", "pane.log", "pane('4')", "go to Log; again: full screen", "main", "move", "4"),
    Key("5", "pane.alerts", "pane('5')", "go to Alerts; again: full screen", "main", "move", "5"),
    Key("6", "pane.wandb", "pane('6')", "go to the charts; again: full screen", "main", "move", "6"),
    Key("7", "pane.queue", "pane('7')", "go to Queue (jobs, nodes); again: full screen", "main", "move", "7"),
    Key("full_stop", "pane.preset", "preset", "next layout: all panes, runs and log, cluster, one run", "main",
        "view", "."),
    Key("h", "pane.hide", "hide", "hide this pane; its number shows it again", "main", "view", "h"),
    Key("greater_than_sign", "pane.larger", "resize(1)", "make this pane larger", "main", "view", ">"),
    Key("less_than_sign", "pane.smaller", "resize(-1)", "make this pane smaller", "main", "view", "<"),
    Key("right_square_bracket", "pane.later", "swap(1)", "swap this pane with the next one", "main", "view", "]"),
    Key("left_square_bracket", "pane.earlier", "swap(-1)", "swap this pane with the previous one", "main", "view", "["),
    Key("tab", "pane.next", "app.focus_next", "next pane", "main", "move", "Tab"),
    Key("shift+tab", "pane.previous", "app.focus_previous", "previous pane", "main", "move", "Shift+Tab"),
    Key("j,down", "lines.down", "move(1)", "down", "moves", "move", "j ↓"),
    Key("k,up", "lines.up", "move(-1)", "up", "moves", "move", "k ↑"),
    Key("pagedown,ctrl+f", "lines.page_down", "page(1)", "a page down", "moves", "move", "PgDn ctrl+f"),
    Key("pageup,ctrl+b", "lines.page_up", "page(-1)", "a page up", "moves", "move", "PgUp ctrl+b"),
    Key("ctrl+d", "lines.half_down", "page(0.5)", "half a page down", "moves", "move", "ctrl+d"),
    Key("ctrl+u", "lines.half_up", "page(-0.5)", "half a page up", "moves", "move", "ctrl+u"),
    Key("g,home", "lines.top", "first", "to the top", "moves", "move", "g"),
    Key("G,end", "lines.end", "last", "to the end", "moves", "move", "G"),
    Key("left", "log.left", "sideways(-1)", "scroll left (long lines are cut)", "log", "move", "←"),
    Key("right", "log.right", "sideways(1)", "scroll right (long lines are cut)", "log", "move", "→"),
    Key("left", "wandb.left", "pan(-1)", "earlier", "wandb", "move", "←"),
    Key("right", "wandb.right", "pan(1)", "later; at the end, follow new points", "wandb", "move", "→"),
    Key("z", "view.zoom", "zoom", "show this pane on the full screen, or all panes", "main", "view", "z", "Zoom"),
    Key("p", "view.pause", "app.pause", "pause the screen; collectors and alerts continue", "app", "view", "p",
        "Pause"),
    Key("left_parenthesis,shift+left", "replay.earlier", "app.replay('back')", "in a replay: 10s back", "app", "view",
        "("),
    Key("right_parenthesis,shift+right", "replay.later", "app.replay('forward')", "in a replay: 10s forward", "app",
        "view", ")"),
    Key("left_curly_bracket", "replay.slower", "app.replay('slower')", "in a replay: half the speed", "app", "view",
        "{"),
    Key("right_curly_bracket", "replay.faster", "app.replay('faster')", "in a replay: twice the speed", "app", "view",
        "}"),
    Key("semicolon", "replay.alert", "app.replay('alert')", "in a replay: go to the next alert", "app", "view", ";"),
    Key("r", "view.refresh", "app.poll", "poll all sources now", "app", "view", "r", "Refresh"),
    Key("u", "view.changes", "app.changes", "list what changed since the dashboard was last used", "app", "view", "u"),
    Key("x", "act.menu", "screen.menu", "list all actions for this row, and why some are refused", "act-any",
        "act", "x", "Actions"),
    *_verb_keys(),
    Key("L", "act.login", "app.login", "log in to a host that waits for a login (password, 2FA)", "app", "act", "L"),
    Key("apostrophe", "view.jump", "jump", "jump: a letter at each pane; press one to go there", "main",
        "move", "'"),
    Key("question_mark,f1", "app.help", "app.help", "help: all keys, those of this pane first", "app", "view", "?",
        "Help"),
    Key("colon,ctrl+p", "app.palette", "app.palette", "find a command, run, node, job or alert by its name", "app",
        "view",
        ":", "Commands"),
    Key("escape", "app.back", "screen.back", "close this dialog or screen, or clear the filter", "back",
        "move", "Esc"),
    Key("l", "log.close", "screen.back", "back to the panes", "log-screen", "move", "l"),
    Key("left", "plan.left", "button(-1)", "the previous button", "plan", "move", "←"),
    Key("right", "plan.right", "button(1)", "the next button; Tab also goes through the fields", "plan", "move", "→"),
    Key("enter", "plan.press", "press", "press the focused button; Close has the focus first", "button", "move",
        "Enter"),
    Key("slash", "help.find", "find", "search the help; Esc clears the search", "help", "view", "/"),
    Key("q,question_mark,f1", "help.close", "screen.back", "close the help", "help", "move", "?"),
    Key("q", "app.quit", "leave", "quit; training continues", "main", "view", "q", "Quit"),
    Key("q,backspace", "detail.leave", "screen.dismiss", "back to where it was opened; Backspace does the same",
        "detail", "view", "q", "Back"),
    Key("ctrl+z", "app.suspend", "app.suspend_process", "suspend: no alert is sent until `fg` in the shell", "app",
        "view", "ctrl+z"),
    Key("ctrl+q", "app.leave", "app.quit", "quit; training continues", "app", "view", "ctrl+q"),
    Key("ctrl+c", "app.how_to_quit", "app.how_to_quit", "show how to quit", "app", "view", "ctrl+c"),
)  # fmt: skip

USUAL = KEYS
"""The keys without a config."""

_ROWS = ("app", "main", "back", "pane", "rows", "list", "moves", "alerts")
_READ = ("app", "detail", "back", "pane", "moves", "alerts")

CONTEXTS: dict[str, tuple[str, ...]] = {
    "runs": (*_ROWS, "runs", "moments", "marks", "act-any", "act"),
    "gpus": (*_ROWS, "gpus", "marks", "act-any", "act-node"),
    "disk": _ROWS,
    "alerts": (*_ROWS, "moments", "marks"),
    "alert": (*_READ, "moments", "list"),
    "moment": ("app", "detail", "back", "pane", "log", "format", "moves", "moment", "alerts"),
    "changes": ("app", "detail", "back", "pane", "list", "moves"),
    "queue": (*_ROWS, "queue", "marks", "act-any", "act", "act-node"),
    "queue-nodes": (*_ROWS, "queue", "marks", "act-any", "act-node"),
    "log": ("app", "main", "back", "pane", "log", "format", "moves", "alerts"),
    "log-screen": ("app", "detail", "back", "pane", "log", "format", "moves", "log-screen", "alerts"),
    "wandb": ("app", "main", "back", "pane", "moves", "wandb", "moments", "page", "alerts"),
    "wandb-screen": (*_READ, "wandb", "moments", "page"),
    "node": (*_READ, "list", "act-any", "act-node"),
    "run": (*_READ, "moments", "list", "format", "act-any", "act"),
    "run-wandb": (*_READ, "moments", "list", "format", "samples", "page", "act-any", "act"),
    "job": (*_READ, "list", "act-any", "act"),
    "disk-screen": (*_READ, "list"),
    "attempt": (*_READ, "list"),
    "report": (*_READ, "list"),
    "help": ("app", "back", "moves", "help"),
    "plan": ("back", "moves", "plan", "button"),
    "menu": ("back", "moves", "list", "act", "act-node"),
    "columns": ("back", "moves", "list", "columns"),
    "log-format": ("back", "moves", "list", "cells"),
}
"""The active scopes of each context."""

EVERYWHERE = frozenset({"ctrl+q", "ctrl+c", "ctrl+z"})
"""Keys that work in every dialog and input: a person must be able to leave a login prompt."""

FOOTER_AT_MOST = 9

OPENS = frozenset(
    {
        "runs", "gpus", "disk", "alerts", "alert", "changes", "queue", "queue-nodes", "run", "run-wandb", "job", "node",
        "attempt", "disk-screen", "menu", "log-format",
    }
)  # fmt: skip
"""Contexts where Enter opens something."""

ALERTED = frozenset({"alerts", "alert"})
"""Contexts whose footer shows the keys of alerts. Elsewhere the alert strip shows them, while it shows an alert."""

NARROW = (
    "app.help",
    "app.palette",
    "app.quit",
    "detail.leave",
    "lines.choose",
    "alerts.ack",
    "alerts.mute",
    "view.moment",
    "queue.view",
    "view.metric",
    "view.log",
)
"""The keys that a narrow footer keeps: first those that leave, then those that nobody can guess."""

ACTS = ("act-any", "act", "act-node")
"""The scopes of the keys that act."""


FIXED = frozenset({"app.back", "app.leave", "app.how_to_quit"})
"""The keys that nobody can change: every screen can be left."""

CAPS = {"up": "↑", "down": "↓", "left": "←", "right": "→", "pagedown": "PgDn", "pageup": "PgUp"}


def use_keys(keys: tuple[Key, ...]) -> None:
    """Use these keys, before the screens are imported: each class has its bindings from its import on."""
    global KEYS
    for old, new in zip(KEYS, keys, strict=True):
        verb = new.id.removeprefix("act.")
        if new != old and verb in VERB:
            for same in verbs_of_key(verb):
                VERB[same] = VERB[same]._replace(key=new.cap)
    KEYS = keys


def changed_keys(changes: Mapping[str, Sequence[str]], file: str) -> tuple[Key, ...]:
    """All keys, with those of a config.

    Raises:
        ConfigError: when an action or a key is unknown, or a key has two meanings in one place.
    """
    known = [key.id for key in USUAL if key.id not in FIXED]
    problems = []
    for name, keys in changes.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            why = "cannot be changed" if name in FIXED else "is not an action"
            problems.append(
                f'"{name}" {why}; ' + (f'did you mean "{close[0]}"?' if close else "see docs/reference/keys.md")
            )
        problems += [f'"{name}": there is no key "{key}"' for key in keys if not textual_name(key)]
    changed = tuple(key if key.id not in changes else with_keys(key, changes[key.id]) for key in USUAL)
    problems += [] if problems else clashes(changed, changes)
    if problems:
        raise ConfigError([f"{file}: [keys]: {problem}" for problem in problems])
    return changed


def textual_name(key: str) -> str:
    """Textual's name of a key; empty: there is no such key."""
    from textual.keys import Keys, _character_to_key

    return _character_to_key(key) if len(key) == 1 else key if key in {one.value for one in Keys} else ""


def with_keys(key: Key, names: Sequence[str]) -> Key:
    caps = (
        CAPS.get(name, name if len(name) == 1 else "+".join(map(str.capitalize, name.split("+")))) for name in names
    )
    return key._replace(keys=",".join(map(textual_name, names)), cap=" ".join(caps))


def clashes(keys: Iterable[Key] = KEYS, changes: Container[str] = ()) -> list[str]:
    """A sentence for each key with two meanings in one context. A key that only closes may share another's key."""
    found: dict[str, list[str]] = {}
    keys = sorted(keys, key=lambda key: key.id in changes)
    fixed = {name: key for key in keys if key.id in FIXED for name in EVERYWHERE & {*key.keys.split(",")}}
    for context, scopes in CONTEXTS.items():
        seen = dict(fixed)
        for key in (key for key in keys if key.scope in scopes):
            for name in key.keys.split(","):
                other = seen.setdefault(name, key)
                if other is not key and "screen.back" not in {key.action, other.action}:
                    sentence = f'"{key.id}" has the key of "{other.id}" ({other.text}): {name} in '
                    found.setdefault(sentence, []).append(context)
    return [sentence + listed(contexts, most=3) for sentence, contexts in found.items()]


def cap(name: str) -> str:
    """The key of an action, as the screen shows it."""
    return next(key.cap.split()[0] for key in KEYS if key.id == name)


def bindings(*scopes: str) -> list[BindingType]:
    """The Textual bindings of some scopes; each has its id. Those in EVERYWHERE go before what has the focus."""
    from textual.binding import Binding  # not for `snapshot`, which shows no screen

    return [
        Binding(name, key.action, key.text, bool(key.short), key.cap, name in EVERYWHERE, id=key.id)
        for key in KEYS
        if key.scope in scopes
        for name in key.keys.split(",")
    ]


def active_keys(context: str) -> tuple[Key, ...]:
    """The keys that do something in a context. Enter only counts where a row can be opened."""
    return tuple(
        key for key in KEYS if key.scope in CONTEXTS[context] and (key.id != "lines.choose" or context in OPENS)
    )


def footer(context: str) -> tuple[Key, ...]:
    """At most nine keys that show, in the table's order; help, commands and quit always."""
    left_out = ACTS if context in ALERTED else (*ACTS, "alerts", "moments")
    shown = [key for key in active_keys(context) if key.short and key.scope not in left_out]
    while len(shown) > FOOTER_AT_MOST:
        shown.remove(next(key for key in reversed(shown) if key.id not in NARROW[:5]))
    return tuple(shown)


def footer_acts(context: str) -> tuple[Key, ...]:
    """The keys that act, for the footer of a context. They follow a bar, so that nobody takes them for views."""
    return tuple(key for key in KEYS if key.short and key.scope in CONTEXTS[context] and key.scope in ACTS)


SCREENS = "a run, a job, a node, a disk, an alert, an attempt, a report"


SHOWN_AT = {
    "rows": "Runs, GPUs, Disk, Alerts, Queue", "list": f"Runs, GPUs, Disk, Alerts, Queue, {SCREENS}",
    "marks": "Runs, GPUs, Alerts, Queue", "alerts": "the panes, " + SCREENS, "pane": "the panes, " + SCREENS,
    "gpus": "GPUs", "log": "Log", "queue": "Queue", "act-any": "Runs, GPUs, Queue, a run, a job, a node",
    "act": "Runs, Queue, a run, a job", "act-node": "GPUs, Queue, a node", "plan": "Plan", "button": "Plan",
    "wandb": "Charts", "page": "Charts, a run", "samples": "a run", "runs": "Runs",
    "moments": "Runs, Alerts, Charts, a run, an alert", "moment": "a moment of a run",
    "columns": "Columns", "format": "Log, a run", "cells": "Log format", "main": "the panes", "help": "Help",
    "log-screen": "Log on the full screen",
    "moves": "everywhere", "back": "everywhere", "detail": f"{SCREENS}, and other screens over the panes",
}  # fmt: skip
"""Where a scope is active, in words."""


def unused(key: str, character: str | None) -> str:
    """Why a key (Textual's name, and what it types) does nothing in this context."""
    known = [one for one in KEYS if key in one.keys.split(",") and one.scope in SHOWN_AT]
    if not known:
        return f"{character or key} does nothing here; {cap('app.help')} lists the keys"
    shown = next((one.cap for one in known if one.keys.split(",")[0] == key), character or key.capitalize())
    places = ", ".join(dict.fromkeys(SHOWN_AT[one.scope] for one in known))
    return f"{shown} does nothing here: it works in {places}"
