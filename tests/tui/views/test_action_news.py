"""What became of actions, from two States: said once, in words, the bad before the good."""

from __future__ import annotations

from msgspec.structs import replace

from tests.tui.states.plans import record
from tests.tui.states.states import NASTY, NOW
from trainmon.model import Milestone, Record, State
from tui.views.news import AT_ONCE, Toast, action_toasts, in_flight, notice_toasts


def of(*records: Record) -> State:
    return State(at=NOW, actions={one.action.id: one for one in records})


def words(before: State | None, after: State) -> list[str]:
    return [f"{toast.title}: {toast.text}" for toast in action_toasts(before, after)]


def test_what_is_requested_makes_no_toast_and_what_is_done_does() -> None:
    assert action_toasts(of(), of(record("asked"))) == []
    assert action_toasts(of(record("asked")), of(record("done"))) == [Toast("Save llm-70b", "done")]
    assert action_toasts(of(record("done")), of(record("done"))) == []


def test_the_first_state_makes_no_toast_of_what_was_before() -> None:
    assert action_toasts(None, of(record("failed", outcome="no space left"))) == []


def test_what_another_program_had_done_before_this_one_started_makes_no_toast() -> None:
    done = record("done")
    later = replace(of(done), started_at=done.action.requested_at + 1.0)
    assert action_toasts(replace(of(), started_at=later.started_at), later) == []
    assert action_toasts(of(), of(done)) == [Toast("Save llm-70b", "done")]


def test_a_failure_and_a_refusal_are_shown_with_their_reason() -> None:
    failed = action_toasts(of(record()), of(record("failed", outcome="/fsx/save: permission denied")))
    refused = action_toasts(of(record()), of(record("refused", outcome="job 88 was requeued meanwhile (restart 1)")))

    assert failed == [Toast("Save llm-70b", "failed: /fsx/save: permission denied", "error")]
    assert refused == [Toast("Save llm-70b", "refused: job 88 was requeued meanwhile (restart 1)", "warning")]


def test_marks_are_shown_as_they_come_with_how_long_they_took() -> None:
    taken = Milestone("the file is taken", NOW + 13.0)
    saved = Milestone("checkpoint 81,300 is committed", NOW + 96.0)
    before = of(record("done", Milestone("the file is taken"), Milestone(saved.name)))

    assert words(before, of(record("done", taken, Milestone(saved.name)))) == [
        "Save llm-70b: the file is taken after 12s"
    ]
    assert words(of(record("done", taken, Milestone(saved.name))), of(record("done", taken, saved))) == [
        "Save llm-70b: checkpoint 81,300 is committed after 95s"
    ]


def test_what_does_not_follow_is_a_warning_once() -> None:
    missed = Milestone("a checkpoint is committed", missed="no checkpoint was committed within 20m")
    after = of(record("done", missed))

    assert action_toasts(of(record("done", Milestone(missed.name))), after) == [
        Toast("Save llm-70b", "no checkpoint was committed within 20m", "warning")
    ]
    assert action_toasts(after, of(record("done", missed, settled_at=NOW + 9.0))) == []


def test_an_action_that_could_not_be_written_down_says_so() -> None:
    note = "not recorded in the ledger: the ledger does not answer"

    assert words(of(record()), of(record("done", note=note))) == ["Save llm-70b: done", f"Save llm-70b: {note}"]


def test_a_plan_over_fifty_rows_shows_the_worst_and_counts_the_rest() -> None:
    many = [record("failed" if n == 40 else "done") for n in range(50)]
    named = [replace(one, action=replace(one.action, id=str(n))) for n, one in enumerate(many)]
    toasts = action_toasts(of(), of(*named))

    assert len(toasts) == AT_ONCE
    assert toasts[0].severity == "error"
    assert toasts[-1].text == "46 more action changes"


def test_strangers_words_are_plain() -> None:
    (toast,) = action_toasts(of(record()), of(record("failed", outcome=NASTY)))

    assert toast.text.isprintable()


def test_in_flight_is_what_is_requested_and_not_known_to_be_done() -> None:
    assert in_flight(State()) == []
    assert in_flight(of(record("done"))) == []
    assert in_flight(of(record("asked"))) == [record("asked")]
    requested = record("asked")
    anew = replace(of(requested), started_at=requested.action.requested_at + 60)
    assert in_flight(anew) == [], "a program that was ended in the middle of it does it no more"


def test_a_notice_is_shown_once() -> None:
    state = State(notice="The probes run as a step of your job 7.")
    assert [toast.text for toast in notice_toasts(State(), state)] == [state.notice]
    assert [toast.text for toast in notice_toasts(None, state)] == [state.notice]
    assert list(notice_toasts(state, replace(state, at=1.0))) == []
