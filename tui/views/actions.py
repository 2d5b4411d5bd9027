"""Commands: the request behind a capital key and its plan as lines, and the commands of the palette. Pure.

A plan wraps and nothing is cut: the user confirms this text.

A command that opens a plan is found only by the start of its verb, never by its description or its subject.
It is listed last unless its verb is typed in full, so that no other word leads to a plan.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple

from rich.cells import chop_cells

from trainmon.actions.planning import SILENT_VERDICTS, Readback, hold_or_release, reads_for_plan
from trainmon.actions.verbs import VERB, VERBS, verbs_of_key
from trainmon.lib import Instant, Seconds, cell_width, clean, counted, say
from trainmon.model import (
    Action,
    ActionRequest,
    CreateFile,
    Execute,
    Operation,
    Plan,
    ReadStacks,
    Refusal,
    RemoveFile,
    State,
    Verb,
)
from tui.keys import ACTS, CONTEXTS, NAMES, Key, active_keys
from tui.style import DEAD, WARN, Link, Row, Span
from tui.views.alerts import status_of, worst_first
from tui.views.jobs import with_ended

# ---- actions ---------------------------------------------------------------------------------------------------------

Kind = Literal["run", "job", "node"]

Subject = tuple[Kind, str]
"""What a key that acts is about: a run by its name, a job by its key, a node by its name."""


def is_dangerous(plan: Plan) -> bool:
    """Whether it ends what runs, takes a node from everybody, or must be confirmed by typing."""
    return plan.typed is not None or any(
        (VERB[one.verb].ends and "ended" not in one.expected.stages) or one.expected.undrained is not None
        for one in plan.actions
    )


READ_ONLY = "started with --read-only, or trainmon.toml has read_only = true: nothing is changed from here"


def action_request(verb: Verb, subjects: Sequence[Subject], state: State, now: Instant) -> ActionRequest | str:
    """The request for these rows, or in a sentence why the key means nothing here."""
    spec = VERB[verb]
    matching = [subject for subject in subjects if (subject[0] == "node") == (spec.target == "node")]
    if not matching:
        what, pane = ("a node", "2 GPUs") if spec.target == "node" else ("a run or a job", "1 Runs")
        return f"{spec.key} acts on {what}: put the cursor on one, in {pane} or 7 Queue"
    # of a job, its run; the plan refuses a job that belongs to none
    run_of = {key: run.name for run in state.runs.values() for key in run.jobs} if spec.target == "run" else {}
    names = tuple(dict.fromkeys(run_of.get(key, key) if kind == "job" else key for kind, key in matching))
    verb = hold_or_release(state, names) if verb == "hold" else verb
    return ActionRequest(verb=verb, subjects=names, requested_at=now)


def nodes_of(subjects: Iterable[Subject], alerts: Iterable[str], state: State) -> tuple[str, ...]:
    """The nodes of these rows and alerts: themselves, or those of their runs and jobs."""
    found: list[str] = []
    about = [state.alerts[one] for one in alerts if one in state.alerts]
    rows = [("node", one.node) if one.node else ("run", one.run or "") for one in about]
    for kind, name in (*subjects, *rows):
        if kind == "node":
            found.append(name)
        elif kind == "run" and name in state.runs:
            found += state.runs[name].spec.nodes
        elif name in state.jobs:
            found += state.jobs[name].nodes
    return tuple(dict.fromkeys(found))


def subjects_text(subjects: Sequence[str], state: State, verb: Verb | None = None) -> str:
    """`video-2b`, `job 88_3`, `3 marked rows`, and for a verb that acts on nodes `3 nodes`."""
    if len(subjects) != 1:
        return f"{len(subjects)} {'nodes' if verb and VERB[verb].target == 'node' else 'marked rows'}"
    subject = subjects[0]
    job = state.jobs.get(subject)
    return f"job {job.id}" if job is not None and subject not in state.runs else subject


def hosts_text(request: ActionRequest, state: State) -> str:
    """The hosts that its plan reads from: `login1`."""
    reads = reads_for_plan(request, state, Readback(at=request.requested_at))
    return ", ".join(dict.fromkeys(clean(read.host) for read in reads)) or "its host"


def is_hung(request: ActionRequest, state: State) -> bool:
    """Whether the trainer may never read a kill switch: it makes no steps, and its job still runs."""
    names = request.subjects if request.verb == "kill" else ()
    silent = (run for run in map(state.runs.get, names) if run is not None and run.verdict in SILENT_VERDICTS)
    return any(state.jobs[key].stage == "running" for run in silent for key in run.jobs if key in state.jobs)


# ---- the plan --------------------------------------------------------------------------------------------------------

LABEL = 17
"""The most cells of the label column. A longer label takes its own line."""

OPERATION = ("command", "file")
"""The facts that name the command or file itself: here they are shown from the operation, to the last character."""

WHOLE = 1_000_000
"""The limit for `clean` that keeps the whole text."""


SLOW: Seconds = 10.0
"""After this long without an answer, the dialog says so."""


def checking_rows(about: str, host: str, waited: Seconds, width: int, *, asks_nodes: bool) -> list[Row]:
    """The lines that are shown until the plan comes. `asks_nodes`: whether nodes are checked, too."""
    if waited < SLOW:
        text, style = f"checking {about} on {host} … {waited:.0f}s", "dim"
    else:
        style = "warn"
        text = (
            f"{host}{', or a node,' if asks_nodes else ''} has not answered for {waited:.0f}s. "
            "Still waiting; nothing has been done. Esc closes this."
        )
    return [Row(str(n), (Span(line, style),)) for n, line in enumerate(wrapped(text, width))]


def choice_rows(plan: Plan) -> list[Row]:
    """The armed switches to choose from."""
    return [Row(path, (Span(clean(text)),)) for path, text in plan.choices]


def plan_rows(plan: Plan, width: int, about: str = "") -> list[Row]:
    """The whole plan of what its title calls `about`. Refusals come first, so that nobody scrolls past them; then what
    all actions will do; then the facts of each."""
    lines: list[tuple[Span, ...]] = []
    for refusal in plan.refusals:
        name = about if (refusal.subject,) == tuple(plan.request.subjects) else ""
        lines += [*refusal_lines(refusal, width, name or refusal.subject), ()]
    for action in plan.actions:
        lines += [*consequence_lines(action, width), ()]
    for action in plan.actions:
        title = [*_block(action.title, width, "bold")] if len(plan.actions) > 1 else []
        lines += [*title, *fact_lines(action, width), ()]
    lines = lines[:-1] or [(Span("There is nothing to do.", "dim"),)]
    return [Row(str(number), spans) for number, spans in enumerate(lines)]


def plan_summary(plan: Plan) -> str:
    """`3 actions, 1 refused`; empty for a single action."""
    actions, refusals = len(plan.actions), len(plan.refusals)
    parts = [counted(actions, "action")] * bool(actions) + [f"{refusals} refused"] * bool(refusals)
    return "" if (actions, refusals) == (1, 0) else ", ".join(parts) or "nothing to do"


def refusal_lines(refusal: Refusal, width: int, name: str) -> Iterator[tuple[Span, ...]]:
    """What is refused, by its name, with the reason and the hint."""
    yield from _block(f"{DEAD} refused: {name}", width, "crit")
    yield from _labelled("why", refusal.why, width, 6)
    if refusal.hint:
        yield from _labelled("hint", say(refusal.hint), width, 6)


def consequence_lines(action: Action, width: int) -> Iterator[tuple[Span, ...]]:
    """The title of an action, its warnings and its consequences: what a person must read before the button."""
    yield from _block(action.title, width, "bold")
    for warning in action.warnings:
        yield from _block(f"{WARN} {say(warning)}", width, "warn", indent=2)
    for sentence in action.consequences:
        yield from _block(say(sentence), width, "", indent=2)


def fact_lines(action: Action, width: int) -> Iterator[tuple[Span, ...]]:
    """The facts of an action, with the exact command or file."""
    facts = list(action_facts(action))
    column = min(LABEL, max(cell_width(clean(label)) for label, _, _ in facts)) + 2
    for label, text, style in facts:
        yield from _labelled(label, text, width, column, style)


PlanFact = tuple[str, str, str]
"""A label, a text and its style."""


def action_facts(action: Action) -> Iterator[PlanFact]:
    """What a person must know before, and the operation in its place."""
    if not any(label in OPERATION for label, _ in action.facts):
        yield "host", action.host, ""
        yield from operation_facts(action.operation)
    for label, text in action.facts:
        yield from operation_facts(action.operation) if label in OPERATION else [(label, text, "")]


def operation_facts(operation: Operation) -> Iterator[PlanFact]:
    """The exact command, or the file and its content."""
    labels = {Execute: "command", ReadStacks: "asks", CreateFile: "creates"}
    yield labels.get(type(operation), "removes"), command_line(operation), "accent bold"
    if isinstance(operation, CreateFile) and operation.text:
        yield "content", operation.text.rstrip("\n"), ""
    if isinstance(operation, Execute) and operation.login_shell:
        yield "", "in a login shell, for its modules", ""


def command_line(operation: Operation) -> str:
    """The exact command as a person would write it, or the path."""
    if isinstance(operation, CreateFile | RemoveFile):
        return visible(operation.path)
    return " ".join(map(visible, operation.argv)) if not operation.shown else visible(operation.shown, quote=False)


def visible(word: str, *, quote: bool = True) -> str:
    """A word of a command line, quoted. Unprintable characters are written as bash reads them."""
    if clean(word, WHOLE) == word:
        return shlex.quote(word) if quote else word
    octets = ("".join(f"\\x{byte:02x}" for byte in c.encode("utf-8", "surrogateescape")) for c in word)
    shown = "".join(c if clean(c) == c and c not in "\\'" else octet for c, octet in zip(word, octets, strict=True))
    return f"$'{shown}'" if quote else shown


def _labelled(label: str, text: str, width: int, column: int, style: str = "") -> Iterator[tuple[Span, ...]]:
    """`  label   text`; the text wraps in its own column."""
    label = clean(label)
    if cell_width(label) > column - 2:
        yield (Span(f"  {label}", "dim"),)
        label = ""
    head = Span("  " + label + " " * (column - cell_width(label)), "dim")
    for number, line in enumerate(wrapped(clean(text, WHOLE), width - 2 - column)):
        yield (Span(" " * (column + 2)) if number else head, Span(line, style))


def _block(text: str, width: int, style: str, indent: int = 0) -> Iterator[tuple[Span, ...]]:
    for line in wrapped(clean(text, WHOLE), width - indent):
        yield (Span(" " * indent + line, style),)


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` cells, broken at blanks. A word longer than a line is split."""
    width = max(8, width)
    line = ""
    for word in pieces(text.split(" "), width):
        if line and cell_width(line) + 1 + cell_width(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def pieces(words: Iterable[str], width: int) -> Iterator[str]:
    """The words. One that is wider than a line is split into parts that fill a line."""
    for word in words:
        yield from chop_cells(word, max(1, width)) or [word]


# ---- the commands of the palette -------------------------------------------------------------------------------------

CommandKind = Literal[
    "pane", "key", "run", "node", "job", "charts", "alert", "theme", "config", "export", "report", "act"
]

PANES = {
    "1": ("run", "training", "trainings"),
    "2": ("gpu", "node", "nodes", "host", "hosts"),
    "3": ("disks", "df", "storage", "filesystems", "quota", "quotas"),
    "4": ("logs", "tail"),
    "5": ("alert", "alarms"),
    "6": ("w&b", "wandb", "weights & biases", "metrics", "curves", "loss"),
    "7": ("job", "jobs", "slurm", "squeue"),
}
"""Other names of the panes."""

ALSO = {
    "view.filter": ("find", "grep"),
    "view.sort": ("order",),
    "view.columns": ("columns", "fields"),
    "pane.preset": ("layout", "preset", "arrange"),
    "pane.hide": ("close",),
    "pane.larger": ("enlarge", "grow"),
    "pane.smaller": ("shrink",),
    "pane.later": ("move",),
    "view.copy": ("copy", "yank"),
    "view.zoom": ("full screen",),
    "view.refresh": ("reload",),
    "lines.choose": ("describe",),
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
    "act.menu": ("menu",),
    **{f"act.{spec.name}": (*verbs_of_key(spec.name), *spec.also) for spec in VERBS if spec.help},
}
"""Other names of the keys."""

REPORT_ALSO = ("report", "reliability", "goodput", "ettr", "mttf", "gpu hours", "cost")
THEMES_ALSO = {"trainmon-clear": ("high contrast", "contrast", "colour-blind", "color-blind")}
"""Other names of the themes."""

UNNAMED = frozenset({"app.how_to_quit", "lines.mark", "log.next", "log.previous"})
"""Keys that make no sense outside their pane."""


class Command(NamedTuple):
    """One command: its line in the palette, and its names in lower case."""

    kind: CommandKind
    text: str
    names: tuple[str, ...]
    target: Link | str
    """A link, a pane by its number, a run or theme by its name, or the key to press; empty to choose the theme."""
    cap: str = ""
    """Its key, as it is written on the screen."""


# ---- matching ----

EXACT, BEGINS, ALSO_BEGINS, AT_WORD, WITHIN, LINE_AT_WORD, LINE_WITHIN, SCATTERED, ACTS_LAST, NO_MATCH = range(10)
"""The ranks of a match, the best first."""


def find_commands(query: str, commands: Sequence[Command]) -> list[Command]:
    """The commands that match a query, the best first."""
    query = " ".join(query.casefold().split())
    starts = [
        re.compile(rf"(?<![^\W_]){re.escape(word)}") for word in (query, *query.split())
    ]  # at the start of a word
    ranks = ((rank(query, starts, command), command) for command in commands)
    return [command for _, command in sorted((one for one in ranks if one[0] < NO_MATCH), key=itemgetter(0))]


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


def commands(context: str, state: State, themes: Sequence[str]) -> list[Command]:
    """All commands of a context. Those that open a plan come last."""
    keys = [
        Command("act" if key.scope in ACTS else "key", key.text, names_of(key), key.keys.split(",")[0], key.cap)
        for key in active_keys(context)
        if key.group != "move" and key.id not in UNNAMED and (key.id != "app.leave" or "main" not in CONTEXTS[context])
    ]
    return [
        *(Command("pane", name, _names(name, *PANES[number]), number, number) for number, name in NAMES.items()),
        *(key for key in keys if key.kind != "act"),
        *(
            Command("export", f"the table or chart as {kind.upper()}", _names(f"export {kind}", kind), kind)
            for kind in ("csv", "svg")
            if "pane" in CONTEXTS[context]
        ),
        Command("key", "choose the theme", ("theme", "themes", "colours", "colors"), ""),
        Command("config", "load the config again", ("config", "reload config", "load config"), "config"),
        Command("report", "of all runs: where the GPU hours went", REPORT_ALSO, Link("report", "")),
        *subject_commands(state),
        *(
            Command("theme", "  ".join((name, *also[:1])), _names(name, f"theme {name}", *also), name)
            for name in themes
            for also in [THEMES_ALSO.get(name, ())]
        ),
        *(key for key in keys if key.kind == "act"),
    ]


def _names(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.casefold() for name in names if name))


def names_of(key: Key) -> tuple[str, ...]:
    """The names of a key."""
    return _names(key.short, *ALSO.get(key.id, ()))


def subject_commands(state: State) -> Iterator[Command]:
    """Runs, nodes, jobs, reports, charts and alerts; firing alerts first, then by severity."""
    for run in state.runs:
        yield Command("run", run, _names(run, f"run {run}"), run)
    for node in dict.fromkeys((*state.nodes, *state.scheduler_nodes)):
        yield Command("node", node, _names(node, f"node {node}"), Link("node", node))
    for key, job in sorted(with_ended(state).jobs.items(), key=lambda item: item[1].gone_at is not None):
        yield Command("job", f"{job.id}  {job.name}", _names(job.id, key, f"job {job.id}"), Link("job", key))
    for run in state.runs:
        yield Command("report", f"of {run}", _names(f"report {run}"), Link("report", run))
    for run in (name for name, run in state.runs.items() if run.has_charts):
        names = _names(f"charts of {run}", f"charts {run}", f"wandb {run}")
        yield Command("charts", f"of {run}", names, Link("wandb", run))
    for alert in sorted(state.alerts.values(), key=lambda one: (not one.is_firing, worst_first(one))):
        aside = "" if alert.is_firing else f" ({status_of(alert, state.at)})"
        text = f"{alert.id}  {alert.rule}: {alert.summary}{aside}"
        yield Command("alert", text, _names(alert.id, alert.rule, f"alert {alert.id}"), Link("alert", alert.id))
