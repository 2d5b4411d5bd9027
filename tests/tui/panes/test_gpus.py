"""The GPU grid: what a line says, which line comes first, and what a change paints."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace
from textual.geometry import Region

from tests.tui.apps import Alone
from tests.tui.dashboard import showing
from tests.tui.pilot import running
from tests.tui.screen_text import settled
from tests.tui.states import worlds
from tests.tui.states.worlds import NOW, node, source, state
from tests.tui.still import StillBackend
from trainmon.lib import natural_key, shorten
from trainmon.model import GpuInstance, Job, Node, Process, SchedulerNode, Series, Source, State
from tui.app import Dashboard
from tui.panes.gpus import USER, GpusPane, grid_caption, node_sentence
from tui.style import Row, Span, ascii_text
from tui.views.nodes import METRICS, SPARKS_AT_ONCE, Grid, Metric, node_summary, sparkline
from tui.widgets import GUTTER

UTILIZATION, TEMPERATURE, MEMORY, POWER, ERRORS = METRICS
EMPTY = Series((), ())


def line(made: Node, *sources: Source, metric: Metric = TEMPERATURE, width: int = 110) -> str:
    """The one line of a State with this node."""
    return rows(state(made, sources=sources), metric, width)[0].text.rstrip()


def rows(found: State, metric: Metric = TEMPERATURE, width: int = 110, **how: str) -> list[Row]:
    return Grid().rows(found, metric, width, **how)


def names(found: State, **how: str) -> list[str]:
    return [row.key for row in rows(found, **how)]


def spans(row: Row, text: str) -> list[Span]:
    return [span for span in row.spans if span.text.strip() == text]


def test_a_calm_node_shows_its_cells_and_two_numbers() -> None:
    assert line(node("node01")) == "  node01  60  61  62  63  60  61  62  63      78G   98%"


def test_the_columns_have_heads_over_their_values() -> None:
    grid = Grid()
    found = grid.rows(worlds.calm(1), TEMPERATURE, 110)[0].text
    head = "".join(span.text for span in grid.head)
    assert head == "  NODE     0   1   2   3   4   5   6   7  mem max  util"
    assert head.index("util") + 4 == found.index("98%") + 3
    assert head.index("mem max") + 7 == found.index("78G") + 3


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({5: {"temperature_c": 94, "temperature_margin_c": -1, "throttle": ("hw_thermal",)}},
         "▲ node01  60  61  62  63  60  94! 62  63      78G   98%  HOT  THROTTLE hw_thermal"),
        ({1: {"temperature_margin_c": 4}}, "◆ node01  60  61! 62  63  60  61  62  63      78G   98%  warm"),
        ({2: {"state": "lost", "error": "GPU is lost", "last_xid": 79, "last_xid_at": NOW - 400}},
         "▲ node01  60  61   ✗  63  60  61  62  63      78G   98%  LOST gpu2  XID 79 6m"),
        ({2: {"state": "error", "error": "Unknown Error"}},
         "▲ node01  60  61   E! 63  60  61  62  63      78G   98%  ERROR gpu2"),
        ({0: {"throttle": ("hw_slowdown", "hw_power_brake", "sw_power_cap")}},
         "◆ node01  60  61  62  63  60  61  62  63      78G   98%  THROTTLE hw_slowdown,hw_power_brake"),
        ({7: {"ecc_uncorrected": 2, "remap_failed": True}},
         "▲ node01  60  61  62  63  60  61  62  63      78G   98%  ECC 2  REMAP failed"),
        ({0: {"temperature_c": None}}, "  node01   ?  61  62  63  60  61  62  63      78G   98%"),
        ({0: {"temperature_c": 104, "temperature_margin_c": -9}},
         "▲ node01 104! 61  62  63  60  61  62  63      78G   98%  HOT"),
    ],
)  # fmt: skip
def test_trouble_is_shown_in_words(changed: dict[int, dict[str, object]], says: str) -> None:
    assert line(node("node01", changed=changed)) == says


def test_old_numbers_of_gpus_are_dim_though_the_rest_of_the_node_answers() -> None:
    made, over = node("node01"), source("node01")
    styles = {}
    for at in (NOW - 1.0, NOW - 100.0):
        [row] = rows(state(replace(made, gpus_at=at), sources=(over,)))
        styles[at] = spans(row, "63")[0].style, row.spans[-1].style
    assert styles == {NOW - 1.0: ("load3", ""), NOW - 100.0: ("dim", "dim")}


def test_a_gpu_that_the_driver_promises_and_nobody_saw_is_lost() -> None:
    made = node("node01")
    made = replace(made, gpus=made.gpus[:7])
    assert line(made) == "▲ node01  60  61  62  63  60  61  62   ✗      78G   98%  LOST 1 GPU"


def test_a_slot_that_only_other_nodes_have_is_a_dot() -> None:
    small = rows(state(node("a", 4), node("b", 8)), sort="node")[0]
    assert small.text.rstrip().startswith("  a     60  61  62  63   ·   ·   ·   ·")


@pytest.mark.parametrize(
    ("metric", "changed", "cell"),
    [
        (MEMORY, {}, "77"),
        (MEMORY, {"memory_used_mib": 81_500}, "79!"),
        (UTILIZATION, {}, "98"),
        (UTILIZATION, {"mig": True, "utilization_pct": None}, "-"),
        (POWER, {"power_w": 1_401.6}, "1402"),
        (POWER, {"throttle": ("hw_power_brake",)}, "690!"),
        (ERRORS, {}, "0"),
        (ERRORS, {"ecc_uncorrected": None}, "-"),
        (ERRORS, {"ecc_uncorrected": 3}, "e3!"),
        (ERRORS, {"last_xid": 63, "last_xid_at": NOW}, "x63!"),
        (ERRORS, {"remap_pending": True}, "map!"),
    ],
)
def test_what_each_metric_shows(metric: Metric, changed: dict[str, object], cell: str) -> None:
    assert rows(state(node("n", changed={0: dict(changed)})), metric)[0].spans[2].text.strip() == cell


@pytest.mark.parametrize("metric", METRICS)
def test_what_is_not_known_stands_where_numbers_stand(metric: Metric) -> None:
    names = ("utilization_pct", "temperature_c", "memory_used_mib", "power_w", "ecc_uncorrected")
    found = rows(state(node("n", changed={0: dict.fromkeys(names)})), metric)[0].spans[2].text
    assert (found.strip() in "?-", found[-1]) == (True, " "), "the last cell is for a sign"


def test_the_mean_of_a_node_cut_by_mig_does_not_apply() -> None:
    made = node("n", changed={i: {"mig": True, "utilization_pct": None} for i in range(8)})
    assert line(made).endswith("78G     -")


def test_a_late_node_is_dim_and_says_how_old_it_is() -> None:
    found = rows(state(node("n"), sources=(source("n", health="late", answered_at=NOW - 9),)))[0]
    assert found.text.rstrip().endswith("late 9s")
    assert {span.style for span in found.spans if span.text.strip()} == {"dim"}


def test_a_late_age_moves_though_the_node_does_not() -> None:
    grid, found = Grid(), state(node("n"), sources=(source("n", health="late", answered_at=NOW - 9),))
    assert "late 9s" in grid.rows(found, TEMPERATURE, 110)[0].text
    assert "late 10s" in grid.rows(replace(found, at=NOW + 2), TEMPERATURE, 110)[0].text


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"phase": "retrying", "error": "no answer in 10s", "answered_at": NOW - 42},
         "✗ n      ?   ?   ?   ?   ?   ?   ?   ?  late 40s: no answer in 10s"),
        ({"phase": "held", "error": None}, "✗ n      ?   ?   ?   ?   ?   ?   ?   ?  login needed: press L"),
    ],
)  # fmt: skip
def test_a_node_that_is_down_says_why_and_shows_no_old_number(facts: dict[str, object], says: str) -> None:
    assert line(node("n"), source("n", health="down", **facts)) == says


def test_a_long_error_takes_the_place_of_the_cells_when_narrow() -> None:
    words = line(
        node("n"), source("n", health="down", error="Permission denied (publickey)", answered_at=None), width=46
    )
    assert words == "✗ n     ?  Permission denied (publickey)"


def test_a_node_that_never_answered_has_a_line() -> None:
    found = state(sources=(source("n1", health="late", phase="connecting", answered_at=None),))
    assert rows(found)[0].text.split() == ["n1", "?", "connecting"]


def test_the_worst_comes_first_and_calm_nodes_by_their_natural_names() -> None:
    order = names(worlds.rough(2))
    assert order == [
        "node08", "node16",  # down
        "node03", "node09",  # lost
        "node07", "node18",  # hot
        "node11",  # throttled
        "node12", "node17",  # ECC, a part of the probe
        "node15", "node19",  # late
        "node13", "node14", "node20", "node21",
    ]  # fmt: skip
    assert natural_key("gpu-2") < natural_key("gpu-10") < natural_key("login")


def test_other_sort_orders() -> None:
    found = worlds.rough(2)
    assert names(found, sort="node")[:3] == ["node03", "node07", "node08"]
    assert names(found, sort="temp")[:2] == ["node07", "node18"]
    assert names(found, sort="util")[0] == "node13"
    power = worlds.state(
        node("a"), node("b", changed={3: {"power_w": 692.0}}), node("c", changed={1: {"power_w": 695.0}})
    )
    assert names(power, sort="power") == ["c", "b", "a"]
    assert names(power, sort="-power") == ["a", "b", "c"]


def test_a_node_that_is_hot_now_and_then_keeps_its_place_for_a_while() -> None:
    grid, hot = Grid(), state(node("a"), node("b", changed={0: {"temperature_c": 94, "temperature_margin_c": 0}}))

    def order(found: State, at: float) -> list[str]:
        return [row.key for row in grid.rows(replace(found, at=at), TEMPERATURE, 110)]

    calm = state(node("a"), node("b"))
    assert order(calm, NOW) == ["a", "b"]
    assert order(hot, NOW + 2) == ["b", "a"]
    assert order(calm, NOW + 4) == ["b", "a"]
    assert order(calm, NOW + 18) == ["a", "b"]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("temp>90", ["node07"]), ("temp<40", ["node13"]), ("util<5", ["node13"]), ("lost", ["node03", "node09"]),
        ("node1 temp>80", ["node18"]), ("XID", ["node03"]), ("press", ["node16"]), ("nothing-like-it", []),
        ("prod hot", ["node07"]),
    ],
)  # fmt: skip
def test_the_filter_knows_words_and_comparisons(wanted: str, found: list[str]) -> None:
    assert names(worlds.rough(2), query=wanted) == found


@pytest.mark.parametrize("width", [14, 20, 30, 40, 50, 58, 77, 118, 190])
@pytest.mark.parametrize("metric", METRICS)
def test_no_line_is_wider_than_its_room(width: int, metric: Metric) -> None:
    for found in (worlds.rough(2), worlds.calm(2, 16), state(node("a-very-long-name.of.a.cluster.example", 16))):
        assert [row.text for row in rows(found, metric, width) if len(row.text) > width] == []


def test_sixteen_gpus_fit_half_a_screen() -> None:
    assert rows(worlds.calm(1, 16), width=57)[0].text.split()[1:] == [str(60 + i % 4) for i in range(16)]


def test_a_wide_name_keeps_the_columns() -> None:
    found = rows(state(node("日本"), node("ab")), sort="node")
    assert [row.spans[1].text for row in found] == ["ab   ", "日本 "]


def test_an_error_text_is_made_safe() -> None:
    evil = source("n", health="down", error="bad\x1b]0;title\x07 \x1b[31mred\n", answered_at=None)
    text = line(node("n"), evil)
    assert text.isprintable()
    assert text.endswith("bad red")


def test_the_frame_counts_what_is_in_trouble() -> None:
    found = worlds.rough(2)
    grid = Grid()
    grid.rows(found, TEMPERATURE, 110)
    assert grid_caption(found, grid.ranks()) == "15 nodes, 112 GPUs  2 down  2 lost  2 hot  2 late"
    calm = worlds.calm(3)
    grid.rows(calm, TEMPERATURE, 110)
    assert grid_caption(calm, grid.ranks()) == "3 × 8"


def test_the_story_of_a_node_has_what_its_line_had_to_cut() -> None:
    found = worlds.rough(2)
    assert node_sentence(found, "node08", NOW) == ("node08: late 40s: no answer in 10s; try: ssh node08", "crit")
    assert node_sentence(found, "node03", NOW) == ("node03: LOST gpu2  XID 79 6m  gpu2: GPU is lost", "crit")
    assert node_sentence(found, "node20", NOW) == ("", "dim")
    cut = state(node("n", changed={1: {"mig": True, "utilization_pct": None, "instances": (GpuInstance("1"),)}}))
    assert node_sentence(cut, "n", NOW) == ("n: gpu1: utilization of instances not measured by NVML", "dim")
    west = replace(source("w"), cluster="west")
    several = state(node("n"), node("w"), sources=(source("n"), west))
    assert [node_sentence(several, name, NOW) for name in "nw"] == [("n of prod", "dim"), ("w of west", "dim")]


async def test_one_warmer_gpu_paints_its_cell_and_nothing_else() -> None:
    pane = GpusPane(id="gpus")
    pane.metric = TEMPERATURE
    app = Alone(pane)
    async with running(app, size=(120, 40)) as pilot:
        found = worlds.calm(30)
        pane.show(found)
        await pilot.pause()
        await pilot.pause()
        assert pane.lines.rows[3].key == "node04"
        pane.show(replace(worlds.changed_temperature(found, "node04", 2, 77), at=NOW + 2))
        height = pane.lines.scrollable_content_region.height
        dirty = {region for region in pane.lines._repaint_regions if region.height < height}
        assert pane.lines._repaint_regions == dirty
        assert {(region.y - pane.lines.content_offset.y, region.width) for region in dirty} == {(3, 4)}
        x = GUTTER + pane.lines.rows[3].text.index("77") - 1 + pane.lines.content_offset.x
        assert dirty == {Region(x, 3 + pane.lines.content_offset.y, 4, 1)}


async def test_the_same_numbers_again_paint_nothing() -> None:
    pane = GpusPane(id="gpus")
    app = Alone(pane)
    async with running(app, size=(120, 40)) as pilot:
        found = worlds.calm(30)
        pane.show(found)
        await pilot.pause()
        await pilot.pause()
        again = {name: replace(made, gpus_at=NOW + 1) for name, made in found.nodes.items()}
        pane.show(replace(found, nodes=again, at=NOW + 2))
        assert pane.lines._repaint_regions == set()


async def test_v_goes_round_the_metrics_and_the_cursor_stays() -> None:
    pane = GpusPane(id="gpus")
    app = Alone(pane)
    async with running(app, size=(120, 40)) as pilot:
        pane.show(worlds.rough())
        await pilot.pause()
        pane.lines.focus()
        pane.lines.move_to("node07")
        seen = []
        for _ in range(len(METRICS) + 2):
            await pilot.press("v")
            seen.append(pane.metric.name if pane.view == "nodes" else pane.view)
        assert seen == ["temperature", "memory", "power", "errors", "users", "jobs", "utilization"]
        assert pane.lines.cursor_key == "node07"


# ---- who holds GPUs --------------------------------------------------------------------------------------------------


def held(number: int, name: str, user: str, *nodes: str, gpus: range = range(8), **more: Any) -> Job:
    indices = dict.fromkeys(nodes, tuple(gpus))
    return Job(
        cluster="prod", id=str(number), number=number, name=name, user=user, state="RUNNING", nodes=nodes,
        gpu_indices=indices, detail_at=NOW, **more,
    )  # fmt: skip


def shared() -> State:
    """Ana trains on n1, and holds n2 and n9 for a notebook; cy waits on n4; bo has a process on n3 without a job."""
    empty = {at: {"utilization_pct": 0, "memory_used_mib": 4, "processes": ()} for at in range(8)}
    process = Process(7, "bo", 12_288, "python notebook.py")
    jobs = (
        held(7, "video", "ana", "n1"), held(9, "notebook", "ana", "n2", "n9"),
        held(8, "wait", "cy", "n4", gpus=range(2)), replace(held(5, "cpu only", "dee", "n4"), gpu_indices={}),
    )  # fmt: skip
    found = state(
        node("n1", changed={at: {"processes": (Process(8, "ana", 71_680, "train"),)} for at in range(8)}),
        node("n2", changed=empty), node("n3", changed=empty | {1: {"utilization_pct": 40, "processes": (process,)}}),
        node("n4", changed=empty),
    )  # fmt: skip
    return replace(found, jobs={one.key: one for one in jobs})


def shown(pane: GpusPane) -> list[str]:
    return [row.text.rstrip() for row in pane.lines.rows]


async def test_behind_the_metrics_are_the_users_and_the_jobs_that_hold_gpus_idle_ones_first() -> None:
    pane = GpusPane(id="gpus")
    async with running(Alone(pane), size=(110, 30)) as pilot:
        pane.show(shared())
        await pilot.pause()
        pane.lines.focus()
        await pilot.press(*"vvvvv")
        assert pane.heads.lines[0][0].text == "  USER    JOBS  GPUS  BUSY  IDLE    MEM"
        assert shown(pane) == [
            "◆ cy         1     2     0     2   8.0M  n4",
            "  ana        2    24     8     8   560G  n[1-2,9]; load of 16 of 24 GPUs known",
            "  bo         -     1     1     0    12G  n3 by processes",
        ]
        assert "3 users, 1 idle" in "".join(span.text for span in pane.top.lines[0])
        assert "1 node without current numbers: n9" in "".join(span.text for span in pane.bottom.lines[0])

        pane.set_sort("busy")
        assert [line.split()[0] for line in shown(pane)] == ["ana", "bo", "◆"]
        pane.set_filter("gpus>=2 !busy>0")
        assert [line.split()[1] for line in shown(pane)] == ["cy"]
        pane.clear_filter()
        pane.set_sort(pane.ORDER)

        await pilot.press("v")
        assert shown(pane) == [
            "◆ 8  wait      cy              2     0     2   8.0M  n4",
            "  9  notebook  ana            16     0     8    32M  n[2,9]; load of 8 of 16 GPUs known",
            "  7  video     ana             8     8     0   560G  n1",
        ]
        assert pane.subject_of("prod/7") == ("job", "prod/7")
        pane.set_filter("notebook")
        assert len(shown(pane)) == 1


async def test_enter_on_a_user_shows_the_jobs_of_that_user_or_else_the_nodes() -> None:
    pane = GpusPane(id="gpus")
    async with running(Alone(pane), size=(110, 30)) as pilot:
        pane.show(shared())
        await pilot.pause()
        pane.lines.focus()
        for user, view, first in (("ana", "jobs", "  9  notebook"), ("bo", "nodes", "  n3")):
            pane.action_next_view("users")
            assert pane.subject_of(f"{USER}prod/{user}") is None
            assert pane.lines.move_to(f"{USER}prod/{user}")
            await pilot.press("enter")
            await pilot.pause()
            assert (pane.view, pane.filter) == (view, f"user={user}")
            assert shown(pane)[0].startswith(first)
            assert pane.clear_filter()


async def test_with_no_holder_it_says_so_and_no_line_is_wider_than_the_pane() -> None:
    pane = GpusPane(id="gpus")
    for width in (46, 60, 80):
        async with running(Alone(pane := GpusPane(id="gpus")), size=(width, 20)) as pilot:
            pane.show(shared())
            await pilot.pause()
            for view in ("users", "jobs"):
                pane.action_next_view(view)
                assert {len(line) <= pane.width for line in shown(pane)} == {True}
            pane.show(state(node("n1", changed={at: {"processes": ()} for at in range(8)})))
            assert shown(pane) == [shorten("No job is known to hold a GPU.", pane.width)]
            assert "8 GPUs in use" in "".join(span.text for span in pane.bottom.lines[0])


# ---- at a glance -----------------------------------------------------------------------------------------------------


def loads(*used: int) -> State:
    return state(node("n", changed={at: {"utilization_pct": value} for at, value in enumerate(used)}))


def test_an_idle_a_busy_and_a_full_gpu_have_colours_of_their_own() -> None:
    cells = rows(loads(0, 12, 50, 80, 98), UTILIZATION)[0].spans[2:7]

    assert [cell.text.strip() for cell in cells] == ["0", "12", "50", "80", "98"]
    assert [cell.style for cell in cells] == ["dim", "load1", "load2", "load3", "load4"]


def test_a_warning_keeps_its_colour_whatever_the_load() -> None:
    hot = state(node("n", changed={0: {"temperature_c": 94, "temperature_margin_c": -1}}))

    assert rows(hot, TEMPERATURE)[0].spans[2] == Span("94!".rjust(4), "crit")


def test_without_colours_a_bar_shows_the_load() -> None:
    found = Grid().rows(loads(0, 12, 50, 80, 100), UTILIZATION, 80, bars=True)[0].text

    assert found.split()[1:6] == ["0", "12▂", "50▄", "80▆", "100█"]
    assert ascii_text(found).split()[1:6] == ["0", "12.", "50-", "80+", "100#"]


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TRAINMON_ASCII": "1"}])
async def test_the_pane_draws_bars_on_a_terminal_without_colours(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    async with showing(loads(12), (80, 24)) as (_, pilot, _backend):
        await pilot.press("2")
        assert ("12." if "TRAINMON_ASCII" in environ else "12▂") in await settled(pilot)


def test_a_hot_node_still_shows_its_load() -> None:
    hot = state(node("n", changed={0: {"temperature_c": 94, "temperature_margin_c": -1, "throttle": ("hw_thermal",)}}))

    assert [row.text.split()[-2:] for row in rows(hot, TEMPERATURE, 45)] == [["HOT", "98%"]]


def minutes(*used: float) -> Series:
    """One value in the middle of each of the minutes before now."""
    begin = math.floor(NOW / 60) * 60 - NOW
    return Series(tuple(begin - 60 * len(used) + 60 * at + 30 for at in range(len(used))), used)


def test_the_curve_shows_the_mean_of_all_gpus_in_each_whole_minute() -> None:
    assert sparkline([minutes(0, 50, 100, 100), minutes(0, 50, 100, 0)], 6, NOW) == "  ▁▅█▅"
    assert sparkline([minutes(math.nan, 100)], 3, NOW) == "  █"
    assert sparkline([], 3, NOW) == "   "


def test_a_node_has_its_last_minutes_where_there_is_room_and_they_change_once_a_minute() -> None:
    asked: list[str] = []

    def history(subject: str, metric: str, span: float) -> Series:
        asked.append(subject)
        return minutes(100, 100, 0, 0)

    grid, found = Grid(), worlds.calm(1)
    assert grid.rows(found, UTILIZATION, 110, history=history)[0].text.endswith("██▁▁")
    assert len(asked) == 8
    grid.rows(replace(found, at=NOW + 2), UTILIZATION, 110, history=history)
    assert len(asked) == 8
    grid.rows(replace(found, at=NOW + 60), UTILIZATION, 110, history=history)
    assert len(asked) == 16
    assert grid.rows(found, UTILIZATION, 62, history=history)[0].text.endswith("98%")


def test_the_curves_of_three_hundred_nodes_are_not_computed_at_once() -> None:
    grid, found, asked = Grid(), worlds.calm(300), []

    def history(subject: str, metric: str, span: float) -> Series:
        asked.append(subject.partition("/")[0])
        return EMPTY

    for _ in range(3):
        grid.rows(found, UTILIZATION, 110, history=history)
    assert len(set(asked)) == 3 * SPARKS_AT_ONCE
    assert len(asked) == 8 * len(set(asked))


async def test_with_no_node_it_says_how_to_name_one() -> None:
    pane = GpusPane(id="gpus")
    app = Alone(pane)
    async with running(app, size=(80, 24)) as pilot:
        pane.show(State(at=NOW))
        await pilot.pause()
        assert pane.lines.rows[0].text.startswith("No node is watched yet.")


def test_a_node_without_gpus_has_no_memory_and_no_use_of_them_to_be_unknown() -> None:
    read = node_summary(Node(name="login", cluster="prod", probe="none", host_at=NOW), NOW)
    unread = node_summary(Node(name="login", cluster="prod", probe="none"), NOW)
    assert read.unknown == ("-", "-")
    assert unread.unknown == ("?", "?")


async def test_with_nodes_and_no_run_the_screen_starts_with_the_gpus() -> None:
    app = Dashboard(StillBackend(worlds.calm(1, 0)))
    async with running(app, size=(80, 24)) as pilot:
        await pilot.pause()
        assert app.main.current == "2"
        assert app.main.gpus.display
        assert "1 node, no GPU" in "".join(span.text for span in app.main.gpus.top.lines[0])


# ---- what the scheduler says of a node -----------------------------------------------------------------------------


def listed(state: str, reason: str | None = None) -> SchedulerNode:
    base, *flags = state.split("+")
    return SchedulerNode(name="n", cluster="prod", state=base, flags=tuple(flags), reason=reason)


@pytest.mark.parametrize(
    ("state", "reason", "flag", "style"),
    [
        ("IDLE+DRAIN", "fan 3 broken", "DRAINED fan 3 broken", "warn"),
        ("MIXED+DRAIN", None, "DRAINING", "warn"),
        ("ALLOCATED+DRAIN", "gres/gpu count reported lower than configured (7 < 8)",
         "DRAINING gres/gpu count reported lower than configured (7 < 8)", "crit"),
        ("DOWN+NOT_RESPONDING", "Not responding", "DOWN does not respond; Not responding", "warn"),
    ],
)  # fmt: skip
def test_a_node_that_gets_no_jobs_says_so_and_why(state: str, reason: str | None, flag: str, style: str) -> None:
    drained = node_summary(node("n"), NOW, listed(state, reason))

    assert (flag, style) in drained.flags
    assert drained.rank < node_summary(node("n"), NOW).rank


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "IDLE+CLOUD"])
def test_a_node_that_works_for_its_scheduler_has_no_flag(state: str) -> None:
    assert node_summary(node("n"), NOW, listed(state)).flags == ()


def test_a_node_that_its_scheduler_drains_changes_its_line() -> None:
    grid, drained = Grid(), listed("IDLE+DRAIN", "fan 3 broken")
    well = State(at=NOW, nodes={"n": node("n")})
    assert "DRAINED" not in grid.rows(well, METRICS[0], 80)[0].text
    later = replace(well, scheduler_nodes={"n": drained})
    assert "DRAINED fan 3 broken" in grid.rows(later, METRICS[0], 120)[0].text


def test_a_node_whose_clock_is_off_says_so_in_its_line() -> None:
    ahead, behind = node("n", clock_skew_s=437.0), node("n", clock_skew_s=-75.0)

    assert Span("CLOCK 7m ahead", "warn") in node_summary(ahead, NOW).flags
    assert Span("CLOCK 75s behind", "warn") in node_summary(behind, NOW).flags
    assert node_summary(ahead, NOW).rank < node_summary(node("n", clock_skew_s=1.0), NOW).rank
