"""trainmon-tui [HOST…]: the dashboard. trainmon-tui replay: the same of a recording."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

from trainmon.alerting.notify.channels.desktop import TOASTER
from trainmon.cli.terminal import asked_background, print_lines
from trainmon.config import DashboardSettings, Settings, load_settings
from trainmon.lib import counted, duration, find_state_directory
from trainmon.runtime.backend import DashboardBackend
from trainmon.runtime.dashboard_files import ConfigFile, LastSeenFile
from trainmon.runtime.logs import log_to_file
from tui.keys import changed_keys, use_keys


def run(
    hosts: tuple[str, ...],
    config: Path | None,
    ssh_config: Path | None,
    demo: str | None,
    read_only: bool,
    alerts_only: bool,
    once: bool,
    record: Path | None,
) -> int:
    """Run the dashboard, the demo or the daemon; the exit status.

    Raises:
        UsageError: when options exclude each other, or there is no terminal.
    """
    if demo is not None and (hosts or config or ssh_config):
        raise click.UsageError("--demo shows a simulated cluster; remove the hosts, --config and --ssh-config")
    if once and not alerts_only:
        raise click.UsageError("--once needs --alerts-only; to print the state once, use `trainmon-tui snapshot`")
    if alerts_only and (demo is not None or record is not None):
        raise click.UsageError(f"--alerts-only and --{'record' if demo is None else 'demo'} cannot be combined")
    if record is not None and record.exists():
        raise click.UsageError(f"--record {record}: the file already exists; name a new one")

    records = config is not None or not hosts
    if alerts_only:
        from trainmon.cli.daemon import evaluate_once, watch

        if once:
            return evaluate_once(load_settings(config, hosts)[0], hosts, ssh_config, records=records)
        return watch(lambda: load_settings(config, hosts), ssh_config, records=records, read_only=read_only)
    if demo:
        from collectors.demo.stories import STORIES, Schedule

        if demo == "list":
            width = max(map(len, STORIES))
            print_lines(*(f"{name:<{width}}  {text}" for name, text in STORIES.items()))
            return 0
        Schedule(demo)  # an unknown name lists all, also without a terminal
    need_terminal("trainmon-tui snapshot")
    if demo is not None:
        from trainmon.runtime.demo import DemoMonitor

        return show(DemoMonitor(demo or None, read_only=read_only), DashboardSettings(), record=record)
    from trainmon.runtime.monitor import Monitor

    def choose() -> tuple[Settings, Path | None]:
        settings, file = load_settings(config, hosts)
        changed_keys(settings.keys, str(file))
        return settings, file

    settings, file = choose()
    use_keys(changed_keys(settings.keys, str(file)))
    monitor = Monitor(
        settings, read_only=read_only, prompts=True, program="dashboard", records=records, ssh_config=ssh_config
    )
    follow = partial(ConfigFile, choose, settings, file, monitor)
    return show(monitor, settings.dashboard, " ".join([str(file and file.resolve()), *hosts]), follow, record)


def need_terminal(else_use: str) -> None:
    """Raises: UsageError: when there is no terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(f"the dashboard needs a terminal; without one, use `{else_use}`")


def show(
    backend: DashboardBackend,
    settings: DashboardSettings,
    name: str | None = None,
    follow: Callable[[Callable[[str, str, str], object], Callable[[Settings], object]], ConfigFile] | None = None,
    record: Path | None = None,
) -> int:
    """Run the dashboard until its user quits. The exit status is 128 + the signal if a signal ended it. Under a `name`,
    what it showed is kept for the next start. `follow` makes what loads the config again. `record`: a new file."""
    if record is not None:
        backend.record(record)
    log_to_file()
    kept = None
    if name is not None:
        kept = LastSeenFile(find_state_directory(os.environ).path, name, lambda: backend.engine.state)
    try:
        with backend, ExitStack() as stack:  # it connects while the dashboard is imported
            with asked_background(os.environ) as answered:
                from tui.app import Dashboard as App  # meanwhile the terminal answers

                light, typed = answered()
            app = App(
                backend, seen=None if kept is None else kept.before, local_time=settings.time == "local",
                theme=settings.theme, light=light, typed=typed, clock=backend.engine.clock,
            )  # fmt: skip
            TOASTER.toast = app.toast
            if kept is not None:
                kept.arrangement = app.arranged
                kept.start()
                stack.callback(kept.stop)
            if follow is not None:
                backend.config_file = file = follow(
                    app.toast, lambda new: app.call_later(app.use, new.dashboard.theme, new.dashboard.time)
                )
                file.start()
                stack.callback(file.stop)
            app.run()
    finally:
        TOASTER.toast = None
    return app.return_code or 0


def replay(file: Path, check: bool) -> int:
    """Show a recording in the dashboard, or play all of it and print what was in it; the exit status."""
    from trainmon.runtime.recording import CUT_OFF, Player

    player = Player(file)
    if check:
        state = player.seek(player.line.end)
        parts = {"update": player.frames, "node": state.nodes, "run": state.runs, "alert": player.line.alerts}
        start = datetime.fromtimestamp(player.line.start, UTC)
        counts = ", ".join(counted(len(found), name) for name, found in parts.items())
        print_lines(f"{duration(max(0.0, state.at - player.line.start))} from {start:%Y-%m-%d %H:%M:%S} UTC: {counts}")
        lost = sum(frame.lost for frame in player.frames)
        for why in filter(None, (player.why, lost and f"{counted(lost, 'update')} could not be recorded")):
            click.echo(f"trainmon-tui: {why}", err=True)
        return 3 if player.why not in ("", CUT_OFF) else 0
    need_terminal(f"trainmon-tui replay --check {file}")
    return show(DashboardBackend(player), DashboardSettings())
