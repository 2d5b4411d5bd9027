"""Which W&B run of a group trains, and what it means when none does, or several do."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from trainmon.analysis.wandb.active_run import read, silent_for
from trainmon.model import Wandb, WandbRun, WandbSpec

SPEC = WandbSpec(project="team/project", group="video")
T = 1_000_000.0


def run(id_: str, state: str = "running", beat: float | None = T, **more: Any) -> WandbRun:
    fields: dict[str, Any] = {"created_at": T - 7200, "step": 12_000, "name": f"video-{id_}"}
    return WandbRun(entity="team", project="project", id=id_, state=state, heartbeat_at=beat, **(fields | more))


def look(*runs: WandbRun, before: Wandb | None = None, at: float = T, stopped: bool = False) -> Wandb:
    return replace(read(SPEC, runs, before, at, stopped), polled_at=at)


def test_the_one_that_runs_and_beats_is_the_active_one() -> None:
    group = look(run("c"), run("b", "crashed"), run("a", "finished"))
    assert (group.phase, group.active, group.why) == ("active", ("c",), "video-c (c) is running")
    assert group.before is not None
    assert group.before.id == "b"
    assert group.since == T - 7200


def test_no_run_at_all_is_none_and_says_what_is_looked_for() -> None:
    group = look()
    assert (group.phase, group.why) == ("none", "W&B has no run that matches team/project, group video")


def test_running_with_no_heartbeat_for_ten_minutes_is_not_believed() -> None:
    assert look(run("a", beat=T - 599)).phase == "active"
    group = look(run("a", beat=T - 601))
    assert (group.phase, group.active) == ("waiting", ())
    assert "video-a (a) is running according to W&B, but sends no heartbeat, last at step 12,000" in group.why


def test_a_run_that_was_given_no_heartbeat_yet_is_as_old_as_its_creation() -> None:
    assert look(run("a", beat=None, created_at=T - 30)).phase == "active"
    assert look(run("a", beat=None, created_at=T - 3000)).active == ()
    assert look(run("a", beat=None, created_at=None)).phase == "active"


def test_our_clock_may_be_an_hour_ahead_of_the_servers() -> None:
    first = look(run("a", beat=T - 3600))
    assert first.phase == "waiting"
    second = look(run("a", beat=T - 3540), before=first, at=T + 60)
    assert (second.phase, second.active) == ("active", ("a",))
    third = look(run("a", beat=T - 3540), before=second, at=T + 660)
    assert third.phase == "active"
    assert look(run("a", beat=T - 3540), before=third, at=T + 661).phase == "waiting"


def test_a_run_that_is_not_believed_at_the_first_look_is_overdue_only_when_its_heartbeat_stays() -> None:
    first = look(run("a", beat=T - 3600))
    assert look(run("a", beat=T - 3600), before=first, at=T + 119).phase == "waiting"
    assert look(run("a", beat=T - 3600), before=first, at=T + 120).phase == "overdue"


def test_a_clock_behind_the_servers_does_not_believe_for_ever() -> None:
    first = look(run("a", beat=T + 3600))
    assert first.phase == "active"
    assert look(run("a", beat=T + 3600), before=first, at=T + 601).phase == "waiting"


@pytest.mark.parametrize("off", [-3_600.0, 3_600.0])
def test_a_heartbeat_is_shown_as_old_as_it_is_whatever_the_servers_clock_says(off: float) -> None:
    first = look(run("a", beat=T + off))
    then = look(run("a", beat=T + 60 + off), before=first, at=T + 65)
    assert silent_for(then, then.runs[0], T + 85) == 20
    near = look(run("a", beat=T + 60), before=look(run("a")), at=T + 65)
    assert silent_for(near, near.runs[0], T + 85) == 25
    assert silent_for(near, run("b", "crashed", beat=T - 300), T + 100) == 400
    assert silent_for(near, run("b", beat=None), T) is None


def test_several_active_runs_are_named() -> None:
    group = look(run("b"), run("a"), run("x", "crashed"))
    assert (group.phase, group.active) == ("several", ("b", "a"))
    assert group.why == (
        "2 runs are active where one is expected: video-b (b), video-a (a), in team/project, group video"
    )
    many = look(*(run(f"r{i}") for i in range(9)))
    assert many.why.startswith("9 runs are active where one is expected: video-r0 (r0), ")
    assert "video-r4 (r4) and 4 more" in many.why


def test_a_killed_run_that_the_server_has_not_noticed_yet_is_no_second_one() -> None:
    both = (run("b", beat=T), run("a", beat=T - 200))
    assert look(*both).active == ("b",)
    assert look(run("b", beat=T), run("a", beat=T - 60)).phase == "several"
    assert look(run("b", beat=T - 200), run("a", beat=T)).phase == "several"


def test_a_restart_of_half_a_minute_does_not_make_two_active_ones() -> None:
    new = run("b", beat=T, created_at=T - 5)
    assert look(new, run("a", beat=T - 40)).active == ("b",)
    assert look(new, run("a", beat=T - 2)).phase == "several"


def test_after_a_crash_the_restart_is_waited_for_and_then_it_is_overdue() -> None:
    active = look(run("a"))
    gone = look(run("a", "crashed", beat=T - 10), before=active, at=T + 300)
    assert (gone.phase, gone.since) == ("waiting", T + 300)
    assert gone.why == "video-a (a) crashed at step 12,000; waiting up to 15m for the next W&B run"
    still = look(run("a", "crashed", beat=T - 10), before=gone, at=T + 1200)
    assert (still.phase, still.since) == ("waiting", T + 300)
    late = look(run("a", "crashed", beat=T - 10), before=still, at=T + 1201)
    assert (late.phase, late.since) == ("overdue", T + 300)
    assert late.why == "video-a (a) crashed at step 12,000, and no new run has started within 15m"
    later = look(run("a", "crashed", beat=T - 10), before=late, at=T + 9000)
    assert (later.phase, later.since) == ("overdue", T + 300)


def test_the_next_run_is_taken_up_by_itself_and_linked_to_the_one_before() -> None:
    gone = look(run("a", "failed"), before=look(run("a")), at=T + 60)
    again = look(run("b", beat=T + 900, created_at=T + 880), run("a", "failed"), before=gone, at=T + 900)
    assert (again.phase, again.active, again.since) == ("active", ("b",), T + 900)
    assert again.attempts == ("b", "a")
    assert again.before is not None
    assert again.before.id == "a"


def test_a_look_back_at_an_old_crash_is_overdue_at_once_and_at_a_young_one_waits() -> None:
    assert look(run("a", "crashed", beat=T - 86_400)).phase == "overdue"
    young = look(run("a", "crashed", beat=T - 600))
    assert (young.phase, young.since) == ("waiting", T - 300)
    assert look(run("a", "crashed", beat=T - 600), before=young, at=T + 601).phase == "overdue"


@pytest.mark.parametrize(
    ("state", "words"),
    [("failed", "failed"), ("killed", "was killed"), ("preempted", "was preempted"), ("weird", "is weird")],
)
def test_every_other_end_waits_for_the_restart_too(state: str, words: str) -> None:
    group = look(run("a", state))
    assert group.phase == "waiting"
    assert f"video-a (a) {words} at step 12,000" in group.why


def test_a_finished_run_has_ended_and_so_has_one_that_a_person_stopped() -> None:
    assert look(run("a", "finished")).why == "video-a (a) finished at step 12,000"
    assert look(run("a", "finished")).phase == "ended"
    stopped = look(run("a", "crashed"), before=look(run("a")), at=T + 400, stopped=True)
    assert (stopped.phase, stopped.why) == ("ended", "video-a (a) crashed at step 12,000; the run was stopped")
    assert look(run("a"), stopped=True).phase == "active"


def test_what_was_stopped_stays_ended_until_another_run_appears() -> None:
    stopped = look(run("a", "crashed"), before=look(run("a")), at=T + 400, stopped=True)
    assert look(run("a", "crashed"), before=stopped, at=T + 9000).phase == "ended"
    assert look(run("b", "crashed"), run("a", "crashed"), before=stopped, at=T + 9000).phase != "ended"


def test_a_resumed_run_is_the_attempt_after_the_one_that_it_interrupted() -> None:
    first = look(run("a"))
    second = look(run("b", beat=T + 60), run("a", "crashed"), before=first, at=T + 60)
    third = look(run("b", "crashed"), run("a", beat=T + 900), before=second, at=T + 900)
    assert third.attempts == ("a", "b", "a")
    assert third.current is not None
    assert third.current.id == "a"
    assert third.before is not None
    assert third.before.id == "b"


def test_of_those_that_are_gone_the_last_that_trained_is_the_current_one() -> None:
    both = look(run("a", beat=T + 60), run("b", "crashed", beat=T - 900))
    gone = look(run("b", "crashed", beat=T - 900), run("a", "failed", beat=T + 60), before=both, at=T + 120)
    assert gone.current is not None
    assert gone.current.id == "a"
    assert gone.why.startswith("video-a (a) failed")


def test_an_attempt_that_came_and_went_between_two_looks_has_its_place() -> None:
    first = look(run("a"))
    second = look(run("c", beat=T + 900), run("b", "failed"), run("a", "crashed"), before=first, at=T + 900)
    assert second.attempts == ("c", "b", "a")
    third = look(run("d", "failed"), run("c", beat=T + 960), run("a", "crashed"), before=second, at=T + 960)
    assert third.attempts[0] == "c"
    assert third.before is not None


def test_a_run_whose_name_is_its_id_is_named_once() -> None:
    assert look(run("a", name="a")).why == "a is running"
