"""Help: every key from the table, those of this place first. It scrolls."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.keys import KEYS, PLACES, Key, bindings
from tui.lines import Row, Span
from tui.reading import Reading

TITLES = {
    "runs": "Runs", "gpus": "GPUs", "disk": "Disk", "queue": "Queue", "log": "Log", "log-screen": "Log",
    "node": "Node", "run": "Run", "job": "Job",
    "help": "Help",
}  # fmt: skip

SIGNS = (
    ("?", "not known"), ("-", "does not apply"), ("·", "no GPU there"), ("!", "look at this number"),
    ("dim", "older than three periods: what was, with its age"),
)  # fmt: skip


class Help(ModalScreen[None]):
    """Esc, q and ? close it."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("back", "help")]

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place
        self.lines = Reading()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog tall"):
            yield Static("Keys  lower case looks, upper case changes", classes="question", markup=False)
            yield self.lines
            yield Static("Esc closes", classes="hint", markup=False)

    def on_mount(self) -> None:
        self.lines.set_rows(rows(self.place))
        self.lines.focus()

    def action_back(self) -> None:
        self.dismiss()


def rows(place: str) -> list[Row]:
    """The keys of this place, then those of everywhere, then those of other places, then the signs."""
    here = set(PLACES[place])
    own = [key for key in KEYS if key.scope in here - {"app", "main", "back", "moves"}]
    common = [key for key in KEYS if key.scope in here & {"app", "main", "back", "moves"}]
    other = [key for key in KEYS if key.scope not in here]
    spans: list[tuple[Span, ...]] = []
    for title, keys in ((TITLES[place], own), ("Everywhere here", common), ("Elsewhere", other)):
        if keys:
            spans += [(Span(title, "accent bold"),), *map(line, keys), ()]
    spans += [(Span("Signs", "accent bold"),), *((Span(f"  {sign:<12}", "bold"), Span(words)) for sign, words in SIGNS)]
    return [Row(str(number), row) for number, row in enumerate(spans)]


def line(key: Key) -> tuple[Span, ...]:
    return (Span(f"  {key.cap:<12}", "bold"), Span(key.words))
