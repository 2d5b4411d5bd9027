"""`service`: what it prints is taken by systemd, by sh and by cron, whatever the paths are called."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from trainmon.cli import daemon
from trainmon.cli.daemon import daemon_argv

NASTY = ["/opt/my tools/train$mon", "--alerts-only", "--config", "/home/a\"b'c/100%/c.toml"]


def verified(unit: str, folder: Path) -> str:
    """What systemd says of a unit; it must be there, as systemd is where users have it."""
    if shutil.which("systemd-analyze") is None:
        pytest.fail("systemd-analyze is missing; install it: apt-get install -y systemd")
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    file = folder / "trainmon.service"
    file.write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(file)],
        env={"XDG_RUNTIME_DIR": str(runtime), "HOME": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return f"{done.returncode} {done.stdout}{done.stderr}".strip()


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = daemon.service("systemd", daemon_argv(tmp_path / "a b%c$d.toml", None))
    assert verified(text, tmp_path) == "0"
    for line in ("Type=notify", "WatchdogSec=120", "Restart=always", "StartLimitIntervalSec=0", "TimeoutStopSec=20"):
        assert f"\n{line}\n" in text
    assert "enable-linger" in text


def test_systemd_would_say_what_is_wrong_with_it(tmp_path: Path) -> None:
    text = daemon.service("systemd", ["/nowhere/trainmon-tui", "--alerts-only"]).replace(
        "Restart=always", "Restart=ever"
    )
    output = verified(text, tmp_path)
    assert "/nowhere/trainmon-tui is not executable" in output
    assert "Failed to parse service restart specifier" in output


def test_a_word_of_the_unit_is_one_argument_and_names_no_variable() -> None:
    words = list(map(daemon.unit_word, NASTY))
    assert words == ['"/opt/my tools/train$$mon"', "--alerts-only", "--config", '"/home/a\\"b\'c/100%%/c.toml"']


def test_cron_runs_the_very_command(tmp_path: Path) -> None:
    program = tmp_path / "my tools"
    program.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    program.chmod(0o755)
    lines = daemon.service("cron", [str(program), *NASTY[1:]]).splitlines()
    (one,) = [line for line in lines if line.startswith("#*/5 * * * * ")]
    # As cron: what follows an unescaped % is standard input, and \% is a %.
    command = one.removeprefix("#*/5 * * * * ").replace("\\%", "%")
    done = subprocess.run(["sh", "-c", command], env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
                          capture_output=True, text=True, timeout=30, check=True)  # fmt: skip
    assert done.stdout == "|".join([*NASTY[1:], "--once", ""])


@pytest.mark.parametrize("kind", ["slurm", "tmux"])
def test_sh_takes_the_script(kind: str, tmp_path: Path) -> None:
    text = daemon.service(kind, NASTY)
    shell = ["bash", "-n"] if kind == "slurm" else ["sh", "-n"]
    subprocess.run(shell, input=text, text=True, timeout=30, check=True)


def test_the_program_and_the_config_are_named_by_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    argv = daemon_argv(Path("c.toml"), Path("ssh"))
    assert argv[1:] == ["--alerts-only", "--config", str(tmp_path / "c.toml"), "--ssh-config", str(tmp_path / "ssh")]
    assert Path(argv[0]).is_absolute()
    assert daemon.program() == argv[:1]
