"""Finds and loads the config, and makes the settings of a start without one."""

from __future__ import annotations

import os
import re
import shlex
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from trainmon.analysis.log_formats import Format, custom_format
from trainmon.config.decode import decode
from trainmon.config.retry import policy_of
from trainmon.config.schema import ClusterSettings, DiskSettings, ImplicitCluster, RunSettings, Settings
from trainmon.config.types import InvalidValue, did_you_mean, expand_hosts, quoted
from trainmon.config.validate import watched_nodes
from trainmon.lib import ConfigError
from trainmon.model import ME, RunSpec, WandbSpec

FILE_NAME = "trainmon.toml"
MAX_BYTES = 1_048_576
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
    found = find_file(environ, Path.cwd(), os.getuid())
    return (load(found), found) if found else (default_settings(), None)


def default_settings(hosts: Sequence[str] = ()) -> Settings:
    """The settings without a file: they watch the hosts given, or this machine and the nodes of your running jobs."""
    disks = (DiskSettings(path="/", on="nodes"), DiskSettings(path="/dev/shm", on="nodes"))
    cluster = ClusterSettings(nodes=tuple(_from_command_line(hosts))) if hosts else ImplicitCluster()
    return Settings(clusters=(cluster,), disks=disks)


def select_hosts(settings: Settings, hosts: Sequence[str]) -> Settings:
    """The same settings with only these nodes, and with only the runs that may train on them.

    Raises:
        ConfigError: when the config does not have one of the nodes.
    """
    wanted = _from_command_line(hosts)
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


def _from_command_line(hosts: Sequence[str]) -> dict[str, None]:
    """The hosts of Slurm host lists, each once, in order."""
    try:
        return dict.fromkeys(expand_hosts(hosts))
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
            stall_after=run.stall_after,
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
            wandb_dir=run.wandb_dir,
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
        ConfigError: when the file cannot be read or has mistakes; it has a sentence for each.
    """
    try:
        with path.open("rb") as opened:
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
        where = f"{position[1].removeprefix('at ')}: " if position else ""
        raise ConfigError([f"{path}: {where}{POSITION.sub('', str(error))}"]) from error
    except RecursionError as error:
        raise ConfigError([f"{path}: is nested too deeply"]) from error
    settings, problems = decode(raw, str(path))
    if settings is None:
        raise ConfigError(problems)
    return settings


def find_file(environ: Mapping[str, str], cwd: Path, user: int) -> Path | None:
    """The config when none is named: $TRAINMON_CONFIG, ./trainmon.toml, or the user's own.

    Raises:
        ConfigError: when ./trainmon.toml is not trusted.
    """
    named = environ.get("TRAINMON_CONFIG")
    if named:
        return Path(named).expanduser()
    here = cwd / FILE_NAME
    if os.path.lexists(here):
        if problem := why_not_trusted(here, user):
            why, fix = problem
            sentence = f"{FILE_NAME}: not read, because {why}, and a config may contain commands"
            raise ConfigError([sentence], hint=f"{fix}; or, if you trust the file, add --config {FILE_NAME}")
        return Path(FILE_NAME)
    home = environ.get("XDG_CONFIG_HOME") or Path(environ.get("HOME") or "/") / ".config"
    own = Path(home) / "trainmon-tui" / "config.toml"
    return own if own.exists() else None


def why_not_trusted(file: Path, user: int) -> tuple[str, str] | None:
    """Why a config in the working directory is not trusted, and the command that fixes it; None when it is trusted."""
    try:
        is_regular = stat.S_ISREG(file.stat().st_mode)
        folders = (file.absolute().parent, file.resolve().parent)
    except OSError as error:
        return f"it cannot be read ({(error.strerror or 'failed').lower()})", f"rm {file.name}"
    if not is_regular:
        return "it is not a regular file", f"rm {file.name}"
    for subject, path in (("it", file), *(("its directory", folder) for folder in folders)):
        about = path.stat()
        if about.st_uid != user:
            return f"{subject} belongs to another user", f"cp {file.name} to a directory of your own"
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            shown = "." if path == Path.cwd() else file.name if path == file else path
            return f"other users can write to {subject}", f"chmod go-w {shown}"
    return None
