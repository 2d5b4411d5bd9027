"""The plan dialog: it shows in full what an action would do. It opens on Close, so that no single key acts."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic

from msgspec.structs import replace
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from trainmon.actions.verbs import VERB
from trainmon.lib import Clock, ago, clean, counted
from trainmon.model import ActionRequest, CreateFile, Plan, Verb
from tui.backend import Backend
from tui.keys import bindings
from tui.modals.dialog import Dialog, TriggerButton, is_displayed, text, text_field
from tui.style import CRIT
from tui.views.actions import checking_rows, choice_rows, is_dangerous, plan_rows, plan_summary
from tui.widgets import KeyedLines, TextView

SHARE = 0.94
"""The maximum share of the screen's height for a dialog (as in trainmon.tcss)."""

OLD = 30.0
"""Seconds after which a plan shows its age. Every action is checked once more before it runs."""

WHY = "optional, recorded in the ledger"

FRAME = 3
"""Lines of a dialog's frame: its border, and the blank line under the list."""


class PlanScreen(Dialog[Plan | ActionRequest | None]):
    """Returns the Plan to run, another ActionRequest, or None.

    Its subjects are in the request, captured when the key was pressed: rows may be sorted, filtered or removed since.
    Only Tab, an arrow or the mouse reaches the action button. The action's capital letter does nothing here.
    """

    BINDINGS = bindings("plan", "moves")
    CLASSES = "dialog plan"

    @dataclass
    class Answered(Message):
        """A Plan arrived from another thread, for the request of this number."""

        plan: Plan
        number: int

    def __init__(
        self,
        request: ActionRequest,
        backend: Backend,
        clock: Clock,
        *,
        about: str = "",
        host: str = "its host",
        hung: bool = False,
    ) -> None:
        super().__init__()
        self.request = request
        self.plan: Plan | None = None
        self.about = clean(about or ", ".join(request.subjects))
        self.host = clean(host)
        self.hung = hung
        self.has_count = "count" in VERB[request.verb].options
        self.body = TextView()
        self.body.can_focus = False
        for move in ("move", "page", "first", "last"):
            # The movement keys scroll the body, whichever button or field has the focus.
            setattr(self, f"action_{move}", getattr(self.body, f"action_{move}"))
        self.choices = KeyedLines()
        self.title_line = text("", "question")
        self.count = text_field(str(request.count), restrict="[0-9]{0,4}", id="count")
        self.why = text_field(request.why, id="why", max_length=200)
        self.because = Static("", id="because", markup=False)
        self.typed = text_field(placeholder="what the line above names", id="typed")
        self.fields = {
            field: Horizontal(Static(label, markup=False), field, classes="field")
            for label, field in (("how many", self.count), ("why", self.why), ("confirm", self.typed))
        }
        self.close_button = TriggerButton("Close", id="close")
        self.act_button = TriggerButton(VERB[request.verb].button_text(1), id="act", disabled=True)
        self.instead_button = TriggerButton("Cancel the job instead", id="instead")
        self.hint = text("", "hint")
        count, why, typed = self.fields.values()
        buttons = Horizontal(self.close_button, self.act_button, self.instead_button, classes="buttons")
        self.parts = (
            self.title_line, self.body, self.choices, count, why, self.because, typed, buttons, self.hint,
        )  # fmt: skip
        self._backend = backend
        self._clock = clock
        self._request_number = 0
        self._height = 1
        self._requested_at = self._answered_at = clock.monotonic()
        self._is_over = False

    def on_mount(self) -> None:
        self.instead_button.display = self.hung
        self.set_focus(self.count if self.has_count else self.close_button)
        self.request_plan(self.request)
        self.set_interval(1.0, self.tick)
        self.watch(self.body, "scroll_y", self._show_hint, init=False)

    @property
    def verb(self) -> Verb:
        """What the plan does: `R` starts only the evaluator, if nothing else has crashed."""
        return self.plan.actions[0].verb if self.plan is not None and self.plan.actions else self.request.verb

    def note_drawn(self) -> None:
        """Only `_fill` knows when it is complete."""

    # ---- requesting ----

    def request_plan(self, request: ActionRequest) -> None:
        """Request the plan; the answers to earlier requests are ignored."""
        self.request, self.plan, self.drawn_at = request, None, inf
        self._request_number = number = self._request_number + 1
        self._requested_at = self._clock.monotonic()
        self.fit()

        def reply(plan: Plan) -> None:
            """On any thread."""
            self.post_message(self.Answered(plan, number))

        self._backend.prepare(request, reply)

    def on_plan_screen_answered(self, event: Answered) -> None:
        if event.number == self._request_number and not self._is_over:
            self.plan, self._answered_at = event.plan, self._clock.monotonic()
            self.fit()
            if self.plan.choices:
                self.set_focus(self.choices)

    def tick(self) -> None:
        """Show how long the request takes, or how old the plan is."""
        if self.plan is None:
            self.fit()
        elif self._clock.monotonic() - self._answered_at >= OLD:
            self._show_title()

    def edited_request(self) -> ActionRequest:
        """The request with the values of the fields."""
        return replace(self.request, why=self.why.value.strip(), count=max(1, int(self.count.value or 1)))

    def on_input_blurred(self, event: Input.Blurred) -> None:
        """When a field loses focus, request the plan again: the dialog always shows what will be done."""
        if not self._is_over and self.edited_request() != self.request:
            self.request_plan(self.edited_request())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter in a field moves on. It never acts."""
        if event.input is self.typed:
            self.set_focus(self.act_button if self.may_act else self.typed)
        else:
            is_typed_next = event.input is self.why and self.fields[self.typed].display
            self.set_focus(self.typed if is_typed_next else self.close_button)

    def on_input_changed(self) -> None:
        self._update_buttons()

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        if self.plan is not None and self.plan.choices:
            self.set_focus(self.close_button)
            self.request_plan(replace(self.request, switch=event.key))

    # ---- closing ----

    def on_trigger_button_pressed(self, event: TriggerButton.Pressed) -> None:
        if event.button is self.close_button:
            self.end(None)
        elif event.button is self.instead_button:
            self.end(replace(self.request, verb="cancel"))
        elif self.edited_request() != self.request:
            self.request_plan(self.edited_request())
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

    def fit(self) -> None:
        """Lay out what is known, in the available space."""
        if not self.is_mounted:
            return
        plan, choices = self.plan, self.plan.choices if self.plan else ()
        self._show_title()
        can_act = plan is None or bool(plan.actions)
        self.fields[self.count].display = self.has_count and can_act
        self.fields[self.why].display = can_act and not choices
        writes_file = any(isinstance(action.operation, CreateFile) for action in (plan.actions if plan else ()))
        self.why.placeholder = f"({WHY}{' and in the switch' * writes_file})"
        self.fields[self.typed].display = bool(plan and plan.typed)
        self.because.display = bool(plan and plan.typed)
        if plan is not None and plan.typed:
            self.because.update(clean(f"{plan.because}: type {plan.typed} to confirm"))
        self.body.display, self.choices.display = not choices, bool(choices)
        self._update_buttons()
        if self.focused is not None and not is_displayed(self.focused):
            self.set_focus(self.close_button)
        if self.title_line.size.width:  # otherwise Resize comes
            self._fill()

    def _show_title(self) -> None:
        plan, age = self.plan, self._clock.monotonic() - self._answered_at
        summary = plan_summary(plan) if plan and not plan.choices else ""
        summary += f"   read {ago(age)} ago" if plan and age >= OLD else ""
        self.title_line.update(f"{VERB[self.verb].title}: {self.about}   {summary}".rstrip())

    def _fill(self) -> None:
        """Fill the rows once the widths are known. The list gets the height that the fields leave."""
        lines = self.choices if self.choices.display else self.body
        width = max(20, self.title_line.size.width - 2)
        if self.plan is None:
            lines.set_rows(
                checking_rows(
                    self.about,
                    self.host,
                    self._clock.monotonic() - self._requested_at,
                    width,
                    asks_nodes="gate" in VERB[self.request.verb].reads,
                )
            )
        else:
            lines.set_rows(choice_rows(self.plan) if self.plan.choices else plan_rows(self.plan, width, self.about))
        others = [child for child in self.query_one(".dialog").children if child.display and child is not lines]
        taken = sum(self._height_of(child) + child.styles.margin.height for child in others)
        self._height = max(1, min(len(lines.rows), max(3, int(self.app.size.height * SHARE) - FRAME - taken)))
        lines.styles.height = self._height
        self._show_hint()
        if self.plan is not None:
            self.drawn_at = min(self.drawn_at, monotonic())

    def _height_of(self, child: Widget) -> int:
        """The lines of a text or a row of fields; Textual may not have laid it out yet."""
        width = self.title_line.size.width
        return child.get_content_height(self.size, self.size, width) if isinstance(child, Static) else 1

    def _update_buttons(self) -> None:
        """Enable the action button when there is something to do and the required text is typed."""
        plan = self.plan
        label = VERB[self.verb].button_text(len(plan.actions) if plan else 0)
        is_bad = plan is not None and is_dangerous(plan)
        self.act_button.label = f"{CRIT} {label}" if is_bad else label
        self.act_button.set_class(is_bad, "danger")
        self.act_button.display = plan is None or bool(plan.actions)
        if self.act_button.has_focus and not self.may_act:
            self.set_focus(self.close_button)
        self.act_button.disabled = not self.may_act
        self._show_hint()

    def _show_hint(self) -> None:
        below = len(self.body.rows) - self.body.scroll_offset.y - self._height
        if self.plan is None:
            hint = "Esc closes; nothing was done"
        elif self.plan.choices:
            hint = "Enter shows the plan for this switch  Esc closes"
        elif not self.plan.actions:
            hint = "Enter or Esc closes"
        else:
            more = f"{counted(below, 'more line')} below (j)  " if below > 0 else ""
            hint = f"{more}Tab{' or →:' if self.may_act else ': fields, then'} action button  Esc closes"
        self.hint.update(hint)

    # ---- moving ----

    def action_button(self, step: int) -> None:
        """Focus the next or previous button; from a field, Close."""
        buttons = [one for one in self.focus_chain if isinstance(one, TriggerButton)]
        here = next((index for index, one in enumerate(buttons) if one.has_focus), None)
        self.set_focus(buttons[0 if here is None else min(max(here + step, 0), len(buttons) - 1)])
