"""The daemon on another machine: when it notifies, when this machine may, and the requests that are sent to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from collectors.daemon import DaemonCollector, request_argv
from tests.lab.daemons import until
from tests.tui.states.alerts import ALERTS, SILENCES, alert, channel
from trainmon.cli.alerts import MAX_AGE
from trainmon.engine.snapshot import alert_status
from trainmon.lib import HostUnreachable, LoginNeeded
from trainmon.model import (
    Alert,
    AlertRequest,
    AlertRequested,
    AlertsReported,
    Event,
    Leadership,
    LeadershipChanged,
    Silence,
    Source,
    SourceChanged,
)
from trainmon.transport.shell import Completed, Shell, Sink, Stream

NOW = 1_790_000_000.0


class HandClock:
    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return NOW + self.passed

    def monotonic(self) -> float:
        return 100.0 + self.passed


class Bastion:
    """Its shell, and what `trainmon-tui` there answers."""

    prompted = False

    def __init__(self, clock: HandClock) -> None:
        self.host = "bastion"
        self.clock = clock
        self.ran: list[tuple[str, ...]] = []
        self.answer: Callable[[Sequence[str]], Completed] = lambda argv: (
            self.well() if "status" in argv else Completed(0, b"{}", b"")
        )
        self.down: Exception | None = None
        self.ahead = 0.0
        self.alerts: tuple[Alert, ...] = ALERTS[:2]

    def status(self, holder: str = "alerts-only", words: str | None = None, looked: float = 4.0) -> bytes:
        now = self.clock.now() + self.ahead
        leadership = {
            "holder": holder, "pid": 7, "host": "bastion", "started_at": now - 900.0, "last_tick_at": now - looked,
            "words": words,
        }  # fmt: skip
        snapshot = alert_status(self.alerts, SILENCES, (channel(),))
        return json.dumps(
            {"version": 1, "at": now, "duty": leadership, "sources": [], "outbox": {}, **snapshot}
        ).encode()

    def well(self) -> Completed:
        return Completed(1, self.status(), b"")

    def nobody(self) -> Completed:
        return Completed(3, self.status("nobody", "nobody watches: alerts-only ended"), b"")

    def stopped(self, at: float) -> Completed:
        """Since then it does nothing; it wrote so 10 s before at the earliest."""
        looked = self.clock.passed - at
        return Completed(3 if looked > MAX_AGE else 1, self.status(looked=looked, words="it hangs"), b"")

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float) -> Completed:
        self.ran.append(tuple(argv))
        if self.down is not None:
            raise self.down
        return self.answer(argv)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


class Stage:
    """A watch without its thread; time passes in steps of a second."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.bastion = Bastion(self.clock)
        self.events: list[Event] = []
        self.leaders: list[tuple[float, str]] = []
        """When it took the duty of telling back, and when it gave it to us."""
        self.watch = DaemonCollector(
            "bastion", ["trainmon-tui"], 10.0, self.dial, self.events.append, self.clock,
            on_active=lambda _: self.leaders.append((self.clock.passed, "bastion")),
            on_silent=lambda why: self.leaders.append((self.clock.passed, f"us: {why}")),
        )  # fmt: skip

    def dial(self) -> Shell:
        if self.bastion.down is not None:
            raise self.bastion.down
        return self.bastion

    def play(self, seconds: float) -> Stage:
        until = self.clock.passed + seconds
        while self.clock.passed < until:
            self.watch.step()
            self.clock.passed += 1.0
        return self

    def last(self, kind: type) -> Any:
        return next(event for event in reversed(self.events) if isinstance(event, kind))

    @property
    def leadership(self) -> Leadership:
        found: Leadership = self.last(LeadershipChanged).leadership
        return found

    @property
    def source(self) -> Source:
        found: Source = self.last(SourceChanged).source
        return found


UNREACHABLE = HostUnreachable("bastion", "bastion: no answer in 10s")


def test_its_alerts_are_shown_and_it_is_the_leader() -> None:
    stage = Stage().play(1)

    assert stage.leaders == [(0.0, "bastion")]
    assert (stage.leadership.holder, stage.leadership.where, stage.leadership.at) == ("daemon", "bastion", NOW - 4.0)
    shown = stage.last(AlertsReported)
    assert [one.id for one in shown.alerts] == ["aaaa0001", "aaaa0002"]
    assert [one.token for one in shown.alerts] == ["", ""]
    assert [one.name for one in shown.channels] == ["phone"]
    assert {one.id for one in shown.silences} == {"s1", "w1"}
    assert (stage.source.name, stage.source.kind, stage.source.phase) == ("daemon:bastion", "daemon", "up")


def test_it_is_polled_once_a_period_and_becomes_the_leader_once() -> None:
    stage = Stage().play(35)

    assert stage.bastion.ran == [("trainmon-tui", "status", "--json")] * 4
    assert len(stage.leaders) == 1


def test_times_are_converted_to_our_clock_where_theirs_is_off() -> None:
    stage = Stage()
    stage.bastion.ahead = 300.0
    stage.bastion.alerts = (alert(since=NOW + 240.0, fired_at=NOW + 240.0, found_at=NOW + 300.0),)
    stage.play(1)

    found = stage.last(AlertsReported).alerts[0]
    assert found.since == pytest.approx(NOW - 60.0)
    assert stage.leadership.at == pytest.approx(NOW - 4.0)


def test_an_answer_that_took_long_over_a_slow_link_shifts_no_times() -> None:
    stage = Stage()

    def slow(argv: Sequence[str]) -> Completed:
        done = stage.bastion.well()
        stage.clock.passed += 8.0
        return done

    stage.bastion.answer = slow
    stage.bastion.alerts = (alert(since=NOW - 60.0),)
    stage.play(1)
    assert stage.last(AlertsReported).alerts[0].since == NOW - 60.0


def test_a_daemon_that_cannot_be_reached_stays_leader_for_a_minute_and_then_we_notify() -> None:
    stage = Stage().play(1)
    stage.bastion.down = UNREACHABLE
    stage.play(58)
    assert stage.leaders == [(0.0, "bastion")]
    assert (stage.leadership.holder, stage.leadership.problem) == ("daemon", "no answer in 10s")

    stage.play(10)
    assert [who for _, who in stage.leaders] == ["bastion", "us: no answer in 10s"]
    assert 60.0 <= stage.leaders[1][0] <= 66.0
    assert stage.source.error == "bastion: no answer in 10s"


def test_one_that_says_that_nobody_watches_there_is_believed_after_three_periods() -> None:
    stage = Stage()
    stage.bastion.answer = lambda argv: stage.bastion.nobody()
    stage.play(40)

    assert [who for _, who in stage.leaders] == ["us: nobody watches: alerts-only ended"]
    assert 30.0 <= stage.leaders[0][0] <= 36.0
    assert "trainmon-tui service systemd" in (stage.source.hint or "")


@pytest.mark.parametrize("phase", range(10))
def test_one_that_hangs_is_taken_over_from_within_a_minute(phase: int) -> None:
    stage = Stage().play(phase + 1)
    stage.bastion.ahead = 300.0  # its clock: its own times are compared
    began = stage.clock.passed
    stage.bastion.answer = lambda argv: stage.bastion.stopped(began)
    stage.play(60)

    assert [who for _, who in stage.leaders] == ["bastion", "us: it hangs"]
    assert MAX_AGE < stage.leaders[1][0] - began <= 58.0


def test_a_daemon_that_is_started_again_within_its_grace_changes_nothing() -> None:
    stage = Stage().play(1)
    stage.bastion.answer = lambda argv: stage.bastion.nobody()
    stage.play(20)
    stage.bastion.answer = lambda argv: stage.bastion.well()
    stage.play(60)

    assert stage.leaders == [(0.0, "bastion")]


def test_a_daemon_that_is_back_leads_again_before_anything_of_it_is_shown() -> None:
    stage = Stage()
    stage.bastion.down = UNREACHABLE
    stage.play(70)
    before = len(stage.events)
    stage.bastion.down = None
    seen: list[int] = []
    stage.watch._on_active = lambda _: seen.append(len(stage.events))
    stage.play(10)

    assert seen
    assert not any(isinstance(event, LeadershipChanged | AlertsReported) for event in stage.events[before : seen[0]])
    assert stage.leadership.holder == "daemon"


def test_a_first_answer_is_waited_for_one_period_and_then_our_own_alerts_are_shown() -> None:
    stage = Stage()
    stage.bastion.down = UNREACHABLE
    stage.play(12)

    assert (stage.leadership.holder, stage.leadership.problem) == ("nobody", "bastion: no answer in 10s")
    assert stage.leaders == []


def test_a_login_that_a_person_must_answer_is_not_tried_again_by_itself() -> None:
    stage = Stage()
    stage.bastion.down = LoginNeeded("bastion", "bastion: a code is wanted")
    stage.play(40)
    assert stage.source.phase == "held"
    assert stage.bastion.ran == []

    stage.bastion.down = None
    stage.watch.login()
    after: Source = stage.play(1).source
    assert after.phase == "up"


def test_a_host_that_waits_for_a_master_connection_is_polled_as_soon_as_one_is_open() -> None:
    stage = Stage()
    stage.bastion.down = LoginNeeded("bastion", "bastion: the master connection is closed")
    stage.bastion.down.waits_for_person = True
    stage.play(40)
    assert stage.source.phase == "retrying"
    stage.bastion.down = None
    assert stage.play(40).source.phase == "up"


def test_a_program_that_only_a_login_shell_finds_is_found_by_one() -> None:
    stage = Stage()
    missing = Completed(127, b"", b"bash: line 1: trainmon-tui: command not found")
    stage.bastion.answer = lambda argv: stage.bastion.well() if argv[0] == "bash" else missing
    stage.play(12)

    assert stage.leaders == [(0.0, "bastion")]
    assert stage.bastion.ran[1] == ("bash", "-lc", 'exec "$@"', "bash", "trainmon-tui", "status", "--json")
    assert stage.bastion.ran[2] == stage.bastion.ran[1]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Completed(127, b"", b""), "bastion: command not found: trainmon-tui"),
        (Completed(2, b"", b"Error: the ledger is of a newer version"), "the ledger is of a newer version"),
        (Completed(3, b"", b"trainmon-tui: the ledger is damaged"), "the ledger is damaged"),
        (Completed(0, b'{"version": 2, "at": 1.0}', b""), "bastion: its status has version 2, not 1"),
        (Completed(0, b'{"version": "x"}', b""), "bastion: its status cannot be decoded"),
    ],
)
def test_an_unusable_answer_is_reported(answer: Completed, words: str) -> None:
    stage = Stage()
    stage.bastion.answer = lambda argv: answer
    stage.play(1)

    assert words in (stage.source.error or "")
    assert stage.leaders == []


def test_just_before_we_send_it_is_queried_once_more() -> None:
    stage = Stage()
    stage.bastion.down = UNREACHABLE
    stage.play(70)
    stage.bastion.down = None

    stage.watch.start()
    try:
        assert stage.watch.answers(20.0)
    finally:
        stage.watch.stop()
    assert stage.leaders[-1][1] == "bastion"


def test_nobody_waits_for_the_last_check_of_a_watch_that_is_stopped() -> None:
    stage, hangs, closed = Stage(), threading.Event(), threading.Event()

    def hang(argv: Sequence[str]) -> Completed:
        hangs.set()
        closed.wait(600.0)
        raise UNREACHABLE

    stage.bastion.answer, stage.bastion.close = hang, closed.set  # type: ignore[method-assign]
    stage.watch.start()
    assert hangs.wait(20.0)
    asker = threading.Thread(target=stage.watch.answers, args=(600.0,), daemon=True)
    asker.start()
    until(lambda: stage.watch._waiting, "somebody waits for the last check")
    stage.watch.stop()
    asker.join(60.0)
    assert not asker.is_alive()


def test_the_last_check_is_not_lost_behind_many_requests() -> None:
    stage = Stage()
    asker = threading.Thread(target=stage.watch.answers, args=(600.0,), daemon=True)
    asker.start()
    until(lambda: stage.watch._waiting, "somebody waits for the last check")
    for _ in range(300):
        stage.watch.send(order())
    stage.play(1)
    asker.join(60.0)
    assert not asker.is_alive()


# ---- requests to it ------------------------------------------------------------------------------------------------


def order(verb: Any = "ack", **facts: Any) -> AlertRequest:
    return AlertRequest(**({"verb": verb, "at": NOW, "by": "me", "alert": "aaaa0001"} | facts))


def test_an_acknowledgement_is_carried_out_there_and_it_is_queried_at_once() -> None:
    stage = Stage().play(1)
    stage.watch.send(order(why="on it; rm -rf '$HOME'"))
    stage.play(1)

    assert stage.bastion.ran[-2:] == [
        ("trainmon-tui", "ack", "--json", "--by=me", "--why=on it; rm -rf '$HOME'", "--", "aaaa0001"),
        ("trainmon-tui", "status", "--json"),
    ]


def test_a_request_that_did_not_reach_it_is_reported() -> None:
    stage = Stage().play(1)
    stage.bastion.answer = lambda argv: Completed(2, b"", b"Usage: x\nError: no open alert 'aaaa0001'")
    stage.watch.send(order())
    stage.play(1)

    assert "ack did not reach bastion" in (stage.leadership.problem or "")
    assert "no open alert" in (stage.leadership.problem or "")


def test_a_request_after_we_took_over_is_carried_out_here() -> None:
    stage = Stage()
    stage.bastion.down = UNREACHABLE
    stage.play(70)
    stage.watch.send(order())
    stage.play(1)

    assert stage.last(AlertRequested).request == order()


def test_each_request_is_the_same_sub_command_there() -> None:
    silence = Silence(id="x", rule="gpu-hot", node="-n1", until=NOW + 5_400.0, by="me", why="", made_at=NOW)

    assert request_argv(order("unack")) == ("ack", "--json", "--undo", "--by=me", "--", "aaaa0001")
    assert request_argv(order("unmute", alert="s1")) == ("unmute", "--json", "--by=me", "--", "s1")
    assert request_argv(order("mute", alert=None, silence=silence, why="-w")) == (
        "mute", "--json", "--for=5400s", "--rule=gpu-hot", "--node=-n1", "--by=me", "--why=-w",
    )  # fmt: skip
    assert request_argv(order("test")) is None
