"""The tables of the config and their defaults. docs/reference/configuration.md is generated from them."""

from __future__ import annotations

import datetime as dt
import math
import re
import shlex
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec

from trainmon.alerting.pipeline.routing import HeartbeatSpec, Routing
from trainmon.alerting.rules import RULES, Rule
from trainmon.analysis.checkpoints import PLACEHOLDERS
from trainmon.analysis.retries import DEFAULTS
from trainmon.config.notify import Headers, NotifySettings, address_error, routes_of
from trainmon.config.types import (
    Argv,
    Count,
    Datetime,
    Days,
    Duration,
    DurationOrNever,
    Host,
    Hosts,
    InvalidValue,
    Keys,
    Labels,
    ListenAddress,
    LogPath,
    Nodes,
    Pattern,
    Project,
    RemotePath,
    Secret,
    Share,
    Size,
    SlurmPeriod,
    Table,
    TextfilePath,
    TimeOfDay,
    User,
    Users,
    ValueType,
    WandbPeriod,
    describe,
    did_you_mean,
    matched,
    matching,
    parse_argv,
    parse_duration,
    parse_each,
    parse_number,
    polling_period,
    quoted,
    type_name,
    whole_number,
)
from trainmon.lib import DAY, Instant, Seconds
from trainmon.model import RequeueMode, RetryChange, RetryLimit, RetryPolicy, Silence

# ---- [[rule]] --------------------------------------------------------------------------------------------------------


OLD_NAMES = {"hold": "for", "keep": "keep_firing_for", "critical_hold": "critical_for"}
"""The names of rule settings before they were those of Prometheus."""


class RuleSettings(Table, frozen=True, kw_only=True):
    """Settings of one rule that differ from its defaults."""

    type: str
    """The name of the rule."""
    values: Mapping[str, Any] = {}
    """The other settings of the rule."""

    aliases = OLD_NAMES

    @classmethod
    def settings(cls, raw: Mapping[str, object]) -> Sequence[msgspec.structs.FieldInfo]:
        """`type`, and the fields of the rule that it names."""
        rules = {rule.name: rule for rule in RULES}
        name = type_name(raw, rules, "rule", "the name of a rule", "; `trainmon-tui rules` lists them")
        return (msgspec.structs.fields(cls)[0], *msgspec.structs.fields(rules[name]))

    @classmethod
    def pack(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"type": values.pop("type", ""), "values": values}


def rules_of(settings: Sequence[RuleSettings]) -> tuple[Rule, ...]:
    """All rules with their settings, in the order of RULES; disabled rules are included."""
    values = {entry.type: entry.values for entry in settings}
    return tuple(msgspec.convert(values.get(rule.name, {}), rule) for rule in RULES)


def enabled_rules(settings: Sequence[RuleSettings]) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules_of(settings) if rule.enabled)


# ---- the other tables about alerts -----------------------------------------------------------------------------------


class AlertsSettings(Table, frozen=True, kw_only=True):
    """How alerts are notified."""

    repeat: DurationOrNever = 4 * 3_600.0
    """The interval of repeated notifications for a critical alert that nobody has acknowledged (Alertmanager:
    `repeat_interval`)."""


class HeartbeatSettings(Table, frozen=True, kw_only=True):
    """Regular reports, and an external dead-man's switch that notifies you when the daemon stops."""

    every: DurationOrNever = 4 * 3_600.0
    """The interval of a report on all runs, which goes to every channel."""
    ping: Secret | None = None
    """The dead-man's switch: a ping address of healthchecks.io or a similar service. `--alerts-only` pings it only
    while monitoring works. The service notifies you when the pings stop. Never shown."""
    ping_every: Duration = 60.0
    """The interval of the pings."""
    test: DurationOrNever = 7 * 86_400.0
    """The interval of a test notification, which goes to every channel and asks for an acknowledgement: a channel may
    accept everything and deliver nothing."""
    start: bool = True
    """Whether `--alerts-only` sends a notification when it starts and when it ends."""


def heartbeat_of(settings: HeartbeatSettings, *, start: bool, host: str = "") -> HeartbeatSpec:
    """The heartbeat of these settings. `start`: whether to notify when the daemon starts and ends; `host`: its host."""
    return HeartbeatSpec(
        every=settings.every or None, test_every=settings.test or None, start=start and settings.start, host=host
    )


class DaemonSettings(Table, frozen=True, kw_only=True):
    """Where `trainmon-tui --alerts-only` runs, for a dashboard on another machine. The dashboard shows the alerts of
    that daemon, and acknowledges and mutes there. It sends no notifications while the daemon does. `metrics` and
    `textfile` are for the daemon itself: what it offers to Prometheus."""

    host: Host | None = None
    """A host that ssh knows. Without it: only this machine."""
    command: Argv = ("trainmon-tui",)
    """The command that starts trainmon-tui there. Use an absolute path if a non-interactive SSH session does
    not find it."""
    every: Duration = 10.0
    """The polling period."""
    metrics: ListenAddress | None = None
    """Where the daemon serves `/metrics` for Prometheus, such as `"127.0.0.1:9464"`. A port without an address is
    opened for this machine only. Everybody who reaches the address can read the metrics. Without it: no port is
    opened."""
    textfile: TextfilePath | None = None
    """A file that the daemon writes every 15s with the same metrics, for the textfile collector of node_exporter. The
    daemon removes it when it ends. Without it: no file."""


class DashboardSettings(Table, frozen=True, kw_only=True):
    """How the dashboard looks."""

    theme: Literal["auto", "dark", "light", "high-contrast"] = "auto"
    """The colours. `"high-contrast"` is safe for colour-blind people. `"auto"`: the theme that you chose last, or else
    one that fits the background of the terminal."""
    time: Literal["utc", "local"] = "utc"
    """The zone of all times on its screens: `"utc"`, or `"local"`: that of this machine. Lines of logs and the messages
    of the daemon keep theirs."""


class MaintenanceSettings(Table, frozen=True, kw_only=True):
    """A maintenance window: matching alerts are shown but not notified. All given conditions must match. Without any,
    it matches every alert."""

    name: str | None = None
    """The reason, which is shown with the muted alerts."""
    begin: Datetime | None = msgspec.field(default=None, name="from")
    """The start of a single window."""
    at: TimeOfDay | None = None
    """The start of a recurring window, in the local time of this machine."""
    days: Days = ()
    """The days of a recurring window. Without it: every day."""
    lasts: Duration = msgspec.field(name="for")
    """How long the window lasts."""
    run: str | None = None
    """Match only this run."""
    node: str | None = None
    """Match only this node."""
    rule: str | None = None
    """Match only this rule."""
    subject: str | None = None
    """Match only this subject, as `trainmon-tui status` names it."""


DAYS_AHEAD = 3
"""Recurring windows are computed for this many days; they are renewed long before."""


def windows_of(settings: Sequence[MaintenanceSettings], now: Instant) -> tuple[Silence, ...]:
    """The maintenance windows that are open or start within a few days, as silences."""
    return tuple(
        Silence(
            id=f"maintenance-{number}" if start == entry.begin else f"maintenance-{number}-{start:.0f}",
            rule=entry.rule,
            subject=entry.subject,
            run=entry.run,
            node=entry.node,
            until=start + entry.lasts,
            by="the config",
            why=entry.name or "maintenance",
            made_at=start,
            window=True,
        )
        for number, entry in enumerate(settings, 1)
        for start in _starts(entry, now)
        if start + entry.lasts > now
    )


def _starts(entry: MaintenanceSettings, now: Instant) -> Iterator[Instant]:
    if entry.begin is not None:
        yield entry.begin
        return
    hour, minute = entry.at or (0, 0)
    first = dt.datetime.fromtimestamp(now - entry.lasts, dt.UTC).astimezone().date()
    for ahead in range(DAYS_AHEAD + 1 + int(entry.lasts / DAY)):
        day = first + dt.timedelta(days=ahead)
        if not entry.days or day.weekday() in entry.days:
            # A time that the clock skips or repeats at a change to or from summer time is Python's choice.
            yield dt.datetime.combine(day, dt.time(hour, minute)).timestamp()


def routing_of(settings: Settings, now: Instant) -> Routing:
    """How alerts reach people by these settings, with the maintenance windows of the next days."""
    windows = windows_of(settings.maintenance, now)
    return Routing(routes=routes_of(settings.notify), repeat=settings.alerts.repeat or math.inf, windows=windows)


# ---- [retry] ---------------------------------------------------------------------------------------------------------

KEYS = ("times", "within", "after_change")
CHANGES: tuple[str, ...] = get_args(RetryChange)


def parse_limit(value: object) -> dict[str, object]:
    """A number of retries, or a table with `times`, `within` and `after_change`.

    Raises:
        InvalidValue: when it is neither, or has an unknown setting.
    """
    if not isinstance(value, dict):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidValue(f"must be a number of retries or a table, not {describe(value)}")
        return {"times": whole_number(0)(value)}
    for key in value:
        if key not in KEYS:
            raise InvalidValue(f"has the unknown setting {quoted(key)}{did_you_mean(key, KEYS)}")
    if "times" not in value:
        raise InvalidValue("needs the number of retries: times = 1")
    found: dict[str, object] = {"times": whole_number(0)(value["times"])}
    if "within" in value:
        found["within"] = parse_duration(value["within"])
    otherwise = f" in after_change; it must be one of: {', '.join(CHANGES)}"
    return {**found, "after_change": parse_each(value.get("after_change", []), CHANGES.__contains__, otherwise)}


Limit = Annotated[
    RetryLimit,
    ValueType(
        'a number of retries, or { times = 1, within = "1d", after_change = ["batch"] }',
        parse_limit,
        lambda limit: str(limit.times),
    ),
]


class RetrySettings(Table, frozen=True, kw_only=True):
    """What trainmon-tui does when an attempt of a run ends before its target. The name of a cause sets how often the
    run is retried after it. Only retries without a new step and without a new checkpoint count. In a table, `times` is
    that number, and `within` counts only the retries that ended within this period. `after_change` lists what must have
    changed first, at least one of `batch`, `checkpointing` (activation checkpointing) and `placement` (the number of
    nodes and GPUs). A plain number keeps the changes of the default."""

    auto_requeue: RequeueMode = "off"
    """Whether `--alerts-only` requeues a job that has failed, within the budget of its cause. `"suggest"`: it only
    notifies you. A `[[run]]` may have its own setting."""
    gate: Literal["seen", "required"] = "seen"
    """What keeps `auto_requeue` from restarting: `"seen"`: a fault that was seen on a node; `"required"`: also a node
    that could not be checked."""
    limits: Mapping[str, RetryLimit] = {}
    """The causes with another limit than the default."""

    @classmethod
    def settings(cls, raw: Mapping[str, object]) -> Sequence[msgspec.structs.FieldInfo]:
        """`auto_requeue`, `gate`, and every cause that may have a budget."""
        causes = (
            msgspec.structs.FieldInfo(name=cause, encode_name=cause, type=Limit, default=limit)
            for cause, limit in DEFAULTS.items()
        )
        return (*msgspec.structs.fields(cls)[:2], *causes)

    @classmethod
    def pack(cls, values: dict[str, Any]) -> dict[str, Any]:
        """A plain number keeps the changes that the default asks for."""
        own = {name: limit for name, limit in DEFAULTS.items() if name in values}
        limits = {name: {"after_change": limit.after_change, **values.pop(name)} for name, limit in own.items()}
        return {**values, "limits": limits}


def policy_of(settings: RetrySettings | None, auto_requeue: RequeueMode | None) -> RetryPolicy:
    """The policy of a run with this setting of its own."""
    retry = settings or RetrySettings()
    mode = auto_requeue or retry.auto_requeue
    return RetryPolicy(auto_requeue=mode, gate=retry.gate, is_own=auto_requeue is not None, limits=retry.limits)


# ---- the tables of `[[cluster]] metrics` -----------------------------------------------------------------------------

LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MATCHER = r"""\s*[A-Za-z_][A-Za-z0-9_]*\s*(?:=~|!~|!=|=)\s*(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*"""
MATCHERS = re.compile(rf"(?:{MATCHER}(?:,{MATCHER})*,?\s*)?")


def parse_http_address(value: object) -> str:
    """The address of a server, without a slash at its end.

    Raises:
        InvalidValue: when it is none, or holds a password: it is shown on screens.
    """
    if not isinstance(value, str) or address_error(value) is not None:
        raise InvalidValue('must be a URL such as "http://prometheus:9090"')
    parts = urllib.parse.urlsplit(value)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise InvalidValue('must have no user, password or "?"; set "user" and "password" beside it')
    return value.rstrip("/").removesuffix("/api/v1")


def parse_matchers(value: object) -> str:
    """Label matchers, without braces.

    Raises:
        InvalidValue: when they are none.
    """
    return matched(value, MATCHERS, "label matchers such as 'cluster=\"a\"'")[0].strip().rstrip(",")


HttpAddress = Annotated[str, ValueType("a URL", parse_http_address)]
LabelName = Annotated[str, ValueType("the name of a label", matching(LABEL, 'the name of a label such as "instance"'))]
Matchers = Annotated[str, ValueType("label matchers of PromQL", parse_matchers)]
MetricsPeriod = Annotated[Seconds, polling_period("Prometheus has no newer numbers", shortest=1.0)]


class MetricsSettings(Table, frozen=True, kw_only=True):
    """A Prometheus server, or anything with its HTTP API, that has the numbers of the nodes."""

    url: HttpAddress
    """The address of the server, without `/api/v1`. May have a path, such as that of Mimir or Thanos."""
    exporter: Literal["dcgm", "nvidia_gpu", "all-smi", "amd", "amd_smi", "node"] = "dcgm"
    """The exporter whose metrics are read: dcgm-exporter, nvidia_gpu_exporter, all-smi, AMD's device-metrics-exporter
    (`amd`) or amd_smi_exporter for GPUs, node_exporter for hosts. For both kinds, write a list of two tables."""
    node_label: LabelName | None = None
    """The label that names the node. A port and a domain in its value are ignored. Without it: `instance`;
    for `amd`, `hostname`; for `dcgm`, `Hostname` and `hostname`. Either of these two stands for both."""
    match: Matchers = ""
    """Label matchers of PromQL that select the series of this cluster, such as `cluster="a"`."""
    token: Secret | None = None
    """The bearer token. It is read again for each request, so its file may be renewed. Never shown."""
    user: str | None = None
    """A user name for basic authentication, instead of a token."""
    password: Secret | None = None
    """The password of that user, read like the token. Never shown."""
    headers: Headers = msgspec.field(default_factory=dict)
    """HTTP headers, such as the tenant of Mimir: `{ X-Scope-OrgID = "team-a" }`. Their values are never shown."""
    every: MetricsPeriod = 15.0
    """The polling period. The scrape interval of the server decides how old the numbers are."""


# ---- the tables [[eval]] ---------------------------------------------------------------------------------------------

NAMED = re.compile(r"(?<!\$)\{([a-z_]+)\}")


def parse_command(value: object) -> list[str]:
    """A command as a list, or as one string that is split like a shell does it. Its placeholders are known.

    Raises:
        InvalidValue: when it is neither, is empty, or has an unknown placeholder.
    """
    if isinstance(value, str):
        try:
            value = shlex.split(value)
        except ValueError as error:
            raise InvalidValue(f"cannot be split into arguments: {str(error).lower()}") from error
    argv = parse_argv(value)
    for name in (name for one in argv for name in NAMED.findall(one)):
        if name not in PLACEHOLDERS:
            shown = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
            raise InvalidValue(f"has the unknown placeholder {quoted(f'{{{name}}}')}; it must be one of: {shown}")
    return argv


Command = Annotated[tuple[str, ...], ValueType("a command as a list of strings, or as one string", parse_command)]


class EvalSettings(Table, frozen=True, kw_only=True):
    """Where the evaluation results of a run are, if not in `evals.jsonl` in the directory of its checkpoints. See
    docs/how-to/evaluators.md for the format of the file."""

    run: str
    """The name of the run."""
    results: RemotePath
    """Its file of results, with one JSON object per line; may be a glob. Of several files, the newest is followed. For
    more files, write more tables."""
    command: Command | None = None
    """The command that evaluates one checkpoint, usually `["sbatch", "eval.sbatch", "{checkpoint}"]`. `R` starts it
    when the evaluator of the run has crashed. It runs in a login shell on the login host of the cluster and must end
    within 60s. `{checkpoint}` is the path of the checkpoint, `{step}` its step, `{run}` the name of the run."""


# ---- clusters, runs, disks, and the whole config ---------------------------------------------------------------------


def parse_price(value: object) -> float:
    """A number that is not negative.

    Raises:
        InvalidValue: when it is not one.
    """
    if (price := parse_number(value)) < 0.0:
        raise InvalidValue(f"must be 0 or more, not {price:g}")
    return price


Price = Annotated[float, ValueType("a number, 0 or more", parse_price)]


class ConnectSettings(Table, frozen=True, kw_only=True):
    """Connection settings of the hosts of a cluster."""

    by: Literal["ssh", "openssh", "paramiko", "srun", "auto"] = "ssh"
    """How hosts are reached. `"ssh"`: over SSH; where the login is refused and the `ssh` command may have another way,
    an open master connection or a Kerberos ticket, by `ssh`. `"openssh"`: only by `ssh`. `"paramiko"`: never by `ssh`.
    `"srun"`: nodes by a step of your running job there, started where Slurm's commands run. `"auto"`: like `"ssh"`, and
    by a step on nodes that refuse SSH. The login host is always reached over SSH."""
    openssh: Hosts = ()
    """The hosts that are reached by the `ssh` command only, whatever `by` is for the others."""
    at_once: Count = 8
    """The maximum number of simultaneous logins. sshd drops connections above its MaxStartups."""
    timeout: Duration = 10.0
    """The timeout of the connection, and also of the login."""


class ClusterSettings(Table, frozen=True, kw_only=True):
    """A group of machines. Use one table per cluster. A single cluster may be written as `[cluster]`."""

    name: str = "local"
    """The name of the cluster."""
    login: Host | None = None
    """A host that ssh knows. Shared files are read and Slurm is queried there. Without it: this machine."""
    nodes: Nodes = ()
    """The nodes to watch. Without it: the login host, or this machine. `"slurm"`: the nodes of the runs' jobs while the
    jobs run."""
    users: Users = ()
    """The users whose jobs are watched. Without it: you. `"me"` is the user that runs the Slurm commands there."""
    every: Duration = 2.0
    """The sampling period of GPUs and hosts."""
    slurm_every: SlurmPeriod = 30.0
    """The polling period of Slurm. It is longer while Slurm is slow or fails, or has no jobs of these users."""
    spares: int = 0
    """The number of healthy idle nodes that you want in reserve."""
    connect: ConnectSettings = ConnectSettings()
    """Connection settings of its hosts."""
    python: str = "python3"
    """The Python interpreter on the nodes: a name or an absolute path."""
    metrics: tuple[MetricsSettings, ...] = ()
    """Where the numbers of GPUs and hosts are read, instead of over SSH: a table, or a list of tables."""
    gpu_hour_price: Price | None = None
    """What a GPU costs in an hour, in any currency: `report` shows the cost with it."""
    ssh: Literal["runs", "files"] = "runs"
    """With `metrics`: the hosts that are connected to over SSH all the time. `"runs"`: the nodes of the runs, and the
    host that reads the files. `"files"`: only the host that reads the files. Every other node is connected to while its
    screen is open."""


class ImplicitCluster(ClusterSettings, frozen=True, kw_only=True):
    """The cluster of a start without a config: this machine, and the nodes of your running jobs. They are not named by
    anybody, so each is tried once, without prompts."""


class RunSettings(Table, frozen=True, kw_only=True):
    """A training run."""

    name: str
    """The name of the run."""
    cluster: str | None = None
    """The cluster where it trains. Required only if there are several clusters."""
    nodes: Hosts = ()
    """The nodes where it trains, if it has no Slurm job."""
    wandb: Project | None = None
    """Its W&B project. `group`, `run`, `display` or `tags` select the W&B runs in it that belong to this run."""
    group: str | None = None
    """Its W&B group. Exactly one active W&B run is expected in it. The next one is followed automatically."""
    run: str | None = None
    """Its W&B run id: the last part of the address of its page."""
    display: Pattern | None = None
    """A regular expression that matches the display names of its W&B runs."""
    tags: tuple[str, ...] = ()
    """Its W&B tags. A W&B run must have all of them."""
    restart_grace: Duration = 900.0
    """How long the next W&B run may take to appear after the previous one has ended."""
    charts: tuple[str, ...] = ()
    """The W&B metrics to chart, at most 12. Without it: metrics with known names, such as `train/loss`."""
    wandb_dir: RemotePath | None = None
    """The directory `wandb` of its W&B client, with a directory `run-…` or `offline-run-…` for each W&B run. The file
    of the newest one is read, without a key and without a network. It shows curves, and steps if no log does, where
    W&B's server does not."""
    metrics_dir: RemotePath | None = None
    """A directory, which is searched three levels deep, or one file, with metrics of any known format: those of W&B's
    client, event files of TensorBoard, `metrics.csv` of Lightning, JSON lines with a step (`metrics.jsonl`),
    `trainer_state.json` of Hugging Face. The file that was written last is followed. Without it, such files are found:
    docs/how-to/metric-files.md."""
    job: str | None = None
    """The name of its Slurm jobs. Without it: the name of the run."""
    user: User | None = None
    """The owner of its Slurm jobs. The jobs of this user are watched, too. Without it: you, or the only user in
    `users`."""
    log: LogPath | None = None
    """Its log file. With a glob, the newest match is followed; a file that the globs of several runs match belongs to
    the longest of them. A log that only one of its nodes has, on a disk or in memory, is read there. Without it: the
    standard output file of its job. `"wandb"`: the console log of its W&B run."""
    checkpoints: RemotePath | None = None
    """The directory of its checkpoints. The checkpoints and their disk are watched."""
    kill_switch: RemotePath | None = None
    """The trainer saves and exits when this file appears."""
    save_switch: RemotePath | None = None
    """The trainer saves a checkpoint when this file appears."""
    status: RemotePath | None = None
    """The status file of its trainer, if that uses `trainmon_hooks`: its `TRAINMON_STATUS`. Without it: the path of the
    kill switch, else of the save switch, with `.status` behind it; without switches, what `TRAINMON_STATUS` or
    `TRAINMON_KILL` of its processes on the GPUs names."""
    script: RemotePath | None = None
    """Its batch script, which `queue` submits with sbatch."""
    stall_after: Duration | None = None
    """A run is stalled after this time without a step, or after ten times its usual step interval if that is longer.
    Without it: after 15 minutes, or [hung sooner](../explanation/run-status.md#how-soon-a-hang-is-known)."""
    target_step: Count | None = None
    """The step at which the run is complete. Without it: the target in the log, if the log shows one."""
    auto_requeue: RequeueMode | None = None
    """Whether its job is requeued automatically when it fails. Without it: as set in `[retry]`."""
    model_family: str | None = None
    """Its model family. It is stored with each attempt, so that `sql` can group attempts by it."""
    labels: Labels = msgspec.field(default_factory=dict)
    """Labels of your own. They are stored with each attempt."""
    config: RemotePath | None = None
    """Its config file, or a glob that one file matches. It is read once for each attempt: its hash shows whether the
    settings have changed. Without it: the file that the command line names with `--config`."""
    data_manifest: str | None = None
    """The manifest of its data: a version, or the absolute path of a file, or a glob that one file matches. The file is
    read once for each attempt. Without it: the variable `TRAINMON_DATA_MANIFEST` of its processes, else the setting of
    its W&B run with that name."""
    receipts: RemotePath | None = None
    """The directory where `trainmon-run` keeps the receipts of this run: its `--receipts`. Without it: the directory
    that `trainmon-run` chooses without that option. A receipt there belongs to this run if its Slurm job does, or if
    `--run` names this run."""


class WandbSettings(Table, frozen=True, kw_only=True):
    """How Weights & Biases is polled. The server and the key are found where the W&B client finds them."""

    every: WandbPeriod = 60.0
    """The polling period. It is longer while the server is busy or fails."""


class LogFormatSettings(Table, frozen=True, kw_only=True):
    """A log format of your own. It is tried before the built-in formats."""

    name: str
    """The name of the format."""
    template: str | None = None
    """A step line with names in place of its numbers; see "Log formats". Give this or `pattern`."""
    pattern: Pattern | None = None
    """A regular expression with named groups. `(?P<step>\\d+)` is required; see "Log formats"."""


class QuotaSettings(Table, frozen=True, kw_only=True):
    """The quota of a path, read by a command. The command runs with nice and a timeout on the host where the path is
    read."""

    command: Argv
    """The command. It runs without a shell. Use its quiet form: `["lfs", "quota", "-q", "-u", "me", "/fsx"]`."""
    parser: Literal["lustre", "gpfs", "beegfs", "quota", "du"]
    """The tool whose output the command prints: `lfs quota`, `mmlsquota -Y`, `beegfs-ctl --getquota --csv`, `quota -w
    -p`, or `du -s` if nothing else works."""
    every: Duration = 600.0
    """The polling period. `du` reads the whole directory tree, so it runs at most every 6h."""
    limit: Size | None = None
    """The quota, if the command does not print it. Required for `du`."""


class DiskSettings(Table, frozen=True, kw_only=True):
    """A disk to watch, in addition to the disks of the paths of the runs."""

    path: RemotePath
    """A path on the disk."""
    on: Literal["login", "nodes", "run"] = "login"
    """Where it is read: on the login host, on every node, or on every node of a run."""
    usable: Share = 1.0
    """The share of the disk that may be used: with `"80%"`, the disk counts as full at 80%."""
    lag: Duration | None = None
    """How old the statistics of this filesystem may be. Forecasts and alerts take this delay into account."""
    quota: QuotaSettings | None = None
    """Its quota. The usable space is the free space or the rest of the quota, whichever is smaller."""


class LedgerSettings(Table, frozen=True, kw_only=True):
    """The ledger: actions, alerts and their results."""

    copy_to: Secret | None = None
    """A PostgreSQL server to copy attempts, actions and evals to: `postgresql://user:password@host/database`. Never
    shown. It needs the extra `postgresql`; without it, `check` prints the command that installs it."""
    keep: Duration = 90 * 86_400.0
    """How long entries are kept. The last hour of the GPUs of each attempt is part of them; `check` shows the size."""


class Settings(Table, frozen=True, kw_only=True):
    """The whole config."""

    read_only: bool = False
    """Refuse every action."""
    keys: Keys = msgspec.field(default_factory=dict)
    """Other keys of the dashboard, by the ids in docs/reference/keys.md: `view.zoom = "Z"`,
    `lines.down = ["j", "ctrl+n"]`. A key is one character, or a name such as `f5`, `space`, `ctrl+t`. They apply
    from the next start of the dashboard."""
    clusters: tuple[ClusterSettings, ...] = msgspec.field(default=(ClusterSettings(),), name="cluster")
    runs: tuple[RunSettings, ...] = msgspec.field(default=(), name="run")
    wandb: WandbSettings = WandbSettings()
    log_formats: tuple[LogFormatSettings, ...] = msgspec.field(default=(), name="log_format")
    disks: tuple[DiskSettings, ...] = msgspec.field(default=(), name="disk")
    rules: tuple[RuleSettings, ...] = msgspec.field(default=(), name="rule")
    notify: tuple[NotifySettings, ...] = ()
    alerts: AlertsSettings = AlertsSettings()
    heartbeat: HeartbeatSettings = HeartbeatSettings()
    maintenance: tuple[MaintenanceSettings, ...] = ()
    daemon: DaemonSettings = DaemonSettings()
    dashboard: DashboardSettings = DashboardSettings()
    retry: RetrySettings | None = None
    evals: tuple[EvalSettings, ...] = msgspec.field(default=(), name="eval")
    ledger: LedgerSettings | None = None

    @property
    def prices(self) -> Mapping[str, float | None]:
        """Of a GPU hour, by cluster."""
        return {one.name: one.gpu_hour_price for one in self.clusters}
