"""The daily budget of a channel: the last tenth is for critical alerts, and near the limit there are summaries."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

import pytest

from tests.trainmon.alerting.notify.delivery.send_queues import DAY, batch, notification
from tests.trainmon.alerting.notify.samples import alert, notice
from trainmon.alerting.notify.delivery.due import (
    CRITICAL_OVERDUE,
    NEWS_PAUSE,
    RESERVED_NEWS_PAUSE,
    SPENT_PAUSE,
    Budget,
    MessageBatch,
    SendQueue,
)
from trainmon.model import Notification, Severity

START = 1_000.0


def made(name: str, severity: Severity = "warning", kind: str = "fire") -> Notification:
    one = alert(id=name, subject=f"run:{name}", severity=severity)
    return notification(notice(one, key=f"{kind}-{name}", kind=kind, severity=severity))


def sent(queue: SendQueue, at: float) -> list[str]:
    """What one message holds that is sent now; nothing if it must wait."""
    found = batch(queue, at)
    if found.queued:
        queue.sent(found)
        queue.budget.spend(found.queued, 1, at)
    return [one.notice.key for one in found.notifications]


def after(used: int, per_day: int = 200) -> SendQueue:
    """A queue whose channel has sent so many messages, the last an hour ago."""
    queue = SendQueue(budget=Budget(per_day))
    queue.budget.restore(START + number for number in range(used))
    return queue


NOW = START + 3_600.0
WALL = 2_000_000_000.0
"""NOW by the clock on the wall."""


def storm(severity: Severity, *, is_new: bool) -> Iterator[Notification]:
    number = 0
    while True:
        number += 1
        name = f"n{number}" if is_new else f"n{number % 10}"
        one = alert(id=f"{name}-{number}", subject=f"run:{name}", severity=severity)
        yield notification(notice(one, key=f"fire-{number}", severity=severity))


@pytest.mark.parametrize("severity", ["warning", "critical"])
@pytest.mark.parametrize("is_new", [False, True])
@pytest.mark.parametrize("per_day", [10, 200, 1_000])
def test_a_storm_of_two_days_sends_no_more_than_the_budget_a_day(
    severity: Severity, is_new: bool, per_day: int
) -> None:
    queue, times = SendQueue(budget=Budget(per_day)), []
    for number, one in zip(range(2 * 24 * 60), storm(severity, is_new=is_new), strict=False):
        at = START + 60.0 * number
        queue.add(one, at)
        if sent(queue, at):
            times.append(at)
    most = max(bisect_left(times, at + DAY) - number for number, at in enumerate(times))
    assert most <= (0.9 * per_day + 1 if severity == "warning" else per_day + 24)
    assert most >= 0.6 * per_day, "the budget is used"
    assert times[-1] > START + 2 * DAY - 90_000 / (0.2 * per_day) - 3_600, "summaries go on to the end"


def test_below_the_limit_each_is_sent_alone_and_at_once() -> None:
    queue = after(138)
    queue.add(made("a"), NOW)
    queue.add(made("b"), NOW)
    assert sent(queue, NOW) == ["fire-a"]
    assert sent(queue, NOW) == ["fire-b"]


def test_near_the_limit_what_is_not_critical_goes_as_a_summary_now_and_then() -> None:
    queue = after(150)
    for name in "abc":
        queue.add(made(name), NOW)
    assert sent(queue, NOW) == ["fire-a", "fire-b", "fire-c"]
    queue.add(made("d"), NOW + 60)
    queue.add(made("a", kind="resolve"), NOW + 600)
    assert queue.pick(NOW + 600) == pytest.approx(DAY / 40 - 600), "forty summaries last for a day"
    assert sent(queue, NOW + DAY / 40) == ["fire-d", "resolve-a"]


def test_a_follow_up_is_no_critical_news_and_waits_as_any_other_near_the_limit() -> None:
    queue = after(190)
    queue.add(made("a", "critical", "cause"), NOW)
    assert sent(queue, NOW) == []


def test_a_follow_up_goes_with_its_first_message_if_that_still_waits() -> None:
    queue = SendQueue(budget=Budget(200))
    queue.add(made("a", "critical"), NOW)
    queue.failed(batch(queue, NOW), NOW, None)
    queue.add(made("a", "critical", "cause"), NOW + 1.0)
    assert sorted(sent(queue, NOW + 400.0)) == ["cause-a", "fire-a"]
    assert queue.budget.used(NOW + 400.0) == 1


def test_the_last_tenth_is_for_critical_alerts_and_the_end_of_one_is_none() -> None:
    queue = after(180)
    queue.add(made("a"), NOW)
    queue.add(made("b", "critical", "resolve"), NOW)
    assert sent(queue, NOW + DAY - 3_601 - 1) == [], "all other messages are used up"
    queue = after(180)
    queue.add(made("a"), NOW)
    queue.add(made("c", "critical"), NOW)
    assert sent(queue, NOW) == ["fire-c", "fire-a"], "what waits goes along, after it"


@pytest.mark.parametrize(("used", "pause"), [(150, NEWS_PAUSE), (190, RESERVED_NEWS_PAUSE)])
def test_near_the_limit_a_new_critical_subject_goes_at_once_and_a_storm_of_them_does_not(
    used: int, pause: float
) -> None:
    queue = after(used)
    for number, name in enumerate("abcd"):
        queue.add(made(name, "critical"), NOW + number)
    assert sent(queue, NOW + 5) == ["fire-a", "fire-b", "fire-c", "fire-d"]
    queue.add(made("e", "critical"), NOW + 6)
    assert queue.pick(NOW + 6) == pytest.approx(pause - 1)
    assert sent(queue, NOW + 5 + pause) == ["fire-e"]
    queue.add(made("f", "critical"), NOW + 10 * pause)
    assert sent(queue, NOW + 10 * pause) == ["fire-f"]


def test_what_fires_again_and_again_does_not_hold_up_a_new_critical_subject() -> None:
    queue = after(185)
    queue.add(made("a", "critical"), NOW)
    assert sent(queue, NOW) == ["fire-a"]
    again = notification(notice(alert(id="a2", subject="run:a"), key="again"))
    queue.add(again, NOW + 400)
    assert sent(queue, NOW + 400) == []
    queue.add(made("b", "critical"), NOW + 500)
    assert sent(queue, NOW + 500) == ["fire-b", "again"]


def test_beyond_the_budget_critical_alerts_go_once_an_hour_and_the_fallback_gets_them_within_a_minute() -> None:
    queue = after(200)
    queue.budget.spend((), 1, NOW)
    queue.add(made("a", "critical"), NOW + 1)
    queue.add(made("b"), NOW + 1)
    assert sent(queue, NOW + SPENT_PAUSE - 1) == []
    assert not queue.overdue(NOW + 1)
    assert [one.notice.key for one in queue.overdue(NOW + 1 + CRITICAL_OVERDUE)] == ["fire-a"]
    assert sent(queue, NOW + SPENT_PAUSE) == ["fire-a", "fire-b"]


def test_what_the_budget_holds_back_is_not_said_to_hang() -> None:
    queue = after(150)
    queue.budget.spend((), 1, NOW)
    queue.add(made("a"), NOW)
    free = NOW + DAY / 40
    assert queue.oldest_at(WALL + 1_800, NOW + 1_800) is None
    assert queue.oldest_at(WALL + DAY / 40 + 60, free + 60) == WALL + DAY / 40
    assert queue.overdue_count == 0


def test_the_end_of_the_program_sends_nothing_that_the_budget_holds_back() -> None:
    queue = after(185)
    queue.add(made("a"), NOW)
    assert not isinstance(queue.pick(NOW, is_last=True), MessageBatch)


def test_a_channel_without_a_budget_sends_everything() -> None:
    queue = after(10_000, per_day=0)
    queue.add(made("a"), NOW)
    assert sent(queue, NOW) == ["fire-a"]


def added(
    queue: SendQueue, at: float, key: str, *subjects: str, severity: Severity = "warning", kind: str = "fire"
) -> int:
    """Queue a notification of new episodes of these subjects; how many others it removes."""
    alerts = [alert(id=f"{key}-{name}", subject=f"run:{name}", severity=severity) for name in subjects]
    queue.add(notification(notice(*alerts, key=key, kind=kind, severity=severity)), at)
    return len(queue.supersede(key, at))


def waiting(queue: SendQueue, at: float) -> list[list[str]]:
    found = batch(queue, at, is_last=True).notifications
    return [[one.id for one in sent.notice.alerts] for sent in found]


def test_near_the_limit_what_waits_is_kept_per_subject_and_not_per_episode() -> None:
    queue = after(185)
    for episode in range(500):
        added(queue, NOW + episode, f"fire-{episode}", "a", "b" if episode % 2 else "c")
        added(queue, NOW + episode, f"end-{episode}", "a", "b" if episode % 2 else "c", kind="resolve")
    assert len(queue) == 4
    assert waiting(queue, NOW + DAY) == [
        ["fire-498-c"], ["end-498-c"], ["fire-499-a", "fire-499-b"], ["end-499-a", "end-499-b"],
    ]  # fmt: skip


def test_a_warning_does_not_replace_a_critical_alert_and_far_from_the_limit_nothing_is_replaced() -> None:
    queue = after(185)
    queue.budget.spend((), 1, NOW)
    assert added(queue, NOW, "worse", "a", severity="critical") == 0
    assert added(queue, NOW, "better", "a") == 0
    assert added(queue, NOW, "again", "a", severity="critical") == 1
    assert len(queue) == 2
    queue = after(100)
    assert [added(queue, NOW, f"fire-{number}", "a") for number in range(3)] == [0, 0, 0]


def test_the_next_episode_does_not_keep_a_critical_alert_from_the_fallback() -> None:
    queue = after(200)
    queue.budget.spend((), 1, NOW)
    for second in range(0, 50, 10):
        added(queue, NOW + second, f"fire-{second}", "a", severity="critical")
    assert [one.notice.key for one in queue.overdue(NOW + CRITICAL_OVERDUE)] == ["fire-40"]


def test_a_notification_that_was_tried_is_not_replaced_as_it_may_have_arrived() -> None:
    queue = after(140)
    added(queue, NOW, "first", "a", severity="critical")
    queue.failed(batch(queue, NOW), NOW, None)
    assert added(queue, NOW + 1, "second", "a", severity="critical") == 0


def known_critical_subject() -> tuple[SendQueue, Notification]:
    """A queue near its limit that has sent a critical alert of run:a, and another alert of that subject."""
    queue = after(185)
    queue.add(made("a", "critical"), NOW)
    assert sent(queue, NOW) == ["fire-a"]
    return queue, notification(notice(alert(id="a2", subject="run:a"), key="again"))


def test_a_known_critical_subject_does_not_go_to_the_fallback() -> None:
    queue, again = known_critical_subject()
    queue.add(again, NOW + 400)
    assert queue.overdue(NOW + 400 + CRITICAL_OVERDUE) == []


def test_a_critical_subject_is_still_known_after_a_reload() -> None:
    queue, again = known_critical_subject()
    reloaded = SendQueue(budget=Budget(200))
    reloaded.budget.take_over(queue.budget)
    reloaded.add(again, NOW + 400)
    assert (reloaded.budget.used(NOW), sent(reloaded, NOW + 400)) == (186, [])
