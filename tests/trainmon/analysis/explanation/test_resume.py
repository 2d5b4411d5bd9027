"""From which checkpoint an attempt began, and whether that is the right one."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.explanation.pages import explained, rows, story


def test_a_resume_from_the_last_committed_checkpoint_is_as_expected() -> None:
    assert ("next attempt", "resumed from step 20, as expected") in rows(explained(story()), "Checkpoints")
    assert rows(explained(story(), 1), "Checkpoints")[0] == ("resumed from", "step 20, as expected")


def test_the_lineage_of_a_checkpoint_and_its_three_facts_are_separate() -> None:
    first, second = story()
    shown = rows(explained((first, second), 1), "Checkpoints")
    assert shown == [
        ("resumed from", "step 20, as expected"),
        ("", "written by attempt 88"),
        ("", "loading checkpoint from /fsx/ckpt at iteration 20"),
        ("committed", "step 20, by an earlier attempt"),
        ("trained", "to step 22 of 5,000"),
        ("evaluated", "No evaluation result is known."),
    ]
    inherited = replace(first, first_step=21)
    resumed = explained((inherited, second), 1).resumed
    assert resumed is not None
    assert resumed.written_by is None, "it only resumed from that checkpoint"


def test_a_resume_from_another_checkpoint_is_wrong_unless_the_loss_had_diverged() -> None:
    attempts = story(resumed_from=10)
    assert ("next attempt", "resumed from step 10: unexpected, it should be step 20") in rows(
        explained(attempts), "Checkpoints"
    )
    end = attempts[0].end
    assert end is not None
    assert end.cause is not None
    diverged = replace(attempts[0], end=replace(end, cause=replace(end.cause, cause="diverged")))
    rewound = rows(explained((diverged, attempts[1])), "Checkpoints")[-1]
    assert rewound[1] == "resumed from step 10; the loss had diverged, so an earlier checkpoint is right"


def test_without_a_named_checkpoint_only_steps_that_are_trained_again_are_wrong() -> None:
    first, second = (replace(one, resumed_from=None, resumed_words=None) for one in story())
    for step, words in ((30, "not logged; first step 30, as expected"), (15, ": unexpected, it should be step 20")):
        one = explained((first, replace(second, first_step=step)))
        assert rows(one, "Checkpoints")[-1][1].endswith(words)
    one = explained((first, replace(second, first_step=None)))
    assert rows(one, "Checkpoints")[-1] == ("next attempt", "not known, expected: step 20")


def test_steps_that_go_on_where_the_attempt_before_ended_are_not_called_expected() -> None:
    """No checkpoint of those steps is known: it may be in another directory."""
    first, second = (replace(one, resumed_from=None, resumed_words=None, last_committed_step=None) for one in story())
    goes_on = replace(second, first_step=(first.last_step or 0) + 1)
    assert rows(explained((first, goes_on)), "Checkpoints")[-1] == (
        "next attempt", f"not logged; first step {goes_on.first_step}, expected: the beginning",
    )  # fmt: skip


def test_a_checkpoint_that_was_committed_after_the_last_listing_is_the_right_one() -> None:
    first, second = story(resumed_from=25)
    late = replace(second, last_committed_step=25)
    assert rows(explained((first, late)), "Checkpoints")[-1][1] == "resumed from step 25, as expected"
    torn = rows(explained((first, second)), "Checkpoints")[-1][1]
    assert torn == "resumed from step 25: unexpected, it should be step 20"
    again = replace(second, resumed_from=None, first_step=20)
    assert rows(explained((first, again)), "Checkpoints")[-1][1].endswith("first step 20, as expected")


def test_a_run_that_began_from_another_model_begins_there_again() -> None:
    first, second = story(resumed_from=100_000)
    nothing = replace(first, last_committed_step=None, last_committed_at=None)
    shown = rows(explained((nothing, second)), "Checkpoints")[-1][1]
    assert shown == "resumed from step 100,000, expected: the beginning"


def test_checkpoints_that_are_named_by_epochs_prove_neither_a_wrong_resume_nor_lost_steps() -> None:
    epochs = tuple(replace(one, last_committed_step=2, counts_steps=False) for one in story())
    shown = rows(explained(epochs), "Checkpoints")
    assert shown[-1][1] == "resumed from step 20, expected: step 2"
    lost = "steps lost: not known, its checkpoints are named by epochs"
    assert ("trained", f"to step 30 of 5,000; {lost}") in shown
