"""Assigns paths to hosts: from the settings and the hosts that are up to one Spec for each host. Pure.

Shared files are read once, on the login host. When it is down, the first node that is up stands in for it, but not
while the login host connects for the first time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from trainmon.analysis.checkpoints import eval_logs
from trainmon.analysis.disks import directories_of
from trainmon.analysis.log_mentions import MENTIONS
from trainmon.analysis.wandb import client_file
from trainmon.lib import Seconds
from trainmon.model import (
    ON_NODE,
    AnyReading,
    CheckpointListing,
    DiskSample,
    DiskSamples,
    FileContent,
    FileSpec,
    LogChunk,
    LogSpec,
    Receipts,
    RunSpec,
    Spec,
    SwitchSamples,
    WandbRows,
)

WILDCARD = re.compile(r"(\*|\?|\[[^]]+\])")
"""A part of a glob that stands for other characters."""

NAMED = {LogChunk: "logs", FileContent: "files", WandbRows: "wandb"}
"""Readings that have the id of what was requested, and the field of the Spec that requests it."""

FOLLOWED_EVERY: Seconds = 2.0
"""A period while an action is followed."""


class WatchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be read on one cluster."""

    cluster: str
    hosts: tuple[str, ...]
    """All hosts, the first choice for shared files first."""
    nodes: frozenset[str]
    """The hosts that are nodes; a login host may not be one."""
    period: Seconds = 2.0
    runs: tuple[RunSpec, ...] = ()
    shared_disks: tuple[str, ...] = ()
    node_disks: tuple[str, ...] = ()
    run_disks: tuple[str, ...] = ()
    keep: str = ""
    own_processes: bool = False
    """Whether our own processes on the GPUs of the first host are runs."""
    candidates: tuple[str, ...] = ()
    """Directories that logs name. They are listed to see whether they hold checkpoints."""
    files: tuple[FileSpec | LogSpec, ...] = ()
    """Files and logs of attempts that are still to be read, and the status files of trainers."""
    receipts: tuple[str, ...] = ()
    """Directories of receipts of trainmon-run; empty text: where it keeps them without a setting."""

    @property
    def implied_disks(self) -> tuple[str, ...]:
        """The directories of the runs' own paths: their disks are named by their mounts."""
        return tuple(dict.fromkeys(path for run in self.runs for path in directories_of(run)))


def assign(
    plans: Iterable[WatchPlan], up: Collection[str], awaited: Collection[str] = ()
) -> tuple[dict[str, Spec], dict[str, Spec]]:
    """What each host reads, and which part of it only as a stand-in for the first host of a plan. `up` are the hosts
    that can read files now; `awaited`, those whose first connection is still being established."""
    specs: dict[str, Spec] = {}
    stand_in: dict[str, Spec] = {}
    for plan in plans:
        first = plan.hosts[0] if plan.hosts else None
        reader = first if first in awaited else next((host for host in plan.hosts if host in up), first)
        training = _training(plan)
        for host in plan.hosts:
            spec = _own(plan, host, training)
            if host == reader:
                shared = _shared(plan)
                if host != first:
                    new_disks = tuple(path for path in shared.disks if path not in spec.disks)
                    _add(stand_in, host, replace(shared, disks=new_disks))
                spec = merge(replace(spec, logs=()), shared)
            _add(specs, host, spec)
    return specs, stand_in


def _add(specs: dict[str, Spec], host: str, spec: Spec) -> None:
    """Two clusters may share a host."""
    specs[host] = merge(specs[host], spec) if host in specs else spec


def disks_of_nodes(plan: WatchPlan) -> Mapping[str, tuple[str, ...]]:
    """The paths whose disks each host reads for itself."""
    training = _training(plan)
    return {host: _own_disks(plan, host, training) for host in plan.hosts}


def requested_parts(reading: AnyReading, spec: Spec, stand_in: Spec) -> Iterator[tuple[AnyReading, bool]]:
    """The parts of a reading that its host should read, each with whether the host is a stand-in for them. A probe may
    still report parts of an earlier Spec."""
    match reading:
        case DiskSamples(d=disks):
            for is_stand_in in (False, True):
                own = tuple(d for d in disks if d.path in spec.disks and (d.path in stand_in.disks) is is_stand_in)
                if own:
                    yield replace(reading, d=own), is_stand_in
        case SwitchSamples(s=switches):
            for is_stand_in in (False, True):
                own_switches = tuple(
                    s for s in switches if s.path in spec.switches and (s.path in stand_in.switches) is is_stand_in
                )
                if own_switches:
                    yield replace(reading, s=own_switches), is_stand_in
        case LogChunk(id=name) | FileContent(id=name) | WandbRows(id=name):
            own_ids, ids = ({one.id for one in getattr(each, NAMED[type(reading)])} for each in (spec, stand_in))
            if name in own_ids:
                yield reading, name in ids
        case CheckpointListing(path=path):
            if path in spec.checkpoints:
                yield reading, path in stand_in.checkpoints
        case Receipts(directory=directory):
            if directory in spec.receipts:
                yield reading, False
        case _:
            yield reading, False


def merge(one: Spec, other: Spec) -> Spec:
    """Both specs: two clusters may share the host that reads their files."""
    return Spec(
        period=min(one.period, other.period),
        slow=min(one.slow, other.slow),
        disks=tuple(dict.fromkeys((*one.disks, *other.disks))),
        logs=(*one.logs, *other.logs),
        switches=tuple(dict.fromkeys((*one.switches, *other.switches))),
        checkpoints=tuple(dict.fromkeys((*one.checkpoints, *other.checkpoints))),
        keep=one.keep or other.keep,
        mentions=one.mentions or other.mentions,
        own=one.own or other.own,
        ranks=one.ranks or other.ranks,
        files=(*one.files, *other.files),
        receipts=tuple(dict.fromkeys((*one.receipts, *other.receipts))),
        every_receipt=one.every_receipt or other.every_receipt,
        wandb=(*one.wandb, *other.wandb),
    )


def with_followed(spec: Spec, directories: Collection[str]) -> Spec:
    """The Spec of a host while actions wait for checkpoints in these directories: those that it reads are listed, and
    the switch files are read, at least every 2 s."""
    followed = tuple(path for path in spec.checkpoints if path in directories)
    return replace(spec, followed=followed, period=min(spec.period, FOLLOWED_EVERY)) if followed else spec


def _training(plan: WatchPlan) -> Collection[str]:
    """The nodes of the runs; all nodes while no run has one."""
    return {node for run in plan.runs for node in run.nodes} or plan.nodes


def _own(plan: WatchPlan, host: str, training: Collection[str]) -> Spec:
    """What a host reads for itself: of the logs, those of its runs that no other host sees. Any node of a run may write
    its log."""
    names = {run.name for run in plan.runs if host in run.nodes}
    logs = tuple(
        replace(log, id=ON_NODE + log.id, optional=True, local=True) for log in _logs(plan.runs) if log.id in names
    )
    return Spec(
        period=plan.period,
        disks=_own_disks(plan, host, training),
        logs=logs,
        keep=plan.keep if logs else "",
        mentions=MENTIONS if logs else (),
        ranks=bool(names),
        receipts=plan.receipts,
    )


def _logs(runs: Sequence[RunSpec]) -> Iterator[LogSpec]:
    """The log of each run, without the files that belong to another one."""
    others = rivals(runs)
    for run in runs:
        if _has_log_file(run):
            without = "|".join(_expression(one.log or "") for one in others.get(run.name, ()))
            yield LogSpec(id=run.name, pattern=run.log or "", without=without)


def rivals(runs: Iterable[RunSpec]) -> Mapping[str, Sequence[RunSpec]]:
    """By the name of a run whose log is a glob: the runs that own some of the files that it matches. A file belongs to
    the longest of such patterns, and of equal ones to the first."""
    known = sorted(filter(_has_log_file, runs), key=lambda run: -len(WILDCARD.sub("", run.log or "")))
    found = {
        run.name: [one for one in known[:index] if _overlap(run.log or "", one.log or "")]
        for index, run in enumerate(known)
        if WILDCARD.search(run.log or "")
    }
    return {name: others for name, others in found.items() if others}


def _has_log_file(run: RunSpec) -> bool:
    return run.log is not None and run.log.startswith("/")


def _expression(pattern: str) -> str:
    """The regular expression of a glob, as every Python reads it."""
    texts, parts = {"*": "[^/]*", "?": "[^/]"}, enumerate(WILDCARD.split(pattern))
    found = (texts.get(part, part.replace("[!", "[^", 1)) if at % 2 else re.escape(part) for at, part in parts)
    return "".join(found) + r"\Z"


def _overlap(one: str, other: str) -> bool:
    """Whether a file may match both patterns: each part of their paths may begin and end alike."""
    parts = one.split("/"), other.split("/")
    return len(parts[0]) == len(parts[1]) and all(
        _may_begin_alike(a, b) and _may_begin_alike(a[::-1], b[::-1]) for a, b in zip(*parts, strict=True)
    )


def _may_begin_alike(one: str, other: str) -> bool:
    """Whether a name may match both: as far as their texts before the first wildcard say."""
    short, long = sorted((re.split(r"[*?[\]]", text)[0] for text in (one, other)), key=len)
    return long.startswith(short) and (short == long or short not in (one, other))


def _own_disks(plan: WatchPlan, host: str, training: Collection[str]) -> tuple[str, ...]:
    on_nodes = plan.node_disks if host in plan.nodes else ()
    on_runs = plan.run_disks if host in training else ()
    return tuple(dict.fromkeys((*on_nodes, *on_runs)))


def _shared(plan: WatchPlan) -> Spec:
    """What one host reads for all."""
    runs = plan.runs
    return Spec(
        period=plan.period,
        disks=tuple(dict.fromkeys((*plan.shared_disks, *plan.implied_disks))),
        logs=(
            *_logs(runs),
            *(log for run in runs for log in eval_logs(run)),
            *(file for file in plan.files if isinstance(file, LogSpec)),
        ),
        switches=_unique(path for run in runs for path in (run.kill_switch, run.save_switch)),
        checkpoints=_unique((*(run.checkpoints for run in runs), *plan.candidates)),
        keep=plan.keep,
        mentions=MENTIONS,
        own=plan.own_processes,
        files=tuple(file for file in plan.files if isinstance(file, FileSpec)),
        receipts=plan.receipts,
        every_receipt=bool(plan.receipts),
        wandb=tuple(
            client_file.directory_of(
                run.name, run.wandb_dir or "", run.charts, () if run.wandb_dir else run.metrics_found, run.metrics_since
            )
            for run in runs
            if run.wandb_dir or run.metrics_found
        ),
    )


def _unique(paths: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(path for path in paths if path is not None))


def by_mount(reading: DiskSamples, implied: frozenset[str], spec: Spec | None) -> DiskSamples:
    """Name the disks under the runs' own paths by their mounts; leave out those that are watched by name."""
    named = {path for path in (spec.disks if spec is not None else ()) if path not in implied}
    samples: dict[str, msgspec.Struct] = {}
    for sample in reading.d:
        name = _name_of(sample, implied)
        if sample.path not in implied or sample.mount is None:
            samples[name] = sample
        elif name not in named:
            samples.setdefault(name, replace(sample, path=name))
    return replace(reading, d=tuple(samples.values()))


def _name_of(sample: DiskSample, implied: frozenset[str]) -> str:
    """A disk's name: its mount, if only a run's own path names it."""
    return sample.mount if sample.path in implied and sample.mount is not None else sample.path


class Assigned:
    """The Spec of one host. The lock of its NodeCollector is held in every call."""

    def __init__(self) -> None:
        self.spec: Spec | None = None
        """None before the first one."""
        self._implied: frozenset[str] = frozenset()
        self._stand_in = Spec()
        self._disks: dict[str, str] = {}
        """By path: the names of the disks that it has read as a stand-in."""
        self._unnamed: set[str] = set()
        """Directories of runs whose mount is not known, as they do not exist yet or cannot be read."""

    def stand_in_for(self, stand_in: Spec, implied: frozenset[str]) -> tuple[str, ...]:
        """Read this part for another host from now on. Returns the names of the disks that it no longer reads so."""
        self._implied, self._stand_in = implied, stand_in
        before = self._disks
        self._disks = {path: name for path, name in before.items() if path in stand_in.disks}
        return tuple(sorted(set(before.values()) - set(self._disks.values())))

    def parts(self, reading: AnyReading) -> Iterator[tuple[AnyReading, bool]]:
        """The parts of a reading that it should read, each with whether it is a stand-in for them. Disks of directories
        that are only implied have the name of their mount."""
        spec, implied = self.spec or Spec(), self._implied
        for part, is_stand_in in requested_parts(reading, spec, self._stand_in):
            if isinstance(part, DiskSamples) and is_stand_in:
                self._disks |= {disk.path: _name_of(disk, implied) for disk in part.d}
            yield by_mount(part, implied, spec) if isinstance(part, DiskSamples) and implied else part, is_stand_in

    def renamed(self, reading: AnyReading) -> tuple[str, ...]:
        """The directories in a reading that have the name of their mount from now on: each one once."""
        if not isinstance(reading, DiskSamples):
            return ()
        found = {disk.path: disk.mount is not None for disk in reading.d if disk.path in self._implied}
        self._unnamed |= {path for path, is_known in found.items() if not is_known}
        renamed = tuple(path for path, is_known in found.items() if is_known and path in self._unnamed)
        self._unnamed.difference_update(renamed)
        return renamed
