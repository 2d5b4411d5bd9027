"""Switch files: there or not, whose, since when, what they say; told when it changes."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from collectors.probe.files.switches import Switches
from tests.collectors.probe.wire import readings_of
from tests.lab.probe import enterable


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


def test_a_directory_does_not_arm_a_switch(tmp_path: Path):
    found = sample(tmp_path)
    assert found.exists is False
    assert found.error == "a directory instead of a file; some trainers may still react to it"


def test_a_link_to_nothing_does_not_arm_and_a_link_to_a_file_does(tmp_path: Path):
    link = tmp_path / "kill"
    link.symlink_to(tmp_path / "target")
    assert sample(link).exists is False
    target = tmp_path / "target"
    assert sample(link).error == f"a dangling symbolic link to {target}: it does not arm the switch"
    (tmp_path / "target").write_text("yes")
    assert (sample(link).exists, sample(link).text) == (True, "yes")


def test_a_fifo_arms_but_is_never_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "kill")
    found = sample(tmp_path / "kill")
    assert (found.exists, found.text, found.error) == (True, None, "armed by a FIFO; its text is not read")


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


def test_without_permission_its_state_is_unknown(tmp_path: Path):
    enterable(tmp_path)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    secret = tmp_path / "secret"
    secret.touch(mode=0)
    argv = [sys.executable, "-c", AS_NOBODY, str(closed / "kill"), str(secret)]
    done = subprocess.run(argv, capture_output=True, check=True, timeout=60, cwd=Path(__file__).parents[4])
    hidden, unreadable = (line["s"][0] for line in json.loads(done.stdout))
    assert hidden == {"path": str(closed / "kill"), "error": "cannot be checked: no permission"}
    assert unreadable["exists"] is True
    assert unreadable["error"] == "armed, but its text cannot be read: no permission"
