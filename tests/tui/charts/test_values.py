"""Beside the charts: values with their change, the state of the run, what is wrong, in words."""

from __future__ import annotations

import math
from array import array

import pytest
from msgspec.structs import replace

from tests.tui.states.states import NOW
from tests.tui.states.wandb_runs import NAME, attempt, watched
from trainmon.model import Curve, LossTrouble, Run, Source, Wandb
from tui.charts.curves import Copy
from tui.charts.values import change, labels, notes, number, rows, signed, state_spans, title, trouble, why_nothing
from tui.style import width_of


def curve(*values: float, every: int = 1) -> Copy:
    copy = Copy()
    steps = array("d", (float(step * every) for step in range(len(values))))
    copy.take(Curve(1, 0, steps, steps[:], array("d", values)))
    return copy


def run(**more: object) -> Run:
    return watched(**more).runs[NAME]  # type: ignore[arg-type]


def rendered(wandb: Wandb | None, width: int = 120) -> str:
    assert wandb is not None
    return "".join(span.text for span in state_spans(wandb, NOW, width))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.8743, "1.874"), (0.0, "0"), (412_345.0, "412.3k"), (3e-4, "3.00e-04"), (-0.0121, "-0.0121"),
        (12_880.0, "12.88k"), (1_880.0, "1880"), (1.9e6, "1.9M"), (math.nan, "nan"), (-math.inf, "-inf"),
        (7e20, "7.00e+20"), (999_999.0, "1M"),
    ],
)  # fmt: skip
def test_a_value_has_about_four_digits(value: float, text: str) -> None:
    assert number(value) == text
    assert len(text) <= 9


def test_the_change_is_that_of_the_last_100_steps() -> None:
    found = change(curve(*(10.0 - step / 100.0 for step in range(301))))
    assert found is not None
    assert found.by == pytest.approx(-1.0)
    assert (found.steps, signed(found)) == (100, "-1")


def test_a_short_curve_changes_over_what_there_is_and_says_how_much_that_is() -> None:
    found = change(curve(1.0, 2.0, 4.0, every=10))
    assert found == (3.0, 20)
    assert change(curve(1.0)) is None
    assert "+3 in 20 steps" in "".join(span.text for span in title("loss", 4.0, found, "", 60))


def test_a_metric_that_is_logged_seldom_changed_over_the_steps_since_it_was() -> None:
    found = change(curve(3.0, 2.5, 2.25, every=500))
    assert found == (-0.25, 500)
    assert "-0.25 in 500 steps" in "".join(span.text for span in title("val", 2.25, found, "", 60))


def test_no_change_and_an_unknown_change_are_two_things() -> None:
    assert signed(change(curve(1.0, 1.0))) == "="
    assert signed(change(curve(1.0, math.nan))) == "-"


def test_the_table_has_the_charted_metrics_first_and_then_the_rest_of_the_summary() -> None:
    made = rows([("loss", curve(2.0, 1.0))], {"loss": 1.0, "epoch": 1.5, "_step": 7.0, "note": "words"}, 34)

    assert [row.text.split() for row in made] == [["loss", "1", "-1"], ["epoch", "1.5"]]
    assert {width_of(row.spans) for row in made} == {34}


def test_a_nan_is_red_in_table_and_title() -> None:
    made = rows([("loss", curve(2.0, math.nan))], {}, 34)
    assert [span.style for span in made[0].spans if "nan" in span.text] == ["crit"]
    assert [span.style for span in title("loss", math.nan, None, "", 40) if "nan" in span.text] == ["crit"]


def test_of_a_long_name_the_end_is_kept_in_the_table() -> None:
    assert rows([("train/learning_rate_group0", curve(1.0))], {}, 34)[0].text.startswith("…g_rate_group0 ")


def test_a_sentence_that_takes_too_much_room_over_the_charts_shows_that_it_goes_on() -> None:
    problem = ("W&B cannot be reached: no route to host", "check that this machine can reach it; " * 8)
    lines = ["".join(span.text for span in line) for line in notes(run().wandb or Wandb(), problem, NOW, 50)]
    assert len(lines) == 3
    assert [line.endswith("…") for line in lines] == [False, False, True]
    assert max(map(len, lines)) <= 50


@pytest.mark.parametrize("width", [20, 40, 80])
def test_a_title_is_as_wide_as_its_chart(width: int) -> None:
    assert width_of(title("a/very/long/name/of/a/metric", 12_345.0, change(curve(1.0, 2.0)), "", width)) == width


def test_the_state_line_gives_way_from_its_end() -> None:
    wandb = run().wandb
    assert rendered(wandb) == (
        "● running  heartbeat 10s ago  step 12,880  on gpu-001  by me  https://wandb.ai/team/project/runs/id3"
    )
    assert rendered(wandb, 40) == "● running  heartbeat 10s ago"
    for width in range(12, 120):
        assert width_of(state_spans(wandb or Wandb(), NOW, width)) <= width


def test_a_heartbeat_of_long_ago_is_marked_while_the_server_says_running() -> None:
    quiet = run(runs=(attempt(3, heartbeat_at=NOW - 700.0),)).wandb or Wandb()
    assert [span.style for span in state_spans(quiet, NOW, 100) if "heartbeat" in span.text] == ["warn"]
    ended = run(runs=(attempt(3, heartbeat_at=NOW - 700.0, state="finished"),), phase="ended").wandb or Wandb()
    assert [span.style for span in state_spans(ended, NOW, 100) if "heartbeat" in span.text] == [""]


def test_several_active_runs_and_an_odd_loss_are_shown_in_full() -> None:
    why = "2 runs are active where one is expected: try-3 (id3), try-2 (id2), in team/project, group video-2b-final"
    nan = LossTrouble(state="nan", key="loss", value=math.nan, step=11_800, at=NOW)
    wandb = run(phase="several", why=why, since=NOW - 400.0, trouble=nan).wandb
    lines = ["".join(span.text for span in line) for line in notes(wandb or Wandb(), None, NOW, 60)]

    assert " ".join(lines) == f"◆ {why}; 6m so far ▲ loss has been NaN since step 11,800"
    assert all(len(line) <= 60 for line in lines)


def test_a_source_that_fails_says_what_to_do() -> None:
    source = Source(name="wandb:x", kind="wandb", cluster="prod", error="401: the key is not known",
                    hint="run `wandb login`")  # fmt: skip
    problem = trouble(source)
    lines = ["".join(span.text for span in line) for line in notes(run().wandb or Wandb(), problem, NOW, 80)]

    assert lines == ["✗ 401: the key is not known (run `wandb login`)"]
    assert trouble(None) is None


def test_without_charts_a_sentence_says_why() -> None:
    one = run()
    nothing = replace(one, wandb=Wandb(polled_at=NOW))

    def reasons(found: Run | None, wanted: str | None = NAME, problem: tuple[str, str] | None = None) -> list[str]:
        return [words for words, _ in why_nothing(found, wanted, problem)]

    assert reasons(one) == []
    assert reasons(None, None) == ["No run is selected."]
    assert reasons(None) == ["video-2b is no longer watched."]
    assert reasons(replace(one, spec=replace(one.spec, wandb=None))) == [
        "video-2b has no W&B project: set `wandb` in its [[run]] table.",
        'Example: wandb = "team/project" and group = "final"; or run, display, tags.',
        "Or set `metrics_dir`: TensorBoard, CSV, JSON lines, Hugging Face.",
    ]
    found = replace(one, spec=replace(one.spec, wandb=None, found=True))
    assert reasons(found) == [
        "video-2b: its log names no W&B run, or there is no key for the server.",
        "Log in with `wandb login`, or set `wandb` in a [[run]] table of that name.",
    ]
    assert reasons(replace(one, wandb=None)) == ["No data from W&B yet: team/project, group video-2b-final."]
    assert reasons(nothing) == ["W&B has no such run: team/project, group video-2b-final."]
    assert reasons(nothing, problem=("404: no such project", "look at `wandb`")) == [
        "404: no such project", "look at `wandb`",
    ]  # fmt: skip
    assert reasons(replace(one, wandb=replace(one.wandb or Wandb(), points=0))) == [
        "It has logged nothing to chart yet."
    ]


def test_names_that_are_cut_never_look_equal() -> None:
    long = "validation/very/long/group/of/metrics"
    names = [*(f"{long}/{end}" for end in "ab"), *(f"{start}/{long}" for start in "ab")]
    names += [f"{long}/layer_{layer}/{long}" for layer in range(12)]
    for width in (14, 24, 40):
        shown = labels([*names, "loss"], width)
        assert len({*shown.values()}) == len(names) + 1
        assert {len(text) for text in shown.values()} == {width + 1}
        assert shown["loss"].rstrip() == "loss"
