"""What is known of the end of an attempt besides its log: its nodes in Slurm, and its kill switch."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, DIED, FAILED, JOB, SPEC, Story, ended
from trainmon.model import CauseName, Classification, NodeReading, SchedulerNode, SchedulerNodesListed
from trainmon.model.probe_wire import SwitchSample, SwitchSamples


def cause_of(story: Story) -> Classification:
    end = story.attempt.end
    assert end is not None
    assert end.cause is not None
    return end.cause


def test_the_evidence_of_a_failed_node_says_how_slurm_lists_it() -> None:
    job = replace(JOB, nodes=("n1", "n2"))
    told = Story().queue(10, job).steps(20, 1, 2).checkpoints(25, 1)
    down = SchedulerNode(
        name="n2", cluster="prod", state="DOWN", flags=("NOT_RESPONDING",), reason="Not responding", reason_by="root"
    )
    healthy = SchedulerNode(name="n1", cluster="prod", state="IDLE")
    told.at(55).say(SchedulerNodesListed("prod", told.now, (healthy, down)))
    told.queue(55, ended(job, 50, "NODE_FAIL")).log(56).checkpoints(57, 1, since=17)
    facts = [found.text for found in cause_of(told).evidence if found.line is None]
    assert facts == ["Slurm: NODE_FAIL", "n2: DOWN+NOT_RESPONDING in Slurm (Not responding)"]


@pytest.mark.parametrize(("armed", "cause"), [(40, "kill-switch"), (51, "kill-switch"), (60, "cuda-oom")])
def test_a_kill_switch_that_is_armed_after_the_end_is_not_its_cause(armed: float, cause: CauseName) -> None:
    """Who is woken by the end arms it, so that nothing is requeued."""
    told = Story(replace(SPEC, kill_switch="/fsx/kill")).gpus(-50).queue(10, JOB).steps(20, 1, 2)
    switch = SwitchSample("/fsx/kill", exists=True, mtime=BEGIN + armed)
    told.at(61).say(NodeReading("login1", "prod", told.now, SwitchSamples(1, told.now, (switch,))))
    assert cause_of(told.queue(62, FAILED).log(63, *DIED).checkpoints(64, 10)).cause == cause


def switched(told: Story, now: float, armed: float | None) -> Story:
    """What the login host reads of the kill switch: when it was armed, or that it is not there."""
    mtime = None if armed is None else BEGIN + armed
    switch = SwitchSample("/fsx/kill", exists=armed is not None, mtime=mtime)
    return told.at(now).say(NodeReading("login1", "prod", told.now, SwitchSamples(1, told.now, (switch,))))


def under_a_switch(armed: float, gone: float, last_step: float) -> Story:
    """An attempt that ran out of memory at 50, with a kill switch that was there for some time."""
    told = Story(replace(SPEC, kill_switch="/fsx/kill")).gpus(-50).queue(10, JOB).steps(20, 1, 2)
    for at, what in sorted([(armed + 1, "armed"), (gone, "gone"), (last_step, "step"), (53, "log")]):
        match what:
            case "armed":
                switched(told, at, armed)
            case "gone":
                switched(told, at, None)
            case "step":
                told.steps(at, 3)
            case _:
                told.queue(at, FAILED).log(at, *DIED)
    return told.checkpoints(70, 10)


@pytest.mark.parametrize(
    ("armed", "gone", "last_step", "cause"),
    [
        (52, 54, 44, "kill-switch"),  # the clocks of two hosts
        (57, 60, 44, "cuda-oom"),  # who was woken by the end armed it, and started the run again
        (40, 60, 44, "kill-switch"),  # it was removed before the run was started again
        (40, 48, 44, "cuda-oom"),  # somebody removed it before the error, or the last save has failed
        (30, 38, 48, "cuda-oom"),  # somebody removed it, and the training went on
    ],
)
def test_a_kill_switch_that_is_gone_counts_if_it_was_armed_while_the_attempt_obeyed(
    armed: float, gone: float, last_step: float, cause: CauseName
) -> None:
    assert cause_of(under_a_switch(armed, gone, last_step)).cause == cause


def test_a_kill_switch_that_the_trainer_did_not_read_for_an_hour_is_not_the_cause() -> None:
    told = Story(replace(SPEC, kill_switch="/fsx/kill")).gpus(-50).queue(10, JOB).steps(20, 1, 2)
    switched(told, 31, 30)
    for step, at in enumerate(range(60, 3_660, 60), start=3):
        told.steps(at, step)
    late = ended(JOB, 3_650, "FAILED", "1:0")
    assert cause_of(told.queue(3_662, late).log(3_663, *DIED).checkpoints(3_664, 10)).cause == "cuda-oom"
