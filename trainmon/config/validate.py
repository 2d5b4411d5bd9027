"""Whether the tables of a config agree with each other: names that are taken, clusters and runs that are not there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmon.alerting.rules import RULES
from trainmon.analysis.log_formats import named_regex
from trainmon.config.notify import notify_conflicts
from trainmon.config.schema import ClusterSettings, LogFormatSettings, RunSettings, Settings
from trainmon.config.types import did_you_mean, quoted
from trainmon.lib import ConfigError

HERE = "this machine"


def conflicts(settings: Settings) -> Iterator[str]:
    """A sentence for each thing that one table says against another."""
    if not settings.clusters:
        yield '"cluster" is empty; leave it out to watch this machine'
        return
    yield from _taken("cluster", [cluster.name for cluster in settings.clusters])
    yield from _taken("run", [run.name for run in settings.runs])
    yield from _taken("log_format", [entry.name for entry in settings.log_formats])
    yield from _log_formats(settings.log_formats)
    yield from _nodes_twice(settings)
    yield from _disks_twice(settings)
    yield from _quotas(settings)
    yield from _runs(settings)
    yield from _jobs_twice(settings)
    yield from _wandb(settings.runs)
    yield from _rules_twice(settings)
    yield from _maintenance(settings)
    yield from notify_conflicts(settings.notify, [run.name for run in settings.runs], [rule.name for rule in RULES])
    names = [run.name for run in settings.runs]
    for number, entry in enumerate(settings.evals, 1):
        if entry.run not in names:
            yield f"[[eval]] #{number} ({entry.run}): no run {quoted(entry.run)}{did_you_mean(entry.run, names)}"


def _taken(table: str, names: Sequence[str]) -> Iterator[str]:
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name in first:
            yield f"[[{table}]] #{number} ({name}): the name {quoted(name)} is taken by [[{table}]] #{first[name]}"
        first.setdefault(name, number)


def _log_formats(entries: Sequence[LogFormatSettings]) -> Iterator[str]:
    for number, entry in enumerate(entries, 1):
        try:
            named_regex(entry.name, entry.pattern)
        except ConfigError as error:
            why = error.problems[0].removeprefix(f"log format {entry.name!r}: ")
            yield f"[[log_format]] #{number} ({entry.name}): {why}"


def watched_nodes(cluster: ClusterSettings) -> tuple[str, ...]:
    """The nodes of a cluster as the config names them: its nodes, else its login host, else this machine."""
    if cluster.nodes is None:
        return ()
    return cluster.nodes or (cluster.login or HERE,)


def _hosts(settings: Settings, cluster: ClusterSettings) -> tuple[str, ...]:
    """All hosts of a cluster: its nodes, and the one that reads its shared files."""
    nodes = watched_nodes(cluster)
    has_files = any(run.cluster == cluster.name for run in settings.runs)
    reads = has_files or cluster.nodes is None or any(disk.on == "login" for disk in settings.disks)
    reader = cluster.login or (HERE if reads else None)
    return nodes if reader is None or reader in nodes else (reader, *nodes)


def _nodes_twice(settings: Settings) -> Iterator[str]:
    clusters = settings.clusters
    owner: dict[str, int] = {}
    for number, cluster in enumerate(clusters, 1):
        twice: dict[int, list[str]] = {}
        for node in _hosts(settings, cluster):
            if node in owner:
                twice.setdefault(owner[node], []).append(node)
            owner.setdefault(node, number)
        for first, nodes in twice.items():
            where = "" if first == number else f" in [[cluster]] #{first} ({clusters[first - 1].name})"
            yield f"[[cluster]] #{number} ({cluster.name}): {_listed(nodes)} listed already{where}"


def _listed(nodes: Sequence[str]) -> str:
    if HERE in nodes:
        return 'a "login" is needed, because this machine is'
    if len(nodes) == 1:
        return f"node {quoted(nodes[0])} is"
    more = f" and {len(nodes) - 3} more" if len(nodes) > 3 else ""
    return f"nodes {', '.join(quoted(node) for node in nodes[:3])}{more} are"


def _disks_twice(settings: Settings) -> Iterator[str]:
    first: dict[tuple[str, str], int] = {}
    for number, disk in enumerate(settings.disks, 1):
        key = (disk.path, disk.on)
        if key in first:
            yield f"[[disk]] #{number} ({disk.path}): the same path on the same hosts as [[disk]] #{first[key]}"
        first.setdefault(key, number)


def _quotas(settings: Settings) -> Iterator[str]:
    """Who counts with du must say how much is allowed: it cannot."""
    for number, disk in enumerate(settings.disks, 1):
        if disk.quota is not None and disk.quota.parser == "du" and disk.quota.limit is None:
            yield f'[[disk]] #{number} ({disk.path}): quota by du knows no limit; say it: limit = "10TB"'


def _jobs_twice(settings: Settings) -> Iterator[str]:
    """Two runs of one job name and user: every job would be both of them."""
    first: dict[tuple[str, str, str | None], int] = {}
    for number, run in enumerate(settings.runs, 1):
        cluster = run.cluster or settings.clusters[0].name
        other = first.setdefault((cluster, run.job or run.name, run.user), number)
        if other != number and settings.runs[other - 1].name != run.name:
            name = settings.runs[other - 1].name
            jobs = f"jobs called {quoted(run.job or run.name)}"
            yield f"[[run]] #{number} ({run.name}): {jobs} are those of [[run]] #{other} ({name})"


def _runs(settings: Settings) -> Iterator[str]:
    clusters = {cluster.name: cluster for cluster in settings.clusters}
    for number, run in enumerate(settings.runs, 1):
        where = f"[[run]] #{number} ({run.name})"
        if run.cluster is None and len(clusters) > 1:
            yield f'{where}: "cluster" is missing; there are several: {", ".join(clusters)}'
            continue
        cluster = clusters.get(run.cluster) if run.cluster is not None else settings.clusters[0]
        if cluster is None:
            yield f"{where}: no cluster {quoted(run.cluster or '')}{did_you_mean(run.cluster or '', clusters)}"
        elif cluster.nodes is not None:
            known = watched_nodes(cluster)
            for node in (node for node in run.nodes if node not in known):
                near = did_you_mean(node, known)
                yield f'{where}: "nodes" has {quoted(node)}, no node of cluster {quoted(cluster.name)}{near}'


def _rules_twice(settings: Settings) -> Iterator[str]:
    first: dict[str, int] = {}
    for number, rule in enumerate(settings.rules, 1):
        if first.setdefault(rule.type, number) != number:
            yield f"[[rule]] #{number} ({rule.type}): [[rule]] #{first[rule.type]} sets this rule; put all in one table"


def _maintenance(settings: Settings) -> Iterator[str]:
    names = [rule.name for rule in RULES]
    runs = [run.name for run in settings.runs]
    for number, entry in enumerate(settings.maintenance, 1):
        where = f"[[maintenance]] #{number}" + (f" ({entry.name})" if entry.name else "")
        if entry.begin is None and entry.at is None:
            yield f'{where}: when does it begin? "from" is needed, or "at" for what comes again'
        elif entry.begin is not None and (entry.at is not None or entry.days):
            again = "at" if entry.at is not None else "days"
            yield f'{where}: "from" is for what happens once; leave out "{again}"'
        if entry.rule is not None and entry.rule not in names:
            yield f"{where}: no rule {quoted(entry.rule)}{did_you_mean(entry.rule, names)}"
        if entry.run is not None and entry.run not in runs and runs:
            yield f"{where}: no run {quoted(entry.run)}{did_you_mean(entry.run, runs)}"


CHARTS_AT_MOST = 12
"""Each is a part of every request."""


def _wandb(runs: Sequence[RunSettings]) -> Iterator[str]:
    """Which runs of a W&B project are meant must be said, and a project for them."""
    for number, run in enumerate(runs, 1):
        where = f"[[run]] #{number} ({run.name})"
        said = [word for word in ("group", "run", "display", "tags") if getattr(run, word)]
        if run.wandb is None:
            wanting = [*said, *(["charts"] if run.charts else []), *(['log = "wandb"'] if run.log == "wandb" else [])]
            if wanting:
                yield f'{where}: {wanting[0]} needs "wandb", the project: wandb = "team/project"'
        elif not said:
            yield f'{where}: which runs of {run.wandb}? one of "group", "run", "display" or "tags" is needed'
        elif "run" in said and len(said) > 1:
            others = " and ".join(quoted(word) for word in said if word != "run")
            yield f'{where}: "run" names one W&B run; leave out {others}'
        if len(run.charts) > CHARTS_AT_MOST:
            yield f'{where}: "charts" has {len(run.charts)} metrics; at most {CHARTS_AT_MOST} are charted'
