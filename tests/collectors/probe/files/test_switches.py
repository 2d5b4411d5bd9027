"""Switch files: there or not, whose, since when, what they say; told when it changes."""

from __future__ import annotations

import getpass
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.probe.files.switches import Switches
from collectors.probe.host import user_name
from tests.collectors.probe.files.conftest import ForeignLink
from tests.collectors.probe.wire import readings_of


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


NOT_PLAIN: dict[str, Callable[[Path, Path], object]] = {
    "a symbolic link": lambda secret, kill: kill.symlink_to(secret),
    "a hard link": lambda secret, kill: kill.hardlink_to(secret),
    "a directory": lambda secret, kill: kill.mkdir(),
    "a FIFO": lambda secret, kill: os.mkfifo(kill),
    "a socket": lambda secret, kill: bind(kill),
}


def sample(path: Path | str) -> Any:
    [reading] = readings_of(Switches({"switches": [str(path)]}))
    [found] = reading.s
    return found


def test_an_absent_switch_is_reported_as_absent(tmp_path: Path):
    found = sample(tmp_path / "kill")
    assert (found.exists, found.error, found.text, found.mtime) == (False, None, None, None)


def test_an_armed_switch_says_who_when_and_why(tmp_path: Path):
    kill = tmp_path / "kill"
    kill.write_text("loss went up\n")
    os.utime(kill, (5000, 5000.5))
    found = sample(kill)
    assert (found.exists, found.mtime, found.owner, found.text) == (True, 5000.5, getpass.getuser(), "loss went up\n")


def test_at_most_500_bytes_are_read_and_no_character_is_cut(tmp_path: Path):
    kill = tmp_path / "kill"
    kill.write_bytes(b"x" * 499 + "é".encode() + b"y" * 100_000)
    assert sample(kill).text == "x" * 499
    kill.write_bytes(b"a\xff\x1b[31m")
    assert sample(kill).text == "a\ufffd\x1b[31m"


def test_it_is_reported_once_then_when_it_changes_and_on_every_slow_tick(tmp_path: Path):
    kill = tmp_path / "kill"
    sense = Switches({"switches": [str(kill)]})
    assert [r.s[0].exists for r in readings_of(sense)] == [False]
    assert readings_of(sense) == []
    kill.touch()
    assert [r.s[0].exists for r in readings_of(sense)] == [True]
    assert readings_of(sense) == []
    assert [r.s[0].exists for r in readings_of(sense, slow=True)] == [True]
    kill.write_text("by me")
    assert [r.s[0].text for r in readings_of(sense)] == ["by me"]
    kill.unlink()
    assert [r.s[0].exists for r in readings_of(sense)] == [False]


def test_a_new_spec_reports_the_new_switch_and_not_those_that_stay(tmp_path: Path):
    sense = Switches({"switches": [str(tmp_path / "kill")]})
    assert len(readings_of(sense)) == 1
    sense.configure({"switches": [str(tmp_path / "kill"), str(tmp_path / "save")]})
    assert [r.s[0].path for r in readings_of(sense)] == [str(tmp_path / "save")]
    names = [name for name, _ in sense.operations(slow=False)]
    assert names == [f"switch:{tmp_path}/kill", f"switch:{tmp_path}/save"]


def test_a_missing_folder_is_reported_because_nobody_could_arm_the_switch(tmp_path: Path):
    found = sample(tmp_path / "no" / "such" / "kill")
    assert found.exists is False
    assert found.error == f"its folder {tmp_path}/no/such does not exist; the nearest existing parent is {tmp_path}"


@pytest.mark.parametrize("kind", NOT_PLAIN)
def test_what_is_no_plain_file_arms_by_its_kind_and_owner_and_without_a_text(kind: str, tmp_path: Path):
    secret, kill = tmp_path / "secret", tmp_path / "kill"
    secret.write_text("topic-4711\n")
    NOT_PLAIN[kind](secret, kill)
    os.utime(kill, (1000, 1000), follow_symlinks=False)
    watched = Switches({"switches": [str(kill)]})
    [reading] = readings_of(watched)
    [found] = reading.s
    assert (found.exists, found.kind, found.text, found.error) == (True, kind, None, None)
    assert (found.owner, found.mtime) == (getpass.getuser(), 1000)
    assert "4711" not in repr(readings_of(watched, slow=True))


def test_the_owner_of_a_link_is_who_made_it(tmp_path: Path, foreign_link: ForeignLink):
    foreign_link(tmp_path / "kill")
    assert sample(tmp_path / "kill").owner == user_name((tmp_path / "kill").lstat().st_uid)


def test_a_switch_behind_a_linked_directory_is_read(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "kill").write_text("by ben\n")
    (tmp_path / "shared").symlink_to("real")
    assert (sample(tmp_path / "shared" / "kill").text, sample(tmp_path / "shared" / "kill").kind) == ("by ben\n", None)


def test_a_switch_that_becomes_a_link_and_a_file_again_is_followed(tmp_path: Path):
    kill = tmp_path / "kill"
    (tmp_path / "secret").write_text("topic-4711")
    watched = Switches({"switches": [str(kill)]})
    kill.write_text("one")
    assert [reading.s[0].text for reading in readings_of(watched)] == ["one"]
    kill.unlink()
    kill.symlink_to("secret")
    assert [(reading.s[0].text, reading.s[0].kind) for reading in readings_of(watched)] == [(None, "a symbolic link")]
    kill.unlink()
    kill.write_text("two")
    assert [(reading.s[0].text, reading.s[0].kind) for reading in readings_of(watched)] == [("two", None)]


def test_a_link_that_comes_while_a_text_is_read_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    kill, real = tmp_path / "kill", os.open
    (tmp_path / "secret").write_text("topic-4711")
    kill.write_text("mine")

    def swapped(path: bytes, flags: int, *more: int) -> int:
        kill.unlink()
        kill.symlink_to("secret")
        return real(path, flags, *more)

    monkeypatch.setattr(os, "open", swapped)
    assert sample(kill).text is None


def test_a_link_to_nothing_does_not_arm_and_a_link_to_a_file_does(tmp_path: Path):
    link = tmp_path / "kill"
    link.symlink_to(tmp_path / "target")
    assert sample(link).exists is False
    target = tmp_path / "target"
    assert sample(link).error == f"a dangling symbolic link to {target}: it does not arm the switch"
    (tmp_path / "target").write_text("yes")
    assert (sample(link).exists, sample(link).text) == (True, None)


@pytest.mark.parametrize("target", ["kill", "file/kill"])
def test_a_link_in_a_circle_or_below_a_file_does_not_arm(target: str, tmp_path: Path):
    (tmp_path / "file").touch()
    link = tmp_path / "kill"
    link.symlink_to(target)
    error = f"a dangling symbolic link to {target}: it does not arm the switch"
    assert (sample(link).exists, sample(link).error) == (False, error)


def test_reading_leaves_the_access_time_alone(tmp_path: Path):
    kill = tmp_path / "kill"
    kill.write_text("x")
    os.utime(kill, (1000, 5000))
    assert sample(kill).text == "x"
    assert kill.stat().st_atime == 1000


AS_NOBODY = """
import json, os, sys
from collectors.probe.files.switches import Switches
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
print(json.dumps([line for _, op in Switches({"switches": sys.argv[1:]}).operations(False) for line in op()]))
"""


def test_without_permission_its_state_is_unknown(open_path: Path):
    closed = open_path / "closed"
    closed.mkdir(mode=0)
    secret = open_path / "secret"
    secret.touch(mode=0)
    argv = [sys.executable, "-c", AS_NOBODY, str(closed / "kill"), str(secret)]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=60, cwd=Path(__file__).parents[4])
    hidden, unreadable = (line["s"][0] for line in json.loads(done.stdout))
    assert hidden == {"path": str(closed / "kill"), "error": "cannot be checked: no permission"}
    assert unreadable["exists"] is True
    assert (unreadable["kind"], "text" in unreadable, "error" in unreadable) == ("an unreadable file", False, False)
