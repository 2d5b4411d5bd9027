"""`status`, `ack` and `rules` by a ledger alone: what they say, and with which exit status."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from tests.trainmon.cli.test_main import trainmon
from trainmon.alerting.rules import RULES
from trainmon.cli.alerts import MAX_AGE, MAX_AGE_BY_CRON, code, contract, find_alert, lines, unmatched
from trainmon.engine.snapshot import read_status
from trainmon.ledger.lease import Holder, LeaderNote, LeaderNow, SourceNote
from trainmon.ledger.reader import AlertsNow
from trainmon.model import Alert, Channel, StoredAlerts

NOW = 1_900_000_000.0
NOTE = LeaderNote(
    holder=Holder(pid=4711, host="bastion"), program="alerts-only", started_at=NOW - 3_600, last_tick_at=NOW - 3,
    written_at=NOW - 3, sources=(SourceNote(name="node:n0", kind="node", health="down", error="no route"),),
)  # fmt: skip
LOST = Alert(
    id="abcdefgh", rule="gpu-lost", subject="gpu:n0/1", severity="critical", summary="GPU 1 is lost",
    since=NOW - 60, found_at=NOW, phase="firing",
)  # fmt: skip

PENDING = replace(LOST, phase="pending")


def known(*alerts: Alert, held: bool = True, program: str = "alerts-only", age: float = 3.0) -> AlertsNow:
    note = replace(NOTE, program=program, last_tick_at=NOW - age)
    return AlertsNow(
        stored=StoredAlerts(alerts=alerts), leader=LeaderNow(note=note, is_held=held),
        channels=(Channel(name="phone", type="ntfy", target="ntfy.sh/***", state="ok", sent_at=NOW - 5),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (known(), 0),
        (known(LOST), 1),
        (known(PENDING), 0),
        (known(PENDING, held=False, program="once"), 1),
        (known(replace(PENDING, rule="gpu-hot"), held=False, program="once"), 0),
        (known(held=False), 3),
        (known(LOST, held=False), 3),
        (known(age=MAX_AGE + 1), 3),
        (known(held=False, program="once", age=MAX_AGE + 1), 0),
        (known(held=False, program="once", age=MAX_AGE_BY_CRON + 1), 3),
        (AlertsNow(), 3),
    ],
)
def test_the_exit_status_says_whether_to_worry(found: AlertsNow, status: int) -> None:
    assert code(found, NOW) == status


def test_people_read_who_watches_what_is_wrong_and_what_fires() -> None:
    text = "\n".join(lines(known(LOST), NOW))
    assert text.startswith("alerts-only (pid 4711 on bastion), running since ")
    assert "; last check 3s ago" in text
    assert "sources: 0 of 1 responding; node:n0 down: no route" in text
    assert "channel phone (ntfy) ok, sent " in text
    assert "abcdefgh  critical  firing  1m   gpu-lost  GPU 1 is lost" in text


def test_people_read_why_what_fires_was_not_sent() -> None:
    (row,) = (line for line in lines(known(replace(LOST, flapping=True)), NOW) if line.startswith("abcdefgh"))
    assert row.endswith("GPU 1 is lost  flapping")


def test_people_read_how_much_of_its_daily_budget_a_channel_has_used() -> None:
    phone = Channel(name="phone", type="ntfy", state="ok", sent_at=NOW - 5, sent_in_day=141, per_day=200)
    text = "\n".join(lines(replace(known(LOST), channels=(phone,)), NOW))
    assert " (141 of 200 messages in 24h)" in text


def test_a_watch_that_records_nothing_is_not_called_nobody() -> None:
    hidden = AlertsNow(is_locked=True)
    assert code(hidden, NOW) == 3
    text = "\n".join(lines(hidden, NOW))
    assert text.startswith("a daemon or a dashboard runs\n! it does not write its status: is the ledger's disk full")
    assert "or has a newer trainmon-tui migrated it?" in text
    assert "last check 2m ago\n! the last recorded check was 2m ago; the program hangs or cannot write" in "\n".join(
        lines(known(age=120.0), NOW)
    )


def test_a_source_that_was_not_polled_yet_is_not_called_silent() -> None:
    note = replace(NOTE, sources=(SourceNote(name="node:n0", kind="node", health="late"),))
    text = "\n".join(lines(AlertsNow(leader=LeaderNow(note=note, is_held=True)), NOW))
    assert "sources: 0 of 1 responding; node:n0 late: no data yet" in text


def test_what_is_muted_and_not_there_may_be_a_slip_of_the_pen() -> None:
    note = replace(NOTE, sources=(SourceNote(name="node:gpu-1", kind="node", health="ok"),))
    present = AlertsNow(stored=StoredAlerts(alerts=(LOST,)), leader=LeaderNow(note=note, is_held=True))
    assert list(unmatched(present, "gpu:n0/2", "gpu-11")) == [
        'no open alert has the subject "gpu:n0/2"; did you mean "gpu:n0/1"?',
        'no node "gpu-11" is watched; did you mean "gpu-1"?',
    ]
    assert list(unmatched(present, "gpu:n0/1", "gpu-1")) == []
    assert list(unmatched(AlertsNow(), None, "gpu-11")) == []


def test_another_machine_reads_back_what_is_printed() -> None:
    read = read_status(json.dumps(contract(known(LOST), NOW)))
    assert (read.version, read.leader.pid, read.leader.host, read.leader.last_tick_at) == (
        1,
        4711,
        "bastion",
        NOW - 3,
    )
    assert read.alerts == (LOST,)
    assert [channel.name for channel in read.channels] == ["phone"]


def test_an_alert_is_named_by_its_id_its_beginning_or_its_subject() -> None:
    other = Alert(
        id="abzzzzzz", rule="xid", subject="gpu:n0/1", severity="warning", summary="", since=1.0, found_at=1.0
    )
    assert find_alert([LOST, other], "abcdefgh") is LOST
    assert find_alert([LOST, other], "abc") is LOST
    assert find_alert([LOST], "gpu:n0/1") is LOST
    with pytest.raises(click.UsageError, match=r'"ab" matches several alerts: abcdefgh \(gpu-lost\), abzzzzzz \(xid\)'):
        find_alert([LOST, other], "ab")
    with pytest.raises(click.UsageError, match='no open alert "gpu:n0/2"; did you mean "gpu:n0/1"'):
        find_alert([LOST], "gpu:n0/2")


def test_rules_are_listed_as_the_config_sets_them(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text(
        '[[rule]]\ntype = "gpu-lost"\nhold = "0s"\n[[rule]]\ntype = "xid"\nenabled = false\n'
    )
    listed = trainmon("rules", "--config", "c.toml", cwd=tmp_path, HOME=str(tmp_path))
    rows = {line.split()[0]: line for line in listed.stdout.splitlines()[1:]}
    assert list(rows) == [rule.name for rule in RULES]
    assert rows["gpu-lost"].split()[1] == "0s"
    assert 'for = "0s"' in rows["gpu-lost"]
    assert rows["xid"].split()[1] == "off"
    one = trainmon("rules", "gpu-lost", "--config", "c.toml", cwd=tmp_path, HOME=str(tmp_path))
    assert one.stdout.startswith("gpu-lost: ")
    found = json.loads(trainmon("rules", "--json", "--config", "c.toml", cwd=tmp_path, HOME=str(tmp_path)).stdout)
    (lost,) = (rule for rule in found if rule["name"] == "gpu-lost")
    assert lost["settings"]["for"]["value"] == 0.0
    assert lost["settings"]["hold"] == lost["settings"]["for"], "whoever reads the old name still finds it"
    assert lost["settings"]["hold"]["default"] > 0
    wrong = trainmon("rules", "gpu-lots", cwd=tmp_path, HOME=str(tmp_path))
    assert wrong.returncode == 2
    assert 'no rule "gpu-lots"; did you mean "gpu-lost"?' in wrong.stderr
