"""From `a` and `m` to the backend, and from States to the messages and the bell of new alerts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import App

from trainmon.lib import Clock, Seconds, clean, counted, duration
from trainmon.model import Alert, State
from tui.backend import Backend
from tui.modals import Mute, Pick, TextPrompt
from tui.views import Severity, alert_toasts, newly_firing
from tui.views.alerts import Choice, choices, is_muted, matched, matches, most_urgent, silences, silences_of

LONG, BRIEF = 20.0, 6.0
"""Seconds that a message stays: one that somebody must read, and one that says that all is well."""

ACKNOWLEDGED = "It keeps firing and stays visible; it is not repeated and not escalated."
ACKNOWLEDGED_EVENT = "This event was sent once. It moves down to the alerts of the last day."

MORE = "more"
"""The choice to mute something besides what is muted already."""


class AlertActionService:
    """What a person does with alerts, for one dashboard."""

    def __init__(self, app: App[None], backend: Backend, clock: Clock) -> None:
        self._app = app
        self._backend = backend
        self._clock = clock
        self._state: State | None = None
        self._shown: set[str] = set()
        """The critical alerts that were shown here, and that no channel has told of here."""
        self._told: set[str] = set()
        """Those that a channel was sooner to tell of than the State in which they are."""

    def update(self, state: State) -> None:
        """A State has come: say what is new, and ring for what is critical."""
        before, self._state = self._state, state
        new = alert_toasts(before, state, self._told)
        if before is not None and before.alerts is not state.alerts:
            fired_now = {one.id for one in newly_firing(before, state)}
            open_ones = {one.id for one in state.alerts.values() if one.is_open}
            self._shown = (self._shown | (fired_now - self._told)) & open_ones
            self._told = {name for name in self._told if not self._is_critical(name)}
        for toast in new.toasts:
            self._say(toast.title, toast.text, toast.severity)
        if new.bell:
            self._app.bell()

    def is_news(self, alerts: Sequence[str]) -> bool:
        """Whether a channel that tells that these are critical now is to be heard: not when that was shown already."""
        shown = self._shown.intersection(alerts)
        self._shown -= shown
        if alerts and len(shown) == len(set(alerts)):
            return False
        self._told |= {name for name in alerts if not self._is_critical(name)}
        return True

    def _is_critical(self, name: str) -> bool:
        found = None if self._state is None else self._state.alerts.get(name)
        return found is not None and found.is_firing and found.severity == "critical"

    def acknowledge(self, names: Sequence[str], done: Callable[[], None], *, alone: bool = True) -> None:
        """Ask why, and acknowledge these alerts; `done` is called when a person has agreed to it. Where nothing of them
        waits for that, and not they `alone` are meant, the worst of all."""
        found = self._alerts(names)
        open_ones = [one for one in found if one.is_open and one.acknowledged_by is None]
        is_worst = not open_ones and not alone
        open_ones = list(self._worst()) if is_worst else open_ones
        if not open_ones:
            self._say("acknowledge", self._nothing_to(found, alone=alone), "warning")
            return
        what = "Acknowledge this alert" if len(open_ones) == 1 else f"Acknowledge {counted(len(open_ones), 'alert')}"
        what = "Acknowledge the worst alert" if is_worst else what
        about = "\n".join(f"{clean(one.rule, 40)}: {clean(one.summary, 120)}" for one in open_ones[:4])
        more = f"\nand {len(open_ones) - 4} more" if len(open_ones) > 4 else ""

        def decided(why: str | None) -> None:
            if why is not None:
                for one in open_ones:
                    self._backend.acknowledge(one.id, why)
                done()

        effect = ACKNOWLEDGED_EVENT if all(one.event for one in open_ones) else ACKNOWLEDGED
        hint = "why, or what you do about it (optional)"
        prompt = TextPrompt(what, about + more, effect, verb="acknowledges", placeholder=hint)
        self._app.push_screen(prompt, decided)

    @staticmethod
    def _nothing_to(found: Sequence[Alert], *, alone: bool) -> str:
        if not found:
            return "put the cursor on an alert" if alone else "no alert waits for anybody; 5 shows them all"
        if not any(one.is_open for one in found):
            return "it is over already" if len(found) == 1 else "they are over already"
        return clean(f"acknowledged already by {found[0].acknowledged_by}", 100)

    def mute(self, names: Sequence[str], done: Callable[[], None], *, alone: bool = True) -> None:
        """Mute something of these alerts, or of the worst of all where there are none and not they `alone` are meant;
        where they are muted already, what mutes them may be taken back."""
        found, state = self._alerts(names), self._state
        found = found or ([] if alone else list(self._worst()))
        if not found or state is None:
            words = (
                "put the cursor on an alert, or on what is muted" if alone else "no alert fires; 5 shows what is muted"
            )
            self._say("mute", words, "warning")
            return
        muting = [one for one in silences(state) if any(matches(one, alert) for alert in found)]
        if not muting or not any(is_muted(one, state.at) for one in found):
            self._ask(found, done)
            return
        entries = [
            (one.id, f"take back: {matched(one)}, {duration(one.until - state.at)} left")
            for one in muting
            if not one.window
        ]

        def picked(name: str | None) -> None:
            if name == MORE:
                self._ask(found, done)
            elif name is not None:
                self._backend.unmute(name)

        self._app.push_screen(Pick("This is muted", [*entries, (MORE, "mute something else, or for longer")]), picked)

    def unmute(self, name: str) -> None:
        """Take this silence back, once a person says so."""
        state = self._state
        found = None if state is None else state.silences.get(name)
        if found is None or state is None:
            self._say("mute", "it is no longer muted", "warning")
        elif found.window:
            self._say("mute", "this is a maintenance window of trainmon.toml: it is changed there", "warning")
        else:
            words = f"take it back: {matched(found)}, {duration(found.until - state.at)} left"
            self._app.push_screen(
                Pick("Muted", [("back", clean(words, 200))]),
                lambda answer: self._backend.unmute(name) if answer == "back" else None,
            )

    def _ask(self, found: Sequence[Alert], done: Callable[[], None]) -> None:
        what = "Mute" if len(found) == 1 else f"Mute, for {counted(len(found), 'alert')}"

        def decided(answer: tuple[Choice, Seconds, str] | None) -> None:
            if answer is None:
                return
            choice, seconds, why = answer
            for silence in silences_of(choice, self._clock.now() + seconds, why):
                self._backend.mute(silence)
            self._say("muted", f"{choice.text}, for {duration(seconds)}", "information")
            done()

        self._app.push_screen(Mute(what, choices(found)), decided)

    def _worst(self) -> tuple[Alert, ...]:
        return () if self._state is None else most_urgent(self._state)[:1]

    def _alerts(self, names: Sequence[str]) -> list[Alert]:
        known = {} if self._state is None else self._state.alerts
        return [known[name] for name in names if name in known]

    def _say(self, title: str, words: str, severity: Severity) -> None:
        timeout = BRIEF if severity == "information" else LONG
        self._app.notify(clean(words, 600), title=title, severity=severity, timeout=timeout, markup=False)
