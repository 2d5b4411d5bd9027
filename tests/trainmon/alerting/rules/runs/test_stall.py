"""A run from which no step comes: hung, stalled, waiting for data. What lives beside it proves nothing."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.trainmon.alerting.rules.asked import findings
from tests.trainmon.alerting.rules.runs.states import (
    LOG,
    NOW,
    PROGRESS,
    READER,
    SPEC,
    STEP,
    after,
    alert,
    blind,
    changed,
    found,
    job,
    lines,
    source,
    state,
    watched,
    without,
)
from trainmon.alerting.rules import RUNS
from trainmon.alerting.rules.runs.steps import DataStall, LogUnread, RunHung, RunStalled
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import LOG_MARK, Attempt, Gpu, JobsListed, Node, Progress, RankLook, RankMap, SourceChanged, State

QUIET = replace(PROGRESS, at=NOW - 3_600)
HUNG = state(
    job(), verdict="hung", why="no step for 1h; its GPUs are 100% busy at 20% of their power limit", progress=QUIET
)
STALLED = changed(HUNG, verdict="stalled", why="no step for 1h")
WAITING = changed(HUNG, verdict="data-stall", why="no step for 1h; its GPUs are idle (2%)")
PULSE = "[2026-05-01 03:56:11] PULSE: llm is running for 1-07:27:33 since 2026-04-29T20:28:38 (88 on 'gpu' partition)"


def test_a_hang_is_critical_and_says_since_when_and_what_to_do() -> None:
    finding = found(RunHung(), HUNG)
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.summary == "llm hangs: no step for 1h; its GPUs are 100% busy at 20% of their power limit"
    assert finding.since == NOW - 3_600
    assert finding.evidence[0] == "job 88 is RUNNING"
    assert "py-spy dump" in finding.advice, "which processes are its ranks is not known"
    assert "trainmon-tui cancel llm" in finding.advice


def test_each_silence_has_its_own_rule_and_one_says_nothing_of_another() -> None:
    for seen, own in ((HUNG, RunHung), (STALLED, RunStalled), (WAITING, DataStall)):
        for rule in (RunHung, RunStalled, DataStall):
            assert (found(rule(), seen) is not None) == (rule is own)
    healthy = state(job())
    assert all(found(rule(), healthy) is None for rule in (RunHung, RunStalled, DataStall))


def test_idle_gpus_point_to_data_and_storage() -> None:
    finding = found(DataStall(), WAITING)
    assert finding is not None
    assert "disks (key 3)" in finding.advice
    assert found(RunStalled(), STALLED).severity == "critical"  # type: ignore[union-attr]


def with_gpus(seen: State, use: int, power: float, at: float) -> State:
    """All of its nodes' GPUs at this use."""
    gpus = tuple(Gpu(index=i, utilization_pct=use, power_w=power, power_limit_w=700, memory_used_mib=70_000) for i in
                 range(8))  # fmt: skip
    nodes = {name: Node(name=name, cluster="prod", gpus=gpus, gpus_at=at) for name in SPEC.nodes}
    return replace(seen, nodes=nodes)


LATE = RankLook(
    source="nccl-ras", at=NOW, ranks=(3,), lines=("1 rank at 639",), advice="look at its process",
    summary="15 of 16 ranks have launched AllReduce 640; rank 3 (n1 GPU 3) has been at 639 for 16s",
)  # fmt: skip


def test_what_a_look_at_the_ranks_has_shown_comes_first() -> None:
    """Who holds the run up, by which source, and what to do; not why another source could not look."""
    silent = RankLook(source="proc", at=NOW, summary="no node answers", is_answer=False)
    differs = replace(LATE, source="proc", summary="rank 9 differs", ranks=(9,))
    for looks in ((LATE, silent), (differs, LATE), (LATE,)):
        finding = found(RunHung(), changed(HUNG, looks=looks))
        assert finding is not None
        why = HUNG.runs["llm"].why
        assert finding.summary == f"llm hangs: {LATE.summary} (by NCCL); {why}"
        assert finding.advice.startswith("look at its process; ")
        assert "1 rank at 639" in finding.evidence
    nobody = replace(LATE, ranks=(), advice="")
    plain = found(RunHung(), HUNG)
    for looks in ((silent,), (nobody,), ()):
        assert found(RunHung(), changed(HUNG, looks=looks)) == plain


def test_a_watchdog_that_writes_into_the_log_hides_no_hang() -> None:
    seen = watched()
    began = NOW - 40_000
    ups: list[Any] = [SourceChanged(source("slurm:prod", phase="up", period=30.0))]
    seen = reduce(seen, [*ups, JobsListed("prod", NOW, (job(started_at=began),))], NOW)
    for second in range(5):
        seen = after(seen, [lines(NOW + 4 * second, STEP.format(100 + second))], NOW + 4 * second)
    at = NOW + 16.0
    for hour in (1, 2, 3):
        at = NOW + 16.0 + 3_600 * hour
        seen = with_gpus(seen, 100, 140.0, at)
        seen = after(seen, [lines(at, PULSE), JobsListed("prod", at, (job(started_at=began),))], at)
        assert seen.runs["llm"].log.at == at, "its log grows"  # type: ignore[union-attr]
    finding = found(RunHung(), seen, at)
    assert finding is not None
    assert "no step for 3h" in finding.summary
    assert PULSE in finding.evidence


def test_a_run_whose_gpus_draw_the_power_of_work_is_a_warning_for_an_hour() -> None:
    """An evaluation that its log does not name is no reason to get up; a collective that spins is."""
    why = "no step for 20m; its GPUs are at 98%"
    quiet = changed(STALLED, why=why, progress=replace(PROGRESS, at=NOW - 1_200))
    finding = found(RunStalled(), with_gpus(quiet, 98, 650.0, NOW))
    assert finding is not None
    assert finding.severity == "warning"
    assert (
        finding.summary
        == f"llm has stalled: {why}; they draw as much power as in training: it may do something that its log does not "
        "show"
    )
    late = changed(quiet, progress=replace(PROGRESS, at=NOW - 3_700))
    for seen in (quiet, with_gpus(quiet, 98, 200.0, NOW), with_gpus(quiet, 60, 650.0, NOW),
                 with_gpus(late, 98, 650.0, NOW)):  # fmt: skip
        finding = found(RunStalled(), seen)
        assert finding is not None
        assert finding.severity == "critical"


def test_a_run_of_which_no_step_was_ever_seen_may_have_a_log_that_is_not_understood() -> None:
    never = changed(STALLED, progress=replace(PROGRESS, at=None, step=None))
    assert found(RunStalled(), never).advice.endswith("[[log_format]]")  # type: ignore[union-attr]
    assert "[[log_format]]" not in found(RunStalled(), STALLED).advice  # type: ignore[union-attr]


def test_a_hang_that_began_as_a_warning_is_reported() -> None:
    """First its GPUs draw the power of work, then they spin."""
    quiet = changed(STALLED, progress=replace(PROGRESS, at=NOW - 1_200))
    warning = found(RunStalled(), with_gpus(quiet, 98, 650.0, NOW))
    assert warning is not None
    later = replace(HUNG, alerts={"a1b2c3d4": alert(warning)})
    finding = found(RunHung(), later)
    assert finding is not None
    assert finding.severity == "critical"


def test_a_large_job_may_take_three_quarters_of_an_hour_to_its_first_step() -> None:
    def up(seconds: float, **changes: Any) -> State:
        began = NOW - seconds
        return state(job(started_at=began), progress=replace(PROGRESS, at=began - 600), **changes)

    why = "job 88 has been up for 20m, and no step was logged"
    for rule, verdict in ((DataStall(), "data-stall"), (RunStalled(), "stalled"), (RunHung(), "hung")):
        early, late = (found(rule, up(seconds, verdict=verdict, why=why)) for seconds in (1_200, 2_800))
        assert early is not None
        assert late is not None
        assert early.since == NOW - 1_200, "not since the attempt before"
        assert (early.severity, late.severity) == ("critical" if verdict == "hung" else "warning", "critical")


def test_a_job_that_somebody_has_suspended_is_a_warning_that_says_what_lets_it_go_on() -> None:
    seen = state(job(state="SUSPENDED"), verdict="stalled", why="job 88 is suspended", progress=QUIET)
    finding = found(RunStalled(), seen)
    assert finding is not None
    assert (finding.severity, finding.summary) == (
        "warning", "llm is paused: job 88 is suspended, its last step was 1h ago",
    )  # fmt: skip
    assert "scontrol resume 88" in finding.advice
    stopped = found(RunStalled(), state(job(state="STOPPED"), verdict="stalled", why="told", progress=QUIET))
    assert "scancel --signal=CONT 88" in stopped.advice  # type: ignore[union-attr]


def test_a_silence_is_not_over_when_its_gpus_or_its_log_are_not_seen_any_more() -> None:
    assert blind(RunHung(), HUNG, without(changed(HUNG, verdict="unknown"), READER)) == f"{READER}: no answer in 10s"
    assert blind(RunHung(), HUNG, STALLED) == "llm is stalled: no step for 1h"
    assert blind(DataStall(), WAITING, HUNG) is not None
    assert blind(RunStalled(), STALLED, changed(STALLED, verdict="idle", why="its log is empty")) is not None


def test_a_silence_is_over_when_steps_come_or_the_run_has_ended() -> None:
    for verdict in ("healthy", "saving", "starting", "queued", "dead", "stopped", "finished"):
        assert blind(RunHung(), HUNG, changed(HUNG, verdict=verdict)) is None


def test_one_silence_is_one_alert_whatever_its_gpus_do_meanwhile() -> None:
    finding = found(RunHung(), HUNG)
    assert finding is not None
    alerted = replace(STALLED, alerts={"a1b2c3d4": alert(finding)})
    assert found(RunStalled(), alerted) is None, "that it hangs is told already"
    pending = replace(STALLED, alerts={"a1b2c3d4": replace(alert(finding), phase="pending")})
    assert found(RunStalled(), pending) is not None
    other = replace(STALLED, alerts={"a1b2c3d4": replace(alert(finding), run="another")})
    assert found(RunStalled(), other) is not None


def test_a_healthy_run_has_no_finding_at_all() -> None:
    assert [one for rule in RUNS for one in findings(rule(), state(job(ends_at=NOW + 90_000)), NOW)] == []


def test_a_log_without_steps_that_stands_still_is_a_warning_where_nothing_else_shows_the_run() -> None:
    crashed = "ValueError: 3 is no head"
    alone = replace(SPEC, job=None, nodes=())
    seen = after(watched(alone), [lines(NOW + 5, "loading", crashed)], NOW + 5)
    seen = reduce(seen, [SourceChanged(source(READER, phase="up", answered_at=NOW + 1_200))], NOW + 1_200)
    assert seen.runs["llm"].verdict == "idle"
    finding = found(RunStalled(), seen, NOW + 1_200)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == (
        "llm may have ended: its log shows no step and has not grown for 20m; it has no job and no W&B run"
    )
    assert finding.evidence == ("loading", crashed)
    old = replace(seen, started_at=NOW + 100)
    assert found(RunStalled(), old, NOW + 1_200) is None, "it stood still before this program began"


UNREAD = changed(
    HUNG, verdict="unknown", why="its log grows, but shows no known step line", why_code="unread",
    progress=Progress(), log=LOG,
)  # fmt: skip


def test_an_unread_log_is_one_information_that_says_how_it_is_taught() -> None:
    finding = found(LogUnread(), UNREAD)
    assert finding is not None
    assert (finding.severity, finding.event) == ("info", True)
    assert finding.summary == "the progress of llm is unknown: its log grows, but shows no known step line"
    assert "[[log_format]]" in finding.advice
    assert finding.since == NOW - 40_000, "of one job it is told once"
    assert [one.rule for rule in RUNS for one in findings(rule(), UNREAD, NOW)] == ["log-unread"]
    assert found(LogUnread(), changed(UNREAD, why="no such file", why_code="")) is None


def test_an_unread_log_that_falls_silent_after_the_start_is_critical_at_once() -> None:
    """While it is silent from the start the job may be loading; what has run for longer than that is not."""
    silent = changed(UNREAD, verdict="stalled", why="it has not grown", log=replace(LOG, at=NOW - 1_000))
    finding = found(RunStalled(), replace(silent, jobs={"prod/88": job(started_at=NOW - 2_000)}))
    assert finding is not None
    assert (finding.severity, finding.since) == ("critical", NOW - 1_000)
    finding = found(RunStalled(), replace(silent, jobs={"prod/88": job(started_at=NOW - 1_100)}))
    assert finding is not None
    assert (finding.severity, finding.since) == ("warning", NOW - 1_100)


def test_a_silence_of_an_unread_log_is_over_when_it_grows_again() -> None:
    silent = changed(UNREAD, verdict="stalled", why="it has not grown", log=replace(LOG, at=NOW - 1_000))
    assert blind(RunStalled(), silent, UNREAD) is None
    unreadable = changed(UNREAD, why="no such file", why_code="")
    assert blind(RunStalled(), silent, unreadable) == "llm is unknown: no such file"


def test_an_alert_says_where_a_rank_runs_that_its_last_lines_name() -> None:
    line, ranks = "[rank9]: RuntimeError: CUDA error", RankMap(launcher="torchrun", ranks=16, nodes={"n2": {9: (1,)}})
    own = Attempt(attempt_id="a", run_id="llm", cluster="prod", log_path=LOG.path, started_at=NOW - 9e3, ranks=ranks)
    hung = changed(HUNG, log=replace(LOG, lines=("step 12880", line)))
    finding = found(RunHung(), replace(hung, attempts={"a": own}))
    assert finding is not None
    assert finding.evidence[-2:] == (line, "rank 9 (n2 GPU 1)")
    assert found(RunHung(), hung) == replace(finding, evidence=finding.evidence[:-1])
    mixed = changed(HUNG, log=replace(LOG, lines=(line, f"{LOG_MARK}{LOG.path}", "of another attempt")))
    of_others = (
        replace(hung, attempts={"a": replace(own, log_path="/fsx/old.out")}),
        replace(mixed, attempts={"a": own}),
    )
    for one in of_others:
        assert "rank 9 (" not in " ".join(
            evidence for each in findings(RunHung(), one, NOW) for evidence in each.evidence
        )
