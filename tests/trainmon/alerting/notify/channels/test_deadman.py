"""The dead-man's switch: fed only while everything is ok, and never a burden."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.lab.daemons import until
from tests.lab.receiver import HANG, status
from tests.lab.webhook_receiver import WebhookReceiver
from trainmon.alerting.notify.channels.healthchecks import DeadMansSwitch

UUID = "0f5c2a5e-hunter2"


class Fast:
    """A clock on which an hour passes with every look."""

    def __init__(self) -> None:
        self.at = 1_800_000_000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        self.at += 3_600
        return self.at


class Slow(Fast):
    """One on which nothing passes."""

    def monotonic(self) -> float:
        return 0.0


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver.start() as running:
        yield running


Make = Callable[..., DeadMansSwitch]


@pytest.fixture
def switch(receiver: WebhookReceiver) -> Iterator[Make]:
    """Makes switches, and stops them."""
    made: list[DeadMansSwitch] = []

    def make(
        unwell: Callable[[], str | None] = lambda: None,
        clock: Fast | None = None,
        is_leader: Callable[[], bool] = lambda: True,
    ) -> DeadMansSwitch:
        own = {"check_every": 0.02, "timeout": 5, "pause": 0.02}
        made.append(DeadMansSwitch(f"{receiver.url}/{UUID}", unwell, clock or Fast(), is_leader=is_leader, **own))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()
        assert not one._thread.is_alive()


def paths(receiver: WebhookReceiver) -> list[str]:
    return [path.removeprefix(f"/{UUID}") for path, _ in receiver.pings]


def test_who_does_not_lead_says_neither_that_all_is_well_nor_that_something_is_wrong(
    receiver: WebhookReceiver, switch: Make
) -> None:
    calls: list[bool] = []

    def leads() -> bool:
        calls.append(len(calls) >= 5)
        return calls[-1]

    switch(unwell=lambda: "the rules have not been evaluated for 2m", is_leader=leads)
    until(lambda: "/fail" in paths(receiver), "it leads again")
    assert True in calls
    assert paths(receiver)[:2] == ["/start", "/fail"]
    assert calls[:5] == [False] * 5


def test_it_begins_and_is_then_fed_while_all_is_well(receiver: WebhookReceiver, switch: Make) -> None:
    one = switch()
    receiver.wait_for(3)
    assert paths(receiver)[:3] == ["/start", "", ""]
    assert "pid" in receiver.pings[0][1]
    assert not one._is_failing


def test_what_is_wrong_is_reported_instead_of_a_ping(receiver: WebhookReceiver, switch: Make) -> None:
    switch(lambda: "the rules have not been evaluated for 2m")
    receiver.wait_for(2)
    assert receiver.pings[1] == (f"/{UUID}/fail", "the rules have not been evaluated for 2m")
    assert "" not in paths(receiver)


def test_it_switches_between_up_and_down_with_the_reports(receiver: WebhookReceiver, switch: Make) -> None:
    why: list[str | None] = [None]
    switch(lambda: why[0])
    until(lambda: "" in paths(receiver), "a ping")
    why[0] = "the outbox is old"
    until(lambda: "/fail" in paths(receiver), "a failure")
    why[0] = None
    count = len(receiver.taken)
    until(lambda: "" in paths(receiver)[count:], "a ping again")


def test_who_cannot_say_whether_he_is_well_is_not(
    receiver: WebhookReceiver, switch: Make, caplog: pytest.LogCaptureFixture
) -> None:
    def unwell() -> str | None:
        raise ZeroDivisionError

    switch(unwell)
    receiver.wait_for(2)
    assert receiver.pings[1][1] == "the check of whether everything is ok failed: ZeroDivisionError"


def test_nothing_is_pinged_twice_in_a_period(receiver: WebhookReceiver, switch: Make) -> None:
    looks: list[int] = []
    switch(lambda: looks.append(1), clock=Slow())
    until(lambda: len(looks) > 5, "it looks")
    assert paths(receiver) == ["/start", ""]


def test_a_failure_and_a_line_go_at_once_from_any_thread(receiver: WebhookReceiver, switch: Make) -> None:
    one = switch(clock=Slow())
    receiver.wait_for(2)
    pings = (("fail", "ledger stuck"), ("log", "stopped by SIGTERM"))
    threading.Thread(target=lambda: [one.submit(*ping) for ping in pings]).start()
    receiver.wait_for(4)
    assert receiver.pings[2:] == [(f"/{UUID}/fail", "ledger stuck"), (f"/{UUID}/log", "stopped by SIGTERM")]


def test_a_ping_that_fails_is_tried_again(receiver: WebhookReceiver, switch: Make) -> None:
    receiver.script(status(503), status(500))
    switch(clock=Slow())
    receiver.wait_for(2)
    assert [request.path.removeprefix(f"/{UUID}") for request in receiver.requests[:4]] == [
        "/start", "/start", "/start", "",
    ]  # fmt: skip


def test_a_service_that_hangs_holds_nobody_up(receiver: WebhookReceiver, switch: Make) -> None:
    receiver.always(HANG)
    one = switch()
    until(lambda: receiver.requests, "it asks")
    for _ in range(1_000):
        one.submit("log", "a line")
        one.submit("fail", "a failure")
    assert len(one._waiting) <= 32
    receiver.well()


def test_an_address_that_is_refused_is_reported_without_naming_it(
    receiver: WebhookReceiver, switch: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.always(status(404))
    switch()
    until(lambda: len(receiver.requests) > 3, "it fails")
    assert [record.getMessage() for record in caplog.records] == [
        "the dead-man's switch cannot be pinged: 404 not found"
    ], "it is said once"
    assert "hunter2" not in caplog.text


def test_its_last_words_go_out_before_it_ends(receiver: WebhookReceiver) -> None:
    one = DeadMansSwitch(f"{receiver.url}/{UUID}", lambda: None, Slow(), check_every=60)
    one.start()
    one.submit("log", "stopped by SIGTERM")
    one.stop()
    assert paths(receiver)[-1] == "/log"


def test_after_its_farewell_nothing_is_well_and_nothing_fails(receiver: WebhookReceiver, switch: Make) -> None:
    one = switch()
    receiver.wait_for(2)
    one.farewell("stopped: received SIGTERM")
    until(lambda: paths(receiver)[-1] == "/log", "it is there")
    one.submit("log", "a line")
    until(lambda: paths(receiver).count("/log") == 2, "the line follows")
    assert paths(receiver)[-2:] == ["/log", "/log"]


def test_what_is_wrong_in_a_single_evaluation_is_not_reported(receiver: WebhookReceiver, switch: Make) -> None:
    """After a sleep it may wake before the rules are evaluated again."""
    reasons = iter([None, "the rules have not been evaluated for 3h", None, None])
    switch(lambda: next(reasons, None))
    receiver.wait_for(4)
    assert set(paths(receiver)) == {"/start", ""}
