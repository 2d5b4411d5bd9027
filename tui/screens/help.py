"""Help: every key from the table, those of this context first. It scrolls, and `/` searches it."""

from __future__ import annotations

from collections.abc import Iterable

from trainmon.lib import group_by
from tui.keys import ACTS, CONTEXTS, KEYS, SHOWN_AT, Key, active_keys, bindings
from tui.modals.dialog import Dialog, Find, text
from tui.style import Row, Span
from tui.views.actions import wrapped
from tui.widgets import TextView

TITLES = {
    "runs": "Runs", "gpus": "GPUs", "disk": "Disk", "alerts": "Alerts", "queue": "Queue", "queue-nodes": "Queue, nodes",
    "log": "Log", "log-screen": "Log", "wandb": "Charts", "wandb-screen": "Charts", "node": "Node", "run": "Run",
    "run-wandb": "Run", "job": "Job", "disk-screen": "Disk", "alert": "Alert", "changes": "Changes",
    "attempt": "Attempt", "report": "Report", "moment": "Moment", "help": "Help",
}  # fmt: skip

ACTING = "Actions (each shows its plan first; the default button is Close)"
COMMON = {"app", "main", "detail", "back", "moves"}

COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "runs": (
        ("JOB", "the current job; +2: two more pending"), ("N", "the number of nodes"),
        ("TREND", "the loss of its recent steps"),
        ("TOK/S", "tokens per second; 263sa: samples per second"), ("CK", "the age of the last committed checkpoint"),
        ("LAST", "the age of the last step"),
        ("LEFT", "time to target; job 2h: its job ends first; or status"),
        ("SW", "armed switches: SAVE, KILL, or K+S for both"),
    ),
    "gpus": (("mem max", "the most memory used on one GPU"), ("util", "the mean GPU utilization"),
             ("util 16m", "the mean GPU utilization in each of the last minutes"),
             ("GPUS", "held: allocated by Slurm, or with a process of the user"),
             ("BUSY, IDLE", "how many of these are busy; idle: up to 5% utilization")),
    "disk": (
        ("free", "free bytes"), ("used", "the used share of the bytes"),
        ("usable", "free bytes until the `usable` share is used"), ("inodes", "the used share of the inodes"),
        ("per day", "growth per day; ~ at the rate of the last two minutes"),
        ("full in", "the time until bytes or inodes run out"),
    ),
    "alerts": (
        ("SEV", "severity"), ("HELD", "how long the condition has held"),
        ("SENT, ACK", "deliveries; acknowledgement, mute, inhibition"),
    ),
    "queue": (
        ("ST", "state, as in squeue"), ("N", "the number of nodes"), ("TIME", "the time since its start"),
        ("LEFT", "the time to its time limit"), ("RST", "restarts"),
        ("EXIT", "exit code and signal of a finished job"),
    ),
    "node": (
        ("HBM", "memory temperature in °C"), ("margin", "°C below the slowdown temperature"),
        ("ECC u/c", "uncorrected and corrected memory errors"), ("remap", "remapping of bad memory rows"),
        ("Xid", "the last Xid and its age"),
    ),
}  # fmt: skip
"""The columns of a place whose names are short."""

FILTERS = (
    ("llm !hung", 'rows with a text, and without one; "two words" in quotes'),
    ("status:hung", "its field begins so; = is exactly, ~ contains: node~gpu"),
    ("temp>85", "a number; also left<2h, free<500G, util<=5; Tab: fields"),
)

SIGNS = (
    ("●", "well: healthy, running"),
    ("◐", "in between: saves, evaluates, recovers, completes"),
    ("◌", "waits: queued, starting, pending"),
    ("✓", "done: finished, resolved, reached"),
    ("◆", "a warning"),
    ("▲", "critical, or a dangerous action"),
    ("✗", "failed: down, dead, lost, refused, not a number"),
    ("◇", "a mute or a maintenance window"),
    ("i", "an alert that only informs"),
    ("!", "needs attention: beyond its limit, or with an alert"),
    ("?", "not known"),
    ("-", "does not apply"),
    ("·", "nothing: no GPU there, an idle run, a remark"),
    ("›", "the cursor"),
    ("+", "marked: actions apply to all marked rows"),
    ("→", "Enter opens it; also: changed to"),
    ("…", "cut here"),
    ("~", "about: from the last two minutes, or estimated"),
    ("■ □", "used, free"),
    ("▁▄█", "how much: a load, or the curve of the last values"),
    ("▴ ╎", "in a chart: a checkpoint, a restart"),
    ("▼ ↑ ↓", "in a chart: the moment, points above or below it"),
    ("dim", "old data: the source has missed three updates"),
)
"""Every symbol of the screens, one meaning each."""  # fmt: skip


class Help(Dialog[None]):
    """Esc, q and ? close it."""

    CLASSES = "dialog tall"
    BINDINGS = bindings("back", "help")

    def __init__(self, context: str) -> None:
        super().__init__()
        self.context = context
        self.lines = TextView()
        self.find = Find()
        self.wanted = ""
        title, hint = text("Keys  actions show a plan first", "question"), text("/ searches  Esc closes", "hint")
        self.parts = (title, self.lines, self.find, hint)

    def on_mount(self) -> None:
        self.lines.focus()
        self._search("")

    def _search(self, wanted: str) -> None:
        self.wanted = wanted
        self.lines.set_rows(help_rows(self.context, wanted))

    def action_find(self) -> None:
        self.find.open("search the help; Enter keeps it, Esc clears it", self.wanted, self._search, self.lines.focus)

    def action_back(self) -> None:
        if self.wanted:
            self._search("")
        else:
            self.dismiss()


def help_rows(context: str, wanted: str = "") -> list[Row]:
    """The keys of this context, the actions on its rows, its columns, the other keys by their panes, and the signs.
    With `wanted`: only what has this text in its name, its meaning or the title above it."""
    here, acts = set(CONTEXTS[context]), set(ACTS)
    own = [key for key in active_keys(context) if key.scope in here - COMMON - acts]
    others = group_by((key for key in KEYS if key.scope not in here), lambda key: f"In {SHOWN_AT[key.scope]}")
    sections = (
        (TITLES[context], pairs(own)),
        (ACTING, pairs(key for key in KEYS if key.scope in here & acts)),
        ("Columns", COLUMNS.get(context, ())),
        ("Filters", FILTERS if "rows" in here else ()),
        ("On this screen", pairs(key for key in KEYS if key.scope in here & COMMON)),
        *((title, pairs(keys)) for title, keys in others.items()),
        ("Signs", SIGNS),
    )
    spans: list[tuple[Span, ...]] = []
    for title, listed in sections:
        if words := [(name, what) for name, what in listed if wanted.lower() in f"{title} {name} {what}".lower()]:
            lines = ((Span(f"  {name:<12}", "bold"), Span(what)) for name, what in words)
            spans += [*((Span(line, "accent bold"),) for line in wrapped(title, 70)), *lines, ()]
    return [Row(str(number), row) for number, row in enumerate(spans[:-1] or [(Span(f"Nothing matches “{wanted}”."),)])]


def pairs(keys: Iterable[Key]) -> tuple[tuple[str, str], ...]:
    return tuple((key.cap, key.text) for key in keys)
