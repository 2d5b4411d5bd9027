"""The wire of the W&B child: what goes in comes out, nan and infinities included."""

import math

import msgspec
import pytest

from collectors.wandb.wire import (
    REQUESTS,
    FetchFile,
    HistoryPoints,
    ListRuns,
    PackedPoints,
    RequestFailed,
    RunList,
    decode_answer,
    encode,
)
from trainmon.model import Points, Sample, WandbRun, WandbSpec


def a_run(**fields: object) -> WandbRun:
    return WandbRun(entity="team", project="video", id="ab12", name="first", state="running", **fields)  # type: ignore[arg-type]


def test_a_request_comes_out_as_it_went_in() -> None:
    request = ListRuns(id=3, spec=WandbSpec(project="team/video", group="final", tags=("a", "b")), limit=4)
    assert REQUESTS.decode(encode(request)) == request
    fetch = FetchFile(id=4, path="team/video/ab12", file="media/images/a_1_x.png", directory="/tmp/samples")
    assert REQUESTS.decode(encode(fetch)) == fetch


def test_a_listed_run_keeps_its_nan_and_its_infinities() -> None:
    summary = {"loss": math.nan, "grad_norm": math.inf, "lowest": -math.inf, "lr": 1e-4, "note": "warm"}
    result = RunList(id=1, runs=(a_run(summary=summary),), samples={"ab12": (Sample(key="v", kind="image", file="f"),)})
    received = decode_answer(encode(result))
    assert isinstance(received, RunList)
    back = received.runs[0].summary
    assert math.isnan(float(back["loss"]))
    assert (back["grad_norm"], back["lowest"], back["lr"], back["note"]) == (math.inf, -math.inf, 1e-4, "warm")
    assert received.samples == result.samples


def test_points_come_out_as_they_went_in() -> None:
    points = Points((1.0, 2.0, 3.0), (10.5, 11.5, 12.5), (0.5, math.inf, -math.inf))
    received = decode_answer(
        encode(HistoryPoints(id=2, path="team/video/ab12", points={"loss": PackedPoints.of(points)}))
    )
    assert isinstance(received, HistoryPoints)
    back = received.points["loss"].points()
    assert (tuple(back.steps), tuple(back.times), tuple(back.values)) == (points.steps, points.times, points.values)


def test_a_point_that_is_nan_stays_nan() -> None:
    back = PackedPoints.of(Points((1.0,), (2.0,), (math.nan,))).points()
    assert math.isnan(back.values[0])


def test_every_answer_is_one_line() -> None:
    result = encode(RequestFailed(id=1, kind="server", message="two\nlines"))
    assert result.count(b"\n") == 1
    assert result.endswith(b"\n")


def test_a_line_that_says_nothing_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_answer(b'{"is":"listed"}')
    with pytest.raises(msgspec.DecodeError):
        REQUESTS.decode(b"wandb: Currently logged in as")
