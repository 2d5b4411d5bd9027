"""Widgets: lists with a cursor, headings, the footer, logs and pictures. Only the cells that changed are painted."""

from __future__ import annotations

from tui.widgets.footer import Footer, chosen, fitting, foot_spans, placed
from tui.widgets.keyed_lines import KeyedLines, TextView
from tui.widgets.log_view import LogView
from tui.widgets.spans import (
    GUTTER,
    HEADING,
    SENTENCE,
    SENTENCE_LINES,
    Heading,
    Line,
    Link,
    Linked,
    Picture,
    Row,
    SpanLine,
    SpanLines,
    changed_columns,
    first_link,
    link_of,
    rows,
    sentence,
    width_of,
)

__all__ = [
    "GUTTER",
    "HEADING",
    "SENTENCE",
    "SENTENCE_LINES",
    "Footer",
    "Heading",
    "KeyedLines",
    "Line",
    "Link",
    "Linked",
    "LogView",
    "Picture",
    "Row",
    "SpanLine",
    "SpanLines",
    "TextView",
    "changed_columns",
    "chosen",
    "first_link",
    "fitting",
    "foot_spans",
    "link_of",
    "placed",
    "rows",
    "sentence",
    "width_of",
]
