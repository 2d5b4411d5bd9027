"""How long a leader has made no progress, by the clock of who stands by."""

from __future__ import annotations

from trainmon.alerting.notify.delivery.election import CHECK_EVERY, CLAIM_EVERY, GAP, LEASE, LeaderWatch, took_over
from trainmon.ledger.lease import Holder, LeaderNote
from trainmon.lib import Seconds

NOTE = LeaderNote(
    holder=Holder(pid=4711, host="bastion", name="theirs"), program="alerts-only", started_at=0.0, written_at=0.0
)


def silent(
    watch: LeaderWatch, sign: object, *, start: Seconds, seconds: Seconds, every: Seconds = CLAIM_EVERY
) -> Seconds:
    """After looking for so long."""
    looks = range(int(seconds / every) + 1)
    return [watch.check(sign, start + every * number) for number in looks][-1]


def test_one_that_goes_on_is_never_silent_for_long() -> None:
    watch = LeaderWatch()
    assert all(silent(watch, minute, start=minute * 60.0, seconds=58) < 60 for minute in range(60))
    assert watch.check(61, 3_660.0) == 0.0


def test_one_that_stands_still_is_taken_over_from_within_a_minute() -> None:
    """On the ledger of a network file system it may have renewed 10 s before, and is seen to be stale a look later."""
    watch = LeaderWatch()
    passed = next(second for second in range(0, 100, int(CLAIM_EVERY)) if watch.check("same", second) >= LEASE)
    assert passed + 2 * CLAIM_EVERY <= 45
    assert 4 * CHECK_EVERY <= LEASE, "a leader that is late once is no hung one"


def test_while_we_were_stopped_ourselves_nothing_is_known_of_the_other() -> None:
    watch = LeaderWatch()
    assert silent(watch, "same", start=0.0, seconds=20) == 20
    assert watch.check("same", 3_600.0) == 20 + GAP


def test_what_to_do_names_the_process() -> None:
    notice = took_over(NOTE, 44.0, 100.0, ("phone",))
    assert (notice.severity, notice.channels, notice.title) == (
        "warning", ("phone",), "A standby notifies: the leader hangs",
    )  # fmt: skip
    assert notice.lines[0].startswith("alerts-only (pid 4711 on bastion) did not evaluate its rules for 44s")
    assert "`kill -CONT 4711`" in notice.lines[1]


def test_one_that_wrote_nothing_down_is_reported_as_well() -> None:
    assert took_over(None, 44.0, 100.0, ("phone",)).lines[0].startswith("The leader did not evaluate its rules for 44s")
