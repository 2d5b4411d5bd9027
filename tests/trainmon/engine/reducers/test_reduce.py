"""State + events → State."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from trainmon.alerting.rules.runs.steps import LossNan
from trainmon.engine.reducers.files import new_lines
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    AnyReading,
    DiskSample,
    DiskSamples,
    DisksChanged,
    Event,
    GpuFacts,
    GpuFactsAll,
    GpuInstance,
    GpuSample,
    GpuSamples,
    Hello,
    HostSample,
    LogChunk,
    NodeReading,
    Process,
    Prompt,
    PromptsChanged,
    RunsChanged,
    RunSpec,
    Source,
    SourceChanged,
    SourceRemoved,
    State,
    SwitchSample,
    SwitchSamples,
    Trouble,
    Xid,
)

RUN = RunSpec(name="llm", cluster="prod", log="/fsx/*.out", kill_switch="/fsx/kill", save_switch="/fsx/save")
STEP = " [2025-08-01 07:19:37] iteration {:8d}/    5000 | elapsed time per iteration (ms): 4100.0 | lm loss: 2.0E+00 |"


def reading_of(reading: AnyReading, at: float = 1000.0, node: str = "n1") -> NodeReading:
    return NodeReading(node, "prod", at, reading)


def folded(*events: Event, state: State | None = None, now: float = 1000.0) -> State:
    return reduce(state or State(), events, now)


def chunk(*lines: str, t: float = 1000.0, **more: Any) -> LogChunk:
    return LogChunk(**{"v": 1, "t": t, "id": "llm", "path": "/fsx/1.out", "lines": lines, "seen": len(lines)} | more)


def test_a_reading_makes_its_node_and_its_source_known() -> None:
    state = folded(reading_of(GpuSamples(1, 1000.0, (GpuSample(0, temperature_c=61),))))
    assert state.nodes["n1"].gpus[0].temperature_c == 61
    assert state.sources["node:n1"].health == "ok"


def test_a_source_that_says_nothing_for_three_periods_is_late_and_keeps_its_numbers() -> None:
    state = folded(reading_of(GpuSamples(1, 1000.0, (GpuSample(0, temperature_c=61),))))
    state = folded(state=state, now=1006.1)
    assert state.sources["node:n1"].health == "late"
    assert state.nodes["n1"].gpus[0].temperature_c == 61


def test_a_lost_connection_is_down_with_its_sentence_and_a_word_from_the_node_ends_it() -> None:
    gone = Source(name="node:n1", kind="node", cluster="prod", phase="retrying", error="no answer in 10s")
    state = folded(reading_of(Hello(1, 1000.0, "n1")), SourceChanged(gone))
    assert (state.sources["node:n1"].health, state.sources["node:n1"].answered_at) == ("down", 1000.0)
    state = folded(reading_of(Hello(1, 1001.0, "n1"), at=1001.0), state=state, now=1001.0)
    assert (state.sources["node:n1"].health, state.sources["node:n1"].error) == ("ok", None)


def test_a_clock_that_is_off_is_skew_and_makes_nothing_stale() -> None:
    state = folded(reading_of(GpuSamples(1, 4600.0, (GpuSample(0),)), at=1000.0))
    node = state.nodes["n1"]
    assert node.clock_skew_s == 3600.0
    assert node.gpus_at == 1000.0
    assert state.sources["node:n1"].health == "ok"


def test_one_slow_packet_does_not_make_a_clock_wrong() -> None:
    state = folded(reading_of(HostSample(1, 1000.0), at=1000.0))
    slow = replace(reading_of(HostSample(1, 1002.0), at=1062.0), under_way=60.0)
    skew = folded(slow, state=state, now=1062).nodes["n1"].clock_skew_s
    assert skew is not None
    assert abs(skew) <= 0.01


@pytest.mark.parametrize("step", [-3600.0, -2.0, 2.0, 3600.0])
def test_a_clock_that_is_set_is_followed_as_far_as_the_way_of_the_reading_allows(step: float) -> None:
    state = folded(reading_of(HostSample(1, 1000.0), at=1000.0))
    after = replace(reading_of(HostSample(1, 1010.0 + step), at=1010.1), under_way=0.3)
    skew = folded(after, state=state, now=1010).nodes["n1"].clock_skew_s
    assert skew is not None
    assert -0.11 < skew - step < 0.21


def test_facts_and_samples_of_a_gpu_come_together() -> None:
    facts = GpuFacts(0, uuid="GPU-1", name="H100", memory_total_mib=81_559, processes=(Process(7, "ann", 100, "x"),))
    state = folded(
        reading_of(GpuFactsAll(1, 1000.0, (facts,), expected=8)),
        reading_of(GpuSamples(1, 1000.0, (GpuSample(0, temperature_c=61, throttle_mask=0x44),))),
    )
    (gpu,) = state.nodes["n1"].gpus
    assert (gpu.uuid, gpu.temperature_c, gpu.throttle) == ("GPU-1", 61, ("sw_power_cap", "hw_thermal"))
    assert state.nodes["n1"].gpus_expected == 8


def test_a_lost_gpu_forgets_its_numbers_and_the_others_go_on() -> None:
    both = GpuSamples(1, 1000.0, (GpuSample(0, temperature_c=61), GpuSample(1, temperature_c=62)))
    lost = GpuSamples(1, 1002.0, (GpuSample(0, "GPU is lost", lost=True), GpuSample(1, temperature_c=63)))
    state = folded(reading_of(both), reading_of(lost, at=1002.0), now=1002.0)
    first, second = state.nodes["n1"].gpus
    assert (first.state, first.error, first.temperature_c) == ("lost", "GPU is lost", None)
    assert (second.state, second.temperature_c) == ("ok", 63)


def test_a_gpu_that_nvidia_smi_no_longer_lists_is_lost() -> None:
    both = GpuSamples(1, 1000.0, (GpuSample(0), GpuSample(1)))
    hello = Hello(1, 1000.0, "n1", probe="nvidia-smi")
    state = folded(
        reading_of(hello), reading_of(both), reading_of(GpuSamples(1, 1002.0, (GpuSample(1),)), at=1002.0), now=1002.0
    )
    assert [gpu.state for gpu in state.nodes["n1"].gpus] == ["lost", "ok"]


def test_a_worker_that_starts_anew_names_its_gpus_one_by_one_and_none_is_lost() -> None:
    both = GpuSamples(1, 1000.0, (GpuSample(0, temperature_c=61), GpuSample(1, temperature_c=62)))
    hello = Hello(1, 1000.0, "n1", probe="nvml")
    some = GpuSamples(1, 1002.0, (GpuSample(1, temperature_c=63),))
    state = folded(reading_of(hello), reading_of(both), reading_of(some, at=1002.0), now=1002.0)
    assert [(gpu.state, gpu.temperature_c) for gpu in state.nodes["n1"].gpus] == [("ok", 61), ("ok", 63)]


def test_an_xid_of_the_past_is_reported_with_its_own_time_and_moves_no_clock() -> None:
    state = folded(
        reading_of(GpuSamples(1, 1000.0, (GpuSample(3),))), reading_of(Xid(1, 500.0, 79, index=3), at=1001.0)
    )
    assert state.nodes["n1"].gpus[0].last_xid_at == 500.0
    assert state.nodes["n1"].clock_skew_s == 0.0
    newer = folded(reading_of(Xid(1, 1002.0, 48, index=3), at=1002.0), state=state, now=1002.0)
    again = folded(reading_of(Xid(1, 500.0, 79, index=3), at=1003.0), state=newer, now=1003.0)
    assert again.nodes["n1"].gpus[0].last_xid == 48


def test_an_xid_is_kept_with_its_gpu_even_when_that_is_lost() -> None:
    state = folded(
        reading_of(GpuSamples(1, 1000.0, (GpuSample(3),))),
        reading_of(Xid(1, 1001.0, 79, index=3), at=1001.0),
        reading_of(GpuSamples(1, 1002.0, (GpuSample(3, "GPU is lost", lost=True),)), at=1002.0),
    )
    assert state.nodes["n1"].gpus[0].last_xid == 79


def test_an_xid_of_no_known_gpu_is_a_trouble_of_the_node() -> None:
    state = folded(reading_of(Xid(1, 1000.0, 79, text="fell \x1b[31moff")))
    assert state.nodes["n1"].troubles == {"xid": "Xid 79: fell off"}


def test_troubles_come_and_go() -> None:
    state = folded(reading_of(Trouble(1, 1000.0, "gpu", "NVML has not answered for 12s")))
    assert state.nodes["n1"].troubles == {"gpu": "NVML has not answered for 12s"}
    assert folded(reading_of(Trouble(1, 1000.0, "gpu")), state=state).nodes["n1"].troubles == {}


def test_process_names_carry_no_secret_and_no_control_sequence() -> None:
    command = "python train.py --wandb-api-key=0123456789abcdef0123456789abcdef01234567 \x1b]0;evil\x07"
    facts = GpuFacts(0, processes=(Process(7, "ann", 100, command),))
    shown = folded(reading_of(GpuFactsAll(1, 1000.0, (facts,)))).nodes["n1"].gpus[0].processes[0].command
    assert shown == "python train.py --wandb-api-key=*** "


def test_a_disk_keeps_back_what_is_not_usable() -> None:
    sample = DiskSample("/fsx", total_bytes=1000, free_bytes=300, total_inodes=10, free_inodes=4)
    state = folded(DisksChanged({"/fsx": 0.8}), reading_of(DiskSamples(1, 1000.0, (sample,))))
    assert state.disks["n1:/fsx"].usable_free_bytes == 100
    hung = DiskSamples(1, 1010.0, (DiskSample("/fsx", "hung"),))
    state = folded(reading_of(hung, at=1010.0), state=state, now=1010.0)
    assert (state.disks["n1:/fsx"].state, state.disks["n1:/fsx"].free_bytes) == ("hung", None)


def test_names_of_gpus_and_instances_carry_no_control_sequence() -> None:
    evil = "\x1b[2J\x1b]0;evil\x07 x"
    facts = GpuFacts(0, evil, evil, instances=(GpuInstance(evil, evil, evil, utilization=evil),))
    gpu = folded(reading_of(GpuFactsAll(1, 1000.0, (facts,)))).nodes["n1"].gpus[0]
    one = gpu.instances[0]
    assert {gpu.uuid, gpu.name, one.id, one.profile, one.uuid, one.utilization} == {" x"}


def test_a_disk_that_its_host_no_longer_reports_goes() -> None:
    both = DiskSamples(1, 1000.0, (DiskSample("/"), DiskSample("/fsx")))
    state = folded(reading_of(both), reading_of(DiskSamples(1, 1000.0, (DiskSample("/"),)), node="n2"))
    one = DiskSamples(1, 1080.0, (DiskSample("/"),))
    state = folded(reading_of(one, at=1080.0), state=state, now=1080.0)
    assert set(state.disks) == {"n1:/", "n1:/fsx", "n2:/"}
    state = folded(reading_of(one, at=1091.0), state=state, now=1091.0)
    assert set(state.disks) == {"n1:/", "n2:/"}


def test_a_log_gives_steps_and_clean_lines() -> None:
    state = folded(RunsChanged((RUN,)), reading_of(chunk("\x1b[1mhello\x1b[0m", STEP.format(7), mtime=1000.0)))
    run = state.runs["llm"]
    assert run.log is not None
    assert run.log.lines[0] == "hello"
    assert (run.progress.step, run.progress.target_step, run.progress.loss) == (7, 5000, 2.0)
    assert run.verdict == "healthy"


def test_of_a_burst_the_last_step_counts_even_when_it_was_not_sent_whole() -> None:
    state = folded(
        RunsChanged((RUN,)), reading_of(chunk("noise", kept=(STEP.format(9),), dropped=1900, seen=1902, mtime=1000.0))
    )
    log = state.runs["llm"].log
    assert log is not None
    assert log.dropped == 1900
    assert state.runs["llm"].progress.step == 9


def test_an_old_log_that_is_read_for_the_first_time_is_old() -> None:
    state = folded(RunsChanged((RUN,)), reading_of(chunk(STEP.format(7), t=100_000.0, mtime=10_000.0), at=100_000.0))
    state = folded(state=state, now=100_000.0)
    assert state.runs["llm"].progress.at == 10_000.0
    assert state.runs["llm"].verdict == "stalled"


def test_a_reader_that_starts_anew_repeats_no_line() -> None:
    state = folded(
        RunsChanged((RUN,)), reading_of(Hello(1, 999.0, "n1")), reading_of(chunk("a", "b", "c", mtime=1000.0))
    )
    state = folded(
        reading_of(Hello(1, 1001.0, "n2"), node="n2"), reading_of(chunk("b", "c", "d"), node="n2"), state=state
    )
    state = folded(reading_of(chunk("d"), node="n2"), state=state)
    log = state.runs["llm"].log
    assert log is not None
    assert log.lines == ("a", "b", "c", "d", "d")


def test_the_rate_of_a_log_is_of_lines_that_came_while_it_was_watched() -> None:
    state = folded(RunsChanged((RUN,)), reading_of(chunk(path=None, error="no file matches")))
    rates = []
    for lines, at in (("a", "b", "c"), 1000.1), (("b", "c"), 1000.2), (("d",), 1002.2), ((), 1032.2):
        if lines == ("b", "c"):
            state = folded(reading_of(Hello(1, at, "n1"), at=at), state=state)
        state = folded(reading_of(chunk(*lines, mtime=1000.0), at=at), state=state)
        log = state.runs["llm"].log
        rates.append(log and log.lines_per_s)
    assert rates == [None, None, 0.5, 0.0]


def test_unseen_lines_are_those_after_the_last_two_known() -> None:
    assert new_lines(("a", "b"), ("a", "b", "c")) == ("c",)
    assert new_lines(("a", "b"), ("b", "c")) == ("c",)
    assert new_lines(("a", "b"), ("x", "y")) == ("x", "y")
    assert new_lines((), ("x",)) == ("x",)
    assert new_lines(("a",), ("a",)) == ()


def test_a_restarted_log_says_so_between_its_lines() -> None:
    state = folded(
        RunsChanged((RUN,)), reading_of(chunk("a", mtime=1000.0)), reading_of(chunk("b", restarted="truncated"))
    )
    log = state.runs["llm"].log
    assert log is not None
    assert log.lines == ("a", "──── the log was truncated ────", "b")


def test_lines_have_numbers_that_never_repeat_and_are_bounded() -> None:
    state = folded(RunsChanged((RUN,)))
    for _ in range(30):
        state = folded(reading_of(chunk(*["x"] * 100)), state=state)
    log = state.runs["llm"].log
    assert log is not None
    assert (len(log.lines), log.first) == (2000, 1000)


def test_what_each_line_says_is_kept_beside_it_through_repeats_restarts_and_bounds() -> None:
    kept = chunk("a", STEP.format(7), kept=(STEP.format(6),), mtime=1000.0)
    state = folded(RunsChanged((RUN,)), reading_of(kept), reading_of(chunk("b", STEP.format(8), restarted="truncated")))
    log = state.runs["llm"].log
    assert log is not None
    assert [said and said.step for said in log.numbers] == [None, 7, None, None, 8]
    repeats = chunk("b", STEP.format(8), STEP.format(9))
    state = folded(
        reading_of(Hello(1, 1001.0, "n1")), reading_of(repeats), reading_of(chunk(*"x" * 1_996)), state=state
    )
    log = state.runs["llm"].log
    assert log is not None
    pairs = [pair for pair in zip(log.lines, log.numbers, strict=True) if pair[1] is not None]
    assert pairs == [(STEP.format(8), (8, 5000, 2.0)), (STEP.format(9), (9, 5000, 2.0))]


def test_what_a_bar_says_is_kept_while_it_is_drawn() -> None:
    bar = "Training: {}%|##| {}/1000 [01:00<01:00, 2.00it/s, loss=2.1]"
    for partial in (f"{bar.format(1, 10)}\r{bar.format(2, 20)}", f"{bar.format(2, 20)}\r"):
        state = folded(RunsChanged((RUN,)), reading_of(chunk("a", partial=partial, mtime=1000.0)))
        log = state.runs["llm"].log
        assert log is not None
        assert (log.partial, log.numbers) == (bar.format(2, 20), (None,))
        assert log.partial_numbers is not None
        assert log.partial_numbers.step == 20
    later = chunk("a", partial=f"{bar.format(2, 20)}\rsaving", mtime=1000.0)
    log = folded(RunsChanged((RUN,)), reading_of(later)).runs["llm"].log
    assert log is not None
    assert (log.partial, log.partial_numbers) == ("saving", None), "what is drawn now says nothing"


def test_switches_are_armed_and_taken() -> None:
    there = SwitchSample("/fsx/save", True, mtime=990.0, owner="ann", text="because\nof this")
    state = folded(RunsChanged((RUN,)), reading_of(SwitchSamples(1, 1000.0, (there,))))
    save = state.runs["llm"].save
    assert save is not None
    assert (save.exists, save.armed_at, save.by, save.why) == (True, 990.0, "ann", "because")
    state = folded(reading_of(SwitchSamples(1, 1004.0, (SwitchSample("/fsx/save", False),)), at=1004.0), state=state)
    save = state.runs["llm"].save
    assert save is not None
    assert (save.exists, save.armed_at, save.taken_at) == (False, None, 1004.0)


def test_a_switch_that_is_no_plain_file_is_armed_by_its_owner_with_its_kind() -> None:
    link = SwitchSample("/fsx/kill", True, mtime=990.0, owner="ben", kind="a symbolic link")
    kill = folded(RunsChanged((RUN,)), reading_of(SwitchSamples(1, 1000.0, (link,)))).runs["llm"].kill
    assert kill is not None
    assert (kill.exists, kill.armed_at, kill.by, kill.why, kill.error) == (
        True, 990.0, "ben with a symbolic link", None, None,
    )  # fmt: skip


def test_prompts_and_sources_come_and_go() -> None:
    prompt = Prompt(id=1, host="login", title="Password")
    state = folded(PromptsChanged((prompt,)), reading_of(Hello(1, 1000.0, "n1")))
    assert state.prompts == (prompt,)
    state = folded(SourceRemoved("node:n1"), state=state)
    assert (dict(state.sources), dict(state.nodes)) == ({}, {})


def test_a_nan_loss_diverges() -> None:
    line = STEP.format(8).replace("| lm loss: 2.0E+00 ", "") + " number of skipped iterations:   0 |"
    state = folded(RunsChanged((RUN,)), reading_of(chunk(STEP.format(7), line, mtime=1000.0)))
    loss = state.runs["llm"].progress.loss
    assert loss is not None
    assert math.isnan(loss)
    assert state.runs["llm"].verdict == "diverged"


def test_a_nan_that_the_first_look_at_a_log_finds_is_as_old_as_its_line() -> None:
    now = datetime(2025, 8, 1, 7, 49, 40, tzinfo=UTC).timestamp()
    lines = [
        STEP.format(step).replace("07:19:37", time)
        for step, time in ((7, "07:19:30"), (8, "07:20:00"), (30, "07:49:37"))
    ]
    nan = [line.replace("2.0E+00", "nan") for line in lines[1:]]
    state = folded(RunsChanged((RUN,)), reading_of(chunk(lines[0], *nan, t=now, mtime=now - 3), at=now), now=now)
    trouble = state.runs["llm"].memory.trouble
    assert trouble is not None
    assert now - trouble.at == 1_780
    (finding,) = LossNan().check(state, now)
    assert finding.summary.endswith("NaN since step 8 (23 steps, 29m ago)")

    later = folded(
        reading_of(chunk(nan[1].replace("30/", "31/"), t=now + 4, mtime=now + 4), at=now + 4), state=state, now=now + 4
    )
    assert later.runs["llm"].memory.trouble == trouble


def test_the_same_events_give_the_same_state_and_leave_the_old_one_as_it_was() -> None:
    before = folded(reading_of(GpuSamples(1, 1000.0, (GpuSample(0, temperature_c=61),))))
    event = reading_of(GpuSamples(1, 1002.0, (GpuSample(0, temperature_c=70),)), at=1002.0)
    assert folded(event, state=before, now=1002.0) == folded(event, state=before, now=1002.0)
    assert before.nodes["n1"].gpus[0].temperature_c == 61


def test_a_reader_that_is_restarted_sends_the_end_of_the_file_again_and_no_line_comes_twice() -> None:
    state = folded(RunsChanged((RUN,)), reading_of(chunk("a", "b", size=4)))
    state = folded(reading_of(chunk("a", "b", size=4)), state=state)
    state = folded(reading_of(chunk("b", "c", size=8)), state=state)
    log = state.runs["llm"].log
    assert log is not None
    assert log.lines == ("a", "b", "b", "c")


def test_an_unfinished_line_that_is_finished_is_no_repeated_line() -> None:
    state = folded(RunsChanged((RUN,)), reading_of(chunk("a", "a", size=7, partial="abc")))
    state = folded(reading_of(chunk("abcdef", "a", size=13)), state=state)
    log = state.runs["llm"].log
    assert log is not None
    assert log.lines == ("a", "a", "abcdef", "a")
