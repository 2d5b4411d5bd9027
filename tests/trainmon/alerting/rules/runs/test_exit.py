"""The end of a run: what is a CODE RED, what was a person, what is done; and its restarts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.asked import findings, why_unknown
from tests.trainmon.alerting.rules.runs.states import (
    LOG,
    NOW,
    PROGRESS,
    READER,
    SLURM,
    SPEC,
    STEP,
    WITH_WANDB,
    after,
    alert,
    blind,
    changed,
    ended,
    found,
    job,
    lines,
    state,
    summary,
    wandb,
    watched,
    without,
)
from trainmon.alerting.rules import RUNS
from trainmon.alerting.rules.runs.attempts import EndedEarly, Finished, Restarted, RunDead, RunStopped
from trainmon.analysis.causes.classify import stated
from trainmon.analysis.runs import RunContext, judge
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    Action,
    Alert,
    Attempt,
    AttemptEnd,
    Execute,
    Finding,
    Job,
    Progress,
    Record,
    State,
    Switch,
    WandbRun,
)

DEAD = state(ended(), verdict="dead", why="job 88: exited with code 1, 12m ago, at step 12,880")
COMPLETED = state(ended("COMPLETED", exit_code="0:0"), verdict="dead", why="job 88: exited with code 0")


def judged(*jobs: Job, **changes: Any) -> State:
    """A state whose verdict is the one that its own facts give, once its steps have ended."""
    seen = state(*jobs, **{"progress": replace(PROGRESS, at=NOW - 730)} | changes)
    run = seen.runs["llm"]
    result = judge(run, RunContext(seen.nodes, seen.sources, seen.jobs, seen.actions), NOW)
    return changed(seen, verdict=result.verdict, why=result.why, stop=result.stop)


def test_a_dead_run_is_critical_at_once_when_slurm_says_how_it_ended() -> None:
    finding = found(RunDead(), DEAD)
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.summary.startswith("llm ended unexpectedly: job 88: exited with code 1, 12m ago")
    assert finding.since == NOW - 720
    assert finding.fires_at_once, "its hold is not waited for"
    assert finding.evidence == LOG.lines
    assert finding.advice == "see how it ended (key 4) before it starts again: its cause is not known yet"


def test_a_job_that_is_gone_and_of_which_nobody_says_how_it_ended_waits_for_accounting() -> None:
    gone = state(job(state="RUNNING", gone_at=NOW - 20), verdict="dead", why="nothing shows how it ended")
    finding = found(RunDead(), gone)
    assert finding is not None
    assert not finding.fires_at_once, "sacct may still name the person who cancelled it"


def test_a_run_that_lives_or_waits_is_not_dead() -> None:
    assert found(RunDead(), state(job())) is None
    assert found(RunDead(), judged(job(88, state="PENDING", started_at=None, restarts=1))) is None


def test_a_run_that_failed_and_whose_next_job_waits_is_a_warning_after_a_minute() -> None:
    waiting = job(89, state="PENDING", reason="Resources", started_at=None)
    finding = found(RunDead(), judged(waiting, ended()))
    assert finding is not None
    assert (finding.severity, finding.fires_at_once, finding.since) == ("warning", False, NOW - 720)
    assert finding.summary == (
        "llm failed and is not training until its next job starts: job 89 is pending: no free nodes; "
        "before it, job 88: exited with code 1, 12m ago"
    )
    for usual in ("TIMEOUT", "PREEMPTED", "COMPLETED"):
        assert found(RunDead(), judged(waiting, ended(usual))) is None, "a chain of jobs is made for that"
    armed = Switch(path="/fsx/kill", exists=True, armed_at=NOW - 900, by="ann")
    assert found(RunDead(), judged(waiting, ended(), kill=armed)) is None, "a person did that"


def test_a_job_that_slurm_has_requeued_and_that_waits_is_a_warning_after_a_quarter_of_an_hour() -> None:
    """It is neither dead nor held: a node of it failed, and the cluster is full."""
    waiting = job(state="PENDING", reason="Resources", nodes=(), started_at=None, restarts=1)
    quiet = replace(PROGRESS, at=NOW - 1_200)
    finding = found(RunDead(), judged(waiting, progress=quiet))
    assert finding is not None
    assert (finding.severity, finding.since) == ("warning", NOW - 1_200)
    assert finding.summary == (
        "llm does not train: Slurm has requeued its job, for the 1st time; job 88 is pending: no free nodes; "
        "its last step was 20m ago, step 12,880"
    )
    assert found(RunDead(), judged(waiting)) is None, "it may start at any moment"
    for fine in (replace(waiting, restarts=0), replace(waiting, priority=0)):
        assert found(RunDead(), judged(fine, progress=quiet)) is None, "it is its first wait, or a person holds it"
    action = Action(id="a1", verb="requeue", subject="llm", cluster="prod", host="login", title="Requeue job 88",
                    run="llm", job="prod/88", operation=Execute(("scontrol", "requeue", "88")))  # fmt: skip
    actions = {"a1": Record(action=action, status="done", done_at=NOW - 1_199)}
    assert found(RunDead(), judged(waiting, progress=quiet, actions=actions)) is None, "a person did that"


def test_attempts_that_fail_one_after_another_are_critical_though_the_next_has_begun() -> None:
    def failed(number: int, age: float, **changes: Any) -> Job:
        return ended(number=number, started_at=NOW - age - 90, ends_at=NOW - age, **changes)

    burnt = tuple(failed(90 - place, 10.0 + 120 * place) for place in range(3))
    present = job(91, started_at=NOW - 5)
    finding = found(RunDead(), judged(present, *burnt))
    assert finding is not None
    assert (finding.severity, finding.fires_at_once, finding.since) == ("critical", True, NOW - 250)
    assert finding.summary.startswith(
        "llm keeps failing: 3 attempts in a row failed in 5m; the last one, job 90: exited with code 1, 10s "
        "ago; now it is starting: job 91"
    )
    assert finding.advice.startswith("H holds its jobs: trainmon-tui hold llm; "), "the next one may train well"
    steps = replace(PROGRESS, at=NOW - 2)
    assert found(RunDead(), judged(job(91, started_at=NOW - 600), *burnt, progress=steps)) is not None
    assert found(RunDead(), judged(job(91, started_at=NOW - 1_900), *burnt, progress=steps)) is None, "it trains"
    usual = (burnt[0], failed(89, 130.0, state="TIMEOUT"), burnt[2])
    assert found(RunDead(), judged(present, *usual)) is None, "not in a row"
    old = tuple(failed(90 - place, 10.0 + 20_000 * place) for place in range(3))
    assert found(RunDead(), judged(present, *old)) is None


def test_a_job_of_mine_that_never_trained_is_no_code_red() -> None:
    mine = replace(SPEC, found=True)
    assert found(RunDead(), changed(DEAD, spec=mine)).severity == "critical"  # type: ignore[union-attr]
    never = changed(DEAD, spec=mine, progress=replace(PROGRESS, step=None, at=None))
    assert found(RunDead(), never).severity == "info"  # type: ignore[union-attr]


def test_a_dead_run_stays_dead_while_its_witnesses_are_silent() -> None:
    lost = without(changed(DEAD, verdict="unknown", why="Slurm does not answer"), SLURM)
    assert blind(RunDead(), DEAD, lost) == f"{SLURM}: no answer in 10s"
    unknown = changed(DEAD, verdict="unknown", why="its log is not read")
    assert blind(RunDead(), DEAD, unknown) == "llm is unknown: its log is not read"
    gone = replace(DEAD, runs={})
    assert blind(RunDead(), DEAD, gone) == "llm is not watched here; the alert ends by itself"


def test_a_dead_run_that_trains_again_is_over_though_its_log_is_read_from_another_host() -> None:
    again = changed(DEAD, verdict="healthy", log=replace(LOG, host="n2"))
    assert blind(RunDead(), DEAD, without(again, READER)) is None


@pytest.mark.parametrize(
    "seen",
    [
        judged(ended("CANCELLED", cancelled_by="ana")),
        judged(ended("FAILED"), kill=Switch(path="/fsx/kill", exists=True, armed_at=NOW - 900, by="ana")),
    ],
)
def test_what_a_person_ended_is_an_information_that_names_who(seen: State) -> None:
    finding = found(RunStopped(), seen)
    assert finding is not None
    assert (finding.severity, finding.person, finding.event) == ("info", True, False)
    assert "ana" in finding.summary
    critical = [one for rule in RUNS for one in findings(rule(), seen, NOW) if one.severity == "critical"]
    assert critical == [], "never CODE RED"


def test_a_run_that_was_stopped_is_not_resolved_by_silence_and_is_by_training() -> None:
    stopped = state(ended("CANCELLED"), verdict="stopped", why="cancelled by ana")
    unknown = without(changed(stopped, verdict="unknown"), SLURM)
    assert blind(RunStopped(), stopped, unknown) == f"{SLURM}: no answer in 10s"
    assert blind(RunStopped(), stopped, changed(stopped, verdict="healthy")) is None
    assert found(RunStopped(), DEAD) is None


def test_a_job_that_ends_well_short_of_its_target_is_critical_and_no_second_alert_says_dead() -> None:
    finding = found(EndedEarly(), COMPLETED)
    assert finding is not None
    assert finding.severity == "critical"
    assert "at step 12,880 of 20,000" in finding.summary
    assert found(RunDead(), COMPLETED) is None
    assert found(EndedEarly(), DEAD) is None, "it failed: that is dead"


def test_w_and_b_that_says_finished_short_of_the_target_is_the_same() -> None:
    done = WandbRun(entity="e", project="p", id="a1", name="llm-1", state="finished")
    result = wandb("ended", runs=(done,), active=())
    assert "12,880 of 20,000" in summary(
        EndedEarly(), state(spec=WITH_WANDB, wandb=result, verdict="dead", why="ended")
    )


def test_an_early_end_of_a_job_that_slurm_has_forgotten_is_the_same() -> None:
    end = AttemptEnd(at=NOW - 720, source="accounting", noticed_at=NOW, cause=stated("completed", "exit status 0"))
    known = Attempt(attempt_id="prod/88.0", run_id="llm", cluster="prod", job_id="88", started_at=NOW - 9_000, end=end)
    seen = replace(state(verdict="dead", why="job 88 ended"), attempts={known.attempt_id: known})
    finding = found(EndedEarly(), seen)
    assert finding is not None
    assert finding.since == NOW - 720
    assert found(RunDead(), seen) is None


def test_the_advice_after_an_early_end_is_what_was_decided() -> None:
    end = AttemptEnd(at=NOW - 720, source="queue", noticed_at=NOW, cause=stated("completed", "exit status 0"))
    known = Attempt(
        attempt_id="prod/88.0", run_id="llm", cluster="prod", job_id="88", last_step=40, target_step=100, end=end
    )
    finding = found(EndedEarly(), replace(COMPLETED, attempts={known.attempt_id: known}))
    assert finding is not None
    assert finding.advice.startswith(
        "it ended without an error at step 40 of 100: if it is complete, correct target_step in its [[run]], else see "
        "why; then "
    )


def test_an_early_end_is_not_resolved_by_a_scheduler_that_does_not_answer() -> None:
    lost = without(changed(COMPLETED, verdict="unknown"), SLURM)
    assert blind(EndedEarly(), COMPLETED, lost) == f"{SLURM}: no answer in 10s"
    assert found(EndedEarly(), state(job())) is None


def test_a_run_that_has_reached_its_target_is_reported_once_with_its_loss() -> None:
    progress = replace(PROGRESS, step=20_000, at=NOW - 120)
    done = state(verdict="finished", why="reached step 20,000 of 20,000", progress=progress)
    finding = found(Finished(), done)
    assert finding is not None
    assert (finding.severity, finding.event, finding.since) == ("info", True, NOW - 120)
    assert finding.summary == "llm has finished: reached step 20,000 of 20,000, loss 1.87; its last step was 2m ago"
    assert found(Finished(), done, NOW + 46_800) is None, "it is no news any more"
    assert found(Finished(), state()) is None
    assert why_unknown(Finished(), without(done, READER), alert(finding), NOW + 46_800) == f"{READER}: no answer in 10s"


def test_a_run_whose_evaluation_failed_after_the_target_is_a_warning_that_says_so() -> None:
    """Its script ended with status 0, as one with `|| true` does. What its log shows is known a moment later."""
    progress, failed = replace(PROGRESS, step=20_000, at=NOW - 120), stated("evaluator", "ValueError")
    done = state(verdict="finished", why="reached step 20,000 of 20,000", progress=progress)
    ended_well = AttemptEnd(at=NOW - 60, source="queue", noticed_at=NOW - 60, cause=stated("completed", "status 0"))
    attempt = Attempt(attempt_id="a", run_id="llm", cluster="prod", started_at=NOW - 9_000, seen_at=NOW - 60)
    for end, severity, at_once in (
        (None, "info", False), (ended_well, "info", True), (replace(ended_well, cause=failed), "warning", True),
    ):  # fmt: skip
        finding = found(Finished(), replace(done, attempts={"a": replace(attempt, end=end)}))
        assert finding is not None
        assert (finding.severity, finding.fires_at_once) == (severity, at_once)
    assert finding.summary.startswith("llm has reached its target, and its evaluation failed: reached step 20,000 of")
    assert finding.advice == "start the evaluator again; with command in its [[eval]], R does that"


def test_a_job_that_takes_over_is_a_restart_and_names_how_the_last_ended() -> None:
    queue = (job(89, started_at=NOW - 300), ended(ends_at=NOW - 400))
    before = replace(PROGRESS, at=NOW - 410)
    finding = found(Restarted(), state(*queue, progress=before))
    assert finding is not None
    assert (finding.severity, finding.event, finding.since) == ("info", True, NOW - 300)
    assert finding.summary == (
        "llm restarted 5m ago: now job 89; previous job 88: exited with code 1, 6m ago; "
        "the last known progress was step 12,880"
    )
    later = found(Restarted(), state(*queue))
    assert later is not None
    assert later.summary.endswith("exited with code 1, 6m ago"), "its progress may be that of the new job"
    assert found(Restarted(), state(*queue), NOW + 900) is None
    assert why_unknown(Restarted(), without(state(*queue), SLURM), alert(finding), NOW) == f"{SLURM}: no answer in 10s"


def test_a_requeued_job_is_a_restart_and_a_first_job_is_none() -> None:
    assert "job 88 was requeued, for the 2nd time" in summary(Restarted(), state(job(started_at=NOW - 60, restarts=2)))
    assert found(Restarted(), state(job(started_at=NOW - 60))) is None
    assert found(Restarted(), state(job(started_at=NOW - 60), ended(ends_at=NOW - 10))) is None, "a sweep's other job"


def test_two_restarts_within_seconds_are_two_events_and_one_that_is_read_again_is_one() -> None:
    first = state(job(started_at=NOW - 60, restarts=1))
    finding = found(Restarted(), first)
    assert finding is not None
    known = replace(alert(finding), since=NOW - 60)
    again = found(Restarted(), state(job(started_at=NOW - 50, restarts=2), alerts={known.id: known}))
    assert again is not None
    assert again.since == NOW - 50
    assert "for the 2nd time" in again.summary
    read_again = found(Restarted(), state(job(started_at=NOW - 50, restarts=1), alerts={known.id: known}))
    assert read_again is not None
    assert read_again.since == NOW - 60


@pytest.mark.parametrize(
    ("earlier_ended_at", "how"),
    [(NOW - 4_000, "job 89 was requeued, for the 1st time"), (NOW - 200, "now job 89; previous job 88: exited")],
)
def test_a_job_that_was_requeued_after_an_earlier_one_had_ended_did_not_take_over_from_that(
    earlier_ended_at: float, how: str
) -> None:
    """A requeue submits the job anew. Another one may have run while it waited."""
    again = job(89, started_at=NOW - 120, submitted_at=NOW - 300, restarts=1)
    assert how in summary(Restarted(), state(again, ended(ends_at=earlier_ended_at)))


def test_steps_that_go_back_are_a_restart_where_no_job_is_known() -> None:
    seen = after(watched(), [lines(NOW, STEP.format(100))], NOW)
    seen = after(seen, [lines(NOW + 10, STEP.format(110))], NOW + 10)
    assert found(Restarted(), seen, NOW + 10) is None
    seen = after(seen, [lines(NOW + 400, STEP.format(51))], NOW + 400)
    assert "its steps went back from 110" in summary(Restarted(), seen, NOW + 410)


def test_the_next_run_of_a_group_is_a_restart_where_no_job_is_known() -> None:
    first = WandbRun(entity="e", project="p", id="a1", name="llm-1", state="crashed", created_at=NOW - 9_000)
    second = WandbRun(entity="e", project="p", id="a2", name="llm-2", state="running", created_at=NOW - 60)
    result = wandb(runs=(second, first), active=("a2",), attempts=("a2", "a1"))
    assert "W&B shows llm-2 (a2) after llm-1 (a1)" in summary(Restarted(), state(spec=WITH_WANDB, wandb=result))


# ---- a person had ended it, and took the switch back ----

ARMED = Switch(path="/fsx/kill", exists=True, armed_at=NOW - 900, by="ann")
BACK = Switch(path="/fsx/kill", exists=False, taken_at=NOW + 60)


def folded(seen: State, now: float = NOW) -> State:
    """The state once time has passed: verdicts are judged, and what they were is remembered."""
    return reduce(
        replace(seen, sources={name: replace(one, phase="up") for name, one in seen.sources.items()}), [], now
    )


def stopped_by_switch(*jobs: Job, **changes: Any) -> State:
    quiet = replace(PROGRESS, at=NOW - 730)
    seen = folded(state(*jobs, **{"progress": quiet, "kill": ARMED, "verdict": "unknown"} | changes))
    assert seen.runs["llm"].verdict == "stopped"
    return seen


def test_a_run_whose_kill_switch_is_taken_back_stays_stopped_and_is_no_code_red() -> None:
    seen = folded(changed(stopped_by_switch(ended("COMPLETED")), kill=BACK), NOW + 2)
    finding = found(RunStopped(), seen)
    assert finding is not None
    assert finding.summary == (
        "llm was stopped by a person: the kill switch was armed by ann; no job has run since, last step 12,880"
    )
    assert found(RunDead(), seen) is None
    assert found(EndedEarly(), seen) is None
    later = folded(changed(seen, log=replace(LOG, at=NOW + 2)), NOW + 4)
    assert later.runs["llm"].verdict == "stopped"


def test_a_run_without_slurm_that_was_stopped_does_not_become_stalled_when_its_switch_is_taken_back() -> None:
    alone = stopped_by_switch(spec=replace(SPEC, job=None), progress=replace(PROGRESS, at=NOW - 1_000))
    back = folded(changed(alone, kill=BACK), NOW + 2)
    assert back.runs["llm"].verdict == "stopped"
    anew = changed(back, log=replace(LOG, began_at=NOW + 1))
    assert folded(anew, NOW + 3).runs["llm"].verdict == "stalled", "another log has begun"


def test_an_attempt_that_fails_after_the_switch_was_taken_back_is_dead() -> None:
    seen = changed(stopped_by_switch(ended("COMPLETED")), kill=BACK)
    again = ended("FAILED", started_at=NOW + 10, ends_at=NOW + 40)
    seen = replace(seen, jobs={again.key: again})
    assert folded(seen, NOW + 60).runs["llm"].verdict == "dead"


def test_accounting_that_knows_better_is_believed_over_what_looked_like_a_person() -> None:
    seen = folded(state(ended("CANCELLED"), progress=replace(PROGRESS, at=NOW - 730), verdict="unknown"))
    assert seen.runs["llm"].verdict == "stopped"
    better = ended("NODE_FAIL")
    assert folded(replace(seen, jobs={better.key: better}), NOW + 30).runs["llm"].verdict == "dead"


def test_a_person_who_was_named_before_this_program_began_again_is_believed() -> None:
    stopped = state(ended("COMPLETED"), verdict="stopped", why="the kill switch has been armed for 15m by ann")
    finding = found(RunStopped(), stopped)
    assert finding is not None
    result = replace(COMPLETED, alerts={"a1b2c3d4": replace(alert(finding), since=NOW - 720)})
    assert "by ann" in summary(RunStopped(), result)
    assert found(EndedEarly(), result) is None
    failed = replace(DEAD, alerts=result.alerts)
    assert found(RunDead(), failed) is None
    later = ended(ends_at=NOW - 100)
    another = replace(DEAD, jobs={later.key: later}, alerts=result.alerts)
    assert found(RunDead(), another) is not None, "that is another end"


def test_an_event_keeps_the_time_at_which_it_was_reported_first() -> None:
    progress = replace(PROGRESS, step=20_000, at=NOW - 120)
    done = state(verdict="finished", why="reached step 20,000 of 20,000", progress=progress)
    finding = found(Finished(), done)
    assert finding is not None
    read_anew = changed(done, progress=replace(progress, at=NOW - 110))
    known = replace(read_anew, alerts={"a1b2c3d4": replace(alert(finding), since=NOW - 120)})
    assert found(Finished(), known).since == NOW - 120  # type: ignore[union-attr]
    ahead = state(job(started_at=NOW + 50, restarts=1))
    assert found(Restarted(), ahead).since == NOW, "its clock is ahead"  # type: ignore[union-attr]


def restarted_often() -> dict[str, Alert]:
    restart = Finding(rule="restarted", subject="run:llm", severity="info", summary="again", run="llm", event=True)
    known = replace(alert(restart), fired_at=NOW - 700)
    return {f"a{hour}": replace(known, id=f"a{hour}", since=NOW - 3_600 * hour) for hour in (1, 2, 3)}


def test_a_daemon_that_starts_beside_a_healthy_chain_says_nothing_of_its_restarts() -> None:
    present = job(started_at=NOW - 5, restarts=3)
    unread = state(present, alerts=restarted_often(), progress=Progress(), log=None, verdict="unknown", why="not read")
    assert found(RunDead(), unread) is None
    read = changed(unread, log=LOG)
    before = Attempt(attempt_id="prod/88.2", run_id="llm", cluster="prod", job_id="88", seen_at=NOW - 60)
    for last_step, severity in ((None, "critical"), (12_880, None)):
        known = replace(read, attempts={before.attempt_id: replace(before, last_step=last_step)})
        finding = found(RunDead(), known)
        assert (finding and finding.severity) == severity


def test_a_person_who_has_it_requeued_again_and_again_knows_of_it() -> None:
    restart = Finding(rule="restarted", subject="run:llm", severity="info", summary="again", run="llm", event=True)
    result = {
        name: replace(alert(restart), id=name, since=NOW - 700 + place, fired_at=NOW - 700 + place)
        for place, name in enumerate(("a", "b", "c"))
    }
    present = job(started_at=NOW - 5, restarts=3)
    assert found(RunDead(), judged(present, alerts=result)).severity == "critical"  # type: ignore[union-attr]
    action = Action(id="a1", verb="requeue", subject="llm", cluster="prod", host="login", title="Requeue job 88",
                    run="llm", job="prod/88", operation=Execute(("scontrol", "requeue", "88")))  # fmt: skip
    actions = {"a1": Record(action=action, status="done", done_at=NOW - 699)}
    assert found(RunDead(), judged(present, alerts=result, actions=actions)) is None
