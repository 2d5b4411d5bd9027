"""A Plan as plain lines, for a shell: nothing is wrapped, so that a command can be copied."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trainmon.lib import cell_width, clean
from trainmon.model import Action, CreateFile, Execute, Plan, Refusal
from tui.style import DEAD, WARN

LONG = 100_000
"""Characters of a line that are printed: a command is never cut."""

KEYS = {
    "S": "save", "K": "kill", "U": "unkill", "R": "requeue", "C": "cancel", "H": "hold", "T": "signal", "N": "queue",
    "X": "exclude",
}  # fmt: skip
"""The dashboard's keys that its sentences name, and the commands that do the same here."""
KEY = re.compile(rf"(?<![\w'-])(?<!\d )([{''.join(KEYS)}])(?=$| [a-z]|[,;.)])")

QUOTED = re.compile("(“[^”]*”)")
"""What a person wrote into a switch file: plan C is no key there."""

TWICE = re.compile(rf"[{''.join(KEYS)}], or (?=trainmon-tui )")
"""A sentence that names both."""


def lines(plan: Plan) -> Iterator[str]:
    """The whole plan: what would be done, then what is refused."""
    if plan.choices:
        yield "Several switches are armed; choose one with --switch:"
        for path, words in plan.choices:
            yield _safe(f"  --switch {path}   {words}")
    for number, action in enumerate(plan.actions):
        if number:
            yield ""
        yield from _action(action)
    for refusal in plan.refusals:
        yield from refused(refusal)
    if not (plan.actions or plan.refusals or plan.choices):
        yield "There is nothing to do."


def refused(refusal: Refusal) -> Iterator[str]:
    """Why not, and the way out."""
    yield _safe(f"{DEAD} refused: {refusal.subject}: {in_commands(refusal.why)}")
    if refusal.hint:
        yield _safe(f"    → {in_commands(refusal.hint)}")


def in_commands(sentence: str) -> str:
    """Where a sentence names a key of the dashboard, the command: `U takes it back` → `unkill takes it back`."""
    sentence = TWICE.sub("", sentence)
    if "releas" in sentence:  # the one key that does two things
        sentence = sentence.replace("(H)", "(`release`)")
    parts = QUOTED.split(sentence)
    parts[::2] = [KEY.sub(lambda key: f"`{KEYS[key[1]]}`", part) for part in parts[::2]]
    return "".join(parts)


def _action(action: Action) -> Iterator[str]:
    yield _safe(action.title)
    for warning in action.warnings:
        yield _safe(f"  {WARN} {in_commands(warning)}")
    facts = list(action.facts)
    if isinstance(action.operation, CreateFile):
        facts.append(("its line", action.operation.text))
    if isinstance(action.operation, Execute) and action.operation.login_shell:
        facts.append(("how", "in a login shell, for its modules"))
    kept = (log for log in (action.keep_log, action.keep_errors) if log)
    facts += [("first", f"the end of {log} is copied to the ledger") for log in kept]
    facts += [("" if number else "then", in_commands(words)) for number, words in enumerate(action.consequences)]
    width = max((cell_width(label) for label, _ in facts), default=0)
    for label, words in facts:
        yield _safe(f"  {label}{' ' * (width - cell_width(label))}  {words}")


def _safe(line: str) -> str:
    return clean(line, LONG)
