"""The plan of a signal."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import (
    DONE,
    NOW,
    RUN,
    RUNNING,
    USR1,
    WAITING,
    node,
    only,
    planned,
    readback,
    refused,
    state,
)
from trainmon.model import Execute, Plan, State, Trainer

STEPS = {"prod/88_3": ("extern", "batch", "0")}


def signalled(*, of: State | None = None, steps: Any = STEPS, **fields: Any) -> Plan:
    return planned("signal", of=of, seen=readback(RUNNING, steps=steps), **fields)


def with_masks(*masks: int | None) -> State:
    return state(nodes={f"n{1 + i}": node(f"n{1 + i}", caught=mask) for i, mask in enumerate(masks)})


def test_a_job_with_steps_gets_it_in_its_steps() -> None:
    plan = signalled()
    action = only(plan)
    assert action.operation == Execute(("scancel", "--signal=USR1", "88_3"))
    assert ("receivers", "the tasks of its step 0, not the batch shell") in action.facts
    assert ("caught", "by 16 of 16 GPU processes") in action.facts
    assert (plan.typed, action.warnings) == (None, ())
    assert action.consequences == (
        "A trainer that catches USR1 writes an emergency checkpoint at its next iteration "
        "(a save usually takes about 90s); many then exit.",
        "trainmon-tui then reports when a new checkpoint is committed.",
    )


def test_a_job_without_steps_gets_it_in_its_batch_shell() -> None:
    for steps in ({}, {"prod/88_3": ("batch", "extern")}):
        action = only(signalled(steps=steps))
        assert action.operation == Execute(("scancel", "--signal=USR1", "--batch", "88_3"))
        assert ("receivers", "only the batch shell: the job has no steps (no srun)") in action.facts
        assert "must trap USR1 and forward it" in action.consequences[-1]
        assert ("caught", "by 16 of 16 GPU processes") in action.facts


def test_a_signal_that_nobody_catches_kills_and_must_be_typed() -> None:
    plan = signalled(of=with_masks(0, 0))
    assert (plan.typed, plan.because) == ("88_3", "USR1 ends 16 of 16 GPU processes of job 88_3")
    assert only(plan).consequences[:2] == (
        "No process catches USR1: the signal kills them. Nothing is saved.",
        "880 steps (59m of training) since the last checkpoint are lost.",
    )


def test_a_signal_that_some_do_not_catch_must_be_typed_too() -> None:
    plan = signalled(of=with_masks(USR1, 0))
    assert (plan.typed, plan.because) == ("88_3", "USR1 ends 8 of 16 GPU processes of job 88_3")
    assert only(plan).warnings == ("USR1 ends 8 of 16 GPU processes of job 88_3.",)


UNKNOWN = "it is not known whether its step catches USR1: an uncaught signal kills"


def test_masks_that_are_not_known_are_reported_as_unknown() -> None:
    for of in (with_masks(None, None), state(nodes={})):
        plan = signalled(of=of)
        assert (plan.typed, plan.because) == ("88_3", UNKNOWN)
        assert only(plan).warnings == (f"I{UNKNOWN[1:]}.",)
    assert signalled(of=with_masks(USR1, None)).because == UNKNOWN


def test_a_launcher_or_a_shell_receives_the_signal_and_not_what_it_has_started() -> None:
    started = {name: node(name, are_tasks=False) for name in ("n1", "n2")}
    for steps in (STEPS, {}):
        plan = signalled(of=state(nodes=started), steps=steps)
        assert plan.typed == "88_3"
        assert "it is not known whether" in plan.because


def test_a_trainer_that_reports_the_signal_needs_no_typed_id_if_slurm_has_started_it() -> None:
    trainer = Trainer(
        path="/fsx/status", host="n1", phase="training", at=NOW - 1, signals={"SIGUSR1": "save"}, is_task=True
    )
    of = state(run=replace(RUN, trainer=trainer), nodes={})
    assert signalled(of=of).typed is None
    assert signalled(of=of, signal="USR2").typed == "88_3"
    wrapped = replace(of, runs={"llm": replace(of.runs["llm"], trainer=replace(trainer, is_task=False))})
    assert signalled(of=wrapped).because == UNKNOWN, "the shell above it may have no trap"


@pytest.mark.parametrize(
    ("script", "masks", "because"),
    [
        ("trap 'kill -USR1 $pid' USR1\npython t.py & pid=$!; wait", (USR1, USR1), ""),
        ("trap 'kill -USR1 $pid' SIGUSR1 TERM\npython t.py & wait", (None, None), ""),
        ("exec python t.py", (USR1, USR1), ""),
        (
            "exec python t.py",
            (None, USR1),
            "it is not known whether the batch script catches USR1: an uncaught signal kills",
        ),
        ("exec python t.py", (0, USR1), "USR1 ends 8 of 16 GPU processes of job 88_3"),
        ("python t.py", (USR1, USR1), "USR1 ends the batch shell of job 88_3: its script has no trap"),
        ("trap 'x' TERM\npython t.py", (None, None), "USR1 ends the batch shell of job 88_3: its script has no trap"),
        ("# trap 'x' USR1\npython t.py", (None, None), "USR1 ends the batch shell of job 88_3: its script has no trap"),
        ("trap - USR1\npython t.py", (None, None), "USR1 ends the batch shell of job 88_3: its script has no trap"),
        (
            "trap 'x' USR1\nsleep 9\ntrap - USR1\npython t.py",
            (None,),
            "USR1 ends the batch shell of job 88_3: its script has no trap",
        ),
        ("trap -p USR1\npython t.py", (None,), "USR1 ends the batch shell of job 88_3: its script has no trap"),
        ("trap - USR1\ntrap 'x' USR1\npython t.py & wait", (None,), ""),
        (None, (None,), "it is not known whether the batch script catches USR1: an uncaught signal kills"),
    ],
)
def test_without_steps_the_batch_script_must_be_known_to_catch_it(
    script: str | None, masks: tuple[int | None, ...], because: str
) -> None:
    scripts = {} if script is None else {"prod/88_3": f"#!/bin/bash\n{script}\n"}
    plan = planned("signal", of=with_masks(*masks), seen=readback(RUNNING, steps={}, scripts=scripts))
    assert (plan.typed, plan.because) == ("88_3" if because else None, because)
    assert ("no trap" in " ".join(only(plan).warnings)) == ("no trap" in because)


def test_a_batch_script_in_python_is_the_trainer_itself() -> None:
    scripts = {"prod/88_3": "#!/usr/bin/env python\nimport torch\n"}
    assert planned("signal", seen=readback(RUNNING, steps={}, scripts=scripts)).typed is None
    unknown = planned("signal", of=with_masks(None), seen=readback(RUNNING, steps={}, scripts=scripts))
    assert unknown.typed == "88_3"


def test_processes_of_others_on_the_same_gpus_do_not_count() -> None:
    other = replace(RUNNING, user="ben")
    plan = planned("signal", of=state(other, nodes={"n1": node("n1", caught=0)}), seen=readback(other, steps=STEPS))
    assert plan.because == "job 88_3 is ben's", "and not that it ends processes"


@pytest.mark.parametrize(("name", "mask"), [("TERM", 1 << 14), ("sigusr2", 1 << 11), ("HUP", 1), ("INT", 2)])
def test_the_bit_of_the_signal_counts(name: str, mask: int) -> None:
    assert signalled(of=with_masks(mask, mask), signal=name).typed is None
    assert signalled(of=with_masks(~mask & 0xFFFF, 0), signal=name).typed == "88_3"


@pytest.mark.parametrize("name", ["KILL", "STOP", "USR3", "9", "", "--batch"])
def test_a_signal_that_no_trainer_catches_is_refused(name: str) -> None:
    one = refused(signalled(signal=name))
    assert one.why == f"{name} is not a signal that a trainer can catch"
    assert one.hint == "one of HUP, INT, QUIT, USR1, USR2, TERM; C cancels the job"


def test_only_a_running_job_gets_a_signal() -> None:
    assert refused(planned("signal", of=state(WAITING))).why.startswith(
        "job 88_[4-10%1] is pending: it has no processes yet"
    )
    assert refused(planned("signal", of=state(DONE))).why == "job 80 has ended: exited with code 1"


def test_steps_that_could_not_be_read_are_no_reason_to_guess() -> None:
    seen = readback(RUNNING, errors={"prod/88_3": "login: squeue did not answer in 8s"})
    assert "did not answer" in refused(planned("signal", seen=seen)).why
