"""trainmon-tui replay and --record, where they cannot be what they are for."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.tui.states.states import calm
from trainmon.cli.main import run
from trainmon.runtime.recording import Recorder


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    recorder = Recorder(tmp_path / "calm.trainmon", print, is_ring=False)
    recorder.write(1, (), calm(), calm(), ())
    recorder.end()
    return tmp_path / "calm.trainmon"


def test_without_a_terminal_a_recording_is_checked(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", str(recording)]) == 2
    assert f"without one, use `trainmon-tui replay --check {recording}`" in capsys.readouterr().err
    assert run(["replay", "--check", str(recording)]) == 0
    assert " from 2026-09-21 14:13:20 UTC: 1 update, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--demo", "--record", "{file}"], "--record {file}: the file already exists; name a new one"),
        (["--alerts-only", "--record", "new"], "--alerts-only and --record cannot be combined"),
        (["--alerts-only", "--demo"], "--alerts-only and --demo cannot be combined"),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    recording: Path, words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([word.format(file=recording) for word in words]) == 2
    assert why.format(file=recording) in capsys.readouterr().err


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").write_text("notes")
    assert run(["replay", str(tmp_path / "notes")]) == 3
    assert f"{tmp_path / 'notes'} cannot be played: it is not a recording" in capsys.readouterr().err


def test_a_recording_that_is_damaged_in_the_middle_is_no_success(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = recording.read_bytes()
    recording.write_bytes(whole + gzip.compress(b"\0\0\0\x02\x81\xa5"))
    assert run(["replay", "--check", str(recording)]) == 3
    found = capsys.readouterr()
    assert ": 1 update, " in found.out, "what is before it was played"
    assert found.err == "trainmon-tui: it is not a recording, or is damaged\n"


def test_a_recording_of_a_killed_program_is_played_and_said_to_be_cut_off(
    recording: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording.write_bytes(recording.read_bytes()[:-8])
    assert run(["replay", "--check", str(recording)]) == 0
    assert capsys.readouterr().err.startswith("trainmon-tui: its end is missing: the program was killed")


def test_steps_that_could_not_be_recorded_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(tmp_path / "gap", print, is_ring=False)
    for number in (1, 5):
        recorder.write(number, (), calm(), calm(), ())
    recorder.end()
    capsys.readouterr()
    assert run(["replay", "--check", str(tmp_path / "gap")]) == 0
    assert capsys.readouterr().err == "trainmon-tui: 3 updates could not be recorded\n"
