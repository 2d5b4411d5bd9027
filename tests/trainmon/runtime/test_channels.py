"""The channels of the config as senders: secrets from elsewhere, and mistakes in words that hold no secret."""

from __future__ import annotations

import contextlib
import logging
import re
import tomllib
from pathlib import Path

import pytest

from tests.lab.ntfy_server import NtfyServer, error
from tests.lab.receiver import CUT, DIE, WELL, status
from tests.trainmon.alerting.notify.samples import message
from trainmon.alerting.notify.channels.alertmanager import Alertmanager
from trainmon.alerting.notify.channels.apprise.sender import Apprise
from trainmon.alerting.notify.channels.command import Command
from trainmon.alerting.notify.channels.desktop import Desktop
from trainmon.alerting.notify.channels.healthchecks import Healthchecks
from trainmon.alerting.notify.channels.ntfy import Ntfy
from trainmon.alerting.notify.channels.webhook import Webhook
from trainmon.alerting.notify.message import Broken, Retry
from trainmon.config import NotifySettings, routes_of
from trainmon.config.decode import decode
from trainmon.lib import ConfigError
from trainmon.model import Route
from trainmon.runtime.alert_service import GUESSABLE, NO_BUTTON, listeners, senders

ALL = """
[[notify]]
type = "ntfy"
name = "phone"
topic = "env:TOPIC"
token = "file:{folder}/token"
reply_token = "tk_reply"
severity = "critical"
[[notify]]
type = "webhook"
url = "env:HOOK"
headers = {{ Authorization = "env:AUTH" }}
after = "10m"
runs = ["video-2b"]
resolved = false
[[notify]]
type = "alertmanager"
url = "http://am.test:9093/hunter2"
user = "ana"
password = "env:PASSWORD"
[[notify]]
type = "healthchecks"
url = "https://hc.test/hunter2"
heartbeat = false
[[notify]]
type = "command"
command = ["/usr/bin/tell", "--now"]
[[notify]]
type = "desktop"
[[notify]]
type = "apprise"
name = "mail"
url = "env:MAIL"
fallback = true
"""
ENVIRON = {
    "TOPIC": "ops-hunter2-x7Kq2mP9vLw4",
    "HOOK": "https://hunter2@hooks.test/hunter2",
    "AUTH": "Bearer hunter2",
    "PASSWORD": "hunter2",
    "MAIL": "mailto://ann:hunter2@mail.test",
}


def settings(text: str) -> tuple[NotifySettings, ...]:
    found, problems = decode(tomllib.loads(text), "trainmon.toml")
    assert found is not None, problems
    return found.notify


@pytest.fixture
def every(tmp_path: Path) -> tuple[NotifySettings, ...]:
    (tmp_path / "token").write_text("tk_hunter2\n")
    return settings(ALL.format(folder=tmp_path))


def test_each_table_becomes_its_channel(every: tuple[NotifySettings, ...]) -> None:
    made = senders(every, environ=ENVIRON)
    assert [type(sender) for sender in made] == [Ntfy, Webhook, Alertmanager, Healthchecks, Command, Desktop, Apprise]
    result = [(sender.health.name, sender.health.type, sender.health.target) for sender in made]
    assert result == [
        ("phone", "ntfy", "ntfy.sh/***"),
        ("webhook", "webhook", "hooks.test"),
        ("alertmanager", "alertmanager", "am.test:9093"),
        ("healthchecks", "healthchecks", "hc.test"),
        ("command", "command", "/usr/bin/tell"),
        ("desktop", "desktop", "this machine"),
        ("mail", "apprise", "mailto://***"),
    ]
    assert "hunter2" not in repr([sender.health for sender in made])


def test_each_table_becomes_its_route(every: tuple[NotifySettings, ...]) -> None:
    phone, hook, _am, check, *_, mail = routes_of(every)
    assert phone == Route(channel="phone", severity="critical")
    assert hook == Route(channel="webhook", after=600.0, runs=("video-2b",), resolved=False)
    assert (check.heartbeat, mail.fallback) == (False, True)


def test_every_secret_that_is_missing_is_reported_at_once(every: tuple[NotifySettings, ...], tmp_path: Path) -> None:
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError) as caught:
        senders(every, environ={"HOOK": "", "MAIL": "hunter2", "AUTH": "a\nb"})
    assert caught.value.problems == [
        '[[notify]] #1 (phone): "topic" names the environment variable TOPIC, which is not set',
        '[[notify]] #1 (phone): "token" names a file that does not exist',
        '[[notify]] #2 (webhook): "url" names the environment variable HOOK, which is empty',
        '[[notify]] #2 (webhook): "headers.Authorization" contains control characters; a secret must be one line',
        '[[notify]] #3 (alertmanager): "password" names the environment variable PASSWORD, which is not set',
        '[[notify]] #7 (mail): "url" must be a URL of apprise, such as "slack://…" or "mailto://…"',
    ]


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"TOPIC": "hunter 2"}, '"topic" must have 1 to 64 characters: letters, digits, - and _'),
        ({"HOOK": "hooks.test/hunter2"}, '"url" must be a URL such as "https://host/path"'),
        ({"HOOK": "ftp://hooks.test/hunter2"}, '"url" must be a URL such as "https://host/path"'),
        ({"HOOK": "https://"}, '"url" must be a URL such as "https://host/path"'),
    ],
)
def test_a_bad_secret_is_reported_and_never_repeated(
    every: tuple[NotifySettings, ...], environ: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        senders(every, environ=ENVIRON | environ)
    assert [re.sub(r"^\[\[notify\]\] #\d \(\w+\): ", "", result) for result in caught.value.problems] == [problem]
    assert "hunter2" not in str(caught.value)


def note(text: str) -> str | None:
    (sender,) = senders(settings(f'[[notify]]\ntype = "ntfy"\n{text}'), environ={})
    return sender.health.note


def test_a_topic_that_can_be_guessed_gets_a_note() -> None:
    assert note('topic = "video-alerts"') == GUESSABLE
    assert note('topic = "video-x7Kq2mP9vLw4"') is None
    assert note('topic = "video-alerts"\nserver = "https://ntfy.example.org"') is None


def test_a_login_without_one_for_the_button_gets_a_note() -> None:
    assert note('topic = "video-alerts"\ntoken = "tk_a"') == NO_BUTTON
    assert note('topic = "video-alerts"\ntoken = "tk_a"\nreply_token = "tk_b"') is None
    assert note('topic = "video-alerts"\ntoken = "tk_a"\nacknowledge = false') is None


def test_a_service_with_later_receipts_gets_a_note() -> None:
    (sender,) = senders(settings('[[notify]]\ntype = "apprise"\nurl = "pover://user@token"'), environ={})
    assert sender.health.note == "Pushover reports delivery later; that report is not read yet"


def test_a_service_that_apprise_does_not_know_is_refused() -> None:
    wrong = settings('[[notify]]\ntype = "apprise"\nname = "chat"\nurl = "slakc://hunter2/b/c"')
    assert senders(wrong, environ={})
    with pytest.raises(ConfigError) as caught:
        senders(wrong, environ={}, ask=True)
    assert caught.value.problems == [
        '[[notify]] #1 (chat): "url": apprise knows no service slakc://; did you mean slack://?'
    ]
    right = settings('[[notify]]\ntype = "apprise"\nname = "chat"\nurl = "mailto://ann:hunter2@mail.test"')
    assert senders(right, environ={}, ask=True)


def test_what_phones_answer_is_read_where_there_is_a_button(every: tuple[NotifySettings, ...], tmp_path: Path) -> None:
    made = senders(every, environ=ENVIRON, state_directory=tmp_path)
    (replies,) = listeners(made, lambda _: None, state_directory=tmp_path)
    assert replies._channel is made[0]
    again = senders(every, environ=ENVIRON, state_directory=tmp_path)
    assert isinstance(made[0], Ntfy)
    assert isinstance(again[0], Ntfy)
    assert made[0].reply_topic == again[0].reply_topic, "old buttons work after a restart"


def test_a_reply_topic_of_ones_own_is_used() -> None:
    text = '[[notify]]\ntype = "ntfy"\ntopic = "a1b2"\nreply_topic = "env:REPLY"'
    (sender,) = senders(settings(text), environ={"REPLY": "answers-hunter2"})
    assert isinstance(sender, Ntfy)
    assert sender.reply_topic == "answers-hunter2"


def test_a_whole_channel_from_its_config_to_the_server(tmp_path: Path) -> None:
    with NtfyServer.start(users={"ann": "pw"}) as server:
        text = f'[[notify]]\ntype = "ntfy"\nserver = "{server.url}/"\ntopic = "env:T"\nuser = "ann"\npassword = "env:P"'
        (sender,) = senders(settings(text), environ={"T": "ops", "P": "pw"}, state_directory=tmp_path)
        assert isinstance(sender, Ntfy)
        sender.check(10)
        sender.send(message(), 10)
        assert server.of("ops")[0].title == "CODE RED video-2b: run-dead"


def test_no_log_holds_a_secret_whatever_happens(
    every: tuple[NotifySettings, ...], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even with the libraries' own details on."""
    caplog.set_level(logging.DEBUG)
    logging.getLogger().setLevel(logging.DEBUG)
    with NtfyServer.start(tokens=("tk_hunter2",)) as server:
        environ = ENVIRON | {
            "HOOK": f"{server.url}/hunter2",
            "SERVER": server.url,
            "MAIL": "mailto://ann:hunter2@127.0.0.1:1",
        }
        text = ALL.format(folder=tmp_path).replace('topic = "env:TOPIC"', 'topic = "env:TOPIC"\nserver = "env:SERVER"')
        made = senders(settings(text.replace("https://hc.test", server.url)), environ=environ)
        (replies,) = listeners(made, lambda _: None)
        replies.start()
        answers = [WELL, status(500), error(42908), CUT, DIE]
        for sender in made:
            for answer in answers if sender.health.type != "apprise" else [WELL]:
                server.script(answer)
                with contextlib.suppress(Retry, Broken):
                    sender.send(message(), 10)
        replies.stop()
    assert len(server.requests) > 15
    lines = [record.getMessage() + (record.exc_text or "") for record in caplog.records]
    assert not [words for words in lines if "hunter2" in words or (made[0].reply_topic or "-") in words]
