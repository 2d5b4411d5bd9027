"""Heterogeneous jobs: Slurm lists each component as a record of its own, `88+0`, `88+1`; here they are one job. Pure.

Slurm starts, holds, releases, requeues and cancels all components by the number of the first. A component alone can
only be taken away, which leaves half a job.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from trainmon.model import Job

LIVELIEST = ("running", "unknown", "waiting", "ended")
"""The job is where the liveliest of its components is: one that ended early does not end the others."""


def joined(records: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs of some records, each heterogeneous one once. Several attempts of a job stay several, in their order."""
    attempts: Counter[str] = Counter()
    groups: dict[tuple[str, int], list[Job]] = defaultdict(list)
    for record in records:
        attempts[record.id] += 1
        groups[record.id.partition("+")[0], attempts[record.id]].append(record)
    return tuple(_whole(number, parts) if "+" in parts[0].id else parts[0] for (number, _), parts in groups.items())


def _whole(number: str, records: Sequence[Job]) -> Job:
    """One job from its components. What only the batch script has (log, command, exit code) is the first one's."""
    parts = sorted(records, key=lambda part: int(part.id.partition("+")[2]))
    shown = min(parts, key=lambda part: (LIVELIEST.index(part.stage), part.stage == "waiting" and part.priority != 0))
    alive = [part for part in parts if part.stage == shown.stage]
    nodes = tuple(dict.fromkeys(node for part in alive for node in part.nodes))
    everywhere = tuple(node for node in parts[0].excluded if all(node in part.excluded for part in parts))
    excluded = dict.fromkeys(node for part in parts for node in part.excluded)
    return replace(
        parts[0],
        id=number,
        number=int(number),
        components=tuple(part.number for part in parts),
        component_nodes=tuple(part.nodes for part in parts),
        state=shown.state,
        reason=shown.reason,
        priority=shown.priority,
        partition=",".join(dict.fromkeys(part.partition for part in parts if part.partition)) or None,
        nodes=nodes,
        node_count=len(nodes) or _sum(part.node_count for part in alive),
        started_at=shown.started_at,
        starts_at=shown.starts_at,
        ends_at=min((part.ends_at for part in alive if part.ends_at is not None), default=None)
        if shown.stage == "running"
        else shown.ends_at,
        gpus=_sum(part.gpus for part in alive),
        gpus_requested=_sum(part.gpus_requested for part in parts),
        excluded=everywhere,
        excluded_in_part=tuple(node for node in excluded if node not in everywhere),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
