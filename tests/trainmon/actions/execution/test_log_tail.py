"""The end of a job's log is kept before a requeue overwrites it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from collectors.probe import paths
from tests.trainmon.actions.cluster import only
from tests.trainmon.actions.execution.test_switch_files import Before
from tests.trainmon.actions.execution.world import World
from trainmon.actions.execution import operations
from trainmon.lib import CommandFailed, TrainmonError
from trainmon.slurm import commands
from trainmon.transport.files import READ
from trainmon.transport.shell import Completed, LocalShell


def test_a_requeue_reads_checks_keeps_the_log_and_acts(world: World, tmp_path: Path) -> None:
    action = only(world.plan("requeue"))
    asked = (commands.batch_script("91"), ("sbatch", "--test-only", "--nodes=2"))
    assert world.host.ran == [commands.queue(), commands.show_job("88_3"), *asked]
    record = world.act(action)
    assert world.host.ran[4:] == [commands.show_job("88_3"), ("scontrol", "requeue", "Incomplete", "88_3")]
    assert (record.status, record.outcome) == ("done", "scontrol requeue ended without an error message")
    ((id_, kind, host, path, text),) = world.book.texts
    assert (id_, kind, host, path) == (action.id, "log", "login", f"{tmp_path}/llm.out")
    assert text == "step 1\nHF_TOKEN=***\nTraceback: boom\n"


def test_errors_in_a_file_of_their_own_are_kept_as_well(world: World, tmp_path: Path) -> None:
    errors = tmp_path / "llm.err"
    errors.write_text("RuntimeError: boom\n")
    action = replace(only(world.plan("requeue")), keep_errors=f"login:{errors}")
    assert world.act(action).status == "done"
    assert [(path, text) for _, _, _, path, text in world.book.texts] == [
        (f"{tmp_path}/llm.out", "step 1\nHF_TOKEN=***\nTraceback: boom\n"),
        (str(errors), "RuntimeError: boom\n"),
    ]


def test_a_log_that_cannot_be_read_is_a_note_and_no_hindrance(world: World, tmp_path: Path) -> None:
    action = only(world.plan("requeue"))
    (tmp_path / "llm.out").unlink()
    record = world.act(action)
    assert record.status == "done"
    assert record.note == f"the end of the log was not kept: {tmp_path}/llm.out: No such file or directory"


def test_the_log_s_end_is_on_the_disk_before_the_requeue(world: World) -> None:
    order: list[str] = []
    world.book.write_text = lambda *_: order.append("kept")

    def requeued() -> Completed:
        order.append("requeued")
        return Completed(0, b"", b"")

    world.host.answers["scontrol", "requeue", "Incomplete", "88_3"] = requeued
    world.act(only(world.plan("requeue")))
    assert order == ["kept", "requeued"]


def test_a_log_that_the_ledger_does_not_take_is_a_note(world: World) -> None:
    def stuck(*_: str) -> None:
        raise TrainmonError("the ledger did not answer in 5s")

    world.book.write_text = stuck
    record = world.act(only(world.plan("requeue")))
    assert (record.status, record.note) == ("done", "the end of the log was not kept: the ledger did not answer in 5s")


def test_the_end_of_a_long_log_begins_with_a_whole_line(local: LocalShell, tmp_path: Path) -> None:
    log = tmp_path / "-long log.out"
    log.write_text("".join(f"line {number:08d}\n" for number in range(30_000)))
    lines = operations.log_tail(local, str(log)).split("\n")
    assert lines[0].startswith("line ")
    assert lines[-2:] == ["line 00029999", ""]
    assert 18_000 < len(lines) < 18_800


PRIVATE = "/etc/passwd"
"""A file of root. The tests are root; other users are, for a moment, somebody else: only root can give a link away."""


def link(path: Path, target: str, *, foreign: bool = False) -> None:
    path.symlink_to(target)
    if foreign and os.getuid() == 0:
        os.lchown(path, 65534, 65534)


def theirs_to_theirs(folder: Path) -> None:
    (folder / "1.out").write_text("one\n")
    link(folder / "train.log", "1.out", foreign=True)
    if os.getuid() == 0:
        os.chown(folder / "1.out", 65534, 65534)


def ours_to_theirs_to_ours(folder: Path) -> None:
    link(folder / "train.log", "theirs")
    link(folder / "theirs", PRIVATE, foreign=True)


def through_a_directory(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "1.out").write_text("one\n")
    link(folder / "logs", "run")
    link(folder / "train.log", f"{folder}/logs/2.out")
    link(folder / "run" / "2.out", "../run/1.out")


WAYS: dict[str, tuple[Callable[[Path], object], bool]] = {
    "a file": (lambda folder: (folder / "train.log").write_text("one\n"), True),
    "their link to their file": (theirs_to_theirs, True),
    "their link to our file": (lambda folder: link(folder / "train.log", PRIVATE, foreign=True), False),
    "our link to their link to our file": (ours_to_theirs_to_ours, False),
    "a FIFO": (lambda folder: os.mkfifo(folder / "train.log"), False),
    "a directory": (lambda folder: (folder / "train.log").mkdir(), False),
    "nothing": (lambda folder: None, False),
    "a link in a circle": (lambda folder: link(folder / "train.log", "train.log"), False),
}
if os.getuid() == 0:
    WAYS["our links, through a directory"] = (through_a_directory, True)


@pytest.mark.parametrize("sh", [["sh"], ["bash", "--posix"], ["busybox", "sh"]], ids=lambda argv: argv[0])
@pytest.mark.parametrize("way", WAYS)
def test_a_log_is_kept_through_exactly_those_links_through_which_the_probe_reads_it(
    way: str, sh: list[str], local: LocalShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, is_read = WAYS[way]
    folder = tmp_path / "logs here"
    folder.mkdir()
    put(folder)
    if os.getuid() != 0:
        (tmp_path / "id").write_text("#!/bin/sh\necho 65534\n")
        (tmp_path / "id").chmod(0o755)
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
    path = str(folder / "train.log")
    argv = ["env", f"PATH={tmp_path}:{os.environ['PATH']}", *sh, "-c", READ, "sh", "-100", path]
    kept = local.run(argv, timeout=60)
    read = kept.stdout.partition(b"\n")[2]
    assert (kept.status, read) == (0, b"one\n") if is_read else (kept.status, kept.stdout) == (1, b"")
    with suppress(OSError, ValueError):
        handle = paths.open_linked(path.encode())
        assert (is_read, os.read(handle, 100)) == (True, b"one\n")
        os.close(handle)
        return
    assert not is_read


@pytest.mark.parametrize("tool", ["ls", "stat"])
def test_a_link_that_comes_while_a_log_is_judged_is_not_followed(tool: str, local: LocalShell, tmp_path: Path) -> None:
    log, tools = tmp_path / "train.log", tmp_path / "tools"
    log.write_text("one\n")
    tools.mkdir()
    link(tools / "theirs", PRIVATE, foreign=True)
    (tools / tool).write_text(
        f'#!/bin/sh\n{shutil.which(tool)} "$@"; status=$?\nmv -f {tools}/theirs {log}; exit $status\n'
    )
    (tools / "id").write_text("#!/bin/sh\necho 65535\n")
    for name in (tool, "id"):
        (tools / name).chmod(0o755)
    argv = ["env", f"PATH={tools}:{os.environ['PATH']}", "sh", "-c", READ, "sh", "-100", str(log)]
    kept = local.run(argv, timeout=60)
    assert (kept.status, kept.stdout) == (1, b"")
    assert log.is_symlink()


def test_a_log_of_which_nothing_can_be_judged_is_read_unless_it_is_a_link(local: LocalShell, tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("sh", "ls", "readlink", "id", "tail"):
        (commands / name).symlink_to(shutil.which(name) or name)
    (tmp_path / "1.out").write_text("one\n")
    link(tmp_path / "train.log", "1.out")
    shell = Before(local, ["env", f"PATH={commands}"])
    assert operations.log_tail(shell, str(tmp_path / "1.out")) == "one\n"
    with pytest.raises(CommandFailed, match="a symbolic link of another user"):
        operations.log_tail(shell, str(tmp_path / "train.log"))


def test_a_log_that_is_a_fifo_is_an_error_at_once(local: LocalShell, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.out")
    with pytest.raises(CommandFailed, match="fifo instead of a file"):
        operations.log_tail(local, str(tmp_path / "1.out"))
