"""The charts on a running app: it follows, it draws when points came, its keys answer, it fits each size."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot

from tests.tui.apps import Alone
from tests.tui.pilot import running
from tests.tui.screen_text import settled, text_of
from tests.tui.states.states import NOW, run
from tests.tui.states.wandb_runs import KEYS, NAME, STEP_S, CurveBackend, attempt, filled, watched
from trainmon.model import LossTrouble, Points, RunSpec, Source, State
from tui import themes
from tui.charts.chart import FRESH_AT_MOST
from tui.panes.base import Pane
from tui.panes.wandb import WandbPane
from tui.themes import Ascii

SIZES = [
    ((80, 24), False),
    ((120, 40), False),
    ((200, 60), False),
    ((60, 16), False),
    ((80, 24), True),
    ((60, 16), True),
]
"""Of the terminal, and whether it shows only ASCII."""


class Framed(Alone):
    """With the frame that the dashboard's style sheet gives a pane."""

    CSS_PATH = Path(themes.__file__).parent / "trainmon.tcss"


class Shown:
    """A pane on an app, with its pilot."""

    def __init__(self, pane: WandbPane, backend: CurveBackend, pilot: Pilot[None]) -> None:
        self.pane, self.backend, self.pilot = pane, backend, pilot

    @property
    def text(self) -> str:
        return text_of(self.pilot.app)

    @property
    def titles(self) -> list[str]:
        """The metrics whose charts are shown, from the top."""
        shown = self.pane.body.lines if self.pane.body.display else ()
        lines = ["".join(span.text for span in spans) for spans in shown]
        found = [(number, line.find(f" {key}  "), key) for number, line in enumerate(lines) for key in KEYS]
        return [key for _, place, key in sorted(found) if place >= 0]

    @property
    def caption(self) -> str:
        return "".join(span.text for span in self.pane.top.lines[0])

    async def press(self, *keys: str) -> str:
        """The screen after these keys; a message of the table's cursor may be under way when the key is done."""
        for key in keys:
            await self.pilot.press(key)
            await self.pilot.pause()
        await self.pilot.pause()
        return self.text

    async def settled(self) -> str:
        """The screen once panes that came into sight have their sizes."""
        return await settled(self.pilot)


@asynccontextmanager
async def pane(
    size: tuple[int, int] = (120, 40), shown: State | None = None, *, plain: bool = False
) -> AsyncIterator[Shown]:
    backend = filled(shown)
    made = WandbPane(backend, id="wandb")
    app = Framed(made)
    if plain:
        app._filters.append(Ascii())
    async with running(app, size=size) as pilot:
        made.follow_run(NAME)
        made.show(backend.state or State())
        await pilot.pause()
        made.focus_body()
        await pilot.pause()
        yield Shown(made, backend, pilot)


def later(state: State, seconds: float = 2.0, **more: object) -> State:
    """The next State; `more` changes the run's W&B."""
    one = state.runs[NAME]
    changed = replace(one, wandb=replace(one.wandb, **more)) if more and one.wandb is not None else one
    return replace(state, at=state.at + seconds, runs={**state.runs, NAME: changed})


@pytest.mark.parametrize(("size", "plain"), SIZES)
async def test_the_loss_is_on_top_at_every_size_and_no_line_is_too_long(size: tuple[int, int], plain: bool) -> None:
    async with pane(size, plain=plain) as at:
        lines = at.text.splitlines()
        assert at.titles[0] == "train/loss"
        assert len(at.titles) >= 2
        assert max(map(len, lines)) == size[0]
        assert all(len(line) == size[0] for line in lines[: size[1]])
        assert "running" in at.text
        assert plain is at.text.isascii()


async def test_other_metrics_of_the_server_are_read_when_their_page_is_shown() -> None:
    names = (*KEYS, *(f"moe/expert {number}" for number in range(30)))
    async with pane((80, 24), shown=watched(names=names)) as at:
        text = await at.press(*"vvvv")
        assert "not read yet" in text
        runs, asked = at.backend.on_screen
        assert runs == (NAME,)
        assert all(f" {metric} " in text for metric in asked)
        found = Points((1.0, 12_880.0), (NOW - 9.0, NOW), (1.5, 2.5))
        at.backend.curves.grow("team/project/id3", dict.fromkeys(asked, found), fresh=False)
        at.pane.show(later(at.backend.state or State(), points=123))
        text = await at.settled()
        assert "not read yet" not in text
        assert text.count("  2.5") >= len(asked)


async def test_it_draws_when_points_came_and_not_with_every_state() -> None:
    async with pane() as at:
        state = at.backend.state or State()
        reads = len(at.backend.reads)
        before = at.pane.body.lines
        at.pane.show(later(state))
        at.pane.show(later(state, 4.0))
        assert len(at.backend.reads) == reads

        at.backend.curves.grow(
            "team/project/id3", {"train/loss": Points((12_884.0,), (NOW + 16.0,), (9.9,))}, fresh=False
        )
        at.pane.show(later(state, 6.0, points=2))

        reads_since = at.backend.reads[reads:]
        assert ("team/project/id3", "train/loss", 1_220) in reads_since
        assert all(start > 0 for _, _, start in reads_since)
        assert at.pane.body.lines != before
        assert "9.9" in await at.press()


async def test_a_hidden_pane_reads_nothing() -> None:
    async with pane() as at:
        at.pane.display = False
        await at.pilot.pause()
        reads = len(at.backend.reads)
        at.pane.show(later(at.backend.state or State(), points=2))
        assert len(at.backend.reads) == reads

        at.pane.display = True
        await at.settled()
        assert len(at.backend.reads) > reads


async def test_it_follows_the_selected_run() -> None:
    other = run("sft-1b", spec=RunSpec(name="sft-1b", cluster="prod"))
    shown = watched()
    async with pane(shown=replace(shown, runs={**shown.runs, "sft-1b": other})) as at:
        at.pane.follow_run("sft-1b")
        assert "sft-1b has no W&B project: set `wandb` in its [[run]] table." in await at.settled()
        at.pane.follow_run(NAME)
        await at.settled()
        assert at.titles[0] == "train/loss"
        at.pane.follow_run(None)
        assert "No run is selected." in await at.settled()


async def test_the_loss_of_another_run_is_on_top_whatever_names_the_two_share() -> None:
    shown = watched()
    first = shown.runs[NAME]
    assert first.wandb is not None
    other = replace(first, spec=replace(first.spec, name="sft-1b"), wandb=replace(first.wandb, keys=KEYS[1:]))
    async with pane((80, 14), shown=replace(shown, runs={NAME: first, "sft-1b": other})) as at:
        at.pane.follow_run("sft-1b")
        assert at.titles[0] == KEYS[1]
        at.pane.follow_run(NAME)
        await at.settled()
        assert at.titles[0] == KEYS[0]


async def test_a_key_changes_how_the_charts_are_looked_at_and_the_frame_says_so_at_once() -> None:
    async with pane() as at:
        for key, word in (
            ("e", "log"), ("t", "by time"), ("s", "smooth 0.6"), ("c", "alone"), ("d", "last day"), ("plus", "zoomed"),
        ):  # fmt: skip
            before = at.pane.body.lines
            assert word not in at.caption

            await at.pilot.press(key)

            assert word in at.caption
            assert key == "d" or at.pane.body.lines != before


async def test_zoom_pan_and_back_to_the_whole() -> None:
    async with pane() as at:
        whole = at.pane.body.lines
        await at.press("plus", "plus", "left")
        assert "zoomed  held" in at.caption
        await at.press("right")
        assert "held" not in at.caption
        await at.press("0")
        assert at.pane.body.lines == whole


async def test_what_is_seen_by_step_is_seen_by_time_as_well() -> None:
    async with pane() as at:
        await at.press("plus", "left", "left")
        steps = at.pane.charts.x
        await at.press("t")
        times = at.pane.charts.x
        assert "zoomed  held  by time" in at.caption
        assert steps is not None
        assert times is not None
        slack = 0.15 * (times.high - times.low)  # both are rounded outwards
        assert abs(times.low - (NOW - (12_880 - steps.low) * STEP_S)) < slack
        assert abs(times.high - (NOW - (12_880 - steps.high) * STEP_S)) < slack
        await at.press("t")
        assert at.pane.charts.x == steps


async def test_the_next_charts_and_round_again() -> None:
    async with pane((80, 24)) as at:
        seen: list[list[str]] = []
        while not seen or at.titles != seen[0]:
            seen.append(at.titles)
            await at.press("v")
            assert len(seen) < 10

        assert [key for page in seen for key in page] == list(KEYS)


async def test_the_charts_follow_the_cursor_of_the_table_and_enter_shows_one_alone() -> None:
    async with pane((80, 24)) as at:
        first = at.titles
        await at.press("G", "k")
        assert at.titles != first
        assert KEYS[-1] in at.titles
        await at.press("enter")
        assert at.titles == [KEYS[-1]]
        await at.press("k")
        assert at.titles == [KEYS[-2]]
        await at.press("enter", "g")
        assert at.titles == first


async def test_where_no_table_fits_the_keys_still_answer() -> None:
    async with pane((60, 16)) as at:
        assert not at.pane.lines.display
        assert at.pane.body.has_focus
        first = at.titles
        await at.press("v")
        assert at.titles != first
        await at.press("e")
        assert "log" in at.caption


async def test_earlier_attempts_are_named_and_go_with_c() -> None:
    async with pane() as at:
        assert "a video-2b-try-2" in at.text
        assert "b video-2b-try-1" in at.text
        text = await at.press("c")
        assert "a video-2b-try-2" not in text


async def test_an_attempt_is_named_once_its_curves_are_there() -> None:
    shown = watched(runs=(attempt(3), attempt(2, id="unread"), attempt(1)))
    async with pane(shown=shown) as at:
        assert "b video-2b-try-1" in at.text
        assert "video-2b-try-2" not in at.text


async def test_a_chart_whose_points_are_all_outside_of_the_window_says_so() -> None:
    async with pane((200, 60)) as at:
        at.backend.curves.grow("team/project/id3", {"val/fvd": Points((9_000.0,), (NOW,), (5.0,))}, fresh=True)
        at.pane.show(later(at.backend.state or State(), points=2))
        text = await at.press("plus", "plus", "plus", "plus")
        assert "val/fvd  5  nothing in this window" in text


async def test_much_is_read_in_several_turns_so_that_keys_are_handled_between() -> None:
    async with pane() as at:
        many = 3 * FRESH_AT_MOST // 4
        pieces = Points(*(tuple(float(step) for step in range(many)) for _ in range(3)))
        for number in (1, 2, 3):
            at.backend.curves.grow(f"team/project/id{number}", dict.fromkeys(KEYS[:2], pieces), fresh=True)
        at.pane.show(later(at.backend.state or State(), points=2))
        charts, paths = at.pane.charts, at.pane.charts.paths
        assert charts.is_behind
        assert [len(charts.copies.known(path, KEYS[0])) for path in paths[:2]] == [many, many]
        for _ in range(200):
            await at.pilot.pause(0.01)
            if not charts.is_behind:
                break
        assert {len(charts.copies.known(path, key)) for path in paths for key in KEYS[:2]} == {many}
        reads = len(at.backend.reads)
        at.pane.show(later(at.backend.state or State(), 4.0, points=2))
        assert len(at.backend.reads) == reads


async def test_nan_is_marked_and_the_axis_stays_when_a_point_comes() -> None:
    async with pane() as at:
        assert "✗" in at.text
        state, x = at.backend.state or State(), at.pane.charts.x
        for step in range(3):
            at.backend.curves.grow(
                "team/project/id3", {"train/loss": Points((12_884.0 + step,), (NOW + step,), (1.8,))}, fresh=False
            )
            at.pane.show(later(state, step + 1.0, points=step + 2))
        assert at.pane.charts.x == x


async def test_the_next_attempt_takes_the_place_of_the_current_one() -> None:
    async with pane() as at:
        state = at.backend.state or State()
        at.backend.curves.grow(
            "team/project/id4", {"train/loss": Points((12_000.0, 12_001.0), (NOW, NOW + 4.0), (1.7, 1.6))}, fresh=True
        )
        runs = (attempt(4), attempt(3, state="crashed"), attempt(2), attempt(1))
        at.pane.show(later(state, 60.0, points=2, runs=runs, active=("id4",)))
        text = await at.press()

        assert "video-2b-try-4" in at.caption
        assert "a video-2b-try-3" in text
        assert at.pane.page == "https://wandb.ai/team/project/runs/id4"
        assert at.pane.copy_text() == at.pane.page


async def test_several_waiting_and_a_source_that_fails_are_shown_over_the_charts() -> None:
    async with pane((80, 24)) as at:
        state = at.backend.state or State()
        why = "2 runs are active where one is expected: video-2b-try-3 (id3), video-2b-try-2 (id2)"
        at.pane.show(later(state, phase="several", why=why, since=NOW - 400.0))
        text = await at.press()
        assert "video-2b-try-2 (id2)" in " ".join(line.strip("│ ") for line in text.splitlines())
        assert at.titles[0] == "train/loss"

        failing = Source(name=f"wandb:{NAME}", kind="wandb", cluster="prod", health="down",
                         error="W&B did not answer in 25s", hint="it is tried again in 2m")  # fmt: skip
        at.pane.show(replace(later(state, 4.0), sources={failing.name: failing}))
        assert "W&B did not answer in 25s (it is tried again in 2m)" in await at.press()


async def test_text_of_strangers_draws_nothing_of_its_own() -> None:
    nasty = attempt(3, name="try\x1b[31m3", host="gpu\n01")
    trouble = LossTrouble(state="nan", key="nan\x1b]0;x\x07", value=math.nan, step=3, at=NOW)
    async with pane((200, 60), watched(runs=(nasty,), trouble=trouble)) as at:
        assert "\x1b" not in at.text
        assert "try3" in at.caption


async def test_what_cannot_be_drawn_fails_alone() -> None:
    async with pane() as at:
        at.pane.charts.draw = broken  # type: ignore[method-assign, assignment]
        await at.press("e")
        assert "This pane cannot be drawn" in at.text
        del at.pane.charts.draw
        await at.press("e")
        assert at.titles[0] == "train/loss"


def broken(*reads_since: object, **how: object) -> None:
    raise ZeroDivisionError("no room at all")


async def test_a_curve_of_nothing_but_nan_has_a_chart_with_its_marks() -> None:
    async with pane() as at:
        state = at.backend.state or State()
        steps = (1.0, 2.0, 3.0)
        at.backend.curves.grow("team/project/id3", {"train/loss": Points(steps, steps, (math.nan,) * 3)}, fresh=True)
        at.pane.show(later(state, points=2))
        await at.press("c")
        assert at.titles[0] == "train/loss"
        assert "nan" in at.text


async def test_a_metric_that_nobody_logs_says_so_and_zeros_stay_on_a_linear_axis() -> None:
    async with pane(shown=watched(keys=("train/zeros", "train/tpyo"))) as at:
        at.backend.curves.grow(
            "team/project/id3", {"train/zeros": Points((1.0, 2.0), (NOW, NOW + 1.0), (0.0, 0.0))}, fresh=False
        )
        at.pane.show(later(at.backend.state or State(), points=2))
        text = await at.press("e")
        assert "train/tpyo    nothing was logged under this name" in text
        assert "train/zeros  0  no log axis: no value is above zero" in text


async def test_numbers_of_strangers_never_keep_the_charts_from_being_drawn() -> None:
    """Zeros that become positive on a log axis, milliseconds as times, steps beyond all bounds, one point alone."""
    async with pane() as at:
        state = at.backend.state or State()
        pieces = (
            Points((1.0,), (NOW,), (0.0,)),
            Points((2.0, 3.0), (NOW * 1000.0, -math.inf), (0.5, 1e308)),
            Points((1e300, -1e300, math.nan), (math.nan, 0.0, 1.0), (-1e308, 5e-324, 1.0)),
        )
        await at.press("e")
        for number, piece in enumerate(pieces):
            at.backend.curves.grow("team/project/id3", dict.fromkeys(KEYS, piece), fresh=number == 0)
            at.pane.show(later(state, number + 1.0, points=number + 2))
            for key in ("t", "e", "plus", "minus", "left", "d", "s", "c", "t", "0"):
                await at.pilot.press(key)
                assert at.pane.failed_at is None, (number, key)
        assert at.titles[0] == "train/loss"


def test_it_is_pane_six() -> None:
    assert issubclass(WandbPane, Pane)
    assert (WandbPane.NUMBER, WandbPane.NAME) == ("6", "Charts")


# ---- filter, cursor, axes, other runs ------------------------------------------------------------------------------


async def test_a_filter_shows_the_metrics_with_its_words_and_escape_shows_all() -> None:
    async with pane() as at:
        at.pane.set_filter("loss !val")
        assert at.titles == ["train/loss"]
        assert "1 of 8" in at.caption
        at.pane.set_filter("nowhere")
        before = at.pane.view
        assert "No metric matches “nowhere”. Esc shows all." in await at.press("i", "e", "s")
        assert at.pane.view == before, "no key changes what nobody sees"
        at.pane.view = before._replace(cursor=9_000.0)
        assert at.pane.clear_filter()
        assert (at.pane.filter, at.pane.view.cursor) == ("", 9_000.0)
        assert at.pane.clear_filter(), "the cursor"
        await at.settled()
        assert len(at.titles) > 1
        assert not at.pane.clear_filter()


async def test_metrics_that_nobody_chose_come_behind_the_others_and_those_of_the_machine_last() -> None:
    more = {"system/cpu": 1.0, "layers.10.norm": 2.0, "layers.9.norm": 3.0}
    async with pane((200, 60)) as at:
        found = {key: Points((9_000.0,), (NOW,), (value,)) for key, value in more.items()}
        at.backend.curves.grow("team/project/id3", found, fresh=True)
        at.pane.show(later(at.backend.state or State(), points=2, names=(*more, *KEYS)))
        rows = [row.key for row in at.pane.lines.rows]
        assert rows[: len(KEYS) + 3] == [*KEYS, "layers.9.norm", "layers.10.norm", "system/cpu"]
        at.pane.set_filter("layers")
        assert "layers.10.norm  2" in await at.press()


async def test_the_cursor_shows_the_values_of_every_attempt_at_one_step() -> None:
    async with pane() as at:
        at.pane.view = at.pane.view._replace(cursor=8_400.0)
        at.pane.again()
        await at.press()
        text = at.text
        curves = at.backend.curves
        now, before = (curves.read(f"team/project/id{number}", "train/loss") for number in (3, 2))
        values = [one.values[one.steps.index(8_400.0)] for one in (now, before)]
        assert f"train/loss  {values[0]:.4g}  a {values[1]:.4g} " in text, "the first attempt ended before"
        assert "step 8,400" in text
        assert at.pane.clear_filter(), "Esc ends it"
        assert "step 8,400" not in await at.press()


async def test_the_cursor_begins_at_the_end_and_moves_with_the_arrows_by_step_and_by_time() -> None:
    async with pane() as at:
        assert "step 12,876" in await at.press("i")
        before = at.pane.view
        assert "step 12,876" not in await at.press("left", "left")
        step = at.pane.view.cursor
        assert step is not None
        await at.press("t", "t")
        assert at.pane.view.cursor == pytest.approx(step, abs=8.0)
        await at.press("right", "right", "right", "right", "i")
        assert at.pane.view == before._replace(cursor=None)


async def test_the_axis_without_the_start_shows_the_rest_larger_and_marks_what_is_cut() -> None:
    async with pane() as at:
        at.backend.curves.grow(
            "team/project/id9", {"train/loss": Points((0.0, 50.0, 100.0, 1_000.0), (NOW,) * 4, (900.0, 3.0, 2.0, 1.0))},
            fresh=True,
        )  # fmt: skip
        at.pane.show(later(at.backend.state or State(), points=2, runs=(attempt(9),), active=("id9",)))
        assert "500┤" in at.text
        assert "without the start" in await at.press("e", "e")
        assert "500┤" not in at.text
        assert "2.0┤↑" in at.text
        assert "without the start" not in await at.press("e")
        assert "500┤" in at.text


async def test_settings_and_latest_values_are_the_page_behind_the_charts() -> None:
    shown = watched(runs=(attempt(3, config={"optimizer.lr": "0.0003", "model": "2b"}),))
    async with pane(shown=shown) as at:
        while "settings and latest values" not in at.caption:
            await at.press("v")
        assert [row.key for row in at.pane.lines.rows] == [
            "settings", "settings/model", "settings/optimizer.lr", "latest values", "latest values/epoch",
            "latest values/note",
        ]  # fmt: skip
        at.pane.set_filter("lr")
        assert [row.key for row in at.pane.lines.rows] == ["settings/optimizer.lr"]
        assert " of 8" not in at.caption, "that would be a number of metrics"
        at.pane.set_filter("zzz")
        assert "No setting matches “zzz”. Esc shows all." in await at.press()
        at.pane.set_filter("lr")
        at.pane.clear_filter()
        await at.press("v")
        assert at.titles[0] == KEYS[0]


def curve_styles(at: Shown) -> dict[str, str]:
    """The colour of the curve of each path."""
    return {path: f"curve{number}" for path, number in at.pane.charts.colours.items()}


async def test_an_attempt_keeps_its_colour_when_the_next_one_begins() -> None:
    async with pane() as at:
        before = curve_styles(at)
        assert len(set(before.values())) == 3
        at.backend.curves.grow("team/project/id4", {"train/loss": Points((9_000.0,), (NOW,), (2.0,))}, fresh=True)
        state = at.backend.state or State()
        wandb = state.runs[NAME].wandb
        assert wandb is not None
        at.pane.show(later(state, points=2, runs=(attempt(4, state="running"), *wandb.runs), active=("id4",)))
        after = curve_styles(at)
        assert before.items() <= after.items()
        assert after["team/project/id4"] not in before.values()


async def test_marked_runs_are_drawn_beside_it_and_are_no_restarts() -> None:
    shown = watched(runs=(attempt(3),))
    other = replace(shown.runs[NAME], spec=RunSpec(name="sft-1b", cluster="prod"))
    assert other.wandb is not None
    other = replace(other, wandb=replace(other.wandb, runs=(attempt(2, state="running"),), active=("id2",)))
    async with pane(shown=replace(shown, runs={NAME: shown.runs[NAME], "sft-1b": other})) as at:
        assert "a sft-1b" not in at.text
        at.pane.marked = lambda: ["sft-1b", NAME, "gone"]
        at.pane.again()
        text = await at.press()
        assert "a sft-1b" in text
        assert "restart" not in text
        assert at.pane.charts.paths == ("team/project/id3", "team/project/id2")
        assert "a sft-1b" not in await at.press("c")


async def test_under_the_cursor_a_run_that_has_not_come_so_far_has_no_value() -> None:
    shown = watched(runs=(attempt(2, state="running"),), active=("id2",))
    other = replace(watched(runs=(attempt(3),)).runs[NAME], spec=RunSpec(name="sft-1b", cluster="prod"))
    async with pane(shown=replace(shown, runs={**shown.runs, "sft-1b": other})) as at:
        at.pane.marked = lambda: ["sft-1b"]
        at.pane.again()
        at.pane.view = at.pane.view._replace(cursor=12_000.0)
        at.pane.again()
        assert "train/loss  -  a 1.7" in await at.press()


async def test_marked_runs_for_which_there_is_no_colour_are_counted() -> None:
    shown = watched()
    others = {}
    for number in range(8):
        name = f"sft-{number}"
        made = watched(runs=(attempt(3, id=name),), active=(name,)).runs[NAME]
        others[name] = replace(made, spec=RunSpec(name=name, cluster="prod"))
    async with pane(shown=replace(shown, runs={**shown.runs, **others})) as at:
        for name in others:
            at.backend.curves.grow(f"team/project/{name}", {"train/loss": Points((9.0,), (NOW,), (2.0,))}, fresh=True)
        at.pane.marked = lambda: list(others)
        at.pane.again()
        assert "─ not drawn: 3 marked runs  a sft-0  b sft-1" in await at.press()
        assert "not drawn" not in await at.press("c")


async def test_what_has_no_curve_is_not_exported() -> None:
    async with pane() as at:
        assert len(list(at.pane.table())) > 1_000
        at.pane.lines.move_to("epoch")
        assert list(at.pane.table()) == []
        while "settings and latest values" not in at.caption:
            await at.press("v")
        assert list(at.pane.table()) == []
