"""The plan dialog: it shows in full what an action would do. It opens on Close, so that no single key acts."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Protocol

from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.widgets import Input, Static

from trainmon.lib import Clock, clean, duration
from trainmon.model import ActionRequest, Plan
from tui.keys import bindings
from tui.modals.button import TriggerButton
from tui.modals.read import TextScreen
from tui.views import BUTTONS, TITLES, button_text, checking_rows, choice_rows, plan_rows, plan_summary
from tui.widgets import KeyedLines, Row

SHARE = 0.94
"""The maximum share of the screen's height for a dialog (as in trainmon.tcss)."""

OLD = 30.0
"""Seconds after which a plan shows its age. Every action is checked once more before it runs."""

WHY = "optional; kept in the ledger and in the switch file"

FRAME = 3
"""Lines of a dialog's frame: its border, and the blank line under the list."""


class Preparing(Protocol):
    """Makes a Plan of an ActionRequest."""

    def prepare(self, ask: ActionRequest, reply: Callable[[Plan], None]) -> None: ...


class PlanScreen(TextScreen[Plan | ActionRequest | None]):
    """Returns the Plan to run, another ActionRequest, or None.

    Its subjects are in the request, captured when the key was pressed: rows may be sorted, filtered or removed since.
    Only Tab, an arrow or the mouse reaches the action button. The action's capital letter does nothing here.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("plan")]

    class Answered(Message):
        """A Plan arrived from another thread, for the request of this number."""

        def __init__(self, plan: Plan, look: int) -> None:
            super().__init__()
            self.plan = plan
            self.look = look

    def __init__(
        self,
        ask: ActionRequest,
        backend: Preparing,
        clock: Clock,
        *,
        about: str = "",
        host: str = "its host",
        hung: bool = False,
    ) -> None:
        super().__init__()
        self.ask = ask
        self.plan: Plan | None = None
        self.about = clean(about or ", ".join(ask.subjects))
        self.host = clean(host)
        self.hung = hung
        self.choices = KeyedLines()
        self.title_line = Static("", classes="question", markup=False)
        self.count = Input(str(ask.count), restrict="[0-9]{0,4}", compact=True, id="count")
        self.why = Input(ask.why, placeholder=WHY, compact=True, id="why", max_length=200)
        self.because = Static("", id="because", markup=False)
        self.typed = Input(placeholder="the id", compact=True, id="typed")
        self.close_button = TriggerButton("Close", id="close")
        self.act_button = TriggerButton(BUTTONS[ask.verb], id="act", disabled=True)
        self.instead_button = TriggerButton("Cancel the job instead", id="instead")
        self.hint = Static("", classes="hint", markup=False)
        self._backend = backend
        self._clock = clock
        self._looks = 0
        self._height = 1
        self._asked_at = self._answered_at = clock.monotonic()
        self._is_over = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog plan"):
            yield self.title_line
            yield self.body
            yield self.choices
            yield field("how many", self.count)
            yield field("why", self.why)
            yield self.because
            yield field("type it", self.typed)
            with Horizontal(classes="buttons"):
                yield self.close_button
                yield self.act_button
                yield self.instead_button
            yield self.hint

    def on_mount(self) -> None:
        for entry in (self.count, self.why, self.typed):
            entry.cursor_blink = False
        self.instead_button.display = self.hung
        self.set_focus(self.count if self.ask.verb == "queue" else self.close_button)
        self.look(self.ask)
        self.set_interval(1.0, self.wait)
        self.watch(self.body, "scroll_y", self._say_hint, init=False)

    # ---- requesting ----

    def look(self, ask: ActionRequest) -> None:
        """Request the plan; the answers to earlier requests are ignored."""
        self.ask, self.plan = ask, None
        self._looks += 1
        self._asked_at = self._clock.monotonic()
        number = self._looks
        self.draw()
        self._backend.prepare(ask, lambda plan: self._answered(plan, number))

    def _answered(self, plan: Plan, number: int) -> None:
        """From any thread."""
        self.post_message(self.Answered(plan, number))

    def on_plan_screen_answered(self, event: Answered) -> None:
        if event.look == self._looks and not self._is_over:
            self.plan, self._answered_at = event.plan, self._clock.monotonic()
            self.draw()
            if self.plan.choices:
                self.set_focus(self.choices)

    def wait(self) -> None:
        """Show how long the request takes, or how old the plan is."""
        if self.plan is None:
            self.draw()
        elif self._clock.monotonic() - self._answered_at >= OLD:
            self._say_title()

    def asked_anew(self) -> ActionRequest:
        """The request with the values of the fields."""
        count = max(1, int(self.count.value or 1))
        return replace(self.ask, why=self.why.value.strip(), count=count)

    def on_input_blurred(self, event: Input.Blurred) -> None:
        """When a field loses focus, request the plan again: the dialog always shows what will be done."""
        if not self._is_over and self.asked_anew() != self.ask:
            self.look(self.asked_anew())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in a field moves on. It never acts."""
        event.stop()
        fields = [entry for entry in (self.count, self.why, self.typed) if entry.parent and entry.parent.display]
        after = fields[fields.index(event.input) + 1 :]
        if event.input is self.typed:
            self.set_focus(self.act_button if self.may_act else self.typed)
        else:
            self.set_focus(after[0] if after and event.input is self.why else self.close_button)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._update_buttons()

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        event.stop()
        if self.plan is not None and self.plan.choices:
            self.set_focus(self.close_button)
            self.look(replace(self.ask, switch=event.key))

    # ---- closing ----

    def on_trigger_button_pressed(self, event: TriggerButton.Pressed) -> None:
        event.stop()
        if event.button is self.close_button:
            self.end(None)
        elif event.button is self.instead_button:
            self.end(replace(self.ask, verb="cancel"))
        elif self.asked_anew() != self.ask:
            self.look(self.asked_anew())
        elif self.may_act:
            self.end(self.plan)

    def end(self, answer: Plan | ActionRequest | None) -> None:
        self._is_over = True
        self.dismiss(answer)

    def action_back(self) -> None:
        self.end(None)

    @property
    def may_act(self) -> bool:
        plan = self.plan
        return bool(plan and plan.actions) and plan.typed in (None, self.typed.value.strip())  # type: ignore[union-attr]

    # ---- layout ----

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self.draw)

    def draw(self) -> None:
        """Lay out what is known, in the available space."""
        if not self.is_mounted:
            return
        plan, choices = self.plan, self.plan.choices if self.plan else ()
        self._say_title()
        can_act = plan is None or bool(plan.actions)
        self._show_field(self.count, shown=self.ask.verb == "queue" and can_act)
        self._show_field(self.why, shown=can_act and not choices)
        self._show_field(self.typed, shown=bool(plan and plan.typed))
        self.because.display = bool(plan and plan.typed)
        if plan is not None and plan.typed:
            self.because.update(clean(f"{plan.because}: type {plan.typed} to go on"))
        self.body.display, self.choices.display = not choices, bool(choices)
        self._update_buttons()
        self.call_after_refresh(self._fill)

    def _say_title(self) -> None:
        plan, age = self.plan, self._clock.monotonic() - self._answered_at
        words = plan_summary(plan) if plan and not plan.choices else ""
        words += f"   read {duration(age)} ago" if plan and age >= OLD else ""
        self.title_line.update(f"{TITLES[self.ask.verb]}: {self.about}   {words}".rstrip())

    def _fill(self) -> None:
        """Fill the rows once the widths are known. The list gets the height that the fields leave."""
        lines = self.choices if self.choices.display else self.body
        width = max(20, self.title_line.size.width - 2)
        lines.set_rows(self._rows(width))
        others = [child for child in self.query_one(".dialog").children if child.display and child is not lines]
        taken = sum(child.outer_size.height + child.styles.margin.height for child in others)
        room = int(self.app.size.height * SHARE) - FRAME - taken
        self._height = max(1, min(len(lines.rows), max(3, room)))
        lines.styles.height = self._height
        self._say_hint()

    def _rows(self, width: int) -> list[Row]:
        if self.plan is None:
            waited = self._clock.monotonic() - self._asked_at
            return checking_rows(self.about, self.host, waited, width)
        if self.plan.choices:
            return choice_rows(self.plan)
        return plan_rows(self.plan, width)

    def _show_field(self, entry: Input, *, shown: bool) -> None:
        if entry.parent is not None and entry.parent.display != shown:
            entry.parent.display = shown

    def _update_buttons(self) -> None:
        """Enable the action button when there is something to do and the required text is typed."""
        plan = self.plan
        many = len(plan.actions) if plan else 0
        self.act_button.set_label(button_text(self.ask.verb, many))
        self.act_button.display = plan is None or bool(plan.actions)
        if self.act_button.has_focus and not self.may_act:
            self.set_focus(self.close_button)
        self.act_button.disabled = not self.may_act
        self._say_hint()

    def _say_hint(self) -> None:
        self.hint.update(self._hint())

    def _hint(self) -> str:
        if self.plan is None:
            return "Esc closes; nothing was done"
        if self.plan.choices:
            return "Enter shows the plan of the chosen one  Esc closes"
        if not self.plan.actions:
            return "Enter or Esc closes"
        below = len(self.body.rows) - self.body.scroll_offset.y - self._height
        more = f"{below} more line{'' if below == 1 else 's'} below (j)  " if below > 0 else ""
        return f"{more}Tab or →: action button  Esc closes"

    # ---- moving ----

    def action_button(self, step: int) -> None:
        """Focus the next or previous button; from a field, Close."""
        buttons = [one for one in (self.close_button, self.act_button, self.instead_button) if one.focusable]
        here = next((place for place, one in enumerate(buttons) if one.has_focus), None)
        self.set_focus(buttons[0 if here is None else min(max(here + step, 0), len(buttons) - 1)])


def field(label: str, entry: Input) -> Horizontal:
    """An input with its label."""
    return Horizontal(Static(label, markup=False), entry, classes="field")
