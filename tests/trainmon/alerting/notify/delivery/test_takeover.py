"""A leader that hangs, on real processes with a short lease: a standby takes over, and nothing is sent twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.hung_mount import HungMount
from tests.trainmon.alerting.notify.delivery.running import Program, program
from tests.trainmon.alerting.notify.delivery.scene import Phone, Scene, Shifted, fire, opened, plain, until
from trainmon.alerting.notify.message import Attachment
from trainmon.ledger.lease import LeaseLock, this_program
from trainmon.model import AlertsRestored, LeadershipChanged, Notice, State

LEASE = 4.0
"""A tenth of what it is in production."""

SENT = "SELECT key FROM outbox WHERE state = 'sent' AND key LIKE '%-fire'"


@contextmanager
def two(directory: Path, disk: str = "local", **env: Any) -> Iterator[tuple[Program, Program]]:
    """A leader and a standby; what they send is on another disk."""
    own = {"lease": LEASE, "patience": 1.0, **env}
    with program(directory, disk, sent_file=directory.with_name("told-1"), **own) as first:
        first.says("us")
        with program(directory, disk, sent_file=directory.with_name("told-2"), lease=LEASE, patience=1.0) as second:
            second.says("other")
            yield first, second


def fires(made: Program) -> list[str]:
    return [key for key in made.came if key.endswith("-fire")]


@pytest.mark.parametrize("disk", ["local", "network"])
def test_a_standby_takes_over_from_one_that_is_stopped_and_nothing_is_sent_twice(tmp_path: Path, disk: str) -> None:
    with two(tmp_path / "state", disk) as (first, second):
        first.fire("a")
        until(lambda: plain(tmp_path / "state" / "ledger.sqlite", SENT) == [("a-fire",)])
        first.stop()
        second.says("us")
        until(lambda: [key for key in second.came if key.startswith("took-over/")], "people are told that it hangs")
        first.fire("both")  # what it finds as soon as it goes on, and the other one has found already
        second.fire("both")
        until(lambda: fires(second) == ["both-fire"])
        until(lambda: ("both-fire",) in plain(tmp_path / "state" / "ledger.sqlite", SENT), "its mark")
        first.go_on()
        first.says("other")
        second.kill()
        first.says("us")
        first.fire("b")
        until(lambda: "b-fire" in first.came)
        assert fires(first) == ["a-fire", "b-fire"]


def test_a_standby_takes_over_from_one_that_no_longer_evaluates_though_its_threads_run(tmp_path: Path) -> None:
    with two(tmp_path / "state") as (first, second):
        first.fire("hang")
        second.says("us")
        first.says("other")
        second.fire("a")
        until(lambda: fires(second) == ["a-fire"])


@pytest.mark.parametrize("disk", ["local", "network"])
def test_one_that_was_stopped_within_a_transaction_keeps_nobody_from_notifying(tmp_path: Path, disk: str) -> None:
    with two(tmp_path / "state", disk) as (first, second):
        stopped_within = sqlite3.connect(tmp_path / "state" / "ledger.sqlite", isolation_level=None, timeout=20.0)
        first.stop()
        stopped_within.execute("BEGIN IMMEDIATE")  # in its place: the lock is the same
        second.says("us")
        second.fire("a")
        until(lambda: fires(second) == ["a-fire"])
        stopped_within.close()
        first.go_on()
        if disk == "local":
            first.says("other")
            until(lambda: plain(tmp_path / "state" / "ledger.sqlite", SENT) == [("a-fire",)])


def test_a_disk_that_hangs_for_the_leader_neither_ends_its_leadership_nor_hides_the_loss_of_it(tmp_path: Path) -> None:
    mount = HungMount.at(tmp_path / "state", tmp_path)
    watcher = LeaseLock(tmp_path / "state", this_program())
    with two(tmp_path / "state", env=mount.env) as (first, second):
        watcher.take()
        mount.hang()
        began = watcher.reach() or 0
        first.fire("a")
        until(lambda: fires(first) == ["a-fire"], "it notifies from memory")
        until(lambda: (watcher.reach() or 0) > began + LEASE, "it renews for longer than the lease")
        assert not any(line.startswith("us") for line in [*second.printed.queue]), "so nobody takes over"
        first.stop()
        second.says("us")
        second.fire("b")
        until(lambda: fires(second) == ["b-fire"])
        first.fire("b")
        first.go_on()
        first.says("other")
        mount.recover()
        until(lambda: ("b-fire",) in plain(tmp_path / "state" / "ledger.sqlite", SENT))
        second.kill()
        first.says("us")
        first.fire("c")
        until(lambda: "c-fire" in first.came)
        assert fires(first) == ["a-fire", "c-fire"]
    watcher.release()


def test_a_disk_that_hangs_for_all_does_not_keep_the_standby_from_taking_over(tmp_path: Path) -> None:
    mount = HungMount.at(tmp_path / "state", tmp_path)
    with (
        program(tmp_path / "state", sent_file=tmp_path / "told-1", lease=LEASE, patience=1.0, env=mount.env) as first,
        program(tmp_path / "state", sent_file=tmp_path / "told-2", lease=LEASE, patience=1.0, env=mount.env) as second,
    ):
        until(lambda: not first.printed.empty() and not second.printed.empty())
        leader, standby = (first, second) if first.printed.get().startswith("us") else (second, first)
        standby.says("other")
        mount.hang()
        leader.stop()
        standby.says("us")
        standby.fire("a")
        until(lambda: fires(standby) == ["a-fire"])
        leader.go_on()
        leader.says("other")
        mount.recover()


def test_a_message_that_is_ready_is_not_sent_if_another_program_took_over_meanwhile(tmp_path: Path) -> None:
    """Stopped while it draws: the ledger was asked before that, the lease is asked after it."""
    phone, other = Phone(), LeaseLock(tmp_path, this_program())
    superseded = []

    def draw(notices: tuple[Notice, ...]) -> tuple[Attachment, ...]:
        if not superseded:
            other.take()
            superseded.append(other.take_over(other.reach() or 0))
        return ()

    with opened(tmp_path, phone, attach=draw) as scene:
        scene.enqueue(fire())
        until(lambda: scene.holder == "other")
        assert superseded == [True]
        assert phone.tried == []
        other.release()
        until(lambda: phone.keys == ["a-fire"], "it leads again, and sends what waits")


def test_one_that_stood_still_reads_the_ledger_before_it_goes_on_and_loses_nothing(tmp_path: Path) -> None:
    phone, clock = Phone(), Shifted()
    with opened(tmp_path, phone, clock=clock) as scene:
        scene.enqueue(fire("a"))
        until(lambda: phone.keys == ["a-fire"])
        clock.passed += 60.0
        scene.enqueue(fire("b"))
        until(lambda: len(scene.of(AlertsRestored)) == 2)
        until(lambda: phone.keys == ["a-fire", "b-fire"])
        assert [event.leadership.holder for event in scene.of(LeadershipChanged)][-2:] == ["nobody", "us"]
        scene.until_marked()
    assert phone.keys == ["a-fire", "b-fire"]


def test_one_that_evaluates_is_not_taken_over_however_long_it_takes(tmp_path: Path) -> None:
    with opened(tmp_path, Phone()) as first:
        standby = Scene(tmp_path, Phone(), lease=LEASE)
        watcher = LeaseLock(tmp_path, this_program())
        watcher.take()
        standby.start()
        try:
            until(lambda: standby.holder == "other")
            began = watcher.reach() or 0

            def evaluates() -> bool:
                now = first.clock.now()
                first.service.tick(State(at=now, started_at=now, evaluated_at=now))
                return (watcher.reach() or 0) > began + LEASE

            until(evaluates)
            assert (first.holder, standby.holder) == ("us", "other")
        finally:
            standby.stop(0.0)
            watcher.release()
