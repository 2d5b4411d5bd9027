"""From a capital key to a plan, from the plan to the backend, and from States to toasts about the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import App

from trainmon.lib import Clock, Seconds, clean, counted
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
    notice_toasts,
    subjects_text,
)

if TYPE_CHECKING:
    from tui.views import Subject


class DashboardService:
    """What the services of a dashboard share: the app, the backend, and the latest State."""

    WARNING_TIMEOUT: ClassVar[Seconds] = 15.0
    """How long a warning or an error stays on the screen."""

    def __init__(self, app: App[None], backend: Backend, clock: Clock) -> None:
        self._app = app
        self._backend = backend
        self._clock = clock
        self._state: State | None = None

    def _notify(self, toast: Toast) -> None:
        timeout = 6.0 if toast.severity == "information" else self.WARNING_TIMEOUT
        self._app.notify(toast.text, title=toast.title, severity=toast.severity, timeout=timeout, markup=False)


class ActionService(DashboardService):
    """Plans and runs the actions of the capital keys, and reports their results."""

    # ---- a plan ----

    def ask_for(self, verb: Verb, subjects: Sequence[Subject], acted: Callable[[], None] = lambda: None) -> None:
        """Open the plan of a verb for these rows. `acted` is called when the person confirms it."""
        state = self._state
        if state is None:
            return
        if state.read_only:
            self._notify(Toast("READ-ONLY", READ_ONLY, "warning"))
            return
        request = action_request(verb, subjects, state, self._clock.now())
        if isinstance(request, str):
            self._notify(Toast(TITLES[verb], request, "warning"))
        else:
            self.open(request, acted)

    def open(self, request: ActionRequest, acted: Callable[[], None] = lambda: None) -> None:
        """Show the plan of a request, and do what the person decides."""
        state = self._state or State()
        about, host, hung = subjects_text(request, state), hosts_text(request, state), is_hung(request, state)
        screen = PlanScreen(request, self._backend, self._clock, about=about, host=host, hung=hung)

        def decided(answer: Plan | ActionRequest | None) -> None:
            if isinstance(answer, ActionRequest):
                self.open(answer, acted)
            elif isinstance(answer, Plan):
                self.act(answer)
                acted()

        self._app.push_screen(screen, decided)

    def act(self, plan: Plan) -> None:
        """Run a confirmed plan."""
        self._backend.act(plan.actions)
        titles = [clean(action.title, 120) for action in plan.actions]
        more = f", and {len(titles) - 3} more" if len(titles) > 3 else ""
        self._notify(Toast("requested", "; ".join(titles[:3]) + more))

    def menu(self, subjects: Sequence[Subject], acted: Callable[[], None] = lambda: None) -> None:
        """Show the actions of these rows, and why some are refused."""
        state = self._state
        if state is None:
            return
        if not subjects:
            self._notify(Toast("Actions", "put the cursor on a run, a job or a node", "warning"))
            return
        menu = Menu(subjects, state, self._clock.now())
        self._app.push_screen(menu, lambda verb: None if verb is None else self.ask_for(verb, subjects, acted))

    # ---- results ----

    def update(self, state: State) -> None:
        """Show what is new about actions in this State."""
        before, self._state = self._state, state
        for toast in (*notice_toasts(before, state), *action_toasts(before, state)):
            self._notify(toast)

    # ---- quitting ----

    def quit(self) -> None:
        """Quit. While an action is running, ask first."""
        running = in_flight(self._state)
        if not running or isinstance(self._app.screen, QuitPrompt):
            self._app.exit()
            return
        question = f"{counted(len(running), 'action')} still running: {clean(running[0].action.title)}"
        prompt = QuitPrompt(question, QUIT_CHOICES)
        self._app.push_screen(prompt, lambda answer: self._app.exit() if answer == "quit" else None)


QUIT_CHOICES = (
    ("stay", "Stay and wait for the result"),
    ("quit", "Quit now: the action may or may not complete; the ledger keeps its record"),
)


class QuitPrompt(Pick):
    """The question before quitting while an action is running. Ctrl+q, pressed again, quits."""
