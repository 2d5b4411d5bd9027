"""trainmon-tui service: prints what keeps `--alerts-only` running: a systemd unit, a crontab, a Slurm job, tmux."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from trainmon.cli.options import config_option, ssh_config_option

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

LOCK = '"$HOME/.trainmon-alerts.lock"'


def systemd(argv: Sequence[str]) -> str:
    """A unit of the user's own systemd."""
    return UNIT.format(command=" ".join(map(unit_word, argv)))


def cron(argv: Sequence[str]) -> str:
    """Lines for a crontab."""
    guarded = f"flock -n -o {LOCK} {shlex.join(argv)}".replace("%", "\\%")  # cron ends a command at a `%`
    return CRONTAB.format(guarded=guarded, once=f"{guarded} --once")


def slurm(argv: Sequence[str]) -> str:
    """A job that queues the next one."""
    return JOB.replace("{command}", shlex.join(argv))


def tmux(argv: Sequence[str]) -> str:
    """A line that starts it in a tmux that stays."""
    return TMUX.format(loop=shlex.quote(f"until {shlex.join(argv)}; do sleep 10; done"))


def unit_word(word: str) -> str:
    """One argument as ExecStart= takes it: quoted, and with no specifier or variable in it (systemd.service(5))."""
    safe = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return safe if re.fullmatch(r"[\w@+=:,./-]+", word) else f'"{safe}"'


TEMPLATES: dict[str, Callable[[Sequence[str]], str]] = {
    "systemd": systemd, "cron": cron, "slurm": slurm, "tmux": tmux,
}  # fmt: skip


@click.command(
    "service", short_help="Print a systemd unit, crontab lines, a Slurm job or a tmux command for the daemon."
)
@click.argument("kind", type=click.Choice(list(TEMPLATES)), metavar="|".join(TEMPLATES))
@config_option
@ssh_config_option
def command(kind: str, config: Path | None, ssh_config: Path | None) -> int:
    """Print a systemd unit, crontab lines, a Slurm job script or a tmux command that keeps `--alerts-only` running.

    Its comments explain how to install it.

    Exit status: 0 printed, 2 a usage or config error.
    """
    from trainmon.config import load_settings

    _, file = load_settings(config, ())
    click.echo(TEMPLATES[kind](daemon_argv(file, ssh_config)))
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
