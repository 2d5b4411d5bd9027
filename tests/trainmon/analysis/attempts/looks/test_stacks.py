"""Stacks of ranks, as they are compared: by what the trainer has called, whoever has read them."""

from __future__ import annotations

import pytest

from trainmon.analysis.attempts.looks.activity import Activity, Frame, standing

WAITS = Activity("waits", "wait{s}", is_still=True, detail="0 waits in 5s")
START: list[Frame] = [
    ("<frozen runpy>", 198, "_run_module_as_main"),
    ("/opt/v/lib/python3.11/site-packages/launch.py", 9, "go"),
]
TORCH = "/opt/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def trainer(line: int = 33, *inner: Frame, function: str = "step") -> list[Frame]:
    return [*START, ("/home/ana/train.py", 90, "main"), ("/home/ana/train.py", line, function), *inner]


def test_it_stands_where_the_trainer_has_called_from_its_outermost_frame_on() -> None:
    found = standing([trainer(33, (TORCH, 2800, "wrapper"), (TORCH, 2900, "all_reduce"))] * 3, WAITS)
    assert found.text == "stand{s} in `train:main > train:step > distributed_c10d:all_reduce`, line 33"
    assert found.is_still
    assert found.detail == (
        "train:main > train:step > distributed_c10d:wrapper > distributed_c10d:all_reduce; 0 waits in 5s"
    )


def test_the_lines_of_libraries_and_of_loops_that_wait_do_not_count() -> None:
    first, second = (standing([trainer(33, (TORCH, line, "wait"))] * 3, WAITS) for line in (5, 6))
    assert first.kind == second.kind
    loop = standing([trainer(33), trainer(34), trainer(33)], WAITS)
    assert (loop.text, loop.is_still) == ("stand{s} in `train:main > train:step`", True)
    assert standing([trainer(33)] * 3, WAITS).kind != standing([trainer(60)] * 3, WAITS).kind


def test_py_spy_and_faulthandler_name_a_method_alike() -> None:
    assert standing([trainer(function="Trainer.step")], WAITS).kind == standing([trainer()], WAITS).kind


def test_a_rank_that_runs_on_stands_nowhere() -> None:
    found = standing([trainer(), trainer(33, (TORCH, 1, "all_reduce")), trainer()], WAITS)
    assert (found.text, found.is_still) == ("run{s} on", False)
    moving = WAITS._replace(is_still=False)
    assert not standing([trainer()] * 3, moving).is_still, "by chance at one place three times"


@pytest.mark.parametrize("stacks", [[[]], [[], []], [trainer(), []]])
def test_an_empty_stack_is_no_place(stacks: list[list[Frame]]) -> None:
    assert not standing(stacks, WAITS).is_still


def test_a_stack_without_a_frame_of_the_trainer_is_compared_as_it_is() -> None:
    assert standing([[*START]], WAITS).text == "stand{s} in `<frozenrunpy>:_run_module_as_main > launch:go`"


def test_names_of_code_cannot_change_the_sentence() -> None:
    odd = [("/home/{s}/x{be}\x1b[2J.py", 4, "<listcomp>")]
    assert standing([odd], WAITS).text.format(s="s", be="is") == "stands in `xbe2J:<listcomp>`, line 4"
