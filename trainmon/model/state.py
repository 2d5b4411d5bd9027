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
    """By the name of the node: what is remembered of it."""
    disks: Mapping[str, Disk] = {}
    """By Disk.key."""
    handed_back: Mapping[str, Instant] = {}
    """By Disk.key, when a host that had looked at it in the place of another no longer did."""
    runs: Mapping[str, Run] = {}
    usable: Mapping[str, float] = {}
    """Of the disks whose path is a key, the share that may be used (0 to 1): there, that is the new 100 %."""
    lags: Mapping[str, Seconds] = {}
    """Of the disks whose path is a key, how old their statistics may be."""
    quotas: Mapping[str, Quota] = {}
    """By `host:path`, or by `cluster:path` where all hosts of a cluster share it."""
    prompts: tuple[Prompt, ...] = ()
    clusters: Mapping[str, Cluster] = {}
    jobs: Mapping[str, Job] = {}
    """By Job.key. One that the queue no longer lists stays for a day, with `gone_at`."""
    scheduler_nodes: Mapping[str, SchedulerNode] = {}
    """By name: what the scheduler says of the nodes, watched or not."""
    actions: Mapping[str, Record] = {}
    """By the action's id, oldest first: those that are watched, and those of the last hour."""
    ledger: str | None = None
    """What is wrong with the ledger, in a sentence."""
    alerts: Mapping[str, Alert] = {}
    """By id: those that are open, and those that ended within a day."""
    silences: Mapping[str, Silence] = {}
    """By id, those that have not ended."""
    channels: Mapping[str, Channel] = {}
    """By name."""
    duty: Leadership = Leadership()
    """Who tells people."""
    looked_at: Instant | None = None
    """When the rules were last gone through."""
    woke_at: Instant | None = None
    """When this program last found that it had slept, or that the clock had jumped: no age from before is believed."""
    woke_why: str | None = None
    """What that was, in a sentence."""


class Series(msgspec.Struct, frozen=True):
    """A piece of history: when, in seconds from now (an hour ago is -3600; ascending to 0), and a value or nan."""

    offsets: tuple[float, ...]
    values: tuple[float, ...]
