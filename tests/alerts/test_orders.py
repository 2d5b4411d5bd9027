"""What a running daemon is told: by signals, by commands, and by systemd's socket."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.alerts.daemon import PATIENCE, AlertDaemon
from tests.alerts.messages import received, titles, until_told
from tests.end_to_end.product import Cluster
from tests.lab.daemons import until
from tests.lab.ntfy_server import NtfyServer
from tests.lab.receiver import Receiver

MakeDaemon = Callable[..., AlertDaemon]


@pytest.fixture
def switch() -> Iterator[Receiver]:
    """The service of the dead-man's switch."""
    with Receiver.start() as receiver:
        yield receiver


def fill(nodes: Cluster, node: int) -> None:
    nodes.nvml[node].set(1, memory_used=85_500_000_000)


def pings(switch: Receiver) -> list[str]:
    return [request.path for request in switch.taken]


def test_with_read_only_it_acts_on_nothing_whatever_its_config_says(tmp_path: Path) -> None:
    with contextlib.closing(AlertDaemon(tmp_path)) as daemon:
        daemon.config.write_text('[retry]\nauto_requeue = "on"\n')
        daemon.start("--read-only")
        assert daemon.until("start")["acts"] == "no"
        daemon.close()
        daemon.start()
        assert daemon.until("start", count=2)["acts"] == "yes"


def test_it_reads_its_config_again_and_refuses_a_bad_one(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon
) -> None:
    daemon = make_daemon()
    good = daemon.config.read_text()
    daemon.start()
    daemon.until("source", source="node:n0", health="ok")
    daemon.config.write_text(good.replace("gpu-lost", "gpu-lots"))
    daemon.tell(signal.SIGHUP)
    refused = daemon.until("config", level="error")
    assert refused["result"] == "refused; the old one stays in use"
    assert refused["words"].endswith('"type" is "gpu-lots", which is not a rule; did you mean "gpu-lost"?')
    until(lambda: "config refused: " in (daemon.status()["duty"]["words"] or ""), "status says so", PATIENCE)
    fill(nodes, 0)
    until_told(ntfy, "CRITICAL", "n0")

    daemon.config.write_text(good.replace('severity = "critical"', 'severity = "warning"'))
    daemon.config.chmod(0o666)
    daemon.tell(signal.SIGHUP)
    words = daemon.until(
        "config",
        words=f"{daemon.config}: not read, because other users can write to it, and a "
        f"config may contain commands (chmod go-w {daemon.config})",
    )["result"]
    assert words == "refused; the old one stays in use"
    until_told(ntfy, "config-refused")
    daemon.config.chmod(0o600)
    daemon.tell(signal.SIGHUP)
    daemon.until("config", result="loaded", sources="as before")
    fill(nodes, 1)
    until_told(ntfy, "WARNING", "n1")
    assert daemon.status()["duty"]["words"] is None

    daemon.config.write_text(good.replace("n[0-1]", "n1"))
    servers = nodes.servers_of(1)
    daemon.tell(signal.SIGHUP)
    daemon.until("config", result="loaded", sources="as before")
    until(lambda: [one["name"] for one in daemon.status()["sources"]] == ["node:n1"], "n0 is not watched", PATIENCE)
    until(lambda: not nodes.servers_of(0), "n0 is left", PATIENCE)
    assert nodes.servers_of(1) == servers, "n1 was not connected to again"

    daemon.config.write_text(daemon.config.read_text() + '\n[ledger]\nkeep = "9d"\n')
    daemon.tell(signal.SIGHUP)
    daemon.until("config", result="loaded", sources="reconnected")
    assert len(daemon.lines(event="start")) == 1
    assert len(received(ntfy, "gpu-memory-full", "n1")) <= 2  # the same alert, now with its old severity again


def test_a_person_acknowledges_and_mutes_by_command_and_requests_the_status(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon
) -> None:
    daemon = make_daemon()
    muted = daemon.run("mute", "--node", "n1", "--for", "1h", "--why", "it is repaired", "--json")
    silence = json.loads(muted.stdout)
    assert (muted.returncode, silence["carried_out"], silence["silence"]["node"]) == (0, False, "n1")
    daemon.start()
    daemon.until("source", source="node:n1", health="ok")
    until(lambda: [one["why"] for one in daemon.status()["silences"]] == ["it is repaired"], "it is muted", PATIENCE)
    fill(nodes, 1)
    daemon.until("firing", rule="gpu-memory-full")
    fill(nodes, 0)
    until_told(ntfy, "CRITICAL", "n0")
    assert received(ntfy, "n1") == []

    query = daemon.run("status")
    assert query.returncode == 1
    assert f"alerts-only (pid {daemon.pid} on " in query.stdout
    assert "channel phone (ntfy) " in query.stdout
    (first,) = (one for one in daemon.status()["alerts"] if one["node"] == "n0")
    done = daemon.run("ack", first["id"][:5], "--why", "I drain it")
    assert (done.returncode, done.stdout) == (0, f"acknowledged: {first['id']} gpu-memory-full gpu:n0/1\n")
    assert daemon.until("acknowledged")["alert"] == first["id"]
    assert daemon.run("ack", "nothing").returncode == 2

    taken = daemon.run("unmute", silence["silence"]["id"])
    assert (taken.returncode, taken.stdout) == (0, f"unmuted: {silence['silence']['id']}\n")
    until_told(ntfy, "CRITICAL", "n1")


def test_it_ends_on_sigterm_and_first_notifies_of_what_has_just_begun_to_fire(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon, switch: Receiver
) -> None:
    daemon = make_daemon()
    text = daemon.config.read_text().replace("start = false", 'start = true\nping = "env:SWITCH"\nping_every = "1s"')
    daemon.config.write_text(text)
    daemon.env["SWITCH"] = f"{switch.url}/check"
    daemon.start()
    until(lambda: "/check" in pings(switch), "everything is ok, and somebody elsewhere is told so", PATIENCE)
    assert pings(switch)[0] == "/check/start"
    fill(nodes, 0)
    daemon.until("firing", rule="gpu-memory-full")
    daemon.tell(signal.SIGTERM)
    daemon.until("stop")
    daemon.tell(signal.SIGTERM)  # as from the script of a job that Slurm cancels, which sent the first itself
    assert daemon.wait() == 0
    us = f"trainmon-tui on {socket.gethostname()}"
    # On a busy machine it may have been there for the 20 s after which it says that it watches.
    assert [title for title in titles(ntfy) if title != f"{us} started"] == [
        "CRITICAL gpu-memory-full n0/1", f"{us} stopped",
    ]  # fmt: skip
    assert "/check/log" in pings(switch)
    assert "stopped: received SIGTERM" in switch.taken[-1].body.decode()


def test_systemd_is_notified_when_it_is_ready_and_after_each_evaluation(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE)
        daemon = make_daemon(NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="4000000")
        daemon.start()
        notified: list[str] = []
        while notified.count("WATCHDOG=1") < 2:
            notified += manager.recv(4096).decode().split("\n")
        assert notified[0] == "READY=1"
        os.kill(daemon.pid, signal.SIGSTOP)
        manager.settimeout(0.5)
        with contextlib.suppress(TimeoutError):
            while True:  # what it had said before
                manager.recv(4096)
        manager.settimeout(2.5)
        with pytest.raises(TimeoutError):  # a program that hangs gives no sign of life
            manager.recv(4096)
        os.kill(daemon.pid, signal.SIGCONT)
        daemon.tell(signal.SIGTERM)
        assert daemon.wait() == 0
        manager.settimeout(PATIENCE)
        while "STOPPING=1" not in manager.recv(4096).decode():
            pass
