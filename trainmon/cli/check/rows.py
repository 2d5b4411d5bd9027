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


class FileTest(NamedTuple):
    """A path, the flag of test(1) that it must pass, and the texts of both results."""

    path: str
    flag: str
    good: str
    bad: str
    fix: str


def files_of(runs: Sequence[RunSpec], shared: Sequence[str]) -> Iterator[FileTest]:
    """The checks of the runs' files, and of the paths whose disks are watched."""
    for path in shared:
        yield FileTest(path, "-r", "readable", "missing or not readable", "create it, or ask for read permission")
    for run in runs:
        if run.script is not None:
            yield FileTest(
                run.script,
                "-r",
                "readable",
                "missing or not readable",
                f"fix the `script` of run {run.name} in the config",
            )
        if run.checkpoints is not None:
            fix = "create it, or ask for r and x permission"
            yield FileTest(run.checkpoints, "-d", "a directory", "missing or not a directory", fix)
            yield FileTest(run.checkpoints, "-r", "can be listed", "cannot be listed (no r permission)", fix)
            yield FileTest(run.checkpoints, "-x", "can be entered", "cannot be entered (no x permission)", fix)
    folders = [dirname(path) or "/" for run in runs for path in (run.kill_switch, run.save_switch) if path is not None]
    for folder in dict.fromkeys(folders):
        fix = "create it, or ask for write permission: the actions save and kill need it"
        yield FileTest(folder, "-w", "switch files can be created", "missing or not writable", fix)


def reported(host: str, what: str, rows: Iterator[Row]) -> Iterator[Row]:
    """The rows. A failure ends them with a row of its own."""
    try:
        yield from rows
    except TrainmonError as error:
        yield Row("bad", host, what, error.message, error.hint)


def run_test(host: str, shell: Shell, test: FileTest) -> Row:
    """One path on one host."""
    try:
        done = shell.run(["test", test.flag, test.path], timeout=PATH_TIMEOUT)
    except TrainmonError as error:
        return Row("bad", host, test.path, error.message, error.hint)
    failed = Row("bad", host, test.path, test.bad, test.fix)
    return failed if done.status else Row("ok", host, test.path, test.good)


def check_files(host: str, shell: Shell, tests: Sequence[FileTest]) -> Iterator[Row]:
    """One row per path: the first check that fails, or the last one."""
    paths: dict[str, list[FileTest]] = {}
    for test in tests:
        paths.setdefault(test.path, []).append(test)
    for tests in paths.values():
        for test in tests:
            row = run_test(host, shell, test)
            if row.mark == "bad":
                break
        yield row
