"""What is in a checkpoint directory, as the layouts ask for it: markers, shards, pointers. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from posixpath import basename, join, normpath

import msgspec

from trainmon.lib import size
from trainmon.model import CheckpointEntry, FileGroup

SHARD = re.compile(
    r"(?!.*(rng|random|scheduler|sampler|loader|dataset|args)).*\.(distcp|safetensors|bin|pth?|ckpt|npz)"
)
"""The path of a file with weights or the state of an optimizer. The state of a data loader, for example, may shrink."""

RESAVED = 30.0
"""Seconds that a shard may be newer than its marker: on Lustre the times are those of different nodes' clocks."""


class FoundCheckpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that is a checkpoint. Times are the node's."""

    name: str
    layout: str
    step: int | None = None
    lacks: str = ""
    """What is missing, in words; empty if it is complete."""
    why: str = ""
    began: float | None = None
    newest: float = 0.0
    """When something in it was last written."""
    committed_at: float = 0.0
    """The time of its marker, else of its newest file."""
    bytes: int | None = None
    shards: int | None = None
    """How many files it has of those that its neighbours should have as many of."""
    is_cut_short: bool = False
    """Whether it would be complete, but a file has less than a tenth of its size in the save before."""
    is_unclear: bool = False
    """Whether it was not fully listed, so that it is unknown what is missing."""


class Contents:
    """What is in one entry."""

    def __init__(self, entry: CheckpointEntry) -> None:
        self.entry = entry
        self.by_pattern = {group.pattern: group for group in entry.groups}
        self.newest = max([group.newest for group in entry.groups] or [entry.mtime])

    def has(self, pattern: str) -> bool:
        return pattern in self.by_pattern

    def like(self, expression: str) -> list[FileGroup]:
        """The groups whose pattern has a part that matches."""
        return [group for group in self.entry.groups if re.search(expression, group.pattern)]

    def is_foreign(self, expression: str) -> bool:
        """Whether it has files, and none of them matches."""
        is_listed = not self.entry.cut and self.entry.error is None and self.entry.kind != "link"
        return bool(self.by_pattern) and is_listed and not self.like(expression)

    def count(self, expression: str) -> int:
        return sum(group.count for group in self.like(expression))

    def marker(self, pattern: str) -> str:
        """What is wrong with a marker file that is written last; empty if nothing."""
        group = self.by_pattern.get(pattern)
        if group is None:
            return f"no {pattern} yet"
        return "" if group.bytes else f"{pattern} is empty"

    def found(
        self, layout: str, step: int | None, lacks: str, *, marker: str | None = None, shards: int | None = None
    ) -> FoundCheckpoint:
        """The entry as a checkpoint of a layout. `marker`: the file whose mtime is the time of the commit."""
        entry = self.entry
        is_link = entry.kind == "link"
        committed = self.by_pattern.get(marker or "")
        short = "" if is_link or lacks else cut_short(self)
        return FoundCheckpoint(
            name=entry.name,
            layout=layout,
            step=step,
            lacks="" if is_link else lacks or short,
            is_cut_short=bool(short),
            why=f"a link to {entry.target}, not examined" if is_link else "",
            began=min(group.oldest for group in entry.groups) if self.count("") > 1 else None,
            newest=self.newest,
            committed_at=committed.newest if committed else self.newest,
            bytes=entry.bytes,
            shards=shards or None,
            is_unclear=bool(lacks) and not is_link and (entry.cut or entry.error is not None),
        )


class Folder:
    """The directory: what all entries are, by name."""

    def __init__(
        self, entries: Iterable[CheckpointEntry], t: float, steady: frozenset[str] = frozenset(), path: str = "/"
    ) -> None:
        self._path = normpath(path)
        self.contents = {entry.name: Contents(entry) for entry in entries}
        self.t = t
        """When it was listed, by the node's clock."""
        self.steady = steady
        """Files whose size was the same in an earlier listing."""

    def __contains__(self, name: object) -> bool:
        return name in self.contents

    def is_alias(self, link: CheckpointEntry) -> bool:
        """Whether a link is a second name for an entry, or leads to itself, this directory or one that contains it."""
        if link.target is None:
            return False
        name, path = basename(link.target.rstrip("/")), normpath(join(self._path, link.target))
        is_above = path in ("/", self._path) or self._path.startswith(f"{path}/")
        return is_above or path == join(self._path, link.name) or (name != link.name and name in self)

    def entry(self, name: str) -> CheckpointEntry | None:
        return self.contents[name].entry if name in self.contents else None

    def text(self, name: str) -> str | None:
        """The text of a pointer file."""
        entry = self.entry(name)
        return None if entry is None or entry.text is None else entry.text.strip()

    def holding(self, pattern: str) -> list[str]:
        """The entries that hold such a file."""
        return [name for name, contents in self.contents.items() if pattern in contents.by_pattern]


def number(expression: str, name: str) -> int | None:
    """The number in a name that matches completely; None for more than 15 digits, such as a hash."""
    match = re.fullmatch(expression, name, re.ASCII | re.DOTALL)
    return int(match.group(1)) if match and len(match.group(1)) <= 15 else None


def cut_short(contents: Contents) -> str:
    """A file of weights or of an optimizer's state that has less than a tenth of its size in the save before."""
    found = (one.shrunk for one in contents.entry.groups if one.shrunk and SHARD.fullmatch(one.pattern))
    return next((smaller(path, now, before) for path, now, before in found), "")


def smaller(name: str, now: int, before: int) -> str:
    """`__1_0.distcp is cut short: 40K, 2.1G in the save before`."""
    return f"{name} is cut short: {size(now)}, {size(before)} in the save before"


def short_of_shards(contents: Contents) -> str:
    """Weights in numbered files say how many there are: model-00001-of-00004.safetensors."""
    for group in contents.like(r"^[\w.-]*-#-of-#\.(safetensors|bin)$"):
        match = re.search(r"-of-(\d+)\.", group.example)
        if match and group.count < int(match.group(1)):
            return f"{group.count} of {int(match.group(1))} weight files"
    for group in contents.like(r"^[\w.-]+\.(safetensors|bin)\.index\.json$"):
        if not contents.like(rf"-#-of-#\.{group.pattern.split('.')[-3]}$"):
            return f"{group.pattern} is there, and none of its weight files"
    return ""


def short_of_dcp(contents: Contents) -> str:
    """PyTorch's distributed checkpoints: each folder with shards needs a .metadata that is newer than they are."""
    for shards in contents.like(r"(^|/)[^/]*\.distcp$"):
        folder = shards.pattern.rpartition("/")[0]
        name = f"{folder}/.metadata" if folder else ".metadata"
        metadata = contents.by_pattern.get(name)
        if metadata is None:
            return f"no {name} yet"
        if metadata.folders < shards.folders:
            return f"{metadata.folders} of {shards.folders} {name}"
        if contents.has(name + ".tmp") or shards.newest > metadata.newest + RESAVED:
            return f"{name} is older than its shards: the checkpoint is being overwritten"
    return ""
