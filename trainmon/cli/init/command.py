"""trainmon-tui init: write a first, commented trainmon.toml."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainmon.cli.options import hosts_argument, ssh_config_option

if TYPE_CHECKING:
    from trainmon.cli.init.discovery import Account, SlurmReport
    from trainmon.cli.init.template import FoundFacts

GUESSED_LOGIN = "guessed from its name"

SHOWN = 20


@click.command("init")
@hosts_argument
@click.option(
    "--login", metavar="HOST",
    help="The host where shared files are read and Slurm is queried. [default: the first HOST with login, head, front, "
    "submit or access in its name]",
)  # fmt: skip
@click.option("--name", metavar="NAME", default="main", show_default=True, help="The name of the cluster.")
@click.option(
    "--output", "--config", type=click.Path(path_type=Path), default="trainmon.toml", show_default=True, metavar="FILE",
    help="The config to write. - prints it.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.option("--offline", is_flag=True, help="Do not query Slurm or W&B.")
@ssh_config_option
def command(
    hosts: tuple[str, ...],
    login: str | None,
    name: str,
    output: Path,
    force: bool,
    offline: bool,
    ssh_config: Path | None,
) -> int:
    """Write a commented trainmon.toml for HOSTs.

    HOSTs are names of ~/.ssh/config or Slurm host lists: trainmon-tui init login1 'gpu-[001-004]'. It
    queries the Slurm of the login host, or of this machine, for its nodes and your running jobs. It reads the logs of
    these jobs, or of your processes on the GPUs of this machine, for the W&B run and the checkpoints. If a W&B key is
    on this machine, it queries W&B for your account. Each setting says whether it was given, found or guessed. Without
    HOSTs, if nothing is found, it lists the names in ~/.ssh/config and asks which to watch.
    """
    from trainmon.config import why_not_trusted

    why = "given" if login else GUESSED_LOGIN
    login = login or _login_of(hosts)
    found = _query(login, hosts, offline, ssh_config)
    if not hosts and not login and found.slurm is None and not found.runs:
        hosts = _prompt_for_hosts()
        login = _login_of(hosts)
        found = _query(login, hosts, offline, ssh_config) if login else found
    written = _valid(name, login, [host for host in hosts if host != login], found, why)
    if str(output) == "-":
        click.echo(written, nl=False)
        return 0
    _write(output, written, force)
    click.echo(f"wrote {output}; next: trainmon-tui check{'' if output.name == str(output) else f' --config {output}'}")
    if problem := why_not_trusted(output, output.stat(), os.getuid()):
        why, fix = problem
        click.echo(f"trainmon-tui will not read it from here: {why} ({fix})", err=True)
    return 0


def _login_of(hosts: Sequence[str]) -> str | None:
    from trainmon.config import login_of

    return login_of(host for host in hosts if "[" not in host)


def _prompt_for_hosts() -> tuple[str, ...]:
    """Ask the person at the terminal which hosts to watch."""
    from trainmon.cli.terminal import read_line
    from trainmon.lib import clean
    from trainmon.transport.ssh.config import known_hosts_by_name

    known = [clean(host) for host in known_hosts_by_name()]
    shown = " ".join(known[:SHOWN]) + (f" and {len(known) - SHOWN} more" if len(known) > SHOWN else "")
    if not sys.stdin.isatty():
        offer = f"; ~/.ssh/config lists {shown}" if known else ""
        raise click.UsageError(f"specify the hosts, such as: trainmon-tui init login1 'gpu-[001-004]'{offer}")
    click.echo(f"~/.ssh/config lists: {shown}" if known else "~/.ssh/config lists no hosts", err=True)
    try:
        answer = read_line("Hosts to watch: names as above, or Slurm host lists (empty: this machine): ")
    except EOFError as error:
        raise click.Abort from error
    return tuple(answer.split())


def _query(login: str | None, hosts: Sequence[str], offline: bool, ssh_config: Path | None) -> FoundFacts:
    """What Slurm, W&B and the logs say. Without a login host, HOSTs are not queried."""
    from trainmon.cli.init.template import FoundFacts

    if offline:
        return FoundFacts()
    from trainmon.cli.init.discovery import query_runs

    slurm = _query_slurm(login, ssh_config)
    runs = query_runs(login, ssh_config) if slurm is not None or not (login or hosts) else ()
    return FoundFacts(slurm, _query_wandb(), runs)


def _query_slurm(login: str | None, ssh_config: Path | None) -> SlurmReport | None:
    """What the Slurm of a host, or of this machine, reports; None where there is none."""
    from trainmon.cli.init.discovery import query_slurm
    from trainmon.cli.terminal import ask_on_terminal
    from trainmon.lib import TrainmonError, clean

    if login is None and shutil.which("squeue") is None:
        return None
    if sys.stderr.isatty():
        click.echo(f"querying the Slurm of {clean(login or 'this machine')} …", err=True)
    try:
        return query_slurm(login, ssh_config, ask_on_terminal if sys.stdin.isatty() else None)
    except TrainmonError as error:
        if login is not None:
            click.echo(f"Slurm could not be queried: {clean(str(error))}", err=True)
        return None


def _query_wandb() -> Account | None:
    """The W&B account of this machine; None if it has no key."""
    from collectors.wandb.login import find_credentials
    from trainmon.cli.init.discovery import query_wandb
    from trainmon.lib import clean

    login = find_credentials()
    if login.location is not None and sys.stderr.isatty():
        click.echo(clean(f"querying {login.server} with the key in {login.location} …"), err=True)
    return query_wandb(lambda: login)


def _valid(name: str, login: str | None, nodes: Sequence[str], found: FoundFacts, why: str) -> str:
    """The text of the config, after it was decoded: what init writes always loads."""
    import tomllib

    from trainmon.cli.init.template import text
    from trainmon.config.decode import decode

    written = text(name, login, nodes, found, why)
    settings, problems = decode(tomllib.loads(written), "the command line")
    if settings is None:
        raise click.UsageError("\n".join(problems))
    return written


def _write(file: Path, text: str, force: bool) -> None:
    """Write a file that only its user can read. An old file is replaced atomically."""
    beside = file.with_name(f".{file.name}.{os.getpid()}") if force else file
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
        if force:
            beside.replace(file)
    except FileExistsError as error:
        raise click.UsageError(f"{file} already exists; --force replaces it") from error
    except OSError as error:
        raise click.UsageError(f"{file} cannot be written: {(error.strerror or 'failed').lower()}") from error
