"""The notifications of one channel: in which order, how many in a message, how long between tries, and never lost."""

from __future__ import annotations

from random import Random

import pytest

from tests.trainmon.alerting.notify.delivery.send_queues import DAY, about, batch, notification, picked, queue
from tests.trainmon.alerting.notify.samples import alert, beat, over
from trainmon.alerting.notify.delivery.due import (
    BURST,
    CRITICAL_TOKENS,
    LATE,
    LONGEST_PAUSE,
    REFILL,
    REFUSED_PAUSE,
    RETRY_AFTER_AT_MOST,
    TOGETHER,
    MessageBatch,
    SendQueue,
)
from trainmon.model import Severity


def waits(made: SendQueue, at: float) -> float:
    found = made.pick(at)
    assert isinstance(found, float), found
    return found


def test_the_worst_goes_first_and_then_the_oldest() -> None:
    made = queue(about("a", severity="info"), about("b", severity="warning"), about("c"), about("d"))
    delivered = []
    for _ in range(4):
        found = batch(made, 1_000.0)
        delivered += [one.notice.key for one in found.notifications]
        made.sent(found)
    assert delivered == ["c-fire", "d-fire", "b-fire", "a-fire"]
    assert made.pick(1_000.0) is None


def test_the_same_notice_is_never_twice_in_one_queue() -> None:
    made = queue(about("a"), about("a"))
    made.sent(batch(made, 1_000.0))
    assert made.pick(1_000.0) is None


def test_resolved_is_sent_with_the_news_that_it_fired() -> None:
    made = queue(about("a"))
    first = batch(made, 1_000.0)
    made.failed(first, 1_000.0, None)
    made.add(notification(over(alert(id="a"))), 1_001.0)
    assert sorted(picked(made, 1_001.0)) == ["a-fire", "a-resolve"], "though the first try of it is not due again"


def test_what_waited_through_an_outage_is_one_message() -> None:
    made = queue(*(about(name, severity="warning") for name in "abc"))
    now = 1_000.0
    for _ in range(5):
        found = made.pick(now)
        if isinstance(found, MessageBatch):
            found = made.lease(found, now)
            assert len(found.queued) == 1, "what is fresh goes alone"
            made.failed(found, now, None)
        else:
            now += found or 0.0
    later = 1_000.0 + LATE + LONGEST_PAUSE
    made.add(notification(about("d")), later)
    found = batch(made, later)
    assert [one.notice.key for one in found.notifications] == ["d-fire"], "what is new and critical goes before, alone"
    made.sent(found)
    assert sorted(picked(made, later)) == ["a-fire", "b-fire", "c-fire"]


def test_more_than_a_few_at_once_are_one_message() -> None:
    made = queue(*(about(f"a{number}") for number in range(10_000)))
    found = batch(made, 1_000.0)
    assert len(found.queued) == 10_000
    made.sent(found)
    assert len(made) == 0
    few = queue(*(about(f"a{number}") for number in range(TOGETHER)))
    assert len(batch(few, 1_000.0).queued) == 1


def test_a_channel_is_sent_no_more_than_its_rate_limit() -> None:
    made = queue()
    sent, now = 0, 1_000.0
    while now < 1_000.0 + 100 * REFILL:
        made.add(notification(about(f"a{now}")), now)
        found = made.pick(now)
        if isinstance(found, MessageBatch):
            found = made.lease(found, now)
            made.sent(found)
            sent += 1
        now += 0.5
    assert BURST + 95 <= sent <= BURST + 101
    assert len(made) < 2 * TOGETHER, "what had no room went together"


def test_the_last_messages_of_a_burst_are_for_new_critical_alerts() -> None:
    made, now = queue(), 1_000.0

    def sent(severity: Severity) -> int:
        """How many are sent at once, one after the other."""
        for number in range(2 * BURST):
            made.add(notification(about(f"{severity}{number}", severity=severity)), now)
            found = batch(made, now)
            if not found.queued:
                return number
            made.sent(found)
        raise AssertionError("without a limit")

    assert sent("warning") == BURST - CRITICAL_TOKENS
    assert waits(made, now) == REFILL, "until there is one more than those for critical alerts"
    assert sent("critical") == CRITICAL_TOKENS
    assert waits(made, now) == REFILL


def test_pauses_grow_and_are_drawn_by_lot() -> None:
    made = queue(about("a", severity="warning"))
    now, pauses = 1_000.0, []
    for _ in range(40):
        made.failed(batch(made, now), now, None)
        pauses.append(waits(made, now))
        now += pauses[-1]
    assert pauses[0] <= 1.0
    assert all(pause <= min(LONGEST_PAUSE, 2.0**number) for number, pause in enumerate(pauses))
    assert max(pauses) > LONGEST_PAUSE / 2
    assert len(set(pauses)) == 40


def test_news_that_are_critical_do_not_wait_for_the_pause_of_others() -> None:
    made = queue(about("a", severity="warning"))
    now = 1_000.0
    for _ in range(12):
        made.failed(batch(made, now), now, None)
        now += waits(made, now)
    made.failed(batch(made, now), now, None)
    made.add(notification(about("b", severity="warning")), now)
    assert waits(made, now) > 0.0
    made.add(notification(about("c")), now)
    assert picked(made, now) == ["c-fire"]


@pytest.mark.parametrize(("delay", "waited"), [(30.0, 30.0), (10 * DAY, RETRY_AFTER_AT_MOST)])
def test_a_receiver_that_asks_to_be_left_alone_is(delay: float, waited: float) -> None:
    made = queue(about("a", severity="warning"))
    made.failed(batch(made, 1_000.0), 1_000.0, delay)
    made.add(notification(about("b", severity="warning")), 1_000.0)
    assert waits(made, 1_000.0) == waited, "whatever comes, but what is critical"
    assert picked(made, 1_000.0 + waited) != []


def test_a_receiver_that_asks_to_be_left_alone_is_tried_again_with_each_critical_message() -> None:
    made = queue(about("a"))
    made.failed(batch(made, 1_000.0), 1_000.0, 99_999_999.0)
    assert waits(made, 1_000.0) == 900.0, "and with the same one every quarter of an hour"
    made.add(notification(about("b")), 1_240.0)
    assert picked(made, 1_240.0) == ["b-fire"]


def test_a_new_critical_message_does_not_wait_behind_one_that_an_earlier_program_has_tried() -> None:
    made = queue(about("a"))
    made.add(notification(about("b"), attempts=1), 1_000.0)
    made.failed(batch(made, 1_000.0), 1_000.0, 600.0)
    made.add(notification(about("c")), 1_010.0)
    assert picked(made, 1_010.0) == ["c-fire"]


def test_one_that_spoils_every_message_holds_up_no_other() -> None:
    made = queue(*(about(name, severity="warning") for name in "abcde"))
    now, delivered = 2_000.0 + LATE, []
    for _ in range(200):
        found = made.pick(now)
        if found is None or delivered[4:]:
            break
        if not isinstance(found, MessageBatch):
            now += found
            continue
        found = made.lease(found, now)
        keys = [one.notice.key for one in found.notifications]
        if "a-fire" in keys:
            made.failed(found, now, None)
        else:
            made.sent(found)
            delivered += keys
        if len(delivered) == 4:
            break
    assert sorted(delivered) == ["b-fire", "c-fire", "d-fire", "e-fire"]
    assert len(made) == 1


def test_days_of_failures_give_up_nothing_and_try_it_now_and_then() -> None:
    made = queue(about("a"))
    now, tries = 1_000.0, 0
    while now < 1_000.0 + 3 * DAY:
        found = made.pick(now)
        if isinstance(found, MessageBatch):
            tries += 1
            made.failed(made.lease(found, now), now, None)
        else:
            now += found or 1.0
    assert len(made) == 1, "it waits"
    assert 3 * DAY / LONGEST_PAUSE < tries < 8 * DAY / LONGEST_PAUSE
    assert picked(made, now + LONGEST_PAUSE) == ["a-fire"]


def test_three_days_without_network_end_in_one_message() -> None:
    made, now, tries = SendQueue(Random(3)), 1_000.0, 0
    for number in range(60):
        made.add(notification(about(f"a{number}", severity="critical" if number % 3 else "warning")), now)
        until = now + 3 * DAY / 60
        while now < until:
            found = made.pick(now)
            if isinstance(found, MessageBatch):
                found = made.lease(found, now)
                made.failed(found, now, None)
                tries += 1
            now += min(until - now, found if isinstance(found, float) else 1.0) or 0.001
    made.retry_now(now)
    messages: list[int] = []
    while isinstance(found := made.pick(now), MessageBatch):
        made.sent(found)
        messages.append(len(found.queued))
    assert sum(messages) == 60, "nothing is dropped"
    assert len(messages) <= 2, "one may be tried alone first"
    assert tries < 60 + 4 * 3 * DAY / LONGEST_PAUSE


def test_what_is_refused_is_given_up_and_tried_again_every_hour() -> None:
    made = queue(about("a"))
    assert [one.notice.key for one in made.refused(batch(made, 1_000.0), 1_000.0)] == ["a-fire"]
    assert waits(made, 1_000.0) == REFUSED_PAUSE
    assert made.refused(batch(made, 1_000.0 + REFUSED_PAUSE), 1_000.0 + REFUSED_PAUSE) == [], "once"
    made.compare({"a-fire": {"mail": True}})
    assert made.pick(9e9) is None, "somebody was told by another channel"


def test_a_notification_that_waits_is_kept_when_another_channel_has_sent_it() -> None:
    made = queue(about("a"))
    made.compare({"a-fire": {"mail": True}})
    assert picked(made, 1_000.0) == ["a-fire"]


def test_an_old_heartbeat_is_not_sent() -> None:
    made = queue(beat(expires_at=2_000.0), about("a"))
    assert made.expired(1_999.0, 1_999.0) == []
    assert [one.notice.kind for one in made.expired(2_000.0, 2_000.0)] == ["heartbeat"]
    assert picked(made, 3_000.0) == ["a-fire"]


def test_at_the_end_all_that_can_go_goes_in_one_message() -> None:
    made = queue(*(about(name) for name in "abc"))
    assert sorted(picked(made, 1_000.0, is_last=True)) == ["a-fire", "b-fire", "c-fire"]
    made = queue(about("a"))
    made.failed(batch(made, 1_000.0), 1_000.0, 60.0)
    assert picked(made, 1_001.0, is_last=True) == [], "a receiver that wants to be left alone is"


def test_what_is_being_sent_is_not_taken_out() -> None:
    made = queue(about("a"), about("b"))
    found = batch(made, 1_000.0)
    assert [one.notice.key for one in made.clear(found)] == ["b-fire"]
    made.failed(found, 1_000.0, None)
    assert [one.notice.key for one in made.clear()] == ["a-fire"]
