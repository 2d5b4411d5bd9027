"""The layouts of checkpoints, the names of their directories, and what is in these. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from posixpath import basename, join, normpath

import msgspec
from msgspec.structs import replace

from trainmon.lib import Instant, ago, clean, counted, size
from trainmon.model import CheckpointEntry, Checkpoints, FileGroup, Run

# ---- what is in a checkpoint directory, as the layouts ask for it ----------------------------------------------------

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


# ---- what the numbers in the names of checkpoints count, and which steps no checkpoint has ---------------------------

FASTER = 0.25
"""Names of checkpoints count steps if the steps of an interval take at least this share of its time. A run may have
become faster since, and lines of a log come as often as steps, or more seldom."""


def names_count_steps(run: Run, known: Checkpoints) -> bool | None:
    """Whether the numbers in the names of checkpoints are steps. Some are epochs. None if that is not known yet."""
    every_steps, every_s, cadence_s = known.every_steps, known.every_s, run.progress.cadence_s
    if not every_steps or not every_s or not cadence_s:
        return None
    return every_steps * cadence_s >= FASTER * every_s


def steps_at_risk(run: Run) -> int | None:
    """How many steps of a run a crash would lose now: none once it has finished. None if that is not known, or if the
    names of its checkpoints count epochs."""
    found = run.checkpoints
    if found is None:
        return None
    if run.verdict == "finished":
        return 0
    return None if names_count_steps(run, found) is False else found.at_risk(run.progress.step)


def since(found: Checkpoints, last: str = "") -> str:
    """From where the steps at risk are counted: `since`, or `since step 150 (a restart resumes there)` if that is not
    the last checkpoint. `last`: what the sentence calls that one."""
    older = None if found.next_start == found.committed else found.next_start
    return f"since {last}".rstrip() if older is None else f"since {older.title} (a restart resumes there)"


def last_checkpoint(run: Run, found: Checkpoints, now: Instant) -> str:
    """`step 12,000, 14m ago; 880 steps since`, or why that is not known."""
    last, risk = found.committed, steps_at_risk(run)
    if found.error is not None:
        return f"not known: {clean(found.error, 120)}"
    if found.unrecognised is not None:
        return f"not known: the format of {found.unrecognised.title} is not recognised"
    if last is None:
        return "none is committed"
    age = "of unknown age" if last.at is None else f"{ago(now - last.at)} ago"
    return f"{last.title}, {age}" + (f"; {counted(risk, 'step')} {since(found)}" if risk else "")


# ---- which trainer made a checkpoint, at which step, and what it lacks to be whole -----------------------------------

STEADY = 120.0
"""Seconds without a write after which a file without any marker is taken as whole."""

TEMPORARY = "still under its temporary name"
TEMPORARY_MARK = re.compile(
    r"^\.?_*(te?mp|partial|incomplete)[._-]+(?!\d*\.\d)|^\.(?=[\w-]*\d)"
    r"|[._-]+tmp[._-]?[\w-]*(\.\w+)?$|[._-]+(temp|partial|incomplete|writing|in[._-]?progress)$|~$",
    re.IGNORECASE,
)
"""What a trainer adds to the name of a checkpoint until it is complete: step_200.tmp, tmp-step_200, .step_200."""
UNFINISHED = "-unfinished"
GROWING = "it may still grow"
NANOGPT = "ckpt.pt"
TRACKER = "latest_checkpointed_iteration.txt"
LAST_NUMBER = r".*?(\d+)"

MEGATRON = r"^(metadata\.json|\.metadata.*|common\.pt|mp_rank_.*)$|\.distcp$"
HF_WEIGHTS = r"^((pytorch_)?model|adapter_model)[\w.-]*\.(safetensors|bin)$"
HF = (
    rf"{HF_WEIGHTS}|^(trainer_state|(\w+_)?config|(added_|special_)?tokens?\w*|vocab|model\S*index)\.json$"
    r"|^(training_args\.bin|(optimizer|scheduler|scaler)\.pt|rng_state\S*\.pth|latest|README\.md)$|^global_step#/|\.distcp$"
)
DCP = r"\.distcp$|(^|/)\.metadata|-#-of-#\.(safetensors|bin)$|\.index\.json$"
"""Files that a trainer writes. A directory that has its name and none of its files is of another program."""
ACCELERATE = r"(^|/)random_states_#\.pkl$"
"""Written by accelerate, whose directories may have the names of HF Trainer's."""
NOT_RECOGNISED = "its format is not recognised"
UNKNOWN = "unknown"
"""The layout of a checkpoint whose format is not recognised."""
STEP_NAME = r"(?i:(?:.*[^a-z])?(?:step|iter|iteration|checkpoint|ckpt)[-_=]?)?(\d+)(?:\D.*)?"
BARE_NAME = re.compile(r"(?i:(global_?)?(step|iter|iteration|checkpoint|ckpt|epoch)[-_=]?\d+)")
WEIGHTS = re.compile(r"[^/]*\.(safetensors|bin|pth?|ckpt|npz|pkl|h5|msgpack|gguf|tar)")


def is_past(step: int | None, newest: float, pointed: int | None, moved: float) -> bool:
    """Whether a pointer has gone past a checkpoint: to a later step, or later in time after a rollback."""
    return (step is not None and pointed is not None and step < pointed) or newest <= moved


def megatron(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """iter_0000500: metadata.json ends a distributed save, the tracker moves after a save of the old kind."""
    step = number(r"iter_(\d+)", contents.entry.name)
    if (step is None and contents.entry.name != "release") or contents.is_foreign(MEGATRON):
        return None
    if contents.like(r"^(metadata\.json|\.metadata|common\.pt|[^/]*\.distcp)$"):
        lacks = contents.marker("metadata.json") or short_of_dcp(contents)
        return contents.found("megatron", step, lacks, marker="metadata.json")
    tracker, content = folder.entry(TRACKER), folder.text(TRACKER)
    shards = contents.count(r"^mp_rank_[#_]+/model_optim_rng\.pt$")
    lacks = "" if shards else "no model_optim_rng.pt yet"
    if tracker is None or content is None:
        lacks = lacks or f"no {TRACKER} yet"
    elif not content:  # it is truncated after the shards have been written
        lacks = lacks or (f"{TRACKER} is empty" if contents.newest > tracker.mtime + RESAVED else "")
    elif content != "release" if step is None else not (content.isdecimal() and int(content) >= step):
        lacks = lacks or f"{TRACKER} names {content}"
    return contents.found("megatron", step, lacks, shards=shards)


def hf(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """checkpoint-500: trainer_state.json is written last; staged under tmp-checkpoint-* by some versions. Under another
    name, weights and trainer_state.json show it."""
    name = contents.entry.name
    if name.removeprefix(".").startswith("tmp-checkpoint-"):
        return contents.found("hf", number(r"\.?tmp-checkpoint-(\d+)", name), TEMPORARY)
    step = number(r"checkpoint-(\d+)", name)
    if step is None and contents.has("trainer_state.json") and contents.like(HF_WEIGHTS):
        step = number(LAST_NUMBER, name)
    elif contents.is_foreign(HF) or contents.like(ACCELERATE):
        return None
    if step is None:
        return None
    lacks = contents.marker("trainer_state.json") or short_of_shards(contents) or short_of_dcp(contents)
    engine = contents.count(r"^global_step#/.*optim_states\.pt$")
    if engine and not contents.has("latest"):
        lacks = lacks or "no latest yet, which DeepSpeed writes last"
    return contents.found("hf", step, lacks, marker="trainer_state.json", shards=engine)


def idefics(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """opt_step-500: finished-saving is touched after the barrier."""
    step = number(r"opt_step-(\d+)", contents.entry.name)
    if step is None:
        return None
    marker = "finished-saving"
    return contents.found("idefics", step, "" if contents.has(marker) else f"no {marker} yet", marker=marker)


def nemo(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """NAME--val_loss=2.10-step=500-consumed_samples=…: a marker beside it says that it is not finished."""
    name = contents.entry.name
    base = name.removesuffix(UNFINISHED).removesuffix(".ckpt").removesuffix("-EMA")
    is_marked = base + UNFINISHED in folder
    is_named = re.search(r"--.*(step|consumed_samples)=", base) is not None
    if not (is_named or is_marked or (contents.like("^weights/") and contents.like("^context/"))):
        return None
    if name.endswith(UNFINISHED) and any(base + end in folder for end in ("", ".ckpt", "-EMA", "-EMA.ckpt")):
        return None
    lacks = f"its {UNFINISHED} marker is there" if is_marked else short_of_dcp(contents)
    return contents.found("nemo", number(r"(?:.*[^a-z])?step=(\d+).*", base), lacks)


def lightning(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """epoch=1-step=500.ckpt: a file that no longer grows, or a directory of shards."""
    entry = contents.entry
    if not entry.name.endswith(".ckpt"):
        return None
    step = number(r"(?:.*[^a-z])?step[=_-]?(\d+).*", entry.name)
    if entry.kind == "dir":
        lacks = short_of_dcp(contents) or ("" if entry.groups else "it is empty")
        if contents.like(r"\.distcp$"):
            lacks = lacks or contents.marker("meta.pt")
        elif contents.like(r"(model|optim)_states\.pt$") and not contents.has("latest"):
            lacks = lacks or "no latest yet, which DeepSpeed writes last"
        return contents.found("lightning", step, lacks, shards=contents.count(r"optim_states\.pt$"))
    return contents.found("lightning", step, growing(contents, folder))


def growing(contents: Contents, folder: Folder) -> str:
    """What a single file lacks that has no marker: it is whole when it no longer grows."""
    entry = contents.entry
    is_steady = entry.name in folder.steady or folder.t - entry.mtime > STEADY
    return "it is empty" if not entry.bytes else "" if is_steady else GROWING


def nanogpt(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """ckpt.pt: one file, written again at each save. Only the file itself knows its step."""
    if contents.entry.name != NANOGPT:
        return None
    return contents.found("nanogpt", None, growing(contents, folder))


def kempnerforge(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """step_500: .metadata, also of every pipeline stage, and train_state.pt; `latest` is a link, and may come later."""
    step = number(r"step_(\d+)", contents.entry.name)
    latest = folder.entry("latest")
    if step is None or not ((latest and latest.kind == "link") or folder.holding("train_state.pt")):
        return None
    without_step = "" if contents.has("train_state.pt") else "no train_state.pt: a restart would begin at step 0"
    without_metadata = "" if contents.like(r"(^|/)\.metadata$") else "no .metadata yet"
    lacks = short_of_dcp(contents) or without_metadata or without_step
    one = contents.found("kempnerforge", step, lacks)
    markers = contents.like(r"^((pp#/)?\.metadata|metadata\.json|train_state\.pt)$")
    return replace(one, committed_at=max(group.newest for group in markers)) if markers else one


def deepspeed(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """global_step500, or any tag: `latest` is written last, by rank 0."""
    name = contents.entry.name
    states = contents.like(r"^[^/]*_(model|optim)_states\.pt$")
    step = number(r"global_step(\d+)", name)
    if name.endswith("_universal") or (step is None and not states) or contents.is_foreign(r"_states\.pt$"):
        return None  # a universal one was made from another, for a run of another size
    step = number(LAST_NUMBER, name) if step is None else step
    shards = contents.count(r"^[^/]*_optim_states\.pt$") or contents.count(r"^[^/]*_model_states\.pt$")
    latest, content = folder.entry("latest"), folder.text("latest")
    lacks = "" if shards else "no states yet"
    if latest is None or content is None:
        lacks = lacks or "no latest yet"
    elif content != name and not is_past(step, contents.newest, number(LAST_NUMBER, content), latest.mtime):
        lacks = lacks or f"latest names {content}"
    return contents.found("deepspeed", step, lacks, shards=shards)


def dcp(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """step-500 of torchtitan, or any directory of __0_0.distcp: .metadata is written last."""
    name = contents.entry.name
    step = number(r"step[-_](\d+)", name)
    if contents.is_foreign(DCP) if step is not None else not contents.like(r"^([^/#]*/)*__#_#\.distcp$"):
        return None
    index = "model.safetensors.index.json"
    is_indexed = contents.has(index) or contents.like(r"(^|/)\.metadata$")
    lacks = short_of_dcp(contents) or short_of_shards(contents) or ("" if is_indexed else "no .metadata yet")
    step = number(LAST_NUMBER, name) if step is None else step
    return contents.found("dcp", step, lacks, marker=".metadata" if contents.has(".metadata") else index)


def orbax(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """500, or PREFIX_500: renamed from a temporary name; with commit_success.txt where the backend writes it."""
    base, temporary, _ = contents.entry.name.partition(".orbax-checkpoint-tmp")
    step = number(r"(?:.*_)?(\d+)", base)
    if temporary:
        return contents.found("orbax", step, TEMPORARY)
    if step is None or not contents.like(r"(^|/)(_CHECKPOINT_METADATA|_METADATA|manifest\.ocdbt|commit_success\.txt)$"):
        return None
    lacks, marker = "", "commit_success.txt"
    steps = [number(r"(?:.*_)?(\d+)", name) for name in folder.holding(marker)]
    if not contents.has(marker) and any(other is not None and other < step for other in steps):
        lacks = f"no {marker}, which earlier checkpoints have"
    return contents.found("orbax", step, lacks, marker=marker)


def nanotron(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """500: latest.txt moves first, then model_config.json is written."""
    step = number(r"(\d+)", contents.entry.name)
    pointer, content = folder.entry("latest.txt"), folder.text("latest.txt")
    names = r"^(config\.yaml|checkpoint_metadata\.json|model_config\.json|(model|optimizer|lr_scheduler|random)/.*)$"
    if step is None or not (pointer or contents.like(names)):
        return None
    lacks = contents.marker("model_config.json")
    if pointer is None or content is None:
        lacks = lacks or "no latest.txt yet"
    elif content != str(step) and not is_past(step, contents.newest, number(r"(\d+)", content), pointer.mtime):
        lacks = lacks or f"latest.txt names {content}"
    return contents.found("nanotron", step, lacks, marker="model_config.json")


LAYOUTS: tuple[Callable[[Contents, Folder], FoundCheckpoint | None], ...] = (
    hf, idefics, megatron, nemo, lightning, kempnerforge, deepspeed, dcp, orbax, nanotron, nanogpt,
)  # fmt: skip
"""The first that knows an entry names it."""


def recognised(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    """What checkpoint an entry is, if any."""
    entry = contents.entry
    final = TEMPORARY_MARK.sub("", entry.name)
    if final != entry.name:
        one = _by_layout(Contents(replace(entry, name=final)), folder) or _by_layout(contents, folder)
        return None if one is None else replace(one, name=entry.name, lacks=TEMPORARY, is_cut_short=False)
    return _by_layout(contents, folder)


def unrecognised(contents: Contents, *, is_alone: bool) -> FoundCheckpoint | None:
    """A checkpoint whose format no layout knows: a directory that is called step_40, or weights with a step in their
    name. `is_alone`: whether nothing here is recognised. Then weights without a step count, too."""
    entry = contents.entry
    name, is_file = TEMPORARY_MARK.sub("", entry.name), entry.kind == "file"
    if entry.kind not in ("dir", "file") or name.endswith(("_universal", UNFINISHED)):
        return None
    step = number(STEP_NAME, name)
    has_weights = any(WEIGHTS.fullmatch(file) for file in ([name] if is_file else contents.by_pattern))
    is_one = has_weights and (step is not None or is_alone)
    if not is_one and (is_file or BARE_NAME.fullmatch(name) is None):
        return None
    is_empty = not entry.bytes if is_file else not contents.by_pattern
    lacks = TEMPORARY if name != entry.name else "it is empty" if is_empty else NOT_RECOGNISED
    return contents.found(UNKNOWN, step, lacks)


def _by_layout(contents: Contents, folder: Folder) -> FoundCheckpoint | None:
    entry = contents.entry
    if entry.kind == "other" or (entry.kind == "file" and not entry.name.endswith((".ckpt", UNFINISHED, NANOGPT))):
        return None
    if entry.kind == "link" and folder.is_alias(entry):
        return None
    return next((one for layout in LAYOUTS if (one := layout(contents, folder)) is not None), None)
