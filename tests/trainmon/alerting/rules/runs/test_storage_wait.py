"""Ranks that wait for a file server: they have hardly run for a while, and the alert says which, where and on what."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.node_scene import NOW, Scene, facts
from trainmon.alerting.rules.runs.peers import StorageWait
from trainmon.analysis.attempts.ranks import rank_map
from trainmon.model import Attempt, Finding, GpuFactsAll, Process, RankProcess, RankProcesses, RankWait

RULE = StorageWait()
NFS = RankWait(107, 90.0, "rpc_wait_bit_killable", "/fsx", "nfs4")


def rank(number: int, *waits: RankWait) -> RankProcess:
    return RankProcess(100 + number, 85_000.0, (), "slurm", number, 16, number % 8, 88, None, waits)


def scene(*waiting: tuple[int, RankWait], at: float = NOW) -> Scene:
    """Sixteen ranks on two nodes, one on each GPU, some of which wait."""
    made = Scene().runs()
    for name, first in (("n1", 0), ("n2", 8)):
        own = facts(made.now)
        gpus = tuple(replace(one, processes=(Process(100 + first + one.index, "ana", 70_000),)) for one in own.g)
        ranks = (rank(number, *(one for who, one in waiting if who == number)) for number in range(first, first + 8))
        read = RankProcesses(1, at, tuple(ranks), user="ana", host_pids=True)
        made.say(name, GpuFactsAll(1, made.now, gpus, 8), read)
    known = rank_map(made.state.nodes.values(), 88, None)
    attempt = Attempt(attempt_id="prod/88", run_id="llm", cluster="prod", job_id="88", ranks=known)
    made.state = replace(made.state, attempts={attempt.attempt_id: attempt})
    return made.steps()


def only(made: Scene) -> Finding:
    (finding,) = made.found(RULE).values()
    return finding


def test_a_rank_that_waits_for_nfs_is_named_with_its_gpu_and_the_mount() -> None:
    finding = only(scene((7, NFS)))
    assert finding.summary == "rank 7 (n1 GPU 7) waits for /fsx (nfs4) for 1m; the 15 others do not"
    assert (finding.severity, finding.run, finding.node) == ("warning", "llm", "n1")
    assert finding.since == NOW - 90.0
    assert finding.evidence == (
        "rank 7 (n1 GPU 7): pid 107 has hardly run for 1m, in rpc_wait_bit_killable on /fsx",
    )  # fmt: skip


def test_it_is_critical_once_the_run_makes_no_steps() -> None:
    made = scene((7, NFS)).after(100.0)
    made.say("n1", RankProcesses(1, made.now, (rank(7, replace(NFS, seconds=190.0)),), user="ana", host_pids=True))
    assert only(made).severity == "critical"


def test_several_nodes_are_one_alert() -> None:
    finding = only(scene((7, NFS), (8, NFS), (9, NFS)))
    assert finding.summary == ("ranks 7-9 (n1, n2) wait for /fsx (nfs4) for 1m; the 13 others do not")
    assert (finding.node, finding.sources) == (None, ("node:n1", "node:n2"))


@pytest.mark.parametrize(
    "wait",
    [
        replace(NFS, seconds=30.0),
        replace(NFS, wchan="nvidia_ioctl"),
        replace(NFS, wchan=""),
        replace(NFS, wchan="kernel_clone"),
    ],
)
def test_a_short_wait_or_one_for_something_else_is_none(wait: RankWait) -> None:
    assert scene((7, wait)).found(RULE) == {}


def test_a_rank_that_has_no_memory_on_a_gpu_yet_waits_too() -> None:
    made = scene((7, NFS)).say("n1", facts(NOW, processes=()))
    assert only(made).summary.startswith("rank 7 (n1 GPU 7) waits for /fsx")


def test_without_a_certain_mount_it_is_storage() -> None:
    assert " waits for storage for " in only(scene((7, replace(NFS, mount=None, filesystem=None)))).summary


def test_one_node_that_is_not_read_hides_no_other() -> None:
    made = scene((7, NFS), (8, NFS)).after(200.0)
    made.say("n2", RankProcesses(1, made.now, (rank(8, NFS),), user="ana", host_pids=True)).well("n1").steps()
    assert only(made).summary.startswith("rank 8 (n2 GPU 0) waits for /fsx (nfs4)")


def test_who_has_waited_for_a_shorter_time_waits_too() -> None:
    summary = only(
        scene((7, NFS), *((number, replace(NFS, seconds=45.0)) for number in range(14) if number != 7))
    ).summary
    assert summary == "rank 7 (n1 GPU 7) waits for /fsx (nfs4) for 1m; the 2 others do not"


def test_it_is_not_over_while_its_processes_are_not_read() -> None:
    made = scene((7, NFS))
    finding = only(made)
    made.after(200.0).well("n1").well("n2").steps()
    assert made.why_unknown(RULE, finding) == "the processes of n1 have not been read for 3m"
    assert scene().why_unknown(RULE, finding) is None
    assert made.lost().why_unknown(RULE, finding) == "node:n1: no answer in 10s"
