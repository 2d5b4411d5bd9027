"""Whatever comes first, and however often: the attempts are the same."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, DIED, FAILED, JOB, SPEC, STEP, Story, ended, trained
from trainmon.analysis.attempts import ORDER, merged, with_stored
from trainmon.analysis.attempts.fold import adds_nothing, joined, with_named
from trainmon.model import (
    Attempt,
    AttemptEnd,
    AttemptFile,
    AttemptsRestored,
    CauseName,
    Classification,
    ClustersChanged,
    EndSource,
    Event,
    JobChanged,
    JobsAccounted,
    Outlook,
    RunsChanged,
    Settings,
)

AGAIN = replace(JOB, submitted_at=BEGIN + 50, started_at=BEGIN + 60, restarts=1)
LAST = ended(AGAIN, 90, "OUT_OF_MEMORY", "0:9")
NEXT = replace(JOB, id="89", number=89, submitted_at=BEGIN + 70, started_at=BEGIN + 100)

optional_int = st.none() | st.integers(0, 50)
times = st.none() | st.integers(0, 50).map(float)
texts = st.none() | st.sampled_from(["a", "b", "c"])
causes = st.none() | st.sampled_from(["cuda-oom", "unknown", "host-oom"]).map(
    lambda cause: Classification(
        cause=cause,  # type: ignore[arg-type]
        family="resources",
        retry="never",
        confidence="low",
        fingerprint=cause,
    )
)
reports = st.builds(
    AttemptEnd,
    at=st.integers(0, 50).map(float),
    source=st.sampled_from(["lost", "queue", "accounting"]),
    noticed_at=st.integers(0, 50).map(float),
    exit_code=optional_int,
    scheduler_state=texts,
    cause=causes,
    judged=st.sampled_from([(), (0, 0, 0, 9, -1), (1, 0, 0, 9, -1)]),
    signal=optional_int,
    receipt=texts,
    receipts=st.integers(0, 3),
    cut_receipt=texts,
    has_own_tail=st.booleans(),
    log_tail=texts,
    awaits_log=st.booleans(),
)
ends = st.none() | reports
files = st.builds(
    AttemptFile,
    path=st.sampled_from(["/a", "/b"]),
    read_at=st.integers(0, 5).map(float),
    sha256=st.sampled_from(["1" * 64, "2" * 64]),
) | st.builds(AttemptFile, path=st.just("/a"), read_at=st.integers(0, 5).map(float), error=st.just("no permission"))
seen = st.builds(
    Attempt,
    attempt_id=st.just("prod/88"),
    run_id=st.just("llm"),
    cluster=st.just("prod"),
    labels=st.dictionaries(st.sampled_from("xy"), st.sampled_from("12")),
    started_at=times,
    submitted_at=times,
    target_step=optional_int,
    model_family=texts,
    wandb_id=texts,
    first_step=optional_int,
    first_step_at=times,
    last_step=optional_int,
    resumed_from=optional_int,
    resumed_words=texts,
    last_committed_step=optional_int,
    last_committed_at=times,
    log_host=texts,
    log_path=texts,
    log_offset=optional_int,
    receipt=texts,
    counts_steps=st.none() | st.booleans(),
    has_checkpoints=st.booleans(),
    settled=st.none() | st.tuples(st.booleans(), st.integers(0, 5).map(float)),
    start_was_watched=st.booleans(),
    seen_at=st.integers(0, 50).map(float),
    nodes=st.lists(st.sampled_from(["n1", "n2"])).map(tuple),
    git_commit=texts,
    data_manifest=texts,
    config_hash=texts,
    named=st.dictionaries(
        st.sampled_from(list(ORDER)),
        st.dictionaries(st.sampled_from(["config", "environment", "command", "wandb"]), st.sampled_from("xyz")),
    ),
    files=st.dictionaries(st.sampled_from(["config_path", "data_manifest"]), files),
    end=ends,
    reported_end=ends,
    retry_decision=st.none() | st.sampled_from(["now", "after-change"]),
    budget_spent=optional_int,
)


@given(seen, seen, seen)
def test_two_observations_make_the_same_attempt_in_any_order_and_number(a: Attempt, b: Attempt, c: Attempt) -> None:
    assert merged(a, a) == a
    assert merged(a, b) == merged(b, a)
    assert merged(merged(a, b), c) == merged(a, merged(b, c))
    assert merged(merged(a, b), b) == merged(a, b)


def test_of_two_values_of_the_same_source_the_newer_one_counts_and_none_is_lost() -> None:
    def seen(at: float, **more: Any) -> Attempt:
        return Attempt(attempt_id="prod/88", run_id="llm", cluster="prod", seen_at=at, **more)

    parts = (
        seen(10.0, target_step=5_000, labels={"team": "z", "x": "y"}, wandb_id="t/p/z", log_path="/z", log_host="n1"),
        seen(20.0, target_step=4_000, labels={"team": "a"}, log_path="/a", log_host="n1", last_step=7),
        seen(30.0, log_path="/job.out", last_step=3),
        with_named(seen(15.0), "wandb", {"data_manifest": "z1"}),
        with_named(seen(25.0), "wandb", {"data_manifest": "b2"}),
    )
    for some in itertools.permutations(parts):
        one = functools.reduce(merged, some)
        assert (one.target_step, one.labels, one.wandb_id) == (4_000, {"team": "a"}, "t/p/z")
        assert (one.data_manifest, one.log_path, one.log_host, one.last_step) == ("b2", "/a", "n1", 7)


KEPT: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"submitted_at": 5.0}, {"submitted_at": 8.0}),
    ({"started_at": 8.0}, {"started_at": 5.0, "start_is_estimated": True}),
    ({"first_step_at": 5.0, "first_step": 3}, {"first_step_at": 8.0, "first_step": 2}),
    ({"resumed_from": 2, "resumed_words": "b"}, {"resumed_from": 17, "resumed_words": "a"}),
    ({"last_step": 30}, {"last_step": 20}),
    ({"unrecognised_at": 8.0}, {"unrecognised_at": 5.0}),
    ({"nodes": ("n1", "n2")}, {"nodes": ("n3",)}),
    ({"start_was_watched": True}, {"start_was_watched": False}),
    ({"named": {"git_commit": {"receipt": "a1"}}, "git_commit": "a1"}, {"git_commit": None}),
    ({"log_path": "/z", "log_host": "n1", "log_offset": 7}, {"log_path": "/job.out"}),
]
CORRECTED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"run_id": "z"}, {"run_id": "a"}),
    ({"model_family": "z"}, {"model_family": "a"}),
    ({"labels": {"x": "2", "y": "2"}}, {"labels": {"x": "1"}}),
    ({"target_step": 9}, {"target_step": 3}),
    ({"wandb_id": "z"}, {"wandb_id": "a"}),
    ({"evaluators": {"x": "2", "y": "2"}}, {"evaluators": {"x": "1"}}),
    ({"settings": Settings(values={"x": "2", "y": "2"})}, {"settings": Settings(values={"x": "1"})}),
    ({"counts_steps": True}, {"counts_steps": False}),
    ({"receipt": "z"}, {"receipt": "a"}),
    ({"log_path": "/z", "log_host": "n1", "log_offset": 7}, {"log_path": "/a", "log_host": "n1"}),
    ({"last_committed_step": 20, "last_committed_at": 5.0}, {"last_committed_step": 10, "last_committed_at": 8.0}),
    ({"outlook": Outlook(what="hangs"), "outlook_at": 5.0}, {"outlook": Outlook(), "outlook_at": 8.0}),
]


@pytest.mark.parametrize(
    ("earlier", "later", "counts"),
    [*((*pair, 0) for pair in KEPT), *((*pair, 1) for pair in CORRECTED)],
    ids=[next(iter(pair[0])) for pair in (*KEPT, *CORRECTED)],
)
def test_which_of_two_values_counts(earlier: dict[str, Any], later: dict[str, Any], counts: int) -> None:
    """Some values are facts that a later observation only knows worse, others are corrected by it."""
    plain = {"attempt_id": "prod/88", "run_id": "llm", "cluster": "prod"}
    first, second = (Attempt(**plain | found, seen_at=at) for found, at in ((earlier, 10.0), (later, 20.0)))
    for both in (merged(first, second), merged(second, first)):
        assert {name: getattr(both, name) for name in earlier | later} == {
            name: getattr((first, second)[counts], name) for name in earlier | later
        }


@pytest.mark.parametrize(("one", "other", "both"), [
    ({"exit_code": 9, "source": "accounting"}, {"exit_code": 137}, {"exit_code": 137, "source": "accounting"}),
    ({"source": "accounting"}, {"signal": 15}, {"signal": 15, "source": "accounting"}),
    ({"source": "accounting", "was_watched": False}, {}, {"was_watched": True}),
    ({"source": "accounting"}, {"cut_receipt": "r"}, {"cut_receipt": "r"}),
    ({"exit_code": 9, "signal": 9}, {"exit_code": 1, "receipt": "r", "receipts": 1}, {"exit_code": 1, "signal": None}),
    ({"receipt": "z", "receipts": 1}, {"receipt": "a", "receipts": 2}, {"receipt": "a", "receipts": 2}),
    ({"source": "accounting", "awaits_log": True}, {"log_tail": "x"}, {"source": "queue", "log_tail": "x"}),
    ({"log_tail": "long"}, {"log_tail": "x", "has_own_tail": True}, {"log_tail": "x", "has_own_tail": True}),
    ({"at": 40.0, "noticed_at": 80.0}, {"at": 50.0}, {"at": 50.0, "noticed_at": 60.0}),
])  # fmt: skip
def test_what_two_reports_of_one_end_show_together(
    one: dict[str, Any], other: dict[str, Any], both: dict[str, Any]
) -> None:
    plain = {"at": 50.0, "source": "queue", "noticed_at": 60.0}
    first, second = (AttemptEnd(**plain | found) for found in (one, other))
    for end in (joined(first, second), joined(second, first)):
        assert {name: getattr(end, name) for name in both} == both


@given(reports, reports)
def test_a_report_adds_nothing_if_both_together_say_what_is_known(known: AttemptEnd, found: AttemptEnd) -> None:
    assume(found.receipts != known.receipts or not known.receipts)  # as many receipts say the same
    both = joined(known, replace(found, awaits_log=known.awaits_log))
    said = [(one.source, one.exit_code, one.signal, one.receipts, one.cut_receipt is None) for one in (both, known)]
    assert adds_nothing(found, known) is (said[0] == said[1])


def test_of_two_causes_of_one_end_the_one_that_was_determined_knowing_more_counts() -> None:
    """Two programs have closed the attempt, or one of them before it knew the exit code. An older version did not write
    down what it knew."""

    def closed(cause: CauseName, *judged: int, source: EndSource = "queue") -> Attempt:
        why = Classification(cause=cause, family="unknown", retry="now", confidence="low", fingerprint="")
        end = AttemptEnd(at=50.0, source=source, noticed_at=60.0, cause=why, judged=judged)
        return Attempt(attempt_id="prod/88", run_id="llm", cluster="prod", seen_at=50.0, end=end)

    old, plain = closed("completed"), closed("unknown", 0, 0, 0, -1, -1)
    coded, received = closed("segfault", 0, 0, 0, 139, -1), closed("no-restart", 1, 0, 0, 93, -1)
    accounted = closed("node-fail", 0, 0, 0, -1, -1, source="accounting")
    for count, better in enumerate((plain, coded, received, accounted), start=1):
        for parts in itertools.permutations((old, plain, coded, received, accounted)[: count + 1]):
            assert functools.reduce(merged, parts) == better


def test_of_several_names_the_config_counts_then_the_environment_then_wandb() -> None:
    attempt = Attempt(attempt_id="prod/88", run_id="llm", cluster="prod")
    wandb = with_named(attempt, "wandb", {"data_manifest": "z9", "container": "z.sif"})
    process = with_named(attempt, "environment", {"data_manifest": "m5", "container": "m.sif"})
    config = with_named(attempt, "config", {"data_manifest": "a1"})
    for parts in itertools.permutations((wandb, process, config)):
        both = functools.reduce(merged, parts)
        assert (both.data_manifest, both.container) == ("a1", "m.sif")
    assert merged(wandb, process).data_manifest == "m5"


def test_the_first_reading_of_a_file_counts_and_a_file_that_was_read_more_than_its_path() -> None:
    attempt = with_named(Attempt(attempt_id="prod/88", run_id="llm", cluster="prod"), "config", {"data_manifest": "/m"})

    def read(at: float, digit: str) -> Attempt:
        file = AttemptFile(path="/m", read_at=at, sha256=digit * 64)
        return replace(attempt, files={"data_manifest": file})

    failed = replace(attempt, files={"data_manifest": AttemptFile(path="/m", read_at=0.0, error="no permission")})
    for parts in itertools.permutations((attempt, failed, read(10.0, "2"), read(20.0, "1"))):
        assert functools.reduce(merged, parts).data_manifest == "/m sha256:222222222222"
    assert merged(attempt, failed).data_manifest is None


@given(st.lists(seen, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_a_closed_attempt_never_opens_again(observations: list[Attempt], chance: random.Random) -> None:
    found: dict[str, Attempt] = {}
    was_closed = False
    for one in observations * 2:
        found = dict(with_stored(found, [one]))
        was_closed = was_closed or one.end is not None
        assert found["prod/88"].is_open is not was_closed
    shuffled = observations * 3
    chance.shuffle(shuffled)
    assert with_stored({}, shuffled) == found


SAID: dict[str, Callable[[Story, float], Story]] = {
    "it runs": lambda story, at: story.queue(at, JOB),
    "it failed": lambda story, at: story.queue(at, FAILED),
    "it was requeued": lambda story, at: story.queue(at, replace(AGAIN, state="PENDING", started_at=None)),
    "it runs again": lambda story, at: story.queue(at, AGAIN),
    "no job": lambda story, at: story.queue(at),
    "accounting": lambda story, at: story.at(at).say(JobsAccounted("prod", (replace(FAILED, exit_code="7:0"), LAST))),
    "its ledger": lambda story, at: story.at(at).say(AttemptsRestored((STORED,))),
    "its log": lambda story, at: story.log(at, STEP.format(40), *DIED),
    "its checkpoints": lambda story, at: story.checkpoints(at, 10, 20),
    "nothing": lambda story, at: story.at(at).say(),
}
"""What the sources may say of job 88."""
STORED = trained().queue(55, FAILED).log(56, *DIED).attempt


def known_of(end: AttemptEnd) -> dict[str, bool]:
    """What is known of an end."""
    return {
        "reported": end.source != "lost",
        "exit code": end.exit_code is not None,
        "state": end.scheduler_state is not None,
        "last lines": bool(end.log_tail),
        "log": not end.awaits_log,
    }


def is_known(end: AttemptEnd) -> bool:
    """Whether its cause is known."""
    return end.cause is not None and end.cause.cause != "unknown"


@given(st.lists(st.tuples(st.sampled_from(list(SAID)), st.sampled_from([1.0, 20.0, 50.0])), min_size=10, max_size=20))
def test_nothing_that_is_known_of_an_end_is_lost_whatever_comes_later(said: list[tuple[str, float]]) -> None:
    story, at = Story(), 0.0
    for what, later in said:
        before, at = story.state.attempts, at + later
        SAID[what](story, at)
        for name, one in before.items():
            was, now = one.end, story.state.attempts[name].end
            if was is None:
                continue
            assert now is not None, what
            lost = [fact for fact, was_known in known_of(was).items() if was_known and not known_of(now)[fact]]
            assert not lost, what
            if now.source == was.source:  # a better one may know another time, and that it was not requeued
                assert (now.at, now.scheduler_state) == (was.at, was.scheduler_state), what
                assert not is_known(was) or is_known(now), what


def reported() -> list[Event]:
    """What accounting, the ledger and Slurm's details say of two attempts of job 88 and of job 89."""
    first = Story().queue(10, JOB).steps(20, 1, 2).queue(40, JOB).attempt
    return [
        AttemptsRestored((first,)),
        JobsAccounted("prod", (ended(JOB, 50, "NODE_FAIL", "1:0"),)),
        JobsAccounted("prod", (ended(JOB, 50, "NODE_FAIL", "1:0"), LAST)),
        JobChanged(NEXT),
        RunsChanged((SPEC,)),
        ClustersChanged(()),
    ]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_reports_in_any_order_and_repeated_make_the_same_attempts(order: tuple[int, ...]) -> None:
    events = reported()

    def told(numbers: list[int]) -> tuple[Attempt, ...]:
        story = Story(watched_from=200.0)
        for number in numbers:
            story.say(events[number])
        return story.say(*events).queue(300, NEXT).attempts

    assert told([*order, *order[::-1], 4, 5]) == told([])
    assert [one.job_id for one in told([])] == ["88", "88", "89"]
