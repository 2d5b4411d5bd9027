"""Killed (SIGKILL) at seeded points between finding something and having marked it as told, with receivers that fail:
every alert arrives, and after a crash at most one message by each channel comes again.

`python -m tests.bench.chaos` kills more often.
"""

from __future__ import annotations

import contextlib
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.bench import chaos
from tests.chaos.story import Outcome, Story, story
from tests.lab.receiver import CLOSE, CUT, DIE, HANG, WELL, Answer, Receiver, status

DAY = 86_400.0
ENOUGH_PLACES = 8


def all_arrived(outcome: Outcome) -> bool:
    assert outcome.lost == []
    assert outcome.notices >= outcome.kills / 4, "hardly anything was told"
    return True


def test_forty_kills_lose_nothing(tmp_path: Path) -> None:
    with story(tmp_path, seed=2_026) as scene:
        scene.lose_lives(40)
        outcome = scene.end()
    assert all_arrived(outcome)
    assert outcome.kills == 40
    assert outcome.most_copies_a_crash <= 1, outcome.copies
    assert len(outcome.points) >= ENOUGH_PLACES, outcome.points
    assert len(set(outcome.answers)) >= 4, f"receivers failed in too few ways: {outcome.answers}"


def test_mail_that_goes_by_apprise_is_not_lost_either(tmp_path: Path) -> None:
    with story(tmp_path, seed=5, mail=True) as scene:
        scene.lose_lives(4, seconds=3.0)
        assert all_arrived(scene.end())


def test_a_ledger_on_a_network_file_system_loses_nothing(tmp_path: Path) -> None:
    with story(tmp_path, seed=6) as scene:
        scene.spec = scene.changed(is_network=True)
        scene.lose_lives(6)
        outcome = scene.end()
        assert scene.ledger.with_name("ledger.lock").exists() is False, "no lock is believed there"
    assert all_arrived(outcome)
    assert outcome.most_copies_a_crash <= 1


def test_an_outage_of_a_channel_with_a_fallback_loses_nothing(tmp_path: Path) -> None:
    with story(tmp_path, seed=12, fallback=True) as scene:
        scene.lose_lives_in_an_outage(12)
        while not told_by_the_fallback(scene) and scene.outcome.kills < 60:  # most lives are too short for it
            scene.lose_lives_in_an_outage(5)
        outcome = scene.end()
        assert told_by_the_fallback(scene) >= 1, "the fallback was not needed"
    assert all_arrived(outcome)
    assert outcome.most_copies_a_crash <= 1, outcome.copies


def test_a_receiver_that_hangs_and_a_crash_every_8_s_do_not_keep_a_message_from_the_fallback(tmp_path: Path) -> None:
    with story(tmp_path, seed=13, fallback=True) as scene:
        waited = scene.lose_lives_beside(HANG, every=8.0, within=300.0)
        assert waited is not None
        assert 30.0 <= waited <= 60.0
        assert all_arrived(scene.end())


def test_the_matrix_refuses_a_cell_that_it_does_not_have() -> None:
    with pytest.raises(SystemExit, match=r"no such cell: 5OO. There are: 429; .* hangs, random lives"):
        chaos.matrix(9.0, ("hangs", "5OO"))


@pytest.mark.parametrize("fault", [status(500), status(429), CUT, DIE, CLOSE, WELL])
def test_a_cell_of_the_matrix_knows_whether_its_receivers_failed(fault: Answer) -> None:
    with Receiver.start() as receiver:
        receiver.always(fault)
        assert chaos.faults_met(receiver, fault) == 0, "nothing was sent"
        with contextlib.suppress(OSError, HTTPException):
            urlopen(receiver.url, b"f00001", timeout=10).read()
        assert chaos.faults_met(receiver, fault) == (fault is not WELL)


def told_by_the_fallback(scene: Story) -> int:
    ((count,),) = scene.rows("SELECT count(*) FROM outbox WHERE channel = 'fallback' AND state IN ('sent', 'merged')")
    return int(count)


def test_two_programs_that_take_over_from_each_other_lose_nothing(tmp_path: Path) -> None:
    with story(tmp_path, seed=9) as scene:
        scene.lose_lives_in_pairs(6)
        outcome = scene.end()
    assert all_arrived(outcome)
    assert max(outcome.copies.values(), default=0) <= outcome.kills, "at most one by each channel for each crash"


def test_clocks_that_jump_both_ways_lose_nothing(tmp_path: Path) -> None:
    with story(tmp_path, seed=7) as scene:
        for shift in (3 * DAY, -3 * DAY, 0.0, -30 * DAY, 30 * DAY, 0.0):
            scene.lose_lives(1, shift=shift)
        assert all_arrived(scene.end())


def test_a_disk_that_is_full_now_and_then_loses_nothing(tmp_path: Path) -> None:
    with story(tmp_path, seed=8) as scene:
        scene.lose_lives(2)
        full = full_at(scene)
        for pages in (full, 0, full, full, 0):
            scene.lose_lives(1, pages=pages)
        assert all_arrived(scene.end())


def full_at(scene: Story) -> int:
    """As many pages as the ledger has now: nothing more has room."""
    ((pages,),) = scene.rows("PRAGMA page_count")
    assert isinstance(pages, int)
    return pages
