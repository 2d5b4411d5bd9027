"""The lease of a ledger on a disk of this machine: who leads, renews, and takes over."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainmon.ledger.lease import LOCK, Holder, LeaseLock

Make = Callable[[str], LeaseLock]


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Make]:
    """Makes one for a program; each has asked once who leads."""
    made: list[LeaseLock] = []

    def make(name: str) -> LeaseLock:
        made.append(LeaseLock(tmp_path, Holder(pid=len(made) + 1, host="here", name=name)))
        made[-1].take()
        return made[-1]

    yield make
    for one in made:
        one.release()


def test_a_leader_shows_that_it_makes_progress_and_only_then(lock: Make) -> None:
    leader, standby = lock("leader"), lock("standby")
    assert (leader.is_ours, standby.is_ours, leader.reach(), standby.reach()) == (True, False, None, 1)
    assert leader.renew(has_progressed=True)
    assert standby.reach() == 2
    assert leader.renew(has_progressed=False)
    assert standby.reach() == 2


def test_one_of_two_standbys_takes_over_from_a_leader_that_stands_still(lock: Make) -> None:
    leader, second, third = lock("leader"), lock("second"), lock("third")
    seen = [standby.reach() for standby in (second, third)]
    assert [standby.take_over(reach or 0) for standby, reach in zip((second, third), seen, strict=True)] == [
        True,
        False,
    ]
    assert (leader.is_superseded, second.is_superseded) == (True, False)
    assert leader.take() == Holder(pid=0, host=""), "until the new one has signed"
    assert second.take() is None
    assert leader.take() == Holder(pid=2, host="here", name="second")
    assert not leader.renew(has_progressed=True)
    assert leader.is_superseded, "until it leads again, or ends"
    assert second.renew(has_progressed=True)
    second.release()
    assert third.reach() is None, "the locks of the first one are gone, too"
    leader.release()
    assert not leader.is_superseded


def test_nobody_takes_over_from_a_leader_that_has_renewed_meanwhile(lock: Make) -> None:
    leader, standby = lock("leader"), lock("standby")
    reach = standby.reach()
    assert leader.renew(has_progressed=True)
    assert not standby.take_over(reach or 0)
    assert not leader.is_superseded


def test_a_leader_that_was_superseded_leads_again_when_the_other_one_ends(lock: Make) -> None:
    leader, standby = lock("leader"), lock("standby")
    assert standby.take_over(standby.reach() or 0)
    assert not leader.renew(has_progressed=True)
    standby.release()
    assert leader.take() is None
    assert leader.is_ours
    assert not leader.is_superseded


def test_a_leader_whose_successor_ended_before_it_noticed_leads_still(lock: Make) -> None:
    leader, standby = lock("leader"), lock("standby")
    assert standby.take_over(standby.reach() or 0)
    standby.release()
    assert leader.renew(has_progressed=True)


def test_of_two_leaders_of_a_lock_that_was_removed_one_gives_way(lock: Make, tmp_path: Path) -> None:
    leader = lock("leader")
    (tmp_path / LOCK).unlink()
    other = lock("other")
    assert (leader.is_ours, other.is_ours) == (True, True)
    assert leader.take() == Holder(pid=2, host="here", name="other")
    assert (leader.is_ours, other.is_ours) == (False, True)


def test_a_child_keeps_no_lock(lock: Make) -> None:
    leader, standby = lock("leader"), lock("standby")
    child = subprocess.Popen(["sleep", "30"])
    leader.release()
    assert standby.reach() is None
    child.kill()
    child.wait()


def test_what_is_not_open_leads_nowhere_and_stops_nobody(tmp_path: Path) -> None:
    one = LeaseLock(tmp_path / "none", Holder(pid=os.getpid(), host="here"))
    assert (one.reach(), one.is_ours, one.is_superseded) == (None, False, False)
    assert one.renew(has_progressed=True)
    assert not one.take_over(0)
