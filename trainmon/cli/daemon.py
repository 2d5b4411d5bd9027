"""trainmon-tui --alerts-only: the same watch without a terminal, for months, until a signal ends it. With --once, for
cron: evaluates everything once, notifies, and ends. And trainmon-tui service: prints what keeps it running."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import click

from trainmon import __version__
from trainmon.cli.snapshot import StateWatcher, first_full_state, next_evaluation, requested_sources
from trainmon.config import Settings, load_settings
from trainmon.engine.snapshot import exit_status
from trainmon.lib import ConfigError, Instant, Seconds, clean, counted
from trainmon.model import State
from trainmon.runtime.alert_service import caveats
from trainmon.runtime.logs import changes, log_event, log_to_stderr
from trainmon.runtime.monitor import Monitor

# ---- trainmon-tui --alerts-only --------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

FLUSH: Seconds = 10.0
"""For queued notifications, at the end: TimeoutStopSec of the systemd unit is twice as long."""

WAKE_PERIOD: Seconds = 1.0

RELOAD = signal.SIGHUP
HANDOVER = signal.SIGUSR1
"""The next job of a chain takes over: no notification says that this one ends."""

WAIT: Seconds = 60.0
"""The longest wait of `--once` for hosts, queues and W&B to answer; cron starts the next one after five minutes."""

EVALUATION_TIMEOUT: Seconds = 45.0
"""The longest wait of `--once` for the rules and the notifications: a group waits up to half a minute."""

EVALUATIONS = 2
"""A resolved alert is notified by the evaluation after the one that finds it."""

Choose = Callable[[], tuple[Settings, Path | None]]


def watch(choose: Choose, ssh_config: Path | None, *, records: bool, read_only: bool) -> int:
    """Run the daemon until a signal ends it. With `read_only` it requeues nothing by itself, whatever the config says.

    Raises:
        ConfigError: when the first config cannot be used.
    """
    settings, file = choose()
    log_to_stderr()
    forget_agent()
    monitor = partial(Monitor, program="alerts-only", read_only=read_only, records=records, ssh_config=ssh_config)
    return Daemon(settings, file, choose, monitor).run()


def forget_agent() -> None:
    """Stop using the agent of a login session: it ends with the session. An agent that ssh's own config names
    (IdentityAgent) stays."""
    if os.environ.pop("SSH_AUTH_SOCK", ""):
        text = "SSH_AUTH_SOCK is not used: the SSH agent ends with its login session"
        log_event("agent", logging.WARNING, words=text, try_="trainmon-tui check --headless")


def status_line(state: State) -> str:
    """The state of the daemon, for `systemctl status`."""
    health = [source.health for source in state.sources.values()]
    firing = [alert.severity for alert in state.alerts.values() if alert.is_firing]
    queued = sum(channel.waiting for channel in state.channels.values())
    is_standby = state.leadership.holder in ("other", "daemon")
    parts = (
        f"{health.count('ok')} of {len(health)} sources responding",
        f"{counted(len(firing), 'alert')}, {firing.count('critical')} critical" if firing else "no alerts",
        f"{counted(queued, 'notification')} queued" if queued else "",
        f"standby: {state.leadership.where or 'another program'} sends the notifications" if is_standby else "",
    )
    return "; ".join(filter(None, parts))


class Daemon:
    """The monitor, the signals, and the log lines about both."""

    def __init__(
        self, settings: Settings, file: Path | None, choose: Choose, monitor: Callable[[Settings], Monitor]
    ) -> None:
        self._settings = settings
        self._file = file
        self._choose = choose
        self._make_monitor = monitor
        self._watchdog = Watchdog()
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._before = State()
        self._is_ready = False
        self._refused: str | None = None
        """Why the config on the disk is not the one that runs."""
        self._monitor = monitor(settings)

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT, RELOAD, HANDOVER):
            signal.signal(number, lambda number, frame: self._signals.put(number))
        names = ",".join(entry.label for entry in self._settings.notify)
        config, runs = str(self._file.absolute()) if self._file is not None else "none", len(self._settings.runs)
        acts = "no" if self._monitor.engine.state.read_only else "yes"
        log_event("start", version=__version__, pid=os.getpid(), config=config, runs=runs, channels=names, acts=acts)
        self._say_caveats()
        self._start()
        while True:
            # The kernel may give a signal to any thread. Only the main thread runs its handler, so it must wake.
            with contextlib.suppress(queue.Empty):
                received = self._signals.get(timeout=WAKE_PERIOD)
                if received != RELOAD:
                    return self._stop(received)
                self._reload()

    def _start(self) -> None:
        self._before = self._monitor.engine.state
        self._monitor.start()
        self._monitor.subscribe(self._received)

    def _say_caveats(self) -> None:
        for caveat in caveats(self._settings):
            log_event("caveat", logging.WARNING, words=caveat)

    def _received(self, state: State) -> None:
        """Log what changed in a new State, and report to systemd. On the engine's thread."""
        before, self._before = self._before, state
        for line in changes(before, state):
            log_event(line.event, line.level, **line.fields)
        is_standby = state.leadership.holder in ("other", "daemon")  # it evaluates no rules
        if not is_standby and state.evaluated_at in (None, before.evaluated_at):
            return
        if not self._is_ready:
            self._is_ready = True
            self._watchdog.ready(self._status(state))
        self._watchdog.status(self._status(state))
        self._watchdog.feed(time.monotonic())

    # ---- signals -----------------------------------------------------------------------------------------------------

    def _reload(self) -> None:
        """Load the config again. A bad one is refused, and the old one stays in use."""
        self._watchdog.reloading(time.monotonic())
        try:
            settings, file = self._choose()
            monitor = None if self._monitor.reload(settings) else self._make_monitor(settings)
        except ConfigError as error:
            self._refuse(str(error).splitlines())
        except Exception as error:  # such as a working directory that is gone: the watch goes on
            log.exception("the config could not be read again")
            self._refuse([f"it could not be read: {error}"])
        else:
            self._settings, self._file, self._refused = settings, file, None
            self._monitor.trouble(None)
            if monitor is not None:
                self._monitor.leave(None, FLUSH)
                self._monitor = monitor
                self._start()
            log_event("config", result="loaded", sources="reconnected" if monitor is not None else "as before")
            self._say_caveats()
        self._watchdog.ready(self._status(self._monitor.engine.state))

    def _refuse(self, problems: Sequence[str]) -> None:
        self._refused = f"config refused: {problems[0]}"
        for problem in problems:
            log_event("config", logging.ERROR, words=problem, result="refused; the old one stays in use")
        self._monitor.trouble(self._refused)

    def _status(self, state: State) -> str:
        return f"{self._refused}; {status_line(state)}" if self._refused else status_line(state)

    def _stop(self, number: int) -> int:
        """Send queued notifications and end. A second Ctrl-C ends it at once. SIGTERM comes twice when Slurm cancels a
        job: to the job, and from its script."""
        why = None if number == HANDOVER else f"received {signal.Signals(number).name}"
        log_event("stop", why=why or "the next job takes over")
        self._watchdog.stopping("sending queued notifications, then exiting")
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self._monitor.leave(why, FLUSH)
        log_event("stopped")
        logging.shutdown()
        return 0


# ---- --once ----------------------------------------------------------------------------------------------------------


def evaluate_once(settings: Settings, hosts: Sequence[str], ssh_config: Path | None, *, records: bool) -> int:
    """Read everything, evaluate the rules with the ledger, notify. The exit status is that of `snapshot`."""
    log_to_stderr(logging.WARNING)
    forget_agent()
    monitor = Monitor(settings, program="once", records=records, ssh_config=ssh_config)
    before = monitor.engine.state
    monitor.start()
    try:
        state = first_full_state(monitor, WAIT)
        if monitor.alert_service is not None:
            # Only now: what has not been read yet resolves no alert, and no hold waits for it.
            monitor.alert_service.start()
            state = evaluated(monitor, EVALUATION_TIMEOUT)
            monitor.alert_service.ping_once(state)
        else:
            state = next_evaluation(monitor)
        for line in changes(before, state):
            log_event(line.event, line.level, **line.fields)
    finally:
        monitor.leave(None, FLUSH)
        logging.shutdown()
    return exit_status(state, requested_sources(settings, hosts))


def evaluated(monitor: Monitor, timeout: Seconds) -> State:
    """The State after all rules were evaluated, when no notification waits any longer."""
    first = monitor.engine.state.evaluated_at
    times: set[Instant | None] = set()

    def is_done(state: State) -> bool:
        if state.leadership.holder == "nobody":
            return False
        times.add(state.evaluated_at)
        # Another program may send the notifications: its first evaluation is enough.
        is_elsewhere = state.leadership.holder != "us" and state.evaluated_at != first
        return is_elsewhere or (len(times) > EVALUATIONS and not monitor.is_about_to_notify(timeout))

    with contextlib.closing(StateWatcher(monitor.subscribe)) as watcher:
        watcher.wait_for(is_done, timeout)
    return monitor.engine.state


# ---- trainmon-tui service --------------------------------------------------------------------------------------------

UNIT = """\
# Save as ~/.config/systemd/user/trainmon.service, then:
#     systemctl --user daemon-reload && systemctl --user enable --now trainmon
#     loginctl enable-linger "$USER"      # keeps it running after you log out; if forbidden: service cron
# journalctl --user -u trainmon -f shows its log; systemctl --user reload trainmon reloads the config.
# For "env:NAME" secrets, write NAME=value lines to ~/.config/trainmon-tui/environment (mode 600).

[Unit]
Description=trainmon-tui: alerts of training runs
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=5
# The daemon feeds the watchdog only after it has evaluated all rules.
WatchdogSec=120
TimeoutStartSec=90
TimeoutStopSec=20
KillMode=mixed
# This limit includes the child process of the W&B client.
MemoryMax=1G
Nice=10
EnvironmentFile=-%h/.config/trainmon-tui/environment
# A service must not depend on the SSH agent of a login session.
UnsetEnvironment=SSH_AUTH_SOCK
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""

CRONTAB = """\
# For `crontab -e`, if there is no systemd user manager. Use one of the two variants. Prefer the first.
# For secrets of the form "env:NAME", write NAME=value lines at the top of the crontab, or use "file:/path".

# 1. The daemon runs all the time. If it dies, cron restarts it within five minutes.
@reboot {guarded} >/dev/null 2>&1
*/5 * * * * {guarded} >/dev/null 2>&1

# 2. There is no permanent process, but one check every five minutes. A rule with a `for` needs two checks to fire.
#    An acknowledgement from a phone takes effect at the next check.
#*/5 * * * * {once}
"""

JOB = """\
#!/bin/bash
# Save as trainmon.slurm, then: sbatch trainmon.slurm
# Each job submits the next one when it starts. The next job waits until this one ends. So the monitoring goes on after
# a time limit or a node failure. To stop it: scancel --name=trainmon-alerts --user="$USER"
# The next job may run on another node. It knows which notifications were sent only if the state directory is shared:
# for example, set XDG_STATE_HOME="$HOME/.local/state" on a shared home. Use a CPU partition with a long time limit.
#SBATCH --job-name=trainmon-alerts
#SBATCH --dependency=singleton
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=1-00:00:00
#SBATCH --signal=B:TERM@60
#SBATCH --no-requeue
#SBATCH --open-mode=append
#SBATCH --output=trainmon-alerts.log

waiting() { squeue --noheader --user="$(id -un)" --name=trainmon-alerts --states=PENDING; }
[ -n "$(waiting)" ] || sbatch "$0" || echo "trainmon: the next job could not be queued" >&2

# Runs near the time limit, and on scancel. If the next job waits, no notification says that the monitoring ends.
leave() {
    ended=1
    if [ -n "$(waiting)" ]; then kill -USR1 "$daemon"; else kill -TERM "$daemon"; fi
}
ended=
trap leave TERM
while [ -z "$ended" ]; do
    {command} &
    daemon=$!
    # A signal ends `wait` before the daemon has sent its queued notifications.
    while kill -0 "$daemon" 2>/dev/null; do wait "$daemon"; done
    [ -n "$ended" ] || { sleep 10 & wait $!; }
done
"""

TMUX = """\
# Use this only if systemd, cron and a Slurm job are all impossible. Run it again after each reboot of this machine.
tmux new-session -d -s trainmon {loop}
# To see its log: tmux attach -t trainmon. To detach: Ctrl-b d.
"""


def service(kind: str, argv: Sequence[str]) -> str:
    """What keeps a daemon running: a unit of the user's own systemd, lines for a crontab, a job that queues the next
    one, or a line that starts it in a tmux that stays."""
    command = shlex.join(argv)
    guarded = f'flock -n -o "$HOME/.trainmon-alerts.lock" {command}'.replace("%", "\\%")  # cron ends a command at a `%`
    texts = {
        "systemd": UNIT.format(command=" ".join(map(unit_word, argv))),
        "cron": CRONTAB.format(guarded=guarded, once=f"{guarded} --once"),
        "slurm": JOB.replace("{command}", command),
        "tmux": TMUX.format(loop=shlex.quote(f"until {command}; do sleep 10; done")),
    }
    return texts[kind]


def unit_word(word: str) -> str:
    """One argument as ExecStart= takes it: quoted, and with no specifier or variable in it (systemd.service(5))."""
    safe = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return safe if re.fullmatch(r"[\w@+=:,./-]+", word) else f'"{safe}"'


def print_service(kind: str, config: Path | None, ssh_config: Path | None) -> int:
    """Print what keeps the daemon of a config running; the exit status."""
    _, file = load_settings(config, ())
    click.echo(service(kind, daemon_argv(file, ssh_config)))
    return 0


def daemon_argv(config: Path | None, ssh_config: Path | None) -> list[str]:
    """The daemon's command line, with absolute paths: a service has another PATH and another directory."""
    options = (("--config", config), ("--ssh-config", ssh_config))
    named = [word for option, file in options if file is not None for word in (option, str(file.absolute()))]
    return [*program(), "--alerts-only", *named]


def program() -> list[str]:
    """The command line of this program."""
    beside = Path(sys.executable).with_name("trainmon-tui")
    found = str(beside) if beside.exists() else shutil.which("trainmon-tui")
    return [found] if found else [sys.executable, "-m", "trainmon"]


# ---- notifies the service manager: ready, status, watchdog, reloading, stopping (sd_notify(3)) -----------------------

PER_TIMEOUT = 4
"""How many watchdog messages fit into one timeout: one may be late, and one may be lost."""


class Watchdog:
    """The socket in $NOTIFY_SOCKET; without one, every method does nothing. It is fed after completed evaluations only,
    never by a timer, so that a hanging loop is detected."""

    def __init__(self, environ: Mapping[str, str] = os.environ, pid: int | None = None) -> None:
        path = environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._every = watchdog_period(environ, os.getpid() if pid is None else pid)
        self._fed_at: Seconds | None = None
        self._status = ""

    @property
    def is_there(self) -> bool:
        """Whether a service manager listens."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={self._kept(status)}")

    def status(self, status: str) -> None:
        """Send one line about the state, if it changed."""
        if self._status != self._kept(status):
            self._send(f"STATUS={self._status}")

    def feed(self, monotonic: Seconds) -> None:
        """An evaluation of all rules was completed."""
        if self._every is not None and (self._fed_at is None or monotonic - self._fed_at >= self._every):
            self._fed_at = monotonic
            self._send("WATCHDOG=1")

    def reloading(self, monotonic: Seconds) -> None:
        """The config is read again; ready() ends it."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={monotonic * 1e6:.0f}")

    def stopping(self, status: str) -> None:
        self._send("STOPPING=1", f"STATUS={self._kept(status)}")

    def _kept(self, status: str) -> str:
        self._status = clean(status, 300)
        return self._status

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(1.0)
                channel.connect(self._address)
                channel.sendall("\n".join(lines).encode())
        except OSError as error:
            log.warning("the service manager cannot be notified: %s", error)


def watchdog_period(environ: Mapping[str, str], pid: int) -> Seconds | None:
    """How often this process must feed the watchdog; None when there is none."""
    timeout = 0.0
    if environ.get("WATCHDOG_PID", str(pid)) == str(pid):
        with contextlib.suppress(ValueError):
            timeout = int(environ.get("WATCHDOG_USEC", "")) / 1e6
    return timeout / PER_TIMEOUT if timeout > 0 else None
