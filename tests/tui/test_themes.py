"""Each theme of ours is readable: WCAG asks for a contrast of 4.5 between a text and its background."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys

import pytest
from textual.color import Color
from textual.theme import Theme

from tests.tui.dashboard import showing
from tests.tui.screen_text import at_rest
from tests.tui.states.states import NOW, calm, troubled
from tests.tui.still import StillBackend
from trainmon.model import Arrangement, LastSeen
from tui.app import Dashboard
from tui.themes import CLEAR, DARK, LIGHT, SIXTEEN, SIXTEEN_LIGHT
from tui.widgets.spans import SpanStyles

TEXTS = (
    "ok",
    "warn",
    "crit",
    "accent",
    *(f"load{level}" for level in range(5)),
    *(f"curve{number}" for number in range(6)),
)


def luminance(color: Color) -> float:
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in color.normalized]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("theme", [DARK, LIGHT, CLEAR], ids=lambda theme: theme.name)
async def test_every_status_is_readable_on_every_background_and_under_the_cursor(theme: Theme) -> None:
    async with showing(troubled(), (80, 24)) as (app, pilot, _):
        app.theme = theme.name
        await at_rest(pilot)
        lines = app.main.runs.lines
        styles = SpanStyles(lines)
        texts = {name: Color.from_rich_color(styles[name].color) for name in TEXTS}
        colors = app.theme_variables
        behind = {name: Color.parse(colors[name]) for name in ("background", "surface", "panel")}
        behind["cursor"] = behind["background"] + lines.get_component_styles("lines--cursor").background

        found = {(text, at): contrast(texts[text], behind[at]) for text in texts for at in behind}
        assert {pair: round(ratio, 1) for pair, ratio in found.items() if ratio < 4.5} == {}


BACKGROUND = """
import asyncio
from tests.tui.dashboard import showing
from tests.tui.states.states import calm

async def show():
    async with showing(calm()) as (app, _, _backend):
        print(app.screen.styles.background.hex)

asyncio.run(show())
"""


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_the_environment_chooses_the_theme(theme: Theme) -> None:
    """Textual reads the variable when it is imported, before our themes are registered."""
    environ = {**os.environ, "TEXTUAL_THEME": theme.name}
    done = subprocess.run(
        [sys.executable, "-c", BACKGROUND], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip().lower() == theme.background


async def test_a_theme_with_the_same_background_is_drawn_at_once() -> None:
    async with showing(troubled(), (80, 24)) as (app, pilot, _):
        for theme, warning in ((SIXTEEN, 3), (SIXTEEN_LIGHT, 5)):
            app.theme = theme.name
            await at_rest(pilot)
            segments = itertools.chain(*app.screen._compositor.render_strips())
            drawn = {style.color.number for _, style, *_ in segments if style is not None and style.color is not None}
            assert {3, 5} & drawn == {warning}


@pytest.mark.parametrize(
    ("setting", "chosen", "light", "theme"),
    [
        ("auto", "", False, DARK),
        ("auto", "", True, LIGHT),
        ("auto", CLEAR.name, True, CLEAR),
        ("dark", CLEAR.name, True, DARK),
        ("light", "", False, LIGHT),
        ("high-contrast", "", False, CLEAR),
        ("auto", "a theme of another version", False, DARK),
    ],
)
def test_the_config_the_last_choice_and_the_terminal_choose_the_theme(
    setting: str, chosen: str, light: bool, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEXTUAL_THEME", raising=False)
    seen = LastSeen(at=NOW, arrangement=Arrangement(theme=chosen))
    app = Dashboard(StillBackend(calm()), seen=seen, theme=setting, light=light)

    assert app.theme == theme.name
    assert app.arranged().theme == chosen
    app.change_theme(LIGHT.name)
    assert app.arranged().theme == LIGHT.name


@pytest.mark.parametrize("no_color", [False, True])
async def test_without_colour_an_earlier_attempt_is_dim_so_that_the_current_one_stands_out(
    no_color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    async with showing(calm(), (80, 24)) as (app, _, _backend):
        styles = SpanStyles(app.main.wandb.body)
        assert styles["curve2"].dim is None
        assert bool(styles["curve1 faint"].dim) is no_color
        assert (styles["curve1"].color == styles["curve2"].color) is no_color
