"""attempts and sql: what each attempt was and cost, as a table, as groups and as JSON."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from subprocess import CompletedProcess

from msgspec.structs import replace

from tests.trainmon.cli.test_main import trainmon
from tests.trainmon.ledger.records import record
from trainmon.cli.attempts import steps
from trainmon.ledger.lease import LeaderNote, SourceNote, this_program, write_note
from trainmon.ledger.ledger import Ledger
from trainmon.model import Attempt, AttemptEnd, Classification, Evidence

NOON = 1_793_707_200.0  # 2026-11-03 12:00:00 UTC, a Tuesday
OOM = Classification(
    cause="cuda-oom", family="resources", retry="after-change", confidence="high", fingerprint="cuda-oom:1",
    evidence=(Evidence(text="CUDA out of memory", line=-1),), advice="Use a smaller batch.",
)  # fmt: skip
LONG = Attempt(
    attempt_id="prod/88.0@20261103T115900", run_id="video-2b", cluster="prod", model_family="reasoning",
    labels={"owner": "team-a"}, job_id="88", restart=0, submitted_at=NOON - 60, nodes=("n1", "n2"), gpus=16,
    started_at=NOON, seen_at=NOON + 7200, first_step=1, last_step=12_345, last_committed_step=12_000,
    has_checkpoints=True, start_was_watched=True, target_step=100_000,
    end=AttemptEnd(
        at=NOON + 7200, source="queue", noticed_at=NOON + 7201, exit_code=1, scheduler_state="FAILED", cause=OOM,
        log_tail="step 12345\nCUDA out of memory",
    ),
)  # fmt: skip
NEXT = replace(
    LONG, attempt_id="prod/88.1@20261103T140000", restart=1, submitted_at=NOON + 7200, started_at=NOON + 7320,
    seen_at=NOON + 7320 + 3600, nodes=("n1",), gpus=8, first_step=12_001, last_step=12_500, end=None,
)  # fmt: skip
OTHER = Attempt(
    attempt_id="sft/wandb/t/p/abcd1234", run_id="a-run-with-quite-a-long-name", cluster="prod", wandb_id="t/p/abcd1234",
    started_at=NOON + 90_000, seen_at=NOON + 90_060, end=AttemptEnd(at=NOON + 90_060, source="wandb", noticed_at=0.0),
)  # fmt: skip


def called(home: Path, *argv: str) -> CompletedProcess[str]:
    return trainmon(*argv, cwd=home, HOME=str(home), XDG_STATE_HOME=str(home / "state"), TZ="UTC", COLUMNS="80")


def written(home: Path) -> str:
    """A period that includes all of them."""
    ledger = Ledger(home / "state" / "trainmon-tui", print, keep=100 * 365 * 86_400.0)
    ledger.start()
    for one in (LONG, NEXT, OTHER):
        ledger.keep(one)
    ledger.stop()
    return f"--since={int(max(0.0, time.time() - NOON) / 86_400) + 2}d"


def test_without_a_ledger_there_is_no_attempt(tmp_path: Path) -> None:
    done = called(tmp_path, "attempts")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no attempts in this period\n")
    assert called(tmp_path, "attempts", "--json").stdout == "[]\n"
    assert called(tmp_path, "sql", "select 1").returncode == 3


def test_the_table_has_cause_duration_cost_and_progress_in_80_columns(tmp_path: Path) -> None:
    since = written(tmp_path)
    done = called(tmp_path, "attempts", since)
    assert done.stdout.splitlines() == [
        "STARTED     RUN                     JOB      CAUSE    FOR GPU-H  STEP LOST  CKPT",
        "11-03 12:00 video-2b                88       cuda-oom  2h  32.0 12.3k  345 12.0k",
        "11-03 14:02 video-2b                88.1     unseen    1h  8.00 12.5k      12.0k",
        "11-04 13:00 a-run-with-quite-a-lon… abcd1234 unknown* 60s",
    ]
    unseen = "unseen: not recorded for 10m; whether it still runs is not known\n"
    assert done.stderr == f"* trainmon-tui did not watch it from start to end\n{unseen}"
    assert called(tmp_path, "attempts", since, "video-2b").stderr == unseen
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert len(called(tmp_path, "attempts", since, "video-2b").stdout.splitlines()) == 3
    assert called(tmp_path, "attempts", since, "nobody").stderr == "no attempts of nobody in this period\n"


def test_an_attempt_whose_start_is_not_known_has_the_time_of_its_first_step(tmp_path: Path) -> None:
    since = written(tmp_path)
    ledger = Ledger(tmp_path / "state" / "trainmon-tui", print, keep=100 * 365 * 86_400.0)
    ledger.start()
    ledger.keep(
        replace(LONG, attempt_id="x/log/n1:/x", run_id="x", job_id=None, started_at=None, first_step_at=NOON + 60)
    )
    ledger.stop()
    lines = called(tmp_path, "attempts", since).stdout.splitlines()
    assert lines[2].split() == ["11-03", "12:01", "x", "log", "cuda-oom", "12.3k", "345", "12.0k"]


def test_attempts_of_one_name_and_one_minute_are_told_apart_by_their_seconds(tmp_path: Path) -> None:
    since = written(tmp_path)
    ledger = Ledger(tmp_path / "state" / "trainmon-tui", print, keep=100 * 365 * 86_400.0)
    ledger.start()
    for second in (5, 41):
        one = replace(LONG, attempt_id=f"x/receipt/{second}", run_id="x", job_id=None, started_at=NOON + second)
        ledger.keep(one)
    ledger.stop()
    lines = called(tmp_path, "attempts", since).stdout.splitlines()
    assert [line.split()[1:4] for line in lines[2:4]] == [["12:00:05", "x", "log"], ["12:00:41", "x", "log"]]
    assert max(map(len, lines)) <= 80
    assert called(tmp_path, "attempts", since, "video-2b").stdout.splitlines()[1].startswith("11-03 12:00 ")


def test_a_number_of_steps_is_rounded_before_its_unit_is_chosen() -> None:
    counts = (None, 9_999, 12_345, 99_999, 999_499, 999_999, 1_236_000)
    assert [steps(count) for count in counts] == ["", "9999", "12.3k", "100k", "999k", "1.00M", "1.24M"]


def test_a_start_that_only_the_log_shows_is_marked(tmp_path: Path) -> None:
    since = written(tmp_path)
    ledger = Ledger(tmp_path / "state" / "trainmon-tui", print, keep=100 * 365 * 86_400.0)
    ledger.start()
    ledger.keep(replace(LONG, attempt_id="x/log/n1:/x", run_id="x", job_id=None, start_is_estimated=True))
    ledger.stop()
    done = called(tmp_path, "attempts", since)
    assert done.stdout.splitlines()[2].split() == [
        "~11-03", "12:00", "x", "log", "cuda-oom", "2h", "32.0", "12.3k", "345", "12.0k"
    ]  # fmt: skip
    assert done.stderr.splitlines() == [
        "* trainmon-tui did not watch it from start to end", "~ its log shows when it started",
        "unseen: not recorded for 10m; whether it still runs is not known",
    ]  # fmt: skip
    rows = json.loads(called(tmp_path, "attempts", since, "--json").stdout)
    assert [row["start_is_estimated"] for row in rows] == [False, True, False, False]
    query = "select run_id from training_attempts where started_at >= '2026-11-03' and start_is_estimated"
    assert called(tmp_path, "sql", query).stdout == "run_id\nx\n"


def test_json_is_a_list_of_rows_with_the_columns_of_the_table(tmp_path: Path) -> None:
    rows = json.loads(called(tmp_path, "attempts", written(tmp_path), "--json").stdout)
    assert [row["attempt_id"] for row in rows] == [one.attempt_id for one in (LONG, NEXT, OTHER)]
    first = rows[0]
    assert (first["labels"], first["nodes"], first["gpu_seconds"]) == ({"owner": "team-a"}, ["n1", "n2"], 115_200.0)
    assert (first["started_at"], first["steps_lost"]) == ("2026-11-03 12:00:00.000000+00:00", 345)
    assert (first["termination_reason"], first["cause_family"], first["fingerprint"]) == (
        "cuda-oom", "resources", "cuda-oom:1",
    )  # fmt: skip
    assert first["evidence"] == [{"text": "CUDA out of memory", "line": -1, "rank": None}]
    assert first["log_tail"] == "step 12345\nCUDA out of memory"
    assert (rows[1]["ended_at"], rows[1]["termination_reason"], rows[1]["steps_lost"]) == (None, None, None)
    assert (first["is_reconstructed"], rows[2]["is_reconstructed"]) == (False, True)
    assert "git_commit" in first["missing"]


def test_groups_have_counts_and_gpu_hours(tmp_path: Path) -> None:
    since = written(tmp_path)
    assert called(tmp_path, "attempts", since, "--by", "reason").stdout.splitlines() == [
        "REASON    ATTEMPTS  RUNNING  GPU-H  STEPS LOST",
        "cuda-oom  1         0        32.0   345",
        "unseen    1         0        8.00   -",
        "unknown   1         0        -      -",
    ]
    by_node = json.loads(called(tmp_path, "attempts", since, "--by", "node", "--json").stdout)
    assert [(row["node"], row["attempts"], row["gpu_hours"]) for row in by_node] == [
        ("n1", 2, 24.0), ("n2", 1, 16.0), (None, 1, 0.0),
    ]  # fmt: skip
    assert called(tmp_path, "attempts", since, "--by", "week").stdout.splitlines()[1].split()[:2] == ["2026-11-02", "3"]
    assert called(tmp_path, "attempts", since, "--by", "moon").returncode == 2


def test_sql_prints_a_table_or_json_and_says_what_it_refuses(tmp_path: Path) -> None:
    written(tmp_path)
    query = "select run_id, gpus from training_attempts where model_family = 'reasoning' order by gpus;"
    assert called(tmp_path, "sql", query).stdout == "run_id    gpus\nvideo-2b  8\nvideo-2b  16\n"
    assert json.loads(called(tmp_path, "sql", query, "--json").stdout) == [
        {"run_id": "video-2b", "gpus": 8}, {"run_id": "video-2b", "gpus": 16},
    ]  # fmt: skip
    done = called(tmp_path, "sql", "drop table training_attempts")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("trainmon-tui: only SELECT is permitted")


def test_a_mistyped_run_is_answered_with_the_names_that_are_like_it(tmp_path: Path) -> None:
    since = written(tmp_path)
    done = called(tmp_path, "attempts", since, "vidoe-2b")
    assert (done.returncode, done.stdout) == (2, "")
    assert called(tmp_path, "attempts", "--json", "vidoe-2b").returncode == 2
    assert called(tmp_path, "attempts", "--since=1s", "video-2b").returncode == 0, "it has some, and none in the period"
    assert done.stderr == 'no attempts of vidoe-2b in this period; did you mean "video-2b"?\n'
    assert called(tmp_path, "attempts", "--since=1s", "a-run-with-quite-a-long-name").stderr == (
        "no attempts of a-run-with-quite-a-long-name in this period\n"
    )


def test_an_attempt_is_running_while_a_program_records_it(tmp_path: Path) -> None:
    since, ledger = written(tmp_path), Ledger(tmp_path / "state" / "trainmon-tui", print, keep=100 * 365 * 86_400.0)
    ledger.start()
    ledger.keep(replace(NEXT, seen_at=time.time() - 300))
    ledger.stop()
    done = called(tmp_path, "attempts", since, "video-2b")
    assert (done.stdout.split()[-5:-4], done.stderr) == (["running"], "")
    groups = json.loads(called(tmp_path, "attempts", since, "--by=reason", "--json", "video-2b").stdout)
    assert {row["reason"]: row["running"] for row in groups} == {"running": 1, "cuda-oom": 0}


def test_an_attempt_whose_end_is_awaited_is_ending_and_not_running(tmp_path: Path) -> None:
    since, ledger = written(tmp_path), Ledger(tmp_path / "state" / "trainmon-tui", print, keep=100 * 365 * 86_400.0)
    reported = AttemptEnd(at=NOON + 10_920, source="queue", noticed_at=NOON + 10_921, scheduler_state="FAILED")
    ledger.start()
    ledger.keep(replace(NEXT, reported_end=reported))
    ledger.stop()
    assert " ending " in called(tmp_path, "attempts", since).stdout.splitlines()[2]
    rows = json.loads(called(tmp_path, "attempts", since, "--json").stdout)
    assert [(row["stage"], row["ended_at"] is None) for row in rows] == [
        ("ended", False), ("ending", True), ("ended", False),
    ]  # fmt: skip
    assert "ending" in called(tmp_path, "attempts", since, "--by=reason").stdout
    explained = json.loads(called(tmp_path, "explain", "88.1", "--json").stdout)
    assert explained["attempt"]["stage"] == "ending"


def silent(home: Path) -> None:
    """A daemon that runs, and to which Slurm does not answer."""
    directory = home / "state" / "trainmon-tui"
    ledger = Ledger(directory, print)
    ledger.start()
    ledger.write(record())
    ledger.stop()
    now = time.time()
    sources = (
        SourceNote(name="slurm:prod", kind="slurm", health="down", answered_at=now - 180, error="no controller"),
    )
    note = LeaderNote(
        holder=replace(this_program(), pid=os.getpid()), started_at=now - 600, written_at=now, sources=sources,
        unrecorded={"slurm:prod": ("llm", "multi")},
    )  # fmt: skip
    with sqlite3.connect(directory / "ledger.sqlite") as connection:
        write_note(connection, note)
    connection.close()


def test_while_slurm_does_not_answer_the_commands_say_whose_attempts_are_not_recorded(tmp_path: Path) -> None:
    silent(tmp_path)
    said = (
        "no data from Slurm of prod for 3m (no controller): attempts of llm, multi are not recorded until it responds\n"
    )
    assert called(tmp_path, "attempts").stderr == said + "no attempts in this period\n"
    assert called(tmp_path, "attempts", "multi").stderr.startswith(said)
    assert called(tmp_path, "attempts", "other").stderr == "no attempts of other in this period\n"
    for words in (("explain", "last"), ("explain", "llm")):
        done = called(tmp_path, *words)
        assert (done.returncode, done.stderr.startswith(said)) == (3, True)


def test_the_page_of_a_job_of_which_slurm_says_nothing_now_says_so(tmp_path: Path) -> None:
    written(tmp_path)
    silent(tmp_path)
    assert called(tmp_path, "explain", "88.1").stderr == (
        "no data from Slurm of prod for 3m (no controller): whether this attempt still runs is not known\n"
    )
    assert called(tmp_path, "explain", "88").stderr == ""
