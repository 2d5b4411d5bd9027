"""The explanation of an attempt: what a person reads who was asleep."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, STEP, Story, ended
from tests.trainmon.analysis.explanation.pages import DIED, EXITED, OOM, explained, rows, story
from tests.trainmon.ledger.records import action
from trainmon.analysis.explanation import Explanation, page
from trainmon.analysis.explanation.explain import brief, gpu_time
from trainmon.model import Alert, Expected, RankLook, RankMap, Record, RetryPolicy


def test_the_sentence_says_what_ended_it_when_and_how_sure_and_what_it_cost() -> None:
    assert explained(story()).sentence == (
        "Attempt 88 of llm ended at 2023-11-14 22:14:10 UTC, after 50s: cuda-oom (torch.OutOfMemoryError), certain. "
        "A GPU ran out of memory. Cost: 0.03 GPU hours, 10 steps lost."
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 GPU seconds"), (1.0, "1 GPU second"), (26.4, "26 GPU seconds"), (36.0, "0.01 GPU hours"),
        (312.0, "0.09 GPU hours"), (3_600.0, "1.0 GPU hours"), (7_372_800.0, "2,048.0 GPU hours"),
    ],
)  # fmt: skip
def test_a_short_attempt_has_cost_something(seconds: float, text: str) -> None:
    assert gpu_time(seconds) == text


def test_of_a_guess_the_sentence_says_what_suggests_it() -> None:
    told = Story().gpus(-50).queue(10, JOB).queue(51, ended(JOB, 50, "FAILED", "0:11")).at(120).say()
    assert "segfault, not certain. Only this suggests it: signal 11. Cost:" in explained(told.attempts).sentence


def test_an_attempt_that_ended_well_before_its_target_has_not_ended_as_planned() -> None:
    told = Story(replace(SPEC, target_step=1_000)).queue(10, JOB).steps(20, 1, 40)
    done = ended(JOB, 50, "COMPLETED", "0:0")
    one = explained(told.queue(55, done).log(56, "Training completed.").checkpoints(57, 40).at(120).say().attempts)
    said = "completed, not certain. It ended without an error at step 40 of 1,000: not finished. "
    assert said in one.sentence
    assert ("advice", "Nothing to do.") not in rows(one, "Evidence")


def requeued(*actions: Record) -> Explanation:
    told = Story().queue(10, JOB).steps(20, 1, 2).checkpoints(25, 10)
    again = replace(JOB, state="PENDING", submitted_at=BEGIN + 50, started_at=None, restarts=1)
    return explained(told.queue(55, again).at(120).say().attempts, actions=actions)


def test_a_requeue_is_called_one_and_is_not_retried_once_more() -> None:
    one = requeued()
    assert ": requeued, certain. The job was requeued; who did it is unknown. " in one.sentence
    why = "no restart is needed: it was requeued: its job is pending or runs again"
    assert rows(one, "Retries")[0] == ("decision", why)
    assert not [text for label, text in rows(one, "Retries") if label == "budget"]


def test_a_requeue_by_an_action_of_ours_says_by_whom() -> None:
    ours = action(expected=Expected(id="88", submitted_at=JOB.submitted_at))
    done = Record(action=ours, status="done", written_at=BEGIN + 49, done_at=BEGIN + 50)
    assert "The job was requeued by ana with trainmon-tui. " in requeued(done).sentence
    of_another = replace(done, action=action(expected=Expected(submitted_at=7.0)))
    of_other_job = replace(done, action=replace(ours, job="prod/89"))
    for other in (of_another, of_other_job, replace(done, status="refused")):
        assert "who did it is unknown" in requeued(other).sentence


@pytest.mark.parametrize("state", ["NODE_FAIL", "TIMEOUT", "PREEMPTED"])
def test_a_job_that_slurm_ended_is_not_said_to_have_exited_with_0(state: str) -> None:
    told = Story().queue(10, JOB).steps(20, 1, 2).queue(55, ended(JOB, 50, state, "0:0")).at(120).say()
    assert ("22:14:10", f"ended: {state}, last step 2") in rows(explained(told.attempts), "Timeline")


def test_who_cancels_a_run_that_hangs_is_not_told_that_nothing_needs_a_repair() -> None:
    told = Story().queue(10, JOB).steps(20, 1, 2).queue(55, ended(JOB, 50, "CANCELLED", "0:15")).at(120).say()
    (stopped,) = told.attempts
    assert "It hung" not in explained((stopped,)).sentence
    assert rows(explained((stopped,)), "Evidence")[-1][1].startswith("Nothing to fix.")
    hung = explained((replace(stopped, hung_s=100.0, hung_since=BEGIN + 30),))
    assert "Ctrl-C, scancel, or a closed terminal. It hung for 2m." in hung.sentence
    assert rows(hung, "Evidence")[-1] == ("advice", "Find out why it hung before you start it again.")


def test_a_checkpoint_of_an_attempt_whose_start_is_not_known_is_not_said_to_be_of_an_earlier_one() -> None:
    old = replace(story()[0], started_at=None, first_step=None, first_step_at=None, resumed_from=None)
    assert ("committed", "step 20") in rows(explained((old,)), "Checkpoints")


def test_an_attempt_that_goes_on_has_no_cause_yet() -> None:
    one = explained(story(), 1)
    assert one.sentence == "Attempt 88.1 of llm is still running at step 22, for 30s."
    assert rows(one, "Evidence") == [("", "The attempt is still running.")]
    assert rows(one, "Retries")[0] == ("decision", "none: it is still running")


def test_an_end_whose_cause_is_not_known_is_not_explained_away() -> None:
    first, _ = story()
    assert first.end is not None
    one = explained((replace(first, retry_decision=None, end=replace(first.end, cause=None)),))
    assert "after 50s. The cause is not known. Cost: " in one.sentence
    assert rows(one, "Evidence")[-2:] == [(" -1", EXITED), ("", "These are the last lines. None proves the cause.")]
    assert rows(one, "Retries")[0] == ("decision", "none: its cause is not known")
    lost = replace(first, end=replace(first.end, source="lost", log_tail=None))
    assert explained((lost,)).sentence.endswith("Nothing reported its end: the time is when it was last seen.")
    assert ("", "No line of its log is recorded.") in rows(explained((lost,)), "Evidence")


def test_what_a_look_at_the_ranks_has_shown_is_on_the_page_and_says_if_the_attempt_went_on() -> None:
    first, *others = story()
    look = RankLook(
        source="flight-recorder", at=BEGIN + 45, summary="rank 3 (n1 GPU 3) never entered ALLREDUCE 9", ranks=(3,),
        step=30, lines=("ALLREDUCE at train.py:7 step: ranks 0-2",), advice="Look at its node.",
    )  # fmt: skip
    ranks = RankMap(launcher="torchrun", ranks=4, nodes={"n1": {rank: (rank,) for rank in range(4)}})
    one = explained((replace(first, looks=(look,), ranks=ranks), *others))
    assert rows(one, "Ranks") == [
        ("PyTorch dump", look.summary),
        ("", "seen at 2023-11-14 22:14:05 UTC"),
        ("", "ALLREDUCE at train.py:7 step: ranks 0-2"),
        ("advice", "Look at its node."),
    ]
    (section,) = [section for section in page(one) if section.title == "Ranks"]
    assert section.rows[0].link == ("node", "n1/3")
    told = brief(one.attempt, [one.attempt], (), RetryPolicy())
    assert any(line.startswith(f"by: {look.summary}; ") for line in told)
    seen = f"Seen by PyTorch's flight recorder: {look.summary}. Cost: "
    assert seen in one.sentence
    early = replace(first, looks=(replace(look, step=20),))
    assert "Seen by" not in explained((early, *others)).sentence
    assert not any(look.summary in line for line in brief(early, [early], (), RetryPolicy()))
    assert rows(explained((early, *others)), "Ranks")[1][1].endswith("; it went on to step 30")
    assert not any(section.title == "Ranks" for section in page(explained(story())))


def test_the_first_step_of_an_attempt_whose_log_was_read_late_came_before_its_end() -> None:
    """A job may end before its log is found, and Slurm cuts the fraction of a second off its end."""
    failed = ended(JOB, 50, "FAILED", "1:0")
    told = Story().gpus(-50).queue(10, JOB).steps(50.4, 1, 2, 3).queue(51, failed).log(56).checkpoints(57)
    assert rows(explained(told.attempts), "Timeline")[-2:] == [
        ("22:14:10", "first step before the end: 1"),
        ("22:14:10", "ended: FAILED, exit code 1, last step 3"),
    ]


def test_the_first_step_says_so_if_its_line_has_no_time() -> None:
    told = Story().gpus(-50).queue(10, JOB)
    plain = STEP.replace(" [2025-08-01 07:19:37]", "").format(1)
    shown = rows(explained(told.log(20, plain).attempts), "Timeline")
    assert shown[-1] == ("22:13:40", "first step read: 1")


def test_everything_that_happened_is_on_one_clock() -> None:
    fired = Alert(
        id="a1", rule="run-dead", subject="llm", severity="critical", summary="llm has died", since=BEGIN + 51,
        found_at=BEGIN + 55, fired_at=BEGIN + 55, run="llm", phase="resolved", resolved_at=BEGIN + 95,
        acknowledged_by="ana", acknowledged_at=BEGIN + 58,
    )  # fmt: skip
    requeued = Record(action=action("r1", requested_at=BEGIN + 59, run="llm"), status="done", written_at=BEGIN + 60)
    late = replace(fired, id="a2", fired_at=BEGIN + 99, acknowledged_at=None)
    one = explained(story(), alerts=(late, fired), actions=(requeued,))
    assert rows(one, "Timeline") == [
        ("2023-11-14", ""),
        ("22:12:20", "queued"),
        ("22:13:20", "started on n1"),
        ("22:13:37", "first step before this checkpoint: 1"),
        ("22:13:37", "last committed checkpoint, step 20"),
        ("22:14:10", "ended: FAILED, exit code 1, last step 30"),
        ("22:14:15", "critical run-dead: llm has died"),
        ("22:14:18", "alert run-dead llm acknowledged by ana"),
        ("22:14:20", "Requeue job 88 of video-2b: done, “its node is slow” by ana@laptop"),
        ("22:14:30", "the next attempt started"),
    ]


def test_the_age_in_a_summary_counts_from_when_the_alert_was_last_found() -> None:
    xid = Alert(
        id="a1", rule="xid", subject="n1/3", severity="warning", summary="Xid 79 on GPU 3, 2m ago", since=BEGIN + 40,
        found_at=BEGIN + 160, fired_at=BEGIN + 40, node="n1",
    )  # fmt: skip
    lost = replace(xid, id="a2", rule="gpu-lost", summary="GPU 3 is lost")
    shown = [text for _, text in rows(explained(story(), alerts=(xid, lost)), "Timeline")]
    assert "warning xid: Xid 79 on GPU 3, at about Nov 14 22:13 UTC" in shown
    assert "warning gpu-lost: GPU 3 is lost" in shown


def test_of_a_flood_of_alerts_the_middle_is_counted_and_the_attempt_itself_is_whole() -> None:
    one = Alert(
        id="a",
        rule="gpu-hot",
        subject="n1/0",
        severity="warning",
        summary="hot",
        since=BEGIN,
        found_at=BEGIN,
        node="n1",
    )
    flood = tuple(replace(one, id=f"a{number}", fired_at=BEGIN + 40 + number / 10) for number in range(80))
    shown = rows(explained(story(), alerts=flood), "Timeline")
    assert [text for _, text in shown].count("warning gpu-hot: hot") == 50
    assert "alerts and actions that are left out: 30" in [text for _, text in shown]
    assert {"queued", "started on n1", "the next attempt started"} <= {text for _, text in shown}


def test_evidence_is_shown_with_the_lines_around_it_and_their_numbers() -> None:
    shown = rows(explained(story()), "Evidence")
    assert shown[0] == ("log", "login1:/fsx/88.out")
    assert shown[1][0] == " -5"
    assert shown[2:6] == [(" -4", DIED[0]), (">-3", DIED[1]), (">-2", OOM), (" -1", EXITED)]
    assert shown[6][0] == "advice"


def test_one_cause_of_another_attempt_that_is_not_known_is_one() -> None:
    first, second = story()
    assert first.end is not None
    unknown = replace(first, end=replace(first.end, cause=None))
    said = dict(rows(explained((unknown, second), 1), "Traceability"))["retry history"]
    assert said == "✗ Set log in [[run]], or keep the logs: the cause of another attempt is not known."


def test_of_attempts_that_began_at_once_the_next_one_is_always_the_same() -> None:
    first, second = story()
    twins = [replace(second, attempt_id=f"prod/{number}.0") for number in (90, 89)]
    following = [explained((first, *order)).following for order in (twins, twins[::-1])]
    assert [one and one.attempt_id for one in following] == ["prod/89.0", "prod/89.0"]


def test_an_attempt_whose_log_is_still_to_be_read_is_said_to_have_ended() -> None:
    first, _ = story()
    assert first.end is not None
    ending = replace(first, end=None, reported_end=replace(first.end, cause=None))
    one = explained((ending,))
    assert one.sentence == (
        "Attempt 88 of llm ended at 2023-11-14 22:14:10 UTC, after 50s. The end of its log and its last checkpoint are "
        "awaited, then its cause is determined."
    )
    assert rows(one, "Evidence") == [("", "The end of its log and its last checkpoint are awaited.")]
    assert rows(one, "Retries")[0] == ("decision", "none: its cause is not known yet")


def test_the_budget_and_the_attempts_before_it_are_shown() -> None:
    shown = rows(explained(story()), "Retries")
    assert shown[0][0] == "decision"
    assert shown[0][1].startswith("a restart helps only after a change: cuda-oom: a retry needs a change of the ")
    assert shown[1:] == [("budget", "retries used after cuda-oom: 0 of 1"), ("before it", "no attempt is known")]
    assert rows(explained(story(), 1), "Retries")[1] == ("before it", "88: cuda-oom after 50s, steps 1 to 30, 10 lost")


def test_secrets_and_control_characters_never_reach_a_page() -> None:
    secret = "train --token=hf_abcdefghijklmnopqrstuvwxyz012345\x1b[31m"
    one = replace(story()[0], command=secret)
    acted = Record(action=action("r1", requested_at=BEGIN + 20, run="llm", why=secret), status="done")
    found = explained((one,), actions=(acted,))
    text = str(page(found)) + str(found.timeline)
    assert "hf_abcdefghijklmnopqrstuvwxyz012345" not in text
    assert "\\x1b" not in text


# ---- where the ranks ran ---------------------------------------------------------------------------------------------

RANKS = RankMap(launcher="torchrun", ranks=16, nodes={"n1": {3: (3,)}, "n2": {9: (1,)}})


def failed_on(*lines: str) -> tuple[Explanation, str]:
    """The explanation of an attempt with these last lines and ranks, and what a message says of it."""
    told = Story().gpus(-50).queue(10, JOB).steps(20, 1, 2, 3)
    told.queue(50, ended(JOB, 50, "FAILED", "1:0")).log(56, *lines).checkpoints(57, 10)
    one = replace(told.at(120).say().attempt, ranks=RANKS)
    said = brief(one, [one], (), RetryPolicy())
    return explained((one,)), next(line for line in said if line.startswith("by: "))


def test_the_evidence_and_a_message_say_where_the_rank_ran_that_a_line_names() -> None:
    one, said = failed_on("[rank9]: Traceback (most recent call last):", f"[rank9]: {OOM}")
    (place,) = (row for section in page(one) for row in section.rows if row.label == "rank")
    assert (place.text, place.link) == ("rank 9 (n2 GPU 1)", ("node", "n2/1"))
    assert said == f"by: rank 9 (n2 GPU 1): {OOM}"
    assert all("n2" not in line.text for line in one.context), "the lines of the log stay as they are"


def test_the_rank_of_a_line_is_named_whatever_its_error_says() -> None:
    error = "RuntimeError: The size of tensor a (3) must match the size of tensor b (4)"
    assert failed_on("[rank9]: Traceback (most recent call last):", f"[rank9]: {error}")[1] == (
        f"by: rank 9 (n2 GPU 1): {error}"
    )


def test_the_number_of_a_process_of_a_node_is_no_rank() -> None:
    one, said = failed_on("[default3]:Traceback (most recent call last):", f"[default3]:{OOM}")
    assert "rank" not in [label for label, _ in rows(one, "Evidence")]
    assert said == f"by: rank 3: {OOM}"


def test_an_attempt_keeps_its_ranks_in_the_ledger() -> None:
    one = replace(story()[0], ranks=RANKS)
    assert msgspec.json.decode(msgspec.json.encode(one), type=type(one)) == one
