"""The dashboard app: wiring only. States come in by one message, keys go out to the backend."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from functools import partial
from math import inf
from typing import Any

import rich
from msgspec.structs import replace
from rich.console import RenderableType
from textual import events
from textual._compositor import ChopsUpdate
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widgets import Input

from trainmon.lib import Clock, SystemClock, clean
from trainmon.model import Alert, Arrangement, LastSeen, Prompt
from tui.backend import NOT_YET, Backend
from tui.keys import bindings, cap, unused
from tui.modals import CommandPalette, Dialog, LoginPrompt, OrderedInput, Pick, ask, is_displayed
from tui.screens.base import StateScreen
from tui.screens.details import LinkedScreen, MomentScreen, screen_for
from tui.screens.help import Help
from tui.screens.main import MainScreen
from tui.services.actions import ActionService, AlertActionService
from tui.services.changes import Changes, StateFeed, can_skip, wait_before_paint
from tui.services.terminal import POLL_EVERY, ChannelNotification, NarrowUpdate, Toasts, on_hang_up, suspend
from tui.style import Link, Times, in_zone, wants_ascii
from tui.themes import DARK, LIGHT, SETTINGS, THEMES, Ascii, Printable, defaults, fitting
from tui.views.actions import Command, commands
from tui.views.alert_detail import Moment
from tui.views.alerts import with_times

SILENT_AFTER = 15.0
"""The engine publishes about once a second. After this time without a State, the header says so."""


QUIET = 1.0
"""A login prompt opens by itself only this long after the last key, so that nobody types into it by accident."""


TOASTS_AT_MOST = 8
"""Toasts that wait until a dialog closes: the newest ones. The panes show what the others said."""


class Published(Message):
    """A State waits in the feed."""


class Dashboard(App[None], inherit_bindings=False):
    """The terminal user interface of one backend."""

    TITLE = "trainmon"
    CSS_PATH = "trainmon.tcss"
    ENABLE_COMMAND_PALETTE = False
    """We have our own: Textual's matches letters anywhere, and its list lags behind the typed text."""

    BINDINGS = bindings("app")
    ALLOW_SELECT = False

    def __init__(
        self,
        backend: Backend,
        *,
        clock: Clock | None = None,
        seen: LastSeen | None = None,
        local_time: bool = False,
        theme: str = "auto",
        light: bool = False,
        typed: str = "",
    ) -> None:
        """`seen`: what was shown when the dashboard was last open. `local_time`: times are not in UTC. `theme`: that of
        the config; `light`: whether the terminal's background is. `typed`: what was typed before the start."""
        super().__init__()
        Times.zone, self._theme_of_config = None if local_time else UTC, theme
        self.backend = backend
        self.clock = clock or SystemClock()
        self.actions = ActionService(self, backend, self.clock)
        self.alert_actions = AlertActionService(self, backend, self.clock)
        self.changes = Changes(seen if seen is not None and seen.at else None)  # else only arranged
        self.toasts = Toasts(self)
        self.shown = NOT_YET
        self.main = MainScreen(backend, Arrangement() if seen is None else seen.arrangement)
        self.animation_level = "none"
        self._latest = NOT_YET
        self._feed = StateFeed(lambda: self.post_message(Published()))
        self._painted_at: float | None = None
        self._pressed_at, self._received_at = -inf, self.clock.monotonic()
        self._begun_at = self._received_at
        self._paint_planned = self._paused = self.is_awaited = False
        self._prompt: LoginPrompt | None = None
        self._answered: set[int] = set()
        self._timed: list[Mapping[str, Alert]] = []
        self._keys = deque(event for event in XTermParser().feed(typed) if isinstance(event, events.Key))
        """They wait for the first frame: before it, there is nothing for a key to act on."""
        self._is_drawn = False
        self._waiting_toasts: deque[Callable[[], None]] = deque(maxlen=TOASTS_AT_MOST)
        for known in THEMES:
            self.register_theme(known)
        self.chosen_theme = "" if seen is None else seen.arrangement.theme
        wanted = (os.environ.get("TEXTUAL_THEME"), SETTINGS.get(theme), self.chosen_theme)
        usual = LIGHT.name if light else DARK.name
        self.theme = next((name for name in wanted if name in self.available_themes), usual)
        self.stylesheet.set_variables(self.get_css_variables())  # Textual took them before the themes were known
        self._filters += [Printable(), Ascii()] if wants_ascii(os.environ) else [Printable()]

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return defaults(self.current_theme)

    def get_default_screen(self) -> Screen[None]:
        return self.main

    # ---- states in ----

    def on_mount(self) -> None:
        if not self.is_headless:
            self.theme = fitting(self.theme, self.console.color_system)
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, self.exit, None, 128 + signal.SIGTERM)
            on_hang_up(lambda: loop.call_soon_threadsafe(self.exit, None, 128 + signal.SIGHUP))
        self._cancel = self.backend.subscribe(self._feed.put)
        self.set_interval(5.0, self._notice_silence)
        self.set_interval(POLL_EVERY, self.toasts.poll)

    def on_unmount(self) -> None:
        self._cancel()

    def on_published(self) -> None:
        state = self._feed.collect()
        if state is None:
            return
        state = with_times(state, self._timed)
        self._latest, self._received_at = state, self.clock.monotonic()
        self.actions.update(state)
        self.alert_actions.update(state, listed=self.main.listed(state) if self.lists_alerts else None)
        self.changes.update(state)
        can_wait = self._pressed_at <= (self._painted_at or 0.0) and can_skip(state, self.shown)
        if not (self._paused or self._paint_planned or can_wait):
            wait = wait_before_paint(self._painted_at, self._pressed_at, self._received_at, self._begun_at)
            if wait > 0:
                self._paint_planned = True
                self.set_timer(wait, self._paint)
            else:
                self._paint()
        if self._received_at - self._pressed_at >= QUIET or self._prompt is not None:
            self.call_after_refresh(self._ask, state.prompts)

    def _paint(self) -> None:
        self._paint_planned = False
        if self._latest is NOT_YET or self._paused:
            return
        self.is_awaited = self._painted_at is None or self._pressed_at > self._painted_at
        self.shown, self._painted_at = self._latest, self.clock.monotonic()
        with self.batch_update():
            for screen in self._visible_screens():
                self.show_on(screen)

    def _visible_screens(self) -> Iterator[StateScreen]:
        """The current screen, and those below its dialogs."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, StateScreen):
                yield screen
            if not screen.is_modal:
                return

    def show_on(self, screen: StateScreen) -> None:
        """Draw the shown State on a screen, and the toasts that waited for a dialog to close."""
        while self._waiting_toasts and self.dialog is None:
            self._waiting_toasts.popleft()()
        if self.shown is not NOT_YET and screen.is_mounted:
            screen.header.paused = self._paused
            screen.foot.read_only = self.shown.read_only
            screen.show(self.shown)
            if not self._is_drawn:
                self._is_drawn = True
                self.call_later(self._use_keys)

    def _notice_silence(self) -> None:
        """Show in the visible headers whether the screen is paused and the engine silent."""
        silent = self.clock.monotonic() - self._received_at
        for screen in self._visible_screens():
            screen.header.paused = self._paused
            screen.header.silent_for = silent if silent > SILENT_AFTER else None
            screen.header.again()

    async def on_event(self, event: events.Event) -> None:
        """Handle a key or a click at once: the next paint must not wait for the second to end."""
        if isinstance(event, events.Key | events.MouseDown):
            self._pressed_at = self.clock.monotonic()
            if self._latest is not NOT_YET:
                self.changes.used(self._latest)
        if not isinstance(event, events.Key) or event.is_forwarded:
            await super().on_event(event)
            return
        self._keys.append(event)
        await self._use_keys()

    async def _use_keys(self) -> None:
        """Handle the keys in their order, each before the next."""
        while self._is_drawn and self._keys:
            event = self._keys.popleft()
            if self.dialog is not None and self.dialog.drops(event):
                continue
            if self.focused is not None and not is_displayed(self.focused):
                self.screen.set_focus(None)  # Textual blurs what is hidden only after its next layout
            if not await self._run_binding(event):
                self._explain(event)
                await super().on_event(event)

    async def _run_binding(self, event: events.Key) -> bool:
        """Run a key's binding before the next key is handled.

        Textual gives a key to the focused widget first, and gets it back when it is unused. When `/` and a name arrive
        in one packet, the name would go to the pane, and not to the input that `/` opens.
        """
        if isinstance(self.focused, OrderedInput):
            return self.focused.take(event) or await self._check_bindings(event.key)
        if isinstance(self.focused, Input) or not isinstance(self.screen, StateScreen):
            return False
        return await self._check_bindings(event.key)

    def _explain(self, event: events.Key) -> None:
        """Say why a key did nothing."""
        dialog = self.dialog
        reads_it = isinstance(self.focused, Input) or (dialog is not None and dialog.READS_EVERY_KEY)
        if reads_it or event.key in self.screen.active_bindings:
            return
        typed = event.character if event.is_printable else None
        if dialog is not None:
            dialog.say(f"{typed or event.key} does nothing in this dialog; Esc closes it")
        else:
            self.notify(unused(event.key, typed), timeout=4, markup=False)

    # ---- login prompts: one at a time ----

    def _ask(self, prompts: tuple[Prompt, ...]) -> None:
        ids = {prompt.id for prompt in prompts}
        self._answered &= ids
        if self._prompt is not None:
            if self._prompt.prompt.id not in ids:
                self._prompt.withdraw()
            return
        pending = [prompt for prompt in prompts if prompt.id not in self._answered]
        if pending:
            self._prompt = LoginPrompt(pending[0])
            self.push_screen(self._prompt, partial(self._answer, pending[0].id))

    def _answer(self, prompt: int, answers: tuple[str, ...] | None) -> None:
        self._prompt = None
        self._answered.add(prompt)
        self.backend.answer(prompt, answers)
        self._ask(self._latest.prompts)

    def action_login(self) -> None:
        """Log in to a host that waits for a login; with several, ask which."""
        sources = self._latest.sources.values()
        failed = [source for source in sources if source.phase == "held" or (source.phase == "off" and source.error)]
        held = [source for source in failed if source.can_log_in] or failed
        if not held:
            self.notify("no host needs a login", timeout=3, markup=False)
        elif len(held) == 1:
            if not held[0].can_log_in:
                name = held[0].name.partition(":")[2]
                self.notify(f"{name} needs no password or code; reconnecting", timeout=5, markup=False)
            self.backend.login(held[0].name)
        else:
            title = "Log in to" if held[0].can_log_in else "No host waits for a login. Reconnect to"
            choices = [(one.name, clean(f"{one.name.partition(':')[2]}  {one.problem or ''}")) for one in held]
            ask(self, Pick(title, choices), self.backend.login)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        if isinstance(renderable, ChopsUpdate):
            renderable = NarrowUpdate(renderable.chops, renderable.spans, renderable.chop_ends)
        super()._display(screen, renderable)

    def post_display_hook(self) -> None:
        """A frame was written: the keys count from now on, if it has the dialog in full."""
        if self.dialog is not None and self.dialog.drawn_at == inf and self.dialog.is_shown:
            self.dialog.note_drawn()

    # ---- toasts ----

    @property
    def dialog(self) -> Dialog[Any] | None:
        """The dialog over all screens."""
        top = self.screen_stack[-1] if self.screen_stack else None
        return top if isinstance(top, Dialog) else None

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a toast. It never covers a dialog: there it waits until the dialog closes, and the frame names it."""
        if (dialog := self.dialog) is not None:
            again = partial(self.notify, message, title=title, severity=severity, timeout=timeout, markup=markup)
            self._waiting_toasts.append(again)
            dialog.say(": ".join(filter(None, (title, message.rpartition("\n")[2]))))
            return
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def toast(self, title: str, text: str, severity: str, new: tuple[str, ...] | None = None) -> bool:
        """Show a channel's notification, or without `new` another one, and ring the bell if it is critical; from any
        thread. False: no screen."""
        return self.is_running and self.post_message(ChannelNotification(title, text, severity, new))

    @property
    def lists_alerts(self) -> bool:
        """Whether the screen shows new alerts: in their pane, or in the strip."""
        return self.screen is self.main and not self._paused

    def on_channel_notification(self, event: ChannelNotification) -> None:
        if event.new is None or self.alert_actions.should_show(event.new):
            if event.new is None or not self.lists_alerts:
                text = in_zone(event.text, self.clock.now())
                self.notify(text, title=event.title, severity=event.level, timeout=20.0, markup=False)
            if event.level == "error":
                self.bell()

    # ---- navigation ----

    @property
    def key_context(self) -> str:
        """The name of the screen in the key table."""
        return self.screen.foot.context if isinstance(self.screen, StateScreen) else "help"

    def action_palette(self) -> None:
        ask(self, CommandPalette(commands(self.key_context, self.shown, self.theme_names())), self.run_command)

    def run_command(self, command: Command) -> None:
        """Go to the target of a command, or press its key."""
        if isinstance(command.target, Link):
            self.open(command.target)
        elif command.target:
            go_to = {
                "pane": self.go_to_pane, "run": self.go_to_run, "theme": self.change_theme, "config": self.load_config,
                "export": getattr(self.screen, "export", self.simulate_key),
            }  # fmt: skip
            go_to.get(command.kind, self.simulate_key)(command.target)
        else:
            self.action_change_theme()

    def go_to_pane(self, number: str) -> None:
        """Show a pane of the main screen; close the other screens."""
        while isinstance(self.screen, StateScreen) and self.screen is not self.main:
            self.pop_screen()
        if self.main.current != number:
            self.main.action_pane(number)

    def go_to_run(self, name: str) -> None:
        """Show Runs with the cursor on this run; close other screens, and clear a filter that hides it."""
        self.go_to_pane(self.main.runs.NUMBER)
        if self.main.runs.filter and not self.main.runs.lines.move_to(name):
            self.main.runs.set_filter("")
        self.main.runs.lines.move_to(name)
        self.call_after_refresh(self.main.runs.lines.move_to, name)  # a pane that was hidden is drawn by then

    def open(self, link: Link) -> None:
        """Open the screen of a link's target."""
        self.push_screen(screen_for(link, self.backend, self.changes, self.main.runs.lines.marks))

    def open_moment(self, moment: Moment) -> None:
        """Open a run at one time."""
        self.push_screen(MomentScreen(moment, self.shown.at, self.backend))

    def theme_names(self) -> list[str]:
        """All themes, our own first."""
        return list(dict.fromkeys((*(theme.name for theme in THEMES), *self.available_themes)))

    def change_theme(self, name: str) -> None:
        self.theme = self.chosen_theme = name

    def arranged(self) -> Arrangement:
        """What the next start takes over; from any thread."""
        return replace(self.main.arranged(), theme=self.chosen_theme)

    def use(self, theme: str, time: str) -> None:
        """Look as a changed config says. A theme that a person has chosen since stays while that of the config does."""
        Times.zone = None if time == "local" else UTC
        if theme != self._theme_of_config:
            self._theme_of_config = theme
            self.theme = fitting(SETTINGS.get(theme, self.chosen_theme or DARK.name), self.console.color_system)
        self._paint()

    def action_change_theme(self) -> None:
        ask(self, Pick("Theme", [(name, name) for name in self.theme_names()], self.theme), self.change_theme)

    def load_config(self, _: str) -> None:
        """Load the config again; a toast shows the result."""
        if not self.backend.load_config():
            self.notify("there is no config to load again", timeout=4, markup=False)

    def action_replay(self, order: str) -> None:
        if self.shown.replay is not None:
            self.backend.play(order)
        else:
            self.notify("not a replay; to start one: trainmon-tui replay FILE", timeout=4, markup=False)

    def action_pause(self) -> None:
        if self.shown.replay is not None:
            self.backend.play("pause")
            return
        self._paused = not self._paused
        self._notice_silence()
        if not self._paused:
            self._paint()

    def action_poll(self) -> None:
        self.backend.refresh()
        text = "polling all sources" if self.shown.replay is None else "a replay polls no sources"
        self.notify(text, timeout=2, markup=False)

    def action_changes(self) -> None:
        """List what changed since the dashboard was last used; again: close the list."""
        self.main.hide_changes()
        if isinstance(self.screen, LinkedScreen) and self.screen.about.kind == "changes":
            self.screen.action_back()
        else:
            self.open(Link("changes", ""))

    def action_help(self) -> None:
        self.push_screen(Help(self.key_context))

    def action_suspend_process(self) -> None:
        """Ctrl-Z. The whole process stops: what it no longer does is said before."""
        stops = "; until then it sends no alerts" if self.shown.leadership.holder == "us" else ""
        if not self.is_headless and not suspend(self, f"trainmon-tui is stopped; fg continues it{stops}"):
            self.notify("no shell can continue this program: it was not suspended", timeout=4, markup=False)

    def action_how_to_quit(self) -> None:
        self.notify(
            f"{cap('app.quit')} quits from the panes, Ctrl+Q from everywhere. Training continues.",
            timeout=3,
            markup=False,
        )

    def _fatal_error(self) -> None:
        """Show the traceback without local variables: one of them may be the answer to a password prompt."""
        from rich.traceback import Traceback  # pygments with it, which no frame needs

        self._exit_renderables.append(Traceback(show_locals=False, width=100, suppress=[rich]))
        self._close_messages_no_wait()

    async def action_quit(self) -> None:
        self.actions.quit()
