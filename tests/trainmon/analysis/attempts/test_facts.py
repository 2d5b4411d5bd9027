"""What is known of the end of an attempt besides its log: its nodes in Slurm, and its kill switch."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, DIED, FAILED, JOB, SPEC, Story, ended
from trainmon.model import CauseName, Classification, NodeReading, SchedulerNode, SchedulerNodesListed
from trainmon.model.probe_wire.files import SwitchSample, SwitchSamples


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
