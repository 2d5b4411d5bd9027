"""Widgets: lists with a cursor, headings, the footer, logs and pictures. Only the cells that changed are painted."""

from tui.widgets.footer import Footer, chosen, fitting, foot_spans, placed
from tui.widgets.keyed_lines import KeyedLines, TextView
from tui.widgets.log_view import LogView
from tui.widgets.spans import (
    GUTTER,
    Heading,
    Picture,
    SpanLine,
    SpanLines,
    changed_ranges,
)

__all__ = [
    "GUTTER",
    "Footer",
    "Heading",
    "KeyedLines",
    "LogView",
    "Picture",
    "SpanLine",
    "SpanLines",
    "TextView",
    "changed_ranges",
    "chosen",
    "fitting",
    "foot_spans",
    "placed",
]
