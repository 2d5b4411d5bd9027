"""What of the SDK's inside is touched, and the way on with a later one that has it no more."""

from __future__ import annotations

from typing import Any

import pytest

from collectors.wandb.convert import NotFound
from collectors.wandb.wire import ReadHistory

ASKED = ReadHistory(id=1, path="team/video/ab12", keys=("loss", "lr"), since={"loss": 7}, samples=500)


def sampled(run: Any, asked: ReadHistory) -> Any:
    from collectors.wandb import sdk  # it loads the SDK: most of a second, for each worker that collects this file

    return sdk.sampled(run, asked)


class Service:
    """The SDK's way to its sidecar, with a server's answer in it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.requests: dict[str, Any] = {}

    def execute_graphql(self, _query: str, variables: dict[str, Any]) -> Any:
        self.requests = variables
        return self.answer


class Run:
    """A run of a later SDK: its public part alone."""

    entity, project, id = "team", "video", "ab12"

    def __init__(self) -> None:
        self.requests: list[tuple[list[str], int]] = []

    def history(self, *, samples: int, keys: list[str], pandas: bool) -> list[dict[str, Any]]:
        assert not pandas
        self.requests.append((keys, samples))
        return [{"_step": 1, "_timestamp": 2.0, keys[-1]: 3.0}]


class RunOfToday(Run):
    """One that has the inside that is used."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._service_api = Service(answer)


def test_several_curves_are_one_request_each_from_where_it_was_left() -> None:
    run = RunOfToday({"project": {"run": {"sampledHistory": [[{"_step": 7}], []]}}})
    assert sampled(run, ASKED) == {"loss": [{"_step": 7}], "lr": []}
    assert run._service_api.requests["specs"] == [
        '{"keys": ["_step", "_timestamp", "loss"], "samples": 500, "minStep": 7}',
        '{"keys": ["_step", "_timestamp", "lr"], "samples": 500}',
    ]
    assert run.requests == []


def test_an_sdk_without_that_inside_is_queried_curve_by_curve() -> None:
    run = Run()
    row = {"_step": 1, "_timestamp": 2.0}
    assert sampled(run, ASKED) == {"loss": [{**row, "loss": 3.0}], "lr": [{**row, "lr": 3.0}]}
    assert run.requests == [(["_timestamp", "loss"], 500), (["_timestamp", "lr"], 500)]


@pytest.mark.parametrize("answer", [None, {}, {"project": None}, {"project": {"run": None}}])
def test_a_run_that_is_gone_is_absent(answer: Any) -> None:
    with pytest.raises(NotFound):
        sampled(RunOfToday(answer), ASKED)


def test_a_server_that_answers_one_curve_a_request_is_queried_curve_by_curve() -> None:
    run = RunOfToday({"project": {"run": {"sampledHistory": [[{"_step": 7}]]}}})
    assert sampled(run, ASKED).keys() == {"loss", "lr"}
    assert [keys[-1] for keys, _ in run.requests] == ["loss", "lr"]
