"""The base of all dialogs, their buttons, and the small ones: a search, a jump, a login, a choice, a line, mutes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from time import monotonic
from typing import Any, ClassVar, TypeVar

from textual import events, on
from textual.app import App, ComposeResult, RenderResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Offset
from textual.message import Message
from textual.reactive import reactive
from textual.screen import ModalScreen, Screen
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input, Static

from trainmon.lib import Seconds, cell_width, clean, shorten
from trainmon.model import Prompt
from tui.keys import EVERYWHERE, KEYS, bindings, cap
from tui.style import CURSOR, Row, Span
from tui.views.alert_detail import USUAL, Choice, parse_duration
from tui.widgets import KeyedLines

# ---- the base of all dialogs, and of all screens that close only once ------------------------------------------------

Answer = TypeVar("Answer")


class Once(Screen[Answer]):
    """A screen that closes only once, and whose hidden widgets have no focus.

    When keys arrive together, the second may reach a screen that the first has closed. Textual would then close the
    screen below, and after the last screen end the program.
    """

    def set_focus(self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False) -> None:
        """Focus a widget that is displayed. Textual's `focusable` asks for `visible` only: it would focus any other."""
        if widget is None or is_displayed(widget):
            super().set_focus(widget, scroll_visible, from_app_focus)

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        return super().dismiss(result) if self.app.screen is self else AwaitComplete()


class Dialog(ModalScreen[Answer], Once[Answer]):
    """A dialog over the visible screen. Esc closes it. Keys that were typed before it is drawn are dropped.

    Textual's style sheets follow the first base only.
    """

    BINDINGS = bindings("back")
    READS_EVERY_KEY: ClassVar[bool] = False
    """Whether every key means something, also before it is drawn: it only goes to another place."""

    CLASSES: ClassVar[str] = "dialog"

    parts: Sequence[Widget] = ()
    """What it shows, from top to bottom."""

    drawn_at: float = inf
    """When it was on the screen in full, by the clock of Textual's events."""

    def compose(self) -> ComposeResult:
        yield Vertical(*self.parts, classes=self.CLASSES)

    def on_mount(self) -> None:
        # A frame decides (`Dashboard.post_display_hook`); if none has it in full, the end of all drawing does.
        self.call_after_refresh(self.note_drawn)

    def on_resize(self) -> None:
        self.call_after_refresh(self.fit)

    def fit(self) -> None:
        """Fill in what depends on its size."""

    @property
    def is_shown(self) -> bool:
        """Whether the last frame has it in full."""
        shown = [widget for box in self.query(".dialog") for widget in (box, *box.displayed_children)]
        return bool(shown) and all(widget.region for widget in shown)

    def note_drawn(self) -> None:
        """Take the keys from now on: everything that a person must read is on the screen."""
        self.drawn_at = min(self.drawn_at, monotonic())

    def say(self, words: str) -> None:
        """Show a sentence in the dialog's frame: a toast would cover what a person must read."""
        for box in self.query(".dialog"):
            box.border_subtitle = Content(shorten(clean(words), max(0, box.size.width - 4)))

    def drops(self, event: events.Key) -> bool:
        """Whether a key was typed before a person could read the dialog. Those that leave it always count."""
        is_early = event.time < self.drawn_at and event.key not in {"escape", *EVERYWHERE} and not self.READS_EVERY_KEY
        self.say("ignored: the dialog was not ready yet" if is_early else "")
        return is_early

    def action_back(self) -> None:
        self.dismiss(None)


def is_displayed(widget: Widget) -> bool:
    """Whether neither the widget nor what contains it is hidden."""
    return all(node.display for node in widget.ancestors_with_self)


def ask(app: App[Any], dialog: Dialog[Answer | None], then: Callable[[Answer], None]) -> None:
    """Open a dialog, and call `then` with its answer. A dialog that is closed without one changes nothing."""
    app.push_screen(dialog, lambda answer: None if answer is None else then(answer))


def text(content: str, kind: str) -> Static:
    """A text of a dialog; `kind` is its class in trainmon.tcss: question, body, label or hint."""
    return Static(content, classes=kind, markup=False)


def text_field(value: str = "", **options: Any) -> Input:
    """An input line of a dialog."""
    field = Input(value, compact=True, **options)
    field.cursor_blink = False
    return field


# ---- the buttons of a dialog -----------------------------------------------------------------------------------------


class TriggerButton(Widget, can_focus=True):
    """A button. It shows its focus without colour."""

    DEFAULT_CSS = """
    TriggerButton { height: 1; width: auto; margin-right: 1; }
    TriggerButton:focus { text-style: bold reverse; }
    TriggerButton.danger { color: $text-error; text-style: bold; }
    TriggerButton.danger:focus { text-style: bold reverse; }
    TriggerButton:disabled { text-style: dim; }
    """
    BINDINGS = bindings("button")
    ALLOW_SELECT = False
    label = reactive("", layout=True)

    @dataclass
    class Pressed(Message):
        """Enter on the button, or a click."""

        button: TriggerButton

    def __init__(self, label: str, *, id: str, disabled: bool = False) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, disabled=disabled)
        self.label = label

    def get_content_width(self, container: object, viewport: object) -> int:
        return cell_width(self.label) + 5

    def render(self) -> RenderResult:
        return Content(f"{CURSOR if self.has_focus else ' '}[ {self.label} ]")

    def action_press(self) -> None:
        self.post_message(self.Pressed(self))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_press()


# ---- the input line of a filter or a search --------------------------------------------------------------------------


Complete = Callable[[str], Sequence[str]]
"""What a typed text may become."""


class Completer(Suggester):
    """The first completion, dim behind the typed text."""

    def __init__(self, complete: Complete) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self.complete = complete

    async def get_suggestion(self, value: str) -> str | None:
        return next(iter(self.complete(value)), None)


class OrderedInput(Input):
    """An input that uses each key at once; Enter calls `entered` with the text. In a queue of its own, a key that is
    typed behind Enter would get into the text."""

    def __init__(self, entered: Callable[[str], object], **options: Any) -> None:
        super().__init__(compact=True, **options)
        self.cursor_blink = False
        self._entered = entered

    async def action_submit(self) -> None:
        self._entered(self.value)

    def take(self, event: events.Key) -> bool:
        """Use a key; False: its binding is to run."""
        if not event.is_printable or event.character is None:
            return False
        self.replace(event.character, *self.selection)
        return True


class Find(OrderedInput):
    """A one-line input above the footer. Tab goes through the completions of what was typed."""

    def __init__(self) -> None:
        super().__init__(self.close, id="find", select_on_focus=False)
        self.display = False
        self._offered: tuple[str, ...] = ()
        """What Tab goes through; it ends with what was typed."""
        self._on_typed: Callable[[str], object] = str
        self._on_closed: Callable[[], object] = str

    def open(
        self,
        what: str,
        text: str,
        typed: Callable[[str], object],
        closed: Callable[[], object],
        complete: Complete | None = None,
    ) -> None:
        """Open the input with this text. `typed` is called with the text so far, `closed` after Enter and Esc."""
        self.placeholder, self._offered, self._on_typed, self._on_closed = what, (), typed, closed
        self.suggester = None if complete is None else Completer(complete)
        self.display = True
        with self.prevent(Input.Changed):
            self.value = text
        self.select_all()  # what is typed replaces it; when the focus is noticed, it may have been typed already
        self.screen.set_focus(self)

    def close(self, text: str) -> None:
        """Close it at once, with this text: the next key may already be queued."""
        self.display = False
        self._on_typed(text)
        self._on_closed()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.display:
            self._on_typed(self.value)

    def take(self, event: events.Key) -> bool:
        if event.key == "escape":
            self.close("")
        elif event.key in ("tab", "shift+tab") and isinstance(self.suggester, Completer):
            if self.value not in self._offered:
                self._offered = (*self.suggester.complete(self.value), self.value)
            step = 1 if event.key == "tab" else -1
            self.value = self._offered[(self._offered.index(self.value) + step) % len(self._offered)]
            self.cursor_position = len(self.value)
        else:
            return super().take(event)
        return True


# ---- jump ------------------------------------------------------------------------------------------------------------

LETTERS = "asdfghjklqwertyuiopzxcvbnm"
"""The home row first."""


class Jump(Dialog[str | None]):
    """Shows a letter at each pane, over the screen below; any other key closes it."""

    READS_EVERY_KEY = True

    def __init__(self, targets: Iterable[tuple[str, Offset]]) -> None:
        """`targets`: the numbers of the panes, and the positions of their letters."""
        super().__init__()
        self.targets = dict(zip(LETTERS, targets, strict=False))

    def compose(self) -> ComposeResult:
        for letter, (_, at) in self.targets.items():
            label = text(f" {letter} ", "letter")
            label.styles.offset = at
            yield label

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        number, _ = self.targets.get(event.key, (None, None))
        self.dismiss(number)


# ---- the dialog of an interactive login ------------------------------------------------------------------------------


class LoginPrompt(Dialog[tuple[str, ...] | None]):
    """One prompt of one host. Returns the answers, or None when the person declines."""

    def __init__(self, prompt: Prompt) -> None:
        super().__init__()
        self.prompt = prompt
        self.is_over = False
        self.fields = [
            OrderedInput(partial(self.enter, at), password=not echo) for at, (_, echo) in enumerate(prompt.fields)
        ]
        enter = "Enter logs in" if len(self.fields) < 2 else "Enter: next field"
        self.hint = text(f"{enter}  Esc cancels the login; {cap('act.login')} starts it again", "hint")
        lines: list[Widget] = [text(clean(f"Log in to {prompt.host}: {prompt.title}").rstrip(": "), "question")]
        if prompt.instructions:
            said = text("\n".join(map(clean, prompt.instructions.splitlines())), "said")
            lines.append(VerticalScroll(said, classes="body", can_focus=False))
        for (label, _), field in zip(prompt.fields, self.fields, strict=True):
            lines += [text(clean(label), "label"), field]
        self.parts = (*lines, self.hint)

    def withdraw(self) -> None:
        """Close: the host no longer asks.

        Stay open while a person types: the other keys would go to the screen below.
        """
        if any(field.value for field in self.fields):
            self.is_over = True
            self.hint.update("The login has ended: nothing is sent. Enter or Esc closes")
        else:
            self.dismiss(None)
            self.app.notify(f"{clean(self.prompt.host)} no longer waits for an answer", markup=False)

    def on_mount(self) -> None:
        for field in self.fields[:1]:
            field.focus()

    def enter(self, at: int, _text: str) -> None:
        """Go to the next field at once: a password must not get into a name. After the last one, send the answers."""
        if at + 1 < len(self.fields):
            self.set_focus(self.fields[at + 1])
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
        self.choices = tuple(choices)
        self.now = now
        self.lines = KeyedLines()
        self.lines.cursor_key = now
        self.parts = (text(question, "question"), self.lines, text("Enter chooses  Esc closes", "hint"))

    def on_mount(self) -> None:
        self.lines.styles.height = min(len(self.choices), 12)
        self.lines.set_rows(
            [
                Row(key, (Span(f" {clean(words)}"), Span("  (current)" if key == self.now else "", "dim")))
                for key, words in self.choices
            ]
        )
        self.lines.focus()
        self.call_after_refresh(self.lines.show_cursor)  # once there is a height to scroll in

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        self.dismiss(event.key)


# ---- the dialog that chooses columns ---------------------------------------------------------------------------------


class Columns(Dialog[tuple[str, ...] | None]):
    """Enter takes the marked columns in their order; all in the usual order, or none, are the usual columns."""

    BINDINGS = bindings("columns")

    def __init__(self, question: str, labels: Mapping[str, str], usual: Sequence[str], shown: Sequence[str]) -> None:
        """`labels`: what the screen calls each column, by its name."""
        super().__init__()
        self.labels = labels
        self.usual = tuple(usual)
        self.names = [*shown, *(name for name in labels if name not in shown)]
        self.shown = frozenset(shown)
        self.lines = KeyedLines()
        hint = "  ".join(f"{key.cap} {key.short}" for key in KEYS if key.scope == "columns")
        self.parts = (text(question, "question"), self.lines, text(f"{hint}  Enter applies  Esc closes", "hint"))

    def on_mount(self) -> None:
        self.lines.styles.height = min(len(self.names), 12)
        self.draw()
        self.lines.focus()

    def draw(self) -> None:
        texts = {name: f" [{'x' if name in self.shown else ' '}] {self.labels.get(name, name)}" for name in self.names}
        self.lines.set_rows([Row(name, (Span(text),)) for name, text in texts.items()])

    def action_toggle_column(self) -> None:
        self.shown ^= {self.lines.cursor_key or ""}
        self.draw()

    def action_move_column(self, step: int) -> None:
        at = self.names.index(self.lines.cursor_key or self.names[0])
        self.names.insert(min(max(at + step, 0), len(self.names) - 1), self.names.pop(at))
        self.lines.choose_cursor()
        self.draw()

    def on_keyed_lines_chosen(self) -> None:
        chosen = tuple(name for name in self.names if name in self.shown)
        self.dismiss(() if chosen == self.usual else chosen)


# ---- A dialog that asks for one line ---------------------------------------------------------------------------------


class TextPrompt(Dialog[str | None]):
    """Enter returns the typed line; Esc closes. Letters that are typed before it is drawn are kept."""

    def __init__(self, question: str, *lines: str, verb: str, value: str = "", placeholder: str = "") -> None:
        super().__init__()
        self.field = text_field(value, placeholder=placeholder, select_on_focus=False)
        texts = (text(question, "question"), *(text(line, "body") for line in lines), text("", "blank"))
        self.parts = (*texts, self.field, text(f"Enter {verb}  Esc closes", "hint"))

    def on_mount(self) -> None:
        self.field.focus()

    def drops(self, event: events.Key) -> bool:
        is_early = super().drops(event)
        if is_early and event.character is not None and event.is_printable:
            self.field.insert_text_at_cursor(event.character)
        return is_early

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


# ---- the dialog that saves a log ----------------------------------------------------------------------------------


class SaveLog(Dialog[tuple[str, str] | None]):
    """Up and down choose what is saved, Tab goes to the path, Enter saves, Esc closes."""

    def __init__(self, choices: Sequence[tuple[str, str]], path: str) -> None:
        super().__init__()
        self.choices = tuple(choices)
        self.lines = KeyedLines()
        self.path = text_field(path, select_on_focus=False)
        hint = text("Tab: next field  Enter saves into a new file  Esc closes", "hint")
        self.parts = (text("Save the log", "question"), self.lines, text("into", "label"), self.path, hint)

    def on_mount(self) -> None:
        self.lines.styles.height = len(self.choices)
        self.lines.set_rows([Row(key, (Span(f" {clean(words)}"),)) for key, words in self.choices])
        self.lines.focus()

    @on(KeyedLines.Chosen)
    @on(Input.Submitted)
    def save(self) -> None:
        self.dismiss((self.lines.cursor_key or "", self.path.value.strip()))


# ---- the dialog that mutes alerts ------------------------------------------------------------------------------------


class Mute(Dialog[tuple[Choice, Seconds, str] | None]):
    """Up and down choose what to mute, Tab goes to duration and reason, Enter mutes, Esc closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "app.focus_next", show=False),
        Binding("up", "app.focus_previous", show=False),
    ]

    def __init__(self, question: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self.choices = tuple(choices)
        self.lines = KeyedLines()
        self.span = text_field(USUAL)
        self.why = text_field(placeholder="optional")
        self.error = text("", "hint")
        self.parts = (
            text(question, "question"),
            self.lines,
            text("for how long (such as 30m, 1h, 2d, 1w)", "label"),
            self.span,
            text("why", "label"),
            self.why,
            self.error,
            text("Alerts stay visible.  Tab: next  Enter mutes  Esc closes", "hint"),
        )

    def on_mount(self) -> None:
        self.lines.styles.height = len(self.choices)
        self.lines.set_rows([Row(one.key, (Span(f" {one.text}"),)) for one in self.choices])
        self.error.display = False
        self.lines.focus()

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
