"""What W&B says of a run, as lines of its detail."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tests.tui.states import wandb as wandb_states
from tests.tui.states.states import NASTY, NOW, run
from tests.tui.states.wandb import EARLIER, SAMPLES, current
from tests.tui.states.wandb_runs import NAME
from trainmon.model import LossTrouble, Sample, Source, State, Wandb, WandbRun
from tui.style import Link, Linked, width_of
from tui.views.runs import attempt_text, settings_lines, value_of, wandb_lines


def text_of(state: State, width: int = 80, *, few: bool = False) -> list[str]:
    lines = wandb_lines(state.runs[NAME], state, width, few=few)
    return ["".join(span.text for span in (one.spans if isinstance(one, Linked) else one)) for one in lines]


def settings_of(one: WandbRun, width: int = 80) -> list[str]:
    return ["".join(span.text for span in line) for line in settings_lines(one, width)]


def test_it_says_which_is_active_since_when_and_all_its_facts() -> None:
    text = text_of(wandb_states.wandb())

    assert text[1:14] == [
        "W&B         → team/project, group video-2b-final",
        "phase         ● one active W&B run, for 5h",
        "              video-2b-try-3 (id3) is running",
        "last data     20s ago",
        "run           video-2b-try-3 (id3)",
        "state         running, heartbeat 10s ago",
        "W&B step      12,880",
        "on            gpu-001",
        "user          me",
        "commit        8baa0f9c2d41",
        "tags          final, 2b",
        "page          https://wandb.ai/team/project/runs/id3",
        "attempts      video-2b-try-3 (id3)  running at step 12,880, for 5h",
    ]
    assert "              video-2b-try-2 (id2)  crashed at step 9,200, 11h to 5h ago" in text


def test_its_first_line_leads_to_the_charts() -> None:
    state = wandb_states.wandb()

    lines = [line for line in wandb_lines(state.runs[NAME], state, 80, few=False) if isinstance(line, Linked)]

    assert [line.link for line in lines] == [Link("wandb", NAME)]


def test_a_run_without_a_project_has_no_such_part() -> None:
    assert list(wandb_lines(run("x"), State(at=NOW), 80, few=False)) == []


def test_several_active_runs_are_named_in_full() -> None:
    text = text_of(wandb_states.several())

    assert "phase         ◆ SEVERAL active W&B runs, for 6m" in text
    assert "              2 runs are active where one is expected: video-2b-try-3 (id3)," in text
    assert "              video-2b-try-2 (id2) (team/project, group video-2b-final)" in text


def test_waiting_and_overdue_say_since_when() -> None:
    assert "phase         ◌ no active W&B run, for 6m" in text_of(wandb_states.waiting())
    assert "phase         ▲ OVERDUE: no active W&B run, for 33m" in text_of(wandb_states.overdue())


def test_an_odd_loss_and_a_source_that_is_down_are_shown_with_what_to_do() -> None:
    down = text_of(wandb_states.down())

    assert "loss          spike: 9.5 at step 12,300, usually 1.7 to 2.1" in text_of(wandb_states.spike())
    assert "error         W&B asks to wait: too many requests (429)" in down
    assert "              tried again in 2m; raise [wandb] every" in down
    assert "last data     5m ago" in down


def test_values_of_an_old_answer_are_dim() -> None:
    state = wandb_states.down()

    lines = list(wandb_lines(state.runs[NAME], state, 80, few=False))

    (phase,) = [line for line in lines if not isinstance(line, Linked) and line and line[0].text.startswith("phase")]
    assert phase[1].style == "dim"


def test_a_project_that_was_never_queried_says_why_and_claims_nothing() -> None:
    assert text_of(wandb_states.no_key())[2:] == [
        "error         no key for wandb.ai was found",
        "              run `wandb login`, or set WANDB_API_KEY",
        "last data     none yet",
    ]


def test_attempts_come_in_the_order_in_which_they_trained() -> None:
    """A run that was resumed trained last, whatever its age."""
    resumed = text_of(wandb_states.wandb(active=("id1",), attempts=("id1", "id3", "id2", "id1")))
    at = next(place for place, line in enumerate(resumed) if line.startswith("attempts"))

    assert [line[14:28] for line in resumed[at : at + 3]] == ["video-2b-try-1", "video-2b-try-3", "video-2b-try-2"]


def test_an_attempt_says_when_it_began_and_last_sent_a_heartbeat() -> None:
    bare = WandbRun(entity="e", project="p", id="x", name="x", state="pending")

    assert attempt_text(EARLIER[1], NOW) == "crashed at step 4,400, 16h to 11h ago"
    assert attempt_text(bare, NOW) == "pending, for ?"


def test_samples_say_what_they_are_and_where_they_lie() -> None:
    text = text_of(wandb_states.wandb())
    at = text.index("samples, the newest of each metric  (press d to fetch them into a folder)")

    assert text[at + 1 :] == [
        "image         val/generated  step 12,000  512×288  180 KiB",
        "              “a red fox in the snow”",
        "              saved to /tmp/kept/generated.png",
        "video         val/video  step 12,000  512×288  1.8 MiB",
        "              its first frame is shown",
        "              not fetched: media/videos/val/video_12000_cd34.mp4",
        "table         val/table  step 8,000",
        "              not fetched: media/table/val/table_8_ef56.json",
    ]
    assert "samples       none logged" in text_of(wandb_states.wandb(samples=()))


def test_where_there_is_little_room_three_of_each_are_shown() -> None:
    many = tuple(Sample(key=f"val/{number}", kind="image", file=f"{number}.png") for number in range(30))
    attempts = tuple(replace(EARLIER[0], id=f"old{number}", name=f"old{number}") for number in range(9))

    text = text_of(wandb_states.wandb(samples=many, runs=(current(), *attempts)), few=True)

    assert "              and 7 more" in text
    assert text[-1] == "              and 27 more"
    assert len(text) < 30
    assert text_of(wandb_states.wandb(samples=many))[-1] == "              and 10 more"


def test_summary_and_settings_are_two_columns_by_name_without_wandbs_own() -> None:
    one = current(summary={"val/loss": 2.113, "loss": float("nan"), "_step": 5.0, "note": "words"})

    assert settings_of(one)[1:5] == [
        "summary: the latest value of each metric (3)",
        "loss      nan",
        "note      words",
        "val/loss  2.113",
    ]
    assert "optimizer.lr    0.0003" in settings_of(one)
    assert settings_of(replace(one, summary={}, config={})) == []


def test_long_names_and_values_are_cut_and_many_are_counted() -> None:
    many = {f"a.very.long.section.of.settings.{number:03}.value": "x" * 200 for number in range(300)} | {"z": "1"}

    lines = list(settings_lines(current(summary={}, config=many), 60))

    assert all(width_of(line) <= 60 for line in lines)
    assert lines[-1][0].text == "and 1 more"


def test_a_setting_with_the_name_of_a_secret_is_masked() -> None:
    assert value_of("env.HF_TOKEN", "abcdefgh12345678") == "***"
    assert value_of("tokenizer.pad_token", "0") == "0"


def test_no_line_is_wider_than_the_pane_and_nothing_of_strangers_reaches_the_terminal_as_it_is() -> None:
    bad = current(name=NASTY, state=NASTY, host=NASTY, user=NASTY, commit=NASTY, tags=(NASTY,), url=NASTY * 3,
                  summary={NASTY: NASTY}, config={NASTY: NASTY})  # fmt: skip
    sample = replace(SAMPLES[0], key=NASTY, kind=NASTY, file=NASTY, caption=NASTY, note=NASTY, kept=NASTY)
    source = Source(name=f"wandb:{NAME}", kind="wandb", cluster="prod", error=NASTY, hint=NASTY)
    trouble = LossTrouble(state="nan", key=NASTY, value=math.nan, step=1, at=NOW)
    state = wandb_states.wandb(runs=(bad,), samples=(sample,), why=NASTY, trouble=trouble)
    state = replace(state, sources={source.name: source})

    for width in (44, 60, 90):
        found = list(wandb_lines(state.runs[NAME], state, width, few=False))
        lines = [line.spans if isinstance(line, Linked) else line for line in (*found, *settings_lines(bad, width))]
        assert all(width_of(line) <= width for line in lines), width
        assert all(span.text.isprintable() for line in lines for span in line)


def test_wandb_that_answered_without_a_run_says_so() -> None:
    state = wandb_states.wandb()
    none = replace(
        state.runs[NAME],
        wandb=Wandb(polled_at=NOW - 5.0, phase="none", why="W&B has no run that matches team/project, group x"),
    )

    text = text_of(replace(state, runs={NAME: none}))

    assert "phase         · no W&B run found" in text
    assert "              W&B has no run that matches team/project, group x" in text
