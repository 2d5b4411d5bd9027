"""What is advised about a run: with a key and a command that would be refused nobody is helped at night."""

from __future__ import annotations

import re

from msgspec.structs import replace

from tests.trainmon.alerting.rules.runs.states import NOW, SPEC, ended, job, state
from trainmon.actions.planning import offered
from trainmon.alerting.rules.runs import advice
from trainmon.model import State

VERBS = re.compile(r"trainmon-tui (\w+) llm")
BARE = replace(SPEC, script=None, save_switch=None, kill_switch=None)


def refused(seen: State, words: str) -> set[str]:
    """The commands of an advice that would be refused at once."""
    offers = {offer.verb: offer.refusal for offer in offered(seen, "run", "llm", NOW)}
    return {verb for verb in VERBS.findall(words) if offers[verb] is not None}


def test_what_has_a_switch_is_saved_and_ended_by_it() -> None:
    run = state(job()).runs["llm"]
    assert advice.saves(run) == "S makes it save now: trainmon-tui save llm"
    assert advice.ends(run) == "K ends it: trainmon-tui kill llm"


def test_what_has_no_switch_is_signalled_and_cancelled() -> None:
    run = state(job(), spec=BARE).runs["llm"]
    assert advice.saves(run) == "T signals its trainer, if it saves on a signal: trainmon-tui signal llm"
    assert advice.ends(run) == "C cancels its job: trainmon-tui cancel llm"
    alone = state(spec=replace(BARE, job=None)).runs["llm"]
    assert advice.saves(alone) == "make it save now; with a save_switch in its [[run]], S does that"
    assert advice.ends(alone) == "end its processes on its nodes"


def test_a_job_that_runs_is_requeued_and_one_that_has_ended_is_queued_again() -> None:
    another = "N queues another: trainmon-tui queue llm"
    for seen, words, refusals in (
        (state(job()), "R requeues its job: trainmon-tui requeue llm", set()),
        (state(job(requeue=False)), another, {"requeue"}),
        (state(job(batch=False)), another, {"requeue"}),
        (state(ended()), another, set()),  # Slurm still knows it, but for minutes only
        (state(ended(gone_at=NOW)), another, {"requeue"}),
    ):
        assert advice.requeues(seen, seen.runs["llm"]) == words
        assert VERBS.findall(words)
        assert refused(seen, words) == set()
        assert refused(seen, "trainmon-tui requeue llm") == refusals


def test_a_run_without_a_script_is_submitted_by_hand_as_its_job_was() -> None:
    seen = state(ended(command="/fsx/a b.slurm --lr=1"), spec=BARE)
    words = "submit it again: sbatch /fsx/a b.slurm --lr=1 (with a script in its [[run]], N does that)"
    assert advice.queues(seen, seen.runs["llm"]) == words
    unknown = state(ended(), spec=BARE)
    assert advice.queues(unknown, unknown.runs["llm"]).startswith("submit it again with sbatch (")
    by_hand = state(spec=replace(BARE, job=None))
    assert advice.queues(by_hand, by_hand.runs["llm"]).startswith("start it again by hand")
