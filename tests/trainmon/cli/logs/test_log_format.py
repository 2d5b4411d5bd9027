"""trainmon-tui log-format: what is read in a log, and the config that reads it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from trainmon.cli.main import run

STEPS = [f"iter {n}: loss {4 - n / 100:.4f}, time {300 + n}.25ms, mfu 38.12%" for n in range(1, 31)]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "trainmon.toml"
    path.write_text("")
    return path


def log_format(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    code = run(["log-format", *map(str, argv)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_it_prints_what_each_line_says_and_a_block_that_reads_the_same(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "llm.out"
    log.write_text("\n".join(["starting", *STEPS]) + "\n")
    code, printed, _ = log_format(capsys, log, "--config", config, "--lines", 2)
    assert code == 0
    assert "step 30 loss 3.7 step_time_s 0.33025 iter 30: loss 3.7000, time 330.25ms, mfu" in " ".join(printed.split())
    assert "iter 28" not in printed
    assert 'format  learned: "iter {step}: loss {loss}, time {step_time_ms}ms"' in printed
    block = printed[printed.index("[[log_format]]") :]
    assert tomllib.loads(block)["log_format"][0]["name"] == "llm"
    config.write_text(block)
    code, printed, _ = log_format(capsys, log, "--config", config, "--json")
    read = json.loads(printed)
    assert (code, read["format"], read["is_learned"], read["steps"]) == (0, "llm", False, 30)
    assert read["progress"] | {"loss": 3.7} == read["progress"]


@pytest.mark.parametrize(("epochs", "step"), [(1, 100), (3, 300)])
def test_no_block_is_printed_where_the_epoch_of_a_step_is_in_another_line(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str], epochs: int, step: int
) -> None:
    log = tmp_path / "keras.out"
    lines = (f"Epoch {epoch}/5\n100/100 - 3s - 30ms/step - loss: 0.{9 - epoch}\n" for epoch in range(1, epochs + 1))
    log.write_text("".join(lines))
    code, printed, _ = log_format(capsys, log, "--config", config)
    assert (code, f"step {step}/500 " in printed) == (0, True)
    assert "[[log_format]]" not in printed  # `{step}/{target_step}` would read 100/100 at the end of each epoch


def test_a_log_without_a_step_says_so_and_how_to_write_a_format(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(b"hello\nloading 3 shards\n\xff\xfe\0\n")
    code, printed, _ = log_format(capsys, log, "--config", config)
    assert code == 1
    assert "format  not recognised: 3 lines, no step" in printed
    assert "replace its numbers with names" in printed


def test_a_log_without_a_known_step_comes_with_a_format_that_may_read_it(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"10:00:{n} [rank0] {n} done, nll 2.{99 - n}\n" for n in range(10, 20)))
    code, printed, _ = log_format(capsys, log, "--config", config)
    assert code == 1
    assert "No step was read. If the growing number is the step, copy this into the config:" in printed
    config.write_text(printed[printed.index("[[log_format]]") :])
    code, printed, _ = log_format(capsys, log, "--config", config, "--json")
    assert (code, json.loads(printed)["progress"]["step"], json.loads(printed)["steps"]) == (0, 19, 10)


def test_a_name_that_is_neither_a_file_nor_a_run_is_a_mistake(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, error = log_format(capsys, "nope", "--config", config)
    assert (code, printed) == (2, "")
    assert "nope: no such file, and no such run" in error
    code, printed, error = log_format(capsys, config.parent, "--config", config)
    assert (code, printed) == (2, "")
    assert f"{config.parent} is a directory, not a log file" in error


def test_the_log_of_a_run_is_read_on_its_host(tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "llm.out"
    log.write_text("\n".join(STEPS) + "\n")
    config.write_text(f'[[run]]\nname = "llm"\nlog = "{log}"\n')
    code, printed, error = log_format(capsys, "llm", "--config", config, "--wait", "30s")
    assert (code, error) == (0, "")
    assert "step 30" in printed


def test_an_epoch_that_begins_is_shown_and_is_no_step(
    tmp_path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "x.log"
    log.write_text("=== Beginning epoch 23 of 600 ===\nloading\n=== Beginning epoch 24 of 600 ===\n")
    code, printed, _ = log_format(capsys, log, "--config", config)
    assert code == 1
    assert "epoch 24 begins  === Beginning epoch 24 of 600 ===" in printed
    assert "format  not recognised: 3 lines, no step" in printed
