"""A dashboard that leaves the telling to a daemon elsewhere: when its office opens, and what it does not send."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.daemons import until
from trainmon.commands.standing_by import LATER, Fenced, StandingBy
from trainmon.commands.wiring import Watching
from trainmon.config import ClusterSettings, RunSettings, Settings
from trainmon.config_alerts import DaemonSettings
from trainmon.errors import HostUnreachable
from trainmon.ledger import alerts_now
from trainmon.ledger.file import NAME
from trainmon.model_alerts import Channel, Notice
from trainmon.notify.base import Message, Retry, Sent
from trainmon.shell import Shell
from trainmon.state_directory import find

NOW = 1_790_000_000.0


class Phone:
    """A channel that keeps what it was given."""

    health = Channel(name="phone", type="test")

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, message: Message, timeout: float) -> Sent:
        self.messages.append(message)
        return Sent("ok")

    def close(self) -> None:
        """Nothing is held."""


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

    with pytest.raises(Retry, match="bastion tells people") as held:
        Fenced(phone, Daemon(tells=True)).send(message(), 5.0)  # type: ignore[arg-type]

    assert phone.messages == []
    assert held.value.after == LATER


def test_it_is_sent_when_the_daemon_is_silent_still() -> None:
    phone = Phone()

    assert Fenced(phone, Daemon(tells=False)).send(message(), 5.0) == Sent("ok")  # type: ignore[arg-type]
    assert len(phone.messages) == 1


# ---- the whole of it, over a host that does not answer ---------------------------------------------------------------


@contextmanager
def watching(settings: Settings) -> Iterator[Watching]:
    parts = Watching(settings, program="dashboard")
    try:
        yield parts
    finally:
        parts.stop()


@pytest.fixture(autouse=True)
def own_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))


def settings(host: str | None) -> Settings:
    return Settings(
        clusters=(ClusterSettings(),), runs=(RunSettings(name="one"),), daemon=DaemonSettings(host=host, every=1.0)
    )


def no_way() -> Shell:
    raise HostUnreachable("bastion", "bastion: no route to host")


def test_only_a_daemon_elsewhere_is_left_the_telling() -> None:
    for host, stands_by in (("bastion", True), (None, False), ("localhost", False)):
        with watching(settings(host)) as parts:
            assert isinstance(parts.telling, StandingBy) is stands_by, host


def test_its_office_opens_once_the_daemon_was_silent_for_long_and_drops_what_waits_when_it_is_back() -> None:
    with watching(settings("bastion")) as parts:
        assert isinstance(parts.telling, StandingBy)
        parts.telling.daemon._shell_of = no_way
        parts.start()
        until(lambda: parts.engine.state.duty.where == "bastion", "the daemon is asked")
        assert parts.engine.state.duty.holder != "us"

        until(lambda: parts.engine.state.duty.holder == "us", "this program tells", 40.0)
        assert parts.engine.state.duty.words == "bastion does not tell people: no route to host"
        until(lambda: alerts_now(ledger_of(), NOW).duty is not None, "the ledger says so, too")

        write("INSERT INTO outbox (key, channel, state, attempts, made_at, next_at, changed_at) "
              "VALUES ('k', 'phone', 'waiting', 0, 1, 1, 1)")  # fmt: skip
        parts.telling._stand_by()
        assert write("SELECT state, words FROM outbox") == [("stopped", "bastion tells people")]


def ledger_of() -> Path:
    return find(os.environ).path


def write(statement: str) -> list[tuple[object, ...]]:
    """Done to the ledger by somebody else."""
    with contextlib.closing(sqlite3.connect(ledger_of() / NAME, timeout=10.0)) as ledger, ledger:
        return ledger.execute(statement).fetchall()
