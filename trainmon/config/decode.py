"""Decodes raw TOML into Settings, or into a sentence per mistake: file, table, setting, and the nearest valid name."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import msgspec

from trainmon.alerting.rules import RULES
from trainmon.analysis.log_formats import custom_format
from trainmon.config.notify import AlertmanagerSettings, NotifySettings, NtfySettings
from trainmon.config.schema import ClusterSettings, MetricsSettings, RunSettings, Settings
from trainmon.config.types import InvalidValue, Table, describe, did_you_mean, quoted, table_of, value_type
from trainmon.lib import ConfigError, listed

NAMED_BY = ("name", "type", "path", "run")
"""The settings that identify a table of a list in messages, best first."""

COMPARED = ("name", "cluster", "login", "nodes", "pattern", "at", "from")
"""The settings by which tables are compared with each other. Comparing without them would report false mistakes."""


def decode(raw: dict[str, object], file: str) -> tuple[Settings | None, list[str]]:
    """The settings of a raw config and the problems found in it. The settings are None when there is any problem."""
    decoder = _Decoder()
    values = decoder.table(raw, Settings, where="", prefix="")
    problems = decoder.problems
    if not decoder.lost_values:
        settings = msgspec.convert(values, Settings)
        problems = [*problems, *conflicts(settings)]
        if not problems:
            return settings, []
    return None, [f"{file}: {problem}" for problem in problems]


class _Decoder:
    """Walks over the raw tables and the structs that they should become, and collects the problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.lost_values = False
        """Whether a value is missing or unusable, so that the tables cannot be compared with each other."""

    def table(self, raw: dict[str, object], struct: type[Table], *, where: str, prefix: str) -> dict[str, object]:
        fields = {field.encode_name: field for field in struct.settings(raw)}
        known = fields | {old: fields[new] for old, new in struct.aliases.items() if new in fields}
        values: dict[str, object] = {}
        for key, value in raw.items():
            if key in known:
                self.setting(values, key, value, known[key].type, where=where, prefix=prefix)
            else:
                names = [prefix + name for name in fields]
                hint = did_you_mean(prefix + key, names) or f"; the settings are {', '.join(names)}"
                self.problem(where, f"unknown setting {quoted(prefix + key)}{hint}")
        for old, new in struct.aliases.items():
            if old in raw and new in raw:
                self.problem(
                    where, f"{quoted(prefix + old)} is the old name of {quoted(prefix + new)}; remove one of them"
                )
            elif old in values:
                values[new] = values.pop(old)
        for key, field in fields.items():
            if field.required and key not in raw:
                self.report_lost(where, f"{quoted(prefix + key)} is missing")
            self.lost_values |= field.required and key not in values
        return values

    def setting(
        self, values: dict[str, object], key: str, value: object, type_: object, *, where: str, prefix: str
    ) -> None:
        struct, many = table_of(type_)
        if struct is None:
            try:
                values[key] = value_type(type_).parse(value)
            except InvalidValue as wrong:
                # The default replaces it, so that the tables can still be compared for other mistakes.
                report = self.report_lost if key in COMPARED else self.problem
                report(where, f"{quoted(prefix + key)} {wrong}")
        elif many:
            values[key] = list(self.tables(key, value, struct, where))
        elif isinstance(value, dict):
            inner, prefix = (where, f"{prefix}{key}.") if where else (f"[{key}]", "")
            values[key] = struct.pack(self.table(value, struct, where=inner, prefix=prefix))
        else:
            self.report_lost(where, f"{quoted(prefix + key)} must be a table, not {describe(value)}")

    def tables(self, key: str, value: object, struct: type[Table], parent: str) -> Iterable[dict[str, object]]:
        """The tables of a list, without those of an unknown type. `parent`: the table that holds the list, or empty."""
        one, several = (f"{parent}: {key}", f"{parent}: {key}") if parent else (f"[{key}]", f"[[{key}]]")
        items = {one: value}
        if isinstance(value, list):
            items = {f"{several} #{number}": item for number, item in enumerate(value, 1)}
        if not all(isinstance(item, dict) for item in items.values()):
            written = f"{{ {struct.__struct_fields__[0]} = … }}" if parent else several
            self.report_lost(parent, f"{quoted(key)} must be a table, {written}, not {describe(value)}")
            return
        for location, item in items.items():
            assert isinstance(item, dict)
            name = next((item[key] for key in NAMED_BY if isinstance(item.get(key), str) and item[key]), None)
            where = location if name is None else f"{location} ({quoted(name)[1:-1]})"
            try:
                values = self.table(item, struct, where=where, prefix="")
            except InvalidValue as wrong:
                self.report_lost(where, f'"type" {wrong}')
            else:
                yield struct.pack(values)

    def problem(self, where: str, text: str) -> None:
        self.problems.append(f"{where}: {text}" if where else text)

    def report_lost(self, where: str, text: str) -> None:
        self.lost_values = True
        self.problem(where, text)


# ---- what tables contradict each other -------------------------------------------------------------------------------

HERE = "this machine"
LOGIN = "authorization"

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
        yield from _metrics(cluster.metrics, f"[[cluster]] #{number} ({cluster.name})")
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
    yield from _notify(settings.notify, names, [rule.name for rule in RULES])
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
            if HERE in found:
                what = 'set "login", because this machine is'
            elif len(found) == 1:
                what = f"node {quoted(found[0])} is"
            else:
                what = f"nodes {listed([quoted(node) for node in found], most=3)} are"
            before = f"[[cluster]] #{first} ({clusters[first - 1].name})"
            yield f"[[cluster]] #{number} ({cluster.name}): {what} already listed in {before}"


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
            has_files = run.wandb_dir is not None or run.metrics_dir is not None
            charts = ["charts"] if run.charts and not has_files else []
            if needing := [*selectors, *charts, *wandb_log]:
                yield f'{where}: {needing[0]} needs a W&B project: wandb = "team/project"'
        elif not selectors:
            yield f'{where}: set "group", "run", "display" or "tags" to select the W&B runs of {run.wandb}'
        elif "run" in selectors and len(selectors) > 1:
            others = " and ".join(quoted(name) for name in selectors if name != "run")
            yield f'{where}: "run" names one W&B run; remove {others}'
        if len(run.charts) > MAX_CHARTS:
            yield f'{where}: "charts" has {len(run.charts)} metrics; the maximum is {MAX_CHARTS}'


def _metrics(tables: Sequence[MetricsSettings], where: str) -> Iterator[str]:
    """A cluster reads each kind of numbers once, and with one login."""
    for number, table in enumerate(tables, 1):
        texts = [*_login(table.token, table.user, table.password)]
        if table.token is not None or table.user is not None:
            texts += [f'"headers" has {name}, which the login sets' for name in table.headers if name.lower() == LOGIN]
        yield from (f"{where}: metrics #{number} ({quoted(table.exporter)}): {text}" for text in texts)
    kinds = ["hosts" if table.exporter == "node" else "GPUs" for table in tables]
    for number, first in _repeated(kinds):
        name, kind = quoted(tables[number - 1].exporter), kinds[number - 1]
        yield f"{where}: metrics #{number} ({name}) and #{first} both read {kind}; remove one of them"


def _notify(settings: Sequence[NotifySettings], runs: Sequence[str], rules: Sequence[str]) -> Iterator[str]:
    """Channels have their own names and known runs and rules, and one of them notifies at once."""
    repeated = dict(_repeated([entry.label for entry in settings]))
    for number, entry in enumerate(settings, 1):
        where = f"[[notify]] #{number} ({quoted(entry.label)[1:-1]})"
        if number in repeated:
            yield f'{where}: [[notify]] #{repeated[number]} already uses the name {quoted(entry.label)}; set "name"'
        for noun, names, known in (("run", entry.runs, runs), ("rule", entry.rules, rules)):
            for name in names:
                if name not in known and (noun == "rule" or known):
                    near = did_you_mean(name, known)
                    yield f'{where}: "{noun}s" has {quoted(name)}, which is not a {noun}{near}'
        own = entry.own
        if isinstance(own, NtfySettings | AlertmanagerSettings):
            yield from (f"{where}: {text}" for text in _login(own.token, own.user, own.password))
        if isinstance(own, NtfySettings) and own.reply_topic is not None and own.reply_topic == own.topic:
            yield f'{where}: "reply_topic" must differ from "topic": notifications would be read as replies'
    if settings and all(entry.fallback or entry.after for entry in settings):
        yield 'every [[notify]] has "fallback" or "after"; at least one must have neither, to notify at once'


def _login(token: str | None, user: str | None, password: str | None) -> Iterator[str]:
    """A sentence if these settings of a login contradict each other, or one is missing."""
    if token is not None and (user is not None or password is not None):
        yield '"token" is enough to log in; remove "user" and "password"'
    elif token is None and (user is None) != (password is None):
        missing = "password" if password is None else "user"
        yield f'"{missing}" is missing: "user" and "password" go together'
