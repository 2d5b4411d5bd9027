"""Real logins: a login host that is slow or away, checkpoints that only its user may read, and nodes that log in as
another user. Needs root, as it is two users."""

from __future__ import annotations

import contextlib
import os
import queue
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.supervisor import Supervisor
from tests.end_to_end.product import step_line
from tests.lab.disks import FULLNESS
from tests.lab.sshd import Sshd
from tests.trainmon.alerting.rules.asked import findings
from trainmon.alerting.rules import RULES
from trainmon.config import ClusterSettings, DiskSettings, RunSettings, Settings
from trainmon.engine.reducers.reduce import reduce
from trainmon.lib import SystemClock
from trainmon.model import DiskSamples, Event, LogChunk, NodeReading, Run, State, SwitchSamples

OTHER = "nobody"
SLOW = 3
"""Seconds that its .bashrc takes: n1 has long told all by then."""
PATIENCE = 120.0


class Site:
    """A login host and n1, each with an sshd of its own, and files of mode 0700."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = folder / "fsx"
        (self.files / "ckpt" / "step_100").mkdir(parents=True)
        (self.files / "ckpt" / "step_100" / "model.pt").write_bytes(bytes(100))
        (self.files / "train.log").write_text(step_line(100))
        (self.files / "kill").write_text("ann: enough\n")
        self.files.chmod(0o700)
        home = folder / "home"
        home.mkdir()
        (home / ".bashrc").write_text(f"sleep {SLOW}\n")
        request = shlex.quote(f'runuser -u {OTHER} -- /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        (folder / "as_other").write_text(f"exec sh -c {request}\n")
        for name in ("login", "n1"):
            (folder / name).mkdir()
        self.login = Sshd(folder / "login", {"SetEnv": f"LAB=1\nMatch all\n  SetEnv HOME={home} SHLVL=0"})
        self.n1 = Sshd(folder / "n1", {"ForceCommand": f"sh {folder / 'as_other'}"})
        self.ssh_config = folder / "ssh_config"
        parts = [one.ssh_config(0, extra="", path=folder / "part").read_text() for one in (self.login, self.n1)]
        named = (
            part.replace("Host *", f"Host {name}\n  HostName 127.0.0.1")
            for name, part in zip(("login", "n1"), parts, strict=True)
        )
        self.ssh_config.write_text("\n".join(named))
        self.state = State()
        self.events: list[NodeReading] = []
        self.wrong: set[str] = set()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._clock = SystemClock()
        self._rules = tuple(rule() for rule in RULES if rule.family in ("runs", "disks") and rule.name not in FULLNESS)
        self.supervisor = Supervisor(self._settings(), self._events.put, ask=None, ssh_config=self.ssh_config)

    def _settings(self) -> Settings:
        run = RunSettings(
            name="llm",
            log=str(self.files / "train.log"),
            checkpoints=str(self.files / "ckpt"),
            kill_switch=str(self.files / "kill"),
        )
        cluster = ClusterSettings(name="prod", login="login", nodes=("n1",))
        return Settings(
            clusters=(cluster,),
            runs=(run,),
            disks=(
                DiskSettings(path=str(self.files / "ckpt"), on="login"),
                DiskSettings(path="/", on="nodes"),
            ),
        )

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Fold what comes, and go through the rules with each event, until then."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}; {self.state.sources}"
            with contextlib.suppress(queue.Empty):
                event = self._events.get(timeout=0.2)
                now = self._clock.now()
                self.state = reduce(self.state, [event], now)
                self.events += [event] if isinstance(event, NodeReading) else []
                found = (finding for rule in self._rules for finding in findings(rule, self.state, now))
                self.wrong |= {finding.summary for finding in found}

    @property
    def run(self) -> Run:
        return self.state.runs["llm"]

    def is_up(self, host: str) -> bool:
        source = self.state.sources.get(f"node:{host}")
        return source is not None and source.phase == "up"

    def told_by(self, host: str, kind: type, *, is_stand_in: bool) -> list[NodeReading]:
        return [
            one
            for one in self.events
            if one.node == host and isinstance(one.reading, kind) and one.is_stand_in is is_stand_in
        ]

    def is_read_by_its_login_host(self) -> bool:
        run, disk = self.state.runs.get("llm"), self.state.disks.get(f"login:{self.files / 'ckpt'}")
        if run is None or run.log is None or run.checkpoints is None or run.kill is None or disk is None:
            return False
        return (run.log.host, run.checkpoints.host, run.kill.host) == ("login", "login", "login")

    def expect_all_well(self) -> None:
        """Nothing was found wrong at any time, and what is known now is what the login host sees."""
        assert self.wrong == set()
        assert {key for key in self.state.disks if "fsx" in key} == {f"login:{self.files / 'ckpt'}"}
        assert self.state.disks[f"login:{self.files / 'ckpt'}"].state == "ok"
        assert self.run.log is not None
        assert self.run.checkpoints is not None
        assert self.run.kill is not None
        assert (self.run.log.error, self.run.checkpoints.error, self.run.kill.exists) == (None, None, True)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    if os.getuid() != 0:
        pytest.fail("nodes log in as another user: run these tests as root, such as in a container")
    made = Site(tmp_path)
    made.n1.run()
    try:
        yield made
    finally:
        made.supervisor.stop()
        made.n1.stop()
        made.login.stop()


def test_while_the_login_host_logs_in_nobody_says_what_only_it_can_see(site: Site) -> None:
    site.login.run()
    site.supervisor.start()
    site.until(lambda: site.told_by("n1", DiskSamples, is_stand_in=False), "n1 tells of its own disk")
    assert not site.is_up("login"), "its .bashrc takes longer"
    site.until(site.is_read_by_its_login_host, "the login host reads all")
    site.expect_all_well()
    assert not [one for one in site.events if one.is_stand_in]


def test_what_a_stand_in_must_not_read_is_no_fault_and_the_login_host_judges_again(site: Site) -> None:
    site.supervisor.start()
    kinds = (DiskSamples, LogChunk, SwitchSamples)
    site.until(
        lambda: all(site.told_by("n1", kind, is_stand_in=True) for kind in kinds), "n1 stands in for the login host"
    )
    assert "no permission" in str(site.told_by("n1", DiskSamples, is_stand_in=True))
    assert (site.run.log, site.run.checkpoints, site.run.kill) == (None, None, None)
    site.login.run()
    site.supervisor.refresh()
    site.until(site.is_read_by_its_login_host, "the login host reads all")
    site.expect_all_well()
