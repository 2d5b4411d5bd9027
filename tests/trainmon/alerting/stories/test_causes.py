"""A run dies: its first message goes at once, and one follow-up names the cause when that is known."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.stories.story import Story, mail, phone, rule
from trainmon.alerting.notify.message import render
from trainmon.alerting.pipeline.routing import DueAlert, with_causes
from trainmon.model import Attempt, AttemptEnd, AttemptsRestored, Classification, Delivered, Delivery, Evidence, Notice

RUN = "run:llm"
OOM = Classification(
    cause="cuda-oom", family="resources", retry="after-change", confidence="high", fingerprint="cuda-oom:1", rank="3",
    evidence=(Evidence(text="torch.OutOfMemoryError: CUDA out of memory", line=-1),), exception="OutOfMemoryError",
)  # fmt: skip
NODE_FAIL = replace(
    OOM, cause="node-fail", family="hardware", confidence="low", rank=None, exception=None,
    evidence=(Evidence(text="n2: DOWN in Slurm (Not responding)"),),
)  # fmt: skip


def end(story: Story, cause: Classification | None = OOM, **facts: Any) -> AttemptsRestored:
    """The end of the attempt of the run, now, with what is known of it."""
    now = story.clock.wall
    known = AttemptEnd(at=now, source="queue", noticed_at=now, cause=cause, **facts)
    return AttemptsRestored((
        Attempt(
            attempt_id="prod/88.0@20260101T000000", run_id="llm", cluster="prod", job_id="88", nodes=("n1", "n2"),
            gpus=8, started_at=now - 7_200, seen_at=now, first_step=1, last_step=1_000, last_committed_step=900,
            has_checkpoints=True, start_was_watched=True, end=known,
        ),
    ))  # fmt: skip


def text(story: Story, *notices: Notice) -> str:
    message = render(notices, story.clock.wall)
    return f"{message.title}\n{message.body}"


def test_the_first_message_goes_at_once_and_one_follow_up_names_the_cause() -> None:
    with Story(rule("run-dead"), phone(), mail()) as story:
        story.at(10).wrong("run-dead", RUN).at(11)
        first = story.expect("fire", RUN, on=["phone", "mail"])
        assert "cause:" not in text(story, first)
        story.at(40).hear(end(story)).at(41)
        follow_up = story.expect("cause", RUN, on=["phone", "mail"], reason="its cause is known")
        assert follow_up.severity == "info", "nobody is woken twice"
        assert follow_up.group == first.group
        assert text(story, follow_up).splitlines()[:5] == [
            "CODE RED llm: run-dead",
            "cause: cuda-oom (OutOfMemoryError), certain. A GPU ran out of memory.",
            "lost: 100 steps, 1.6 GPU hours of 16.0 GPU hours",
            "by: rank 3: torch.OutOfMemoryError: CUDA out of memory",
            "decision: a restart helps only after a change; cuda-oom: a retry needs a change of the batch size, "
            "activation checkpointing or the placement first",
        ]  # fmt: skip
        assert render([follow_up], 0.0).threads == (first.key,)
        story.at(400)


def test_what_else_is_due_at_that_moment_is_sent_and_the_follow_up_waits() -> None:
    with Story(rule("run-dead"), phone(), mail()) as story:
        story.at(10).wrong("run-dead", RUN).at(11)
        story.expect("fire", RUN, on=["phone", "mail"])
        state = story.at(20).state
        (alert,) = (one for one in state.alerts.values() if one.rule == "run-dead")
        known = {one.attempt_id: one for one in end(story).attempts}
        state, now = replace(state, attempts=known), story.clock.wall
        due = [DueAlert(alert, "repeat", why, ("phone",), now) for why in ("not acknowledged", "it flaps")]
        assert with_causes(due, state.alerts, state, story.routing, now) == due
        assert [one.kind for one in with_causes([], state.alerts, state, story.routing, now)] == ["cause"]


def test_what_gets_worse_as_its_cause_is_known_is_one_message() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN, "warning").at(11).expect("fire", RUN)
        story.at(40).hear(end(story)).wrong("run-dead", RUN, "critical").at(41)
        assert "cause: cuda-oom" in text(story, story.expect("worse", RUN))
        story.at(400).expect_nothing_else()


def test_a_cause_is_sent_with_the_advice_of_the_same_moment() -> None:
    """The rules are evaluated less often than the State changes."""
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.hear(end(story)).at(11.4, tick=0.4)
        assert story.alert("run-dead").cause_of is None
        story.at(12.4).expect("cause", RUN)


def test_an_exception_is_named_by_its_message_and_not_by_its_place() -> None:
    shown = tuple(Evidence(text=text, line=-1) for text in ('File "train.py", line 7, in main', "OutOfMemoryError: 3"))
    with Story(rule("run-dead")) as story:
        story.at(10).hear(end(story, replace(OOM, evidence=shown))).wrong("run-dead", RUN).at(11)
        assert "by: rank 3: OutOfMemoryError: 3" in text(story, story.expect("fire", RUN))


def test_a_message_that_names_the_cause_needs_no_follow_up() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).hear(end(story)).wrong("run-dead", RUN).at(11)
        first = story.expect("fire", RUN)
        assert "cause: cuda-oom (OutOfMemoryError), certain" in text(story, first)
        story.at(60).restart(30.0).at(400)


@pytest.mark.parametrize("down_for", [0.0, 600.0])
def test_a_restart_sends_no_second_follow_up(down_for: float) -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        known = end(story)
        story.hear(known).at(12).expect("cause", RUN)
        story.restart(down_for).hear(known).at(story.elapsed + 60)


def test_a_cause_that_becomes_known_while_nobody_watches_is_sent_after_the_restart() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        known = end(story)
        story.restart(300.0).hear(known).at(story.elapsed + 5).expect("cause", RUN)


def test_two_alerts_about_one_end_get_one_follow_up() -> None:
    with Story(rule("run-dead"), rule("ended-early")) as story:
        story.at(10).wrong("ended-early", RUN).at(11).expect("fire", RUN)
        story.wrong("run-dead", RUN).at(12).expect("fire", RUN)
        story.well().wrong("ended-early", RUN).at(100)
        story.expect("resolve", RUN)
        story.hear(end(story)).at(102).expect("cause", RUN)
        story.at(300)


def test_a_restart_that_is_the_only_message_about_an_end_names_its_cause() -> None:
    with Story(rule("restarted"), rule("run-dead")) as story:
        (before,) = end(story.at(9)).attempts
        story.at(10).wrong("restarted", RUN, "info", event=True, since=10).at(11).expect("event", RUN)
        again = replace(end(story, NODE_FAIL).attempts[0], attempt_id="again", started_at=story.clock.wall - 0.5)
        follow_up = story.hear(AttemptsRestored((before, again))).at(12).expect("cause", RUN)
        assert "restarted\ncause: cuda-oom (OutOfMemoryError), certain" in text(story, follow_up)
        first = story.wrong("run-dead", RUN).at(14).expect("fire", RUN)
        assert "cause: node-fail" in text(story, first)
        story.at(400)


def test_a_restart_after_an_end_on_purpose_needs_no_cause() -> None:
    with Story(rule("restarted")) as story:
        story.at(10).wrong("restarted", RUN, "info", event=True, since=10).at(11).expect("event", RUN)
        story.hear(end(story, replace(OOM, cause="requeued"))).at(100)


def test_the_same_end_has_the_same_key_whoever_tells_its_cause() -> None:
    keys = set()
    for repeats in (0, 1):
        with Story(rule("run-dead"), repeat=100.0) as story:
            story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
            known = end(story)
            if repeats:
                story.at(112).expect("repeat", RUN)
            story.hear(known).at(story.elapsed + 2)
            keys.add(story.expect("cause", RUN).key)
    assert len(keys) == 1, "the outbox, and a receiver, know it by that"


def test_a_cause_is_named_together_with_the_advice_that_rests_on_it() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN, advice="its cause is not known yet").at(11).expect("fire", RUN)
        story.wrong("run-dead", RUN, advice="use a smaller batch").hear(end(story)).at(11.4).expect_nothing_else()
        assert story.at(12).expect("cause", RUN).alerts[0].advice == "use a smaller batch"


def test_the_line_of_the_exception_is_shown_and_a_cause_that_needs_a_change_says_which() -> None:
    missing = replace(
        OOM, cause="import-error", exception="ModuleNotFoundError", rank=None, advice="Install the package.",
        evidence=(Evidence(text='File "train.py", line 1'), Evidence(text="ModuleNotFoundError: No module named 'a'")),
    )  # fmt: skip
    with Story(rule("run-dead")) as story:
        story.at(10).hear(end(story, missing)).wrong("run-dead", RUN).at(11)
        body = text(story, story.expect("fire", RUN))
        assert "by: ModuleNotFoundError: No module named 'a'" in body
        assert "decision: a restart helps only after a change; import-error: Install the package" in body


def test_a_cause_that_is_not_known_is_not_told() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.hear(end(story, None)).at(30).hear(end(story, replace(OOM, cause="unknown"))).at(200)
        assert story.alert("run-dead").cause_of is None


def test_the_end_of_the_log_is_awaited_for_a_minute_because_it_decides_about_the_loss() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.hear(end(story, awaits_log=True)).at(65).expect_nothing_else()
        story.at(75).expect("cause", RUN)


def test_the_cause_of_the_attempt_before_is_not_named_while_the_end_of_the_last_one_is_read() -> None:
    with Story(rule("run-dead")) as story:
        (before,) = end(story).attempts
        last = replace(
            before, attempt_id="prod/89.0@20260101T000000", started_at=story.clock.wall + 5.0, end=None,
            reported_end=AttemptEnd(at=story.clock.wall + 30.0, source="queue", noticed_at=story.clock.wall + 30.0),
        )  # fmt: skip
        story.hear(AttemptsRestored((before, last))).at(40).wrong("run-dead", RUN).at(41)
        assert "cause:" not in text(story, story.expect("fire", RUN))
        known = AttemptEnd(at=last.reported_end.at, source="queue", noticed_at=0.0, cause=NODE_FAIL)  # type: ignore[union-attr]
        story.hear(AttemptsRestored((replace(last, reported_end=None, end=known),))).at(50)
        assert "cause: node-fail, not certain" in text(story, story.expect("cause", RUN))


def test_an_older_end_and_another_run_explain_nothing() -> None:
    with Story(rule("run-dead")) as story:
        older = end(story)
        other = AttemptsRestored((replace(older.attempts[0], attempt_id="other", run_id="video"),))
        story.at(1_000).hear(older, other).wrong("run-dead", RUN).at(1_001).expect("fire", RUN)
        story.at(1_200)


def test_a_run_that_trains_again_before_its_cause_is_known_gets_its_follow_up() -> None:
    with Story(rule("run-dead"), phone(), mail(fallback=True)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        known = end(story)
        story.well().at(100).expect("resolve", RUN)
        follow_up = story.hear(known).at(102).expect("cause", RUN, on=["phone"])
        assert text(story, follow_up).startswith("CODE RED llm: run-dead\ncause: cuda-oom")
        story.at(3_600, tick=10)


def test_what_is_muted_or_was_never_told_gets_no_follow_up() -> None:
    with Story(rule("run-dead"), phone()) as story:
        story.mute(3_600, run="llm").at(10).wrong("run-dead", RUN).hear(end(story)).at(100)
    with Story(rule("run-dead"), mail("critical", runs=("video",))) as story:
        story.at(10).wrong("run-dead", RUN).hear(end(story)).at(100)


def test_while_the_first_message_waits_the_cause_goes_into_it() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).at(11)
        first = story.expect("fire", RUN)
        second = story.hear(end(story)).at(12).expect("cause", RUN)
        message = render([first, second], story.clock.wall)
        assert (message.title, message.severity) == ("CODE RED llm: run-dead", "critical")
        assert message.body.splitlines()[1].startswith("cause: cuda-oom")
        assert message.body.count("cause: cuda-oom") == 1
        assert message.threads == (first.key, second.key), "a follow-up to either names its notice"


def test_a_node_that_fails_is_named_and_what_is_not_certain_says_so() -> None:
    with Story(rule("run-dead")) as story:
        story.at(10).wrong("run-dead", RUN).hear(end(story, NODE_FAIL, scheduler_state="NODE_FAIL")).at(11)
        body = text(story, story.expect("fire", RUN))
        assert "cause: node-fail, not certain." in body
        assert "by: n2; n2: DOWN in Slurm (Not responding)" in body
        assert "decision: a restart helps only on other nodes; node-fail on n2" in body


def test_a_delivery_by_a_fallback_of_the_follow_up_does_not_count_as_news() -> None:
    with Story(rule("run-dead"), phone(), mail(fallback=True)) as story:
        story.at(10).wrong("run-dead", RUN).at(11).expect("fire", RUN)
        story.hear(end(story)).at(12).expect("cause", RUN, on=["phone"])
        sent = Delivery(channel="phone", kind="cause", state="sent", at=story.clock.wall)
        story.hear(Delivered((story.alert("run-dead").id,), sent)).at(100)
        story.well().at(300).expect("resolve", RUN, on=["phone"])
