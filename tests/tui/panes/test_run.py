"""The detail of one run, as lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.retries.attempts import ended
from tests.tui.pilot import running
from tests.tui.screen_text import at_rest, dashboard, settled
from tests.tui.states.plans import STATES, planning
from tests.tui.states.states import NOW, calm, checkpoints, job, queued, record, run, slurm_down, troubled
from tests.tui.states.wandb_runs import of_log
from trainmon.lib import cell_width
from trainmon.model import Checkpoint, Milestone, Node, Progress, RunSpec, State, Switch, Verdict
from tui.panes.log import log_title, why_nothing
from tui.panes.runs import checkpoint_cell, left_cell
from tui.style import Line, Link, Linked, sentence, width_of
from tui.views.news import action_toasts
from tui.views.runs import checkpoint_lines, job_lines, record_lines, run_lines, switch_lines
from tui.widgets import LogView


def text_of(name: str, state: State, width: int = 60) -> list[str]:
    return texts(run_lines(state.runs[name], state, width))


def texts(found: Iterable[Line | Linked]) -> list[str]:
    spans = (line.spans if isinstance(line, Linked) else line for line in found)
    return ["".join(span.text for span in line) for line in spans]


def links(name: str, state: State) -> list[Link]:
    return [line.link for line in run_lines(state.runs[name], state, 60) if isinstance(line, Linked)]


def saved(**more: object) -> list[str]:
    return texts(checkpoint_lines(run("x", checkpoints=checkpoints(**more)), State(at=NOW), 70))


def test_the_target_of_the_config_counts_on_its_page_as_in_the_table_and_in_its_alerts() -> None:
    for logged in (120_000, None):
        one = run("x", progress=Progress(step=500, target_step=logged), eta_at=None)
        one = replace(one, spec=replace(one.spec, target_step=90_000))
        assert "step          500 of 90,000" in text_of("x", State(at=NOW, runs={"x": one}))
        assert left_cell(one, State(at=NOW)).text.strip() == "?", "it has a target, and no pace yet"


def test_it_says_verdict_why_numbers_switches_log_and_nodes() -> None:
    text = text_of("llm-7b-a", troubled())

    assert text[0] == "▲ hung"
    assert "step          81,204 of 120,000" in text
    assert "last step     11m ago, usually every 4.1s" in text
    assert "kill switch   not armed" in text
    assert any(line.startswith("log         → gpu-001:/scratch") for line in text)
    assert "nodes       → gpu-001  8 GPUs  max 64°C" in text


def test_a_node_that_is_silent_is_shown_as_such() -> None:
    lost = run("x")
    state = troubled()
    on_silent = State(
        at=NOW, runs={"x": lost}, sources={"node:gpu-001": state.sources["node:gpu-005"]}, nodes=state.nodes
    )

    text = text_of("x", on_silent)

    assert "nodes       → gpu-001  no data for 42s" in text
    assert "            → gpu-002  no data yet" in text


def test_skipped_and_nan_iterations_show_only_when_there_are_some() -> None:
    bad = run("x", progress=Progress(step=5, skipped=3, nan_iterations=2))
    state = State(at=NOW, runs={"x": bad, "y": run("y")})

    assert "skipped       3 iterations!" in text_of("x", state)
    assert "nan           2 iterations!" in text_of("x", state)
    assert not any(line.startswith(("skipped", "nan  ")) for line in text_of("y", state))


def test_each_state_of_a_switch_has_its_words() -> None:
    def words(found: Switch | None) -> str:
        return texts(switch_lines("kill", found, NOW, 80))[0][14:]

    armed = Switch(path="k", exists=True, armed_at=NOW - 600.0, by="ann", why="wrong data")

    assert words(None) == "not configured"
    assert words(Switch(path="k", exists=False)) == "not armed"
    assert words(Switch(path="k", exists=False, taken_at=NOW - 30.0)) == "consumed 30s ago"
    assert words(Switch(path="k", exists=None, error="permission denied")) == "? permission denied"
    assert words(armed) == "ARMED 10m ago by ann: wrong data"


def test_a_long_reason_goes_over_several_lines_none_too_wide() -> None:
    pieces = texts(sentence("no step for 11m (usual 4.1s), GPUs at 100% and low power", 20))

    assert len(pieces) > 2
    assert all(cell_width(piece) <= 20 for piece in pieces)


def test_no_line_of_a_calm_run_is_wider_than_the_pane() -> None:
    for state in (calm(), queued(), slurm_down()):
        for width in (44, 60, 90):
            found = run_lines(state.runs["llm-70b"], state, width)
            assert all(width_of(line.spans if isinstance(line, Linked) else line) <= width for line in found)


def test_a_log_without_lines_says_why() -> None:
    assert why_nothing(None, None) == "No run is selected."
    assert why_nothing(None, "gone") == "gone is no longer watched."
    assert why_nothing(run("x", log=None), "x") == "x has no log: set `log` in its [[run]] table."
    unread = replace(run("x", log=None), spec=RunSpec(name="x", cluster="c", log="/scratch/x/*.out"))
    assert why_nothing(unread, "x") == "x's log, /scratch/x/*.out, has not been read yet."
    assert why_nothing(calm().runs["llm-70b"], "llm-70b") is None


def test_the_title_of_a_log_names_run_host_and_path() -> None:
    one = calm().runs["llm-70b"]
    assert one.log is not None

    assert log_title(one.name, one.log, 60) == "llm-70b  gpu-001:/scratch/llm-70b/slurm-418190.out"
    assert log_title(one.name, one.log, 40) == "llm-70b  gpu-001:…m-70b/slurm-418190.out"


@pytest.mark.parametrize(("verdict", "is_late"), [("healthy", True), ("queued", False), ("finished", False)])
def test_a_run_that_makes_no_steps_is_late_with_no_checkpoint_on_its_page_as_in_the_table(
    verdict: Verdict, *, is_late: bool
) -> None:
    one, state = run("x", verdict, checkpoints=checkpoints(every_s=500.0)), State(at=NOW)
    assert any("usually every 8m" in line for line in texts(checkpoint_lines(one, state, 70))) is is_late
    assert (checkpoint_cell(one, state).style == "warn") is is_late


# ---- its job, its checkpoints, what was done to it -----------------------------------------------------------------


def test_the_lines_lead_to_its_jobs_its_log_and_its_nodes() -> None:
    assert links("llm-70b", queued()) == [
        Link("job", "prod/418190"), Link("job", "prod/418191_[]"), Link("log", "llm-70b"),
        *(Link("node", f"gpu-{number:03}") for number in range(1, 5)),
    ]  # fmt: skip


def test_the_job_says_what_is_left_and_whether_that_suffices_to_save() -> None:
    def job_texts(name: str) -> list[str]:
        return texts(job_lines(queued().runs[name], queued(), 60))

    assert job_texts("llm-70b") == [
        "job         → 418190  R  on gpu-[001-004]",
        "time left     21h; a final save takes 88s",
        "restarts      1",
        "next job    → 418191_[2-10%1]  PD  array task limit reached",
        "behind it     10 jobs pending",
    ]
    assert job_texts("llm-7b-a")[1:] == ["time left     70s: a final save takes 88s!", "behind it     0 jobs pending"]
    assert job_texts("sft-1b")[0] == "job         → 418301  PD  starts in 2m"
    assert job_texts("abl-3")[0] == "job         → 418100  F  exited with code 1, 2h ago"
    timeout = ended(0, "nccl-timeout", run_id="abl-3", job_id="418100")
    known = replace(queued(), attempts={timeout.attempt_id: timeout})
    shown = texts(job_lines(known.runs["abl-3"], known, 60))
    assert shown[0] == "job         → 418100  F  nccl-timeout (exit 1), 2h ago", "one end has one name"


def test_a_run_without_a_job_says_so_only_where_there_is_a_scheduler() -> None:
    lost = run("x")

    assert texts(job_lines(lost, queued(), 60)) == ["job           no job of this name in the queue"]
    assert texts(job_lines(lost, calm(), 60)) == []


def test_many_jobs_are_cut_with_their_number() -> None:
    many = {one.key: one for number in range(20) for one in [job(f"88_{number}", "COMPLETED")]}
    state = msgspec.structs.replace(queued(), jobs=many)

    assert "              and 14 more" in texts(job_lines(run("x", jobs=tuple(many)), state, 60))


def test_checkpoints_say_what_is_safe_what_is_at_risk_and_what_saving_costs() -> None:
    assert saved() == [
        "checkpoint    step 12,500 committed 20m ago",
        "at risk       380 steps, about 26m of work",
        "resumes from  /scratch/llm-70b/ckpt/iter_0012500",
        "incomplete    step 11,700: no metadata, and nobody writes it",
        "saving        takes 40s every 34m (500 steps) = 1.95% of the time",
        "size          1.2 TiB each",
        "checkpoints   listed 20s ago on login1",
    ]


def test_a_save_that_is_overdue_is_marked_with_what_is_usual() -> None:
    assert saved(every_s=500.0)[0] == "checkpoint    step 12,500 committed 20m ago, usually every 8m!"


def test_the_steps_since_the_checkpoint_that_a_restart_takes_are_at_risk() -> None:
    older = Checkpoint(step=12_000, state="superseded", path="/c/iter_0012000", layout="megatron", at=NOW - 3_000)
    lines = saved(list=(*checkpoints().list, older), resumes=older.path)
    assert lines[0].startswith("checkpoint    step 12,500 committed")
    assert lines[1].startswith("at risk       880 steps")
    assert "resumes from  /c/iter_0012000" in lines


@pytest.mark.parametrize("found", [
    {}, {"every_s": 500.0}, {"list": (), "resumes": None, "problem": "no committed checkpoint found"},
])  # fmt: skip
def test_nothing_of_a_finished_run_is_at_risk_and_no_save_is_overdue(found: dict[str, Any]) -> None:
    done = run("x", verdict="finished", checkpoints=checkpoints(**found))
    lines = texts(checkpoint_lines(done, State(at=NOW), 70))
    assert not any("at risk" in line or "usually every" in line for line in lines)


def test_checkpoints_that_are_named_by_epochs_put_no_number_of_steps_at_risk() -> None:
    assert any("at risk" in line for line in saved())
    epochs = run(
        "x", checkpoints=checkpoints(every_steps=1, every_s=2_000.0), progress=Progress(step=12_880, cadence_s=4.0)
    )
    assert not any("at risk" in line for line in texts(checkpoint_lines(epochs, State(at=NOW), 70)))


def test_a_checkpoint_of_an_unknown_format_is_neither_safe_nor_an_alarm() -> None:
    strange = Checkpoint(
        step=12_800,
        state="unknown",
        path="/c/step_12800",
        layout="unknown",
        at=NOW - 60,
        why="its format is not recognised",
    )
    lines = saved(list=(strange, *checkpoints().list), problem=None)
    assert lines[:2] == [
        "checkpoint    step 12,800, written 1m ago: its format is not",
        "              recognised, so its state is not known",
    ]
    assert not any(line.startswith("at risk") for line in lines)


def test_no_committed_checkpoint_is_an_alarm_and_never_a_silent_fresh_start() -> None:
    found = list(checkpoint_lines(
        run("x", checkpoints=checkpoints(list=(), resumes=None, problem="no committed checkpoint found")),
        State(at=NOW), 70
    ))  # fmt: skip

    assert texts(found)[:3] == [
        "checkpoint    no committed checkpoint",
        "at risk       all 12,880 steps",
        "problem       no committed checkpoint found",
    ]
    assert [line[-1].style for line in found[:3]] == ["crit", "warn", "crit"]


def test_a_host_without_python_reads_no_checkpoints_and_says_so() -> None:
    with_checkpoints = run("x", spec=replace(run("x").spec, checkpoints="/ckpt"))
    mute = Node(
        name="login1",
        cluster=with_checkpoints.spec.cluster,
        probe="sh",
        note="no usable python3: the main numbers only",
    )

    assert texts(checkpoint_lines(with_checkpoints, State(at=NOW), 70)) == ["checkpoint    not read yet"]
    assert texts(checkpoint_lines(with_checkpoints, State(at=NOW, nodes={"login1": mute}), 80)) == [
        "checkpoint    not read: no reachable host has a usable python3"
    ]


def test_a_directory_that_cannot_be_listed_says_why_and_claims_nothing() -> None:
    assert saved(list=(), error="permission denied", resumes=None, save_s=None, every_s=None, bytes=None) == [
        "checkpoint    permission denied", "checkpoints   listed 20s ago on login1",
    ]  # fmt: skip


def test_a_checkpoint_that_is_being_written_says_for_how_long() -> None:
    whole = checkpoints()
    writing = Checkpoint(step=13_000, state="writing", path="/x/iter_0013000", layout="megatron", began_at=NOW - 25.0)

    assert "writing       step 13,000 for 25s, usually 40s" in saved(list=(writing, *whole.list))


def test_what_was_done_to_it_is_shown_with_what_followed() -> None:
    marks = (
        Milestone("the file appears", NOW - 118.0), Milestone("the file is taken"),
        Milestone("a checkpoint is committed", missed="nothing came within 2m"),
    )  # fmt: skip

    assert texts(record_lines(record("save", *marks), NOW, 70)) == [
        "save, 2m ago by me, done",
        "  ✓ the file appears after 1s",
        "  ◌ the file is taken",
        "  ✗ a checkpoint is committed: nothing came within 2m",
    ]
    failed = record("requeue", status="failed", outcome="Invalid job id", note="not recorded in the ledger")
    assert texts(record_lines(failed, NOW, 70)) == [
        "requeue, 2m ago by me, failed: Invalid job id",
        "  not recorded in the ledger",
    ]


def test_the_run_and_the_message_say_the_same_of_how_long_a_mark_took() -> None:
    asked_long_before = record("save", done_at=NOW - 100.0)
    taken = Milestone("the file is taken", NOW - 96.7)

    lines = texts(record_lines(replace(asked_long_before, marks=(taken,)), NOW, 70))
    message = action_toasts(
        State(at=NOW, actions={"a": replace(asked_long_before, marks=(Milestone(taken.name),))}),
        State(at=NOW, actions={"a": replace(asked_long_before, marks=(taken,))}),
    )

    assert lines[1] == "  ✓ the file is taken after 3.3s"
    assert [one.text for one in message] == ["the file is taken after 3.3s"]


def test_nothing_that_strangers_wrote_reaches_the_terminal_as_it_is() -> None:
    bad = "\x1b[31mred\x07 \x9b2J"
    found = saved(problem=bad, note=bad, error=bad, host=bad, resumes=bad)

    assert any("red" in line for line in found)
    assert all(line.isprintable() for line in found)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 60)])
async def test_the_page_of_a_run_shows_loss_throughput_and_log_on_the_first_screen(size: tuple[int, int]) -> None:
    async with running(dashboard(of_log()), size=size) as pilot:
        await at_rest(pilot)
        await pilot.press("enter")
        shown = await settled(pilot)
        assert "from the log, newest row 6s old" in shown
        assert "loss  1.874" in shown
        assert "1.9M tokens/s" in shown
        assert "iteration   12880/   95000" in shown

        await pilot.press("tab", "y")
        assert not isinstance(pilot.app.focused, LogView), "the keys are those of the details"


async def test_with_wandb_the_page_of_a_run_has_its_charts() -> None:
    async with running(dashboard(planning(STATES["wandb"]())), size=(120, 40)) as pilot:
        await at_rest(pilot)
        await pilot.press("enter")
        shown = await settled(pilot)
        assert "train/loss  1.792" in shown
        assert "perf/tokens_per_second  410.2k" in shown
        assert "train/grad_norm" not in shown
