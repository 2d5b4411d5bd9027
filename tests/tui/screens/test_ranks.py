"""The ranks of a run: its map, the links to nodes and GPUs, and where a rank runs that the log or an alert names."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.tui.apps import ActionApp
from tests.tui.backend import FakeBackend
from tests.tui.dashboard import publish, showing
from tests.tui.panes.test_run import texts
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, settled, text_of
from tests.tui.states.plans import attempted
from tests.tui.states.states import NOW, log
from trainmon.lib import cell_width
from trainmon.model import LOG_MARK, Alert, LookReply, Process, RankLook, RankMap, RankProcess, RankProcesses, State
from tui.screens.details import NodeScreen, RunScreen
from tui.style import Link, Linked, first_link
from tui.views.alert_detail import alert_lines
from tui.views.runs import look_lines, rank_lines

RUN = "llm-70b"
EACH = {f"gpu-{node:03}": {8 * (node - 1) + gpu: (gpu,) for gpu in range(8)} for node in range(1, 5)}


def known(**nodes: dict[int, tuple[int, ...]]) -> RankMap:
    named = {name.replace("_", "-"): own for name, own in nodes.items()}
    return RankMap(launcher="torchrun", ranks=32, nodes={**EACH, **named})


def state_with(ranks: RankMap | None, **more: Any) -> State:
    """The newest attempt of the run has these ranks."""
    state = attempted()
    newest = max(state.attempts.values(), key=lambda one: one.start)
    newest = replace(newest, nodes=tuple(EACH), ranks=ranks, log_path="/x/2.out", **more)
    return replace(state, attempts={**state.attempts, newest.attempt_id: newest})


def shown(state: State, width: int = 76) -> list[str]:
    return texts(rank_lines(state.runs[RUN], state, width))


def test_a_map_has_a_line_per_node() -> None:
    assert shown(state_with(known())) == [
        "ranks         32 of 32, numbered by torchrun",
        "            → gpu-001: 0-7",
        "            → gpu-002: 8-15",
        "            → gpu-003: 16-23",
        "            → gpu-004: 24-31",
    ]
    assert shown(state_with(None)) == []


def test_missing_ranks_shared_gpus_and_another_order_are_marked() -> None:
    nodes = {"gpu_001": {0: (0,), 1: (0,), 2: (2,)}, "gpu_002": {8: (1,), 9: (0,)}, "gpu_003": {16: (), 24: (0,)}}
    state = state_with(known(**nodes))
    assert shown(state)[:6] == [
        "ranks         13 of 32, numbered by torchrun",
        "missing       3-7, 10-15, 17-23",
        "not certain   24: of several processes",
        "            → gpu-001: 0-2  GPU 0 has several!",
        "            → gpu-002: 8-9  by GPU: 9, 8!",
        "            → gpu-003: 16, 24",
    ]
    links = [line.link.name for line in rank_lines(state.runs[RUN], state, 76) if isinstance(line, Linked)]
    assert links == ["gpu-001/0", "gpu-002/0", "gpu-003/0", "gpu-004/0"]


def test_no_line_is_wider_than_a_small_terminal() -> None:
    nodes = {f"node-with-a-long-name-{at:04}": {9 * at: (), 9 * at + 3: ()} for at in range(100)}
    state = state_with(RankMap(launcher="slurm", ranks=999_999_999, nodes=nodes))
    assert max(map(cell_width, shown(state))) <= 76
    assert shown(state)[-1].strip() == "and 36 more"


@pytest.mark.parametrize("user", ["ann", "root"])
def test_processes_of_another_user_are_counted(user: str) -> None:
    state = state_with(None)
    node = state.nodes["gpu-001"]
    users = ["ann"] * 3 + ["bob"] * 5
    held = tuple(replace(gpu, processes=(Process(gpu.index + 1, users[gpu.index]),)) for gpu in node.gpus)
    own = tuple(RankProcess(pid, 1.0, (), "torchrun", pid, 8) for pid in (1, 2, 3))
    node = replace(node, gpus=held, ranks=RankProcesses(1, NOW, own, user))
    state = replace(state, nodes={**state.nodes, node.name: node})
    sentence = "ranks of 3 of 8 processes are known: the others belong to another user"
    assert " ".join(" ".join(shown(state)).split()) == ("" if user == "root" else f"not read {sentence}")


async def test_enter_on_a_line_of_the_map_opens_the_node_at_that_gpu() -> None:
    state = state_with(known(gpu_002={8: (4,), 9: (4,)}))
    async with showing(state, (80, 24)) as (app, pilot, _):
        app.open(Link("run", RUN))
        await at_rest(pilot)
        assert isinstance(app.screen, RunScreen)
        assert app.screen.pane.lines.move_to(first_link(row for row in app.screen.pane.lines.rows if "8-9" in row.text))
        await at_rest(pilot)
        assert "gpu-002: 8-9  GPU 4 has several!" in text_of(app)
        await pilot.press("enter")
        await at_rest(pilot)
        assert isinstance(app.screen, NodeScreen)
        assert app.screen.table.selected_gpu().index == 4  # type: ignore[union-attr]


# ---- the ranks that the log and alerts name --------------------------------------------------------------------------

FAILED = "[rank9]: RuntimeError: CUDA error"
BEFORE = RankMap(launcher="torchrun", ranks=32, nodes={"gpu-004": {9: (7,)}})
"""Where the ranks of the attempt before were."""


def with_log(*lines: str, before: RankMap | None = BEFORE) -> State:
    state = state_with(known())
    *earlier, last = sorted(state.attempts.values(), key=lambda one: one.start)
    own = [*(replace(one, log_path="/x/1.out", ranks=before) for one in earlier), last]
    own = [replace(one, restart=at) for at, one in enumerate(own)]
    run = replace(state.runs[RUN], log=log(lines, path="/x/2.out", path_before="/x/1.out"))
    return replace(state, runs={RUN: run}, attempts={one.attempt_id: one for one in own})


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        (with_log("a", FAILED), "rank 9 (gpu-002 GPU 1)"),
        (with_log(FAILED, f"{LOG_MARK}/x/2.out", "b"), "rank 9 (gpu-004 GPU 7)"),
        (with_log(FAILED, f"{LOG_MARK}/x/2.out", "b", before=None), None),
        (with_log(FAILED, f"{LOG_MARK}/x/1.out", f"{LOG_MARK}/x/2.out", "b"), None),
        (with_log("a", "tp rank 9 and [Rank 9] are others"), None),
    ],
)
async def test_the_frame_of_the_log_says_where_a_rank_in_sight_runs(state: State, wanted: str | None) -> None:
    async with showing(state, (120, 40)) as (app, pilot, backend):
        await pilot.press("4")
        await publish(app, pilot, backend, replace(state, at=NOW + 1))
        assert "CUDA error" in text_of(app) or "are others" in text_of(app)
        foot = text_of(app)
        assert (wanted is None) == ("rank 9 (" not in foot)
        assert wanted is None or wanted in foot


def test_an_alert_links_to_the_gpu_of_a_rank_that_it_names() -> None:
    alert = Alert(
        id="a1", rule="crashed", subject=f"run:{RUN}", severity="critical", summary="crashed on rank 9 (gpu-002 GPU 1)",
        evidence=(FAILED, "rank 11 (gpu-002)", "rank 3 (elsewhere)"), run=RUN, since=NOW, found_at=NOW, cluster="prod",
    )  # fmt: skip
    state = replace(state_with(known()), alerts={"a1": alert})
    links = [line for line in alert_lines("a1", state, 76) if isinstance(line, Linked) and line.link.kind == "node"]
    assert [line.link.name for line in links] == ["gpu-002/1", "gpu-002"]
    assert texts(links) == ["rank        → rank 9 (gpu-002 GPU 1)", "rank        → rank 11 (gpu-002)"]


LATE = RankLook(
    source="nccl-ras", at=NOW - 28.0, ranks=(9, 10), advice="look at its process", lines=("2 ranks at 639",),
    summary="30 of 32 ranks have launched AllReduce 640; ranks 9 and 10 (gpu-002 GPU 1, 2) have been at 639 for 16s",
)  # fmt: skip
SILENT = RankLook(source="proc", at=NOW - 5.0, summary="no node of it is read", is_answer=False)


def test_the_page_has_what_a_look_has_shown_and_why_another_could_not_look() -> None:
    state = state_with(known())
    run = replace(state.runs[RUN], looks=(SILENT, LATE, replace(SILENT, source="stacks")))
    assert texts(look_lines(run, state, 76)) == [
        "NCCL RAS      30 of 32 ranks have launched AllReduce 640; ranks 9 and 10",
        "              (gpu-002 GPU 1, 2) have been at 639 for 16s (seen 28s ago)",
        "            → rank 9 (gpu-002 GPU 1)",
        "            → rank 10 (gpu-002 GPU 2)",
        "              look at its process",
        "              2 ranks at 639",
        "/proc         could not look: no node of it is read (5s ago)",
        "stacks        the same",
    ]


async def test_x_looks_at_the_ranks_of_a_run_and_says_what_comes() -> None:
    backend = FakeBackend(state_with(known()))
    app = ActionApp(backend)
    async with running(app, size=(100, 30)) as pilot:
        app.actions.menu((("node", "gpu-001"),))
        assert "look at its ranks" not in await settled(pilot)
        await pilot.press("escape")
        app.actions.menu((("run", RUN),))
        assert "Look at its ranks: find the one that delays it" in await settled(pilot)
        await pilot.press("G", *"kkk", "enter")
        await settled(pilot)
        assert backend.requests == [("look", RUN)]
        for reply in (
            LookReply("n1 has answered"),
            LookReply(LATE.summary, LATE),
            LookReply("", is_done=True),
        ):
            backend.looking[0](reply)
        await settled(pilot)
        title = f"ranks of {RUN}"
        assert app.toasts == [(title, "n1 has answered", "information"), (title, LATE.summary, "warning")]
