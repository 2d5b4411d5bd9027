"""The words of a command line find the rows that are meant, or say what there is."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.cli.act.parts import JOBS, job, state
from trainmon.cli.act.targets import NotFound, resolve, split_signal
from trainmon.model import Cluster, Verb


@pytest.mark.parametrize(
    ("verb", "word", "expected"),
    [
        ("save", "video-2b", "video-2b"),
        ("requeue", "video-2b", "video-2b"),
        ("requeue", "88", "prod/88"),
        ("requeue", "prod/88", "prod/88"),
        ("save", "88", "video-2b"),
        ("cancel", "91_3", "prod/91_3"),
        ("cancel", "91_[4-10]", "prod/91_[]"),
        ("cancel", "91_[4-10%1]", "prod/91_[]"),
        ("cancel", "prod/91_[]", "prod/91_[]"),
        ("cancel", "95", "prod/91_3"),
        ("cancel", "60", "prod/60"),
        ("cancel", "777", "prod/777"),
        ("cancel", "prod/777_5", "prod/777_5"),
        ("exclude", "gpu-002", "gpu-002"),
        ("exclude", "gpu-003", "gpu-003"),
    ],
)
def test_runs_jobs_and_nodes_are_found(verb: Verb, word: str, expected: str) -> None:
    assert resolve(verb, (word, word), state()) == (expected,)


@pytest.mark.parametrize(
    ("verb", "word", "sentence"),
    [
        ("save", "vidoe-2b", 'no run is named "vidoe-2b"; did you mean "video-2b"? (runs: "video-2b")'),
        ("kill", "91_3", 'job 91_3 belongs to no run; kill needs a run (runs: "video-2b")'),
        ("cancel", "91", "job 91 is an array: specify one of prod/91_3, prod/91_[]"),
        ("cancel", "prdo/88", 'job prdo/88: unknown cluster "prdo"; did you mean "prod"?'),
        ("exclude", "gpu 003", 'no node "gpu 003" is watched or known to Slurm; did you mean "gpu-002"?'),
        ("cancel", "88; rm", 'no run or job is named "88; rm" (runs: "video-2b"; specify a job by its id)'),
        (
            "hold",
            "sweep",
            'no run or job is named "sweep" (runs: "video-2b"; specify a job by its id: 91_3, 91_[4-10%1])',
        ),
    ],
)
def test_what_names_nothing_is_reported_with_what_there_is(verb: Verb, word: str, sentence: str) -> None:
    with pytest.raises(NotFound) as caught:
        resolve(verb, (word,), state())
    assert str(caught.value) == sentence


def test_a_number_in_two_clusters_needs_its_cluster() -> None:
    jobs = (*JOBS, job(88, cluster="dev"))
    clusters = {name: Cluster(name=name, login=name) for name in ("prod", "dev")}
    both = state(jobs={one.key: one for one in jobs}, clusters=clusters)
    with pytest.raises(NotFound, match="job 88 is in several clusters: specify one of prod/88, dev/88"):
        resolve("cancel", ("88",), both)
    assert resolve("cancel", ("dev/88",), both) == ("dev/88",)
    sources = {f"slurm:{name}": replace(both.sources["slurm:prod"], name=f"slurm:{name}") for name in clusters}
    with pytest.raises(NotFound, match="job 777 is in no queue"):
        resolve("cancel", ("777",), replace(both, sources=sources))


def test_a_run_may_be_called_like_a_number() -> None:
    named = {"88": replace(state().runs["video-2b"], jobs=())}
    assert resolve("cancel", ("88",), state(runs=named)) == ("88",)


@pytest.mark.parametrize(
    ("line", "subjects", "signal"),
    [
        ("video-2b", "video-2b", None),
        ("video-2b USR2", "video-2b", "USR2"),
        ("video-2b 88 SIGTERM", "video-2b 88", "TERM"),
        ("USR1", "USR1", None),
        ("video-2b usr1", "video-2b usr1", None),
    ],
)
def test_the_last_word_may_be_a_signal(line: str, subjects: str, signal: str | None) -> None:
    assert split_signal(tuple(line.split()), state()) == (tuple(subjects.split()), signal)


@pytest.mark.parametrize(
    ("last", "sentence"),
    [("WINCHX", 'no signal or run is named "WINCHX"'), ("SIGUSR3", '"SIGUSR3"; did you mean')],
)
def test_an_argument_that_looks_like_a_signal_is_refused_with_the_known_ones(last: str, sentence: str) -> None:
    with pytest.raises(NotFound, match=sentence) as caught:
        split_signal(("video-2b", last), state())
    assert "(signals that a trainer can catch: HUP, INT, QUIT, USR1, USR2, TERM)" in str(caught.value)


def test_a_component_of_a_heterogeneous_job_stands_for_the_whole() -> None:
    both = {one.key: one for one in (*JOBS, job(40, components=(40, 41)))}
    for word in ("40", "40+0", "40+1", "prod/40+1", "41"):
        assert resolve("cancel", (word,), state(jobs=both)) == ("prod/40",)
    with pytest.raises(NotFound) as caught:
        resolve("cancel", ("88+0",), state(jobs=both))
    assert str(caught.value) == "job 88 is not heterogeneous: it has no component +0"
    assert resolve("cancel", ("777+1",), state()) == ("prod/777",), "one that no queue lists is asked for as a whole"
