"""A Plan as lines: refusals, then for each action its title, warnings, facts, command and consequences. Pure.

Everything wraps and nothing is cut: the user confirms this text.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from trainmon.lib import Seconds, cell_width, clean
from trainmon.model import Action, CreateFile, Execute, Operation, Plan, Refusal, RemoveFile
from tui.style import DEAD, WARN, Span
from tui.widgets import Row

LABEL = 17
"""The most cells of the label column. A longer label takes its own line."""

DEED = ("command", "file")
"""The facts that name the command or file itself: here they are shown from the operation, to the last character."""

WHOLE = 1_000_000
"""The limit for `clean` that keeps the whole text."""


SLOW: Seconds = 10.0
"""After this long without an answer, the dialog says so."""


def looking(about: str, host: str, waited: Seconds, width: int) -> list[Row]:
    """The lines that are shown until the plan comes."""
    words = f"checking {about} on {host} … {waited:.0f} s"
    if waited >= SLOW:
        words = f"{host} has not answered for {waited:.0f} s. Still waiting; nothing has been done. Esc closes this."
    style = "warn" if waited >= SLOW else "dim"
    return [Row(str(n), (Span(line, style),)) for n, line in enumerate(wrapped(words, width))]


def choices(plan: Plan) -> list[Row]:
    """The armed switches to choose from."""
    return [Row(path, (Span(clean(words)),)) for path, words in plan.choices]


def rows(plan: Plan, width: int) -> list[Row]:
    """The whole plan. Refusals come first, so that nobody scrolls past them."""
    lines: list[tuple[Span, ...]] = []
    for refusal in plan.refusals:
        lines += [*refused(refusal, width), ()]
    for action in plan.actions:
        lines += [*described(action, width), ()]
    if not lines:
        lines = [(Span("There is nothing to do.", "dim"),), ()]
    return [Row(str(number), spans) for number, spans in enumerate(lines[:-1])]


def summary(plan: Plan) -> str:
    """`3 actions, 1 refused`; empty for a single action."""
    done, refusals = len(plan.actions), len(plan.refusals)
    if done == 1 and not refusals:
        return ""
    words = [f"{done} action{'' if done == 1 else 's'}"] if done else []
    return ", ".join([*words, *([f"{refusals} refused"] if refusals else [])]) or "nothing to do"


def refused(refusal: Refusal, width: int) -> Iterator[tuple[Span, ...]]:
    """The subject, reason and hint of a refusal."""
    yield from _block(f"{DEAD} refused: {refusal.subject}", width, "crit")
    yield from _labelled("why", refusal.why, width, 6)
    if refusal.hint:
        yield from _labelled("then", refusal.hint, width, 6)


def described(action: Action, width: int) -> Iterator[tuple[Span, ...]]:
    """One action: title, warnings, facts with the exact command or file, consequences."""
    yield from _block(action.title, width, "bold")
    for warning in action.warnings:
        yield from _block(f"{WARN} {warning}", width, "warn", indent=2)
    known = list(facts(action))
    column = min(LABEL, max(cell_width(clean(fact.label)) for fact in known)) + 2
    for fact in known:
        yield from _labelled(*fact[:2], width, column, fact.style)


class Fact(NamedTuple):
    """A label and a text."""

    label: str
    words: str
    style: str = ""


def facts(action: Action) -> Iterator[Fact]:
    """What a person must know before, the operation in its place, and what happens next."""
    if not any(label in DEED for label, _ in action.facts):
        yield Fact("host", action.host)
        yield from _operation(action.operation)
    for label, words in action.facts:
        if label in DEED:
            yield from _operation(action.operation)
        else:
            yield Fact(label, words)
    for number, words in enumerate(action.consequences):
        yield Fact("" if number else "then", words)


def _operation(operation: Operation) -> Iterator[Fact]:
    """The very command, or the file with what becomes of it."""
    label = (
        "command" if isinstance(operation, Execute) else "creates" if isinstance(operation, CreateFile) else "removes"
    )
    yield Fact(label, command(operation), "accent bold")
    if isinstance(operation, CreateFile) and operation.text:
        yield Fact("content", operation.text.rstrip("\n"))
    if isinstance(operation, Execute) and operation.login_shell:
        yield Fact("", "in a login shell, for its modules")


def command(operation: Operation) -> str:
    """The very command as a person would write it, or the path."""
    if isinstance(operation, CreateFile | RemoveFile):
        return visible(operation.path)
    return " ".join(map(visible, operation.argv)) if not operation.shown else visible(operation.shown, quote=False)


def visible(word: str, *, quote: bool = True) -> str:
    """A word of a command line, quoted. Unprintable characters are written as bash reads them."""
    if clean(word, WHOLE) == word:
        return shlex.quote(word) if quote else word
    shown = "".join(c if clean(c) == c and c not in "\\'" else _octets(c) for c in word)
    return f"$'{shown}'" if quote else shown


def _octets(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))


def _labelled(label: str, words: str, width: int, column: int, style: str = "") -> Iterator[tuple[Span, ...]]:
    """`  label   text`; the text wraps in its own column."""
    label = clean(label)
    if cell_width(label) > column - 2:
        yield (Span(f"  {label}", "dim"),)
        label = ""
    head = Span("  " + label + " " * (column - cell_width(label)), "dim")
    for number, line in enumerate(wrapped(clean(words, WHOLE), width - 2 - column)):
        yield (Span(" " * (column + 2)) if number else head, Span(line, style))


def _block(words: str, width: int, style: str, indent: int = 0) -> Iterator[tuple[Span, ...]]:
    for line in wrapped(clean(words, WHOLE), width - indent):
        yield (Span(" " * indent + line, style),)


def wrapped(text: str, width: int) -> Iterator[str]:
    """Lines of at most `width` cells, broken at blanks. A word longer than a line is split."""
    width = max(8, width)
    line = ""
    for word in pieces(text.split(" "), width):
        if line and cell_width(line) + 1 + cell_width(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def pieces(words: Iterable[str], width: int) -> Iterator[str]:
    """The words. One that is wider than a line is split into parts that fill a line."""
    for word in words:
        while cell_width(word) > width:
            end = width
            while cell_width(word[:end]) > width:
                end -= 1
            yield word[:end]
            word = word[end:]
        yield word
