"""What makes an episode of an alert."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from trainmon.alerting.pipeline.episode import SLOT, STATES, after_outage, alert_id, flapped, flapping, new_alert
from trainmon.model import Alert, Finding

NOW = 1_750_000_000.0
HOT = Alert(
    id="a", rule="gpu-hot", subject="gpu:n1/0", severity="warning", summary="hot", since=NOW, found_at=NOW,
    pending_since=NOW,
)  # fmt: skip


def nagios(changed: list[bool]) -> float:
    """base/flapping.c, over the states oldest first: each change weighs 0.75 (oldest) to 1.25 (newest)."""
    total = 0.0
    for place in range(1, 21):
        if changed[place - 1]:
            total += (place - 1) * (1.25 - 0.75) / 19 + 0.75
    return total * 100 / 20


def episodes(minutes: list[int]) -> list[Alert]:
    """One that fired so many minutes ago, each."""
    return [
        replace(HOT, id=str(minute), phase="resolved", fired_at=NOW - 60 * minute - 1, resolved_at=NOW - 9_999)
        for minute in minutes
    ]


@pytest.mark.parametrize(
    "minutes", [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [5, 9, 13, 17], [16, 17, 18, 19], [0, 6, 12]]
)
def test_it_flaps_by_the_weighted_share_of_nagios(minutes: list[int]) -> None:
    changed = [STATES - 2 - place in minutes for place in range(STATES - 1)]
    assert bool(flapping(episodes(minutes), NOW)) == (nagios(changed) >= 20.0)


def test_what_flaps_is_stable_again_when_the_share_is_small() -> None:
    still = [replace(alert, flapping=True) for alert in episodes([1, 12])]
    assert flapping(still, NOW) == {HOT.key: True}
    assert flapping(still, NOW + 8 * SLOT) == {HOT.key: True}
    assert flapping(still, NOW + 10 * SLOT) == {HOT.key: False}


def test_another_episode_of_what_flaps_inherits_who_was_notified() -> None:
    before = replace(episodes([1])[0], flapping=True, notified_on=("phone",), notified_as="warning")
    newest = replace(episodes([0])[0], phase="firing", resolved_at=None)
    others = episodes([3, 5, 7])
    changed = flapped({alert.id: alert for alert in (before, newest, *others)}, NOW).changed
    assert (changed[newest.id].flapping, changed[newest.id].notified_on) == (True, ("phone",))
    assert (changed[before.id].flapping, changed[before.id].notified_on) == (False, ())


@pytest.mark.parametrize(
    ("flaps", "fired", "resolved"),
    [((-35, -5), -25, -15), ((-35,), -25, -5), ((-25,), -35, -5), ((-5, -25), -35, -15), ((-25, -15), -5, -35)],
    ids=str,
)
def test_of_the_changes_in_a_minute_the_first_and_the_last_are_kept_in_whatever_order_they_come(
    flaps: tuple[int, ...], fired: int, resolved: int
) -> None:
    """NOW is 40 s after a full minute."""
    at = int(NOW)
    before = replace(
        HOT, phase="resolved", flaps=tuple(at + one for one in flaps), fired_at=NOW + fired, resolved_at=NOW + resolved
    )
    finding = Finding(rule=HOT.rule, subject=HOT.subject, severity="warning", summary="hot", cluster="prod")
    again = new_alert(finding, NOW, {}, lambda: "t", before)
    assert (again.flaps, again.episode) == ((at - 35, at - 5), 2)


@pytest.mark.parametrize(
    ("stood", "outage", "counts"),
    [
        (1_800, 60, 1_800),  # goes on where it stood
        (20, 3_600, 20),
        (1_800, 3_700, 0),  # too long away: anew
        (-5, 60, 0),  # dated ahead: its clock was set back meanwhile
    ],
)
def test_what_a_hold_has_stood_counts_after_an_outage(stood: float, outage: float, counts: float) -> None:
    again = after_outage(replace(HOT, pending_since=NOW - outage - stood), outage, NOW)
    assert again.pending_since is not None
    assert NOW - again.pending_since == counts


def test_what_recovers_when_nothing_is_evaluated_is_firing_again() -> None:
    recovering = replace(HOT, phase="recovering", clear_since=NOW - 50)
    assert after_outage(recovering, 60, NOW).phase == "firing"


def test_the_same_happening_has_the_same_name_everywhere_and_no_other_has_it() -> None:
    name = alert_id("run-dead", "run:llm", NOW, {})
    assert name == alert_id("run-dead", "run:llm", NOW + 0.4, {})
    assert len(name) == 8
    assert name.isalnum()
    others = {alert_id("run-dead", "run:llm", NOW, {name}), alert_id("run-dead", "run:llm", NOW + 5, {}),
              alert_id("run-dead", "run:video", NOW, {}), alert_id("run-hung", "run:llm", NOW, {})}  # fmt: skip
    assert name not in others
    assert len(others) == 4
