"""The base of all screens: they show States; a screen with panes searches, sorts and copies in the focused pane."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Protocol, cast

from trainmon.lib import clean, scrub
from trainmon.model import State, Verb
from tui.backend import Backend
from tui.keys import ACTS, CONTEXTS, active_keys, bindings
from tui.modals import Columns, Complete, Find, LogFormat, Once, Pick, SaveLog, ask
from tui.panes import HeaderLine, LogPane, Pane
from tui.screens.help import COLUMNS
from tui.services.actions import ActionService, AlertActionService
from tui.services.changes import Changes
from tui.services.terminal import can_open, is_page, new_file, open_page, run_on_terminal, save_new, svg_of
from tui.style import Link
from tui.views.actions import nodes_of
from tui.views.alert_detail import Moment
from tui.views.table import csv_text
from tui.widgets import Footer

OF_SOME_CONTEXTS = frozenset(
    {
        "find",
        "find_lines",
        "sort",
        "sort_column",
        "reverse",
        "columns",
        "open_page",
        "save_samples",
        "save_log",
        "log_format",
        "moment",
        "acknowledge",
        "mute",
    }
)
"""Actions of keys that only some contexts list."""


class DashboardApp(Protocol):
    """The parts of the app that screens use."""

    backend: Backend
    shown: State
    """The State on the screen: the latest, or the one that `p` holds."""

    is_awaited: bool
    """Whether a person has pressed a key since the State before it was drawn."""

    actions: ActionService
    alert_actions: AlertActionService
    changes: Changes

    def show_on(self, screen: StateScreen) -> None: ...

    def open(self, link: Link) -> None: ...

    def open_moment(self, moment: Moment) -> None: ...


class StateScreen(Once[None]):
    """A screen that gets each State, and the last one when it is opened."""

    BINDINGS = bindings("back", "pane", "page", "alerts", "moments", "format", *ACTS)
    pane: Pane
    """The pane that keys apply to."""

    def __init__(self) -> None:
        super().__init__()
        self.header = HeaderLine()
        self.foot = Footer()

    @property
    def dashboard(self) -> DashboardApp:
        return cast(DashboardApp, self.app)

    def show(self, state: State) -> None:
        """Draw this State."""
        self.header.show(state)
        for pane in self.query(Pane):
            pane.show(state)

    def on_screen_resume(self) -> None:
        self.dashboard.show_on(self)

    def action_back(self) -> None:
        self.dismiss()

    # ---- keys that are for some contexts only ----

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable keys that the context does not list: logs and disks have no actions, charts no rows to filter."""
        if action in {"act", "menu"}:
            return not set(ACTS).isdisjoint(CONTEXTS[self.foot.context])
        if action in OF_SOME_CONTEXTS:
            return any(key.action.partition("(")[0] == f"screen.{action}" for key in active_keys(self.foot.context))
        return super().check_action(action, parameters)

    def action_act(self, verb: Verb) -> None:
        self.pane.lines.choose_cursor()
        self.dashboard.actions.ask_for(verb, self.pane.subjects(), self.pane.unmark)

    def action_menu(self) -> None:
        self.pane.lines.choose_cursor()
        self.dashboard.actions.menu(self.pane.subjects(), self.pane.unmark, self.export)

    def export(self, kind: str) -> None:
        """Save the table or chart of the focused pane: `csv`, its values, or `svg`, its picture. `enter` opens the
        row."""
        pane, app = self.pane, self.app
        if kind == "enter":
            app.simulate_key("enter")
            return
        text = csv_text(pane.table()) if kind == "csv" else svg_of(pane, f"{pane.NUMBER} {pane.NAME}".strip())
        if not text:
            app.notify("there are no values here to save", timeout=4, markup=False)
            return
        try:
            app.notify(str(save_new(pane.NAME, f".{kind}", text, os.environ)), title="saved", timeout=8, markup=False)
        except OSError as error:
            app.notify(f"not saved: {error}", severity="warning", timeout=8, markup=False)

    def action_acknowledge(self) -> None:
        self.dashboard.alert_actions.acknowledge(self.pane.alerts(), self.pane.unmark, alone=self.pane.LISTS_ALERTS)

    def action_mute(self) -> None:
        silence = self.pane.silence()
        if silence is not None and not self.pane.alerts():
            self.dashboard.alert_actions.unmute(silence)
        else:
            self.dashboard.alert_actions.mute(self.pane.alerts(), self.pane.unmark, alone=self.pane.LISTS_ALERTS)

    def action_copy(self) -> None:
        text = self.pane.copy_text()
        if text:
            self.app.copy_to_clipboard(text)
            self.app.notify(text, title="copied", timeout=4, markup=False)
        else:
            self.app.notify("nothing is selected to copy", timeout=4, markup=False)

    def action_ssh(self) -> None:
        """Log in to the node under the cursor, or to one of the run, the job or the alert there."""
        pane = self.pane
        nodes = nodes_of(pane.subjects(), pane.alerts() if pane.LISTS_ALERTS else (), self.dashboard.shown)
        if len(nodes) > 1:
            ask(self.app, Pick("Open ssh to", [(node, node) for node in nodes]), self._ssh)
        elif nodes:
            self._ssh(nodes[0])
        else:
            self.app.notify("no node: put the cursor on a node, or on a run or job on a node", timeout=6, markup=False)

    def _ssh(self, node: str) -> None:
        command = self.dashboard.backend.ssh_command(node)
        if isinstance(command, str):
            self.app.notify(clean(command), severity="warning", timeout=6, markup=False)
        else:
            run_on_terminal(self.app, command)

    def action_moment(self) -> None:
        """Open the run at the time of the selected alert, or of the run's worst alert or spike."""
        moment = self.pane.moment()
        if moment is None:
            self.app.notify("no alert or spike of a run is selected", severity="warning", timeout=6, markup=False)
        else:
            self.pane.lines.choose_cursor()
            self.dashboard.open_moment(moment)

    def action_log_format(self) -> None:
        """Show what is read in the last lines of the run's log."""
        run = self.dashboard.shown.runs.get(getattr(self.pane, "run", None) or "")
        if run is None or run.log is None or not (run.log.lines or run.log.partial):
            text = "no run is selected" if run is None else f"the log of {clean(run.name)} has no lines yet"
            self.app.notify(text, severity="warning", timeout=6, markup=False)
        else:
            self.app.push_screen(LogFormat(run.name, self.dashboard.backend.read_log(run)))

    # ---- the page of its W&B run ----

    def page(self) -> str | None:
        """The URL that `b` opens."""
        return self.pane.page

    def action_open_page(self) -> None:
        """Open the page in the user's browser. Without a browser, show its URL: most terminals can open it."""
        app, page = self.app, self.page()
        if page is None:
            app.notify("W&B has reported no page for this run", severity="warning", timeout=6, markup=False)
            return
        show_page = partial(app.notify, scrub(page), timeout=20, markup=False)
        if can_open(os.environ) and is_page(page):
            show_page(title="opening in your browser", timeout=4)
            failed = partial(show_page, title="could not open a browser; W&B page")
            open_page(page, lambda opened: opened or app.call_later(failed))
        else:
            show_page(title="W&B page")


class PaneScreen(StateScreen):
    """A screen of panes, with a footer and a line to type in."""

    BINDINGS = bindings("rows")

    def __init__(self) -> None:
        super().__init__()
        self.find = Find()

    def _find(self, what: str, text: str, typed: Callable[[str], None], complete: Complete | None = None) -> None:
        self.foot.display = False
        self.find.open(f"{what}; Enter keeps it, Esc clears it", text, typed, self._found, complete)

    def action_find(self) -> None:
        if isinstance(self.pane, LogPane):
            self._find("search", self.pane.filter, self.pane.set_filter)
        else:
            what = f"filter {self.pane.NAME}: words, !words; Tab: fields"
            self._find(what, self.pane.filter, self.pane.set_filter, self.pane.completions)

    def action_find_lines(self) -> None:
        if isinstance(self.pane, LogPane):
            self._find("show only lines with this text", self.pane.view.only, self.pane.set_only)

    def action_save_log(self) -> None:
        if isinstance(self.pane, LogPane):
            file = new_file(self.pane.run or "", "log-", ".txt", os.environ)
            ask(self.app, SaveLog(self.pane.savable(), str(file)), self.pane.save)

    def _found(self) -> None:
        self.foot.display = True
        self.pane.focus_body()
        if isinstance(self.pane, LogPane):
            self.pane.keep_filter()

    def action_back(self) -> None:
        if not self.pane.clear_filter():
            self.dismiss()

    def action_sort(self) -> None:
        pane = self.pane
        question = f"Sort {pane.NAME} by (the current one again: reversed)"
        orders = [(pane.ORDER, pane.ORDER), *explained(pane).items()]
        ask(self.app, Pick(question, orders, pane.sort.removeprefix("-")), self.sort_by)

    def action_columns(self) -> None:
        pane, question = self.pane, f"Columns of {self.pane.NAME} (none chosen: the usual ones)"
        ask(self.app, Columns(question, explained(pane), pane.usual, pane.columns or pane.usual), pane.set_columns)

    def sort_by(self, name: str) -> None:
        """Sort by a field; by the same one again in the other direction."""
        self.pane.set_sort(f"-{name}" if name == self.pane.sort else name)

    def action_sort_column(self, step: int) -> None:
        names, now = self.pane.orders, self.pane.sort.removeprefix("-")
        self.sort_by(names[((names.index(now) if now in names else 0) + step) % len(names)])

    def action_reverse(self) -> None:
        self.sort_by(self.pane.sort.removeprefix("-"))


def explained(pane: Pane) -> dict[str, str]:
    """By name: what the screen calls each column of a pane, and what a short name means."""
    heads = ((head, what) for heads, what in COLUMNS.get(pane.NAME.lower(), ()) for head in heads.split(", "))
    meanings = {head.lower().replace(" ", "-"): what for head, what in heads}
    return {field.name: f"{field.label:<8} {meanings.get(field.label, '')}".rstrip() for field in pane.fields}
