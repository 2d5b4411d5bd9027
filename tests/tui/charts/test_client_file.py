"""What the pane says of the file of a W&B client: how old, how far read, what is amiss; and which curves it draws."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.tui.apps import Alone
from tests.tui.pilot import running
from tests.tui.screen_text import text_of
from tests.tui.states.states import NOW, state
from tests.tui.states.wandb_runs import NAME, CurveBackend, filled, watched
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    NodeReading,
    Run,
    RunsChanged,
    RunSpec,
    State,
    WandbFile,
    WandbFileRun,
    WandbRows,
    WandbSpec,
)
from tui.charts.values import INCOMPLETE, file_notes, file_spans, why_nothing
from tui.panes.wandb import WandbPane
from tui.views.runs import run_lines

PATH = "/fsx/wandb/offline-run-20260101_120000-aaaa1111/run-aaaa1111.wandb"
SPEC = RunSpec(name=NAME, cluster="prod", wandb_dir="/fsx/wandb")
FILE = WandbFile(host="login1", path=PATH, rows=40, logged_at=NOW - 6, checked_at=NOW, size=9_000, offset=9_000)


def rows() -> WandbRows:
    points = tuple((n, n - 1.0, NOW - 46 + n, 3.0 - n / 100) for n in range(1, 41))
    run = WandbFileRun(id="aaaa1111", entity="team", project="video", name="warm-start-7", host="gpu-001")
    return WandbRows(
        v=1, t=NOW, id=NAME, path=PATH, file="7", size=9_000, offset=9_000, rows=40, step=39.0, logged_at=NOW - 6,
        keys=("train/loss",), points=points, summary={"epoch": "1.5"}, config={"lr": "0.0003"}, run=run, exit=(3, 90),
    )  # fmt: skip


def read(shown: State) -> State:
    return reduce(shown, [NodeReading("login1", "prod", NOW, rows())], NOW)


def offline() -> State:
    """A run that only a file knows."""
    return read(reduce(state(), [RunsChanged((SPEC,))], NOW))


def backend(shown: State) -> CurveBackend:
    made = filled(shown)
    made.curves.follow_file(rows())
    return made


async def drawn(shown: State) -> str:
    pane = WandbPane(backend(shown), id="wandb")
    async with running(Alone(pane), size=(120, 30)) as pilot:
        pane.follow_run(NAME)
        pane.show(shown)
        await pilot.pause()
        return text_of(pilot.app)


async def test_an_offline_run_has_its_curves_its_age_and_its_end():
    text = await drawn(offline())
    assert "from the file, newest row 6s old  step 39  exit code 3  on gpu-001" in text
    assert "warm-start-7" in text
    assert "train/loss  2.6" in text
    assert "1.5" in text, "the latest values that have no chart"
    assert "heartbeat" not in text


async def test_the_file_takes_over_while_the_server_does_not_answer():
    served = watched()
    spec = replace(served.runs[NAME].spec, wandb_dir="/fsx/wandb")
    both = read(replace(served, runs={NAME: replace(served.runs[NAME], spec=spec)}))
    assert "from the file" not in await drawn(both)
    [source] = served.sources.values()
    down = replace(source, health="down", error="W&B cannot be reached")
    text = await drawn(replace(both, sources={source.name: down}))
    assert "W&B cannot be reached" in text
    assert "curves from the file, newest row 6s old" in text
    assert "train/loss  2.6" in text
    assert "heartbeat" in text, "the state is that of the server"


def text(spans: tuple[Any, ...]) -> str:
    return "".join(span.text for span in spans)


def test_the_age_comes_first_whatever_is_known():
    assert text(file_spans(FILE, NOW)).endswith("from the file, newest row 6s old")
    assert text(file_spans(replace(FILE, logged_at=None), NOW)).endswith("newest row none yet")
    assert text(file_spans(replace(FILE, logged_at=NOW - 2_220), NOW)).endswith("newest row 37m old")


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, None),
        ({"size": 900_000_000, "offset": 360_000_000, "is_behind": True}, "reading the file: 40% of 858 MiB"),
        ({"size": 9_000, "offset": 8_000, "is_behind": True}, None),
        ({"size": 900_000_000, "offset": 360_000_000}, None),
        ({"damaged_before": 2}, "2 damaged parts of earlier files skipped"),
        ({"damaged": 1}, "1 damaged part of the file skipped"),
        ({"error": "/fsx/wandb: no permission"}, "/fsx/wandb: no permission"),
        ({"tail": 1, "written_at": NOW - 1_800}, None),
        ({"tail": 1, "written_at": NOW - 7_200}, INCOMPLETE),
    ],
)
def test_what_is_amiss_or_still_to_be_read_is_a_note(changes: dict[str, Any], note: str | None):
    notes = [words[2:] for words, _ in file_notes(Run(spec=SPEC), replace(FILE, **changes), None, NOW)]
    assert notes == ([] if note is None else [note])


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (None, f"{NAME}: its metric files have not been read yet: /fsx/wandb."),
        (WandbFile(checked_at=NOW, error="/fsx/wandb: does not exist"), f"{NAME}: /fsx/wandb: does not exist"),
        (FILE, f"{NAME}: its newest W&B file has no row to chart yet: {PATH}."),
    ],
)
def test_without_curves_it_says_why(file: WandbFile | None, words: str):
    assert why_nothing(Run(spec=SPEC, wandb_file=file), NAME, None)[0][0] == words
    asked = replace(SPEC, wandb=WandbSpec(project="team/video"))
    assert "No data from W&B yet" in why_nothing(Run(spec=asked, wandb_file=file), NAME, None)[0][0]


def test_a_file_that_ends_before_its_first_row_is_not_waited_for():
    cut = Run(spec=SPEC, verdict="dead", wandb_file=replace(FILE, tail=1, written_at=NOW - 600))
    assert [words for words, _ in why_nothing(cut, NAME, None)] == [
        f"{NAME}: its newest W&B file has no row to chart: {PATH}.",
        "The file ends in an incomplete record: its client has not written the rest.",
    ]


def test_the_details_of_the_run_name_the_file():
    shown = offline()
    lines = [str(getattr(line, "text", "")) or text(getattr(line, "spans", line)) for line in run_lines(
        shown.runs[NAME], shown, 100
    )]  # fmt: skip
    for words in ("/fsx/wandb", PATH, "6s old, 40 rows", "warm-start-7", "team/video"):
        assert any(words in line for line in lines), words
