"""The palette: type a name, and go there or do it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import Static

from trainmon.lib import cell_width, clean, shorten
from tui.keys import bindings
from tui.modals.once import Dialog
from tui.style import Span
from tui.views import Command, found
from tui.widgets import SENTENCE, Heading, KeyedLines, Row

BESIDE = 9
"""Lines of the screen that the list leaves: the dialog's frame, what is typed, the hint, and some of what is below."""

MOVES = {"up": "cursor_up", "down": "cursor_down", "pageup": "page_up", "pagedown": "page_down", "home": "first",
         "end": "last", "shift+tab": "cursor_up", "tab": "cursor_down"}  # fmt: skip

ASK = "type a name: pane, run, node, job, alert, theme, command"
PLANS = "  shows its plan"


class Palette(Dialog[Command | None]):
    """Enter takes the row under the cursor: at first none, then the best of what is called so. Esc closes.

    Every key comes to the screen itself, one after the other, also those that arrive together with the key that opened
    it: when Enter comes, the list is always that of what was typed before it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("back")]

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self.commands = tuple(commands)
        self.typed = ""
        self.listed: tuple[Command, ...] = ()
        self.entry = Heading()
        self.lines = KeyedLines()
        self.lines.can_focus = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield self.entry
            yield self.lines
            yield Static("Enter takes it  ↑ ↓ choose  Esc closes", classes="hint", markup=False)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.find)

    # ---- typing ----

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self.take(self.lines.cursor_key)
        elif event.key == "escape":
            self.action_back()
        elif event.key in MOVES:
            getattr(self.lines, f"action_{MOVES[event.key]}")()
        else:
            self.write(edited(self.typed, event))

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self.write(self.typed + clean(event.text))

    def write(self, typed: str) -> None:
        """Have this typed, and the cursor on the best of what is called so."""
        if typed != self.typed:
            self.typed = typed
            self.find()
            self.lines.move_to(self.lines.rows[0].key)

    # ---- finding ----

    def find(self) -> None:
        """List what is called as typed; before anything is typed, what there is every day."""
        self.entry.set_spans((Span(": ", "accent bold"), Span(self.typed), Span("_", "accent")))
        if self.typed.strip():
            self.listed = tuple(found(self.typed, self.commands))
            sentence = "" if self.listed else f"nothing is called “{clean(self.typed.strip())}” here"
        else:
            self.listed = tuple(command for command in self.commands if command.is_everyday)
            sentence = ASK
        width = self.lines.row_width
        rows = [row(str(place), command, width) for place, command in enumerate(self.listed)]
        if sentence:
            rows.insert(0, Row(SENTENCE, (Span(f" {shorten(sentence, width - 1)}", "dim"),)))
        self.lines.styles.height = max(1, min(len(rows), self.app.size.height - BESIDE))
        self.lines.set_rows(rows)

    def take(self, key: str | None) -> None:
        """End with the command of a row; sentences stand for none."""
        if key is not None and key != SENTENCE:
            self.dismiss(self.listed[int(key)])

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        event.stop()
        self.take(event.key)

    def action_back(self) -> None:
        self.dismiss(None)


def edited(typed: str, event: events.Key) -> str:
    """What is typed after a key."""
    if event.key == "backspace":
        return typed[:-1]
    if event.key == "ctrl+w":
        return typed.rstrip().rpartition(" ")[0]
    if event.key == "ctrl+u":
        return ""
    return typed + event.character if event.character and event.is_printable else typed


def row(key: str, command: Command, width: int) -> Row:
    """Its key or its kind, its words, and of what opens a plan that it does."""
    acts = command.kind == "act"
    head, plans = f" {command.cap or command.kind:<7}", PLANS if acts else ""
    words = shorten(clean(command.words), width - cell_width(head) - cell_width(plans))
    return Row(key, (Span(head, "accent bold" if command.cap else "dim"), Span(words), Span(plans, "warn")))
