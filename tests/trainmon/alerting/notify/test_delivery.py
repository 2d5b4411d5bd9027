"""Real channels and real receivers: every notification arrives, whatever one receiver does."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import msgspec

from tests.lab.ntfy_server import NtfyServer, error
from tests.lab.receiver import DIE, status
from tests.lab.smtp import HANG, MailServer
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.alerting.notify.delivery.scene import opened, until
from tests.trainmon.alerting.notify.samples import alert, notice
from trainmon.alerting.notify.message import Attachment, Sender
from trainmon.config.decode import decode
from trainmon.model import Notice
from trainmon.runtime.alert_service import senders

CHANNELS = """
[[notify]]
type = "ntfy"
name = "phone"
server = "{ntfy}"
topic = "ops"
[[notify]]
type = "webhook"
name = "hook"
url = "{hook}"
[[notify]]
type = "apprise"
name = "mail"
url = "{mail}"
"""


def channels(**places: str) -> tuple[Sender, ...]:
    settings, problems = decode(tomllib.loads(CHANNELS.format(**places)), "trainmon.toml")
    assert settings is not None, problems
    return senders(settings.notify, environ={})


def dead(name: str) -> Notice:
    """That a run is dead, for all three."""
    one = alert(id=name, subject=f"run:{name}", run=name, since=time.time() - 60)
    return notice(one, key=f"{name}-fire", at=time.time(), channels=("phone", "hook", "mail"), run=name)


def curve(_: tuple[Notice, ...]) -> tuple[Attachment, ...]:
    return (Attachment(name="loss.png", media_type="image/png", draw=lambda _: b"\x89PNG"),)


def test_a_mail_server_that_hangs_delays_neither_the_phone_nor_the_webhook(tmp_path: Path) -> None:
    with NtfyServer.start() as ntfy, WebhookReceiver.start() as hook, MailServer.start() as mail:
        mail.always(HANG)
        with opened(tmp_path, *channels(ntfy=ntfy.url, hook=hook.url, mail=mail.url), attach=curve) as scene:
            scene.enqueue(dead("a"))
            until(lambda: titles(ntfy) == ["CODE RED a: run-dead"], "the phone")
            scene.enqueue(dead("b"))
            until(lambda: titles(ntfy) == ["CODE RED a: run-dead", "CODE RED b: run-dead"], "the phone again")
            until(lambda: hook.keys == ["a-fire", "b-fire"], "the webhook")
            assert mail.messages == []
            mail.always("")
            until(lambda: mail.messages, "the mail")
            until(lambda: not scene.rows("SELECT 1 FROM outbox WHERE state NOT IN ('sent', 'merged')"), "all are told")
        files = [one.filename for one in ntfy.of("ops") if one.filename]
        assert set(files) == {"loss.png"}
        subjects = " ".join(str(one["subject"]) for one in mail.messages)
        assert "CODE RED a: run-dead" in subjects


def titles(ntfy: NtfyServer) -> list[str]:
    """Of the messages, without the files that follow them."""
    return [one.title for one in ntfy.of("ops") if not one.filename]


def test_each_arrives_at_least_once_and_a_second_copy_is_recognizable(tmp_path: Path) -> None:
    with NtfyServer.start() as ntfy, WebhookReceiver.start() as hook, MailServer.start() as mail:
        ntfy.script(error(50001), DIE)
        hook.script(DIE, status(503, retry_after="1"))
        mail.script("451 later")
        with opened(tmp_path, *channels(ntfy=ntfy.url, hook=hook.url, mail=mail.url)) as scene:
            scene.enqueue(dead("a"))
            until(lambda: scene.rows("SELECT state FROM outbox") == [("sent",)] * 3, "all three have it")
        assert hook.keys == ["a-fire", "a-fire"], "the copy of the one that died has the same key"
        assert len(ntfy.of("ops")) == 2
        assert len(mail.messages) == 1


def test_a_quota_that_is_used_up_is_stood_in_for_at_once(tmp_path: Path) -> None:
    with NtfyServer.start() as ntfy, WebhookReceiver.start() as hook, MailServer.start() as mail:
        ntfy.always(error(42908))
        with opened(tmp_path, *channels(ntfy=ntfy.url, hook=hook.url, mail=mail.url)) as scene:
            scene.enqueue(msgspec.structs.replace(dead("a"), channels=("phone",)))
            until(lambda: hook.messages, "the webhook stands in")
            until(lambda: any(name == "phone" and state == "dead" for name, state, _ in scene.deliveries))
        assert hook.messages[0]["alerts"][0]["labels"]["run"] == "a"
