"""Files as several readers and clocks tell of them: steps that are told again, paths that two clusters share."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tests.trainmon.engine.reducers.test_reduce import RUN, STEP, chunk, folded, reading_of
from trainmon.model import (
    CheckpointEntry,
    CheckpointListing,
    Cluster,
    ClustersChanged,
    FileGroup,
    Hello,
    Job,
    JobsListed,
    NodeReading,
    Run,
    RunsChanged,
    RunSpec,
    Source,
    SourceChanged,
    State,
    SwitchSample,
    SwitchSamples,
    WandbRows,
)

STATE = "trainer_state.json"
PULSE = "[2026-09-21 {:02d}:00:00] PULSE: llm is running"


def hanging() -> State:
    """A run that stepped at 1000 and is silent since; a watchdog writes into its log."""
    lines = [STEP.format(step) for step in (9, 10)]
    state = folded(RunsChanged((RUN,)), reading_of(chunk(*lines, mtime=1000.0, size=300)))
    pulse = chunk(PULSE.format(1), t=4600.0, mtime=4600.0, size=340)
    return folded(reading_of(pulse, at=4600.0), state=state, now=4600.0)


def test_steps_that_a_new_reader_repeats_are_no_progress() -> None:
    state = hanging()
    again = chunk(*(STEP.format(step) for step in (9, 10)), PULSE.format(1), t=4700.0, mtime=4600.0, size=340)
    state = folded(reading_of(Hello(1, 4690.0, "n1"), at=4690.0), reading_of(again, at=4700.0), state=state, now=4700.0)
    assert (state.runs["llm"].progress.step, state.runs["llm"].progress.at) == (10, 1000.0)
    assert state.runs["llm"].verdict == "stalled"
    more = chunk(STEP.format(10), PULSE.format(1), STEP.format(11), t=4800.0, mtime=4790.0, size=480)
    state = folded(reading_of(Hello(1, 4795.0, "n1"), at=4795.0), reading_of(more, at=4800.0), state=state, now=4800.0)
    assert (state.runs["llm"].progress.step, state.runs["llm"].progress.at) == (11, 4790.0)


def first_look(*lines: str, at: float = 1_000_000.0) -> Run:
    return folded(RunsChanged((RUN,)), reading_of(chunk(*lines, t=at, mtime=at - 5), at=at), now=at).runs["llm"]


def test_a_watchdog_in_the_log_of_a_run_that_hangs_does_not_make_it_healthy_at_a_first_look() -> None:
    step = STEP.format(10)  # at 07:19:37
    pulses = [f"[2025-08-01 {hour:02d}:19:37] PULSE: llm is running" for hour in (8, 9, 10)]
    hung = first_look(step, *pulses)
    assert hung.progress.at == 1_000_000.0 - 5 - 3 * 3600
    assert (hung.verdict, hung.why.partition(" (")[0]) == ("stalled", "no step for 3h, the last was step 10")
    assert first_look(pulses[0], step).verdict == "healthy", "times that go back say nothing"
    assert first_look(pulses[2], step, pulses[0]).verdict == "healthy"
    assert first_look(step, "[2025-13-41 08:19:37] no time", "and none at all").verdict == "healthy"


def test_new_lines_are_younger_than_the_look_before_whatever_the_file_server_says() -> None:
    behind = 1_200.0
    state = folded(RunsChanged((RUN,)), reading_of(chunk(STEP.format(1), t=2000.0, mtime=2000.0 - behind), at=2000.0))
    assert state.runs["llm"].progress.at == 800.0, "a first look cannot know"
    state = folded(
        reading_of(chunk(STEP.format(2), t=2010.0, mtime=2010.0 - behind), at=2010.0), state=state, now=2010.0
    )
    assert (state.runs["llm"].progress.at, state.runs["llm"].verdict) == (2000.0, "healthy")


def test_a_log_is_as_new_as_its_file() -> None:
    state = folded(RunsChanged((RUN,)), reading_of(chunk("loading", mtime=1000.0)))
    state = folded(reading_of(chunk("loading", t=1100.0, mtime=1100.0), at=1100.0), state=state, now=1100.0)
    assert state.runs["llm"].log is not None
    assert state.runs["llm"].log.began_at == 1000.0
    other = chunk("loading", t=1200.0, mtime=1200.0, path="/fsx/2.out", restarted="newer")
    state = folded(reading_of(other, at=1200.0), state=state, now=1200.0)
    assert state.runs["llm"].log is not None
    assert state.runs["llm"].log.began_at == 1200.0


def listing(t: float = 1000.0) -> CheckpointListing:
    shards = FileGroup("__#_#.distcp", 4, 4000, t - 30, t - 20, "__0_0.distcp", 1)
    return CheckpointListing(
        v=1, t=t, path="/ckpt", entries=(CheckpointEntry("step-10", "dir", t - 20, groups=(shards,)),)
    )


def test_the_same_paths_of_another_cluster_are_other_files() -> None:
    ours = replace(RUN, checkpoints="/ckpt")
    theirs = RunSpec(name="other", cluster="lab", checkpoints="/ckpt", kill_switch=RUN.kill_switch)
    clusters = ClustersChanged((Cluster(name="prod", login="n1"), Cluster(name="lab", login="n2")))
    armed = SwitchSamples(1, 1000.0, (SwitchSample("/fsx/kill", exists=True, mtime=990.0),))
    state = folded(RunsChanged((ours, theirs)), clusters, reading_of(armed), reading_of(listing()))
    assert state.runs["llm"].kill is not None
    assert state.runs["llm"].checkpoints is not None
    assert (state.runs["other"].kill, state.runs["other"].checkpoints) == (None, None)
    shared = ClustersChanged((Cluster(name="lab", login="n1"),))
    state = folded(shared, reading_of(armed), reading_of(listing()), state=state)
    assert state.runs["other"].checkpoints is not None
    assert state.runs["other"].kill is not None


def test_a_truncated_tracker_of_megatron_is_a_problem_only_if_it_stays_empty() -> None:
    state = folded(RunsChanged((replace(RUN, checkpoints="/ckpt"),)))

    def look(t: float, text: str, written_at: float) -> str | None:
        nonlocal state
        shards = FileGroup("mp_rank_#/model_optim_rng.pt", 4, 4000, 10.0, 20.0, "mp_rank_03/model_optim_rng.pt", 4)
        tracker = CheckpointEntry("latest_checkpointed_iteration.txt", "file", written_at, bytes=len(text), text=text)
        entries = (tracker, CheckpointEntry("iter_0000010", "dir", 20.0, groups=(shards,)))
        listing = CheckpointListing(v=1, t=t, path="/ckpt", entries=entries)
        state = folded(reading_of(listing, at=t), state=state, now=t)
        known = state.runs["llm"].checkpoints
        assert known is not None
        assert known.committed is not None or t > 1100.0
        return known.problem

    assert look(1000.0, "10", 20.0) is None
    assert look(1030.0, "", 1029.0) is None
    assert look(1060.0, "", 1029.0) is None
    assert (look(1110.0, "", 1029.0) or "").endswith("latest_checkpointed_iteration.txt is empty")


def test_what_a_run_without_a_job_saves_is_not_torn_by_the_end_of_its_last_job() -> None:
    spec = replace(RUN, checkpoints="/ckpt")
    slurm = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="up", answered_at=1000.0, period=30.0)
    failed = Job(
        cluster="prod", id="88", number=88, name="llm", user="ana", state="FAILED", started_at=100.0, ends_at=500.0
    )
    queue = (SourceChanged(slurm), JobsListed("prod", 1000.0, (failed,)))
    state = folded(RunsChanged((spec,)), *queue, reading_of(listing()))
    state = folded(NodeReading("n1", "prod", 1000.0, listing()), state=state)
    assert state.runs["llm"].checkpoints is not None
    assert state.runs["llm"].checkpoints.list[0].state == "torn"
    state = folded(reading_of(chunk(STEP.format(1), mtime=999.0)), reading_of(listing()), state=state)
    assert state.runs["llm"].checkpoints is not None
    assert state.runs["llm"].checkpoints.list[0].state == "writing", "somebody trains it by hand"


def test_the_longest_pause_of_a_log_is_one_that_was_watched() -> None:
    state = folded(RunsChanged((RUN,)), reading_of(chunk("page 1", mtime=1000.0, seen=1)))

    def pause(*lines: str, at: float, path: str = "/fsx/run.out") -> float:
        nonlocal state
        grown = chunk(*lines, t=at, mtime=at if lines else 1000.0, seen=len(lines), path=path)
        state = folded(reading_of(grown, at=at), state=state, now=at)
        log = state.runs["llm"].log
        assert log is not None
        return log.pause_s

    assert pause(at=1030.0) == 0.0, "it is not over yet"
    assert pause("page 2", at=1040.0) == 30.0
    assert pause("page 3", at=9000.0) == 30.0, "nobody looked in between"
    assert pause("page 1", at=9100.0, path="/fsx/next.out") == 0.0, "another file"


def test_the_loss_of_a_saved_trainer_state_counts_until_the_log_shows_steps() -> None:
    spec = replace(RUN, checkpoints="/out", metrics_found=("/out",))
    files = tuple(FileGroup(name, 1, 9, 900.0, 900.0, name, 1) for name in ("model.safetensors", STATE))
    entry = CheckpointEntry("checkpoint-20", "dir", 900.0, groups=files)
    listing = CheckpointListing(v=1, t=1000.0, path="/out", entries=(entry,))

    def state_of(loss: float | str, folder: str = "/out") -> WandbRows:
        path = f"{folder}/checkpoint-20/{STATE}"
        points = ((1, 10.0, None, 3.5), (2, 20.0, 900.0, loss))
        return WandbRows(v=1, t=1000.0, id="llm", path=path, format=STATE, rows=2, keys=("loss",), points=points)

    other = folded(RunsChanged((spec,)), *(reading_of(one) for one in (listing, state_of(0.5, "/else"))))
    assert (other.runs["llm"].step, other.runs["llm"].loss) == (20, None), "it is of other checkpoints"
    state = folded(RunsChanged((spec,)), *(reading_of(one) for one in (listing, state_of(0.25))))
    assert (state.runs["llm"].step, state.runs["llm"].loss, state.runs["llm"].progress.loss) == (20, 0.25, None)
    lost = folded(reading_of(replace(state_of("NaN"), file="2")), state=state).runs["llm"].loss
    assert lost is not None
    assert math.isnan(lost)
    logged = folded(reading_of(chunk("step 21: lr 1e-4", "step 22: lr 1e-4")), state=state).runs["llm"]
    assert (logged.step, logged.loss) == (22, None)
