"""The Runs pane's lines, as values."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.log_formats.test_learned import read
from tests.tui.dashboard import publish, showing
from tests.tui.screen_text import at_rest, text_of
from tests.tui.states.alerts import alert, with_alerts
from tests.tui.states.states import NOW, calm, checkpoints, job, queued, run, source, troubled
from trainmon.alerting.rules import RULES as ALL_RULES
from trainmon.lib import cell_width
from trainmon.model import LossTrouble, Progress, Run, RunMemory, State, Switch
from tui.panes.header import header
from tui.panes.runs import COLUMNS, JOB, NAMED, RULES, ordered_runs, run_cells, run_layout
from tui.style import Row, Span


def line(name: str, state: State, width: int = 77) -> str:
    return Row(name, run_cells(state.runs[name], state, run_layout(width, state.runs.values(), state))).text


def alone(one: Run, state: State, width: int = 77) -> str:
    return Row(one.name, run_cells(one, state, run_layout(width, [one], state))).text


def cell(column: str, one: Run, state: State | None = None) -> Span:
    (text,) = (each.cell for each in COLUMNS if each.head.strip() == column and each.cell is not None)
    return text(one, state or queued())


def test_a_run_that_saves_or_evaluates_keeps_its_place_among_the_healthy() -> None:
    runs = calm().runs
    first, *rest = [one.name for one in ordered_runs(calm(), "worst")]

    for verdict in ("saving", "evaluating"):
        busy = {
            name: msgspec.structs.replace(run, verdict=verdict) if name in rest[-1:] else run
            for name, run in runs.items()
        }
        assert [one.name for one in ordered_runs(msgspec.structs.replace(calm(), runs=busy), "worst")] == [first, *rest]


def test_worst_first_and_names_settle_what_is_equal() -> None:
    assert [one.name for one in ordered_runs(troubled(), "worst")] == [
        "llm-7b-a",
        "abl-3",
        "llm-70b",
        "sft-1b",
        "tok-test",
    ]


@pytest.mark.parametrize(("sort", "first"), [("name", "abl-3"), ("last", "llm-70b"), ("step", "llm-7b-a")])
def test_other_sort_orders(sort: str, first: str) -> None:
    assert ordered_runs(troubled(), sort)[0].name == first


def test_the_filter_looks_at_names_verdicts_nodes_and_reasons() -> None:
    assert [one.name for one in ordered_runs(troubled(), "worst", "hung")] == ["llm-7b-a"]
    assert [one.name for one in ordered_runs(troubled(), "worst", "nan loss")] == ["abl-3"]
    assert ordered_runs(troubled(), "worst", "absent") == []


def test_a_healthy_run_shows_its_numbers_and_what_is_left() -> None:
    assert line("llm-70b", troubled()).split() == [
        "●",
        "llm-70b",
        "2",
        "12,880",
        "1.874",
        "1.9M",
        "6s",
        "17h44m",
        "SAVE",
    ]


def test_a_hung_run_shows_its_verdict_in_words_and_its_age_with_a_sign() -> None:
    assert line("llm-7b-a", troubled()).split() == [
        "▲",
        "llm-7b-a",
        "2",
        "81,204",
        "2.113",
        "412k",
        "11m!",
        "hung",
        "-",
    ]


def test_nan_is_marked_by_more_than_colour() -> None:
    assert "nan!" in line("abl-3", troubled())


@pytest.mark.parametrize("width", [26, 40, 56, 65, 77, 100, 140])
@pytest.mark.parametrize("state", [troubled(), queued()], ids=["troubled", "queued"])
def test_every_line_is_as_wide_as_the_heads_and_the_pane(width: int, state: State) -> None:
    lines = [line(name, state, width) for name in state.runs]

    head = run_layout(width, state.runs.values(), state).head(NAMED).text
    assert {cell_width(text) for text in (*lines, head)} == {width}


def test_nothing_known_is_a_question_mark_never_a_zero() -> None:
    new = run("new", "unknown", "nothing has been read yet", progress=Progress(), log=None, eta_at=None)

    text = alone(new, calm())

    assert text.split() == ["?", "new", "2", "?", "?", "-", "-", "unknown", "-"]


BATCHES = [f"epoch {epoch} | batch {batch}/391 | loss 2.0" for epoch in (0, 1, 2, 3) for batch in (60, 120)]


def test_where_a_log_counts_only_batches_the_step_is_its_place_in_the_epoch() -> None:
    progress, shape = read(BATCHES)
    progress = msgspec.structs.replace(progress, at=NOW - 6.0)
    counted = run("resnet", progress=progress, memory=RunMemory(shape=shape))

    assert progress.step == 3 * 391 + 120
    assert "  epoch 3 120/391" in alone(counted, calm())
    assert "  e3 120/391" in alone(counted, calm(), 50)
    assert cell_width(alone(counted, calm(), 50)) == 50


def test_a_step_of_another_source_is_shown_as_a_number() -> None:
    progress, shape = read(BATCHES)
    other = msgspec.structs.replace(progress, step=7777, format="megatron")
    assert "7,777" in alone(run("resnet", progress=other, memory=RunMemory(shape=shape)), calm())


@pytest.mark.parametrize(
    ("verdict", "cadence", "quiet", "style"),
    [
        ("healthy", 4.1, 110.0, ""), ("healthy", 4.1, 130.0, "warn"), ("hung", 4.1, 1_000.0, "warn"),
        ("healthy", 60.0, 590.0, ""), ("healthy", 60.0, 610.0, "warn"),
        *((verdict, 4.1, 1e6, "") for verdict in ("finished", "dead", "stopped", "starting", "saving")),
    ],
)  # fmt: skip
def test_the_last_step_has_a_colour_when_the_reason_says_that_the_next_one_is_late(
    verdict: str, cadence: float, quiet: float, style: str
) -> None:
    one = run("a", verdict, progress=Progress(step=7, at=NOW - quiet, cadence_s=cadence))
    (last,) = (column for column in COLUMNS if column.name == "last")
    assert last.cell is not None
    assert last.cell(one, replace(calm(), at=NOW)).style == style


def test_numbers_from_a_silent_host_are_dim() -> None:
    state = calm()
    late = msgspec.structs.replace(state, sources={"node:gpu-001": source(1, health="late", answered_at=NOW - 30.0)})

    spans = run_cells(late.runs["llm-70b"], late, run_layout(77, late.runs.values(), late))

    assert {span.style for span in spans[2:]} == {"dim"}


def test_switches_are_words() -> None:
    both = run("a", kill=Switch(path="k", exists=True), save=Switch(path="s", exists=True))
    unknown = run("a", kill=Switch(path="k", exists=None))

    assert alone(both, calm()).endswith(" K+S")
    assert alone(unknown, calm()).endswith(" ?")


def test_without_slurm_and_checkpoints_their_columns_are_not_there() -> None:
    assert run_layout(90, calm().runs.values(), calm()).head(NAMED).text.split() == [
        "RUN", "N", "STEP", "LOSS", "TOK/S", "LAST", "LEFT", "SW",
    ]  # fmt: skip
    assert run_layout(90, queued().runs.values(), queued()).head(NAMED).text.split() == [
        "RUN", "JOB", "N", "STEP", "LOSS", "TOK/S", "CK", "LAST", "LEFT", "SW",
    ]  # fmt: skip


def test_names_keep_their_room_and_an_armed_switch_outlives_most_columns() -> None:
    assert run_layout(56, queued().runs.values(), queued()).head(NAMED).text.split() == [
        "RUN", "STEP", "LOSS", "LAST", "LEFT", "SW",
    ]  # fmt: skip


def test_the_job_is_its_id_with_how_many_wait_behind_it() -> None:
    assert cell("JOB", queued().runs["llm-70b"]) == ("418190+10", "")
    assert cell("JOB", queued().runs["abl-3"]) == ("418100", "dim")
    assert cell("JOB", run("x")) == ("-", "dim")
    assert cell("JOB", run("x", "queued", jobs=("prod/418191_[]",))).text == "418191"
    assert cell("JOB", run("x", jobs=("prod/9_3",))) == ("9_3", "dim")


def test_the_age_of_the_last_committed_checkpoint_and_what_is_wrong_with_it() -> None:
    def of(**more: object) -> Span:
        return cell("CK", run("x", checkpoints=checkpoints(**more)))

    assert of() == ("20m ", "")
    assert of(every_s=500.0) == ("20m!", "warn")
    assert of(every_s=500.0, listed_at=NOW - 400.0) == ("20m ", ""), "800 s old at the last listing"
    assert of(problem="the pointer names a step that is torn") == ("20m!", "crit")
    assert of(list=(), problem="no committed checkpoint found") == ("none!", "crit")
    assert of(list=(), error="permission denied") == ("? ", "dim")
    assert of(list=()) == ("- ", "dim")
    assert cell("CK", run("x")) == ("- ", "dim")
    assert cell("CK", run("x", "finished", checkpoints=checkpoints(every_s=500.0))) == ("20m ", "")


def test_what_is_left_is_the_jobs_time_when_that_ends_first() -> None:
    def of(ends_in: float, **more: object) -> Span:
        one = job("5", ends_at=NOW + ends_in)
        state = msgspec.structs.replace(queued(), jobs={one.key: one})
        return cell("LEFT", run("x", jobs=(one.key,), checkpoints=checkpoints(), **more), state)

    assert of(21 * 3600.0) == ("17h44m", "")
    assert of(3600.0) == ("job 1h", "")
    assert of(80.0) == ("job 80s!", "crit")
    assert of(21 * 3600.0, eta_at=None) == ("job 21h", "")
    assert of(3600.0, verdict="stalled") == ("stalled", "warn")


def test_a_queued_run_says_when_it_starts_in_place_of_the_age_of_its_last_step() -> None:
    assert line("sft-1b", queued()).split() == [
        "◌", "sft-1b", "418301", "2", "12,880", "1.874", "1.9M", "-", "starts", "in", "2m", "-",
    ]  # fmt: skip
    gone = msgspec.structs.replace(queued(), jobs={})
    assert cell("LEFT", queued().runs["sft-1b"], gone) == ("queued", "dim")


def test_the_width_of_the_job_column_is_that_of_its_longest() -> None:
    narrow = next(column for column in run_layout(90, [run("x")], queued()).columns if column.name == JOB.name)

    assert narrow.width == 4


# ---- worst first, with alerts ----------------------------------------------------------------------------------------


def order_of(state: State, sort: str = "worst") -> list[str]:
    return [one.name for one in ordered_runs(state, sort)]


def several(*verdicts: str) -> State:
    """Runs a, b, c … with these verdicts."""
    runs = [run(name, verdict) for name, verdict in zip("abcdef", verdicts, strict=False)]
    return msgspec.structs.replace(calm(), runs={one.name: one for one in runs})


@pytest.mark.parametrize("verdict", ["queued", "idle", "stopped", "finished", "healthy"])
def test_a_run_that_failed_stands_above_green_ones_whatever_its_job_does_now(verdict: str) -> None:
    base = several("healthy", "healthy", "healthy", "healthy", verdict)
    failed = alert(rule="run-dead", subject="run:e", run="e")

    assert order_of(with_alerts(failed, base=base)) == ["e", "a", "b", "c", "d"]
    assert order_of(with_alerts(replace(failed, acknowledged_by="ana"), base=base))[0] == "e"
    assert order_of(with_alerts(failed, base=base), "name") == ["a", "b", "c", "d", "e"]


def test_critical_alerts_come_before_warnings_and_warnings_before_what_has_just_begun() -> None:
    alerts = (
        alert("x1", subject="run:b", run="b", phase="pending", fired_at=None),
        alert("x2", subject="run:c", run="c", severity="warning"),
        alert("x3", subject="run:d", run="d"),
        alert("x4", subject="run:e", run="e", severity="info"),
        alert("x5", subject="run:f", run="f", muted_until=NOW + 60.0),
    )
    base = several("healthy", "healthy", "healthy", "healthy", "healthy", "healthy")

    assert order_of(with_alerts(*alerts, base=base)) == ["d", "c", "b", "a", "e", "f"]


async def test_until_a_person_chooses_a_run_the_cursor_is_on_the_worst_one() -> None:
    healthy = several("healthy", "healthy", "healthy")
    spiking = with_alerts(alert(subject="run:c", run="c"), base=healthy)
    async with showing(healthy) as (app, pilot, backend):
        await publish(app, pilot, backend, spiking)
        assert (app.main.runs.selected, app.main.log_pane.run) == ("c", "c")

        await pilot.press("j")
        await publish(app, pilot, backend, healthy)
        assert app.main.runs.selected == "a"
        await publish(app, pilot, backend, spiking)
        assert app.main.runs.selected == "a"


@pytest.mark.parametrize("key", ["4", "enter", "l", "x"])
async def test_a_run_that_a_person_reads_or_acts_on_counts_as_chosen(key: str) -> None:
    healthy = several("healthy", "healthy", "healthy")
    async with showing(healthy) as (app, pilot, backend):
        await pilot.press(key)
        await at_rest(pilot)
        await publish(app, pilot, backend, with_alerts(alert(subject="run:c", run="c"), base=healthy))
        assert app.main.runs.selected == "a"


async def test_the_cursor_comes_back_to_the_chosen_run_when_a_filter_no_longer_hides_it() -> None:
    async with showing(several("healthy", "healthy", "queued")) as (app, pilot, _):
        await pilot.press("j", "slash", *"queued", "enter")
        await at_rest(pilot)
        assert app.main.runs.selected == "c"

        await pilot.press("escape")
        await at_rest(pilot)
        assert app.main.runs.selected == "b"


# ---- a condition is visible when it begins ---------------------------------------------------------------------------


def begun(rule: str, **facts: object) -> State:
    """Five healthy runs; the condition of a rule about `c` has just begun, and no message is sent yet."""
    base = several("healthy", "healthy", "healthy", "healthy", "healthy")
    pending = {"severity": "warning", "phase": "pending", "fired_at": None, "run": "c"}
    return with_alerts(alert(rule=rule, subject="run:c", **(pending | facts)), base=base)


async def test_a_loss_that_has_just_jumped_is_amber_in_its_row_in_the_header_and_in_pane_5() -> None:
    async with showing(begun("loss-spike", summary="c's loss is 5.51")) as (app, _, _backend):
        screen = text_of(app)
        row = next(line for line in screen.splitlines() if "!c " in line)
        assert "1.874!" in row
        assert "trainmon  1 pending alert  prod  4/5 healthy" in screen.splitlines()[0]
        assert "c's loss is 5.51" in screen
        shown = next(one for one in app.main.runs.lines.rows if one.key == "c").spans
        assert {span.text.strip(): span.style for span in shown}["1.874!"] == "warn"
        assert shown[0].style == "warn", "the sign of the run is not green"


@pytest.mark.parametrize(
    ("rule", "cell"),
    [(rule, column) for column, rules in RULES.items() for rule in rules if column not in ("job", "saved", "switch")],
)
def test_what_a_rule_is_about_is_marked_as_soon_as_its_condition_begins(rule: str, cell: str) -> None:
    shown = begun(rule)
    table = run_layout(118, shown.runs.values(), shown)
    place = [column.name for column in table.columns].index(cell)
    span = run_cells(shown.runs["c"], shown, table)[2 + place]
    assert (span.text[-1], span.style) == ("!", "warn")
    assert cell_width(span.text) == table.columns[place].width


def test_every_column_of_a_rule_exists_and_so_does_its_rule() -> None:
    assert RULES.keys() <= {column.name for column in COLUMNS} | {JOB.name}
    assert {rule for rules in RULES.values() for rule in rules} <= {rule.name for rule in ALL_RULES}


def test_a_muted_condition_is_neither_marked_nor_counted() -> None:
    shown = begun("loss-spike", muted_until=NOW + 60.0)
    assert "1.874!" not in line("c", shown)
    assert "pending" not in "".join(span.text for span in header(shown, 110, ()))
    assert "5 healthy" in "".join(span.text for span in header(shown, 110, ()))


def test_a_loss_above_its_band_is_marked_without_an_alert_until_it_is_back() -> None:
    trouble = LossTrouble(state="spike", key="loss", value=5.51, step=12_880, at=NOW)
    one = replace(calm().runs["llm-70b"], memory=RunMemory(trouble=trouble))
    assert "1.874!" in alone(one, calm())
    assert "1.874 " in alone(replace(one, memory=RunMemory(trouble=replace(trouble, after=1))), calm())


# ---- the trend -------------------------------------------------------------------------------------------------------


def test_where_there_is_room_a_row_shows_the_trend_of_the_loss() -> None:
    one = replace(calm().runs["llm-70b"], memory=RunMemory(losses=(2.0,) * 110 + (5.5,) * 10))
    assert "▁▁▁▁▁▁▁▁▁▁▁█" in alone(one, calm(), 118)
    assert "TREND" in run_layout(118, [one], calm()).head(NAMED).text
    assert f" {'▁' * 9}█ " in alone(one, calm(), 70), "fewer cells"
    assert "█" not in alone(one, calm(), 50)
    assert "TREND" not in run_layout(118, calm().runs.values(), calm()).head(NAMED).text, "no losses are known"
    assert "▁" * 12 in alone(replace(one, memory=RunMemory(losses=(2.0,) * 20)), calm(), 118)


@pytest.mark.parametrize(("phase", "word"), [("pending", "pending alert"), ("firing", "alert")])
async def test_the_frame_says_why_a_run_that_is_well_is_marked(phase: str, word: str) -> None:
    hot = alert("b", rule="gpu-hot", subject="gpu:n1/5", run="c", phase=phase, summary="GPU 5 of n1 is throttling")
    mild = alert("a", rule="gpu-idle", run="c", severity="warning", phase=phase, summary="idle", fired_at=NOW - 900.0)
    muted = alert("c", run="c", summary="muted", muted_until=NOW + 900.0)
    async with showing(with_alerts(mild, hot, muted, base=several("healthy", "healthy", "healthy")), (80, 24)) as (
        app,
        _,
        _backend,
    ):
        screen = text_of(app)
        assert f"─ c: healthy, {word}: gpu-hot ─" in screen
        assert screen.count("GPU 5 of n1 is throttling") == 1, "the strip has its text"
    worse = alert("0", phase=phase, fired_at=NOW - 950.0)
    base = several("healthy", "healthy", "healthy")
    async with showing(with_alerts(mild, hot, worse, base=base), (80, 24)) as (app, _, _backend):
        assert f"─ c: healthy, {word}: GPU 5 of n1 is throttling ─" in text_of(app), "the strip has another one"


async def test_a_long_list_keeps_its_rows_for_a_second_unless_a_person_waits() -> None:
    def at(seconds: float, step: int) -> State:
        many = [run(f"exp-{n:02}", progress=Progress(step=step, at=NOW)) for n in range(60)]
        return msgspec.structs.replace(calm(), runs={one.name: one for one in many}, at=NOW + seconds)

    async with showing(at(0, 1_000), (200, 60)) as (app, pilot, backend):

        def steps() -> set[str]:
            return {row.text.split()[3] for row in app.main.runs.lines.rows if row.key.startswith("exp-")}

        first = steps()
        await publish(app, pilot, backend, at(1, 1_001))
        assert steps() == first, "half of the work of a long list"
        await publish(app, pilot, backend, at(2, 1_002))
        assert steps() != first, "nothing is older than two seconds"

        second = steps()
        app.clock.at += 0.1  # type: ignore[attr-defined]
        await pilot.press("j")
        await publish(app, pilot, backend, at(3, 1_003))
        assert steps() != second
