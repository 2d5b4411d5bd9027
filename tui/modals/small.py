"""The small dialogs: a filter or search, a jump to a pane, a login, a choice, one line of text, and mutes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Offset
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from trainmon.lib import Seconds, clean, shorten
from trainmon.model import Prompt
from tui.modals.dialog import Dialog, text, text_field
from tui.style import Span
from tui.views.alert_detail import USUAL, Choice, parse_duration
from tui.widgets import KeyedLines, Row

# ---- the input line of a filter or a search --------------------------------------------------------------------------


class Find(Input):
    """A one-line input above the footer."""

    @dataclass
    class Typed(Message):
        """The text so far."""

        text: str

    class Closed(Message):
        """The input closed: kept by Enter, or cleared by Esc."""

    def __init__(self) -> None:
        super().__init__(id="find", compact=True)
        self.cursor_blink = False
        self.display = False

    def open(self, what: str, text: str) -> None:
        """Open the input with this text."""
        self.placeholder = what
        self.display = True
        with self.prevent(Input.Changed):
            self.value = text
        self.cursor_position = len(text)
        self.screen.set_focus(self)

    def close(self) -> None:
        if self.display:
            self.display = False
            self.post_message(self.Closed())

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Typed(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.close()

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            self.post_message(self.Typed(""))
            self.close()


# ---- jump ------------------------------------------------------------------------------------------------------------

LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""The home row first."""


class Target(NamedTuple):
    """A pane: its number, and the position of its letter."""

    name: str
    at: Offset


class Jump(Dialog[str | None]):
    """Shows the letters over the screen below; any other key closes it."""

    READS_EVERY_KEY = True

    def __init__(self, targets: Sequence[Target]) -> None:
        super().__init__()
        self.targets = dict(zip(LETTERS, targets, strict=False))

    def compose(self) -> ComposeResult:
        for letter, target in self.targets.items():
            label = text(f" {letter} ", "letter")
            label.styles.offset = target.at
            yield label

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        target = self.targets.get(event.key)
        self.dismiss(None if target is None else target.name)


# ---- the dialog of an interactive login ------------------------------------------------------------------------------


class LoginPrompt(Dialog[tuple[str, ...] | None]):
    """One prompt of one host. Returns the answers, or None when the person declines."""

    def __init__(self, prompt: Prompt, waiting: int = 0) -> None:
        super().__init__()
        self.prompt = prompt
        self.is_over = False
        self.fields = [text_field(password=not echo) for _, echo in prompt.fields]
        more = f"  {waiting} more to answer" if waiting else ""
        self.hint = text(f"Enter answers  Esc declines{more}", "hint")

    def compose(self) -> ComposeResult:
        prompt = self.prompt
        lines: list[Widget] = [text(clean(f"{prompt.host} asks: {prompt.title}"), "question")]
        if prompt.instructions:
            lines.append(text("\n".join(clean(line) for line in prompt.instructions.splitlines()[:8]), "body"))
        for (label, _), field in zip(prompt.fields, self.fields, strict=True):
            lines += [text(clean(label), "label"), field]
        yield Vertical(*lines, self.hint, classes="dialog")

    def withdraw(self) -> None:
        """Close: the host no longer asks.

        Stay open while a person types: the other keys would go to the screen below.
        """
        if any(field.value for field in self.fields):
            self.is_over = True
            self.hint.update("The host no longer asks. Enter or Esc closes; nothing is sent")
        else:
            self.dismiss(None)

    def on_mount(self) -> None:
        for field in self.fields[:1]:
            field.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes to the next field; on the last one it sends the answers."""
        if event.input is not self.fields[-1]:
            self.fields[self.fields.index(event.input) + 1].focus()
        else:
            self.dismiss(None if self.is_over else tuple(field.value for field in self.fields))

    def on_key(self, event: events.Key) -> None:
        """Enter closes a prompt without fields, and reaches no other widget."""
        if event.key == "enter" and not self.prompt.fields:
            event.stop()
            event.prevent_default()
            self.dismiss(())


# ---- A dialog with a short list --------------------------------------------------------------------------------------


class Pick(Dialog[str | None]):
    """Enter chooses, Esc closes. `now` is the current choice."""

    def __init__(self, question: str, choices: Sequence[tuple[str, str]], now: str | None = None) -> None:
        super().__init__()
        self.question = question
        self.choices = tuple(choices)
        self.now = now
        self.lines = KeyedLines()

    def compose(self) -> ComposeResult:
        hint = text("Enter chooses  Esc closes", "hint")
        yield Vertical(text(self.question, "question"), self.lines, hint, classes="dialog")

    def on_mount(self) -> None:
        self.lines.styles.height = min(len(self.choices), 12)
        self.lines.set_rows(
            [
                Row(key, (Span(f" {clean(words)}"), Span("  (current)" if key == self.now else "", "dim")))
                for key, words in self.choices
            ]
        )
        self.lines.focus()
        if self.now is not None:
            self.call_after_refresh(self.lines.move_to, self.now)  # once there is a height to scroll in

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        self.dismiss(event.key)


# ---- A dialog that asks for one line ---------------------------------------------------------------------------------


class TextPrompt(Dialog[str | None]):
    """Enter returns the typed line; Esc closes. Letters that are typed before it is drawn are kept."""

    def __init__(self, question: str, *lines: str, verb: str, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self.texts = text(question, "question"), *(text(line, "body") for line in lines)
        self.field = text_field(value, placeholder=placeholder, select_on_focus=False)
        self.hint = text(f"Enter {verb}  Esc closes", "hint")

    def compose(self) -> ComposeResult:
        yield Vertical(*self.texts, text("", "blank"), self.field, self.hint, classes="dialog")

    def on_mount(self) -> None:
        self.field.focus()

    def drops(self, event: events.Key) -> bool:
        is_early = super().drops(event)
        if is_early and event.character is not None and event.is_printable:
            self.field.insert_text_at_cursor(event.character)
        return is_early

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


# ---- the dialog that mutes alerts ------------------------------------------------------------------------------------


class Mute(Dialog[tuple[Choice, Seconds, str] | None]):
    """Up and down choose what to mute, Tab goes to duration and reason, Enter mutes, Esc closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("tab,down", "app.focus_next", show=False),
        Binding("shift+tab,up", "app.focus_previous", show=False),
    ]

    def __init__(self, question: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self.question = question
        self.choices = tuple(choices)
        self.lines = KeyedLines()
        self.span = text_field(USUAL)
        self.why = text_field(placeholder="optional")
        self.error = text("", "hint")

    def compose(self) -> ComposeResult:
        yield Vertical(
            text(self.question, "question"),
            self.lines,
            text("for how long (such as 30m, 1h, 2d, 1w)", "label"),
            self.span,
            text("why", "label"),
            self.why,
            self.error,
            text("Alerts stay visible.  Tab next  Enter mutes  Esc closes", "hint"),
            classes="dialog",
        )

    def on_mount(self) -> None:
        self.lines.styles.height = len(self.choices)
        self.error.display = False
        self.lines.focus()

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._fill)

    def _fill(self) -> None:
        width = self.lines.row_width
        self.lines.set_rows([Row(one.key, (Span(shorten(f" {one.text}", width)),)) for one in self.choices])
        self.call_after_refresh(self.note_drawn)

    def note_drawn(self) -> None:
        if self.lines.rows:
            super().note_drawn()

    @on(KeyedLines.Chosen)
    @on(Input.Submitted)
    def mute(self) -> None:
        """Close with the decision, or show why the duration is invalid."""
        seconds = parse_duration(self.span.value)
        choice = next((one for one in self.choices if one.key == self.lines.cursor_key), self.choices[0])
        if isinstance(seconds, str):
            self.error.update(seconds)
            self.error.display = True
            self.span.focus()
        else:
            self.dismiss((choice, seconds, self.why.value.strip()))
