"""What is said, and what rings, when one State follows another."""

from __future__ import annotations

import msgspec

from tests.tui.states.alerts import alert, with_alerts
from tests.tui.states.states import NOW
from trainmon.model import Leadership
from tui.views.news import alert_toasts

BEFORE = with_alerts(alert(phase="pending", fired_at=None))


def test_a_new_critical_alert_is_shown_and_rings_once() -> None:
    after = with_alerts(alert())

    assert [(toast.text, toast.severity) for toast in alert_toasts(BEFORE, after)[0]] == [
        ("CRITICAL  run-dead  run:llm-7b-a", "error")
    ]
    assert alert_toasts(BEFORE, after, listed={"aaaa0001"}) == ((), True)
    assert alert_toasts(BEFORE, after)[1]
    assert alert_toasts(after, after) == ((), False)
    assert alert_toasts(after, with_alerts(alert(summary="the same, a second later"))) == ((), False)


def test_the_first_state_says_nothing_and_what_was_recalled_is_no_news() -> None:
    old = with_alerts(alert(fired_at=NOW - 3_600.0))

    assert alert_toasts(None, with_alerts(alert())) == ((), False)
    assert alert_toasts(with_alerts(), old) == ((), False)
    assert alert_toasts(with_alerts(), with_alerts(alert(fired_at=NOW - 5.0)))[1]


def test_warnings_muted_and_hidden_ones_do_not_ring() -> None:
    for quiet in ({"severity": "warning"}, {"muted_until": NOW + 60.0}, {"inhibited_by": "x"}):
        assert alert_toasts(BEFORE, with_alerts(alert(**quiet))) == ((), False), quiet


def test_one_that_gets_worse_or_is_hidden_no_longer_rings() -> None:
    assert alert_toasts(with_alerts(alert(severity="warning")), with_alerts(alert()))[1]
    assert alert_toasts(with_alerts(alert(inhibited_by="x")), with_alerts(alert()))[1]


def test_of_many_at_once_the_rest_is_counted() -> None:
    many = with_alerts(*(alert(f"{n:08}", fired_at=NOW - 1.0) for n in range(500)))

    toasts = alert_toasts(with_alerts(), many)[0]

    assert len(toasts) == 3
    assert toasts[-1].text == "498 more critical alerts: pane 5 lists all"


def test_an_acknowledgement_is_shown_with_who_it_was() -> None:
    toasts = alert_toasts(with_alerts(alert()), with_alerts(alert(acknowledged_by="ana")))

    assert [(toast.title, toast.text) for toast in toasts[0]] == [("acknowledged by ana", "run-dead")]
    assert not toasts[1]


def test_a_new_leader_is_shown() -> None:
    bastion, us = Leadership(holder="daemon", where="bastion", at=NOW), Leadership(holder="us", where="here", at=NOW)

    gone = alert_toasts(with_alerts(leadership=bastion), with_alerts(leadership=us))[0]
    back = alert_toasts(with_alerts(leadership=us), with_alerts(leadership=bastion))[0]

    assert [toast.text for toast in gone] == ["bastion no longer sends notifications; this program sends them now"]
    assert [toast.text for toast in back] == [
        "bastion sends notifications again; this program only shows alerts and rings the bell"
    ]


def test_a_request_that_did_not_get_through_is_shown() -> None:
    leadership = Leadership(holder="daemon", where="bastion", at=NOW)
    failed = msgspec.structs.replace(leadership, problem="the acknowledgement did not reach bastion: no answer in 10s")

    toasts = alert_toasts(with_alerts(leadership=leadership), with_alerts(leadership=failed))

    assert [toast.severity for toast in toasts[0]] == ["warning"]
    assert "did not reach bastion" in toasts[0][0].text


def test_a_mistake_in_the_config_is_said_once() -> None:
    before, problem = with_alerts(), "config refused: line 3: unknown key"
    sender = msgspec.structs.replace(before.leadership, problem=problem)
    after = msgspec.structs.replace(before, config=problem, leadership=sender)

    assert alert_toasts(before, after) == ((), False), "what loads the config says it"
