"""Which faults of a node explain an end: those after which the run made no lasting progress."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, Story, ended
from tests.trainmon.ledger.records import action
from trainmon.model import ActionChanged, CauseName, NodeReading, Record, Xid
from trainmon.model.probe_wire import SwitchSample, SwitchSamples

DAY = 86_400.0
KEY_ERROR = ("Traceback (most recent call last):", '  File "/x/train.py", line 9, in <module>', "KeyError: 'x'")
NONFATAL = "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x00000004)"
FATAL = "RLW_RXPIPE Fatal XC0 i0 Link 13 (0x00000004)"


def xid(told: Story, seconds: float, code: int, text: str | None = None) -> Story:
    told.at(seconds)
    return told.say(NodeReading("n1", "prod", told.now, Xid(1, told.now, code, index=0, text=text, source="kernel")))


def cause_of(told: Story, seconds: float, saved_at: float = 20.0) -> CauseName:
    job = ended(JOB, seconds, "FAILED", "1:0")
    told.queue(seconds + 5, job).log(seconds + 6, *KEY_ERROR).checkpoints(seconds + 7, 10, since=saved_at)
    end = told.at(seconds + 60).say().attempt.end
    assert end is not None
    assert end.cause is not None
    return end.cause.cause


def begun() -> Story:
    return Story().gpus(-50).queue(10, JOB).steps(20, 1, 2)


@pytest.mark.parametrize(
    ("at", "last_step", "cause"),
    [
        (100.0, 90.0, "gpu-hardware"),
        (100.0, 110.0, "gpu-hardware"),  # a rank that was a step ahead, or clocks that differ
        (100.0, 2 * DAY, "python-exception"),
    ],
)
def test_a_fault_is_the_cause_only_if_the_run_made_no_lasting_progress_after_it(
    at: float, last_step: float, cause: CauseName
) -> None:
    told = xid(begun(), at, 79, "GPU has fallen off the bus.")
    assert cause_of(told.steps(last_step, 3), last_step + 10) == cause


@pytest.mark.parametrize("is_requeued", [True, False])
def test_a_fault_of_the_first_day_stays_one_though_the_next_attempt_trains_already(is_requeued: bool) -> None:
    path, end = "/fsx/llm.log", 2 * DAY
    told = Story(replace(SPEC, log=path)).gpus(-50).queue(10, JOB).steps(20, 1, 2, path=path)
    xid(told, 100.0, 79, "GPU has fallen off the bus.")
    for second in range(40):
        told.steps(end - 45 + second, 1_000 + second, path=path)
    told.log(end, *KEY_ERROR, path=path)
    for second in range(8):
        told.steps(end + 3 + second, 1_030 + second, path=path)
    again = replace(JOB, restarts=1, submitted_at=BEGIN + end + 0.5, started_at=BEGIN + end + 1)
    following = again if is_requeued else replace(again, id="89", number=89, restarts=0, submitted_at=BEGIN)
    listed = [following] if is_requeued else [ended(JOB, end, "FAILED", "1:0"), following]
    first, _ = told.queue(end + 12, *listed).queue(end + 75, *listed).at(end + 140).say().attempts
    assert first.end is not None
    assert first.end.cause is not None
    assert first.end.cause.cause == "python-exception"
    assert (first.first_step, first.last_step) == (1, 1_039)


def test_a_checkpoint_after_a_fault_is_progress_too() -> None:
    told = xid(begun(), 100.0, 79).checkpoints(DAY, 10, since=DAY - 8).queue(DAY + 1, JOB)
    assert cause_of(told, DAY + 30, saved_at=DAY - 8) == "python-exception"


@pytest.mark.parametrize("code", range(144, 151))
def test_a_fault_that_the_driver_calls_nonfatal_is_no_cause_and_no_danger(code: int) -> None:
    told = xid(begun(), 30.0, code, NONFATAL).queue(45, JOB)
    assert told.attempt.outlook is None or told.attempt.outlook.cause is None
    assert cause_of(told, 50) == "python-exception"
    assert cause_of(xid(begun(), 30.0, code, FATAL), 50) == "gpu-hardware"
    both = xid(xid(begun(), 30.0, code, FATAL), 40.0, code, NONFATAL)
    assert cause_of(both, 50) == "gpu-hardware"


@pytest.mark.parametrize(("text", "cause"), [(FATAL, "gpu-hardware"), (NONFATAL, "python-exception")])
@pytest.mark.parametrize("between", [0.5, 4.0])
def test_what_nvml_and_prometheus_report_without_a_text_is_the_fault_that_the_kernel_describes(
    text: str, cause: CauseName, between: float
) -> None:
    for texts in ((None, text), (text, None)):
        told = xid(xid(begun(), 30.0, 145, texts[0]), 30.0 + between, 145, texts[1])
        (fault,) = told.state.node_histories["n1"].faults
        assert (fault.text, fault.count) == (text, 1 if between < 1 else 2)
        assert cause_of(told, 50) == cause


@pytest.mark.parametrize("code", [*range(144, 151), 154])
def test_a_fault_that_only_its_text_makes_fatal_is_no_cause_without_one(code: int) -> None:
    assert cause_of(xid(begun(), 30.0, code), 50) == "python-exception"
    for broken in (74, 79, 94, 95):
        assert cause_of(xid(begun(), 30.0, broken), 50) == "gpu-hardware"


def test_a_recovery_that_needs_no_action_is_no_cause() -> None:
    told = xid(begun(), 30.0, 154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")
    assert cause_of(told, 50) == "python-exception"


@pytest.mark.parametrize(("done", "cause"), [(45.0, "kill-switch"), (-20.0, "completed"), (None, "completed")])
def test_a_kill_switch_that_trainmon_armed_is_the_cause_though_the_trainer_removed_it_at_once(
    done: float | None, cause: CauseName
) -> None:
    told = Story(replace(SPEC, kill_switch="/fsx/kill")).gpus(-50).queue(10, JOB).steps(20, 1, 180)
    there = SwitchSample("/fsx/kill", exists=False)
    told.at(25).say(NodeReading("login1", "prod", told.now, SwitchSamples(1, told.now, (there,))))
    if done is not None:
        told.say(ActionChanged(Record(action=action(verb="kill", run="llm"), status="done", done_at=BEGIN + done)))
    told.queue(55, ended(JOB, 50, "COMPLETED", "0:0")).log(56, "saved, exiting").checkpoints(57, 180, since=48)
    end = told.at(120).say().attempt.end
    assert end is not None
    assert end.cause is not None
    assert end.cause.cause == cause


def test_an_earlier_kill_does_not_hide_a_second_one() -> None:
    told = Story(replace(SPEC, kill_switch="/fsx/kill")).gpus(-50)

    def kill(seconds: float, name: str) -> None:
        killed = replace(action(verb="kill", run="llm"), id=name)
        told.say(ActionChanged(Record(action=killed, status="done", done_at=BEGIN + seconds)))

    def look(seconds: float, armed_at: float | None) -> None:
        there = SwitchSample("/fsx/kill", exists=armed_at is not None, mtime=armed_at and BEGIN + armed_at)
        told.at(seconds).say(NodeReading("login1", "prod", told.now, SwitchSamples(1, told.now, (there,))))

    told.queue(10, JOB).steps(20, 1, 180)
    look(25, None)
    kill(30, "first")
    look(31, 30)
    look(40, None)
    told.queue(55, ended(JOB, 41, "COMPLETED", "0:0")).log(56, "saved, exiting").checkpoints(57, 180, since=40)
    again = replace(JOB, id="89", number=89, submitted_at=BEGIN + 400, started_at=BEGIN + 500, stdout="/fsx/89.out")
    told.at(120).say().queue(510, again).steps(520, 181, path="/fsx/89.out")
    look(525, None)
    told.steps(4_590, 300, path="/fsx/89.out")
    kill(4_600, "second")  # it is taken before the next look
    told.queue(4_606, ended(again, 4_601, "COMPLETED", "0:0"))
    told.log(4_607, "saved, exiting", path="/fsx/89.out").checkpoints(4_608, 300, since=4_600).at(4_700).say()
    assert [one.end and one.end.cause and one.end.cause.cause for one in told.attempts] == ["kill-switch"] * 2
