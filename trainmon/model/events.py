"""The events: all that may change a State."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.action import Record
from trainmon.model.alert import Alert, AlertRequest, Delivery, Recalled, Silence
from trainmon.model.disk import Quota
from trainmon.model.job import Cluster, Job, SchedulerNode
from trainmon.model.node import Prompt, Source
from trainmon.model.notification import Channel, Leadership
from trainmon.model.probe_wire import AnyReading, LogChunk
from trainmon.model.run import RunSpec
from trainmon.model.wandb import Points, Sample, WandbRun


class NodeReading(msgspec.Struct, frozen=True):
    """One reading of a probe. `received_at` is our clock."""

    node: str
    cluster: str
    received_at: Instant
    reading: AnyReading
    is_stand_in: bool = False
    """Whether this host stands in for one that does not answer. It may have another user and other mounts, so a
    missing or unreadable file proves nothing."""


class StandInEnded(msgspec.Struct, frozen=True):
    """A stand-in host stops reading these disks."""

    node: str
    disks: tuple[str, ...]


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
    """New facts about some clusters. The other clusters stay as they are."""

    clusters: tuple[Cluster, ...]


class JobsListed(msgspec.Struct, frozen=True):
    """One poll of a cluster's queue: all watched jobs in it. `at` is our clock."""

    cluster: str
    at: Instant
    jobs: tuple[Job, ...]


class JobChanged(msgspec.Struct, frozen=True):
    """New details of one job, or how it ended, from accounting."""

    job: Job


class SchedulerNodesListed(msgspec.Struct, frozen=True):
    """One poll of a cluster's nodes."""

    cluster: str
    at: Instant
    nodes: tuple[SchedulerNode, ...]


class ActionChanged(msgspec.Struct, frozen=True):
    """An action was asked for, done, refused, or has failed."""

    record: Record


class LedgerTrouble(msgspec.Struct, frozen=True):
    """An error of the ledger, in a sentence; null when it works again."""

    message: str | None


class WandbPolled(msgspec.Struct, frozen=True):
    """One answer about a run of ours: the W&B runs that match, the newest first. `at` is our clock."""

    run: str
    at: Instant
    runs: tuple[WandbRun, ...]
    keys: tuple[str, ...] = ()
    samples: tuple[Sample, ...] = ()


class CurvesGrew(msgspec.Struct, frozen=True):
    """New points of one attempt, by metric. `fresh`: they are all there is, what was known of it is forgotten."""

    run: str
    path: str
    """WandbRun.path."""
    at: Instant
    points: Mapping[str, Points]
    fresh: bool = False


class SampleFetched(msgspec.Struct, frozen=True):
    """A sample was fetched: it lies at this place on this machine."""

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


class AlertsRecalled(msgspec.Struct, frozen=True):
    """This program begins to judge (or to tell) with what was known."""

    recalled: Recalled


class AlertRequested(msgspec.Struct, frozen=True):
    """A person said something of alerts. `number` is the order's in the ledger, where it came through it."""

    order: AlertRequest
    number: int | None = None


class Delivered(msgspec.Struct, frozen=True):
    """What became of a letter."""

    alerts: tuple[str, ...]
    delivery: Delivery


class ChannelsChanged(msgspec.Struct, frozen=True):
    """How these channels are doing now; others stay."""

    channels: tuple[Channel, ...]


class LeadershipChanged(msgspec.Struct, frozen=True):
    """The leader that sends notifications has changed."""

    duty: Leadership


class AlertsReported(msgspec.Struct, frozen=True):
    """The alerts of the daemon on another machine. They are shown here in place of our own."""

    alerts: tuple[Alert, ...]
    silences: tuple[Silence, ...]
    channels: tuple[Channel, ...]
    at: Instant


Event = (
    NodeReading | StandInEnded | SourceChanged | SourceRemoved | PromptsChanged | RunsChanged | DisksChanged
    | ClustersChanged | JobsListed | JobChanged | SchedulerNodesListed | ActionChanged | LedgerTrouble | WandbPolled
    | CurvesGrew | SampleFetched | ConsoleRead | QuotaRead | AlertsRecalled | AlertRequested | Delivered
    | ChannelsChanged | LeadershipChanged | AlertsReported
)  # fmt: skip
