"""What must be read on a host before a plan or an action, and what was read there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from trainmon.lib import Instant
from trainmon.model import Job, Record, SchedulerNode

LEDGER = "the ledger"
"""Its key in Readback.errors."""


class FileStat(msgspec.Struct, frozen=True, kw_only=True):
    """A switch file as it was just read. `exists` is null if that is not known; `error` is the reason."""

    path: str
    exists: bool | None = None
    mark: str = ""
    """Its inode, size, modification time and owner, as the host printed them: its identity."""
    armed_at: Instant | None = None
    """Its modification time, by the host's clock."""
    by: str | None = None
    text: str = ""
    """Its first line."""
    content: tuple[str, ...] = ()
    """The lines of its first 500 bytes."""
    error: str | None = None


class Readback(msgspec.Struct, frozen=True, kw_only=True):
    """What was read just now, for one plan or for the check before one action."""

    at: Instant = 0.0
    jobs: Mapping[str, Job] = {}
    """By key."""
    nodes: Mapping[str, SchedulerNode] = {}
    """By name."""
    gone: frozenset[str] = frozenset()
    """Keys of jobs, and `CLUSTER/NODE` of nodes, that the scheduler does not know."""
    steps: Mapping[str, tuple[str, ...]] = {}
    """The running steps of a job, by its key."""
    scripts: Mapping[str, str] = {}
    """The batch script of a job, by its key."""
    switches: Mapping[str, FileStat] = {}
    """By `HOST:PATH`."""
    evaluations: Mapping[str, Record] = {}
    """By action id: the starts of evaluators of the requested runs that the ledger holds."""
    configs: Mapping[str, str] = {}
    """By `HOST:PATH`: the hashes of config files, as attempts have them."""
    errors: Mapping[str, str] = {}
    """Why something could not be read. Keys: a job's key, `JOB script`, `HOST:PATH`, `CLUSTER/NODE`, a cluster for
    its queue, or LEDGER."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What must be read on one host before a plan or an action."""

    host: str
    cluster: str
    users: tuple[str, ...] | None = None
    """Whose queue is read. Empty: our own. None: no queue."""
    jobs: tuple[tuple[str, str], ...] = ()
    """Keys of jobs, and the number that scontrol is given for each."""
    steps: tuple[tuple[str, str], ...] = ()
    """The same for jobs whose steps are needed."""
    scripts: tuple[tuple[str, str], ...] = ()
    """The same for jobs whose batch script is needed."""
    switches: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """Nodes whose state in the scheduler is needed."""
    configs: tuple[str, ...] = ()
    """Config files whose content must be compared."""
