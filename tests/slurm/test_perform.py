"""What the performer does to real arrays and heterogeneous jobs, and what it sees of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.daemons import until
from tests.lab.slurm import Slurm
from tests.slurm.polling import Polling
from trainmon.actions.execution.executor import Executor
from trainmon.actions.planning import Actor
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import Action, ActionChanged, ActionRequest, Event, Plan, Record, RunSpec
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell

GPUS = "--gres=gpu:8"


class Acting:
    """A performer on this machine, whose State is that of a watch of the lab."""

    def __init__(self, watch: Polling, shell: LocalShell) -> None:
        self.watch = watch
        self._events: list[Event] = []
        self._performer = Executor(
            lambda host: shell, lambda: watch.state, self._events.append, ledger=None, poll_soon=lambda cluster: None,
            clock=watch.clock, actor=Actor("ana", "laptop"),
        )  # fmt: skip

    def plan(self, verb: Any, *subjects: str, **fields: Any) -> Plan:
        self.watch.look()
        plans: list[Plan] = []
        self._performer.prepare(
            ActionRequest(verb=verb, subjects=subjects, requested_at=self.watch.clock.now(), **fields), plans.append
        )
        until(lambda: plans, "the plan has come")
        return plans[0]

    def do(self, verb: Any, *subjects: str, **fields: Any) -> Record:
        """Plan it and do it; what it came to."""
        plan = self.plan(verb, *subjects, **fields)
        assert plan.refusals == (), plan.refusals
        self._performer.act(plan.actions)
        for action in plan.actions:
            until(lambda action=action: self._told(action).status != "asked", f"it is told: {action.title}")
        self.take_in()
        return self._told(plan.actions[0])

    def _told(self, action: Action) -> Record:
        found = [event.record for event in self._events if isinstance(event, ActionChanged)]
        return [record for record in found if record.action.id == action.id][-1]

    def take_in(self) -> None:
        self.watch.state = reduce(self.watch.state, list(self._events), self.watch.clock.now())

    def settled(self, record: Record) -> Record:
        """The record once nothing more is to be expected."""
        self.watch.until(lambda: not self.watch.state.actions[record.action.id].is_open, f"over: {record.action.title}")
        return self.watch.state.actions[record.action.id]

    def stop(self) -> None:
        self._performer.stop()


@pytest.fixture
def acting(watching: Callable[..., Polling], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Acting]:
    monkeypatch.setenv("HOME", str(tmp_path))  # a login shell reads no profile of a developer
    script = tmp_path / "train.slurm"
    script.write_text("#!/bin/sh\n#SBATCH -J arr\nsleep 600\n")
    loop = EventLoop()
    loop.start()
    shell = LocalShell(loop)
    made = Acting(watching(runs=[RunSpec(name="arr", cluster="lab", job="arr", script=str(script))]), shell)
    yield made
    made.stop()
    shell.close()
    loop.stop()


def start(slurm: Slurm, acting: Acting) -> str:
    """An array whose first element runs; the number of the array."""
    job_id = slurm.submit("sleep 600", "--array=1-4%1", "-J", "arr", "-N2", GPUS)
    acting.watch.until(
        lambda: f"lab/{job_id}_1" in acting.watch.state.jobs and acting.watch.job(f"{job_id}_1").stage == "running",
        "the first runs",
    )
    return job_id


def marks(record: Record) -> list[tuple[str, bool]]:
    return [(mark.name, mark.at is not None) for mark in record.marks]


def test_the_elements_that_wait_are_held_released_kept_off_a_node_and_cancelled(slurm: Slurm, acting: Acting) -> None:
    job_id = start(slurm, acting)
    rest = f"lab/{job_id}_[]"

    held = acting.settled(acting.do("hold", "arr"))
    assert (held.action.job, marks(held)) == (rest, [("it is held", True)])
    assert acting.watch.state.jobs[rest].priority == 0
    assert acting.watch.job(f"{job_id}_1").stage == "running"
    assert acting.plan("hold", rest).refusals[0].why == f"job {job_id}_[2-4%1] is held already"

    released = acting.settled(acting.do("release", "arr"))
    assert marks(released) == [("it is released", True)]

    kept = acting.settled(acting.do("exclude", "gpu-1", run="arr"))
    assert (kept.action.job, marks(kept)) == (rest, [("the job excludes the node", True)])
    acting.settled(acting.do("exclude", "gpu-2", run="arr"))
    assert "ExcNodeList=gpu-1,gpu-2" in slurm.ask("scontrol", "show", "job", "-o", job_id)

    plan = acting.plan("cancel", rest)
    assert plan.typed == f"{job_id}_[2-4%1]"
    cancelled = acting.settled(acting.do("cancel", rest))
    assert marks(cancelled) == [("it has ended", True)]
    assert slurm.state(f"{job_id}_1") == "RUNNING"


def test_an_element_that_runs_is_requeued_alone(slurm: Slurm, acting: Acting) -> None:
    job_id = start(slurm, acting)
    record = acting.do("requeue", "arr")
    assert (record.status, record.action.expected.id) == ("done", f"{job_id}_1")
    acting.watch.until(lambda: marks(acting.watch.state.actions[record.action.id])[0][1], "it is pending again")
    slurm.wait_for_state(f"{job_id}_2", "RUNNING")
    assert slurm.job(f"{job_id}_1")["Restarts"] == "1"
    assert acting.plan("requeue", f"lab/{job_id}_1").refusals[0].why.startswith(f"job {job_id}_1 is already pending: ")


def test_another_is_queued_behind_the_whole_array(slurm: Slurm, acting: Acting) -> None:
    job_id = start(slurm, acting)
    record = acting.settled(acting.do("queue", "arr", count=2))
    assert marks(record) == [("it is in the queue", True)]
    new = acting.watch.state.jobs[f"lab/{record.made}_[]"]
    assert new.elements == 2
    assert new.dependency is not None
    assert job_id in new.dependency
    again = acting.do("queue", "arr")
    assert str(record.made) in (acting.watch.look().jobs[f"lab/{again.made}_[]"].dependency or "")


def test_a_signal_to_an_element_finds_its_steps(slurm: Slurm, acting: Acting) -> None:
    job_id = slurm.submit("srun sleep 600", "--array=1-2%1", "-J", "arr", "-N2", GPUS)
    until(lambda: f"{job_id}_1.0" in slurm.squeue("--steps", "-h", "-o", "%i"), "its step runs")
    plan = acting.plan("signal", "arr")
    assert dict(plan.actions[0].facts)["receivers"] == "the tasks of its step 0, not the batch shell"
    alone = slurm.submit("sleep 600", "-J", "plain", GPUS)
    slurm.wait_for_state(alone, "RUNNING")
    plan = acting.plan("signal", f"lab/{alone}")
    assert dict(plan.actions[0].facts)["receivers"] == "only the batch shell: the job has no steps (no srun)"


def test_an_array_that_moved_on_since_its_plan_is_left_alone(slurm: Slurm, acting: Acting) -> None:
    job_id = start(slurm, acting)
    plan = acting.plan("cancel", f"lab/{job_id}_[]")
    slurm.ask("scancel", f"{job_id}_1")
    slurm.wait_for_state(f"{job_id}_2", "RUNNING")
    acting._performer.act(plan.actions)
    until(lambda: acting._told(plan.actions[0]).status != "asked", "it is told")
    assert acting._told(plan.actions[0]).outcome.startswith(f"{job_id}_[2-4%1] has become {job_id}_[3-4%1] meanwhile")
    assert slurm.state(f"{job_id}_2") == "RUNNING"


HETEROGENEOUS = """\
#!/bin/bash
#SBATCH -J arr -N1 --gres=gpu:1 {options}
#SBATCH hetjob
#SBATCH -N1 --gres=gpu:1 --exclude=gpu-3
{command}
"""


def submit_heterogeneous(slurm: Slurm, command: str, options: str = "") -> str:
    return slurm.submit(HETEROGENEOUS.format(options=options, command=command))


def test_a_heterogeneous_job_is_signalled_requeued_and_cancelled_as_a_whole(slurm: Slurm, acting: Acting) -> None:
    trap = "trap 'echo caught' USR1; while true; do sleep 0.2; done"
    job_id = submit_heterogeneous(slurm, f'srun --het-group=1 bash -c "{trap}"')
    second = str(int(job_id) + 1)
    until(lambda: f"{second}.0" in slurm.squeue("--steps", "-h", "-o", "%i"), "the second component's step runs")
    job = acting.watch.look().jobs[f"lab/{job_id}"]
    assert (job.components, len(job.nodes)) == ((int(job_id), int(second)), 2)
    assert len([key for key, one in acting.watch.state.jobs.items() if one.stage == "running"]) == 1

    plan = acting.plan("signal", "arr")
    assert dict(plan.actions[0].facts)["receivers"] == "the tasks of its step 0, not the batch shell"
    assert acting.do("signal", "arr").status == "done"
    until(lambda: "caught" in slurm.log(job_id).read_text(), "the trainer of the second component has caught it")

    assert acting.do("requeue", f"lab/{job_id}").status == "done"
    until(lambda: slurm.state(job_id) == slurm.state(second) == "PENDING", "both wait again")
    cancelled = acting.settled(acting.do("cancel", f"lab/{job_id}"))
    assert marks(cancelled) == [("it has ended", True)]
    assert slurm.state(job_id) == slurm.state(second) == "CANCELLED"


def test_a_heterogeneous_job_that_waits_is_held_kept_off_a_node_and_followed_by_another(
    slurm: Slurm, acting: Acting, tmp_path: Path
) -> None:
    job_id = submit_heterogeneous(slurm, "sleep 600", "--begin=now+1hour")
    parts = (f"{job_id}+0", f"{job_id}+1")
    held = acting.settled(acting.do("hold", "arr"))
    assert marks(held) == [("it is held", True)]
    assert [slurm.job(part)["Priority"] for part in parts] == ["0", "0"]
    slurm.scontrol("release", parts[0])  # by hand, and only half of it
    assert acting.plan("release", "arr").refusals == (), "one component is held: none of it can start"
    acting.settled(acting.do("release", "arr"))
    assert "0" not in [slurm.job(part)["Priority"] for part in parts]

    kept = acting.settled(acting.do("exclude", "gpu-3", run="arr"))
    assert dict(kept.action.facts)["already excluded"] == "gpu-3"
    assert marks(kept) == [("the job excludes the node", True)]
    assert [slurm.job(part)["ExcNodeList"] for part in parts] == ["gpu-3", "gpu-3"]

    (tmp_path / "train.slurm").write_text(HETEROGENEOUS.format(options="", command="sleep 600"))
    assert "no array" in acting.plan("queue", "arr", count=2).refusals[0].why
    made = acting.settled(acting.do("queue", "arr")).made
    assert made is not None
    assert acting.watch.look().jobs[f"lab/{made}"].dependency == f"afterany:{job_id}(unfulfilled)"
