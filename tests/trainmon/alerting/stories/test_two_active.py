"""Two W&B runs in the group of one: from W&B's answers to the message, with all rules on."""

from __future__ import annotations

from typing import Any, Self

from msgspec.structs import replace

from tests.trainmon.alerting.stories.story import Story, phone
from trainmon.alerting.rules import RULES
from trainmon.model import RunsChanged, RunSpec, WandbPolled, WandbRun, WandbSpec

SPEC = RunSpec(name="llm", cluster="prod", wandb=WandbSpec(project="lab/llm", group="final"))
ACTIVE = "wandb-several-active"


class Group(Story):
    """A run that only W&B shows, polled every 5 s. Each attempt makes a step a second and sends a heartbeat every 15 s,
    as the client does."""

    def __init__(self) -> None:
        super().__init__(*(rule() for rule in RULES), phone("info"), sources=())
        self.speak("wandb:llm")
        self.hear(RunsChanged((SPEC,)))
        self.runs: dict[str, WandbRun] = {}
        self.dead: set[str] = set()
        """Those that were killed: W&B reports them as running for five minutes."""

    def begin(self, name: str, **changes: Any) -> Self:
        known: dict[str, Any] = {"state": "running", "created_at": self.clock.wall, "heartbeat_at": self.clock.wall}
        self.runs[name] = WandbRun(entity="lab", project="llm", id=name, name=name, **known | changes)
        return self

    def end(self, name: str, state: str) -> Self:
        beat = self.runs[name].heartbeat_at if name in self.dead else self.clock.wall
        self.runs[name] = replace(self.runs[name], state=state, heartbeat_at=beat)
        return self

    def live(self, until: float) -> Self:
        while self.elapsed < until - 1e-6:
            at = self.clock.wall + 5.0
            for name, run in self.runs.items():
                created = run.created_at or at
                if run.state == "running" and name not in self.dead:
                    beat = created + (at - created) // 15 * 15
                    self.runs[name] = replace(run, step=int(at - created), heartbeat_at=beat, logged_at=at)
            newest = sorted(self.runs.values(), key=lambda run: run.created_at or 0.0, reverse=True)
            self.hear(WandbPolled("llm", at, tuple(newest), ("loss",)))
            self.speak("wandb:llm").at(self.elapsed + 5.0, tick=5.0)
        return self

    def sent(self) -> list[str]:
        """The rules of everything that was sent, with the kind."""
        return [f"{notice.kind} {alert.rule}" for notice in self.kept.notices for alert in notice.alerts]

    def expect_all(self) -> Self:
        self.expected |= {notice.key for notice in self.kept.notices}
        return self


def test_a_second_active_run_is_reported_within_30_s_and_neither_its_start_nor_its_end_is_a_restart() -> None:
    with Group() as story:
        story.begin("first").live(305)
        story.begin("second").live(335)
        notice = story.expect("fire", "run:llm")
        assert notice.alerts[0].rule == ACTIVE
        assert notice.severity == "warning"
        assert "2 runs are active where one is expected: first, second" in notice.alerts[0].summary
        assert story.state.runs["llm"].progress.step == 335, "the first run is the one that is followed"
        story.live(500).end("second", "finished").live(700)
        story.expect("resolve", "run:llm")
        story.expect_nothing_else()
        assert story.sent() == [f"fire {ACTIVE}", f"resolve {ACTIVE}"]


def test_the_crash_of_one_of_two_active_runs_is_reported_and_the_other_goes_on_without_a_restart() -> None:
    for crashed, other in (("first", "second"), ("second", "first")):
        with Group() as story:
            story.begin("first").live(300).begin("second").live(400)
            story.end(crashed, "crashed").live(420).expect_all()
            told = [alert for notice in story.kept.notices for alert in notice.alerts]
            assert [alert.rule for alert in told] == [ACTIVE, "wandb-run-crashed"]
            assert told[1].summary.startswith(f"W&B of llm: of several active runs, {crashed} crashed at step ")
            assert told[1].summary.endswith(f"; {other} is still active")
            story.live(1_800).expect_all()
            assert story.sent() == [f"fire {ACTIVE}", "event wandb-run-crashed", f"resolve {ACTIVE}"]


def test_one_of_two_active_runs_that_is_killed_is_reported_although_w_and_b_still_shows_it_as_running() -> None:
    with Group() as story:
        story.begin("first").live(300).begin("second").live(400)
        story.dead.add("first")
        story.live(620).expect_all()
        assert "event wandb-run-crashed" in story.sent()
        story.end("first", "crashed").live(1_800).expect_all()
        assert story.sent().count("event wandb-run-crashed") == 1


def test_a_killed_run_and_its_restart_a_few_seconds_later_are_one_restart() -> None:
    for pause in (5, 40):
        with Group() as story:
            story.begin("first").live(300)
            story.dead.add("first")
            story.live(300 + pause).begin("second").live(600).expect_all()
            assert story.sent() == ["event restarted"]
            story.end("first", "crashed").live(1_500)


def test_a_run_that_shuts_down_beside_the_next_one_is_a_restart() -> None:
    with Group() as story:
        story.begin("first").live(300).begin("second").live(315)
        story.end("first", "failed").live(600).expect_all()
        assert story.sent() == ["event restarted"]


def test_two_active_runs_that_save_to_the_same_directory_are_critical() -> None:
    with Group() as story:
        story.begin("first", config={"output_dir": "/fsx/ckpt", "lr": "1e-4"}).live(300)
        story.begin("second", config={"output_dir": "/fsx/ckpt/", "lr": "2e-4"}).live(330)
        notice = story.expect("fire", "run:llm")
        assert notice.severity == "critical"
        assert notice.alerts[0].summary.endswith("; they write the same checkpoints")
        assert notice.alerts[0].evidence[0] == "both save to /fsx/ckpt (output_dir in their W&B configs)"
