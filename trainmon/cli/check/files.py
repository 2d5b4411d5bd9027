"""What `check` asks of the files that the config names, by test(1) on the host that reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from posixpath import dirname
from typing import NamedTuple

from trainmon.cli.check.row import Row
from trainmon.lib import Seconds, TrainmonError
from trainmon.model import RunSpec
from trainmon.transport.shell import Shell

PATH_TIMEOUT: Seconds = 5.0


class Tested(NamedTuple):
    """A path, the flag of test(1) that it must pass, and what is said of it."""

    path: str
    flag: str
    good: str
    bad: str
    mend: str


def files_of(runs: Sequence[RunSpec], shared: Sequence[str]) -> Iterator[Tested]:
    """What is read and written of the runs' files, and the paths whose disks are watched."""
    for path in shared:
        yield Tested(path, "-r", "readable", "not there, or not readable", "make it, or ask for read permission")
    for run in runs:
        if run.script is not None:
            yield Tested(run.script, "-r", "readable", "not there, or not readable", f"mend `script` of run {run.name}")
        if run.checkpoints is not None:
            mend = "make it, or ask for the permission to read and search it"
            yield Tested(run.checkpoints, "-d", "a directory", "not there, or no directory", mend)
            yield Tested(run.checkpoints, "-r", "can be listed", "may not be read", mend)
            yield Tested(run.checkpoints, "-x", "can be searched", "may not be searched", mend)
    folders = [dirname(path) or "/" for run in runs for path in (run.kill_switch, run.save_switch) if path is not None]
    for folder in dict.fromkeys(folders):
        mend = "make it, or ask for the permission to write there: the keys that save and kill need it"
        yield Tested(folder, "-w", "switches can be made", "not there, or not writable", mend)


def tested(host: str, shell: Shell, wanted: Tested) -> Row:
    """One path on one host."""
    path = wanted.path
    try:
        done = shell.run(["test", wanted.flag, path], timeout=PATH_TIMEOUT)
    except TrainmonError as error:
        return Row("bad", host, path, error.message, error.hint)
    if done.status:
        return Row("bad", host, path, wanted.bad, wanted.mend)
    return Row("ok", host, path, wanted.good)


def look_at_files(host: str, shell: Shell, wanted: Sequence[Tested]) -> Iterator[Row]:
    """All of them; of one path the first that fails, else the last."""
    paths: dict[str, list[Tested]] = {}
    for one in wanted:
        paths.setdefault(one.path, []).append(one)
    for tests in paths.values():
        row = tested(host, shell, tests[0])
        for one in tests[1:]:
            if row.mark == "bad":
                break
            row = tested(host, shell, one)
        yield row
