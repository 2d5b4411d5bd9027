"""What accounting is asked about attempts that the queue no longer shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from collectors.slurm.poll import LONGEST, MAX_TRIES, RANGE, RANGES_AT_ONCE, JobAccounting
from trainmon.model import Cluster, Event, Job, JobsAccounted
from trainmon.slurm.client import SlurmFailed

NOW = 1_700_000_000.0
CLUSTER = Cluster(name="prod", login="login1", users=("me",), me="ana", accounting=True)
ROW = "88|88|NODE_FAIL|1:0|2023-11-14T10:00:00|2023-11-14T10:01:00|2023-11-14T11:00:00|ana|h100|llm|normal|1|n1"


class Accounts:
    """The client of a Slurm whose accounting is the test's."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.numbers = ""
        self.rows: list[str] = []
        self.fails = False

    def run(self, argv: Sequence[str], *_: Any) -> str:
        if self.fails:
            raise SlurmFailed("slurmdbd does not answer", kind="refused")
        self.asked.append(dict(word.split("=", 1) for word in argv if "=" in word))
        if "--starttime" in self.asked[-1]:
            return self.numbers
        delimiter = self.asked[-1]["--delimiter"]
        return "".join(f"{row.replace('|', delimiter)}{delimiter}{delimiter}allocation\n" for row in self.rows)

    def user_name(self, number: str) -> str:
        return f"user{number}"

    def of(self, option: str) -> list[str]:
        return [asked[option] for asked in self.asked if option in asked]


class Clock:
    def now(self) -> float:
        return NOW

    def monotonic(self) -> float:
        return 0.0


class Scene:
    def __init__(self, since: float | None) -> None:
        self.accounts = Accounts()
        self.events: list[Event] = []
        self.accounting = JobAccounting(self.events.append, Clock(), lambda: since)

    def poll(self, times: int = 1) -> Scene:
        for _ in range(times):
            self.accounting.poll(self.accounts, CLUSTER)  # type: ignore[arg-type]
        return self

    @property
    def jobs(self) -> list[Job]:
        return [job for event in self.events if isinstance(event, JobsAccounted) for job in event.jobs]


def test_a_week_at_most_is_asked_in_parts_of_six_hours() -> None:
    scene = Scene(NOW - 30 * 86_400).poll()
    assert len(scene.accounts.of("--starttime")) == RANGES_AT_ONCE
    scene.poll(100)
    starts = scene.accounts.of("--starttime")
    assert len(starts) == LONGEST / RANGE
    assert starts[0] == "2023-11-07T22:13:20"
    assert scene.accounts.of("--endtime")[-1] == "2023-11-14T22:13:21"
    assert set(scene.accounts.of("--user")) == {"ana"}
    assert len(scene.accounts.of("--jobs")) == 0


def test_nothing_is_asked_until_it_is_known_since_when() -> None:
    assert Scene(None).poll(3).accounts.asked == []


def test_a_part_without_an_answer_is_asked_again() -> None:
    scene = Scene(NOW - RANGE)
    scene.accounts.fails = True
    with pytest.raises(SlurmFailed):
        scene.poll()
    scene.accounts.fails = False
    assert len(scene.poll(2).accounts.of("--starttime")) == 1


def test_the_jobs_of_a_period_are_reported_with_all_their_attempts() -> None:
    scene = Scene(NOW - RANGE)
    scene.accounts.numbers = "88\n88\n90\n"
    again = ROW.replace("NODE_FAIL", "CANCELLED by 7").replace("10:0", "12:0").replace("11:00:00", "12:30:00")
    scene.accounts.rows = [ROW, again]
    scene.poll()
    assert scene.accounts.of("--jobs") == ["88,90"]
    assert [(job.state, job.restarts, job.cancelled_by) for job in scene.jobs] == [
        ("NODE_FAIL", 0, None), ("CANCELLED", 1, "user7"),
    ]  # fmt: skip
    scene.poll(3)
    assert scene.accounts.of("--jobs") == ["88,90"]


def test_the_end_of_a_requeued_attempt_is_awaited_and_has_the_name_that_the_queue_showed() -> None:
    scene = Scene(None)
    running = Job(cluster="prod", id="88", number=88, name="llm", state="RUNNING", submitted_at=1_699_956_000.0)
    scene.accounting.await_end(running)
    scene.poll(2)
    assert (len(scene.accounts.of("--jobs")), scene.jobs) == (2, [])
    scene.accounts.rows = [ROW]
    scene.poll(3)
    assert [(job.name, job.state, job.submitted_at) for job in scene.jobs] == [("llm", "NODE_FAIL", 1_699_956_000.0)]
    assert len(scene.accounts.of("--jobs")) == 3
    scene.accounting.await_end(Job(cluster="prod", id="99", number=99, name="x", state="RUNNING"))
    assert len(scene.poll(50).accounts.of("--jobs")) == 3 + MAX_TRIES


def test_it_is_behind_until_everything_that_ended_unseen_was_asked_for() -> None:
    scene = Scene(NOW - 25 * 3_600)
    scene.accounts.numbers = "\n".join(str(number) for number in range(100, 160))
    assert scene.accounting.is_behind
    assert scene.poll().accounting.is_behind
    assert scene.poll().accounting.is_behind, "60 jobs are more than one request takes"
    assert not scene.poll().accounting.is_behind
    assert Scene(None).poll().accounting.is_behind, "the ledger was not read yet"
    assert not Scene(float("inf")).accounting.is_behind, "without a ledger, nothing is missed"
