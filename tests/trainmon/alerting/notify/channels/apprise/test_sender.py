"""The channel apprise: a real apprise in its child, a real mail server, and what it makes of their answers."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.lab.ntfy_server import NtfyServer, error
from tests.lab.receiver import CUT, status
from tests.lab.smtp import DIE, HANG, MailServer
from tests.lab.webhook_receiver import WebhookReceiver
from tests.trainmon.alerting.notify.channels.apprise.inside import Inside
from tests.trainmon.alerting.notify.samples import NOW, alert, message, notice, over
from trainmon.alerting.notify.channels.apprise.child import masked, message_id
from trainmon.alerting.notify.channels.apprise.sender import CHILD, Apprise, later, pages
from trainmon.alerting.notify.message import Attachment, Broken, Retry, Sent, render
from trainmon.model import Channel

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # apprise imports imghdr


def apprise(url: str, **settings: Any) -> Apprise:
    return Apprise(Channel(name="mail", type="apprise"), url=url, **settings)


@pytest.fixture
def mail() -> Iterator[MailServer]:
    with MailServer.start() as running:
        yield running


def test_a_mail_has_the_message_its_pictures_and_a_name_of_its_own(mail: MailServer) -> None:
    files = (
        Attachment(name="../../loss ä.png", media_type="image/png", data=b"\x89PNG curve"),
        Attachment(name="drawn.png", media_type="image/png", draw=lambda _: b"\x89PNG drawn"),
        Attachment(name="none.png", media_type="image/png", draw=lambda _: b""),
    )
    rendered = msgspec.structs.replace(message(notice(alert(summary="перегрев 🔥"))), attachments=files)
    assert apprise(mail.url).send(rendered, 20) == Sent()
    (got,) = mail.wait_for(1)
    assert got["subject"] == "CODE RED video-2b: run-dead"
    text = got.get_body(("plain",))
    assert text is not None
    assert text.get_content().strip().replace("\r", "") == rendered.body
    assert [part.get_payload(decode=True) for part in got.iter_attachments()] == [b"\x89PNG curve", b"\x89PNG drawn"]
    assert got["message-id"] == message_id(rendered.key, "127.0.0.1")
    assert mail.recipients == [("ops@lab.test",)]


def test_two_copies_of_a_message_have_one_message_id(mail: MailServer) -> None:
    mail.script(DIE)
    with pytest.raises(Retry):
        Inside(mail.url).send(message(), 20)
    Inside(mail.url).send(message(), 20)
    Inside(mail.url).send(message(over(alert())), 20)
    one, two, three = (got["message-id"] for got in mail.messages)
    assert one == two != three


def test_a_follow_up_by_mail_is_in_the_thread_of_its_first_message(mail: MailServer) -> None:
    first = notice(alert(), key="first")
    follow_up = notice(alert(thread="first", cause=("cause: cuda-oom, certain",)), key="second", kind="cause")
    Inside(mail.url).send(render([first], NOW), 20)
    Inside(mail.url).send(render([follow_up], NOW), 20)
    one, two = mail.messages
    assert two["in-reply-to"] == two["references"] == one["message-id"] != two["message-id"]
    assert two["subject"] == one["subject"]


def test_a_follow_up_by_mail_is_in_the_thread_of_the_message_that_had_its_first_notice_among_others(
    mail: MailServer,
) -> None:
    first, other = notice(alert(), key="first"), notice(alert(subject="gpu:gpu-001/5", id="b"), key="other")
    follow_up = notice(alert(thread="first", cause=("cause: cuda-oom, certain",)), key="second", kind="cause")
    Inside(mail.url).send(render([first, other], NOW), 20)
    Inside(mail.url).send(render([follow_up], NOW), 20)
    one, two = mail.messages
    assert two["references"] in one["references"].split(), "mail programs put both into one thread"


@pytest.mark.parametrize(
    ("answer", "error_", "words"),
    [
        ("451 4.7.1 greylisted", Retry, "the mail server answers 451 4.7.1 greylisted"),
        ("550 5.1.1 no such user", Broken, "the mail server answers 550 5.1.1 no such user"),
        ("cut", Retry, 'Sending email to "***" failed.'),
    ],
)
def test_what_a_mail_server_says_is_for_now_or_for_good(mail: MailServer, answer: str, error_: Any, words: str) -> None:
    mail.script(answer)
    with pytest.raises(error_) as caught:
        Inside(mail.url).send(message(), 20)
    assert caught.value.message == words
    assert not mail.messages


def test_a_mail_server_that_hangs_is_left_in_time(mail: MailServer) -> None:
    mail.always(HANG)
    with pytest.raises(Retry):
        apprise(mail.url).send(message(), 1)


def test_a_wrong_password_is_broken_and_not_repeated() -> None:
    with MailServer.start(login=("ann", "right-hunter2")) as mail:
        Inside(mail.url).send(message(), 20)
        with pytest.raises(Broken) as caught:
            Inside(mail.url.replace("right-hunter2", "wrong-hunter2")).send(message(), 20)
    assert caught.value.message.startswith("the mail server answers 535 ")
    assert "hunter2" not in str(caught.value)
    assert len(mail.messages) == 1


@pytest.mark.parametrize(
    ("answer", "error_"),
    [
        (error(42901), Retry),
        (status(502), Retry),
        (CUT, Retry),
        (error(40301), Broken),
        (status(404), Broken),
    ],
)
def test_statuses_are_found_in_what_apprise_logs(answer: Any, error_: Any) -> None:
    with NtfyServer.start() as server:
        server.script(answer)
        with pytest.raises(error_) as caught:
            Inside(f"ntfy://127.0.0.1:{server.port}/hunter2topic").send(message(), 20)
    assert "hunter2" not in str(caught.value)


def test_files_that_are_refused_do_not_cost_the_message() -> None:
    with WebhookReceiver.start() as receiver:
        receiver.script(status(413))
        files = (Attachment(name="curve.png", media_type="image/png", data=b"x" * 1_000),)
        rendered = msgspec.structs.replace(message(), attachments=files)
        apprise(f"json://127.0.0.1:{receiver.port}/").send(rendered, 20)
        assert receiver.messages[0]["title"] == "CODE RED video-2b: run-dead"
        assert receiver.messages[0]["attachments"] == []


def test_the_address_is_never_an_argument_nor_in_a_directory(mail: MailServer, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    spy = (
        "import pathlib, runpy\n"
        f"pathlib.Path({str(seen)!r}).write_bytes(pathlib.Path('/proc/self/cmdline').read_bytes())\n"
        "runpy.run_module('trainmon.alerting.notify.channels.apprise.child', run_name='__main__', alter_sys=True)\n"
    )
    apprise(mail.url, argv=(sys.executable, "-c", spy)).send(message(), 20)
    assert "runpy" in seen.read_text()
    assert str(mail.port) not in seen.read_text()
    assert not any(str(mail.port) in part for part in CHILD)


def test_a_child_that_dies_or_babbles_is_for_now_only(tmp_path: Path) -> None:
    for script, words in (
        ("import sys; sys.exit('Traceback mailto://u:hunter2@h')", "apprise's child ended with 1: Traceback "),
        ("print('hello')", "apprise's child ended with 0: "),
        ("import os; os.kill(os.getpid(), 9)", "apprise's child ended with -9: "),
    ):
        with pytest.raises(Retry) as caught:
            apprise("mailto://u:hunter2@h", argv=(sys.executable, "-c", script)).send(message(), 20)
        assert caught.value.message.startswith(words)
        assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mailto://ann:pass@host.test", None),
        ("slakc://a/b/c", "apprise knows no service slakc://; did you mean slack://?"),
        ("zzzz://hunter2", "apprise knows no service zzzz://"),
        ("slack://hunter2", "apprise cannot read what follows slack://; see its documentation of this service"),
    ],
)
def test_whether_there_is_such_a_service_is_known_without_sending(url: str, words: str | None) -> None:
    with nullcontext() if words is None else pytest.raises(Broken, match=f"^{re.escape(words)}$"):
        Inside(url).check(20)


def test_services_whose_receipts_come_later_say_so() -> None:
    assert later("twilio://a:b@c/d") == "Twilio reports delivery later; that report is not read yet"
    assert later("pover://a@b") == "Pushover reports delivery later; that report is not read yet"
    assert later("slack://a/b/c") is None


def test_several_recipients_in_one_address_are_warned_of() -> None:
    one, two = Inside("mailto://ann:pass@host.test"), Inside("mailto://ann:pass@host.test?to=bob@x.test,eve@x.test")
    one.check(20)
    two.check(20)
    assert one.health.note is None
    assert two.health.note == (
        "2 recipients in one address: when one cannot be reached, all get the message again; give each a [[notify]]"
    )


def test_a_pager_that_would_get_the_heartbeat_is_warned_of() -> None:
    assert pages("pagerduty://a@b") == "PagerDuty opens an incident for every heartbeat: set heartbeat = false"
    assert pages("slack://a/b/c") is None


def test_no_part_of_an_address_is_repeated() -> None:
    url = "https://user%40x.test:p%2Fss-hunter2@hooks.test/a1b2c3d4?token=tok-1234&to=me"
    for part in ("user@x.test", "p/ss-hunter2", "hooks.test", "a1b2c3d4", "tok-1234", "p%2Fss-hunter2"):
        assert masked(f"failed for {part}.", url) == "failed for ***."


def test_our_own_process_never_loads_apprise() -> None:
    heavy = "'apprise', 'requests', 'matplotlib', 'numpy', 'rich', 'textual'"
    script = (
        "import sys, trainmon.runtime.alert_service\n"
        "import trainmon.alerting.notify.plots.render, trainmon.alerting.notify.channels.healthchecks\n"
        f"print([name for name in ({heavy}) if name in sys.modules])"
    )
    rendered = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert rendered.stdout.strip() == "[]"
