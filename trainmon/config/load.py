"""Finds and loads the config, and makes the settings of a start without one."""

from __future__ import annotations

import grp
import os
import pwd
import re
import shlex
import shutil
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from trainmon.analysis.log_formats import Format, custom_format
from trainmon.config.decode import decode, watched_nodes
from trainmon.config.schema import ClusterSettings, DiskSettings, ImplicitCluster, RunSettings, Settings, policy_of
from trainmon.config.types import InvalidValue, did_you_mean, expand_hosts, quoted
from trainmon.lib import ConfigError
from trainmon.model import ME, STALL_AFTER, RunSpec, WandbSpec

FILE_NAME = "trainmon.toml"
MAX_BYTES = 1_048_576
LOGIN = re.compile(r"login|head|front|submit|access", re.IGNORECASE)
"""The usual names of login hosts."""
POSITION = re.compile(r" \((at line \d+, column \d+|at end of document)\)$")


def load_settings(
    config: Path | None, hosts: Sequence[str], environ: Mapping[str, str] = os.environ
) -> tuple[Settings, Path | None]:
    """The settings of one start, and the file they come from.

    HOSTs need no file. With a named file they select its nodes.

    Raises:
        ConfigError: when the config cannot be used.
    """
    if config is not None:
        settings = load(config)
        return (select_hosts(settings, hosts), config) if hosts else (settings, config)
    if hosts:
        return default_settings(hosts), None
    found = find_file(environ, Path.cwd())
    return (load(found), found) if found else (default_settings(), None)


def default_settings(hosts: Sequence[str] = ()) -> Settings:
    """The settings without a file: they watch the hosts given, or this machine and the nodes of your running jobs.
    Slurm is queried on the host with the name of a login host; without one, on this machine if it has Slurm's commands,
    else on the first host."""
    disks = (DiskSettings(path="/", on="nodes"), DiskSettings(path="/dev/shm", on="nodes"))
    nodes = _from_command_line(hosts)
    login = login_of(nodes) or (None if shutil.which("squeue") else next(iter(nodes), None))
    cluster = ClusterSettings(login=login, nodes=nodes) if nodes else ImplicitCluster()
    return Settings(clusters=(cluster,), disks=disks)


def login_of(hosts: Iterable[str]) -> str | None:
    """The first host with the name of a login host."""
    return next((host for host in hosts if LOGIN.search(host)), None)


def select_hosts(settings: Settings, hosts: Sequence[str]) -> Settings:
    """The same settings with only these nodes, and with only the runs that may train on them.

    Raises:
        ConfigError: when the config does not have one of the nodes.
    """
    wanted = dict.fromkeys(_from_command_line(hosts))
    known = [node for cluster in settings.clusters for node in watched_nodes(cluster)]
    unknown = [host for host in wanted if host not in known]
    if unknown:
        raise ConfigError([f"no node {quoted(host)} in the config{did_you_mean(host, known)}" for host in unknown])
    clusters = tuple(
        msgspec.structs.replace(cluster, nodes=nodes)
        for cluster in settings.clusters
        if (nodes := tuple(node for node in watched_nodes(cluster) if node in wanted))
    )
    names = {cluster.name for cluster in clusters}
    runs = tuple(
        msgspec.structs.replace(run, nodes=tuple(node for node in run.nodes if node in wanted))
        for run in settings.runs
        if _cluster_name(run, settings) in names and (not run.nodes or wanted.keys() & set(run.nodes))
    )
    return msgspec.structs.replace(settings, clusters=clusters, runs=runs)


def _from_command_line(hosts: Sequence[str]) -> tuple[str, ...]:
    """The hosts of Slurm host lists, each once, in order."""
    try:
        return expand_hosts(hosts)
    except InvalidValue as wrong:
        raise ConfigError([f"the command line {wrong}"]) from wrong


def run_specs(settings: Settings) -> tuple[RunSpec, ...]:
    """The runs of the config, for the engine."""
    only_users = {cluster.name: cluster.users[0] for cluster in settings.clusters if len(cluster.users) == 1}
    return tuple(
        RunSpec(
            name=run.name,
            cluster=_cluster_name(run, settings),
            job=run.job or run.name,
            user=run.user or only_users.get(_cluster_name(run, settings)),
            script=run.script,
            log=None if run.log == "wandb" else run.log,
            checkpoints=run.checkpoints,
            evals=tuple(dict.fromkeys(one.results for one in settings.evals if one.run == run.name)),
            eval_commands=tuple(
                dict.fromkeys(one.command for one in settings.evals if one.run == run.name and one.command is not None)
            ),
            kill_switch=run.kill_switch,
            save_switch=run.save_switch,
            status=run.status or next((f"{one}.status" for one in (run.kill_switch, run.save_switch) if one), None),
            target_step=run.target_step,
            stall_after=STALL_AFTER if run.stall_after is None else run.stall_after,
            may_hang_early=run.stall_after is None,
            nodes=run.nodes,
            wandb=WandbSpec(
                project=run.wandb,
                group=run.group,
                run=run.run,
                display=run.display,
                tags=run.tags,
                restart_grace=run.restart_grace,
                charts=run.charts,
                console=run.log == "wandb",
            )
            if run.wandb is not None
            else None,
            wandb_dir=run.metrics_dir or run.wandb_dir,
            charts=run.charts,
            model_family=run.model_family,
            labels=run.labels,
            retry=policy_of(settings.retry, run.auto_requeue),
            config=run.config,
            data_manifest=run.data_manifest,
            receipts=run.receipts,
        )
        for run in settings.runs
    )


def queue_users(settings: Settings, cluster: ClusterSettings) -> tuple[str, ...]:
    """The users whose jobs are watched in a cluster: its own and those of its runs; empty means only yours."""
    of_runs = [run.user for run in settings.runs if run.user and _cluster_name(run, settings) == cluster.name]
    return tuple(dict.fromkeys((*(cluster.users or (ME,)), *of_runs))) if of_runs else cluster.users


def log_formats(settings: Settings) -> tuple[Format, ...]:
    """The log formats of the config, compiled."""
    return tuple(
        custom_format(entry.name, pattern=entry.pattern, template=entry.template) for entry in settings.log_formats
    )


def _cluster_name(run: RunSettings, settings: Settings) -> str:
    return run.cluster or settings.clusters[0].name


# ---- the file -------------------------------------------------------------------------------------------------------


def load(path: Path) -> Settings:
    """The settings of one config file.

    Raises:
        ConfigError: when the file cannot be read, is not trusted or has mistakes; it has a sentence for each.
    """
    try:
        # A pipe is refused, not waited for.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as opened:
            if problem := why_not_trusted(path, os.fstat(opened.fileno()), os.getuid()):
                why, fix = problem
                raise ConfigError([f"{path}: not read, because {why}, and a config may contain commands"], hint=fix)
            data = opened.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ConfigError([f"{path}: is too large for a config: the maximum is 1 MiB"])
        raw = tomllib.loads(data.decode())
    except FileNotFoundError as error:
        hint = f"trainmon-tui init --output {shlex.quote(str(path))}"
        raise ConfigError([f"{path}: the file does not exist"], hint=hint) from error
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {(error.strerror or 'failed').lower()}"]) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}: line {line}: is not UTF-8 text"]) from error
    except tomllib.TOMLDecodeError as error:
        position = POSITION.search(str(error))
        last = f"line {data.count(10) + 1}, the end"
        where = f"{position[1].removeprefix('at ').replace('end of document', last)}: " if position else ""
        raise ConfigError([f"{path}: {where}{POSITION.sub('', str(error))}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{path}: is nested too deeply"]) from error
    settings, problems = decode(raw, str(path))
    if settings is None:
        raise ConfigError(problems)
    return settings


def find_file(environ: Mapping[str, str], cwd: Path) -> Path | None:
    """The config when none is named: $TRAINMON_CONFIG, ./trainmon.toml, or the user's own."""
    named = environ.get("TRAINMON_CONFIG")
    if named:
        return Path(named).expanduser()
    if os.path.lexists(cwd / FILE_NAME):
        return Path(FILE_NAME)
    home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/") / ".config"
    own = Path(home) / "trainmon-tui" / "config.toml"
    return own if own.exists() else None


def why_not_trusted(file: Path, about: os.stat_result, user: int) -> tuple[str, str] | None:
    """Why a config is not read, and the command that fixes it; None when it is trusted: only you or root can change it,
    or put another file in its place. `about` is of the opened file."""
    copy = f"if you trust it: mkdir -m 700 ~/trainmon; cp {shlex.quote(str(file))} ~/trainmon"
    if not stat.S_ISREG(about.st_mode):
        return "it is not a regular file", copy
    folders = dict.fromkeys((file.absolute().parent, file.resolve().parent))  # of the link, and of the file itself
    for subject, path, found in (("it", file, about), *(("its directory", one, one.stat()) for one in folders)):
        if found.st_uid not in (user, 0):
            return f"{subject} belongs to another user", copy
        if _others_can_write(path, found, user):
            is_yours = user in (found.st_uid, 0) and not found.st_mode & stat.S_ISVTX
            shown = "." if path == Path.cwd() else shlex.quote(str(path))
            return f"other users can write to {subject}", f"chmod go-w {shown}" if is_yours else copy
    return None


def _others_can_write(path: Path, about: os.stat_result, user: int) -> bool:
    if about.st_mode & stat.S_IWOTH or not about.st_mode & stat.S_IWGRP:
        return bool(about.st_mode & stat.S_IWOTH)
    with suppress(OSError, AttributeError):  # no such call on macOS
        if "system.posix_acl_access" in os.listxattr(path):
            return True
    try:
        return not is_only_member(pwd.getpwuid(user).pw_name, grp.getgrgid(about.st_gid), pwd.getpwall())
    except KeyError:
        return True


def is_only_member(name: str, group: grp.struct_group, everyone: Iterable[pwd.struct_passwd]) -> bool:
    """Whether a user is the only member of a group, besides root. It may be the primary group of others. A group with
    the name of a user is the user's own, also where the users are not listed (LDAP)."""
    members = {*group.gr_mem, *(one.pw_name for one in everyone if one.pw_gid == group.gr_gid)}
    return members - {"root", name} == set() and name in {*members, group.gr_name}
