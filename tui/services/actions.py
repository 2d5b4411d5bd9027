"""From a capital key to a plan, from the plan to the backend, and from States to the words of what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from textual.app import App

from trainmon.lib import Clock, clean
from trainmon.model import ActionRequest, Plan, State, Verb
from tui.backend import Backend
from tui.modals import Menu, Pick, PlanScreen
from tui.views import (
    READ_ONLY,
    TITLES,
    Toast,
    action_request,
    action_toasts,
    hosts_text,
    in_flight,
    is_hung,
    subjects_text,
)

if TYPE_CHECKING:
    from tui.views import Subject

LONG, BRIEF = 15.0, 6.0
"""Seconds that a message stays: one that somebody must read, and one that says that all is well."""


def nothing() -> None:
    """What is done after an act where nothing is to be done."""


class ActionService:
    """What the capital keys do, for one dashboard."""

    def __init__(self, app: App[None], backend: Backend, clock: Clock) -> None:
        self._app = app
        self._backend = backend
        self._clock = clock
        self._state: State | None = None

    # ---- a plan ----

    def ask_for(self, verb: Verb, subjects: Sequence[Subject], acted: Callable[[], None] = nothing) -> None:
        """Open the plan of a verb for these rows; `acted` is called when a person has agreed to it."""
        state = self._state
        if state is None:
            return
        if state.read_only:
            self._say(Toast("READ-ONLY", READ_ONLY, "warning"))
            return
        asked = action_request(verb, subjects, state, self._clock.now())
        if isinstance(asked, str):
            self._say(Toast(TITLES[verb], asked, "warning"))
        else:
            self.open(asked, acted)

    def open(self, ask: ActionRequest, acted: Callable[[], None] = nothing) -> None:
        """Show the plan of an Ask, and do what a person then decides."""
        state = self._state or State()
        screen = PlanScreen(
            ask,
            self._backend,
            self._clock,
            about=subjects_text(ask, state),
            host=hosts_text(ask, state),
            hung=is_hung(ask, state),
        )

        def decided(answer: Plan | ActionRequest | None) -> None:
            if isinstance(answer, ActionRequest):
                self.open(answer, acted)
            elif isinstance(answer, Plan):
                self.act(answer)
                acted()

        self._app.push_screen(screen, decided)

    def act(self, plan: Plan) -> None:
        """Hand over what a person has agreed to."""
        self._backend.act(plan.actions)
        titles = [clean(action.title, 120) for action in plan.actions]
        more = f", and {len(titles) - 3} more" if len(titles) > 3 else ""
        self._say(Toast("asked", "; ".join(titles[:3]) + more))

    def menu(self, subjects: Sequence[Subject], acted: Callable[[], None] = nothing) -> None:
        """Everything that can be done to a row, and why the rest cannot."""
        state = self._state
        if state is None:
            return
        if not subjects:
            self._say(Toast("Actions", "put the cursor on a run, a job or a node", "warning"))
            return

        def chosen(verb: Verb | None) -> None:
            if verb is not None:
                self.ask_for(verb, subjects, acted)

        self._app.push_screen(Menu(subjects, state, self._clock.now()), chosen)

    # ---- what became of it ----

    def update(self, state: State) -> None:
        """A State has come: say what is new of the actions."""
        toasts = action_toasts(self._state, state)
        self._state = state
        for toast in toasts:
            self._say(toast)

    def _say(self, toast: Toast) -> None:
        timeout = BRIEF if toast.severity == "information" else LONG
        self._app.notify(toast.text, title=toast.title, severity=toast.severity, timeout=timeout, markup=False)

    # ---- quitting ----

    def quit(self) -> None:
        """Quit; where an action is on its way, only when a person says so again."""
        waiting = in_flight(self._state)
        if not waiting or isinstance(self._app.screen, Leave):
            self._app.exit()
            return
        words = f"{len(waiting)} action{'' if len(waiting) == 1 else 's'} on the way: {clean(waiting[0].action.title)}"
        self._app.push_screen(Leave(words, LEAVE), lambda answer: self._app.exit() if answer == "quit" else None)


LEAVE = (("stay", "Stay, and see what becomes of it"), ("quit", "Quit now: it may be done or not, the ledger keeps it"))


class Leave(Pick):
    """The question before quitting while something is on its way. Ctrl+q, pressed again, quits."""
