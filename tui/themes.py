"""Our colour themes, and the filter for terminals that show only ASCII. Colour is never the only sign."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter
from textual.theme import Theme

from tui.style import ascii_text

# ---- our colour themes -----------------------------------------------------------------------------------------------

DARK = Theme(
    name="trainmon-dark",
    primary="#4f8fd0",
    secondary="#6c8aa8",
    accent="#58c4dc",
    success="#7fc28a",
    warning="#e0b050",
    error="#f0706a",
    foreground="#c9d1d9",
    background="#0f1419",
    surface="#141a21",
    panel="#1b232c",
    variables={
        "text-success": "#7fc28a",
        "text-warning": "#e0b050",
        "text-error": "#f0706a",
        "text-accent": "#58c4dc",
        "rule": "#34404c",
        "load-0": "#9aa5b0",
        "load-1": "#6ba6e4",
        "load-2": "#45b5dc",
        "load-3": "#4fcaa4",
        "load-4": "#8ade7c",
        "curve-0": "#58c4dc",
        "curve-1": "#e39a5f",
        "curve-2": "#b79cf0",
        "curve-3": "#86c98f",
        "curve-4": "#ec8fb5",
        "curve-5": "#d3c86b",
    },
)

LIGHT = Theme(
    name="trainmon-light",
    primary="#1a5f9a",
    secondary="#57708a",
    accent="#005c73",
    success="#14602b",
    warning="#704800",
    error="#9e1c15",
    foreground="#1f2429",
    background="#fafafa",
    surface="#f2f4f6",
    panel="#e6eaee",
    dark=False,
    variables={
        "text-success": "#14602b",
        "text-warning": "#704800",
        "text-error": "#9e1c15",
        "text-accent": "#005c73",
        "rule": "#b8c0c8",
        "load-0": "#4d565f",
        "load-1": "#27568f",
        "load-2": "#00586b",
        "load-3": "#0a5a40",
        "load-4": "#1f5c12",
        "curve-0": "#005c73",
        "curve-1": "#8a4200",
        "curve-2": "#5a34a8",
        "curve-3": "#14602b",
        "curve-4": "#a01c5c",
        "curve-5": "#5c5200",
    },
)

CLEAR = Theme(
    name="trainmon-clear",
    primary="#56b4e9",
    secondary="#8fa3b5",
    accent="#56b4e9",
    success="#56b4e9",
    warning="#f0e442",
    error="#e69f00",
    foreground="#ffffff",
    background="#000000",
    surface="#0c0c0c",
    panel="#1a1a1a",
    variables={
        "text-success": "#56b4e9",
        "text-warning": "#f0e442",
        "text-error": "#ff9e1b",
        "text-accent": "#56b4e9",
        "rule": "#8c8c8c",
        "load-0": "#9aa3ab",
        "load-1": "#69abd9",
        "load-2": "#56b4e9",
        "load-3": "#9dd4f5",
        "load-4": "#e6f5ff",
        "curve-0": "#56b4e9",
        "curve-1": "#ff9e1b",
        "curve-2": "#d99bff",
        "curve-3": "#3fd6a4",
        "curve-4": "#f0e442",
        "curve-5": "#ffffff",
    },
)
"""High contrast. Blue, yellow and orange (Okabe and Ito): distinguishable with every kind of colour blindness."""

SIXTEEN = Theme(
    name="trainmon-16",
    ansi=True,
    primary="ansi_cyan",
    secondary="ansi_blue",
    accent="ansi_cyan",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_bright_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        "text-success": "ansi_green", "text-warning": "ansi_yellow", "text-error": "ansi_bright_red",
        "curve-0": "ansi_cyan", "curve-1": "ansi_yellow", "curve-2": "ansi_magenta", "curve-3": "ansi_green",
        "curve-4": "ansi_bright_red", "curve-5": "ansi_bright_blue",
        "text-accent": "ansi_cyan", "load-0": "ansi_bright_black", "load-1": "ansi_default", "load-2": "ansi_cyan",
        "load-3": "ansi_green", "load-4": "ansi_bright_green", "rule": "ansi_bright_black",
        "ansi-background": "ansi_black", "ansi-foreground": "ansi_white",
        "border-blurred": "ansi_bright_black", "block-cursor-foreground": "ansi_black",
        "block-cursor-background": "ansi_white", "input-cursor-background": "ansi_white",
        "input-cursor-foreground": "ansi_black", "input-cursor-text-style": "none",
        "input-selection-background": "ansi_bright_blue", "input-selection-foreground": "ansi_black",
    },
)  # fmt: skip
"""The terminal's sixteen colours and background, for consoles that have no others."""

SIXTEEN_LIGHT = Theme(
    name="trainmon-16-light",
    ansi=True,
    dark=False,
    primary="ansi_blue",
    secondary="ansi_blue",
    accent="ansi_blue",
    success="ansi_blue",
    warning="ansi_magenta",
    error="ansi_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        **SIXTEEN.variables,
        "text-success": "ansi_blue", "text-warning": "ansi_magenta", "text-error": "ansi_red",
        "curve-0": "ansi_blue", "curve-1": "ansi_magenta", "curve-2": "ansi_red", "curve-3": "ansi_green",
        "curve-4": "ansi_black", "curve-5": "ansi_bright_blue",
        "text-accent": "ansi_blue", "load-2": "ansi_blue", "load-3": "ansi_blue", "load-4": "ansi_blue",
        "ansi-background": "ansi_white", "ansi-foreground": "ansi_black",
        "block-cursor-foreground": "ansi_white", "block-cursor-background": "ansi_black",
        "input-cursor-background": "ansi_black", "input-cursor-foreground": "ansi_white",
    },
)  # fmt: skip
"""The same on a light background, where green, yellow and cyan of xterm have a contrast below 2.2."""

SETTINGS = {"dark": DARK.name, "light": LIGHT.name, "high-contrast": CLEAR.name}
"""Our themes by their names in the config."""

THEMES = (DARK, LIGHT, CLEAR, SIXTEEN, SIXTEEN_LIGHT)


def fitting(requested: str, color_system: str | None) -> str:
    """The requested theme; on a terminal with sixteen colours, the one of sixteen for our dark and our light theme."""
    sixteen = {DARK.name: SIXTEEN.name, LIGHT.name: SIXTEEN_LIGHT.name}
    return sixteen.get(requested, requested) if color_system in {None, "standard", "windows"} else requested


def defaults(theme: Theme) -> dict[str, str]:
    """The colour variables that Textual's themes lack: the colour of frames, those of five loads from idle to
    full, and those of curves."""
    loads = [theme.foreground or "#808080"] * 2 + [theme.accent or theme.primary] * 3
    palette = [theme.accent, theme.warning, theme.secondary, theme.success, theme.error, theme.foreground]
    curves = {f"curve-{n}": one or theme.primary for n, one in enumerate(palette)}
    rule = {"rule": "#44505c" if theme.dark else "#b0b8c0"}
    return rule | {f"load-{n}": one for n, one in enumerate(loads)} | curves


# ---- what replaces our symbols on a terminal that shows only ASCII ---------------------------------------------------


class Ascii(LineFilter):
    """The last step before a terminal without Unicode. It applies to everything: logs, names and borders."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [s if s.text.isascii() else Segment(ascii_text(s.text), s.style, s.control) for s in segments]


class Printable(LineFilter):
    """The last step before any terminal: a recording of somebody else is shown, and its names may hold control
    sequences, which those that we read ourselves do not."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [
            s if s.control or s.text.isprintable() else Segment("".join(filter(str.isprintable, s.text)), s.style)
            for s in segments
        ]
