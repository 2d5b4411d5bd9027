"""Questions of a login on a plain terminal, one after the other; answers are not echoed unless the host says so."""

from __future__ import annotations

import getpass
import sys
import threading

import click

from trainmon.lib import clean

_turn = threading.Lock()


def ask_on_terminal(
    host: str, title: str, instructions: str, fields: tuple[tuple[str, bool], ...]
) -> tuple[str, ...] | None:
    """Put a question to the person at this terminal. None when it was declined."""
    with _turn:
        click.echo(f"{clean(host)}: {clean(title)}", err=True)
        for line in instructions.splitlines():
            click.echo(f"  {clean(line)}", err=True)
        answers = []
        try:
            for text, echo in fields:
                words = f"  {clean(text).rstrip(': ')}: "
                answers.append(read_line(words) if echo else getpass.getpass(words, sys.stderr))
        except (EOFError, KeyboardInterrupt):
            click.echo(err=True)
            return None
        return tuple(answers)


def read_line(words: str) -> str:
    """One line from the person, whose words go to standard error. Raises EOFError when there is no more."""
    click.echo(words, err=True, nl=False)
    answer = sys.stdin.readline()
    if not answer:
        raise EOFError
    return answer.rstrip("\n")
