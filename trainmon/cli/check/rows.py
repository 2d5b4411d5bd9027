"""A row of the output of `check`, and the rows of the files of the config: test(1) on the host that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from posixpath import dirname
from typing import Literal, NamedTuple

from trainmon.lib import Seconds, TrainmonError
from trainmon.model import RunSpec
from trainmon.transport.shell import Shell


class Row(NamedTuple):
    """What was checked, the result, and for ✗ how to fix it."""

    mark: Literal["ok", "bad", "note"]
    subject: str
    what: str
    text: str
    fix: str = ""


PATH_TIMEOUT: Seconds = 5.0


class Tested(NamedTuple):
    """A path, the flag of test(1) that it must pass, and the texts of both results."""

    path: str
    flag: str
    good: str
    bad: str
    fix: str


def files_of(runs: Sequence[RunSpec], shared: Sequence[str]) -> Iterator[Tested]:
    """The checks of the runs' files, and of the paths whose disks are watched."""
    for path in shared:
        yield Tested(path, "-r", "readable", "missing or not readable", "create it, or ask for read permission")
    for run in runs:
        if run.script is not None:
            yield Tested(run.script, "-r", "readable", "missing or not readable", f"fix `script` of run {run.name}")
        if run.checkpoints is not None:
            fix = "create it, or ask for permission to list and enter it"
            yield Tested(run.checkpoints, "-d", "a directory", "missing or not a directory", fix)
            yield Tested(run.checkpoints, "-r", "can be listed", "is not readable", fix)
            yield Tested(run.checkpoints, "-x", "can be entered", "cannot be entered (no x permission)", fix)
    folders = [dirname(path) or "/" for run in runs for path in (run.kill_switch, run.save_switch) if path is not None]
    for folder in dict.fromkeys(folders):
        fix = "create it, or ask for write permission: save and kill need it"
        yield Tested(folder, "-w", "switch files can be created", "missing or not writable", fix)


def tested(host: str, shell: Shell, wanted: Tested) -> Row:
    """One path on one host."""
    try:
        done = shell.run(["test", wanted.flag, wanted.path], timeout=PATH_TIMEOUT)
    except TrainmonError as error:
        return Row("bad", host, wanted.path, error.message, error.hint)
    if done.status:
        return Row("bad", host, wanted.path, wanted.bad, wanted.fix)
    return Row("ok", host, wanted.path, wanted.good)


def check_files(host: str, shell: Shell, wanted: Sequence[Tested]) -> Iterator[Row]:
    """One row per path: the first check that fails, or the last one."""
    paths: dict[str, list[Tested]] = {}
    for one in wanted:
        paths.setdefault(one.path, []).append(one)
    for tests in paths.values():
        for test in tests:
            row = tested(host, shell, test)
            if row.mark == "bad":
                break
        yield row
