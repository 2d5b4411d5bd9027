"""A dashboard that stands by for a remote daemon: when it notifies, and what it does not send."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab.daemons import until
from tests.trainmon.ledger.records import transaction
from tests.tui.states.alerts import alert
from trainmon.alerting.notify.message import Message, Retry, Sent
from trainmon.config import ClusterSettings, DaemonSettings, NotifySettings, RunSettings, Settings
from trainmon.config.notify import CommandSettings
from trainmon.engine.snapshot import Status
from trainmon.ledger.database import NAME
from trainmon.ledger.ledger import alerts_now
from trainmon.lib import HostUnreachable, find_state_directory
from trainmon.model import AlertChanges, AlertsReported, Channel, Notice
from trainmon.runtime.monitor import Monitor
from trainmon.runtime.standby import LATER, Fenced, Standby
from trainmon.transport.shell import Shell

NOW = 1_790_000_000.0


class Phone:
    """A channel that keeps what it was given."""

    health = Channel(name="phone", type="test")

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, message: Message, timeout: float) -> Sent:
        self.messages.append(message)
        return Sent("ok")


class Daemon:
    """Whether it tells people, when it is asked."""

    host = "bastion"

    def __init__(self, tells: bool) -> None:
        self.tells = tells

    def answers(self, patience: float) -> bool:
        return self.tells


def message() -> Message:
    notice = Notice(key="k", kind="fire", reason="fired", severity="critical", at=NOW, channels=("phone",))
    return Message(key="k", severity="critical", title="t", body="b", notices=(notice,), at=NOW)


def test_nothing_is_sent_when_the_daemon_answers_at_the_last_moment() -> None:
    phone = Phone()

    with pytest.raises(Retry, match="bastion notifies") as held:
        Fenced(phone, Daemon(tells=True)).send(message(), 5.0)  # type: ignore[arg-type]

    assert phone.messages == []
    assert held.value.after == LATER


def test_it_is_sent_when_the_daemon_is_silent_still() -> None:
    phone = Phone()

    assert Fenced(phone, Daemon(tells=False)).send(message(), 5.0) == Sent("ok")  # type: ignore[arg-type]
    assert len(phone.messages) == 1


# ---- the whole of it, over a host that does not answer ---------------------------------------------------------------


@contextmanager
def watching(settings: Settings) -> Iterator[Monitor]:
    parts = Monitor(settings, program="dashboard")
    try:
        yield parts
    finally:
        parts.stop()


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))


def settings(host: str | None, *notify: Any) -> Settings:
    return Settings(
        clusters=(ClusterSettings(),), runs=(RunSettings(name="one"),), daemon=DaemonSettings(host=host, every=1.0),
        notify=notify,
    )  # fmt: skip


WATCHING = Status(version=1, at=NOW)
"""A daemon that watches, and knows of nothing."""


def no_way() -> Shell:
    raise HostUnreachable("bastion", "bastion: no route to host")


def test_only_a_daemon_elsewhere_is_left_the_telling() -> None:
    for host, stands_by in (("bastion", True), (None, False), ("localhost", False)):
        with watching(settings(host)) as parts:
            assert isinstance(parts.alert_service, Standby) is stands_by, host


def test_its_notification_service_starts_once_the_daemon_was_silent_for_long_and_drops_what_waits_when_it_is_back() -> (
    None
):
    with watching(settings("bastion")) as parts:
        assert isinstance(parts.alert_service, Standby)
        parts.alert_service.daemon._dial = no_way
        parts.start()
        until(lambda: parts.engine.state.leadership.where == "bastion", "the daemon is asked")
        assert parts.engine.state.leadership.holder != "us"

        until(lambda: parts.engine.state.leadership.holder == "us", "this program tells", 40.0)
        assert parts.engine.state.leadership.problem == "bastion does not notify: no route to host"
        until(lambda: alerts_now(ledger_of(), NOW).leader is not None, "the ledger says so, too")

        write("INSERT INTO outbox (key, channel, state, attempts, made_at, next_at, changed_at) "
              "VALUES ('k', 'phone', 'waiting', 0, 1, 1, 1)")  # fmt: skip
        parts.alert_service._stand_by(WATCHING)
        assert write("SELECT state, words FROM outbox") == [("stopped", "bastion notifies")]


def test_what_is_resolved_and_the_daemon_has_not_seen_is_still_sent_and_nothing_else(tmp_path: Path) -> None:
    received = tmp_path / "told"
    channel = NotifySettings(
        type="command", name="keep", own=CommandSettings(command=("sh", "-c", f"cat >> {received}; echo >> {received}"))
    )
    with watching(settings("bastion", channel)) as parts:
        assert isinstance(parts.alert_service, Standby)
        parts.start()
        until(lambda: parts.engine.state.leadership.where == "bastion", "the daemon is asked")
        parts.alert_service.daemon.stop()
        now = parts.engine.clock.now()
        notifications = [
            notification(now, "over0001", phase="resolved", resolved_at=now - 5.0),
            notification(now, "still002", phase="firing"),
            notification(now, "known003", phase="resolved", resolved_at=now - 5.0),
            notification(now, "ownview4", rule="node-unreachable", phase="resolved", resolved_at=now - 5.0),
        ]
        changes = AlertChanges(
            at=now, alerts=tuple(a for one in notifications for a in one.alerts), notices=tuple(notifications)
        )
        keep = parts.alert_service._ledger
        answer = keep.transact(lambda kept: transaction(changes).write(kept, now), lambda: None)
        assert answer.done.wait(10.0)

        parts.alert_service._stand_by(Status(version=1, at=now, ended=notifications[2].alerts))
        until(lambda: received.exists() and received.read_text().endswith("\n"), "it is told")
        until(lambda: ("over0001", "sent") in states(), "and marked")

        assert sorted(states()) == [
            ("known003", "stopped"), ("over0001", "sent"), ("ownview4", "stopped"), ("still002", "stopped"),
        ]  # fmt: skip
        parts.engine.submit(AlertsReported((), (), (), now))
        until(lambda: looked() is not None, "it leads on our ledger, and must be seen not to hang")

        assert received.read_text().count('"over0001"') > 0
        assert "still002" not in received.read_text()


def notification(now: float, name: str, rule: str = "run-dead", **facts: Any) -> Notice:
    about = alert(name, rule, f"run:{name}", since=now - 60.0, fired_at=now - 50.0, found_at=now, **facts)
    return Notice(
        key=name, kind="fire", reason="fired", severity="critical", at=now, channels=("keep",), alerts=(about,)
    )


def states() -> list[tuple[object, ...]]:
    return write("SELECT key, state FROM outbox")


def looked() -> float | None:
    found = alerts_now(ledger_of(), NOW).leader
    return found.note.last_tick_at if found is not None else None


def ledger_of() -> Path:
    return find_state_directory(os.environ).path


def write(statement: str) -> list[tuple[object, ...]]:
    """Done to the ledger by somebody else."""
    with contextlib.closing(sqlite3.connect(ledger_of() / NAME, timeout=10.0)) as ledger, ledger:
        return ledger.execute(statement).fetchall()
