"""Disks that fill: by their forecast, and by the checkpoints that come next."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.disks.scene import NOW, TB, Scene, sample, saved
from trainmon.alerting.rules.disks import CheckpointsDoNotFit, DiskForecast
from trainmon.analysis.disks import checkpoints_that_fit, fit
from trainmon.model import Allowance, Basis, Checkpoint, Forecast

FORECAST, FIT = DiskForecast(), CheckpointsDoNotFit()
HOUR = 3_600.0


def forecast(hours: float | None, **changes: Any) -> Forecast:
    """Full in so many hours, by a day of history without a deletion."""
    at = None if hours is None else NOW + hours * HOUR
    late = None if at is None else NOW + 1.5 * (at - NOW)
    usual = {"full_at": at, "basis": "nothing-deleted", "span": 86_400.0, "earliest": at, "latest": late, "fit": 0.97}
    return Forecast(**{**usual, **changes})


# ---- forecast --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hours", "severity"), [(30, None), (20, "warning"), (3, "critical"), (None, None)])
def test_a_disk_that_will_be_full(hours: float | None, severity: str | None) -> None:
    found = Scene().foretold(forecast(hours)).found(FORECAST)
    assert [finding.severity for finding in found.values()] == ([] if severity is None else [severity])


def test_what_is_reported_of_a_forecast() -> None:
    finding = Scene().saves(saved()).foretold(forecast(20)).only(FORECAST)
    assert finding.summary == "login1:/fsx will be full in 20h, assuming nothing is deleted; read 0s ago"
    assert finding.evidence == (
        "1d of history, R² 0.97; full in 20h at the earliest, in 1d6h at the latest",
        "55 TiB may still be written",
    )
    assert (finding.subject, finding.run, finding.node) == ("disk:login1:/fsx", "llm", "login1")


@pytest.mark.parametrize(
    ("basis", "cycles", "says"),
    [
        ("cycles", 9, "although files were deleted 9 times: what remains grows"),
        ("stopped", 4, "deletions seem to have stopped"),
    ],
)
def test_what_a_forecast_rests_on_is_reported(basis: Basis, cycles: int, says: str) -> None:
    assert says in Scene().foretold(forecast(3, basis=basis, cycles=cycles)).only(FORECAST).summary


def test_inodes_are_forecast_by_themselves() -> None:
    scene = Scene().foretold(forecast(3), "inodes_forecast")
    finding = scene.only(FORECAST)
    assert (finding.subject, finding.severity) == ("disk:login1:/fsx inodes", "critical")
    assert finding.summary.startswith("login1:/fsx will run out of inodes in 3h")


def test_a_quota_that_will_be_used_up() -> None:
    finding = Scene().foretold(forecast(3, of="quota")).only(FORECAST)
    assert finding.summary.startswith("login1:/fsx will use up its quota of bytes in 3h")


def test_too_little_history_reports_nothing_and_resolves_nothing() -> None:
    finding = Scene().foretold(forecast(3)).only(FORECAST)
    for young in (None, forecast(3, span=2 * HOUR), forecast(None, basis="cycles", cycles=2)):
        scene = Scene().foretold(young)
        assert scene.found(FORECAST) == {}
        assert scene.why_unknown(FORECAST, finding) == "there is not enough history of it yet"
    assert Scene().foretold(forecast(None)).why_unknown(FORECAST, finding) is None
    assert Scene().foretold(forecast(40)).why_unknown(FORECAST, finding) is None
    assert Scene().foretold(forecast(3)).lost("node:login1").why_unknown(FORECAST, finding) is not None


def test_where_checkpoints_are_saved_the_first_deletion_may_be_many_saves_away() -> None:
    scene = Scene().saves(saved(every=HOUR)).foretold(forecast(3, span=20 * HOUR))
    assert scene.found(FORECAST) == {}
    assert scene.foretold(forecast(3, span=25 * HOUR)).only(FORECAST)


def test_where_others_write_only_a_straight_growth_counts() -> None:
    for fits, latest, result in ((0.97, 5.0, True), (0.6, 5.0, False), (0.97, None, False), (0.97, 60.0, False)):
        scene = Scene().tell("login1", sample(filesystem="lustre"))
        late = None if latest is None else NOW + latest * HOUR
        found = scene.foretold(forecast(3, fit=fits, latest=late)).found(FORECAST)
        assert bool(found) is result
    shared = Scene().tell("login1", sample(filesystem="lustre")).foretold(forecast(3, fit=0.1, of="quota"))
    assert list(shared.found(FORECAST)) == ["disk:prod:/fsx"]


# ---- the next checkpoints --------------------------------------------------------------------------------------------


def room(free: int, **changes: Any) -> Scene:
    return Scene().tell("login1", sample(free_bytes=free)).saves(saved(**changes))


def test_two_that_fit_are_enough() -> None:
    assert room(2 * TB).found(FIT) == {}


def test_the_next_does_not_fit() -> None:
    finding = room(TB // 2).only(FIT)
    assert (finding.severity, finding.run, finding.subject) == ("critical", "llm", "disk:login1:/fsx")
    assert finding.summary == (
        "login1:/fsx has 466 GiB left: the next checkpoint of llm (931 GiB), due in 20m (at 14:06 UTC), does not fit;"
        " read 0s ago"
    )
    assert finding.evidence[0] == "recent checkpoints take up to 931 GiB; the next save begins in 20m (at 14:06 UTC)"


def test_the_one_after_the_next_does_not_fit() -> None:
    finding = room(3 * TB // 2).only(FIT)
    assert finding.severity == "warning"
    assert "the checkpoint after the next of llm (931 GiB), due in 50m (at 14:36 UTC), does not fit" in finding.summary


def test_of_several_runs_each_has_its_own_size() -> None:
    """The small one saves first, and fits; the message is not to say that of the large one."""
    scene = room(TB, at=NOW - 600)
    small = replace(saved(at=NOW - 1200).list[0], bytes=TB // 4)
    large = scene.state.runs["llm"]
    found = replace(saved(), list=(small,), bytes=TB // 4)
    other = replace(large, spec=replace(large.spec, name="sft"), checkpoints=found)
    scene.state = replace(scene.state, runs={"llm": large, "sft": other})
    assert "llm (931 GiB), due in 20m (at 14:06 UTC), does not fit after 1 earlier save; " in scene.only(FIT).summary
    scene.tell("login1", sample(free_bytes=TB // 5))
    assert "the next checkpoint of sft (233 GiB), due in 10m (at 13:56 UTC), does not fit; " in scene.only(FIT).summary


def test_a_run_that_keeps_few_makes_room_for_the_one_after_the_next() -> None:
    """Also just after a start, when no deletion was seen: its first steps are gone."""
    kept = tuple(replace(saved().list[0], step=step) for step in (400, 300, 200))
    few = Scene().tell("login1", sample(free_bytes=3 * TB // 2)).saves(replace(saved(), list=kept, every_steps=100))
    assert few.found(FIT) == {}
    assert few.tell("login1", sample(free_bytes=TB // 2)).only(FIT).severity == "critical"
    all_of_them = (*kept, replace(kept[0], step=100))
    few.tell("login1", sample(free_bytes=3 * TB // 2)).saves(replace(saved(), list=all_of_them, every_steps=100))
    assert ", if nothing is deleted; read" in few.only(FIT).summary


def test_nothing_is_waited_for_when_the_next_is_about_to_begin() -> None:
    assert not room(TB // 2).only(FIT).fires_at_once
    assert room(TB // 2, at=NOW - 1700).only(FIT).fires_at_once
    assert not room(3 * TB // 2, at=NOW - 1700).only(FIT).fires_at_once


def test_one_that_is_overdue_is_due_now() -> None:
    assert "(931 GiB), due now, does not fit" in room(TB // 2, at=NOW - 9000).only(FIT).summary


def test_without_a_rhythm_the_time_is_not_reported() -> None:
    assert "(931 GiB) does not fit" in room(TB // 2, every=None).only(FIT).summary


def test_what_is_being_written_needs_only_the_rest_of_its_room() -> None:
    writing = Checkpoint(
        step=200, state="writing", path="/fsx/ckpt/200", layout="dcp", bytes=8 * TB // 10, began_at=NOW - 60
    )
    done = saved().list
    scene = Scene().tell("login1", sample(free_bytes=3 * TB // 10))
    found = saved()
    scene.saves(replace(found, list=(writing, *done)))
    finding = scene.only(FIT)
    assert finding.severity == "warning"
    assert "the checkpoint after the next" in finding.summary
    scene.tell("login1", sample(free_bytes=TB // 10))
    assert "the next checkpoint of llm (931 GiB), which is being written, does not fit" in scene.only(FIT).summary


def test_the_quota_and_the_usable_share_bound_the_room() -> None:
    scene = room(20 * TB).allowed(Allowance(owner="user me", used_bytes=9 * TB, hard_bytes=19 * TB // 2))
    assert "has 466 GiB of its quota left: the next checkpoint" in scene.only(FIT).summary
    assert room(20 * TB).settled(usable=0.8).tell("login1", sample(free_bytes=205 * TB // 10)).only(FIT).severity == (
        "critical"
    )


def test_what_is_pruned_again_and_again_makes_room_for_the_one_after_the_next() -> None:
    scene = room(3 * TB // 2).foretold(forecast(None, basis="cycles", cycles=6))
    assert scene.found(FIT) == {}
    assert room(3 * TB // 2).foretold(forecast(30, basis="cycles", cycles=6)).found(FIT) == {}
    assert room(3 * TB // 2).foretold(forecast(3, basis="cycles", cycles=6)).only(FIT)
    assert room(3 * TB // 2).foretold(forecast(None, basis="stopped", cycles=6)).only(FIT)
    assert room(TB // 2).foretold(forecast(None, basis="cycles", cycles=6)).only(FIT).severity == "critical"


@pytest.mark.parametrize("verdict", ["finished", "stopped", "dead", "idle"])
def test_a_run_that_saves_no_more_needs_no_room(verdict: str) -> None:
    scene = Scene().tell("login1", sample(free_bytes=1)).saves(saved(), verdict=verdict)
    assert scene.found(FIT) == {}


def test_two_runs_share_the_room() -> None:
    scene = room(3 * TB // 2)
    other = replace(scene.state.runs["llm"], spec=replace(scene.state.runs["llm"].spec, name="vlm"))
    scene.state = replace(scene.state, runs={**scene.state.runs, "vlm": other})
    found = fit(scene.state.disks["login1:/fsx"], scene.state, 2, NOW)
    assert found is not None
    assert found.first is not None
    assert (found.fitting, found.first.run, found.first.number) == (1, "vlm", 1)
    assert scene.only(FIT).severity == "critical"


def test_checkpoints_that_are_not_listed_yet_resolve_nothing() -> None:
    finding = room(TB // 2).only(FIT)
    assert room(TB // 2).saves(None).why_unknown(FIT, finding) == "the checkpoints of llm have not been listed yet"
    assert room(2 * TB).why_unknown(FIT, finding) is None
    assert room(TB // 2).lost("node:login1").why_unknown(FIT, finding) is not None


def test_how_many_fit_is_reported_for_the_disk_that_holds_them() -> None:
    scene = Scene().saves(saved()).tell("login1", sample(), sample("/"))
    disks, runs = scene.state.disks, list(scene.state.runs.values())
    assert checkpoints_that_fit(disks["login1:/fsx"], disks, runs) == 60
    assert checkpoints_that_fit(disks["login1:/"], disks, runs) is None
    assert checkpoints_that_fit(disks["n1:/fsx"], disks, runs) is None
