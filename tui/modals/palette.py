"""The command palette: type a name to go there or to run it."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical

from trainmon.lib import cell_width, clean, shorten
from tui.modals.dialog import Dialog, text
from tui.style import Span
from tui.views import Command, find_commands
from tui.widgets import SENTENCE, Heading, KeyedLines, Row

BESIDE = 9
"""Screen lines outside the list: the dialog's frame, the input, the hint, and some of the screen below."""

MOVES = {"up": "cursor_up", "down": "cursor_down", "pageup": "page_up", "pagedown": "page_down", "home": "first",
         "end": "last", "shift+tab": "cursor_up", "tab": "cursor_down"}  # fmt: skip

ASK = "type a name: pane, run, node, job, alert, theme, command"


class CommandPalette(Dialog[Command | None]):
    """Enter runs the row under the cursor: at first none, then the best match. Esc closes.

    The screen itself handles every key in order, even keys that arrive together with the key that opened it. So at
    Enter the list always matches the typed text.
    """

    READS_EVERY_KEY = True

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self.commands = tuple(commands)
        self.typed = ""
        self.listed: tuple[Command, ...] = ()
        self.entry = Heading()
        self.lines = KeyedLines()
        self.lines.can_focus = False

    def compose(self) -> ComposeResult:
        yield Vertical(
            self.entry, self.lines, text("Enter opens or runs it  ↑ ↓ choose  Esc closes", "hint"), classes="dialog"
        )

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
        """Set the typed text, and put the cursor on the best match."""
        if typed != self.typed:
            self.typed = typed
            self.find()
            self.lines.move_to(self.lines.rows[0].key)

    # ---- finding ----

    def find(self) -> None:
        """List the matches; before anything is typed, the everyday commands."""
        self.entry.set_spans((Span(": ", "accent bold"), Span(self.typed), Span("_", "accent")))
        if self.typed.strip():
            self.listed = tuple(find_commands(self.typed, self.commands))
            sentence = "" if self.listed else f"no match for “{clean(self.typed.strip())}”"
        else:
            self.listed = tuple(command for command in self.commands if command.is_everyday)
            sentence = ASK
        width = self.lines.row_width
        rows = [row(str(index), command, width) for index, command in enumerate(self.listed)]
        if sentence:
            rows.insert(0, Row(SENTENCE, (Span(f" {shorten(sentence, width - 1)}", "dim"),)))
        self.lines.styles.height = max(1, min(len(rows), self.app.size.height - BESIDE))
        self.lines.set_rows(rows)

    def take(self, key: str | None) -> None:
        """Close with the command of a row, unless it is a text row."""
        if key is not None and key != SENTENCE:
            self.dismiss(self.listed[int(key)])

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        self.take(event.key)


def edited(typed: str, event: events.Key) -> str:
    """The typed text after a key."""
    if event.key == "backspace":
        return typed[:-1]
    if event.key == "ctrl+w":
        return typed.rstrip().rpartition(" ")[0]
    if event.key == "ctrl+u":
        return ""
    return typed + event.character if event.character and event.is_printable else typed


def row(key: str, command: Command, width: int) -> Row:
    """A command's key or kind, its text, and a note when it opens a plan. `x` opens the menu of actions instead."""
    head, plans = (
        f" {command.cap or command.kind:<7}",
        "  shows its plan" if command.kind == "act" and command.target != "x" else "",
    )
    words = shorten(clean(command.text), width - cell_width(head) - cell_width(plans))
    return Row(key, (Span(head, "accent bold" if command.cap else "dim"), Span(words), Span(plans, "warn")))
