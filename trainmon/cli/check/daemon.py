"""Checks `[daemon] host`: whether it is reachable, trainmon-tui is installed and a daemon runs there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from collectors.connections import local_hostname
from collectors.daemon.collector import DaemonCollector
from collectors.daemon.connection import DaemonConnection
from trainmon.cli.check.row import Row
from trainmon.cli.prompt import ask_on_terminal
from trainmon.config import Settings
from trainmon.lib import Clock, SystemClock, TrainmonError, counted, duration
from trainmon.transport.shell import Shell

START = "start it there; trainmon-tui service systemd|cron|slurm|tmux shows how"
NO_DAEMON = "that machine sends no notifications: this dashboard sends them while it runs"


def check_daemon(settings: Settings, ssh_config: Path | None, *, is_person_there: bool) -> Iterator[Row]:
    """The rows of the daemon's host; none when the config names no host."""
    host = settings.daemon.host
    if host is None:
        return
    if host in (local_hostname(), "localhost"):
        yield Row("note", "daemon", host, "is this machine: the ledger finds a daemon here; [daemon] is not needed")
        return
    line = DaemonConnection(host, lambda _: None, ask_on_terminal if is_person_there else None, ssh_config)
    try:
        yield from ask(settings, host, line.shell, SystemClock())
    finally:
        line.close()


def ask(settings: Settings, host: str, dial: Callable[[], Shell], clock: Clock) -> Iterator[Row]:
    """The daemon's status, read as the dashboard reads it."""
    watch = DaemonCollector(
        host, settings.daemon.command, settings.daemon.every, dial, lambda _: None, clock,
        takes=lambda _: None, gives=lambda _: None,
    )  # fmt: skip
    try:
        is_watched, status = watch.poll()
    except TrainmonError as error:
        said = error.message.removeprefix(f"{host}: ")
        yield Row("bad", "daemon", host, said, error.hint or f"try: ssh {host} {settings.daemon.command[0]} status")
        return
    finally:
        watch.stop()
    if not is_watched:
        yield Row("bad", "daemon", host, status.duty.words or NO_DAEMON, START)
        return
    last = status.duty.last_tick_at
    seen = "" if last is None else f", looked {duration(max(0.0, status.at - last))} ago"
    told = counted(len(status.channels), "channel") if status.channels else "no channel"
    yield Row("ok", "daemon", host, f"pid {status.duty.pid} tells people by {told}{seen}")
    if status.duty.words:
        yield Row("note", "daemon", host, status.duty.words)
    if not status.channels:
        yield Row("note", "daemon", host, "it notifies nobody", "add [[notify]] to the config there")
