"""The thread that asks W&B: what it asks, how often, and what it makes of silence."""

from __future__ import annotations

from typing import Any, Self

import pytest
from msgspec.structs import replace

from collectors.wandb.child_process import ErrorKind, WandbError
from collectors.wandb.login import Credentials
from collectors.wandb.wire import (
    AnyRequest,
    ListActive,
    ListRuns,
    ReadHistory,
    ReadMetadata,
)
from tests.collectors.wandb.fake_wandb import HERE, NOW, SteppedCollector, a_run
from tests.trainmon.alerting.stories.story import Story, phone
from trainmon.alerting.rules import RULES
from trainmon.model import (
    CurvesGrew,
    RunsChanged,
    RunSpec,
    SourceChanged,
    SourceRemoved,
    WandbPolled,
)


def test_the_first_poll_reports_the_runs_the_curves_and_that_the_source_is_well() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.first()
    assert [type(one) for one in watched.wandb.requests] == [ListRuns, ReadHistory]
    assert [run.id for run in watched.seen.runs] == ["a1"]
    assert watched.seen.keys == ("loss", "lr")
    (grown,) = watched.of_kind(CurvesGrew)
    assert (grown.path, grown.fresh, list(grown.points["loss"].steps)) == (
        "team/video/a1",
        True,
        [*map(float, range(10))],
    )
    assert [source.phase for source in watched.of_kind(SourceChanged)] == ["waiting", "up"]
    assert (watched.source.name, watched.source.cluster, watched.source.period) == ("wandb:llm", "prod", 60.0)


def test_a_round_takes_two_questions_a_run_and_comes_once_a_period() -> None:
    watched = SteppedCollector(*(a_run(f"run-{number}") for number in range(10)))
    watched.wandb.run("a1")
    watched.pass_(59)
    watched.wandb.requests.clear()
    for minute in range(10):
        watched.wandb.run("a1", steps=11 + minute)
        watched.pass_(60)
    assert watched.rounds() == 100
    assert watched.wandb.count(ReadHistory) == 100
    assert watched.wandb.count(ListActive) == 30, "three questions a minute for new runs of the project"
    assert len(watched.wandb.requests) == 230


def test_several_active_runs_are_reported_and_their_curves_read() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1", created_at=NOW - 300)
    watched.wandb.run("a2", created_at=NOW - 100)
    watched.pass_(50)
    assert [run.id for run in watched.seen.runs] == ["a2", "a1"]
    assert {event.path for event in watched.of_kind(CurvesGrew)} == {"team/video/a1", "team/video/a2"}
    watched.wandb.requests.clear()
    for steps in range(11, 16):
        watched.wandb.run("a1", steps=steps, created_at=NOW - 300)
        watched.wandb.run("a2", steps=steps)
        watched.pass_(60)
    assert len(watched.wandb.asked) == 10, "two questions a round, however many are active"
    watched.wandb.run("a1", state="finished", steps=20, created_at=NOW - 300)
    watched.pass_(60)
    assert [*watched.of_kind(CurvesGrew)[-1].points["loss"].steps] == [*map(float, range(10, 20))]


def test_while_a_new_run_may_replace_the_active_one_w_and_b_is_polled_every_10_s_until_a_heartbeat_shows_it() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1", created_at=NOW - 300)
    watched.pass_(50)
    watched.wandb.run("a1", created_at=NOW - 300)
    watched.wandb.run("a2", created_at=NOW + 55)
    watched.pass_(15)
    assert watched.rounds() == 2
    watched.pass_(20)
    assert watched.rounds() == 4
    watched.wandb.run("a1", created_at=NOW - 300)
    watched.wandb.run("a2", created_at=NOW + 55)
    watched.pass_(10)
    assert watched.rounds() == 5
    watched.pass_(50)
    assert watched.rounds() == 5, "both have sent a heartbeat"
    assert {event.path for event in watched.of_kind(CurvesGrew)} == {"team/video/a1", "team/video/a2"}


class Training(Story):
    """The real rules on what the collector submits, each second. W&B is polled as often as without a setting."""

    def __init__(self) -> None:
        super().__init__(*(rule() for rule in RULES), phone("info"), sources=())
        self.watched = SteppedCollector()
        self.watched.clock.began = self.clock.wall
        self.hear(RunsChanged((a_run(),))).speak("wandb:llm")
        self.began: dict[str, float] = {}

    def live(self, until: float) -> Self:
        """Each run sends a heartbeat every 15 s, as the client does while it logs."""
        wandb = self.watched.wandb
        while self.watched.clock.at < until:
            at = self.watched.clock.at + 1.0
            for name, began in self.began.items():
                created = self.watched.clock.began + began
                beat = created + (at - began) // 15 * 15
                wandb.run(name, steps=int(at - began) + 1, created_at=created, heartbeat_at=beat)
            self.watched.pass_(1.0)
            self.hear(*self.watched.events)
            self.watched.events.clear()
            self.at(self.elapsed + 1.0)
        return self


@pytest.mark.parametrize("begins", range(240, 300, 7))
def test_a_second_active_run_is_reported_within_30_s_of_its_start_whenever_that_is(begins: int) -> None:
    with Training() as story:
        story.began["first"] = 0.0
        story.live(begins)
        story.began["second"] = float(begins)
        story.live(begins + 30)
        notice = story.expect("fire", "run:llm")
        assert [alert.rule for alert in notice.alerts] == ["wandb-several-active"]


def test_a_run_that_is_resumed_is_noticed_between_the_polls() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1", created_at=NOW - 900)
    watched.wandb.run("a2", state="finished", created_at=NOW - 2_000)
    watched.pass_(61)
    watched.wandb.run("a2", created_at=NOW - 2_000)
    before = watched.rounds()
    watched.pass_(16)
    assert watched.rounds() == before + 1
    watched.pass_(40)
    assert watched.rounds() == before + 1, "it is known now"


def test_a_run_that_is_named_by_its_id_needs_no_question_for_others() -> None:
    watched = SteppedCollector(a_run(group=None, run="a1"))
    watched.wandb.run("a1")
    watched.pass_(600)
    assert watched.wandb.count(ListActive) == 0


def test_a_limit_of_the_rate_stops_the_question_for_new_runs_too() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.pass_(61)
    watched.wandb.fails(ListActive, "busy")
    watched.pass_(30)
    assert watched.source.phase == "retrying"
    asked = watched.wandb.count(ListActive)
    watched.wandb.fails(ListRuns, "busy")
    watched.pass_(600)
    assert watched.wandb.count(ListActive) == asked


def test_no_run_at_all_is_an_answer() -> None:
    watched = SteppedCollector()
    watched.pass_(30)
    assert (watched.seen.runs, watched.source.phase, watched.source.error) == ((), "up", None)


def test_a_run_without_a_project_starts_nothing() -> None:
    watched = SteppedCollector(RunSpec(name="llm", cluster="prod"))
    assert watched.watcher.step() is None
    assert (watched.wandb.began, watched.events) == (0, [])


def test_without_a_key_nothing_is_requested_and_with_one_it_goes_on() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.login = Credentials("https://api.wandb.ai", None, "there is no key for wandb.ai", "log in")
    watched.pass_(30)
    assert watched.wandb.began == 0
    assert (watched.source.error, watched.source.hint) == ("there is no key for wandb.ai", "log in")
    watched.login = HERE
    watched.pass_(120)
    assert (watched.source.phase, watched.source.error) == ("up", None)


@pytest.mark.parametrize("kind", ["unreachable", "server", "slow"])
def test_w_and_b_that_was_down_for_hours_is_seen_to_be_back_within_a_minute(kind: ErrorKind) -> None:
    watched = SteppedCollector()
    watched.wandb.fails(ListRuns, kind)
    watched.pass_(3 * 3_600)
    assert watched.source.phase == "retrying"
    watched.wandb.trouble.clear()
    watched.pass_(62)
    assert (watched.source.phase, watched.source.error) == ("up", None)


def test_a_busy_server_is_left_alone_longer_and_longer() -> None:
    watched = SteppedCollector(a_run("one"), a_run("two"))
    watched.wandb.fails(ListRuns, "busy")
    watched.first()
    assert watched.rounds() == 1, "the second run would have met the same"
    assert [source.name for source in watched.of_kind(SourceChanged) if source.error] == ["wandb:one", "wandb:two"]
    watched.pass_(119)
    assert watched.rounds() == 1
    watched.pass_(3_600 * 3)
    assert watched.rounds() <= 2 + 3 * 6 + 3
    watched.wandb.trouble.clear()
    watched.pass_(601)
    assert (watched.source.phase, watched.source.error) == ("up", None)
    watched.wandb.requests.clear()
    watched.pass_(120)
    assert watched.rounds() in (4, 6), "it asks at its own pace again"


@pytest.mark.parametrize("kind", ["absent", "forbidden"])
def test_an_unknown_project_and_one_of_another_team_are_one_runs_trouble(kind: ErrorKind) -> None:
    watched = SteppedCollector(a_run("one", project="team/no"), a_run("two"))
    real = watched.wandb.query

    def query(request: AnyRequest, wanted: type[Any]) -> Any:
        if isinstance(request, ListRuns) and request.spec.project == "team/no":
            raise WandbError("no such project", kind=kind, hint="is its name right?")
        return real(request, wanted)

    watched.wandb.query = query  # type: ignore[method-assign]
    watched.pass_(30)
    last = {source.name: source for source in watched.of_kind(SourceChanged)}
    assert (last["wandb:one"].error, last["wandb:one"].hint) == ("no such project", "is its name right?")
    assert (last["wandb:two"].phase, last["wandb:two"].error) == ("up", None)


def test_a_fault_of_ours_is_the_trouble_of_one_run() -> None:
    watched = SteppedCollector(a_run("one", project="team/odd"), a_run("two"))
    real = watched.wandb.query

    def query(request: AnyRequest, wanted: type[Any]) -> Any:
        if isinstance(request, ListRuns) and request.spec.project == "team/odd":
            raise ZeroDivisionError("division by zero")
        return real(request, wanted)

    watched.wandb.query = query  # type: ignore[method-assign]
    watched.pass_(30)
    last = {source.name: source for source in watched.of_kind(SourceChanged)}
    assert last["wandb:one"].error == "ZeroDivisionError: division by zero"
    assert (last["wandb:two"].phase, last["wandb:two"].error) == ("up", None)


def test_a_run_whose_list_hangs_is_the_last_one_next_time() -> None:
    watched = SteppedCollector(a_run("one"), a_run("two"))
    watched.wandb.fails(ListRuns, "slow")
    watched.first()
    watched.wandb.trouble.clear()
    watched.wandb.requests.clear()
    watched.pass_(130)
    assert watched.of_kind(WandbPolled)[0].run == "two"


def test_curves_that_cannot_be_read_leave_the_run_well_and_are_reported_when_it_lasts() -> None:
    watched = SteppedCollector()
    watched.wandb.fails(ReadHistory, "slow")
    watched.wandb.run("a1")
    watched.pass_(30)
    assert (watched.source.phase, watched.source.error, watched.source.hint) == ("up", None, None)
    for _ in range(4):
        watched.wandb.run("a1")
        watched.pass_(60)
    assert (watched.source.error, watched.source.hint) == (None, "its curves cannot be read: it is slow (mend it)")
    watched.wandb.trouble.clear()
    watched.wandb.run("a1")
    watched.pass_(120)
    assert watched.source.hint is None
    assert watched.of_kind(CurvesGrew)


def test_a_person_who_asks_gets_a_round_at_once_but_not_twice_in_five_seconds() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.pass_(20)
    for _ in range(4):
        watched.watcher.refresh()
        watched.pass_(1)
    assert watched.rounds() == 2


def test_runs_that_come_and_go() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.pass_(20)
    before = watched.rounds()
    watched.watcher.follow((a_run(), a_run("more")))
    watched.pass_(10)
    assert watched.rounds() == before + 2
    watched.watcher.follow((replace(a_run("more"), nodes=("n1",)),))
    watched.pass_(10)
    assert watched.of_kind(SourceRemoved) == [SourceRemoved("wandb:llm")]
    assert watched.rounds() == before + 2, "what is known of a run stays when only its nodes change"


def test_new_runs_are_not_lost_behind_requests_while_the_client_hangs() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1")
    watched.pass_(20)
    watched.watcher.follow((a_run("more"),))
    watched.watcher.follow((a_run(), a_run("more")))
    for _ in range(100):
        watched.watcher.refresh()
    watched.pass_(10)
    assert {source.name for source in watched.of_kind(SourceChanged)} == {"wandb:llm", "wandb:more"}
    assert watched.of_kind(SourceRemoved) == [], "only the newest runs count"


def test_facts_are_queried_once_where_the_list_has_none() -> None:
    watched = SteppedCollector()
    watched.wandb.run("a1", host=None)
    watched.pass_(200)
    assert watched.wandb.count(ReadMetadata) == 1
    assert watched.seen.runs[0].host == "gpu-7"


def test_slow_answers_stretch_the_rounds_and_never_pile_up() -> None:
    watched = SteppedCollector(*(a_run(f"run-{number}") for number in range(5)))
    watched.wandb.run("a1")
    watched.wandb.takes = 20.0
    watched.pass_(2_000)
    assert watched.rounds() <= 2_000 / 20


def test_a_run_that_only_its_log_names_is_no_fault_until_it_has_answered_once() -> None:
    stepped = SteppedCollector(replace(a_run(), from_log=("wandb",)))
    stepped.wandb.fails(ListRuns, "forbidden")
    stepped.first()
    assert (stepped.source.phase, stepped.source.error, stepped.source.hint) == ("off", "it is forbidden", "mend it")
    stepped.wandb.trouble.clear()
    stepped.pass_(60)
    assert stepped.source.phase == "up"
    stepped.wandb.fails(ListRuns, "forbidden")
    stepped.pass_(60)
    assert stepped.source.phase == "retrying"
