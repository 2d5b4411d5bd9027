"""The State: everything known now, as one immutable value. `None` means "not known", never 0."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.action import Record
from trainmon.model.alert import Alert, Silence
from trainmon.model.disk import Disk, Quota
from trainmon.model.job import Cluster, Job, SchedulerNode
from trainmon.model.node import Node, NodeHistory, Prompt, Source
from trainmon.model.notification import Channel, Leadership
from trainmon.model.run import Run


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known now. Owned by the engine; passed around by reference."""

    at: Instant = 0.0
    started_at: Instant = 0.0
    demo: bool = False
    read_only: bool = False
    sources: Mapping[str, Source] = {}
    nodes: Mapping[str, Node] = {}
    """By name. Two clusters may not share a node name."""
    node_histories: Mapping[str, NodeHistory] = {}
    """By node name."""
    disks: Mapping[str, Disk] = {}
    """By Disk.key."""
    handed_back: Mapping[str, Instant] = {}
    """By Disk.key: when a stand-in host stopped reading the disk."""
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
    scheduler_nodes: Mapping[str, SchedulerNode] = {}
    """By name: the scheduler's nodes, watched or not."""
    actions: Mapping[str, Record] = {}
    """By action id, oldest first: open actions, and those of the last hour."""
    ledger: str | None = None
    """The current error of the ledger, in a sentence."""
    alerts: Mapping[str, Alert] = {}
    """By id: open alerts, and those that ended within a day."""
    silences: Mapping[str, Silence] = {}
    """By id: active and future silences."""
    channels: Mapping[str, Channel] = {}
    """By name."""
    duty: Leadership = Leadership()
    """Who sends notifications."""
    looked_at: Instant | None = None
    """When the rules were last evaluated."""
    woke_at: Instant | None = None
    """When this program last noticed a sleep or a clock jump. Ages from before that time are not trusted."""
    woke_why: str | None = None
    """What happened then, in a sentence."""


class Series(msgspec.Struct, frozen=True):
    """A piece of history: when, in seconds from now (an hour ago is -3600; ascending to 0), and a value or nan."""

    offsets: tuple[float, ...]
    values: tuple[float, ...]
