"""Alerts in the contract, and what another machine's status becomes here."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.tui.states.alerts import ALERTS, SILENCES, alarmed, alert, channel, sent, with_alerts
from trainmon.alerting.rules import RULES
from trainmon.cli.snapshot import lines
from trainmon.engine.snapshot import alert_status, encode, exit_status, read_status, snapshot, verdict
from trainmon.model import Alert, Health, Source, State

CONTRACT = {"id", "rule", "subject", "severity", "phase", "data", "since", "summary", "evidence", "acknowledged_by",
            "muted_until", "delivery"}  # fmt: skip


def test_every_field_of_the_contract_is_there_and_no_secret() -> None:
    found = snapshot(alarmed(), 0.0)["alerts"]

    assert all(set(one) >= CONTRACT for one in found)
    assert found[0]["delivery"][0].keys() >= {"channel", "state", "at"}
    assert b"geheim" not in encode(alarmed(), 0.0)


def test_what_fires_comes_before_what_does_not_yet_and_what_is_over_is_left_out() -> None:
    found = snapshot(alarmed(), 0.0)["alerts"]

    assert [one["phase"] for one in found] == ["firing"] * 7 + ["pending"]
    assert [one["severity"] for one in found[:4]] == ["critical"] * 4


@pytest.mark.parametrize(
    ("alerts", "summary"),
    [
        ((), "well"),
        ((alert(severity="info"),), "well"),
        ((alert(phase="pending"),), "critical"),
        ((alert(phase="pending", severity="warning"),), "warning"),
        ((alert(phase="pending", data="stale"),), "well"),
        ((alert(phase="pending", rule="gpu-hot"),), "well"),
        ((alert(phase="firing", rule="gpu-hot"),), "critical"),
        ((alert(phase="resolved"),), "well"),
        ((alert(severity="warning"),), "warning"),
        ((alert(severity="warning"), alert("b", phase="recovering")), "critical"),
        ((alert(acknowledged_by="ana"),), "critical"),
    ],
)
def test_the_verdict_is_the_worst_that_is_so_whether_its_hold_is_over_or_not(
    alerts: tuple[Alert, ...], summary: str
) -> None:
    """But for a pending alert that is not seen now, or that one look does not prove."""
    state = with_alerts(*alerts)
    assert verdict(state) == summary
    assert exit_status(state) == (1 if summary == "critical" else 0)


def test_where_nothing_can_be_seen_that_goes_before() -> None:
    state = State(alerts={"a": alert()})
    assert (verdict(state), exit_status(state)) == ("blind", 3)


@pytest.mark.parametrize(
    ("name", "health", "answered_at"),
    [
        ("node:n1", "down", None),
        ("node:n1", "down", 1.0),
        ("slurm:prod", "down", None),
        ("slurm:prod", "late", None),
        ("wandb:llm", "down", None),
    ],
)
def test_what_does_not_answer_is_a_warning_and_exit_3_and_what_is_critical_goes_before(
    name: str, health: Health, answered_at: float | None
) -> None:
    silent = Source(name=name, kind="node", cluster="prod", health=health, answered_at=answered_at)

    def with_silent(*alerts: Alert) -> State:
        known = with_alerts(*alerts)
        return msgspec.structs.replace(known, sources={**known.sources, name: silent})

    assert (verdict(with_silent()), exit_status(with_silent())) == ("warning", 3)
    assert (verdict(with_silent(alert())), exit_status(with_silent(alert()))) == ("critical", 1)
    away = msgspec.structs.replace(silent, health="off")
    state = msgspec.structs.replace(with_alerts(), sources={**with_alerts().sources, name: away})
    assert (verdict(state), exit_status(state)) == ("well", 0), "it is not wanted now, which is no fault"


def test_a_source_that_has_answered_once_need_not_speak_again_within_one_look() -> None:
    known = with_alerts()
    late = Source(name="wandb:llm", kind="wandb", cluster="prod", health="late", answered_at=1.0)
    state = msgspec.structs.replace(known, sources={**known.sources, late.name: late})
    assert (verdict(state), exit_status(state)) == ("well", 0)


def test_rules_say_themselves_whether_one_look_proves_what_they_find() -> None:
    """A disk at 2% and a node that is down are so now; one sample of a GPU, or one moment of a queue, is no proof."""
    assert {rule.name for rule in RULES if rule.needs_for} == {
        "loss-spike", "slow-throughput", "straggler", "no-job-queued", "wandb-several-active", "wandb-heartbeat-lost",
        "gpu-hot", "gpu-slowdown", "power-brake", "gpu-memory-full", "gpu-idle", "gpu-leftover", "node-drained",
        "spares-few", "checkpoints-do-not-fit", "source-late", "slow-link",
    }  # fmt: skip
    assert all(rule().for_ > 0 for rule in RULES if rule.needs_for)


def test_the_table_begins_with_the_alerts() -> None:
    text = list(lines(alarmed()))

    assert text[2].split() == ["SEVERITY", "PHASE", "AGE", "RULE", "SUMMARY", "DETAILS,", "DELIVERY"]
    assert "critical" in text[3]
    assert "run-hung" in text[3]
    assert any("ack ana; phone sent" in line for line in text)


def status(**more: object) -> bytes:
    summary = alert_status(ALERTS, SILENCES, (channel(),))
    return json.dumps(
        {"version": 1, "at": 5.0, "duty": {"holder": "alerts-only", "pid": 7}, **summary, **more}
    ).encode()


def test_another_machines_status_becomes_the_same_values_but_for_the_secret() -> None:
    found = read_status(status(something="new"))

    plain = {one.id: msgspec.structs.replace(one, token="") for one in ALERTS}
    assert {one.id: one for one in (*found.alerts, *found.ended)} == plain
    assert [one.id for one in found.ended] == ["aaaa0009", "aaaa000a"]
    assert found.silences == SILENCES
    assert found.channels == (channel(),)
    assert (found.leader.holder, found.leader.pid, found.leader.last_tick_at) == ("alerts-only", 7, None)


def test_a_delivery_keeps_its_words() -> None:
    found = alert_status([alert(delivery=(sent("mail", "dead", answer="550 no such user"),))], (), ())

    assert found["alerts"][0]["delivery"][0]["words"] == "550 no such user"


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"version": 1, "at": 5, "alerts": [{"id": 7}]}'])
def test_what_is_no_status_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        read_status(text)
