"""`check`, of channels: each is told with what came back of a test, whatever the others do; no secret is shown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.ntfy_server import NtfyServer, error
from tests.lab.receiver import DIE, Receiver, status
from trainmon.cli.check.command import channel_rows
from trainmon.cli.check.watch import Row
from trainmon.config import Settings
from trainmon.config.load import load
from trainmon.lib import ConfigError
from trainmon.runtime.alert_service import ping_address

ONE = "only one channel (phone): when it fails, nobody is notified; add one that does not depend on it"
SWITCH = "no dead-man's switch: when this machine or this program dies, nobody is notified; set [heartbeat] ping"


@pytest.fixture
def ntfy() -> Iterator[NtfyServer]:
    with NtfyServer.start() as server:
        yield server


@pytest.fixture
def other() -> Iterator[Receiver]:
    with Receiver.start() as server:
        yield server


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TOPIC", "a-topic-of-chance-0b1c2d")


def settings(folder: Path, text: str) -> Settings:
    (folder / "c.toml").write_text(text)
    return load(folder / "c.toml")


def phone(ntfy: NtfyServer, topic: str = "env:TOPIC") -> str:
    return f'[[notify]]\ntype = "ntfy"\nname = "phone"\nserver = "{ntfy.url}"\ntopic = "{topic}"\n'


def cells(rows: list[Row]) -> list[tuple[str, str, str]]:
    return [(row.mark, row.what, row.text) for row in rows]


def test_with_nothing_configured_it_is_reported_who_is_not_notified() -> None:
    assert cells(list(channel_rows(Settings(), test=True))) == [
        ("note", "", "nobody is notified: the config has no [[notify]]"), ("note", "", SWITCH),
    ]  # fmt: skip


def test_without_notify_nothing_is_sent(tmp_path: Path, ntfy: NtfyServer) -> None:
    rows = cells(list(channel_rows(settings(tmp_path, phone(ntfy)), test=False)))
    assert rows[0] == ("ok", "phone", f"ntfy, 127.0.0.1:{ntfy.port}/***")
    assert ("note", "", ONE) in rows
    assert ("note", "", SWITCH) in rows
    assert ntfy.messages == []


def test_each_channel_gets_a_test_and_says_the_answer(tmp_path: Path, ntfy: NtfyServer, other: Receiver) -> None:
    hook = f'[[notify]]\ntype = "webhook"\nurl = "{other.url}/hook"\n[heartbeat]\nping = "{other.url}/switch"\n'
    found = settings(tmp_path, phone(ntfy) + hook)
    rows = cells(list(channel_rows(found, test=True)))
    (message,) = ntfy.messages
    assert message.title.endswith("a test of trainmon-tui")
    assert "If you read this, the channel phone works." in message.message
    assert ("ok", "phone", f"ntfy, 127.0.0.1:{ntfy.port}/***: accepted the test ({message.id})") in rows
    assert [row[0] for row in rows if row[1] == "webhook"] == ["ok"]
    assert ("ok", "ping", "accepted the test") in rows
    assert {request.path for request in other.taken} == {"/hook", "/switch/log"}
    assert not [row for row in rows if "dead-man" in row[2] or "one channel" in row[2]]
    assert rows[-1][2].startswith("a service may accept a message and not deliver it")


def test_a_server_that_is_no_alertmanager_is_found_without_a_test(
    tmp_path: Path, ntfy: NtfyServer, other: Receiver
) -> None:
    found = settings(tmp_path, phone(ntfy) + f'[[notify]]\ntype = "alertmanager"\nurl = "{other.url}"\n')
    about = f"alertmanager, 127.0.0.1:{other.port}"
    assert ("ok", "alertmanager", about) in cells(list(channel_rows(found, test=False)))
    assert [request.path for request in other.taken] == ["/api/v2/status"]
    other.always(status(404))
    wrong = next(row for row in channel_rows(found, test=False) if row.what == "alertmanager")
    assert (wrong.mark, wrong.text) == ("bad", f"{about}: 404 not found: is this an Alertmanager?")
    assert wrong.fix == "fix its [[notify]] in the config"


def test_a_reply_topic_that_cannot_be_read_is_named_beside_the_test_which_is_sent_all_the_same(
    tmp_path: Path,
) -> None:
    with NtfyServer.start(users={"ana": "hunter2"}, open_topics=("a-topic-of-chance-0b1c2d",)) as ntfy:
        rows = [row for row in channel_rows(settings(tmp_path, phone(ntfy)), test=True) if row.what == "phone"]
        (message,) = ntfy.messages
    about = f"ntfy, 127.0.0.1:{ntfy.port}/***"
    assert [(row.mark, row.text.partition(": 403")[0]) for row in rows] == [
        ("ok", f"{about}: accepted the test ({message.id})"),
        ("bad", f"{about}: its reply topic (of the button Acknowledge) cannot be read"),
    ]


def test_one_that_refuses_or_dies_says_so_and_the_others_are_reported(
    tmp_path: Path, ntfy: NtfyServer, other: Receiver
) -> None:
    ntfy.always(error(40301))
    other.always(DIE)
    hook = f'[[notify]]\ntype = "webhook"\nurl = "{other.url}/hunter2"\n[[notify]]\ntype = "command"\n'
    rows = list(channel_rows(settings(tmp_path, f'{phone(ntfy)}{hook}command = ["true"]\n'), test=True))
    marks = {row.what: row.mark for row in rows if row.subject == "channel"}
    assert marks == {"phone": "bad", "webhook": "bad", "command": "ok"}
    refused = next(row for row in rows if row.what == "phone")
    assert "forbidden" in refused.text
    assert refused.fix == "fix its [[notify]] in the config"
    assert "hunter2" not in repr(rows)
    assert "a-topic-of-chance" not in repr(rows)


def test_a_secret_that_is_not_there_is_reported_by_its_name_and_the_other_channels_are_tested(
    tmp_path: Path, ntfy: NtfyServer
) -> None:
    other = phone(ntfy).replace('"phone"', '"other"')
    rows = cells(list(channel_rows(settings(tmp_path, phone(ntfy, "env:NO_SUCH") + other), test=True)))
    assert rows[0] == (
        "bad", "",
        '[[notify]] #1 (phone): "topic" names the environment variable NO_SUCH, which is not set',
    )  # fmt: skip
    assert [row[:2] for row in rows[:2]] == [("bad", ""), ("ok", "other")]
    assert len(ntfy.messages) == 1


def test_a_ping_that_is_no_address_is_a_problem_before_the_daemon_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = settings(tmp_path, '[heartbeat]\nping = "env:PING"\n')
    monkeypatch.setenv("PING", "hc-ping.com/1234")
    must = 'must be a URL such as "https://host/path"'
    assert cells(list(channel_rows(found, test=False)))[0] == ("bad", "ping", f'"ping" {must}')
    with pytest.raises(ConfigError) as refused:
        ping_address(found)
    assert refused.value.problems == [f'[heartbeat]: "ping" {must}']
    monkeypatch.setenv("PING", "https://hc-ping.com/1234")
    assert cells(list(channel_rows(found, test=False)))[0][:2] == ("ok", "ping")
