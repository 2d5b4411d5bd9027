"""The base of all dialogs, and of all screens that close only once; the buttons of dialogs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, ClassVar, TypeVar

from textual import events
from textual.app import App, RenderResult
from textual.await_complete import AwaitComplete
from textual.binding import BindingType
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input, Static

from trainmon.lib import cell_width, clean, shorten
from tui.keys import EVERYWHERE, bindings
from tui.style import CURSOR

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

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("back")]
    READS_EVERY_KEY: ClassVar[bool] = False
    """Whether every key means something, also before it is drawn: it only goes to another place."""

    drawn_at: float = inf
    """When it was on the screen in full, by the clock of Textual's events."""

    def on_mount(self) -> None:
        # A frame decides (`Dashboard.post_display_hook`); if none has it in full, the end of all drawing does.
        self.call_after_refresh(self.note_drawn)

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
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("button")]
    ALLOW_SELECT = False

    @dataclass
    class Pressed(Message):
        """Enter on the button, or a click."""

        button: TriggerButton

    def __init__(self, label: str, *, id: str, disabled: bool = False) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, disabled=disabled)
        self.label = label

    def set_label(self, label: str) -> None:
        if label != self.label:
            self.label = label
            self.refresh(layout=True)

    def get_content_width(self, container: object, viewport: object) -> int:
        return cell_width(self.label) + 5

    def render(self) -> RenderResult:
        return Content(f"{CURSOR if self.has_focus else ' '}[ {self.label} ]")

    def action_press(self) -> None:
        self.post_message(self.Pressed(self))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_press()
