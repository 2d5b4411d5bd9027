"""Checks that the tables of a config agree: unique names, known clusters, nodes and runs."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from trainmon.alerting.rules import RULES
from trainmon.analysis.log_formats import custom_format
from trainmon.config.metrics import metrics_conflicts
from trainmon.config.notify import notify_conflicts
from trainmon.config.schema import ClusterSettings, RunSettings, Settings
from trainmon.config.types import did_you_mean, quoted
from trainmon.lib import ConfigError, listed

HERE = "this machine"

MAX_CHARTS = 12
"""Each chart is a part of every request to W&B."""


def conflicts(settings: Settings) -> Iterator[str]:
    """A sentence for each table that contradicts another, or itself."""
    if not settings.clusters:
        yield '"cluster" is empty; remove it to watch this machine'
        return
    for table, names in (
        ("cluster", [cluster.name for cluster in settings.clusters]),
        ("run", [run.name for run in settings.runs]),
        ("log_format", [entry.name for entry in settings.log_formats]),
    ):
        for number, first in _repeated(names):
            name = names[number - 1]
            yield f"[[{table}]] #{number} ({name}): the name {quoted(name)} is already used by [[{table}]] #{first}"
    for number, entry in enumerate(settings.log_formats, 1):
        try:
            custom_format(entry.name, pattern=entry.pattern, template=entry.template)
        except ConfigError as error:
            why = error.problems[0].removeprefix(f"log format {entry.name!r}: ")
            yield f"[[log_format]] #{number} ({entry.name}): {why}"
    yield from _nodes(settings)
    for number, cluster in enumerate(settings.clusters, 1):
        yield from metrics_conflicts(cluster.metrics, f"[[cluster]] #{number} ({cluster.name})")
    for number, first in _repeated([(disk.path, disk.on) for disk in settings.disks]):
        path = settings.disks[number - 1].path
        yield f"[[disk]] #{number} ({path}): it has the same path on the same hosts as [[disk]] #{first}"
    for number, disk in enumerate(settings.disks, 1):
        if disk.quota is not None and disk.quota.parser == "du" and disk.quota.limit is None:
            yield f'[[disk]] #{number} ({disk.path}): "quota.limit" is missing: du prints no limit; set limit = "10TB"'
    yield from _runs(settings)
    yield from _wandb(settings.runs)
    for number, first in _repeated([rule.type for rule in settings.rules]):
        name = settings.rules[number - 1].type
        yield f"[[rule]] #{number} ({name}): [[rule]] #{first} already sets this rule; put all settings in one table"
    yield from _maintenance(settings)
    names = [run.name for run in settings.runs]
    yield from notify_conflicts(settings.notify, names, [rule.name for rule in RULES])
    for number, run in enumerate([evaluation.run for evaluation in settings.evals], 1):
        if run not in names:
            yield f"[[eval]] #{number} ({run}): unknown run {quoted(run)}{did_you_mean(run, names)}"


def _repeated(keys: Sequence[Hashable]) -> Iterator[tuple[int, int]]:
    """The number of each table whose key an earlier table has, and the number of the first one that has it."""
    first: dict[Hashable, int] = {}
    for number, key in enumerate(keys, 1):
        if first.setdefault(key, number) != number:
            yield number, first[key]


def watched_nodes(cluster: ClusterSettings) -> tuple[str, ...]:
    """The nodes of a cluster in the config: its nodes, else its login host, else this machine."""
    return () if cluster.nodes is None else cluster.nodes or (cluster.login or HERE,)


def _nodes(settings: Settings) -> Iterator[str]:
    """No host is in two clusters. The host that reads the shared files of a cluster belongs to it."""
    clusters = settings.clusters
    owner: dict[str, int] = {}
    for number, cluster in enumerate(clusters, 1):
        hosts = watched_nodes(cluster)
        has_files = any(run.cluster == cluster.name for run in settings.runs)
        reads = has_files or cluster.nodes is None or any(disk.on == "login" for disk in settings.disks)
        reader = cluster.login or (HERE if reads else None)
        if reader is not None and reader not in hosts:
            hosts = (reader, *hosts)
        repeated: dict[int, list[str]] = {}
        for host in hosts:
            if host in owner:
                repeated.setdefault(owner[host], []).append(host)
            owner.setdefault(host, number)
        for first, found in repeated.items():
            where = "" if first == number else f" in [[cluster]] #{first} ({clusters[first - 1].name})"
            if HERE in found:
                what = 'set "login", because this machine is'
            elif len(found) == 1:
                what = f"node {quoted(found[0])} is"
            else:
                what = f"nodes {listed([quoted(node) for node in found], most=3)} are"
            yield f"[[cluster]] #{number} ({cluster.name}): {what} already listed{where}"


def _runs(settings: Settings) -> Iterator[str]:
    clusters = {cluster.name: cluster for cluster in settings.clusters}
    for number, run in enumerate(settings.runs, 1):
        where = f"[[run]] #{number} ({run.name})"
        if run.cluster is None and len(clusters) > 1:
            yield f'{where}: "cluster" is missing; it must be one of: {", ".join(clusters)}'
            continue
        cluster = clusters.get(run.cluster) if run.cluster is not None else settings.clusters[0]
        if cluster is None:
            yield f"{where}: unknown cluster {quoted(run.cluster or '')}{did_you_mean(run.cluster or '', clusters)}"
        elif cluster.nodes is not None:
            known = watched_nodes(cluster)
            for node in (node for node in run.nodes if node not in known):
                why = f"which is not a node of cluster {quoted(cluster.name)}{did_you_mean(node, known)}"
                yield f'{where}: "nodes" has {quoted(node)}, {why}'
    runs = settings.runs
    # Every job of a repeated job name and user would belong to both runs.
    for number, first in _repeated(
        [(run.cluster or settings.clusters[0].name, run.job or run.name, run.user) for run in runs]
    ):
        run, other = runs[number - 1], runs[first - 1]
        if run.name != other.name:
            jobs = f"jobs named {quoted(run.job or run.name)}"
            yield f"[[run]] #{number} ({run.name}): {jobs} already belong to [[run]] #{first} ({other.name})"


def _maintenance(settings: Settings) -> Iterator[str]:
    rules, runs = [rule.name for rule in RULES], [run.name for run in settings.runs]
    for number, entry in enumerate(settings.maintenance, 1):
        where = f"[[maintenance]] #{number}" + (f" ({entry.name})" if entry.name else "")
        if entry.begin is None and entry.at is None:
            yield f'{where}: the start is missing: set "from" for a single window, or "at" for a recurring one'
        elif entry.begin is not None and (entry.at is not None or entry.days):
            extra = "at" if entry.at is not None else "days"
            yield f'{where}: "from" is for a single window; remove "{extra}"'
        if entry.rule is not None and entry.rule not in rules:
            yield f"{where}: unknown rule {quoted(entry.rule)}{did_you_mean(entry.rule, rules)}"
        if entry.run is not None and entry.run not in runs and runs:
            yield f"{where}: unknown run {quoted(entry.run)}{did_you_mean(entry.run, runs)}"


def _wandb(runs: Sequence[RunSettings]) -> Iterator[str]:
    """A run selects its W&B runs, and needs a project for that."""
    for number, run in enumerate(runs, 1):
        where = f"[[run]] #{number} ({run.name})"
        selectors = [name for name in ("group", "run", "display", "tags") if getattr(run, name)]
        if run.wandb is None:
            wandb_log = ['log = "wandb"'] if run.log == "wandb" else []
            charts = ["charts"] if run.charts and run.wandb_dir is None else []
            if needing := [*selectors, *charts, *wandb_log]:
                yield f'{where}: {needing[0]} needs a W&B project: wandb = "team/project"'
        elif not selectors:
            yield f'{where}: set "group", "run", "display" or "tags" to select the W&B runs of {run.wandb}'
        elif "run" in selectors and len(selectors) > 1:
            others = " and ".join(quoted(name) for name in selectors if name != "run")
            yield f'{where}: "run" names one W&B run; remove {others}'
        if len(run.charts) > MAX_CHARTS:
            yield f'{where}: "charts" has {len(run.charts)} metrics; the maximum is {MAX_CHARTS}'
