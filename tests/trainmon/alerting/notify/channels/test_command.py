"""The channels command and desktop: programs of this machine, ended in time with all that they started."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.daemons import until
from tests.lab.processes import gone
from tests.trainmon.alerting.notify.samples import TOKEN, alert, message, notice
from trainmon.alerting.notify.channels.command import Command
from trainmon.alerting.notify.channels.desktop import Desktop, Toaster, missing
from trainmon.alerting.notify.message import Broken, Retry, Sent
from trainmon.model import Channel

NASTY = 'a\'; touch /tmp/x; echo "$(id)" `id` -rf \\'


def program(folder: Path, text: str) -> str:
    """A shell script, ready to run."""
    file = folder / "tell"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o700)
    return str(file)


def command(*argv: str) -> Command:
    return Command(Channel(name="own", type="command"), argv=argv)


def test_a_program_gets_the_message_as_json_and_nothing_as_arguments(tmp_path: Path) -> None:
    tell = program(tmp_path, f'cat > {tmp_path}/got; echo "$#" > {tmp_path}/count')
    command(tell, "one").send(message(notice(alert(summary=NASTY, evidence=("ä",)))), 10)
    got = json.loads((tmp_path / "got").read_bytes())
    assert (tmp_path / "count").read_text() == "1\n"
    assert (got["version"], got["title"], got["severity"]) == (1, "CODE RED video-2b: run-dead", "critical")
    (passed,) = got["notices"]
    assert (passed["severity"], passed["more"]) == ("critical", 0)
    assert (passed["kind"], passed["alerts"][0]["summary"], passed["alerts"][0]["evidence"]) == ("fire", NASTY, ["ä"])
    assert TOKEN not in (tmp_path / "got").read_text()


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("echo no such pager >&2; exit 3", Broken, "it ended with 3: no such pager"),
        ("echo first; echo last; exit 1", Broken, "it ended with 1: last"),
        ("exit 75", Retry, "it ended with 75"),
        ("kill -9 $$", Retry, "it ended with -9"),
        ("echo --api-key hunter2hunter2 >&2; exit 1", Broken, "it ended with 1: --api-key ***"),
        ("printf 'a\\033[31mb\\n'; exit 1", Broken, "it ended with 1: ab"),
    ],
)
def test_its_exit_status_says_whether_to_come_again(tmp_path: Path, script: str, error: Any, words: str) -> None:
    with pytest.raises(error) as caught:
        command(program(tmp_path, f"cat > /dev/null; {script}")).send(message(), 10)
    assert caught.value.message == words


def test_a_program_that_reads_nothing_is_fine(tmp_path: Path) -> None:
    big = message(notice(*[alert(id=f"a{i}") for i in range(2_000)]))
    assert command(program(tmp_path, "exit 0")).send(big, 10) == Sent()


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    tell = program(tmp_path, f"sleep 300 & echo $! > {tmp_path}/child; wait")
    with pytest.raises(Retry, match="it did not end within"):
        command(tell).send(message(), 0.5)
    child = int((tmp_path / "child").read_text())
    until(lambda: gone(child), "the sleeping child is ended")


def test_a_child_that_stays_behind_with_the_pipes_is_ended_too(tmp_path: Path) -> None:
    tell = program(tmp_path, f"sleep 300 & echo $! > {tmp_path}/child; exit 0")
    with pytest.raises(Retry):
        command(tell).send(message(), 0.5)
    child = int((tmp_path / "child").read_text())
    until(lambda: gone(child), "the sleeping child is ended")


def test_a_program_that_is_not_there_is_broken() -> None:
    with pytest.raises(Broken) as caught:
        command("/nowhere/tell").send(message(), 10)
    assert caught.value.message == "it cannot be started: no such file or directory"


def test_no_pipe_is_left_open(tmp_path: Path) -> None:
    tell = program(tmp_path, "cat > /dev/null")
    command(tell).send(message(), 10)
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(3):
        command(tell).send(message(), 10)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


# ---- the desktop


def desktop(found: str | None, shown: list[tuple[object, ...]] | None = None) -> Desktop:
    toaster = Toaster()

    def toast(*passed: object) -> bool:
        assert shown is not None
        shown.append(passed)
        return True

    toaster.toast = None if shown is None else toast
    return Desktop(Channel(name="desktop", type="desktop"), toaster=toaster, find=lambda _: found)


def test_the_desktop_gets_title_and_text_and_no_markup(tmp_path: Path) -> None:
    tell = program(
        tmp_path, f"{sys.executable} -c 'import json,sys; print(json.dumps(sys.argv[1:]))' \"$@\" > {tmp_path}/got"
    )
    desktop(tell).send(message(notice(alert(summary="<b>5 & 6</b>", run="--help"))), 10)
    *flags, dashes, title, body = json.loads((tmp_path / "got").read_text())
    assert flags == ["--app-name", "trainmon-tui", "--urgency", "critical"]
    assert (dashes, title) == ("--", "CODE RED --help: run-dead")
    assert body.startswith("&lt;b&gt;5 &amp; 6&lt;/b&gt;")


def test_without_a_desktop_the_dashboard_shows_it_and_rings() -> None:
    shown: list[tuple[object, ...]] = []
    assert desktop(None, shown).send(message(), 10).answer == "in the dashboard: there is no notify-send here"
    assert shown == [(message().title, message().body, "critical", (alert().id,))]
    shown.clear()
    desktop(None, shown).send(message(notice(), notice(kind="resolve")), 10)
    desktop(None, shown).send(message(notice(alert(severity="warning"))), 10)
    assert [passed[-1] for passed in shown] == [(), ()], "that is more than a dashboard shows by itself"


def test_while_the_dashboard_ends_it_is_sent_later() -> None:
    toaster = Toaster()
    toaster.toast = lambda *_: False
    with pytest.raises(Retry, match="the dashboard is not there now"):
        Desktop(Channel(name="desktop", type="desktop"), toaster=toaster, find=lambda _: None).send(message(), 10)


def test_where_there_is_no_desktop_check_says_so() -> None:
    assert missing(lambda _: "/usr/bin/notify-send") is None
    assert missing(lambda _: None) == (
        "there is no notify-send here: only a dashboard shows it, and --alerts-only cannot send it"
    )


def test_with_neither_it_is_broken(tmp_path: Path) -> None:
    with pytest.raises(Broken, match="there is no notify-send here"):
        desktop(None).send(message(), 10)
    with pytest.raises(Broken, match="notify-send reaches no desktop from here"):
        desktop(program(tmp_path, "exit 1")).send(message(), 10)
