"""What endangers an attempt that still runs, and what its cause would be."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from trainmon.analysis.attempts.ending import with_outlook
from trainmon.model import (
    Attempt,
    Checkpoints,
    Disk,
    Fault,
    Gpu,
    Job,
    Log,
    LossTrouble,
    Node,
    NodeHistory,
    Outlook,
    Progress,
    Run,
    RunSpec,
    SchedulerNode,
    State,
    Switch,
    Wandb,
)

NOW = 1_700_000_000.0
RUN = Run(
    spec=RunSpec(name="llm", cluster="prod"), verdict="healthy", progress=Progress(step=7, at=NOW - 300),
    checkpoints=Checkpoints(path="/fsx/ckpt", host="n1", listed_at=NOW),
)  # fmt: skip
JOB = Job(cluster="prod", id="88", number=88, state="RUNNING", ends_at=NOW + 3_600)
ATTEMPT = Attempt(
    attempt_id="prod/88", job_id="88", run_id="llm", cluster="prod", nodes=("n1",), started_at=NOW - 900, seen_at=NOW
)
WATCHDOG = "[rank3]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=71) ran for 600060 milliseconds"
DISK = Disk(
    path="/fsx", host="n1", cluster="prod", at=NOW, state="ok", mount="/fsx", filesystem="lustre", free_bytes=1 << 40,
    usable_free_bytes=1 << 40,
)  # fmt: skip

SPIKE = LossTrouble(state="spike", key="loss", value=9.1, step=7.0, at=NOW - 60)


def seen(run: Run = RUN, before: Attempt | None = None, **state: Any) -> Outlook | None:
    return with_outlook(ATTEMPT, before, run, State(**{"at": NOW, "started_at": NOW - 9_000} | state)).outlook


def node(state: str) -> dict[str, Node]:
    return {"n1": Node(name="n1", cluster="prod", gpus=(Gpu(index=0, state=state),))}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ago", "text", "what"),
    [
        (290, "RLW_RXPIPE Fatal XC0 i0 Link 13", "n1 reports Xid 145"),
        (340, "RLW_RXPIPE Fatal XC0 i0 Link 13", "n1 reports Xid 145"),
        (700, "RLW_RXPIPE Fatal XC0 i0 Link 13", ""),  # the last step came 400 s after it
        (290, None, ""),
        (290, "RLW_RXPIPE Nonfatal XC0 i0 Link 13", ""),
    ],
)
def test_a_fault_that_the_run_survived_does_not_endanger_it(ago: float, text: str | None, what: str) -> None:
    fault = Fault(code=145, index=0, first_at=NOW - ago, last_at=NOW - ago, text=text)
    found = seen(node_histories={"n1": NodeHistory(faults=(fault,))})
    assert (found and found.what) == what


@pytest.mark.parametrize(
    ("run", "state", "what", "cause"),
    [
        ({}, {}, "", None),
        ({"verdict": "hung", "why": "no step for 5m"}, {}, "hangs", "hang"),
        ({"verdict": "hung", "log": Log(host="n1", lines=(WATCHDOG,))}, {}, "hangs", "nccl-timeout"),
        ({"verdict": "hung", "log": Log(host="n1", lines=("Training completed.",))}, {}, "hangs", "hang"),
        ({"verdict": "diverged", "why": "the loss is NaN"}, {}, "its loss has diverged", "diverged"),
        ({"wandb": Wandb(phase="active", trouble=SPIKE)}, {}, "its loss has jumped", "diverged"),
        ({"kill": Switch(path="/kill", exists=True)}, {}, "its kill switch is armed", "kill-switch"),
        ({"kill": Switch(path="/kill", exists=False)}, {}, "", None),
        ({}, {"nodes": node("lost")}, "n1 has lost 1 GPU", "gpu-hardware"),
        ({"verdict": "hung"}, {"nodes": node("lost")}, "n1 has lost 1 GPU", "gpu-hardware"),
        ({}, {"nodes": node("ok")}, "", None),
        ({}, {"jobs": {JOB.key: replace(JOB, preempted_at=NOW - 5)}}, "is being preempted", "preempted"),
        ({"eta_at": NOW + 7_200}, {"jobs": {JOB.key: JOB}}, "its job ends before its target step", "time-limit"),
        ({"eta_at": NOW + 7_200, "queued_behind": 1}, {"jobs": {JOB.key: JOB}}, "", None),
        ({"eta_at": NOW + 600}, {"jobs": {JOB.key: JOB}}, "", None),
        ({}, {"jobs": {JOB.key: JOB}}, "", None),
        ({}, {"scheduler_nodes": {"n1": SchedulerNode(name="n1", cluster="prod", state="DOWN")}}, "n1 is down",
         "node-fail"),
        ({}, {"disks": {DISK.key: DISK}}, "", None),
        ({}, {"disks": {DISK.key: replace(DISK, usable_free_bytes=0)}}, "/fsx is almost full", "disk-full"),
        ({}, {"disks": {DISK.key: replace(DISK, full_at=NOW + 60)}}, "/fsx is almost full", "disk-full"),
        ({}, {"disks": {DISK.key: replace(DISK, full_at=NOW + 86_400)}}, "", None),
        ({}, {"disks": {DISK.key: replace(DISK, inodes_full_at=NOW + 60)}}, "/fsx has hardly any inodes left",
         "inodes-full"),
    ],
)  # fmt: skip
def test_the_first_danger_counts(run: dict[str, Any], state: dict[str, Any], what: str, cause: str | None) -> None:
    found = seen(replace(RUN, **run), **state)
    assert found is not None
    assert (found.what, None if found.cause is None else found.cause.cause) == (what, cause)
    assert found.since == (NOW - 300 if what == "hangs" else None)
    assert found.cause is None or found.cause.evidence


def test_of_a_run_whose_state_is_not_known_nothing_is_said() -> None:
    hangs = replace(ATTEMPT, outlook=seen(replace(RUN, verdict="hung")), outlook_at=NOW - 60)
    assert hangs.outlook is not None
    assert seen(replace(RUN, verdict="unknown"), hangs) is None
    assert seen(replace(RUN, verdict="queued")) is None


def test_nodes_and_disks_are_searched_once_in_ten_seconds() -> None:
    before = replace(ATTEMPT, outlook=Outlook(), outlook_at=NOW)
    assert seen(before=before, at=NOW + 3, nodes=node("lost")) == Outlook()
    assert seen(before=before, at=NOW + 10, nodes=node("lost")) != Outlook()
