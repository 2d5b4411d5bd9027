"""trainmon-tui service: what keeps `--alerts-only` running on this site: a unit, a crontab, a job script."""

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
#     loginctl enable-linger "$USER"      # or it ends when you log out; some sites do not allow it: service cron, slurm
# journalctl --user -u trainmon -f shows its log; systemctl --user reload trainmon has it read the config again.
# Secrets that the config takes from the environment: NAME=value lines in ~/.config/trainmon-tui/environment, mode 600.

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
# Fed after each completed look at everything, by nothing else.
WatchdogSec=120
TimeoutStartSec=90
TimeoutStopSec=20
KillMode=mixed
# What W&B's own client needs in a child is counted, too.
MemoryMax=1G
Nice=10
EnvironmentFile=-%h/.config/trainmon-tui/environment
# It must not count on the agent of somebody who is logged in now.
UnsetEnvironment=SSH_AUTH_SOCK
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""

CRONTAB = """\
# For `crontab -e`, where there is no systemd of one's own. One of the two; the first where it is allowed.
# Secrets that the config takes from the environment: NAME=value lines at the top of the crontab, or "file:/path".

# 1. It runs all the time; one that died is started again within five minutes.
@reboot {guarded} >/dev/null 2>&1
*/5 * * * * {guarded} >/dev/null 2>&1

# 2. No process stays: a look every five minutes. What has a `hold` needs two looks; acknowledging from a phone waits
#    for the next.
#*/5 * * * * {once}
"""

JOB = """\
#!/bin/bash
# Save as trainmon.slurm, then: sbatch trainmon.slurm
# Each job queues the next one as it starts, which waits for it to end: a time limit or a lost node ends no watch.
# To end all of it: scancel --name=trainmon-alerts --user="$USER"
# The next may run on another node: what was told is remembered only where its directory is shared, such as
# XDG_STATE_HOME="$HOME/.local/state" on a home that all nodes have. A CPU partition with a long limit is right for it.
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

# Near its limit, or cancelled: where the next job follows, nobody is told that the watch ends.
leave() {
    ended=1
    if [ -n "$(waiting)" ]; then kill -USR1 "$daemon"; else kill -TERM "$daemon"; fi
}
ended=
trap leave TERM
while [ -z "$ended" ]; do
    {command} &
    daemon=$!
    # A signal ends `wait` before the daemon has sent what it must.
    while kill -0 "$daemon" 2>/dev/null; do wait "$daemon"; done
    [ -n "$ended" ] || { sleep 10 & wait $!; }
done
"""

TMUX = """\
# Where neither systemd, cron nor a job may stay. It ends with a reboot of this machine: run it again then.
tmux new-session -d -s trainmon {loop}
# Look at it: tmux attach -t trainmon; leave it with Ctrl-b d.
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


@click.command("service")
@click.argument("kind", type=click.Choice(list(TEMPLATES)), metavar="|".join(TEMPLATES))
@config_option
@ssh_config_option
def command(kind: str, config: Path | None, ssh_config: Path | None) -> int:
    """Print how to keep `--alerts-only` running: a systemd unit, crontab lines, a Slurm job that submits the next one,
    or a tmux command. Comments in it say how to install it.

    Exit status: 0 printed, 2 a mistake in the call or the config.
    """
    from trainmon.config import load_settings

    _, file = load_settings(config, ())
    click.echo(TEMPLATES[kind](daemon_argv(file, ssh_config)))
    return 0


def daemon_argv(config: Path | None, ssh_config: Path | None) -> list[str]:
    """The daemon's command line, with absolute paths: who starts it has another PATH and another directory."""
    argv = [*program(), "--alerts-only"]
    if config is not None:
        argv += ["--config", str(config.absolute())]
    if ssh_config is not None:
        argv += ["--ssh-config", str(ssh_config.absolute())]
    return argv


def program() -> list[str]:
    """This program, as anybody may start it."""
    beside = Path(sys.executable).with_name("trainmon-tui")
    found = str(beside) if beside.exists() else shutil.which("trainmon-tui")
    return [found] if found else [sys.executable, "-m", "trainmon"]
