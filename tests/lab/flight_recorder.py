"""Dumps of PyTorch's flight recorder, as the ranks of a training write them that hangs: with a planted fault.

The training is played: each rank calls the operations of its program in order, and waits when AHEAD of them have not
finished. An operation finishes when all ranks of its group have called the same, after those before it. The keys and
values are those of torch 2.14.1 (`FlightRecorder.hpp`, and its own dumps with gloo) and of older versions.
"""

from __future__ import annotations

import pickle
import random
from itertools import count
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

Fault = Literal["sleeps", "other operation", "other size", "fabric", "no send", "none"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
AHEAD = 3
Entry = dict[str, Any]


class Group(NamedTuple):
    name: str
    description: str
    members: tuple[int, ...]


class Call(NamedTuple):
    """One operation in the program of a rank."""

    group: Group
    name: str
    size: int
    where: str
    peer: int | None = None
    """Of a send or a receipt: the other rank."""


class Training(NamedTuple):
    """A training that hangs."""

    entries: dict[int, list[Entry]]
    """What each rank has recorded."""
    groups: dict[int, tuple[Group, ...]]
    culprit: int
    call: Call
    """The operation that hangs, as the others call it."""
    number: int


def program(rank: int, groups: tuple[Group, ...], steps: int, *, pipeline: bool) -> list[Call]:
    world, tensor, data = groups
    calls, half = list[Call](), len(world.members) // 2
    for step in range(steps):
        if pipeline:
            calls.append(Call(world, "send" if rank < half else "recv", 512, "pass_on", (rank + half) % (2 * half)))
        calls += [Call(tensor, "all_reduce", 512, "forward"), Call(tensor, "_all_gather_base", 64, "backward")]
        calls += [Call(data, "_reduce_scatter_base", 512, "backward"), Call(data, "all_reduce", 8, "clip")]
        calls += [Call(world, "all_reduce", 1, "metrics")] * (step % 2)
    return calls


def play(seed: int, fault: Fault, *, ranks: int = 16, tensor: int = 4, steps: int = 12, now: float = 1.8e9) -> Training:
    """A training with this fault. It hung 10 minutes before `now`."""
    chance, world = random.Random(seed), Group("0", "default_pg", tuple(range(ranks)))
    groups = {
        rank: (
            world,
            Group(str(1 + rank // tensor), "tp", tuple(range(rank - rank % tensor, rank - rank % tensor + tensor))),
            Group(str(1 + ranks // tensor + rank % tensor), "dp", tuple(range(rank % tensor, ranks, tensor))),
        )
        for rank in range(ranks)
    }
    programs = {rank: program(rank, groups[rank], steps, pipeline=fault == "no send") for rank in groups}
    culprit = chance.randrange(ranks // 2 if fault == "no send" else ranks)
    own, wanted = programs[culprit], {"no send": ("send",), "sleeps": (), "fabric": ()}.get(fault, ("all_reduce",))
    at = next(at for at in count(chance.randrange(len(own) // 2)) if not wanted or own[at].name in wanted)
    call, number = (
        own[at],
        sum(one.group == own[at].group and (one.peer is None) == (own[at].peer is None) for one in own[: at + 1]),
    )
    if fault in ("sleeps", "no send"):
        del own[at:]
    elif fault == "other operation":
        own[at] = call._replace(name="broadcast")
    elif fault == "other size":
        own[at] = call._replace(size=17)
    broken = (call.group.name, number) if fault == "fabric" else None
    return Training(_played(programs, broken, now - 600.0), groups, culprit, call, number)


def _played(programs: dict[int, list[Call]], broken: tuple[str, int] | None, began: float) -> dict[int, list[Entry]]:
    entries: dict[int, list[Entry]] = {rank: [] for rank in programs}
    callers: dict[tuple[Any, ...], dict[int, Entry]] = {}
    numbers: dict[tuple[int, str, bool], int] = {}
    finished, ticks, has_moved = set[tuple[Any, ...]](), count(), True
    while has_moved:
        has_moved = False
        for rank, calls in programs.items():
            if len(entries[rank]) < len(calls) and sum(one["state"] != "completed" for one in entries[rank]) < AHEAD:
                call, has_moved = calls[len(entries[rank])], True
                which = (rank, call.group.name, call.peer is None)
                numbers[which] = numbers.get(which, 0) + 1
                entry = _entry(call, rank, numbers[which], len(entries[rank]), began + next(ticks) * 1e-4)
                entries[rank].append(entry)
                pair = () if call.peer is None else tuple(sorted((rank, call.peer)))
                callers.setdefault((call.group.name, pair, numbers[which]), {})[rank] = entry
        for key, own in callers.items():
            name, pair, number = key
            is_next = key not in finished and (number == 1 or (name, pair, number - 1) in finished)
            alike = {(one["profiling_name"], str(one["input_sizes"])) for one in own.values()}
            members = pair or next(
                one.group.members for each in programs.values() for one in each if one.group.name == name
            )
            if is_next and len(own) == len(members) and (pair or len(alike) == 1) and (name, number) != broken:
                finished.add(key)
                has_moved = True
                for one in own.values():
                    at = one["time_created_ns"]
                    one.update(
                        state="completed", retired=True, time_discovered_started_ns=at, time_discovered_completed_ns=at
                    )
    return entries


def _entry(call: Call, rank: int, number: int, record: int, at: float) -> Entry:
    group, is_p2p = call.group, call.peer is not None
    ends = f" {rank}{'->' if call.name == 'send' else '<-'}{call.peer}" if is_p2p else ""
    size, many = call.size, len(group.members)
    received = {"_all_gather_base": size * many, "_reduce_scatter_base": size // many}.get(call.name, size)
    torch = "/opt/venv/lib/python3.11/site-packages/torch/distributed"
    frames = [
        {"name": call.name, "filename": f"{torch}/distributed_c10d.py", "line": 3906},
        {"name": "wrapper", "filename": f"{torch}/c10d_logger.py", "line": 83},
        {"name": call.where, "filename": "/home/ana/llm/train.py", "line": 100 + len(call.where)},
        {"name": "<module>", "filename": "/home/ana/llm/train.py", "line": 300},
    ]
    numbers = {"collective_seq_id": 0 if is_p2p else number, "p2p_seq_id": number if is_p2p else 0, "op_id": record}
    tensors = {"input_sizes": [[size]], "input_dtypes": ["BFloat16"], "output_sizes": [[received]],
               "output_dtypes": ["BFloat16"]}  # fmt: skip
    times = {"time_created_ns": int(at * 1e9), "time_discovered_started_ns": None, "time_discovered_completed_ns": None}
    return {
        "frames": frames, "record_id": record, "pg_id": int(group.name), "thread_name": "python", "thread_id": "1397",
        "process_group": (group.name, group.description), **numbers, "profiling_name": f"nccl:{call.name}{ends}",
        **times, **tensors, "state": "scheduled", "retired": False, "timeout_ms": 600_000, "is_p2p": is_p2p,
    }  # fmt: skip


SINCE = {"timeout_ms": 3, "is_p2p": 3, "output_dtypes": 4, "input_dtypes": 4, "thread_name": 9, "thread_id": 9}
"""In which minor version a key of an entry was first there."""


def dump(training: Training, rank: int, version: str = "2.10", entries: int = 2_000) -> bytes:
    """What a rank writes: its last entries."""
    minor = int(version.partition(".")[2])
    kept = [{key: value for key, value in one.items() if SINCE.get(key, 0) <= minor} for one in training.entries[rank]]
    if minor < 1:
        kept = [{**one, "seq_id": one["collective_seq_id"] or one["p2p_seq_id"]} for one in kept]
        kept = [
            {key: value for key, value in one.items() if key not in ("collective_seq_id", "p2p_seq_id")} for one in kept
        ]
    whole: dict[str, Any] = {"entries": kept[-entries:], "version": version}
    whole["pg_config"] = {
        group.name: {"name": group.name, "desc": group.description, "ranks": str(list(group.members))}
        for group in training.groups[rank]
    }
    if minor >= 3:
        whole["pg_status"] = {"0": {"last_enqueued_collective": 9, "last_started_collective": -1,
                                    "last_completed_collective": 8}}  # fmt: skip
    if minor >= 10:
        whole["comm_lib_version"] = "2.28.9"
    return pickle.dumps(whole, 2)


def write(training: Training, folder: Path, prefix: str = "nccl_trace_rank_", version: str = "2.10") -> None:
    """The dumps of all ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in training.entries:
        (folder / f"{prefix}{rank}").write_bytes(dump(training, rank, version))
