"""explain: the page of one attempt as text, JSON and Markdown, from a real ledger."""

from __future__ import annotations

import json
import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.retries.attempts import ended
from tests.trainmon.cli.test_main import trainmon
from tests.trainmon.ledger.records import action
from trainmon.analysis.causes.classify import stated
from trainmon.ledger.ledger import Ledger
from trainmon.lib import at_text
from trainmon.model import Attempt, AttemptEnd, Classification, EvalResult, Evidence, Outlook, Record

NOW = time.time()
TAIL = "step 30\nCUDA out of memory; see *logs*\nbye"


def dead(job: str, ago: float, run: str = "llm-7b") -> Attempt:
    """An attempt that ended so many seconds ago, after an hour."""
    at = NOW - ago
    cause = Classification(
        cause="cuda-oom", family="resources", retry="after-change", confidence="high", fingerprint="f",
        evidence=(Evidence(text="CUDA out of memory; see *logs*", line=-2),), advice="Use a smaller batch.",
    )  # fmt: skip
    end = AttemptEnd(at=at, source="queue", noticed_at=at, exit_code=1, cause=cause, log_tail=TAIL)
    return replace(
        ended(1, "cuda-oom"),
        attempt_id=f"prod/{job}@1",
        run_id=run,
        job_id=job,
        restart=0,
        started_at=at - 3600,
        end=end,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a ledger: two attempts of llm-7b that ended, the next one, and one of another run."""
    home = tmp_path_factory.mktemp("home")
    ledger = Ledger(home / "state" / "trainmon-tui", print)
    ledger.start()
    runs = replace(dead("90", 0), end=None, seen_at=NOW)
    for one in (
        dead("88", 9000),
        dead("89", 5000),
        runs,
        replace(dead("70", 7000, "video"), first_step=1, last_step=30),
    ):
        ledger.keep(one)
    results = {"acc": 0.71}
    ledger.keep_evals("video", [EvalResult(step=step, judge="none", results=results) for step in (10, 20)])
    ledger.write(Record(action=action("r1", run="llm-7b", job="prod/89", requested_at=NOW - 4900), status="done"))
    ledger.stop()
    return home


def explain(home: Path, *argv: str) -> CompletedProcess[str]:
    return trainmon("explain", *argv, cwd=home, HOME=str(home), XDG_STATE_HOME=str(home / "state"), COLUMNS="80")


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("last", "89"),
        ("llm-7b", "89"),
        ("88", "88"),
        ("88.0", "88"),
        ("prod/88@1", "88"),
        ("90", "90"),
        ("video", "70"),
    ],
)
def test_an_attempt_has_several_names(home: Path, name: str, job: str) -> None:
    done = explain(home, name, "--json")
    assert (done.returncode, done.stderr, json.loads(done.stdout)["attempt"]["job_id"]) == (0, "", job)


def kept(home: Path, *attempts: Attempt) -> None:
    ledger = Ledger(home / "state" / "trainmon-tui", print)
    ledger.start()
    for one in attempts:
        ledger.keep(one)
    ledger.stop()


@pytest.mark.parametrize(
    ("name", "attempt_id"),
    [
        ("88", "prod/88@1"),
        ("88.0", "prod/88@1"),
        ("88.1", "prod/88@2"),
        ("prod/88@3", "prod/88@3"),
        ("last", "prod/88@3"),
        ("llm-7b", "prod/88@3"),
        ("abc", "prod/88@3"),
        ("team/llm/abc", "prod/88@3"),
    ],
)
def test_each_start_of_a_restarted_job_has_the_name_that_attempts_prints(
    tmp_path: Path, name: str, attempt_id: str
) -> None:
    starts = [replace(dead("88", 9000 - 10 * restart), restart=restart) for restart in range(4)]
    named = [replace(one, attempt_id=f"prod/88@{n}", wandb_id="team/llm/abc") for n, one in enumerate(starts, 1)]
    kept(tmp_path, *named[:3], replace(named[3], end=None, seen_at=NOW))
    done = explain(tmp_path, name, "--json")
    assert (done.stderr, json.loads(done.stdout)["attempt"]["attempt_id"]) == ("", attempt_id)


@pytest.mark.parametrize("name", ["88", "88.0"])
def test_a_job_id_of_two_clusters_names_no_attempt(tmp_path: Path, name: str) -> None:
    kept(tmp_path, dead("88", 9000), replace(dead("88", 5000), attempt_id="test/88@1", cluster="test", run_id="video"))
    done = explain(tmp_path, name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(
        f"trainmon-tui: 2 attempts are called {name}; name one by its id, the newest first:\n  test/88@1\n  prod/88@1\n"
    )
    found = json.loads(explain(tmp_path, "prod/88@1", "--json").stdout)
    assert found["attempt"]["run_id"] == "llm-7b"


def test_the_text_fits_a_terminal_of_80_columns_and_begins_with_the_answer(home: Path) -> None:
    lines = explain(home, "last").stdout.splitlines()
    assert lines[0].startswith("Attempt 89 of llm-7b ended at ")
    assert max(map(len, lines)) <= 80
    titles = [line for line in lines if line and not line.startswith(" ")][-8:]
    assert titles == [
        "Timeline (UTC)", "Evidence", "Placement", "Config and data", "Checkpoints", "Retries", "Evals",
        "Traceability: 2 of 6",
    ]  # fmt: skip
    text = "\n".join(lines)
    assert "Requeue job 88 of video-2b: done, “its node is slow” by ana@laptop" in " ".join(text.split())
    assert "  >-2     CUDA out of memory; see *logs*\n" in text


def test_json_has_the_row_of_the_attempt_and_every_part_of_the_page(home: Path) -> None:
    found = json.loads(explain(home, "89", "--json").stdout)
    assert list(found) == [
        "attempt", "sentence", "outlook", "timeline", "previous", "next", "changes", "settings", "resumed",
        "resumes_at", "retry",
        "earlier", "why_missing", "facts", "looks", "context", "gpu_hours", "evals", "smell_test", "traceable",
    ]  # fmt: skip
    assert found["attempt"]["termination_reason"] == "cuda-oom"
    assert (found["previous"], found["next"], found["earlier"]) == ("prod/88@1", "prod/90@1", ["prod/88@1"])
    assert [one["what"] for one in found["timeline"]] == ["started", "ended", "action", "next-attempt"]
    assert found["timeline"][0]["at"] == found["attempt"]["started_at"]
    assert found["context"][1] == {"line": -2, "text": "CUDA out of memory; see *logs*", "is_evidence": True}
    assert (found["retry"]["choice"], found["retry"]["left"]) == ("stop", 0)
    assert found["smell_test"][1]["to_add"] == [
        "Set data_manifest in [[run]] or TRAINMON_DATA_MANIFEST in its environment, or log data_manifest to W&B."
    ]


def test_an_attempt_that_still_runs_says_what_is_wrong_with_it_now(tmp_path: Path) -> None:
    now = time.time()
    hangs = Outlook(what="hangs", since=now - 300, cause=stated("hang", "no step; its GPUs are 100% busy"))
    one = replace(dead("91", 0.0), end=None, started_at=now - 900, seen_at=now, last_step=12, outlook=hangs)
    kept(tmp_path, one)
    said = (
        f"is still running at step 12, for 15m, and hangs: no step since {at_text(now - 300)}; if it ends now, its "
        "cause is hang."
    )
    text, markdown = explain(tmp_path, "91").stdout, explain(tmp_path, "91", "--markdown").stdout
    assert said in " ".join(text.split())
    assert "no step; its GPUs are 100% busy\n" in text
    assert said in markdown
    found = json.loads(explain(tmp_path, "91", "--json").stdout)
    assert said in found["sentence"]
    assert (found["outlook"]["what"], found["outlook"]["cause"]["cause"]) == ("hangs", "hang")
    assert found["attempt"]["termination_reason"] is None


def test_an_attempt_that_nobody_records_any_more_is_not_said_to_run(tmp_path: Path) -> None:
    """Its dashboard was closed on Friday, or the disk of its daemon is full."""
    now = time.time()
    kept(tmp_path, replace(dead("91", 0.0), end=None, started_at=now - 9_000, seen_at=now - 3_600, last_step=12))
    text = " ".join(explain(tmp_path, "91").stdout.split())
    assert "had not ended when it was last seen" in text
    assert "none: whether it still runs is not known" in text
    assert "still running" not in text


def test_results_of_evaluators_are_in_the_text_the_json_and_the_post_mortem(home: Path) -> None:
    text, found = explain(home, "video").stdout, json.loads(explain(home, "video", "--json").stdout)
    assert [(one["step"], one["results"]) for one in found["evals"]] == [(10, {"acc": 0.71}), (20, {"acc": 0.71})]
    assert found["evals"][0]["missing"][:2] == ["evaluator", "image_digest"]
    assert "step 20  acc 0.71\n" in text
    assert "**step 20** acc 0.71\n" in explain(home, "video", "--markdown").stdout


def test_the_budget_is_that_of_the_config(home: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text("[retry]\ncuda-oom = 5\n")
    retry = json.loads(explain(home, "88", "--json", "--config", str(config)).stdout)["retry"]
    assert (retry["budget"], retry["left"]) == (5, 5)
    config.write_text("[retry]\nbugdet = 1\n")
    assert explain(home, "88", "--config", str(config)).returncode == 2


def test_markdown_is_a_post_mortem_in_which_nothing_of_the_log_is_markup(home: Path) -> None:
    text = explain(home, "89", "--markdown").stdout
    assert text.startswith("# Post-mortem: attempt 89 of llm-7b\n\nAttempt 89 of llm-7b ended at ")
    assert "\n## Evidence\n" in text
    assert "\n```\n    -3  step 30\n   >-2  CUDA out of memory; see *logs*\n    -1  bye\n```\n" in text
    assert "- **advice** Use a smaller batch." in text


def bare(run: str, pid: int | None, ago: float) -> Attempt:
    """An attempt without a scheduler and without W&B."""
    name = f"{run}/log/n1:/x.log" if pid is None else f"{run}/pid/n1/{pid}"
    return replace(dead("", ago, run), attempt_id=name, job_id=None, restart=None, pid=pid)


def test_what_attempts_prints_without_a_scheduler_names_an_attempt(tmp_path: Path) -> None:
    kept(tmp_path, bare("a", 123, 50), bare("b", 77, 60), bare("c", 77, 70), bare("d", None, 80))
    listed = trainmon("attempts", cwd=tmp_path, HOME=str(tmp_path), XDG_STATE_HOME=str(tmp_path / "state")).stdout
    assert "  pid 123  " in listed
    assert "  log  " in listed
    for words, run in ((("pid 123",), "a"), (("pid", "123"), "a"), (("log",), "d")):
        assert json.loads(explain(tmp_path, *words, "--json").stdout)["attempt"]["run_id"] == run
    several = explain(tmp_path, "pid 77")
    assert (several.returncode, several.stdout) == (2, "")
    assert several.stderr.endswith(
        "trainmon-tui: 2 attempts are called pid 77; name one by its id, the newest first:\n"
        "  b/pid/n1/77\n  c/pid/n1/77\n"
    )
    assert 'did you mean "pid 123" or' in explain(tmp_path, "pid 12").stderr


def test_an_unknown_name_is_a_usage_error_with_the_names_that_are_like_it(home: Path) -> None:
    done = explain(home, "llm-7")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(
        'no attempt and no run is called llm-7; did you mean "llm-7b"? (trainmon-tui attempts lists them)\n'
    )
    assert explain(home, "last", "--json", "--markdown").stderr.endswith(
        "trainmon-tui: --json and --markdown exclude each other\n"
    )


def test_an_empty_ledger_is_said_to_be_empty(tmp_path: Path) -> None:
    done = explain(tmp_path, "last")
    assert (done.returncode, done.stderr) == (
        3, "trainmon-tui: the ledger has no attempts yet: the dashboard and the daemon record them\n",
    )  # fmt: skip
