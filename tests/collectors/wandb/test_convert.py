"""What W&B's server says, as our nouns: what is bounded, cleaned, masked, and what an older server leaves out."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest

from collectors.wandb.convert import (
    KEYS_AT_MOST,
    filters,
    instant,
    read_keys,
    read_points,
    read_run,
    read_start,
)
from trainmon.analysis.wandb.metric_names import NAMES_AT_MOST, number, read_config, read_summary, safe_text
from trainmon.model import WandbSpec

SPEC = WandbSpec(project="team/video")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-01-31T12:00:00", 1769860800.0),
        ("2026-01-31T12:00:00Z", 1769860800.0),
        ("2026-01-31T12:00:00.5+00:00", 1769860800.5),
        ("2026-01-31T14:00:00+02:00", 1769860800.0),
        ("yesterday", None),
        (None, None),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str | None, seconds: float | None) -> None:
    assert instant(text) == seconds


def test_words_for_nan_and_infinity_are_numbers_and_other_words_are_none() -> None:
    assert math.isnan(number("NaN") or 0.0)
    assert (number("Infinity"), number("-Infinity"), number(True), number(3)) == (math.inf, -math.inf, 1.0, 3.0)
    assert (number("nan"), number("1.5"), number(None), number([1])) == (None, None, None, None)
    assert number(10**400) == math.inf


def test_text_is_cleaned_and_its_secrets_masked_before_it_is_cut() -> None:
    assert safe_text("\x1b[31mfinal\x1b[0m\x07 run") == "final run"
    assert safe_text("x" * 190 + " hf_" + "a" * 30) == "x" * 190 + " hf_***"
    assert safe_text("x" * 500) == "x" * 200
    assert (safe_text(""), safe_text(None), safe_text(3)) == (None, None, None)


def test_a_summary_has_numbers_and_short_texts_those_within_mappings_by_their_path() -> None:
    fields = {
        "_step": 5, "_wandb": {"runtime": 3}, "loss": "NaN", "val": {"loss": 1.5, "best": {"step": 4}}, "note": "warm",
        "media": {"deep": {"_type": "image-file", "size": 9}},
        "picture": {"_type": "image-file", "path": "media/images/a.png"}, "list": [1, 2], "nothing": None,
    }  # fmt: skip
    result = read_summary(fields)
    assert math.isnan(float(result.pop("loss")))
    assert result == {"val.loss": 1.5, "val.best.step": 4.0, "note": "warm"}


def test_of_a_long_summary_the_charted_metrics_stay() -> None:
    fields = {f"m/{index}": float(index) for index in range(1_000)}
    result = read_summary(fields, charts=("m/999", "m/500"))
    assert len(result) == NAMES_AT_MOST
    assert result["m/999"] == 999.0
    assert "m/0" in result
    assert "m/998" not in result


def test_of_thousands_of_metrics_the_loss_and_the_trainers_step_stay() -> None:
    fields = {f"eval/part-{index}": float(index) for index in range(2_000)}
    fields |= {"train/loss": 2.0, "trainer/global_step": 77.0}
    result = read_summary(fields)
    assert len(result) == NAMES_AT_MOST
    assert (result["train/loss"], result["trainer/global_step"]) == (2.0, 77.0)
    keys = read_keys({"keys": {key: {"typeCounts": [{"type": "number"}]} for key in fields}})
    assert len(keys) == KEYS_AT_MOST
    assert "train/loss" in keys


def test_a_setting_with_a_secrets_name_is_masked_and_so_is_one_that_looks_like_a_secret() -> None:
    result = read_config({
        "lr": 1e-4, "name": "final", "pad_token": 0, "sort_key": "length", "_wandb": {"t": 1}, "resume": None,
        "auth": {"hf_token": "abc"}, "trainer/api_key": "0123", "password": "p", "betas": [0.9, 0.95],
        "remote": "https://me:secret@example.org/x", "where": "hf_" + "a" * 30,
        "model": {"_type": "llama", "empty": {}, "a": {"b": {"c": {"hf_token": "a1b2c3d4", "d": 1}}}},
    })  # fmt: skip
    assert result == {
        "lr": "0.0001", "name": "final", "pad_token": "0", "sort_key": "length", "resume": "null",
        "auth.hf_token": "***", "trainer/api_key": "***", "password": "***", "betas": "[0.9,0.95]",
        "remote": "https://me:***@example.org/x", "where": "hf_***", "model._type": "llama", "model.empty": "{}",
        "model.a.b.c": '{"hf_token":"***","d":1}',
    }  # fmt: skip


def test_a_config_of_any_size_is_bounded() -> None:
    deep: dict[str, Any] = {"end": 1}
    for _ in range(50):
        deep = {"in": deep}
    result = read_config({"deep": deep, "long": "y" * 100_000, **{f"k{index}": index for index in range(5_000)}})
    assert len(result) == NAMES_AT_MOST
    assert len(result["long"]) == 200


def test_only_numeric_metrics_that_can_be_shown_as_they_are_can_be_charted() -> None:
    result = {
        "keys": {
            "loss": {"typeCounts": [{"type": "string", "count": 1}, {"type": "number", "count": 9}]},
            "_step": {"typeCounts": [{"type": "number", "count": 9}]},
            "phase": {"typeCounts": [{"type": "string", "count": 9}]},
            "ev\x1b[2Jil": {"typeCounts": [{"type": "number", "count": 9}]},
            "odd": None,
        }
    }
    assert read_keys(result) == ("loss",)
    assert read_keys(None) == read_keys({"keys": [1]}) == ()


def test_a_row_without_a_number_is_no_point_nor_is_one_from_before() -> None:
    rows = [
        {"_step": 1, "_timestamp": 11.0, "loss": 3.0},
        {"_step": 2, "_timestamp": 12.0, "loss": "NaN"},
        {"_step": 3, "_timestamp": 13.0, "loss": {"_type": "histogram"}},
        {"_step": 4, "loss": 1.0},
        None,
        {"_step": 5, "_timestamp": 15.0, "loss": 2},
    ]
    result = read_points("loss", rows, 2.0)
    assert (list(result.steps), list(result.times), list(map(str, result.values))) == ([2, 5], [12, 15], ["nan", "2.0"])


def test_the_start_of_a_run_is_in_the_config_that_the_server_returns() -> None:
    result = json.dumps({"_wandb": {"value": {"e": {"w1": {"host": "gpu-1", "git": {"commit": "c0ffee"}}}}}})
    assert read_start(result) == {"host": "gpu-1", "git": {"commit": "c0ffee"}}
    assert read_start("no json") == read_start(None) == read_start("[1]") == {}


def test_a_server_that_leaves_out_what_it_may_still_shows_a_run() -> None:
    bare = SimpleNamespace(entity="team", project="video", id="ab12", name=None, state=None, url="https://w/x")
    run = read_run(bare, SPEC, {})
    assert (run.name, run.state, run.heartbeat_at, run.step, run.summary) == ("ab12", "unknown", None, None, {})


def test_what_a_stranger_wrote_is_clean_in_every_field() -> None:
    evil = "\x1b]0;owned\x07\x1b[2Jtext\u202e"
    run = read_run(
        SimpleNamespace(
            entity="team", project="video", id="ab12", name=evil, state=evil, url=evil, group=evil, tags=[evil, 3],
            user=SimpleNamespace(username=evil), commit=evil, summary_metrics={evil: evil}, config={evil: evil},
        ),
        SPEC,
        {"host": evil},
    )  # fmt: skip
    texts = [run.name, run.state, run.url, run.group, *run.tags, run.user, run.host, run.commit]
    texts += [*run.summary, *run.summary.values(), *run.config, *run.config.values()]  # type: ignore[list-item]
    assert set(texts) == {"text"}


def test_all_that_a_spec_names_must_be_true_of_a_run() -> None:
    assert filters(WandbSpec(project="team/video")) == {}
    assert filters(WandbSpec(project="team/video", group="final")) == {"group": "final"}
    assert filters(WandbSpec(project="team/video", run="ab12")) == {"name": "ab12"}
    assert filters(WandbSpec(project="team/video", display="^v[0-9]", tags=("a", "b"))) == {
        "$and": [
            {"tags": {"$in": ["a"]}},
            {"tags": {"$in": ["b"]}},
            {"display_name": {"$regex": "^v[0-9]"}},
        ]
    }
