"""What a channel cannot deliver in time: overdue, and the summary after it."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.notify.delivery.send_queues import DAY, about, batch, notification, picked, queue, tried
from tests.trainmon.alerting.notify.samples import alert, beat, over
from trainmon.alerting.notify.delivery.due import (
    Budget,
    MessageBatch,
    SendQueue,
)
from trainmon.model import Notification

# ---- what others are to deliver --------------------------------------------------------------------------------------


def overdue(made: SendQueue, at: float) -> list[str]:
    return [one.notice.key for one in made.overdue(at)]


@pytest.mark.parametrize(("severity", "limit"), [("critical", 60.0), ("warning", 300.0), ("info", 300.0)])
def test_a_message_is_overdue_in_time_to_be_delivered_by_others(severity: str, limit: float) -> None:
    """With 15 s to write it down and to send it: what a stuck ledger, and a slow channel take."""
    made, now = queue(about("a", severity=severity)), 1_000.0
    while not overdue(made, now):
        found = made.pick(now)
        if isinstance(found, MessageBatch):
            found = made.lease(found, now)
            made.failed(found, now, None)
        now += 1.0
    assert 0.6 * limit <= now - 1_000.0 <= limit - 15.0, "nor at the first blip"


def test_a_try_that_hangs_counts_from_its_beginning() -> None:
    made = queue(about("a"))
    found = batch(made, 1_000.0)
    assert overdue(made, 1_030.0) == []
    made.failed(found, 1_030.0, None)
    batch(made, 1_040.0)
    assert overdue(made, 1_045.0) == ["a-fire"], "in the middle of the second"


def test_a_new_message_for_a_channel_that_is_down_is_overdue_after_its_first_try() -> None:
    made = queue(about("a"))
    made.failed(batch(made, 1_000.0), 1_000.0, None)
    made.add(notification(about("b")), 1_100.0)
    assert overdue(made, 1_100.0) == ["a-fire"]
    made.failed(tried(made, 1_100.0, "b-fire"), 1_101.0, None)
    made.passed_on("a-fire")
    assert overdue(made, 1_101.0) == ["b-fire"]
    made.passed_on("b-fire")
    made.add(notification(about("c")), 1_200.0)
    batch(made, 1_200.0)
    assert overdue(made, 1_205.0) == []
    assert overdue(made, 1_210.0) == ["c-fire"], "a first try that hangs is not waited for"


def test_what_cannot_go_because_the_receiver_asks_for_a_pause_is_overdue_at_once() -> None:
    made = queue(about("a"))
    made.failed(batch(made, 1_000.0), 1_000.0, 99_999_999.0)
    assert overdue(made, 1_000.0) == ["a-fire"]


def test_a_channel_that_works_now_and_then_delays_nothing() -> None:
    made = queue(about("a"))
    made.failed(batch(made, 1_000.0), 1_000.0, None)
    for at in range(1_008, 1_045, 9):
        made.add(notification(about(f"b{at}")), float(at))
        made.sent(tried(made, float(at), f"b{at}-fire"))
    assert overdue(made, 1_045.0) == ["a-fire"]


def test_what_follows_a_message_that_others_were_given_goes_the_same_way_at_once() -> None:
    made = queue(about("a", severity="warning"))
    made.failed(batch(made, 1_000.0), 1_000.0, None)
    assert overdue(made, 1_240.0) == ["a-fire"]
    made.passed_on("a-fire")
    made.add(notification(over(alert(id="a"))), 1_250.0)
    assert overdue(made, 1_250.0) == ["a-resolve"]


def test_signs_of_life_are_each_channels_own() -> None:
    made = queue(beat())
    made.failed(batch(made, 1_000.0), 1_000.0, None)
    assert overdue(made, 9_000.0) == []


def down(*names: str) -> SendQueue:
    """A channel that is down; what it should have delivered another one has."""
    made = queue(*(about(name) for name in names))
    for _ in names:
        made.failed(batch(made, 1_000.0), 1_000.0, None)
    for one in made.overdue(1_050.0):
        made.passed_on(one.notice.key)
        made.compare({one.notice.key: {"spare": True}})
    return made


def test_what_others_have_delivered_is_tried_as_one_summary_and_does_not_wait() -> None:
    made = down("a", "b", "c")
    assert (len(made), made.oldest_at(0.0, 0.0), made.overdue_count) == (0, None, 3)
    for at in range(2_000, 6_000, 400):
        found = batch(made, float(at))
        assert sorted(one.notice.key for one in found.notifications) == ["a-fire", "b-fire", "c-fire"]
        assert found.is_summary
        made.failed(found, float(at), None)


def test_the_summary_follows_the_first_message_that_a_channel_takes_again() -> None:
    made = down("a", "b")
    made.failed(batch(made, 2_000.0), 2_000.0, None)
    made.add(notification(about("c")), 2_001.0)
    first = batch(made, 2_001.0)
    assert [one.notice.key for one in first.notifications] == ["c-fire"], "what is new goes before, and alone"
    made.sent(first)
    assert sorted(picked(made, 2_001.0)) == ["a-fire", "b-fire"]


def test_resolved_is_sent_in_the_summary() -> None:
    made = down("a", "b")
    made.add(notification(over(alert(id="a"))), 2_000.0)
    assert sorted(picked(made, 2_000.0)) == ["a-fire", "a-resolve", "b-fire"]


def test_a_summary_is_for_a_week() -> None:
    made, now = down("a"), 2_000.0
    assert made.expired(0.0, 1_001.0 + 7 * DAY) == [], "it was hardly tried: the clock jumped"
    while now < 1_000.0 + 7 * DAY:
        found = made.pick(now)
        if isinstance(found, MessageBatch):
            made.failed(made.lease(found, now), now, None)
        now += found if isinstance(found, float) else 0.0
        assert found is not None
        assert made.expired(0.0, min(now, 1_000.0 + 7 * DAY)) == []
    assert [one.notice.key for one in made.expired(0.0, 1_001.0 + 7 * DAY)] == ["a-fire"]
    assert made.pick(9e9) is None


def test_a_fallback_that_fails_as_well_sends_nothing_late() -> None:
    made = queue()
    made.add(Notification(id=0, channel="spare", notice=about("a"), made_at=1_000.0), 1_000.0)
    made.failed(batch(made, 1_000.0), 1_000.0, None)
    assert overdue(made, 1_050.0) == ["a-fire"]
    made.passed_on("a-fire")
    found = batch(made, 2_000.0)
    done = {"a-fire": {"mail": True}}
    assert made.compare(done) == [], "it is being sent"
    made.failed(found, 2_000.0, None)
    assert [one.notice.key for one in made.compare(done)] == ["a-fire"]
    assert made.pick(9e9) is None


def test_another_channel_of_the_same_message_that_works_needs_no_summary() -> None:
    made = queue(about("a"))
    made.compare({"a-fire": {"spare": True}})
    found = batch(made, 1_000.0)
    assert not found.is_summary


def test_a_channel_that_fails_after_another_one_was_stood_in_for_gets_a_summary_too() -> None:
    """As after a restart: what waits is compared with what was delivered, whenever that was."""
    made, done = queue(about("a")), {"a-fire": {"spare": True}}
    made.compare(done)
    made.failed(batch(made, 1_000.0), 1_000.0, None)
    made.compare(done)
    assert batch(made, 2_000.0).is_summary


# ---- over restarts ---------------------------------------------------------------------------------------------------


def first_overdue(severity: str, life: float, *names: str) -> dict[str, float]:
    """How long after it was first due each message is overdue. Its receiver hangs, and the program is killed after each
    `life`: only what the ledger has survives."""
    rows = {name: Notification(id=0, channel="phone", notice=about(name, severity=severity), made_at=0.0)
            for name in names}  # fmt: skip
    found: dict[str, float] = {}
    now = 0.0
    while len(found) < len(names):
        made, born = SendQueue(Random(7)), now
        for row in rows.values():
            made.add(row, now, now - row.made_at)
        for one in batch(made, now).notifications:
            rows[one.notice.key.removesuffix("-fire")] = replace(one, state="waiting")
        while now < born + life:
            for key in overdue(made, now):
                found.setdefault(key.removesuffix("-fire"), now)
            now += 1.0
        assert now < 1_000.0, found
    return found


@pytest.mark.parametrize("life", [1.0, 8.0, 30.0, 600.0])
@pytest.mark.parametrize(("severity", "limit"), [("critical", 60.0), ("warning", 300.0)])
def test_no_number_of_crashes_resets_the_time_until_a_fallback_delivers(
    severity: str, limit: float, life: float
) -> None:
    found = first_overdue(severity, life, "a", "b", "c")
    assert all(0.6 * limit <= after <= limit - 15.0 for after in found.values()), found


def test_what_waited_during_a_downtime_is_overdue_at_once_if_its_channel_had_failed() -> None:
    made = queue()
    made.add(replace(notification(about("a")), attempts=1), 1_000.0, 3_600.0)
    made.add(notification(about("b")), 1_000.0, 3_600.0)
    assert sorted(overdue(made, 1_000.0)) == ["a-fire", "b-fire"]


def test_a_channel_is_known_to_fail_while_something_waits_that_only_an_earlier_program_has_tried() -> None:
    made = queue()
    for name, waited in (("a", 200.0), ("b", 100.0)):
        made.add(replace(notification(about(name)), attempts=1), 1_000.0, waited)
    found = batch(made, 1_000.0)
    assert [one.notice.key for one in found.notifications] == ["a-fire"], "only that has waited for long"
    made.failed(found, 1_000.0, None)
    made.add(notification(about("c")), 1_001.0)
    made.failed(tried(made, 1_001.0, "c-fire"), 1_001.0, None)
    assert overdue(made, 1_001.0) == ["a-fire", "b-fire", "c-fire"]


def test_a_channel_that_works_is_given_the_time_to_send_what_waited_during_a_downtime() -> None:
    made = queue()
    made.add(notification(about("a")), 1_000.0, 3_600.0)
    batch(made, 1_000.0)
    assert overdue(made, 1_005.0) == []
    assert overdue(made, 1_010.0) == ["a-fire"], "now it hangs"


def test_the_time_in_which_the_budget_holds_a_message_back_does_not_count() -> None:
    made = SendQueue(Random(7), Budget(per_day=10))
    made.budget.restore([1_000.0] * 8)
    made.add(notification(about("a", severity="warning")), 1_000.0)
    for now in range(1_000, 44_200, 50):
        assert overdue(made, float(now)) == []
    assert picked(made, 44_200.0) == ["a-fire"]
    assert overdue(made, 44_215.0) == [], "its first try only takes a while"


def test_a_critical_message_that_the_budget_holds_back_goes_to_the_fallback_after_any_number_of_restarts() -> None:
    for now in range(1_000, 1_050, 8):
        made = SendQueue(Random(7), Budget(per_day=10))
        made.budget.restore([999.0] * 10)
        made.add(notification(about("a")), float(now), now - 1_000.0)
        found = overdue(made, float(now))
    assert found == ["a-fire"]
