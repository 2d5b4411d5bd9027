"""Apps smaller than the dashboard, in our colours: with one widget alone, or with what the capital keys need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult
from textual.widget import Widget

from tests.tui.backend import FakeBackend
from tests.tui.screen_text import StillClock
from tui import themes
from tui.services.actions import ActionService


class Alone(App[None]):
    """One widget, the real one."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        for theme in themes.THEMES:
            self.register_theme(theme)
        self.theme = themes.DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.defaults(self.current_theme)

    def compose(self) -> ComposeResult:
        yield self.widget


class ActionApp(App[None]):
    """What the capital keys need of a dashboard, without its panes: a plan opens in a third of the time."""

    CSS_PATH = Path(themes.__file__).parent / "trainmon.tcss"

    def __init__(self, backend: FakeBackend) -> None:
        super().__init__()
        self.backend = backend
        self.clock = StillClock()
        self.actions = ActionService(self, self.backend, self.clock)  # type: ignore[arg-type]
        self.animation_level = "none"
        self.toasts: list[tuple[str, str, str]] = []
        """Every message: title, words, severity."""
        for theme in themes.THEMES:
            self.register_theme(theme)
        self.theme = themes.DARK.name
        if backend.state is not None:
            self.actions.update(backend.state)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.defaults(self.current_theme)

    def notify(self, message: str, *, title: str = "", severity: str = "information", **how: Any) -> None:  # type: ignore[override]
        self.toasts.append((title, message, severity))
