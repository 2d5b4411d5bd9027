"""No channel's secret in a log, however much is logged, in an event, in the ledger, or among a child's arguments."""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.ntfy_server import NtfyServer, error
from tests.lab.receiver import CUT, HANG, Answer, status
from tests.lab.smtp import MailServer
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.alerting.notify.delivery.scene import Scene, opened, until
from tests.trainmon.alerting.notify.samples import notice
from trainmon.alerting.notify.message import Sender
from trainmon.config.decode import decode
from trainmon.runtime.alert_service import senders

CONFIG = """
[[notify]]
type = "ntfy"
server = "{ntfy}"
topic = "hunter2-topic"
token = "tk_hunter2hunter2hunter2hunter2hun"
reply_topic = "hunter2-replies"
[[notify]]
type = "webhook"
url = "{hook}/hunter2-path?token=hunter2-query"
[notify.headers]
Authorization = "Bearer hunter2-bearer"
[[notify]]
type = "alertmanager"
url = "{hook}/hunter2-alertmanager"
user = "hunter2-user"
password = "hunter2-password"
[[notify]]
type = "healthchecks"
url = "{hook}/hunter2-check"
[[notify]]
type = "apprise"
name = "mail"
url = "{mail}"
[[notify]]
type = "apprise"
name = "other"
url = "jsons://hunter2-user:hunter2-pass@127.0.0.1:{port}/hunter2-rest"
[[notify]]
type = "command"
command = ["sh", "-c", "cat > /dev/null; echo 'token=hunter2-command' >&2; exit 75"]
"""
NAMES = ("ntfy", "webhook", "alertmanager", "healthchecks", "mail", "other", "command")


def made(ntfy: NtfyServer, hook: WebhookReceiver, mail: MailServer, folder: Path) -> tuple[Sender, ...]:
    text = CONFIG.format(ntfy=ntfy.url, hook=hook.url, mail=mail.url, port=hook.port)
    settings, problems = decode(tomllib.loads(text), "trainmon.toml")
    assert settings is not None, problems
    return senders(settings.notify, environ={}, state_directory=folder)


def kept(folder: Path) -> Iterator[str]:
    for file in folder.iterdir():
        if file.is_file() and file.name != "ntfy-replies.json":
            yield file.read_bytes().decode(errors="replace")


def events_text(scene: Scene) -> str:
    return repr(scene.events)


@pytest.mark.parametrize(
    ("answer", "reply", "mail"),
    [
        (error(40301), status(404, {"error": "no such path"}), "550 no"),
        (CUT, CUT, "cut"),
        pytest.param(error(50001), status(500), "451 later", marks=pytest.mark.slow),
        (Answer(), Answer(), ""),
    ],
    ids=["refused", "cut", "later", "taken"],
)
def test_no_secret_leaks_whatever_a_channel_meets(
    answer: Answer, reply: Answer, mail: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with NtfyServer.start() as ntfy, WebhookReceiver.start() as hook, MailServer.start() as post:
        ntfy.always(answer)
        hook.always(reply)
        post.always(mail)
        with opened(tmp_path, *made(ntfy, hook, post, tmp_path)) as scene:
            scene.enqueue(notice(key="a-fire", channels=NAMES))
            tried = "SELECT COUNT(*) FROM outbox WHERE attempts > 0 AND state != 'leased' AND key = 'a-fire'"
            until(lambda: scene.rows(tried)[0][0] >= len(NAMES), "each was tried")
            everything = caplog.text + events_text(scene)
        everything += "".join(kept(tmp_path))
    assert "hunter2" not in everything


def test_no_secret_is_among_the_arguments_of_a_child(tmp_path: Path) -> None:
    with NtfyServer.start() as ntfy, WebhookReceiver.start() as hook, MailServer.start() as post:
        hook.always(HANG)
        ntfy.always(HANG)
        with opened(tmp_path, *made(ntfy, hook, post, tmp_path)) as scene:
            scene.enqueue(notice(key="a-fire", channels=("other",)))
            until(lambda: any("apprise.child" in line for line in children()), "its child")
            assert not any("hunter2" in line for line in children())


def children() -> list[str]:
    pids = [pid for task in Path("/proc/self/task").iterdir() for pid in read(task / "children").split()]
    return [read(Path("/proc") / pid / "cmdline") for pid in pids]


def read(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes())
    except OSError:  # it has ended
        return ""
