"""The rows of jobs and nodes in the queue, and the sentences in place of rows."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.retries.attempts import ended
from tests.tui.states.states import NOW, calm, cluster, job, queue_jobs, queued, run, scheduler_node, slurm, slurm_down
from trainmon.lib import cell_width
from trainmon.model import Job, State
from tui.panes.queue import job_sentence, queue_sentence, queue_summary, sentences
from tui.style import HEADING
from tui.views.jobs import (
    CLUSTER,
    ENDED_SHOWN,
    QueueEntry,
    elapsed,
    folded,
    job_sign,
    listed_jobs,
    node_layout,
    node_rows,
    node_state,
    queue_head,
    queue_layout,
    queue_row,
    queue_rows,
    short_wait,
    state_code,
    status_text,
)
from tui.views.table import RowCache


def line(one: Job, width: int = 140, *, run: str = "", short: bool = False) -> str:
    entry = QueueEntry(one, run, short=short, stale=False, several=False)
    return queue_row(entry, queue_layout(width, [entry]), State(at=NOW)).text.rstrip()


def order(state: State, sort: str = "state", wanted: str = "", *, mine: bool = False) -> list[str]:
    return [one.job.id for one in listed_jobs(state, sort, wanted, mine=mine)]


def numbered(state: State) -> list[str]:
    return [
        f"{row.key.removeprefix(HEADING)}|{row.text.rstrip()}"
        for row in node_rows(state, node_layout(state, 110), "", every=False)
    ]


# ---- jobs ----------------------------------------------------------------------------------------------------------


def test_those_that_run_come_first_then_those_that_wait_as_they_will_start_then_the_last_to_end() -> None:
    assert order(queued()) == [
        "418223", "418190", "418230", "418301", "418191_[2-10%1]", "418302", "418304", "418303", "418097", "418100",
        "418099", "418098",
    ]  # fmt: skip


def test_other_sort_orders() -> None:
    assert order(queued(), "id")[:3] == ["418097", "418098", "418099"]
    assert order(queued(), "name")[:2] == ["418098", "418100"]
    assert order(queued(), "user")[0] == "418223"
    assert order(queued(), "left")[0] == "418223"


def test_mine_are_those_of_the_user_that_we_are_there() -> None:
    assert "418223" not in order(queued(), mine=True)
    assert "418190" in order(queued(), mine=True)


def test_who_we_are_is_not_known_yet_then_nothing_is_hidden() -> None:
    unknown = msgspec.structs.replace(queued(), clusters={"prod": cluster(me=None)})

    assert order(unknown, mine=True) == order(unknown)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("llm-7b", ["418223"]), ("ana suspended", ["418230"]), ("gpu-007", ["418223"]), ("CA", ["418098"]),
     ("end of 418190", ["418302"]), ("nothing-like-this", [])],
)  # fmt: skip
def test_the_filter_looks_at_ids_names_users_states_nodes_and_reasons(wanted: str, found: list[str]) -> None:
    assert [one for one in order(queued(), "state", wanted) if one != "418304" or "418304" in found] == found


def test_of_those_that_ended_only_the_last_are_shown() -> None:
    many = {
        one.key: one
        for number in range(100)
        for one in [job(f"88_{number}", "COMPLETED", ends_at=NOW - 100.0 * number, gone_at=NOW - 10.0)]
    }

    shown = order(msgspec.structs.replace(queued(), jobs=many))

    assert len(shown) == ENDED_SHOWN
    assert shown[0] == "88_0"


def test_a_running_job_shows_its_times_restarts_and_nodes() -> None:
    assert line(job("418190", restarts=2)).split() == [
        "●", "418190", "llm-70b", "R", "4", "3h", "21h", "2", "on", "gpu-[001-004]",
    ]  # fmt: skip


def test_where_there_is_little_room_the_time_left_and_the_restarts_stand_in_words() -> None:
    assert line(job("418190", restarts=2), 77) == ("● 418190 llm-70b  R      4  21h left; on gpu-[001-004]; restart 2")
    assert line(job("418191_[2-10%1]", "PENDING", reason="Resources"), 77).split()[1:3] == ["418191", "×9"]


def test_a_job_that_ends_before_its_run_could_save_is_marked() -> None:
    ending = job("1", ends_at=NOW + 70.0)

    assert "70s!" in line(ending, short=True)
    assert "70s left!" in line(ending, 77, short=True)
    assert "!" not in line(ending)


def test_with_several_clusters_each_job_names_its_own() -> None:
    one = QueueEntry(job("418191_[2-10%1]", "PENDING", cluster="lab"), "", short=False, stale=False, several=True)

    assert one.id(narrow=False) == "lab/418191_[2-10%1]"
    assert one.id(narrow=True) == "lab/418191 ×9"


def test_the_run_of_a_job_is_named_where_its_name_is_another() -> None:
    assert line(job("1"), run="video-2b").endswith("; run video-2b")
    assert "run" not in line(job("1"), run="llm-70b")


@pytest.mark.parametrize(
    ("one", "words", "style"),
    [
        (job("1", "PENDING", reason="BeginTime", starts_at=NOW + 125.0), "starts in 2m", ""),
        (job("1", "PENDING", reason="Dependency", dependency="afterany:88(unfulfilled)"),
         "after the end of 88", ""),
        (job("1", "PENDING", reason="JobHeldUser", priority=0), "held", ""),
        (job("1", "PENDING", reason="JobHeldAdmin"),
         "held by an administrator; only an administrator can release it", "warn"),
        (job("1", "FAILED", exit_code="1:0"), "exited with code 1, 2h ago", "crit"),
        (job("1", "DEADLINE"), "it reached its deadline, 2h ago", "crit"),
        (job("1", "CANCELLED", cancelled_by="ana"), "cancelled by ana, 2h ago", "dim"),
        (job("1", gone_at=NOW - 600.0), "gone from the queue 10m ago; was RUNNING", "warn"),
        (job("1", "SUSPENDED"), "suspended, on gpu-[001-004]", "warn"),
        (job("1", "NOVELTY", gone_at=None, ends_at=None), "Slurm reports NOVELTY", "warn"),
    ],
)  # fmt: skip
def test_why_a_job_is_where_it_is(one: Job, words: str, style: str) -> None:
    assert status_text(one, NOW) == (words, style)


def test_the_end_of_a_job_has_the_cause_of_its_attempt_in_the_queue_too() -> None:
    failed = job("1", "FAILED", exit_code="1:0")
    timeout = ended(0, "nccl-timeout", run_id="llm", cluster=failed.cluster, job_id="1")
    state = replace(
        queued(), jobs={failed.key: failed}, runs={"llm": run("llm", "dead", jobs=(failed.key,))},
        attempts={timeout.attempt_id: timeout},
    )  # fmt: skip
    (entry,) = listed_jobs(state, "state")
    assert "nccl-timeout (exit 1), 2h ago" in queue_row(entry, queue_layout(140, [entry]), state).text
    assert queue_sentence(state, failed.key)[0].endswith("nccl-timeout (exit 1), 2h ago")


def test_a_job_that_is_gone_or_in_a_state_of_no_known_version_is_unknown_never_dead() -> None:
    assert job_sign(job("1", gone_at=NOW - 600.0)).text == "?"
    assert job_sign(job("1", "NOVELTY", gone_at=None)).text == "?"
    assert state_code(job("1", "NOVELTY")) == "NOV"


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (job("1", "PENDING", reason="BeginTime", starts_at=NOW + 125.0), "starts in 2m"),
        (job("1", "PENDING", reason="BeginTime", starts_at=NOW - 5.0), "starts now"),
        (job("1", "PENDING", reason="Dependency", dependency="afterany:88(unfulfilled)"), "after 88"),
        (job("1", "PENDING", reason="Dependency", dependency="afterany:88:89(unfulfilled)"), "after other jobs"),
        (job("1", "PENDING", reason="JobHeldUser"), "held"),
        (job("1", "PENDING", reason="DependencyNeverSatisfied"), "will not start!"),
        (job("1", "PENDING", reason="Resources"), "no free nodes"),
        (job("1", "PENDING", reason="QOSMaxJobsPerUserLimit"), "pending"),
    ],
)
def test_why_a_job_waits_fits_a_column(one: Job, words: str) -> None:
    assert short_wait(one, NOW) == words
    assert len(words) <= 16


def test_how_long_a_job_ran_ends_when_it_did() -> None:
    assert elapsed(job("1"), NOW) == 3 * 3600.0
    assert elapsed(job("1", "COMPLETED"), NOW) == 7 * 3600.0
    assert elapsed(job("1", gone_at=NOW - 3600.0), NOW) == 2 * 3600.0
    assert elapsed(job("1", "PENDING"), NOW) is None


@pytest.mark.parametrize("width", [30, 50, 66, 77, 84, 100, 118, 180])
def test_no_line_is_wider_than_its_pane(width: int) -> None:
    all_of_them = listed_jobs(queued(), "state")
    shape = queue_layout(width, all_of_them)

    assert all(cell_width(queue_row(entry, shape, queued()).text) <= width for entry in all_of_them)
    assert cell_width(queue_head(shape)[0].text) <= width


def test_values_stand_under_their_heads() -> None:
    found = listed_jobs(queued(), "state")
    shape = queue_layout(118, found)
    names, text = queue_head(shape)[0].text, queue_row(found[1], shape, queued()).text

    assert text.index("me ") == names.index("USER")
    assert text.index("gpu ") == names.index("PART")
    assert text.index(" on gpu") + 1 == names.index("WHY")
    assert text.index("3h") + 2 == names.index("TIME") + 4


def test_a_job_that_did_not_change_keeps_its_row_and_its_times_move_once_in_ten_seconds() -> None:
    cache, found = RowCache(), listed_jobs(queued(), "state")
    shape = queue_layout(118, found)
    seconds = [queue_rows(found, shape, State(at=NOW + second), cache) for second in range(11)]

    changed = [sum(old is not new for old, new in zip(*pair, strict=True)) for pair in itertools.pairwise(seconds)]

    assert sum(changed) == len(found)
    assert max(changed) < len(found)


def test_text_from_slurm_cannot_reach_the_terminal() -> None:
    nasty = job("1", "PENDING", name="\x1b[31mred\x07", user="\x9b2J", reason="\x1b]0;title\x07x", partition="\x1b[0m")

    assert line(nasty).isprintable()
    assert job_sentence(nasty, replace(calm(), at=NOW))[0].isprintable()


# ---- nodes ---------------------------------------------------------------------------------------------------------


def test_nodes_are_counted_and_those_that_cannot_be_used_say_why() -> None:
    assert numbered(queued()) == [
        "cluster:prod|── nodes  1 idle  5 allocated  2 draining  1 down  spares 1! (2 wanted)",
        "node:gpu-007|▲ gpu-007  draining      1 GPU lost: gres/gpu count reported lower than configured (7 < 8)"
        " (slurm 2h ago)",
        "node:gpu-009|✗ gpu-009  down, does not respond  Not responding (slurm 5m ago)",
        "node:gpu-008|◆ gpu-008  draining      fan 3 broken (root 25h ago)",
    ]


def test_a_lost_gpu_is_an_alarm_and_other_reasons_are_a_warning() -> None:
    rows = {row.key: row.spans for row in node_rows(queued(), node_layout(queued(), 110), "", every=False)}

    assert [span.style for span in rows["node:gpu-007"]] == ["crit", "bold", "crit", "crit"]
    assert rows["node:gpu-008"][2].style == "warn"
    assert rows[CLUSTER + "prod"][-1].style == "warn"


def test_all_nodes_show_the_jobs_that_run_there() -> None:
    text = {row.key: row.text for row in node_rows(queued(), node_layout(queued(), 110), "", every=True)}

    assert text["node:gpu-001"].split() == ["●", "gpu-001", "allocated", "418190", "llm-70b"]
    assert text["node:gpu-006"].split() == ["●", "gpu-006", "idle"]


def test_nodes_are_filtered_by_name_state_and_reason() -> None:
    assert [row.key for row in node_rows(queued(), node_layout(queued(), 110), "fan", every=True)] == [
        CLUSTER + "prod",
        "node:gpu-008",
    ]


def test_nodes_that_were_not_read_yet_are_not_none() -> None:
    unread = msgspec.structs.replace(queued(), scheduler_nodes={})

    assert numbered(unread) == ["cluster:prod|── nodes  not read yet"]


@pytest.mark.parametrize(
    ("state", "flags", "words"),
    [
        ("IDLE", (), "idle"), ("IDLE", ("DRAIN",), "drained"), ("MIXED", ("DRAIN",), "draining"),
        ("DOWN", ("DRAIN", "NOT_RESPONDING"), "down, drained, does not respond"),
        ("IDLE", ("MAINTENANCE", "RESERVED"), "idle, in maintenance, reserved"), ("ALLOCATED", ("CLOUD",), "allocated"),
        ("IDLE", ("SOMETHING_NEW",), "idle, something new"),
    ],
)  # fmt: skip
def test_the_state_of_a_node_in_words(state: str, flags: tuple[str, ...], words: str) -> None:
    assert node_state(scheduler_node(1, state, *flags)) == words


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu-001", "gpu-002", "gpu-003", "gpu-007"], "gpu-[001-003,007]"), (["a1", "a2", "b9"], "a[1-2],b9"),
        (["login"], "login"), ([], ""), (["n9", "n10"], "n9,n10"), (["x3", "x3"], "x3"),
    ],
)  # fmt: skip
def test_nodes_are_folded_as_slurm_writes_them(names: list[str], text: str) -> None:
    assert folded(names) == text


# ---- what is said in place of rows ---------------------------------------------------------------------------------


def texts(state: State, view: str = "all", wanted: str = "") -> list[str]:
    return ["".join(span.text for span in row.spans) for row in sentences(state, view, wanted)]


def test_an_empty_queue_says_whose_it_is() -> None:
    empty = msgspec.structs.replace(queued(), jobs={})

    assert texts(empty) == ["No job of ana, me is running or pending."]
    assert texts(msgspec.structs.replace(empty, clusters={"prod": cluster(users=())})) == [
        "No job of yours is running or pending."
    ]


def test_a_queue_that_was_never_read_says_why() -> None:
    error = "Unable to contact slurm controller"
    down = slurm(health="down", answered_at=None, phase="retrying", error=error, hint="is slurmctld up?")
    unread = msgspec.structs.replace(queued(), jobs={}, sources={"slurm:prod": down})

    assert texts(unread) == [f"The queue of prod has not been read yet: {error}", "is slurmctld up?"]


def test_the_jobs_of_others_are_one_key_away() -> None:
    others = {one.key: one for one in queue_jobs() if one.user == "ana"}

    assert texts(msgspec.structs.replace(queued(), jobs=others), "mine") == [
        "You have no job. Press v for the jobs of the other watched users."
    ]
    assert texts(calm(), wanted="x") == ["No job matches “x”. Esc shows all."]


def test_the_caption_counts_elements_and_says_that_slurm_is_silent() -> None:
    well = msgspec.structs.replace(queued(), scheduler_nodes={})
    down = msgspec.structs.replace(slurm_down(), scheduler_nodes={})

    assert queue_summary(listed_jobs(well, "state"), well) == "3 running  13 pending"
    assert queue_summary(listed_jobs(down, "state"), down) == "slurm late 3m  3 running  13 pending"


def test_the_caption_says_what_the_rows_below_may_hide() -> None:
    assert queue_summary([], queued()) == "1 GPU lost!  spares 1 of 2!"


def test_the_story_of_a_row() -> None:
    def of(key: str) -> str:
        return queue_sentence(queued(), key)[0]

    assert of("prod/418190") == ("418190 llm-70b of me: runs on gpu-[001-004]; 21h left of 1d; restart 1")
    assert of("prod/418302") == "418302 eval of me: after the end of 418190; submitted 4h ago"
    assert of("node:gpu-008") == "gpu-008: draining, fan 3 broken (root 25h ago)"
    assert of(CLUSTER + "prod") == "Slurm 22.05.8 queried on login1; as me"
    assert of("prod/1") == ""
