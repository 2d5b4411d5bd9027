"""What is due, gathered into few messages."""

from __future__ import annotations

from trainmon.alerting.pipeline.routing import CARRIED, DueAlert, Grouped, Paces, group_alerts
from trainmon.model import Alert, NoticeKind, Severity

NOW = 1_750_000_000.0


def due(subject: str, rule: str = "gpu-hot", kind: NoticeKind = "fire", severity: Severity = "warning") -> DueAlert:
    node = subject.removeprefix("gpu:").partition("/")[0]
    alert = Alert(
        id=f"{rule} {subject}", rule=rule, subject=subject, severity=severity, summary="", cluster="prod", node=node,
        since=NOW, found_at=NOW, phase="firing",
    )  # fmt: skip
    return DueAlert(alert, kind, "fired", ("phone",), NOW)


def subjects(gathered: Grouped) -> list[list[str]]:
    return [[alert.subject for alert in notice.alerts] for notice in gathered.notices]


def test_the_gpus_of_a_node_are_one_message_and_those_of_another_are_another() -> None:
    due_alerts = [due(f"gpu:n{node}/{index}") for node in (1, 2) for index in range(8)]
    assert [len(one) for one in subjects(group_alerts(due_alerts, {}, NOW))] == [8, 8]


def test_many_nodes_of_one_cluster_are_one_message() -> None:
    due_alerts = [due(f"gpu:n{node}/0") for node in range(10)]
    assert [len(one) for one in subjects(group_alerts(due_alerts, {}, NOW))] == [10]


def test_many_rules_at_once_are_a_digest_that_counts_them_the_worst_first() -> None:
    due_alerts = [due(f"gpu:n{index}/0", rule=f"rule-{index}") for index in range(9)]
    due_alerts += [due(f"gpu:n{node}/0", "xid", severity="critical") for node in range(3)]
    (notice,) = group_alerts(due_alerts, {}, NOW).notices
    assert (notice.kind, notice.severity) == ("digest", "critical")
    assert notice.lines[:2] == ("12 alerts at once", "3 × xid (critical)")
    assert notice.alerts[0].rule == "xid"


def test_a_message_that_stands_for_more_than_it_carries_says_how_many() -> None:
    due_alerts = [due(f"gpu:n{node}/0") for node in range(CARRIED + 7)]
    gathered = group_alerts(due_alerts, {}, NOW)
    (notice,) = gathered.notices
    assert (len(notice.alerts), notice.more) == (CARRIED, 7)
    assert len(gathered.alerts) == CARRIED + 7
    assert all(alert.notified_as == "warning" and alert.notified_on == ("phone",) for alert in gathered.alerts)


def test_each_reason_of_a_message_is_named() -> None:
    again = due("gpu:n1/1")._replace(reason="no longer muted, and still firing")
    (notice,) = group_alerts([due("gpu:n1/0"), again], {}, NOW).notices
    assert notice.reason == "fired; no longer muted, and still firing"


def test_what_is_not_ripe_waits_and_says_when() -> None:
    waiting = due("gpu:n1/0")._replace(ready_at=NOW + 7)
    gathered = group_alerts([waiting], {}, NOW)
    assert (gathered.notices, gathered.alerts, gathered.next_at) == ((), (), NOW + 7)


def test_one_that_is_ripe_takes_its_group_along() -> None:
    waiting = due("gpu:n1/1")._replace(ready_at=NOW + 7)
    assert len(subjects(group_alerts([due("gpu:n1/0"), waiting], {}, NOW))[0]) == 2


def test_a_group_that_grows_is_reported_less_often_and_again_after_a_quiet_time() -> None:
    paces: Paces = {}
    sent = []
    for second in range(0, 4_000, 5):
        at = NOW + second if second < 2_000 else NOW + second + 1_000
        gathered = group_alerts([due(f"gpu:n1/{second}")._replace(ready_at=at)], paces, at)
        paces = gathered.paces
        sent += [second] if gathered.notices else []
        if second == 2_000:
            assert gathered.notices, "after a quiet time the first is told at once"
    assert sent[:5] == [0, 5, 20, 80, 380]


def test_what_is_reported_in_one_message_has_one_key_whatever_its_order() -> None:
    due_alerts = [due("gpu:n1/0"), due("gpu:n1/1")]
    (one,), (other,) = (
        group_alerts(due_alerts, {}, NOW).notices,
        group_alerts(due_alerts[::-1], {}, NOW + 3).notices,
    )
    assert one.key == other.key
    (alone,) = group_alerts(due_alerts[:1], {}, NOW).notices
    assert alone.key != one.key
