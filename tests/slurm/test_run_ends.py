"""trainmon-run under the real Slurm: commands end and write as without it, into a file, a pipe and a terminal."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.lab.slurm import OVER, Slurm
from tests.lab.terminal import Terminal
from tests.trainmon.job.commands import until, wrapped

GRANDCHILD = "a grandchild that keeps the output"
COMMANDS = {
    "exit 0": "echo out; echo err >&2",
    "exit 1": "echo out; exit 1",
    "exit 3": "exit 3",
    "exit 137": "echo out; exit 137",
    "TERM": "echo out; sleep 0.5; kill -TERM $$",
    "KILL": "echo out; sleep 0.5; kill -KILL $$",
    "SEGV": "ulimit -c 0; kill -SEGV $$",
    GRANDCHILD: "(sleep 1; echo late) & echo soon",
}
MISSING = {"missing": (["/no/such"], 127), "not executable": (["/etc/passwd"], 126)}
"""A shell and srun have words of their own for these, and srun a status of its own; `env` stands in for them."""

BATCH = {
    "file": "{} >{out} 2>{err}; echo $? >{status}",
    "pipe": "{{ {} 2>&3 | cat >{out}; echo ${{PIPESTATUS[0]}} >{status}; }} 3>&1 2>&1 | cat >{err}",
    "terminal": "script -qec {quoted} {out} </dev/null >{err}; echo $? >{status}",
}
"""How a line of a batch script runs a command."""

EXEC = {
    "file": "exec {} >{out} 2>{err}",
    "pipe": "exec {} > >(cat >{out}) 2> >(cat >{err})",
    "terminal": "exec script -qec {quoted} {out} </dev/null >{err}",
}
"""How the batch script becomes it."""


class Seen(NamedTuple):
    """What a command has left."""

    status: str
    out: str
    err: str


def commands(folder: Path, *, bare: bool) -> dict[str, list[str]]:
    before = [] if bare else wrapped(folder)
    found = {name: [*before, "/bin/sh", "-c", text] for name, text in COMMANDS.items()}
    return found | {name: [*(["env"] if bare else before), *argv] for name, (argv, _) in MISSING.items()}


def same(name: str, status: str, out: str, err: str) -> Seen:
    """Without numbers that differ, the order of what srun says itself, and the words for a command that is missing."""
    if name in MISSING:
        return Seen(status, "", "")
    plain = [re.sub(r"StepId=\S+|\[?\b\d{3,}\b\]?|gpu-\d", "N", text.replace("\r", "")) for text in (out, err)]
    lines = sorted(line for line in plain[0].splitlines() if not line.startswith("Script "))
    return Seen(status, "\n".join(lines), "\n".join(sorted(plain[1].splitlines())))


def steps(slurm: Slurm, folder: Path, into: str, found: dict[str, list[str]]) -> dict[str, Seen]:
    """Each command as a step of srun."""
    seen = {}
    for name, argv in found.items():
        if into == "terminal":
            with Terminal(["srun", "--pty", *argv], env=slurm.environ) as terminal:
                status = terminal.wait()
                seen[name] = same(name, str(status), terminal.screen.decode(errors="replace"), "")
            continue
        files = [f"-o{folder}/{name}.out", f"-e{folder}/{name}.err"] if into == "file" else []
        done = slurm.run("srun", *files, *argv)
        if files and name == GRANDCHILD:
            until_late(folder)
        texts = [(folder / f"{name}.{end}").read_text() for end in ("out", "err")] if files else ["", ""]
        seen[name] = same(name, str(done.returncode), texts[0] + done.stdout, texts[1] + done.stderr)
    return seen


def lines(slurm: Slurm, folder: Path, into: str, found: dict[str, list[str]]) -> dict[str, Seen]:
    """Each command as a line of one batch script."""
    script = "".join(line(BATCH[into], folder, name, argv) for name, argv in found.items())
    job = slurm.submit(f"#!/bin/bash\n{script}", f"-o{folder}/job")
    slurm.wait_for(lambda: slurm.state(job) in OVER, what="the script has ended")
    until_late(folder)
    return {name: read(folder, name, (folder / f"{name}.status").read_text()) for name in found}


def jobs(slurm: Slurm, folder: Path, into: str, found: dict[str, list[str]]) -> dict[str, Seen]:
    """Each command as a batch script of its own, which becomes it."""
    numbers = {}
    for name, argv in found.items():
        script = f"#!/bin/bash\n{line(EXEC[into], folder, name, argv)}"
        numbers[name] = slurm.submit(script, f"-o{folder}/{name}.job", "--no-requeue")
    slurm.wait_for(lambda: all(slurm.state(job) in OVER for job in numbers.values()), what="all jobs have ended")
    until_late(folder)
    ends = {name: slurm.job(job) for name, job in numbers.items()}
    return {name: read(folder, name, f"{one['JobState']} {one['ExitCode']}") for name, one in ends.items()}


def until_late(folder: Path) -> None:
    """Wait for the grandchild, which outlives its job."""
    until(lambda: "late" in (folder / f"{GRANDCHILD}.out").read_text())


def line(template: str, folder: Path, name: str, argv: list[str]) -> str:
    places = {end: shlex.quote(f"{folder}/{name}.{end}") for end in ("out", "err", "status")}
    command = shlex.join(argv)
    return template.format(command, quoted=shlex.quote(command), **places) + "\n"


def read(folder: Path, name: str, status: str) -> Seen:
    out, err = (folder / f"{name}.out", folder / f"{name}.err")
    return same(name, status.strip(), *(path.read_text() if path.exists() else "" for path in (out, err)))


KINDS = {"srun": steps, "batch": lines, "exec": jobs}


@pytest.mark.slow
@pytest.mark.parametrize("into", ["file", "pipe", "terminal"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_command_ends_and_writes_as_without_it(kind: str, into: str, slurm: Slurm, tmp_path: Path) -> None:
    seen = []
    for bare in (True, False):
        folder = tmp_path / ("bare" if bare else "wrapped")
        folder.mkdir()
        seen.append(KINDS[kind](slurm, folder, into, commands(folder, bare=bare)))
    assert seen[1] == seen[0]
    assert all(str(status) in seen[1][name].status for name, (_, status) in MISSING.items())
    assert len(list((tmp_path / "wrapped" / "receipts").glob("*/end.json"))) == len(seen[0])
