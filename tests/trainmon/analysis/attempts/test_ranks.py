"""Which rank runs where, and which ranks a text names: only what is certain."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, FAILED, JOB, Story
from trainmon.analysis.attempts import place_of, places_in, places_shown, ranks_of_log, with_places
from trainmon.analysis.attempts.ranks import both, rank_map
from trainmon.model import (
    Attempt,
    Gpu,
    GpuFacts,
    GpuFactsAll,
    Hello,
    Node,
    NodeReading,
    Process,
    RankMap,
    RankProcess,
    RankProcesses,
)

BOOTED = BEGIN - 10_000


def rank(number: int, *, of: int = 16, started: float = 5.0, **more: Any) -> RankProcess:
    facts = {"workers": (), "launcher": "torchrun", "job": 88, "launch": "llm", "pid": 100 + number, **more}
    return RankProcess(started_s=10_000 + started, rank=number, ranks=of, **facts)


def node(
    name: str, *ranks: RankProcess, host_pids: bool = True, gpus: tuple[tuple[int, ...], ...] | None = None
) -> Node:
    """A node whose GPUs have these pids; without them, those of one rank each."""
    held = [(one.pid,) for one in ranks] if gpus is None else gpus
    shown = tuple(Gpu(index=at, processes=tuple(Process(pid) for pid in pids)) for at, pids in enumerate(held))
    reading = RankProcesses(1, BEGIN, ranks, user="ana", host_pids=host_pids)
    return Node(name=name, cluster="prod", boot_time=BOOTED, gpus=shown, ranks=reading)


def placed(*nodes: Node | None, job: int | None = 88, since: float | None = BEGIN, **more: Any) -> RankMap | None:
    return rank_map(nodes, job, since, **more)


TWO = (node("n1", *map(rank, range(8))), node("n2", *map(rank, range(8, 16))))


def test_a_rank_is_on_the_gpu_of_its_process() -> None:
    known = placed(*TWO)
    assert str(place_of(14, known)) == "rank 14 (n2 GPU 6)"
    assert [place_of(number, known) for number in (16, 118)] == [None, None]


def test_without_a_list_of_processes_or_in_a_container_only_the_node_is_named() -> None:
    for one in (node("n1", rank(3), gpus=()), node("n1", rank(3), host_pids=False)):
        assert str(place_of(3, placed(one))) == "rank 3 (n1)"


def test_a_rank_on_several_gpus_has_no_certain_one() -> None:
    assert str(place_of(3, placed(node("n1", rank(3), gpus=((103,), (103,)))))) == "rank 3 (n1)"
    workers = node("n1", rank(3, workers=(200,)), gpus=((), (200,)))
    assert str(place_of(3, placed(workers))) == "rank 3 (n1 GPU 1)", "a worker holds it"


def test_the_processes_of_another_job_or_of_an_earlier_attempt_are_not_its_ranks() -> None:
    assert placed(node("n1", rank(3, job=87), rank(4, job=None))) is None
    assert placed(node("n1", rank(3, started=-60.0))) is None
    assert placed(node("n1", rank(3, job=None)), job=None, since=None) is not None


def test_a_rank_that_two_processes_have_is_not_resolved() -> None:
    twice = placed(node("n1", rank(3), rank(3, pid=500)), node("n2", rank(4)))
    elsewhere = placed(node("n1", rank(3)), node("n2", rank(3), rank(4)))
    for known in (twice, elsewhere):
        assert place_of(3, known) is None
        assert str(place_of(4, known)).startswith("rank 4 (n2")


def test_none_is_resolved_where_two_trainings_number_their_ranks() -> None:
    evaluator = rank(1, of=2, pid=500)
    for others in ((evaluator,), (rank(9, launch="other", pid=500),), (rank(12, launcher="slurm", pid=500),)):
        known = placed(node("n1", *map(rank, range(8)), *others))
        assert known is not None
        assert known.is_ambiguous
        assert [place_of(number, known) for number in range(16)] == [None] * 16
    tasks = [node(f"n{at}", rank(at, of=2, launcher="slurm", launch=None)) for at in (0, 1)]
    assert placed(tasks[1], node("n2", rank(0, of=1))).is_ambiguous, "a small training beside it"  # type: ignore[union-attr]


def test_none_is_resolved_while_a_training_without_visible_ranks_may_number_its_own() -> None:
    evaluator = node("n2", rank(0, of=2), rank(1, of=2))
    assert str(place_of(1, placed(evaluator))) == "rank 1 (n2 GPU 1)"
    unread = replace(evaluator, name="n1", ranks=None)
    assert placed(None, evaluator) is placed(unread, evaluator) is None, "the trainer may be there"
    assert placed(None, TWO[0]) is not None, "the other ranks of the same training are there"
    trainer = Process(900, user="ana", environment={"SLURM_JOB_ID": "88"})  # mp.spawn has set its RANK

    def beside(held: Process, name: str = "n2", **more: Any) -> RankMap | None:
        one = evaluator if name == "n2" else node(name)
        return placed(evaluator, replace(one, gpus=(*one.gpus, Gpu(index=2, processes=(held,)))), **more)

    assert beside(trainer) is beside(trainer, "n1") is None
    for other in (replace(trainer, user="bob"), replace(trainer, environment={"SLURM_JOB_ID": "7"})):
        assert str(place_of(1, beside(other, "n1"))) == "rank 1 (n2 GPU 1)"


def test_the_components_of_a_heterogeneous_job_are_one_job() -> None:
    both_number = placed(
        node("n1", rank(0, of=2), rank(1, of=2)), node("n2", rank(1, of=2, job=89)), components=(88, 89)
    )
    assert str(place_of(0, both_number)) == "rank 0 (n1 GPU 0)"
    assert place_of(1, both_number) is None


def test_launchers_do_not_count_while_or_before_they_start_the_ranks() -> None:
    launcher = node("n2", rank(1, of=2, launcher="slurm", launch=None, pid=500))
    assert str(place_of(1, placed(TWO[0], launcher))) == "rank 1 (n1 GPU 1)"
    without_memory = node("n1", rank(1, of=2, launcher="slurm", launch=None), gpus=((), ()))
    assert placed(without_memory) is None
    several = rank(1, of=2, launcher="slurm", launch=None, workers=(7, 8))
    assert placed(node("n1", several, gpus=((7,), (8,)))) is None, "processes that it has started hold the GPUs"
    before = RankMap(launcher="slurm", ranks=2, nodes={"n2": {1: ()}})
    assert str(place_of(1, both(before, placed(*TWO)))) == "rank 1 (n1 GPU 1)"


def test_what_was_known_stays_and_a_rank_that_has_moved_is_not_resolved() -> None:
    lost = placed(node("n1", *map(rank, range(8)), gpus=((),) * 8), TWO[1])
    assert str(place_of(6, both(placed(*TWO), lost))) == "rank 6 (n1 GPU 6)", "the GPU is lost since"
    moved = placed(node("n1", rank(1), rank(0)), node("n3", rank(9)))
    known = both(placed(*TWO), moved)
    assert str(place_of(0, known)) == "rank 0 (n1)"
    assert (place_of(9, known), str(place_of(10, known))) == (None, "rank 10 (n2 GPU 2)")


def test_the_order_and_the_number_of_looks_do_not_matter() -> None:
    looks = [placed(*TWO), placed(node("n1", rank(1), rank(0)), node("n3", rank(9))), placed(TWO[1]), None]
    looks += [RankMap(launcher="slurm", ranks=2, nodes={"n2": {1: ()}}), placed(node("n1", rank(3), rank(3, pid=9)))]
    for one, two, three in itertools.permutations(looks, 3):
        assert both(both(one, two), three) == both(one, both(two, three))
        assert both(one, two) == both(two, one)
        assert both(one, both(one, two)) == both(one, two)


KNOWN = RankMap(launcher="torchrun", ranks=16, nodes={"n1": {3: (3,)}, "n2": {9: ()}})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rank 3 failed", "rank 3 (n1 GPU 3) failed"),
        ("Rank 3: ValueError; on rank 9.", "Rank 3 (n1 GPU 3): ValueError; on rank 9 (n2)."),
        ("[rank3]: RuntimeError", "[rank3] (n1 GPU 3): RuntimeError"),
        ("llm crashed (rank 3)", "llm crashed (rank 3 (n1 GPU 3))"),
        ("  rank      : 3 (local_rank: 3)", "  rank      : 3 (n1 GPU 3) (local_rank: 3)"),
        ("[ERROR] rank 3 died while rank 9 waits", "[ERROR] rank 3 (n1 GPU 3) died while rank 9 waits"),
        ("[rank3]: ValueError: a tensor of size 4", "[rank3] (n1 GPU 3): ValueError: a tensor of size 4"),
        ("2026-11-01 - ERROR - waiting for rank 3", "2026-11-01 - ERROR - waiting for rank 3 (n1 GPU 3)"),
        ("global rank 3/16 is late", "global rank 3/16 (n1 GPU 3) is late"),
        *(
            (text, text)
            for text in (
                "rank 3 of 8",
                "rank 3/8",
                "rank 4, rank 33 and rank 3.5",
                "tp rank 3",
                "pipeline-parallel rank 3",
                "local rank 3",
                "local_rank 3",
                "[default3]: x",
                "3: x",
                "[Rank 3] Watchdog caught collective operation timeout",
                "[PG ID 2 PG GUID 5(TP) Rank 3] Timeout at NCCL work",
                "NCCL INFO comm 0x55d2 rank 3 nranks 4 cudaDev 3",
                "ranks 3 to 5",
                "frank 3",
                "rank 3% of all",
                "main.py: error: unrecognized arguments: --local-rank=3 --tp-rank 3 --rank=3",
                "NCCL WARN [Proxy Service 9] Failed to execute operation Connect from rank 9, retcode 6",
                "has been waiting for `initialize clique for rank 3; clique=devices=[0,1,2,3]`",
                "init_process_group: master_port=50949, rank=3, world_size=5, group_name=openrlhf: timeout",
                "expert group, rank 3: timeout",
                "LoRA: rank 3, alpha 6; the other parameters are left as they are",
                "rank: 3, alpha: 6, stopped: never",
                "Low-rank 3 failed: truncated to rank 3",
                "Rank 3: reconstruction error 0.02",
                "Rank 3: 85.2% of errors; error at rank 3: 5.2",
                "ValueError: Input must be of rank 3, but is rank 9",
                "rank 3 is larger than the hidden size: ValueError",
                "rank 3 approximation failed",
                "no line of rank3.log, rank 3-5 or host rank 3.example.com: error",
                "rank 3",
            )
        ),
    ],
)
def test_a_text_says_where_the_ranks_run_that_it_names(text: str, shown: str) -> None:
    assert with_places(text, KNOWN) == shown
    assert with_places(text, None) == text
    assert places_shown([shown]) == places_in([text], KNOWN)


# ---- the attempts of a job ------------------------------------------------------------------------------------------


def seen(story: Story, seconds: float, name: str, *ranks: RankProcess) -> Story:
    """What a node reports of these ranks, each on a GPU."""
    story.at(seconds)
    facts = tuple(GpuFacts(at, uuid=f"{name}-{at}", processes=(Process(one.pid),)) for at, one in enumerate(ranks))
    readings = (
        Hello(1, story.now, name, probe="nvml", boot_time=BOOTED),
        GpuFactsAll(1, story.now, facts, expected=len(facts)),
        RankProcesses(1, story.now, ranks, "ana", host_pids=True),
    )
    return story.say(*(NodeReading(name, "prod", story.now, reading) for reading in readings))


def in_log(path: str, attempts: Sequence[Attempt]) -> RankMap | None:
    """Where the ranks ran that these lines of a log may name."""
    return ranks_of_log(["[rank0] waits for rank 1", "rank 3 failed"], path, "llm", attempts)


def test_a_line_of_an_attempt_that_ended_has_the_ranks_of_that_attempt() -> None:
    job = replace(JOB, nodes=("n1", "n2"), stdout="/fsx/88.out")
    story = Story().queue(10, job).steps(12, 1)
    seen(story, 20, "n1", rank(0), rank(1))
    seen(story, 20, "n2", rank(2), rank(3))
    story.queue(50, replace(FAILED, nodes=job.nodes)).log(56, "[rank3]: RuntimeError: CUDA error").at(100).say()
    again = replace(job, submitted_at=BEGIN + 60, started_at=BEGIN + 170, restarts=1, stdout="/fsx/88_1.out")
    story.queue(180, again).steps(182, 2, path="/fsx/88_1.out", restarted="newer")
    first, second = story.attempts
    assert str(place_of(3, first.ranks)) == "rank 3 (n2 GPU 1)"
    assert second.ranks is None, "the processes are those of the first attempt"
    seen(story, 190, "n1", rank(2, started=175.0), rank(3, started=175.0))
    seen(story, 190, "n2", rank(0, started=175.0), rank(1, started=175.0))
    first, second = story.attempts
    assert str(place_of(3, first.ranks)) == "rank 3 (n2 GPU 1)"
    assert str(place_of(3, second.ranks)) == "rank 3 (n1 GPU 1)"
    for path, place in (("/fsx/88.out", "n2"), ("/fsx/88_1.out", "n1")):
        assert place_of(3, in_log(path, story.attempts)).node == place  # type: ignore[union-attr]
    assert in_log("/fsx/other.out", story.attempts) is None


def test_of_two_attempts_that_write_one_log_only_ranks_that_have_not_moved_are_resolved() -> None:
    first = Story().queue(10, JOB).steps(12, 1).attempt
    maps = (RankMap(launcher="torchrun", ranks=4, nodes={"n1": {0: (0,), 1: (1,)}}), placed(node("n1", rank(0))))
    attempts = [
        replace(first, ranks=one) for one in (*maps, RankMap(launcher="torchrun", ranks=4, nodes={"n2": {1: ()}}))
    ]
    known = in_log("/fsx/88.out", attempts)
    assert (str(place_of(0, known)), place_of(1, known)) == ("rank 0 (n1 GPU 0)", None)
    assert in_log("/fsx/88.out", [*attempts, replace(first, ranks=None)]) is None, "of one it is not known"


def test_the_log_of_a_requeued_job_names_no_rank_while_an_earlier_start_is_not_known() -> None:
    first = replace(Story().queue(10, JOB).steps(12, 1).attempt, ranks=KNOWN)
    again = replace(first, restart=1)
    assert place_of(3, in_log("/fsx/88.out", [first, again])) is not None
    assert in_log("/fsx/88.out", [again]) is None, "Slurm may have appended its lines"


def test_a_hundred_attempts_of_thousands_of_ranks_are_read_at_once() -> None:
    first = Story().queue(10, JOB).steps(12, 1).attempt
    maps = [{f"n{node}": {8 * ((node + at) % 512) + 5: (5,)} for node in range(1, 512)} for at in range(100)]
    each = [
        RankMap(launcher="torchrun", ranks=4096, nodes={**nodes, "n0": dict.fromkeys(range(8), (0,))}) for nodes in maps
    ]
    attempts = [replace(first, ranks=one) for one in each]
    began = time.process_time()
    known = in_log("/fsx/88.out", attempts)
    assert time.process_time() - began < 0.5, "22 s when all ranks were compared"
    assert str(place_of(3, known)) == "rank 3 (n0 GPU 0)"
    assert ranks_of_log(["no number"], "/fsx/88.out", "llm", attempts) is None
