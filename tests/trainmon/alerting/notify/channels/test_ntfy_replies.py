"""What phones answer: read from a real topic, once each, and across restarts."""

from __future__ import annotations

import contextlib
import logging
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.daemons import until
from tests.lab.ntfy_server import Message, NtfyServer
from tests.lab.receiver import Request
from tests.trainmon.alerting.notify.samples import TOKEN, alert, message, notice
from trainmon.alerting.notify.channels.ntfy import FILE, Memory, Ntfy, Replies, requests
from trainmon.model import AlertRequest, AlertRequested, Channel, Event

TOPIC = "ops-x7Kq2mP9vLw4"


@pytest.fixture
def server() -> Iterator[NtfyServer]:
    with NtfyServer.start() as running:
        yield running


def channel(server: NtfyServer, memory: Memory, login: str | None = None) -> Ntfy:
    return Ntfy(
        Channel(name="phone", type="ntfy"),
        server=server.url,
        topic=TOPIC,
        login=login,
        reply_topic=memory.topic(server.url, TOPIC),
    )


@contextlib.contextmanager
def reading(phone: Ntfy, memory: Memory) -> Iterator[list[AlertRequest]]:
    """The orders that come while it reads."""
    got: list[AlertRequest] = []

    def submit(event: Event) -> None:
        assert isinstance(event, AlertRequested)
        got.append(event.request)

    replies = Replies(phone, memory, submit)
    replies.start()
    try:
        yield got
    finally:
        replies.stop()
        assert not replies._thread.is_alive()


def last_message(server: NtfyServer) -> Message:
    return server.of(TOPIC)[-1]


def readers(server: NtfyServer) -> list[Request]:
    """The connections that were made to read the replies."""
    return [one for one in server.requests if one.method == "GET"]


def break_connection(server: NtfyServer) -> None:
    """The server hangs up, and the reader comes back."""
    before = len(readers(server))
    server._http.hang_up()
    until(lambda: len(readers(server)) > before, "another connection")


def test_a_press_of_the_button_becomes_a_request(server: NtfyServer, tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    phone = channel(server, memory)
    phone.send(message(), 10)
    with reading(phone, memory) as got:
        server.press(last_message(server))
        until(lambda: got, "the order")
    (order,) = got
    assert (order.verb, order.alert, order.token, order.via, order.by) == ("ack", "k3v9x2ab", TOKEN, "phone", "phone")
    assert order.at == int(server.messages[-1].at)


def test_one_press_acknowledges_all_of_a_message(server: NtfyServer, tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    phone = channel(server, memory)
    phone.send(message(notice(alert(id="a"), alert(id="b", subject="node:b"))), 10)
    with reading(phone, memory) as got:
        server.press(last_message(server))
        until(lambda: len(got) == 2, "both orders")
    assert [order.alert for order in got] == ["a", "b"]


def test_what_was_pressed_while_we_were_down_is_received_once(server: NtfyServer, tmp_path: Path) -> None:
    first = Memory(tmp_path)
    channel(server, first).send(message(), 10)
    server.press(last_message(server))
    with reading(channel(server, first), first) as got:
        until(lambda: got, "the order of before the start")
    again = Memory(tmp_path)
    assert again.topic(server.url, TOPIC) == first.topic(server.url, TOPIC)
    with reading(channel(server, again), again) as got:
        server.press(last_message(server))
        until(lambda: got, "the order of after the start")
    assert len(got) == 1, "the one of before is not heard again"


def test_a_connection_that_broke_is_made_again(server: NtfyServer, tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    phone = channel(server, memory)
    phone.send(message(), 10)
    with reading(phone, memory) as got:
        server.press(last_message(server))
        until(lambda: got, "the first order")
        break_connection(server)
        server.press(last_message(server))
        until(lambda: len(got) == 2, "the order after the break")
    assert readers(server)[1].path.endswith(f"since={server.messages[1].id}"), "it goes on after the first order"


def test_a_topic_that_may_not_be_read_is_reported_once_and_without_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with NtfyServer.start(tokens=("tk_hunter2",)) as server:
        memory = Memory(tmp_path)
        phone = channel(server, memory, "Bearer tk_wrong")
        with reading(phone, memory):
            until(lambda: caplog.records, "a warning")
    logged = [record.getMessage() for record in caplog.records]
    assert logged == ["replies of phones to phone cannot be read: the server answers 401"]


@pytest.mark.parametrize(
    "reply",
    [
        "", "hello", "ack", "ack k3v9x2ab", f"ACK k3v9x2ab {TOKEN}", f"ack k3v9x2ab {TOKEN} x", f"ack  a {TOKEN}",
        f"ack ../etc {TOKEN}", "ack a short", f"ack a {'t' * 200}", f"unack a {TOKEN}", f"ack a {TOKEN}\nack b {TOKEN}",
        " ".join(["ack", *["a " + TOKEN] * 17]),
    ],
)  # fmt: skip
def test_what_is_no_reply_of_ours_is_no_request(reply: str) -> None:
    assert not list(requests(reply, 1.0))


def test_nonsense_in_the_topic_stops_nothing(server: NtfyServer, tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    phone = channel(server, memory)
    phone.send(message(), 10)
    server._put(phone.reply_topic or "", request_of(b"hello\x00"))
    with reading(phone, memory) as got:
        server.press(last_message(server))
        until(lambda: got, "the order")
    assert len(got) == 1


def test_a_line_that_is_far_too_long_is_skipped_once_and_the_next_reply_is_read(
    server: NtfyServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    memory = Memory(tmp_path)
    phone = channel(server, memory)
    phone.send(message(), 10)
    server._put(phone.reply_topic or "", request_of(b"x" * 300_000))
    with reading(phone, memory) as got:
        until(lambda: memory.last(phone.reply_topic or "")[0] != "all", "the position after the long line")
        server.press(last_message(server))
        until(lambda: got, "the order")
        break_connection(server)
        server.press(last_message(server))
        until(lambda: len(got) == 2, "the order after the break")
    assert len([record for record in caplog.records if "longer than 64 KiB" in record.getMessage()]) == 1


def request_of(body: bytes) -> object:
    return Request("POST", "/", {}, body, 0.0)


def test_what_it_keeps_is_for_us_alone(tmp_path: Path) -> None:
    memory = Memory(tmp_path / "state")
    assert not (tmp_path / "state").exists(), "nothing is kept where no channel asks for a topic"
    memory.topic("s", "t")
    assert stat.S_IMODE((tmp_path / "state" / FILE).stat().st_mode) == 0o600
    assert [file.name for file in (tmp_path / "state").iterdir()] == [FILE]


def test_a_torn_file_or_no_place_costs_only_old_buttons(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{")
    assert Memory(tmp_path).topic("s", "t").startswith("trainmon-")
    (tmp_path / "file").write_text("")
    assert Memory(tmp_path / "file").topic("s", "t").startswith("trainmon-")
    assert Memory(None).topic("s", "t") != Memory(None).topic("s", "t")


def test_programs_that_start_together_read_the_same_topics(tmp_path: Path) -> None:
    ready = threading.Barrier(8)
    topics: list[str] = []

    def start() -> None:
        ready.wait(20)
        topics.append(Memory(tmp_path).topic("s", "t"))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(topics) == 8
    assert set(topics) == {Memory(tmp_path).topic("s", "t")}
    assert [file.name for file in tmp_path.iterdir()] == [FILE]


def test_every_topic_has_an_answer_topic_of_its_own() -> None:
    memory = Memory(None)
    names = {memory.topic("s", "a"), memory.topic("s", "b"), memory.topic("z", "a")}
    assert len(names) == 3
    assert all(len(name) <= 64 for name in names)


def test_it_stops_at_once_though_nothing_comes(server: NtfyServer, tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    with reading(channel(server, memory), memory):
        until(lambda: server.requests, "it reads")
