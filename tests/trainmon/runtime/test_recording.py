"""Recordings: the same States, charts and frames again, without secrets, as far as they were written."""

from __future__ import annotations

import gzip
import os
import resource
import shutil
import stat
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from collectors.demo.collector import ROUTES, Demo
from tests.collectors.demo.stage import STARTED, HandClock
from tests.lab.daemons import until
from tests.tui.pilot import running
from tests.tui.screen_text import settled
from tests.tui.states.alerts import alert
from tests.tui.states.states import NOW, calm, run
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.analysis.log_formats import custom_format
from trainmon.engine.engine import Engine
from trainmon.engine.snapshot import encode
from trainmon.lib import MASK, MINUTE, TrainmonError, scrub_all
from trainmon.model import (
    AlertRequest,
    AlertRequested,
    AlertsRestored,
    Event,
    GpuHistoryRead,
    LogChunk,
    NodeReading,
    Prompt,
    PromptsChanged,
    ReplayOrdered,
    RunsChanged,
    RunSpec,
    Series,
    State,
    StoredAlerts,
)
from trainmon.runtime import recording
from trainmon.runtime.backend import DashboardBackend
from trainmon.runtime.recording import KEEP, RING_BYTES, SEGMENT, VERSION, WAITING, Player, Recorder, ordered
from tui.app import Dashboard

LASTED = 200.0
SUBJECT = ("gpu-010/3", "power", 600.0)


def words(text: str) -> None:
    raise AssertionError(text)


NEW_FORMATS = (custom_format("mine", template="at {step}: {loss}"),)
"""Of a config that was loaded again: they begin a second segment."""


class Live:
    """A demo in which a run hangs, as it was shown: its States and a chart."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "demo.trainmon"
        self.states: list[State] = []
        self.charts: dict[float, Series] = {}
        clock, events = HandClock(), list[Event]()
        alerting = AlertManager(tuple(rule() for rule in RULES), Routing(routes=ROUTES), None, clock=clock)
        engine = Engine(clock, demo=True, alerting=alerting)
        recorder = Recorder(self.file, words, is_ring=False)
        engine.takers.append(lambda *step: recorder.write(len(self.states) + 1, *step))
        demo = Demo(events.append, clock=clock, directory=directory / "logs", story="hang")
        while clock.passed < LASTED:
            due = clock.passed + 2.0
            while clock.passed < due:
                clock.passed += demo.step()
            if clock.passed >= LASTED / 2:
                engine.formats = NEW_FORMATS
            self.states.append(engine.step(events, clock.now()))
            self.charts[clock.now()] = engine.history(*SUBJECT)
            events.clear()
        recorder.end()
        demo.stop()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Live:
    return Live(tmp_path_factory.mktemp("live"))


def encoded(state: State) -> bytes:
    """All of a State. The tokens of its alerts are not recorded, and a whole number of a field with a fraction has one
    after it was decoded."""
    plain = scrub_all(msgspec.to_builtins(state, enc_hook=list))
    return msgspec.msgpack.encode(msgspec.convert(plain, State), enc_hook=list)


def test_a_replay_has_each_state_that_was_shown(live: Live) -> None:
    player = Player(live.file)
    for shown in live.states[::3]:
        played = player.seek(shown.at)
        assert msgspec.json.decode(encode(played, played.at)) == msgspec.json.decode(encode(shown, shown.at))
        if shown in live.states[::21]:
            assert encoded(played) == encoded(shown)
        assert player.history(*SUBJECT) == live.charts[shown.at]


def test_going_back_shows_what_was_shown_then_and_nothing_of_what_came_later(live: Live) -> None:
    player = Player(live.file)
    player.seek(player.line.end)
    for shown in (live.states[-15], live.states[60], live.states[0]):
        assert encoded(player.seek(shown.at)) == encoded(shown)
        assert player.history(*SUBJECT) == live.charts[shown.at]
    assert player.seek(STARTED - 100.0) == player.seek(player.line.start), "there is nothing before its start"


def test_the_time_line_knows_when_alerts_began_to_fire(live: Live) -> None:
    line = Player(live.file).line
    fired = [{name for name, one in state.alerts.items() if one.is_firing} for state in (State(), *live.states)]
    began = [state.at for (before, now), state in zip(pairwise(fired), live.states, strict=True) if now - before]
    assert (line.start, line.end) == (live.states[0].at, live.states[-1].at)
    assert began
    assert list(line.alerts) == began
    assert ordered(line, "alert").at == began[0]
    assert ordered(replace(line, at=began[-1]), "alert").at == began[-1], "there is no next one"


def test_the_keys_go_back_and_forward_change_the_speed_and_pause(live: Live) -> None:
    line = Player(live.file).line
    assert ordered(line, "back").at == line.start
    assert ordered(ordered(line, "forward"), "forward").at == line.start + 20.0
    assert ordered(replace(line, at=line.end), "forward").at == line.end
    assert [ordered(line, order).speed for order in ("slower", "faster")] == [0.5, 2.0]
    assert ordered(replace(line, speed=64.0), "faster").speed == 64.0
    assert not ordered(line, "pause").is_playing
    again = ordered(replace(line, at=line.end, is_playing=False), "pause")
    assert (again.at, again.is_playing) == (line.start, True), "at its end it starts again"


def test_several_keys_at_once_all_count_and_an_acknowledgement_is_refused(live: Live) -> None:
    player = Player(live.file)
    player._take([ReplayOrdered("pause"), *[ReplayOrdered("forward")] * 3])
    shown = player._take([])
    assert shown.replay is not None
    assert not shown.replay.is_playing
    assert 30.0 <= shown.replay.at - player.line.start < 60.0
    assert shown.read_only
    refused = player._take([AlertRequested(AlertRequest(verb="ack", at=0.0, by="me", alert="aaaa0001"))])
    assert refused.notice == "a replay cannot be changed"


async def test_the_frames_of_a_replay_are_those_that_were_shown(live: Live) -> None:
    class Still(DashboardBackend):
        """Shows one State."""

        def subscribe(self, sink: Any) -> Any:
            sink(self.engine.state)
            return lambda: None

    async def frame(engine: Engine) -> list[str]:
        app = Dashboard(Still(engine), clock=engine.clock)
        async with running(app, size=(180, 45)) as pilot:
            return [line for line in (await settled(pilot)).splitlines() if not line.startswith(" demo ")]

    shown, original, player = live.states[60], Engine(HandClock()), Player(live.file)
    player.seek(shown.at)
    original.state, original.clock, original.rings, original.curves = shown, player.clock, player.rings, player.curves
    assert await frame(player) == await frame(original)


SECRETS = ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", "0123456789abcdef0123456789abcdef01234567", "pa55w0rd")


def steps(file: Path, *batches: list[Event], **engine_facts: Any) -> list[State]:
    """The States of an engine that is recorded, with a second between them."""
    engine, recorder = Engine(HandClock(), **engine_facts), Recorder(file, words, is_ring=False)
    engine.takers.append(lambda *step: recorder.write(len(shown) + 1, *step))
    shown: list[State] = []
    for batch in batches:
        shown.append(engine.step(batch, NOW + len(shown)))
    recorder.end()
    return shown


def log_chunk(*lines: str) -> NodeReading:
    return NodeReading(
        "n1", "prod", NOW, LogChunk(1, NOW, "llm", path="/logs/llm", size=100, lines=lines, seen=len(lines))
    )


def test_no_secret_and_no_prompt_is_written(tmp_path: Path) -> None:
    hugging, wandb, password = SECRETS
    lines = f"export HF_TOKEN={hugging}", f"WANDB_API_KEY={wandb} python train.py --password={password}", "step 1"
    key = (
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaC1rZXktdjEAAAAA",
        "-----END OPENSSH PRIVATE KEY-----",
        "step 2",
    )
    prompt = PromptsChanged((Prompt(id=1, host="n1", title="otp 1234", instructions="", fields=()),))
    spec = RunSpec(name="llm", cluster="prod", log="/logs/llm", nodes=("n1",))
    shown = steps(
        tmp_path / "file", [RunsChanged((spec,)), prompt, log_chunk("step 0")], [log_chunk(*lines)], [log_chunk(*key)]
    )
    raw = gzip.decompress((tmp_path / "file").read_bytes())

    assert not [secret for secret in (*SECRETS, "otp 1234", key[1]) if secret.encode() in raw]
    assert {b"step 1", b"step 2", MASK.encode()} == {
        text for text in (b"step 1", b"step 2", MASK.encode()) if text in raw
    }
    played = Player(tmp_path / "file").seek(NOW + 1.5)
    assert encoded(played) == encoded(replace(shown[1], prompts=()))
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_the_token_with_which_a_phone_acknowledges_is_not_written(tmp_path: Path) -> None:
    recorder, state = Recorder(tmp_path / "file", words, is_ring=False), replace(calm(), alerts={})
    for number in (1, 2):
        fired = replace(state, alerts={"aaaa0001": alert(token="s3cr3t-t0k3n")}, at=state.at + number)
        recorder.write(number, (), state, fired, ())
    recorder.end()
    assert b"s3cr3t" not in gzip.decompress((tmp_path / "file").read_bytes())
    assert "aaaa0001" in Player(tmp_path / "file").seek(NOW + 9.0).alerts


def test_a_replay_reads_logs_with_the_formats_of_the_config_of_that_time(tmp_path: Path) -> None:
    spec = RunSpec(name="llm", cluster="prod", log="/logs/llm", nodes=("n1",))
    steps(
        tmp_path / "file",
        [RunsChanged((spec,))],
        [log_chunk("at 7: 2.5")],
        [log_chunk("at 8: 2.4")],
        formats=NEW_FORMATS,
    )
    played = Player(tmp_path / "file").seek(NOW + 9.0)
    assert (played.runs["llm"].step, played.runs["llm"].loss) == (8, 2.4)


def test_the_past_that_prometheus_had_is_in_the_charts_of_a_replay(tmp_path: Path) -> None:
    past = GpuHistoryRead(
        node="n1", start=NOW - 30.0, step=10.0, span=3600.0, columns={(0, "temperature_c"): [60.0, 61.0]}
    )
    sample = calm().nodes
    name = next(iter(sample))
    past = replace(past, node=name)
    recorder, state = Recorder(tmp_path / "file", words, is_ring=False), calm()
    recorder.write(1, [past], state, state, ())
    recorder.end()
    assert Player(tmp_path / "file").history(f"{name}/0", "temperature", 60.0).values == (60.0, 61.0)


# ---- files that are not whole ----------------------------------------------------------------------------------------


def test_what_a_killed_program_wrote_is_played_up_to_its_last_step(tmp_path: Path, live: Live) -> None:
    data = live.file.read_bytes()
    for length in (len(data) // 2, len(data) - 1):
        file = tmp_path / "cut"
        file.write_bytes(data[:length])
        player = Player(file)
        shown = next(state for state in live.states if state.at == player.line.end)
        assert player.line.end > player.line.start
        assert encoded(player.seek(player.line.end)) == encoded(shown)


def test_a_damaged_recording_ends_where_it_is_damaged(tmp_path: Path, live: Live) -> None:
    data, file = bytearray(live.file.read_bytes()), tmp_path / "damaged"
    for place in range(len(data) // 2, len(data) // 2 + 40):
        data[place] ^= 0xFF
    file.write_bytes(data)
    player = Player(file)
    assert player.seek(player.line.end).at < live.states[-1].at
    assert player._take([]).replay is not None, "the dashboard goes on"


WHY = "it is not a recording, or is damaged"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "No such file or directory"),
        (b"", WHY),
        (b"[[cluster]]\n", WHY),
        (gzip.compress(b"text of another program", mtime=0), WHY),
        (gzip.compress(b"\0\0\0\x02\x81\xa5", mtime=0), WHY),
        (
            gzip.compress(
                len(one := msgspec.msgpack.encode({"at": 1.0, "whole": {}})).to_bytes(4, "big") + one, mtime=0
            ),
            WHY,
        ),
    ],
)
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, content: bytes | None, why: str) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(TrainmonError) as refused:
        Player(file)
    assert str(refused.value) == f"{file} cannot be played: {why}"


def framed(*frames: Any) -> bytes:
    data = [msgspec.msgpack.encode(frame) for frame in frames]
    return gzip.compress(b"".join(len(one).to_bytes(4, "big") + one for one in data), mtime=0)


FIRST = {"at": NOW, "state": {}, "version": 1}
DEEP = msgspec.Raw(b"\x91" * 200_000 + b"\xc0")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (framed({**FIRST, "version": VERSION + 1}), "it is of a newer trainmon-tui"),
        (framed({**FIRST, "state": DEEP}), WHY),
        (framed({**FIRST, "state": {"alerts": DEEP}}), WHY),
        (framed({**FIRST, "state": {"of a later one": 1}}), WHY),
        (framed({**FIRST, "events": [["LaterEvent", {}]]}), WHY),
        (framed({**FIRST, "at": 1e300}), WHY),
        (framed({**FIRST, "at": float("nan")}), WHY),
        (gzip.compress(b"\xff\xff\xff\xff" + bytes(1 << 20), mtime=0), WHY),
    ],
)
def test_a_hostile_file_is_refused_in_a_sentence(tmp_path: Path, content: bytes, why: str) -> None:
    test_another_file_is_refused_in_a_sentence(tmp_path, content, why)


def test_of_a_file_that_would_fill_the_memory_the_first_part_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MOST_BYTES", 100 * recording.FRAME_BYTES)
    (tmp_path / "file").write_bytes(framed(FIRST, *[{"at": NOW, "state": {}}] * 500))
    player = Player(tmp_path / "file")
    assert 50 < len(player.frames) < 100
    assert player.why == "the rest is too large"
    assert player._take([]).notice == "the recording ends here: the rest is too large"


def test_a_step_that_cannot_be_played_ends_the_replay_in_a_sentence(tmp_path: Path) -> None:
    last = {"at": NOW + 2.0, "state": {}, "events": [["SourceRemoved", {"name": 7}]]}
    (tmp_path / "file").write_bytes(framed(FIRST, {"at": NOW + 1.0, "state": {}}, last))
    player = Player(tmp_path / "file")
    assert not player.why
    assert player.seek(NOW + 9.0).at == NOW + 1.0
    assert player._take([ReplayOrdered("forward")]).notice == f"the recording ends here: {WHY}"


# ---- the last minutes, and what is around a critical alert -----------------------------------------------------------


def parts(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.part*"))


class Ring:
    """The last minutes of a program that has a State every ten seconds."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.said = directory, list[str]()
        self.recorder = Recorder(directory, self.said.append, is_ring=True)
        self.steps, self.now = 0, NOW

    def go_on(self, minutes: float, **facts: Any) -> Ring:
        until = self.now + minutes * MINUTE
        while self.now < until:
            self.now, self.steps = self.now + 10.0, self.steps + 1
            state = replace(calm(), runs={"llm": run("llm")}, at=self.now, alerts={})
            self.recorder.write(self.steps, (), state, replace(state, **facts), ())
        return self


CRITICAL = {"aaaa0001": alert(severity="critical", phase="firing", fired_at=NOW)}


def test_the_last_minutes_are_kept_and_older_ones_are_dropped(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "recordings").go_on(150)
    oldest, *_, newest = (float(part.name.partition("-")[0]) for part in parts(ring.directory))
    assert 30 * MINUTE < ring.now - oldest <= KEEP + SEGMENT
    assert ring.now - newest <= SEGMENT
    assert {stat.S_IMODE(part.stat().st_mode) for part in parts(ring.directory)} == {0o600}
    assert stat.S_IMODE(ring.directory.stat().st_mode) == 0o700


def test_the_last_minutes_of_all_programs_are_bounded(tmp_path: Path) -> None:
    for number in range(3):
        with (tmp_path / f"{NOW + number:.0f}-1.part").open("wb") as sparse:
            os.truncate(sparse.fileno(), RING_BYTES - 1)
    Ring(tmp_path).go_on(1)
    assert [part.name[:12] for part in parts(tmp_path)] == [f"{NOW + 2:.0f}-1", f"{NOW + 10:.0f}-{os.getpid()}"[:12]]


def test_a_critical_alert_saves_half_an_hour_before_and_ten_minutes_after(tmp_path: Path) -> None:
    ring = Ring(tmp_path).go_on(60)
    began = ring.now
    ring.go_on(9, alerts=CRITICAL)
    assert not [*tmp_path.glob("*.trainmon")]
    ring.go_on(10, alerts=CRITICAL)
    (saved,) = tmp_path.glob("*.trainmon")
    assert ring.said == [f"recorded around a critical alert: trainmon-tui replay {saved}"]
    line = Player(saved).line
    assert began - 30 * MINUTE - SEGMENT <= line.start <= began - 30 * MINUTE
    assert began + 10 * MINUTE <= line.end <= began + 10 * MINUTE + 20.0
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    assert len(line.alerts) == 1


def test_two_programs_that_save_in_the_same_second_keep_both_files(tmp_path: Path) -> None:
    rings = Ring(tmp_path), Ring(tmp_path)
    for ring in rings:
        ring.go_on(5).go_on(11, alerts=CRITICAL)
    assert len({*tmp_path.glob("*.trainmon")}) == 2
    assert all(len(ring.said) == 1 for ring in rings)


def test_what_a_killed_program_of_the_same_process_id_left_is_not_saved(tmp_path: Path) -> None:
    """In a container, each start has the same process id."""
    killed = Ring(tmp_path).go_on(2)
    again = Ring(tmp_path)
    again.now = killed.now
    again.go_on(3).go_on(11, alerts=CRITICAL)
    (saved,) = tmp_path.glob("*.trainmon")
    player = Player(saved)
    assert (player.why, player.line.end) == ("", player.seek(player.line.end).at)


def test_of_recordings_that_were_removed_no_empty_file_is_saved(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "recordings").go_on(1).go_on(1, alerts=CRITICAL)
    shutil.rmtree(ring.directory)
    with pytest.raises(FileNotFoundError):
        ring.recorder.end()
    ring.go_on(11, alerts=CRITICAL)
    (saved,) = ring.directory.glob("*.trainmon")
    assert Player(saved).line.end > NOW + 10 * MINUTE


def test_a_save_that_fails_is_made_later(tmp_path: Path) -> None:
    ring = Ring(tmp_path).go_on(1).go_on(9, alerts=CRITICAL)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (sum(part.stat().st_size for part in parts(tmp_path)) * 2 // 3, limits[1])
    )
    try:
        with pytest.raises(OSError, match="File too large"):
            ring.go_on(3, alerts=CRITICAL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    ring.go_on(1, alerts=CRITICAL)
    assert [Player(file).line.start for file in tmp_path.glob("*.trainmon")] == [NOW + 10.0]


def test_a_segment_that_a_full_disk_cut_off_is_in_no_saved_recording(tmp_path: Path) -> None:
    ring = Ring(tmp_path).go_on(8)
    (cut,) = tmp_path.glob("*.part.open")
    cut.write_bytes(cut.read_bytes()[:-9])
    ring.recorder._file = None  # as after a failed write
    ring.steps += 3
    ring.go_on(5).go_on(11, alerts=CRITICAL)
    (saved,) = tmp_path.glob("*.trainmon")
    player = Player(saved)
    assert (player.why, player.line.start, player.frames[-1].at) == ("", NOW + 10.0, player.line.end)
    assert sum(frame.lost for frame in player.frames) == 3


@pytest.mark.parametrize("hours", [2, -1])
def test_a_clock_that_jumps_after_an_alert_loses_nothing_of_it(tmp_path: Path, hours: int) -> None:
    ring = Ring(tmp_path).go_on(20)
    began = ring.now
    ring.go_on(5, alerts=CRITICAL)
    ring.now += hours * 60 * MINUTE  # such as a laptop that was asleep
    ring.go_on(1, alerts=CRITICAL)
    (saved,) = tmp_path.glob("*.trainmon")
    line = Player(saved).line
    assert (line.start, line.alerts) == (NOW + 10.0, (began + 10.0,))


def test_a_recording_over_a_jump_of_the_clock_can_be_played(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "file", words, is_ring=False)
    for number, at in enumerate((NOW, NOW + 10.0, NOW - 3600.0, NOW - 3590.0), 1):
        recorder.write(number, (), calm(), replace(calm(), at=at), ())
    recorder.end()
    player = Player(tmp_path / "file")
    assert player.line.end == NOW + 10.0
    assert player.seek(player.line.end).at == NOW - 3590.0, "all of it is played"
    for order in ("back", "forward", "pause", "alert"):
        assert player._take([ReplayOrdered(order)]).replay is not None


def test_alerts_of_the_ledger_at_a_start_are_not_new(tmp_path: Path) -> None:
    ring = Ring(tmp_path).go_on(1)
    ring.steps, ring.now = ring.steps + 1, ring.now + 10.0
    state = replace(calm(), at=ring.now, alerts=CRITICAL)
    ring.recorder.write(ring.steps, [AlertsRestored(StoredAlerts())], replace(state, alerts={}), state, ())
    ring.go_on(15, alerts=CRITICAL)
    assert not ring.said


def test_an_alert_that_was_firing_before_saves_nothing(tmp_path: Path) -> None:
    ring = Ring(tmp_path).go_on(30, alerts=CRITICAL)
    assert not ring.said


def test_a_program_that_ends_soon_after_a_critical_alert_saves_what_there_is(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path, said.append, is_ring=True)
    recorder.start()
    for number, alerts in enumerate(({}, CRITICAL, CRITICAL)):
        state = replace(calm(), at=NOW + number, alerts=alerts)
        recorder.take((), replace(state, alerts={}), state, ())
    recorder.stop()
    (saved,) = tmp_path.glob("*.trainmon")
    assert Player(saved).seek(NOW + 9.0).alerts.keys() == CRITICAL.keys()


def test_steps_that_come_faster_than_the_disk_are_dropped_and_the_rest_can_be_played(tmp_path: Path) -> None:
    said: list[str] = []
    recorder = Recorder(tmp_path / "file", said.append, is_ring=False)
    states = [replace(calm(), at=NOW + number, story=f"{number}") for number in range(WAITING + 40)]
    for state in states[:-1]:
        recorder.take((), replace(state, story="before the rules"), state, ())
    recorder.start()
    until(lambda: not recorder._steps.qsize(), "what waits is written")
    recorder.take((), replace(states[-1], story="before the rules"), states[-1], ())
    recorder.stop()
    player = Player(tmp_path / "file")
    assert len(player.frames) == WAITING + 1
    assert said == [f"39 updates could not be recorded in {tmp_path / 'file'}"]
    assert player.seek(NOW + WAITING).story == f"{WAITING - 1}"
    assert player.seek(NOW + 9999.0).story == states[-1].story


def test_a_full_disk_is_said_and_the_engine_goes_on() -> None:
    said: list[str] = []
    recorder = Recorder(Path("/dev/full"), said.append, is_ring=False)
    recorder.start()
    for number in range(3 * WAITING):
        state = replace(calm(), at=NOW + number)
        recorder.take((), state, state, ())
    until(lambda: said, "that the disk is full is said")
    recorder.stop()
    assert said == ["nothing is recorded in /dev/full: No space left on device"]
