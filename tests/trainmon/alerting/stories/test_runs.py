"""A run from its first step to the message, with all rules on: it trains, hangs, dies, is stopped by a person."""

from __future__ import annotations

import json
from typing import Any, Self

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.stories.story import Story, phone
from tests.trainmon.ledger.records import action
from trainmon.alerting.notify.message import is_good_news, render
from trainmon.alerting.rules import RULES
from trainmon.model import (
    ActionChanged,
    FileContent,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Job,
    JobsListed,
    LogChunk,
    NodeReading,
    Process,
    RankLook,
    RankProcess,
    RankProcesses,
    Record,
    RetryPolicy,
    Route,
    RunLooked,
    RunsChanged,
    RunSpec,
    SwitchSample,
    SwitchSamples,
    WandbSpec,
)

NODES = ("gpu-001", "gpu-002")
SPEC = RunSpec(
    name="llm", cluster="prod", job="llm", log="/fsx/llm.out", kill_switch="/fsx/kill", target_step=90_000, nodes=NODES
)
STEP = " iteration {:8d}/   90000 | elapsed time per iteration (ms): 4000.0 | lm loss: {:.4E} |"
SAVING = "saving checkpoint at iteration     400 to /fsx/ckpt in torch format"
PROSE = "page {:d} of the diary: flour for {:.2f} pounds, and rain again"
PULSE = "[2026-05-01 03:56:11] PULSE: llm is running for 7:27:33 since 2026-04-30T20:28:38 (88 on 'gpu' partition)"
STALLS = {"run-hung", "run-stalled", "data-stall"}
QUIET = 20.0
"""Seconds between two looks in hours in which nothing happens: probes answer every 30 s at the latest."""


class Training(Story):
    """A run on two nodes of eight GPUs, under Slurm, with all rules on."""

    def __init__(self, *routes: Route) -> None:
        super().__init__(*(rule() for rule in RULES), *(routes or (phone("warning"),)), sources=())
        self.speak("slurm:prod")
        self.job: Job | None = Job(
            cluster="prod", id="88", number=88, name="llm", user="ana", state="RUNNING", nodes=NODES,
            started_at=self.clock.wall,
        )  # fmt: skip
        self.before: tuple[Job, ...] = ()
        """Its earlier jobs, which have ended."""
        self.steps, self.trains, self.use, self.power, self.pulses = 0, True, 98, 650.0, False
        self.line = STEP
        self.kill: float | None = None
        self.rise = 0.0
        self.idle: set[str] = set()
        """The nodes of which the first GPU is idle."""
        self.slowed: set[str] = set()
        """The nodes of which the first GPU is slowed down by its hardware."""
        self.guest = False
        """Whether another process is on the GPUs."""
        self.away: set[str] = set()
        """The nodes that do not answer."""
        self.hear(RunsChanged((SPEC,)))

    def live(self, until: float, pace: float = 4.0) -> Self:
        """Let time pass, with samples, lines and the queue every four seconds; in long quiet hours less often."""
        while self.elapsed < until - 1e-6:
            at = self.clock.wall + pace
            self.hear(*(reading for name in NODES if name not in self.away for reading in self._sampled(name, at)))
            self.hear(NodeReading("gpu-001", "prod", at, self._switch(at)))
            for late in range(int(pace / 4.0) - 1, -1, -1):
                self._train(at - 4.0 * late)
            if "slurm:prod" not in self.silent:
                self.hear(JobsListed("prod", at, self.before if self.job is None else (*self.before, self.job)))
            self.at(self.elapsed + pace, tick=pace)
        return self

    def _train(self, at: float) -> None:
        if self.trains:
            self.steps += 1
            self._write(self.line.format(self.steps, 3.0 + self.rise - self.steps / 10_000), at)
        elif self.pulses:
            self._write(PULSE, at)

    def end(self, state: str, **more: str) -> Self:
        """The job ends now, and its processes are gone."""
        assert self.job is not None
        ended = replace(self.job, state=state, ends_at=self.clock.wall, detail_at=self.clock.wall)
        self.job = replace(ended, **more)
        self.trains, self.use, self.power = False, 0, 90.0
        return self

    def _write(self, line: str, at: float) -> None:
        chunk = LogChunk(1, at, "llm", "/fsx/llm.out", None, at, (line,), seen=1)
        self.hear(NodeReading("gpu-001", "prod", at, chunk))

    def _switch(self, at: float) -> SwitchSamples:
        is_armed = self.kill is not None
        return SwitchSamples(1, at, (SwitchSample("/fsx/kill", exists=is_armed, mtime=self.kill, owner="ann"),))

    def _sampled(self, name: str, at: float) -> list[NodeReading]:
        used = 70_000 if self.use else 4
        gpus = tuple(
            GpuSample(
                i,
                temperature_c=60,
                memory_used_mib=used,
                utilization_pct=0 if i == 0 and name in self.idle else self.use,
                power_w=self.power or None,
                throttle_mask=HW_SLOWDOWN if i == 0 and name in self.slowed else 0,
            )
            for i in range(8)
        )
        pids = (100, 101) if self.guest else (100,)
        owners = tuple(Process(pid, user="ana", memory_mib=30_000) for pid in pids) if self.use else ()
        facts = tuple(
            GpuFacts(i, uuid=f"{name}-{i}", memory_total_mib=81_559, power_limit_w=700.0, processes=owners)
            for i in range(8)
        )
        return [
            NodeReading(name, "prod", at, one)
            for one in (GpuFactsAll(1, at, facts, expected=8), GpuSamples(1, at, gpus))
        ]


def test_a_run_that_trains_says_nothing_for_an_hour() -> None:
    with Training() as story:
        story.live(3_600)
        assert story.state.runs["llm"].verdict == "healthy"
        assert story.steps == 900


def test_a_hang_is_one_critical_message_though_a_watchdog_writes_and_slurm_says_running() -> None:
    with Training() as story:
        story.live(600, QUIET)
        story.trains, story.pulses, story.use, story.power = False, True, 100, 140.0
        story.live(600 + 890)
        assert story.new() == []
        notice = story.live(600 + 1_200).expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("critical", "run-hung")
        assert "are 100% busy" in notice.alerts[0].summary
        story.live(3_000, QUIET)
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(3_300).expect("resolve", "run:llm")


HW_SLOWDOWN = 0x8
LEARNED = 1_800.0
"""After so long, the usual throughput of a run is known."""


def test_a_hang_of_every_gpu_is_known_in_four_minutes_once_the_run_is_known() -> None:
    with Training() as story:
        story.live(LEARNED, QUIET)
        story.trains, story.use, story.power = False, 100, 140.0
        notice = story.live(LEARNED + 240).expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("critical", "run-hung")
        assert "(usually every 4s; limit 2m: all its GPUs waited)" in notice.alerts[0].summary
        story.restart(30.0).hear(RunsChanged((SPEC,)))
        at, wrote = story.clock.wall, story.clock.wall - story.elapsed + LEARNED
        chunk = LogChunk(1, at, "llm", "/fsx/llm.out", None, wrote, (STEP.format(story.steps, 3.0),), seen=1)
        story.hear(NodeReading("gpu-001", "prod", at, chunk)).live(LEARNED + 500)
        assert story.state.runs["llm"].verdict == "hung", "the alert remembers it"
        assert "(limit 2m: all its GPUs waited)" in story.state.runs["llm"].why
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(LEARNED + 800).expect("resolve", "run:llm")
        assert not story.state.runs["llm"].memory.hangs


def test_a_wait_of_every_gpu_that_ended_by_itself_is_waited_for_three_times_as_long() -> None:
    with Training() as story:
        story.live(LEARNED, QUIET)
        story.trains, story.use, story.power = False, 100, 140.0
        story.live(LEARNED + 160)
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(LEARNED + 300, QUIET)
        assert story.state.runs["llm"].memory.throughput.recent, "its throughput is still known"
        story.live(LEARNED + 900, QUIET)
        assert story.new() == []
        story.trains, story.use, story.power = False, 100, 140.0
        story.live(LEARNED + 900 + 460).expect_nothing_else()
        (alert,) = story.live(LEARNED + 900 + 660).expect("fire", "run:llm").alerts
        assert "limit 9m: three times its longest such wait" in alert.summary
        story._write(SAVING, story.clock.wall)
        story.live(story.elapsed + 600, QUIET).expect("resolve", "run:llm")
        assert story.state.runs["llm"].verdict == "saving", "what it announces has its usual limit"


def test_a_hang_after_which_the_gpus_work_again_is_over_before_its_next_step_is_seen() -> None:
    with Training() as story:
        story.live(LEARNED, QUIET)
        story.trains, story.use, story.power = False, 100, 140.0
        story.live(LEARNED + 160)
        assert story.state.runs["llm"].verdict == "hung"
        story.use, story.power = 98, 650.0
        story.live(LEARNED + 600)
        assert story.state.runs["llm"].why.startswith("no step for 10m, usually every 4s; stalled only after 15m")
        story.trains = True
        story.live(LEARNED + 700, QUIET).expect_nothing_else()
        story.trains, story.use, story.power = False, 100, 140.0
        story.live(LEARNED + 1_160).expect_nothing_else()


def test_a_limit_that_the_config_sets_in_a_hang_counts_at_once_and_is_the_one_that_is_told() -> None:
    with Training() as story:
        story.live(LEARNED, QUIET)
        story.trains, story.use, story.power = False, 100, 140.0
        story.live(LEARNED + 160).hear(RunsChanged((replace(SPEC, stall_after=600.0, may_hang_early=False),)))
        assert story.live(LEARNED + 590).state.runs["llm"].verdict == "healthy"
        story.live(LEARNED + 720).expect("fire", "run:llm")
        assert "(usually every 4s), the last was" in story.state.runs["llm"].why


@pytest.mark.parametrize(
    "why",
    [
        "config", "works", "idle", "low-power", "new", "log", "silent-node", "save", "no-power", "slowed", "elsewhere",
        "guest", "hooks",
    ],
)  # fmt: skip
def test_nothing_else_is_a_hang_before_fifteen_minutes(why: str) -> None:
    with Training() as story:
        if why == "elsewhere":  # 16 of 24 ranks: one of the others saves
            at = story.clock.wall
            ranks = tuple(RankProcess(100 + rank, at, (), "torchrun", rank, 24, job=88) for rank in range(8))
            story.hear(NodeReading("gpu-001", "prod", at, RankProcesses(1, at, ranks, "ana")))
        if why == "config":
            story.hear(RunsChanged((replace(SPEC, may_hang_early=False),)))
        story.power = 240.0 if why == "low-power" else 650.0  # a small model
        story.live(600 if why == "new" else LEARNED, QUIET)
        began = story.elapsed
        story.trains, story.use, story.power = False, 100, 500.0 if why == "works" else 140.0
        story.power = 0.0 if why == "no-power" else story.power  # it is not measured for a while
        story.idle = {"gpu-001"} if why == "idle" else set()  # its rank saves, or reads
        story.slowed = {"gpu-001"} if why == "slowed" else set()  # all wait for it, and its steps are long
        story.guest = why == "guest"  # what a trainer before it has left keeps the GPU of who saves busy
        story.away = {"gpu-002"} if why == "silent-node" else set()
        story.pulses = why == "log"
        if why == "save":
            story._write(SAVING, story.clock.wall)
        if why == "hooks":
            text = json.dumps({"at": story.clock.wall, "phase": "evaluation"})
            status = FileContent(1, story.clock.wall, "status of llm", path="/fsx/kill.status", text=text)
            story.hear(NodeReading("gpu-001", "prod", story.clock.wall, status))
        story.live(began + 880, QUIET)
        assert story.state.runs["llm"].verdict in ("healthy", "saving")
        story.trains, story.use, story.power = True, 98, 650.0
        story.idle, story.slowed, story.away, story.guest = set(), set(), set(), False
        story.live(began + 1_000, QUIET)
        story.expected |= {notice.key for notice in story.new() if notice.alerts[0].rule not in STALLS}


def test_a_rank_that_is_named_after_the_first_message_of_a_hang_is_one_follow_up() -> None:
    def look(**found: Any) -> RunLooked:
        usual = {"source": "proc", "at": story.clock.wall, "summary": "8 of 8 ranks wait; no rank is named"}
        return RunLooked("llm", RankLook(**usual | found), None)

    with Training() as story:
        late = {"source": "nccl-ras", "summary": "rank 3 (gpu-001 GPU 3) has been at 639", "ranks": (3,)}
        story.live(600, QUIET)
        story.trains, story.use, story.power = False, 100, 140.0
        story.live(600 + 1_200).expect("fire", "run:llm")
        story.hear(look()).live(1_820).expect_nothing_else()
        story.hear(look(**late, advice="look at its process")).live(1_824)
        told = story.expect("cause", "run:llm", reason="a look at its ranks has ended")
        message = render([told], story.clock.wall)
        assert message.title == "CODE RED llm: run-hung"
        assert message.body.startswith("llm hangs: rank 3 (gpu-001 GPU 3) has been at 639 (by NCCL); ")
        assert "→ look at its process; " in message.body
        story.hear(look(**late | {"ranks": (4,), "summary": "rank 4 has been at 640"})).live(1_900)
        story.restart(30.0).hear(look(**late)).live(2_400, QUIET).expect_nothing_else()
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(2_700).expect("resolve", "run:llm")


def test_a_first_message_that_names_the_rank_needs_no_follow_up() -> None:
    with Training() as story:
        story.live(600, QUIET)
        story.trains, story.use, story.power = False, 100, 140.0
        story.live(600 + 910)
        late = RankLook(source="proc", at=story.clock.wall, summary="rank 3 is stopped", ranks=(3,))
        story.hear(RunLooked("llm", late, None)).live(600 + 1_200)
        assert "rank 3 is stopped (by /proc)" in story.expect("fire", "run:llm").alerts[0].summary
        story.restart(30.0).hear(RunLooked("llm", replace(late, at=story.clock.wall), None)).live(2_400, QUIET)


def test_a_log_of_which_no_line_is_known_is_one_information_until_it_falls_silent() -> None:
    with Training(phone("info")) as story:
        story.line = PROSE
        notice = story.live(1_000, QUIET).expect("event", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("info", "log-unread")
        story.live(9_000, QUIET)
        assert story.new() == []
        assert story.state.runs["llm"].verdict == "unknown"
        story.trains, story.use, story.power = False, 0, 90.0
        story.live(9_000 + 890)
        assert story.new() == []
        notice = story.live(9_000 + 900 + 75).expect("fire", "run:llm")
        assert notice.severity == "critical"
        assert "has not grown for 16m" in notice.alerts[0].summary
        assert "no step for" not in notice.alerts[0].summary
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(10_200).expect("resolve", "run:llm")


def test_a_job_that_is_requeued_again_and_again_is_code_red_once_until_it_steps() -> None:
    """It is never dead for long, and leaves no ended jobs behind."""
    with Training() as story:
        story.live(1_200, QUIET)
        for times in range(1, 8):
            assert story.job is not None
            away = {"state": "PENDING", "reason": "BeginTime", "nodes": (), "started_at": None, "restarts": times}
            story.job = replace(story.job, **away, detail_at=story.clock.wall)
            story.trains, story.use, story.power = False, 0, 90.0
            story.live(story.elapsed + 120)
            story.job = replace(story.job, state="RUNNING", reason=None, nodes=NODES, started_at=story.clock.wall)
            story.use, story.power = 30, 200.0
            story.live(story.elapsed + 60)
        notice = story.expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("critical", "run-dead")
        assert "llm keeps being restarted, and has made no step since step 300" in notice.alerts[0].summary
        story.expect_nothing_else()
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(story.elapsed + 300).expect("resolve", "run:llm")


def test_a_run_that_dies_again_and_again_is_code_red_each_time_and_at_the_last_at_once() -> None:
    with Training(phone("critical")) as story:
        story.live(600, QUIET)
        for number in range(89, 94):
            story.end("FAILED", exit_code="1:0").live(story.elapsed + 120)
            story.job = Job(
                cluster="prod", id=str(number), number=number, name="llm", user="ana", state="RUNNING", nodes=NODES,
                started_at=story.clock.wall,
            )  # fmt: skip
            story.trains, story.use, story.power = True, 98, 650.0
            story.live(story.elapsed + 180)
        died = story.clock.wall
        story.end("FAILED", exit_code="1:0").live(story.elapsed + 12)
        dead = story.alert("run-dead")
        assert dead.is_firing
        assert not dead.flapping
        assert dead.notified_on == ("phone",)
        found = [notice for notice in story.new() if notice.kind in ("fire", "worse", "repeat") and notice.at >= died]
        began = dead.fired_at or 0.0
        assert found or began < died, "it was told, and nobody was told that it is over"
        story.expected |= {notice.key for notice in story.new()}


@pytest.mark.parametrize(
    ("name", "use", "power"), [("run-stalled", 40, 300.0), ("data-stall", 1, 90.0), ("run-hung", 100, 140.0)]
)
def test_a_run_that_hangs_again_and_again_is_code_red_each_time_at_once(name: str, use: int, power: float) -> None:
    with Training(phone("critical")) as story:
        story.hear(RunsChanged((replace(SPEC, stall_after=60.0),))).live(600, QUIET)
        for _ in range(8):
            story.trains, story.use, story.power = False, use, power
            story.live(story.elapsed + 130)
            (alert,) = story.expect("fire", "run:llm", reason="fired").alerts
            assert (alert.rule, alert.severity) == (name, "critical")
            story.trains, story.use, story.power = True, 98, 650.0
            story.live(story.elapsed + 72)
        story.live(story.elapsed + 700, QUIET)
        assert story.alert(name).phase == "resolved"
        story.expected |= {notice.key for notice in story.new()}


@pytest.mark.parametrize(
    ("name", "use", "power"), [("run-stalled", 40, 300.0), ("data-stall", 1, 90.0), ("run-hung", 100, 140.0)]
)
def test_a_hang_of_the_next_attempt_of_a_run_that_keeps_failing_is_notified(name: str, use: int, power: float) -> None:
    with Training() as story:
        assert story.job is not None
        story.before = tuple(
            replace(story.job, id=str(number), number=number, state="FAILED", exit_code="1:0",
                    started_at=story.clock.wall - 600 * (90 - number), ends_at=story.clock.wall - 600 * (89 - number))
            for number in (87, 86, 85)
        )  # fmt: skip
        story.live(600)
        assert story.expect("fire", "run:llm").alerts[0].summary.startswith("llm keeps failing: 3 attempts")
        story.trains, story.use, story.power = False, use, power
        notice = story.live(600 + 1_200).expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("critical", name)
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(600 + 3_600)
        assert {story.alert(rule).phase for rule in (name, "run-dead")} == {"resolved"}
        story.expected |= {one.key for one in story.new() if one.kind in ("event", "resolve")}


def test_what_may_be_an_evaluation_is_a_warning_and_a_hang_that_follows_is_code_red() -> None:
    with Training() as story:
        story.live(600, QUIET)
        story.trains = False
        notice = story.live(600 + 1_200).expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("warning", "run-stalled")
        story.use, story.power = 100, 140.0
        notice = story.live(600 + 1_400).expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("critical", "run-hung")
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(600 + 1_800)
        story.expected |= {one.key for one in story.new() if one.kind == "resolve"}


def follow_ups(story: Training) -> None:
    """At most one names the cause, if an exit status alone proves one: see test_causes.py."""
    found = {one.key for one in story.new() if one.kind == "cause"}
    assert len(found) <= 1
    story.expected |= found


def test_a_job_that_fails_is_code_red_with_the_look_that_shows_it_and_silence_does_not_resolve_it() -> None:
    with Training() as story:
        story.live(600, QUIET).end("FAILED", exit_code="1:0").live(608)
        notice = story.expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("critical", "run-dead")
        assert "exited with code 1" in notice.alerts[0].summary
        story.fall_silent("slurm:prod").live(1_200)
        follow_ups(story)
        assert story.alert("run-dead").is_firing
        story.expected |= {one.key for one in story.new() if one.alerts[0].rule == "source-late"}
        story.speak("slurm:prod")
        story.job = Job(cluster="prod", id="89", number=89, name="llm", user="ana", state="RUNNING", nodes=NODES,
                        started_at=story.clock.wall)  # fmt: skip
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(1_500).expect("resolve", "run:llm", "source:slurm:prod")


def test_what_a_person_stops_wakes_nobody_not_even_when_they_take_their_switch_back() -> None:
    with Training(phone("warning")) as story:
        story.live(600, QUIET)
        story.kill = story.clock.wall
        story.live(660).end("COMPLETED", exit_code="0:0").live(1_500, QUIET)
        assert story.alert("run-stopped").is_firing
        assert "ann" in story.alert("run-stopped").summary
        story.kill = None
        story.live(7_200, QUIET)
        assert story.state.runs["llm"].verdict == "stopped"


@pytest.mark.parametrize(
    ("state", "lives", "name"),
    [("CANCELLED", 2_400, "run-hung"), ("CANCELLED", 40, "run-dead"), ("FAILED", 2_400, "run-dead")],
)
def test_how_an_attempt_ended_hides_no_end_of_the_next_one_while_wandb_fails(state: str, lives: int, name: str) -> None:
    """That a person stopped it, or an acknowledged death: what W&B says of it is no longer asked for."""
    with Training() as story:
        story.hear(RunsChanged((replace(SPEC, wandb=WandbSpec(project="lab/llm")),))).speak("wandb:llm")
        story.live(600, QUIET).end(state, cancelled_by="ann", exit_code="1:0").live(700, QUIET)
        if state == "FAILED":
            story.order("ack", story.expect("fire", "run:llm").alerts[0].id)
        story.fail("wandb:llm", "401 Unauthorized").live(1_000, QUIET)
        assert story.job is not None
        story.before = (story.job,)
        story.job = replace(
            story.job, id="89", number=89, state="RUNNING", started_at=story.clock.wall, ends_at=None, exit_code=None,
            cancelled_by=None, detail_at=None,
        )  # fmt: skip
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(1_000 + lives, QUIET)
        if name == "run-hung":
            story.trains, story.use, story.power = False, 100, 140.0
        else:
            story.end("FAILED", exit_code="1:0")
        notice = story.live(story.elapsed + 1_200, QUIET).expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("critical", name)
        assert notice.alerts[0].since > story.clock.wall - 1_300
        story.expected |= {one.key for one in story.new() if one.alerts[0].rule in ("source-down", "run-dead")}


def test_a_kill_switch_that_its_trainer_never_read_does_not_hide_that_the_run_died() -> None:
    with Training() as story:
        story.live(600, QUIET)
        story.kill = story.clock.wall
        story.live(600 + 7_200, QUIET)
        assert story.expect("fire", "run:llm").alerts[0].rule == "kill-switch-left"
        story.end("FAILED", exit_code="1:0").live(600 + 7_300)
        notice = story.expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("critical", "run-dead")
        assert notice.alerts[0].advice.startswith("U removes the kill switch: trainmon-tui unkill llm; then ")
        follow_ups(story)


def test_a_loss_that_rises_and_stays_is_not_reported_to_be_over() -> None:
    with Training() as story:
        story.live(1_200, QUIET)
        story.rise = 5.0
        notice = story.live(1_400).expect("fire", "run:llm")
        assert notice.alerts[0].rule == "loss-spike"
        story.live(5_000, QUIET)
        assert story.alert("loss-spike").phase == "firing"
        story.rise = 0.0
        story.live(5_800, QUIET).expect("resolve", "run:llm")


def test_who_wants_to_know_all_is_reported_once_who_stopped_it() -> None:
    with Training(phone("info")) as story:
        story.live(600, QUIET).end("CANCELLED", cancelled_by="ann").live(1_500, QUIET)
        notice = story.expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule, notice.alerts[0].person) == ("info", "run-stopped", True)
        assert "cancelled by ann" in notice.alerts[0].summary


def test_who_cancelled_it_is_waited_for_as_long_as_accounting_takes() -> None:
    with Training(phone("info")) as story:
        story.live(600, QUIET).end("CANCELLED").live(640)
        assert story.new() == []
        story.end("CANCELLED", cancelled_by="ann").live(660)
        assert "cancelled by ann" in story.expect("fire", "run:llm").alerts[0].summary
    with Training(phone("info")) as story:
        story.live(600, QUIET).end("CANCELLED").live(700)
        assert "somebody cancelled it" in story.expect("fire", "run:llm").alerts[0].summary


@pytest.mark.parametrize(
    "armed", ["before its job began", "and taken by its trainer", "by a command that returned late"]
)
def test_an_end_by_the_kill_switch_is_one_for_the_verdict_the_alert_and_the_attempt(armed: str) -> None:
    with Training() as story:
        at = story.clock.wall
        story.kill = at - 600.0 if armed.startswith("before") else None
        story.live(100)
        if armed.startswith("and taken"):
            story.kill = story.clock.wall
            story.live(108)
            story.kill = None
        story.end("FAILED", exit_code="1:0")
        if armed.startswith("by"):
            kill = replace(action(verb="kill", run="llm"), title="Create the kill switch", who="ann")
            story.hear(ActionChanged(Record(action=kill, status="done", done_at=at + 130.0)))
        story.live(400)
        (attempt,) = story.state.attempts.values()
        assert attempt.cause is not None
        assert (story.state.runs["llm"].verdict, attempt.cause.cause) == ("stopped", "kill-switch")
        assert story.alert("run-stopped").is_firing, "and nothing is sent"


@pytest.mark.parametrize("lag", [0.0, 12.0])
def test_a_kill_switch_that_a_person_removed_before_a_crash_does_not_hide_it(lag: float) -> None:
    with Training() as story:
        story.live(100)
        story.kill = story.clock.wall
        story.live(104)
        story.kill, story.trains = None, False
        story.live(112)
        story.end("FAILED", exit_code="1:0").live(112 + lag)
        for line in ("Traceback (most recent call last):", '  File "/x/train.py", line 3, in <module>', "KeyError: 7"):
            story._write(line, story.clock.wall - lag)
        story.live(400)
        notice = story.expect("fire", "run:llm")
        assert (notice.severity, notice.alerts[0].rule) == ("critical", "run-dead")
        (attempt,) = story.state.attempts.values()
        assert attempt.cause is not None
        assert (story.state.runs["llm"].verdict, attempt.cause.cause) == ("dead", "python-exception")
        follow_ups(story)


@pytest.mark.parametrize("bad", [1, 3])
def test_a_job_that_ends_well_with_a_nan_has_diverged_by_its_attempt_and_its_advice_too(bad: int) -> None:
    with Training(phone("critical")) as story:
        story.hear(RunsChanged((replace(SPEC, target_step=25),))).live(100)
        for step in range(26, 26 + bad):
            story._write(STEP.format(step, 0.0).replace("0.0000E+00", "nan"), story.clock.wall)
        story.end("COMPLETED", exit_code="0:0").live(400)
        (attempt,) = story.state.attempts.values()
        assert attempt.cause is not None
        assert (story.state.runs["llm"].verdict, attempt.cause.cause) == ("diverged", "diverged")
        assert attempt.retry_decision == "after-change"
        story.expected |= {one.key for one in story.new()}


@pytest.mark.parametrize(
    "error",
    ["RuntimeError: the kill switch is set", "torch.distributed.DistBackendError: NCCL error: remote process exited"],
)
def test_a_trainer_that_obeys_its_kill_switch_with_an_error_was_stopped(error: str) -> None:
    """It removes the switch and raises; or its first rank exits, and the others lose it."""
    with Training() as story:
        story.live(100)
        story.kill = story.clock.wall
        story.live(104)
        story.kill, story.trains = None, False
        story.live(112)
        for line in ("Traceback (most recent call last):", '  File "/x/train.py", line 3, in <module>', error):
            story._write(line, story.clock.wall)
        story.end("FAILED", exit_code="1:0").live(400)
        assert story.state.runs["llm"].verdict == "stopped"
        assert story.alert("run-stopped").is_firing, "and nothing is sent"


def test_no_retry_is_suggested_of_a_run_that_a_person_stopped_whatever_its_log_shows() -> None:
    with Training(phone("info")) as story:
        story.hear(RunsChanged((replace(SPEC, retry=RetryPolicy(auto_requeue="suggest")),))).live(100)
        for line in ("Traceback (most recent call last):", "OSError: [Errno 5] Input/output error: '/fsx/data'"):
            story._write(line, story.clock.wall)
        story.end("CANCELLED", cancelled_by="ann").live(300)
        (attempt,) = story.state.attempts.values()
        assert attempt.cause is not None
        assert attempt.cause.cause == "storage-io"
        assert [one.rule for one in story.expect("fire", "run:llm").alerts] == ["run-stopped"]


def test_no_alert_asks_for_another_job_while_a_trainer_that_outlived_its_job_writes() -> None:
    with Training() as story:
        story.live(200).end("NODE_FAIL")
        story.trains, story.use, story.power = True, 98, 650.0
        story.live(500)
        advice = {one.rule: one.advice for one in story.state.alerts.values() if one.is_open}
        assert advice["not-scheduled"].startswith(
            "end the trainer of job 88 first: it still writes to the checkpoints; "
        )
        assert advice["second-trainer"].startswith("end its processes on gpu-001, gpu-002 before the run starts again")
        story.expected |= {one.key for one in story.new()}


def test_a_restart_of_ours_forgets_neither_who_stopped_a_run_nor_that_one_is_dead() -> None:
    with Training() as story:
        story.live(600, QUIET)
        story.kill = story.clock.wall
        story.live(660).end("COMPLETED", exit_code="0:0").live(1_000, QUIET)
        story.kill = None
        story.live(1_100).restart(60).hear(RunsChanged((SPEC,))).live(4_000, QUIET)
        assert story.alert("run-stopped").is_firing
    with Training() as story:
        story.live(600, QUIET).end("FAILED", exit_code="1:0").live(700).expect("fire", "run:llm")
        story.restart(60).hear(RunsChanged((SPEC,))).live(4_000, QUIET)
        assert story.alert("run-dead").is_firing, "and it is told once"
        follow_ups(story)


def test_the_end_of_a_hang_because_the_run_died_is_no_all_clear() -> None:
    with Training() as story:
        story.live(LEARNED, QUIET)
        story.trains, story.use, story.power = False, 100, 140.0
        story.live(LEARNED + 240).expect("fire", "run:llm")
        story.end("FAILED", exit_code="1:0").live(LEARNED + 600)
        dead = story.expect("fire", "run:llm")
        assert dead.alerts[0].rule == "run-dead"
        follow_ups(story)
        over = story.expect("resolve", "run:llm")
        message = render([over], over.at)
        assert message.title == "NO LONGER RUNNING llm: run-hung"
        assert message.body.startswith("llm now: failed, job 88: exited with code 1")
        assert "; before: llm hangs: no step for 4m" in message.body
        assert over.reason == "its run has ended; that does not mean that it is ok"
        assert not is_good_news(message)


def test_a_stall_is_not_over_while_the_next_step_is_late_again() -> None:
    with Training() as story:
        story.hear(RunsChanged((replace(SPEC, stall_after=300.0),))).live(600, QUIET)
        story.trains, story.use, story.power = False, 40, 300.0
        story.live(600 + 480).expect("fire", "run:llm")
        story.trains = True
        story.live(600 + 500)
        story.trains = False
        story.live(600 + 700).expect_nothing_else()
        assert story.alert("run-stalled").is_firing
        story.trains, story.use, story.power = True, 98, 650.0
        over = story.live(600 + 900).expect("resolve", "run:llm")
        body = render([over], over.at).body
        assert body.startswith("llm now: healthy, step "), body
        assert "; before: llm has stalled: " in body
