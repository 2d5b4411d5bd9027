"""The tables of the config, as the values that the program runs with. docs/configuration.md is made from here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from trainmon.config_alerts import AlertsSettings, DaemonSettings, HeartbeatSettings, MaintenanceSettings, RuleSettings
from trainmon.config_notify import NotifySettings
from trainmon.config_rule_kinds import NAMED
from trainmon.config_table import Table
from trainmon.config_values import (
    Argv,
    Count,
    Duration,
    Flag,
    Host,
    Hosts,
    Kind,
    LogPath,
    Nodes,
    Pattern,
    Project,
    RemotePath,
    Secret,
    Share,
    SlurmPeriod,
    Text,
    Texts,
    User,
    Users,
    WandbPeriod,
    Whole,
    one_of,
    read_labels,
)


class ConnectSettings(Table, frozen=True, kw_only=True):
    """How the hosts of a cluster are dialled."""

    at_once: Count = 8
    """Handshakes at the same time: sshd drops what comes beyond its MaxStartups."""
    timeout: Duration = 10.0
    """For connecting, and again for logging in."""


class ClusterSettings(Table, frozen=True, kw_only=True):
    """Machines that are watched together. One or several; `[cluster]` is accepted for one."""

    name: Text = "local"
    """What it is called here."""
    login: Host | None = None
    """A host as ssh knows it: shared files are read and Slurm is asked there. Absent: this machine."""
    nodes: Nodes = ()
    """What is watched. Absent: the login host, or this machine. `"slurm"`: the nodes of the runs' own jobs, as they
    come and go."""
    users: Users = ()
    """Whose jobs are watched. Absent: your own. `"me"` is the user that Slurm's commands run as there."""
    every: Duration = 2.0
    """The period of the fast numbers."""
    slurm_every: SlurmPeriod = 30.0
    """The period of the queue; longer by itself while Slurm is slow to answer, or has nothing of yours."""
    spares: Whole = 0
    """Healthy idle nodes wanted, to replace one that fails."""
    connect: ConnectSettings = ConnectSettings()
    """How its hosts are dialled."""
    python: Text = "python3"
    """The interpreter on the nodes: a name, or an absolute path."""


class RunSettings(Table, frozen=True, kw_only=True):
    """A training run."""

    name: Text
    """What it is called here."""
    cluster: Text | None = None
    """Where it trains. Needed only with several clusters."""
    nodes: Hosts = ()
    """The nodes it trains on, where no job says it."""
    wandb: Project | None = None
    """Its W&B project; which runs there are its own is said by `group`, `run`, `display` or `tags`."""
    group: Text | None = None
    """Its W&B group: exactly one active run is expected in it, and the next is taken up by itself."""
    run: Text | None = None
    """Its W&B run id: the last part of the address of its page."""
    display: Pattern | None = None
    """A pattern that its W&B display names match."""
    tags: Texts = ()
    """Its W&B tags: runs that have all of them."""
    restart_grace: Duration = 900.0
    """How long after one W&B run ended the next may take to appear."""
    charts: Texts = ()
    """The W&B metrics that are charted, at most 12. Absent: those with the common names."""
    job: Text | None = None
    """The name of its Slurm jobs. Absent: its own name."""
    user: User | None = None
    """Whose its Slurm jobs are; these are watched, too. Absent: you, or the one user whose jobs are watched."""
    log: LogPath | None = None
    """Its log; the newest match of a glob is followed. Absent: what its job prints. `"wandb"`: the
    console log of its W&B run."""
    checkpoints: RemotePath | None = None
    """The directory of its checkpoints; these and the disk under it are watched."""
    kill_switch: RemotePath | None = None
    """The file that ends it when it appears."""
    save_switch: RemotePath | None = None
    """The file that makes it save a checkpoint when it appears."""
    script: RemotePath | None = None
    """The batch script that submits it: what "queue another" hands to sbatch."""
    stall_after: Duration = 900.0
    """Without a step for this long it is stalled: the floor, and the value until its own cadence is learnt."""
    target_step: Count | None = None
    """The step at which it is done; otherwise what its log says."""
    model_family: Text | None = None
    """What its checkpoints are evaluated as. Not used yet."""
    labels: Annotated[Mapping[str, str], Kind('texts: { owner = "team-a" }', read_labels)] = {}
    """Anything worth knowing, carried along."""


class WandbSettings(Table, frozen=True, kw_only=True):
    """How Weights & Biases is asked. Where it is, and the key, are found as its own client finds them."""

    every: WandbPeriod = 60.0
    """The period; longer by itself while the server is busy or fails."""


class LogFormatSettings(Table, frozen=True, kw_only=True):
    """A log format of your own, tried before the built-in ones."""

    name: Text
    """What it is called here."""
    pattern: Pattern
    """Named groups say what is what: `(?P<step>\\d+)` is needed; see "Log formats"."""


class QuotaSettings(Table, frozen=True, kw_only=True):
    """The quota of a path: a command that tells it, run niced and with a time limit where the path is looked at."""

    command: Argv
    """What is run there, without a shell; quiet forms are best: `["lfs", "quota", "-q", "-u", "me", "/fsx"]`."""
    parser: Annotated[
        Literal["lustre", "gpfs", "beegfs", "quota", "du"], one_of("lustre", "gpfs", "beegfs", "quota", "du")
    ]
    """Whose output it prints: that of `lfs quota`, `mmlsquota -Y`, `beegfs-ctl --getquota --csv`, `quota -w -p`, or
    `du -s` where nothing else works."""
    every: Duration = 600.0
    """How often it is asked; `du`, which walks through everything, at most every 6 h."""
    limit: Annotated[int | None, NAMED["size"]] = None
    """What may be used, where the command does not know it: needed for `du`."""


class DiskSettings(Table, frozen=True, kw_only=True):
    """A path whose disk is watched, besides the disks under the runs' own paths."""

    path: RemotePath
    """The path; its disk is found from it."""
    on: Annotated[Literal["login", "nodes", "run"], one_of("login", "nodes", "run")] = "login"
    """Where it is looked at: once from the login host, on every node, or on every node of the runs."""
    usable: Share = 1.0
    """How much of it may be used: `"80%"` where 80 % is the new 100 %."""
    lag: Duration | None = None
    """How old the statistics of this filesystem may be: no change is judged finer than that."""
    quota: QuotaSettings | None = None
    """Its quota: what may still be written is the least of what is free and what it leaves."""


class RetryCauseSettings(Table, frozen=True, kw_only=True):
    """When a run that ended by one cause may be started again. Not used yet."""

    times: Whole = 0
    """How often."""
    within: Duration | None = None
    """Counted over this time."""
    after_change: Texts = ()
    """Only after one of these settings of the run has changed."""


class RetrySettings(Table, frozen=True, kw_only=True):
    """What is done when a run ends early. Not used yet."""

    auto_requeue: Annotated[Literal["off", "suggest", "on"], one_of("off", "suggest", "on")] = "off"
    """Whether it is requeued by itself."""
    cuda_oom: RetryCauseSettings | None = msgspec.field(default=None, name="cuda-oom")
    """After CUDA ran out of memory."""


class EvalSettings(Table, frozen=True, kw_only=True):
    """Where the evaluations of a run are found. Not used yet."""

    run: Text
    """The name of the run."""
    results: RemotePath
    """Its result files; may be a glob."""


class LedgerSettings(Table, frozen=True, kw_only=True):
    """What is kept of the past: what was asked, done, and what became of it."""

    copy_to: Secret | None = None
    """A database that attempts, actions and evaluations are copied to. Never shown. Not used yet."""
    keep: Duration = 90 * 86_400.0
    """How long it is kept."""


class Settings(Table, frozen=True, kw_only=True):
    """The whole config."""

    read_only: Flag = False
    """Refuse every action."""
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
    retry: RetrySettings | None = None
    evals: tuple[EvalSettings, ...] = msgspec.field(default=(), name="eval")
    ledger: LedgerSettings | None = None
