"""A node in full: its table, its facts, its plots, and the screen that holds them."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from msgspec.structs import replace

from tests.tui.backend import FakeBackend
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, text_of
from tests.tui.states import worlds
from tests.tui.states.states import NOW as STATES_NOW
from tests.tui.states.states import job, scheduler_node
from tests.tui.states.worlds import NOW, node, source, state
from tests.tui.still import StillBackend
from trainmon.engine.history import History
from trainmon.model import (
    Gpu,
    GpuInstance,
    GpuLinks,
    InfinibandPort,
    Node,
    NodeEvent,
    NodeRecord,
    Process,
    SchedulerNode,
    Series,
    Source,
)
from tui.app import Dashboard
from tui.charts.render import Axis, hour_picture, side_by_side, stretches
from tui.panes.gpus import axes, node_sentence
from tui.screens.details import NodeScreen, heights
from tui.style import Span, width_of
from tui.views.node_detail import PROCESSES, gpu_head, gpu_rows, node_facts, read_ago
from tui.views.table import fact_text

DEGREES = Axis("temperature", "temperature °C", 110.0, ((0, "0"), (50, "50"), (100, "100")))


def table(made: Node, width: int = 118, *, stale: bool = False) -> list[str]:
    return [row.text.rstrip() for row in gpu_rows(made, NOW, width, stale=stale)]


def facts(
    made: Node | None, found: Source | None = None, width: int = 78, listed: SchedulerNode | None = None
) -> list[str]:
    return [row.text.rstrip() for row in node_facts("n", made, found, NOW, width, listed)]


# ---- the table -----------------------------------------------------------------------------------------------------


def test_every_number_of_a_gpu_stands_in_its_column() -> None:
    head = gpu_head(118)[0].text
    line = table(node("n", 1))[0]
    assert line.split() == [
        "0", "60", "70", "26", "78G/80G", "98%", "690/700", "1755", "0/0", "no", "off", "none", "sw_power_cap",
    ]  # fmt: skip
    for name, value in (("memory", "78G/80G"), ("power W", "690/700"), ("ECC u/c", "0/0"), ("Xid", "none")):
        assert head.index(name) + len(name) == line.index(value) + len(value)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"temperature_c": 94, "temperature_margin_c": -1}, "94!"),
        ({"mig": True, "utilization_pct": None}, " on "),
        ({"ecc_uncorrected": 3}, "3/0!"),
        ({"remap_pending": True}, "pending!"),
        ({"last_xid": 63, "last_xid_at": NOW - 7_300}, "63 2h!"),
        ({"throttle": ("idle", "hw_slowdown", "sw_power_cap")}, "  hw_slowdown"),
        (
            {"state": "lost", "error": "GPU is lost", "last_xid": 79, "last_xid_at": NOW - 60},
            "LOST  GPU is lost  Xid 79 1m",
        ),
        ({"state": "error", "error": "Unknown \x1b[31mError"}, "ERROR  Unknown Error"),
    ],
)  # fmt: skip
def test_trouble_of_a_gpu_is_marked_or_named(changed: dict[str, object], says: str) -> None:
    assert says in table(node("n", 1, {0: changed}))[0]


def test_what_a_driver_refuses_is_unknown() -> None:
    bare = node("n", gpus_expected=1)
    bare = replace(bare, gpus=(Gpu(index=0),))
    assert table(bare)[0].split() == ["0", "?", "?", "?", "?/?", "?", "?", "?", "-", "-", "-", "none"]


def test_a_gpu_that_never_came_has_a_line() -> None:
    assert table(node("n", 2, gpus_expected=3))[2].split(maxsplit=1) == [
        "✗",
        "listed by the driver, but never answered",
    ]


CUT = {
    "mig": True, "utilization_pct": None,
    "instances": (
        GpuInstance("1", "3g.40gb", "MIG-1", 31_000, 40_448),
        GpuInstance("13/1", "1g.10gb", "MIG-2", 14, 9_728),
    ),
    "processes": tuple(Process(9000 + i, "me", 900, "python3 serve.py", instance="1") for i in range(2)),
}  # fmt: skip


def test_a_mig_instance_is_a_row_below_its_gpu_and_its_utilization_is_not_measured() -> None:
    whole, first, second = table(node("n", 1, {0: CUT}))
    assert whole.split()[4:6] == ["78G/80G", "-"]
    assert first.split(maxsplit=4) == ["└", "1", "3g.40gb", "30G/40G", "not measured by NVML  2 processes"]
    assert second.split(maxsplit=4) == ["└", "13/1", "1g.10gb", "14M/9.5G", "not measured by NVML  no process"]
    assert first.index("30G/40G") + 7 == gpu_head(118)[0].text.index("memory") + 6
    assert " 0/1     9000  me" in "\n".join(facts(node("n", 1, {0: CUT})))
    assert "not measured by NVML" in table(node("n", 1, {0: CUT}), 50)[1]


AMD = {
    "mig": None, "remap_failed": None, "remap_pending": None, "edge_temperature_c": 56,
    "links": GpuLinks(32.0, 16, 16, 0, 16, 32, 0),
}  # fmt: skip


def test_the_edges_and_the_links_of_amd_gpus_share_lines_where_they_are_alike() -> None:
    odd = AMD | {"edge_temperature_c": 61, "links": GpuLinks(32.0, 8, 16, 7, 16, 32, 2)}
    lines = facts(node("n", 4, {0: AMD, 1: AMD, 2: AMD, 3: odd}, probe="sysfs"))
    assert [" ".join(line.split()) for line in lines if line.startswith(("edge", "links"))] == [
        "edge gpu0,1,2: 56 °C",
        "links gpu0,1,2: PCIe 32.0 GT/s x16 of x16, 0 replays",
        "links gpu0,1,2: XGMI x16 at 32 Gbit/s, 0 RAS errors",
        "edge gpu3: 61 °C",
        "links gpu3: PCIe 32.0 GT/s x8 of x16, 7 replays",
        "links gpu3: XGMI x16 at 32 Gbit/s, 2 RAS errors",
    ]
    assert table(node("n", 1, {0: AMD}))[0].split()[8:12] == ["0/0", "-", "-", "none"]
    assert not [line for line in facts(node("n")) if line.startswith(("edge", "links"))]


def test_old_numbers_are_dim() -> None:
    row = gpu_rows(node("n", 1), NOW, 118, stale=True)[0]
    assert {span.style for span in row.spans} == {"dim"}


@pytest.mark.parametrize("width", [30, 40, 50, 60, 78, 100, 118, 198])
def test_no_line_is_wider_than_its_room(width: int) -> None:
    for made in (*worlds.rough().nodes.values(), node("n", changed={2: CUT})):
        rows = (*gpu_rows(made, NOW, width, stale=False), *node_facts(made.name, made, source("n"), NOW, width))
        assert [row.text for row in rows if width_of(row.spans) > width] == []
        assert width_of(gpu_head(width)) <= width


# ---- the facts -----------------------------------------------------------------------------------------------------


def test_the_facts_of_a_host() -> None:
    found = facts(node("n"), source("n"))
    assert "load          41.2 on 192 CPUs" in found
    assert "memory        596 GiB of 2.0 TiB used (30%)" in found
    assert "booted        12d ago" in found
    assert "InfiniBand    8 of 8 ports active without errors" in found
    assert "GPUs          8 × NVIDIA H100 80GB HBM3" in found
    assert "read by       nvml, driver 580.95.05" in found
    assert "clock         in sync with this machine" in found


def test_numbers_of_a_host_that_are_not_current_say_their_age() -> None:
    by_prometheus = replace(source("n"), via="prometheus:prod:dcgm", period=15.0)
    ssh_failed = node("n", host_at=NOW - 9, greeted_at=NOW - 5)
    assert "host          read 9s ago" in facts(ssh_failed, by_prometheus), "they are those of SSH"
    stopped = node("n", host_at=NOW - 90, greeted_at=NOW - 900)
    assert "host          read 1m ago" in facts(stopped, by_prometheus), "only the GPUs are read"
    current = node("n", host_at=NOW - 40, greeted_at=NOW - 900)
    assert not [line for line in facts(current, by_prometheus) if line.startswith("host ")]
    silent = replace(by_prometheus, health="late")
    assert "host          read 40s ago" in facts(current, silent)


def test_the_gpus_of_an_exporter_that_stopped_say_their_age_beside_a_host_that_is_read() -> None:
    mixed = replace(source("n"), via="prometheus:prod:node", period=15.0)
    assert read_ago(NOW - 20, node("n"), mixed, NOW) == ""
    assert read_ago(NOW - 60, node("n"), mixed, NOW) == "read 1m ago"
    assert read_ago(None, node("n"), mixed, NOW) == ""


def test_a_bad_port_has_a_line_of_its_own() -> None:
    ports = (InfinibandPort("mlx5_0/1", "ACTIVE", 0, 0), InfinibandPort("mlx5_1/1", "DOWN", 4, None))
    found = facts(node("n", infiniband=ports))
    assert "InfiniBand    1 of 2 ports active without errors" in found
    assert "InfiniBand    mlx5_1/1 DOWN, link down 4×, errors ?" in found


def test_ports_have_their_rates_and_the_odd_one_a_line_of_its_own() -> None:
    fast, storage = "400 Gb/sec (4X NDR)", "100 Gb/sec (4X EDR)"
    rates = {"mlx5_0/1": fast, "mlx5_1/1": fast, "mlx5_2/1": fast, "mlx5_9/1": storage}
    ports = tuple(InfinibandPort(port, "ACTIVE", 0, 0, rate) for port, rate in rates.items())
    made = node("n", infiniband=ports)
    found = [row.text for row in node_facts("n", made, source("n"), NOW, 100, odd={"mlx5_1/1"})]
    at = found.index("InfiniBand    3 of 4 ports active without errors")
    assert found[at + 1 : at + 4] == [
        "              400 Gb/sec (4X NDR): mlx5_0/1 and 1 more",
        "              100 Gb/sec (4X EDR): mlx5_9/1",
        "InfiniBand    mlx5_1/1 ACTIVE, differs from its peers: 400 Gb/sec (4X NDR), link down 0×, errors 0",
    ]


def test_the_links_of_gpus_that_are_alike_share_a_line() -> None:
    links = GpuLinks(pcie_gen=5, pcie_gen_max=5, pcie_width=16, pcie_width_max=16, pcie_replays=0, nvlinks=18,
                     nvlinks_up=18, nvlink_errors=0)  # fmt: skip
    other = replace(links, pcie_width=8, nvlinks_up=17)
    found = facts(node("n", 2, {0: {"links": links}, 1: {"links": other}}))
    assert "links         gpu0: PCIe generation 5 x16 of x16, 0 replays" in found
    assert "links         gpu1: PCIe generation 5 x8 of x16, 0 replays" in found
    assert "links         gpu1: 17 of 18 NVLinks, 0 errors" in found


def test_troubles_skew_and_the_scheduler_are_shown() -> None:
    made = node("n", troubles={"disk": "hangs"}, clock_skew_s=-75.25, note="no NVML here")
    listed = SchedulerNode(name="n", cluster="prod", state="IDLE", flags=("DRAIN",), reason="bad PSU")
    found = facts(made, listed=listed)
    assert "disk fails    hangs" in found
    assert "clock         75s behind this machine" in found
    assert "scheduler     drained: bad PSU" in found
    assert "note          no NVML here" in found


def test_a_source_that_is_down_says_what_to_do() -> None:
    down = source("n", health="down", phase="retrying", error="no answer in 10s", hint="try: ssh n",
                  answered_at=NOW - 42, retry_at=NOW + 8, bad_lines=3, stderr="bash: warning")  # fmt: skip
    assert facts(None, down) == [
        "connection    late 40s: no answer in 10s",
        "what to do    ssh n",
        "next try      in 8s",
        "bad lines     3 lines from the probe could not be parsed",
        "stderr        bash: warning",
    ]


def test_a_node_that_left_says_so() -> None:
    assert facts(None) == ["n is no longer watched."]


def test_a_command_cannot_break_the_screen_nor_show_its_secrets() -> None:
    evil = Process(1, "e\x07ve", 100, "train\x1b]0;x\x07 --api-key=sk-ant-REDACTED \x1b[2J[red]x")
    made = replace(node("n", 1), gpus=(worlds.gpu(0, processes=(evil,)),))
    line = next(text for text in facts(made) if " 1  eve" in text)
    assert line.isprintable()
    assert "--api-key=*** " in line
    assert "sk-ant" not in line
    assert "[red]x" in line


def test_more_processes_than_fit_are_counted() -> None:
    many = tuple(Process(pid, "me", 1, "python3") for pid in range(PROCESSES + 9))
    made = replace(node("n", 1), gpus=(worlds.gpu(0, processes=many),))
    assert "and 9 more" in facts(made)


def test_a_node_without_processes_says_so() -> None:
    made = replace(node("n", 1), gpus=(worlds.gpu(0, processes=()),))
    assert "The driver reports no process that uses GPU memory." in facts(made)
    bare = facts(node("n", 0, probe="none"))
    assert "Without a GPU driver, no process is listed." in bare
    assert "GPUs          none" in bare
    assert not [line for line in bare if line.startswith("read by")]


def test_a_node_that_needs_a_login_names_its_key_once() -> None:
    held = source("n", phase="held", health="down", error="n asks for a code", hint="press L to log in again")
    lines = facts(node("n", 1), held)
    assert lines[:2] == ["connection    login needed (asks for a code)", "what to do    press L to log in again"]
    named = "n: login needed (asks for a code); press L to log in again"
    assert node_sentence(state(sources=(held,)), "n", NOW) == (named, "warn")
    [alone, *_] = facts(node("n", 1), replace(held, hint=None))
    assert alone == "connection    login needed: press L (asks for a code)"


def test_a_node_that_is_read_by_a_step_names_the_job() -> None:
    lines = facts(node("n", 1), replace(source("n"), step_of=7, period=2.0, health="ok", phase="up"))
    assert "connection    up by a step of job 7, data every 2s" in lines


def test_a_node_that_is_late_says_why_its_server_fails() -> None:
    late = replace(source("n"), via="prometheus:prod:dcgm", health="late", answered_at=NOW - 60.0)
    server = Source(
        name="prometheus:prod:dcgm", kind="prometheus", cluster="prod", health="down", phase="retrying",
        error="no answer within 10s", hint="try: curl http://p", retry_at=NOW + 30.0,
    )  # fmt: skip
    shown = [row.text.rstrip() for row in node_facts("n", node("n", 1), late, NOW, 78, sources={server.name: server})]
    assert shown[:3] == [
        "connection    late 1m: Prometheus: no answer within 10s",
        "what to do    curl http://p",
        "next try      in 30s",
    ]


def test_a_node_of_prometheus_says_where_its_numbers_come_from() -> None:
    made = replace(node("n", 1), gpus=(worlds.gpu(0, processes=()),), probe="prometheus", troubles={"ssh": "refused"})
    lines = facts(made, replace(source("n"), via="prometheus:prod:dcgm", period=15.0, health="ok"))
    assert "connection    no SSH, read from prometheus:prod:dcgm, data every 15s" in lines
    lacks = "dcgm-exporter has no power limit, throttle reasons"
    server = Source(name="prometheus:prod:dcgm", kind="prometheus", cluster="prod", health="ok", hint=lacks)
    up = replace(source("n"), via=server.name, period=15.0, health="ok")
    shown = node_facts("n", made, up, NOW, 78, sources={server.name: server})
    assert f"prometheus    {lacks}" in [row.text.rstrip() for row in shown]
    assert "Prometheus does not list the processes on GPUs: that needs SSH." in lines
    assert "ssh fails     refused" in lines
    assert not [line for line in lines if line.startswith("clock")], "its samples have the time of the server"
    assert "host          load, memory and errors are not read" in facts(replace(made, host_at=None))


async def test_an_open_screen_requests_a_connection_to_its_node() -> None:
    app = Dashboard(backend := FakeBackend(worlds.calm(1)))
    async with running(app, size=(120, 40)) as pilot:
        app.push_screen(NodeScreen("n"))
        await pilot.pause()
        assert backend.viewed[:1] == ["n"]


async def test_the_page_of_a_node_has_its_history_of_90_days() -> None:
    record = NodeRecord(
        cluster="prod", node="n", ends=5, first_errors=3, expected=0.2, failures=20, probability=0.997, is_bad=True
    )
    state = replace(
        worlds.state(node("n", 1)), node_records={"prod/n": record, "prod/m": NodeRecord(cluster="prod", failures=20)}
    )
    backend = FakeBackend(state)
    rules = ("xid", "xid", "infiniband-down")
    backend.node_events = [
        NodeEvent(at=NOW, cluster="prod", node="n", what=rule, text="what happened") for rule in rules
    ]
    async with running(Dashboard(backend), size=(120, 40)) as pilot:
        await pilot.app.push_screen(NodeScreen("n"))
        await pilot.pause()
        await pilot.pause()
        text = " ".join(text_of(pilot.app).split())
    assert "first error in 3 of the last 5 attempts (0.2 expected), 2 Xids, 1 flap; bad: 99.7% sure" in text
    assert "prod: 20 failures on 2 nodes in 90 days; bad: n" in text


# ---- plots ---------------------------------------------------------------------------------------------------------


def test_an_axis_never_moves() -> None:
    flat = [Series((-100.0, -50.0, 0.0), (value,) * 3) for value in (5.0, 95.0)]
    low, high = (hour_picture(DEGREES, "", series, NOW, 40, 12) for series in flat)
    texts = [["".join(span.text for span in line) for line in lines] for lines in (low, high)]
    ticks = [[text[:4].strip("┤│└ ") for text in lines[1:]] for lines in texts]
    assert ticks[0] == ticks[1]
    assert {"0", "50", "100"} <= set(ticks[0])
    rows_with_curve = [[y for y, line in enumerate(lines) if y and any(s.style == "accent" for s in line[1:])]
                       for lines in (low, high)]  # fmt: skip
    assert min(rows_with_curve[0]) >= min(rows_with_curve[1]) + 7, "the area is filled: its top says the value"


@pytest.mark.parametrize(("width", "height"), [(26, 7), (40, 12), (60, 16)])
@pytest.mark.parametrize("series", [Series((), ()), Series((0.0,), (50.0,)), Series((-1.0, 0.0), (math.nan, math.nan)),
                                    Series((-3_500.0, 0.0), (0.0, 500.0))])  # fmt: skip
def test_a_picture_is_exactly_as_large_as_requested(width: int, height: int, series: Series) -> None:
    lines = hour_picture(DEGREES, "94", series, NOW, width, height)
    assert len(lines) == height
    assert {width_of(line) for line in lines} == {width}


def test_what_the_engine_keeps_is_drawn_from_an_hour_ago_to_now() -> None:
    history = History()
    for second in range(0, 3_600, 2):
        history.record_gpus("n1", NOW - 3_600 + second, [worlds.gpu(0)], period=2.0)
    (line,) = stretches(history.series("n1/0", "temperature", 3_600, NOW), NOW, 60)
    assert line[0][0] < -58
    assert -2 < line[-1][0] <= 0


def test_a_gap_is_not_bridged() -> None:
    offsets = tuple(float(at) for at in range(-3_000, 1, 10) if not -2_000 < at < -1_000)
    found = stretches(Series(offsets, (60.0,) * len(offsets)), NOW, 60)
    assert len(found) == 2
    assert found[0][-1][0] < -33
    assert found[1][0][0] > -18


def test_an_old_slice_keeps_its_mean_when_time_goes_on() -> None:
    start = 1_000 * 60.0
    offsets = tuple(float(at) for at in range(-1_800, 1, 10))
    values = tuple(float(at % 97) for at in offsets)
    before = stretches(Series(offsets, values), start, 60)[0]
    later = stretches(Series((*(at - 20.0 for at in offsets), -10.0, 0.0), (*values, 1.0, 2.0)), start + 20, 60)[0]
    assert before[1:-1] == later[1:-1]


def test_plain_pictures_have_no_braille() -> None:
    lines = hour_picture(DEGREES, "61", Series((-100.0, -50.0, 0.0), (61.0,) * 3), NOW, 40, 12, plain=True)
    text = "".join(span.text for line in lines for span in line)
    assert "*" in text
    assert not any("\u2800" <= char <= "\u28ff" for char in text)


def test_pictures_stand_side_by_side() -> None:
    left, right = [(Span("ab"),), (Span("cd"),)], [(Span("ef"),), (Span("gh"),)]
    assert ["".join(s.text for s in line) for line in side_by_side([left, right])] == ["ab  ef", "cd  gh"]


def test_a_gpu_s_own_limits_are_the_tops_of_its_axes() -> None:
    tops = {axis.metric: axis.top for axis, _ in axes(worlds.gpu(0))}
    assert tops == {"temperature": 110.0, "utilization": 100.0, "power": 700.0, "memory": 81_559.0}


def test_plotext_is_not_loaded_before_the_first_plot() -> None:
    code = "import sys, tui.app; sys.exit('plotext' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


# ---- the screen ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("screen", "gpus", "wanted"),
    [(24, 8, (11, 0)), (40, 8, (11, 13)), (60, 8, (11, 16)), (60, 16, (19, 16)), (24, 16, (11, 0)), (24, 0, (4, 0))],
)
def test_plots_come_where_there_is_room(screen: int, gpus: int, wanted: tuple[int, int]) -> None:
    assert heights(screen, gpus) == wanted


async def test_the_screen_plots_the_selected_gpu_and_esc_goes_back() -> None:
    backend = StillBackend(worlds.rough())
    app = Dashboard(backend)
    async with running(app, size=(120, 40)) as pilot:
        await app.push_screen(NodeScreen("node07"))
        await pilot.pause()
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, NodeScreen)
        assert len(screen.table.lines.rows) == 8
        assert screen.table.lines.scrollable_content_region.height >= 8
        assert ("node07/0", "temperature") in backend.requests
        await pilot.press("g", "j", "j")
        await pilot.pause()
        assert ("node07/2", "power") in backend.requests
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is app.main


async def test_the_plots_are_those_of_the_gpu_of_the_selected_instance() -> None:
    backend = StillBackend(worlds.state(node("n", 3, {0: CUT})))
    async with running(Dashboard(backend), size=(120, 40)) as pilot:
        await pilot.app.push_screen(NodeScreen("n"))
        await pilot.pause()
        await pilot.press("g", "j", "j", "j")
        await pilot.pause()
        await pilot.press("k", "k")
        await pilot.pause()
        screen = pilot.app.screen
        assert isinstance(screen, NodeScreen)
        assert (screen.table.lines.cursor_key, screen.plots.gpu) == ("0/1", 0)
        assert screen.table.lines.scrollable_content_region.height >= 5


async def test_the_cursor_and_the_plots_begin_at_the_worst_gpu() -> None:
    odd = {5: {"temperature_c": 96, "temperature_margin_c": -1, "throttle": ("hw_thermal",)}, 2: {"last_xid": 63}}
    made = replace(node("n", 16, odd), gpus_expected=16)
    app = Dashboard(FakeBackend(worlds.state(made)))
    async with running(app, size=(80, 24)) as pilot:
        screen = NodeScreen("n")
        await app.push_screen(screen)
        await at_rest(pilot)
        assert screen.table.lines.cursor_key == "5"
        assert "96!" in text_of(app)
        assert screen.plots.gpu == 5

        await pilot.press("k")
        await at_rest(pilot)
        assert screen.table.lines.cursor_key == "4", "then a person moves it"


async def test_plots_are_drawn_again_only_every_few_seconds() -> None:
    backend = StillBackend(worlds.rough())
    app = Dashboard(backend)
    async with running(app, size=(120, 40)) as pilot:
        screen = NodeScreen("node07")
        await app.push_screen(screen)
        await pilot.pause()
        await pilot.pause()
        backend.requests.clear()
        screen.show(replace(backend.state, at=NOW + 1))
        screen.show(replace(backend.state, at=NOW + 4))
        assert backend.requests == []
        screen.show(replace(backend.state, at=NOW + 6))
        assert len(backend.requests) == 4


async def test_a_small_screen_has_table_and_facts_and_draws_no_plot() -> None:
    backend = StillBackend(worlds.rough())
    app = Dashboard(backend)
    async with running(app, size=(80, 24)) as pilot:
        screen = NodeScreen("node08")
        await pilot.pause()
        backend.requests.clear()
        await app.push_screen(screen)
        await pilot.pause()
        await pilot.pause()
        assert not screen.plots.display
        assert backend.requests == []
        assert screen.facts.lines.rows[0].text.rstrip() == "connection    late 40s: no answer in 10s"


async def test_y_copies_the_node_or_the_whole_fact_under_the_cursor() -> None:
    hint = "compare the fingerprint with the owner of the host, then: " + "ssh-keyscan -H n1 >> ~/.ssh/known_hosts " * 3
    made = worlds.state(node("n1"), sources=(source("n1", health="down", error="unknown host key", hint=hint),))
    app = Dashboard(StillBackend(made))
    async with running(app, size=(100, 40)) as pilot:
        app.push_screen(NodeScreen("n1"))
        await pilot.pause()
        await pilot.press("y")
        assert app.clipboard == "n1"
        await pilot.press("tab", "j", "j", "y")
        await pilot.pause()
        assert app.clipboard == hint.strip()


# ---- its scheduler -------------------------------------------------------------------------------------------------


def test_the_scheduler_says_why_it_gives_no_jobs_and_which_run() -> None:
    listed = scheduler_node(
        7, "ALLOCATED", "DRAIN", reason="fan 3 broken", reason_by="root", reason_at=STATES_NOW - 60.0
    )
    jobs = (job("418223", name="llm-7b-a", user="ana"), job("88_3"))

    text = [row.text for row in node_facts("gpu-007", None, None, STATES_NOW, 78, listed, jobs)]

    assert text == [
        "scheduler     draining: fan 3 broken (root 1m ago)",
        "partitions    gpu",
        "jobs        → llm-7b-a  418223 of ana, R, 21h left",
        "            → llm-70b  88_3 of me, R, 21h left",
    ]


def test_a_fact_of_several_lines_is_copied_whole_below_a_link() -> None:
    down = source("n", health="down", error="no answer", hint=f"try: ssh {'-v ' * 40}n")
    rows = node_facts("n", None, down, STATES_NOW, 60, jobs=(job("1"),))

    assert len({row.key for row in rows}) == len(rows)
    assert fact_text([row.text for row in rows], 2).startswith("ssh -v")
