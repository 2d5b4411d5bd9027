"""The State, which is everything known now as one immutable value, and the events that change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.action import Record
from trainmon.model.alerts import Alert, AlertRequest, Channel, Delivery, Leadership, Silence, StoredAlerts
from trainmon.model.attempts import Attempt, NodeRecord, NodeUse, Receipt
from trainmon.model.job import Cluster, Job, RankLook, SchedulerNode
from trainmon.model.node import Node, NodeHistory, Prompt, Source
from trainmon.model.probe_wire import AnyReading, LogChunk
from trainmon.model.run import Run, RunSpec
from trainmon.model.storage import Disk, Quota
from trainmon.model.wandb import Points, Sample, WandbRun


class Timeline(msgspec.Struct, frozen=True):
    """Where the replay of a recording is."""

    at: Instant
    start: Instant
    end: Instant
    speed: float = 1.0
    is_playing: bool = True
    alerts: tuple[Instant, ...] = ()
    """When alerts began to fire."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known now. Owned by the engine; passed around by reference."""

    at: Instant = 0.0
    started_at: Instant = 0.0
    demo: bool = False
    story: str = ""
    """Of the demo: what goes wrong now, and the keys that show it."""
    replay: Timeline | None = None
    """If it is played from a recording."""
    read_only: bool = False
    sources: Mapping[str, Source] = {}
    nodes: Mapping[str, Node] = {}
    """By name. Two clusters may not share a node name."""
    node_histories: Mapping[str, NodeHistory] = {}
    """By node name."""
    disks: Mapping[str, Disk] = {}
    """By Disk.key."""
    released_disks: Mapping[str, Instant] = {}
    """By Disk.key: when a host stopped reading the disk by this name."""
    runs: Mapping[str, Run] = {}
    usable: Mapping[str, float] = {}
    """By disk path: the share of the disk that may be used, 0 to 1. The disk counts as full at that share."""
    lags: Mapping[str, Seconds] = {}
    """By disk path: how old the statistics of the filesystem may be."""
    quotas: Mapping[str, Quota] = {}
    """By `host:path`, or by `cluster:path` if all hosts of the cluster share it."""
    prompts: tuple[Prompt, ...] = ()
    clusters: Mapping[str, Cluster] = {}
    jobs: Mapping[str, Job] = {}
    """By Job.key. One that the queue no longer lists stays for a day, with `gone_at`."""
    ended: Mapping[str, EndedJobs] = {}
    """By cluster: the jobs that ended in the last days, once a person has viewed them."""
    scheduler_nodes: Mapping[str, SchedulerNode] = {}
    """By name: the scheduler's nodes, watched or not."""
    actions: Mapping[str, Record] = {}
    """By action id, oldest first: open actions, and those of the last hour."""
    attempts: Mapping[str, Attempt] = {}
    """By attempt id: open attempts, and those that ended within a week."""
    receipts: Mapping[str, tuple[Receipt, ...]] = {}
    """By Receipt.key: the receipts of trainmon-run, the newest last."""
    node_uses: Mapping[str, NodeUse] = {}
    """By attempt id: the attempts of 90 days that have ended, as they count for their nodes."""
    node_records: Mapping[str, NodeRecord] = {}
    """By `cluster/node`: what these attempts say of it, and those that were open when the last one ended."""
    has_restored_attempts: bool = False
    """Whether the attempts that the ledger holds are among them."""
    accounted: tuple[Job, ...] = ()
    """Jobs that have ended, says accounting, and whose log and checkpoints are still to be read."""
    is_dashboard: bool = False
    """Whether this program is a dashboard that notifies people: it may run on a laptop."""
    notice: str | None = None
    """What a person is told once, such as that probes run as steps of a job."""
    ledger: str | None = None
    """The current error of the ledger, in a sentence."""
    config: str | None = None
    """Why the config on the disk is not the one that runs, in a sentence."""
    alerts: Mapping[str, Alert] = {}
    """By id: open alerts, and those that ended within a day."""
    silences: Mapping[str, Silence] = {}
    """By id: active and future silences."""
    channels: Mapping[str, Channel] = {}
    """By name."""
    leadership: Leadership = Leadership()
    """Who sends notifications."""
    evaluated_at: Instant | None = None
    """When the rules were last evaluated."""
    clock_jumped_at: Instant | None = None
    """When this program last noticed a sleep or a clock jump. Ages from before that time are not trusted."""
    clock_jump_why: str | None = None
    """What happened then, in a sentence."""


class Series(msgspec.Struct, frozen=True):
    """A piece of history: when, in seconds from now (an hour ago is -3600; ascending to 0), and a value or nan."""

    offsets: tuple[float, ...]
    values: tuple[float, ...]


# ---- events ----------------------------------------------------------------------------------------------------------


class NodeReading(msgspec.Struct, frozen=True):
    """One reading of a probe. `received_at` is our clock."""

    node: str
    cluster: str
    received_at: Instant
    reading: AnyReading
    is_stand_in: bool = False
    """Whether this host stands in for one that does not answer. It may have another user and other mounts, so a
    missing or unreadable file proves nothing."""
    under_way: Seconds = 0.0
    """How long it was on its way to this machine, at most."""


class GpuHistoryRead(msgspec.Struct, frozen=True, kw_only=True):
    """The past numbers of a node's GPUs, from a server that has stored them: a value for each step, or nan."""

    node: str
    start: Instant
    step: Seconds
    span: Seconds
    """How far it reaches back: an hour or a day."""
    columns: Mapping[tuple[int, str], Sequence[float]]
    """By index and field of a Gpu."""

    @property
    def length(self) -> int:
        return max(map(len, self.columns.values()), default=0)


class DiskHistoryRead(msgspec.Struct, frozen=True, kw_only=True):
    """The past numbers of a node's disks, from a server that has stored them: a value for each step, or nan."""

    node: str
    start: Instant
    step: Seconds
    columns: Mapping[str, Mapping[str, Sequence[float]]]
    """By path and field of a Disk: `free_bytes`, `free_inodes`, `total_bytes`."""


class DisksReleased(msgspec.Struct, frozen=True):
    """A host no longer reads disks by these names: it was a stand-in, or their mounts are known now."""

    node: str
    disks: tuple[str, ...]


class DisksForgotten(msgspec.Struct, frozen=True):
    """The disks of a node are no longer read over SSH, and Prometheus has only those at the paths `kept`."""

    node: str
    kept: frozenset[str] = frozenset()


class SourceChanged(msgspec.Struct, frozen=True):
    """The health of one source, from its collector."""

    source: Source


class SourceRemoved(msgspec.Struct, frozen=True):
    """A source is no longer watched: its node left the config."""

    name: str


class PromptsChanged(msgspec.Struct, frozen=True):
    """The login prompts that are open now."""

    prompts: tuple[Prompt, ...]


class RunsChanged(msgspec.Struct, frozen=True):
    """The runs that are watched now."""

    specs: tuple[RunSpec, ...]


class DisksChanged(msgspec.Struct, frozen=True):
    """The usable share and the lag of each disk path that has one; see State.usable and State.lags."""

    usable: Mapping[str, float]
    lags: Mapping[str, Seconds] = {}


class ClustersChanged(msgspec.Struct, frozen=True):
    """New data about some clusters. The other clusters stay as they are."""

    clusters: tuple[Cluster, ...]
    gone: tuple[str, ...] = ()
    """The clusters that the config no longer has."""


class JobsListed(msgspec.Struct, frozen=True):
    """One poll of a cluster's queue: all watched jobs in it. `at` is our clock."""

    cluster: str
    at: Instant
    jobs: tuple[Job, ...]


class JobChanged(msgspec.Struct, frozen=True):
    """New details of one job, or how it ended, from accounting."""

    job: Job


class JobsAccounted(msgspec.Struct, frozen=True):
    """Jobs as accounting has them, each attempt of a requeued one apart."""

    cluster: str
    jobs: tuple[Job, ...]


class EndedJobs(msgspec.Struct, frozen=True):
    """The jobs of a cluster's watched users that ended in the last days, says accounting."""

    cluster: str
    at: Instant
    jobs: tuple[Job, ...] = ()
    error: str | None = None
    """Why they were not read now, in a sentence; the jobs are then those of the last answer."""


class SchedulerNodesListed(msgspec.Struct, frozen=True):
    """One poll of a cluster's nodes."""

    cluster: str
    at: Instant
    nodes: tuple[SchedulerNode, ...]


class ActionChanged(msgspec.Struct, frozen=True):
    """An action was requested, done or refused, or has failed."""

    record: Record


class AttemptsRestored(msgspec.Struct, frozen=True):
    """The attempts that the ledger holds: open ones, and those of the last week. Those of 90 days count for their
    nodes."""

    attempts: tuple[Attempt, ...]
    uses: tuple[NodeUse, ...] = ()


class NoticeGiven(msgspec.Struct, frozen=True):
    """A person is told something, the first time only. `key` is its name in the state directory."""

    key: str
    text: str


class RunLooked(msgspec.Struct, frozen=True):
    """A look at the ranks of a run was made, or could not be made."""

    run: str
    look: RankLook
    attempt: str | None = None
    """The id of the newest attempt of the run when it began."""


class ReplayOrdered(msgspec.Struct, frozen=True):
    """A person's request to a replay: `pause`, `back`, `forward`, `slower`, `faster` or `alert`, the next one."""

    order: str


class StoryTold(msgspec.Struct, frozen=True):
    """What goes wrong in the demo, and the keys that show it."""

    text: str


class LedgerTrouble(msgspec.Struct, frozen=True):
    """An error of the ledger, in a sentence; null when it works again."""

    message: str | None


class ConfigRefused(msgspec.Struct, frozen=True):
    """The config could not be loaded again, in a sentence; null when it was."""

    message: str | None


class WandbPolled(msgspec.Struct, frozen=True):
    """One answer about a run of ours: the W&B runs that match, the newest first. `at` is our clock."""

    run: str
    at: Instant
    runs: tuple[WandbRun, ...]
    keys: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()
    names: tuple[str, ...] = ()
    """All its metrics; the curves of others than `keys` are read while they are on the screen."""


class CurvesGrew(msgspec.Struct, frozen=True):
    """New points of one attempt, by metric. With `fresh`, they replace all earlier points."""

    run: str
    path: str
    """WandbRun.path."""
    at: Instant
    points: Mapping[str, Points]
    fresh: bool = False
    is_older: bool = False
    """Whether they come before the known ones: older lines of a log, read after a start of this program."""


class SampleFetched(msgspec.Struct, frozen=True):
    """A sample was downloaded to this path on this machine."""

    run: str
    file: str
    kept: str


class ConsoleRead(msgspec.Struct, frozen=True):
    """The newest lines of a run's console log in W&B, in the form of a log file's chunk."""

    run: str
    received_at: Instant
    chunk: LogChunk


class QuotaRead(msgspec.Struct, frozen=True):
    """A quota command answered. `shared`: it holds for that path on every host of the cluster."""

    quota: Quota
    shared: bool = True


class AlertsRestored(msgspec.Struct, frozen=True):
    """This program starts to evaluate alerts, or to notify, with the alerts that the ledger holds."""

    stored: StoredAlerts


class LedgerReplaced(msgspec.Struct, frozen=True):
    """A new file has replaced the ledger of this leader: it lacks what was written before."""


class AlertRequested(msgspec.Struct, frozen=True):
    """A person's request about alerts. `number` is its number in the ledger, if it came through the ledger."""

    request: AlertRequest
    number: int | None = None


class Delivered(msgspec.Struct, frozen=True):
    """The result of sending a notification."""

    alerts: tuple[str, ...]
    delivery: Delivery


class ChannelsChanged(msgspec.Struct, frozen=True):
    """The current health of these channels. The other channels stay as they are."""

    channels: tuple[Channel, ...]


class LeadershipChanged(msgspec.Struct, frozen=True):
    """The leader that sends notifications has changed."""

    leadership: Leadership


class AlertsReported(msgspec.Struct, frozen=True):
    """The alerts of the daemon on another machine. They are shown here in place of our own."""

    alerts: tuple[Alert, ...]
    silences: tuple[Silence, ...]
    channels: tuple[Channel, ...]
    at: Instant


Event = (
    NodeReading | GpuHistoryRead | DisksReleased | SourceChanged | SourceRemoved | PromptsChanged | RunsChanged
    | DisksChanged | DisksForgotten | ClustersChanged | JobsListed | JobChanged | JobsAccounted | SchedulerNodesListed
    | ActionChanged | AttemptsRestored | LedgerTrouble | WandbPolled | CurvesGrew | SampleFetched | ConsoleRead
    | QuotaRead | NoticeGiven | AlertsRestored | AlertRequested | Delivered | ChannelsChanged | LeadershipChanged
    | AlertsReported | DiskHistoryRead | ConfigRefused | LedgerReplaced | StoryTold | EndedJobs
    | RunLooked | ReplayOrdered
)  # fmt: skip
