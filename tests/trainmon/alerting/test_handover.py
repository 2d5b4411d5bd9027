"""What a look hands over: notices with the page of their run."""

from __future__ import annotations

import pytest

from tests.trainmon.alerting.notify.samples import NOW, alert, beat, notice
from trainmon.alerting.handover import PendingChanges
from trainmon.model import AlertChanges, Notice, Run, RunSpec, Silence, State, Wandb, WandbRun

PAGE = "https://wandb.example/team/video/runs/a1b2c3"


def state(url: str | None, *others: str) -> State:
    attempt = WandbRun(entity="team", project="video", id="a1", name="calm-river", state="running", url=url)
    runs = {name: Run(spec=RunSpec(name=name, cluster="prod")) for name in others}
    wandb = Wandb(runs=(attempt,), active=("a1",))
    return State(runs={"video-2b": Run(spec=RunSpec(name="video-2b", cluster="prod"), wandb=wandb), **runs})


def linked(notices: Notice, known: State) -> str | None:
    book = PendingChanges()
    book.notices.append(notices)
    changes = book.take(known, NOW)
    assert changes is not None
    return changes.notices[0].link


def test_a_notice_of_a_run_has_the_page_of_its_attempt() -> None:
    assert linked(notice(), state(PAGE)) == PAGE
    assert linked(notice(), state(None)) is None
    assert linked(notice(alert(run=None), run=None), state(PAGE)) is None


def test_a_sign_of_life_has_the_page_of_the_only_run() -> None:
    assert linked(beat(), state(PAGE)) == PAGE
    assert linked(beat(), state(PAGE, "another")) is None


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://x.test/a b", "https://x.test/\nX-Evil: 1", "https://u:hunter2@x.test/"]
)
def test_what_is_no_plain_address_is_not_passed_on(url: str) -> None:
    assert linked(notice(), state(url)) is None


def test_a_new_ledger_gets_everything_that_was_written_before() -> None:
    silence = Silence(id="s1", node="n1", by="ada", until=NOW + 60.0, made_at=NOW)
    window = Silence(id="w1", node="n2", by="ada", until=NOW + 60.0, made_at=NOW, window=True)
    known = State(alerts={alert().id: alert()}, silences={"s1": silence, "w1": window})
    book = PendingChanges()
    book.silences["s1"] = silence
    book.remember({"heartbeat": NOW})
    book.is_new_request(7)
    assert book.take(known, NOW) is not None
    assert book.take(known, NOW) is None
    book.write_all(known)
    assert book.take(known, NOW) == AlertChanges(
        at=NOW, alerts=(alert(),), silences=(silence,), requests_until=7, memory={"heartbeat": NOW}
    )
    assert book.take(known, NOW) is None
