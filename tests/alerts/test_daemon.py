"""What fires is told, what is over is told, and nothing that happens to the daemon loses or doubles a word of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.daemon import PATIENCE, AlertDaemon
from tests.alerts.messages import received, titles, until_told
from tests.end_to_end.product import Cluster
from tests.lab.clock import SetClock
from tests.lab.daemons import until
from tests.lab.ntfy_server import NtfyServer
from tests.lab.nvml import GPU_IS_LOST
from tests.lab.receiver import status
from tests.lab.smtp import HANG, MailServer
from trainmon.ledger.ledger import LedgerStuck, alerts_now
from trainmon.runtime.recording import Player

MakeDaemon = Callable[..., AlertDaemon]


def lose(nodes: Cluster, node: int, gpu: int = 1) -> None:
    nodes.nvml[node].error(gpu, "*", GPU_IS_LOST)


def fill(nodes: Cluster, node: int, gpu: int = 1) -> None:
    """Its memory; unlike a lost GPU it may become well again under a new probe, too."""
    nodes.nvml[node].set(gpu, memory_used=85_500_000_000)


def mend(nodes: Cluster, node: int) -> None:
    nodes.nvml[node].clear(gpus=2)


def started(daemon: AlertDaemon) -> AlertDaemon:
    daemon.start()
    for node in ("node:n0", "node:n1"):
        daemon.until("source", source=node, health="ok")
    return daemon


def deliveries(daemon: AlertDaemon) -> list[dict[str, Any]]:
    alert = daemon.alert("gpu-lost")
    return [] if alert is None else alert["delivery"]


def test_a_fault_on_a_node_reaches_the_phone_is_acknowledged_there_and_its_end_is_reported(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon
) -> None:
    daemon = started(make_daemon())
    lose(nodes, 0)
    message = until_told(ntfy, "CRITICAL", "n0")
    assert message.priority == 5
    ntfy.press(message)
    daemon.until("acknowledged", rule="gpu-lost")
    alert = daemon.alert("gpu-lost")
    assert alert is not None
    assert alert["acknowledged_by"]
    until(lambda: [made["state"] for made in deliveries(daemon)] == ["sent"], "the answer of the channel on record")
    assert daemon.once().returncode == 1  # cron's look beside it tells nobody, and takes the duty from nobody
    assert daemon.status()["duty"]["pid"] == daemon.pid
    mend(nodes, 0)
    until_told(ntfy, "RESOLVED", "n0")
    # The empty one is what the phone's button wrote, and never to the topic that people read.
    assert titles(ntfy) == [
        "CRITICAL gpu-lost n0/1", "ACKNOWLEDGED CRITICAL gpu-lost n0/1", "RESOLVED gpu-lost n0/1",
    ]  # fmt: skip

    daemon.tell(signal.SIGTERM)
    assert daemon.wait() == 0
    (saved,) = daemon.state.glob("recordings/*.trainmon")
    assert daemon.lines(message=f"recorded around a critical alert: trainmon-tui replay {saved}")
    player = Player(saved)
    (fired,) = player.line.alerts
    assert [one.subject for one in player.seek(fired).alerts.values() if one.is_firing] == [alert["subject"]]


def test_mail_folders_that_a_killed_daemon_left_are_removed_when_it_starts_again(
    tmp_path: Path, nodes: Cluster, make_daemon: MakeDaemon
) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    with MailServer.start() as mail:
        mail.always(HANG)
        more = f'[[notify]]\ntype = "apprise"\nname = "mail"\nurl = "{mail.url}"\nseverity = "critical"\n'
        daemon = started(make_daemon(more, TMPDIR=str(scratch)))
        lose(nodes, 0)
        until(lambda: list(scratch.glob("trainmon-mail-*")), "the folder of a mail that is being sent")
        daemon.kill()
        left = set(scratch.glob("trainmon-mail-*"))
        assert left, "kill -9 leaves it"
        mail.always("")
        daemon.start()
        until(lambda: left.isdisjoint(scratch.iterdir()), "their removal")
        until(lambda: mail.messages, "the mail, which the new one sends")
        assert "gpu-lost" in str(mail.messages[0]["Subject"])


def test_daemons_that_are_killed_are_replaced_by_others_and_nothing_is_sent_twice(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon
) -> None:
    first, second = make_daemon(), make_daemon(name="second")
    first.start()
    first.until("duty", holder="us")
    started(second)
    second.until("duty", holder="other", where=f"pid {first.pid}")
    fill(nodes, 0)
    until_told(ntfy, "CRITICAL", "n0")
    first.until("sent", channel="phone")
    first.until_marked()

    first.kill()
    second.until("duty", holder="us")
    fill(nodes, 1)
    until_told(ntfy, "CRITICAL", "n1")
    second.until("sent", channel="phone")
    assert second.status()["duty"]["pid"] == second.pid
    second.until_marked()

    second.kill()
    assert second.run("status").returncode == 3
    mend(nodes, 0)
    first.start()
    until_told(ntfy, "RESOLVED", "n0")
    assert sorted(titles(ntfy)) == [
        "CRITICAL gpu-memory-full n0/1", "CRITICAL gpu-memory-full n1/1", "RESOLVED gpu-memory-full n0/1",
    ]  # fmt: skip


def test_neither_a_refused_channel_nor_a_lost_ledger_nor_a_dead_host_ends_it(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon
) -> None:
    more = f'[[notify]]\ntype = "webhook"\nurl = "{ntfy.url}/gone/for/good"\n[[cluster]]\nname = "c"\nnodes = ["n9"]\n'
    daemon = started(make_daemon(more))
    daemon.until("source", source="node:n9", health="down")
    shutil.rmtree(daemon.state)
    lose(nodes, 0)
    until_told(ntfy, "CRITICAL", "n0")
    daemon.until("channel", channel="webhook", state="broken")
    (damaged := daemon.state / "damaged").write_bytes(b"no ledger at all, for once" * 1000)
    damaged.rename(daemon.state / "ledger.sqlite")  # at once: an empty file would be a new ledger
    lose(nodes, 1)
    until_told(ntfy, "CRITICAL", "n1")
    until_told(ntfy, "Ledger damaged")
    ntfy.always(status(500))
    mend(nodes, 0)
    daemon.until("channel", channel="phone", state="retrying")
    ntfy.well()
    until_told(ntfy, "RESOLVED", "n0")
    assert daemon.is_running
    assert len(received(ntfy, "CRITICAL", "gpu-lost", "n0")) == 1


def damage(ledger: Path, table: str) -> None:
    """Overwrite the first page of a table on the disk, as a failing disk does."""
    with contextlib.closing(sqlite3.connect(ledger)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((page,),) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,))
        ((size,),) = connection.execute("PRAGMA page_size")
    with ledger.open("r+b") as stream:
        stream.seek((page - 1) * size)
        stream.write(b"\xa5" * size)


def test_a_ledger_that_is_damaged_is_set_aside_once_and_no_open_alert_is_sent_again(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    clock = SetClock(tmp_path)
    daemon = started(make_daemon(**clock.env))
    ledger = daemon.state / "ledger.sqlite"
    fill(nodes, 0)
    until_told(ntfy, "CRITICAL", "n0")
    daemon.until_marked()
    damage(ledger, "actions")
    assert not received(ntfy, "Ledger")
    clock.ahead(600)
    message = until_told(ntfy, "Ledger damaged")
    kept = daemon.state / "ledger-damaged-1.sqlite"
    assert str(ledger) in message.message
    assert str(kept) in message.message
    assert kept.exists()
    fill(nodes, 1)
    until_told(ntfy, "CRITICAL", "n1")
    daemon.until_marked()

    daemon.kill()
    damage(ledger, "outbox")
    started(daemon)
    until_told(ntfy, "Ledger damaged", count=2)
    daemon.until_marked()
    daemon.kill()
    started(daemon)
    mend(nodes, 0)
    mend(nodes, 1)
    until_told(ntfy, "RESOLVED")
    about = [title for title in titles(ntfy) if "clock" not in title and "RESOLVED" not in title]
    assert about == [
        "CRITICAL gpu-memory-full n0/1", message.title, "CRITICAL gpu-memory-full n1/1", message.title,
    ]  # fmt: skip


def knows_everything(daemon: AlertDaemon) -> bool:
    """Whether its ledger holds two open alerts that were notified, one of them acknowledged, and a silence."""
    try:
        stored = alerts_now(daemon.state, time.time()).stored
    except LedgerStuck:  # cut short a moment ago
        return False
    notified = [alert for alert in stored.alerts if alert.notified_as is not None]
    return len(notified) == 2 and any(alert.acknowledged_by for alert in notified) and len(stored.silences) == 1


@pytest.mark.parametrize("lose_rows", [lambda file: os.truncate(file, 0), Path.unlink], ids=["cut short", "deleted"])
def test_a_ledger_whose_rows_are_lost_is_written_again_and_a_restart_repeats_and_forgets_nothing(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon, lose_rows: Callable[[Path], None]
) -> None:
    daemon = started(make_daemon())
    fill(nodes, 0)
    until_told(ntfy, "CRITICAL", "n0")
    fill(nodes, 1)
    until_told(ntfy, "CRITICAL", "n1")
    daemon.run("ack", "gpu:n0/1", "--why", "I drain it")
    daemon.run("mute", "--node", "n1", "--for", "1h", "--why", "it is repaired")
    daemon.until_marked()
    until(lambda: knows_everything(daemon), "the ledger", PATIENCE)

    ledger = daemon.state / "ledger.sqlite"
    with contextlib.closing(sqlite3.connect(ledger)) as connection:  # else its journal has some of the rows
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    lose_rows(ledger)
    until(lambda: not knows_everything(daemon), "the loss", PATIENCE)
    until(lambda: knows_everything(daemon), "the new ledger", PATIENCE)
    daemon.until_marked()
    daemon.kill()
    started(daemon)
    assert knows_everything(daemon)
    mend(nodes, 0)
    until_told(ntfy, "RESOLVED", "n0")
    assert titles(ntfy) == [
        "CRITICAL gpu-memory-full n0/1", "CRITICAL gpu-memory-full n1/1", "RESOLVED gpu-memory-full n0/1",
    ]  # fmt: skip


def test_a_clock_that_is_set_fires_nothing_ends_nothing_and_repeats_nothing(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    clock = SetClock(tmp_path)
    daemon = started(make_daemon(**clock.env))
    fill(nodes, 0)
    until_told(ntfy, "CRITICAL", "n0")
    for number, ahead in enumerate((3 * 3_600, -3 * 3_600), 1):
        clock.ahead(ahead)
        daemon.until("clock", count=number)
        until_told(ntfy, "clock-jumped", count=number)
    fill(nodes, 1)
    until_told(ntfy, "CRITICAL", "n1")
    mend(nodes, 0)
    until_told(ntfy, "RESOLVED", "n0")
    assert sorted(message.title for message in received(ntfy, "gpu-memory-full")) == [
        "CRITICAL gpu-memory-full n0/1", "CRITICAL gpu-memory-full n1/1", "RESOLVED gpu-memory-full n0/1",
    ]  # fmt: skip
