"""Two trainers that write the same checkpoints are reported; an evaluator and a sweep are not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.runs.states import NOW, SPEC, checkpoints, found, job, state
from tests.trainmon.analysis.attempts.test_outlived import lost, survivor
from trainmon.alerting.rules.runs.attempts import SecondTrainer
from trainmon.analysis.runs import with_commits
from trainmon.model import Attempt, Checkpoint, Finding, Job, Progress, Run, RunMemory, RunSpec, State

STARTED = NOW - 3_600


def commit(step: int, ago: float, folder: str = "/fsx/ckpt") -> Checkpoint:
    return Checkpoint(step=step, state="superseded", path=f"{folder}/iter_{step}", layout="megatron", at=NOW - ago)


def listed(*seen: tuple[Checkpoint, ...]) -> RunMemory:
    """What a run remembers of these listings, one after the other."""
    memory = RunMemory()
    for one in seen:
        memory = with_commits(Run(spec=SPEC, memory=memory, checkpoints=checkpoints(*one)))
    return memory


FIRST, SECOND = job(88, started_at=STARTED - 9_000), job(90, started_at=STARTED)
OPEN = {f"prod/{number}": Attempt(attempt_id=f"prod/{number}", run_id="llm", cluster="prod") for number in (88, 90)}
MIXED = ((commit(1_200, 900),), (commit(1_200, 900), commit(1_000, 600)))
TWICE = (
    (commit(1_100, 900),),
    (commit(1_100, 600),),
    (commit(1_100, 600), commit(1_200, 300)),
    (commit(1_100, 600), commit(1_200, 60)),
)


def seen(*jobs: Job, memory: RunMemory, **more: Any) -> State:
    known: dict[str, Any] = {"memory": memory, "checkpoints": checkpoints(commit(1_200, 60))}
    return replace(state(*jobs, **known | more), attempts=OPEN)


def two(one: State) -> Finding | None:
    return found(SecondTrainer(), one)


@pytest.mark.parametrize("listings", [MIXED, TWICE], ids=["an older step", "the same steps again"])
def test_two_running_jobs_that_commit_into_one_directory_are_critical(listings: Any) -> None:
    finding = two(seen(SECOND, FIRST, memory=listed(*listings)))
    assert finding is not None
    assert (finding.severity, finding.summary) == (
        "critical", "llm: jobs 88 and 90 both commit steps to /fsx/ckpt",
    )  # fmt: skip


def test_two_jobs_of_one_run_are_found_although_its_log_goes_back_to_the_steps_of_the_second() -> None:
    mixed = ((commit(step, ago),) for step, ago in ((1_200, 900), (1_000, 800), (1_300, 700), (1_100, 600)))
    assert two(seen(SECOND, FIRST, memory=replace(listed(*mixed), back_at=NOW - 60))) is not None


@pytest.mark.parametrize("directory", ["/fsx/ckpt/", "/fsx//ckpt"])
def test_one_directory_may_be_written_in_two_ways(directory: str) -> None:
    one = seen(FIRST, memory=listed(*MIXED))
    other = replace(SECOND, name="copy", id="90")
    spec = RunSpec(name="copy", cluster="prod", checkpoints=directory)
    run = Run(spec=spec, jobs=(other.key,), progress=Progress(step=9, at=NOW - 9))
    one = replace(one, runs={**one.runs, "copy": run}, jobs={**one.jobs, other.key: other})
    assert two(one) is not None


@pytest.mark.parametrize(
    "one",
    [
        seen(SECOND, memory=listed(*MIXED)),
        seen(SECOND, FIRST, memory=listed((commit(1_000, 900),), (commit(1_000, 900), commit(1_100, 600)))),
        seen(SECOND, FIRST, memory=listed((commit(1_200, 9_000), commit(1_000, 8_000)))),
        seen(SECOND, FIRST, memory=replace(listed(*MIXED), back_at=NOW - 700)),
        seen(SECOND, FIRST, memory=replace(listed(*MIXED, (commit(1_100, 300),)), back_at=NOW - 700)),
        seen(SECOND, FIRST, memory=listed((commit(1_200, 900, "/fsx/ckpt/a"), commit(1_000, 600, "/fsx/ckpt/b")))),
        seen(SECOND, FIRST, memory=listed((commit(1_200, 900),), (commit(1_200, 902),), (commit(1_200, 898),))),
    ],
    ids=[
        "one job",
        "one trainer",
        "before both ran",
        "it went back",
        "it went back and on",
        "one directory per run",
        "the clock trembles",
    ],
)
def test_one_trainer_alone_is_not(one: State) -> None:
    assert two(one) is None


@pytest.mark.parametrize(("step_at", "is_second"), [(NOW - 9, True), (0.0, False)], ids=["it trains", "an evaluator"])
def test_a_job_of_another_run_with_the_directory_counts_if_it_trains(step_at: float, is_second: bool) -> None:
    one = seen(FIRST, memory=listed(*MIXED))
    other = replace(SECOND, name="eval", id="90")
    spec = RunSpec(name="eval", cluster="prod", checkpoints=SPEC.checkpoints)
    run = Run(spec=spec, jobs=(other.key,), progress=Progress(step=9, at=step_at))
    one = replace(one, runs={**one.runs, "eval": run}, jobs={**one.jobs, other.key: other})
    assert (two(one) is not None) is is_second


def test_a_trainer_that_outlived_its_job_is_critical_until_it_is_silent() -> None:
    story = survivor()
    finding = next(SecondTrainer().check(story.state, story.now))
    assert (finding.severity, finding.fires_at_once) == ("critical", True)
    assert (
        finding.summary == "llm: trainer outlived its job 88 (NODE_FAIL, 50s ago): it still writes on n1, last step 100"
    )
    assert not [*SecondTrainer().check(lost().state, story.now)]
    assert not [*SecondTrainer().check(story.log(110).log(2_000, mtime=story.now - 1_890).state, story.now)]


def test_while_nothing_of_it_is_read_it_is_not_known_to_be_silent() -> None:
    story = survivor()
    assert [*SecondTrainer().check(story.at(5_000).say().state, story.now)]
