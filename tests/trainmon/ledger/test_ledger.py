"""The ledger: committed before an act, never in the way of anybody, and in words when it does not work."""

from __future__ import annotations

import queue
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.cli.attempts.test_history import LONG
from tests.trainmon.ledger.opened import At, Stuck, opened, plain, until
from tests.trainmon.ledger.records import DONE, action, actions, open_records, record, texts
from trainmon.actions.verbs import ask
from trainmon.analysis.explanation import GpuHour
from trainmon.ledger.actions import TEXT_AT_MOST
from trainmon.ledger.attempts import AttemptHour
from trainmon.ledger.ledger import RECORDS_AT_MOST, ActionText, Ledger, LedgerStuck, WriteQueue
from trainmon.model import CreateFile, Milestone, Record


def test_what_was_written_is_on_the_disk_when_write_returns(tmp_path: Path) -> None:
    with opened(tmp_path / "state") as (ledger, troubles):
        ledger.write(record())
        query = "SELECT id, who, from_host, verb, run, job, command, status FROM actions"
        assert plain(ledger.file, query) == [
            ("a1", "ana", "laptop", "requeue", "video-2b", "prod/88", "scontrol requeue Incomplete 88", "asked")
        ]
        assert open_records(ledger) == [record()]
        assert troubles.empty()
    assert plain(ledger.file, "PRAGMA journal_mode") == [("wal",)]


def test_the_file_is_private(tmp_path: Path) -> None:
    with opened(tmp_path / "state") as (ledger, _):
        ledger.write(record())
        assert {path.stat().st_mode & 0o777 for path in ledger.file.parent.iterdir()} == {0o600}
        assert ledger.file.parent.stat().st_mode & 0o777 == 0o700


def test_nothing_is_begun_before_there_is_something_to_write(tmp_path: Path) -> None:
    with opened(tmp_path / "state") as (ledger, troubles):
        assert actions(ledger, 0.0) == open_records(ledger) == []
        assert troubles.empty()
    assert list((tmp_path / "state").iterdir()) == []


def test_sentences_are_kept_as_texts_that_every_version_reads(tmp_path: Path) -> None:
    removes, cancels = ask("{} removes it", "unkill"), ask("press {} to cancel the job", "cancel")
    wanted = action(consequences=(cancels,), warnings=(removes, "It is lost."))
    with opened(tmp_path / "state") as (ledger, _):
        ledger.write(record(action=wanted, outcome=removes, marks=(Milestone("it exits", missed=cancels),)))
        (kept,) = open_records(ledger)
    assert (kept.outcome, kept.marks[0].missed) == ("U removes it", "press C to cancel the job")
    assert (kept.action.consequences, kept.action.warnings) == (
        ("press C to cancel the job",), ("U removes it", "It is lost."),
    )  # fmt: skip


def test_a_network_disk_gets_a_rollback_journal(tmp_path: Path) -> None:
    with opened(tmp_path, is_network=True) as (ledger, _):
        ledger.write(record())
    assert plain(ledger.file, "PRAGMA journal_mode") == [("delete",)]
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.sqlite"]


def test_the_whole_record_comes_back_and_the_newest_word_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as (ledger, _):
        ledger.write(record())
        ledger.keep(record(**DONE))
        ledger.write(record("a2", at=1500.0))
        assert actions(ledger, 0.0) == [record(**DONE), record("a2", at=1500.0)]
        assert actions(ledger, 1200.0) == actions(ledger, 0.0, limit=1) == [record("a2", at=1500.0)]
        ledger.write(record(settled_at=1010.0, **DONE))
        assert open_records(ledger) == [record("a2", at=1500.0)]


def test_a_program_that_knows_less_takes_nothing_back(tmp_path: Path) -> None:
    settled = record(settled_at=1010.0, **DONE)
    with opened(tmp_path) as (ledger, _):
        ledger.write(settled)
        ledger.write(record(**DONE))
        assert actions(ledger, 0.0) == [settled]
        ledger.write(record("a2", **DONE))
        ledger.write(record("a2", status="unknown", settled_at=1200.0))
        ledger.write(record("a2"))
        assert open_records(ledger) == [record("a2", **DONE)]
        ledger.write(record("a3", status="unknown", settled_at=1200.0))
        ledger.write(record("a3", **DONE))
        assert open_records(ledger) == [record("a2", **DONE), record("a3", **DONE)]


def test_what_was_open_at_the_end_and_what_was_done_lately_is_recalled(tmp_path: Path) -> None:
    settled = record("a2", settled_at=1010.0, **DONE)
    with opened(tmp_path) as (ledger, _):
        ledger.write(record())
        ledger.write(settled)
        ledger.write(record("a0", at=-5_000.0, settled_at=-4_990.0, **DONE))
    recalled: queue.Queue[list[Record]] = queue.Queue()
    (tmp_path / "ledger.sqlite").rename(tmp_path / "away")
    (tmp_path / "ledger.sqlite").mkdir()
    with opened(tmp_path, on_actions=recalled.put) as (ledger, troubles):
        assert troubles.get(timeout=120) is not None
        (tmp_path / "ledger.sqlite").rmdir()
        (tmp_path / "away").rename(tmp_path / "ledger.sqlite")
        assert recalled.get(timeout=120) == [record(), settled]
        ledger.write(record("a3"))
        assert recalled.empty()


def looks(ledger: Ledger) -> None:
    """It holds its lease, as it does every two seconds."""
    ledger.transact(lambda connection: None, lambda: None).done.wait(120)


def test_what_another_program_has_done_is_told_once(tmp_path: Path) -> None:
    told: queue.Queue[list[Record]] = queue.Queue()
    with opened(tmp_path, on_actions=told.put) as (ledger, _), opened(tmp_path) as (other, _):
        ledger.write(record("own"))
        other.write(record("theirs"))
        other.write(record("theirs", **DONE))
        looks(ledger)
        assert told.get(timeout=120) == [record("theirs", **DONE)]
        ledger.write(record("own", settled_at=1200.0, **DONE))
        ledger.write(record("theirs", **DONE))  # as the engine does with what it learns
        other.write(record("theirs", settled_at=1300.0, **DONE))
        looks(ledger)
        assert told.get(timeout=120) == [record("theirs", settled_at=1300.0, **DONE)]
        looks(ledger)
        assert told.empty()


def test_texts_are_kept_without_secrets_and_bounded(tmp_path: Path) -> None:
    with opened(tmp_path) as (ledger, _):
        ledger.write_text(
            "a1", "log", "login1", "/l/a\udc80.out", "x" * 500_000 + "\nHF_TOKEN=hf_0123456789\n\x1b[2Jend"
        )
        ledger.write(record())
        (kept,) = texts(ledger, "a1")
        assert (kept.path, kept.at, len(kept.text) <= TEXT_AT_MOST) == ("/l/a?.out", 2000.0, True)
        assert kept.text.endswith("\nHF_TOKEN=***\nend")
        assert texts(ledger, "a2") == []


def test_a_path_that_is_no_utf8_is_written_all_the_same(tmp_path: Path) -> None:
    odd = replace(record(), action=action(operation=CreateFile("/fsx/a\udcff b", "kill")))
    with opened(tmp_path) as (ledger, _):
        ledger.write(odd)
        assert plain(ledger.file, "SELECT command FROM actions") == [("create '/fsx/a b'",)]
        assert actions(ledger, 0.0)[0].action.operation == CreateFile("/fsx/a? b", "kill")


def test_what_is_older_than_is_kept_goes(tmp_path: Path) -> None:
    with opened(tmp_path) as (ledger, _):
        ledger.write_text("a1", "log", "login1", "/l", "text")
        ledger.write(record())
        ledger.write(record("a2", at=90_000.0))
    with opened(tmp_path, keep=86_400.0, clock=At(100_000.0)) as (ledger, _):
        assert actions(ledger, 0.0) == [record("a2", at=90_000.0)]
        assert texts(ledger, "a1") == []


def test_a_text_is_on_the_disk_when_its_writing_returns(tmp_path: Path) -> None:
    with opened(tmp_path, factory=Stuck, patience=1.0) as (ledger, _):
        ledger.write_text("a1", "log", "login1", "/l", "Traceback")
        assert plain(ledger.file, "SELECT text FROM action_texts") == [("Traceback",)]
        Stuck.go.clear()
        Stuck.hung.set()
        with pytest.raises(LedgerStuck, match="did not answer"):
            ledger.write_text("a2", "log", "login1", "/l", "later")
        Stuck.hung.clear()
        Stuck.go.set()
        until(lambda: plain(ledger.file, "SELECT count(*) FROM action_texts") == [(2,)])


def test_a_text_that_comes_while_another_fails_takes_no_place_of_it() -> None:
    mail = WriteQueue()
    many = [ActionText(action_id=f"a{n}", kind="log", host="h", path="/l", at=0.0, text="") for n in range(40)]
    mail.put(many[0])
    failed = mail.take(None)
    mail.put(many[1])
    mail.put_back(failed)
    assert list(mail.take(None).rows[ActionText].values()) == many[:2]
    for text in many[:31]:
        mail.put(text)
    failed = mail.take(None)
    mail.put(many[31])
    mail.put(many[32])
    mail.put_back(failed)
    assert list(mail.take(None).rows[ActionText].values()) == many[1:33], "the oldest go where there is no room"


def test_what_waits_for_a_disk_that_stays_away_has_a_limit() -> None:
    queue = WriteQueue()
    for begin in range(0, 3 * RECORDS_AT_MOST, RECORDS_AT_MOST // 2):
        failed = queue.take(0.0)
        for number in range(begin, begin + RECORDS_AT_MOST // 2):
            queue.put(AttemptHour(LONG, GpuHour(node=f"n{number}", ended_at=0.0)))
        queue.put_back(failed)
    hours = queue.take(None).rows[AttemptHour]
    assert next(iter(hours)) == (LONG.attempt_id, f"n{2 * RECORDS_AT_MOST}")
    assert len(hours) == RECORDS_AT_MOST
