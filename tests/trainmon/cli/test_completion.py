"""What a shell completes, asked as the shell asks: bash itself, and the answers that zsh and fish read."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.lab.daemons import program, until
from tests.lab.terminal import Terminal
from tests.trainmon.cli.attempts.test_explain import dead, kept

CONFIG = """
[[cluster]]
name = "c"
nodes = ["gpu-1", "gpu-2"]

[[run]]
name = "llm-7b"
log = "/logs/a"

[[run]]
name = "video"
log = "/logs/b"
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment with a home of its own, and trainmon-tui on the PATH."""
    (tmp_path / "c.toml").write_text(CONFIG)
    (tmp_path / "c.toml").chmod(0o600)
    command = tmp_path / "bin" / "trainmon-tui"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m trainmon "$@"\n')
    command.chmod(0o755)
    ours = {
        "PYTHONPATH": str(Path(__file__).parents[3]), "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state"),
        "PATH": f"{command.parent}:{os.environ['PATH']}", "TRAINMON_CONFIG": "c.toml",
    }  # fmt: skip
    return {**os.environ, **ours}


COMPLETED = {
    "sn": "snapshot",
    "explain l": "last llm-7b",
    "explain 8": "88.1 88",
    "help expl": "explain",
    "requeue fou": "found-in-slurm",
    "kill $": "",
    "un": "unkill unsave unmute",
    "gpu-": "gpu-1 gpu-2",
    "--al": "--alerts-only",
    "kill --dr": "--dry-run",
    "kill l": "llm-7b",
    "save llm-7b v": "video",
    "--config c.toml save v": "video",
    "exclude gpu-1 gpu-": "gpu-1 gpu-2",
    "rules disk-f": "disk-full disk-forecast",
    "service sy": "systemd",
    "--demo = s": "spike",
    "--config = c.toml kill l": "llm-7b",
}


def test_bash_completes(environ: dict[str, str], tmp_path: Path) -> None:
    again = replace(dead("88", 90, "found-in-slurm"), attempt_id="prod/88@2", restart=1)
    kept(tmp_path, dead("88", 900, "found-in-slurm"), again, dead("91", 9, "$(reboot)"))
    script = 'eval "$(trainmon-tui completion bash)"\n'
    for line in COMPLETED:
        typed = ["trainmon-tui", *line.split()]
        script += f"COMPREPLY=() COMP_WORDS=({shlex.join(typed)}) COMP_CWORD={len(typed) - 1}\n"
        script += '_trainmon_tui_completion trainmon-tui; echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    assert (dict(zip(COMPLETED, done.stdout.splitlines(), strict=True)), done.stderr) == (COMPLETED, "")


def test_zsh_completes_also_without_any_settings(environ: dict[str, str]) -> None:
    with Terminal([program("zsh", "zsh"), "-f", "-i"], env=environ) as terminal:
        terminal.keys('eval "$(trainmon-tui completion zsh)"; echo lo""aded\n')
        until(lambda: "loaded" in terminal.text(), "the script")
        terminal.keys("trainmon-tui snap\t--js\t")
        until(lambda: "trainmon-tui snapshot --json" in terminal.text(), "both words")
        assert "not found" not in terminal.text()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_get_a_script_and_what_each_word_means(
    shell: str, environ: dict[str, str], tmp_path: Path
) -> None:
    def ask(*argv: str, **more: str) -> str:
        command = ["trainmon-tui", *argv]
        return subprocess.run(
            command, cwd=tmp_path, env=environ | more, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    assert f"{shell}_complete" in ask("completion", shell)
    words = {"zsh": {"COMP_WORDS": "trainmon-tui unm", "COMP_CWORD": "1"}, "fish": {"COMP_WORDS": "trainmon-tui unm"}}
    cword = {} if shell == "zsh" else {"COMP_CWORD": "unm"}
    answer = ask(**words[shell], **cword, _TRAINMON_TUI_COMPLETE=f"{shell}_complete")
    assert "unmute" in answer
    assert "Remove a mute." in answer


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_an_option_and_its_value_are_one_word_of_the_other_shells(
    shell: str, environ: dict[str, str], tmp_path: Path
) -> None:
    more = {"COMP_WORDS": "trainmon-tui --demo=sp", "COMP_CWORD": "1" if shell == "zsh" else "--demo=sp"}
    done = subprocess.run(
        ["trainmon-tui"], cwd=tmp_path, env=environ | more | {"_TRAINMON_TUI_COMPLETE": f"{shell}_complete"},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "--demo=spike" in done.stdout


def test_no_host_is_completed_that_cannot_be_typed(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('[[run]]\nname = "llm-7b"\nlog = "/logs/a"\n')
    more = {"COMP_WORDS": "trainmon-tui thi", "COMP_CWORD": "1", "_TRAINMON_TUI_COMPLETE": "zsh_complete"}
    done = subprocess.run(
        ["trainmon-tui"], cwd=tmp_path, env=environ | more, capture_output=True, text=True, timeout=60, check=True
    )
    assert "this machine" not in done.stdout
