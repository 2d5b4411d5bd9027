"""Which words mean what on the command line, how it answers, and what it leaves unimported."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab import forked
from tests.lab.daemons import until
from tests.lab.terminal import Terminal
from trainmon import __version__
from trainmon.actions.verbs import VERB, function
from trainmon.cli.commands import COMMANDS, GROUPS, SUBCOMMANDS
from trainmon.cli.main import route, run

HEAVY = ("msgspec", "paramiko", "textual", "rich", "wandb", "plotext", "ClusterShell", "asyncio", "pynvml", "tui")


def trainmon(*argv: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": str(root), "NO_COLOR": "1", **environ}
    return forked.run([str(root / "trainmon" / "__main__.py"), *argv], cwd=cwd, env=env)


@pytest.mark.parametrize(
    ("line", "command", "rest"),
    [
        ("", "dashboard", ""),
        ("gpu-001 gpu-002", "dashboard", "gpu-001 gpu-002"),
        ("--demo", "dashboard", "--demo"),
        ("check", "check", ""),
        ("check --headless gpu-001", "check", "--headless gpu-001"),
        ("--config c.toml check", "check", "--config c.toml"),
        ("--config check", "dashboard", "--config check"),
        ("-- check", "dashboard", "-- check"),
        ("gpu-001 check", "dashboard", "gpu-001 check"),
        ("dashboard", "dashboard", "dashboard"),
        ("kill video-2b --dry-run", "kill", "video-2b --dry-run"),
        ("--config c.toml requeue 88", "requeue", "--config c.toml 88"),
        ("-- save", "dashboard", "-- save"),
        ("actions --json", "actions", "--json"),
        ("--read-only snapshot", "snapshot", "--read-only"),
    ],
)
def test_arguments_are_a_command_or_hosts(line: str, command: str, rest: str) -> None:
    assert route(line.split()) == (command, rest.split())


@pytest.mark.parametrize("option", ["--version", "--help", "help"])
def test_what_answers_at_once_imports_nothing_heavy(option: str) -> None:
    code = f"import sys; from trainmon.cli.main import run; run([{option!r}]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert {name.partition(".")[0] for name in done.stderr.split()} & set(HEAVY) == set()
    assert "trainmon.alerting" not in done.stderr.split(), "no rules"
    assert done.stdout


def test_the_version_is_reported() -> None:
    done = trainmon("--version")
    assert (done.returncode, done.stdout) == (0, f"trainmon-tui {__version__}\n")


def test_the_help_names_every_command_under_its_purpose() -> None:
    done = trainmon("--help")
    assert done.returncode == 0
    sections = {part.partition(":\n")[0]: part.partition(":\n")[2] for part in done.stdout.split("\n\n")}
    listed = {
        purpose: tuple(line.split()[0] for line in sections[purpose].splitlines() if line[2] != " ")
        for purpose in GROUPS
    }
    assert listed == {purpose: tuple(command.name for command in commands) for purpose, commands in GROUPS.items()}
    assert {name for names in listed.values() for name in names} == set(SUBCOMMANDS)


def test_the_help_cuts_no_sentence_about_a_command() -> None:
    commands = trainmon("--help", COLUMNS="80").stdout.partition("Set up:\n")[2]
    assert "  explain " in commands
    assert "..." not in commands


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_command_answers_h_with_an_example_and_its_exit_statuses(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run([name, "-h"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.startswith(f"Usage: trainmon-tui {name} ")
    assert re.search(rf"^    .*\btrainmon-tui {name}\b", shown, re.MULTILINE)
    assert "\n  Exit status: " in shown
    assert "-h, --help" in shown
    assert run(["help", name]) == 0
    assert capsys.readouterr().out == shown


def test_the_help_without_a_command_is_that_of_the_dashboard(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help"]) == run(["-h"]) == 0
    shown = capsys.readouterr().out
    assert shown == 2 * shown[: len(shown) // 2]
    assert "\n  Exit status: " in shown
    assert run(["help", "satus"]) == 2
    assert capsys.readouterr().err.startswith(
        "trainmon-tui: invalid value for '[COMMAND]': 'satus' is not one of 'dash"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_is_without_an_effect(name: str) -> None:
    assert [one.name for one in COMMANDS[name].params if not one.expose_value] == ["version"] * (name == "dashboard")


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in VERB])
def test_every_command_has_a_function_that_takes_its_arguments_and_options(name: str) -> None:
    command = COMMANDS[name]
    does = inspect.getclosurevars(command.callback).nonlocals["does"]  # type: ignore[arg-type]
    given = {param.name: None for param in command.params if param.expose_value}
    inspect.signature(function(does)).bind(**given)


@pytest.mark.parametrize(
    "argv", [["--nonsense"], ["check", "--demo"], ["snapshot", "--wait", "2"], ["rules", "a", "b"], ["ack"]]
)
def test_a_mistake_in_the_call_is_exit_2_with_the_mend(argv: list[str]) -> None:
    done = trainmon(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    first, last = done.stderr.splitlines()
    assert first.startswith("trainmon-tui: ")
    assert last.startswith("try: trainmon-tui ")


def test_the_dashboard_without_a_terminal_says_what_has_none() -> None:
    done = trainmon()
    assert done.returncode == 2
    assert "trainmon-tui: the dashboard needs a terminal; without one, use `trainmon-tui snapshot`" in done.stderr


def test_the_demo_takes_no_hosts() -> None:
    done = trainmon("--demo=hot", "gpu-001")
    assert done.returncode == 2
    assert "trainmon-tui: --demo shows a simulated cluster; remove the hosts, --config and --ssh-config" in done.stderr


def test_a_story_that_the_demo_lacks_is_reported_with_those_it_has_also_without_a_terminal() -> None:
    done = trainmon("--demo=flood")
    assert done.returncode == 2
    assert "trainmon-tui: --demo=flood: unknown story\ntry: one of hot, lost, hang," in done.stderr


def test_the_stories_of_the_demo_are_listed_also_without_a_terminal() -> None:
    done = trainmon("--demo=list")
    assert (done.returncode, done.stderr) == (0, "")
    assert "hang        a run stops stepping with its GPUs at 100% and little power\n" in done.stdout
    assert len(done.stdout.splitlines()) == 13


def test_a_mistake_in_the_config_is_exit_2_and_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "trainmon.toml").write_text('[[run]]\nname = "a"\nchekpoints = "/c"\n')
    (tmp_path / "trainmon.toml").chmod(0o600)
    done = trainmon("snapshot", cwd=tmp_path, TRAINMON_CONFIG="")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        'trainmon-tui: trainmon.toml: [[run]] #1 (a): unknown setting "chekpoints"; did you mean "checkpoints"?\n'
    )


def test_several_mistakes_show_the_first_and_where_the_others_are(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("every = 1\nread_onyl = true\n[legder]\n")
    done = trainmon("snapshot", "--config", "c.toml", cwd=tmp_path)
    assert done.stderr.splitlines()[1:] == ["try: trainmon-tui check, which lists 2 more"]
    assert done.returncode == 2


def test_a_config_that_others_can_write_stops_the_start_with_a_message(tmp_path: Path) -> None:
    (tmp_path / "trainmon.toml").touch()
    (tmp_path / "trainmon.toml").chmod(0o666)
    done = trainmon("snapshot", cwd=tmp_path, TRAINMON_CONFIG="")
    assert done.returncode == 2
    assert done.stderr == (
        "trainmon-tui: trainmon.toml: not read, because other users can write to it, and a config may contain "
        "commands\n"
        "try: chmod go-w trainmon.toml\n"
    )


def test_a_closed_pipe_is_no_complaint(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "trainmon", "--help"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_ctrl_c_at_a_question_ends_without_a_traceback(tmp_path: Path) -> None:
    output = str(tmp_path / "t.toml")
    with Terminal([sys.executable, "-m", "trainmon", "init", "--offline", "--output", output]) as terminal:
        terminal.wait_for(b"Hosts to watch")
        until(terminal.is_asleep, "it waits for the answer")  # a signal just before would be seen at the next key
        terminal.keys("\x03")
        assert terminal.wait() == 130
        assert b"Traceback" not in terminal.screen
    assert not Path(output).exists()


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("satus", "status"),
        ("Status --json", "status"),
        ("sanpshot", "snapshot"),
        ("--read-only chekc gpu-001", "check"),
        ("logformat run.log", "log-format"),
        ("hepl", "help"),
        ("daemon", "--alerts-only"),
    ],
)
def test_a_mistyped_command_is_not_a_host(line: str, meant: str, tmp_path: Path) -> None:
    done = trainmon(*line.split(), cwd=tmp_path, HOME=str(tmp_path))
    word = line.removeprefix("--read-only ").split()[0]
    expected = f"trainmon-tui: did you mean {meant}? (for a host of that name: trainmon-tui -- {word})\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", expected)


@pytest.mark.parametrize("line", ["-- satus", "bastion", "status1", "gpu-001 satus", "relay.example"])
def test_a_host_that_is_not_like_a_command_is_not_questioned(line: str, tmp_path: Path) -> None:
    done = trainmon(*line.split(), cwd=tmp_path, HOME=str(tmp_path))
    assert "the dashboard needs a terminal" in done.stderr


@pytest.mark.parametrize("option", ["", "--config own.toml ", "--config=own.toml ", "--ssh-config hosts "])
def test_a_host_of_a_config_may_be_like_a_command(option: str, tmp_path: Path) -> None:
    (tmp_path / ("hosts" if "ssh" in option else "none")).write_text("Host satus\n  HostName 192.0.2.1\n")
    (tmp_path / ("own.toml" if option else "trainmon.toml")).write_text('[[cluster]]\nname = "a"\nnodes = ["satus"]\n')
    done = trainmon(*f"{option}satus".split(), cwd=tmp_path, HOME=str(tmp_path))
    assert "the dashboard needs a terminal" in done.stderr
