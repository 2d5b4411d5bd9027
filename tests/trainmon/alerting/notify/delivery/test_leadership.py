"""Several programs on one ledger: one of them tells, the others show, and one takes over when it dies."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.notify.delivery.running import program
from tests.trainmon.alerting.notify.delivery.scene import PATIENT, Phone, Scene, Shifted, fire, opened, plain, until
from trainmon.alerting.notify.delivery.election import LEASE, QUIET
from trainmon.alerting.notify.message import Message, render
from trainmon.ledger.lease import LOCK, Holder, LeaderNote, LeaseLock, is_locked, this_program, write_note
from trainmon.ledger.ledger import alerts_now, submit_request
from trainmon.lib import Instant
from trainmon.model import (
    AlertRequest,
    AlertRequested,
    AlertsReported,
    AlertsRestored,
    Event,
    Health,
    Leadership,
    LeadershipChanged,
    Notice,
    Source,
    State,
)

ACK = AlertRequest(verb="ack", at=time.time(), by="ana", alert="a", via="command")


@contextmanager
def standing_by(directory: Path, *phones: Phone, **options: object) -> Iterator[Scene]:
    scene = Scene(directory, *phones, **options)
    scene.start()
    try:
        until(lambda: scene.holder == "other")
        yield scene
    finally:
        scene.stop(0.0)


@pytest.mark.parametrize("disk", ["local", "network"])
def test_of_two_programs_one_notifies_and_the_other_takes_over_when_it_is_killed(tmp_path: Path, disk: str) -> None:
    phone = Phone()
    with program(tmp_path, disk) as first:
        assert ("network file system" in first.says("us")) == (disk == "network")
        with standing_by(tmp_path, phone, is_network=disk == "network") as second:
            first.fire("a")
            until(lambda: first.came == ["a-fire"])
            until(lambda: [one.id for event in second.of(AlertsReported)[-1:] for one in event.alerts] == ["a"])
            until(lambda: second.of(LeadershipChanged)[-1].leadership.at is not None)
            current = second.of(LeadershipChanged)[-1].leadership
            assert (current.holder, current.where) == ("other", f"pid {first.process.pid}")
            second.enqueue(fire("mine"))
            second.until_marked()
            first.kill()
            until(lambda: second.holder == "us")
            (stored,) = [event.stored for event in second.of(AlertsRestored)]
            assert [one.id for one in stored.alerts] == ["a"]
            second.enqueue(fire("b"))
            until(lambda: phone.keys == ["b-fire"])
    assert first.came == ["a-fire"]


def test_what_a_killed_program_was_sending_is_sent_by_the_next(tmp_path: Path) -> None:
    hangs, go = Phone(), threading.Event()
    hangs.script.append(go)
    with opened(tmp_path, hangs) as first:
        first.enqueue(fire())
        until(lambda: first.rows("SELECT state FROM outbox") == [("leased",)])
        copy = tmp_path / "copy"
        copy.mkdir()
        plain(first.ledger.file, f"VACUUM INTO '{copy / 'ledger.sqlite'}'")  # as it would be if it were killed now
        phone = Phone()
        with opened(copy, phone) as second:
            until(lambda: phone.keys == ["a-fire"])
            until(lambda: second.rows("SELECT state, attempts FROM outbox") == [("sent", 2)])
        go.set()


def seize(scene: Scene, written_at: Instant) -> None:
    """A program of another machine has the duty, on a network file system."""
    there = Holder(pid=1, host="elsewhere", name="theirs")
    with sqlite3.connect(scene.ledger.file, timeout=PATIENT) as connection:
        write_note(connection, LeaderNote(holder=there, started_at=written_at, written_at=written_at))
    connection.close()


def test_what_another_program_took_over_meanwhile_is_not_sent_by_one_that_was_stopped(tmp_path: Path) -> None:
    phone, go = Phone(), threading.Event()
    phone.script.append(go)
    with opened(tmp_path, phone, is_network=True) as first:
        first.enqueue(fire("a"))
        until(lambda: len(phone.tried) == 1)
        first.enqueue(fire("b"))
        until(lambda: len(first.rows("SELECT 1 FROM outbox WHERE state = 'waiting'")) == 1)
        seize(first, first.clock.now())
        go.set()
        until(lambda: first.holder == "other")
        assert phone.keys == ["a-fire"]
        seize(first, 0.0)
        until(lambda: first.holder == "us")
        until(lambda: "b-fire" in phone.keys)
        assert len(first.of(AlertsRestored)) == 2, "what the other did meanwhile is known"
        first.enqueue(fire("c"))
        until(lambda: "c-fire" in phone.keys)
        first.until_marked()


def test_nothing_is_sent_by_one_that_has_read_that_another_program_leads(tmp_path: Path) -> None:
    phone, clock, begun, go = Phone(), Shifted(), threading.Event(), threading.Event()

    def render_late(notices: Sequence[Notice], now: Instant) -> Message:
        begun.set()
        assert go.wait(PATIENT)
        return render(notices, now)

    with opened(tmp_path, phone, is_network=True, clock=clock, render=render_late) as scene:
        submit = scene.service._election._submit

        def hand_over(event: Event) -> None:
            submit(event)
            if isinstance(event, LeadershipChanged) and event.leadership.problem == "another program leads now":
                go.set()
                until(lambda: not scene.service._deliverer._outcomes.empty())

        scene.service._election._submit = hand_over
        scene.enqueue(fire("a"))
        until(begun.is_set)
        seize(scene, clock.now())
        clock.passed += LEASE
        scene.service.report_trouble(None)
        until(lambda: scene.holder == "other")
        until(go.is_set)
        assert phone.tried == []


def test_leadership_comes_back_to_one_that_did_not_notice_its_loss(tmp_path: Path) -> None:
    phone = Phone()
    with opened(tmp_path, phone, is_network=True) as first:
        first.enqueue(fire("first"))
        until(lambda: phone.keys == ["first-fire"])
        first.until_marked()
        seize(first, 0.0)
        first.enqueue(fire("a"))
        until(lambda: len(first.of(AlertsRestored)) == 2)
        until(lambda: first.holder == "us")
        first.enqueue(fire("b"))
        until(lambda: phone.keys == ["first-fire", "b-fire"])
        first.until_marked()


def test_one_that_was_stopped_and_lost_the_lease_leads_again_when_it_is_free(tmp_path: Path) -> None:
    phone, clock, go = Phone(), Shifted(), threading.Event()
    with opened(tmp_path, phone, is_network=True, clock=clock) as scene:
        scene.enqueue(fire("first"))
        until(lambda: phone.keys == ["first-fire"])
        scene.until_marked()
        scene.ledger.run(lambda: go.wait(PATIENT), lambda: None)
        scene.enqueue(fire("unwritten"))  # it is stopped while it writes this
        until(lambda: scene.service._journal._writing is not None)
        seize(scene, 0.0)
        clock.passed += LEASE
        scene.service.report_trouble(None)
        until(lambda: "was stopped" in (scene.of(LeadershipChanged)[-1].leadership.problem or ""))
        go.set()
        until(lambda: scene.holder == "us")
        scene.enqueue(fire("a"))
        until(lambda: "a-fire" in phone.keys)


@pytest.mark.parametrize("is_network", [False, True])
def test_a_program_with_a_channel_takes_over_from_one_without(tmp_path: Path, is_network: bool) -> None:
    """A dashboard without [[notify]] was started first, then the daemon: alerts must reach people."""
    phone = Phone()
    with (
        opened(tmp_path, is_network=is_network) as without,
        opened(tmp_path, phone, is_network=is_network) as second,
        standing_by(tmp_path, Phone("mail"), is_network=is_network) as third,
    ):
        until(lambda: without.holder == "other")
        second.enqueue(fire())
        until(lambda: phone.keys == ["a-fire"])
        assert (second.holder, third.holder) == ("us", "other")


@pytest.mark.parametrize("is_network", [False, True], ids=["local", "network"])
def test_an_orderly_end_leaves_leadership_to_the_other(tmp_path: Path, is_network: bool) -> None:
    how = {"is_network": is_network}
    with opened(tmp_path, Phone(), **how) as first, standing_by(tmp_path, Phone(), **how) as second:
        first.stop(0.0)
        until(lambda: second.holder == "us")


def test_requests_of_a_standby_reach_the_leader(tmp_path: Path) -> None:
    with opened(tmp_path, Phone()) as first, standing_by(tmp_path, Phone()) as second:
        second.service.request(ACK)
        until(lambda: [event.request for event in first.of(AlertRequested)] == [ACK])
        one = first.of(AlertRequested)[0].number
        mute = replace(ACK, verb="unmute", alert="s1")
        assert submit_request(tmp_path, mute) == one + 1
        until(lambda: first.of(AlertRequested) == [AlertRequested(ACK, one), AlertRequested(mute, one + 1)])
        first.service.request(replace(ACK, by="bob"))
        until(lambda: first.of(AlertRequested)[-1] == AlertRequested(replace(ACK, by="bob"), None))
        assert second.of(AlertRequested) == []
        first.enqueue(requests_until=one + 1)
        until(lambda: alerts_now(tmp_path, first.clock.now()).stored.requests_until == one + 1)
    with opened(tmp_path, Phone()) as third:
        submit_request(tmp_path, ACK)
        until(lambda: third.of(AlertRequested) == [AlertRequested(ACK, one + 2)])


def test_a_request_can_be_recorded_before_there_is_a_leader(tmp_path: Path) -> None:
    number = submit_request(tmp_path / "new", ACK)
    with opened(tmp_path / "new", Phone()) as scene:
        until(lambda: scene.of(AlertRequested) == [AlertRequested(ACK, number)])


def test_others_read_who_is_leader_and_its_health(tmp_path: Path) -> None:
    assert alerts_now(tmp_path, 0.0).leader is None
    with opened(tmp_path, Phone(), program="alerts-only") as scene:
        now = scene.clock.now()
        scene.service.tick(State(at=now, started_at=now, evaluated_at=now))
        scene.service.report_trouble(None)
        until(lambda: (found := alerts_now(tmp_path, now).leader) is not None and found.note.last_tick_at == now)
        found = alerts_now(tmp_path, now).leader
        assert found is not None
        assert (found.is_held, found.note.program, found.note.holder.pid) == (True, "alerts-only", os.getpid())
        assert [one.name for one in found.note.channels] == ["phone"]
    found = alerts_now(tmp_path, now).leader
    assert found is not None
    assert not found.is_held


def test_a_source_that_changed_is_read_within_seconds_and_not_at_the_next_regular_note(tmp_path: Path) -> None:
    with opened(tmp_path, Phone(), program="alerts-only") as scene:
        now = scene.clock.now()

        def health() -> list[str]:
            found = alerts_now(tmp_path, now).leader
            return [one.health for one in found.note.sources] if found is not None else []

        def tick(health: Health) -> None:
            sources = {"node:n0": Source(name="node:n0", kind="node", cluster="c", health=health)}
            scene.service.tick(State(at=now, started_at=now, evaluated_at=now, sources=sources))

        tick("late")
        until(lambda: health() == ["late"])
        scene.service._election.next_note = float("inf")  # the regular one does not come
        tick("ok")
        until(lambda: health() == ["ok"])


def test_a_leader_whose_loop_hangs_is_reported(tmp_path: Path) -> None:
    with opened(tmp_path, Phone()) as first:
        now = first.clock.now()
        first.service.tick(State(at=now, started_at=now, evaluated_at=now))
        first.service.report_trouble(None)
        with standing_by(tmp_path, Phone(), clock=Shifted(QUIET * 3)) as second:

            def current() -> Leadership:
                duties: list[LeadershipChanged] = second.of(LeadershipChanged)
                return duties[-1].leadership

            until(lambda: current().problem is not None)
            assert current().problem == "it has written nothing to the ledger for 3m"


def test_a_lock_is_one_programs_and_says_whose(tmp_path: Path) -> None:
    us, others = this_program(), Holder(pid=1, host="elsewhere", name="x")
    first, second = LeaseLock(tmp_path, us), LeaseLock(tmp_path, others)
    assert not is_locked(tmp_path)
    assert first.take() is None
    assert first.take() is None, "again"
    assert second.take() == us
    assert is_locked(tmp_path)
    assert (tmp_path / LOCK).stat().st_mode & 0o777 == 0o600
    first.release()
    assert not is_locked(tmp_path)
    assert second.take() is None
    assert first.take() == others


def test_a_lock_whose_file_somebody_removed_is_taken_anew(tmp_path: Path) -> None:
    first, second = LeaseLock(tmp_path, this_program()), LeaseLock(tmp_path, this_program())
    assert first.take() is None
    (tmp_path / LOCK).unlink()
    assert second.take() is None
    assert first.take() is not None, "one of them stands back at its next look"


def test_a_child_of_the_holder_does_not_keep_the_lock(tmp_path: Path) -> None:
    lock = LeaseLock(tmp_path, this_program())
    assert lock.take() is None
    child = subprocess.Popen(["sleep", "30"])
    lock.release()
    assert not is_locked(tmp_path)
    child.kill()
    child.wait()


def test_a_lock_that_cannot_be_taken_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / LOCK).mkdir()
    with opened(tmp_path, Phone()) as scene:
        assert scene.of(LeadershipChanged)[0].leadership.problem == f"the ledger {tmp_path / LOCK}: is a directory"


def test_the_readers_of_a_lock_do_not_take_it(tmp_path: Path) -> None:
    lock = LeaseLock(tmp_path, this_program())
    assert lock.take() is None
    lock.release()
    other = LeaseLock(tmp_path, this_program())
    assert not is_locked(tmp_path)
    assert other.take() is None
    assert is_locked(tmp_path)
    other.release()
