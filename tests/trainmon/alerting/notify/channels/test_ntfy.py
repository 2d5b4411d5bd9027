"""The channel ntfy, against a server on loopback that answers as its documents say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.lab.ntfy_server import NtfyServer, error
from tests.lab.receiver import CUT, DIE, HANG, status
from tests.trainmon.alerting.notify.samples import NOW, TOKEN, alert, beat, message, notice, over
from trainmon.alerting.notify.channels.ntfy import Ntfy, header, is_guessable, login_of
from trainmon.alerting.notify.message import Attachment, Broken, Retry
from trainmon.model import Channel

TOPIC = "ops-x7Kq2mP9vLw4"
REPLY = "trainmon-reply-0a1b2c"


@pytest.fixture
def server() -> Iterator[NtfyServer]:
    with NtfyServer.start() as running:
        yield running


def ntfy(server: NtfyServer, **settings: Any) -> Ntfy:
    return Ntfy(Channel(name="phone", type="ntfy"), server=server.url, topic=TOPIC, **settings)


def test_a_message_arrives_with_its_priority_and_an_acknowledge_button(server: NtfyServer) -> None:
    sent = ntfy(server, reply_topic=REPLY).send(message(), 10)
    (stored,) = server.of(TOPIC)
    assert sent.answer == stored.id
    assert (stored.title, stored.priority, stored.tags) == ("CODE RED video-2b: run-dead", 5, ("rotating_light",))
    assert stored.message == message().body
    (button,) = stored.actions
    assert (button["label"], button["url"], button["body"]) == (
        "Acknowledge",
        f"{server.url}/{REPLY}",
        f"ack k3v9x2ab {TOKEN}",
    )


def test_it_is_the_json_form_in_utf_8(server: NtfyServer) -> None:
    ntfy(server).send(message(notice(alert(run="видео", summary="перегрев 🔥"))), 10)
    (request,) = server.requests
    assert (request.method, request.path) == ("POST", "/")
    assert "перегрев 🔥" in request.body.decode()
    assert server.messages[0].title == "CODE RED видео: run-dead"


@pytest.mark.parametrize(
    ("stored", "priority", "tag"),
    [
        (message(notice(alert(severity="warning"), severity="warning")), 4, "warning"),
        (message(notice(alert(severity="info"), severity="info")), 3, "information_source"),
        (message(over(alert())), 3, "white_check_mark"),
        (message(beat()), 2, "green_heart"),
    ],
    ids=["warning", "info", "over", "beat"],
)
def test_what_is_less_urgent_is_less_loud(server: NtfyServer, stored: Any, priority: int, tag: str) -> None:
    ntfy(server).send(stored, 10)
    assert (server.messages[0].priority, server.messages[0].tags) == (priority, (tag,))


def test_without_a_reply_topic_there_is_no_button(server: NtfyServer) -> None:
    ntfy(server).send(message(), 10)
    assert server.messages[0].actions == ()


def test_a_long_text_is_cut_at_a_line_and_follows_whole_as_a_file(server: NtfyServer) -> None:
    long = message(notice(*[alert(id=f"a{i}", subject=f"node:n{i}", summary=f"n{i} ä {'x' * 80}") for i in range(40)]))
    assert len(long.body.encode()) > 4_096
    ntfy(server).send(long, 10)
    first, file = server.of(TOPIC)
    assert len(first.message.encode()) <= 4_096
    assert first.message.split("\n")[-1] == "… the file in the next message has the whole text"
    assert "n0 ä" in first.message
    assert "and 25 more alerts" in first.message
    assert (file.filename, file.attachment.decode()) == ("message.txt", long.body)


def test_near_the_daily_limit_a_long_text_is_cut_and_no_file_uses_up_another_message(server: NtfyServer) -> None:
    long = message(notice(*[alert(id=f"a{i}", subject=f"node:n{i}", summary=f"n{i} {'x' * 80}") for i in range(40)]))
    assert ntfy(server).send(replace(long, is_brief=True), 10).messages == 1
    (only,) = server.of(TOPIC)
    assert len(only.message.encode()) <= 4_096
    assert only.message.endswith("… `trainmon-tui status` lists all alerts: this channel has few messages left today")


def with_files(*files: Attachment) -> Any:
    stored = message()
    return type(stored)(**{name: getattr(stored, name) for name in stored.__struct_fields__} | {"attachments": files})


def test_pictures_follow_their_message_quietly(server: NtfyServer) -> None:
    when: list[int] = []

    def draw(within: float) -> bytes:
        when.append(len(server.messages))
        return b"\x89PNG curve"

    files = (
        Attachment(name="video-2b-loss.png", media_type="image/png", draw=draw),
        Attachment(name="probe-ä.png", media_type="image/png", data=b"\x89PNG sample"),
    )
    ntfy(server).send(with_files(*files), 10)
    _, curve, sample = server.of(TOPIC)
    assert when == [1], "it is drawn when the message is there"
    assert (curve.filename, curve.attachment, curve.priority) == ("video-2b-loss.png", b"\x89PNG curve", 2)
    assert (sample.filename, sample.title) == ("probe-ä.png", "CODE RED video-2b: run-dead: probe-ä.png")


def test_a_picture_that_is_refused_costs_only_itself() -> None:
    with NtfyServer.start(attachment_bytes=100) as server:
        file = Attachment(name="curve.png", media_type="image/png", data=b"x" * 200)
        sent = ntfy(server).send(with_files(file), 10)
        assert len(server.of(TOPIC)) == 1
        assert sent.answer.endswith(
            "curve.png was not sent: 413 request entity too large: "
            "attachment too large, or bandwidth limit reached (41301)"
        )


def test_a_picture_that_nobody_could_draw_is_left_out(server: NtfyServer) -> None:
    file = Attachment(name="curve.png", media_type="image/png", draw=lambda _: b"")
    assert ntfy(server).send(with_files(file), 10).answer.endswith("; there is no curve.png")
    assert len(server.messages) == 1


def test_a_channel_that_wants_no_pictures_gets_none(server: NtfyServer) -> None:
    file = Attachment(name="curve.png", media_type="image/png", data=b"x")
    ntfy(server, pictures=False).send(with_files(file), 10)
    assert len(server.messages) == 1


@pytest.mark.parametrize(
    ("answer", "words", "after"),
    [
        (status(500), "500 internal server error", None),
        (status(503, retry_after="7"), "503 service unavailable", 7.0),
        (error(50001), "500 internal server error: internal server error (50001)", None),
        (error(42901), "limit reached: too many requests (42901)", 10.0),
        (error(42901, retry_after="120"), "429 too many requests: limit reached: too many requests (42901)", 120.0),
        (status(408), "408 request timeout", None),
        (CUT, "the connection was closed before an answer", None),
        (DIE, "the connection was closed before an answer", None),
    ],
)
def test_what_is_for_now_only_comes_again(server: NtfyServer, answer: Any, words: str, after: float | None) -> None:
    server.script(answer)
    with pytest.raises(Retry) as caught:
        ntfy(server).send(message(), 10)
    assert (caught.value.message, caught.value.after) == (words, after)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (error(42908), "its daily quota of messages is used up: limit reached: daily message quota reached (42908)"),
        (error(42909), "too many failed logins: limit reached: too many auth failures (42909)"),
        (error(40101), "401 unauthorized: unauthorized (40101)"),
        (error(40301), "403 forbidden: forbidden (40301)"),
        (error(40401), "404 not found: page not found (40401)"),
        (error(40009), "400 bad request: invalid request: topic invalid (40009)"),
        (error(41301), "413 request entity too large: attachment too large, or bandwidth limit reached (41301)"),
        (status(301), "301 moved permanently: it is at another address now; correct the one in the config"),
        (status(200, {"hello": "world"}), "the server that answers is not ntfy"),
    ],
)
def test_what_a_person_must_mend_is_broken_at_once(server: NtfyServer, answer: Any, words: str) -> None:
    server.script(answer)
    with pytest.raises(Broken) as caught:
        ntfy(server).send(message(), 10)
    assert caught.value.message == words


def test_a_server_that_hangs_is_left_in_time(server: NtfyServer) -> None:
    server.always(HANG)
    with pytest.raises(Retry, match=r"no answer within 0s|no answer within 1s"):
        ntfy(server).send(message(), 0.6)


def test_no_server_at_all_is_for_now_only() -> None:
    with NtfyServer.start() as server:
        channel = ntfy(server)
    with pytest.raises(Retry, match=r"^no connection: Connection refused$"):
        channel.send(message(), 10)


def test_a_server_of_ones_own_wants_a_login() -> None:
    with NtfyServer.start(users={"ann": "pässword"}, tokens=("tk_abc",), open_topics=(REPLY,)) as server:
        ntfy(server, login=login_of("tk_abc", None, None)).send(message(), 10)
        ntfy(server, login=login_of(None, "ann", "pässword")).send(message(), 10)
        assert len(server.messages) == 2
        for login in (None, login_of("tk_wrong", None, None), login_of(None, "ann", "wrong")):
            with pytest.raises(Broken, match=r"\(40[13]01\)"):
                ntfy(server, login=login).send(message(), 10)
        stored = ntfy(server, login=login_of("tk_abc", None, None), reply_topic=REPLY)
        stored.send(message(), 10)
        assert "tk_abc" not in json.dumps(server.messages[-1].raw), "who reads a message must not get our login"
        server.press(server.messages[-1])
        assert server.of(REPLY)[0].message == f"ack k3v9x2ab {TOKEN}"


def test_the_button_may_log_in_with_a_token_of_its_own() -> None:
    with NtfyServer.start(tokens=("tk_ours", "tk_theirs")) as server:
        channel = ntfy(server, login="Bearer tk_ours", reply_topic=REPLY, reply_login="Bearer tk_theirs")
        channel.send(message(), 10)
        server.press(server.messages[0])
        assert len(server.of(REPLY)) == 1


def test_a_critical_alert_rings(server: NtfyServer) -> None:
    channel = ntfy(server, call="+4930123456")
    channel.send(message(), 10)
    channel.send(message(over(alert())), 10)
    assert [stored.call for stored in server.messages] == ["+4930123456", ""]


def test_a_call_that_is_refused_does_not_cost_the_message(server: NtfyServer) -> None:
    server.script(error(40035))
    sent = ntfy(server, call="yes").send(message(), 10)
    assert [stored.call for stored in server.messages] == [""]
    assert "the phone call failed: invalid request: anonymous phone calls are not allowed (40035)" in sent.answer


def test_whether_answers_can_be_read_is_known_without_sending() -> None:
    with NtfyServer.start(tokens=("tk_ours",)) as server:
        ntfy(server, login="Bearer tk_ours", reply_topic=REPLY).check(10)
        with pytest.raises(Broken, match=r"cannot be read: 403 forbidden \(40301\); `acknowledge = false` needs"):
            ntfy(server, reply_topic=REPLY).check(10)
        assert not server.messages


def test_no_error_names_the_topic_or_the_login(server: NtfyServer) -> None:
    channel = ntfy(server, login="Bearer tk_hunter2")
    replies = []
    for answer in (status(500), status(404), error(40301), CUT, DIE, status(302)):
        server.script(answer)
        with pytest.raises((Retry, Broken)) as caught:
            channel.send(message(), 10)
        replies += [str(caught.value), repr(caught.value.__cause__), repr(caught.value.__context__)]
    assert not [words for words in replies if TOPIC in words or "tk_hunter2" in words]


@pytest.mark.parametrize("topic", ["alerts", "video-team-alerts", "trainmon-2026", "my-training-runs-2027"])
def test_a_topic_of_words_can_be_guessed(topic: str) -> None:
    assert is_guessable(topic)


@pytest.mark.parametrize("topic", ["ops-x7Kq2mP9vLw4", "3f9a1c07be52d8a4", "trainmon-Zk3vQ8pL1m"])
def test_a_topic_of_chance_cannot(topic: str) -> None:
    assert not is_guessable(topic)


def test_a_header_holds_any_text() -> None:
    assert header("plain") == "plain"
    assert header("ä\nb").isascii()
    assert "\n" not in header("ä\nb")


def test_late_messages_keep_their_time(server: NtfyServer) -> None:
    ntfy(server).send(message(now=NOW + 20_000), 10)
    assert server.messages[0].title == "CODE RED video-2b: run-dead [5h33m late]"
