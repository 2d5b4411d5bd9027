"""Facts as lines: a label and a text. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence

from trainmon.lib import clean, scrub, shorten
from trainmon.model import WANDB
from tui.style import Span
from tui.widgets import SENTENCE_LINES, Line, Link, Linked, width_of

LABEL = 14
NO_STYLES: Mapping[str, str] = {}

FROM_LOG = " (found in the log)"
"""The mark of a setting that no config names."""


def safe(text: str) -> str:
    """Text from a node without control characters and secrets."""
    return scrub(clean(text))


def fact(label: str, text: str, width: int, style: str = "") -> Line:
    return (Span(f"{label:<{LABEL}}", "dim"), Span(shorten(text, width - LABEL), style))


def facts(texts: Mapping[str, str | None], width: int, styles: Mapping[str, str] = NO_STYLES) -> Iterator[Line]:
    """Facts, by their labels. One without a text is left out."""
    return (fact(label, text, width, styles.get(label, "")) for label, text in texts.items() if text is not None)


def wrapped_fact(label: str, text: str, width: int, style: str = "") -> Iterator[Line]:
    """A fact over several lines: a fingerprint or a command must not be cut."""
    lines = textwrap.wrap(text, max(8, width - LABEL), break_on_hyphens=False)[:SENTENCE_LINES]
    return (fact("" if index else label, line, width, style) for index, line in enumerate(lines))


def optional_fact(label: str, text: str | None, width: int, style: str = "") -> Iterator[Line]:
    """A wrapped fact with a text from elsewhere; nothing without a text."""
    return wrapped_fact(label, safe(text or ""), width, style)


def more_fact(hidden: int, width: int, hint: str = "") -> Iterator[Line]:
    """The number of entries that are not shown; nothing if all are shown."""
    if hidden > 0:
        yield fact("", f"and {hidden} more{hint}", width, "dim")


def fact_text(lines: Sequence[str], index: int) -> str:
    """The text of a fact, without its label, from all its lines."""
    blank = " " * LABEL
    start, end = index, index + 1
    while start > 0 and lines[start].startswith(blank):
        start -= 1
    while end < len(lines) and lines[end].startswith(blank):
        end += 1
    return " ".join(line[LABEL:].strip() for line in lines[start:end])


def link_label(label: str) -> Line:
    """The label of a line that is a link. The arrow shows it without colours."""
    return (Span(f"{label:<{LABEL - 2}}", "dim"), Span("→ ", "accent"))


def linked_fact(label: str, link: Link, text: str, width: int, *after: Span) -> Linked:
    """A fact that is a link. Its text is cut so that the spans `after` it fit."""
    shown = shorten(safe(text), width - LABEL - width_of(after))
    return Linked(link, (*link_label(label), Span(shown, "accent"), *after))


def log_named(log: str) -> str:
    """The name of a log in its [[run]] table."""
    return "the console log in W&B" if log == WANDB else clean(log)
