"""A piece of a line of text with its style. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """A piece of one line: plain text, never markup, and the name of its style."""

    text: str
    style: str = ""
