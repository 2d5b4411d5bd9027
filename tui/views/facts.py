"""Lines of a fact each: a label and its words; and sentences over several lines. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from trainmon.lib import clean, scrub, shorten
from trainmon.model import WANDB
from tui.style import Span
from tui.widgets import SENTENCE_LINES, Line

LABEL = 14


def safe(text: str) -> str:
    """Text that came from a node, as it may be shown."""
    return scrub(clean(text))


def fact(label: str, text: str, width: int, style: str = "") -> Line:
    return (Span(f"{label:<{LABEL}}", "dim"), Span(shorten(text, width - LABEL), style))


def wrapped_fact(label: str, text: str, width: int, style: str = "") -> Iterator[Line]:
    """A sentence in full: a fingerprint or a command that is cut is worth nothing."""
    lines = textwrap.wrap(text, max(8, width - LABEL), break_on_hyphens=False)[:SENTENCE_LINES]
    for place, line in enumerate(lines):
        yield fact("" if place else label, line, width, style)


def fact_text(lines: Sequence[str], place: int) -> str:
    """The words of a fact, without its label and from all the lines that it takes."""
    blank = " " * LABEL
    start, end = place, place + 1
    while start > 0 and lines[start].startswith(blank):
        start -= 1
    while end < len(lines) and lines[end].startswith(blank):
        end += 1
    return " ".join(line[LABEL:].strip() for line in lines[start:end])


def link_label(label: str) -> Line:
    """The label of a line that leads somewhere: shown by more than a colour."""
    return (Span(f"{label:<{LABEL - 2}}", "dim"), Span("→ ", "accent"))


def log_named(log: str) -> str:
    """A log as its [[run]] names it."""
    return "the console log in W&B" if log == WANDB else clean(log)
