"""A run against its own pace, and each GPU against its peers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from tests.lab.fabric import Parallel, Wait, waits
from tests.trainmon.alerting.rules.asked import why_unknown
from tests.trainmon.alerting.rules.runs.states import (
    NOW,
    READER,
    SPEC,
    after,
    alert,
    blind,
    changed,
    found,
    job,
    lines,
    state,
    summary,
    watched,
    without,
)
from trainmon.alerting.rules.runs.peers import rate_of
from trainmon.alerting.rules.runs.steps import SlowThroughput, Straggler
from trainmon.engine.reducers.reduce import reduce
from trainmon.lib import dated
from trainmon.model import (
    Attempt,
    Gpu,
    GpuAverage,
    GpuSample,
    GpuSamples,
    Node,
    NodeReading,
    Process,
    RankMap,
    RankProcess,
    RankProcesses,
    RankSteps,
    Run,
    RunMemory,
    State,
    Throughput,
)

USUAL = Throughput(
    measure="tokens/s", nodes=2, recent=(1.6e6,) * 10, usual=(1.6e6,) * 60, usual_rate=1.6e6, closed_at=NOW
)
SLOW = replace(USUAL, recent=(1.6e6,) * 5 + (1.2e6, 1.19e6, 1.2e6, 1.21e6, 1.2e6))


def paced(known: Throughput, **changes: Any) -> State:
    return state(memory=RunMemory(throughput=known), **changes)


def test_a_run_a_quarter_slower_than_usual_says_both_numbers() -> None:
    finding = found(SlowThroughput(), paced(SLOW))
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == "llm makes 1.20M tokens/s over its last 5 minutes, 25% less than its usual 1.60M"
    assert finding.evidence[0].endswith("1.20M, 1.19M, 1.20M, 1.21M, 1.20M tokens/s")


def test_a_run_at_its_pace_or_a_little_below_says_nothing() -> None:
    assert found(SlowThroughput(), paced(USUAL)) is None
    little = replace(USUAL, recent=(1.4e6,) * 10)
    assert found(SlowThroughput(), paced(little)) is None
    assert found(SlowThroughput(drop=0.1), paced(little)) is not None
    dip = replace(USUAL, recent=(1.6e6,) * 8 + (0.2e6, 1.6e6))
    assert found(SlowThroughput(), paced(dip)) is None, "a minute in which it saved"


def test_no_pace_is_judged_before_it_is_known() -> None:
    assert found(SlowThroughput(), paced(replace(SLOW, usual=(1.6e6,) * 5, usual_rate=None))) is None


def test_a_slow_run_that_is_not_measured_any_more_is_not_over() -> None:
    slow = paced(SLOW)
    assert blind(SlowThroughput(), slow, changed(slow, verdict="hung", why="no step")) == "llm is hung: no step"
    old = changed(slow, memory=RunMemory(throughput=replace(SLOW, closed_at=NOW - 3_600)))
    assert blind(SlowThroughput(), slow, old) == "its throughput was not measured lately"
    dark = changed(without(slow, READER), verdict="unknown")
    assert blind(SlowThroughput(), slow, dark) == f"{READER}: no answer in 10s"
    assert blind(SlowThroughput(), slow, paced(USUAL)) is None


def test_a_restart_of_this_program_does_not_make_a_slow_pace_the_usual_one() -> None:
    fired = alert(found(SlowThroughput(), paced(SLOW)))  # type: ignore[arg-type]
    later = NOW + 3_000
    slow = replace(USUAL, recent=(1.2e6,) * 10, usual=(1.2e6,) * 40, usual_rate=1.2e6, closed_at=later)
    anew = replace(paced(slow), started_at=NOW + 60)
    assert found(SlowThroughput(), anew, later) is None
    words = "it makes 1.20M tokens/s, and made 1.60M before this program started"
    assert why_unknown(SlowThroughput(), anew, fired, later) == words
    of_age = replace(fired, summary=dated(fired.summary.replace("llm", "pythia 410m"), NOW))
    assert of_age.summary.endswith("UTC)"), "the size of a model looks like minutes"
    assert why_unknown(SlowThroughput(), anew, of_age, later) == words
    assert why_unknown(SlowThroughput(), anew, replace(fired, summary="in other words"), later) == words
    fast = replace(paced(replace(slow, recent=(1.55e6,) * 10)), started_at=NOW + 60)
    assert why_unknown(SlowThroughput(), fast, fired, later) is None
    settled = replace(paced(replace(slow, closed_at=NOW + 50_000)), started_at=NOW + 60)
    assert why_unknown(SlowThroughput(), settled, fired, NOW + 50_000) is None, "after half a day it is its usual one"


def test_a_run_that_becomes_slower_is_seen_in_its_own_log_and_is_over_when_it_is_as_fast_again() -> None:
    line = " iteration {:8d}/   20000 | elapsed time per iteration (ms): {} | lm loss: 2.0E+00 |"
    seen, at, step = watched(), NOW, 0

    def train(minutes: int, seconds: float) -> None:
        nonlocal seen, at, step
        for _ in range(minutes * 6):
            at, step = at + 10.0, step + 1
            seen = after(seen, [lines(at, line.format(step, 1_000 * seconds))], at)

    train(40, 10.0)
    assert found(SlowThroughput(), seen, at) is None
    train(8, 14.0)
    assert summary(SlowThroughput(), seen, at) == (
        "llm makes 0.0714 steps/s over its last 5 minutes, 29% less than its usual 0.1"
    )
    train(8, 10.0)
    assert found(SlowThroughput(), seen, at) is None


# ---- GPUs against their peers ----

PEER = GpuAverage(
    index=0, since=NOW - 600, at=NOW, utilization_pct=99.0, power_w=650.0, sm_clock_mhz=1_980.0, temperature_c=62.0
)


def node(name: str, *odd: GpuAverage) -> Node:
    """Eight GPUs that work as their peers do, but for these."""
    named = {one.index: one for one in odd}
    paces = tuple(named.get(index, replace(PEER, index=index)) for index in range(8))
    gpus = tuple(Gpu(index=index, name="H100", utilization_pct=99) for index in range(8))
    return Node(name=name, cluster="prod", gpus=gpus, gpus_at=NOW, paces=paces)


def beside(*nodes: Node, **changes: Any) -> State:
    spec = replace(SPEC, nodes=tuple(one.name for one in nodes))
    return state(nodes={one.name: one for one in nodes}, **{"spec": spec} | changes)


THROTTLED = replace(PEER, index=3, sm_clock_mhz=86.0, power_w=67.0, temperature_c=40.0)
COLD = replace(PEER, index=5, power_w=120.0, utilization_pct=20.0, temperature_c=35.0)


def test_a_gpu_that_is_throttled_holds_its_run_up_and_its_node_is_named() -> None:
    seen = beside(node("n1"), node("n2", THROTTLED))
    finding = found(Straggler(), seen)
    assert finding is not None
    assert (finding.subject, finding.node, finding.run, finding.severity) == ("node:n2", "n2", "llm", "warning")
    assert finding.summary == "n2 slows llm down: GPU 3 runs at 86 MHz, while its 15 peers are at 1,980 MHz"
    assert finding.sources == ("node:n2",)
    assert "trainmon-tui exclude n2" in finding.advice


def test_a_gpu_that_is_cold_among_peers_at_work_is_found() -> None:
    assert summary(Straggler(), beside(node("n1"), node("n2", COLD))) == (
        "n2 slows llm down: GPU 5 draws 120 W at 20% and 35 °C, while its 15 peers are at 650 W"
    )


def test_while_some_ranks_save_or_evaluate_no_gpu_is_compared() -> None:
    seen = beside(node("n1"), node("n2", COLD))
    saving = changed(seen, verdict="saving", why="saving for 6m")
    assert blind(Straggler(), seen, saving) == "llm is saving: its GPUs cannot be compared"


@pytest.mark.parametrize(
    "nodes",
    [
        (node("n1"), node("n2")),
        (node("n1"), node("n2", replace(PEER, index=1, sm_clock_mhz=1_800.0, power_w=560.0))),
        (node("n1"), node("n2", replace(PEER, index=1, power_w=350.0))),  # it waits, at the clock and heat of all
        (node("n1"), node("n2", replace(THROTTLED, since=NOW - 30))),
    ],
    ids=["all alike", "a little behind", "a stage that waits more", "just seen"],
)
def test_what_differs_a_little_or_for_a_moment_is_no_straggler(nodes: Sequence[Node]) -> None:
    assert found(Straggler(), beside(*nodes)) is None


def test_gpus_that_the_run_does_not_use_are_no_stragglers() -> None:
    lent = node("n1", *(replace(COLD, index=index) for index in range(4, 8)))
    idle = tuple(replace(gpu, memory_used_mib=4 if gpu.index >= 4 else 70_000) for gpu in lent.gpus)
    assert found(Straggler(), beside(replace(lent, gpus=idle))) is None
    users = [Process(1, user="ana"), Process(2, user="bob")]
    others = tuple(replace(gpu, processes=(users[gpu.index >= 4],)) for gpu in lent.gpus)
    spec = replace(SPEC, nodes=("n1",))
    assert found(Straggler(), state(job(), nodes={"n1": replace(lent, gpus=others)}, spec=spec)) is None
    mine = tuple(replace(gpu, processes=(users[0],)) for gpu in node("n1", COLD).gpus)
    assert found(Straggler(), state(job(), nodes={"n1": replace(node("n1", COLD), gpus=mine)}, spec=spec)) is not None


def test_half_a_run_that_differs_is_its_shape_and_no_straggler() -> None:
    odd = [node(f"n{place}", COLD) for place in range(4)]
    assert found(Straggler(), beside(*odd, *(node(f"n{place}") for place in range(4, 8)))) is None


def test_gpus_that_are_not_at_work_have_no_stragglers() -> None:
    idle = tuple(replace(PEER, index=index, utilization_pct=0.0, power_w=90.0) for index in range(8))
    assert found(Straggler(), beside(node("n1", *idle), node("n2", *idle, THROTTLED))) is None
    assert found(Straggler(), beside(node("n1"), node("n2", THROTTLED), verdict="starting")) is None


def test_the_rank_of_a_straggler_is_named() -> None:
    seen = beside(node("n1"), node("n2", THROTTLED))
    (odd,) = (index for index, one in enumerate(seen.nodes["n2"].paces) if one != node("n2").paces[index])
    known = RankMap(launcher="slurm", ranks=16, nodes={"n2": {8 + gpu: (gpu,) for gpu in range(8)}})
    attempt = Attempt(attempt_id="prod/88", run_id="llm", cluster="prod", ranks=known)
    finding = found(Straggler(), replace(seen, attempts={attempt.attempt_id: attempt}))
    assert finding is not None
    assert finding.evidence[-1] == f"rank {8 + odd} (n2 GPU {odd})"


def waiting(ranks: Mapping[int, RankSteps | None]) -> State:
    """Two nodes whose GPUs are alike, with as many ranks each, of which the hooks say this."""
    half, nodes = len(ranks) // 2, {}
    for place, name in enumerate(("n1", "n2")):
        own = {rank: ranks[rank] for rank in range(half * place, half * (place + 1))}
        rows = tuple(
            RankProcess(100 + rank, 5.0, (), "torchrun", rank, 2 * half, steps=steps) for rank, steps in own.items()
        )
        nodes[name] = replace(node(name), ranks=RankProcesses(1, NOW, rows, user="ana"))
    places = {name: {one.rank: (one.rank % half,) for one in own.ranks.r} for name, own in nodes.items() if own.ranks}
    known = RankMap(launcher="torchrun", ranks=2 * half, nodes=places)
    attempt = Attempt(attempt_id="prod/88", run_id="llm", cluster="prod", ranks=known)
    return replace(beside(*nodes.values()), attempts={attempt.attempt_id: attempt})


@pytest.mark.parametrize("seed", range(8))
def test_a_rank_for_which_all_others_wait_is_found(seed: int) -> None:
    of: Wait = ("data", "vote")[seed % 2]
    finding = found(Straggler(), waiting(waits(seed, late=11, of=of)))
    assert finding is not None
    assert (finding.subject, finding.severity) == ("node:n2", "warning")
    number = r"[\d,]+ ms"
    told = {
        "data": rf"it waits {number} per step for its data, its 15 peers {number}",
        "vote": rf"its 15 peers wait {number} in each vote until it comes, it 0 ms for them",
    }
    assert re.fullmatch(rf"rank 11 \(n2 GPU 3\) slows llm down: {told[of]}", finding.summary)


@pytest.mark.parametrize("parallel", ["data", "tensor", "pipeline"])
def test_of_200_healthy_trainings_no_rank_is_late(parallel: Parallel) -> None:
    """Rank 0 logs and reads more; few ranks load for others; the stages of a pipeline wait for each other."""
    for seed in range(200):
        assert found(Straggler(), waiting(waits(seed, (8, 16, 64)[seed % 3], parallel))) is None, seed


def test_rank_0_and_who_is_like_it_are_not_late() -> None:
    for late in ([0], [0, 5], [3, 5, 7]):
        steps = {rank: RankSteps(9, 1_000_000, 900_000 * (rank in late), 0) for rank in range(16)}
        assert found(Straggler(), waiting(steps)) is None
    assert found(Straggler(), waiting({rank: steps[rank + 4] for rank in range(4)})) is None, "three peers at least"


def test_a_vote_takes_time_itself_on_a_busy_node() -> None:
    """Eight ranks of gloo on two cores with a load of 13, of which rank 5 worked on alone for 0.3 s."""
    votes = (338_174, 337_711, 342_655, 349_048, 354_055, 49_616, 349_981, 342_965)
    finding = found(Straggler(), waiting({rank: RankSteps(322, 413_620, 170, vote) for rank, vote in enumerate(votes)}))
    assert finding is not None
    assert finding.summary.startswith("rank 5 (n2 GPU 1) slows llm down: its 7 peers wait 34")


def test_nobody_is_named_while_rank_0_tells_nothing() -> None:
    steps = waits(1, late=11)
    assert found(Straggler(), waiting(steps | {0: None})) is None
    assert blind(Straggler(), waiting(steps), waiting(steps | {0: None})) is not None


def test_a_late_rank_is_not_over_while_its_hooks_tell_nothing() -> None:
    seen = waiting(waits(1, late=11))
    untold = waiting(dict.fromkeys(range(16)))
    assert blind(Straggler(), seen, untold) == "the ranks on n2 do not report how long they wait"
    assert blind(Straggler(), seen, waiting(waits(1))) is None


def test_a_straggler_that_cannot_be_compared_is_not_over() -> None:
    seen = beside(node("n1"), node("n2", THROTTLED))
    dark = replace(without(seen, "node:n2"), nodes={"n1": node("n1")})
    assert blind(Straggler(), seen, dark) == "node:n2: no answer in 10s"
    old = replace(seen, nodes={**seen.nodes, "n2": replace(node("n2", THROTTLED), gpus_at=NOW - 300)})
    assert blind(Straggler(), seen, old) == "the GPUs of n2 are not busy"
    hung = changed(seen, verdict="hung", why="no step")
    assert blind(Straggler(), seen, hung) == "llm is hung: its GPUs cannot be compared"
    assert blind(Straggler(), seen, beside(node("n1"), node("n2"))) is None
    finding = found(Straggler(), seen)
    assert finding is not None
    elsewhere = changed(seen, spec=replace(SPEC, nodes=("n1", "n3")))
    assert why_unknown(Straggler(), elsewhere, alert(finding), NOW) is None, "it trains on other nodes now"


def test_samples_become_the_means_that_are_compared() -> None:
    seen = beside(Node(name="n1", cluster="prod"))
    for second in range(0, 200, 2):
        samples = tuple(
            GpuSample(index=i, utilization_pct=99, power_w=650.0, sm_clock_mhz=400 if i == 6 else 1_980)
            for i in range(8)
        )
        seen = reduce(
            seen, [NodeReading("n1", "prod", NOW + second, GpuSamples(1, NOW + second, samples))], NOW + second
        )
    run: Run = replace(seen.runs["llm"], verdict="healthy")
    seen = replace(seen, runs={"llm": run})
    assert summary(Straggler(), seen, NOW + 200) == (
        "n1 slows llm down: GPU 6 runs at 400 MHz, while its 7 peers are at 1,980 MHz"
    )


def test_a_rate_is_no_power_of_ten() -> None:
    values = (1_620_000.0, 999_999.0, 48_100.0, 8_234.4, 999.7, 33.33, 0.24)
    assert [rate_of(value) for value in values] == ["1.62M", "1.00M", "48.1k", "8234", "1000", "33.3", "0.24"]
