"""tui.widgets."""

from __future__ import annotations

from tui.widgets.footer import Footer, chosen, fitting, foot_spans, starts
from tui.widgets.keyed_lines import (
    GUTTER,
    HEADING,
    SENTENCE,
    STYLE_CSS,
    STYLES,
    Heading,
    KeyedLines,
    Palette,
    Row,
    changed_columns,
)
from tui.widgets.links import SENTENCE_LINES, Line, Link, Linked, first_link, link_of, rows, sentence
from tui.widgets.log_view import LogView
from tui.widgets.picture import Picture
from tui.widgets.reading import TextView

__all__ = [
    "GUTTER",
    "HEADING",
    "SENTENCE",
    "SENTENCE_LINES",
    "STYLES",
    "STYLE_CSS",
    "Footer",
    "Heading",
    "KeyedLines",
    "Line",
    "Link",
    "Linked",
    "LogView",
    "Palette",
    "Picture",
    "Row",
    "TextView",
    "changed_columns",
    "chosen",
    "first_link",
    "fitting",
    "foot_spans",
    "link_of",
    "rows",
    "sentence",
    "starts",
]
