"""Who holds a run up, by two answers of NCCL's RAS service: planted faults are found, and nobody else is accused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.lab.nccl_ras import ERRORS, HEALTHY, STUCK, Job
from trainmon.analysis.attempts.looks.nccl_ras import (
    Answer,
    Circumstances,
    Communicator,
    Process,
    UnreadableError,
    call,
    placed,
    read,
)
from trainmon.model import RankLook, RankMap, RankProcess

AT = (100.0, 116.0)


def nodes(job: Job) -> dict[str, dict[int, RankProcess]]:
    found: dict[str, dict[int, RankProcess]] = {}
    for rank in range(job.ranks):
        one = RankProcess(job.pids[rank], 0.0, (), "torchrun", rank, job.ranks)
        found.setdefault(f"gpu-{rank // job.per_node + 1:03}", {})[rank] = one
    return found


def known(job: Job) -> RankMap:
    each = {node: {rank: (rank % job.per_node,) for rank in own} for node, own in nodes(job).items()}
    return RankMap(launcher="torchrun", ranks=job.ranks, nodes=each)


def looked(job: Job, version: str = "2.28.9", *, times: Any = AT, **more: Any) -> RankLook:
    first, second = (read(job.answer(version, at)) for at in times)
    now = Circumstances(*AT, known(job), **{"ranks": placed(second, nodes(job), job.ranks), "is_late": True, **more})
    return call(first, second, now)


def test_200_looks_at_runs_that_go_on_accuse_nobody() -> None:
    for seed in range(34):
        for scenario in HEALTHY:
            look = looked(Job(scenario, seed), is_late=False)
            assert (look.ranks, look.advice) == ((), ""), (scenario, seed, look.summary)
            assert look.summary == "the ranks go on: they have launched more operations of NCCL within 16s"


@pytest.mark.parametrize("version", ["2.28.7", "2.28.9", "2.29.2", "2.30.7"])
def test_a_planted_fault_is_named_in_every_job(version: str) -> None:
    for seed in range(12):
        for scenario in STUCK:
            job = Job(scenario, seed, tensor=1 if scenario == "ahead minority" else 0)
            look = looked(job, version)
            assert look.ranks == job.victims, (scenario, seed, look.summary)
            assert look.advice
            assert look.is_answer


def test_the_sentences() -> None:
    job = Job("stuck", 4, ranks=512, tensor=1)
    job.victims = (118, 119)
    look = looked(job)
    step = job.stopped[118]
    assert look.summary.endswith(f"; ranks 118 and 119 (gpu-015 GPU 6, 7) have been at {look.count:,} for 16s")
    assert look.summary.startswith("510 of 512 ranks have launched ")
    assert step
    later = looked(
        job, before=RankLook(source="nccl-ras", at=40.0, summary="", ranks=(118, 119), count=look.count, since=36.0)
    )
    assert later.summary.endswith("for 80s")
    gone = Job("dead", 1, ranks=64, tensor=1)
    gone.victims = (37,)
    assert looked(gone).summary == "rank 37 (gpu-005 GPU 5) has left: NCCL has reached no process there for a minute"
    equal = Job("equal", 1, ranks=16, tensor=1)
    text = looked(equal, are_gpus_busy=True).summary
    assert text.startswith("all 16 ranks have launched ")
    assert text.endswith(" and nothing more for 16s: none finishes, the fabric or a GPU holds them up")
    assert looked(equal, are_gpus_busy=False).summary.endswith(
        "the GPUs are idle: all wait for something outside of NCCL"
    )
    assert looked(equal, is_late=False).summary.endswith(": none is behind, so the cause is not shown")
    many = Job("stuck", 4, ranks=256, tensor=1)
    many.victims = tuple(range(96, 128))
    assert "; ranks 96-127 (gpu-013 to gpu-016) have been at " in looked(many).summary


def test_the_lower_count_is_late_however_few_are_ahead() -> None:
    job = Job("ahead minority", 1, ranks=32, tensor=1)
    look = looked(job)
    assert look.summary.startswith("3 of 32 ranks have launched ")
    assert look.ranks == job.victims
    even = Job("stuck", 1, ranks=16, tensor=1)
    even.victims = tuple(range(8))
    assert looked(even).ranks == even.victims


def test_a_run_that_makes_its_steps_has_nobody_to_blame() -> None:
    for scenario in STUCK:
        look = looked(Job(scenario, 5), is_late=False, calm="its last step came 2s ago")
        assert (look.ranks, look.advice) == ((), "")
        assert look.summary.endswith("; its last step came 2s ago")


@pytest.mark.parametrize("scenario", ERRORS)
def test_what_ranks_report(scenario: str) -> None:
    job = Job(scenario, 3, ranks=16, tensor=1)
    look = looked(job)
    assert look.ranks == ((15,) if scenario == "cuda error" else ())
    assert "rank 15 (gpu-002 GPU 7) reports to NCCL: " in look.summary


def test_a_rank_is_only_that_of_a_process_which_is_certainly_its_own() -> None:
    job = Job("stuck", 2, ranks=16, tensor=1)
    job.victims = (9,)
    answers = [read(job.answer("2.28.9", at)) for at in AT]
    late = f"process {job.pids[9]} on {job.hosts[1]} (GPU 1)"
    same = nodes(job) | {"gpu-003": dict(enumerate(nodes(job)["gpu-002"].values(), 16))}
    for processes in (
        {}, {"gpu-001": nodes(job)["gpu-001"]},  # nothing is known of it
        same,  # two nodes have these pids
    ):  # fmt: skip
        now = Circumstances(*AT, known(job), placed(answers[1], processes, 16), is_late=True)
        look = call(*answers, now)
        assert look.ranks == ()
        assert f"; {late} has been at " in look.summary
    one = Process(job.hosts[1], job.pids[9])
    text = Answer("2.28.9", {"a": Communicator(16, {}, {one: True})}, frozenset({one[:2]}))
    assert placed(text, nodes(job), 16) == {one[:2]: 9}
    assert placed(text, nodes(job), 24) == {}  # a node that is not read may have this pid, too


def test_no_word_of_an_answer_moves_the_cursor() -> None:
    job = Job("stuck", 2, ranks=16, tensor=1)
    job.victims, job.hosts[1] = (9,), "\x1b[2J10.0.0.9\x07"
    look = looked(job)
    assert look.ranks == (9,)
    assert all(text.isprintable() for text in (look.summary, *look.lines))
    look = looked(job, ranks={})  # not certain: it is named as NCCL names it
    assert f"process {job.pids[9]} on " in look.summary
    assert all(text.isprintable() for text in (look.summary, *look.lines))


def test_an_answer_that_is_cut_off_anywhere_is_none() -> None:
    text = Job("missing", 3, ranks=8, tensor=1).answer("2.28.9", 5.0)
    assert read(text)
    for end in range(0, len(text) - 2, max(1, len(text) // 60)):
        with pytest.raises(UnreadableError):
            read(text[:end])
    endless = '{"nccl_version": "2.28.9", "communicators": [{"hash": "a", "size": Infinity, "ranks": []}]}'
    for other in (
        endless,
        "",
        "HTTP/1.1 400 Bad Request\n",
        "[]",
        '{"communicators": 3}',
        "{" * 5000,
        json.dumps({"a": 1}),
    ):
        with pytest.raises(UnreadableError):
            read(other)
