"""Alerts, outbox, silences, orders and the duty in the ledger: a page whole or not at all, read as it was written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.notify.samples import alert, notice
from tests.trainmon.ledger.opened import opened, plain
from tests.trainmon.ledger.records import transaction
from trainmon.ledger.alerts import (
    HistoryLine,
    count,
    prune_alerts,
    prune_outbox,
    read_requests,
    read_stored_alerts,
    read_totals,
    read_waiting,
    take_over,
)
from trainmon.ledger.database import LedgerStuck, open_to_write
from trainmon.ledger.lease import (
    ROW_LEASE,
    Holder,
    LeaderNote,
    SourceNote,
    claim_row,
    is_row_held,
    is_row_of,
    read_note,
    release_row,
    sign_of,
)
from trainmon.ledger.ledger import alert_history, alerts_now, recent_actions, submit_request
from trainmon.ledger.reader import AlertsNow
from trainmon.ledger.schema import MIGRATIONS
from trainmon.model import Alert, AlertChanges, AlertRequest, Notice, Notification, Silence

NOW = 1_800_000_000.0
DAY = 86_400.0


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_to_write(tmp_path / "ledger.sqlite", is_network=False)
    yield connection
    connection.close()


def fire(name: str = "a", *channels: str, **facts: Any) -> Notice:
    return notice(alert(id=name), key=f"{name}-fire", channels=channels or ("phone",), **facts)


def write(connection: sqlite3.Connection, at: float = NOW, **facts: Any) -> Any:
    return transaction(AlertChanges(at=at, **facts)).write(connection, at)


def mark(name: str, state: Any, channel: str = "phone", at: float = NOW, **facts: Any) -> Notification:
    return Notification(id=0, channel=channel, notice=fire(name), state=state, attempts=1, made_at=at, **facts)


def silence(name: str = "s1", **facts: Any) -> Silence:
    return Silence(id=name, until=NOW + DAY, by="ana", made_at=NOW, rule="gpu-hot", **facts)


def order(**facts: Any) -> AlertRequest:
    return AlertRequest(**{"verb": "mute", "at": NOW, "by": "ana", "silence": silence(), **facts})


def test_what_is_written_is_recalled_whole(ledger: sqlite3.Connection) -> None:
    nasty = alert(id="b", summary="\x1b[2J 'quoted' \udcff", evidence=("é" * 300,))
    write(ledger, alerts=(alert(), nasty), silences=(silence(),), memory={"heartbeat": 17.0}, requests_until=4)
    found = read_stored_alerts(ledger, NOW)
    assert found.alerts[0] == alert()
    assert found.alerts[1].summary == "\x1b[2J 'quoted' ?"
    assert (found.silences, found.memory, found.requests_until) == ((silence(),), {"heartbeat": 17.0}, 4)
    assert found.at == NOW


def test_what_is_long_over_is_not_recalled_and_what_is_open_always_is(ledger: sqlite3.Connection) -> None:
    over = alert(id="over", phase="resolved", resolved_at=NOW - DAY - 1)
    fresh = alert(id="fresh", phase="resolved", resolved_at=NOW - DAY + 1)
    old = alert(id="old", since=NOW - 300 * DAY)
    ended = silence("s2", ended_at=NOW - 1)
    write(ledger, alerts=(over, fresh, old), silences=(replace(silence(), until=NOW - 1), ended))
    assert [one.id for one in read_stored_alerts(ledger, NOW).alerts] == ["old", "fresh"]
    assert read_stored_alerts(ledger, NOW).silences == ()


def test_of_a_subject_that_flaps_all_day_a_program_that_starts_reads_only_what_it_needs(
    ledger: sqlite3.Connection,
) -> None:
    def episode(number: int, subject: str) -> Alert:
        at = NOW - 60.0 * (1_000 - number)
        return alert(id=f"{subject}-{number}", subject=subject, phase="resolved", since=at, resolved_at=at + 30)

    write(ledger, alerts=tuple(episode(number, subject) for number in range(1_000) for subject in ("run:a", "run:b")))
    write(ledger, alerts=(alert(id="open", subject="run:a", since=NOW - 2 * DAY),))
    ids = [one.id for one in read_stored_alerts(ledger, NOW).alerts]
    assert ids[:3] == ["open", *(one for one in ids[1:3] if one.endswith("-999"))]
    assert len(ids) == 1 + 2 * 30, "those of the last half an hour: their end may not be notified yet"
    later = [one.id for one in read_stored_alerts(ledger, NOW + 3_600).alerts]
    assert sorted(later) == sorted(["open", *(f"run:{one}-{number}" for one in "ab" for number in (997, 998, 999))])


def test_of_another_version_one_alert_hides_no_other(ledger: sqlite3.Connection) -> None:
    write(ledger, alerts=(alert(id="a"), alert(id="b")), notices=(fire(), fire("b")))
    ledger.execute("UPDATE alerts SET alert = replace(alert, 'firing', 'dreaming') WHERE id = 'b'")
    ledger.execute("UPDATE notices SET notice = replace(notice, 'critical', 'purple') WHERE key = 'a-fire'")
    assert [one.id for one in read_stored_alerts(ledger, NOW).alerts] == ["a"]
    notifications = {one.notice.key: one.notice.severity for one in read_waiting(ledger)}
    assert notifications == {"a-fire": "critical", "b-fire": "critical"}


def stood_in(name: str, channel: str, because: str) -> Notification:
    return Notification(channel=channel, notice=fire(name), because=because, made_at=NOW)


def test_a_notice_is_a_row_for_each_channel_once(ledger: sqlite3.Connection) -> None:
    assert write(ledger, notices=(fire("a", "phone", "mail"),)) == frozenset()
    assert write(ledger, notices=(fire("a", "phone", "pager"),)) == frozenset()
    stand_in = transaction(stand_ins=(stood_in("a", "phone", "why"), stood_in("a", "spare", "mail could not tell it")))
    assert stand_in.write(ledger, NOW) == frozenset()
    notifications = {one.channel: one.told.reason for one in read_waiting(ledger)}
    assert notifications == dict.fromkeys(("phone", "mail", "pager"), "fired") | {
        "spare": "fired; mail could not tell it"
    }
    transaction(marks=(mark("a", "sent"),)).write(ledger, NOW)
    assert write(ledger, notices=(fire("a", "phone", "pager"),)) == {("a-fire", "phone")}, "what is done already"
    transaction(marks=(mark("a", "stopped"),)).write(ledger, NOW)
    states = ledger.execute(
        "SELECT channel, state FROM outbox WHERE channel IN ('phone', 'pager') ORDER BY 1"
    ).fetchall()
    assert states == [("pager", "waiting"), ("phone", "sent")], "and stays so"


def test_what_another_channel_has_delivered_is_known_by_who_has_and_is_not_counted(ledger: sqlite3.Connection) -> None:
    write(ledger, notices=(fire("a", "phone", "mail"), fire("b", "phone", "mail"), fire("c", "phone")))
    stand_ins = [stood_in(name, channel, "phone is down") for name in "ac" for channel in ("spare", "pager")]
    marks = (mark("a", "sent", "spare"), mark("a", "merged", "pager"), mark("b", "sent", "mail"))
    transaction(stand_ins=tuple(stand_ins), marks=(*marks, mark("c", "leased", "spare"))).write(ledger, NOW)
    known = {(one.notice.key, one.channel): sorted(one.delivered_by) for one in read_waiting(ledger)}
    result = {("a-fire", "phone"): ["pager", "spare"], ("a-fire", "mail"): ["pager", "spare"]}
    waits = [("b-fire", "phone"), ("c-fire", "phone"), ("c-fire", "spare"), ("c-fire", "pager")]
    assert known == {**result, **{address: [] for address in waits}}
    assert count(ledger, NOW).waiting == len(waits)


def test_a_notification_of_another_version_is_sent_in_short_and_not_left(ledger: sqlite3.Connection) -> None:
    write(ledger, notices=(fire(), fire("b", severity="info")))
    ledger.execute("UPDATE notices SET notice = '{\"kind\": \"sung\"}' WHERE key = 'b-fire'")
    whole, short = (one.notice for one in read_waiting(ledger))
    assert whole == fire()
    assert (short.key, short.severity, short.channels) == ("b-fire", "info", ("phone",))
    assert short.title == "An alert from another version of trainmon-tui"
    assert "b-fire: fired" in short.lines[0]


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    broken = AlertChanges(at=NOW, alerts=(alert(),), notices=(fire(), fire("b", at=None)))
    with opened(tmp_path) as (made, _):
        answer = made.transact(lambda work: transaction(broken).write(work, NOW), lambda: None)
        assert answer.done.wait(40)
        assert answer.error is not None
        assert (
            plain(made.file, "SELECT count(*) FROM alerts") == plain(made.file, "SELECT count(*) FROM outbox") == [(0,)]
        )
        good = made.transact(lambda work: transaction(replace(broken, notices=())).write(work, NOW), lambda: None)
        assert good.done.wait(40)
        assert good.error is None
        assert plain(made.file, "SELECT count(*) FROM alerts") == [(1,)]


def test_what_was_being_sent_and_what_reached_nobody_waits_again(ledger: sqlite3.Connection) -> None:
    write(ledger, notices=tuple(fire(name, "phone", "mail") for name in "abcd"))
    marks = (
        mark("a", "leased"), mark("a", "sent", "mail"),
        mark("b", "dead"), mark("b", "merged", "mail"),
        mark("c", "dead"), mark("c", "dead", "mail"),
        mark("d", "stopped"), mark("d", "sent", "mail"),
    )  # fmt: skip
    transaction(marks=marks).write(ledger, NOW)
    assert count(ledger, NOW - DAY) == (1, NOW, 3)
    waiting = [(one.notice.key, one.channel) for one in take_over(ledger, NOW + 300 * DAY)]
    assert sorted(waiting) == [("a-fire", "phone"), ("c-fire", "mail"), ("c-fire", "phone")]
    assert [(one.notice.key, one.channel) for one in read_waiting(ledger)] == waiting


def test_what_is_old_is_forgotten_but_never_what_is_open_or_waits(ledger: sqlite3.Connection) -> None:
    over = alert(id="over", phase="resolved", resolved_at=NOW)
    write(ledger, alerts=(alert(), over), notices=(fire(), fire("b")), silences=(silence(),))
    transaction(history=(HistoryLine(NOW, "a", "fired", "it began"),), marks=(mark("b", "sent"),)).write(ledger, NOW)
    for prune in (prune_alerts, prune_outbox):
        prune(ledger, NOW + 2 * DAY)
    tables = ("alerts", "alert_history", "outbox", "notices", "silences")
    left = {name: ledger.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    assert left == {"alerts": 1, "alert_history": 0, "outbox": 1, "notices": 1, "silences": 0}
    assert [one.notice.key for one in read_waiting(ledger)] == ["a-fire"]


def test_what_was_sent_is_counted_also_when_it_is_forgotten(ledger: sqlite3.Connection) -> None:
    notices = tuple(fire(name, "phone", "on call") for name in "abc")
    marks = (mark("a", "sent"), mark("b", "sent"), mark("a", "dead", "on call"))
    transaction(AlertChanges(at=NOW, notices=notices), marks=marks).write(ledger, NOW)
    expected = {"sent phone": 2, "dead on call": 1}
    assert read_totals(ledger, NOW)["notifications"] == expected
    prune_outbox(ledger, NOW - DAY, limit=1)
    prune_outbox(ledger, NOW + DAY)
    assert ledger.execute("SELECT count(*) FROM outbox WHERE state IN ('sent', 'dead')").fetchone() == (0,)
    assert read_totals(ledger, NOW)["notifications"] == expected
    transaction(marks=(mark("c", "sent"),)).write(ledger, NOW)
    prune_outbox(ledger, NOW + DAY)
    assert read_totals(ledger, NOW)["notifications"] == expected | {"sent phone": 3}
    assert read_stored_alerts(ledger, NOW).memory == {}, "the alerts do not know these counts"


def test_what_was_given_up_stays_counted_when_the_next_program_sends_it(ledger: sqlite3.Connection) -> None:
    marks = (mark("a", "dead"), mark("b", "sent"))
    transaction(AlertChanges(at=NOW, notices=(fire("a", "phone"), fire("b", "phone"))), marks=marks).write(ledger, NOW)
    expected = {"dead phone": 1, "sent phone": 1}
    assert read_totals(ledger, NOW)["notifications"] == expected
    assert [one.notice.key for one in take_over(ledger, NOW)] == ["a-fire"]
    assert read_totals(ledger, NOW)["notifications"] == expected
    transaction(marks=(mark("a", "sent"),)).write(ledger, NOW)
    assert read_totals(ledger, NOW)["notifications"] == {"dead phone": 1, "sent phone": 2}
    prune_outbox(ledger, NOW + DAY)
    assert read_totals(ledger, NOW)["notifications"] == {"dead phone": 1, "sent phone": 2}


def test_a_ledger_from_before_alerts_is_brought_up_and_keeps_what_it_had(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    before = sqlite3.connect(file, isolation_level=None)
    for statement in MIGRATIONS[0]:
        before.execute(statement)
    before.execute("PRAGMA user_version = 1")
    before.execute("INSERT INTO action_texts VALUES ('a1', 'log', 'h', '/l', 1.0, 'the end')")
    assert alerts_now(tmp_path, NOW) == AlertsNow()
    assert recent_actions(tmp_path, 0.0, 9) == []
    assert submit_request(tmp_path, order()) > 0
    assert before.execute("SELECT text FROM action_texts").fetchall() == [("the end",)]
    before.close()


def test_requests_are_numbered_and_never_given_a_number_twice(tmp_path: Path, ledger: sqlite3.Connection) -> None:
    first, second = submit_request(tmp_path, order()), submit_request(tmp_path, order(via="phone"))
    assert second == first + 1
    assert read_requests(ledger, first) == [(second, order(via="phone"))]
    prune_alerts(ledger, NOW + DAY)
    assert submit_request(tmp_path, order()) == second + 1
    assert submit_request(tmp_path / "anew", order(at=NOW + 60.0)) > second + 1, "orders to a ledger begun anew are new"


def test_a_month_of_flapping_is_bounded_and_takes_nothing_that_is_open_or_waits(ledger: sqlite3.Connection) -> None:
    write(ledger, alerts=(alert(id="open"),), notices=(fire("open"),))
    for number in range(300):
        name, at = f"f{number:03d}", NOW + number * 60
        over = alert(id=name, phase="resolved", resolved_at=at)
        line = HistoryLine(at, name, "fired", "it began")
        changes = AlertChanges(at=at, alerts=(over,), notices=(fire(name),))
        transaction(changes, marks=(mark(name, "sent"),), history=(line,)).write(ledger, at)
    prune_alerts(ledger, NOW - 90 * DAY, resolved=100, lines=100)
    prune_outbox(ledger, NOW - 90 * DAY, limit=100)
    tables = ("alerts", "alert_history", "outbox", "notices")
    left = {name: ledger.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}
    assert left == {"alerts": 101, "alert_history": 100, "outbox": 101, "notices": 101}
    assert [one.notice.key for one in read_waiting(ledger)] == ["open-fire"]
    assert ledger.execute("SELECT min(id) FROM alerts WHERE phase = 'resolved'").fetchone() == ("f200",)


def test_what_a_worker_has_is_in_a_ledger_that_was_begun_anew_as_soon_as_it_is_marked(
    ledger: sqlite3.Connection,
) -> None:
    transaction(marks=(mark("a", "waiting"), mark("b", "sent"))).write(ledger, NOW)
    assert [(one.notice, one.channel, one.attempts) for one in read_waiting(ledger)] == [(fire(), "phone", 1)]
    assert ledger.execute("SELECT key, state FROM outbox WHERE state = 'sent'").fetchall() == [("b-fire", "sent")]


def test_a_request_to_a_ledger_that_cannot_be_written_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"no database at all, and long enough to be looked at" * 40)
    text = "it is not a ledger, or it is damaged; move it away, and a new one is created"
    with pytest.raises(LedgerStuck, match=text):
        submit_request(tmp_path, order())
    with pytest.raises(LedgerStuck, match="it is not a ledger, or it is damaged"):
        alerts_now(tmp_path, NOW)


def test_others_see_alerts_with_what_became_of_their_notifications(tmp_path: Path, ledger: sqlite3.Connection) -> None:
    write(ledger, alerts=(alert(id="a"),), notices=(fire("a", "phone", "mail", "pager"),))
    marks = (mark("a", "sent", sent_at=NOW + 1, answer="200"), mark("a", "waiting", "mail", answer="no route to host"))
    transaction(marks=marks, history=(HistoryLine(NOW, "a", "fired", "it began"),)).write(ledger, NOW)
    found = alerts_now(tmp_path, NOW + 5)
    delivery = {one.channel: (one.state, one.at, one.answer) for one in found.stored.alerts[0].delivery}
    assert delivery == {
        "phone": ("sent", NOW + 1, "200"),
        "mail": ("retrying", NOW, "no route to host"),
        "pager": ("waiting", NOW, None),
    }
    assert (found.outbox.waiting, found.outbox.oldest_at, found.outbox.dead) == (2, NOW, 0)
    assert alert_history(tmp_path, 0.0, 9) == [HistoryLine(NOW, "a", "fired", "it began")]


def note(name: str, at: float, *, host: str = "bastion", pid: int = 1, boot_id: str = "b1") -> LeaderNote:
    holder = Holder(pid=pid, host=host, boot_id=boot_id, name=name)
    source = SourceNote(name="node:gpu-001", kind="node", health="ok")
    return LeaderNote(holder=holder, started_at=at, written_at=at, sources=(source,))


def test_a_row_is_one_programs_for_as_long_as_it_is_renewed(ledger: sqlite3.Connection) -> None:
    first, second = note("first", NOW), note("second", NOW + 1, host="laptop")
    assert claim_row(ledger, first) is None
    assert claim_row(ledger, second) == first
    renewed = replace(first, last_tick_at=NOW + 9)
    assert claim_row(ledger, renewed) is None
    assert claim_row(ledger, second, sign_of(first)) == renewed, "it has evaluated meanwhile"
    assert (is_row_of(ledger, "first"), is_row_of(ledger, "second")) == (True, False)
    assert claim_row(ledger, second, sign_of(renewed)) is None, "it has not"
    assert read_note(ledger) == second
    assert claim_row(ledger, first, sign_of(renewed)) == second, "only one takes it over"
    assert transaction(note=first).write(ledger, NOW, "first") is None, "nothing is written for one that lost it"
    release_row(ledger, "second")
    assert claim_row(ledger, first) is None


def test_no_clock_of_another_machine_is_believed(ledger: sqlite3.Connection) -> None:
    first = note("first", NOW - 86_400)
    assert claim_row(ledger, first) is None
    assert claim_row(ledger, note("second", NOW, host="laptop")) == first


def test_a_process_of_this_machine_that_is_gone_holds_no_row() -> None:
    asker = Holder(pid=1, host="bastion", boot_id="b1", name="x")
    assert is_row_held(note("y", NOW, pid=1), asker, NOW + 1)
    assert not is_row_held(note("y", NOW, pid=2**22 - 1), asker, NOW + 1)
    assert not is_row_held(note("y", NOW, pid=1, boot_id="b0"), asker, NOW + 1), "another start of the machine"
    assert is_row_held(note("y", NOW, pid=2**22 - 1, host="laptop", boot_id="b2"), asker, NOW + 1)
    assert not is_row_held(note("y", NOW, host="laptop", boot_id="b2"), asker, NOW + ROW_LEASE + 1)
    assert not is_row_held(note("y", NOW, host="laptop", boot_id="b2"), asker, NOW - ROW_LEASE - 1), "clocks differ"


def test_a_ledger_that_is_not_there_has_no_leader(tmp_path: Path) -> None:
    assert alerts_now(tmp_path / "none", NOW).leader is None
    assert alerts_now(tmp_path / "none", NOW) == AlertsNow()
    assert not (tmp_path / "none").exists()
