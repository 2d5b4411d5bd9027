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
    """A probe said something. `received_at` is our clock."""

    node: str
    cluster: str
    received_at: Instant
    reading: AnyReading
    is_stand_in: bool = False
    """Whether it reads in the place of a host that does not answer. It may log in as another user, and see other
    mounts: that a file is not there, or must not be read, is not for it to say."""


class StandInEnded(msgspec.Struct, frozen=True):
    """A host no longer looks at these disks in the place of another."""

    node: str
    disks: tuple[str, ...]


class SourceChanged(msgspec.Struct, frozen=True):
    """A collector says how one of its sources is doing."""

    source: Source


class SourceRemoved(msgspec.Struct, frozen=True):
    """A source is no longer watched at all (its node left the config)."""

    name: str


class PromptsChanged(msgspec.Struct, frozen=True):
    """The questions that wait for a person now."""

    prompts: tuple[Prompt, ...]


class RunsChanged(msgspec.Struct, frozen=True):
    """The runs that are watched now."""

    specs: tuple[RunSpec, ...]


class DisksChanged(msgspec.Struct, frozen=True):
    """The usable share and the lag of each disk path that has one; see State.usable and State.lags."""

    usable: Mapping[str, float]
    lags: Mapping[str, Seconds] = {}


class ClustersChanged(msgspec.Struct, frozen=True):
    """What is known of some clusters as a whole; others stay."""

    clusters: tuple[Cluster, ...]


class JobsListed(msgspec.Struct, frozen=True):
    """One look at a cluster's queue: all watched jobs that it lists. `at` is our clock."""

    cluster: str
    at: Instant
    jobs: tuple[Job, ...]


class JobChanged(msgspec.Struct, frozen=True):
    """More is known of one job: its details, or from accounting how it ended."""

    job: Job


class SchedulerNodesListed(msgspec.Struct, frozen=True):
    """One look at a cluster's nodes."""

    cluster: str
    at: Instant
    nodes: tuple[SchedulerNode, ...]


class ActionChanged(msgspec.Struct, frozen=True):
    """An action was asked for, done, refused, or has failed."""

    record: Record


class LedgerTrouble(msgspec.Struct, frozen=True):
    """The ledger does not work, in a sentence; null when it does again."""

    words: str | None


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
    """The newest lines of a run's console log in W&B, as a reader of its file would tell them."""

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
    """Somebody else tells people of alerts from now on, or we do."""

    duty: Leadership


class AlertsReported(msgspec.Struct, frozen=True):
    """The alerts as the daemon on another machine sees them: shown here in place of our own."""

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
