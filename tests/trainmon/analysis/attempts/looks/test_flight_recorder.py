"""Who holds a run up, by the dumps of PyTorch's flight recorder: each planted fault, and what proves nothing."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.lab.flight_recorder import FAULTS, Fault, Training, dump, play
from trainmon.analysis.attempts.looks.flight_recorder import RankDump, look_of, of_another, rivals, written_since
from trainmon.model import Attempt, AttemptEnd, Progress, RankLook, RankMap, Run, RunSpec, State
from trainmon.runtime.looks.on_node.flight_recorder import Reader, summary

NOW = 1.8e9
MAP = RankMap(launcher="torchrun", ranks=16, nodes={f"n{node}": {4 * node + gpu: (gpu,) for gpu in range(4)}
                                                    for node in range(4)})  # fmt: skip


def read(text: bytes) -> RankDump:
    """What the node says of a dump, as it comes over the wire."""
    told = json.loads(json.dumps(summary(Reader(io.BytesIO(text)).load(), 0.0)))
    return msgspec.convert([NOW, "/tmp/nccl_trace_rank_0", *told], RankDump)


def dumps(training: Training, version: str = "2.10") -> dict[int, RankDump]:
    return {rank: read(dump(training, rank, version)) for rank in training.entries}


def judged(found: dict[int, RankDump], unread: dict[int, str] | None = None) -> RankLook:
    return look_of(found, unread or {}, MAP, 7, NOW)


def place(rank: int) -> str:
    return f"rank {rank} (n{rank // 4} GPU {rank % 4})"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("seed", range(1, 12))
def test_each_fault_is_found_in_each_version_of_the_format(seed: int, fault: Fault) -> None:
    training = play(seed, fault)
    look, culprit = judged(dumps(training, f"2.{seed}")), place(training.culprit)
    names = fault in ("sleeps", "no send")
    assert look.ranks == ((training.culprit,) if names else ())
    assert look.count == (None if fault == "none" else look.count)
    if fault == "none":
        assert look.summary == "no rank waits in an operation, according to 16 dumps of PyTorch"
    elif names:
        assert look.summary.startswith(f"{culprit} never entered ")
        assert any(line.startswith(f"the last call of {culprit} was ") for line in look.lines)
    elif fault == "fabric":
        assert "none of them has finished it" in look.summary
        assert look.summary.endswith("fabric or GPU")
        assert look.count == training.number
    else:
        assert look.summary.startswith(
            f"ranks disagree about {training.number} of group {training.call.group.description}"
        )
        assert look.summary.endswith(culprit)


def test_the_sentence_names_the_rank_the_operation_and_who_waits_and_the_lines_name_the_code() -> None:
    look = judged(dumps(play(3, "sleeps")))
    assert look.summary == (
        "rank 7 (n1 GPU 3) never entered ALLREDUCE 9 of group tp (ranks 4-7); 3 ranks wait in it since 07:50:00 UTC"
    )
    assert look.lines[1:] == (
        "rank 7 (n1 GPU 3) never entered ALLREDUCE 3 of group default_pg; 9 ranks wait in it since 07:50:00 UTC",
        "ALLREDUCE at /home/ana/llm/train.py:107 forward: ranks 4-6 (n1 GPU 0, 1, 2)",
        "the last call of rank 7 (n1 GPU 3) was ALLREDUCE 2 of group default_pg at "
        "/home/ana/llm/train.py:107 metrics, 07:50:00 UTC, finished",
    )
    assert (look.since, look.step, look.advice[:22]) == (
        pytest.approx(NOW - 600.0, abs=1.0),
        7,
        "Look at the stack of t",
    )


def test_a_rank_without_a_dump_is_said_and_not_named() -> None:
    training = play(3, "sleeps")
    found = dumps(training)
    del found[training.culprit]
    look = judged(found, {training.culprit: "it has written none"})
    assert (look.ranks, look.summary) == (
        (), "3 ranks wait in ALLREDUCE 9 of group tp (ranks 4-7) since 07:50:00 UTC, and no dump shows whether "
        "rank 7 (n1 GPU 3) entered it"
    )  # fmt: skip
    assert "no dump of rank 7 (n1 GPU 3): it has written none" in look.lines


def test_dumps_that_others_lack_do_not_hide_who_is_proven() -> None:
    training = play(3, "sleeps")
    found = dumps(training)
    del found[0], found[1]
    look = judged(found, dict.fromkeys((0, 1), "n0 is down"))
    assert look.ranks == (7,)
    assert "no dump of ranks 0 and 1 (n0 GPU 0, 1): n0 is down" in look.lines


def test_no_single_dump_names_anybody() -> None:
    for fault in FAULTS:
        for rank, one in dumps(play(5, fault)).items():
            assert judged({rank: one}).ranks == ()


@pytest.mark.parametrize("seed", range(50))
def test_dumps_of_a_training_that_goes_on_name_nobody(seed: int) -> None:
    """Each rank writes its dump at another moment, within a second; the last operations are not finished."""
    training, chance, found = play(seed, "none", ranks=8, tensor=4, steps=6), random.Random(seed), dict[int, RankDump]()
    for rank, entries in training.entries.items():
        kept = [dict(one) for one in entries[: chance.randrange(5, len(entries))]]
        for each in kept[len(kept) - chance.randrange(3) :]:
            each["state"] = chance.choice(["scheduled", "started"])
        one = read(dump(training._replace(entries={rank: kept}), rank))
        found[rank] = msgspec.structs.replace(one, written_at=one.last_at + chance.random())
    look = look_of(found, {}, MAP, 7, NOW)
    assert (look.ranks, look.summary) == ((), "no rank waits in an operation, according to 8 dumps of PyTorch")


def entry(
    number: int, name: str, at: float, *, group: str = "0", state: str = "scheduled", **more: Any
) -> dict[str, Any]:
    return {
        "process_group": (group, "undefined"), "profiling_name": f"nccl:{name}", "collective_seq_id": number,
        "p2p_seq_id": 0, "is_p2p": False, "time_created_ns": int((NOW + at) * 1e9), "input_sizes": [[4]],
        "state": state, "record_id": 0, **more,
    }  # fmt: skip


def made(*entries: dict[str, Any], groups: dict[str, str] | None = None) -> RankDump:
    config = {name: {"name": name, "desc": "undefined", "ranks": ranks} for name, ranks in (groups or {}).items()}
    whole = {"version": "2.10", "entries": [*entries], "pg_config": config}
    return msgspec.convert([NOW + 600.0, "x", *json.loads(json.dumps(summary(whole, 0.0)))], RankDump)


def test_ranks_that_wait_for_each_other_are_not_named() -> None:
    groups = {"1": "[0, 1]", "2": "[0, 1]"}
    look = judged({
        0: made(entry(1, "all_reduce", 1.0, group="1"), groups=groups),
        1: made(entry(1, "all_gather", 1.0, group="2"), groups=groups),
    })  # fmt: skip
    assert (look.ranks, look.summary) == ((), "the ranks wait for each other, according to 2 dumps of PyTorch")
    assert look.lines == ("ALLREDUCE: rank 0 (n0 GPU 0)", "ALLGATHER: rank 1 (n0 GPU 1)")


def test_a_rank_that_waits_is_not_named_although_a_dump_was_written_too_early_to_count() -> None:
    """Rank 2 fails at once and dumps; rank 1 has called the same and waits there, not in what rank 0 waits for."""
    groups = {"1": "[0, 1]", "2": "[1, 2, 3]"}
    first, other = entry(1, "all_reduce", 1.0, group="1"), entry(1, "all_reduce", 1.0, group="2")
    early = msgspec.structs.replace(made(other, groups=groups), written_at=NOW + 4.0)
    look = judged({0: made(first, groups=groups), 1: made(other, groups=groups), 2: early})
    assert look.ranks == ()


def test_dumps_of_two_trainings_that_have_written_to_one_place_name_nobody() -> None:
    def waits(number: int) -> RankDump:
        over = [entry(each, "all_reduce", 0.0, state="completed", record_id=7) for each in range(number - 3, number)]
        return made(*over, entry(number, "all_reduce", 1.0, record_id=9))

    over = [entry(each, "all_reduce", 0.0, state="completed", record_id=each) for each in range(490, 500)]
    for others in (waits(9_000), made(*over)):
        look = judged({rank: waits(500) if rank % 2 else others for rank in range(16)})
        assert look.ranks == (() if others == waits(9_000) else (*range(0, 16, 2),))
    other = made(entry(1, "all_reduce", -9.0, group="5", state="completed", record_id=0))
    for late in (made(*over[:-1]), other):
        look = judged({rank: late if rank == 3 else waits(500) for rank in range(16)})
        assert look.ranks == ()
        assert look.summary.endswith("no dump shows whether rank 3 (n0 GPU 3) entered it")


def test_a_rank_of_many_groups_is_not_named_for_one_of_them() -> None:
    groups = {str(number): "[0, 1]" for number in range(100)}
    calls = [entry(1, "all_reduce", 2.0, group=str(number), state="completed") for number in range(1, 100)]
    first = entry(1, "all_reduce", 1.0, group="0")
    assert judged({0: made(first, groups=groups), 1: made(first, *calls, groups=groups)}).ranks == ()


def exchange(how: str, state: str = "scheduled", at: float = 1.0) -> dict[str, Any]:
    return entry(0, how, at, group="4", state=state, p2p_seq_id=7, is_p2p=True)


def test_who_has_sent_is_not_named_although_nothing_has_come() -> None:
    """A small send is finished when it is in the buffer of the other rank."""
    groups = {"4": "[0, 1]"}
    for at, ranks in ((2.0, ()), (0.0, (0,))):
        sender = made(exchange("send 0->1", "completed", at), groups=groups)
        assert judged({0: sender, 1: made(exchange("recv 1<-0"), groups=groups)}).ranks == ranks


def test_two_ranks_that_both_send_wait_for_each_other() -> None:
    groups = {"4": "[0, 1]"}
    ends = [made(exchange(how), groups=groups) for how in ("send 0->1", "send 1->0")]
    assert judged(dict(enumerate(ends))).summary == "the ranks wait for each other, according to 2 dumps of PyTorch"
    ends[1] = made(exchange("recv 1<-0"), groups=groups)
    assert judged(dict(enumerate(ends))).summary.startswith("1 rank entered SEND 0->1 of group 4 (ranks 0-1), and none")


def test_sends_name_nobody_without_the_ranks_of_their_group_or_the_other_end() -> None:
    idle = made(entry(1, "all_reduce", 0.0, state="completed"))
    assert judged({8: made(exchange("send 0->1")), 9: idle}).ranks == ()
    assert judged({8: made(exchange("coalesced"), groups={"4": "[8, 9]"}), 9: idle}).ranks == ()
    assert judged({8: made(exchange("send 0->1"), groups={"4": "[8, 9]"}), 9: idle}).ranks == (9,)


def test_dumps_of_pytorch_2_3_are_not_read_as_their_numbers_differ_between_ranks() -> None:
    with pytest.raises(KeyError, match="collective_seq_id"):
        dumps(play(3, "sleeps"), "2.0")


def test_what_a_group_waits_for_is_not_judged_if_its_ranks_are_not_known() -> None:
    look = judged({3: made(entry(1, "all_reduce", 1.0, group="5"))})
    assert (look.summary, look.advice) == ("the ranks wait for each other, according to 1 dump of PyTorch", "")


def test_a_rank_whose_dump_does_not_reach_back_is_not_named() -> None:
    groups = {"1": "[0, 1]"}
    old, other = entry(1, "all_reduce", 1.0, group="1"), {"group": "3", "state": "completed", "record_id": 700}
    assert judged({0: made(old, groups=groups), 1: made(entry(9, "all_reduce", 50.0, **other))}).ranks == ()
    assert judged({0: made(old, groups=groups), 1: made(entry(8, "all_reduce", 0.0, **other))}).ranks == (1,)


CAPTURED = Path(__file__).parents[4] / "captured" / "torch-2.14"
"""Dumps that torch 2.14.1 has made of 4 ranks with gloo (HANGS in `tests/lab/torchrun.py`): its state says that nothing
is finished, and its pg_config has the last group under an empty name."""


@pytest.mark.parametrize(
    ("fault", "ranks", "summary"),
    [
        ("sleeps", (2,), "rank 2 never entered ALLREDUCE 6 of group default_pg; 3 ranks wait in it since 17:06:02 UTC"),
        ("disagrees", (), "ranks disagree about 6 of group default_pg: 3 call ALLREDUCE, 1 call ALLGATHER: rank 2"),
        ("healthy", (), "no rank waits in an operation, according to 4 dumps of PyTorch"),
    ],
)
def test_real_dumps_of_torch_are_read(fault: str, ranks: tuple[int, ...], summary: str) -> None:
    found = {rank: read((CAPTURED / fault / f"rank{rank}").read_bytes()) for rank in range(4)}
    look = look_of(found, {}, None, 5, NOW)
    assert (look.ranks, look.summary) == (ranks, summary)
    assert fault == "healthy" or "ALLREDUCE at /srv/train/train.py:24 step: ranks 0-1 and 3" in look.lines


def test_what_gloo_has_retired_is_finished() -> None:
    done = {"profiling_name": "gloo:all_reduce", "retired": True}
    open_ = {**done, "retired": False}
    found = {
        0: made(entry(1, "", 1.0, **done), entry(2, "", 2.0, **open_)),
        1: made(entry(1, "", 1.0, **done)),
        2: made(entry(1, "", 1.0, **done), entry(2, "", 2.0, **open_)),
    }
    assert judged(found).summary.startswith("rank 1 (n0 GPU 1) never entered ALLREDUCE 2 of group default_pg; 2 ranks")


def test_operations_that_are_called_together_have_the_state_of_the_last_one() -> None:
    parts = [entry(1, "all_gather", 1.0), entry(1, "all_reduce", 1.0)]
    whole, left = entry(1, "coalesced", 1.0, state="completed"), entry(1, "coalesced", 1.0)
    assert judged(dict.fromkeys(range(16), made(*parts, whole))).summary.startswith("no rank waits")
    look = judged(dict.fromkeys(range(16), made(*parts, left)))
    assert look.summary.startswith("16 ranks entered ALLGATHER, ALLREDUCE, COALESCED 1 of group default_pg, and none")


def test_a_wait_that_an_earlier_wait_explains_is_not_the_reason() -> None:
    groups = {"1": "[0, 1]", "2": "[2, 3]"}
    first, later = entry(1, "all_reduce", 1.0, group="1"), entry(1, "all_reduce", 2.0)
    found = {rank: made(first, later, groups=groups) for rank in (0, 1)}
    found |= {rank: made(later) for rank in range(2, 16)}
    look = judged(found)
    assert look.summary.startswith("2 ranks entered ALLREDUCE 1 of group 1 (ranks 0-1), and none of them")
    assert not any("default_pg" in line for line in look.lines)


ENDED = AttemptEnd(at=NOW, source="queue", noticed_at=NOW)


def attempt(end: AttemptEnd | None = None) -> Attempt:
    return Attempt(attempt_id="a", run_id="llm", cluster="prod", started_at=NOW - 5_000.0, ranks=MAP, reported_end=end)


@pytest.mark.parametrize(
    ("called_at", "end", "why"),
    [
        (-100.0, None, ""),
        (-100.0, ENDED, ""),
        (-5_020.0, None, ""),  # two clocks
        (-5_040.0, None, "it is of another attempt"),
        (29.0, ENDED, ""),
        (60.0, ENDED, "it is of another attempt"),  # the next job has overwritten it
    ],
)
def test_a_dump_of_another_job_is_not_used(called_at: float, end: AttemptEnd | None, why: str) -> None:
    assert of_another(3, made(entry(1, "all_reduce", called_at)), attempt(end), NOW) == why


def test_a_training_with_other_ranks_is_another_one() -> None:
    why = "it is of a training with another number of ranks"
    assert of_another(16, made(entry(1, "all_reduce", -1.0)), attempt(), NOW) == why
    assert of_another(3, made(entry(1, "all_reduce", -1.0), groups={"0": "[0, 1, 2, 3]"}), attempt(), NOW) == why
    assert of_another(3, made(), attempt(), NOW) == ""


def test_a_dump_from_before_the_last_step_is_of_an_earlier_standstill() -> None:
    assert written_since(attempt(), None) == NOW - 5_030.0
    assert written_since(attempt(), NOW - 100.0) == NOW - 130.0
    assert written_since(attempt(ENDED), NOW - 100.0) == NOW - 430.0, "a trainer may flush its last lines when it ends"


def test_a_dump_from_before_a_restart_within_the_job_is_of_processes_that_are_gone() -> None:
    assert written_since(attempt(), NOW - 100.0, NOW - 60.0) == NOW - 90.0


HOME, NODE = "/home/ana/.cache/torch/comm_lib_trace_rank_3", "/tmp/nccl_trace_rank_3"
OWN = "/scratch/88/rank3"


@pytest.mark.parametrize(
    ("path", "node", "stepped_at", "is_theirs"),
    [
        (HOME, "n0", -900.0, True),
        (HOME, "n0", 700.0, False),  # it has gone on after that
        (NODE, "n0", -900.0, False),
        (NODE, "n9", -900.0, True),
        (OWN, "n9", -900.0, False),
    ],
)
def test_a_dump_that_another_run_may_have_written_is_not_used(
    path: str, node: str, stepped_at: float, is_theirs: bool
) -> None:
    dump = msgspec.structs.replace(made(entry(1, "all_reduce", -100.0)), path=path)
    other = msgspec.structs.replace(attempt(), attempt_id="b", run_id="vlm", nodes=("n9",))
    run = Run(spec=RunSpec(name="vlm", cluster="prod"), progress=Progress(at=NOW + stepped_at))
    others = rivals(attempt(), State(attempts={"a": attempt(), "b": other}, runs={"vlm": run}), NOW - 900.0)
    why = "vlm may have written it: set TORCH_FR_DUMP_TEMP_FILE for each run" if is_theirs else ""
    assert of_another(3, dump, attempt(), NOW, node, others) == why


def test_runs_with_other_ranks_or_that_ended_before_are_no_rivals() -> None:
    small = msgspec.structs.replace(attempt(), run_id="vlm", ranks=msgspec.structs.replace(MAP, ranks=8))
    ended = msgspec.structs.replace(attempt(ENDED), run_id="asr")
    runs = {name: Run(spec=RunSpec(name=name, cluster="prod")) for name in ("vlm", "asr")}
    state = State(attempts={"b": small, "c": ended}, runs=runs)
    assert rivals(attempt(), state, NOW + 1.0) == []
    assert [one.run_id for one, _ in rivals(attempt(), state, NOW)] == ["asr"]


def test_the_ranks_of_a_large_group_are_counted() -> None:
    groups = {"1": str([*range(0, 16, 2)])}
    one = made(entry(1, "all_reduce", 1.0, group="1"), groups=groups)
    assert judged(dict.fromkeys(range(0, 16, 2), one)).summary.startswith(
        "8 ranks entered ALLREDUCE 1 of group 1 (ranks 0,2,4,"
    )
    groups = {"1": str([*range(0, 64, 2)])}
    one = made(entry(1, "all_reduce", 1.0, group="1"), groups=groups)
    assert judged(dict.fromkeys(range(0, 64, 2), one)).summary.startswith(
        "32 ranks entered ALLREDUCE 1 of group 1 (32 ranks), "
    )


def test_a_look_is_short_whatever_the_dumps_say() -> None:
    long = "\x1b[31m" + "x" * 10_000
    frames = [{"filename": f"/{long}", "line": 1, "name": long}]
    found = {rank: made(entry(rank + 1, long, 1.0, group=long, frames=frames)) for rank in range(256)}
    look = judged(found, {rank: f"{rank} {long}" for rank in range(256, 512)})
    assert len(msgspec.json.encode(look)) < 5_000
    assert "\x1b" not in str(look)


@pytest.mark.parametrize("members", ["0-99999999999", "5-2"])
def test_what_no_group_can_have_costs_nothing(members: str) -> None:
    one = made(entry(1, "all_reduce", 1.0))
    group = msgspec.structs.replace(one.groups[0], members=members)
    assert judged({0: msgspec.structs.replace(one, groups=(group,))}).ranks == ()
