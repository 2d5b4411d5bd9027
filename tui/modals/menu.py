"""Menus: the actions of a row, each with its key and why some are refused; and the command palette."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from textual import events

from trainmon.actions.planning import Offer, offered
from trainmon.actions.verbs import VERB, verbs_of_key
from trainmon.lib import Instant, cell_width, clean, say, shorten
from trainmon.model import State
from tui.keys import bindings
from tui.modals.dialog import Dialog, text
from tui.style import SENTENCE, Row, Span, pad
from tui.views.actions import Command, Subject, find_commands, subjects_text
from tui.widgets import Heading, KeyedLines

# ---- the action menu of a row ----------------------------------------------------------------------------------------


VIEWS = {
    "look": ("", "Look at its ranks: find the one that delays it"),
    "enter": ("Enter", "Open its screen"),
    "csv": ("", "Export the table or chart as CSV"),
    "svg": ("", "Export its picture as SVG"),
}
"""What the menu offers besides actions: the key and the text of each."""


class Menu(Dialog[str | None]):
    """Enter or a capital letter opens the plan of a verb. The menu itself changes nothing."""

    BINDINGS = bindings("act", "act-node")

    def __init__(self, subjects: Sequence[Subject], state: State, now: Instant) -> None:
        super().__init__()
        self.entries = entries(subjects, state, now)
        has_run = any(kind != "node" for kind, _ in subjects)
        self.views = [Row(name, (Span(f" {key:<6}", "accent bold"), Span(what))) for name, (key, what) in VIEWS.items()
                      if has_run or name != "look"]  # fmt: skip
        self.lines = KeyedLines()
        self.refusal = text("", "body")
        names = clean(subjects_text([name for _, name in subjects], state), 200)
        hint = text("Enter on an action shows its plan and changes nothing  Esc closes", "hint")
        self.parts = (text(f"Actions on {names}", "question"), self.lines, self.refusal, hint)

    def on_mount(self) -> None:
        self.lines.styles.height = min(len(self.entries) + len(self.views), 14)
        column = max(cell_width(one.title) for one in self.entries)
        self.lines.set_rows([*(entry_row(one, column) for one in self.entries), *self.views])
        self.lines.focus()

    def on_keyed_lines_moved(self, event: KeyedLines.Moved) -> None:
        self.refusal.update(next((why_not(one) for one in self.entries if one.verb == event.key), ""))

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        if event.key in VIEWS:
            self.dismiss(event.key)
        self._close_with(event.key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A capital letter works as outside the menu, for the possible actions."""
        if action == "act":
            return any(entry.verb in verbs_of_key(str(parameters[0])) and not entry.refusal for entry in self.entries)
        return super().check_action(action, parameters)

    def action_act(self, verb: str) -> None:
        self._close_with(*verbs_of_key(verb))

    def _close_with(self, *verbs: str) -> None:
        found = next((entry for entry in self.entries if entry.verb in verbs and not entry.refusal), None)
        if found is not None:
            self.dismiss(found.verb)


def entries(subjects: Iterable[Subject], state: State, now: Instant) -> tuple[Offer, ...]:
    """What is offered, possible actions first."""
    found = {offer.verb: offer for offer in offered(state, subjects, now)}
    held = [found[verb] for verb in ("hold", "release") if verb in found]
    if len(held) == 2 and any(entry.refusal for entry in held):  # both have one key: omit the impossible one
        found.pop("hold" if held[0].refusal and not held[1].refusal else "release")
    return tuple(sorted(found.values(), key=lambda entry: entry.refusal is not None))


def why_not(offer: Offer) -> str:
    """Why it is refused, and what helps; empty if it is not."""
    refusal = offer.refusal
    return "" if refusal is None else clean(refusal.why + (f"; {say(refusal.hint)}" if refusal.hint else ""), 600)


def entry_row(entry: Offer, column: int) -> Row:
    """A line. A refused verb is dim, with its reason, which may be cut: the full reason stands below."""
    key, title = f" {VERB[entry.verb].key:<6}", pad(entry.title, column)
    if entry.refusal is None:
        return Row(entry.verb, (Span(key, "accent bold"), Span(title)))
    return Row(entry.verb, (Span(f"{key}{title}  refused: {why_not(entry)}", "dim"),))


# ---- the command palette ---------------------------------------------------------------------------------------------

BESIDE = 9
"""Screen lines outside the list: the dialog's frame, the input, the hint, and some of the screen below."""

MOVES: Mapping[str, tuple[str, *tuple[int, ...]]] = {
    "up": ("move", -1), "down": ("move", 1), "pageup": ("page", -1), "pagedown": ("page", 1), "home": ("first",),
    "end": ("last",), "shift+tab": ("move", -1), "tab": ("move", 1),
}  # fmt: skip


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
        self.parts = (self.entry, self.lines, text("Enter opens or runs it  ↑ ↓ choose  Esc closes", "hint"))

    # ---- typing ----

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if event.key == "enter":
            self.take(self.lines.cursor_key)
        elif event.key == "escape":
            self.action_back()
        elif event.key in MOVES:
            name, *amount = MOVES[event.key]
            getattr(self.lines, f"action_{name}")(*amount)
        else:
            self.write(edited(self.typed, event))

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        self.write(self.typed + clean(event.text))

    def write(self, typed: str) -> None:
        """Set the typed text, and put the cursor on the best match."""
        if typed != self.typed:
            self.typed = typed
            self.fit()
            self.lines.move_to(self.lines.rows[0].key)

    # ---- finding ----

    def fit(self) -> None:
        """List the matches; before anything is typed, the everyday commands."""
        self.entry.set_spans((Span(": ", "accent bold"), Span(self.typed), Span("_", "accent")))
        if self.typed.strip():
            self.listed = tuple(find_commands(self.typed, self.commands))
            sentence = (
                "" if self.listed else f"no match for “{clean(self.typed.strip())}”; x on a row lists its actions"
            )
        else:
            self.listed = tuple(command for command in self.commands if command.kind in {"pane", "key", "act"})
            sentence = "type a name: pane, run, node, job, alert, theme, command"
        width = self.lines.row_width
        rows = [command_row(str(index), command, width) for index, command in enumerate(self.listed)]
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


def command_row(key: str, command: Command, width: int) -> Row:
    """A command's key or kind, its text, and a note when it opens a plan. `x` opens the menu of actions instead."""
    head, plans = (
        f" {command.cap or command.kind:<7}",
        "  shows its plan" if command.kind == "act" and command.target != "x" else "",
    )
    words = shorten(clean(command.text), width - cell_width(head) - cell_width(plans))
    return Row(key, (Span(head, "accent bold" if command.cap else "dim"), Span(words), Span(plans, "warn")))
