"""What the sign of life says."""

from __future__ import annotations

import math
from typing import Any

from trainmon.alerting.heartbeat import ALERTS, compose
from trainmon.model import Alert, Checkpoint, Checkpoints, Disk, Gpu, Node, Progress, Run, RunSpec, Source, State

NOW = 1_800_000_000.0
DAY = 86_400.0


def run(name: str = "video-2b", **facts: Any) -> Run:
    progress = Progress(step=12_345, target_step=100_000, loss=2.3145, tokens_per_s=812_345.6, at=NOW - 12)
    usual: dict[str, Any] = {"verdict": "healthy", "progress": progress, "eta_at": NOW + 3.2 * DAY}
    return Run(**({"spec": RunSpec(name=name, cluster="prod")} | usual | facts))


def source(name: str, health: Any = "ok", **facts: Any) -> Source:
    return Source(name=name, kind="node", cluster="prod", health=health, **facts)


def node(name: str, expected: int | None = 8, *, lost: int = 0) -> Node:
    gpus = tuple(Gpu(index=i, state="lost" if i < lost else "ok") for i in range(8))
    return Node(name=name, cluster="prod", gpus=gpus, gpus_expected=expected)


def disk(path: str, free: int, full_at: float | None = None, **facts: Any) -> Disk:
    sizes = {"total_bytes": 100 * 10**12, "free_bytes": free, "usable_free_bytes": free}
    return Disk(host="login1", cluster="prod", path=path, at=NOW, full_at=full_at, **(sizes | facts))


def state(
    *runs: Run, nodes: tuple[Node, ...] = (), disks: tuple[Disk, ...] = (), unseen: tuple[Source, ...] = ()
) -> State:
    sources = [*(source(f"node:{one.name}") for one in nodes), *unseen]
    return State(
        at=NOW,
        runs={one.name: one for one in runs},
        nodes={one.name: one for one in nodes},
        disks={one.key: one for one in disks},
        sources={one.name: one for one in sources},
    )


def alert(number: int = 0, **facts: Any) -> Alert:
    usual: dict[str, Any] = {"severity": "warning", "phase": "firing", "since": NOW - 600, "found_at": NOW}
    usual["summary"] = f"n{number} is hot"
    return Alert(id=f"a{number}", rule="r", subject=f"node:n{number}", **(usual | facts))


def test_the_target_of_the_config_counts_more_than_that_of_the_log() -> None:
    title, _ = compose(state(run(spec=RunSpec(name="video-2b", cluster="prod", target_step=50_000))), NOW, ())
    assert title == "video-2b alive: step 12,345 of 50,000 (25%)"


def test_it_says_all_that_a_person_wants_to_know() -> None:
    saved = Checkpoint(step=12_000, state="committed", path="/fsx/c", layout="dcp", at=NOW - 1_560)
    checkpoints = Checkpoints(path="/fsx/ckpt", host="login1", listed_at=NOW, list=(saved,))
    title, lines = compose(
        state(
            run(checkpoints=checkpoints),
            nodes=(node("gpu-001"), node("gpu-002", lost=1)),
            disks=(disk("/home", 90 * 10**12), disk("/fsx", 23 * 10**12, NOW + 12 * DAY)),
        ),
        NOW,
        (),
    )
    assert title == "video-2b alive: step 12,345 of 100,000 (12%)"
    assert lines == (
        "video-2b: alive",
        "  step 12,345 of 100,000 (12%), loss 2.314, 812,346 tokens/s, done in 3d4h",
        "  last step 12s ago",
        "  last checkpoint: step 12,000, 26m ago; 345 steps since",
        "disk /fsx: 12.0 days left, 21 TiB free (23%)",
        "disk /home: not filling, 82 TiB free (90%)",
        "GPUs: 15 of 16 healthy on 2 nodes",
        "no alert is open",
    )


def test_the_steps_since_the_checkpoint_that_a_restart_takes_are_at_risk() -> None:
    saved = Checkpoint(step=12_000, state="committed", path="/fsx/c/12000", layout="dcp", at=NOW - 60)
    older = Checkpoint(step=11_000, state="superseded", path="/fsx/c/11000", layout="dcp", at=NOW - 1_560)
    known = Checkpoints(path="/fsx/c", host="login1", listed_at=NOW, list=(saved, older), resumes=older.path)
    _, lines = compose(state(run(checkpoints=known)), NOW, ())
    assert "  last checkpoint: step 12,000, 1m ago; 1,345 steps since step 11,000 (a restart resumes there)" in lines


def test_a_run_that_is_not_well_is_not_called_alive() -> None:
    title, lines = compose(state(run(verdict="hung", why="no step for 31m")), NOW, ())
    assert title == "video-2b hung: step 12,345 of 100,000 (12%)"
    assert lines[0] == "video-2b: hung (no step for 31m)"
    assert not any("last step" in line for line in lines)


def test_several_runs_are_counted_and_those_alive_come_first() -> None:
    title, lines = compose(state(run("a", verdict="dead"), run("b"), run("c")), NOW, ())
    assert title == "3 runs: 2 alive, 1 failed"
    assert lines[0] == "b: alive"


def test_runs_whose_state_is_unknown_are_not_called_dead() -> None:
    why = "no data from W&B for 16s"
    unknown = [run(name, verdict="unknown", why=why) for name in ("a", "b", "c")]
    title, lines = compose(state(*unknown), NOW, ())
    assert title == "3 runs: 3 unknown"
    assert lines[0] == f"a: unknown ({why})"
    assert compose(state(run("a", verdict="finished"), *unknown[1:]), NOW, ())[0] == "3 runs: 1 finished, 2 unknown"


def test_a_run_that_does_not_train_has_no_time_when_it_is_done_and_no_rate() -> None:
    progress = Progress(step=900, loss=math.nan, tokens_per_s=51_000.0, at=NOW - 2)
    diverged = run(verdict="diverged", why="the loss is NaN at step 900", progress=progress, eta_at=None)
    _, lines = compose(state(diverged), NOW, ())
    assert lines[0] == "video-2b: diverged (the loss is NaN at step 900)"
    assert lines[1] == "  step 900, loss is NaN or infinite, 51,000 tokens/s"
    _, lines = compose(state(run(verdict="dead", why="job 8 FAILED", eta_at=None)), NOW, ())
    assert lines[1] == "  step 12,345 of 100,000 (12%), loss 2.314"


def test_open_alerts_are_reported_the_worst_first_and_counted() -> None:
    alerts = [
        alert(1),
        alert(2, severity="critical", summary="n2 is gone", acknowledged_by="ann"),
        alert(3, phase="resolved"),
        alert(4, phase="pending"),
    ]
    title, lines = compose(state(run()), NOW, alerts)
    assert title.endswith(" · 2 alerts open")
    section = lines[lines.index("2 alerts open") :]
    assert section == (
        "2 alerts open",
        "  critical: n2 is gone (since 10m, acknowledged by ann)",
        "  warning: n1 is hot (since 10m)",
    )


def test_many_of_anything_are_counted_and_not_listed() -> None:
    nodes = tuple(node(f"n{i}") for i in range(300))
    disks = tuple(disk(f"/d{i}", 10**12) for i in range(300))
    unseen = tuple(source(f"node:x{i}", "down") for i in range(300))
    runs = tuple(run(f"r{i}") for i in range(300))
    _, lines = compose(state(*runs, nodes=nodes, disks=disks, unseen=unseen), NOW, [alert(i) for i in range(300)])
    assert len(lines) < 120
    assert f"  and {300 - ALERTS} more" in lines
    assert "and 297 disks with more free space" in lines


def test_what_is_not_seen_is_reported() -> None:
    unseen = source("node:gpu-002", "down", answered_at=NOW - 300, error="no answer in 10s")
    _, lines = compose(state(run(), nodes=(node("gpu-001"),), unseen=(unseen,)), NOW, ())
    assert lines[-1] == "late for 5m: node:gpu-002 (no answer in 10s)"


def test_gpus_of_a_silent_node_do_not_count_as_healthy() -> None:
    silent = state(nodes=(node("gpu-001"), node("gpu-002")))
    sources = {**silent.sources, "node:gpu-002": source("node:gpu-002", "down")}
    one = State(at=NOW, nodes=silent.nodes, sources=sources)
    assert "GPUs: 8 of 16 healthy on 2 nodes, 1 node unreachable" in compose(one, NOW, ())[1]


def test_a_disk_that_hangs_or_fills_by_inodes_is_reported() -> None:
    hung = disk("/fsx", 10**12, state="hung", error="statvfs does not return")
    small = disk("/scratch", 50 * 10**12, inodes_full_at=NOW + DAY / 2)
    _, lines = compose(state(disks=(hung, small)), NOW, ())
    assert "disk /fsx on login1: statvfs does not return" in lines
    assert "disk /scratch: 0.5 days left, 45 TiB free (50%)" in lines


def test_what_is_not_known_is_left_out_and_never_zero() -> None:
    title, lines = compose(state(run(progress=Progress(), eta_at=None)), NOW, ())
    assert (title, lines) == ("video-2b alive", ("video-2b: alive", "no alert is open"))
    assert compose(State(), NOW, ()) == ("0 nodes watched, no run", ("no alert is open",))


def test_a_loss_that_is_no_number_is_reported_as_such() -> None:
    _, lines = compose(state(run(progress=Progress(step=1, loss=math.nan))), NOW, ())
    assert "loss is NaN or infinite" in lines[1]


def test_a_run_without_checkpoints_or_with_none_yet_says_which() -> None:
    def section(**facts: Any) -> str:
        checkpoints = Checkpoints(path="/c", host="h", listed_at=NOW, **facts)
        return compose(state(run(checkpoints=checkpoints)), NOW, ())[1][3]

    assert section() == "  last checkpoint: none is committed"
    assert section(error="no such directory") == "  last checkpoint: not known: no such directory"
