"""Plain terminals: the prompts of a login, tables, and text in the characters that the terminal can show."""

from __future__ import annotations

import getpass
import json
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import click

from trainmon.lib import cell_width, clean

_prompt_lock = threading.Lock()


def ask_on_terminal(
    host: str, title: str, instructions: str, fields: tuple[tuple[str, bool], ...]
) -> tuple[str, ...] | None:
    """Prompt the person at this terminal, one login at a time. Answers are echoed only if the host allows it. None
    when it was declined."""
    with _prompt_lock:
        click.echo(f"{clean(host)}: {clean(title)}", err=True)
        for line in instructions.splitlines():
            click.echo(f"  {clean(line)}", err=True)
        answers = []
        try:
            for text, echo in fields:
                prompt = f"  {clean(text).rstrip(': ')}: "
                answers.append(read_line(prompt) if echo else getpass.getpass(prompt, sys.stderr))
        except (EOFError, KeyboardInterrupt):
            click.echo(err=True)
            return None
        return tuple(answers)


def read_line(prompt: str) -> str:
    """One line from the person, after a prompt on standard error.

    Raises:
        EOFError: when there is no more.
    """
    click.echo(prompt, err=True, nl=False)
    answer = sys.stdin.readline()
    if not answer:
        raise EOFError
    return answer.rstrip("\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table under its head; every cell is made safe to print. The last column is never padded."""
    safe = [list(head), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(cell_width(row[column]) for row in safe) for column in range(len(head))]
    for row in safe:
        yield "  ".join(
            cell + " " * (width - cell_width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()


def print_lines(*lines: str) -> None:
    """Print lines in the characters that this terminal can show."""
    click.echo(plain("\n".join(lines)))


def print_json(value: Any) -> None:
    """Print plain values as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False))


def plain(text: str) -> str:
    """Text that this terminal can show: replaced by ASCII of the same width if it must be."""
    from tui.style import ascii_text, wants_ascii  # JSON needs no style

    return ascii_text(text) if wants_ascii(os.environ, sys.stdout.encoding) else text
