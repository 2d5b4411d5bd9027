"""Where the code of a rank stands, by its stacks. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from posixpath import basename

from trainmon.analysis.attempts.looks.activity import Activity

Frame = tuple[str, int, str]
"""A file, a line in it, and the function."""

LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<")


def standing(stacks: Sequence[Sequence[Frame]], moves: Activity) -> Activity:
    """Where it stands. `stacks`: each from the outermost frame on; `moves`: what /proc has shown of it meanwhile.

    Two ranks stand alike if all functions are the same from the outermost frame of the trainer on, and the line of its
    innermost one. A loop that waits has no such line: it differs from stack to stack."""
    chains = [_chain(stack) for stack in stacks]
    names = [*dict.fromkeys(tuple(name for name, _ in chain) for chain in chains)]
    if len(names) > 1 or not names[0]:
        return moves._replace(kind="runs", text="run{s} on", is_still=False)
    inner = max((at for at, (_, line) in enumerate(chains[0]) if line), default=0)
    lines = {chain[inner][1] for chain in chains}
    at = f", line {min(lines)}" if len(lines) == 1 and min(lines) else ""
    shown = " > ".join(dict.fromkeys((names[0][0], names[0][inner], names[0][-1])))
    detail = f"{' > '.join(names[0])}; {moves.detail}"
    return Activity(f"{names[0]}{at}", f"stand{{s}} in `{shown}`{at}", moves.is_still, detail)


def _chain(stack: Sequence[Frame]) -> list[tuple[str, int]]:
    """From the outermost frame of the trainer on: module and function, and the line where it is of the trainer. Of a
    method, py-spy names the class, too, and faulthandler does not."""
    known = [(re.sub(r"[^\w.:<>-]", "", f"{basename(file).removesuffix('.py')}:{function.rpartition('.')[2]}"),
              0 if LIBRARY.search(file) else line) for file, line, function in stack]  # fmt: skip
    return known[next((at for at, (_, line) in enumerate(known) if line), 0) :]
