"""nodes: the history of each node from the attempts and alerts in the ledger, and what explain makes of it."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.trainmon.alerting.notify.samples import alert
from tests.trainmon.analysis.retries.attempts import BEGIN, HOUR, ended
from tests.trainmon.cli.attempts.test_history import called
from trainmon.ledger.alerts import write_changes
from trainmon.ledger.attempts import write_attempts
from trainmon.ledger.ledger import NAME, Ledger, node_history
from trainmon.model import Alert, AlertChanges, Attempt, NodeEvent


def lately(attempt: Attempt, days_ago: float) -> Attempt:
    """The attempt as one that began so many days ago."""
    assert attempt.end is not None
    by = time.time() - days_ago * 86_400 - (attempt.started_at or 0.0)
    end = replace(attempt.end, at=attempt.end.at + by)
    return replace(attempt, started_at=(attempt.started_at or 0.0) + by, end=end)


def seen(rule: str, node: str, days_ago: float, **facts: Any) -> Alert:
    at = time.time() - days_ago * 86_400
    own = {"id": f"{rule}-{days_ago}", "rule": rule, "subject": f"node:{node}", "node": node, "run": None}
    return alert(**own | {"fired_at": at, "since": at, "summary": f"{rule} of {node}", "cluster": "prod"} | facts)


def recorded(home: Path, failures: int) -> Path:
    """A week of 8 nodes at work, on which gpu-3 had these first errors."""
    nodes = tuple(f"gpu-{number}" for number in range(8))
    week = replace(ended(0, "completed", nodes=nodes, run_id="calm"), started_at=BEGIN - 7 * 24 * HOUR)
    errors = [
        ended(1 + number, "gpu-hardware", "gpu-3: Xid 79", nodes=nodes[2:4], run_id=f"run-{number}", gpus=16)
        for number in range(failures)
    ]
    directory = home / "state" / "trainmon-tui"
    ledger = Ledger(directory, print)
    ledger.start()
    ledger.keep(lately(week, 9.0))
    ledger.stop()
    alerts = (
        seen("xid", "gpu-3", 3.0), seen("xid", "gpu-3", 2.0), seen("xid", "gpu-3", 1.5, event=True),
        seen("infiniband-flapping", "gpu-5", 1.0), seen("node-unreachable", "gpu-6", 1.0), seen("xid", "gpu-9", 91.0),
        seen("straggler", "gpu-7", 0.5, fired_at=None, phase="pending"),
    )  # fmt: skip
    with sqlite3.connect(directory / NAME) as connection:
        write_attempts(connection, [lately(one, 1.0 - number / 99) for number, one in enumerate(errors)], time.time())
        write_changes(connection, AlertChanges(at=time.time(), alerts=alerts))
    connection.close()
    return directory


def test_without_a_ledger_no_node_has_a_history(tmp_path: Path) -> None:
    done = called(tmp_path, "nodes")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "the ledger has no attempt in 90 days\n"
    assert called(tmp_path, "nodes", "--json").stdout == "[]\n"


def test_the_worst_node_comes_first_and_is_bad_beyond_chance(tmp_path: Path) -> None:
    recorded(tmp_path, 6)
    done = called(tmp_path, "nodes")
    first, second, *others = done.stdout.splitlines()
    assert first.startswith("gpu-3: first error in 6 of the last 7 attempts (0.8 expected), 2 Xids; bad: 99.")
    assert second == "gpu-5: first error in 0 of the last 1 attempt (0.7 expected), 1 flap"
    assert len(others) == 6
    assert done.stderr == "prod: 6 failures on 8 nodes in 90 days; bad: gpu-3\n"
    history = called(tmp_path, "nodes", "--history").stdout.splitlines()
    assert [line.split(maxsplit=2)[2] for line in history[1:9]] == [
        "xid                 xid of gpu-3",
        "xid                 xid of gpu-3",
        *(f"first-error         gpu-hardware ended prod/88@{number:04}" for number in range(1, 7)),
    ]
    (worst, *_) = json.loads(called(tmp_path, "nodes", "--json").stdout)
    assert (worst["node"], worst["first_errors"], worst["ends"], worst["is_bad"]) == ("gpu-3", 6, 7, True)
    assert [event["what"] for event in worst["events"]] == ["xid", "xid", *["first-error"] * 6]


def test_a_few_failures_are_too_few_to_say(tmp_path: Path) -> None:
    recorded(tmp_path, 3)
    done = called(tmp_path, "nodes")
    assert done.stdout.splitlines()[0] == "gpu-3: first error in 3 of the last 4 attempts (0.4 expected), 2 Xids"
    assert done.stderr == "prod: 3 failures on 8 nodes in 90 days; too few to say\n"


def test_nodes_of_one_name_in_two_clusters_have_a_history_each(tmp_path: Path) -> None:
    """Each cluster has a config, and both programs record in one ledger."""
    directory = recorded(tmp_path, 6)
    twin = replace(ended(50, "completed", nodes=("gpu-3",), cluster="lab", run_id="other"), attempt_id="lab/1")
    with sqlite3.connect(directory / NAME) as connection:
        write_attempts(connection, [lately(twin, 0.5)], time.time())
        own = (
            seen("node-drained", "gpu-3", 1.0, cluster="lab"),
            seen("node-rebooted", "gpu-3", 0.9, cluster="lab", event=True),
        )
        write_changes(connection, AlertChanges(at=time.time(), alerts=own))
    connection.close()
    done = called(tmp_path, "nodes")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("prod/gpu-3: first error in 6 of the last 7 attempts (0.8 expected), 2 Xids; bad: 99.")
    assert "lab/gpu-3: first error in 0 of the last 1 attempt (0.0 expected), 1 drain, 1 reboot" in lines
    assert done.stderr.splitlines() == [
        "lab: 0 failures on 1 node in 90 days; too few to say",
        "prod: 6 failures on 8 nodes in 90 days; bad: gpu-3",
    ]


def test_explain_excludes_a_node_by_what_was_known_when_the_attempt_ended(tmp_path: Path) -> None:
    directory = recorded(tmp_path, 6)
    timeout = ended(99, "nccl-timeout", nodes=("gpu-3", "gpu-4"))
    first, last = (
        lately(replace(timeout, run_id=f"llm-{days}", attempt_id=f"llm-{days}"), days) for days in (5.0, 0.1)
    )
    with sqlite3.connect(directory / NAME) as connection:
        write_attempts(connection, (first, last), time.time())
    connection.close()
    printed = [called(tmp_path, "explain", name, "--json").stdout for name in ("llm-5.0", "llm-0.1")]
    early, late = (json.loads(one)["retry"] for one in printed)
    assert (early["choice"], early["exclude"]) == ("now", [])
    assert (late["choice"], late["exclude"]) == ("after-node-swap", ["gpu-3"])
    assert "first error in 6 of the last 9 attempts" in late["why"]


def test_the_newest_attempts_and_alerts_are_read(tmp_path: Path) -> None:
    directory, now = recorded(tmp_path, 1), time.time()
    uses, events = node_history(directory, now)
    assert [one.first for one in uses] == [("gpu-3",), ()]
    assert [one.run for one in node_history(directory, now - 86_400)[0]] == ["calm"], "as it was known a day ago"
    assert all(isinstance(one, NodeEvent) for one in events)
    assert [one.node for one in events] == ["gpu-3", "gpu-3", "gpu-5"]
