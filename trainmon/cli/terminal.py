"""Plain terminals: the prompts of a login, tables, and text in the characters that the terminal can show."""

from __future__ import annotations

import atexit
import getpass
import json
import os
import re
import select
import sys
import termios
import threading
import tty
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click

from trainmon.lib import cell_width, clean, instruction

prompting = threading.Lock()
"""Held while a person is prompted: nothing else is printed meanwhile."""


def print_error(text: str, hint: str = "") -> None:
    """Print what is wrong on standard error, and on a line of its own what to do."""
    lines = [*f"trainmon-tui: {text}".splitlines(), *([f"try: {instruction(hint)}"] if hint else ())]
    click.echo("\n".join(plain(clean(line)) for line in lines), err=True)


def show_progress(text: str) -> None:
    """Replace the line of the progress on a terminal's standard error, unless a person is prompted there."""
    if sys.stderr.isatty() and not prompting.locked():
        click.echo(f"\r{' ' * 40}\r{text}", err=True, nl=False)


def ask_on_terminal(
    host: str, title: str, instructions: str, fields: tuple[tuple[str, bool], ...], _is_open: object = None
) -> tuple[str, ...] | None:
    """Prompt the person at this terminal, one login at a time. Answers are echoed only if the host allows it. None
    when it was declined."""
    show_progress("")
    with prompting:
        with suppress(termios.error):  # Ctrl+C ends the program while another thread has turned the echo off
            atexit.register(termios.tcsetattr, 0, termios.TCSADRAIN, termios.tcgetattr(0))
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


ASK_BACKGROUND = b"\x1b]11;?\x1b\\\x1b[c"
"""xterm's OSC 11, then the question for the kind of the terminal, which each answers: no answer to the first before it
means that there is none."""

BACKGROUND = re.compile(
    rb"\x1b\]11;rgba?:([0-9a-fA-F]{2})[0-9a-fA-F]*/([0-9a-fA-F]{2})[0-9a-fA-F]*/([0-9a-fA-F]{2})"
    rb"[0-9a-fA-F]*(?:\x07|\x1b\\)?"
)
ANSWERED = re.compile(rb"\x1b\[\?[\d;]*c")
ANSWER_WITHIN = 0.2
"""Seconds that one waits for the answer, after what is done meanwhile."""


@contextmanager
def asked_background(
    environ: Mapping[str, str], reader: int = 0, writer: int = 1
) -> Iterator[Callable[[], tuple[bool, str]]]:
    """Ask the terminal for its background. Inside, the function says whether it is light (not known is dark), and what
    was typed meanwhile."""
    colors = environ.get("COLORFGBG", "").rpartition(";")[2]
    if colors.isdigit() or environ.get("TERM", "dumb") in {"dumb", "linux"}:
        yield lambda: (colors in {"7", "15"}, "")
        return
    before = termios.tcgetattr(reader)
    tty.setcbreak(reader, termios.TCSANOW)
    os.write(writer, ASK_BACKGROUND)

    def answered() -> tuple[bool, str]:
        answer = b""
        while not ANSWERED.search(answer) and select.select([reader], [], [], ANSWER_WITHIN)[0]:
            answer += os.read(reader, 1024) or b"\x1b[?c"
        found = BACKGROUND.search(answer)
        typed = ANSWERED.sub(b"", BACKGROUND.sub(b"", answer)).decode(errors="replace")
        is_light = found is not None and sum(int(part, 16) for part in found.groups()) > 3 * 127
        return is_light, typed.replace("\n", "\r")  # Enter, as this terminal does not read it in raw mode yet

    try:
        yield answered
    finally:
        termios.tcsetattr(reader, termios.TCSANOW, before)


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, gap: int = 2, numbers: Container[int] = ()
) -> Iterator[str]:
    """Lines of a table under its head; every cell is made safe to print. The columns `numbers` are aligned to the
    right. The last column is never padded."""
    safe = [list(head), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(cell_width(row[column]) for row in safe) for column in range(len(head))]
    for row in safe:
        spaces = [" " * (width - cell_width(cell)) for cell, width in zip(row, widths, strict=True)]
        pairs = enumerate(zip(spaces, row, strict=True))
        cells = (space + cell if column in numbers else cell + space for column, (space, cell) in pairs)
        yield (" " * gap).join(cells).rstrip()


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
