"""What changed since the dashboard was last used, as one line and as a list."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.tui.states.alerts import alert, with_alerts
from tests.tui.states.states import NOW, calm, job, run
from trainmon.analysis.last_seen import disk_key, is_settled, seen
from trainmon.model import Attempt, AttemptEnd, LastSeen, Progress, Source, State
from tui.services.changes import Changes
from tui.style import Link, Linked
from tui.views.news import change_lines, changes_since, summary

AGO = 3 * 3_600.0 + 600.0


def earlier(state: State) -> LastSeen:
    """This State was seen three hours and ten minutes ago."""
    return replace(seen(state, None), at=NOW - AGO)


def with_run(
    name: str = "llm", verdict: str = "healthy", restarts: int = 0, job_id: str = "418220", **more: Any
) -> State:
    """A State of one run and its job."""
    one = job(job_id, restarts=restarts)
    found = run(name, verdict, jobs=(one.key,), **more)
    return replace(calm(), runs={name: found}, jobs={one.key: one})


def line(before: State, after: State) -> str:
    known = earlier(before)
    return summary(known, changes_since(known, after), NOW)[0]


def texts(before: State, after: State) -> list[str]:
    return [f"{one.what}: {one.text}" for one in changes_since(earlier(before), after)]


def test_nothing_changed_is_said_after_ten_minutes_and_not_after_one() -> None:
    assert line(with_run(), with_run()) == "Since 11:03 (3h10m): nothing changed"
    soon = replace(earlier(with_run()), at=NOW - 60.0)
    assert summary(soon, (), NOW) == ("", "")


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (with_run(), with_run(verdict="dead", why="FAILED, exit code 1"), "ended: llm: failed, FAILED, exit code 1"),
        (with_run(), with_run(verdict="finished", why="step 9"), "ended: llm: finished, step 9"),
        (with_run(), with_run(verdict="queued", why="job 418223 waits"), "ended: llm: queued, job 418223 waits"),
        (with_run(), with_run(job_id="418223"), "restarted: llm: job 418220 → 418223, step 12,880"),
        (with_run(), with_run(restarts=2), "restarted: llm: restart 2 of its job, step 12,880"),
        (with_run(), with_run(verdict="hung", why="no step for 11m"), "in trouble: llm: hung, no step for 11m"),
        (with_run(verdict="stalled"), with_run(why="it steps"), "recovered: llm: healthy, it steps"),
        (with_run(verdict="queued"), with_run(why="it steps"), "started: llm: healthy, it steps"),
        (with_run(), with_run(progress=Progress(step=40)), "restarted: llm: its steps went back, step 12,880 → 40"),
        (with_run("old"), with_run("old", verdict="unknown"), None),
        (with_run(), with_run(verdict="saving"), None),
    ],
)
def test_what_happened_to_a_run(before: State, after: State, says: str | None) -> None:
    assert texts(before, after) == ([] if says is None else [says])


def test_a_long_reason_is_wrapped_and_not_cut() -> None:
    why = "no step for 2m (usually every 4.1s), the last was step 12,880 of 100,000"
    after = with_run(verdict="stalled", why=why)
    known = earlier(with_run())
    lines = list(change_lines(known, changes_since(known, after), after, 60))
    shown = ["".join(span.text for span in (one.spans if isinstance(one, Linked) else one)) for one in lines]
    assert shown[3:5] == [
        "in trouble  llm: stalled, no step for 2m (usually every", "  4.1s), the last was step 12,880 of 100,000",
    ]  # fmt: skip


def test_runs_that_came_and_went() -> None:
    before, now = with_run("old"), replace(with_run("new", why="it steps"), started_at=NOW - 70.0)
    assert texts(before, now) == ["new: new: healthy, it steps"]
    changes = Changes(earlier(before))
    changes.update(now)
    assert {f"{one.what}: {one.text}" for one in changes.found} == {
        "new: new: healthy, it steps",
        "no longer watched: old",
    }


def test_a_run_that_the_queue_shows_late_is_not_gone_and_has_its_news() -> None:
    queue = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="up")
    start = replace(calm(), runs={}, started_at=NOW - 70.0, evaluated_at=NOW, sources={queue.name: queue})
    changes = Changes(earlier(with_run("llm")))
    for state in (start, replace(start, started_at=NOW - 3.0)):
        changes.update(state)
        assert changes.found == (), "the queue was not read, or only now"
    answered = {queue.name: replace(queue, answered_at=NOW)}
    changes.update(replace(with_run(restarts=2), started_at=NOW - 80.0, sources=answered))
    assert [one.what for one in changes.found] == ["restarted"]


def test_a_requeue_between_two_healthy_looks_says_how_many_steps_it_cost() -> None:
    end = AttemptEnd(at=NOW - 900.0, source="queue", noticed_at=NOW - 900.0)
    lost = Attempt(
        attempt_id="1", run_id="llm", cluster="prod", last_step=10_860, last_committed_step=10_000,
        has_checkpoints=True, end=end,
    )  # fmt: skip
    old = replace(lost, attempt_id="0", end=replace(end, at=NOW - 2 * AGO))
    after = replace(with_run(), attempts={"0": old, "1": lost})
    assert texts(with_run(), after) == ["restarted: llm: 1 attempt ended, 860 steps lost, step 12,880"]


def test_a_dashboard_that_stayed_open_overnight_tells_the_night_at_the_first_key() -> None:
    changes = Changes(None)
    evening = replace(with_run(), at=NOW - 8 * 3_600.0, evaluated_at=NOW)
    changes.used(evening)
    dead = replace(with_run(verdict="dead", why="FAILED"), at=NOW, evaluated_at=NOW, started_at=NOW - 86_400.0)
    changes.update(dead)
    assert changes.line(dead) == ("", ""), "nobody is at the keys"
    changes.used(dead)
    assert changes.line(dead)[0].endswith("(8h): llm ended")
    changes.read()
    changes.used(replace(dead, at=NOW + 600.0))
    assert changes.line(dead) == ("", ""), "ten minutes later a person is still there"


def test_one_line_counts_runs_alerts_and_names_the_disk() -> None:
    before = replace(calm(), runs={name: run(name) for name in ("a", "b", "c")})
    disks = {key: replace(one, free_bytes=int(one.total_bytes * 0.02)) for key, one in list(calm().disks.items())[:1]}
    (disk,) = disks.values()
    after = with_alerts(
        alert("x1", fired_at=NOW - 600.0), alert("x2", fired_at=NOW - 2 * AGO),
        alert("x3", fired_at=NOW - 900.0, since=NOW - 900.0, phase="resolved", resolved_at=NOW - 300.0, ended="over"),
        base=replace(before, runs={"a": run("a", "dead"), "b": run("b", "finished"), "c": run("c", "hung")},
                     disks={**before.disks, **disks}),
    )  # fmt: skip
    name = disk_key(disk).partition(":")[2] if disk_key(disk) != disk.key else disk.key
    found = line(before, after)
    assert found.startswith(
        f"Since 11:03 (3h10m): 2 runs ended, c in trouble, 2 alerts (1 open), {name}: 2% free, was "
    )
    assert "x1" not in found
    assert [one.link for one in changes_since(earlier(before), after) if one.what == "alert"] == [
        Link("alert", "x1"), Link("alert", "x3"),
    ]  # fmt: skip


def test_an_alert_says_what_became_of_it() -> None:
    ended = alert(
        "x3", fired_at=NOW - 900.0, since=NOW - 900.0, phase="resolved", resolved_at=NOW - 300.0, ended="over"
    )
    acknowledged = alert("x4", fired_at=NOW - 1_000.0, acknowledged_by="ana")
    found = texts(calm(), with_alerts(ended, acknowledged, alert("x5", severity="info", fired_at=NOW - 60.0)))
    assert [text.rpartition("  ")[2] for text in found] == ["(ended after 10m)", "(acknowledged by ana)"]


def test_what_is_not_known_now_is_kept_as_it_was_seen() -> None:
    kept = seen(with_run(verdict="unknown"), earlier(with_run()))
    assert (kept.at, kept.runs["llm"].verdict) == (NOW, "healthy")


def test_changes_are_complete_when_every_source_has_answered_or_failed() -> None:
    state = replace(calm(), evaluated_at=NOW, started_at=NOW - 3.0)
    name, source = next(iter(state.sources.items()))

    def with_source(**facts: Any) -> State:
        return replace(state, sources={**state.sources, name: replace(source, **facts)})

    assert is_settled(state)
    assert not is_settled(with_source(answered_at=None))
    assert is_settled(with_source(answered_at=None, error="no answer in 10s"))
    assert is_settled(replace(with_source(answered_at=None), started_at=NOW - 61.0))


def test_changes_are_complete_only_when_the_logs_were_read() -> None:
    state = replace(with_run(log=None), evaluated_at=NOW, started_at=NOW - 3.0)
    assert is_settled(state), "it has no log"
    spec = replace(state.runs["llm"].spec, log="/fsx/llm.log")
    unread = replace(state, runs={"llm": replace(state.runs["llm"], spec=spec)})
    assert not is_settled(unread)
    assert is_settled(replace(unread, started_at=NOW - 61.0))


def test_changes_are_complete_only_when_the_steps_that_ended_attempts_lost_are_known() -> None:
    report = AttemptEnd(at=NOW - 900.0, source="queue", noticed_at=NOW - 3.0)
    open_one = Attempt(attempt_id="1", run_id="llm", cluster="prod", last_step=10_860, reported_end=report)
    state = replace(with_run(restarts=1), evaluated_at=NOW, started_at=NOW - 3.0)
    assert is_settled(state)
    assert not is_settled(replace(state, attempts={"1": open_one}))
    assert is_settled(replace(state, attempts={"1": replace(open_one, end=report)}))
