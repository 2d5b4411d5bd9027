"""Files that identify what an attempt trains with, and what endangers it while it runs. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.ending import broken, lost_gpus, progressed_until
from trainmon.analysis.attempts.fold import merged
from trainmon.analysis.attempts.provenance import DIGITS, config_hash, settings_of
from trainmon.analysis.attempts.steps import lines_of
from trainmon.analysis.causes.classify import classify, stated
from trainmon.analysis.disks.capacity import is_on, lies_on, size_of
from trainmon.analysis.runs.loss import describe, wandb_trouble
from trainmon.lib import Instant, Seconds, clean, duration, scrub, size
from trainmon.model import (
    Attempt,
    AttemptFile,
    CauseFacts,
    Classification,
    Disk,
    FileContent,
    FileSpec,
    LogExcerpt,
    Outlook,
    Run,
    State,
)

# ---- files that identify what an attempt trains with -----------------------------------------------------------------

AT_ONCE = 64
"""Files that are requested at a time on one cluster. Those that cannot be read come last."""

AFTER_END: Seconds = 120.0
"""How long the files of an attempt that has ended are still read: it may have ended within seconds."""

SETTINGS_AT_MOST = 5_000
"""More are no settings of a person."""
LONGEST_LINE = 200

DECODERS = {
    ".json": msgspec.json.decode, ".toml": msgspec.toml.decode,
    ".yaml": msgspec.yaml.decode, ".yml": msgspec.yaml.decode,
}  # fmt: skip


def files_to_read(state: State) -> Mapping[str, tuple[FileSpec, ...]]:
    """By cluster: the files of its attempts that were not read since these began."""
    found: dict[str, list[tuple[bool, FileSpec]]] = {}
    for one in state.attempts.values():
        for spec in _wanted(one, state):
            known = one.files.get(spec.id.partition(" ")[0])
            if known is None or known.error is not None:
                found.setdefault(one.cluster, []).append((known is not None, spec))
    ordered = ((cluster, sorted(files, key=lambda one: (one[0], one[1].id))) for cluster, files in found.items())
    return {cluster: tuple(spec for _, spec in files[:AT_ONCE]) for cluster, files in ordered}


def _wanted(attempt: Attempt, state: State) -> Iterator[FileSpec]:
    """The files of an attempt. What an old one trained with may have changed; the end of its log stays."""
    end = attempt.end
    if end is None or state.at - end.at <= AFTER_END:
        yield from (FileSpec(f"{field} {attempt.attempt_id}", path) for field, path in _paths(attempt, state))
    if end is None or state.at - end.noticed_at <= AFTER_END:
        tail = receipts.tail_to_read(attempt, state)
        yield from () if tail is None else (tail,)


def _paths(attempt: Attempt, state: State) -> Iterator[tuple[str, str]]:
    """The fields of an attempt that name files, with their absolute paths."""
    manifest = attempt.named.get("data_manifest", {}).get("config", "")
    if manifest.startswith("/"):
        yield "data_manifest", manifest
    named = attempt.named.get("config_path", {})
    config = named.get("config") or named.get("command")
    if config is None:
        return
    job, run = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}"), state.runs.get(attempt.run_id)
    process = None if run is None else run.spec.process
    workdir = job.workdir if job is not None else process.workdir if process is not None else None
    if config.startswith(("/", "~")) or workdir is not None:
        yield "config_path", config if config.startswith("~") else posixpath.join(workdir or "/", config)


def with_file(known: Mapping[str, Attempt], content: FileContent, at: Instant, skew: Seconds) -> Mapping[str, Attempt]:
    """The attempts with what was read of a file of one of them. `skew` is how far the clock of its host is ahead."""
    field, _, name = content.id.partition(" ")
    attempt = known.get(name)
    if attempt is None:
        return known
    is_config = field == "config_path"
    named = attempt.named.get(field, {})
    line = "" if is_config else (content.text or "").strip()
    settings = settings_in(content.path or "", content.text or "") if is_config else None
    is_version = 0 < len(line) <= LONGEST_LINE and len(line.splitlines()) == 1
    file = AttemptFile(
        path=clean(content.path or named.get("config") or named.get("command") or ""),
        read_at=at,
        error=None if content.error is None else scrub(clean(content.error)),
        size=content.size,
        modified_at=None if content.mtime is None else content.mtime - skew,
        sha256=content.sha256,
        text=scrub(clean(line)) if is_version else None,
        settings_hash=None if settings is None else config_hash(settings),
        settings=None if settings is None else settings_of(settings),
    )
    return {**known, name: merged(attempt, replace(attempt, files={field: file}))}


def config_digest(path: str, sha256: str, text: str | None) -> str:
    """The hash of a config file as attempts have it: of its settings, else of all of it. `text`: null if it is long."""
    settings = settings_in(path, text or "")
    return (None if settings is None else config_hash(settings)) or sha256[:DIGITS]


def settings_in(path: str, text: str) -> Mapping[str, str] | None:
    """The settings in a YAML, JSON or TOML file; None if it is another file, or cannot be read."""
    decode: Any = DECODERS.get(posixpath.splitext(path)[1].lower())
    if decode is None:
        return None
    try:
        found = decode(text.encode())
        settings = tuple(islice(_settings(found), SETTINGS_AT_MOST + 1)) if isinstance(found, dict) else ()
    except (msgspec.MsgspecError, ImportError, RecursionError, ValueError):
        return None
    return dict(settings) if 0 < len(settings) <= SETTINGS_AT_MOST else None


def _settings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The settings by their names; nested names are joined by dots. An empty list counts: many of them, nested, must
    not take forever."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _settings(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and value:
        for index, one in enumerate(value):
            yield from _settings(one, f"{name}.{index}")
    else:
        yield name, repr(value)


# ---- what endangers an attempt that still runs, and what its cause would be if it ended now --------------------------

LOOK_EVERY: Seconds = 10.0
"""Nodes and disks are searched this often: a run may have a thousand of each."""

SOON: Seconds = 3_600.0
"""A disk that is full within this time endangers the next checkpoint."""

LIVING = frozenset({
    "healthy", "starting", "evaluating", "saving", "stalled", "hung", "data-stall", "diverged",
})  # fmt: skip
"""Verdicts of a run whose present state is known."""

STUCK = frozenset({"stalled", "hung", "data-stall"})


def with_outlook(seen: Attempt, before: Attempt | None, run: Run | None, state: State) -> Attempt:
    """The running attempt as it is seen now, with its outlook."""
    if run is None or run.verdict not in LIVING:
        return seen if before is None or before.outlook is None else replace(seen, outlook_at=state.at)
    is_recent = before is not None and state.at // LOOK_EVERY == before.outlook_at // LOOK_EVERY
    if before is not None and is_recent:
        return replace(seen, outlook=before.outlook, outlook_at=before.outlook_at)
    return replace(seen, outlook=outlook(seen, run, state), outlook_at=state.at)


def outlook(attempt: Attempt, run: Run, state: State) -> Outlook:
    """The first danger: a broken node, then what the run itself shows, then its disks."""
    return next(_dangers(attempt, run, state), Outlook())


def _dangers(attempt: Attempt, run: Run, state: State) -> Iterator[Outlook]:
    if run.kill is not None and run.kill.exists:
        yield Outlook(what="its kill switch is armed", cause=stated("kill-switch", "its kill switch is armed"))
    job = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}")
    if job is not None and job.preempted_at is not None:
        yield Outlook(what="is being preempted", cause=stated("preempted", f"Slurm is preempting job {job.id}"))
    for name in attempt.nodes:
        if what := _broken(name, max(attempt.started_at or 0.0, progressed_until(attempt, run, state.at)), state):
            yield Outlook(what=what, cause=stated("gpu-hardware", what))
        node = state.scheduler_nodes.get(name)
        if node is not None and node.state == "DOWN":
            yield Outlook(what=f"{name} is down", cause=stated("node-fail", f"{name}: Slurm says it is DOWN"))
    if run.verdict in STUCK:
        yield Outlook(what="hangs", since=run.progress.at, cause=_of_silence(run))
    elif run.verdict == "diverged":
        yield Outlook(what="its loss has diverged", cause=stated("diverged", run.why))
    elif (trouble := wandb_trouble(run)) is not None and trouble.state == "spike":
        yield Outlook(what="its loss has jumped", cause=stated("diverged", describe(trouble)))
    yield from _full_disks(run, state)
    if run.queued_behind:
        return  # the next job of its chain goes on
    if job is not None and job.ends_at is not None and run.eta_at is not None and job.ends_at < run.eta_at:
        early = f"job {job.id} ends {duration(run.eta_at - job.ends_at)} before the target step is reached at this pace"
        yield Outlook(what="its job ends before its target step", cause=stated("time-limit", early))


def _broken(name: str, since: Instant, state: State) -> str:
    """What is wrong with a GPU of a node, with its node."""
    history, node = state.node_histories.get(name), state.nodes.get(name)
    faults = () if history is None else history.faults
    xids = {one.code for one in broken(faults) if one.last_at >= since}
    if xids:
        return f"{name} reports Xid {', '.join(map(str, sorted(xids)))}"
    lost = lost_gpus(node, since)
    return f"{name} has lost {lost} {'GPU' if lost == 1 else 'GPUs'}" if lost else ""


def _of_silence(run: Run) -> Classification:
    """The cause that the log of a silent run states, if it states one."""
    text = "\n".join(lines_of(run.log, None if run.log is None else run.log.path, is_newest=True))
    found = classify(CauseFacts(log=(LogExcerpt(text=text, first_line=-(text.count("\n") + 1)),)))
    is_error = found.confidence == "high" and found.family not in ("none", "unknown")
    return found if is_error else stated("hang", run.why)


def _full_disks(run: Run, state: State) -> Iterator[Outlook]:
    """The disk of its checkpoints, if the next one that is saved there may not fit."""
    saved, soon = run.checkpoints, state.at + SOON
    if saved is None:
        return
    places = [one.checkpoints for one in state.runs.values() if one.checkpoints is not None]
    needed: dict[str, int] = {}
    for disk in state.disks.values():
        where = disk.mount or disk.path
        if not lies_on(saved.path, where) and not lies_on(saved.path, disk.path):
            continue
        if where not in needed:
            needed[where] = max((size_of(one) or 1 for one in places if lies_on(one.path, where)), default=1)
        is_full = (disk.left_bytes is not None and disk.left_bytes < needed[where]) or (disk.full_at or soon) < soon
        has_no_inodes = disk.left_inodes == 0 or (disk.inodes_full_at or soon) < soon
        if (is_full or has_no_inodes) and is_on(disk, saved.path, saved.host, state.disks):
            what = f"{where} is almost full" if is_full else f"{where} has hardly any inodes left"
            yield Outlook(what=what, cause=stated("disk-full" if is_full else "inodes-full", _left(disk)))


def _left(disk: Disk) -> str:
    inodes = "" if disk.left_inodes is None else f" and {disk.left_inodes:,} inodes"
    return f"{disk.mount or disk.path}: {size(disk.left_bytes or 0)}{inodes} left"
