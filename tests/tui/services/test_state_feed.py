"""One door for States: the latest wins, and the screen is not painted more often than it is read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from trainmon.model import Alert, Node, State
from tui.backend import NOT_YET
from tui.services.changes import LARGE, StateFeed, can_skip, wait_before_paint


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


def test_a_person_who_has_just_started_it_waits_less_for_the_first_data() -> None:
    assert wait_before_paint(5.0, 1.0, 5.1, begun_at=4.0) == pytest.approx(0.15)
    assert wait_before_paint(15.0, 1.0, 15.25, begun_at=4.0) == 0.75


def test_of_many_nodes_every_second_state_is_painted_unless_a_new_alert_needs_a_person() -> None:
    nodes = {f"n{i}": Node(name=f"n{i}", cluster="c") for i in range(LARGE + 1)}
    alert = Alert(
        id="a", rule="gpu-hot", subject="gpu:n1/0", severity="warning", summary="it is hot", since=0.0, found_at=0.0
    )
    painted = State(at=10.0, nodes=nodes, alerts={"a": alert})
    few = dict(list(nodes.items())[:LARGE])
    assert not can_skip(replace(painted, at=11.0), NOT_YET)
    assert not can_skip(replace(painted, at=11.0, nodes=few), painted)
    assert can_skip(replace(painted, at=11.0), painted)
    assert not can_skip(replace(painted, at=12.0), painted)
    assert not can_skip(replace(painted, at=5.0), painted)  # the clock was set back

    firing = replace(painted, at=11.0, alerts={"a": replace(alert, phase="firing")})
    assert not can_skip(firing, painted)
    assert can_skip(replace(firing, at=11.5), firing)
    assert not can_skip(replace(firing, alerts={"a": replace(firing.alerts["a"], severity="critical")}), firing)
    assert can_skip(painted, replace(firing, at=9.5))
