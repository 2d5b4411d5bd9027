"""Finds out from a batch script whether a signal that is sent to its shell alone reaches the trainer. Pure."""

from __future__ import annotations

import re
import shlex
from typing import Literal, NamedTuple

SHELL = re.compile(r"#!\s*(?:\S*/)?(?:env\s+(?:-S\s+)?)?(?:\S*/)?(?:ba|da|k|z)?sh\b")
SUBMITTED = re.compile(r" SubmitLine=(.*?) WorkDir=", re.DOTALL)
OPTION = re.compile(r"--signal(?:=|\s+)(\S+)")
TO_THE_SHELL = re.compile(r"(?:R?B|BR):(?:SIG)?([A-Z0-9+]+?)(?:@\d+)?", re.IGNORECASE)
EXEC = re.compile(r"(?:^|[;&|({]|\b(?:then|do|else)\b)\s*exec\s+(?!\d*[<>&{])\S", re.MULTILINE)
TRAP = re.compile(r"""\btrap\s+(?:--\s+)?('[^']*'|"(?:\\.|[^"\\])*"|-|[^\s'"-][^\s'"]*)\s+([^\n;&|#]+)""")
COMMENT = re.compile(r"(?:^|(?<=\s))#[^\n]*", re.MULTILINE)
NUMBERS = {"1": "HUP", "2": "INT", "3": "QUIT", "10": "USR1", "12": "USR2", "15": "TERM", "18": "CONT"}
"""Linux's numbers of the signals that people use."""


class UnheardSignal(NamedTuple):
    """A signal that does not reach the trainer, or too late."""

    text: str
    fix: str


def unheard_signal(script: str, details: str = "") -> UnheardSignal | None:
    """What is wrong with `--signal=B:…` of a batch script, or of the line that submitted it, whose option counts. None:
    the signal reaches the trainer, or there is none, or the script is not one of a shell. `details` is the job in
    scontrol's words, which have that line in newer versions of Slurm."""
    submitted = SUBMITTED.search(details)
    option = _option(submitted[1].split() if submitted is not None else []) or _option(_directives(script))
    found = TO_THE_SHELL.fullmatch(option)
    if found is None or SHELL.match(script) is None:
        return None
    name = _signal_name(found[1])
    body = COMMENT.sub("", script)
    hears = receiver(script, name)
    if hears == "trainer":
        return None
    if hears is None:
        text = (
            f"--signal={option} reaches only the batch shell, never the trainer: the script neither starts it with "
            f"exec nor has a trap for {name}"
        )
        steps = "remove the B: so that Slurm signals the steps of srun, or " if re.search(r"\bsrun\b", body) else ""
        return UnheardSignal(text, f"{steps}start the trainer with exec, as in: exec trainmon-run -- …")
    if not re.search(r"\bwait\b", body):
        text = (
            f"--signal={option}: the shell runs its trap for {name} only after its command has ended: the script does "
            "not wait for a command in the background"
        )
        return UnheardSignal(text, "start the trainer in the background: srun … & wait")
    return None


def receiver(script: str, name: str) -> Literal["trainer", "shell"] | None:
    """Who receives a signal to the batch shell: the trainer that replaces it, or a trap. None: it ends the shell."""
    body = COMMENT.sub("", script)
    if script and (SHELL.match(script) is None or EXEC.search(body)):
        return "trainer"
    traps = {_signal_name(word): command for command, signals in TRAP.findall(body) for word in signals.split()}
    return "shell" if traps.get(_signal_name(name), "-") != "-" else None  # a later one counts; `-` takes it back


def _option(words: list[str]) -> str:
    """The last --signal of sbatch's options."""
    found = OPTION.findall(" ".join(words))
    return found[-1] if found else ""


def _directives(script: str) -> list[str]:
    """The options in the #SBATCH lines, which end at the first command."""
    words: list[str] = []
    for line in script.splitlines():
        if line.startswith("#SBATCH"):
            lexer = shlex.shlex(line.removeprefix("#SBATCH"), posix=True, punctuation_chars=False)
            lexer.whitespace_split = True
            try:
                words += lexer
            except ValueError:  # a quotation mark without its other half
                words += line.split()[1:]
        elif line.strip() and not line.startswith("#"):
            break
    return words


def _signal_name(word: str) -> str:
    plain = word.upper().removeprefix("SIG")
    return NUMBERS.get(plain, plain)
