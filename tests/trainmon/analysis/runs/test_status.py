"""What a run is really doing."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.runs.judged import judge
from trainmon.analysis.runs.context import RunContext
from trainmon.lib import duration
from trainmon.model import Gpu, Log, Node, Progress, Run, RunSpec, Source, Switch, WandbFile

NOW = 100_000.0
SPEC = RunSpec(name="llm", cluster="prod", log="/fsx/llm.out", target_step=20_000, stall_after=900, nodes=("n1",))
PROGRESS = Progress(step=12_880, loss=1.87, at=NOW - 6, cadence_s=4.1)


def run(spec: RunSpec = SPEC, progress: Progress = PROGRESS, **log: Any) -> Run:
    return Run(spec=spec, progress=progress, log=Log(**{"host": "login", "path": "/fsx/llm.out", "at": NOW - 6} | log))


def node(utilization: int, power: float) -> dict[str, Node]:
    gpus = tuple(Gpu(index=i, utilization_pct=utilization, power_w=power, power_limit_w=700) for i in range(8))
    return {"n1": Node(name="n1", cluster="prod", gpus=gpus)}


def silent(minutes: float) -> Run:
    return run(progress=replace(PROGRESS, at=NOW - 60 * minutes))


def test_steps_that_come_are_healthy() -> None:
    assert judge(run(), RunContext(), NOW) == ("healthy", "step 12,880, 6s ago, usually every 4.1s")


def test_a_pause_shorter_than_the_floor_is_healthy() -> None:
    late = "no step for 14m, usually every 4.1s; stalled only after 15m; the last was step 12,880"
    assert judge(silent(14), RunContext(), NOW) == ("healthy", late)
    assert judge(silent(2), RunContext(), NOW).why == "step 12,880, 2m ago, usually every 4.1s"


def test_no_step_for_longer_is_stalled_and_says_the_usual_pace() -> None:
    verdict, why = judge(silent(16), RunContext(), NOW)
    assert verdict == "stalled"
    assert why == "no step for 16m (usually every 4.1s), the last was step 12,880"


def test_a_slow_run_is_given_ten_of_its_own_steps() -> None:
    slow = run(progress=replace(PROGRESS, at=NOW - 3000, cadence_s=400))
    assert judge(slow, RunContext(), NOW).verdict == "healthy"


def test_gpus_that_spin_without_power_are_a_hang() -> None:
    verdict, why = judge(silent(60), RunContext(node(100, 140), {}), NOW)
    assert verdict == "hung"
    assert "are 100% busy at 20% of their power limit" in why


def test_idle_gpus_are_a_data_stall() -> None:
    assert judge(silent(60), RunContext(node(0, 90), {}), NOW).verdict == "data-stall"


@pytest.mark.parametrize(("percent", "watts"), [(0, 90.0), (100, 140.0)])
def test_beside_a_gpu_with_instances_in_use_the_others_prove_nothing(percent: int, watts: float) -> None:
    """The run may be on an instance, whose utilization is not measured."""
    nodes = node(percent, watts)
    cut = Gpu(index=8, mig=True, memory_used_mib=30_000)
    nodes = {"n1": replace(nodes["n1"], gpus=(*nodes["n1"].gpus, cut))}
    verdict, why = judge(silent(60), RunContext(nodes, {}), NOW)
    assert (verdict, "GPUs" in why) == ("stalled", False)
    unused = replace(nodes["n1"], gpus=(*nodes["n1"].gpus[:8], replace(cut, memory_used_mib=0)))
    assert judge(silent(60), RunContext({"n1": unused}, {}), NOW).verdict in ("data-stall", "hung")


def test_busy_gpus_with_power_are_only_stalled() -> None:
    assert judge(silent(60), RunContext(node(99, 650), {}), NOW).verdict == "stalled"


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_diverged(loss: float) -> None:
    assert judge(run(progress=replace(PROGRESS, loss=loss)), RunContext(), NOW).verdict == "diverged"


def test_the_target_reached_is_finished_only_with_the_last_words_of_its_trainer() -> None:
    done = run(progress=replace(PROGRESS, step=20_000, at=NOW - 9000))
    assert judge(done, RunContext(), NOW).verdict == "unknown"
    log = Log(host="login", path="/fsx/llm.out", at=NOW - 9000, lines=("{'train_runtime': 79.0, 'epoch': 3.0}", "100%"))
    verdict, why = judge(replace(done, log=log), RunContext(), NOW)
    assert verdict == "finished"
    assert "train_runtime" in why
    table = ("***** eval metrics *****", *(f"  eval_metric_{at} =     0.5" for at in range(40)))
    assert judge(replace(done, log=replace(log, lines=(*log.lines, *table))), RunContext(), NOW).verdict == "finished"
    failed = replace(log, lines=(*log.lines, "Traceback (most recent call last):", "ValueError: no metric"))
    assert judge(replace(done, log=failed), RunContext(), NOW).verdict == "dead"


def test_a_silent_run_under_a_kill_switch_was_stopped_and_says_by_whom() -> None:
    armed = replace(silent(60), kill=Switch(path="/k", exists=True, armed_at=NOW - 3600, by="ann"))
    assert judge(armed, RunContext(), NOW) == (
        "stopped",
        "the kill switch has been armed for 1h by ann; last step 12,880",
    )


def test_a_run_that_says_it_evaluates_or_saves_is_given_time_for_it() -> None:
    doing = replace(PROGRESS, at=NOW - 1000, doing="eval", doing_at=NOW - 600)
    assert judge(run(progress=doing), RunContext(), NOW) == ("evaluating", "evaluating for 10m after step 12,880")
    saving = replace(doing, doing="save")
    assert judge(run(progress=saving), RunContext(), NOW).verdict == "saving"
    assert judge(run(progress=replace(saving, doing_at=NOW - 901)), RunContext(), NOW).verdict == "stalled"


def test_an_epoch_that_grows_is_progress_where_no_step_is_printed() -> None:
    epochs = Progress(epoch=0.61, loss=0.5, at=NOW - 6)
    assert judge(run(progress=epochs), RunContext(), NOW) == ("healthy", "epoch 0.61, 6s ago")


def test_what_cannot_be_seen_is_unknown_and_never_dead() -> None:
    down = {"node:login": Source(name="node:login", kind="node", cluster="prod", health="down", answered_at=NOW - 42)}
    assert judge(silent(60), RunContext({}, down), NOW) == (
        "unknown",
        "no data for 42s from login, which has its log",
    )
    assert judge(Run(spec=SPEC), RunContext(), NOW).verdict == "unknown"
    bare = Run(spec=replace(SPEC, log=None))
    assert judge(bare, RunContext(), NOW).why == "no log is configured for it"
    lost = replace(bare, wandb_file=WandbFile(error="/fsx/wandb: does not exist"))
    assert judge(lost, RunContext(), NOW).why == "/fsx/wandb: does not exist"
    assert judge(run(error="no such file"), RunContext(), NOW) == ("unknown", "no such file")


def test_a_growing_log_without_a_step_is_starting_and_a_quiet_one_idle() -> None:
    assert judge(run(progress=Progress()), RunContext(), NOW).verdict == "starting"
    assert judge(run(progress=Progress(), at=NOW - 3600), RunContext(), NOW).verdict == "idle"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.1, "4.1s"), (4.0, "4s"), (42.3, "42s"), (660, "11m"), (11_400, "3h10m"), (187_200, "2d4h"), (9.97, "10s")],
)
def test_durations_are_rounded_for_reading(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_silence_of_an_epoch_counts_only_once_its_time_is_known() -> None:
    """Its log says no more than which epoch begins: the first one may take hours, and its log still grows."""
    begun = Progress(step=3, begun_at=NOW - 7_200)
    assert judge(run(progress=begun, at=NOW - 60, began_at=NOW - 9_000), RunContext(), NOW) == (
        "unknown", "its log grows, but shows no known step line; epoch 3 has begun",
    )  # fmt: skip
    timed = replace(begun, at=NOW - 7_200, intervals=(7_000.0,), cadence_s=7_000.0)
    assert judge(run(progress=timed, at=NOW - 60), RunContext(), NOW).verdict == "healthy"
    assert judge(run(progress=replace(timed, at=NOW - 90_000), at=NOW - 60), RunContext(), NOW).verdict == "stalled"
