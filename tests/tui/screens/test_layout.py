"""What fits at which size."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from textual.geometry import Region

from tests.tui.dashboard import showing
from tests.tui.screen_text import at_rest, text_of
from tests.tui.states.alerts import alert, with_alerts
from tests.tui.states.states import calm, queued, troubled
from trainmon.model import Arrangement, LastSeen
from tui.keys import NAMES
from tui.screens.main import (
    POSITIONS,
    PRESETS,
    Chosen,
    Shape,
    arranged,
    pane_regions,
    panes_by_position,
    shape,
    what_is_hidden,
)


@pytest.mark.parametrize(
    ("width", "height", "columns"),
    [
        (59, 40, (("1",),)),
        (120, 15, (("1",),)),
        (60, 24, (("1", "4"),)),
        (80, 24, (("1", "4"),)),
        (119, 40, (("1", "4"),)),
        (120, 40, (("1", "4"), ("2", "3", "5"))),
        (179, 40, (("1", "4"), ("2", "3", "5"))),
        (180, 39, (("1", "4"), ("2", "3", "5"), ("run",))),
        (180, 60, (("1", "5"), ("2", "3"), ("run",))),
    ],
)
def test_each_width_has_its_shape(width: int, height: int, columns: tuple[tuple[str, ...], ...]) -> None:
    assert shape(width, height, Chosen()).columns == columns


def test_gpus_disks_and_queue_take_the_lower_half_when_there_is_one_column() -> None:
    for number in "23567":
        assert shape(80, 24, Chosen().go_to(number)).columns == (("1", number),)


def test_disks_and_alerts_share_a_place_where_there_is_no_room_for_both() -> None:
    low = Chosen()

    assert shape(120, 29, low).columns == (("1", "4"), ("2", "3"))
    assert shape(120, 29, low.go_to("5").go_to("1")).columns == (("1", "4"), ("2", "5"))
    assert shape(200, 29, low.go_to("5").go_to("3")).columns == (("1", "4"), ("2", "3"), ("run",))
    assert shape(120, 30, low).columns == (("1", "4"), ("2", "3", "5"))


def test_the_queue_and_the_log_share_a_place_and_other_panes_leave_it_as_it_is() -> None:
    queue = Chosen().go_to("7")

    assert shape(120, 40, queue).columns == (("1", "7"), ("2", "3", "5"))
    assert shape(120, 40, queue.go_to("3").go_to("1")).columns == (("1", "7"), ("2", "3", "5"))
    assert shape(120, 40, queue.go_to("4")).columns == (("1", "4"), ("2", "3", "5"))


def test_a_tall_screen_shows_both_when_there_is_a_queue() -> None:
    assert shape(120, 50, Chosen(), queue=True).columns == (("1", "7", "4"), ("2", "3", "5"))
    assert shape(120, 50, Chosen()).columns == (("1", "4"), ("2", "3", "5"))
    assert shape(120, 50, Chosen().go_to("7")).columns == (("1", "7", "4"), ("2", "3", "5"))


def test_zoom_leaves_one_pane_at_any_size() -> None:
    assert shape(200, 60, Chosen("3"), zoomed=True).columns == (("3",),)


def test_a_small_screen_says_what_it_hides() -> None:
    hidden = shape(50, 12, Chosen()).hidden

    assert what_is_hidden(hidden, 100) == "one pane fits here; also: 2 GPUs  3 Disk  4 Log  5 Alerts  6 Charts  7 Queue"
    assert what_is_hidden(hidden, 58) == "also 2 GPUs  3 Disk  4 Log  5 Alerts  6 Charts  7 Queue"
    assert what_is_hidden(hidden, 50) == "also 2 3 4 5 6 7"


def test_the_charts_take_the_place_of_the_log_where_they_have_no_column() -> None:
    charts = Chosen().go_to("6")

    assert shape(60, 16, charts).columns == (("1", "6"),)
    assert shape(120, 40, charts).columns == (("1", "6"), ("2", "3", "5"))
    assert shape(120, 40, charts.go_to("2")).columns == (("1", "6"), ("2", "3", "5"))
    assert shape(120, 40, charts.go_to("4")).columns == (("1", "4"), ("2", "3", "5"))
    assert shape(120, 50, charts, queue=True).columns == (("1", "7", "6"), ("2", "3", "5"))
    assert shape(120, 50, charts.go_to("7"), queue=True).columns == (("1", "7", "4"), ("2", "3", "5"))


def test_the_charts_have_the_third_column_where_a_run_has_some_or_somebody_asks() -> None:
    log, queue = Chosen(), Chosen().go_to("7").go_to("6")

    assert shape(180, 40, log).columns[2] == ("run",)
    assert shape(180, 40, log, charts=True).columns[2] == ("6", "run")
    assert shape(180, 40, queue).columns == (("1", "7"), ("2", "3", "5"), ("6", "run"))
    assert "6" in shape(180, 40, log).hidden


@given(st.integers(1, 400), st.integers(1, 120), st.sampled_from(sorted(NAMES)), st.booleans(), st.booleans())
def test_the_panes_fill_the_body_and_none_is_over_another(
    width: int, height: int, number: str, queue: bool, charts: bool
) -> None:
    found = shape(width, height, Chosen().go_to(number), queue=queue, charts=charts)
    stand = pane_regions(found, width, height)

    assert set(stand) == {pane for column in found.columns for pane in column} | {found.across} - {""}
    assert number in stand
    assert sum(place.width * place.height for place in stand.values()) == width * height
    cells = [(place.x, place.y) for place in stand.values() if place.width and place.height]
    assert len(cells) == len(set(cells))


def rows_of(shape: Shape, height: int, **needed: float) -> dict[str, int]:
    found = pane_regions(shape, 200, height, {name.removeprefix("n"): rows for name, rows in needed.items()})
    return {pane: region.height for pane, region in found.items()}


def test_five_runs_take_five_rows_and_the_log_has_the_rest() -> None:
    assert rows_of(Shape((("1", "4"),)), 38, n1=8) == {"1": 8, "4": 30}


def test_of_sixty_runs_more_than_half_of_the_column_is_shown() -> None:
    assert rows_of(Shape((("1", "4"),)), 38, n1=63) == {"1": 22, "4": 16}


def test_what_a_pane_does_not_need_goes_to_those_that_need_more() -> None:
    column = Shape((("2", "3", "5"),))

    assert rows_of(column, 38, n2=11, n3=5, n5=14) == {"2": 11, "3": 5, "5": 22}
    assert rows_of(column, 38, n2=303, n3=5, n5=9) == {"2": 24, "3": 5, "5": 9}
    assert rows_of(column, 38, n2=303, n3=5, n5=90) == {"2": 18, "3": 5, "5": 15}


def test_the_wide_log_begins_where_the_columns_above_it_need_no_more() -> None:
    wide = Shape((("1", "5"), ("2", "3"), ("run",)), across="4")

    assert rows_of(wide, 57, n1=8, n5=9, n2=11, n3=5) == {"1": 8, "5": 9, "2": 11, "3": 6, "run": 57, "4": 40}
    assert rows_of(wide, 57, n1=63, n5=9, n2=11, n3=5)["4"] == 12


async def test_sixty_runs_have_the_room_that_others_do_not_need() -> None:
    state = queued()
    one = next(iter(calm().runs.values()))
    runs = {f"exp-{n:02}": replace(one, spec=replace(one.spec, name=f"exp-{n:02}")) for n in range(60)}
    async with showing(replace(state, runs=runs), (200, 60)) as (app, pilot, _):
        await at_rest(pilot)
        assert sum(f" exp-{n:02} " in text_of(app) for n in range(60)) >= 40
        assert app.main.gpus.lines.size.height >= len(app.main.gpus.lines.rows)
        assert app.main.disk.lines.size.height == len(app.main.disk.lines.rows)

        await pilot.press("right_square_bracket")
        await at_rest(pilot)
        assert app.main.shape.columns[0] == ("7", "1"), "panes that a person has ordered stay"


async def test_the_log_makes_room_for_sixty_runs_where_the_other_column_has_empty_rows() -> None:
    one = next(iter(calm().runs.values()))
    runs = {f"exp-{n:02}": replace(one, spec=replace(one.spec, name=f"exp-{n:02}")) for n in range(60)}
    nodes = dict([*calm().nodes.items()][:3])
    async with showing(replace(calm(), runs=runs, nodes=nodes, disks={}), (120, 40)) as (app, pilot, _):
        await at_rest(pilot)
        assert app.main.shape.columns == (("1",), ("2", "3", "5", "4"))
        assert sum(f" exp-{n:02} " in text_of(app) for n in range(60)) >= 33
        assert app.main.log_pane.size.height >= 12
        await pilot.press("4")
        await at_rest(pilot)
        assert app.main.pane is app.main.log_pane
        assert app.main.shape.columns == (("1",), ("2", "3", "5", "4"))
    async with showing(calm(), (120, 40)) as (app, pilot, _):
        await at_rest(pilot)
        assert app.main.shape.columns == (("1", "4"), ("2", "3", "5")), "five runs are shown beside their log"


async def test_a_sentence_has_as_many_lines_as_there_is_room_for() -> None:
    long = "it has " + ", ".join(f"reason {n}" for n in range(1, 31)) + " and the last one"
    state = replace(with_alerts(alert(summary=long)), disks=calm().disks)
    async with showing(state, (120, 40)) as (app, pilot, _):
        await at_rest(pilot)
        assert "last one" in text_of(app)
        assert app.main.disk.lines.size.height == len(app.main.disk.lines.rows), "no empty row above it"

        await pilot.press("5", "z")
        await at_rest(pilot)
        assert "last one" in text_of(app), "also in a wide pane"

    many = with_alerts(*(alert(f"{n:08}", summary=long) for n in range(12)))
    async with showing(many, (120, 40)) as (app, _pilot, _):
        assert "last one" not in text_of(app), "where there is no room, more alerts are better"
        assert sum("CRIT" in row.text or "▲" in row.text for row in app.main.alerts.lines.rows) == 12


def test_on_a_wide_screen_the_log_is_as_wide_as_two_columns() -> None:
    found = shape(200, 60, Chosen(), queue=True, charts=True)
    stand = pane_regions(found, 200, 57)

    assert found == Shape((("1", "7"), ("2", "3", "5"), ("6", "run")), (), across="4")
    assert stand["4"] == (0, 45, 142, 12)
    assert stand["7"] == (0, 27, 78, 18)
    assert stand["run"].y + stand["run"].height == 57


def test_on_a_wide_screen_the_queue_can_take_the_place_of_the_log() -> None:
    assert shape(200, 45, Chosen().go_to("7")) == Shape((("1", "7"), ("2", "3", "5"), ("run",)), ("4", "6"))
    assert shape(200, 45, Chosen().go_to("7").go_to("4")).across == "4"


# ---- what a person arranged ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "name", "columns", "across"),
    [
        (80, 24, "runs and log", (("1", "4"),), ""), (120, 40, "runs and log", (("1", "4"),), ""),
        (80, 24, "cluster", (("2", "7"),), ""), (120, 40, "cluster", (("2", "7"), ("3", "5")), ""),
        (80, 24, "one run", (("6", "4"),), ""), (120, 40, "one run", (("6", "4"), ("run",)), ""),
        (200, 60, "runs and log", (("1",),), "4"), (200, 60, "cluster", (("2", "5"), ("3",)), "7"),
    ],
)  # fmt: skip
def test_a_preset_shows_its_panes_at_every_size(
    width: int, height: int, name: str, columns: tuple[tuple[str, ...], ...], across: str
) -> None:
    found = arranged(shape(width, height, Chosen()), PRESETS[name], columns[0][0])

    assert (found.columns, found.across) == (columns, across)


@given(
    st.integers(1, 400), st.integers(1, 120), st.permutations(POSITIONS), st.sets(st.sampled_from(sorted(NAMES))),
    st.dictionaries(st.sampled_from(POSITIONS), st.integers(-4, 4)), st.booleans(),
)  # fmt: skip
def test_however_panes_are_arranged_they_fill_the_body(
    width: int, height: int, order: list[str], hidden: set[str], larger: dict[str, int], queue: bool
) -> None:
    mine = Arrangement(order=tuple(order), hidden=frozenset(hidden), larger=larger)
    positions = {pane: position for position, pane in panes_by_position(mine).items()}
    for number in NAMES.keys() - hidden:
        found = arranged(shape(width, height, Chosen().go_to(positions[number]), queue=queue), mine, number)
        stand = pane_regions(found, width, height, dict.fromkeys(POSITIONS, 9), larger)

        assert number in stand
        assert not hidden & stand.keys()
        assert sum(place.width * place.height for place in stand.values()) == width * height


def test_an_enlarged_pane_takes_room_from_its_column_and_from_the_other_columns() -> None:
    usual, wide = Shape((("1", "4"), ("2", "3"))), {"2": 2}
    before, after = pane_regions(usual, 120, 40), pane_regions(usual, 120, 40, {}, wide)

    assert before["2"] == Region(68, 0, 52, 26)
    assert after["2"] == Region(57, 0, 63, 32)
    assert after["3"].height == 8


async def test_panes_are_hidden_and_come_back_by_their_numbers() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        await pilot.press("3", "h")
        await at_rest(pilot)
        assert "3 Disk ─" not in text_of(app)
        assert app.main.current != "3", "the focus has left it"

        await pilot.press("3")
        await at_rest(pilot)
        assert "3 Disk ─" in text_of(app)
        assert app.main.current == "3"

        await pilot.press(*"hhhhhhhhh")
        await at_rest(pilot)
        assert app.main.arrangement.hidden < NAMES.keys(), "one always stays"


async def test_panes_swap_their_places_and_the_numbers_stay_theirs() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        await pilot.press("3", "right_square_bracket")
        await at_rest(pilot)
        assert (app.main.current, app.main.shape.columns[1]) == ("3", ("2", "5", "3"))
        assert app.main.alerts.region.y < app.main.disk.region.y

        await pilot.press("5", "left_square_bracket", "left_square_bracket")
        await at_rest(pilot)
        assert app.main.shape.columns == (("1", "5"), ("4", "2", "3"))
        assert app.main.alerts.has_focus_within


async def test_a_pane_grows_at_once() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        before = app.main.disk.size
        await pilot.press("3", "greater_than_sign", "greater_than_sign")
        await at_rest(pilot)
        assert app.main.disk.size.width > before.width
        assert app.main.disk.size.height > before.height

        await pilot.press("less_than_sign", "less_than_sign")
        await at_rest(pilot)
        assert app.main.disk.size == before


async def test_a_key_cycles_the_presets() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        shown = []
        for _ in range(5):
            await pilot.press("full_stop")
            await at_rest(pilot)
            shown.append((app.main.current, app.main.shape.columns))

        assert shown[0] == ("1", (("1", "4"),))
        assert shown[1] == ("2", (("2", "7"), ("3", "5")))
        assert shown[2] == ("6", (("6", "4"), ("run",)))
        assert shown[3] == ("6", (("1", "6"), ("2", "3", "5")))
        assert shown[4] == shown[0]


async def test_the_presets_lead_back_to_an_arrangement_of_ones_own() -> None:
    async with showing(troubled(), (120, 40)) as (app, pilot, _):
        await pilot.press("3", "h", "1", "greater_than_sign")
        await at_rest(pilot)
        mine = app.main.arranged()
        for _ in PRESETS:
            await pilot.press("full_stop")
            await at_rest(pilot)
            assert app.main.arranged() != mine
        await pilot.press("full_stop")
        assert app.main.arranged() == mine
        assert "panes: your own" in text_of(app)


async def test_an_arrangement_is_remembered_and_a_damaged_one_does_no_harm() -> None:
    mine = Arrangement(order=PRESETS["cluster"].order, hidden=frozenset("1"), larger={"2": 1}, sorts={"2": "-temp"})
    async with showing(troubled(), (120, 40), seen=LastSeen(at=0.0, arrangement=mine)) as (app, pilot, _):
        await at_rest(pilot)
        assert app.main.current == "2"
        assert "sort temp" in text_of(app)
        assert app.main.arranged() == mine

    bad = Arrangement(order=("9", "1"), hidden=frozenset("1234567x"), larger={"z": 3}, sorts={"1": "no-such"})
    async with showing(calm(), (120, 40), seen=LastSeen(at=0.0, arrangement=bad)) as (app, pilot, _):
        await at_rest(pilot)
        assert "1 Runs" in text_of(app)
