"""Files of results: what counts as a result, what is said of other lines, and how a run keeps them."""

from __future__ import annotations

import json
import math

from msgspec.structs import replace

from tests.trainmon.engine.reducers.test_reduce import RUN, chunk, folded, reading_of
from trainmon.analysis.checkpoints import eval_logs, read_results
from trainmon.model import EvalResult, Run, RunsChanged, State

FILE = "/fsx/ckpt/evals.jsonl"
EVALUATED = replace(RUN, evals=(FILE,))


def line(step: int, acc: float = 0.5) -> str:
    return json.dumps({"step": step, "evaluator": "lm-eval", "results": {"acc": acc}, "extra": [1]})


def read(*lines: str, state: State | None = None, **more: object) -> State:
    found = chunk(*lines, id="evals 1 of llm", path=FILE, **more)
    return folded(*(() if state else (RunsChanged((EVALUATED,)),)), reading_of(found), state=state)


def evaluated(state: State) -> Run:
    return state.runs["llm"]


def test_results_of_a_file_that_grows_are_added_and_a_line_that_is_read_again_counts_once() -> None:
    state = read(line(10))
    assert [one.step for one in evaluated(state).evals.results] == [10]
    state = read(line(10), line(20), state=state)
    assert [one.step for one in evaluated(state).evals.results] == [10, 20]
    assert evaluated(state).log is None, "it is not the log of the run"


def test_without_an_eval_table_the_file_beside_the_checkpoints_counts() -> None:
    (log,) = eval_logs(replace(RUN, checkpoints="/fsx/ckpt[1]/"))
    assert (log.pattern, log.optional) == ("/fsx/ckpt[[]1]/evals.jsonl", True)
    assert eval_logs(replace(RUN, checkpoints=None)) == ()
    (named,) = eval_logs(replace(RUN, checkpoints="/fsx/ckpt", evals=("/fsx/results.jsonl",)))
    assert (named.pattern, named.optional) == ("/fsx/results.jsonl", False)


def test_a_step_that_no_database_stores_is_no_result() -> None:
    assert read_results([json.dumps({"step": 10**30})]) == ((), 1)


def test_lines_that_are_no_result_are_counted_and_never_stop_the_others() -> None:
    found, invalid = read_results(["{", "", '{"results": {}}', '{"step": "ten"}', "[]", '{"step": 3}'])
    assert (found, invalid) == ((EvalResult(step=3),), 4)


def test_the_step_of_a_checkpoint_is_in_its_name() -> None:
    (found,), _ = read_results(['{"checkpoint": "/fsx/run7/global_step1200/"}'])
    assert found.step == 1200


def test_a_file_that_cannot_be_read_says_so_until_it_can() -> None:
    state = read(error=f"{FILE} does not exist")
    assert evaluated(state).evals.errors == {FILE: f"{FILE} does not exist"}
    assert evaluated(read(line(1), state=state)).evals.errors == {}


def test_secrets_and_control_characters_of_a_result_are_not_kept() -> None:
    text = json.dumps({"step": 1, "judge": "gpt\x1b[31m", "decoding": {"api_key": "abcdefg12345", "max_tokens": 64}})
    (found,), _ = read_results([text])
    assert found.decoding == {"api_key": "***", "max_tokens": 64}
    assert "\x1b" not in (found.judge or "")


def test_the_newest_results_are_kept_and_invalid_lines_are_added_up() -> None:
    kept = evaluated(read("{", state=read("{", *(line(step) for step in range(501))))).evals
    assert (len(kept.results), kept.results[0].step, kept.invalid_lines) == (500, 1, 2)


def test_the_error_of_a_file_shows_no_secret() -> None:
    state = read(error=f"{FILE}: api_key=abcdefg12345\x1b[31m")
    assert evaluated(state).evals.errors == {FILE: f"{FILE}: api_key=***"}


def test_a_score_that_is_not_a_number_is_kept_as_its_text() -> None:
    scores = {"acc": math.nan, "ppl": math.inf, "gain": -math.inf, 'the "NaN" \\': 0.5}
    text = json.dumps({"step": 3, "evaluator": "NaN, -Infinity", "results": scores})
    ((found,), invalid) = read_results([text, '{"step": NaN}', '{"step": 3, "results": {"acc": aNaN}}'])
    assert found.results == {"acc": "NaN", "ppl": "Infinity", "gain": "-Infinity", 'the "NaN" \\': 0.5}
    assert (found.evaluator, invalid) == ("NaN, -Infinity", 2)
