"""The tables [[eval]]: where the results of evaluators are, and the command that starts an evaluator again."""

from __future__ import annotations

import re
import shlex
from typing import Annotated

from trainmon.analysis.checkpoints import PLACEHOLDERS
from trainmon.config.table import Table
from trainmon.config.types import InvalidValue, RemotePath, ValueType, parse_argv, quoted

NAMED = re.compile(r"(?<!\$)\{([a-z_]+)\}")


def parse_command(value: object) -> list[str]:
    """A command as a list, or as one string that is split like a shell does it. Its placeholders are known.

    Raises:
        InvalidValue: when it is neither, is empty, or has an unknown placeholder.
    """
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise InvalidValue(f"cannot be split into arguments: {str(error).lower()}") from error
    argv = parse_argv(value)
    for name in (name for one in argv for name in NAMED.findall(one)):
        if name not in PLACEHOLDERS:
            shown = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            raise InvalidValue(f"has the unknown placeholder {quoted(f'{{{name}}}')}; it must be one of: {shown}")
    return argv


Command = Annotated[tuple[str, ...], ValueType("a command as a list of strings, or as one string", parse_command)]


class EvalSettings(Table, frozen=True, kw_only=True):
    """Where the evaluation results of a run are, if not in `evals.jsonl` in the directory of its checkpoints. See
    docs/evals.md for the format of the file."""

    run: str
    """The name of the run."""
    results: RemotePath
    """Its file of results, with one JSON object per line; may be a glob. Of several files, the newest is followed. For
    more files, write more tables."""
    command: Command | None = None
    """The command that evaluates one checkpoint, usually `["sbatch", "eval.sbatch", "{checkpoint}"]`. `R` starts it
    when the evaluator of the run has crashed. It runs in a login shell on the login host of the cluster and must end
    within 60s. `{checkpoint}` is the path of the checkpoint, `{step}` its step, `{run}` the name of the run."""
