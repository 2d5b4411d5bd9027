"""Runs the benchmarks and writes what they print into tests/bench/results.md.

All of them, which takes about an hour on two cores, or those that are named: `python -m tests.bench startup charts`.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import click

from tests.bench.program import exit_on_signals

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "tests/bench/results.md"

BENCHMARKS = (
    "startup", "first_look", "snapshot", "dashboard", "prometheus", "grid", "charts", "log", "laptop", "ssh", "probe",
    "tails", "checkpoints", "steps", "log_lines", "wandb", "wandb_child", "wandb_file", "first_curve",
    "metric_files", "daemon", "takeover", "rules", "hangs", "calm", "sawtooth", "flapping", "chaos", "causes", "run",
    "hooks", "rank_looks", "black_box", "nodes",
)  # fmt: skip
"""In the order of the document. `real_gpu` is not among them: it needs a GPU."""


def measured(name: str) -> tuple[str, bool]:
    """What a benchmark prints, also shown line by line, and whether it reached its goal."""
    argv, printed = [sys.executable, "-m", f"tests.bench.{name}"], []
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                printed.append(line)
                click.echo(line, nl=False)
        except BaseException:
            process.terminate()  # it ends what it has started
            raise
    return "".join(printed).strip("\n"), process.returncode == 0


def part(name: str, printed: str) -> str:
    """A benchmark's part of the document: what it is, where it was measured, and its numbers."""
    text = importlib.import_module(f"tests.bench.{name}").__doc__ or name
    title = re.split(r"[.:] (?:Run: )?`?python -m|\n", text)[0]
    where = f"`python -m tests.bench.{name}` on {os.cpu_count()} cores, Python {platform.python_version()}"
    return f"**{title.rstrip('.')}** ({where})\n\n```\n{printed}\n```"


def renewed(document: str, name: str, made: str) -> str:
    """The document with this part made anew; it is appended where it has no markers yet."""
    begin, end = f"<!-- bench: {name} -->", f"<!-- /bench: {name} -->"
    marked = re.compile(f"({re.escape(begin)}\n).*?({re.escape(end)})", re.DOTALL)
    if marked.search(document) is None:
        document = f"{document.rstrip()}\n\n{begin}\n{end}\n"
    return marked.sub(lambda found: f"{found[1]}\n{made}\n\n{found[2]}", document, count=1)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(BENCHMARKS))
def main(names: tuple[str, ...]) -> None:
    """Measure NAMES, or everything, and renew their parts of tests/bench/results.md."""
    exit_on_signals()
    missed = []
    for name in names or BENCHMARKS:
        click.echo(f"{name} ...", err=True)
        printed, is_well = measured(name)
        if not is_well:
            missed.append(name)
        if printed:
            document = DOCUMENT.read_text() if DOCUMENT.exists() else "# Performance\n"
            DOCUMENT.write_text(renewed(document, name, part(name, printed)))
    if missed:
        raise SystemExit(f"a goal was missed, or it failed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
