from __future__ import annotations

import threading

from tests.lab.sshd import until
from trainmon.engine.engine import Inbox
from trainmon.model import Event, HostSample, NodeReading, NoticeGiven

READING = NodeReading("n1", "prod", 10.0, HostSample(v=1, t=10.0))
NOTICE = NoticeGiven("key", "a notice")


class Reader:
    """A thread that waits in one `take`, for ten minutes at most."""

    def __init__(self, inbox: Inbox, *, readings: bool) -> None:
        self.found: list[Event | None] = []
        self._inbox, self._readings = inbox, readings
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        until(lambda: not inbox._wake.is_set() and inbox._readings_wake == readings, "it waits")

    def _run(self) -> None:
        self.found = self._inbox.take(600, readings=self._readings)

    def result(self) -> list[Event | None]:
        self._thread.join(60)
        assert not self._thread.is_alive(), "nothing woke it"
        return self.found


def test_a_first_reading_wakes_its_reader() -> None:
    inbox = Inbox()
    reader = Reader(inbox, readings=True)
    inbox.put(READING)
    assert reader.result() == [READING]


def test_further_readings_wait_for_an_event_that_wakes_it() -> None:
    inbox = Inbox()
    reader = Reader(inbox, readings=False)
    inbox.put(READING)
    assert not inbox._wake.is_set()
    inbox.put(NOTICE)
    assert reader.result()[0] == READING


def test_what_came_is_taken_at_once_and_in_order() -> None:
    inbox = Inbox()
    for event in (READING, NOTICE, READING):
        inbox.put(event)
    assert inbox.take(600, readings=False) == [READING, NOTICE, READING]


def test_what_comes_after_none_is_left_for_the_next_take() -> None:
    inbox = Inbox()
    for event in (READING, None, NOTICE):
        inbox.put(event)
    assert inbox.take(600, readings=True) == [READING, None]
    assert inbox.take(600, readings=True) == [NOTICE]


def test_readings_that_woke_nobody_are_taken_at_the_timeout() -> None:
    inbox = Inbox()
    inbox.take(0, readings=False)
    inbox.put(READING)
    assert inbox.take(0, readings=False) == [READING]
    assert inbox.take(0, readings=False) == []
