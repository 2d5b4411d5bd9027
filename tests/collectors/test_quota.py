"""Quotas asked on this machine: real commands that print what a site's would, a real du, and every silence in words."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.connections import Connections
from collectors.quota import DU_AFTER, DU_EVERY, QuotaPoller, QuotaQuery, quota_query, run_query
from tests.lab.sshd import Sshd
from tests.trainmon.analysis.disks.test_quota import LUSTRE, LUSTRE_AWAY, QUOTA_OVER
from trainmon.analysis.disks import Parser
from trainmon.config import ClusterSettings, ConnectSettings, DiskSettings, QuotaSettings
from trainmon.lib import CommandFailed, HostUnreachable, TrainmonError
from trainmon.model import Event, Quota, QuotaRead, Source, SourceChanged
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell, Shell


class FakeClock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> float:
        return 1_800_000_000.0 + self.at

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def shell() -> Iterator[Shell]:
    reader = EventLoop()
    reader.start()
    made = LocalShell(reader, host="login1")
    yield made
    made.close()
    reader.stop()


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., str]:
    """A command that prints something, as a site's would."""

    def make(text: str, *, status: int = 0, error: str = "", first: str = "") -> str:
        (tmp_path / "out").write_text(text)
        (tmp_path / "err").write_text(error)
        script = tmp_path / "lfs"
        script.write_text(f"#!/bin/sh\n{first}\ncat {tmp_path}/out; cat {tmp_path}/err >&2; exit {status}\n")
        script.chmod(0o755)
        return str(script)

    return make


def wanted(*argv: str, parser: Parser = "lustre", path: str = "/home/mila", **more: object) -> QuotaQuery:
    return QuotaQuery(cluster="prod", path=path, command=argv, parser=parser, every=600.0, **more)  # type: ignore[arg-type]


def queried(one: QuotaQuery, shell: Shell) -> Quota:
    return run_query(one, shell, FakeClock(), "quota:prod:/home/mila")


# ---- one answer ------------------------------------------------------------------------------------------------------


def test_a_command_that_answers(shell: Shell, command: Callable[..., str]) -> None:
    quota = queried(wanted(command(LUSTRE), "quota", "-u", "me"), shell)
    assert (quota.host, quota.path, quota.source) == ("login1", "/home/mila", "quota:prod:/home/mila")
    assert quota.allowances[0].hard_inodes == 1048576


def test_it_is_niced_and_speaks_plainly(shell: Shell, command: Callable[..., str], tmp_path: Path) -> None:
    queried(wanted(command(LUSTRE, first=f'nice > {tmp_path}/nice; echo "$LC_ALL" >> {tmp_path}/nice')), shell)
    assert (tmp_path / "nice").read_text().split() == ["19", "C"]


def test_a_command_that_fails_and_still_answers_has_answered(shell: Shell, command: Callable[..., str]) -> None:
    """quota(1) ends with 1 where one is over it, lfs with an error where a server is away."""
    over = queried(wanted(command(QUOTA_OVER, status=1), parser="quota", path="/dev/sda1"), shell)
    assert over.allowances[0].bytes_grace == "6days"
    away = queried(wanted(command(LUSTRE_AWAY, status=5)), shell)
    assert away.trouble is not None


def test_a_real_du_against_the_limit_of_the_config(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "shard").write_bytes(b"x" * 3_000_000)
    one = wanted("du", "-s", str(tmp_path), parser="du", path=str(tmp_path), limit=10**9)
    used = queried(one, shell).allowances[0].used_bytes
    printed = subprocess.run(["du", "-s", str(tmp_path)], capture_output=True, text=True, check=True, timeout=60).stdout
    assert used == int(printed.split()[0]) * 1024
    assert used >= 3_000_000


@pytest.mark.parametrize(
    ("printed", "status", "error", "says"),
    [
        ("", 1, "Disk quotas not supported\n", "login1: .*lfs: Disk quotas not supported"),
        ("what is this\n", 0, "", "login1: .*lfs: its output cannot be parsed"),
        ("", 2, "\x1b[31mfailed: password=hunter2secret\n", r"login1: .*lfs: failed: password=\S*\*+"),
    ],
)
def test_what_came_in_place_of_an_answer(
    shell: Shell, command: Callable[..., str], printed: str, status: int, error: str, says: str
) -> None:
    with pytest.raises(TrainmonError, match=says) as caught:
        queried(wanted(command(printed, status=status, error=error)), shell)
    assert "hunter2" not in str(caught.value)


def test_a_command_that_is_not_there(shell: Shell) -> None:
    with pytest.raises(CommandFailed, match="there is no mmlsquota-of-nowhere on login1") as caught:
        queried(wanted("mmlsquota-of-nowhere", parser="gpfs"), shell)
    assert caught.value.hint == "set its absolute path"


def test_a_command_that_hangs_is_ended_there(
    shell: Shell, command: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.quota.TIME_LIMIT", 1.0)
    hangs = command("", first=f"echo $$ > {tmp_path}/pid; exec sleep 300")
    with pytest.raises(CommandFailed, match="lfs did not end in 1s"):
        run_query(wanted(hangs), shell, FakeClock(), "quota:prod:/home/mila")
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_over_ssh_as_well(command: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = EventLoop()
    reader.start()
    with Sshd.start(tmp_path / "sshd") as sshd:
        dialling = Connections(reader, ConnectSettings(timeout=10.0), None, sshd.ssh_config(1))
        remote = dialling.dial("n0")
        assert queried(wanted(command(LUSTRE), "quota", "-u", "a'; exit 3 #"), remote).host == "n0"
        hangs = command("", first=f"echo $$ > {tmp_path}/pid; exec sleep 300")
        monkeypatch.setattr("collectors.quota.TIME_LIMIT", 1.0)
        with pytest.raises(CommandFailed, match=r"n0: .*lfs did not end in 1s"):
            run_query(wanted(hangs), remote, FakeClock(), "quota:prod:/home/mila")
        assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
        remote.close()
        dialling.close()
    reader.stop()


# ---- over time -------------------------------------------------------------------------------------------------------


class Scene:
    """An asker, what it has told, and a clock."""

    def __init__(self, one: QuotaQuery, shell: Shell, hosts: tuple[str, ...] = ("login1",)) -> None:
        self.clock = FakeClock()
        self.events: list[Event] = []
        self.hosts = hosts
        self.requests: list[str] = []
        self.down: set[str] = set()
        self.asker = QuotaPoller(one, lambda: self.hosts, self._shell, self.events.append, self.clock)
        self._real = shell

    def _shell(self, host: str) -> Shell:
        self.requests.append(host)
        if host in self.down:
            raise HostUnreachable(host, f"{host} is not connected")
        return self._real

    def after(self, seconds: float) -> float:
        """Let time pass, and whatever is due be done."""
        self.clock.at += seconds
        wait = 0.0
        for _ in range(20):
            wait = self.asker.step()
            if wait > 0:
                break
        return wait

    @property
    def source(self) -> Source:
        return next(event.source for event in reversed(self.events) if isinstance(event, SourceChanged))

    @property
    def seen(self) -> list[QuotaRead]:
        return [event for event in self.events if isinstance(event, QuotaRead)]


def test_it_is_queried_every_ten_minutes(shell: Shell, command: Callable[..., str]) -> None:
    scene = Scene(wanted(command(LUSTRE)), shell)
    scene.after(0)
    assert (len(scene.seen), scene.source.phase, scene.source.period) == (1, "up", 600.0)
    assert scene.seen[0].shared
    for _ in range(19):
        scene.after(30.0)
    assert len(scene.requests) == 1
    scene.after(30.0)
    assert len(scene.requests) == 2


def test_a_person_and_an_alert_have_it_queried_once_a_minute(shell: Shell, command: Callable[..., str]) -> None:
    scene = Scene(wanted(command(LUSTRE)), shell)
    scene.after(0)
    assert scene.asker.has_source("quota:prod:/home/mila")
    for _ in range(6):
        scene.asker.refresh()
        scene.after(10.0)
    assert len(scene.requests) == 2


def test_what_fails_is_reported_and_queried_less_often(shell: Shell, command: Callable[..., str]) -> None:
    scene = Scene(wanted(command("nonsense\n")), shell)
    scene.after(0)
    assert scene.source.phase == "retrying"
    assert scene.source.error is not None
    times = [len(scene.requests)]
    for _ in range(4):
        scene.after(600.0)
        times.append(len(scene.requests))
    assert times == [1, 2, 2, 3, 3]
    assert scene.seen == []
    command(LUSTRE)
    for _ in range(6):
        scene.after(600.0)
    assert scene.source.error is None
    assert len(scene.seen) >= 1


def test_a_login_that_is_not_connected_is_no_error_at_once(shell: Shell, command: Callable[..., str]) -> None:
    scene = Scene(wanted(command(LUSTRE)), shell)
    scene.down.add("login1")
    scene.after(0)
    assert not any(isinstance(event, SourceChanged) and event.source.error for event in scene.events)
    scene.after(60.0)
    assert scene.source.error == "login1 is not connected"
    scene.down.clear()
    scene.after(10.0)
    assert (scene.source.phase, len(scene.seen)) == ("up", 1)


def test_where_nobody_sees_the_path_that_is_reported(shell: Shell, command: Callable[..., str]) -> None:
    scene = Scene(wanted(command(LUSTRE)), shell, hosts=())
    scene.after(60.0)
    assert scene.source.error == "no host that reads /home/mila is up"


def test_a_host_that_is_lost_is_reported_at_once_and_queried_again_when_it_is_back(
    shell: Shell, command: Callable[..., str]
) -> None:
    scene = Scene(wanted(command(LUSTRE)), shell)
    scene.after(0)
    scene.hosts = ()
    scene.after(120.0)
    assert (scene.source.phase, scene.source.error) == ("waiting", "no host that reads /home/mila is up")
    scene.hosts = ("login1",)
    scene.after(30.0)
    assert (scene.source.phase, len(scene.seen)) == ("up", 2)


def test_on_every_node_each_is_queried_by_itself_and_one_that_leaves_is_off(
    shell: Shell, command: Callable[..., str]
) -> None:
    scene = Scene(wanted(command(LUSTRE), shared=False), shell, hosts=("n1", "n2"))
    scene.after(0)
    assert scene.requests == ["n1", "n2"]
    assert not scene.seen[0].shared
    scene.hosts = ("n2",)
    scene.after(30.0)
    assert (scene.source.name, scene.source.phase) == ("quota:n1:/home/mila", "off")


def test_du_waits_a_minute_and_goes_at_its_own_pace(shell: Shell, tmp_path: Path) -> None:
    disk = DiskSettings(
        path=str(tmp_path),
        quota=QuotaSettings(command=("du", "-s", str(tmp_path)), parser="du", every=600.0, limit=10**9),
    )
    one = quota_query(disk, ClusterSettings(name="prod"))
    assert one is not None
    assert (one.every, one.time_limit) == (DU_EVERY, 3600.0)
    scene = Scene(one, shell)
    scene.after(DU_AFTER - 1)
    assert scene.events == []
    scene.after(2.0)
    assert len(scene.seen) == 1
    scene.asker.refresh()
    scene.after(3600.0)
    assert len(scene.requests) == 1
    scene.hosts = ()
    scene.after(60.0)
    assert scene.source.phase == "off"
    scene.hosts = ("login1",)
    scene.after(30.0)
    assert (scene.source.phase, len(scene.requests)) == ("up", 1)


def test_its_thread_queries_and_ends(shell: Shell, command: Callable[..., str]) -> None:
    scene = Scene(wanted(command(LUSTRE)), shell)
    scene.asker.start()
    assert scene.events[0] == SourceChanged(
        Source(name="quota:prod:/home/mila", kind="files", cluster="prod", period=600.0)
    )
    scene.asker.stop()
