"""One door for States: the latest wins, and the screen is not painted more often than it is read."""

from __future__ import annotations

from trainmon.model import State
from tui.services.changes import StateFeed, wait_before_paint


def test_a_thousand_states_are_one_message_and_the_last_one_is_shown() -> None:
    posted: list[str] = []
    mailbox = StateFeed(lambda: posted.append("published"))

    for at in range(1_000):
        mailbox.put(State(at=float(at)))

    assert posted == ["published"]
    assert mailbox.collect() == State(at=999.0)
    assert mailbox.collect() is None


def test_after_it_was_collected_the_next_state_is_posted_again() -> None:
    posted: list[str] = []
    mailbox = StateFeed(lambda: posted.append("published"))

    mailbox.put(State(at=1.0))
    mailbox.collect()
    mailbox.put(State(at=2.0))

    assert posted == ["published", "published"]


def test_a_second_paint_waits_for_the_rest_of_its_second_unless_a_key_was_pressed() -> None:
    assert wait_before_paint(None, 0.0, 5.0) == 0.0
    assert wait_before_paint(5.0, 1.0, 5.25) == 0.75
    assert wait_before_paint(5.0, 5.1, 5.25) == 0.0
    assert wait_before_paint(5.0, 1.0, 9.0) == 0.0
