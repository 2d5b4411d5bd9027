"""Help: every key from the table, those of this context first. It scrolls."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static

from tui.keys import ACTS, CONTEXTS, KEYS, Key, active_keys, bindings
from tui.modals import Dialog
from tui.style import Span
from tui.widgets import Row, TextView

TITLES = {
    "runs": "Runs", "gpus": "GPUs", "disk": "Disk", "queue": "Queue", "queue-nodes": "Queue, nodes",
    "log": "Log", "log-screen": "Log", "wandb": "W&B", "wandb-screen": "W&B", "node": "Node", "run": "Run",
    "run-wandb": "Run", "job": "Job", "help": "Help",
}  # fmt: skip

ACTING = "Actions (each shows its plan first; the default button is Close)"
COMMON = {"app", "main", "back", "moves"}

SIGNS = (
    ("?", "not known"), ("-", "does not apply"), ("·", "no GPU there"), ("!", "this value needs attention"),
    ("+", "marked: actions apply to all marked rows"),
    ("dim", "old data: the source has missed three updates"),
)  # fmt: skip


class Help(Dialog[None]):
    """Esc, q and ? close it."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("back", "help")]

    def __init__(self, context: str) -> None:
        super().__init__()
        self.context = context
        self.lines = TextView()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog tall"):
            yield Static("Keys  actions show a plan first", classes="question", markup=False)
            yield self.lines
            yield Static("Esc closes", classes="hint", markup=False)

    def on_mount(self) -> None:
        self.lines.set_rows(help_rows(self.context))
        self.lines.focus()

    def action_back(self) -> None:
        self.dismiss()


def help_rows(context: str) -> list[Row]:
    """The keys of this context, what acts on its rows, the keys of everywhere and of other contexts, then the signs."""
    here, acts = set(CONTEXTS[context]), set(ACTS)
    own = [key for key in active_keys(context) if key.scope in here - COMMON - acts]
    acting = [key for key in KEYS if key.scope in here & acts]
    common = [key for key in KEYS if key.scope in here & COMMON]
    other = [key for key in KEYS if key.scope not in here]
    spans: list[tuple[Span, ...]] = []
    sections = (
        (TITLES[context], own),
        (ACTING, acting),
        ("On this screen", common),
        ("In other panes", other),
    )
    for title, keys in sections:
        if keys:
            spans += [(Span(title, "accent bold"),), *map(line, keys), ()]
    spans += [(Span("Signs", "accent bold"),), *((Span(f"  {sign:<12}", "bold"), Span(words)) for sign, words in SIGNS)]
    return [Row(str(number), row) for number, row in enumerate(spans)]


def line(key: Key) -> tuple[Span, ...]:
    return (Span(f"  {key.cap:<12}", "bold"), Span(key.text))
