"""The end of a job's log is kept before a requeue overwrites it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import only
from tests.trainmon.actions.execution.test_switch_files import Before
from tests.trainmon.actions.execution.world import World
from trainmon.actions.execution import run
from trainmon.lib import CommandFailed, TrainmonError
from trainmon.slurm import commands
from trainmon.transport.local import LocalShell
from trainmon.transport.shell import Completed


def test_a_requeue_reads_checks_keeps_the_log_and_acts(world: World, tmp_path: Path) -> None:
    action = only(world.plan("requeue"))
    assert world.host.ran == [commands.queue(), commands.show_job("88_3")]
    record = world.act(action)
    assert world.host.ran[2:] == [commands.show_job("88_3"), ("scontrol", "requeue", "Incomplete", "88_3")]
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
    lines = run.log_tail(local, str(log)).split("\n")
    assert lines[0].startswith("line ")
    assert lines[-2:] == ["line 00029999", ""]
    assert 18_000 < len(lines) < 18_800


def test_a_log_is_followed_through_a_link_of_our_own_and_not_through_that_of_another(
    local: LocalShell, tmp_path: Path
) -> None:
    (tmp_path / "1.out").write_text("one\n")
    (tmp_path / "latest.log").symlink_to("1.out")
    assert run.log_tail(local, str(tmp_path / "latest.log")) == "one\n"
    foreign = tmp_path / "foreign.log"
    foreign.symlink_to("/etc/passwd")
    shell: LocalShell | Before = local
    if os.getuid() == 0:
        os.lchown(foreign, 65534, 65534)
    else:  # only root can give a link away: then we are somebody else
        (tmp_path / "id").write_text("#!/bin/sh\necho 65534\n")
        (tmp_path / "id").chmod(0o755)
        shell = Before(local, ["env", f"PATH={tmp_path}:{os.environ['PATH']}"])
    with pytest.raises(CommandFailed, match="a symbolic link of another user"):
        run.log_tail(shell, str(foreign))


def test_a_log_that_is_a_fifo_is_an_error_at_once(local: LocalShell, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "1.out")
    with pytest.raises(CommandFailed, match="fifo instead of a file"):
        run.log_tail(local, str(tmp_path / "1.out"))
