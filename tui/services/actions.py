"""From keys to requests to the backend, and from States to toasts about the results: actions and alerts."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from textual.app import App

from trainmon.actions.verbs import VERB
from trainmon.lib import Clock, Seconds, ago, clean, counted, shorten_sentence
from trainmon.model import ActionRequest, Alert, LookReply, Plan, State, Verb
from tui.backend import NOT_YET, Backend
from tui.modals import Menu, Mute, Pick, PlanScreen, TextPrompt, ask
from tui.views.actions import READ_ONLY, Subject, action_request, hosts_text, is_hung, subjects_text
from tui.views.alert_detail import Choice, choices, silences_of
from tui.views.alerts import is_muted, most_urgent, silence_text, silences
from tui.views.news import Toast, action_toasts, alert_toasts, in_flight, newly_firing, notice_toasts

LOOK = "look"
"""The entry of the menu of a row that looks at the ranks of its run."""

# ---- from a capital key to a plan, from the plan to the backend, and from States to toasts about the results ---------


class DashboardService:
    """What the services of a dashboard share: the app, the backend, and the latest State."""

    WARNING_TIMEOUT = 15.0
    """Seconds that a warning or an error stays on the screen."""

    def __init__(self, app: App[None], backend: Backend, clock: Clock) -> None:
        self._app = app
        self._backend = backend
        self._clock = clock
        self._latest: State | None = None

    @property
    def state(self) -> State:
        """The latest one; before it, an empty one."""
        return self._latest or NOT_YET

    def _notify(self, toast: Toast) -> None:
        timeout = 6.0 if toast.severity == "information" else self.WARNING_TIMEOUT
        self._app.notify(toast.text, title=toast.title, severity=toast.severity, timeout=timeout, markup=False)


class ActionService(DashboardService):
    """Plans and runs the actions of the capital keys, and reports their results."""

    # ---- a plan ----

    def ask_for(self, verb: Verb, subjects: Sequence[Subject], acted: Callable[[], None] = lambda: None) -> None:
        """Open the plan of a verb for these rows. `acted` is called when the person confirms it."""
        if self.state.read_only:
            self._notify(
                Toast("READ-ONLY", "this is a replay: it shows the past" if self.state.replay else READ_ONLY, "warning")
            )
            return
        request = action_request(verb, subjects, self.state, self._clock.now())
        if isinstance(request, str):
            self._notify(Toast(VERB[verb].title, request, "warning"))
        else:
            self.open(request, acted)

    def open(self, request: ActionRequest, acted: Callable[[], None] = lambda: None) -> None:
        """Show the plan of a request, and do what the person decides."""
        state = self.state
        about, host, hung = (
            subjects_text(request.subjects, state, request.verb),
            hosts_text(request, state),
            is_hung(request, state),
        )
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

    def menu(
        self,
        subjects: Sequence[Subject],
        acted: Callable[[], None] = lambda: None,
        view: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Show the actions of these rows, and why some are refused. `view` does what changes nothing: see VIEWS."""
        if not subjects:
            self._notify(Toast("Actions", "put the cursor on a run, a job or a node", "warning"))
            return

        def chosen(name: str) -> None:
            verb = VERB.get(name)
            if name == LOOK:
                self.look(subjects)
            elif verb is None:
                view(name)
            else:
                self.ask_for(verb.name, subjects, acted)

        ask(self._app, Menu(subjects, self.state, self._clock.now()), chosen)

    def look(self, subjects: Sequence[Subject]) -> None:
        """Look at the ranks of the run of a row, and show what comes."""
        run_of = {key: run.name for run in self.state.runs.values() for key in (run.name, *run.jobs)}
        names = {run_of[name] for kind, name in subjects if kind != "node" and name in run_of}
        if len(names) != 1:
            self._notify(Toast("Look at its ranks", "put the cursor on one run", "warning"))
            return
        name = names.pop()

        def replied(reply: LookReply) -> None:
            if reply.text:
                toast = Toast(f"ranks of {clean(name)}", clean(reply.text, 600))
                is_named = reply.look is not None and reply.look.ranks
                self._app.call_later(self._notify, toast._replace(severity="warning") if is_named else toast)

        self._backend.look(name, replied)

    # ---- results ----

    def update(self, state: State) -> None:
        """Show what is new about actions in this State."""
        before, self._latest = self._latest, state
        for toast in (*notice_toasts(before, state), *action_toasts(before, state)):
            self._notify(toast)

    # ---- quitting ----

    def quit(self) -> None:
        """Quit. While an action is running, ask first."""
        running = in_flight(self.state)
        if not running or isinstance(self._app.screen, QuitPrompt):
            self._app.exit()
            return
        question = f"{counted(len(running), 'action')} still running: {clean(running[0].action.title)}"
        prompt = QuitPrompt(question, QUIT_CHOICES)
        self._app.push_screen(prompt, lambda answer: self._app.exit() if answer == "quit" else None)


QUIT_CHOICES = (
    ("stay", "Stay and wait for the result"),
    ("quit", "Quit now: the action may still complete; it is recorded"),
)


class QuitPrompt(Pick):
    """The question before quitting while an action is running. Ctrl+q, pressed again, quits."""


# ---- acknowledging and muting alerts (`a`, `m`), and the toasts and the bell of new alerts ---------------------------

ACKNOWLEDGED = "The alert keeps firing and stays visible. It is not repeated and not escalated."
ACKNOWLEDGED_EVENT = "This alert is a single event and is sent only once. It moves down to LAST 24 HOURS."

MORE = "more"
"""The choice to mute something besides what is muted already."""


class AlertActionService(DashboardService):
    """Acknowledges and mutes alerts, and reports new ones."""

    WARNING_TIMEOUT = 20.0

    def __init__(self, app: App[None], backend: Backend, clock: Clock) -> None:
        super().__init__(app, backend, clock)
        self._shown: set[str] = set()
        """The critical alerts that were shown here, and that no channel has notified here."""
        self._notified: set[str] = set()
        """The critical alerts that a channel notified here before the State that contains them."""

    def update(self, state: State, *, listed: Container[str] | None) -> None:
        """Show what is new about alerts in this State; ring the bell for critical ones. `listed`: the alerts whose
        texts the screen has, if it lists alerts."""
        before, self._latest = self._latest, state
        toasts, rings = alert_toasts(before, state, self._notified, listed=listed)
        if before is not None and before.alerts is not state.alerts:
            fired_now = {one.id for one in newly_firing(before, state)}
            open_ones = {one.id for one in state.alerts.values() if one.is_open}
            self._shown = (self._shown | (fired_now - self._notified)) & open_ones
            self._notified = {name for name in self._notified if not self._is_critical(name)}
        for toast in toasts:
            self._notify(toast)
        if rings:
            self._app.bell()

    def should_show(self, alerts: Sequence[str]) -> bool:
        """Whether to show a channel's notification that these alerts are critical. False if all were shown before."""
        shown = self._shown.intersection(alerts)
        self._shown -= shown
        if alerts and len(shown) == len(set(alerts)):
            return False
        self._notified |= {name for name in alerts if not self._is_critical(name)}
        return True

    def _is_critical(self, name: str) -> bool:
        found = self.state.alerts.get(name)
        return found is not None and found.is_firing and found.severity == "critical"

    def acknowledge(self, names: Sequence[str], done: Callable[[], None], *, alone: bool = True) -> None:
        """Ask for a reason, and acknowledge these alerts; then call `done`. If none of them is open and unacknowledged:
        the worst of all alerts, unless `alone` limits it to these."""
        found = self._alerts(names)
        open_ones = [one for one in found if one.is_open and one.acknowledged_by is None]
        is_worst = not open_ones and not alone
        open_ones = self._worst() if is_worst else open_ones
        if not open_ones:
            self._notify(Toast("acknowledge", self._nothing_to(found, alone=alone), "warning"))
            return
        what = "Acknowledge this alert" if len(open_ones) == 1 else f"Acknowledge {counted(len(open_ones), 'alert')}"
        what = "Acknowledge the worst alert" if is_worst else what
        about = "\n".join(
            f"{clean(one.rule, 40)}: {shorten_sentence(clean(one.summary), 120)}" for one in open_ones[:4]
        )
        more = f"\nand {len(open_ones) - 4} more" if len(open_ones) > 4 else ""

        def decided(why: str) -> None:
            for one in open_ones:
                self._backend.acknowledge(one.id, why)
            done()

        effect = ACKNOWLEDGED_EVENT if all(one.event for one in open_ones) else ACKNOWLEDGED
        hint = "why, or what you do about it (optional)"
        ask(self._app, TextPrompt(what, about + more, effect, verb="acknowledges", placeholder=hint), decided)

    @staticmethod
    def _nothing_to(found: Sequence[Alert], *, alone: bool) -> str:
        if not found:
            return "put the cursor on an alert" if alone else "no alert needs an acknowledgement; pane 5 has all alerts"
        if not any(one.is_open for one in found):
            return "the alert is already resolved" if len(found) == 1 else "the alerts are already resolved"
        return clean(f"already acknowledged by {found[0].acknowledged_by}", 100)

    def mute(self, names: Sequence[str], done: Callable[[], None], *, alone: bool = True) -> None:
        """Ask what to mute of these alerts. Without any: of the worst of all alerts, unless `alone` limits it to these.
        If they are muted already, offer to unmute them."""
        state = self.state
        found = self._alerts(names) or ([] if alone else self._worst())
        if not found:
            text = "put the cursor on an alert or a mute" if alone else "no alert is firing; pane 5 lists mutes"
            self._notify(Toast("mute", text, "warning"))
            return
        muting = [one for one in silences(state) if any(one.covers(alert) for alert in found)]
        if not muting or not any(is_muted(one, state.at) for one in found):
            self._ask(found, done)
            return
        entries = [
            (one.id, f"unmute: {silence_text(one)}, {ago(one.until - state.at)} left")
            for one in muting
            if not one.window
        ]

        def picked(name: str) -> None:
            if name == MORE:
                self._ask(found, done)
            else:
                self._backend.unmute(name)

        ask(self._app, Pick("Already muted", [*entries, (MORE, "mute something else, or for longer")]), picked)

    def unmute(self, name: str) -> None:
        """Ask, and remove this silence."""
        found = self.state.silences.get(name)
        if found is None:
            self._notify(Toast("mute", "this mute has already ended", "warning"))
        elif found.window:
            self._notify(Toast("mute", "this is a maintenance window: change it in trainmon.toml", "warning"))
        else:
            text = f"unmute: {silence_text(found)}, {ago(found.until - self.state.at)} left"
            ask(self._app, Pick("Muted", [("unmute", clean(text, 200))]), lambda _: self._backend.unmute(name))

    def _ask(self, found: Sequence[Alert], done: Callable[[], None]) -> None:
        what = "Mute" if len(found) == 1 else f"Mute ({counted(len(found), 'alert')} selected)"

        def decided(answer: tuple[Choice, Seconds, str]) -> None:
            choice, seconds, why = answer
            for silence in silences_of(choice, self._clock.now() + seconds, why):
                self._backend.mute(silence)
            if self.state.replay is None:
                self._notify(Toast("muted", f"{choice.text}, for {ago(seconds)}", "information"))
            done()

        ask(self._app, Mute(what, choices(found)), decided)

    def _worst(self) -> list[Alert]:
        return [*most_urgent(self.state)[:1]]

    def _alerts(self, names: Sequence[str]) -> list[Alert]:
        return [self.state.alerts[name] for name in names if name in self.state.alerts]
