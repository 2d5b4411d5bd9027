"""What a look hands over: notices with the page of their run."""

from __future__ import annotations

import pytest

from tests.trainmon.alerting.notify.samples import NOW, alert, beat, notice
from trainmon.alerting.pending_changes import PendingChanges
from trainmon.model import Notice, Run, RunSpec, State, Wandb, WandbRun

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
