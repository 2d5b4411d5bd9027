"""`check`, of the machine that `[daemon]` names: each way in which nobody may be told has its sentence and its fix."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from tests.collectors.test_daemon import UNREACHABLE, Bastion, HandClock
from trainmon.cli.check.command import START, daemon_rows, query, textfile_rows
from trainmon.cli.check.watch import Row, Watch
from trainmon.config import DaemonSettings, Settings
from trainmon.transport.shell import Completed

SETTINGS = Settings(daemon=DaemonSettings(host="bastion"))


def rows(bastion: Bastion, clock: HandClock) -> list[Row]:
    def dial() -> Bastion:
        if bastion.down is not None:
            raise bastion.down
        return bastion

    return list(query(SETTINGS, "bastion", dial, clock))


def checked(answer: Completed) -> list[Row]:
    clock = HandClock()
    bastion = Bastion(clock)
    bastion.answer = lambda argv: answer
    return rows(bastion, clock)


def test_without_a_daemon_nothing_is_reported() -> None:
    assert list(daemon_rows(Watch(Settings()))) == []


def test_one_that_watches_says_who_and_by_how_many_channels() -> None:
    clock = HandClock()

    assert rows(Bastion(clock), clock) == [
        Row("ok", "daemon", "bastion", "pid 7 sends notifications to 1 channel, last check 4s ago")
    ]


def test_one_that_nobody_has_started_says_how() -> None:
    clock = HandClock()

    assert checked(Bastion(clock).nobody()) == [
        Row("bad", "daemon", "bastion", "nobody watches: alerts-only ended", START)
    ]


def test_a_host_that_is_not_reached_and_a_program_that_is_not_found_are_distinguished() -> None:
    clock = HandClock()
    bastion = Bastion(clock)
    bastion.down = UNREACHABLE
    assert rows(bastion, clock) == [
        Row("bad", "daemon", "bastion", "no answer in 10s", "try: ssh bastion trainmon-tui status")
    ]  # fmt: skip

    assert checked(Completed(127, b"", b"not found")) == [
        Row("bad", "daemon", "bastion", "command not found: trainmon-tui",
            'set its path: [daemon] command = ["/path/on/bastion/trainmon-tui"]')
    ]  # fmt: skip


def test_another_version_is_reported() -> None:
    (row,) = checked(Completed(0, b'{"version":9,"at":1.0}', b""))

    assert (row.mark, row.text) == ("bad", "its status has version 9, not 1")


def test_a_textfile_needs_a_directory(tmp_path: Path) -> None:
    folder = tmp_path / "textfiles"
    found = Settings(daemon=DaemonSettings(textfile=f"{folder}/trainmon.prom"))

    def row() -> tuple[str, str, str]:
        (made,) = textfile_rows(found)
        return made.mark, made.text, made.fix

    fix = f"create it, and start node_exporter with --collector.textfile.directory={folder}"
    assert row() == ("bad", f"{folder} is not a directory", fix)
    folder.mkdir()
    assert row() == ("ok", f"{folder}/trainmon.prom", "")
    assert list(textfile_rows(Settings())) == []
    assert list(textfile_rows(replace(found, daemon=replace(found.daemon, host="bastion")))) == []
