"""Which rank runs on which node and GPU, and the ranks that a text names. Pure.

A rank is resolved only if exactly one process can be meant. Many programs number something else than the ranks of the
whole training by `rank`: the processes of a node, or of one group of NCCL. Such texts are left as they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple, get_args

import msgspec
from msgspec.structs import replace

from trainmon.lib import Instant, Seconds, listed, natural_key, ranges
from trainmon.model import Attempt, Launcher, LookSource, Node, RankLook, RankMap, RankProcess

# ---- the processes on the nodes → the ranks of an attempt ------------------------------------------------------------

LAUNCHERS: tuple[Launcher, ...] = get_args(Launcher)

CLOCKS: Seconds = 30.0
"""By how much a clock of a node may be behind that of Slurm. Processes that are older belong to an earlier attempt."""


def rank_map(
    nodes: Iterable[Node | None], job: int | None, since: Instant | None, components: Collection[int] = ()
) -> RankMap | None:
    """The ranks of a job, or of a run without one, that was started at `since`; None if none is known, or if others may
    have the same numbers: a node was not read, or a process without a rank holds a GPU. `components`: the numbers of
    those of a heterogeneous job."""
    found: dict[tuple[int, int, str], dict[str, dict[int, tuple[int, ...]]]] = {}
    each, jobs = list(nodes), {job, *components}
    for node in filter(None, each):
        for one in ranks_of_job(node, jobs, since):
            own = found.setdefault((LAUNCHERS.index(one.launcher), one.ranks, one.launch or ""), {})
            on_node = own.setdefault("" if one.rank in own.get(node.name, ()) else node.name, {})
            on_node[one.rank] = tuple(sorted({gpu for _, gpu in held_by(one, node)}))
    if not found or any(has_others(node, jobs) for node in filter(None, each)):
        return None
    best = min(found)
    is_starting = sum(map(len, found[best].values())) < best[1]
    is_ambiguous = any(
        not is_starting or key[0] == best[0] or not own.keys().isdisjoint(found[best])
        for key, own in found.items()
        if key != best
    )
    known = RankMap(launcher=LAUNCHERS[best[0]], ranks=best[1], nodes=found[best], is_ambiguous=is_ambiguous)
    return known if is_starting or all(node is not None and node.ranks is not None for node in each) else None


def ranks_of_job(node: Node, jobs: Collection[int | None], since: Instant | None) -> Iterator[RankProcess]:
    """The ranks on a node of a job that was started at `since`."""
    for one in node.ranks.r if node.ranks is not None else ():
        began = (node.boot_time or 0.0) + one.started_s - (node.clock_skew_s or 0.0)
        if one.job in jobs and (since is None or began >= since - CLOCKS) and not may_be_launcher(one, node):
            yield one


def has_others(node: Node, jobs: Collection[int | None]) -> bool:
    """Whether a process of these jobs that has no rank holds memory on a GPU: of a training that numbers its ranks in
    another way, or of one that has just started."""
    ranks, names = node.ranks, {*map(str, jobs)}
    known = {pid for one in ranks.r for pid in (one.pid, *one.workers)} if ranks is not None else {}
    held = (one for gpu in node.gpus for one in gpu.processes if one.environment.get("SLURM_JOB_ID", "None") in names)
    return (
        ranks is not None and ranks.host_pids and any(one.pid not in known and one.user == ranks.user for one in held)
    )


def held_by(one: RankProcess, node: Node) -> set[tuple[int, int]]:
    """The pids of a rank, each with a GPU on which it holds memory. In a container, pids do not show that."""
    pids = {one.pid, *one.workers} if node.ranks is not None and node.ranks.host_pids else set()
    return {(held.pid, gpu.index) for gpu in node.gpus for held in gpu.processes if held.pid in pids}


def may_be_launcher(one: RankProcess, node: Node) -> bool:
    """Whether it may be what starts the ranks: that has a number, too, but no memory on a GPU; or several processes
    below it have."""
    shows = one.launcher != "torchrun" and node.ranks is not None and node.ranks.host_pids and bool(node.gpus)
    return shows and len({pid for pid, _ in held_by(one, node)}) != 1


def both(one: RankMap | None, other: RankMap | None) -> RankMap | None:
    """What two looks at one attempt show together. A rank that has moved is on both nodes. A map of launchers, from
    before they have started the ranks, does not count."""
    if one is None or other is None or one == other:
        return one or other
    if one.launcher != other.launcher:
        return min(one, other, key=lambda each: LAUNCHERS.index(each.launcher))
    pairs = {name: (one.nodes.get(name, {}), other.nodes.get(name, {})) for name in {**one.nodes, **other.nodes}}
    nodes = {
        name: {rank: tuple(sorted({*was.get(rank, ()), *now.get(rank, ())})) for rank in {**was, **now}}
        for name, (was, now) in pairs.items()
    }
    is_ambiguous = one.is_ambiguous or other.is_ambiguous
    return replace(one, ranks=max(one.ranks, other.ranks), nodes=nodes, is_ambiguous=is_ambiguous)


def last_looks(looks: Iterable[RankLook]) -> tuple[RankLook, ...]:
    """The last look of each source."""
    last = {one.source: one for one in sorted(looks, key=lambda one: (one.at, msgspec.json.encode(one)))}
    return tuple(last[source] for source in sorted(last))


def ranks_of_log(texts: Iterable[str], path: str | None, run: str, attempts: Iterable[Attempt]) -> RankMap | None:
    """Of the ranks that these lines of a file name, where they ran: only if it is known of each attempt that wrote the
    file, or may have."""
    wanted = {int(found["own"] or found["rank"]) for text in texts for found in MENTION.finditer(text)}
    of_run = [one for one in attempts if wanted and one.run_id == run and one.log_path is not None]
    starts = {(one.job_id, one.restart or 0) for one in of_run}
    maps = [
        one.ranks if not one.restart or (one.job_id, one.restart - 1) in starts else None
        for one in of_run
        if one.log_path == path
    ]
    known = [  # all ranks of many attempts would be too many
        one and replace(one, nodes={name: {rank: ranks[rank] for rank in wanted & ranks.keys()}
                                    for name, ranks in one.nodes.items() if wanted & ranks.keys()})
        for one in maps
    ]  # fmt: skip
    return reduce(both, known) if len({one and one.launcher for one in known}) == 1 else None


# ---- the ranks that a text names -------------------------------------------------------------------------------------

MENTION = re.compile(
    r"\[rank(?P<own>\d{1,6})\]|(?:^|(?<=[\s:;,.'\"(]))[Rr]ank(?: | {1,8}: (?=\d{1,6} \(local))(?P<rank>\d{1,6})"
    r"(?![\w%]|[.-]\w|: ?\d)(?: ?(?:/|of) ?(?P<of>\d{1,6}))?(?P<both>(?= \(local[_ ]rank))?"
)
"""A rank of the whole training: torch's own `[rank3]`; `rank 118`, `rank 3/8`; torchrun's `rank : 3 (local_rank: 3)`.
`[Rank 3]` is one of a process group; `rank: 16` and `rank=16` are settings, such as those of a LoRA."""

BEFORE = re.compile(
    r"(?:^\s*|[]:;,.'\"(]\s*|\s-\s+|\b(?:on|from|by|and|that|when|wait(?:ing|s)? for|(global|world))\s+)\Z", re.I
)
"""What stands in front of it. `tp rank 3`, `local rank 3` and NCCL's `comm 0x55 rank 3` are ranks of something else."""

LEAD = 80
"""Characters in front of it that are looked at."""

PROCESS = re.compile(
    r"(?i:abort|barrier|collective|crash|\bdead\b|\bdie[sd]\b|\berror\b(?! ?[:=]? ?[\d.-])|\bexit|fail|\bhang|hung|kill"
    r"|\blate\b|\bleft\b|\blost\b|\bnan\b|never|process|signal|\bslow|stall|stopped|straggl|stuck|time(?:d |-)?out"
    r"|unreachable|wait)|[a-z](?:Error|Exception)\b"
)
"""What a line says of a process. Without one of these words, `rank 3` may be anything that has an order."""

OTHER = re.compile(
    r"(?i:\b(?:acc|alpha|comm|ep|dp|cp|pp|tp|map|pg|svd)\b|accura|adapter|approx|clique|communicator|compress|decompos|\bdim"
    r"|expert|group|\blocal|lora|low.rank|matri|parallel|pipeline|recall|reconstruct|retriev|\bscor|shape|singular|\bsize"
    r"|tensor|\btop\b|truncat|weight)|NCCL [A-Z]"
)
"""What else has ranks: matrices, tensors, results, the groups of parallel trainings."""

SHOWN = re.compile(r"[Rr]ank[ :=]{0,10}(\d{1,6})[/\d\]]{0,8} \(([\w.-]+)(?: GPU (\d{1,3}))?\)")


class RankPlace(NamedTuple):
    """Where a rank runs. The GPU is empty if it is not certain."""

    rank: str
    node: str
    gpu: str

    @property
    def link(self) -> str:
        """As the dashboard names the node, and the GPU on it."""
        return f"{self.node}/{self.gpu}".rstrip("/")

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.node}{' GPU ' if self.gpu else ''}{self.gpu})"


def place_of(rank: int, known: RankMap | None) -> RankPlace | None:
    """Where a rank runs, if exactly one process has it."""
    known_in = {} if known is None or known.is_ambiguous else known.nodes
    places = [(name, own[rank]) for name, own in known_in.items() if rank in own]
    certain = (RankPlace(str(rank), name, str(gpus[0]) if len(gpus) == 1 else "") for name, gpus in places if name)
    return next(certain, None) if len(places) == 1 else None


def ranks_text(ranks: Sequence[int], known: RankMap | None) -> str:
    """`rank 118 (gpu-014 GPU 6)`, `ranks 118 and 119 (gpu-014 GPU 6, 7)`, `ranks 96-127 (gpu-012 to gpu-015)`; without
    places where one is not certain."""
    spans = [str(low) if low == high else f"{low}-{high}" for low, high in ranges(sorted({*ranks}))]
    spans = [str(rank) for rank in sorted({*ranks})] if len(ranks) == 2 else spans
    text = f"rank{'' if len(ranks) == 1 else 's'} {' and '.join(spans) if len(spans) < 3 else listed(spans, 8)}"
    places = [place_of(rank, known) for rank in ranks]
    nodes = sorted({one.node for one in places if one is not None}, key=natural_key)
    if not nodes or None in places:
        return text
    gpus = [one.gpu for one in places if one is not None and len(nodes) == 1]
    on = f" GPU {', '.join(sorted({*gpus}, key=natural_key))}" if gpus and all(gpus) else ""
    return f"{text} ({listed(nodes, 3) if len(nodes) < 4 else f'{nodes[0]} to {nodes[-1]}'}{on})"


def mentions(text: str, known: RankMap | None) -> Iterator[tuple[int, RankPlace]]:
    """The ranks that a text names, each with where its name ends."""
    is_of_process, ranks = PROCESS.search(text) and not OTHER.search(text), str(known and known.ranks)
    for found in MENTION.finditer(text) if known is not None and "ank" in text else ():
        own, rank, of, is_both = found.groups()
        before = BEFORE.search(text, max(0, found.start() - LEAD), found.start())
        is_said = before and of in (None, ranks) and (is_of_process or before[1] or of or is_both is not None)
        if (own or is_said) and (place := place_of(int(own or rank), known)) is not None:
            yield found.end(), place


def places_in(texts: Iterable[str], known: RankMap | None) -> list[RankPlace]:
    """The ranks that texts name, in their order."""
    return list(dict.fromkeys(place for text in texts for _, place in mentions(text, known)))


def with_places(text: str, known: RankMap | None) -> str:
    """The text, with where each rank runs that it names: `rank 118 (gpu-014 GPU 6) failed`."""
    for end, place in reversed([*mentions(text, known)]):
        where = str(place).removeprefix(f"rank {place.rank}")
        text = text if text.startswith(where, end) else text[:end] + where + text[end:]
    return text


def places_shown(texts: Iterable[str]) -> list[RankPlace]:
    """The places that `with_places` has put into texts."""
    return list(dict.fromkeys(RankPlace(*found.groups("")) for text in texts for found in SHOWN.finditer(text)))


# ---- of several looks at one run, the one that a person is told first ------------------------------------------------

LOOK_NAMES: dict[LookSource, str] = {
    "nccl-ras": "NCCL", "flight-recorder": "PyTorch's flight recorder", "stacks": "the stacks", "proc": "/proc",
}  # fmt: skip
"""The sources as people read them, those that say most first."""

LOOK_LABELS: dict[LookSource, str] = {
    "nccl-ras": "NCCL RAS", "proc": "/proc", "stacks": "stacks", "flight-recorder": "PyTorch dump",
}  # fmt: skip


def leading(looks: Iterable[RankLook]) -> RankLook | None:
    """The look that names ranks, else one that says what to do; of several, that of the source that says most. None if
    nothing of that was found."""
    useful = (look for look in looks if look.is_answer and (look.ranks or look.advice))
    return min(useful, key=lambda look: (not look.ranks, [*LOOK_NAMES].index(look.source)), default=None)


def told(look: RankLook) -> str:
    """`510 of 512 ranks have launched AllReduce 6,650; … (by NCCL)`"""
    return f"{look.summary} (by {LOOK_NAMES[look.source]})"
