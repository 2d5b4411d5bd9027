"""An app with one widget alone on its screen, in our colours."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.widget import Widget

from tui import themes


class Alone(App[None]):
    """One widget, the real one."""

    def __init__(self, widget: Widget) -> None:
        super().__init__()
        self.widget = widget
        for theme in themes.THEMES:
            self.register_theme(theme)
        self.theme = themes.DARK.name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return themes.defaults(dark=True)

    def compose(self) -> ComposeResult:
        yield self.widget
