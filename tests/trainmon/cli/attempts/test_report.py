"""report: its page, JSON and Markdown, with prices of the config, and from a ledger of any size."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.lab.ledgers import told
from tests.trainmon.cli.attempts.test_history import called, written
from trainmon.ledger.attempts import write_attempts
from trainmon.ledger.ledger import NAME, Ledger
from trainmon.model import Attempt

CONFIG = """
[[cluster]]
name = "prod"
gpu_hour_price = 2.5
"""


def recorded(home: Path, *attempts: Attempt) -> None:
    directory = home / "state" / "trainmon-tui"
    ledger = Ledger(directory, print, keep=100 * 365 * 86_400.0)
    ledger.start()
    ledger.keep(attempts[0])
    ledger.stop()
    with sqlite3.connect(directory / NAME) as connection:
        write_attempts(connection, attempts[1:], 0.0)
    connection.close()


def test_without_a_ledger_the_report_has_no_number(tmp_path: Path) -> None:
    done = called(tmp_path, "report")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "All runs: the ledger has no attempt in this period.\n",
        "",
    )
    done = called(tmp_path, "report", "video")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "the ledger has no attempt of video\n")


def test_the_page_fits_into_80_columns_and_names_what_is_missing(tmp_path: Path) -> None:
    since = written(tmp_path)
    done = called(tmp_path, "report", since, "--by", "run")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    titles = ("GPU hours", "Figures", "By run", "What is missing")
    assert [line for line in lines if line in titles] == [*titles]
    assert "1 attempt of a-run-with-quite-a-long-name has no known GPU count" in " ".join(done.stdout.split())
    assert called(tmp_path, "report", since, "vide-2b").stderr == (
        'the ledger has no attempt of vide-2b; did you mean "video-2b"?\n'
    )
    markdown = called(tmp_path, "report", since, "--markdown").stdout.splitlines()
    assert markdown[0].startswith("# Reliability of all runs, ")
    assert [line for line in markdown if line.startswith("## ")] == ["## GPU hours", "## Figures", "## What is missing"]
    assert called(tmp_path, "report", "--markdown", "--json").returncode == 2


def test_json_has_the_figures_and_the_cost_by_the_price_of_the_config(tmp_path: Path) -> None:
    ledger = told(1)
    recorded(tmp_path, *ledger.attempts)
    (tmp_path / "prices.toml").write_text(CONFIG)
    since = f"--since={int((time.time() - ledger.until) / 86_400) + 30}d"
    found = json.loads(called(tmp_path, "report", since, "--json", "--config", "prices.toml").stdout)
    assert found["gpu_hours"] == pytest.approx({"hung": 0.0, "unknown": 0.0, **ledger.gpu_hours})
    assert found["cost"] == pytest.approx(2.5 * found["held_gpu_hours"])
    assert (found["attempts"], found["failures"]) == (len(ledger.attempts), ledger.failures)
    one = json.loads(called(tmp_path, "report", since, "--json", "run-1").stdout)
    assert (one["run"], one["cost"], one["attempts"]) == ("run-1", None, 8)


def test_a_price_is_not_negative(tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(CONFIG.replace("2.5", "-1"))
    done = called(tmp_path, "report", "--config", "prices.toml")
    assert (done.returncode, done.stderr) == (
        2, 'trainmon-tui: prices.toml: [[cluster]] #1 (prod): "gpu_hour_price" must be 0 or more, not -1\n',
    )  # fmt: skip


@pytest.mark.slow
def test_all_attempts_count_also_where_attempts_would_list_only_some(tmp_path: Path) -> None:
    many = told(1, runs=300, attempts=50).attempts
    recorded(tmp_path, *(replace(one, end=one.end and replace(one.end, log_tail="step " * 100)) for one in many))
    assert called(tmp_path, "report", "--since=9999d").stdout.startswith("All runs: 15,000 attempts in ")
