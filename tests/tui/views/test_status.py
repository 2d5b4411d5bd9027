"""Which program sends notifications, in the header and in the pane."""

from __future__ import annotations

import pytest

from trainmon.model import Leadership, State
from tui.views.alerts import sender, sender_sentence


@pytest.mark.parametrize(
    ("leader", "shown", "who"),
    [
        (Leadership(holder="us", at=100.0), "no channel", "this program"),
        (Leadership(holder="other", where="pid 7", at=100.0), "no channel", "the leader (pid 7)"),
    ],
)
def test_a_leader_without_a_channel_sends_nothing(leader: Leadership, shown: str, who: str) -> None:
    state = State(at=101.0, leadership=leader)
    assert sender(state).text == shown
    assert sender_sentence(state) == f"No notifications are sent: {who} has no [[notify]] in its config"


def test_a_leader_whose_channels_were_not_read_yet_is_not_said_to_have_none() -> None:
    state = State(at=101.0, leadership=Leadership(holder="other", where="pid 7"))
    assert sender(state).text == "pid 7 ok"
    assert sender_sentence(state) == "Another program on this machine (pid 7) sends notifications"
